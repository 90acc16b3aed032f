//! What subscriptions have lost to retention, logged once for all that lost of the same topic: a topic may have a million.

use std::collections::BTreeMap;

use tracing::{debug, warn};

use crate::store::{Gap, Offset, TopicId};

/// What was lost since it was logged last.
#[derive(Debug, Default)]
pub(super) struct Losses(BTreeMap<TopicId, Loss>);

/// Of one topic.
#[derive(Debug, PartialEq, Eq)]
struct Loss {
    /// The first notification that anybody lost.
    from: Offset,
    /// The last notification that anybody lost.
    to: Offset,
    /// How many times a subscription found some missing.
    gaps: u64,
    /// How many they found missing.
    notifications: u64,
}

impl Losses {
    /// One subscription more that has lost something.
    pub(super) fn add(&mut self, gap: &Gap) {
        let Gap { topic, subscription, from, to, .. } = *gap;
        debug!(
            topic = format!("{:016x}", topic.0),
            subscription = subscription.0,
            from = from.0,
            to = to.0,
            "owed notifications were no longer in the log"
        );
        let loss = self.0.entry(topic).or_insert(Loss { from, to, gaps: 0, notifications: 0 });
        loss.from = loss.from.min(from);
        loss.to = loss.to.max(to);
        loss.gaps += 1;
        loss.notifications += to.0 - from.0 + 1;
    }

    /// Logs all of it; who has lost what is listed for the operator.
    pub(super) fn log(&mut self) {
        for (topic, Loss { from, to, gaps, notifications }) in std::mem::take(&mut self.0) {
            warn!(
                topic = format!("{:016x}", topic.0),
                from = from.0,
                to = to.0,
                gaps,
                notifications,
                "subscriptions were owed notifications that were no longer in the log: `deliveries lost` lists them"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::store::SubscriptionId;

    #[test]
    fn what_many_lose_of_one_topic_is_logged_at_once_and_only_once() {
        let mut losses = Losses::default();
        let at = DateTime::now();
        for (topic, subscription, from, to) in [(1, 1, 3, 5), (1, 2, 2, 4), (2, 3, 9, 9), (1, 3, 5, 6)] {
            let (topic, subscription) = (TopicId(topic), SubscriptionId(subscription));
            losses.add(&Gap { topic, subscription, from: Offset(from), to: Offset(to), at });
        }
        let one = Loss { from: Offset(2), to: Offset(6), gaps: 3, notifications: 8 };
        let two = Loss { from: Offset(9), to: Offset(9), gaps: 1, notifications: 1 };
        assert_eq!(losses.0, BTreeMap::from([(TopicId(1), one), (TopicId(2), two)]));
        losses.log();
        assert!(losses.0.is_empty());
    }
}
