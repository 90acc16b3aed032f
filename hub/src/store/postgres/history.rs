//! How far the database was when this hub heard of it last. One that is not as far was restored to an earlier point: what was given out since
//! then would be given out again. It is remembered in the hub's folder, too.
//!
//! The measure is what nobody but this hub changes: how often a hub with this folder has said that it is up.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use resync_common::locks::lock;
use resync_core::durable::replace;
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

use super::rows::{Fields, random_id, the_only};
use crate::store::{Result, StoreError};

/// Where a database is of which the hub with this folder asks, through a connection by which something was committed.
pub(super) const LOOK: &str = "
SELECT s.id::text AS id, s.era, coalesce((SELECT w.beats FROM hub.witness w WHERE w.folder = $1), 0) AS beats FROM hub.store s";

/// The file.
const FILE: &str = "database-history.json";

/// What is remembered.
#[derive(Debug)]
pub(super) struct History {
    file: PathBuf,
    /// What the folder is called in the database.
    folder: i64,
    /// `None`: nothing was heard of any database.
    seen: Mutex<Option<Point>>,
    /// What the file says.
    saved: Mutex<Option<Point>>,
}

/// A point in the history of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Point {
    /// The store.
    id: String,
    era: i64,
    /// How often a hub with this folder has said that it is up, as far as that was acknowledged.
    beats: i64,
    /// The database was found at an earlier point: so it stays until it has leaped, however far it gets.
    refused: bool,
}

/// The file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    folder: i64,
    seen: Point,
}

impl History {
    /// That of the hub with this folder.
    pub(super) fn of(folder: &Path) -> Self {
        let file = folder.join(FILE);
        let kept = read(&file).unwrap_or_else(|error| {
            tracing::warn!(%error, file = %file.display(), "a database that was restored to an earlier point is not noticed");
            None
        });
        let (folder, seen) =
            kept.map_or_else(|| (random_id(), None), |Kept { folder, seen }| (folder, Some(seen)));
        Self { file, folder, saved: Mutex::new(seen.clone()), seen: Mutex::new(seen) }
    }

    /// What the folder is called in the database.
    pub(super) fn folder(&self) -> i64 {
        self.folder
    }

    /// How far the database was, for [`History::check`]: to be asked before the database is.
    pub(super) fn seen(&self) -> Option<Point> {
        lock(&self.seen).clone()
    }

    /// Whether the database, which has answered [`LOOK`] so, is as far as it was before it was asked.
    ///
    /// # Errors
    /// [`StoreError::EarlierPoint`] where it is not, and has not leaped since.
    pub(super) fn check(&self, before: Option<&Point>, rows: &[Row]) -> Result<()> {
        self.follow(before, point(rows)?)
    }

    /// The first era in which what a store that has answered [`LOOK`] so gives out was not given out before, as far as is known here.
    pub(super) fn next_era(&self, rows: &[Row]) -> Result<i64> {
        let found = point(rows)?;
        Ok(self.seen().filter(|seen| seen.id == found.id).map_or(0, |seen| seen.era + 1))
    }

    fn follow(&self, before: Option<&Point>, found: Point) -> Result<()> {
        let mut seen = lock(&self.seen);
        if let Some(before) = before.filter(|before| before.is_later_than(&found)) {
            // It may have leaped since.
            if let Some(seen) = seen.as_mut().filter(|seen| seen.id == before.id && seen.era == before.era) {
                seen.refused = true;
            }
            return Err(StoreError::EarlierPoint);
        }
        match &*seen {
            Some(seen) if seen.id == found.id && seen.era >= found.era => return Ok(()),
            Some(seen) if seen.id != found.id => {
                tracing::warn!(
                    known = seen.id,
                    found = found.id,
                    "this is another store than the one that this hub has used: look at [store] url unless you have restored a backup"
                );
            }
            _ => {}
        }
        // Of what it has written so far standbys may lack some.
        *seen = Some(Point { beats: 0, refused: false, ..found });
        Ok(())
    }

    /// So often a hub with this folder has said by now, in this era, that it is up: that is committed.
    pub(super) fn note(&self, era: i64, beats: i64) {
        if let Some(seen) = &mut *lock(&self.seen) {
            if era > seen.era {
                // It has leaped since the connection was made.
                (seen.era, seen.beats, seen.refused) = (era, beats, false);
            } else if era == seen.era {
                seen.beats = seen.beats.max(beats);
            }
        }
    }

    /// # Errors
    /// [`StoreError::EarlierPoint`] where the database was found at one, also by another connection.
    pub(super) fn heed(&self) -> Result<()> {
        match &*lock(&self.seen) {
            Some(seen) if seen.refused => Err(StoreError::EarlierPoint),
            _ => Ok(()),
        }
    }

    /// Remembers it for the next start.
    pub(super) fn save(&self) {
        // Held while it is written, so that nobody puts back an older text.
        let mut saved = lock(&self.saved);
        let Some(seen) = self.seen().filter(|seen| saved.as_ref() != Some(seen)) else { return };
        let kept = Kept { folder: self.folder, seen };
        let text = serde_json::to_vec(&kept).map_err(io::Error::other);
        match text.and_then(|text| replace(&self.file, &text)) {
            Ok(()) => *saved = Some(kept.seen),
            Err(error) => tracing::debug!(%error, "how far the database is was not written down"),
        }
    }
}

impl Point {
    /// Whether a store that was here cannot be there now, unless it was restored.
    fn is_later_than(&self, found: &Self) -> bool {
        let is_earlier = (found.era, found.beats) < (self.era, self.beats);
        self.id == found.id && (is_earlier || (self.refused && found.era <= self.era))
    }
}

fn point(rows: &[Row]) -> Result<Point> {
    let fields = Fields::of("store", the_only(rows)?);
    Ok(Point { id: fields.text("id")?, era: fields.get("era")?, beats: fields.get("beats")?, refused: false })
}

fn read(file: &Path) -> io::Result<Option<Kept>> {
    match fs::read(file) {
        Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(id: &str, era: i64, beats: i64) -> Point {
        Point { id: id.to_owned(), era, beats, refused: false }
    }

    /// Asks it now.
    fn follow(history: &History, found: Point) -> Result<()> {
        history.follow(history.seen().as_ref(), found)
    }

    #[test]
    fn a_database_that_is_at_an_earlier_point_is_refused_until_it_has_leaped_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        history.save();
        follow(&history, point("a", 1, 90)).unwrap();
        follow(&history, point("a", 1, 0)).unwrap();
        history.note(1, 100);
        history.note(1, 80);
        history.note(0, 900);
        follow(&history, point("a", 1, 100)).unwrap();
        history.save();
        assert_eq!(History::of(folder.path()).folder(), history.folder());
        for earlier in [point("a", 1, 99), point("a", 0, 200)] {
            let history = History::of(folder.path());
            let refused = follow(&history, earlier).unwrap_err();
            assert!(refused.to_string().contains("`resync-hub restored`"), "{refused}");
        }
        assert!(follow(&history, point("a", 1, 99)).is_err());
        history.save();
        for history in [&history, &History::of(folder.path())] {
            assert!(follow(history, point("a", 1, 1_000)).is_err(), "it has gone on since");
            assert!(history.heed().is_err());
            follow(history, point("a", 2, 20)).unwrap();
            history.heed().unwrap();
            history.note(2, 30);
            history.heed().unwrap();
            assert!(follow(history, point("a", 2, 29)).is_err());
        }
        follow(&history, point("another", 0, 1)).unwrap();
    }

    #[test]
    fn what_is_noted_while_the_database_is_asked_does_not_count_against_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::of(folder.path());
        follow(&history, point("a", 1, 0)).unwrap();
        let before = history.seen();
        history.note(1, 7);
        assert_eq!(history.seen(), Some(point("a", 1, 7)));
        history.follow(before.as_ref(), point("a", 1, 5)).unwrap();
        follow(&history, point("a", 2, 8)).unwrap();
        history.follow(before.as_ref(), point("a", 1, 5)).unwrap();
        assert_eq!(history.seen(), Some(point("a", 2, 0)), "nothing goes back");
        history.note(3, 9);
        assert_eq!(history.seen(), Some(point("a", 3, 9)), "it has leaped under the connection");
    }
}
