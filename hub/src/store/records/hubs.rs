//! Hubs that share a store, and the database that they share it in.

use std::time::Duration;

use resync_core::datetime::DateTime;

use super::Shard;

/// The hubs that share a store, as all of them see it. A hub with a store of its own is not among any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hubs {
    /// Those that are up, that were a moment ago, or that own something.
    pub hubs: Vec<KnownHub>,
    /// Shards that no hub owns, in their order.
    pub unowned: Vec<Shard>,
    /// Laggards in these, counted as [`KnownHub::laggards`].
    pub unowned_laggards: u64,
}

/// A hub that shares the store with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownHub {
    /// What its computer is called.
    pub name: String,
    /// Its version.
    pub version: String,
    /// When it was started.
    pub started_at: DateTime,
    /// Until when others take it for up, unless it says so again.
    pub alive_until: DateTime,
    /// Whether it is up.
    pub is_up: bool,
    /// How long ago it said so.
    pub heartbeat_age: Duration,
    /// The shards that it owns, in their order.
    pub shards: Vec<Shard>,
    /// Laggards in these, as the last checkpoints have them; of each shard a bounded number is counted.
    pub laggards: u64,
    /// It is the one that was asked.
    pub is_this: bool,
}

/// What came of it when somebody said that a database was restored to an earlier point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidRestored {
    /// Whether nothing is given out twice from now on: that is not done while hubs are up.
    pub is_done: bool,
    /// When that was, by the database's clock.
    pub at: DateTime,
    /// Some of the hubs that the database knows, by the names of their computers, and when it heard of each last: those first that were up
    /// last. Whoever refuses the database it does not hear of.
    pub hubs: Vec<(String, DateTime)>,
}

/// A database, as it is known without asking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseState {
    /// How long it cannot be used; `None`: it can be.
    pub away_for: Option<Duration>,
    /// Which of its hosts is in use, or was last.
    pub host: Option<String>,
    /// The timeline of that host: each failover begins one.
    pub timeline: u32,
    /// Whether it keeps what it acknowledges.
    pub durability: KnownDurability,
}

/// How it is known that a database keeps what it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownDurability {
    /// A standby had what was acknowledged, when it was looked at last.
    Proven,
    /// The operator says so.
    Declared,
    /// It does not.
    Missing,
}
