//! Everything that is in a database, read once, as the records that the embedded store would have of it.

use std::iter;
use std::pin::pin;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use resync_core::datetime::DateTime;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::rows::Fields;
use super::session::Session;
use super::{apart, fetches, log, notification, progress, requests, subscriptions};
use crate::store::encoding::codec::Record;
use crate::store::encoding::key;
use crate::store::encoding::layout::{
    Address, Body, Counters, Encryption, Expiry, Floor, Foundation, IdempotencyRecord, LogRecord, Part,
    PausedTopic, StoredValidators, TopicState, TopicWatermark,
};
use crate::store::{ContentKind, Epoch, Keyring, Offset, Result, Shard, SubscriptionId, Topic, TopicId};

/// Who takes what is read.
pub(super) trait Sink {
    /// A record, or why it cannot be read.
    ///
    /// # Errors
    /// What ends the reading.
    fn take<R: Record>(&mut self, key: Vec<u8>, record: Result<R>) -> Result<()>;

    /// Nothing is in these places of a log.
    ///
    /// # Errors
    /// What ends the reading.
    fn take_hole(&mut self, topic: &Topic, from: Offset, to: Offset, at: DateTime) -> Result<()>;

    /// The record of a topic as it is noted, and as its log says.
    ///
    /// # Errors
    /// What ends the reading.
    fn take_topic(&mut self, noted: &TopicState, found: TopicState) -> Result<()>;
}

const META: &str = "SELECT s.shards, s.floor, \
    CASE WHEN i.is_called THEN i.last_value ELSE 0 END AS subscription, \
    CASE WHEN r.is_called THEN r.last_value ELSE 0 END AS request, \
    CASE WHEN p.is_called THEN p.last_value ELSE 0 END AS ping \
    FROM hub.store s, hub.subscription_id i, hub.request_id r, hub.ping_id p";
const UPTIME: &str = "SELECT u.seen, u.jump_us, u.jump_up_us FROM hub.uptime u";
const EPOCHS: &str = "SELECT s.shard, s.epoch FROM hub.shard s WHERE s.epoch > 0 ORDER BY s.shard";
const PAUSED: &str = "SELECT p.topic FROM hub.paused p ORDER BY p.topic";
/// Each topic with its notifications, in their order; one without any is there once.
const LOGS: &str = "SELECT t.id, t.url, t.first, t.head, t.latest, t.posted, t.bytes, t.oldest, t.for_publishers, t.network, \
    n.place, n.received_at, n.head AS record, n.body \
    FROM hub.topic t LEFT JOIN hub.notification n ON n.topic = t.id AND n.place BETWEEN t.first AND t.head ORDER BY t.id, n.place";
/// The indexes have this order: only what is within a topic is sorted, and the first rows come at once.
const IN_ORDER: &str =
    "SET LOCAL enable_hashjoin = off; SET LOCAL enable_nestloop = off; SET LOCAL enable_sort = off";
const REQUESTS: &str = requests::requests!("");
const SUBSCRIPTIONS: &str = subscriptions::subscriptions!("");
const PAIRS: &str = "SELECT p.pair, p.shard, p.topic, p.id FROM hub.pair p";
const PINGS: &str = "SELECT p.id, p.topic, p.trace, p.client, p.is_trusted FROM hub.ping p";
const WATERMARKS: &str = "SELECT w.shard, w.topic, w.done, w.target, w.through FROM hub.watermark w";
const LAGGARDS: &str = "SELECT l.shard, l.topic, l.subscription, l.cursor, l.streak_failures, l.next_attempt, l.pause_us, \
    l.failing_since, l.failing_us, l.class FROM hub.laggard l";
const SKIPS: &str =
    "SELECT s.shard, s.topic, s.place, s.subscription, s.at, s.class, s.status FROM hub.skip s";
const GAPS: &str = "SELECT g.topic, g.subscription, g.first, g.last, g.at FROM hub.gap g";
const IDEMPOTENCY: &str =
    "SELECT i.topic, i.name, i.place, i.digest, i.seen_at, i.expires FROM hub.idempotency i";
const CHAINS: &str = "SELECT t.id, t.chain_place, t.chain_until, t.chain_broken, \
    array(SELECT b.place FROM hub.chain_break b WHERE b.topic = t.id ORDER BY b.place) AS places, \
    array(SELECT b.ended FROM hub.chain_break b WHERE b.topic = t.id ORDER BY b.place) AS ended, \
    array(SELECT b.started FROM hub.chain_break b WHERE b.topic = t.id ORDER BY b.place) AS started \
    FROM hub.topic t WHERE t.chain_place IS NOT NULL";
const VALIDATORS: &str =
    "SELECT v.topic, v.version, v.url, v.etag, v.last_modified, v.digest FROM hub.validators v";
const DENIALS: &str = "SELECT d.pair, d.id, d.topic, d.callback, d.reason, d.ended_shard, d.ended_topic, d.ended_id FROM hub.denial d";

/// Reads all of it; the session stands still.
pub(super) async fn read(session: &Session, keys: &Keyring, sink: &mut impl Sink) -> Result<()> {
    apart::execute(session, IN_ORDER).await?;
    meta(session, keys, sink).await?;
    logs(session, sink).await?;
    each(session, REQUESTS, |row| {
        let fields = Fields::of("requests", row);
        let id = fields.number("id")?;
        sink.take(id.to_be_bytes().to_vec(), requests::request(keys, fields))
    })
    .await?;
    each(session, SUBSCRIPTIONS, |row| {
        let fields = Fields::of("subscriptions", row);
        sink.take(place(fields)?, subscriptions::subscription(keys, fields))
    })
    .await?;
    each(session, PAIRS, |row| {
        let fields = Fields::of("subscription_index", row);
        sink.take(fields.bytes("pair")?, address(fields))
    })
    .await?;
    each(session, PINGS, |row| {
        let ping = fetches::ping(Fields::of("pings", row));
        let key = ping.as_ref().map_or_else(|_| Vec::new(), |ping| key::ping(&ping.topic));
        sink.take(key, ping)
    })
    .await?;
    deliveries(session, sink).await?;
    publishers(session, sink).await?;
    each(session, DENIALS, |row| {
        let fields = Fields::of("denials", row);
        sink.take(fields.bytes("pair")?, requests::denial(fields))
    })
    .await
}

/// Hands over row by row, as they come.
async fn each(session: &Session, sql: &str, mut take: impl FnMut(&Row) -> Result<()>) -> Result<()> {
    let none = iter::empty::<&(dyn ToSql + Sync)>();
    let rows = session.client().query_raw(sql, none).await.map_err(|error| apart::refused(&error))?;
    let mut rows = pin!(rows);
    while let Some(row) = rows.try_next().await.map_err(|error| apart::refused(&error))? {
        take(&row)?;
    }
    Ok(())
}

async fn meta(session: &Session, keys: &Keyring, sink: &mut impl Sink) -> Result<()> {
    each(session, META, |row| {
        let fields = Fields::of("meta", row);
        sink.take(key::FOUNDATION.to_vec(), fields.small("shards").map(|shards| Foundation { shards }))?;
        let counters = Counters {
            subscription: SubscriptionId(fields.number("subscription")?),
            request: fields.number("request")?,
            ping: fields.number("ping")?,
        };
        sink.take(key::COUNTERS.to_vec(), Ok(counters))?;
        // What is handed over is written with these keys.
        sink.take(key::ENCRYPTION.to_vec(), Ok(Encryption::wholly(keys)))?;
        match fields.number("floor")? {
            0 => Ok(()),
            floor => sink.take(key::FLOOR.to_vec(), Ok(Floor(Offset(floor)))),
        }
    })
    .await?;
    each(session, UPTIME, |row| sink.take(key::UPTIME.to_vec(), log::uptime_of(Fields::of("meta", row))))
        .await?;
    each(session, EPOCHS, |row| {
        let fields = Fields::of("meta", row);
        sink.take(key::epoch(Shard(fields.small("shard")?)), fields.number("epoch").map(Epoch))
    })
    .await?;
    each(session, PAUSED, |row| {
        let topic = TopicId(Fields::of("meta", row).number("topic")?);
        sink.take(key::paused(topic), Ok(PausedTopic(topic)))
    })
    .await
}

/// A log as far as it was read.
struct Run {
    noted: TopicState,
    found: TopicState,
    next: Offset,
}

async fn logs(session: &Session, sink: &mut impl Sink) -> Result<()> {
    let mut run = None::<Run>;
    each(session, LOGS, |row| {
        let fields = Fields::of("log", row);
        let id = TopicId(fields.number("id")?);
        if run.as_ref().is_none_or(|run| run.noted.topic.id != id) {
            if let Some(run) = run.take() {
                run.end(sink)?;
            }
            run = Some(Run::begin(fields.topic_state()?));
        }
        match (&mut run, fields.maybe_number("place")?) {
            (Some(run), Some(place)) => run.add(Offset(place), fields, sink),
            _ => Ok(()),
        }
    })
    .await?;
    run.map_or(Ok(()), |run| run.end(sink))
}

impl Run {
    fn begin(noted: TopicState) -> Self {
        let found = TopicState { bytes: 0, oldest: None, ..noted.clone() };
        Self { next: noted.topic.first, found, noted }
    }

    fn add(&mut self, place: Offset, fields: Fields<'_>, sink: &mut impl Sink) -> Result<()> {
        let received_at = fields.moment("received_at")?;
        self.hole_before(place, received_at, sink)?;
        self.next = place.next();
        let topic = &mut self.found.topic;
        let body = fields.maybe_bytes("body")?.map(Bytes::from);
        let record = notification::record_of(&fields.bytes("record")?.into(), body);
        if let Ok(record) = &record {
            self.found.bytes += record.weight();
            // To the nanosecond, as in the record.
            self.found.oldest.get_or_insert(record.received_at);
            match (&record.body, record.kind) {
                (Body::Hole { .. }, _) => {}
                (_, ContentKind::Fetched) => topic.latest = topic.latest.max(place),
                (_, ContentKind::Posted) => topic.posted = topic.posted.max(place),
            }
        }
        put(topic.id, place, record, sink)
    }

    fn end(mut self, sink: &mut impl Sink) -> Result<()> {
        let end = self.noted.topic.head.next();
        let at = self.noted.oldest.unwrap_or_else(DateTime::now);
        self.hole_before(end, at, sink)?;
        sink.take_topic(&self.noted, self.found)
    }

    fn hole_before(&mut self, place: Offset, at: DateTime, sink: &mut impl Sink) -> Result<()> {
        if self.next >= place {
            return Ok(());
        }
        self.found.oldest.get_or_insert(at);
        sink.take_hole(&self.noted.topic, self.next, Offset(place.0 - 1), at)
    }
}

/// A large body is handed over in parts.
fn put(topic: TopicId, place: Offset, record: Result<LogRecord>, sink: &mut impl Sink) -> Result<()> {
    let key = key::log(topic, place);
    let mut record = match record {
        Ok(record) => record,
        unreadable => return sink.take(key, unreadable),
    };
    if let Body::Here(body) = &record.body
        && body.len() > Body::PART
    {
        let body = body.clone();
        for (number, start) in (0..).zip((0..body.len()).step_by(Body::PART)) {
            let end = body.len().min(start + Body::PART);
            sink.take(key::body(topic, place, number), Ok(Part(body.slice(start..end))))?;
        }
        record.body = Body::Parts { bytes: body.len() as u64 };
    }
    sink.take(key, Ok(record))
}

/// Where a subscription is, or its laggard.
fn place(fields: Fields<'_>) -> Result<Vec<u8>> {
    let Address { shard, topic, id } = address(fields)?;
    Ok(key::subscription(shard, topic, id))
}

fn address(fields: Fields<'_>) -> Result<Address> {
    Ok(Address {
        shard: Shard(fields.small("shard")?),
        topic: TopicId(fields.number("topic")?),
        id: SubscriptionId(fields.number("id")?),
    })
}

async fn deliveries(session: &Session, sink: &mut impl Sink) -> Result<()> {
    each(session, WATERMARKS, |row| {
        let fields = Fields::of("watermarks", row);
        let (shard, topic) = (Shard(fields.small("shard")?), TopicId(fields.number("topic")?));
        let mark = progress::watermark_of(row).map(|(topic, mark)| TopicWatermark(topic, mark));
        sink.take(key::shard_topic(shard, topic), mark)
    })
    .await?;
    each(session, LAGGARDS, |row| {
        let fields = Fields::of("laggards", row);
        let (shard, topic) = (Shard(fields.small("shard")?), TopicId(fields.number("topic")?));
        let id = SubscriptionId(fields.number("subscription")?);
        sink.take(key::subscription(shard, topic, id), progress::laggard_of(row))
    })
    .await?;
    each(session, SKIPS, |row| {
        let fields = Fields::of("skips", row);
        let (shard, topic) = (Shard(fields.small("shard")?), TopicId(fields.number("topic")?));
        let id = SubscriptionId(fields.number("subscription")?);
        let place = Offset(fields.number("place")?);
        sink.take(key::skip(shard, topic, place, id), progress::skip_of(row))
    })
    .await?;
    each(session, GAPS, |row| {
        let gap = progress::gap_of(row);
        let key = gap.as_ref().map_or_else(|_| Vec::new(), key::gap);
        sink.take(key, gap)
    })
    .await
}

/// What there is of publishers beside their notifications.
async fn publishers(session: &Session, sink: &mut impl Sink) -> Result<()> {
    each(session, IDEMPOTENCY, |row| {
        let fields = Fields::of("idempotency", row);
        let key = [fields.number("topic")?.to_be_bytes().as_slice(), fields.get("name")?].concat();
        let record = idempotency(fields);
        if let Ok(record) = &record {
            sink.take(key::expiry(record.expires, &key), Ok(Expiry))?;
        }
        sink.take(key, record)
    })
    .await?;
    each(session, CHAINS, |row| {
        let fields = Fields::of("chains", row);
        sink.take(key::topic(TopicId(fields.number("id")?)), log::chain_of(fields))
    })
    .await?;
    each(session, VALIDATORS, |row| {
        let fields = Fields::of("validators", row);
        let record = fetches::validators(fields).and_then(|validators| {
            Ok(StoredValidators { version: Offset(fields.number("version")?), validators })
        });
        sink.take(key::topic(TopicId(fields.number("topic")?)), record)
    })
    .await
}

fn idempotency(fields: Fields<'_>) -> Result<IdempotencyRecord> {
    Ok(IdempotencyRecord {
        offset: Offset(fields.number("place")?),
        body: fields.bytes("digest")?.into(),
        seen_at: fields.moment("seen_at")?,
        expires: fields.moment("expires")?,
    })
}
