//! Records of topics and their logs, and what was decided for the whole store.

use bytes::Bytes;
use resync_core::datetime::DateTime;

use super::Decoded;
use crate::store::embedded::codec::{Decoder, Encoder, Record};
use crate::store::embedded::engine::Space;
use crate::store::records::weigh;
use crate::store::{
    Chain, ChainBreak, Epoch, Leap, NotificationLinks, Offset, Payer, Ping, PingId, Rule, SubscriptionId,
    Topic, TopicId, Uptime, Validators,
};
use crate::trace_context::TraceContext;

/// What was decided when the store was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Foundation {
    pub(in super::super) shards: u16,
}

impl Record for Foundation {
    const SPACE: Space = Space::Meta;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.shards.into());
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let shards = fields.small()?;
        if shards == 0 { Err("there are no shards".into()) } else { Ok(Self { shards }) }
    }
}

/// A topic of which nothing is delivered for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct PausedTopic(pub(in super::super) TopicId);

impl Record for PausedTopic {
    const SPACE: Space = Space::Meta;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.0.0);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self(TopicId(fields.number()?)))
    }
}

/// The identities that were given out last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Counters {
    pub(in super::super) subscription: SubscriptionId,
    pub(in super::super) request: u64,
    pub(in super::super) ping: u64,
}

impl Record for Counters {
    const SPACE: Space = Space::Meta;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.subscription.0);
        out.number(self.request);
        out.number(self.ping);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            subscription: SubscriptionId(fields.number()?),
            request: fields.number()?,
            ping: fields.number()?,
        })
    }
}

/// The last offset of all topics that were forgotten. The log of a new topic begins behind it, so that whoever has read the log of
/// one with the same URL before is never told too little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Floor(pub(in super::super) Offset);

impl Record for Floor {
    const SPACE: Space = Space::Meta;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.0.0);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self(Offset(fields.number()?)))
    }
}

impl Record for Epoch {
    const SPACE: Space = Space::Meta;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.0);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        fields.number().map(Self)
    }
}

impl Record for Uptime {
    const SPACE: Space = Space::Meta;

    fn encode(&self, out: &mut Encoder) {
        out.time(self.seen);
        out.number(self.leaps.len() as u64);
        for Leap { length, up_since } in &self.leaps {
            out.duration(*length);
            out.duration(*up_since);
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let seen = fields.time()?;
        let leaps = (0..fields.number()?)
            .map(|_| Ok(Leap { length: fields.duration()?, up_since: fields.duration()? }))
            .collect::<Decoded<_>>()?;
        Ok(Self { seen, leaps })
    }
}

/// A topic with what retention needs to know of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct TopicState {
    pub(in super::super) topic: Topic,
    /// What the notifications of the log weigh.
    pub(in super::super) bytes: u64,
    /// When its oldest notification came in; `None` when it holds none.
    pub(in super::super) oldest: Option<DateTime>,
    /// Whose share it takes.
    pub(in super::super) payer: Payer,
}

impl Record for TopicState {
    const SPACE: Space = Space::Topics;

    fn encode(&self, out: &mut Encoder) {
        let Topic { id, url, first, head, latest, posted } = &self.topic;
        out.number(id.0);
        out.text(url.as_str());
        out.number(first.0);
        out.number(head.0);
        out.number(latest.0);
        out.number(posted.0);
        out.number(self.bytes);
        out.option(self.oldest, Encoder::time);
        match self.payer {
            Payer::Publishers => out.byte(0),
            Payer::Strangers(network) => {
                out.byte(1);
                out.option(network, Encoder::address);
            }
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let topic = Topic {
            id: TopicId(fields.number()?),
            url: fields.topic_url()?,
            first: Offset(fields.number()?),
            head: Offset(fields.number()?),
            latest: Offset(fields.number()?),
            posted: Offset(fields.number()?),
        };
        let (bytes, oldest) = (fields.number()?, fields.option(Decoder::time)?);
        let payer = match fields.byte()? {
            0 => Payer::Publishers,
            1 => Payer::Strangers(fields.option(Decoder::address)?),
            other => return Err(format!("payer {other} is unknown")),
        };
        Ok(Self { topic, bytes, oldest, payer })
    }
}

/// A notification in the log; topic and offset are its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct LogRecord {
    pub(in super::super) rule: Rule,
    pub(in super::super) received_at: DateTime,
    pub(in super::super) content_type: Bytes,
    pub(in super::super) links: NotificationLinks,
    pub(in super::super) body: Body,
    pub(in super::super) trace: Option<TraceContext>,
}

/// Where a body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Body {
    /// In the log record.
    Here(Bytes),
    /// In parts of [`Body::PART`] bytes, the last one shorter.
    Parts { bytes: u64 },
    /// Nowhere: from here on so many places are empty.
    Hole { length: u64, why: Empty },
}

/// Why there is nothing in a part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Empty {
    /// A repair found what was there damaged: whoever is owed it is told of a gap.
    Lost,
    /// A restore leaped over these places, which may have been given out after the backup was begun: nobody is owed anything.
    Leapt,
}

impl Body {
    /// Above this size a body is kept in parts of this size.
    pub(in super::super) const PART: usize = 64 * 1024;

    pub(in super::super) fn len(&self) -> u64 {
        match self {
            Self::Here(body) => body.len() as u64,
            Self::Parts { bytes } => *bytes,
            Self::Hole { .. } => 0,
        }
    }

    /// How many places of the log it takes.
    pub(in super::super) fn places(&self) -> u64 {
        match self {
            Self::Here(_) | Self::Parts { .. } => 1,
            Self::Hole { length, .. } => *length,
        }
    }

    /// How many parts are kept elsewhere.
    pub(in super::super) fn parts(&self) -> u64 {
        match self {
            Self::Here(_) | Self::Hole { .. } => 0,
            Self::Parts { bytes } => bytes.div_ceil(Self::PART as u64),
        }
    }
}

impl LogRecord {
    /// What its notification weighs; where none is there, nothing.
    pub(in super::super) fn weight(&self) -> u64 {
        match &self.body {
            Body::Hole { .. } => 0,
            body => weigh(&self.content_type, &self.links, body.len()),
        }
    }

    /// So many places, at least one, that are empty.
    pub(in super::super) fn hole(length: u64, why: Empty, received_at: DateTime) -> Self {
        Self {
            rule: Rule::Every,
            received_at,
            content_type: Bytes::new(),
            links: NotificationLinks::default(),
            body: Body::Hole { length, why },
            trace: None,
        }
    }
}

impl Record for LogRecord {
    const SPACE: Space = Space::Log;

    fn encode(&self, out: &mut Encoder) {
        out.byte(match self.rule {
            Rule::Every => 0,
            Rule::Latest => 1,
        });
        out.time(self.received_at);
        out.bytes(&self.content_type);
        out.number(self.links.hubs.len() as u64);
        self.links.hubs.iter().for_each(|hub| out.text(hub));
        out.text(&self.links.canonical);
        out.option(self.links.resourcesync.as_deref(), Encoder::text);
        match &self.body {
            Body::Here(body) => {
                out.byte(0);
                out.bytes(body);
            }
            Body::Parts { bytes } => {
                out.byte(1);
                out.number(*bytes);
            }
            Body::Hole { length, why } => {
                out.byte(match why {
                    Empty::Lost => 2,
                    Empty::Leapt => 3,
                });
                out.number(*length);
            }
        }
        out.last_trace(self.trace);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let (rule, received_at) = beginning(fields)?;
        let content_type = fields.bytes()?;
        let hubs = (0..fields.number()?).map(|_| fields.text()).collect::<Decoded<_>>()?;
        let links = NotificationLinks {
            hubs,
            canonical: fields.text()?,
            resourcesync: fields.option(Decoder::text)?,
        };
        let body = match fields.byte()? {
            0 => Body::Here(fields.bytes()?),
            1 => Body::Parts { bytes: fields.number()? },
            2 => Body::Hole { length: places(fields)?, why: Empty::Lost },
            3 => Body::Hole { length: places(fields)?, why: Empty::Leapt },
            other => return Err(format!("body {other} is unknown")),
        };
        Ok(Self { rule, received_at, content_type, links, body, trace: fields.last_trace()? })
    }
}

fn places(fields: &mut Decoder) -> Decoded<u64> {
    match fields.number()? {
        0 => Err("a hole has no length".into()),
        length => Ok(length),
    }
}

fn beginning(fields: &mut Decoder) -> Decoded<(Rule, DateTime)> {
    let rule = match fields.byte()? {
        0 => Rule::Every,
        1 => Rule::Latest,
        other => return Err(format!("rule {other} is unknown")),
    };
    Ok((rule, fields.time()?))
}

/// When a notification came in, from the beginning of its record.
pub(in super::super) fn received_at_of(fields: &mut Decoder) -> Decoded<DateTime> {
    beginning(fields).map(|(_, received_at)| received_at)
}

/// A part of a large body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Part(pub(in super::super) Bytes);

impl Record for Part {
    const SPACE: Space = Space::Bodies;

    fn encode(&self, out: &mut Encoder) {
        out.bytes(&self.0);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        fields.bytes().map(Self)
    }
}

impl Record for Ping {
    const SPACE: Space = Space::Pings;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.id.0);
        out.text(self.topic.as_str());
        out.last_trace(self.trace);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self { id: PingId(fields.number()?), topic: fields.topic_url()?, trace: fields.last_trace()? })
    }
}

impl Record for Chain {
    const SPACE: Space = Space::Chains;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.offset.0);
        out.time(self.until);
        out.number(self.broken);
        out.number(self.breaks.len() as u64);
        for ChainBreak { offset, ended, started } in &self.breaks {
            out.number(offset.0);
            out.time(*ended);
            out.time(*started);
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            offset: Offset(fields.number()?),
            until: fields.time()?,
            broken: fields.number()?,
            breaks: (0..fields.number()?)
                .map(|_| {
                    Ok(ChainBreak {
                        offset: Offset(fields.number()?),
                        ended: fields.time()?,
                        started: fields.time()?,
                    })
                })
                .collect::<Decoded<_>>()?,
        })
    }
}

/// What a topic said about a version of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Stated {
    pub(in super::super) version: Offset,
    pub(in super::super) validators: Validators,
}

impl Record for Stated {
    const SPACE: Space = Space::Validators;

    fn encode(&self, out: &mut Encoder) {
        let Validators { url, etag, last_modified, digest } = &self.validators;
        out.number(self.version.0);
        out.text(url);
        out.option(etag.as_deref(), Encoder::bytes);
        out.option(last_modified.as_deref(), Encoder::bytes);
        out.bytes(digest);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            version: Offset(fields.number()?),
            validators: Validators {
                url: fields.text()?,
                etag: fields.option(Decoder::bytes)?,
                last_modified: fields.option(Decoder::bytes)?,
                digest: (*fields.bytes()?).try_into().map_err(|_| "a digest has another length")?,
            },
        })
    }
}

/// What a publisher's name for a notification stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Remembered {
    pub(in super::super) offset: Offset,
    /// SHA-256 of the body.
    pub(in super::super) body: Bytes,
    pub(in super::super) seen_at: DateTime,
    pub(in super::super) expires: DateTime,
}

impl Record for Remembered {
    const SPACE: Space = Space::Idempotency;

    fn encode(&self, out: &mut Encoder) {
        out.number(self.offset.0);
        out.bytes(&self.body);
        out.time(self.seen_at);
        out.time(self.expires);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(Self {
            offset: Offset(fields.number()?),
            body: fields.bytes()?,
            seen_at: fields.time()?,
            expires: fields.time()?,
        })
    }
}

/// The presence of an expiry key says everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Expiry;

impl Record for Expiry {
    const SPACE: Space = Space::IdempotencyExpiry;

    fn encode(&self, _: &mut Encoder) {}

    fn decode(_: &mut Decoder) -> Decoded<Self> {
        Ok(Self)
    }
}
