//! Token buckets: how often something may happen, for each of any number of keys, in memory that has a bound.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_core::address::customer;

use crate::config::Rate;

/// Buckets of each kind; beyond that, those that are full are forgotten, the longest unused first.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(50_000).expect("fifty thousand is not zero");
/// So many are looked at for one that is full. Those that are not have their next turn when all others have been looked at.
const LOOKED_AT: usize = 16;

/// Token buckets by the hash of whatever they are for, so that long names take no more room than short ones.
///
/// Nothing that was taken is ever forgotten: a bucket makes room only once it is full again, as a new one is. While none is, all
/// keys that have no bucket share one, and whoever gets its own afterwards begins with what is left in that.
#[derive(Clone)]
pub(crate) struct Buckets {
    rate: Rate,
    /// `None`: there is no limit.
    kept: Option<Arc<Kept>>,
}

struct Kept {
    /// Random, so that nobody can choose whose bucket to share.
    hasher: RandomState,
    buckets: Mutex<Row>,
}

struct Row {
    rate: Rate,
    own: LruCache<u64, Bucket>,
    /// That of all for whom there was no room; `None` as long as there always was.
    shared: Option<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

impl Row {
    fn new(rate: Rate, room: NonZeroUsize) -> Self {
        Self { rate, own: LruCache::new(room), shared: None }
    }

    /// The bucket of a key with what it has gained since it was looked at last.
    fn fill(&mut self, key: u64, now: Instant) -> &mut Bucket {
        if !self.own.contains(&key) {
            let fresh = self.fresh(now);
            if !self.make_room(now) {
                return self.shared.insert(fresh);
            }
            self.own.put(key, fresh);
        }
        let bucket = self.own.get_or_insert_mut(key, || Bucket::full(self.rate, now));
        bucket.fill(self.rate, now);
        bucket
    }

    /// What is left for a key that has no bucket: it may have taken from the shared one.
    fn fresh(&self, now: Instant) -> Bucket {
        let mut fresh = self.shared.unwrap_or(Bucket::full(self.rate, now));
        fresh.fill(self.rate, now);
        fresh
    }

    /// Whether there is room for one more, perhaps in the place of one that is full.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.own.len() < self.own.cap().get() {
            return true;
        }
        for _ in 0..LOOKED_AT {
            let Some((key, mut bucket)) = self.own.pop_lru() else { return true };
            bucket.fill(self.rate, now);
            if bucket.tokens >= f64::from(self.rate.burst) {
                return true;
            }
            self.own.put(key, bucket);
        }
        false
    }
}

impl Bucket {
    fn full(rate: Rate, now: Instant) -> Self {
        Self { tokens: f64::from(rate.burst), filled_at: now }
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let gained = now.saturating_duration_since(self.filled_at).as_secs_f64() * rate.per_second;
        *self = Self { tokens: (self.tokens + gained).min(f64::from(rate.burst)), filled_at: now };
    }

    /// # Errors
    /// How long to wait until it has a token.
    fn check(&self, rate: Rate) -> Result<(), Duration> {
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / rate.per_second));
        }
        Ok(())
    }
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets").field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl Buckets {
    /// Buckets that hold, or (`enabled` false) that never refuse.
    pub(crate) fn new(enabled: bool, rate: Rate) -> Self {
        Self { rate, kept: enabled.then(|| Arc::new(Kept::new(rate, REMEMBERED))) }
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
        // To ask whether something is owed takes nobody's room.
        if weight == 0 && !buckets.own.contains(&key) {
            return buckets.fresh(now).check(self.rate);
        }
        let bucket = buckets.fill(key, now);
        bucket.check(self.rate)?;
        bucket.tokens -= f64::from(weight);
        Ok(())
    }

    /// Takes into account what has happened already and counts as so many events, be it that they are owed.
    pub(crate) fn take(&self, key: impl Hash, weight: u32, now: Instant) {
        let Some(kept) = &self.kept else { return };
        let mut buckets = kept.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.fill(kept.hasher.hash_one(key), now).tokens -= f64::from(weight);
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
            missing = missing.max(f64::from(*count) - buckets.fill(*key, now).tokens);
        }
        if missing > 0.0 {
            return Err(Refusal::Later(Duration::from_secs_f64(missing / self.rate.per_second)));
        }
        for (key, count) in wanted {
            buckets.fill(key, now).tokens -= f64::from(count);
        }
        Ok(())
    }

    /// Takes back an event that counted as so many and did not happen.
    pub(crate) fn undo(&self, key: impl Hash, weight: u32) {
        let Some(kept) = &self.kept else { return };
        let mut buckets = kept.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        // A bucket that has made room was full without this.
        if let Some(bucket) = buckets.own.peek_mut(&kept.hasher.hash_one(key)) {
            bucket.tokens = (bucket.tokens + f64::from(weight)).min(f64::from(self.rate.burst));
        }
    }

    /// Takes back events of these keys, one of each, that did not happen.
    fn give_back<K: Hash>(&self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.undo(key, 1));
    }
}

impl Kept {
    fn new(rate: Rate, room: NonZeroUsize) -> Self {
        Self { hasher: RandomState::new(), buckets: Mutex::new(Row::new(rate, room)) }
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
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 64))),
    }
}

/// What a customer is given at most: the /48 that 65,536 of those networks may be of. Of IPv4 each address is paid for.
pub(crate) fn site(client: IpAddr) -> Option<IpAddr> {
    match client.to_canonical() {
        IpAddr::V4(_) => None,
        v6 @ IpAddr::V6(_) => Some(customer(v6)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    impl Buckets {
        fn with_room(rate: Rate, room: usize) -> Self {
            let kept = Kept::new(rate, NonZeroUsize::new(room).unwrap());
            Self { rate, kept: Some(Arc::new(kept)) }
        }
    }

    #[test]
    fn buckets_never_take_more_than_their_room() {
        let buckets = Buckets::new(true, "1/s, burst 1".parse().unwrap());
        let now = Instant::now();
        let admitted = (0..60_000).filter(|number| buckets.admit(number, now).is_ok()).count();
        assert_eq!(admitted, REMEMBERED.get() + 1, "all for whom there is no room share one");
        assert_eq!(buckets.kept.unwrap().buckets.lock().unwrap().own.len(), REMEMBERED.get());
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

    #[test]
    fn b33_who_owes_much_is_not_forgotten_for_any_number_of_others_and_keeps_nobody_out() {
        let buckets = Buckets::new(true, "1/s, burst 1".parse().unwrap());
        let begin = Instant::now();
        buckets.take("owes", 100_000, begin);
        for number in 0..120_000_u32 {
            let now = begin + Duration::from_millis(number.into());
            assert!(buckets.admit(number, now).is_ok(), "{number}: those before it are full again");
        }
        assert!(buckets.admit("owes", begin + Duration::from_secs(120)).is_err());
    }

    proptest! {
        /// The model never forgets anybody.
        #[test]
        fn b33_whoever_comes_however_often_gets_no_more_than_if_all_were_remembered(
            steps in vec((0..12_u8, 0..6_u32, 0..3_u8, 0..16_u32), 1..200),
        ) {
            let rate: Rate = "1/s, burst 4".parse().unwrap();
            let (few, all) = (Buckets::with_room(rate, 3), Buckets::with_room(rate, 12));
            let mut now = Instant::now();
            for (key, weight, kind, pause) in steps {
                // Whole eighths of a second, which no rounding touches.
                now += Duration::from_millis(125) * pause;
                match kind {
                    0 => {
                        few.take(key, weight, now);
                        all.take(key, weight, now);
                    }
                    _ if few.admit_heavy(key, weight, now).is_ok() => {
                        prop_assert!(all.admit_heavy(key, weight, now).is_ok(), "{key} was forgotten");
                        if kind == 1 {
                            few.undo(key, weight);
                            all.undo(key, weight);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}
