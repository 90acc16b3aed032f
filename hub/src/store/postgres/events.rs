//! Who listens, and in which order things are told.
//!
//! Several connections commit at the same time, so what they did can be heard of in another order than it was done. Of one topic, its
//! notifications are told in their order, since one connection appends all of them; and so are subscriptions and what else the one
//! connection for commands does. Only a subscription that is told after notifications which were appended after it would speak of an
//! older end of the log: what was told meanwhile is added to it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;

use crate::store::{ContentKind, Offset, StoreEvent, Topic, TopicId};

#[derive(Debug, Default)]
pub(super) struct Events(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Unbounded, since a commit must not wait for whoever listens: an event has some hundred bytes, whatever strangers wrote, and is taken
    /// faster than the commit that it tells of is made.
    watchers: Vec<mpsc::UnboundedSender<StoreEvent>>,
    /// Commands under way that may tell of subscriptions.
    under_way: usize,
    /// The ends of logs that were told since the first of these began.
    ends: HashMap<TopicId, Ends>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    head: Offset,
    latest: Offset,
    posted: Offset,
}

/// A command that may tell of subscriptions is under way until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'a>(&'a Events);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.under_way -= 1;
        if state.under_way == 0 {
            state.ends = HashMap::new();
        }
    }
}

impl Events {
    pub(super) fn watch(&self) -> mpsc::UnboundedReceiver<StoreEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.lock().watchers.push(sender);
        receiver
    }

    /// To be called before a command is sent that may tell of subscriptions.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.lock().under_way += 1;
        UnderWay(self)
    }

    /// Everybody gets all of them, one after the other.
    pub(super) fn tell(&self, mut events: Vec<StoreEvent>) {
        if events.is_empty() {
            return;
        }
        let mut state = self.lock();
        for event in &mut events {
            match event {
                StoreEvent::Appended { topic, offset, kind, .. } if state.under_way > 0 => {
                    state.ends.entry(*topic).or_default().follow(*offset, *kind);
                }
                StoreEvent::Subscribed { topic, .. } => {
                    if let Some(ends) = state.ends.get(&topic.id) {
                        ends.lift(topic);
                    }
                }
                _ => {}
            }
        }
        state.watchers.retain(|watcher| events.iter().all(|event| watcher.send(event.clone()).is_ok()));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What it guards is complete between any two statements.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    fn follow(&mut self, offset: Offset, kind: ContentKind) {
        self.head = offset;
        match kind {
            ContentKind::Fetched => self.latest = offset,
            ContentKind::Posted => self.posted = offset,
        }
    }

    fn lift(self, topic: &mut Topic) {
        topic.head = topic.head.max(self.head);
        topic.latest = topic.latest.max(self.latest);
        topic.posted = topic.posted.max(self.posted);
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;
    use resync_core::websub::TopicUrl;

    use super::*;
    use crate::store::{Shard, SubscriptionId, SubscriptionSummary};

    const TOPIC: TopicId = TopicId(1);

    fn appended(offset: u64, kind: ContentKind) -> StoreEvent {
        StoreEvent::Appended { topic: TOPIC, offset: Offset(offset), kind, bytes: 1 }
    }

    /// A subscription that began when the log ended there.
    fn subscribed(head: u64) -> StoreEvent {
        let slot = SubscriptionSummary {
            id: SubscriptionId(1),
            topic: TOPIC,
            origin: "https://destination.example".into(),
            start: Offset(head),
            lease_end: DateTime::now(),
            address: None,
        };
        let topic = Topic {
            id: TOPIC,
            url: TopicUrl::parse("https://source.example/t").unwrap(),
            first: Offset(1),
            head: Offset(head),
            latest: Offset(0),
            posted: Offset(head),
        };
        StoreEvent::Subscribed { shard: Shard(0), slot, topic: Box::new(topic) }
    }

    /// Where the log ends and since when it is owed, by the next event.
    fn told(events: &mut mpsc::UnboundedReceiver<StoreEvent>) -> (u64, u64, u64, u64) {
        loop {
            if let StoreEvent::Subscribed { slot, topic, .. } = events.try_recv().unwrap() {
                return (slot.start.0, topic.head.0, topic.latest.0, topic.posted.0);
            }
        }
    }

    #[test]
    fn a_subscription_that_is_told_late_knows_what_was_appended_meanwhile() {
        let events = Events::default();
        let mut watching = events.watch();
        let under_way = events.begin();
        events.tell(vec![appended(6, ContentKind::Posted), appended(7, ContentKind::Fetched)]);
        events.tell(vec![subscribed(5)]);
        drop(under_way);
        assert_eq!(told(&mut watching), (5, 7, 7, 6));
        events.tell(vec![subscribed(5)]);
        assert_eq!(told(&mut watching), (5, 5, 0, 5), "of what was told before it began it knows by itself");
        assert!(events.lock().ends.is_empty());
    }
}
