//! A Source whose resources are rows of a database, here of `SQLite`.
//!
//! ```text
//! cargo run -p resync-publisher --example sqlite -- FOLDER [HUB]
//! ```
//!
//! makes `FOLDER/records.db` and the site in `FOLDER/site`. Each run adds a record, alters the first and removes the one before the last.

use std::{error::Error, path::Path};

use resync_publisher::{prelude::*, publish::Built};
use rusqlite::{Connection, Row};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("name a folder for the database and the site")?;
    let repository = Repository::open(Path::new(&folder), arguments.next())?;
    // This finds unreported changes: the first time everything, after a crash what was under way.
    let listed = repository.list()?;
    println!("records: {}, unreported changes: {}", listed.resources, listed.changes.total());

    repository.put(listed.resources + 1, "new")?;
    repository.put(1, &format!("one of {} records", listed.resources + 1))?;
    if listed.resources > 1 {
        repository.remove(listed.resources)?;
    }
    // A server does this about every second.
    match repository.set.publish()? {
        Some(built) => println!("changes published: {}, records: {}", built.changes.total(), built.resources),
        None => println!("nothing to publish"),
    }
    if repository.has_hub {
        // With the token that the hub's operator gave you.
        for report in repository.set.notify(&[]).await? {
            println!("{}: {:?}", report.hub, report.outcome);
        }
    }
    Ok(())
}

/// Records in a database, and the set of resources that they are.
struct Repository {
    database: Connection,
    set: Set,
    has_hub: bool,
}

impl Repository {
    fn open(folder: &Path, hub: Option<String>) -> Result<Self, Box<dyn Error>> {
        std::fs::create_dir_all(folder)?;
        let database = Connection::open(folder.join("records.db"))?;
        database.execute_batch(
            "CREATE TABLE IF NOT EXISTS records (uri TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
        )?;
        let has_hub = hub.is_some();
        let mut source = Source::new(folder.join("site"), "https://example.org/".parse()?);
        if let Some(hub) = hub {
            source = source.hub(hub.parse()?);
        }
        Ok(Self { database, set: source.set("records")?, has_hub })
    }

    /// Lists all records. `SQLite` compares texts byte by byte, which is the order of an inventory; rows are never held in memory together.
    fn list(&self) -> Result<Built, Box<dyn Error>> {
        let mut rows = self.database.prepare("SELECT uri, content FROM records ORDER BY uri")?;
        Ok(self.set.list(|| rows.query_map([], of_row))?)
    }

    /// Puts a record, and reports it after that: if a crash comes between, the next `list` finds the change.
    fn put(&self, number: u64, content: &str) -> Result<(), Box<dyn Error>> {
        let uri = uri(number);
        let is_new = !self.database.prepare("SELECT 1 FROM records WHERE uri = ?")?.exists([&uri])?;
        self.database.execute("INSERT OR REPLACE INTO records VALUES (?, ?)", [&uri, content])?;
        let item = item(uri, content);
        Ok(if is_new { self.set.created(item) } else { self.set.updated(item) }?)
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

fn of_row(row: &Row<'_>) -> rusqlite::Result<Item> {
    let (uri, content) = (row.get::<_, String>(0)?, row.get::<_, String>(1)?);
    Ok(item(uri, &content))
}

/// What the documents say of a record: its length, digest and media type.
fn item(uri: String, content: &str) -> Item {
    Item::new(uri).content(content.as_bytes()).media_type("text/plain")
}
