//! Tables that are filled at once: their columns, and what writes them.

use std::pin::Pin;

use resync_core::datetime::DateTime;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;

use super::apart::refused;
use super::notification::head_of;
use super::rows::{Param, big, params};
use super::session::Session;
use crate::store::encoding::layout::{Empty, LogRecord};
use crate::store::{Offset, Result, StoreError, TopicId};

/// Places of a log that are noted to be lost at most, one by one.
const LOST: u64 = 1 << 20;

/// How a table is filled, and the types of the columns.
pub(super) type Columns<const N: usize> = (&'static str, [Type; N]);

pub(super) const TOPIC: Columns<15> = (
    "COPY hub.topic (id, key, sort, url, first, head, latest, posted, bytes, oldest, for_publishers, network, \
     chain_place, chain_until, chain_broken) FROM STDIN (FORMAT binary)",
    [
        Type::INT8,
        Type::BYTEA,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::TIMESTAMPTZ,
        Type::BOOL,
        Type::INET,
        Type::INT8,
        Type::BYTEA,
        Type::INT8,
    ],
);
pub(super) const CHAIN_BREAK: Columns<4> = (
    "COPY hub.chain_break (topic, place, ended, started) FROM STDIN (FORMAT binary)",
    [Type::INT8, Type::INT8, Type::BYTEA, Type::BYTEA],
);
pub(super) const NOTIFICATION: Columns<6> = (
    "COPY hub.notification (topic, place, received_at, weight, head, body) FROM STDIN (FORMAT binary)",
    [Type::INT8, Type::INT8, Type::TIMESTAMPTZ, Type::INT8, Type::BYTEA, Type::BYTEA],
);
pub(super) const REQUEST: Columns<13> = (
    "COPY hub.request (id, shard, pair, client, is_trusted, host, topic, callback, subscribes, lease, secret, verify_token, received_at) \
     FROM STDIN (FORMAT binary)",
    [
        Type::INT8,
        Type::INT2,
        Type::BYTEA,
        Type::INET,
        Type::BOOL,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::BOOL,
        Type::INT8,
        Type::BYTEA,
        Type::BYTEA,
        Type::TIMESTAMPTZ,
    ],
);
pub(super) const SUBSCRIPTION: Columns<15> = (
    "COPY hub.subscription (shard, topic, id, pair, origin, callback, topic_url, secret, start, lease_us, lease_end, \
     address, client, created_at, verified_at) FROM STDIN (FORMAT binary)",
    [
        Type::INT2,
        Type::INT8,
        Type::INT8,
        Type::BYTEA,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::BYTEA,
        Type::INT8,
        Type::INT8,
        Type::TIMESTAMPTZ,
        Type::INET,
        Type::INET,
        Type::TIMESTAMPTZ,
        Type::TIMESTAMPTZ,
    ],
);
pub(super) const PAIR: Columns<4> = (
    "COPY hub.pair (pair, shard, topic, id) FROM STDIN (FORMAT binary)",
    [Type::BYTEA, Type::INT2, Type::INT8, Type::INT8],
);
pub(super) const PING: Columns<7> = (
    "COPY hub.ping (key, shard, id, topic, trace, client, is_trusted) FROM STDIN (FORMAT binary)",
    [Type::BYTEA, Type::INT2, Type::INT8, Type::TEXT, Type::BYTEA, Type::INET, Type::BOOL],
);
pub(super) const WATERMARK: Columns<5> = (
    "COPY hub.watermark (shard, topic, done, target, through) FROM STDIN (FORMAT binary)",
    [Type::INT2, Type::INT8, Type::INT8, Type::INT8, Type::INT8],
);
pub(super) const LAGGARD: Columns<10> = (
    "COPY hub.laggard (shard, topic, subscription, cursor, streak_failures, next_attempt, pause_us, failing_since, \
     failing_us, class) FROM STDIN (FORMAT binary)",
    [
        Type::INT2,
        Type::INT8,
        Type::INT8,
        Type::INT8,
        Type::INT4,
        Type::TIMESTAMPTZ,
        Type::INT8,
        Type::TIMESTAMPTZ,
        Type::INT8,
        Type::INT2,
    ],
);
pub(super) const SKIP: Columns<7> = (
    "COPY hub.skip (shard, topic, place, subscription, at, class, status) FROM STDIN (FORMAT binary)",
    [Type::INT2, Type::INT8, Type::INT8, Type::INT8, Type::TIMESTAMPTZ, Type::INT2, Type::INT4],
);
pub(super) const GAP: Columns<5> = (
    "COPY hub.gap (at, topic, subscription, first, last) FROM STDIN (FORMAT binary)",
    [Type::TIMESTAMPTZ, Type::INT8, Type::INT8, Type::INT8, Type::INT8],
);
pub(super) const IDEMPOTENCY: Columns<6> = (
    "COPY hub.idempotency (topic, name, place, digest, seen_at, expires) FROM STDIN (FORMAT binary)",
    [Type::INT8, Type::BYTEA, Type::INT8, Type::BYTEA, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ],
);
pub(super) const VALIDATORS: Columns<6> = (
    "COPY hub.validators (topic, version, url, etag, last_modified, digest) FROM STDIN (FORMAT binary)",
    [Type::INT8, Type::INT8, Type::TEXT, Type::BYTEA, Type::BYTEA, Type::BYTEA],
);
pub(super) const DENIAL: Columns<9> = (
    "COPY hub.denial (pair, shard, id, topic, callback, reason, ended_shard, ended_topic, ended_id) FROM STDIN (FORMAT binary)",
    [
        Type::BYTEA,
        Type::INT2,
        Type::INT8,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT2,
        Type::INT8,
        Type::INT8,
    ],
);
pub(super) const PAUSED: Columns<1> = ("COPY hub.paused (topic) FROM STDIN (FORMAT binary)", [Type::INT8]);

/// A table on its way into the database.
pub(super) struct Table(Pin<Box<BinaryCopyInWriter>>);

impl Table {
    pub(super) async fn begin<const N: usize>(session: &Session, (copy, types): &Columns<N>) -> Result<Self> {
        let sink = session.client().copy_in(*copy).await.map_err(|error| refused(&error))?;
        Ok(Self(Box::pin(BinaryCopyInWriter::new(sink, types))))
    }

    pub(super) async fn add(&mut self, row: Vec<Param>) -> Result<()> {
        self.0.as_mut().write_raw(row).await.map_err(|error| refused(&error))
    }

    pub(super) async fn add_notification(
        &mut self,
        topic: TopicId,
        place: Offset,
        record: LogRecord,
        body: Vec<u8>,
    ) -> Result<()> {
        let (received_at, weight) = (record.received_at.to_system_time(), big(record.weight()));
        self.add(params![big(topic.0), big(place.0), received_at, weight, head_of(record), Some(body)]).await
    }

    /// Whoever is owed one of these is told of a gap; but of what a restore leaped over nobody is.
    pub(super) async fn add_lost(&mut self, topic: TopicId, from: Offset, end: Offset) -> Result<()> {
        let to = Offset(end.0.saturating_sub(1));
        if from >= end || Offset(from.0.saturating_sub(1)).leaps_to(to) {
            return Ok(());
        }
        if end.0 - from.0 > LOST {
            let reason = format!("topic {}: notifications {from} to {to} are missing", topic.0);
            return Err(StoreError::Damaged { space: "log", reason });
        }
        let hole = LogRecord::hole(1, Empty::Lost, DateTime::now());
        let (received_at, head) = (hole.received_at.to_system_time(), head_of(hole));
        for place in from.0..end.0 {
            let row = params![big(topic.0), big(place), received_at, 0_i64, head.clone(), None::<Vec<u8>>];
            self.add(row).await?;
        }
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<()> {
        self.0.as_mut().finish().await.map(drop).map_err(|error| refused(&error))
    }
}
