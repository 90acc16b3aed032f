//! Token buckets: how often something may happen, for each of any number of keys, in memory that has a bound.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;

use crate::config::Rate;

/// Buckets of each kind; beyond that, those that have been quiet longest are forgotten.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(50_000).expect("fifty thousand is not zero");

/// Token buckets by the hash of whatever they are for, so that long names take no more room than short ones.
#[derive(Clone)]
pub(crate) struct Buckets {
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
    pub(crate) fn new(enabled: bool, rate: Rate) -> Self {
        let kept = || Kept { hasher: RandomState::new(), buckets: Mutex::new(LruCache::new(REMEMBERED)) };
        Self { rate, kept: enabled.then(|| Arc::new(kept())) }
    }

    /// Takes one event of this key into account, or says how long it should wait.
    pub(crate) fn admit(&self, key: impl Hash, now: Instant) -> Result<(), Duration> {
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
pub(crate) fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => IpAddr::V6(beginning(v6, 64)),
    }
}

/// What a customer is given at most: the /48 that 65,536 of those networks may be of. Of IPv4 each address is paid for.
pub(crate) fn site(client: IpAddr) -> Option<IpAddr> {
    match client.to_canonical() {
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => Some(IpAddr::V6(beginning(v6, 48))),
    }
}

fn beginning(address: Ipv6Addr, bits: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> bits))
}

#[cfg(test)]
mod tests {
    use super::*;

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
