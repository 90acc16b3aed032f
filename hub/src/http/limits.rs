//! Rate limits: honest refusals with `Retry-After`, never a silent drop.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

/// Requests of one client.
const CLIENT: Rate = Rate { burst: 200.0, per_second: 50.0 };
/// Whom a limit remembers; beyond that, those that have been quiet longest are forgotten.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("ten thousand is not zero");

/// The requests that each client may make.
#[derive(Clone, Debug)]
pub struct RateLimit(Buckets<IpAddr>);

/// How much is taken at once, and how much in the long run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) burst: f64,
    pub(super) per_second: f64,
}

/// A token bucket for each key.
#[derive(Debug)]
pub(super) struct Buckets<K: Hash + Eq> {
    rate: Rate,
    /// `None`: there is no limit.
    buckets: Option<Arc<Mutex<LruCache<K, Bucket>>>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

impl RateLimit {
    /// Limits that hold, or (`enabled` false) that never refuse.
    pub fn new(enabled: bool) -> Self {
        Self(Buckets::new(enabled, CLIENT))
    }

    /// Takes one request of this client into account.
    ///
    /// # Errors
    /// How long the client should wait.
    pub fn admit(&self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        self.0.admit(network(client), now)
    }
}

impl<K: Hash + Eq> Buckets<K> {
    pub(super) fn new(enabled: bool, rate: Rate) -> Self {
        Self { rate, buckets: enabled.then(|| Arc::new(Mutex::new(LruCache::new(REMEMBERED)))) }
    }

    /// Takes one event of this key into account, or says how long it should wait.
    pub(super) fn admit(&self, key: K, now: Instant) -> Result<(), Duration> {
        let Some(buckets) = &self.buckets else { return Ok(()) };
        let Rate { burst, per_second } = self.rate;
        let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.get_or_insert_mut(key, || Bucket { tokens: burst, filled_at: now });
        *bucket = bucket.at(now, self.rate);
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / per_second));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

impl<K: Hash + Eq> Clone for Buckets<K> {
    fn clone(&self) -> Self {
        Self { rate: self.rate, buckets: self.buckets.clone() }
    }
}

impl Bucket {
    fn at(self, now: Instant, rate: Rate) -> Self {
        let gained = now.saturating_duration_since(self.filled_at).as_secs_f64() * rate.per_second;
        Self { tokens: (self.tokens + gained).min(rate.burst), filled_at: now }
    }
}

/// One customer's IPv6 network counts as one client.
pub(super) fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V4(_) => client,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_client_is_told_to_wait_then_it_passes_again() {
        let (limit, now) = (RateLimit::new(true), Instant::now());
        let (busy, other): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let admitted = (0..1_000).filter(|_| limit.admit(busy, now).is_ok()).count();
        assert_eq!(admitted, 200);
        let wait = limit.admit(busy, now).unwrap_err();
        assert!(wait <= Duration::from_millis(20));
        assert!(limit.admit(other, now).is_ok(), "nobody else is held up");
        assert!(limit.admit(busy, now + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let (limit, now) = (RateLimit::new(true), Instant::now());
        for host in 0..200_u128 {
            let address = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | host);
            assert!(limit.admit(IpAddr::V6(address), now).is_ok());
        }
        assert!(limit.admit("2001:db8::ffff".parse().unwrap(), now).is_err());
    }

    #[test]
    fn limits_that_are_off_refuse_nobody() {
        let (limit, now) = (RateLimit::new(false), Instant::now());
        assert!((0..1_000).all(|_| limit.admit("192.0.2.1".parse().unwrap(), now).is_ok()));
    }
}
