//! The records that the hub keeps, free of any engine and any encoding.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, NotificationId, Secret, TopicUrl};
use sha2::{Digest as _, Sha256};

use crate::telemetry::TraceContext;

/// By what a subscription is found: SHA-256 of its topic and its callback in their normal forms (D-01), each behind its length
/// as eight bytes, the most significant first. It says nothing about a callback that cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pair([u8; 32]);

impl Pair {
    /// The pair of a topic and a callback. This is part of the data format and of the protocol: it must never change.
    pub fn of(topic: &TopicUrl, callback: &CallbackUrl) -> Self {
        let mut hasher = Sha256::new();
        for part in [topic.key().as_bytes(), callback.key().as_bytes()] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// The hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// A topic's identity: random, so that a hub set up anew never repeats the notification identities of its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u64);

/// A subscription's identity; grows with every new subscription of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// The place of a notification in its topic's log. The first is 1; 0 stands before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Offset(pub u64);

impl Offset {
    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The last place that a restore leaves free behind this one. The hub from which a backup comes may have given out those behind it
    /// in the meantime: never so many.
    #[must_use]
    pub fn leap(self) -> Self {
        Self((self.0 >> LEAP).saturating_add(1).saturating_mul(1 << LEAP))
    }

    /// About how many notifications are behind `from`, up to this one: of those before a leap at least one.
    #[must_use]
    pub fn distance(self, from: Self) -> u64 {
        if self.0 >> LEAP == from.0 >> LEAP {
            self.0.saturating_sub(from.0)
        } else {
            (self.0 % (1 << LEAP)).max(1)
        }
    }
}

/// A restore leaps to the next multiple of this power of two.
const LEAP: u32 = 32;

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A part of the subscriptions that one owner delivers to: a hash of the callback's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

impl Shard {
    /// The shard of a callback, so that all callbacks of one origin share their limits.
    ///
    /// The hash is part of the data format: it must never change.
    pub fn of(callback: &CallbackUrl, shards: u16) -> Self {
        let hash = crc32fast::hash(callback.origin().as_bytes());
        let shard = hash % u32::from(shards.max(1));
        Self(u16::try_from(shard).expect("a remainder of a u16 is a u16"))
    }
}

/// Which owner of a shard wrote; grows with every claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// How far behind a subscriber may stay on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Posted content: every notification, in log order.
    Every,
    /// Fetched content: only the newest version counts.
    Latest,
}

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
    /// The newest fetched version (`Rule::Latest`); 0 when there never was one.
    pub latest: Offset,
    /// The newest posted notification (`Rule::Every`); 0 when there never was one.
    pub posted: Offset,
}

impl Topic {
    /// The newest notification of all that there were. Behind it there may be places that a restore leaped over.
    pub fn newest(&self) -> Offset {
        self.latest.max(self.posted)
    }
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
    pub rule: Rule,
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
    /// So many breaks are kept; of older ones only the number is known.
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

/// A Change Notification that does not start where the one before it ended. Later: changes in between were never told.
/// Earlier: some were told twice.
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
pub struct Standing {
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
    pub rule: Rule,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Topics that anybody published to or subscribed to, and of which anything is left.
    pub topics: usize,
    /// Bytes of bodies in all logs.
    pub log_bytes: u64,
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
    pub leaps: Vec<Leap>,
}

/// Time that passed by the wall clock only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leap {
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
    /// How many bytes of bodies.
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
}

/// A pending request's identity; grows with every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What a subscriber asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// `hub.mode=subscribe`.
    Subscribe {
        /// The lease it asked for, in seconds.
        lease: Option<u64>,
        /// The key for signatures.
        secret: Option<Secret>,
    },
    /// `hub.mode=unsubscribe`.
    Unsubscribe,
}

/// A request before it has an identity.
#[derive(Clone, Debug)]
pub struct NewRequest {
    /// The topic as the subscriber wrote it.
    pub topic: TopicUrl,
    /// The callback as the subscriber wrote it.
    pub callback: CallbackUrl,
    /// What it asked for.
    pub intent: Intent,
    /// When it came in.
    pub received_at: DateTime,
}

/// A request that was acknowledged and waits for verification of intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingRequest {
    /// Which request of its pair this is.
    pub id: RequestId,
    /// The topic as the subscriber wrote it.
    pub topic: TopicUrl,
    /// The callback as the subscriber wrote it.
    pub callback: CallbackUrl,
    /// What it asked for.
    pub intent: Intent,
    /// When it came in.
    pub received_at: DateTime,
}

/// A denial's identity; requests and denials are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DenialId(pub u64);

/// A denial before it is in force (W-098, W-102).
#[derive(Clone, Debug)]
pub struct NewDenial {
    /// The topic.
    pub topic: TopicUrl,
    /// The callback.
    pub callback: CallbackUrl,
    /// Why, for the subscriber's people.
    pub reason: String,
    /// What is denied.
    pub refusal: Refusal,
}

/// What a denial is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Whatever there is of the pair.
    Pair,
    /// This request, and only that: anybody can send one in a subscriber's name, so what is in force stays (W-062).
    Request(RequestId),
    /// This request, which its subscriber has confirmed, and the subscription with it. Nothing where a newer request waits, whose
    /// word counts instead (D-17).
    Confirmed(RequestId),
}

/// A denial that the callback has to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Which denial of its pair this is.
    pub id: DenialId,
    /// The topic as the subscriber wrote it (W-100).
    pub topic: TopicUrl,
    /// The callback as the subscriber wrote it.
    pub callback: CallbackUrl,
    /// Why, for the subscriber's people.
    pub reason: String,
    /// The subscription that has ended by it, of a callback that had confirmed.
    pub ended: Option<(Shard, TopicId, SubscriptionId)>,
}

/// What became of a verified request.
#[derive(Clone, Debug)]
pub enum Activation {
    /// It is in force.
    Done,
    /// It no longer waits, usually because a newer request for the same pair took its place: nothing was changed (D-17).
    Superseded,
}

/// A subscription in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its identity.
    pub id: SubscriptionId,
    /// Its topic.
    pub topic: TopicId,
    /// Where deliveries go, exactly as the subscriber wrote it (W-190).
    pub callback: CallbackUrl,
    /// The topic as the subscriber wrote it, for what is echoed to it (D-01).
    pub topic_url: TopicUrl,
    /// The key for signatures.
    pub secret: Option<Secret>,
    /// How long the lease is.
    pub lease: Duration,
    /// When it ends (wall clock).
    pub lease_end: DateTime,
    /// Where the callback confirmed it last, if it names no address itself.
    pub address: Option<IpAddr>,
    /// The log's newest offset when the subscription began: only later notifications are owed.
    pub start: Offset,
    /// When it was first verified.
    pub created_at: DateTime,
    /// When it was last verified.
    pub verified_at: DateTime,
}

/// What a delivery to a subscription needs of its record. The rest is not even decoded: of many subscriptions this is read once
/// for each delivery.
#[derive(Clone)]
pub struct Recipient {
    /// The subscription.
    pub id: SubscriptionId,
    /// Its topic.
    pub topic: TopicId,
    /// Where deliveries go: a part of the record, the bytes of what was a [`CallbackUrl`] when it was taken in (W-190).
    pub callback: Bytes,
    /// The topic as the subscriber wrote it.
    pub topic_url: TopicUrl,
    /// The key for signatures.
    pub secret: Option<Secret>,
}

/// A callback is a capability (W-074): it is not shown.
impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipient").field("id", &self.id).field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// The little that delivery keeps in memory of each subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The subscription.
    pub id: SubscriptionId,
    /// Its topic.
    pub topic: TopicId,
    /// The callback's origin, by which limits are kept.
    pub origin: Arc<str>,
    /// Only later notifications are owed.
    pub start: Offset,
    /// When the lease ends (wall clock).
    pub lease_end: DateTime,
    /// Where the callback confirmed it last, if it names no address itself.
    pub address: Option<IpAddr>,
}

/// Why a subscription ended without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The lease ran out (W-123).
    Expired,
    /// The subscriber answered 410, twice (W-151).
    Gone {
        /// When the request was sent that it answered so last.
        asked: DateTime,
    },
}

/// How far one shard of a topic is: every subscription is done through `done`, except the laggards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Everything up to here is done.
    pub done: Offset,
    /// The sweep that was under way.
    pub sweep: Option<Sweep>,
}

impl Watermark {
    /// How far delivery may have been for anybody.
    pub fn furthest(&self) -> Offset {
        self.sweep.map_or(self.done, |sweep| self.done.max(sweep.target))
    }
}

/// A pass over the subscriptions of a topic in the order of their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The pass brings every subscription up to here.
    pub target: Offset,
    /// All subscriptions with ids up to this one are there already, except the laggards.
    pub through: SubscriptionId,
}

/// Why the last attempt failed, as far as the schedule cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureClass {
    /// Nothing failed: it is only slower than the others.
    Slow,
    /// 3xx and 4xx: perhaps this very message is refused.
    Refused,
    /// 408, 425, 429, 5xx, network, TLS, DNS: the host is in trouble.
    Trouble,
    /// 410: the subscriber says that the subscription is gone; it is asked once more.
    Gone,
    /// Nothing failed and nothing was sent: the name leads to where nobody has confirmed under it.
    Unsent,
}

/// A subscription whose place is not the watermark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laggard {
    /// The topic.
    pub topic: TopicId,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// It is done through this offset.
    pub cursor: Offset,
    /// How many attempts at the next notification have failed.
    pub attempts: u16,
    /// Not before this moment (wall clock).
    pub next_attempt: DateTime,
    /// When the present row of failures began.
    pub failing_since: Option<DateTime>,
    /// Why the last attempt failed.
    pub class: FailureClass,
}

/// A notification that was given up for one subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The topic.
    pub topic: TopicId,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The notification.
    pub offset: Offset,
    /// When it was given up.
    pub at: DateTime,
    /// Why.
    pub class: FailureClass,
    /// The last status, if there was an answer.
    pub status: Option<u16>,
}

/// Notifications that were no longer in the log, or could not be read there, before a subscription had got them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The topic.
    pub topic: TopicId,
    /// The subscription.
    pub subscription: SubscriptionId,
    /// The first of them …
    pub from: Offset,
    /// … and the last.
    pub to: Offset,
    /// When that was found.
    pub at: DateTime,
}

/// What one subscription has not got, and will not get unless it is replayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Given up for it.
    pub skips: Vec<Skip>,
    /// Gone before it got them.
    pub gaps: Vec<Gap>,
    /// Whether everything was looked at.
    pub all: bool,
}

/// Which recipients will be asked for after this one, so that they can be read on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The subscriptions of the same topic and shard with the ids after it.
    Topic,
    /// These, and then those of the topics after it in the order of their ids.
    Shard,
}

/// What becomes of a recipient that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It is asked for again soon.
    Ready,
    /// It is not asked for again before so many others that keeping it would only take room from them.
    Nothing,
}

/// A shard as it was left.
#[derive(Clone, Debug, Default)]
pub struct ShardState {
    /// The subscriptions, in any order.
    pub slots: Vec<Slot>,
    /// The topics that these subscriptions are of, and no others.
    pub topics: Vec<Topic>,
    /// The watermarks of these topics, as far as there are any.
    pub watermarks: Vec<(TopicId, Watermark)>,
    /// The laggards.
    pub laggards: Vec<Laggard>,
    /// All topics of which nothing is delivered for now.
    pub paused: Vec<TopicId>,
}

/// Progress to save.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    /// New watermarks.
    pub watermarks: Vec<(TopicId, Watermark)>,
    /// New states of laggards.
    pub laggards: Vec<Laggard>,
    /// Laggards that are at the watermark again.
    pub caught_up: Vec<(TopicId, SubscriptionId)>,
    /// Notifications given up.
    pub skips: Vec<Skip>,
    /// Notifications lost.
    pub gaps: Vec<Gap>,
    /// What is owed once more: what was given up of it before is given up no longer.
    pub replayed: Vec<Replayed>,
}

/// Notifications that are to be delivered once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// The topic.
    pub topic: TopicId,
    /// One of its subscriptions; `None`: all of them.
    pub subscription: Option<SubscriptionId>,
    /// The first of them.
    pub from: Offset,
}

impl Replayed {
    /// Whether this is owed again by it.
    pub fn covers(&self, skip: &Skip) -> bool {
        skip.topic == self.topic
            && skip.offset >= self.from
            && self.subscription.is_none_or(|id| id == skip.subscription)
    }
}

impl Checkpoint {
    /// Whether there is nothing to save.
    pub fn is_empty(&self) -> bool {
        self.watermarks.is_empty()
            && self.laggards.is_empty()
            && self.caught_up.is_empty()
            && self.skips.is_empty()
            && self.gaps.is_empty()
            && self.replayed.is_empty()
    }
}

/// Something that became durable.
#[derive(Clone, Debug)]
pub enum StoreEvent {
    /// A notification was appended.
    Appended {
        /// The topic.
        topic: TopicId,
        /// Its place.
        offset: Offset,
        /// Whether it supersedes the fetched versions before it.
        rule: Rule,
        /// The size of its body.
        bytes: u64,
    },
    /// A subscription began or was renewed.
    Subscribed {
        /// Who delivers to it.
        shard: Shard,
        /// The new state.
        slot: Slot,
        /// The topic with its bounds at this moment.
        topic: Box<Topic>,
    },
    /// The operator wants nothing of this topic to be delivered for now.
    Paused {
        /// The topic.
        topic: TopicId,
    },
    /// Its deliveries go on.
    Resumed {
        /// The topic.
        topic: TopicId,
    },
    /// A subscription ended.
    Unsubscribed {
        /// Who delivered to it.
        shard: Shard,
        /// The topic.
        topic: TopicId,
        /// The subscription.
        id: SubscriptionId,
    },
}
