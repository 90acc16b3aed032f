//! How a notification is kept: its body by itself, and the rest as the record of an embedded store without it.

use bytes::Bytes;
use tokio_postgres::Row;

use super::rows::Fields;
use crate::store::encoding::codec;
use crate::store::encoding::layout::{Body, Empty, LogRecord};
use crate::store::{Keyring, Notification, Offset, Result, StoreError, TopicId};

/// All of the record but its body. It is bound to no place, which the database gives it later.
pub(super) fn head_of(record: LogRecord) -> Vec<u8> {
    let head = LogRecord { body: Body::Here(Bytes::new()), ..record };
    codec::seal(&Keyring::none(), &[], &head)
}

/// The record of this head and body; without a body it is one that was lost.
pub(super) fn record_of(head: &Bytes, body: Option<Bytes>) -> Result<LogRecord> {
    let record: LogRecord = codec::open(&Keyring::none(), &[], head)?;
    Ok(LogRecord { body: body.map_or(Body::Hole { length: 1, why: Empty::Lost }, Body::Here), ..record })
}

/// A notification of this topic, of the columns `place, head, body`.
pub(super) fn notification_of(topic: TopicId, row: &Row) -> Result<Notification> {
    let fields = Fields::of("log", row);
    let offset = Offset(fields.number("place")?);
    let body = fields.maybe_bytes("body")?.map(Bytes::from);
    let LogRecord { kind, received_at, content_type, links, body, trace } =
        record_of(&fields.bytes("head")?.into(), body)?;
    let Body::Here(body) = body else {
        let reason = format!("topic {}, offset {offset}: a repair found it damaged", topic.0);
        return Err(StoreError::Damaged { space: "log", reason });
    };
    Ok(Notification { topic, offset, content_type, links, body, kind, received_at, trace })
}
