//! Limits how many bytes pings without a token may have the hub send: what was fetched, once for each subscription.
//!
//! The amount is known only after the fetch. So it is charged then, and the next fetch waits until it is paid off: of this client
//! for this topic, of this client for all topics, and of this topic for all clients. Pings are still accepted; those that wait
//! share one fetch. So strangers can use up what a topic may have sent, but its pings are not lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use resync_core::websub::TopicUrl;

use crate::concurrency::Client;
use crate::config::Rate;
use crate::live_hubs::LiveHubs;
use crate::rate_limiter::{CLIENTS_OF_ONE_SITE, RateLimiter, site};
use crate::store::{Store, StoreError, TopicId};

/// Bytes are counted in units of this size.
const UNIT: u64 = 1_024;
/// The limit of all clients together for one topic, as a multiple of that of one client.
const CLIENTS: u64 = 5;
/// The limit of one client for all topics, as a multiple of that for one topic.
const TOPICS: u64 = 5;

/// The limits of clients and topics. Clones share them.
#[derive(Clone, Debug)]
pub struct FanOutLimit {
    debts: Debts,
    store: Arc<dyn Store>,
}

/// What was sent and is not paid off.
#[derive(Clone, Debug)]
struct Debts {
    /// Of a client for a topic.
    own: RateLimiter,
    clients: RateLimiter,
    sites: RateLimiter,
    topics: RateLimiter,
}

impl FanOutLimit {
    /// One client may have so many bytes of one topic sent per minute. With `enabled` false there is no limit.
    pub fn new(enabled: bool, bytes_per_minute: u64, store: Arc<dyn Store>) -> Self {
        Self { debts: Debts::new(enabled, bytes_per_minute), store }
    }

    /// From now on these hubs have together what clients may have sent of all topics. That of one topic is charged by the hub that fetches it.
    #[must_use]
    pub fn divided_among(self, hubs: &LiveHubs) -> Self {
        let Debts { own, clients, sites, topics } = self.debts;
        let (clients, sites) = (clients.divided_among(hubs), sites.divided_among(hubs));
        Self { debts: Debts { own, clients, sites, topics }, ..self }
    }

    /// Whether this topic, and one of the clients that pinged it, have paid off what they had sent.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit_fetch(
        &self,
        topic: &TopicUrl,
        clients: &[Client],
        now: Instant,
    ) -> Result<(), Duration> {
        self.debts.admit(topic, clients, now)
    }

    /// How many bytes new content of a topic, which weighs this, has the hub send for the clients that pinged; none if one of them is
    /// trusted.
    ///
    /// # Errors
    /// [`StoreError`]
    pub(super) async fn bytes_to_send(
        &self,
        id: TopicId,
        weight: u64,
        clients: &[Client],
    ) -> Result<u64, StoreError> {
        if clients.iter().any(Client::is_trusted) {
            return Ok(0);
        }
        // All that the store has, whoever delivers to them; those that have just expired may be among them.
        let subscriptions: u64 = self.store.subscribers(&[id]).await?.iter().sum();
        Ok(weight.saturating_mul(subscriptions))
    }

    /// Charges them for so many bytes of a topic.
    pub(super) fn charge(&self, topic: &TopicUrl, bytes: u64, clients: &[Client]) {
        if bytes > 0 {
            self.debts.charge(topic, bytes, clients, Instant::now());
        }
    }
}

impl Debts {
    fn new(enabled: bool, bytes_per_minute: u64) -> Self {
        let buckets = |times| RateLimiter::new(enabled, per_minute(bytes_per_minute.saturating_mul(times)));
        let (clients, sites) = (buckets(TOPICS), buckets(TOPICS * CLIENTS_OF_ONE_SITE as u64));
        Self { own: buckets(1), clients, sites, topics: buckets(CLIENTS) }
    }

    fn admit(&self, topic: &TopicUrl, clients: &[Client], now: Instant) -> Result<(), Duration> {
        if clients.iter().any(Client::is_trusted) {
            return Ok(());
        }
        self.topics.admit_weighted(topic.key(), 0, now)?;
        let clients = clients.iter().filter_map(|client| client.network);
        let waits = clients.map(|client| {
            site(client).map_or(Ok(()), |site| self.sites.admit_weighted(site, 0, now))?;
            self.clients.admit_weighted(client, 0, now)?;
            self.own.admit_weighted((client, topic.key()), 0, now)
        });
        waits.min_by_key(|wait| wait.err().unwrap_or_default()).unwrap_or(Ok(()))
    }

    fn charge(&self, topic: &TopicUrl, bytes: u64, clients: &[Client], now: Instant) {
        let sent = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.topics.charge(topic.key(), sent, now);
        for client in clients.iter().filter_map(|client| client.network) {
            self.own.charge((client, topic.key()), sent, now);
            self.clients.charge(client, sent, now);
            if let Some(site) = site(client) {
                self.sites.charge(site, sent, now);
            }
        }
    }
}

fn per_minute(bytes: u64) -> Rate {
    let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).max(1);
    Rate { per_second: f64::from(units) / 60.0, burst: units }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency::ClientClass;

    const KIB: u64 = 1_024;
    const MINUTE: Duration = Duration::from_secs(60);

    fn stranger(last: u8) -> Client {
        Client { network: Some([192, 0, 2, last].into()), class: ClientClass::Stranger }
    }

    fn topic(number: u32) -> TopicUrl {
        format!("http://source.example/{number}").parse().unwrap()
    }

    #[test]
    fn b33_what_a_client_owes_for_a_topic_delays_that_topic_only_until_it_is_too_much() {
        let (debts, now) = (Debts::new(true, 64 * KIB), Instant::now());
        debts.charge(&topic(1), 128 * KIB, &[stranger(1)], now);
        let wait = debts.admit(&topic(1), &[stranger(1)], now).unwrap_err();
        assert!(wait > MINUTE && wait < MINUTE + Duration::from_secs(2), "{wait:?}");
        assert_eq!(debts.admit(&topic(2), &[stranger(1)], now), Ok(()));
        assert_eq!(debts.admit(&topic(1), &[stranger(2)], now), Ok(()), "nor anybody else");
        assert_eq!(
            debts.admit(&topic(1), &[stranger(1), stranger(2)], now),
            Ok(()),
            "one who has paid is enough"
        );
        (2..5).for_each(|number| debts.charge(&topic(number), 64 * KIB, &[stranger(1)], now));
        assert!(debts.admit(&topic(9), &[stranger(1)], now).is_err(), "five times as much in all");
        assert_eq!(debts.admit(&topic(1), &[stranger(1)], now + wait), Ok(()));
    }

    #[test]
    fn b33_the_networks_of_one_site_have_as_much_sent_together_as_four_clients() {
        let (debts, now) = (Debts::new(true, 64 * KIB), Instant::now());
        let of_site = |number: u16| {
            let client = std::net::Ipv6Addr::new(0x2001, 0xdb8, 1, number, 0, 0, 0, 0);
            Client { network: Some(client.into()), class: ClientClass::Stranger }
        };
        let admitted = (0..100).filter(|number| {
            let (topic, client) = (topic(u32::from(*number)), [of_site(*number)]);
            let admitted = debts.admit(&topic, &client, now).is_ok();
            debts.charge(&topic, if admitted { 64 * KIB } else { 0 }, &client, now);
            admitted
        });
        assert_eq!(admitted.count(), 20);
        assert_eq!(debts.admit(&topic(0), &[stranger(1)], now), Ok(()), "nobody else is concerned");
    }

    #[test]
    fn b33_a_topic_has_five_times_as_much_sent_for_all_strangers_and_any_for_a_token() {
        let (debts, now) = (Debts::new(true, 64 * KIB), Instant::now());
        (1..=5).for_each(|last| debts.charge(&topic(1), 64 * KIB, &[stranger(last)], now));
        assert!(debts.admit(&topic(1), &[stranger(9)], now).is_err());
        let known = Client { network: None, class: ClientClass::Trusted };
        assert_eq!(debts.admit(&topic(1), &[stranger(9), known], now), Ok(()));
    }
}
