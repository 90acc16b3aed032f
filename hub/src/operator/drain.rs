//! Draining: a hub that takes nothing new while it delivers what it has, before it is stopped or moved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::views::Draining;
use super::{By, Desk, Failed};

/// Whether the hub is being drained. A restart ends it.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<AtomicBool>);

impl Drain {
    /// Why nothing new is taken.
    pub const REASON: &str = "draining";

    /// Whether nothing new is taken.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Desk {
    /// Takes nothing new from now on, or again.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn drain(&self, by: By, on: bool) -> Result<Draining, Failed> {
        let act = if on { "drain" } else { "end drain" };
        let done = async {
            self.drain.0.store(on, Ordering::Relaxed);
            Ok(())
        };
        self.audited(by, act, "", done).await?;
        Ok(self.draining())
    }

    /// Whether nothing new is taken, and what is still owed.
    pub fn draining(&self) -> Draining {
        Draining { draining: self.drain.is_on(), late: self.counters.totals().laggards }
    }

    /// Why the hub is not ready; `None` when it is.
    pub fn obstacle(&self) -> Option<String> {
        let drained = self.drain.is_on().then(|| Drain::REASON.to_owned());
        self.store.health().err().map(|error| error.to_string()).or(drained)
    }
}
