//! What a checkpoint saves of a shard.
//!
//! Checkpoints come in spans. What is delivered in one is in the checkpoint that ends the next one, at the latest, and durable when that is
//! saved. Until then it may wait for those whose turn came before, so that neither they nor each step of a sweep need a record.

use std::time::{Duration, Instant};

use super::Scheduler;
use super::clock::Now;
use super::topic::TopicState;
use crate::store::Checkpoint;

/// A span ends with the first checkpoint after so long, however few there were in it.
const SPAN_AT_MOST: Duration = Duration::from_millis(500);

impl Scheduler {
    /// The progress since the last checkpoint, to be saved as a whole.
    pub(crate) fn checkpoint(&mut self, now: Now) -> Checkpoint {
        let mut checkpoint = std::mem::take(&mut self.unsaved);
        let (number, span_ends) = (self.checkpoints, self.ends_span(now.monotonic));
        self.checkpoints = self.checkpoints.wrapping_add(1);
        for id in std::mem::take(&mut self.touched) {
            let Some(topic) = self.topics.get_mut(&id) else { continue };
            let part = topic.checkpoint(number, span_ends, self.limits.passed_by, now);
            checkpoint.watermarks.extend(part.watermark.map(|watermark| (id, watermark)));
            checkpoint.laggards.extend(part.laggards);
            checkpoint.caught_up.extend(part.caught_up.into_iter().map(|subscription| (id, subscription)));
            self.settle_quietly(id);
            match self.topics.get(&id) {
                Some(topic) if topic.is_unused() => {
                    let first_end = topic.table.first_end();
                    self.note_first_end(id, first_end, None);
                    self.topics.remove(&id);
                }
                Some(topic) if topic.is_unsaved() => drop(self.touched.insert(id)),
                Some(_) | None => {}
            }
        }
        checkpoint
    }

    /// Whether the checkpoint that is taken now ends a span.
    fn ends_span(&mut self, now: Instant) -> bool {
        self.span_left = self.span_left.saturating_sub(1);
        let ends = self.span_left == 0 || now.saturating_duration_since(self.span_began) >= SPAN_AT_MOST;
        if ends {
            (self.span_left, self.span_began) = (self.limits.span, now);
        }
        ends
    }

    /// Before the last checkpoint of this life: what is still active becomes a laggard. What a sweep has delivered behind it would be
    /// delivered again in the next life.
    pub(crate) fn detach_all(&mut self) {
        self.span_left = 0;
        let topics: Vec<_> = self.topics.keys().copied().collect();
        for id in topics {
            self.topics.get_mut(&id).map(TopicState::detach_all);
            self.settle(id);
        }
    }

    /// Whether there is progress to save.
    pub(crate) fn has_progress(&self) -> bool {
        !(self.touched.is_empty() && self.unsaved.is_empty())
    }
}
