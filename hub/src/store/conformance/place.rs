//! Where a test's store is: in a folder, or in a database of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "postgres")]
use std::time::Duration;

#[cfg(feature = "postgres")]
use resync_harness::{Database, Postgres, Rows};
use tempfile::TempDir;

#[cfg(feature = "postgres")]
use crate::config::{DatabaseConfig, DatabaseLimits};
#[cfg(feature = "postgres")]
use crate::store::postgres::documents;
use crate::store::{self, Engine, Keyring, Store};

/// A place in which a store can be opened again and again.
pub(super) struct Place {
    pub(super) store: store::Place,
    folder: TempDir,
    #[cfg(feature = "postgres")]
    database: Option<Database>,
}

impl Place {
    /// A folder that is not there yet, for this engine.
    pub(super) fn embedded(engine: Engine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            store: store::Place::Folder { engine, directory: data_in(&folder) },
            folder,
            #[cfg(feature = "postgres")]
            database: None,
        }
    }

    /// An empty database; `None` where there is no PostgreSQL.
    #[cfg(feature = "postgres")]
    pub(super) fn in_postgres() -> Option<Self> {
        let (folder, database) = (tempfile::tempdir().unwrap(), Postgres::shared()?.database());
        let settings = vec![
            ("store.engine", "postgres".to_owned()),
            ("store.url", database.url()),
            ("store.durability", "declared".to_owned()),
            ("data_dir", data_in(&folder).display().to_string()),
        ];
        let config = DatabaseConfig::of(&crate::config::load(None, [], &settings).unwrap());
        // Whatever is removed takes several commands, and what is asked is looked up.
        let limits = DatabaseLimits { slice: 3, hubs_fresh: Duration::ZERO };
        let store = store::Place::Database(DatabaseConfig { limits, ..config });
        Some(Self { store, folder, database: Some(database) })
    }

    /// One for each engine, all of them empty.
    pub(super) fn of_every_engine() -> Vec<Self> {
        let embedded = [
            Engine::Fjall,
            #[cfg(feature = "sled")]
            Engine::Sled,
        ];
        let places = embedded.map(Self::embedded).into_iter();
        #[cfg(feature = "postgres")]
        let places = places.chain(Self::in_postgres());
        places.collect()
    }

    /// Another one for the same engine, which is empty.
    pub(super) fn another(&self) -> Self {
        match &self.store {
            store::Place::Folder { engine, .. } => Self::embedded(*engine),
            #[cfg(feature = "postgres")]
            store::Place::Database(_) => Self::in_postgres().unwrap(),
        }
    }

    pub(super) fn is_in_folder(&self) -> bool {
        self.store.is_folder()
    }

    /// The data folder: files are beside the store there, and a store of an embedded engine itself.
    pub(super) fn data(&self) -> PathBuf {
        data_in(&self.folder)
    }

    pub(super) async fn open(&self) -> Arc<dyn Store> {
        self.open_with(Keyring::none()).await.unwrap()
    }

    pub(super) async fn open_with(&self, keys: Keyring) -> store::Result<Arc<dyn Store>> {
        self.store.open(keys, 0).await
    }

    /// The store as another hub has it open at the same time, with a folder of its own.
    #[cfg(feature = "postgres")]
    pub(super) async fn second(&self) -> Arc<dyn Store> {
        self.in_folder("second", Keyring::none()).await.unwrap()
    }

    /// The same with these keys.
    #[cfg(feature = "postgres")]
    pub(super) async fn second_with(&self, keys: Keyring) -> store::Result<Arc<dyn Store>> {
        self.in_folder("second", keys).await
    }

    #[cfg(feature = "postgres")]
    async fn in_folder(&self, name: &str, keys: Keyring) -> store::Result<Arc<dyn Store>> {
        let store::Place::Database(config) = &self.store else { panic!("a folder has one owner") };
        let config = DatabaseConfig { data_dir: self.folder.path().join(name), ..config.clone() };
        store::Place::Database(config).open(keys, 0).await
    }

    /// Does this in the database, behind the hub's back.
    #[cfg(feature = "postgres")]
    pub(super) fn sql(&self, statements: &str) -> Rows {
        self.database.as_ref().unwrap().sql(statements).unwrap()
    }

    /// What is wrong with the closed store.
    pub(super) fn faults(&self) -> Vec<String> {
        self.store.check(&Keyring::none()).unwrap().faults
    }

    /// The store after a clean end of the process.
    pub(super) async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        assert_eq!(Arc::strong_count(&store), 1, "somebody keeps the store open");
        drop(store);
        self.open().await
    }

    /// What is kept beside the store, as a file of this name or as the document that stands for it. The store must not be open.
    #[cfg_attr(not(feature = "postgres"), allow(clippy::unused_async, reason = "a file is read at once"))]
    pub(super) async fn beside(&self, name: &str) -> Option<Vec<u8>> {
        #[cfg(feature = "postgres")]
        if self.database.is_some() {
            let store = self.open().await;
            let registry = store.registry();
            if name == documents::LOG {
                return Some(registry.read_log().unwrap()).filter(|log| !log.is_empty());
            }
            let of = documents::ALL.into_iter().find(|of| documents::name(*of) == name).unwrap();
            return registry.read(of).unwrap();
        }
        fs::read(self.data().join(name)).ok()
    }

    /// Whether nothing was made here yet.
    pub(super) fn is_empty(&self) -> bool {
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            let tables = database.sql("SELECT 1 FROM pg_class WHERE relkind = 'r' AND oid >= 16384").unwrap();
            return tables.is_empty() && !self.data().exists();
        }
        !self.data().exists()
    }

    /// Whether any file in which the store is holds this text.
    pub(super) fn holds(&self, text: &str) -> bool {
        #[cfg(feature = "postgres")]
        if let Some(database) = &self.database {
            return holds(&database.files(), text);
        }
        holds(&self.data(), text)
    }
}

/// A database of several hubs, for the tests of other modules.
#[cfg(feature = "postgres")]
pub(crate) struct SharedDatabase(Place);

#[cfg(feature = "postgres")]
impl SharedDatabase {
    /// An empty one; `None` where there is no PostgreSQL.
    pub(crate) fn new() -> Option<Self> {
        Place::in_postgres().map(Self)
    }

    /// The store as the hub of this name has it open.
    pub(crate) async fn hub(&self, name: &str) -> Arc<dyn Store> {
        self.0.in_folder(name, Keyring::none()).await.unwrap()
    }

    /// Does this in the database, behind the hubs' backs.
    pub(crate) fn sql(&self, statements: &str) {
        self.0.sql(statements);
    }
}

fn data_in(folder: &TempDir) -> PathBuf {
    folder.path().join("made/when/needed")
}

fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, text);
        }
        match fs::read(path) {
            // A server that runs replaces some of its files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            bytes => bytes.unwrap().windows(text.len()).any(|window| window == text.as_bytes()),
        }
    })
}
