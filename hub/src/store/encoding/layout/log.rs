//! Records of topics and their logs.

use bytes::Bytes;
use resync_core::datetime::DateTime;

use crate::store::encoding::Space;
use crate::store::encoding::codec::{Decoded, Decoder, Encoder, Fields, Record};
use crate::store::encoding::fields::{fields, record};
use crate::store::records::weigh;
use crate::store::{
    Chain, ChainBreak, ContentKind, NotificationLinks, Offset, Payer, Ping, PingClient, Topic, Validators,
};
use crate::trace_context::TraceContext;

/// A topic with what retention needs to know of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct TopicState {
    pub(in crate::store) topic: Topic,
    /// What the notifications of the log weigh.
    pub(in crate::store) bytes: u64,
    /// When its oldest notification came in; `None` when it holds none.
    pub(in crate::store) oldest: Option<DateTime>,
    /// Whose share it takes.
    pub(in crate::store) payer: Payer,
}

record!(Topics: TopicState { topic, bytes, oldest, payer });
fields!(Topic { id, url, first, head, latest, posted });

impl Fields for Payer {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::Publishers => out.byte(0),
            Self::Strangers(network) => {
                out.byte(1);
                network.encode(out);
            }
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        match fields.byte()? {
            0 => Ok(Self::Publishers),
            1 => Fields::decode(fields).map(Self::Strangers),
            other => Err(format!("payer {other} is unknown")),
        }
    }
}

/// A notification in the log; topic and offset are its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct LogRecord {
    pub(in crate::store) kind: ContentKind,
    pub(in crate::store) received_at: DateTime,
    pub(in crate::store) content_type: Bytes,
    pub(in crate::store) links: NotificationLinks,
    pub(in crate::store) body: Body,
    pub(in crate::store) trace: Option<TraceContext>,
}

record!(Log: LogRecord { kind, received_at, content_type, links, body, trace });
fields!(NotificationLinks { hubs, canonical, resourcesync });

impl LogRecord {
    /// What its notification weighs; where none is there, nothing.
    pub(in crate::store) fn weight(&self) -> u64 {
        match &self.body {
            Body::Hole { .. } => 0,
            body => weigh(&self.content_type, &self.links, body.len()),
        }
    }

    /// So many places, at least one, that are empty.
    pub(in crate::store) fn hole(length: u64, why: Empty, received_at: DateTime) -> Self {
        Self {
            kind: ContentKind::Posted,
            received_at,
            content_type: Bytes::new(),
            links: NotificationLinks::default(),
            body: Body::Hole { length, why },
            trace: None,
        }
    }
}

/// When a notification came in, from the beginning of its record.
pub(in crate::store) fn received_at_of(fields: &mut Decoder) -> Decoded<DateTime> {
    ContentKind::decode(fields)?;
    DateTime::decode(fields)
}

/// Where a body is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Body {
    /// In the log record.
    Here(Bytes),
    /// In parts of [`Body::PART`] bytes, the last one shorter.
    Parts { bytes: u64 },
    /// Nowhere: from here on so many places are empty.
    Hole { length: u64, why: Empty },
}

/// Why there is nothing in a part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Empty {
    /// A repair found what was there damaged: whoever is owed it is told of a gap.
    Lost,
    /// A restore leaped over these places, which may have been given out after the backup was begun: nobody is owed anything.
    Leapt,
}

impl Body {
    /// Above this size a body is stored in parts of this size.
    pub(in crate::store) const PART: usize = 64 * 1024;

    pub(in crate::store) fn len(&self) -> u64 {
        match self {
            Self::Here(body) => body.len() as u64,
            Self::Parts { bytes } => *bytes,
            Self::Hole { .. } => 0,
        }
    }

    /// How many places of the log it takes.
    pub(in crate::store) fn places(&self) -> u64 {
        match self {
            Self::Here(_) | Self::Parts { .. } => 1,
            Self::Hole { length, .. } => *length,
        }
    }

    /// How many parts are stored elsewhere.
    pub(in crate::store) fn parts(&self) -> u64 {
        match self {
            Self::Here(_) | Self::Hole { .. } => 0,
            Self::Parts { bytes } => bytes.div_ceil(Self::PART as u64),
        }
    }
}

impl Fields for Body {
    fn encode(&self, out: &mut Encoder) {
        let (tag, length) = match self {
            Self::Here(body) => {
                out.byte(0);
                return body.encode(out);
            }
            Self::Parts { bytes } => (1, bytes),
            Self::Hole { length, why: Empty::Lost } => (2, length),
            Self::Hole { length, why: Empty::Leapt } => (3, length),
        };
        out.byte(tag);
        length.encode(out);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let why = match fields.byte()? {
            0 => return Fields::decode(fields).map(Self::Here),
            1 => return Ok(Self::Parts { bytes: fields.number()? }),
            2 => Empty::Lost,
            3 => Empty::Leapt,
            other => return Err(format!("body {other} is unknown")),
        };
        match fields.number()? {
            0 => Err("a hole has no length".into()),
            length => Ok(Self::Hole { length, why }),
        }
    }
}

/// A part of a large body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Part(pub(in crate::store) Bytes);

record!(Bodies: Part { 0 });

record!(Pings: Ping { id, topic, client, trace });
fields!(PingClient { network, is_trusted });

record!(Chains: Chain { offset, until, broken, breaks });
fields!(ChainBreak { offset, ended, started });

/// What a topic said about a version of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct StoredValidators {
    pub(in crate::store) version: Offset,
    pub(in crate::store) validators: Validators,
}

record!(Validators: StoredValidators { version, validators });
fields!(Validators { url, etag, last_modified, digest });

/// What a publisher's name for a notification stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct IdempotencyRecord {
    pub(in crate::store) offset: Offset,
    /// SHA-256 of the body.
    pub(in crate::store) body: Bytes,
    pub(in crate::store) seen_at: DateTime,
    pub(in crate::store) expires: DateTime,
}

record!(Idempotency: IdempotencyRecord { offset, body, seen_at, expires });

/// The presence of an expiry key says everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Expiry;

impl Record for Expiry {
    const SPACE: Space = Space::IdempotencyExpiry;
}

impl Fields for Expiry {
    fn encode(&self, _: &mut Encoder) {}

    fn decode(_: &mut Decoder) -> Decoded<Self> {
        Ok(Self)
    }
}
