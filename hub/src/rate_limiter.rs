//! Rate limits by token buckets, for any number of keys in bounded memory.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_common::locks::lock;
use resync_core::address::customer;

use crate::config::Rate;
use crate::live_hubs::LiveHubs;

/// Buckets of one limiter. Beyond that, full ones are forgotten, the longest unused first.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(50_000).expect("fifty thousand is not zero");
/// Buckets that are searched for a full one at a time. The others are searched first the next time.
const SEARCHED: usize = 16;

/// A rate limit per key. Buckets are found by the hash of the key, so that long names take no more memory than short ones.
///
/// What a key used up is never forgotten: only a bucket that is full again, like a new one, is replaced. While none is full, all keys
/// without a bucket share one, and a key that gets its own afterwards begins with what is left in the shared one.
///
/// Where hubs share a store, each has its part of the rate.
#[derive(Clone)]
pub(crate) struct RateLimiter {
    /// Of all hubs that share it.
    rate: Rate,
    hubs: LiveHubs,
    /// `None` without a limit.
    shared: Option<Arc<Shared>>,
}

struct Shared {
    /// Random, so that nobody can choose keys with equal hashes.
    hasher: RandomState,
    buckets: Mutex<Table>,
}

struct Table {
    /// This hub's part, as it was when somebody looked last.
    rate: Rate,
    own: LruCache<u64, Bucket>,
    /// The bucket of all keys without one of their own; `None` if there never was such a key.
    shared: Option<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled_at: Instant,
}

impl Table {
    fn new(rate: Rate, room: NonZeroUsize) -> Self {
        Self { rate, own: LruCache::new(room), shared: None }
    }

    /// The bucket of a key, refilled up to now.
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

    /// A bucket for a new key: it may have used the shared one before.
    fn fresh(&self, now: Instant) -> Bucket {
        let mut fresh = self.shared.unwrap_or(Bucket::full(self.rate, now));
        fresh.fill(self.rate, now);
        fresh
    }

    /// Whether one more bucket may be added, perhaps for a full one that is forgotten.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.own.len() < self.own.cap().get() {
            return true;
        }
        for _ in 0..SEARCHED {
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

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets").field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl RateLimiter {
    /// A rate limit per key; with `enabled` false there is no limit.
    pub(crate) fn new(enabled: bool, rate: Rate) -> Self {
        let shared = enabled.then(|| Arc::new(Shared::new(rate, REMEMBERED)));
        Self { rate, hubs: LiveHubs::default(), shared }
    }

    /// From now on these hubs have the rate together.
    #[must_use]
    pub(crate) fn divided_among(self, hubs: &LiveHubs) -> Self {
        Self { hubs: hubs.clone(), ..self }
    }

    /// Whether there is a limit.
    pub(crate) fn is_on(&self) -> bool {
        self.shared.is_some()
    }

    /// Counts one event of this key.
    ///
    /// # Errors
    /// How long it has to wait.
    pub(crate) fn admit(&self, key: impl Hash, now: Instant) -> Result<(), Duration> {
        self.admit_weighted(key, 1, now)
    }

    /// Counts one event as `weight` events. It is admitted if the bucket is not empty; what it costs beyond that is owed, and
    /// the next event waits for that too.
    ///
    /// # Errors
    /// How long it has to wait.
    pub(crate) fn admit_weighted(&self, key: impl Hash, weight: u32, now: Instant) -> Result<(), Duration> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let mut buckets = self.buckets(shared);
        let (key, rate) = (shared.hasher.hash_one(key), buckets.rate);
        // A question whether something is owed creates no bucket.
        if weight == 0 && !buckets.own.contains(&key) {
            return buckets.fresh(now).check(rate);
        }
        let bucket = buckets.fill(key, now);
        bucket.check(rate)?;
        bucket.tokens -= f64::from(weight);
        Ok(())
    }

    /// Counts what happened already as so many events, also if that is more than is left.
    pub(crate) fn charge(&self, key: impl Hash, weight: u32, now: Instant) {
        let Some(shared) = &self.shared else { return };
        let mut buckets = self.buckets(shared);
        buckets.fill(shared.hasher.hash_one(key), now).tokens -= f64::from(weight);
    }

    /// Counts one event of each key, or none of them.
    ///
    /// # Errors
    /// How long they have to wait, or that they are too many at once.
    pub(crate) fn admit_all<K: Hash>(
        &self,
        keys: impl IntoIterator<Item = K>,
        now: Instant,
    ) -> Result<(), Refusal> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let mut wanted: BTreeMap<u64, u32> = BTreeMap::new();
        for key in keys {
            *wanted.entry(shared.hasher.hash_one(key)).or_default() += 1;
        }
        if wanted.values().any(|count| *count > self.rate.burst) {
            return Err(Refusal::Never(self.rate.burst));
        }
        let mut buckets = self.buckets(shared);
        let (rate, mut missing) = (buckets.rate, 0.0_f64);
        for (key, count) in &wanted {
            // What is more than this hub's part but not more than all of it is owed: it would never be there.
            let needed = f64::from((*count).min(rate.burst));
            missing = missing.max(needed - buckets.fill(*key, now).tokens);
        }
        if missing > 0.0 {
            return Err(Refusal::Later(Duration::from_secs_f64(missing / rate.per_second)));
        }
        for (key, count) in wanted {
            buckets.fill(key, now).tokens -= f64::from(count);
        }
        Ok(())
    }

    /// Takes back an event that counted as so many and did not happen.
    pub(crate) fn undo(&self, key: impl Hash, weight: u32) {
        let Some(shared) = &self.shared else { return };
        let mut buckets = self.buckets(shared);
        let most = f64::from(buckets.rate.burst);
        // A bucket that has made room was full without this.
        if let Some(bucket) = buckets.own.peek_mut(&shared.hasher.hash_one(key)) {
            bucket.tokens = (bucket.tokens + f64::from(weight)).min(most);
        }
    }

    /// Takes back events of these keys, one of each, that did not happen.
    fn give_back<K: Hash>(&self, keys: impl IntoIterator<Item = K>) {
        keys.into_iter().for_each(|key| self.undo(key, 1));
    }

    /// The buckets, which fill at the rate of this moment.
    fn buckets<'a>(&self, shared: &'a Shared) -> MutexGuard<'a, Table> {
        let mut buckets = lock(&shared.buckets);
        buckets.rate = self.hubs.part_of(self.rate);
        buckets
    }
}

impl Shared {
    fn new(rate: Rate, room: NonZeroUsize) -> Self {
        Self { hasher: RandomState::new(), buckets: Mutex::new(Table::new(rate, room)) }
    }
}

/// Why events that belong together are not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// They have to wait for so long.
    Later(Duration),
    /// They are never admitted together: there are more than this of one key.
    Never(u32),
}

/// The limit of all clients together, as a multiple of that of one: to use it up takes as many addresses.
const CLIENTS: u32 = 5;

/// A rate limit per client and key, one per IPv6 site and key, and one per key for all clients together.
#[derive(Clone, Debug)]
pub(crate) struct SharedRateLimiter {
    own: RateLimiter,
    sites: RateLimiter,
    all: RateLimiter,
}

impl SharedRateLimiter {
    /// The rate is that of one client.
    pub(crate) fn new(enabled: bool, rate: Rate) -> Self {
        let of_clients = |count: u32| {
            let per_second = rate.per_second * f64::from(count);
            RateLimiter::new(enabled, Rate { per_second, burst: rate.burst.saturating_mul(count) })
        };
        let of_one_site = u32::try_from(CLIENTS_OF_ONE_SITE).unwrap_or(u32::MAX);
        Self { own: of_clients(1), sites: of_clients(of_one_site), all: of_clients(CLIENTS) }
    }

    /// From now on these hubs have the rates together.
    #[must_use]
    pub(crate) fn divided_among(self, hubs: &LiveHubs) -> Self {
        let Self { own, sites, all } = self;
        Self { own: own.divided_among(hubs), sites: sites.divided_among(hubs), all: all.divided_among(hubs) }
    }

    /// Counts one event for the limits of the client and its site only. Nobody knows whether unknown clients are one, so they have neither.
    pub(crate) fn admit_own(
        &self,
        client: Option<IpAddr>,
        key: impl Hash + Copy,
        now: Instant,
    ) -> Result<(), Duration> {
        if client.is_none() {
            return Ok(());
        }
        self.own.admit((client, key), now)?;
        let Some(site) = client.and_then(site) else { return Ok(()) };
        self.sites.admit((site, key), now).inspect_err(|_| self.own.give_back([(client, key)]))
    }

    /// Counts one event.
    pub(crate) fn admit(
        &self,
        client: Option<IpAddr>,
        key: impl Hash + Copy,
        now: Instant,
    ) -> Result<(), Duration> {
        self.admit_own(client, key, now)?;
        self.all.admit(key, now).inspect_err(|_| self.give_back_own(client, &[key]))
    }

    /// Counts one event of each key, or none of them.
    pub(crate) fn admit_all<K: Hash + Copy>(
        &self,
        client: Option<IpAddr>,
        keys: &[K],
        now: Instant,
    ) -> Result<(), Refusal> {
        let own = || keys.iter().map(|key| (client, *key));
        self.own.admit_all(own(), now)?;
        if let Some(site) = client.and_then(site) {
            let of_site = self.sites.admit_all(keys.iter().map(|key| (site, *key)), now);
            of_site.inspect_err(|_| self.own.give_back(own()))?;
        }
        self.all.admit_all(keys, now).inspect_err(|_| self.give_back_own(client, keys))
    }

    /// Gives back events that did not happen.
    pub(crate) fn give_back<K: Hash + Copy>(&self, client: Option<IpAddr>, keys: &[K]) {
        self.give_back_own(client, keys);
        self.all.give_back(keys);
    }

    fn give_back_own<K: Hash + Copy>(&self, client: Option<IpAddr>, keys: &[K]) {
        self.own.give_back(keys.iter().map(|key| (client, *key)));
        if let Some(site) = client.and_then(site) {
            self.sites.give_back(keys.iter().map(|key| (site, *key)));
        }
    }
}

/// The address by which a client is counted: an IPv4 address, or an IPv6 /64.
pub(crate) fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        v4 @ IpAddr::V4(_) => v4,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 64))),
    }
}

/// An IPv6 site may use as much as this number of clients, however many networks it has.
pub(crate) const CLIENTS_OF_ONE_SITE: usize = 4;

/// The IPv6 /48 of a client, which may have 65,536 networks; `None` for IPv4, where every address costs money.
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

    impl RateLimiter {
        fn with_room(rate: Rate, room: usize) -> Self {
            let shared = Shared::new(rate, NonZeroUsize::new(room).unwrap());
            Self { rate, hubs: LiveHubs::default(), shared: Some(Arc::new(shared)) }
        }
    }

    #[test]
    fn hubs_have_a_rate_together_whoever_comes_and_goes_and_what_all_would_admit_is_never_refused_for_good() {
        let (hubs, now) = (LiveHubs::default(), Instant::now());
        let buckets = RateLimiter::new(true, "6/s, burst 6".parse().unwrap()).divided_among(&hubs);
        let admitted = |key, now| (0..100).filter(|_| buckets.admit(key, now).is_ok()).count();
        assert_eq!(admitted("one", now), 6, "this hub is the only one");
        hubs.set(3);
        let later = now + Duration::from_secs(1);
        assert_eq!((admitted("one", later), admitted("other", later)), (2, 2));
        assert_eq!(buckets.admit_all(["many"; 7], later), Err(Refusal::Never(6)));
        assert_eq!(buckets.admit_all(["many"; 6], later), Ok(()));
        let owed = Err(Refusal::Later(Duration::from_millis(2_500)));
        assert_eq!(buckets.admit_all(["many"], later), owed, "it waits for the hubs that admitted nothing");
        hubs.set(1);
        assert_eq!(admitted("one", later + Duration::from_secs(1)), 6);
    }

    #[test]
    fn buckets_never_take_more_than_their_room() {
        let buckets = RateLimiter::new(true, "1/s, burst 1".parse().unwrap());
        let now = Instant::now();
        let admitted = (0..60_000).filter(|number| buckets.admit(number, now).is_ok()).count();
        assert_eq!(admitted, REMEMBERED.get() + 1, "all for whom there is no room share one");
        assert_eq!(buckets.shared.unwrap().buckets.lock().unwrap().own.len(), REMEMBERED.get());
    }

    #[test]
    fn to_ask_whether_something_is_owed_pushes_out_nobody() {
        let buckets = RateLimiter::new(true, "1/h, burst 1".parse().unwrap());
        let now = Instant::now();
        buckets.charge("owes", 9, now);
        for number in 0..60_000 {
            buckets.admit_weighted(number, 0, now).unwrap();
        }
        assert!(buckets.admit_weighted("owes", 0, now).is_err());
    }

    #[test]
    fn b33_who_owes_much_is_not_forgotten_for_any_number_of_others_and_keeps_nobody_out() {
        let buckets = RateLimiter::new(true, "1/s, burst 1".parse().unwrap());
        let begin = Instant::now();
        buckets.charge("owes", 100_000, begin);
        for number in 0..120_000_u32 {
            let now = begin + Duration::from_millis(number.into());
            assert!(buckets.admit(number, now).is_ok(), "{number}: those before it are full again");
        }
        assert!(buckets.admit("owes", begin + Duration::from_secs(120)).is_err());
    }

    #[test]
    fn b33_the_networks_of_an_ipv6_site_have_for_one_key_what_four_clients_have() {
        let (limit, now) = (SharedRateLimiter::new(true, "1/h, burst 2".parse().unwrap()), Instant::now());
        let of = |site: u16, network: u16| Some(IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 0]));
        let one = |site: u16, network: u16, key: &str| limit.admit_own(of(site, network), key, now).is_ok();
        assert_eq!((0..100).filter(|network| one(1, *network, "key")).count(), 8);
        assert!(one(2, 1, "key") && one(1, 1, "other"), "another site, and another key");
        assert!(limit.admit_all(of(1, 200), &["fresh", "key"], now).is_err());
        assert_eq!(
            (200..300).filter(|network| one(1, *network, "fresh")).count(),
            8,
            "a refusal took nothing"
        );
        assert_eq!(
            (0..100).filter(|_| one(1, 200, "third")).count(),
            2,
            "one network has what one client has"
        );
        limit.give_back(of(1, 200), &["third"]);
        assert!(one(1, 200, "third"));
    }

    proptest! {
        /// The model never forgets anybody.
        #[test]
        fn b33_whoever_comes_however_often_gets_no_more_than_if_all_were_remembered(
            steps in vec((0..12_u8, 0..6_u32, 0..3_u8, 0..16_u32), 1..200),
        ) {
            let rate: Rate = "1/s, burst 4".parse().unwrap();
            let (few, all) = (RateLimiter::with_room(rate, 3), RateLimiter::with_room(rate, 12));
            let mut now = Instant::now();
            for (key, weight, kind, pause) in steps {
                // Whole eighths of a second, which no rounding touches.
                now += Duration::from_millis(125) * pause;
                match kind {
                    0 => {
                        few.charge(key, weight, now);
                        all.charge(key, weight, now);
                    }
                    _ if few.admit_weighted(key, weight, now).is_ok() => {
                        prop_assert!(all.admit_weighted(key, weight, now).is_ok(), "{key} was forgotten");
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
