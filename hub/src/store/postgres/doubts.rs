//! What became of what was sent, where the answer was lost. It is asked for through the connection that was made anew in the place of the lost
//! one: what is not there by then never will be.

use resync_core::websub::NotificationId;
use tokio_postgres::Row;

use super::line::{DEADLINE, Line};
use super::rows::Fields;
use crate::store::{Offset, Result, Shard, StoreEvent, SubscriptionId, SubscriptionSummary, TopicId};

const BATCH: &str = "
SELECT f.topic, f.first, f.posts FROM hub.feed f WHERE f.xid >= $1::bigint::text::xid8 AND f.batch = $2";
/// Commands are sent one at a time, so one that is in doubt was the last that told something, or told nothing. What the one before it has
/// changed is told a second time then, as it is now.
const COMMAND: &str = "
SELECT f.kind, f.shard, f.topic, f.subject, s.origin, s.start, s.lease_end, s.address, t.id, t.url, t.first, t.head, t.latest, t.posted
FROM hub.feed f
LEFT JOIN hub.subscription s ON f.kind = 2 AND s.shard = f.shard AND s.topic = f.topic AND s.id = f.subject
LEFT JOIN hub.topic t ON t.id = f.topic
WHERE f.kind BETWEEN 2 AND 5 AND f.xid = (
    SELECT g.xid FROM hub.feed g WHERE g.xid >= $1::bigint::text::xid8 AND g.node = $2 AND g.kind BETWEEN 2 AND 5
    ORDER BY g.xid DESC LIMIT 1
)
ORDER BY f.ordinal";

/// A batch of posts of which nobody knows whether it is in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// What the batch is called.
    pub(super) batch: i64,
    /// A transaction before it.
    pub(super) since: i64,
}

impl Doubt {
    /// For each of the batch's posts, where it is in the log; those that are not there were repetitions, or the whole batch is not. `line` is the
    /// one that it was sent through.
    pub(super) async fn settle(self, line: &Line, posts: usize) -> Result<Vec<Option<NotificationId>>> {
        let rows = line.read_now(BATCH, &[&self.since, &self.batch], DEADLINE).await?;
        let mut places = vec![None; posts];
        for row in &rows {
            let fields = Fields::of("feed", row);
            let first = NotificationId { topic: fields.number("topic")?, offset: fields.number("first")? };
            put(&mut places, first, &fields.get::<Vec<i32>>("posts")?);
        }
        Ok(places)
    }
}

/// Puts these posts, which are numbered from 1, at one place behind the other.
fn put(places: &mut [Option<NotificationId>], first: NotificationId, posts: &[i32]) {
    for (offset, number) in (first.offset..).zip(posts) {
        let index = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
        if let Some(place) = index.and_then(|index| places.get_mut(index)) {
            *place = Some(NotificationId { topic: first.topic, offset });
        }
    }
}

/// What is to be told of the command of this hub that was sent last through this line, after this transaction.
pub(super) async fn told_last(line: &Line, since: i64, node: i64) -> Result<Vec<StoreEvent>> {
    let rows = line.read_now(COMMAND, &[&since, &node], 4 * DEADLINE).await?;
    rows.iter().filter_map(|row| event_of(row).transpose()).collect()
}

fn event_of(row: &Row) -> Result<Option<StoreEvent>> {
    let fields = Fields::of("feed", row);
    let topic = TopicId(fields.number("topic")?);
    match fields.small::<i16>("kind")? {
        2 => subscribed(fields, topic),
        3 => {
            let (shard, id) = (Shard(fields.small("shard")?), SubscriptionId(fields.number("subject")?));
            Ok(Some(StoreEvent::Unsubscribed { shard, topic, id }))
        }
        4 => Ok(Some(StoreEvent::Paused { topic })),
        _ => Ok(Some(StoreEvent::Resumed { topic })),
    }
}

/// A subscription as it is now, unless it has ended.
fn subscribed(fields: Fields<'_>, topic: TopicId) -> Result<Option<StoreEvent>> {
    let Some(origin) = fields.get::<Option<String>>("origin")? else { return Ok(None) };
    let slot = SubscriptionSummary {
        id: SubscriptionId(fields.number("subject")?),
        topic,
        origin: origin.into(),
        start: Offset(fields.number("start")?),
        lease_end: fields.moment("lease_end")?,
        address: fields.address("address")?,
    };
    let shard = Shard(fields.small("shard")?);
    Ok(Some(StoreEvent::Subscribed { shard, slot, topic: Box::new(fields.topic()?) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_that_are_found_stand_one_behind_the_other_and_numbers_of_none_are_passed_over() {
        let mut places = vec![None; 4];
        put(&mut places, NotificationId { topic: 7, offset: 41 }, &[1, 4]);
        put(&mut places, NotificationId { topic: 8, offset: 1 }, &[0, -1, 3, 5]);
        let place = |topic, offset| Some(NotificationId { topic, offset });
        assert_eq!(places, [place(7, 41), None, place(8, 3), place(7, 42)]);
    }
}
