//! Which addresses confirmed a subscription under which names, and the rate limit for all others.
//!
//! A confirmation counts for one name and address, until the end of the lease granted then; also if the subscription ended
//! earlier or was confirmed at another address since.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use resync_common::locks::lock;
use resync_core::datetime::DateTime;

use super::recent::{Allowed, Reverifications};
use crate::config::Rate;
use crate::egress::guard::{canonical, network};
use crate::live_hubs::LiveHubs;
use crate::rate_limiter::RateLimiter;
use crate::store::WallClock;

/// Each of so many bytes of a request, its head included, counts as one more request.
const REQUEST_UNIT: usize = 16 * 1024;
/// Each of so many bytes of a re-verification's request target counts as one more request.
const REVERIFICATION_UNIT: usize = 1024;
/// What a refused request counts in addition: a server that subscribed to nothing mostly refuses.
const REFUSAL_WEIGHT: u32 = 3;
/// From this number on, expired confirmations are looked for and forgotten.
const TIDY_FROM: usize = 1_024;
/// Confirmations that are remembered, some thirty bytes each. Beyond that a new one is not stored here; its address is
/// re-verified at its next delivery, and remembered there.
const MOST_REMEMBERED: usize = 1_000_000;
/// How often a full table is searched for expired confirmations.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// The addresses that confirmed, and the rate limits for all others. Clones share them.
#[derive(Clone, Debug)]
pub struct ConfirmedAddresses {
    /// `None`: there is no limit.
    shared: Option<Arc<Shared>>,
    /// By which leases end.
    clock: WallClock,
    rate: RateLimiter,
    /// Apart from `rate`: a subscriber that moved can confirm, whatever deliveries to its network used up.
    reverification_rate: RateLimiter,
}

#[derive(Debug)]
struct Shared {
    /// Random, so that nobody can choose names with equal hashes.
    hasher: RandomState,
    table: Mutex<Table>,
}

/// Confirmations by the hash of name and address, each with its end.
#[derive(Debug)]
struct Table {
    until: HashMap<u64, DateTime>,
    most: usize,
    tidy_at: usize,
    tidied: Instant,
    reverifications: Reverifications,
}

/// An address of a name that confirmed nothing there.
#[derive(Debug)]
pub(in crate::egress) struct UnconfirmedAddress {
    confirmed: ConfirmedAddresses,
    host: Box<str>,
    address: IpAddr,
}

/// A request to an unconfirmed address that counts for the rate limit. If the hub itself aborts it, it still counts.
#[derive(Debug)]
#[must_use]
pub(in crate::egress) struct CountedRequest {
    to: Arc<UnconfirmedAddress>,
    weight: u32,
}

/// Why a request may not be sent to an unconfirmed address.
#[derive(Debug)]
pub(in crate::egress) enum Blocked {
    /// The address is re-verified first.
    Reverify(Reverification),
    /// It has to wait.
    Withheld(Withheld),
}

/// Why nothing may be sent now to an unconfirmed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Withheld {
    /// A re-verification is pending, or reached nobody.
    #[error("the hub is asking this address whether it wants the subscription")]
    AwaitingReverification,
    /// The rate limit of its network is reached for so long.
    #[error("rate limit for unconfirmed addresses in this network; retry in {0:?}")]
    RateLimit(Duration),
}

/// What may be done at an unconfirmed address.
#[derive(Debug)]
enum Decision {
    /// Re-verify it.
    Reverify(Reverification),
    /// Send what the rate limit allows.
    Send,
    /// Nothing, until a re-verification is answered.
    Wait,
}

/// A request that asks an unconfirmed address whether it wants a subscription. It counts for a rate limit of its own. If it is
/// dropped before its outcome is known, another one may be sent.
#[derive(Debug)]
#[must_use]
pub struct Reverification {
    to: Arc<UnconfirmedAddress>,
    subscription: u64,
    weight: u32,
    is_settled: bool,
}

impl ConfirmedAddresses {
    /// `rate` limits the requests to all unconfirmed addresses of one network, and as many re-verifications beside them. With
    /// `enabled` false there is no limit. `clock` is that of the leases.
    pub fn new(enabled: bool, rate: Rate, clock: WallClock) -> Self {
        let shared = || {
            Arc::new(Shared { hasher: RandomState::new(), table: Mutex::new(Table::new(MOST_REMEMBERED)) })
        };
        Self {
            shared: enabled.then(shared),
            clock,
            rate: RateLimiter::new(enabled, rate),
            reverification_rate: RateLimiter::new(enabled, rate),
        }
    }

    /// From now on these hubs have the rates together.
    #[must_use]
    pub fn divided_among(self, hubs: &LiveHubs) -> Self {
        let rate = self.rate.divided_among(hubs);
        Self { rate, reverification_rate: self.reverification_rate.divided_among(hubs), ..self }
    }

    /// The host of this origin confirmed a subscription, with a lease until then, at this address if that is known.
    pub fn remember(&self, origin: &str, address: Option<IpAddr>, until: DateTime) {
        let (Some(shared), Some(address), Some(host)) = (&self.shared, address, name_of(origin)) else {
            return;
        };
        let key = shared.key(host, address);
        shared.table().remember(key, until, Instant::now(), &self.clock);
    }

    /// At which of these addresses this name has confirmed. An address that stands in a URL is its own name.
    pub(in crate::egress) fn which_confirmed(
        &self,
        host: &str,
        addresses: impl Iterator<Item = IpAddr>,
    ) -> Vec<bool> {
        let Some(shared) = self.shared.as_ref().filter(|_| !is_literal(host)) else {
            return addresses.map(|_| true).collect();
        };
        let (name, now) = (shared.name(host), self.clock.now());
        let keys: Vec<_> = addresses.map(|address| (canonical(address), shared.key(host, address))).collect();
        let mut table = shared.table();
        keys.into_iter().map(|(address, key)| table.is_in_force(name, address, key, now)).collect()
    }

    /// The limit for an address that did not confirm under this name.
    pub(in crate::egress) fn unconfirmed(&self, host: &str, address: IpAddr) -> Arc<UnconfirmedAddress> {
        let (confirmed, address) = (self.clone(), canonical(address));
        Arc::new(UnconfirmedAddress { confirmed, host: host.into(), address })
    }
}

impl Shared {
    fn name(&self, host: &str) -> u64 {
        self.hasher.hash_one(host)
    }

    fn key(&self, host: &str, address: IpAddr) -> u64 {
        self.hasher.hash_one((host, canonical(address)))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here can panic half-way.
        lock(&self.table)
    }
}

impl Table {
    fn new(most: usize) -> Self {
        let (until, tidied) = (HashMap::new(), Instant::now());
        Self { until, most, tidy_at: TIDY_FROM.min(most), tidied, reverifications: Reverifications::new() }
    }

    fn remember(&mut self, key: u64, until: DateTime, now: Instant, clock: &WallClock) {
        let is_full = self.until.len() >= self.most;
        let may_tidy = !is_full || now.saturating_duration_since(self.tidied) >= TIDY_EVERY;
        if self.until.len() >= self.tidy_at && may_tidy {
            let wall = clock.now();
            self.until.retain(|_, end| *end > wall);
            self.tidy_at = (self.until.len() * 2).max(TIDY_FROM).min(self.most);
            self.tidied = now;
        }
        let has_room = self.until.len() < self.most;
        match self.until.entry(key) {
            Entry::Occupied(mut remembered) => {
                let end = remembered.get_mut();
                *end = (*end).max(until);
            }
            Entry::Vacant(vacant) if has_room => {
                vacant.insert(until);
            }
            Entry::Vacant(_) => {}
        }
    }

    fn is_in_force(&mut self, name: u64, address: IpAddr, key: u64, now: DateTime) -> bool {
        self.until.get(&key).is_some_and(|until| *until > now)
            || self.reverifications.has_confirmed(name, address, now)
    }
}

impl UnconfirmedAddress {
    /// Counts a request of so many bytes. With the number of a subscription the address may have to be re-verified for it first.
    ///
    /// # Errors
    /// Why it may not be sent.
    pub(in crate::egress) fn admit(
        self: &Arc<Self>,
        bytes: usize,
        subscription: Option<u64>,
    ) -> Result<CountedRequest, Blocked> {
        match subscription.map_or(Decision::Send, |subscription| self.decide(subscription)) {
            Decision::Reverify(reverification) => Err(Blocked::Reverify(reverification)),
            Decision::Wait => Err(Blocked::Withheld(Withheld::AwaitingReverification)),
            Decision::Send => self.count(bytes).map_err(|wait| Blocked::Withheld(Withheld::RateLimit(wait))),
        }
    }

    /// # Errors
    /// How long to wait.
    fn count(self: &Arc<Self>, bytes: usize) -> Result<CountedRequest, Duration> {
        let weight = u32::try_from(1 + bytes / REQUEST_UNIT).unwrap_or(u32::MAX);
        self.confirmed.rate.admit_weighted(self.network(), weight, Instant::now())?;
        Ok(CountedRequest { to: Arc::clone(self), weight })
    }

    /// Whether it confirmed since.
    pub(in crate::egress) fn has_confirmed(&self) -> bool {
        self.confirmed.which_confirmed(&self.host, std::iter::once(self.address)) == [true]
    }

    /// What may be done now for this subscription.
    fn decide(self: &Arc<Self>, subscription: u64) -> Decision {
        let now = Instant::now();
        match self.with_reverifications(|reverifications, key| reverifications.begin(key, subscription, now))
        {
            None | Some(Allowed::Send) => Decision::Send,
            Some(Allowed::Wait) => Decision::Wait,
            Some(Allowed::Reverify) => {
                let reverification =
                    Reverification { to: Arc::clone(self), subscription, weight: 1, is_settled: false };
                let admitted = self.confirmed.reverification_rate.admit(self.network(), now);
                admitted.map_or(Decision::Wait, |()| Decision::Reverify(reverification))
            }
        }
    }

    fn with_reverifications<T>(&self, act: impl FnOnce(&mut Reverifications, u64) -> T) -> Option<T> {
        let shared = self.confirmed.shared.as_ref()?;
        Some(act(&mut shared.table().reverifications, shared.key(&self.host, self.address)))
    }

    fn network(&self) -> IpNet {
        network(self.address)
    }
}

impl CountedRequest {
    /// Where it was sent.
    pub(in crate::egress) fn to(&self) -> &Arc<UnconfirmedAddress> {
        &self.to
    }

    /// It was refused, or failed for a reason that is not the hub's.
    pub(in crate::egress) fn refused(self) {
        self.to.confirmed.rate.charge(self.to.network(), REFUSAL_WEIGHT, Instant::now());
    }

    /// It was not sent.
    pub(in crate::egress) fn undo(self) {
        self.to.confirmed.rate.undo(self.to.network(), self.weight);
    }
}

impl Reverification {
    /// The address to ask.
    pub fn address(&self) -> IpAddr {
        self.to.address
    }

    /// The present moment by the clock of the leases.
    pub(in crate::egress) fn now(&self) -> DateTime {
        self.to.confirmed.clock.now()
    }

    /// Counts a request target of so many bytes.
    pub(in crate::egress) fn weighs(&mut self, bytes: usize) {
        let more = u32::try_from(bytes / REVERIFICATION_UNIT).unwrap_or(u32::MAX);
        self.weight = self.weight.saturating_add(more);
        self.to.confirmed.reverification_rate.charge(self.to.network(), more, Instant::now());
    }

    /// The address answered with the challenge: until this moment everything is sent there. Since it wanted the request, this
    /// does not count for the rate limit.
    pub fn confirmed(mut self, until: DateTime) {
        if let Some(shared) = &self.to.confirmed.shared {
            shared.table().reverifications.confirmed(shared.name(&self.to.host), self.to.address, until);
        }
        self.undo();
    }

    /// The answer was another one.
    pub fn refused(mut self) {
        self.to.with_reverifications(|reverifications, key| {
            reverifications.refused(key, self.subscription, Instant::now());
        });
        self.is_settled = true;
    }

    /// Nobody was reached.
    pub fn unreachable(mut self) {
        self.to.with_reverifications(|reverifications, key| {
            reverifications.unreachable(key, self.subscription, Instant::now());
        });
        self.is_settled = true;
    }

    /// It was not sent, for a reason that is the hub's.
    pub fn withdraw(mut self) {
        self.undo();
    }

    fn undo(&mut self) {
        self.forget();
        self.to.confirmed.reverification_rate.undo(self.to.network(), self.weight);
    }

    fn forget(&mut self) {
        self.to.with_reverifications(|reverifications, key| reverifications.forget(key, self.subscription));
        self.is_settled = true;
    }
}

impl Drop for Reverification {
    /// It still counts for the rate limit: else ending subscriptions during their re-verifications would allow any number.
    fn drop(&mut self) {
        if !self.is_settled {
            self.forget();
        }
    }
}

/// The host of an origin, where that is a name.
fn name_of(origin: &str) -> Option<&str> {
    let (_, authority) = origin.split_once("://")?;
    let host = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    Some(host.map_or(authority, |(host, _)| host)).filter(|host| !is_literal(host))
}

fn is_literal(host: &str) -> bool {
    host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "192.0.2.1";
    const VICTIM: &str = "198.51.100.7";

    impl ConfirmedAddresses {
        /// What to keep to there, if anything.
        fn judge(&self, host: &str, address: IpAddr) -> Option<Arc<UnconfirmedAddress>> {
            (self.which_confirmed(host, std::iter::once(address)) == [false])
                .then(|| self.unconfirmed(host, address))
        }
    }

    impl UnconfirmedAddress {
        /// Whether it may be sent a request with such a body, which it takes.
        fn takes(self: &Arc<Self>, body: usize) -> bool {
            self.count(body).is_ok()
        }
    }

    fn confirmed() -> ConfirmedAddresses {
        ConfirmedAddresses::new(true, "2/s, burst 60".parse().unwrap(), WallClock::default())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn over() -> DateTime {
        DateTime::from_unix_millis(0).unwrap()
    }

    fn note(confirmed: &ConfirmedAddresses, origin: &str, address: &str) {
        let in_an_hour = std::time::SystemTime::now() + Duration::from_secs(3_600);
        confirmed.remember(origin, Some(ip(address)), DateTime::from_system_time(in_an_hour));
    }

    #[test]
    fn b33_a_name_that_leads_elsewhere_has_confirmed_nothing_there() {
        let confirmed = confirmed();
        note(&confirmed, "https://a.evil.example:8443", OWN);
        assert!(confirmed.judge("a.evil.example", ip(OWN)).is_none());
        assert!(confirmed.judge("a.evil.example", ip("::ffff:192.0.2.1")).is_none(), "however it is spelled");
        assert!(confirmed.judge("a.evil.example", ip(VICTIM)).is_some());
        assert!(confirmed.judge("b.evil.example", ip(OWN)).is_some(), "nor has another name");
        assert!(confirmed.judge("198.51.100.7", ip(VICTIM)).is_none(), "an address leads nowhere else");
        assert!(confirmed.judge("[2001:db8::1]", ip("2001:db8::1")).is_none());
    }

    #[test]
    fn b33_whatever_the_names_a_network_gets_so_many_requests_and_bytes() {
        let confirmed = confirmed();
        let at = |name: usize, last: usize| {
            confirmed.judge(&format!("n{name}.evil.example"), ip(&format!("198.51.100.{last}"))).unwrap()
        };
        let admitted = (0..1_000).filter(|name| at(*name, name % 250).takes(0)).count();
        assert_eq!(admitted, 60);
        let unconfirmed = confirmed.judge("n0.evil.example", ip("198.51.101.1")).unwrap();
        let large = (0..1_000).filter(|_| unconfirmed.takes(1 << 20)).count();
        assert_eq!(large, 1, "a mebibyte counts as 65, and what is owed has to be waited for");
        let refusing = confirmed.judge("n0.evil.example", ip("198.51.102.1")).unwrap();
        let refused = (0..1_000).filter(|_| refusing.count(0).map(CountedRequest::refused).is_ok()).count();
        assert_eq!(refused, 15, "what is refused counts four times");
        let unsent = confirmed.judge("n0.evil.example", ip("198.51.103.1")).unwrap();
        assert!((0..1_000).all(|_| unsent.count(1 << 20).map(CountedRequest::undo).is_ok()));
    }

    /// The question about a subscription, if it may be put.
    fn reverification(there: &Arc<UnconfirmedAddress>, subscription: u64) -> Option<Reverification> {
        match there.decide(subscription) {
            Decision::Reverify(reverification) => Some(reverification),
            Decision::Send | Decision::Wait => None,
        }
    }

    fn in_a_minute() -> DateTime {
        DateTime::from_system_time(std::time::SystemTime::now() + Duration::from_secs(60))
    }

    #[test]
    fn b33_re_verifications_of_a_network_are_limited_and_only_those_count_that_are_not_confirmed() {
        let confirmed = ConfirmedAddresses::new(true, "1/h, burst 5".parse().unwrap(), WallClock::default());
        let at = |name: usize| confirmed.judge(&format!("n{name}.example"), ip(VICTIM)).unwrap();
        for name in 0..1_000 {
            reverification(&at(name), 1).unwrap().confirmed(in_a_minute());
            assert!(confirmed.judge(&format!("n{name}.example"), ip(VICTIM)).is_none(), "it has confirmed");
        }
        reverification(&at(1_000), 1).unwrap().withdraw();
        let mut long = reverification(&at(1_000), 1).unwrap();
        long.weighs(2 * REVERIFICATION_UNIT);
        long.withdraw();

        reverification(&at(1_000), 1).unwrap().refused();
        reverification(&at(1_001), 1).unwrap().unreachable();
        drop(reverification(&at(1_002), 1).unwrap());
        let mut long = reverification(&at(1_003), 1).unwrap();
        long.weighs(REVERIFICATION_UNIT);
        long.refused();
        assert!(matches!(at(1_004).decide(1), Decision::Wait), "that was the share of all names");
        assert!(matches!(at(1_000).decide(1), Decision::Send), "of late it said no");
        assert!(matches!(at(1_001).decide(1), Decision::Wait), "nobody is there");
        assert!((0..5).all(|_| at(1_000).takes(0)), "the trickle has its own");
    }

    #[test]
    fn whatever_a_network_owes_for_deliveries_who_has_moved_there_is_asked() {
        let confirmed = confirmed();
        let evil = confirmed.judge("a.evil.example", ip(VICTIM)).unwrap();
        assert!(evil.takes(1 << 30) && !evil.takes(0), "much is owed");
        let honest = confirmed.judge("honest.example", ip(VICTIM)).unwrap();
        reverification(&honest, 1).unwrap().confirmed(in_a_minute());
        assert!(honest.has_confirmed());
    }

    #[test]
    fn b33_a_re_verification_that_the_hub_aborts_is_no_refusal_and_counts() {
        let confirmed = ConfirmedAddresses::new(true, "1/h, burst 2".parse().unwrap(), WallClock::default());
        let reverifications = confirmed.judge("d.example", ip(VICTIM)).unwrap();
        drop(reverification(&reverifications, 1).unwrap());
        drop(reverification(&reverifications, 1).unwrap());
        assert!(matches!(reverifications.decide(1), Decision::Wait));
    }

    #[test]
    fn who_confirms_while_it_is_connected_is_held_up_no_longer() {
        let confirmed = confirmed();
        let moved = confirmed.judge("d.example", ip(VICTIM)).unwrap();
        assert!(!moved.has_confirmed());
        note(&confirmed, "http://d.example", VICTIM);
        assert!(moved.has_confirmed());
    }

    #[test]
    fn a_confirmation_ends_by_the_clock_of_the_store_however_the_hubs_is_set() {
        let (hour, clock) = (Duration::from_secs(3_600), WallClock::default());
        let confirmed = ConfirmedAddresses::new(true, "2/s, burst 60".parse().unwrap(), clock.clone());
        clock.put_ahead(hour);
        confirmed.remember("http://d.example", Some(ip(OWN)), in_a_minute());
        assert!(confirmed.judge("d.example", ip(OWN)).is_some(), "its lease is over");
        let end = DateTime::from_system_time(clock.system_time() + hour);
        confirmed.remember("http://d.example", Some(ip(OWN)), end);
        assert!(confirmed.judge("d.example", ip(OWN)).is_none());
    }

    #[test]
    fn a_confirmation_lasts_as_long_as_the_longest_lease_and_takes_no_memory_after_that() {
        let confirmed = confirmed();
        confirmed.remember("http://short.example", Some(ip(OWN)), over());
        assert!(confirmed.judge("short.example", ip(OWN)).is_some());
        note(&confirmed, "http://long.example", OWN);
        confirmed.remember("http://long.example", Some(ip(OWN)), over());
        for name in 0..10_000 {
            confirmed.remember(&format!("http://{name}.example"), Some(ip(OWN)), over());
        }
        assert!(confirmed.judge("long.example", ip(OWN)).is_none(), "another subscription is in force");
        assert!(confirmed.shared.unwrap().table.lock().unwrap().until.len() < TIDY_FROM);
    }

    #[test]
    fn however_many_names_confirm_so_many_are_noted_and_room_comes_back_with_the_ends_of_leases() {
        let (mut table, now, clock) = (Table::new(10), Instant::now(), WallClock::default());
        let moment = |seconds| {
            let time = DateTime::now().to_system_time() + Duration::from_secs(seconds);
            DateTime::from_system_time(time)
        };
        let (over, in_force) = (moment(0), moment(3_600));
        (0..5).for_each(|key| table.remember(key, over, now, &clock));
        (5..20).for_each(|key| table.remember(key, in_force, now, &clock));
        assert_eq!(table.until.len(), 10);
        table.remember(9, moment(7_200), now, &clock);
        assert!(table.until[&9] > in_force, "who is known renews");
        table.remember(20, in_force, now + TIDY_EVERY, &clock);
        assert!(table.until.contains_key(&20) && table.until.len() == 6, "{:?}", table.until.len());
    }

    #[test]
    fn limits_that_are_off_hold_up_nobody() {
        let off = ConfirmedAddresses::new(false, "2/s, burst 60".parse().unwrap(), WallClock::default());
        assert!(off.judge("a.example", ip(VICTIM)).is_none());
    }
}
