//! Storage: what the hub needs to remember, as a few traits by subject ([`Store`] is their sum). No engine's type leaves this folder.
//!
//! The traits speak of notifications, subscriptions, watermarks and laggards, so that an embedded key-value engine and a
//! replicated database can both stand behind it. Every method that changes something returns only when the change is
//! durable: what was acknowledged survives `kill -9` and, as far as the engine keeps its promise, a power cut.
//!
//! The unit of ownership is the *shard* (a hash of the callback's origin): whoever claims a shard gets an epoch, and a
//! checkpoint that carries an older epoch is refused, so a paused owner cannot write over its successor.

mod backup;
mod cache;
mod copies;
mod embedded;
mod encoding;
mod error;
mod files;
mod findings;
mod keyring;
mod meters;
mod parts;
mod place;
#[cfg(feature = "postgres")]
mod postgres;
mod records;
mod room;
mod verified;

#[cfg(test)]
mod conformance;

pub use backup::{BESIDE, BackupError, Copied, Credentials, Header, beside};
#[cfg(all(test, feature = "postgres"))]
pub(crate) use conformance::SharedDatabase;
#[cfg(test)]
pub(crate) use conformance::{posted, subscribe};
#[cfg(test)]
pub(crate) use embedded::{InMemory, damage_log, damage_subscription, damage_subscription_index, in_memory};
pub use embedded::{back_up, check, open, repair, restore, restore_stream, verify};
pub use error::StoreError;
pub use files::Files;
pub use findings::{Findings, RepairStep, Repaired};
pub use keyring::{KeyId, Keyring, KeyringError};
pub use meters::Meters;
pub use parts::{
    Admin, Change, Clock, Document, DocumentVersion, Fetches, Log, Orders, Progress, Registry, Requests,
    Subscriptions, WallClock,
};
pub use place::Place;
pub use records::{
    Accepted, Activation, Additions, Appended, CachePolicy, Chain, ChainBreak, Checkpoint, ClientUsage,
    ClockJump, Command, ContentKind, DatabaseState, Denial, DenialId, DenialScope, Ended, Epoch, Failing,
    FailureClass, Gap, Hubs, Intent, Interval, KnownDurability, KnownHub, Laggard, Lapse, Missed, NewDenial,
    NewNotification, NewRequest, Notification, NotificationLinks, NotificationProgress, Offset, Order,
    OrderEvent, OrderId, Payer, PendingRequest, Ping, PingClient, PingId, ReadAhead, Recipient, Replayed,
    RequestId, SaidRestored, Search, SearchResult, Shard, ShardState, Shares, Skip, Spread, StoreEvent,
    Subscription, SubscriptionCounts, SubscriptionId, SubscriptionKey, SubscriptionSummary, Sweep, Target,
    Topic, TopicId, Trimmed, Uptime, Usage, Validators, WaitingDenial, WaitingLimits, Watermark,
};
pub use verified::{Confirmation, NotConfirmed, VerifiedSubscription, VerifiedUnsubscription};

pub use crate::config::Engine;

/// The file in the data folder that names the engine of the store. Its owner is the user that the hub runs as; the folder itself may
/// belong to another one.
pub const MARK: &str = "engine";

/// The result of every storage operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Everything that the hub needs of its storage.
pub trait Store: Log + Fetches + Requests + Subscriptions + Progress + Orders + Admin + Clock {}

impl<S: Log + Fetches + Requests + Subscriptions + Progress + Orders + Admin + Clock> Store for S {}
