//! Topics that wait to be fetched in the embedded store.

use async_trait::async_trait;
use resync_core::websub::TopicUrl;

use super::super::engine::Keys;
use super::super::writer::Kind;
use super::super::{Embedded, SMALL};
use crate::store::encoding::key;
use crate::store::encoding::layout::StoredValidators;
use crate::store::{Fetches, Offset, Ping, PingClient, Result, Shard, TopicId, Validators};
use crate::trace_context::TraceContext;

#[async_trait]
impl Fetches for Embedded {
    async fn validators(&self, topic: TopicId, version: Offset) -> Result<Option<Validators>> {
        let known = self.shared.get::<StoredValidators>(&key::topic(topic))?;
        Ok(known.filter(|known| known.version == version).map(|known| known.validators))
    }

    async fn put_validators(&self, topic: TopicId, version: Offset, validators: Validators) -> Result<()> {
        self.change(move |t| t.put_validators(topic, version, validators)).await
    }

    async fn put_ping(
        &self,
        topic: TopicUrl,
        trace: Option<TraceContext>,
        client: PingClient,
    ) -> Result<Ping> {
        let bytes = SMALL + topic.as_str().len();
        self.writer.run(Kind::Growing, bytes, move |t| Ok(t.put_ping(topic, trace, client))).await
    }

    async fn remove_ping(&self, ping: &Ping) -> Result<()> {
        let ping = ping.clone();
        self.try_change(move |t| t.remove_ping(&ping)).await
    }

    async fn pings(&self, of: &[Shard]) -> Result<Vec<Ping>> {
        let mut pings: Vec<Ping> = self.read(|shared| shared.list(&Keys::all()).collect()).await?;
        pings.retain(|ping| of.contains(&Shard::that_fetches(&ping.topic, self.shards)));
        pings.sort_by_key(|ping| ping.id);
        Ok(pings)
    }
}
