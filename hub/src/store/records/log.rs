//! Records of topics and their logs: notifications, what is known of them, and what retention has to know.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use resync_core::datetime::DateTime;
use resync_core::websub::{NotificationId, TopicUrl};

use super::{ContentKind, Offset, TopicId};
use crate::trace_context::TraceContext;

/// A topic with the bounds of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its identity.
    pub id: TopicId,
    /// Its URL as first seen.
    pub url: TopicUrl,
    /// The oldest notification that the log still holds; `head.next()` when it holds none.
    pub first: Offset,
    /// The newest notification; 0 when there never was one.
    pub head: Offset,
    /// The newest fetched version (`ContentKind::Fetched`); 0 when there never was one.
    pub latest: Offset,
    /// The newest posted notification (`ContentKind::Posted`); 0 when there never was one.
    pub posted: Offset,
}

impl Topic {
    /// The newest notification of all that there were. Behind it there may be places that a restore leaped over.
    pub fn newest(&self) -> Offset {
        self.latest.max(self.posted)
    }
}

/// What a notification takes beside its texts, wherever it is kept: its record and its places in maps, its place in a trace,
/// and the two records of an idempotency key, which is kept as a hash.
const RECORD: u64 = 512;
/// What a link takes beside its target: in a `Link` header `<>; rel="resourcesync", `, in memory a string's own fields.
const LINK: u64 = 24;

/// The one measure of a notification, in bytes: body, links and content type with what keeps them. Whatever is kept, sent
/// or held in memory for somebody counts by this, so that no part of it is free.
pub(in crate::store) fn weigh(content_type: &[u8], links: &NotificationLinks, body: u64) -> u64 {
    RECORD.saturating_add(content_type.len() as u64).saturating_add(links.weight()).saturating_add(body)
}

/// The link targets that travel with a notification (W-144…W-147, FN-044), byte for byte as the Source gave them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotificationLinks {
    /// `rel="hub"`, in the Source's order.
    pub hubs: Vec<String>,
    /// `rel="self"`: the topic's canonical URL.
    pub canonical: String,
    /// `rel="resourcesync"`: the Capability List, where the Source named it.
    pub resourcesync: Option<String>,
}

/// Whose share of the log a topic's notifications take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payer {
    /// That of topics that a publisher speaks for.
    Publishers,
    /// That of topics that anybody's ping has fetched: of the network with this first address, where that is known.
    Strangers(Option<IpAddr>),
}

/// How many bytes the logs may weigh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Of topics that a publisher speaks for.
    pub publishers: u64,
    /// Of all other topics.
    pub strangers: u64,
}

impl Shares {
    /// Strangers have this part of all: a tenth.
    const STRANGERS_PART: u64 = 10;

    /// The shares of a log of this size.
    pub fn of(size: u64) -> Self {
        let strangers = size / Self::STRANGERS_PART;
        Self { publishers: size - strangers, strangers }
    }
}

impl NotificationLinks {
    /// What they take: at least the length of the `Link` header of a delivery.
    pub fn weight(&self) -> u64 {
        let all = self.hubs.iter().chain([&self.canonical]).chain(&self.resourcesync);
        all.map(|target| Self::weight_of(target)).sum()
    }

    /// What one of them takes.
    pub fn weight_of(target: &str) -> u64 {
        LINK + target.len() as u64
    }
}

/// A notification that is about to be appended.
#[derive(Clone, Debug)]
pub struct NewNotification {
    /// The topic.
    pub topic: TopicUrl,
    /// The value of `Content-Type`, byte for byte (W-141).
    pub content_type: Bytes,
    /// What the delivery's `Link` header says.
    pub links: NotificationLinks,
    /// The payload, byte for byte.
    pub body: Bytes,
    /// Whether every one counts or only the newest.
    pub kind: ContentKind,
    /// Whose share it takes; what is posted takes the publishers'.
    pub payer: Payer,
    /// What the publisher calls this notification, so that its repetition is recognised.
    pub idempotency_key: Option<String>,
    /// The time that a Change Notification is about; its topic's chain is watched (CN-008).
    pub interval: Option<Interval>,
    /// What the topic said about it, where it was fetched there.
    pub validators: Option<Validators>,
    /// When it came in.
    pub received_at: DateTime,
    /// Where its deliveries belong in the trace that it came in with, or that was begun for it.
    pub trace: Option<TraceContext>,
}

impl NewNotification {
    /// What it takes once it is a [`Notification`].
    pub fn weight(&self) -> u64 {
        weigh(&self.content_type, &self.links, self.body.len() as u64)
    }
}

/// The time that a Change Notification is about (CN-007).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Its beginning.
    pub from: DateTime,
    /// Its end.
    pub until: DateTime,
}

/// How the Change Notifications of a topic follow each other: each should start where the one before it ended (CN-008).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The newest Change Notification.
    pub offset: Offset,
    /// Where its interval ended, and the next has to start.
    pub until: DateTime,
    /// How many times the chain was broken, ever.
    pub broken: u64,
    /// The newest of these times, oldest first.
    pub breaks: Vec<ChainBreak>,
}

impl Chain {
    /// So many breaks are stored; older ones are only counted.
    pub const KEPT: usize = 100;

    /// The chain with one more notification.
    #[must_use]
    pub fn followed_by(mut self, offset: Offset, interval: Interval) -> Self {
        if interval.from != self.until {
            self.broken += 1;
            self.breaks.push(ChainBreak { offset, ended: self.until, started: interval.from });
            let surplus = self.breaks.len().saturating_sub(Self::KEPT);
            self.breaks.drain(..surplus);
        }
        Self { offset, until: interval.until, ..self }
    }

    /// The chain of a topic's first Change Notification.
    pub fn beginning(offset: Offset, interval: Interval) -> Self {
        Self { offset, until: interval.until, broken: 0, breaks: Vec::new() }
    }
}

/// A Change Notification that does not start where the one before it ended. Later: changes in between were never notified.
/// Earlier: some were notified twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainBreak {
    /// The notification after the break.
    pub offset: Offset,
    /// Where the one before it ended.
    pub ended: DateTime,
    /// Where it starts.
    pub started: DateTime,
}

/// What a topic said about its own content when it was fetched last, to ask whether that has changed (RFC 9110, 13.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validators {
    /// The address that gave the content, after redirects.
    pub url: String,
    /// `ETag`, byte for byte.
    pub etag: Option<Bytes>,
    /// `Last-Modified`, byte for byte.
    pub last_modified: Option<Bytes>,
    /// SHA-256 of the content.
    pub digest: [u8; 32],
}

/// How far a topic's subscriptions are with one notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationProgress {
    /// Subscriptions that are done with it: they have got it, or a newer version of fetched content.
    pub delivered: u64,
    /// Subscriptions that still have to get it.
    pub owing: u64,
    /// Subscriptions for which it was given up.
    pub skipped: u64,
}

/// A notification of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// The topic.
    pub topic: TopicId,
    /// Its place in the log.
    pub offset: Offset,
    /// The value of `Content-Type`.
    pub content_type: Bytes,
    /// What the delivery's `Link` header says.
    pub links: NotificationLinks,
    /// The payload.
    pub body: Bytes,
    /// Whether every one counts or only the newest.
    pub kind: ContentKind,
    /// When it came in.
    pub received_at: DateTime,
    /// Where its deliveries belong in its trace.
    pub trace: Option<TraceContext>,
}

impl Notification {
    /// The identity that every attempt on every node carries.
    pub fn id(&self) -> NotificationId {
        NotificationId { topic: self.topic.0, offset: self.offset.0 }
    }

    /// What it takes, wherever it is kept, sent or held in memory.
    pub fn weight(&self) -> u64 {
        weigh(&self.content_type, &self.links, self.body.len() as u64)
    }
}

/// What became of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is a new notification.
    New(NotificationId),
    /// The publisher had sent it before.
    Repeated(NotificationId),
    /// The publisher had used its key for other content: nothing was appended.
    KeyReused(NotificationId),
}

impl Appended {
    /// The identity of the notification that the publisher's post, or its key, stands for.
    pub fn id(self) -> NotificationId {
        match self {
            Self::New(id) | Self::Repeated(id) | Self::KeyReused(id) => id,
        }
    }
}

/// What a store holds, at a glance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Topics that anybody published to or subscribed to, and of which anything is left.
    pub topics: usize,
    /// What the notifications of all logs weigh, in bytes.
    pub log_bytes: u64,
    /// What of that is the strangers'.
    pub strangers_bytes: u64,
    /// When the oldest notification of all came in; `None` when there is none.
    pub oldest: Option<DateTime>,
}

/// When the hub could serve subscribers, by the clock that notifications are marked with: what retention has to know of
/// earlier lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uptime {
    /// When the hub was certainly up the last time.
    pub seen: DateTime,
    /// What the clock leapt over while there were notifications of before.
    pub clock_jumps: Vec<ClockJump>,
}

impl Uptime {
    /// The same where a hub was certainly up at this moment, too.
    #[must_use]
    pub fn with(self, seen: Option<DateTime>) -> Self {
        Self { seen: seen.map_or(self.seen, |seen| seen.max(self.seen)), ..self }
    }
}

/// Time that passed by the wall clock only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockJump {
    /// How much.
    pub length: Duration,
    /// How long the hub has been up since.
    pub up_since: Duration,
}

/// What retention removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// How many notifications.
    pub notifications: u64,
    /// What they weighed, in bytes.
    pub bytes: u64,
    /// How many of the notifications were not old, and had to make room.
    pub early: u64,
}

/// A ping's identity; grows with every ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PingId(pub u64);

/// A topic that a publisher said has changed, to be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// Which ping of its topic this is.
    pub id: PingId,
    /// The topic.
    pub topic: TopicUrl,
    /// Where the fetch belongs in the trace of the ping.
    pub trace: Option<TraceContext>,
    /// Whose it is, for the hub that fetches the topic.
    pub client: PingClient,
}

/// By whose share a fetch is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PingClient {
    /// Its network; `None`: it is unknown.
    pub network: Option<IpAddr>,
    /// Whether it is trusted.
    pub is_trusted: bool,
}
