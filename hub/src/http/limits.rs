//! Rate limits per client address: honest refusals with `Retry-After`, never a silent drop.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

/// Requests that a client may make at once …
const BURST: f64 = 200.0;
/// … and per second in the long run.
const PER_SECOND: f64 = 50.0;
/// Clients remembered; beyond that, those that have been quiet longest are forgotten.
const CLIENTS: NonZeroUsize = NonZeroUsize::new(10_000).expect("ten thousand is not zero");

/// A token bucket for each client.
#[derive(Clone, Debug)]
pub struct RateLimit(Option<Arc<Mutex<LruCache<IpAddr, Bucket>>>>);

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

impl RateLimit {
    /// Limits that hold, or (`enabled` false) that never refuse.
    pub fn new(enabled: bool) -> Self {
        Self(enabled.then(|| Arc::new(Mutex::new(LruCache::new(CLIENTS)))))
    }

    /// Takes one request of this client into account.
    ///
    /// # Errors
    /// How long the client should wait.
    pub fn admit(&self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        let Some(buckets) = &self.0 else { return Ok(()) };
        let mut buckets = buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.get_or_insert_mut(network(client), || Bucket { tokens: BURST, filled_at: now });
        *bucket = bucket.at(now);
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / PER_SECOND));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

impl Bucket {
    fn at(self, now: Instant) -> Self {
        let gained = now.saturating_duration_since(self.filled_at).as_secs_f64() * PER_SECOND;
        Self { tokens: (self.tokens + gained).min(BURST), filled_at: now }
    }
}

/// One customer's IPv6 network counts as one client.
fn network(client: IpAddr) -> IpAddr {
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
