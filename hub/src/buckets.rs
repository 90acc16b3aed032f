//! Token buckets: how often something may happen, for each of any number of keys, in memory that has a bound.

use std::collections::BTreeMap;
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

    /// The most events of one key that are ever admitted together, if there is a limit.
    pub(crate) fn most(&self) -> Option<u32> {
        self.kept.is_some().then_some(self.rate.burst)
    }

    /// Takes one event of this key into account, or says how long it should wait.
    pub(crate) fn admit(&self, key: impl Hash, now: Instant) -> Result<(), Duration> {
        self.admit_heavy(key, 1, now)
    }

    /// Takes an event into account that counts as so many. Where there is something left it is admitted, and what it costs
    /// more is owed: whoever comes next waits for that too.
    pub(crate) fn admit_heavy(&self, key: impl Hash, weight: u32, now: Instant) -> Result<(), Duration> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let mut buckets = kept.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let key = kept.hasher.hash_one(key);
        // To ask whether something is owed is to push out nobody who owes.
        if weight == 0 && !buckets.contains(&key) {
            return Ok(());
        }
        let bucket = self.fill(&mut buckets, key, now);
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.rate.per_second));
        }
        bucket.tokens -= f64::from(weight);
        Ok(())
    }

    /// Takes into account what has happened already and counts as so many events, be it that they are owed.
    pub(crate) fn take(&self, key: impl Hash, weight: u32, now: Instant) {
        let Some(kept) = &self.kept else { return };
        let mut buckets = kept.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        self.fill(&mut buckets, kept.hasher.hash_one(key), now).tokens -= f64::from(weight);
    }

    /// Takes events into account that go together, one of each key, or none of them.
    pub(crate) fn admit_all<K: Hash>(
        &self,
        keys: impl IntoIterator<Item = K>,
        now: Instant,
    ) -> Result<(), Refusal> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let mut wanted: BTreeMap<u64, u32> = BTreeMap::new();
        for key in keys {
            *wanted.entry(kept.hasher.hash_one(key)).or_default() += 1;
        }
        if wanted.values().any(|count| *count > self.rate.burst) {
            return Err(Refusal::Never(self.rate.burst));
        }
        let mut buckets = kept.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: f64 = 0.0;
        for (key, count) in &wanted {
            missing = missing.max(f64::from(*count) - self.fill(&mut buckets, *key, now).tokens);
        }
        if missing > 0.0 {
            return Err(Refusal::Later(Duration::from_secs_f64(missing / self.rate.per_second)));
        }
        for (key, count) in wanted {
            self.fill(&mut buckets, key, now).tokens -= f64::from(count);
        }
        Ok(())
    }

    /// The bucket of a key with what it has gained since it was looked at last.
    fn fill<'b>(&self, buckets: &'b mut LruCache<u64, Bucket>, key: u64, now: Instant) -> &'b mut Bucket {
        let full = f64::from(self.rate.burst);
        let bucket = buckets.get_or_insert_mut(key, || Bucket { tokens: full, filled_at: now });
        let gained = now.saturating_duration_since(bucket.filled_at).as_secs_f64() * self.rate.per_second;
        *bucket = Bucket { tokens: (bucket.tokens + gained).min(full), filled_at: now };
        bucket
    }

    /// Takes back an event that counted as so many and did not happen.
    pub(crate) fn undo(&self, key: impl Hash, weight: u32) {
        let Some(kept) = &self.kept else { return };
        let mut buckets = kept.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.peek_mut(&kept.hasher.hash_one(key)) {
            bucket.tokens = (bucket.tokens + f64::from(weight)).min(f64::from(self.rate.burst));
        }
    }

    /// Takes back events of these keys, one of each, that did not happen.
    fn give_back<K: Hash>(&self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.undo(key, 1));
    }
}

/// Why events are not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// They would be after so long.
    Later(Duration),
    /// They never will be together: of one key there are more than this at once.
    Never(u32),
}

/// All clients together may do something so many times as often as one of them: whoever wants to use that up needs as many
/// addresses.
const CLIENTS: u32 = 5;

/// Buckets for what many clients ask for: each has its own of every key, beside one for all.
#[derive(Clone, Debug)]
pub(crate) struct SharedBuckets {
    own: Buckets,
    all: Buckets,
}

impl SharedBuckets {
    /// The rate is that of one client.
    pub(crate) fn new(enabled: bool, rate: Rate) -> Self {
        let all = Rate {
            per_second: rate.per_second * f64::from(CLIENTS),
            burst: rate.burst.saturating_mul(CLIENTS),
        };
        Self { own: Buckets::new(enabled, rate), all: Buckets::new(enabled, all) }
    }

    /// Takes one event into account, of a client that is bound by its own share only.
    pub(crate) fn admit_own(
        &self,
        client: Option<IpAddr>,
        key: impl Hash,
        now: Instant,
    ) -> Result<(), Duration> {
        self.own.admit((client, key), now)
    }

    /// Takes one event into account.
    pub(crate) fn admit(
        &self,
        client: Option<IpAddr>,
        key: impl Hash + Copy,
        now: Instant,
    ) -> Result<(), Duration> {
        self.own.admit((client, key), now)?;
        self.all.admit(key, now).inspect_err(|_| self.own.give_back([(client, key)]))
    }

    /// Takes events into account that go together, one of each key, or none of them.
    pub(crate) fn admit_all<K: Hash + Copy>(
        &self,
        client: Option<IpAddr>,
        keys: &[K],
        now: Instant,
    ) -> Result<(), Refusal> {
        let own = || keys.iter().map(|key| (client, *key));
        self.own.admit_all(own(), now)?;
        self.all.admit_all(keys, now).inspect_err(|_| self.own.give_back(own()))
    }

    /// Takes back what was taken into account for nothing.
    pub(crate) fn give_back<K: Hash + Copy>(&self, client: Option<IpAddr>, keys: &[K]) {
        self.own.give_back(keys.iter().map(|key| (client, *key)));
        self.all.give_back(keys);
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

    #[test]
    fn to_ask_whether_something_is_owed_pushes_out_nobody() {
        let buckets = Buckets::new(true, "1/h, burst 1".parse().unwrap());
        let now = Instant::now();
        buckets.take("owes", 9, now);
        for number in 0..60_000 {
            buckets.admit_heavy(number, 0, now).unwrap();
        }
        assert!(buckets.admit_heavy("owes", 0, now).is_err());
    }
}
