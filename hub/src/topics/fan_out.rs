//! What pings without a token may have the hub send: what was fetched, by its weight, once for each subscription.
//!
//! How much that is shows only after the fetch. So what a ping has the hub send is owed, and until it is paid off the next fetch waits:
//! of a client for that topic, of a client that has had much more sent of any, and of a topic, whoever pings it. Pings are taken
//! all the same: those that wait are one fetch. Strangers may have as much sent of somebody's topic, but not have its pings lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use resync_core::websub::TopicUrl;

use crate::buckets::{Buckets, site};
use crate::config::Rate;
use crate::places::{Asker, Lane};
use crate::store::TopicId;

/// What is counted in.
const UNIT: u64 = 1_024;
/// All clients together may have so many times as much sent of one topic as one of them.
const CLIENTS: u64 = 5;
/// One client may have so many times as much sent of all topics as of one: what it owes for one mutes the others later.
const TOPICS: u64 = 5;
/// Clients of one IPv6 site, each with a network of its own, together may have as much sent as so many.
const CLIENTS_OF_ONE_SITE: u64 = 4;

/// Knows how many subscriptions topics have.
#[async_trait]
pub trait Subscribers: std::fmt::Debug + Send + Sync + 'static {
    /// How many subscriptions of this topic are in force.
    async fn of(&self, topic: TopicId) -> usize;
}

/// The budgets of clients and topics.
#[derive(Clone, Debug)]
pub struct FanOut {
    debts: Debts,
    subscribers: Arc<dyn Subscribers>,
}

/// What was sent and is not paid off yet.
#[derive(Clone, Debug)]
struct Debts {
    /// Of a client for a topic.
    own: Buckets,
    clients: Buckets,
    sites: Buckets,
    topics: Buckets,
}

impl FanOut {
    /// One client may have so many bytes sent of one topic in a minute. With `enabled` false there is no limit.
    pub fn new(enabled: bool, bytes_per_minute: u64, subscribers: Arc<dyn Subscribers>) -> Self {
        Self { debts: Debts::new(enabled, bytes_per_minute), subscribers }
    }

    /// Whether everything is paid off that this topic, and one of those who pinged it, have had sent.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit_fetch(
        &self,
        topic: &TopicUrl,
        askers: &[Asker],
        now: Instant,
    ) -> Result<(), Duration> {
        self.debts.admit(topic, askers, now)
    }

    /// Something new of a topic goes out for those who pinged it; nobody owes what somebody with a token would have had sent
    /// anyway.
    pub(super) async fn take(&self, topic: &TopicUrl, id: TopicId, weight: u64, askers: &[Asker]) {
        if is_known(askers) {
            return;
        }
        let subscriptions = self.subscribers.of(id).await;
        let sent = weight.saturating_mul(subscriptions as u64);
        self.debts.take(topic, sent, askers, Instant::now());
    }
}

impl Debts {
    fn new(enabled: bool, bytes_per_minute: u64) -> Self {
        let buckets = |times| Buckets::new(enabled, per_minute(bytes_per_minute.saturating_mul(times)));
        let (clients, sites) = (buckets(TOPICS), buckets(TOPICS * CLIENTS_OF_ONE_SITE));
        Self { own: buckets(1), clients, sites, topics: buckets(CLIENTS) }
    }

    fn admit(&self, topic: &TopicUrl, askers: &[Asker], now: Instant) -> Result<(), Duration> {
        if is_known(askers) {
            return Ok(());
        }
        self.topics.admit_heavy(topic.key(), 0, now)?;
        let clients = askers.iter().filter_map(|asker| asker.client);
        let waits = clients.map(|client| {
            site(client).map_or(Ok(()), |site| self.sites.admit_heavy(site, 0, now))?;
            self.clients.admit_heavy(client, 0, now)?;
            self.own.admit_heavy((client, topic.key()), 0, now)
        });
        waits.min_by_key(|wait| wait.err().unwrap_or_default()).unwrap_or(Ok(()))
    }

    fn take(&self, topic: &TopicUrl, bytes: u64, askers: &[Asker], now: Instant) {
        let sent = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.topics.take(topic.key(), sent, now);
        for client in askers.iter().filter_map(|asker| asker.client) {
            self.own.take((client, topic.key()), sent, now);
            self.clients.take(client, sent, now);
            if let Some(site) = site(client) {
                self.sites.take(site, sent, now);
            }
        }
    }
}

fn is_known(askers: &[Asker]) -> bool {
    askers.iter().any(|asker| asker.lane == Lane::Known)
}

fn per_minute(bytes: u64) -> Rate {
    let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
    Rate { per_second: f64::from(units) / 60.0, burst: units }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1_024;
    const MINUTE: Duration = Duration::from_secs(60);

    fn stranger(last: u8) -> Asker {
        Asker { client: Some([192, 0, 2, last].into()), lane: Lane::Stranger }
    }

    fn topic(number: u32) -> TopicUrl {
        format!("http://source.example/{number}").parse().unwrap()
    }

    #[test]
    fn b33_what_a_client_owes_for_a_topic_delays_that_topic_only_until_it_is_too_much() {
        let (debts, now) = (Debts::new(true, 64 * KIB), Instant::now());
        debts.take(&topic(1), 128 * KIB, &[stranger(1)], now);
        let wait = debts.admit(&topic(1), &[stranger(1)], now).unwrap_err();
        assert!(wait > MINUTE && wait < MINUTE + Duration::from_secs(2), "{wait:?}");
        assert_eq!(debts.admit(&topic(2), &[stranger(1)], now), Ok(()));
        assert_eq!(debts.admit(&topic(1), &[stranger(2)], now), Ok(()), "nor anybody else");
        assert_eq!(
            debts.admit(&topic(1), &[stranger(1), stranger(2)], now),
            Ok(()),
            "one who has paid is enough"
        );
        (2..5).for_each(|number| debts.take(&topic(number), 64 * KIB, &[stranger(1)], now));
        assert!(debts.admit(&topic(9), &[stranger(1)], now).is_err(), "five times as much in all");
        assert_eq!(debts.admit(&topic(1), &[stranger(1)], now + wait), Ok(()));
    }

    #[test]
    fn b33_the_networks_of_one_site_have_as_much_sent_together_as_four_clients() {
        let (debts, now) = (Debts::new(true, 64 * KIB), Instant::now());
        let of_site = |number: u16| {
            let client = std::net::Ipv6Addr::new(0x2001, 0xdb8, 1, number, 0, 0, 0, 0);
            Asker { client: Some(client.into()), lane: Lane::Stranger }
        };
        let admitted = (0..100).filter(|number| {
            let (topic, asker) = (topic(u32::from(*number)), [of_site(*number)]);
            let admitted = debts.admit(&topic, &asker, now).is_ok();
            debts.take(&topic, if admitted { 64 * KIB } else { 0 }, &asker, now);
            admitted
        });
        assert_eq!(admitted.count(), 20);
        assert_eq!(debts.admit(&topic(0), &[stranger(1)], now), Ok(()), "nobody else is concerned");
    }

    #[test]
    fn b33_a_topic_has_five_times_as_much_sent_for_all_strangers_and_any_for_a_token() {
        let (debts, now) = (Debts::new(true, 64 * KIB), Instant::now());
        (1..=5).for_each(|last| debts.take(&topic(1), 64 * KIB, &[stranger(last)], now));
        assert!(debts.admit(&topic(1), &[stranger(9)], now).is_err());
        let known = Asker { client: None, lane: Lane::Known };
        assert_eq!(debts.admit(&topic(1), &[stranger(9), known], now), Ok(()));
    }
}
