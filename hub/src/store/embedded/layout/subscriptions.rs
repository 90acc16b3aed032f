//! Records of requests and subscriptions, and of the state of delivery.

use std::net::IpAddr;

use bytes::Bytes;
use resync_core::websub::TopicUrl;

use super::Decoded;
use crate::store::embedded::codec::{Decoder, Encoder, Record};
use crate::store::embedded::engine::Space;
use crate::store::{
    Denial, DenialId, FailureClass, Gap, Intent, Laggard, Offset, PendingRequest, Recipient, RequestId,
    Shard, Skip, Slot, Subscription, SubscriptionId, Sweep, TopicId, Watermark,
};

impl Record for PendingRequest {
    const SPACE: Space = Space::Requests;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.id.0);
        out.text(self.topic.as_str());
        out.text(self.callback.as_str());
        out.time(self.received_at);
        match &self.intent {
            Intent::Unsubscribe => out.byte(0),
            Intent::Subscribe { lease, secret } => {
                out.byte(1);
                out.option(*lease, Encoder::number);
                out.secret(secret.as_ref());
            }
        }
        out.option(self.client, Encoder::address);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            id: RequestId(fields.number()?),
            topic: fields.topic_url()?,
            callback: fields.callback_url()?,
            received_at: fields.time()?,
            intent: match fields.byte()? {
                0 => Intent::Unsubscribe,
                1 => Intent::Subscribe { lease: fields.option(Decoder::number)?, secret: fields.secret()? },
                other => return Err(format!("intent {other} is unknown")),
            },
            client: fields.option(Decoder::address)?,
        })
    }
}

impl Record for Denial {
    const SPACE: Space = Space::Denials;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.id.0);
        out.text(self.topic.as_str());
        out.text(self.callback.as_str());
        out.text(&self.reason);
        out.option(self.ended, |out, (shard, topic, id)| Address { shard, topic, id }.encode(out));
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            id: DenialId(fields.number()?),
            topic: fields.topic_url()?,
            callback: fields.callback_url()?,
            reason: fields.text()?,
            ended: fields.option(Address::decode)?.map(|Address { shard, topic, id }| (shard, topic, id)),
        })
    }
}

impl Record for Subscription {
    const SPACE: Space = Space::Subscriptions;

    /// What a [`Slot`] needs comes first, so that a million of them load without a URL being parsed.
    fn encode(&self, out: &mut Encoder) {
        out.number(self.id.0);
        out.number(self.topic.0);
        out.text(&self.callback.origin());
        out.number(self.start.0);
        out.time(self.lease_end);
        out.option(self.address, Encoder::address);
        out.option(self.client, Encoder::address);
        out.text(self.callback.as_str());
        out.text(self.topic_url.as_str());
        out.secret(self.secret.as_ref());
        out.duration(self.lease);
        out.time(self.created_at);
        out.time(self.verified_at);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let slot = slot_of(fields)?;
        let client = fields.option(Decoder::address)?;
        Ok(Self {
            id: slot.id,
            topic: slot.topic,
            start: slot.start,
            lease_end: slot.lease_end,
            address: slot.address,
            client,
            callback: fields.callback_url()?,
            topic_url: fields.topic_url()?,
            secret: fields.secret()?,
            lease: fields.duration()?,
            created_at: fields.time()?,
            verified_at: fields.time()?,
        })
    }
}

/// The beginning of a subscription's record.
pub(in super::super) fn slot_of(fields: &mut Decoder) -> Decoded<Slot> {
    Ok(Slot {
        id: SubscriptionId(fields.number()?),
        topic: TopicId(fields.number()?),
        origin: fields.text()?.into(),
        start: Offset(fields.number()?),
        lease_end: fields.time()?,
        address: fields.option(Decoder::address)?,
    })
}

/// The origin of a subscription's callback, and for whom it is counted.
pub(in super::super) fn account_of(fields: &mut Decoder) -> Decoded<(Bytes, Option<IpAddr>)> {
    let (_id, _topic, origin) = (fields.number()?, fields.number()?, fields.bytes()?);
    let (_start, _lease_end, _address) = (fields.number()?, fields.time()?, fields.option(Decoder::address)?);
    Ok((origin, fields.option(Decoder::address)?))
}

/// What a delivery needs of a subscription's record; `topic_url` is what the topic is called most of the time. The callback is
/// read as a URL by whoever makes a request of it.
pub(in super::super) fn recipient_of(
    fields: &mut Decoder,
    topic_url: Option<&TopicUrl>,
) -> Decoded<Recipient> {
    let (id, topic) = (SubscriptionId(fields.number()?), TopicId(fields.number()?));
    let (_origin, _start, _lease_end) = (fields.bytes()?, fields.number()?, fields.time()?);
    let (_address, _client) = (fields.option(Decoder::address)?, fields.option(Decoder::address)?);
    Ok(Recipient {
        id,
        topic,
        callback: fields.bytes()?,
        topic_url: fields.topic_url_or(topic_url)?,
        secret: fields.secret()?,
    })
}

/// Where the subscription of a pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Address {
    pub(in super::super) shard: Shard,
    pub(in super::super) topic: TopicId,
    pub(in super::super) id: SubscriptionId,
}

impl Record for Address {
    const SPACE: Space = Space::SubscriptionIndex;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.shard.0.into());
        out.number(self.topic.0);
        out.number(self.id.0);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            shard: Shard(fields.small()?),
            topic: TopicId(fields.number()?),
            id: SubscriptionId(fields.number()?),
        })
    }
}

/// A watermark with the topic that it is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct TopicWatermark(pub(in super::super) TopicId, pub(in super::super) Watermark);

impl Record for TopicWatermark {
    const SPACE: Space = Space::Watermarks;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.0.0);
        out.number(self.1.done.0);
        out.option(self.1.sweep, |out, sweep| {
            out.number(sweep.target.0);
            out.number(sweep.through.0);
        });
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let topic = TopicId(fields.number()?);
        let done = Offset(fields.number()?);
        let sweep = fields.option(|fields| {
            Ok(Sweep { target: Offset(fields.number()?), through: SubscriptionId(fields.number()?) })
        })?;
        Ok(Self(topic, Watermark { done, sweep }))
    }
}

impl Record for Laggard {
    const SPACE: Space = Space::Laggards;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.topic.0);
        out.number(self.subscription.0);
        out.number(self.cursor.0);
        out.number(self.attempts.into());
        out.time(self.next_attempt);
        out.option(self.failing_since, Encoder::time);
        out.byte(encode_class(self.class));
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            topic: TopicId(fields.number()?),
            subscription: SubscriptionId(fields.number()?),
            cursor: Offset(fields.number()?),
            attempts: fields.small()?,
            next_attempt: fields.time()?,
            failing_since: fields.option(Decoder::time)?,
            class: decode_class(fields)?,
        })
    }
}

impl Record for Skip {
    const SPACE: Space = Space::Skips;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.topic.0);
        out.number(self.subscription.0);
        out.number(self.offset.0);
        out.time(self.at);
        out.byte(encode_class(self.class));
        out.option(self.status, |out, status| out.number(status.into()));
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            topic: TopicId(fields.number()?),
            subscription: SubscriptionId(fields.number()?),
            offset: Offset(fields.number()?),
            at: fields.time()?,
            class: decode_class(fields)?,
            status: fields.option(Decoder::small)?,
        })
    }
}

impl Record for Gap {
    const SPACE: Space = Space::Gaps;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.topic.0);
        out.number(self.subscription.0);
        out.number(self.from.0);
        out.number(self.to.0);
        out.time(self.at);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            topic: TopicId(fields.number()?),
            subscription: SubscriptionId(fields.number()?),
            from: Offset(fields.number()?),
            to: Offset(fields.number()?),
            at: fields.time()?,
        })
    }
}

fn encode_class(class: FailureClass) -> u8 {
    match class {
        FailureClass::Slow => 0,
        FailureClass::Refused => 1,
        FailureClass::Trouble => 2,
        FailureClass::Gone => 3,
        FailureClass::Unsent => 4,
    }
}

fn decode_class(fields: &mut Decoder) -> Decoded<FailureClass> {
    match fields.byte()? {
        0 => Ok(FailureClass::Slow),
        1 => Ok(FailureClass::Refused),
        2 => Ok(FailureClass::Trouble),
        3 => Ok(FailureClass::Gone),
        4 => Ok(FailureClass::Unsent),
        other => Err(format!("class of failure {other} is unknown")),
    }
}
