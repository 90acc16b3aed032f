//! What the store would hold in the simulation: what is left after a crash.

use super::*;
use crate::store::{Gap, Laggard, Watermark};

/// What the store would hold: what a scheduler is started from after a crash.
#[derive(Default)]
pub(super) struct Durable {
    pub(super) slots: BTreeMap<SubscriptionId, SubscriptionSummary>,
    /// What was appended, from offset 1 on.
    pub(super) logs: HashMap<TopicId, Vec<ContentKind>>,
    /// The oldest notification that retention has left.
    pub(super) firsts: HashMap<TopicId, Offset>,
    pub(super) watermarks: HashMap<TopicId, Watermark>,
    pub(super) laggards: BTreeMap<(TopicId, SubscriptionId), Laggard>,
    pub(super) paused: BTreeSet<TopicId>,
    pub(super) skips: Vec<Skip>,
    pub(super) gaps: Vec<Gap>,
    /// When the hub was up last.
    pub(super) seen: Option<DateTime>,
}

impl Durable {
    pub(super) fn save(&mut self, checkpoint: &Checkpoint) {
        self.watermarks.extend(checkpoint.watermarks.iter().copied());
        for key in &checkpoint.caught_up {
            self.laggards.remove(key);
        }
        for laggard in &checkpoint.laggards {
            if self.slots.contains_key(&laggard.subscription) {
                self.laggards.insert((laggard.topic, laggard.subscription), *laggard);
            }
        }
        let owed_again = |skip: &Skip| {
            checkpoint.replayed.iter().any(|replayed| replayed.covers(skip))
                && !checkpoint.skips.contains(skip)
        };
        self.skips.retain(|skip| !owed_again(skip));
        for skip in &checkpoint.skips {
            if !self.skips.contains(skip) {
                self.skips.push(*skip);
            }
        }
        self.gaps.extend(checkpoint.gaps.iter().copied());
    }
}
