//! PostgreSQL for tests: plain servers as an unprivileged user, for as long as the test program runs, and databases in them.

mod programs;
mod replicated;
mod server;
mod session;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub use self::replicated::{Primary, Replicated, SERVERS};
pub use self::session::Rows;

use self::programs::{Medium, Programs};
use self::server::{DATA, Server};
use super::left_out;

/// Everybody who may open the socket is this user of the database.
const USER: &str = "postgres";
/// The database that every server has.
const FIRST: &str = "postgres";
/// A part of the socket's name; nothing listens at a port.
const PORT: u16 = 5_432;
/// Nobody stands by.
const ALONE: [&str; 3] = ["listen_addresses=", "wal_level=minimal", "max_wal_senders=0"];
const NEEDED: [&str; 2] = ["initdb", "postgres"];

/// A running server. It ends with the test program, also where that is killed.
#[derive(Debug)]
pub struct Postgres {
    server: Server,
    databases: AtomicU32,
}

impl Postgres {
    /// The server of this test program, started when it is needed for the first time; `None` where there is no PostgreSQL, which is said.
    ///
    /// # Panics
    /// When it is there and does not start.
    pub fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Postgres>> = OnceLock::new();
        SHARED
            .get_or_init(|| {
                let started = Programs::find(&NEEDED, Medium::Memory).map(|programs| Self::start(&programs));
                started.inspect_err(|why| left_out("the store in PostgreSQL", why)).ok()
            })
            .as_ref()
    }

    fn start(programs: &Programs) -> Self {
        let folder = programs.folder();
        make_data(programs, folder.path());
        let server = Server::start(programs, folder, PORT, &ALONE.map(str::to_owned));
        Self { server, databases: AtomicU32::new(0) }
    }

    /// A new, empty database.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn database(&'static self) -> Database {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql(FIRST, &format!("CREATE DATABASE {name}")).expect("a database can be made");
        Database { server: self, name }
    }

    /// The folder in which its files are.
    pub fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// The number of the process that keeps it, and ends with it.
    pub fn keeper(&self) -> u32 {
        self.server.keeper()
    }

    /// Carries out statements in a database, and returns the rows that they give as text.
    ///
    /// # Errors
    /// What the server says against it, or why it says nothing.
    pub fn sql(&self, database: &str, statements: &str) -> Result<Rows, String> {
        self.server.sql(database, statements)
    }
}

/// Makes the data of a new server in its folder.
fn make_data(programs: &Programs, folder: &Path) {
    let data = folder.join(DATA).display().to_string();
    let arguments = [
        "--pgdata",
        &data,
        "--username",
        USER,
        "--auth",
        "trust",
        "--encoding",
        "UTF8",
        "--locale",
        "C",
        "--no-sync",
    ];
    programs.run("initdb", &arguments, folder);
}

/// A database of its own, which is removed with whatever is connected to it when this is dropped.
#[derive(Debug)]
pub struct Database {
    server: &'static Postgres,
    name: String,
}

impl Database {
    /// Where it is, for `[store] url`.
    pub fn url(&self) -> String {
        let folder = self.server.folder().display().to_string().replace('/', "%2F");
        format!("postgres://{USER}@{folder}:{PORT}/{}", self.name)
    }

    /// As [`Postgres::sql`].
    ///
    /// # Errors
    /// What the server says against it.
    pub fn sql(&self, statements: &str) -> Result<Rows, String> {
        self.server.sql(&self.name, statements)
    }

    /// The folder with its tables, as they are now.
    ///
    /// # Panics
    /// When the server does not answer.
    pub fn files(&self) -> PathBuf {
        let number = "SELECT oid FROM pg_database WHERE datname = current_database()";
        let found = self.sql("CHECKPOINT").and_then(|_| self.sql(number)).expect("a running server answers");
        let number = found.into_iter().flatten().flatten().next().expect("the database is there");
        self.server.folder().join(DATA).join("base").join(number)
    }

    /// The server that it is in.
    pub fn server(&self) -> &'static Postgres {
        self.server
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let removed = self.server.sql(FIRST, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        if let Err(error) = removed {
            eprintln!("the database {} stays: {error}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_there_until_it_is_dropped() {
        let Some(server) = Postgres::shared() else { return };
        let (one, other) = (server.database(), server.database());
        one.sql("CREATE TABLE kept (word text); INSERT INTO kept VALUES ('yes'), (NULL)").unwrap();
        let kept = one.sql("SELECT word, 7 FROM kept ORDER BY word NULLS LAST").unwrap();
        let seven = Some("7".to_owned());
        assert_eq!(kept, [vec![Some("yes".to_owned()), seven.clone()], vec![None, seven]]);
        let error = other.sql("SELECT word FROM kept").unwrap_err();
        assert!(error.contains("kept"), "{error}");
        let name = one.name.clone();
        drop(one);
        assert!(server.sql(&name, "SELECT 1").unwrap_err().contains(&name));
    }

    #[test]
    fn a_server_ends_with_whoever_has_started_it_and_leaves_nothing() {
        let Ok(programs) = Programs::find(&NEEDED, Medium::Memory) else { return };
        let Postgres { server, .. } = Postgres::start(&programs);
        let folder = server.folder().to_owned();
        assert!(folder.exists());
        // Also where its machine stands still.
        server.pause();
        server.end();
        assert!(!folder.exists());
    }
}
