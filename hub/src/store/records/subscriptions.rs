//! Records of requests, denials and subscriptions: who wants what, and where it goes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Secret, TopicUrl, VerifyToken};

use super::{Offset, Shard, SubscriptionId, SubscriptionKey, TopicId};

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
    /// What its verification says back (C-02).
    pub verify_token: Option<VerifyToken>,
    /// When it came in.
    pub received_at: DateTime,
    /// By whose share what comes of it is counted.
    pub client: Option<IpAddr>,
}

/// How many requests may wait in a store that several hubs share, before one more of a client is refused.
#[derive(Clone, Copy, Debug)]
pub struct WaitingLimits {
    /// Whether the client is trusted. Then all requests count, else those of strangers.
    pub is_trusted: bool,
    /// In all.
    pub total: usize,
    /// Among them, places for clients with few.
    pub kept: usize,
    /// Of one client that are few.
    pub few: usize,
    /// For callbacks at the same host.
    pub host: usize,
    /// Of the same client; `None`: as many as may in all.
    pub client: Option<usize>,
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
    /// What its verification says back (C-02).
    pub verify_token: Option<VerifyToken>,
    /// When it came in.
    pub received_at: DateTime,
    /// By whose share what comes of it is counted.
    pub client: Option<IpAddr>,
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
    pub scope: DenialScope,
}

/// What a denial is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenialScope {
    /// Whatever there is of this topic and callback: requests and subscription.
    Everything,
    /// This request, and only that: anybody can send one in a subscriber's name, so what is in force stays (W-062).
    Request(RequestId),
    /// This request, which its subscriber has confirmed, and the subscription with it. Nothing where a newer request of the same
    /// client waits, whose word counts instead (D-17).
    Confirmed(RequestId),
}

/// A denial of which the callback has to be informed.
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

/// A denial of which the callback has to be informed, without its texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingDenial {
    /// Whose owner informs it.
    pub shard: Shard,
    /// Which denial of its pair this is.
    pub id: DenialId,
    /// The pair.
    pub key: SubscriptionKey,
}

/// What became of a verified request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activation {
    /// It is in force.
    Done,
    /// It no longer waits, usually because a newer request of its client for the same pair took its place: nothing was changed (D-17).
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
    /// The client that asked for it first, by whose share it is counted, where that is known.
    pub client: Option<IpAddr>,
    /// The log's newest offset when the subscription began: only later notifications are owed.
    pub start: Offset,
    /// When it was first verified.
    pub created_at: DateTime,
    /// When it was last verified.
    pub verified_at: DateTime,
}

/// What is new with a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Additions {
    /// Its topic.
    pub topic: bool,
    /// The origin of its callback.
    pub host: bool,
}

/// How much there is of what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionCounts {
    /// Subscriptions in force.
    pub subscriptions: u64,
    /// Topics; of one client, those with a subscription that it was the first to name.
    pub topics: u64,
    /// Callback origins; of one client, those that it was the first to name.
    pub hosts: u64,
}

/// What a client has the hub keep, as one more subscription would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientUsage {
    /// Of this client.
    pub of_client: SubscriptionCounts,
    /// Of all.
    pub in_all: SubscriptionCounts,
    /// What nobody is subscribed to, or with: it would count for this client as long as anybody is.
    pub new_to_client: Additions,
    /// What the hub does not know.
    pub new_to_hub: Additions,
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

impl Recipient {
    /// What it takes in memory, with the record that its callback is a part of, and its place in a map.
    pub(crate) fn weight(&self) -> usize {
        const RECORD: usize = 512;
        RECORD + self.callback.len() + self.topic_url.as_str().len()
    }
}

/// A callback is a capability (W-074): it is not shown.
impl fmt::Debug for Recipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recipient").field("id", &self.id).field("topic", &self.topic).finish_non_exhaustive()
    }
}

/// The little that delivery keeps in memory of each subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionSummary {
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

impl SubscriptionSummary {
    /// What is kept of this subscription.
    pub(in crate::store) fn of(subscription: &Subscription) -> Self {
        Self {
            id: subscription.id,
            topic: subscription.topic,
            origin: subscription.callback.origin().into(),
            start: subscription.start,
            lease_end: subscription.lease_end,
            address: subscription.address,
        }
    }
}

/// Which subscriptions are looked for, and how far.
#[derive(Clone, Debug)]
pub struct Search {
    /// Part of the URLs of their topics or of the origins of their callbacks, in lower case. Not of the rest: letter by letter it would
    /// give a callback away …
    pub part: Arc<str>,
    /// … or a whole callback as it was written.
    pub callback: Arc<str>,
    /// It stops when it has found so many, at least one …
    pub most: usize,
    /// … or has looked at so many.
    pub look_at: usize,
}

/// What came of a search in a shard.
#[derive(Clone, Debug, Default)]
pub struct SearchResult {
    /// The subscriptions found.
    pub found: Vec<SubscriptionSummary>,
    /// How many it looked at.
    pub looked_at: usize,
    /// Where it stopped; `None`: at the end of the shard.
    pub stopped_at: Option<(TopicId, SubscriptionId)>,
}

/// Why a subscription ended without being asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The lease ran out (W-123).
    Expired,
    /// The subscriber answered 410, twice (W-151).
    Gone {
        /// The end of the lease that was in force when the request was sent that it answered so last. Whoever has said yes
        /// since has another one, whatever the clock did meanwhile.
        lease_end: DateTime,
    },
}

/// Which recipients will be asked for after this one, so that they can be read on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAhead {
    /// The subscriptions of the same topic and shard with the ids after it.
    Topic,
    /// These, and then those of the topics after it in the order of their ids.
    Shard,
}

/// What becomes of a recipient that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// It is asked for again soon.
    Keep,
    /// It is not asked for again before so many others that keeping it would only take room from them.
    Drop,
}
