//! Hints to other hubs that something was committed. They only make them look sooner, so they need not be durable: where each had to wait for a
//! standby, commits that give one would queue up behind each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::line::{Common, Line};

/// What hubs listen to.
pub(super) const CHANNEL: &str = "resync_hub";
/// For a hint; after that others have looked by themselves.
const PATIENCE: Duration = Duration::from_secs(1);
const HINT: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify('resync_hub', $1)";

/// Whether a hint is due.
#[derive(Debug, Default)]
pub(super) struct Hints {
    has_others: AtomicBool,
    due: Notify,
}

impl Hints {
    /// Whether other hubs are up.
    pub(super) fn set_others(&self, has_others: bool) {
        self.has_others.store(has_others, Ordering::Relaxed);
    }

    /// Something was committed. Hints that are due while one is on its way become one.
    pub(super) fn give(&self) {
        if self.has_others.load(Ordering::Relaxed) {
            self.due.notify_one();
        }
    }
}

/// What hubs know a hint of this one by.
pub(super) fn signature(node: i64) -> String {
    node.to_string()
}

/// Gives hints until the store is closed.
pub(super) async fn keep(hints: Arc<Hints>, common: Arc<Common>, mut stop: watch::Receiver<bool>) {
    let (line, signature) = (Line::new(&common), signature(common.node));
    loop {
        tokio::select! {
            // The last ones too: others may wait for what this hub has released.
            biased;
            () = hints.due.notified() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        if let Err(error) = line.read(HINT, &[&signature], PATIENCE).await {
            tracing::debug!(%error, "other hubs were not told to look");
        }
    }
}
