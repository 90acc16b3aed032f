//! Which names have confirmed at which addresses, and how little is sent elsewhere under their names.
//!
//! Names cost nothing and lead elsewhere tomorrow: whoever confirms subscriptions under a thousand of its own and then turns them
//! to somebody else's address must not have the hub deliver there. So an address gets deliveries under a name as fast as it takes
//! them only where it confirmed a subscription itself, under this name, and until the lease ends that it was granted then, also where
//! the subscription has ended before or was confirmed elsewhere since. All others of one network share a trickle (B-33). A subscriber
//! that has moved, or that has many addresses, need not live on it: each of them is asked once whether it wants the subscription.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use resync_core::datetime::DateTime;

use super::asked::{Asked, May};
use super::guard::{canonical, network};
use crate::buckets::Buckets;
use crate::config::Rate;

/// So many bytes of a request, its head included, count as one request more.
const REQUEST_UNIT: usize = 16 * 1024;
/// So many bytes of a question's target count as one question more.
const QUESTION_UNIT: usize = 1024;
/// A request that is refused counts as so many more: whoever asked for nothing mostly refuses.
const REFUSED: u32 = 3;
/// From this number on, names whose leases are over are looked for and forgotten.
const TIDY_FROM: usize = 1_024;
/// Names and addresses that are known at most, some thirty bytes each. Beyond that one that confirms is not noted: it is asked again
/// where its deliveries lead, and remembered there.
const MOST_NOTED: usize = 1_000_000;
/// How often they are looked through where there are so many.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// What the hub knows of names and their addresses. Clones share it.
#[derive(Clone, Debug)]
pub struct Confirmed {
    /// `None`: whatever a name leads to is sent everything.
    known: Option<Arc<Known>>,
    trickle: Buckets,
    /// Apart from the trickle: whatever is owed for deliveries, who has moved can still say so.
    questions: Buckets,
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
    /// So many at most.
    most: usize,
    tidy_at: usize,
    tidied: Instant,
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

/// Why nothing may be sent now to an address that has not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum HeldBack {
    /// It is to be asked, or was and has not answered.
    #[error("that is asked first")]
    Question,
    /// Its network is sent enough for so long.
    #[error("that network gets little: more in {0:?}")]
    Trickle(Duration),
}

/// What may be done at such an address.
#[derive(Debug)]
enum Turn {
    /// Only this question may be sent.
    Ask(Question),
    /// What the trickle lets pass.
    Send,
    /// Nothing, until somebody has answered.
    Wait,
}

/// A request that asks such an address whether it wants what is sent there. It was taken into account. Where it is dropped before its
/// answer is known, another one may be put.
#[derive(Debug)]
#[must_use]
pub struct Question {
    to: Arc<Unconfirmed>,
    about: u64,
    weight: u32,
    is_settled: bool,
}

impl Confirmed {
    /// `trickle` is how often the addresses of one network that have not confirmed are sent something, under whatever names, and
    /// how often they are asked. With `enabled` false nobody is ever held up.
    pub fn new(enabled: bool, trickle: Rate) -> Self {
        let known =
            || Arc::new(Known { hasher: RandomState::new(), places: Mutex::new(Places::none(MOST_NOTED)) });
        Self {
            known: enabled.then(known),
            trickle: Buckets::new(enabled, trickle),
            questions: Buckets::new(enabled, trickle),
        }
    }

    /// The host of this origin has confirmed at this address, if that is known, a subscription that lasts until then.
    pub fn note(&self, origin: &str, address: Option<IpAddr>, until: DateTime) {
        let (Some(known), Some(address), Some(host)) = (&self.known, address, name_of(origin)) else {
            return;
        };
        let key = known.key(host, address);
        known.places().note(key, until, Instant::now());
    }

    /// At which of these addresses this name has confirmed. An address that stands in a URL is its own name.
    pub(super) fn have(&self, host: &str, addresses: impl Iterator<Item = IpAddr>) -> Vec<bool> {
        let Some(known) = self.known.as_ref().filter(|_| !is_literal(host)) else {
            return addresses.map(|_| true).collect();
        };
        let (name, now) = (known.name(host), DateTime::now());
        let keys: Vec<_> = addresses.map(|address| (canonical(address), known.key(host, address))).collect();
        let mut places = known.places();
        keys.into_iter().map(|(address, key)| places.are_in_force(name, address, key, now)).collect()
    }

    /// What to keep to when something is sent to this address, which has not confirmed under this name.
    pub(super) fn elsewhere(&self, host: &str, address: IpAddr) -> Arc<Unconfirmed> {
        let (confirmed, address) = (self.clone(), canonical(address));
        Arc::new(Unconfirmed { confirmed, host: host.into(), address })
    }
}

impl Known {
    fn name(&self, host: &str) -> u64 {
        self.hasher.hash_one(host)
    }

    fn key(&self, host: &str, address: IpAddr) -> u64 {
        self.hasher.hash_one((host, canonical(address)))
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Nothing in here can panic half-way.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn none(most: usize) -> Self {
        let (until, tidied) = (HashMap::new(), Instant::now());
        Self { until, most, tidy_at: TIDY_FROM.min(most), tidied, asked: Asked::nobody() }
    }

    fn note(&mut self, key: u64, until: DateTime, now: Instant) {
        let is_full = self.until.len() >= self.most;
        let may_tidy = !is_full || now.saturating_duration_since(self.tidied) >= TIDY_EVERY;
        if self.until.len() >= self.tidy_at && may_tidy {
            let wall = DateTime::now();
            self.until.retain(|_, end| *end > wall);
            self.tidy_at = (self.until.len() * 2).max(TIDY_FROM).min(self.most);
            self.tidied = now;
        }
        let has_room = self.until.len() < self.most;
        match self.until.entry(key) {
            Entry::Occupied(mut known) => {
                let end = known.get_mut();
                *end = (*end).max(until);
            }
            Entry::Vacant(place) if has_room => {
                place.insert(until);
            }
            Entry::Vacant(_) => {}
        }
    }

    fn are_in_force(&mut self, name: u64, address: IpAddr, key: u64, now: DateTime) -> bool {
        self.until.get(&key).is_some_and(|until| *until > now) || self.asked.has_confirmed(name, address, now)
    }
}

impl Unconfirmed {
    /// Takes into account that it is connected to, for a request of so many bytes.
    ///
    /// # Errors
    /// How long to wait.
    fn admit(self: &Arc<Self>, bytes: usize) -> Result<Admitted, Duration> {
        let weight = u32::try_from(1 + bytes / REQUEST_UNIT).unwrap_or(u32::MAX);
        self.confirmed.trickle.admit_heavy(self.network(), weight, Instant::now())?;
        Ok(Admitted { to: Arc::clone(self), weight })
    }

    /// The same for a request that may be for a subscription which is to be asked about first, or why nothing is sent.
    ///
    /// # Errors
    /// The question that has to be put first.
    pub(super) fn pass(
        self: &Arc<Self>,
        bytes: usize,
        about: Option<u64>,
    ) -> Result<Result<Admitted, HeldBack>, Question> {
        match about.map_or(Turn::Send, |about| self.turn(about)) {
            Turn::Ask(question) => Err(question),
            Turn::Wait => Ok(Err(HeldBack::Question)),
            Turn::Send => Ok(self.admit(bytes).map_err(HeldBack::Trickle)),
        }
    }

    /// Whether it has confirmed since.
    pub(super) fn has_confirmed(&self) -> bool {
        self.confirmed.have(&self.host, std::iter::once(self.address)) == [true]
    }

    /// What may be done there for this subscription.
    fn turn(self: &Arc<Self>, about: u64) -> Turn {
        let now = Instant::now();
        match self.with_asked(|asked, place| asked.begin(place, about, now)) {
            None | Some(May::Send) => Turn::Send,
            Some(May::Wait) => Turn::Wait,
            Some(May::Ask) => {
                let question = Question { to: Arc::clone(self), about, weight: 1, is_settled: false };
                let admitted = self.confirmed.questions.admit(self.network(), now);
                admitted.map_or(Turn::Wait, |()| Turn::Ask(question))
            }
        }
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
        self.to.address
    }

    /// It is sent with a target of so many bytes.
    pub(super) fn weighs(&mut self, bytes: usize) {
        let more = u32::try_from(bytes / QUESTION_UNIT).unwrap_or(u32::MAX);
        self.weight = self.weight.saturating_add(more);
        self.to.confirmed.questions.take(self.to.network(), more, Instant::now());
    }

    /// It was answered with the challenge: from now on and until this moment, everything is sent there. Nobody was sent anything
    /// that it did not want, so the question counts for nothing.
    pub fn confirmed(mut self, until: DateTime) {
        if let Some(known) = &self.to.confirmed.known {
            known.places().asked.confirmed(known.name(&self.to.host), self.to.address, until);
        }
        self.undo();
    }

    /// It was answered otherwise.
    pub fn refused(mut self) {
        self.to.with_asked(|asked, place| asked.refused(place, self.about, Instant::now()));
        self.is_settled = true;
    }

    /// Nobody was there to answer.
    pub fn missed(mut self) {
        self.to.with_asked(|asked, place| asked.missed(place, self.about, Instant::now()));
        self.is_settled = true;
    }

    /// It was not asked, for a reason of this side.
    pub fn withdraw(mut self) {
        self.undo();
    }

    fn undo(&mut self) {
        self.forget();
        self.to.confirmed.questions.undo(self.to.network(), self.weight);
    }

    fn forget(&mut self) {
        self.to.with_asked(|asked, place| asked.forget(place, self.about));
        self.is_settled = true;
    }
}

impl Drop for Question {
    /// Whoever ends subscriptions while these are asked about would have any number put: it counts all the same.
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

    /// The question about a subscription, if it may be put.
    fn question(there: &Arc<Unconfirmed>, about: u64) -> Option<Question> {
        match there.turn(about) {
            Turn::Ask(question) => Some(question),
            Turn::Send | Turn::Wait => None,
        }
    }

    fn in_a_minute() -> DateTime {
        DateTime::from_system_time(std::time::SystemTime::now() + Duration::from_secs(60))
    }

    #[test]
    fn b33_a_network_is_asked_so_many_questions_of_which_those_count_that_are_not_answered_with_a_yes() {
        let confirmed = Confirmed::new(true, "1/h, burst 5".parse().unwrap());
        let at = |name: usize| confirmed.judge(&format!("n{name}.example"), ip(VICTIM)).unwrap();
        for name in 0..1_000 {
            question(&at(name), 1).unwrap().confirmed(in_a_minute());
            assert!(confirmed.judge(&format!("n{name}.example"), ip(VICTIM)).is_none(), "it has confirmed");
        }
        question(&at(1_000), 1).unwrap().withdraw();
        let mut long = question(&at(1_000), 1).unwrap();
        long.weighs(2 * QUESTION_UNIT);
        long.withdraw();

        question(&at(1_000), 1).unwrap().refused();
        question(&at(1_001), 1).unwrap().missed();
        drop(question(&at(1_002), 1).unwrap());
        let mut long = question(&at(1_003), 1).unwrap();
        long.weighs(QUESTION_UNIT);
        long.refused();
        assert!(matches!(at(1_004).turn(1), Turn::Wait), "that was the share of all names");
        assert!(matches!(at(1_000).turn(1), Turn::Send), "of late it said no");
        assert!(matches!(at(1_001).turn(1), Turn::Wait), "nobody is there");
        assert!((0..5).all(|_| at(1_000).takes(0)), "the trickle has its own");
    }

    #[test]
    fn whatever_a_network_owes_for_deliveries_who_has_moved_there_is_asked() {
        let confirmed = confirmed();
        let evil = confirmed.judge("a.evil.example", ip(VICTIM)).unwrap();
        assert!(evil.takes(1 << 30) && !evil.takes(0), "much is owed");
        let honest = confirmed.judge("honest.example", ip(VICTIM)).unwrap();
        question(&honest, 1).unwrap().confirmed(in_a_minute());
        assert!(honest.has_confirmed());
    }

    #[test]
    fn b33_a_question_that_the_hub_cuts_off_is_no_refusal_and_counts() {
        let confirmed = Confirmed::new(true, "1/h, burst 2".parse().unwrap());
        let asked = confirmed.judge("d.example", ip(VICTIM)).unwrap();
        drop(question(&asked, 1).unwrap());
        drop(question(&asked, 1).unwrap());
        assert!(matches!(asked.turn(1), Turn::Wait));
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
    fn however_many_names_confirm_so_many_are_noted_and_room_comes_back_with_the_ends_of_leases() {
        let (mut places, now) = (Places::none(10), Instant::now());
        let moment = |seconds| {
            let time = DateTime::now().to_system_time() + Duration::from_secs(seconds);
            DateTime::from_system_time(time)
        };
        let (over, in_force) = (moment(0), moment(3_600));
        (0..5).for_each(|key| places.note(key, over, now));
        (5..20).for_each(|key| places.note(key, in_force, now));
        assert_eq!(places.until.len(), 10);
        places.note(9, moment(7_200), now);
        assert!(places.until[&9] > in_force, "who is known renews");
        places.note(20, in_force, now + TIDY_EVERY);
        assert!(places.until.contains_key(&20) && places.until.len() == 6, "{:?}", places.until.len());
    }

    #[test]
    fn limits_that_are_off_hold_up_nobody() {
        let off = Confirmed::new(false, "2/s, burst 60".parse().unwrap());
        assert!(off.judge("a.example", ip(VICTIM)).is_none());
    }
}
