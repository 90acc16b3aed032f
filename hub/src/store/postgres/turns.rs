//! Asking for the feed to be read, and waiting until it was.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

/// Who asks gets a number. Once that is done, whatever was committed before it was asked for is told.
#[derive(Debug)]
pub(super) struct Turns {
    asked: AtomicU64,
    wake: Notify,
    done: watch::Sender<u64>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { asked: AtomicU64::new(0), wake: Notify::new(), done: watch::Sender::new(0) }
    }

    /// Has the feed read soon. Returns the number for [`Turns::done`].
    pub(super) fn ask(&self) -> u64 {
        let turn = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.wake.notify_one();
        turn
    }

    /// Returns when that is done.
    pub(super) async fn done(&self, turn: u64) {
        // It fails only where this is gone, which it is not.
        let _ = self.done.subscribe().wait_for(|done| *done >= turn).await;
    }

    /// Returns when somebody has asked since the last call.
    pub(super) async fn asked(&self) {
        self.wake.notified().await;
    }

    /// The last number that was given: that of all who have asked before the reading that begins now.
    pub(super) fn last(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// A reading that began then has ended.
    pub(super) fn end(&self, last: u64) {
        self.done.send_replace(last);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_asks_while_the_feed_is_read_waits_for_the_next_reading() {
        let turns = Turns::new();
        let first = turns.ask();
        turns.asked().await;
        let began = turns.last();
        let second = turns.ask();
        turns.end(began);
        turns.done(first).await;
        assert!(turns.done(second).now_or_never().is_none());
        turns.asked().await;
        turns.end(turns.last());
        turns.done(second).await;
    }
}
