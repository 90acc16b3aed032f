//! Records of requests and subscriptions, and of the progress of delivery.

use std::net::IpAddr;

use bytes::Bytes;
use resync_core::datetime::DateTime;
use resync_core::websub::{TopicUrl, VerifyToken};

use crate::store::encoding::Space;
use crate::store::encoding::codec::{Decoded, Decoder, Encoder, Fields, Record};
use crate::store::encoding::fields::{fields, record};
use crate::store::{
    Denial, Failing, Gap, Intent, Laggard, PendingRequest, Recipient, Shard, Skip, Subscription,
    SubscriptionId, SubscriptionSummary, Sweep, TopicId, Watermark,
};

impl Record for PendingRequest {
    const SPACE: Space = Space::Requests;
}

impl Fields for PendingRequest {
    /// The token stands at the end, and only where there is one: few have one, and records of before know of none.
    fn encode(&self, out: &mut Encoder) {
        self.id.encode(out);
        self.topic.encode(out);
        self.callback.encode(out);
        self.received_at.encode(out);
        self.intent.encode(out);
        self.client.encode(out);
        if let Some(token) = &self.verify_token {
            out.bytes(token.as_str().as_bytes());
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            id: Fields::decode(fields)?,
            topic: Fields::decode(fields)?,
            callback: Fields::decode(fields)?,
            received_at: Fields::decode(fields)?,
            intent: Fields::decode(fields)?,
            client: Fields::decode(fields)?,
            verify_token: (!fields.is_empty()).then(|| verify_token(fields)).transpose()?,
        })
    }
}

fn verify_token(fields: &mut Decoder) -> Decoded<VerifyToken> {
    let written = fields.bytes()?;
    let text = std::str::from_utf8(&written).map_err(|_| "a token is not UTF-8")?;
    VerifyToken::new(text).map_err(|error| error.to_string())
}

impl Fields for Intent {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Unsubscribe => out.byte(0),
            Self::Subscribe { lease, secret } => {
                out.byte(1);
                lease.encode(out);
                secret.encode(out);
            }
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        match fields.byte()? {
            0 => Ok(Self::Unsubscribe),
            1 => Ok(Self::Subscribe { lease: Fields::decode(fields)?, secret: Fields::decode(fields)? }),
            other => Err(format!("intent {other} is unknown")),
        }
    }
}

record!(Denials: Denial { id, topic, callback, reason, ended });

impl Record for Subscription {
    const SPACE: Space = Space::Subscriptions;
}

impl Fields for Subscription {
    /// What a [`SubscriptionSummary`] needs comes first, so that a million of them load without a URL being parsed.
    fn encode(&self, out: &mut Encoder) {
        SubscriptionSummary::of(self).encode(out);
        self.client.encode(out);
        self.callback.encode(out);
        self.topic_url.encode(out);
        self.secret.encode(out);
        self.lease.encode(out);
        self.created_at.encode(out);
        self.verified_at.encode(out);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let SubscriptionSummary { id, topic, origin: _, start, lease_end, address } =
            SubscriptionSummary::decode(fields)?;
        Ok(Self {
            id,
            topic,
            start,
            lease_end,
            address,
            client: Fields::decode(fields)?,
            callback: Fields::decode(fields)?,
            topic_url: Fields::decode(fields)?,
            secret: Fields::decode(fields)?,
            lease: Fields::decode(fields)?,
            created_at: Fields::decode(fields)?,
            verified_at: Fields::decode(fields)?,
        })
    }
}

// The beginning of a subscription's record.
fields!(SubscriptionSummary { id, topic, origin, start, lease_end, address });

/// The summary of a subscription, and for whom it is counted.
pub(in crate::store) fn with_client(fields: &mut Decoder) -> Decoded<(SubscriptionSummary, Option<IpAddr>)> {
    Ok((SubscriptionSummary::decode(fields)?, Fields::decode(fields)?))
}

/// The summary of a subscription, and its callback as it was written.
pub(in crate::store) fn with_callback(fields: &mut Decoder) -> Decoded<(SubscriptionSummary, Bytes)> {
    let (summary, _client) = with_client(fields)?;
    Ok((summary, fields.bytes()?))
}

/// What a delivery needs of a subscription's record; `topic_url` is what the topic is called most of the time. The callback is
/// read as a URL by whoever makes a request of it.
pub(in crate::store) fn recipient_of(
    fields: &mut Decoder,
    topic_url: Option<&TopicUrl>,
) -> Decoded<Recipient> {
    let (id, topic, _origin) = beginning(fields)?;
    let _client = Option::<IpAddr>::decode(fields)?;
    Ok(Recipient {
        id,
        topic,
        callback: fields.bytes()?,
        topic_url: fields.topic_url_or(topic_url)?,
        secret: Fields::decode(fields)?,
    })
}

/// A [`SubscriptionSummary`] of which only this is of use, and nothing is copied.
fn beginning(fields: &mut Decoder) -> Decoded<(SubscriptionId, TopicId, Bytes)> {
    let place = (Fields::decode(fields)?, Fields::decode(fields)?, fields.bytes()?);
    let (_start, _lease_end) = (fields.number()?, DateTime::decode(fields)?);
    let _address = Option::<IpAddr>::decode(fields)?;
    Ok(place)
}

/// Where the subscription of a pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Address {
    pub(in crate::store) shard: Shard,
    pub(in crate::store) topic: TopicId,
    pub(in crate::store) id: SubscriptionId,
}

record!(SubscriptionIndex: Address { shard, topic, id });

/// A watermark with the topic that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct TopicWatermark(pub(in crate::store) TopicId, pub(in crate::store) Watermark);

record!(Watermarks: TopicWatermark { 0, 1 });
fields!(Watermark { done, sweep });
fields!(Sweep { target, through });

record!(Laggards: Laggard { topic, subscription, cursor, streak_failures, next_attempt, pause, failing, class });
fields!(Failing { since, lasted });
record!(Skips: Skip { topic, subscription, offset, at, class, status });
record!(Gaps: Gap { topic, subscription, from, to, at });
