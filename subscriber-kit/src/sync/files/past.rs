//! What is fetched for a copy of the past: the resource as it is, where it has not changed since then, or else its state of then
//! (MEM-062).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use resync_core::datetime::DateTime;
use url::Url;

use super::download::{Received, Transfer};
use super::memento::{Mementos, Wanted};
use super::resource_error::ResourceError;
use crate::memento::Lifetime;
use crate::sync::reading::later::LaterChanges;
use crate::sync::reading::lists::Lists;
use crate::sync::reading::plan::Planned;

/// What is known of the time around the moment of a copy.
pub(crate) struct Past<'s> {
    mementos: Mementos<'s>,
    later: Arc<LaterChanges>,
    /// The lists have all changes from this time to the moment.
    known_since: DateTime,
    /// If they do not have all changes after the moment, the time up to which they do.
    known_until: Option<DateTime>,
    /// How many were taken that nothing dates.
    undated: AtomicU64,
}

impl<'s> Past<'s> {
    pub(crate) fn new(
        lists: &'s Lists<'s>,
        timegate: Option<&Url>,
        later: Arc<LaterChanges>,
        known_since: DateTime,
        known_until: Option<DateTime>,
    ) -> Self {
        let (mementos, undated) = (Mementos::new(lists, timegate), AtomicU64::new(0));
        Self { mementos, later, known_since, known_until, undated }
    }

    /// How many resources were taken as they are although they may be newer than the lists: they have neither a hash nor a time.
    pub(crate) fn undated(&self) -> u64 {
        self.undated.load(Ordering::Relaxed)
    }

    /// Fetches the state of a resource at the moment. `transfer` is from the resource itself.
    pub(crate) async fn receive(
        &self,
        planned: &Planned,
        relative: &Path,
        transfer: &Transfer<'_>,
    ) -> Result<Received, ResourceError> {
        let later = self.later.first(relative);
        let has_hash = planned.line.facts.algorithm().is_some();
        let mut undated = None;
        // After a gap only a hash shows that nothing changed.
        if later.is_none() && (self.known_until.is_none() || has_hash) {
            match transfer.run().await {
                Ok(received) if has_hash || self.is_older(&received) => return Ok(received),
                Ok(received) => undated = Some(received).filter(|received| received.modified.is_none()),
                // It has changed since the lists were read.
                Err(error) if error.is_mismatch() || error.is_not_there() => {
                    tracing::debug!(%error, loc = planned.line.loc, "a resource is no longer as it was");
                }
                Err(error) => return Err(error),
            }
        }
        let until = later.map(|change| change.at).or(self.known_until);
        let lifetime = Lifetime { since: planned.line.since.or(Some(self.known_since)), until };
        let wanted = Wanted {
            original: &planned.url,
            at: self.later.moment(),
            lifetime,
            facts: &planned.line.facts,
            links: &planned.line.versions,
        };
        let memento = match self.mementos.get(&wanted).await {
            Err(error) if error.leaves_other_ways() => {
                let Some(received) = undated else { return Err(error) };
                tracing::debug!(%error, loc = planned.line.loc, "nothing shows since when a resource is as it is");
                self.undated.fetch_add(1, Ordering::Relaxed);
                // The next run has to look again.
                return Ok(Received { sent: None, ..received });
            }
            memento => memento?,
        };
        tracing::debug!(loc = planned.line.loc, datetime = %memento.datetime(), "took a past state");
        Ok(memento.into_received())
    }

    /// Whether the server says that it was not modified after the moment.
    fn is_older(&self, received: &Received) -> bool {
        let moment = self.later.moment().to_system_time();
        received.modified.is_some_and(|modified| modified <= moment)
    }
}
