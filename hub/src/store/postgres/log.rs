//! The logs of topics in the database.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;
use tokio_postgres::Row;

use super::notification::notification_of;
use super::rows::{Fields, at_most, big, micros, moment_of, params, the_only, topic_key, whole};
use super::shared::Shared;
use super::word::LASTS;
use super::{PostgresStore, retention};
use crate::clock_jump::UNSEEN;
use crate::store::cache::ReadLock;
use crate::store::{
    Appended, Chain, ChainBreak, ClockJump, Log, NewNotification, Notification, Offset, Result, Shares,
    Topic, TopicId, Trimmed, Uptime,
};

/// So many notifications are read at once, as long as they are small: who reads one mostly reads on, and each question costs a way to the
/// database.
const AHEAD: i64 = 64;
/// Bytes of them together.
const AHEAD_BYTES: i64 = 256 * 1024;

const TOPIC: &str =
    "SELECT t.id, t.url, t.first, t.head, t.latest, t.posted FROM hub.topic t WHERE t.key = $1";
const FIRST_TOPICS: &str = "
SELECT t.id, t.url, t.first, t.head, t.latest, t.posted FROM hub.topic t
ORDER BY left(t.sort, 256), t.sort LIMIT $1";
/// The index has the beginnings of URLs only.
const TOPICS_AFTER: &str = "
SELECT t.id, t.url, t.first, t.head, t.latest, t.posted FROM hub.topic t
WHERE left(t.sort, 256) >= left($2, 256) AND t.sort > $2 ORDER BY left(t.sort, 256), t.sort LIMIT $1";
const TOPICS_OF: &str = "
SELECT t.id, t.url, t.first, t.head, t.latest, t.posted
FROM unnest($1::bigint[]) WITH ORDINALITY AS a(id, n) JOIN hub.topic t ON t.id = a.id ORDER BY a.n";
/// One from this place on, and with it those behind it that are small together.
const NOTIFICATIONS: &str = "
SELECT w.place, w.head, w.body FROM (
    SELECT n.place, n.head, n.body, n.weight, sum(n.weight) OVER (ORDER BY n.place) AS together
    FROM (
        SELECT m.place, m.head, m.body, m.weight FROM hub.notification m
        WHERE m.topic = $1 AND m.place >= $2 ORDER BY m.place LIMIT $3
    ) n
) w
WHERE w.together <= greatest($4, w.weight) ORDER BY w.place";
const FIRST_SINCE: &str = "
SELECT coalesce(
    (SELECT n.place FROM hub.notification n WHERE n.topic = $1 AND n.received_at >= $2 ORDER BY n.place LIMIT 1),
    (SELECT t.head + 1 FROM hub.topic t WHERE t.id = $1),
    0
) AS place";
const RECEIVED: &str = "
SELECT n.received_at FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS a(topic, place, nth)
LEFT JOIN hub.notification n ON n.topic = a.topic AND n.place = a.place ORDER BY a.nth";
const CHAIN: &str = "
SELECT t.chain_place, t.chain_until, t.chain_broken,
    array(SELECT b.place FROM hub.chain_break b WHERE b.topic = t.id ORDER BY b.place) AS places,
    array(SELECT b.ended FROM hub.chain_break b WHERE b.topic = t.id ORDER BY b.place) AS ended,
    array(SELECT b.started FROM hub.chain_break b WHERE b.topic = t.id ORDER BY b.place) AS started
FROM hub.topic t WHERE t.id = $1 AND t.chain_place IS NOT NULL";
const UPTIME: &str = "SELECT u.seen, u.jump_us, u.jump_up_us FROM hub.uptime u";
/// By those that were up already when the uptime was written down, or soon after: another says nothing of the time between.
const OTHERS_SEEN: &str = "
SELECT max(n.alive_until) - $2::bigint * interval '1 microsecond' AS seen FROM hub.node n
WHERE n.id <> $1
AND NOT EXISTS (SELECT FROM hub.uptime u WHERE n.started_at > u.seen + $3::bigint * interval '1 microsecond')";
const PUT_UPTIME: &str = "SELECT hub.put_uptime_1($1, $2, $3, $4, $5)";

#[async_trait]
impl Log for PostgresStore {
    async fn topic(&self, url: &TopicUrl) -> Result<Option<Topic>> {
        let rows = self.read(TOPIC, params![topic_key(url)]).await?;
        rows.first().map(topic_of).transpose()
    }

    async fn topics(&self, after: Option<&TopicUrl>, limit: usize) -> Result<Vec<Topic>> {
        let rows = match after {
            None => self.read(FIRST_TOPICS, params![at_most(limit)]).await?,
            Some(after) => self.read(TOPICS_AFTER, params![at_most(limit), after.key().to_owned()]).await?,
        };
        rows.iter().map(topic_of).collect()
    }

    async fn topics_of(&self, ids: &[TopicId]) -> Result<Vec<Topic>> {
        let ids: Vec<_> = ids.iter().map(|id| big(id.0)).collect();
        self.read(TOPICS_OF, params![ids]).await?.iter().map(topic_of).collect()
    }

    async fn append(&self, notification: NewNotification, remember: Duration) -> Result<Appended> {
        self.appender.append(&self.shared, notification, remember).await
    }

    async fn notification_from(&self, topic: TopicId, offset: Offset) -> Result<Option<Arc<Notification>>> {
        let notifications = &self.shared.notifications;
        if let Some(known) = notifications.get(topic, offset) {
            return Ok(Some(known));
        }
        // Held until the notification is read, even if this caller goes away: two readers would have a copy each.
        let read_lock = notifications.lock_to_read(topic, offset).await;
        if let Some(failed) = &*read_lock {
            return Err(failed.clone());
        }
        if let Some(known) = notifications.get(topic, offset) {
            return Ok(Some(known));
        }
        let shared = Arc::clone(&self.shared);
        self.runtime.run(async move { read_locked(&shared, topic, offset, read_lock).await }).await
    }

    async fn first_since(&self, topic: TopicId, since: DateTime) -> Result<Offset> {
        let rows = self.read(FIRST_SINCE, params![big(topic.0), since.to_system_time()]).await?;
        Fields::of("log", the_only(&rows)?).number("place").map(Offset)
    }

    async fn received_at(&self, of: Vec<(TopicId, Offset)>) -> Result<Vec<Option<DateTime>>> {
        let (topics, places): (Vec<_>, Vec<_>) =
            of.into_iter().map(|(topic, offset)| (big(topic.0), big(offset.0))).unzip();
        let rows = self.read(RECEIVED, params![topics, places]).await?;
        rows.iter().map(|row| Fields::of("log", row).maybe_moment("received_at")).collect()
    }

    async fn chain(&self, topic: TopicId) -> Result<Option<Chain>> {
        let rows = self.read(CHAIN, params![big(topic.0)]).await?;
        rows.first().map(|row| chain_of(Fields::of("chains", row))).transpose()
    }

    async fn trim(&self, older_than: DateTime, shares: Shares) -> Result<Trimmed> {
        let shared = Arc::clone(&self.shared);
        self.runtime.run(async move { retention::trim(&shared, older_than, shares).await }).await
    }

    async fn make_room(&self, shares: Shares) -> Result<Trimmed> {
        if self.shared.usage().strangers_bytes <= shares.strangers {
            return Ok(Trimmed::default());
        }
        let shared = Arc::clone(&self.shared);
        self.runtime.run(async move { retention::make_room(&shared, shares).await }).await
    }

    async fn uptime(&self) -> Result<Option<Uptime>> {
        let rows = self.read(UPTIME, params![]).await?;
        rows.first().map(|row| uptime_of(Fields::of("meta", row))).transpose()
    }

    async fn others_seen(&self) -> Result<Option<DateTime>> {
        let rows = self.read(OTHERS_SEEN, params![self.shared.node, micros(LASTS), micros(UNSEEN)]).await?;
        Fields::of("nodes", the_only(&rows)?).maybe_moment("seen")
    }

    async fn put_uptime(&self, uptime: Uptime) -> Result<()> {
        let Uptime { seen, clock_jumps } = uptime;
        let (lengths, ups): (Vec<_>, Vec<_>) =
            clock_jumps.iter().map(|jump| (micros(jump.length), micros(jump.up_since))).unzip();
        let parameters = params![seen.to_system_time(), lengths, ups];
        self.command(PUT_UPTIME, parameters, |_| Ok(())).await
    }
}

/// Reads the notification under its lock. All who wait for the lock get its error.
async fn read_locked(
    shared: &Shared,
    topic: TopicId,
    offset: Offset,
    read_lock: ReadLock,
) -> Result<Option<Arc<Notification>>> {
    let wanted = params![big(topic.0), big(offset.0), AHEAD, AHEAD_BYTES];
    let found = shared.read(NOTIFICATIONS, &wanted).await.and_then(|rows| {
        let Some((row, ahead)) = rows.split_first() else { return Ok(None) };
        let found = notification_of(topic, row)?;
        // Who asks for one that is damaged hears of it.
        for next in ahead.iter().rev().filter_map(|row| notification_of(topic, row).ok()) {
            keep(shared, next);
        }
        Ok(Some(keep(shared, found)))
    });
    match found {
        Ok(found) => Ok(found),
        Err(error) => {
            shared.notifications.fail(topic, offset, read_lock, &error);
            Err(error)
        }
    }
}

/// It may be there already.
fn keep(shared: &Shared, read: Notification) -> Arc<Notification> {
    let known = shared.notifications.get(read.topic, read.offset).unwrap_or_else(|| Arc::new(read));
    shared.notifications.put(Arc::clone(&known));
    known
}

fn topic_of(row: &Row) -> Result<Topic> {
    Fields::of("topics", row).topic()
}

pub(super) fn chain_of(fields: Fields<'_>) -> Result<Chain> {
    let moment = |column: &str, written: &[u8]| {
        moment_of(written).ok_or_else(|| fields.damaged(column, "it is no moment"))
    };
    let places: Vec<i64> = fields.get("places")?;
    let (ended, started): (Vec<Vec<u8>>, Vec<Vec<u8>>) = (fields.get("ended")?, fields.get("started")?);
    let breaks = places.iter().zip(ended.iter().zip(&started)).map(|(place, (ended, started))| {
        Ok(ChainBreak {
            offset: Offset(whole(*place)),
            ended: moment("ended", ended)?,
            started: moment("started", started)?,
        })
    });
    Ok(Chain {
        offset: Offset(fields.number("chain_place")?),
        until: moment("chain_until", &fields.bytes("chain_until")?)?,
        broken: fields.number("chain_broken")?,
        breaks: breaks.collect::<Result<_>>()?,
    })
}

pub(super) fn uptime_of(fields: Fields<'_>) -> Result<Uptime> {
    let (lengths, ups): (Vec<i64>, Vec<i64>) = (fields.get("jump_us")?, fields.get("jump_up_us")?);
    let duration = |micros: i64| Duration::from_micros(whole(micros));
    let jumps = lengths.into_iter().zip(ups);
    let jumps = jumps.map(|(length, up)| ClockJump { length: duration(length), up_since: duration(up) });
    Ok(Uptime { seen: fields.moment("seen")?, clock_jumps: jumps.collect() })
}
