//! A shard that a worker lets go: nothing more is started, what is under way ends or is cut, the last progress is saved, and then the shard
//! is given up. So the next owner repeats nothing that was answered here.
//!
//! Meanwhile the shard takes in no events and answers no questions, like any shard that is elsewhere. Its last checkpoint may therefore be
//! about a subscription that has ended, or not know one that has begun. That is no other than after a crash, and the next owner reads both
//! from the store.

use std::mem;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::owned_shard::OwnedShard;
use crate::store::Epoch;
use crate::subscriptions::NotOwned;

/// How long requests may stay under way before they are cut. The next owner waits for that, and makes them again.
const GRACE: Duration = Duration::from_secs(1);
/// After so long the shard is given up, whatever the store has taken of its progress.
const LONGEST: Duration = Duration::from_secs(3);

/// How a shard was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetGo {
    /// The store has all progress. Subscriptions whose end it has not taken yet are found again by the next owner.
    Saved,
    /// The store did not take the last progress in time: the next owner repeats some deliveries.
    Unsaved,
    /// Another owner had taken it over before.
    Fenced,
}

/// Where to say that a shard is given up, and with which epoch it was owned.
pub(super) type Reply = oneshot::Sender<Result<(LetGo, Epoch), NotOwned>>;

/// A shard that is let go.
pub(super) struct Leaving {
    pub(super) owned: OwnedShard,
    since: Instant,
    /// What was under way for longer than it may has been cut.
    is_cut: bool,
    /// Nothing is under way, and the next checkpoint is the last.
    is_detached: bool,
    reply: Reply,
}

/// What has to be done next for a shard that is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, until a request or a save ends.
    Wait,
    /// Its requests are to be cut.
    Cut,
    /// Its progress is to be saved.
    Save,
    /// It is to be given up.
    GiveUp(LetGo),
}

impl Leaving {
    pub(super) fn new(owned: OwnedShard, now: Instant, reply: Reply) -> Self {
        Self { owned, since: now, is_cut: false, is_detached: false, reply }
    }

    /// What has to be done next. `is_being_saved`: the store has not taken yet what was to be saved of it before.
    pub(super) fn step(&mut self, now: Instant, is_being_saved: bool) -> Step {
        let lasts = now.saturating_duration_since(self.since);
        if lasts >= LONGEST {
            return Step::GiveUp(LetGo::Unsaved);
        }
        if self.owned.has_requests() {
            let cuts = lasts >= GRACE && !mem::replace(&mut self.is_cut, true);
            return if cuts { Step::Cut } else { Step::Wait };
        }
        if !mem::replace(&mut self.is_detached, true) {
            // What a sweep has delivered behind those that hold it back would be delivered again otherwise.
            self.owned.scheduler.detach_all();
        }
        match (is_being_saved, self.owned.scheduler.has_progress()) {
            (true, _) => Step::Wait,
            (false, true) => Step::Save,
            (false, false) => Step::GiveUp(LetGo::Saved),
        }
    }

    /// How it is given up where this is the end of its worker, which has saved all that it could.
    pub(super) fn ends(&self, is_being_saved: bool) -> LetGo {
        let is_saved = !(is_being_saved || self.owned.has_requests() || self.owned.scheduler.has_progress());
        if is_saved { LetGo::Saved } else { LetGo::Unsaved }
    }

    /// The shard, and where to say that it is given up.
    pub(super) fn into_parts(self) -> (OwnedShard, Reply) {
        (self.owned, self.reply)
    }
}
