//! Checking a store in a database: whether every record can be read, and whether records about the same thing agree. There are no foreign
//! keys: here are the queries that find what they would have held.

use bytes::Bytes;
use resync_core::datetime::DateTime;
use tokio_postgres::Row;

use super::apart::{apart, refused, require, session, stand_still};
use super::documents;
use super::rows::{Fields, micros_of};
use super::session::Session;
use super::snapshot::{self, Sink};
use crate::config::DatabaseConfig;
use crate::store::embedded::Fault;
use crate::store::encoding::codec::Record;
use crate::store::encoding::layout::{Address, Counters, TopicState};
use crate::store::encoding::{Space, key};
use crate::store::{
    Findings, Keyring, Offset, Payer, Result, Shard, StoreError, SubscriptionId, Topic, TopicId,
};

/// Notifications of topics that are not there, or of places that their topics do not have.
const STRAY_NOTIFICATIONS: &str = "SELECT n.topic, n.place FROM hub.notification n LEFT JOIN hub.topic t ON t.id = n.topic \
    WHERE t.id IS NULL OR n.place NOT BETWEEN t.first AND t.head";
/// Subscriptions to which no pair leads, or another one.
const UNINDEXED: &str = "SELECT s.shard, s.topic, s.id, s.pair FROM hub.subscription s LEFT JOIN hub.pair p ON p.pair = s.pair \
    WHERE (s.shard, s.topic, s.id) IS DISTINCT FROM (p.shard, p.topic, p.id)";
const STRAY_PAIRS: &str = "SELECT p.pair FROM hub.pair p LEFT JOIN hub.subscription s \
    ON s.shard = p.shard AND s.topic = p.topic AND s.id = p.id WHERE s.pair IS DISTINCT FROM p.pair";
const WITHOUT_TOPIC: &str = "SELECT s.topic, max(s.topic_url) AS topic_url, max(s.start) AS start FROM hub.subscription s \
    LEFT JOIN hub.topic t ON t.id = s.topic WHERE t.id IS NULL GROUP BY s.topic";
const STRAY_LAGGARDS: &str = "SELECT l.shard, l.topic, l.subscription FROM hub.laggard l LEFT JOIN hub.subscription s \
    ON s.shard = l.shard AND s.topic = l.topic AND s.id = l.subscription WHERE s.id IS NULL";
const STRAY_WATERMARKS: &str =
    "SELECT w.shard, w.topic FROM hub.watermark w LEFT JOIN hub.topic t ON t.id = w.topic WHERE t.id IS NULL";
const READ_AHEAD: &str = "SELECT t.id, t.url, t.first, t.head, t.latest, t.posted, t.bytes, t.oldest, t.for_publishers, t.network, \
    d.furthest FROM hub.topic t JOIN ( \
        SELECT r.topic, max(r.reached) AS furthest FROM ( \
            SELECT w.topic, greatest(w.done, w.target) AS reached FROM hub.watermark w \
            UNION ALL SELECT l.topic, l.cursor FROM hub.laggard l \
        ) r GROUP BY r.topic \
    ) d ON d.topic = t.id WHERE d.furthest > t.head";
const NUMBERS: &str = "SELECT \
    greatest(CASE WHEN i.is_called THEN i.last_value ELSE 0 END, (SELECT max(s.id) FROM hub.subscription s)) AS subscription, \
    greatest(CASE WHEN r.is_called THEN r.last_value ELSE 0 END, (SELECT max(q.id) FROM hub.request q), \
        (SELECT max(d.id) FROM hub.denial d)) AS request, \
    greatest(CASE WHEN p.is_called THEN p.last_value ELSE 0 END, (SELECT max(g.id) FROM hub.ping g)) AS ping, \
    coalesce((SELECT max(s.id) FROM hub.subscription s), 0) > CASE WHEN i.is_called THEN i.last_value ELSE 0 END \
        OR greatest((SELECT max(q.id) FROM hub.request q), (SELECT max(d.id) FROM hub.denial d)) \
            > CASE WHEN r.is_called THEN r.last_value ELSE 0 END \
        OR (SELECT max(g.id) FROM hub.ping g) > CASE WHEN p.is_called THEN p.last_value ELSE 0 END AS are_used \
    FROM hub.subscription_id i, hub.request_id r, hub.ping_id p";
/// What belongs to a topic and has outlived it.
const STRAYS_OF_TOPICS: &str = "SELECT 'validators' AS space, v.topic FROM hub.validators v LEFT JOIN hub.topic t ON t.id = v.topic WHERE t.id IS NULL \
    UNION ALL SELECT DISTINCT 'chains', b.topic FROM hub.chain_break b LEFT JOIN hub.topic t ON t.id = b.topic WHERE t.id IS NULL";
/// Whether what is counted as subscriptions come and go is what there is.
const COUNTS: &str = "SELECT \
    EXISTS (SELECT FROM hub.topic t LEFT JOIN (SELECT s.topic, count(*) AS count FROM hub.subscription s GROUP BY s.topic) n \
        ON n.topic = t.id WHERE t.subscriptions <> coalesce(n.count, 0)) AS topics, \
    EXISTS (SELECT FROM hub.host h FULL JOIN (SELECT s.origin, count(*) AS count FROM hub.subscription s GROUP BY s.origin) n \
        ON n.origin = h.origin WHERE h.subscriptions IS DISTINCT FROM n.count) AS hosts, \
    EXISTS (SELECT FROM hub.client c FULL JOIN ( \
            SELECT u.client, sum(u.subscriptions) AS subscriptions, sum(u.topics) AS topics, sum(u.hosts) AS hosts FROM ( \
                SELECT s.client, 1 AS subscriptions, 0 AS topics, 0 AS hosts FROM hub.subscription s \
                UNION ALL SELECT t.founder, 0, 1, 0 FROM hub.topic t WHERE t.subscriptions > 0 \
                UNION ALL SELECT h.founder, 0, 0, 1 FROM hub.host h \
            ) u WHERE u.client IS NOT NULL GROUP BY u.client \
        ) n ON n.client = c.client \
        WHERE (c.subscriptions, c.topics, c.hosts) IS DISTINCT FROM (n.subscriptions, n.topics, n.hosts)) AS clients, \
    EXISTS (SELECT FROM (SELECT sum(y.subscriptions) AS subscriptions, sum(y.topics) AS topics, sum(y.hosts) AS hosts FROM hub.tally y) a \
        WHERE a.subscriptions <> (SELECT count(*) FROM hub.subscription) OR a.topics <> (SELECT count(*) FROM hub.topic) \
            OR a.hosts <> (SELECT count(*) FROM hub.host)) AS sums";

/// Checks the store, which hubs may be using: as of one moment. Nothing is changed.
///
/// # Errors
/// [`StoreError::SecretsKey`] when a key that the secrets need is not given, and [`StoreError::Read`] where there is no store.
pub(in crate::store) fn check(config: &DatabaseConfig, keys: &Keyring) -> Result<Findings> {
    apart(|| async move {
        let session = session(config).await?;
        stand_still(&session).await?;
        require(&session, keys).await?;
        let mut inspection = Inspection::default();
        snapshot::read(&session, keys, &mut inspection).await?;
        inspection.compare(&session).await?;
        inspection.documents(&session, keys).await?;
        Ok(Findings { records: inspection.records, faults: inspection.faults })
    })
}

/// A check under way.
#[derive(Debug, Default)]
struct Inspection {
    records: u64,
    faults: Vec<String>,
    /// The topic of which something was found to be missing last.
    not_whole: Option<TopicId>,
}

impl Sink for Inspection {
    fn take<R: Record>(&mut self, key: Vec<u8>, record: Result<R>) -> Result<()> {
        self.records += 1;
        let reason = match record {
            Ok(_) => return Ok(()),
            Err(StoreError::Damaged { reason, .. }) => reason,
            Err(other) => return Err(other),
        };
        self.note(&Fault::Unreadable { space: R::SPACE, key: key.into(), reason });
        Ok(())
    }

    /// What was leaped over is meant to be empty.
    fn take_hole(&mut self, topic: &Topic, from: Offset, to: Offset, _: DateTime) -> Result<()> {
        if !Offset(from.0.saturating_sub(1)).leaps_to(to) {
            self.not_whole = Some(topic.id);
            self.note(&Fault::Missing { topic: topic.id, url: topic.url.clone(), from, to });
        }
        Ok(())
    }

    fn take_topic(&mut self, noted: &TopicState, found: TopicState) -> Result<()> {
        self.records += 1;
        let payer = if found.topic.posted > Offset(0) { Payer::Publishers } else { found.payer };
        // The moment is noted to the microsecond.
        let oldest = |state: &TopicState| state.oldest.map(micros_of);
        let agrees = found.topic == noted.topic
            && payer == noted.payer
            && found.bytes == noted.bytes
            && oldest(&found) == oldest(noted);
        // Of a log that is not whole nobody knows.
        if !agrees && self.not_whole != Some(noted.topic.id) {
            self.note(&Fault::Summary(Box::new(TopicState { payer, ..found })));
        }
        Ok(())
    }
}

impl Inspection {
    fn note(&mut self, fault: &Fault) {
        self.faults.push(fault.to_string());
    }

    fn stray(&mut self, space: Space, key: impl Into<Bytes>) {
        self.note(&Fault::Stray { space, key: key.into() });
    }

    /// Notes what each row of a query is about.
    async fn each(
        &mut self,
        session: &Session,
        sql: &str,
        mut note: impl FnMut(&mut Self, Fields<'_>) -> Result<()>,
    ) -> Result<()> {
        let rows: Vec<Row> = session.client().query(sql, &[]).await.map_err(|error| refused(&error))?;
        rows.iter().try_for_each(|row| note(self, Fields::of("check", row)))
    }

    async fn compare(&mut self, session: &Session) -> Result<()> {
        self.each(session, STRAY_NOTIFICATIONS, |found, row| {
            let (topic, place) = (TopicId(row.number("topic")?), Offset(row.number("place")?));
            found.stray(Space::Log, key::log(topic, place));
            Ok(())
        })
        .await?;
        self.each(session, UNINDEXED, |found, row| {
            let pair = row.bytes("pair")?.try_into().map_err(|_| row.damaged("pair", "it is cut off"))?;
            let address = Address {
                shard: Shard(row.small("shard")?),
                topic: TopicId(row.number("topic")?),
                id: SubscriptionId(row.number("id")?),
            };
            found.note(&Fault::Unindexed { pair, address });
            Ok(())
        })
        .await?;
        self.each(session, STRAY_PAIRS, |found, row| {
            found.stray(Space::SubscriptionIndex, row.bytes("pair")?);
            Ok(())
        })
        .await?;
        self.each(session, WITHOUT_TOPIC, |found, row| {
            let (topic, url) = (TopicId(row.number("topic")?), row.topic_url("topic_url")?);
            found.note(&Fault::NoTopic { topic, url, start: Offset(row.number("start")?) });
            Ok(())
        })
        .await?;
        self.compare_progress(session).await?;
        self.compare_numbers(session).await
    }

    async fn documents(&mut self, session: &Session, keys: &Keyring) -> Result<()> {
        self.each(session, documents::WRITTEN, |found, row| {
            if let Some(of) = documents::of_number(row.get("kind")?)
                && let Err(error) = documents::open(keys, of, row.get("content")?)
            {
                found.faults.push(format!("{}: {error}", documents::name(of)));
            }
            Ok(())
        })
        .await
    }

    async fn compare_progress(&mut self, session: &Session) -> Result<()> {
        self.each(session, STRAY_LAGGARDS, |found, row| {
            let (shard, topic) = (Shard(row.small("shard")?), TopicId(row.number("topic")?));
            let id = SubscriptionId(row.number("subscription")?);
            found.stray(Space::Laggards, key::subscription(shard, topic, id));
            Ok(())
        })
        .await?;
        self.each(session, STRAY_WATERMARKS, |found, row| {
            let (shard, topic) = (Shard(row.small("shard")?), TopicId(row.number("topic")?));
            found.stray(Space::Watermarks, key::shard_topic(shard, topic));
            Ok(())
        })
        .await?;
        self.each(session, READ_AHEAD, |found, row| {
            let furthest = Offset(row.number("furthest")?);
            found.note(&Fault::ReadAhead(Box::new(row.topic_state()?), furthest));
            Ok(())
        })
        .await?;
        self.each(session, STRAYS_OF_TOPICS, |found, row| {
            let space = if row.text("space")? == "chains" { Space::Chains } else { Space::Validators };
            found.stray(space, key::topic(TopicId(row.number("topic")?)));
            Ok(())
        })
        .await
    }

    async fn compare_numbers(&mut self, session: &Session) -> Result<()> {
        self.each(session, NUMBERS, |found, row| {
            if row.get::<Option<bool>>("are_used")? == Some(true) {
                let subscription = SubscriptionId(row.number("subscription")?);
                let (request, ping) = (row.number("request")?, row.number("ping")?);
                found.note(&Fault::Numbers(Counters { subscription, request, ping }));
            }
            Ok(())
        })
        .await?;
        self.each(session, COUNTS, |found, row| {
            for (column, of) in [
                ("topics", "subscriptions of topics"),
                ("hosts", "subscriptions of callback origins"),
                ("clients", "what clients have the hub keep"),
                ("sums", "what there is in all"),
            ] {
                if row.flag(column)? {
                    found.faults.push(format!("{of}: the counts do not match what there is"));
                }
            }
            Ok(())
        })
        .await
    }
}
