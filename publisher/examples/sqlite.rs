//! A Source whose resources are rows of a database, here of `SQLite`: its records are listed once, and from then on each change is reported.
//!
//! ```text
//! cargo run -p resync-publisher --example sqlite -- FOLDER
//! ```
//!
//! makes `FOLDER/records.db` and the site in `FOLDER/site`. Each run adds a record, alters the first and removes the one before the last.

use std::{error::Error, path::Path};

use resync_core::{
    build::{BuildError, Item},
    digest::{Algorithm, Digest},
    document::Metadata,
};
use resync_publisher::{
    BaseUrl,
    publish::Built,
    source::{Set, Source},
};
use rusqlite::{Connection, Row};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name a folder for the database and the site")?;
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let repository = Repository::open(folder)?;
    // This finds unreported changes: the first time everything, after a crash what was under way.
    let listed = repository.list()?;
    println!("{} records, {} unreported changes", listed.resources, listed.changes.total());

    repository.put(listed.resources + 1, "new")?;
    repository.put(1, &format!("one of {} records", listed.resources + 1))?;
    if listed.resources > 1 {
        repository.remove(listed.resources)?;
    }
    match repository.set.publish()? {
        Some(built) => println!("{} changes published, {} records", built.changes.total(), built.resources),
        None => println!("nothing to publish"),
    }
    // With a hub (`Source::hub`) this is the moment for `set.notify(&tokens).await`.
    Ok(())
}

/// Records in a database, and the set of resources that they are.
struct Repository {
    database: Connection,
    set: Set,
}

impl Repository {
    fn open(folder: &Path) -> Result<Self, Box<dyn Error>> {
        let database = Connection::open(folder.join("records.db"))?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS records (uri TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
        )?;
        let source = Source::new(folder.join("site"), BaseUrl::parse("https://example.org/")?);
        Ok(Self { database, set: source.set("records")? })
    }

    /// Lists all records. `SQLite` compares texts byte by byte, which is the order of an inventory; rows are never held in memory together.
    fn list(&self) -> Result<Built, Box<dyn Error>> {
        let mut rows = self.database.prepare("SELECT uri, content FROM records ORDER BY uri")?;
        let listed = self.set.list(|| {
            let items = rows.query_map([], item).map_err(unreadable)?;
            Ok(items.map(|item| item.map_err(unreadable)))
        });
        Ok(listed?)
    }

    /// Puts a record, and reports it after that: if a crash comes between, the next `list` finds the change.
    fn put(&self, number: u64, content: &str) -> Result<(), Box<dyn Error>> {
        let uri = uri(number);
        let is_new = 0
            == self.database.query_row("SELECT count(*) FROM records WHERE uri = ?", [&uri], |row| {
                row.get::<_, u64>(0)
            })?;
        self.database.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", [&uri, content])?;
        if is_new {
            self.set.created(uri, metadata(content))?;
        } else {
            self.set.updated(uri, metadata(content))?;
        }
        Ok(())
    }

    fn remove(&self, number: u64) -> Result<(), Box<dyn Error>> {
        if self.database.execute("DELETE FROM records WHERE uri = ?", [uri(number)])? > 0 {
            self.set.deleted(uri(number))?;
        }
        Ok(())
    }
}

fn uri(number: u64) -> String {
    format!("https://example.org/records/{number:08}")
}

fn item(row: &Row<'_>) -> rusqlite::Result<Item> {
    let (uri, content) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
    let Metadata { hash, length, media_type, .. } = metadata(&content);
    Ok(Item { hashes: hash, length, media_type, ..Item::new(uri) })
}

fn metadata(content: &str) -> Metadata {
    Metadata {
        hash: Digest::of(Algorithm::Sha256, content.as_bytes()).into(),
        length: u64::try_from(content.len()).ok(),
        media_type: Some("text/plain".to_owned()),
        ..Metadata::default()
    }
}

fn unreadable(error: rusqlite::Error) -> BuildError {
    std::io::Error::other(error).into()
}
