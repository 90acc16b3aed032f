//! What pings without a token may have the hub send: the bytes of what was fetched, once for each subscription.
//!
//! How much that is shows only after the fetch. So what a ping has the hub send is owed, and until it is paid off there is no next
//! one: of a client, whatever it pings, and of a topic, whoever pings it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use resync_core::websub::TopicUrl;

use crate::buckets::Buckets;
use crate::config::Rate;
use crate::delivery::Operator;
use crate::places::{Asker, Lane};
use crate::store::TopicId;

/// What is counted in.
const UNIT: u64 = 1_024;
/// All clients together may have so many times as much sent of one topic as one of them of all its topics.
const CLIENTS: u64 = 5;

/// The budgets of clients and topics.
#[derive(Clone, Debug)]
pub struct FanOut {
    clients: Buckets,
    topics: Buckets,
    delivery: Operator,
}

impl FanOut {
    /// One client may have so many bytes sent in a minute. With `enabled` false there is no limit.
    pub fn new(enabled: bool, bytes_per_minute: u64, delivery: Operator) -> Self {
        let buckets = |bytes| Buckets::new(enabled, per_minute(bytes));
        let topics = bytes_per_minute.saturating_mul(CLIENTS);
        Self { clients: buckets(bytes_per_minute), topics: buckets(topics), delivery }
    }

    /// Whether everything is paid off that this client and these topics have had sent.
    ///
    /// # Errors
    /// How long to wait.
    pub fn admit(&self, client: IpAddr, topics: &[TopicUrl], now: Instant) -> Result<(), Duration> {
        if topics.is_empty() {
            return Ok(());
        }
        self.clients.admit_heavy(client, 0, now)?;
        topics.iter().try_for_each(|topic| self.topics.admit_heavy(topic.key(), 0, now))
    }

    /// The same for a topic that is about to be fetched: it is enough that one of those who pinged it has paid.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit_fetch(
        &self,
        topic: &TopicUrl,
        askers: &[Asker],
        now: Instant,
    ) -> Result<(), Duration> {
        if askers.iter().any(|asker| asker.lane == Lane::Known) {
            return Ok(());
        }
        self.topics.admit_heavy(topic.key(), 0, now)?;
        let clients = askers.iter().filter_map(|asker| asker.client);
        let waits = clients.map(|client| self.clients.admit_heavy(client, 0, now));
        waits.min_by_key(|wait| wait.err().unwrap_or_default()).unwrap_or(Ok(()))
    }

    /// Something new of a topic goes out for those who pinged it; nobody owes what somebody with a token would have had sent
    /// anyway.
    pub(super) async fn take(&self, topic: &TopicUrl, id: TopicId, bytes: usize, askers: &[Asker]) {
        if askers.iter().any(|asker| asker.lane == Lane::Known) {
            return;
        }
        // When delivery has stopped, so does the hub.
        let subscriptions = self.delivery.subscriptions(id).await.unwrap_or_default();
        let sent = (bytes as u64).saturating_mul(subscriptions as u64).div_ceil(UNIT);
        let (sent, now) = (u32::try_from(sent).unwrap_or(u32::MAX), Instant::now());
        self.topics.take(topic.key(), sent, now);
        for client in askers.iter().filter_map(|asker| asker.client) {
            self.clients.take(client, sent, now);
        }
    }
}

fn per_minute(bytes: u64) -> Rate {
    let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
    Rate { per_second: f64::from(units) / 60.0, burst: units }
}
