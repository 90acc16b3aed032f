//! Rate limits: a token bucket for each client, callback host and topic; honest refusals with `Retry-After`, never a silent
//! drop, and memory that has a bound whatever comes.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_core::websub::{CallbackUrl, TopicUrl};

use crate::config::{LimitsConfig, Rate};

/// Buckets of each kind; beyond that, those that have been quiet longest are forgotten.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(50_000).expect("fifty thousand is not zero");

/// The limits of a hub. What they cost in memory does not depend on what clients send.
#[derive(Clone, Debug)]
pub struct Limits {
    clients: Buckets,
    subscribers: Buckets,
    hosts: Buckets,
    renewals: Buckets,
    topics: Buckets,
}

/// A request that comes too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests {whose}: slow down, and try again after the seconds in Retry-After")]
pub struct TooMany {
    /// When the request would pass.
    pub wait: Duration,
    whose: &'static str,
}

impl TooMany {
    /// What `Retry-After` says.
    pub fn seconds(&self) -> u64 {
        self.wait.as_secs() + u64::from(self.wait.subsec_nanos() > 0)
    }
}

impl Limits {
    /// The limits of a configuration; those that are off never refuse.
    pub fn new(config: &LimitsConfig) -> Self {
        let buckets = |rate| Buckets::new(config.enabled, rate);
        Self {
            clients: buckets(config.client),
            subscribers: buckets(config.subscriptions_per_client),
            hosts: buckets(config.callback_host),
            renewals: buckets(config.callback_host),
            topics: buckets(config.topic),
        }
    }

    /// Takes a request of any kind into account.
    ///
    /// # Errors
    /// [`TooMany`] from this client.
    pub fn client(&self, client: IpAddr, now: Instant) -> Result<(), TooMany> {
        self.clients.admit(network(client), now).map_err(|wait| TooMany { wait, whose: "from this address" })
    }

    /// Takes a request to subscribe or unsubscribe into account, each of which makes the hub ask its callback.
    ///
    /// A request for a subscription in force counts by its callback and not by the host and the topic, so that nobody can
    /// keep others from renewing theirs by asking in their stead.
    ///
    /// # Errors
    /// [`TooMany`] from this client, for this callback's host or for this topic.
    pub fn subscription(
        &self,
        client: IpAddr,
        topic: &TopicUrl,
        callback: &CallbackUrl,
        in_force: bool,
        now: Instant,
    ) -> Result<(), TooMany> {
        let too_many = |whose| move |wait| TooMany { wait, whose };
        if in_force {
            let pair = (topic.key(), callback.key());
            return self.renewals.admit(pair, now).map_err(too_many("for this subscription"));
        }
        let whose = "to subscribe or unsubscribe from this address";
        self.subscribers.admit(network(client), now).map_err(too_many(whose))?;
        let host = callback.url().host_str().unwrap_or_default();
        self.hosts.admit(host, now).map_err(too_many("for callbacks on this host"))?;
        self.topics.admit(topic.key(), now).map_err(too_many("for subscriptions to this topic"))
    }
}

/// Token buckets by the hash of whatever they are for, so that long names take no more room than short ones.
#[derive(Clone)]
pub(super) struct Buckets {
    rate: Rate,
    /// `None`: there is no limit.
    kept: Option<Arc<Kept>>,
}

struct Kept {
    /// Random, so that nobody can choose whose bucket to share.
    hasher: RandomState,
    buckets: Mutex<LruCache<u64, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets").field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl Buckets {
    /// Buckets that hold, or (`enabled` false) that never refuse.
    pub(super) fn new(enabled: bool, rate: Rate) -> Self {
        let kept = || Kept { hasher: RandomState::new(), buckets: Mutex::new(LruCache::new(REMEMBERED)) };
        Self { rate, kept: enabled.then(|| Arc::new(kept())) }
    }

    /// Takes one event of this key into account, or says how long it should wait.
    pub(super) fn admit(&self, key: impl Hash, now: Instant) -> Result<(), Duration> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let (full, key) = (f64::from(self.rate.burst), kept.hasher.hash_one(key));
        let mut buckets = kept.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.get_or_insert_mut(key, || Bucket { tokens: full, filled_at: now });
        let gained = now.saturating_duration_since(bucket.filled_at).as_secs_f64() * self.rate.per_second;
        *bucket = Bucket { tokens: (bucket.tokens + gained).min(full), filled_at: now };
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.rate.per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

/// One customer's IPv6 network counts as one client.
pub(super) fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(enabled: bool) -> Limits {
        let rate = |text: &str| text.parse().unwrap();
        Limits::new(&LimitsConfig {
            enabled,
            client: rate("50/s, burst 200"),
            subscriptions_per_client: rate("5/s, burst 50"),
            callback_host: rate("1/s, burst 10"),
            topic: rate("20/s, burst 30"),
            ping_client: rate("1/s, burst 1"),
            ping_topic: rate("1/s, burst 1"),
            ping_host: rate("1/s, burst 1"),
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn topic(name: &str) -> TopicUrl {
        format!("http://source.example/{name}").parse().unwrap()
    }

    fn callback(host: &str, name: u32) -> CallbackUrl {
        format!("http://{host}/{name}").parse().unwrap()
    }

    #[test]
    fn a_burst_passes_then_the_client_is_told_to_wait_then_it_passes_again() {
        let (limits, now) = (limits(true), Instant::now());
        let busy = ip("192.0.2.1");
        assert_eq!((0..1_000).filter(|_| limits.client(busy, now).is_ok()).count(), 200);
        let refused = limits.client(busy, now).unwrap_err();
        assert!(refused.wait <= Duration::from_millis(20));
        assert_eq!(refused.seconds(), 1, "Retry-After is never 0");
        assert!(limits.client(ip("192.0.2.2"), now).is_ok(), "nobody else is held up");
        assert!(limits.client(busy, now + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let (limits, now) = (limits(true), Instant::now());
        for host in 0..200_u128 {
            let address = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | host);
            assert!(limits.client(IpAddr::V6(address), now).is_ok());
        }
        assert!(limits.client(ip("2001:db8::ffff"), now).is_err());
        assert!(limits.client(ip("2001:db8:0:1::"), now).is_ok());
    }

    #[test]
    fn b33_one_host_is_asked_ten_times_at_once_however_many_clients_paths_and_ports_there_are() {
        let (limits, now) = (limits(true), Instant::now());
        let asked = (0..100).filter(|number| {
            let client = IpAddr::from([192, 0, 2, u8::try_from(*number).unwrap()]);
            let callback = format!("http://victim.example:{}/{number}", 1_000 + number).parse().unwrap();
            limits.subscription(client, &topic(&number.to_string()), &callback, false, now).is_ok()
        });
        assert_eq!(asked.count(), 10);
        let later = now + Duration::from_secs(1);
        let one = |number| {
            limits.subscription(
                ip("192.0.2.9"),
                &topic("t"),
                &callback("victim.example", number),
                false,
                later,
            )
        };
        assert!(one(1).is_ok() && one(2).is_err(), "one more a second later");
    }

    #[test]
    fn one_client_cannot_use_up_what_a_topic_has_for_all() {
        let (limits, now) = (limits(true), Instant::now());
        let ask = |client, number: u32| {
            let callback = callback(&format!("d{number}.example"), 0);
            limits.subscription(ip(client), &topic("t"), &callback, false, now).is_ok()
        };
        assert_eq!((0..100).filter(|number| ask("192.0.2.1", *number)).count(), 30, "the topic's burst");
        let renewal =
            limits.subscription(ip("192.0.2.2"), &topic("t"), &callback("d0.example", 0), true, now);
        assert!(renewal.is_ok(), "renewals do not depend on what strangers do");
    }

    #[test]
    fn renewals_of_one_subscription_are_bounded_too() {
        let (limits, now) = (limits(true), Instant::now());
        let renew = |_: &u32| {
            limits.subscription(ip("::1"), &topic("t"), &callback("d.example", 0), true, now).is_ok()
        };
        assert_eq!((0..100).filter(renew).count(), 10);
    }

    #[test]
    fn limits_that_are_off_refuse_nobody() {
        let (limits, now) = (limits(false), Instant::now());
        assert!((0..1_000).all(|_| limits.client(ip("192.0.2.1"), now).is_ok()));
    }

    #[test]
    fn buckets_never_take_more_than_their_room() {
        let buckets = Buckets::new(true, "1/s, burst 1".parse().unwrap());
        let now = Instant::now();
        for number in 0..60_000 {
            buckets.admit(number, now).unwrap();
        }
        assert_eq!(buckets.kept.unwrap().buckets.lock().unwrap().len(), REMEMBERED.get());
    }
}
