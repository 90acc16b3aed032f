//! How far the database was when this hub heard of it last. One that is not as far was restored to an earlier point: what was given out since
//! then would be given out again. It is remembered in the hub's folder, too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use resync_common::locks::lock;
use resync_core::durable::replace;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use super::rows::{Fields, the_only};
use crate::store::{Result, StoreError};

/// Where a database is, asked through a connection by which something was committed.
pub(super) const LOOK: &str =
    "SELECT s.id::text AS id, s.era, pg_current_wal_insert_lsn()::text AS lsn FROM hub.store s";

/// The file.
const FILE: &str = "database-history.json";
const SHORTER: &str = "it is at an earlier point than this hub has seen: if it was restored, stop all hubs, and type `resync-hub restored`";

/// What is remembered.
#[derive(Debug)]
pub(super) struct History {
    file: PathBuf,
    /// `None`: nothing was heard of any database.
    seen: Mutex<Option<Point>>,
}

/// A point in the history of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Point {
    /// The store.
    id: String,
    era: i64,
    /// In the WAL: standbys have it, if commits wait for any.
    position: u64,
}

impl History {
    /// That of the hub with this folder.
    pub(super) fn of(folder: &Path) -> Self {
        let file = folder.join(FILE);
        let seen = read(&file).unwrap_or_else(|error| {
            tracing::warn!(%error, file = %file.display(), "a database that was restored to an earlier point is not noticed");
            None
        });
        Self { file, seen: Mutex::new(seen) }
    }

    /// Whether the database is as far as it was.
    ///
    /// # Errors
    /// [`StoreError::NotDurable`] where it is not, and has not leaped since.
    pub(super) fn check(&self, rows: &[Row]) -> Result<()> {
        let fields = Fields::of("store", the_only(rows)?);
        let position = position_of(&fields.text("lsn")?);
        let position = position.ok_or_else(|| fields.damaged("lsn", "this is no position"))?;
        self.follow(Point { id: fields.text("id")?, era: fields.get("era")?, position })
    }

    fn follow(&self, found: Point) -> Result<()> {
        let mut seen = lock(&self.seen);
        match &*seen {
            Some(seen) if seen.id == found.id && (found.era, found.position) < (seen.era, seen.position) => {
                Err(StoreError::NotDurable(SHORTER.to_owned()))
            }
            Some(seen) if seen.id == found.id && seen.era == found.era => Ok(()),
            // Of what it has written so far standbys may lack some.
            _ => {
                *seen = Some(Point { position: 0, ..found });
                Ok(())
            }
        }
    }

    /// What was written before this position is committed.
    pub(super) fn note(&self, lsn: &str) {
        if let (Some(seen), Some(position)) = (&mut *lock(&self.seen), position_of(lsn)) {
            seen.position = seen.position.max(position);
        }
    }

    /// Remembers it for the next start.
    pub(super) fn save(&self) {
        let Some(seen) = lock(&self.seen).clone() else { return };
        let text = serde_json::to_vec(&seen).map_err(io::Error::other);
        if let Err(error) = text.and_then(|text| replace(&self.file, &text)) {
            tracing::debug!(%error, "how far the database is was not written down");
        }
    }
}

fn read(file: &Path) -> io::Result<Option<Point>> {
    match fs::read(file) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A position as PostgreSQL writes it: two numbers of 32 bits.
fn position_of(lsn: &str) -> Option<u64> {
    let (high, low) = lsn.split_once('/')?;
    let number = |half| u32::from_str_radix(half, 16).ok();
    Some((u64::from(number(high)?) << 32) | u64::from(number(low)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(id: &str, era: i64, position: u64) -> Point {
        Point { id: id.to_owned(), era, position }
    }

    #[test]
    fn a_position_is_read_as_postgresql_writes_it() {
        for (lsn, position) in
            [("0/0", Some(0)), ("1/16B3748", Some(0x1_016b_3748)), ("", None), ("1/", None), ("g/1", None)]
        {
            assert_eq!(position_of(lsn), position, "{lsn}");
        }
    }

    #[test]
    fn a_database_that_is_at_an_earlier_point_is_refused_until_it_has_leaped_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        history.save();
        history.follow(point("a", 1, 90)).unwrap();
        history.follow(point("a", 1, 10)).unwrap();
        history.note("0/64");
        history.note("0/50");
        history.save();
        for history in [&history, &History::of(folder.path())] {
            for earlier in [point("a", 1, 99), point("a", 0, 200)] {
                let refused = history.follow(earlier).unwrap_err();
                assert!(refused.to_string().contains("`resync-hub restored`"), "{refused}");
            }
            history.follow(point("a", 1, 100)).unwrap();
        }
        history.follow(point("a", 2, 20)).unwrap();
        history.follow(point("a", 2, 10)).unwrap();
        history.note("0/1E");
        assert!(history.follow(point("a", 2, 29)).is_err());
        history.follow(point("another", 0, 1)).unwrap();
    }
}
