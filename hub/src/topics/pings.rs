//! Pings: a publisher says that a topic changed (W-132, C-04, C-05). A ping is durable before it is acknowledged, and waits for its fetch.

use std::sync::Arc;

use futures_util::future::join_all;
use resync_core::websub::TopicUrl;
use tracing::debug;

use crate::concurrency::{Client, ClientClass};
use crate::store::{Ping, PingClient, Shard, Store, StoreError};
use crate::telemetry::TraceContext;
use crate::waiting_work::JobQueues;

/// Pings of one request that are accepted at once.
const ACCEPTED_AT_ONCE: usize = 128;

/// Accepts pings, and hands those of this hub's shards over to be fetched.
#[derive(Clone, Debug)]
pub struct Pings {
    store: Arc<dyn Store>,
    fetcher: JobQueues<AcceptedPing>,
}

/// A ping that waits for its fetch.
#[derive(Clone, Debug)]
pub struct AcceptedPing {
    pub(super) ping: Ping,
    pub(super) client: Client,
}

impl AcceptedPing {
    /// What the store keeps of a client: as much as limits count it by, also at another hub.
    fn kept(client: Client) -> PingClient {
        PingClient { network: client.network, is_trusted: client.is_trusted() }
    }

    /// A ping that another hub has accepted, or that waited in a shard that was taken over.
    pub(super) fn recovered(ping: Ping) -> Self {
        let PingClient { network, is_trusted } = ping.client;
        let class = if is_trusted { ClientClass::Trusted } else { ClientClass::Stranger };
        Self { ping, client: Client { network, class } }
    }
}

impl Pings {
    /// `fetcher` gets each ping of this hub's shards once it is durable.
    pub fn new(store: Arc<dyn Store>, fetcher: JobQueues<AcceptedPing>) -> Self {
        Self { store, fetcher }
    }

    /// Which of these topics the hub fetches after a ping: not those that nobody ever subscribed to (C-04).
    ///
    /// # Errors
    /// [`StoreError`]
    pub async fn fetched(&self, topics: Vec<TopicUrl>) -> Result<Vec<TopicUrl>, StoreError> {
        let mut fetched = Vec::new();
        for topic in topics {
            if self.store.topic(&topic).await?.is_some() {
                fetched.push(topic);
            } else {
                debug!(topic = topic.as_str(), "ping for a topic without subscriptions");
            }
        }
        Ok(fetched)
    }

    /// Accepts pings of topics that are to be fetched, many at once, so that they share the store's syncs.
    ///
    /// # Errors
    /// [`StoreError`] where one was not accepted; the others may have been.
    pub async fn accept_all(
        &self,
        topics: Vec<TopicUrl>,
        client: Client,
        trace: Option<TraceContext>,
    ) -> Result<(), StoreError> {
        for some in topics.chunks(ACCEPTED_AT_ONCE) {
            let accepting = some.iter().map(|topic| self.accept(topic.clone(), client, trace));
            join_all(accepting).await.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    /// Accepts a ping of a topic that is to be fetched, in this trace. When this returns, a crash no longer loses it.
    ///
    /// # Errors
    /// [`StoreError`], which leaves nothing behind.
    pub async fn accept(
        &self,
        topic: TopicUrl,
        client: Client,
        trace: Option<TraceContext>,
    ) -> Result<(), StoreError> {
        let ping = self.store.put_ping(topic, trace, AcceptedPing::kept(client)).await?;
        let shard = Shard::that_fetches(&ping.topic, self.store.shards());
        self.fetcher.send(shard, AcceptedPing { ping, client });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::iter;

    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::meters::Meters as _;
    use crate::store::{self, Engine, Keyring, PingId};

    #[tokio::test]
    async fn a_ping_that_names_many_topics_shares_syncs_of_the_disk_and_wakes_all_their_fetches() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let (fetcher, mut pinged) = JobQueues::for_test(store.all_shards());
        let pings = Pings::new(Arc::clone(&store), fetcher);
        let topics: Vec<TopicUrl> =
            (0..1_000).map(|number| format!("http://source.example/{number}").parse().unwrap()).collect();
        let client = Client { network: None, class: ClientClass::Stranger };
        pings.accept_all(topics.clone(), client, None).await.unwrap();
        assert_eq!(store.pings(&store.all_shards()).await.unwrap().len(), topics.len());
        let woken = iter::from_fn(|| pinged.try_recv().ok()).map(|one| one.ping.topic.to_string());
        assert_eq!(woken.collect::<HashSet<_>>(), topics.iter().map(ToString::to_string).collect());
        // How many share one is a matter of how long the disk takes.
        assert!(syncs(&*store) < 500, "{} syncs", syncs(&*store));
    }

    /// How often the store has synced the disk.
    fn syncs(store: &dyn Store) -> u64 {
        let mut registry = Registry::default();
        store.meters().register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("log_fsync_seconds_count "));
        count.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }

    #[test]
    fn who_takes_a_ping_over_counts_it_for_the_network_that_sent_it() {
        let topic: TopicUrl = "http://source.example/t".parse().unwrap();
        for class in [ClientClass::Stranger, ClientClass::Trusted] {
            let client = Client { network: Some([0x2001_u16, 0xdb8, 1, 2, 0, 0, 0, 0].into()), class };
            let ping =
                Ping { id: PingId(1), topic: topic.clone(), trace: None, client: AcceptedPing::kept(client) };
            assert_eq!(AcceptedPing::recovered(ping).client, client);
        }
    }
}
