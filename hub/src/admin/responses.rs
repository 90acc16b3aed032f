//! What the operator is shown: the values of the admin API, from which the pages are made too.

use resync_core::websub::NotificationId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::text;
use crate::delivery::{LaggardProgress, OpenHost, RecordedAttempt, Totals};
use crate::store::{self, ChainBreak, Notification, Offset, SubscriptionSummary, TopicId};

/// A list in pages.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Page<T> {
    /// The entries.
    pub items: Vec<T>,
    /// What to send as `after` for the next page; absent on the last one. Its form may change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The hub in a few numbers. Where several hubs share a store, the others deliver the rest.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Status {
    /// The hub's version.
    pub version: &'static str,
    /// Of the store: topics that were ever published or subscribed to.
    pub topics: usize,
    /// Of this hub: subscriptions in force that it delivers to.
    pub subscriptions: usize,
    /// Of this hub: deliveries since its start.
    pub deliveries: Totals,
    /// The database and the hubs that share it; absent where the hub has a store of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<Cluster>,
}

/// A database, and the hubs that share it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Cluster {
    /// The database.
    pub database: Database,
    /// The hubs and what they own; absent while the database cannot be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owners: Option<Owners>,
}

/// A database, as this hub knows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Database {
    /// Since when it cannot be used; absent while it can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away_since: Option<String>,
    /// Which of its hosts is in use, or was last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The timeline of that host: each failover begins one.
    pub timeline: u32,
    /// Whether it keeps what it acknowledges: `proven`, `declared` or `missing`.
    pub durability: &'static str,
}

/// The hubs of a database, and who owns which shard.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Owners {
    /// Hubs that are up, that were some minutes ago, or that own a shard.
    pub hubs: Vec<Owner>,
    /// Shards that no hub owns.
    pub shards_without_owner: Vec<u16>,
    /// Laggards in these, as `laggards` of a hub.
    pub laggards_without_owner: u64,
}

/// A hub of a database.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Owner {
    /// What its computer is called.
    pub name: String,
    /// Its version.
    pub version: String,
    /// It is the hub that answers.
    pub this: bool,
    /// It is up.
    pub up: bool,
    /// When it was started.
    pub started_at: String,
    /// Until when others take it for up, unless it says so again.
    pub alive_until: String,
    /// Milliseconds since it said so last.
    pub heartbeat_age_ms: u64,
    /// The shards that it owns.
    pub shards: Vec<u16>,
    /// Laggards in these, as the last checkpoints have them: of each shard ten thousand are counted at most.
    pub laggards: u64,
}

/// The hub at a glance.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Overview {
    /// The numbers of the status.
    #[serde(flatten)]
    pub status: Status,
    /// Seconds since the start of this hub.
    pub running_for: u64,
    /// Why the hub accepts nothing new; absent while it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Of this hub: posts and pings that it accepted since its start.
    pub published: u64,
    /// Of this hub: attempts to deliver by how they ended, since its start and in the last hour.
    pub outcomes: Vec<Outcome>,
    /// Of this hub: milliseconds from publish to success, on average over the last hour; absent if nothing was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_lag_ms: Option<u64>,
    /// Of the store: bytes of the notifications in the logs.
    pub log_bytes: u64,
    /// Free bytes on the disk of the data folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_free: Option<u64>,
    /// Its size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size: Option<u64>,
    /// Of this hub: hosts with an open circuit breaker.
    pub hosts: Vec<Host>,
}

/// Attempts that ended alike.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Outcome {
    /// As in the metric `websub_deliveries_total`.
    pub outcome: &'static str,
    /// Since the start.
    pub total: u64,
    /// In the last hour.
    pub last_hour: u64,
}

/// A topic.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Topic {
    /// Its identity, 16 hexadecimal digits.
    pub id: String,
    /// Its URL.
    pub url: String,
    /// The oldest notification that its log holds.
    pub first: u64,
    /// The newest one; 0: there never was one.
    pub head: u64,
    /// How its content comes in: `posted`, `fetched`, `both`, or `none` yet.
    pub kind: &'static str,
    /// Its deliveries are paused.
    pub paused: bool,
    /// How its Change Notifications follow each other (CN-008); absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chain: Option<Chain>,
}

/// Change Notifications in a row.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Chain {
    /// Where the next one has to start.
    pub until: String,
    /// How many times the chain was broken.
    pub broken: u64,
    /// The newest of these times.
    pub breaks: Vec<Break>,
}

/// A Change Notification that does not start where the one before it ended.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Break {
    /// The notification after the break.
    pub notification: String,
    /// `gap`: no notification lists some changes. `overlap`: two list the same.
    pub kind: &'static str,
    /// Where the one before it ended.
    pub ended: String,
    /// Where it starts.
    pub started: String,
}

/// All about a topic.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct TopicDetail {
    /// The topic.
    #[serde(flatten)]
    pub topic: Topic,
    /// Its subscriptions in force.
    pub subscriptions: usize,
    /// How many of them are laggards.
    pub laggards: usize,
    /// The names of the tokens that may speak for it.
    pub publishers: Vec<String>,
    /// Anybody may post to it.
    pub open: bool,
    /// The newest notifications of its log, newest first.
    pub log: Vec<LogEntry>,
}

/// A notification of a log.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct LogEntry {
    /// Its place.
    pub offset: u64,
    /// When it came in.
    pub received_at: String,
    /// Its media type.
    pub content_type: String,
    /// The size of its body.
    pub bytes: usize,
    /// `posted` or `fetched`.
    pub kind: &'static str,
}

/// A subscription.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Subscription {
    /// Its number.
    pub id: u64,
    /// The URL of its topic.
    pub topic: String,
    /// Never the whole callback: it is a capability (W-195).
    pub callback_origin: String,
    /// It gets only notifications after this one.
    pub start: u64,
    /// When its lease ends.
    pub lease_end: String,
}

/// All about a subscription.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SubscriptionDetail {
    /// The subscription.
    #[serde(flatten)]
    pub subscription: Subscription,
    /// The identity of its topic.
    pub topic_id: String,
    /// The length of its lease in seconds.
    pub lease: u64,
    /// When it was verified first.
    pub created_at: String,
    /// When it was verified last.
    pub verified_at: String,
    /// Whether its deliveries are signed.
    pub signed: bool,
    /// It is done through this notification …
    pub done_through: u64,
    /// … which came in at this time, if the log still holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done_received_at: Option<String>,
    /// The newest notification of the topic.
    pub head: u64,
    /// How many it is behind.
    pub behind: u64,
    /// Attempts that failed since something was delivered to it or given up.
    pub failed_attempts: u16,
    /// When the current run of failures began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// What it waits for, as a sentence.
    pub waits: String,
    /// Its topic is paused.
    pub paused: bool,
    /// A page for its subscriber that shows why nothing arrives. The URL is all that is needed to see it.
    pub status_page: String,
    /// Its last failures, newest first, and successes after them. A restart forgets them.
    pub recent_attempts: Vec<Trouble>,
    /// Notifications that were given up for it, newest first.
    pub skipped: Vec<Skipped>,
    /// Notifications that were removed from the log before it got them, newest first.
    pub lost: Vec<Lost>,
    /// Only the newest 10,000 entries of each of these two lists were searched, and there are more: the lists of deliveries have all.
    pub search_incomplete: bool,
}

/// An attempt that failed, or the success after it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Trouble {
    /// When.
    pub at: String,
    /// The notification.
    pub notification: String,
    /// The first has number 1.
    pub attempt: u16,
    /// Why it failed; absent: it was delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A subscription that is behind.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Laggard {
    /// Its number.
    pub subscription: u64,
    /// The identity of its topic.
    pub topic: String,
    /// Where its deliveries go.
    pub callback_origin: String,
    /// The next notification to deliver, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owed: Option<String>,
    /// How many it has yet to get.
    pub behind: u64,
    /// Attempts that failed since something was delivered to it or given up.
    pub failed_attempts: u16,
    /// `slow`, `refused`, `trouble` or `gone`.
    pub class: &'static str,
    /// When the current run of failures began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// Seconds until the next attempt; absent if it is under way or waits for its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_in: Option<u64>,
    /// Its topic is paused.
    pub paused: bool,
}

/// A host in trouble.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Host {
    /// Which one.
    pub origin: String,
    /// Seconds until a probe.
    pub breaker_open_for: u64,
    /// Subscriptions that wait for it.
    pub subscriptions_waiting: usize,
}

/// A notification that was given up for a subscription.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Skipped {
    /// Which notification.
    pub notification: String,
    /// For whom.
    pub subscription: u64,
    /// When.
    pub at: String,
    /// `slow`, `refused`, `trouble` or `gone`.
    pub class: &'static str,
    /// The last status, if there was an answer.
    pub status: Option<u16>,
}

/// Notifications that were gone from the log before a subscription got them.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Lost {
    /// The first notification that is lost.
    pub first: String,
    /// The offset of the last one.
    pub last: u64,
    /// The subscription that lost them.
    pub subscription: u64,
    /// When that was found.
    pub at: String,
}

/// A topic of which nothing is delivered for now, by its URL.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(transparent)]
pub struct Paused(pub String);

/// A publisher's token, without the token.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Publisher {
    /// Its name.
    pub name: String,
    /// It may speak for topics that begin like one of these.
    pub topic_prefixes: Vec<String>,
    /// When it was made.
    pub created_at: String,
    /// When it was used last, to the minute; absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_used: Option<String>,
}

/// A token that was just made: it is shown once.
#[derive(Clone, Serialize, ToSchema)]
pub struct NewPublisher {
    /// Its name.
    pub name: String,
    /// What the publisher sends as `Authorization: Bearer`.
    pub token: String,
}

impl std::fmt::Debug for NewPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewPublisher").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What an act on deliveries came to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Done {
    /// How many subscriptions it changed.
    pub subscriptions: usize,
}

/// Where a subscriber sees how its subscription stands.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StatusPage {
    /// The address of the page, which is all that is needed to see it.
    pub status_page: String,
}

/// What a denial came to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Denied {
    /// How many subscriptions have ended.
    pub denied: usize,
    /// Those of them whose records could not be read: they are removed, and their unknown callbacks are not notified.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<u64>,
}

/// What a change of keys came to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Rotated {
    /// Secrets that were rewritten.
    pub rewritten: u64,
    /// The key that encrypts all of them now.
    pub key: String,
}

/// Whether the hub is being drained, and what it still owes.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Draining {
    /// Nothing new is accepted.
    pub draining: bool,
    /// What is left to do; absent if it cannot be counted.
    #[serde(flatten)]
    pub owed: Option<Remaining>,
}

/// What is still owed.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Remaining {
    /// Requests that came before the drain and are not stored yet.
    pub under_way: usize,
    /// Pinged topics that are not fetched yet.
    pub to_fetch: usize,
    /// Requests to subscribe or unsubscribe that are not verified yet.
    pub to_verify: usize,
    /// Callbacks that are not notified yet of their denial.
    pub to_notify: usize,
    /// Subscriptions that current sweeps have not reached yet.
    pub in_turn: usize,
    /// They wait for another attempt, for their host or for an answer.
    pub laggards: usize,
    /// How many of the last two wait for their topic to be resumed.
    pub paused: usize,
    /// Nothing of this is left.
    pub nothing_left: bool,
}

/// Which lines go to the log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LogLevel {
    /// A level for all, levels for parts, or both: `warn`, `hub=debug`, `info,resync_hub::delivery=trace`.
    pub filter: String,
}

pub(super) fn topic_id(id: TopicId) -> String {
    format!("{:016x}", id.0)
}

impl Topic {
    pub(super) fn new(topic: &store::Topic, chain: Option<store::Chain>, paused: bool) -> Self {
        let of = |offset: Offset| NotificationId { topic: topic.id.0, offset: offset.0 }.to_string();
        let broken = |ChainBreak { offset, ended, started }: ChainBreak| Break {
            notification: of(offset),
            kind: if ended < started { "gap" } else { "overlap" },
            ended: ended.to_string(),
            started: started.to_string(),
        };
        Self {
            id: topic_id(topic.id),
            url: topic.url.as_str().to_owned(),
            first: topic.first.0,
            head: topic.head.0,
            kind: match (topic.posted.0, topic.latest.0) {
                (0, 0) => "none",
                (_, 0) => "posted",
                (0, _) => "fetched",
                (_, _) => "both",
            },
            paused,
            chain: chain.map(|chain| Chain {
                until: chain.until.to_string(),
                broken: chain.broken,
                breaks: chain.breaks.into_iter().map(broken).collect(),
            }),
        }
    }
}

impl LogEntry {
    pub(super) fn new(notification: &Notification) -> Self {
        Self {
            offset: notification.offset.0,
            received_at: notification.received_at.to_string(),
            content_type: String::from_utf8_lossy(&notification.content_type).into_owned(),
            bytes: notification.body.len(),
            kind: text::kind(notification.kind),
        }
    }
}

impl Subscription {
    pub(super) fn new(slot: &SubscriptionSummary, topic: &str) -> Self {
        Self {
            id: slot.id.0,
            topic: topic.to_owned(),
            callback_origin: slot.origin.to_string(),
            start: slot.start.0,
            lease_end: slot.lease_end.to_string(),
        }
    }
}

impl From<RecordedAttempt> for Trouble {
    fn from(note: RecordedAttempt) -> Self {
        Self {
            at: note.at.to_string(),
            notification: note.notification.to_string(),
            attempt: note.attempt,
            failure: note.failure,
        }
    }
}

impl From<LaggardProgress> for Laggard {
    fn from(late: LaggardProgress) -> Self {
        Self {
            subscription: late.subscription.0,
            topic: topic_id(late.topic),
            callback_origin: late.origin,
            owed: (late.cursor < late.head)
                .then(|| NotificationId { topic: late.topic.0, offset: late.cursor.next().0 }.to_string()),
            behind: late.head.distance(late.cursor),
            failed_attempts: late.streak_failures,
            class: text::class(late.class),
            failing_since: late.failing_since.map(|since| since.to_string()),
            next_attempt_in: late.next_attempt_in.map(|pause| pause.as_secs()),
            paused: late.paused,
        }
    }
}

impl From<OpenHost> for Host {
    fn from(host: OpenHost) -> Self {
        Self {
            origin: host.origin,
            breaker_open_for: host.for_another.as_secs(),
            subscriptions_waiting: host.waiting,
        }
    }
}

impl From<store::Gap> for Lost {
    fn from(gap: store::Gap) -> Self {
        Self {
            first: NotificationId { topic: gap.topic.0, offset: gap.from.0 }.to_string(),
            last: gap.to.0,
            subscription: gap.subscription.0,
            at: gap.at.to_string(),
        }
    }
}

impl From<store::Skip> for Skipped {
    fn from(skip: store::Skip) -> Self {
        Self {
            notification: NotificationId { topic: skip.topic.0, offset: skip.offset.0 }.to_string(),
            subscription: skip.subscription.0,
            at: skip.at.to_string(),
            class: text::class(skip.class),
            status: skip.status,
        }
    }
}
