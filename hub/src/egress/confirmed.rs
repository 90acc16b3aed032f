//! Which names have confirmed at which addresses, and how little is sent elsewhere under their names.
//!
//! Names cost nothing and lead elsewhere tomorrow: whoever confirms subscriptions under a thousand of its own and then turns them
//! to somebody else's address must not have the hub deliver there. So an address gets deliveries under a name as fast as it takes
//! them only where it confirmed a subscription itself, under this name, and until the lease ends that it was granted then, also where
//! the subscription has ended before or was confirmed elsewhere since. All others of one network share a trickle (B-33), on which a
//! subscriber that has moved lives until it renews.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use resync_core::datetime::DateTime;

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
}

/// An address to which a name leads that has not confirmed there.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    confirmed: Confirmed,
    host: Box<str>,
    address: IpAddr,
}

/// A request to such an address that was taken into account. Whatever becomes of it counts as a refusal, silence too, unless it is
/// said to be something else.
#[derive(Debug)]
#[must_use]
pub(super) struct Admitted {
    to: Arc<Unconfirmed>,
    weight: u32,
    settled: bool,
}

impl Confirmed {
    /// `trickle` is how often the addresses of one network that have not confirmed are sent something, under whatever names.
    /// With `enabled` false nobody is ever held up.
    pub fn new(enabled: bool, trickle: Rate) -> Self {
        let places = || Mutex::new(Places { until: HashMap::new(), tidy_at: TIDY_FROM });
        let known = || Arc::new(Known { hasher: RandomState::new(), places: places() });
        Self { known: enabled.then(known), trickle: Buckets::new(enabled, trickle) }
    }

    /// The host of this origin has confirmed at this address, if that is known, a subscription that lasts until then.
    pub fn note(&self, origin: &str, address: Option<IpAddr>, until: DateTime) {
        let (Some(known), Some(address), Some(host)) = (&self.known, address, name_of(origin)) else {
            return;
        };
        let key = known.key(host, address);
        let mut places = known.places.lock().unwrap_or_else(PoisonError::into_inner);
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
        let places = known.places.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = |key| places.until.get(key).is_some_and(|until| *until > now);
        keys.iter().map(in_force).collect()
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
}

impl Unconfirmed {
    /// Takes into account that it is connected to, for a request with a body of so many bytes.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit(self: &Arc<Self>, body: usize) -> Result<Admitted, Duration> {
        let weight = u32::try_from(1 + body / BODY_UNIT).unwrap_or(u32::MAX);
        self.confirmed.trickle.admit_heavy(self.network(), weight, Instant::now())?;
        Ok(Admitted { to: Arc::clone(self), weight, settled: false })
    }

    /// The same for a request over a connection that stands. It may have confirmed since that was made.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit_once_more(self: &Arc<Self>, body: usize) -> Result<Option<Admitted>, Duration> {
        let has = self.confirmed.have(&self.host, std::iter::once(self.address)) == [true];
        if has { Ok(None) } else { self.admit(body).map(Some) }
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

    /// It was taken, or failed for a reason of this side: it counts as what it is and no more.
    pub(super) fn settle(mut self) {
        self.settled = true;
    }

    /// It was not sent.
    pub(super) fn undo(self) {
        self.to.confirmed.trickle.undo(self.to.network(), self.weight);
        self.settle();
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if !self.settled {
            self.to.confirmed.trickle.take(self.to.network(), REFUSED, Instant::now());
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

    impl Confirmed {
        /// What to keep to there, if anything.
        fn judge(&self, host: &str, address: IpAddr) -> Option<Arc<Unconfirmed>> {
            (self.have(host, std::iter::once(address)) == [false]).then(|| self.elsewhere(host, address))
        }
    }

    impl Unconfirmed {
        /// Whether it may be sent a request with such a body, which it takes.
        fn takes(self: &Arc<Self>, body: usize) -> bool {
            self.admit(body).map(Admitted::settle).is_ok()
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
        assert!(at(1_000, 1).admit_once_more(0).is_err(), "over connections that stand too");
        let elsewhere = confirmed.judge("n0.evil.example", ip("198.51.101.1")).unwrap();
        let large = (0..1_000).filter(|_| elsewhere.takes(1 << 20)).count();
        assert_eq!(large, 1, "a mebibyte counts as 65, and what is owed has to be waited for");
        let refusing = confirmed.judge("n0.evil.example", ip("198.51.102.1")).unwrap();
        let refused = (0..1_000).filter(|_| refusing.admit(0).map(drop).is_ok()).count();
        assert_eq!(refused, 15, "whatever is not said to be taken counts four times");
        let unsent = confirmed.judge("n0.evil.example", ip("198.51.103.1")).unwrap();
        assert!((0..1_000).all(|_| unsent.admit(1 << 20).map(Admitted::undo).is_ok()));
    }

    #[test]
    fn who_confirms_while_it_is_connected_is_held_up_no_longer() {
        let confirmed = confirmed();
        let moved = confirmed.judge("d.example", ip(VICTIM)).unwrap();
        assert!((0..1_000).any(|_| !moved.takes(0)));
        note(&confirmed, "http://d.example", VICTIM);
        assert!((0..1_000).all(|_| moved.admit_once_more(0).is_ok_and(|admitted| admitted.is_none())));
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
