//! The records that the hub keeps, free of any engine and any encoding.

mod delivery;
mod hubs;
mod log;
mod orders;
mod subscriptions;

use std::fmt;
use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};
use sha2::{Digest as _, Sha256};

#[cfg(feature = "postgres")]
pub(super) use self::delivery::Others;
pub use self::delivery::{
    Checkpoint, Failing, FailureClass, Gap, Laggard, Lapse, Missed, Replayed, ShardState, Skip, Spread,
    Sweep, Watermark,
};
pub use self::hubs::{DatabaseState, Hubs, KnownDurability, KnownHub, SaidRestored};
pub(super) use self::log::weigh;
pub use self::log::{
    Appended, Chain, ChainBreak, ClockJump, Interval, NewNotification, Notification, NotificationLinks,
    NotificationProgress, Payer, Ping, PingClient, PingId, Shares, Topic, Trimmed, Uptime, Usage, Validators,
};
pub use self::orders::{Accepted, Command, Order, OrderEvent, OrderId, Target};
pub use self::subscriptions::{
    Activation, Additions, CachePolicy, ClientUsage, Denial, DenialId, DenialScope, Ended, Intent, NewDenial,
    NewRequest, PendingRequest, ReadAhead, Recipient, RequestId, Search, SearchResult, Subscription,
    SubscriptionCounts, SubscriptionSummary, WaitingDenial, WaitingLimits,
};

/// By what a subscription is found: SHA-256 of its topic and its callback in their normal forms (D-01), each behind its length
/// as eight bytes, the most significant first. It says nothing about a callback that cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SubscriptionKey([u8; 32]);

impl SubscriptionKey {
    /// The key of a topic and a callback. This is part of the data format and of the protocol: it must never change.
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

    /// The key with this hash.
    #[cfg(feature = "postgres")]
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// A topic's identity: random, so that a hub set up anew never repeats the notification identities of its predecessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub u64);

impl TopicId {
    /// One that no other hub and no later store gives to its topics. Without the top bit it fits an `i64`.
    pub(in crate::store) fn random() -> Self {
        loop {
            let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
            // The fixed bits of a UUID lie in different places of its halves.
            let id = (high ^ low) >> 1;
            if id != 0 {
                return Self(id);
            }
        }
    }
}

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

    /// Whether a leap from here may have ended there.
    #[must_use]
    pub fn leaps_to(self, to: Self) -> bool {
        to > self && to.0.trailing_zeros() >= LEAP
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

/// A restore leaps to the next multiple of this power of two; a database that may have lost something, to one that none before it has had.
const LEAP: u32 = 32;

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A part of the work that has one owner: the subscriptions that it delivers to, the requests that it verifies and the denials that it
/// tells, by a hash of the callback's origin; the topics that it fetches after pings, by a hash of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

impl Shard {
    /// The one whose owner also does what is done once for the whole store.
    pub const FIRST: Self = Self(0);

    /// The shard of a callback, so that all callbacks of one origin share their limits.
    ///
    /// The hash is part of the data format: it must never change.
    pub fn of(callback: &CallbackUrl, shards: u16) -> Self {
        Self::of_origin(&callback.origin(), shards)
    }

    /// The shard whose owner fetches this topic, so that all pings of a topic come together, and all topics of one origin share their
    /// limits. Its subscriptions are in the shards of their callbacks.
    pub fn that_fetches(topic: &TopicUrl, shards: u16) -> Self {
        Self::of_origin(&topic.url().origin().ascii_serialization(), shards)
    }

    fn of_origin(origin: &str, shards: u16) -> Self {
        let hash = crc32fast::hash(origin.as_bytes());
        let shard = hash % u32::from(shards.max(1));
        Self(u16::try_from(shard).expect("a remainder of a u16 is a u16"))
    }
}

/// Which owner of a shard wrote; grows with every claim. The default is that of a shard that nobody has claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Where the content of a notification is from, which says how far behind a subscriber may stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// Posted by its publisher: every notification is delivered, in log order.
    Posted,
    /// Fetched by the hub: only the newest version is delivered.
    Fetched,
}

/// Something that became durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A notification was appended.
    Appended {
        /// The topic.
        topic: TopicId,
        /// Its place.
        offset: Offset,
        /// Whether it supersedes the fetched versions before it.
        kind: ContentKind,
        /// What it weighs.
        bytes: u64,
    },
    /// A subscription began or was renewed.
    Subscribed {
        /// Who delivers to it.
        shard: Shard,
        /// The new state.
        slot: SubscriptionSummary,
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
    /// What has happened before this may never be told: whoever keeps anything has to read it again. Whatever happens from now on is told.
    Resync,
}

/// `by` later; at most the last moment that can be written down.
pub(super) fn after(time: DateTime, by: Duration) -> DateTime {
    const LAST: Duration = Duration::from_secs(253_402_207_200);
    DateTime::from_system_time(time.to_system_time().checked_add(by).unwrap_or(SystemTime::UNIX_EPOCH + LAST))
}
