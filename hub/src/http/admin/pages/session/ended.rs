//! Sessions that were ended before their time, for all hubs of a store: in a document, each until none of its cookies lasts any longer.
//!
//! Only whoever had the admin token can add to it, and it never has more than its room.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, RwLock};

use resync_common::locks::{read, write};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tracing::warn;

use crate::store::{Document, DocumentVersion, Registry};

/// The document.
const ENDED: Document = Document::EndedSessions;
/// Sessions in it; where more are ended, all that have begun until then end.
const MOST: usize = 1_000;

/// The sessions that were ended. Clones share what was read.
#[derive(Clone, Debug)]
pub(super) struct EndedSessions {
    registry: Arc<dyn Registry>,
    known: Arc<RwLock<Known>>,
}

/// The document as it was read last.
#[derive(Debug, Default)]
struct Known {
    /// `None`: there was none.
    version: Option<DocumentVersion>,
    list: List,
}

/// Moments are in milliseconds since 1970.
#[derive(Debug, Default, Serialize, Deserialize)]
struct List {
    /// All that have begun until then have ended.
    begun_until: i64,
    /// Until when cookies of each may last.
    sessions: BTreeMap<String, i64>,
}

impl EndedSessions {
    pub(super) fn new(registry: Arc<dyn Registry>) -> Self {
        Self { registry, known: Arc::default() }
    }

    /// Whether the session with this id, which has begun then, was ended: at any hub, but for the last second.
    pub(super) fn has(&self, id: &str, start: i64) -> bool {
        self.refresh();
        let known = read(&self.known);
        start <= known.list.begun_until || known.list.sessions.contains_key(id)
    }

    /// Ends the session with this id, whose cookies last until then at most. It is durable when this returns.
    pub(super) async fn add(&self, id: &str, end: i64, now: i64) -> io::Result<()> {
        let (registry, id) = (Arc::clone(&self.registry), id.to_owned());
        spawn_blocking(move || change(&*registry, &id, end, now)).await.map_err(io::Error::other)?
    }

    /// Reads what another hub has changed. Where it cannot be read, nobody is in.
    fn refresh(&self) {
        if read(&self.known).version == self.registry.version(ENDED) {
            return;
        }
        // Held while it is read, so that nobody puts back an older text; and the version first, than which the text may be newer.
        let mut known = write(&self.known);
        known.version = self.registry.version(ENDED);
        known.list = List::read(&*self.registry).unwrap_or_else(|error| {
            warn!(%error, place = %self.registry.place(ENDED), "nobody can use the admin pages, since the sessions that have ended cannot be read");
            List { begun_until: i64::MAX, ..List::default() }
        });
    }
}

fn change(registry: &dyn Registry, id: &str, end: i64, now: i64) -> io::Result<()> {
    let mut written = Ok(());
    registry.change(ENDED, &mut |kept: Option<Vec<u8>>| {
        let text = List::of(kept).and_then(|list| Ok(serde_json::to_vec(&list.with(id, end, now))?));
        text.map_err(|error| written = Err(error)).ok()
    })?;
    written
}

impl List {
    fn read(registry: &dyn Registry) -> io::Result<Self> {
        Self::of(registry.read(ENDED)?)
    }

    fn of(kept: Option<Vec<u8>>) -> io::Result<Self> {
        Ok(kept.map(|kept| serde_json::from_slice(&kept)).transpose()?.unwrap_or_default())
    }

    fn with(mut self, id: &str, end: i64, now: i64) -> Self {
        self.sessions.retain(|_, end| now < *end);
        if self.sessions.len() >= MOST {
            self.sessions.clear();
            self.begun_until = now;
        }
        self.sessions.insert(id.to_owned(), end);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Files;

    #[test]
    fn sessions_that_would_have_ended_are_forgotten_and_those_left_never_take_more_than_their_room() {
        let mut list = List::default().with("old", 10, 5).with("new", 20, 9);
        assert_eq!(list.sessions.len(), 2);
        list = list.with("newer", 21, 10);
        assert!(!list.sessions.contains_key("old") && list.sessions.len() == 2);
        for number in 0..MOST {
            list = list.with(&number.to_string(), 100, 11);
        }
        assert!(list.sessions.len() <= MOST && list.begun_until == 11, "whoever is in logs in again");
    }

    #[tokio::test]
    async fn where_it_cannot_be_read_nobody_is_in() {
        let folder = tempfile::tempdir().unwrap();
        let files = Arc::new(Files::in_folder(folder.path()));
        let ended = EndedSessions::new(Arc::clone(&files) as Arc<dyn Registry>);
        assert!(!ended.has("a", 1));
        files.change(ENDED, &mut |_: Option<Vec<u8>>| Some(b"?".to_vec())).unwrap();
        assert!(ended.has("a", 1));
        assert!(ended.add("b", 20, 10).await.is_err(), "nothing is written over it");
    }
}
