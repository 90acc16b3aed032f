//! Topics that wait to be fetched.

use async_trait::async_trait;
use resync_core::websub::TopicUrl;

use crate::store::{Offset, Ping, PingClient, Result, Shard, TopicId, Validators};
use crate::trace_context::TraceContext;

/// Pings that were acknowledged and not yet acted on, and what fetches need to ask only for what is new.
#[async_trait]
pub trait Fetches: std::fmt::Debug + Send + Sync + 'static {
    /// What the topic said about this version when it was fetched last; `None` when that was another version, or never.
    async fn validators(&self, topic: TopicId, version: Offset) -> Result<Option<Validators>>;

    /// Stores what the topic says now about this version, which an earlier fetch appended.
    async fn put_validators(&self, topic: TopicId, version: Offset, validators: Validators) -> Result<()>;

    /// Stores that this topic has to be fetched, in which trace and for whom. It replaces an older ping of the same topic, and takes its
    /// trace if it has none of its own, and its client if that alone is trusted.
    async fn put_ping(
        &self,
        topic: TopicUrl,
        trace: Option<TraceContext>,
        client: PingClient,
    ) -> Result<Ping>;

    /// Removes a ping that was served. One that was replaced meanwhile stays.
    async fn remove_ping(&self, ping: &Ping) -> Result<()>;

    /// All that wait in these shards, the oldest first; read by who has just become their owner. A ping belongs to the shard of its
    /// topic's origin ([`Shard::that_fetches`]).
    async fn pings(&self, of: &[Shard]) -> Result<Vec<Ping>>;
}
