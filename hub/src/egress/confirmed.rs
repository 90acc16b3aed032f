//! Which names have confirmed at which addresses, and how little is sent elsewhere under their names.
//!
//! Names cost nothing and lead elsewhere tomorrow: whoever confirms subscriptions under a thousand of its own and then turns them
//! to somebody else's address must not have the hub deliver there. So an address gets deliveries under a name as fast as it takes
//! them only where it confirmed a subscription itself, under this name, and until the lease ends that it was granted then, also where
//! the subscription has ended before or was confirmed elsewhere since. All others of one network share a trickle (B-33). A subscriber
//! that has moved, or that has many addresses, need not live on it: each of them is asked once whether it wants the subscription.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use resync_core::datetime::DateTime;

use super::asked::Asked;
use super::guard::{canonical, network};
use crate::buckets::Buckets;
use crate::config::Rate;

/// So many bytes of a body count as one request more.
const BODY_UNIT: usize = 16 * 1024;
/// A request that is refused counts as so many more: whoever asked for nothing mostly refuses.
const REFUSED: u32 = 3;
/// From this number on, names whose leases are over are looked for and forgotten.
const TIDY_FROM: usize = 1_024;

/// What the hub knows of names and their addresses. Clones share it.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// `None`: whatever a name leads to is sent everything.
    known: Option<Arc<Known>>,
    trickle: Buckets,
}

#[derive(Debug)]
struct Known {
    /// Random, so that nobody can choose a name that is taken for another.
    hasher: RandomState,
    places: Mutex<Places>,
}

/// Until when, by the hashes of a name and an address.
#[derive(Debug)]
struct Places {
    until: HashMap<u64, DateTime>,
    tidy_at: usize,
    asked: Asked,
}

/// An address to which a name leads that has not confirmed there.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    confirmed: Confirmed,
    host: Box<str>,
    address: IpAddr,
}

/// A request to such an address that was taken into account. Where the hub itself cuts it off, it counts as what it is.
#[derive(Debug)]
#[must_use]
pub(super) struct Admitted {
    to: Arc<Unconfirmed>,
    weight: u32,
}

/// A request that asks such an address whether it wants what is sent there. It was taken into account, and is not asked again for
/// a while, whatever becomes of it.
#[derive(Debug)]
#[must_use]
pub struct Question(Admitted);

impl Confirmed {
    /// `trickle` is how often the addresses of one network that have not confirmed are sent something, under whatever names.
    /// With `enabled` false nobody is ever held up.
    pub fn new(enabled: bool, trickle: Rate) -> Self {
        let places =
            || Mutex::new(Places { until: HashMap::new(), tidy_at: TIDY_FROM, asked: Asked::nobody() });
        let known = || Arc::new(Known { hasher: RandomState::new(), places: places() });
        Self { known: enabled.then(known), trickle: Buckets::new(enabled, trickle) }
    }

    /// The host of this origin has confirmed at this address, if that is known, a subscription that lasts until then.
    pub fn note(&self, origin: &str, address: Option<IpAddr>, until: DateTime) {
        let (Some(known), Some(address), Some(host)) = (&self.known, address, name_of(origin)) else {
            return;
        };
        let key = known.key(host, address);
        let mut places = known.places();
        let end = places.until.entry(key).or_insert(until);
        *end = (*end).max(until);
        if places.until.len() >= places.tidy_at {
            let now = DateTime::now();
            places.until.retain(|_, end| *end > now);
            places.tidy_at = (places.until.len() * 2).max(TIDY_FROM);
        }
    }

    /// At which of these addresses this name has confirmed. An address that stands in a URL is its own name.
    pub(super) fn have(&self, host: &str, addresses: impl Iterator<Item = IpAddr>) -> Vec<bool> {
        let Some(known) = self.known.as_ref().filter(|_| !is_literal(host)) else {
            return addresses.map(|_| true).collect();
        };
        let (keys, now) = (addresses.map(|address| known.key(host, address)), DateTime::now());
        let keys: Vec<_> = keys.collect();
        let mut places = known.places();
        keys.into_iter().map(|key| places.are_in_force(key, now)).collect()
    }

    /// What to keep to when something is sent to this address, which has not confirmed under this name.
    pub(super) fn elsewhere(&self, host: &str, address: IpAddr) -> Arc<Unconfirmed> {
        let (confirmed, address) = (self.clone(), canonical(address));
        Arc::new(Unconfirmed { confirmed, host: host.into(), address })
    }
}

impl Known {
    fn key(&self, host: &str, address: IpAddr) -> u64 {
        self.hasher.hash_one((host, canonical(address)))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Nothing in here can panic half-way.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn are_in_force(&mut self, key: u64, now: DateTime) -> bool {
        self.until.get(&key).is_some_and(|until| *until > now) || self.asked.has_confirmed(key, now)
    }
}

impl Unconfirmed {
    /// Takes into account that it is connected to, for a request with a body of so many bytes.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit(self: &Arc<Self>, body: usize) -> Result<Admitted, Duration> {
        let weight = u32::try_from(1 + body / BODY_UNIT).unwrap_or(u32::MAX);
        self.confirmed.trickle.admit_heavy(self.network(), weight, Instant::now())?;
        Ok(Admitted { to: Arc::clone(self), weight })
    }

    /// Whether it has confirmed since.
    pub(super) fn has_confirmed(&self) -> bool {
        self.confirmed.have(&self.host, std::iter::once(self.address)) == [true]
    }

    /// The one question that it may be asked now, if any: it was not asked of late, and its network is not sent enough.
    pub(super) fn question(self: &Arc<Self>) -> Option<Question> {
        if !self.with_asked(|asked, key| asked.begin(key, Instant::now()))? {
            return None;
        }
        let admitted = self.admit(0);
        if admitted.is_err() {
            self.with_asked(Asked::forget);
        }
        admitted.ok().map(Question)
    }

    fn with_asked<T>(&self, act: impl FnOnce(&mut Asked, u64) -> T) -> Option<T> {
        let known = self.confirmed.known.as_ref()?;
        Some(act(&mut known.places().asked, known.key(&self.host, self.address)))
    }

    fn network(&self) -> IpNet {
        network(self.address)
    }
}

impl Admitted {
    /// Where it was sent.
    pub(super) fn to(&self) -> &Arc<Unconfirmed> {
        &self.to
    }

    /// It was refused, or came to nothing for no reason of this side.
    pub(super) fn refused(self) {
        self.to.confirmed.trickle.take(self.to.network(), REFUSED, Instant::now());
    }

    /// It was not sent.
    pub(super) fn undo(self) {
        self.to.confirmed.trickle.undo(self.to.network(), self.weight);
    }
}

impl Question {
    /// Whom it is for.
    pub fn address(&self) -> IpAddr {
        self.0.to.address
    }

    /// It was answered with the challenge: from now on and until this moment, everything is sent there. Nobody was sent anything
    /// that it did not want, so the question counts for nothing.
    pub fn confirmed(self, until: DateTime) {
        self.0.to.with_asked(|asked, key| asked.confirmed(key, until));
        self.0.undo();
    }

    /// It was answered otherwise, or not at all.
    pub fn refused(self) {
        self.0.refused();
    }

    /// It was not asked.
    pub fn withdraw(self) {
        self.0.to.with_asked(Asked::forget);
        self.0.undo();
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

    impl Confirmed {
        /// What to keep to there, if anything.
        fn judge(&self, host: &str, address: IpAddr) -> Option<Arc<Unconfirmed>> {
            (self.have(host, std::iter::once(address)) == [false]).then(|| self.elsewhere(host, address))
        }
    }

    impl Unconfirmed {
        /// Whether it may be sent a request with such a body, which it takes.
        fn takes(self: &Arc<Self>, body: usize) -> bool {
            self.admit(body).is_ok()
        }
    }

    fn confirmed() -> Confirmed {
        Confirmed::new(true, "2/s, burst 60".parse().unwrap())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn over() -> DateTime {
        DateTime::from_unix_millis(0).unwrap()
    }

    fn note(confirmed: &Confirmed, origin: &str, address: &str) {
        let in_an_hour = std::time::SystemTime::now() + Duration::from_secs(3_600);
        confirmed.note(origin, Some(ip(address)), DateTime::from_system_time(in_an_hour));
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
        let elsewhere = confirmed.judge("n0.evil.example", ip("198.51.101.1")).unwrap();
        let large = (0..1_000).filter(|_| elsewhere.takes(1 << 20)).count();
        assert_eq!(large, 1, "a mebibyte counts as 65, and what is owed has to be waited for");
        let refusing = confirmed.judge("n0.evil.example", ip("198.51.102.1")).unwrap();
        let refused = (0..1_000).filter(|_| refusing.admit(0).map(Admitted::refused).is_ok()).count();
        assert_eq!(refused, 15, "what is refused counts four times");
        let unsent = confirmed.judge("n0.evil.example", ip("198.51.103.1")).unwrap();
        assert!((0..1_000).all(|_| unsent.admit(1 << 20).map(Admitted::undo).is_ok()));
    }

    #[test]
    fn b33_a_question_is_one_request_of_the_trickle_once_and_none_where_it_is_answered() {
        let confirmed = Confirmed::new(true, "1/h, burst 5".parse().unwrap());
        let at = |name: usize, last: usize| {
            confirmed.judge(&format!("n{name}.evil.example"), ip(&format!("198.51.100.{last}")))
        };
        let asked = at(0, 1).unwrap();
        asked.question().unwrap().refused();
        assert!(asked.question().is_none(), "of late it said no");
        assert!(asked.takes(0), "the question and its refusal left one of five");
        assert!(at(1, 1).unwrap().question().is_none(), "and now there is none for any name");

        let other = |name: &str| confirmed.judge(name, ip("198.51.101.1"));
        other("unasked.example").unwrap().question().unwrap().withdraw();
        for name in 0..1_000 {
            let name = format!("n{name}.example");
            let until = DateTime::from_system_time(std::time::SystemTime::now() + Duration::from_secs(60));
            other(&name).unwrap().question().unwrap().confirmed(until);
            assert!(other(&name).is_none(), "it has confirmed");
        }
        let (left, unasked) = (other("last.example").unwrap(), other("unasked.example").unwrap());
        assert!((0..4).all(|_| left.takes(0)), "nothing of that counts");
        assert!(unasked.question().is_some());
    }

    #[test]
    fn b33_a_question_that_the_hub_cuts_off_is_no_refusal_and_is_not_repeated() {
        let confirmed = Confirmed::new(true, "1/h, burst 2".parse().unwrap());
        let asked = confirmed.judge("d.example", ip(VICTIM)).unwrap();
        drop(asked.question());
        assert!(asked.question().is_none());
        assert!(asked.takes(0) && !asked.takes(0));
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
    fn a_confirmation_lasts_as_long_as_the_longest_lease_and_takes_no_memory_after_that() {
        let confirmed = confirmed();
        confirmed.note("http://short.example", Some(ip(OWN)), over());
        assert!(confirmed.judge("short.example", ip(OWN)).is_some());
        note(&confirmed, "http://long.example", OWN);
        confirmed.note("http://long.example", Some(ip(OWN)), over());
        for name in 0..10_000 {
            confirmed.note(&format!("http://{name}.example"), Some(ip(OWN)), over());
        }
        assert!(confirmed.judge("long.example", ip(OWN)).is_none(), "another subscription is in force");
        assert!(confirmed.known.unwrap().places.lock().unwrap().until.len() < TIDY_FROM);
    }

    #[test]
    fn limits_that_are_off_hold_up_nobody() {
        let off = Confirmed::new(false, "2/s, burst 60".parse().unwrap());
        assert!(off.judge("a.example", ip(VICTIM)).is_none());
    }
}
