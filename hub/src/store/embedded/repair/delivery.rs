//! How far delivery is.

use resync_core::datetime::DateTime;

use super::Mender;
use crate::store::embedded::engine::Space;
use crate::store::embedded::key;
use crate::store::embedded::layout::{TopicState, TopicWatermark};
use crate::store::{FailureClass, Laggard, Offset, Result, Subscription, Watermark};

impl Mender<'_> {
    pub(super) fn delivery(&mut self) -> Result<()> {
        self.catch_ups()?;
        self.laggards()?;
        self.watermarks()
    }

    /// Laggards whose records could not be read: they get again what the log holds.
    fn catch_ups(&mut self) -> Result<()> {
        for (key, topic, id) in std::mem::take(&mut self.to_catch_up) {
            let subscription: Option<Subscription> = self.get(&key)?;
            let state: Option<TopicState> = self.get(&key::topic(topic))?;
            let (Some(subscription), Some(state)) = (subscription, state) else { continue };
            let cursor = before(&state).max(subscription.start).min(state.topic.head);
            let laggard = Laggard {
                topic,
                subscription: id,
                cursor,
                attempts: 0,
                next_attempt: DateTime::now(),
                failing_since: None,
                class: FailureClass::Slow,
            };
            self.put(key, &laggard)?;
            self.rebuilt(format!(
                "how far subscription {} of topic {} was: it gets again what its log holds",
                id.0,
                state.topic.url.as_str()
            ));
        }
        self.done()
    }

    fn laggards(&mut self) -> Result<()> {
        let mut strays = 0_u64;
        for (key, _) in self.each::<Laggard>()? {
            if self.engine.get(Space::Subscriptions, &key)?.is_none() {
                strays += 1;
                self.remove(Space::Laggards, &key)?;
            }
        }
        if strays > 0 {
            self.rebuilt(format!("who is late, without {strays} subscriptions that are gone"));
        }
        self.done()
    }

    /// Without its watermark a topic would be taken to begin at the first notification that ever was.
    fn watermarks(&mut self) -> Result<()> {
        for (key, TopicWatermark(topic, _)) in self.each::<TopicWatermark>()? {
            if self.get::<TopicState>(&key::topic(topic))?.is_none() {
                self.remove(Space::Watermarks, &key)?;
                self.rebuilt(format!(
                    "delivery, without what was noted of topic {:016x} that is gone",
                    topic.0
                ));
            }
        }
        for key in std::mem::take(&mut self.unmarked) {
            let Some(topic) = key::topic_of_subscription(&key) else { continue };
            if let Some(state) = self.get::<TopicState>(&key::topic(topic))? {
                self.put(key, &TopicWatermark(topic, Watermark { done: before(&state), sweep: None }))?;
            }
        }
        self.done()
    }
}

/// Everything before the log is done.
fn before(state: &TopicState) -> Offset {
    Offset(state.topic.first.0.saturating_sub(1))
}
