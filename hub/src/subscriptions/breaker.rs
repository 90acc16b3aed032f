//! Circuit breakers for verifications: after twenty failures in a row at a host, nobody there is asked for ten minutes, so that
//! the hub cannot be used to knock at a stranger's door (B-33).
//!
//! First the breaker opens for the client that caused the failures, and for no other. It opens for all clients only after
//! failures of several, and never at a host that confirmed something before: one stranger must not lock others out.

use std::hash::RandomState;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_common::locks::lock;
use resync_core::websub::CallbackUrl;

use super::confirmed_hosts::ConfirmedHosts;

/// A breaker opens after this number of failures in a row.
pub(super) const FAILURES: u32 = 20;
/// Failures of one client that count towards the breaker of all clients.
const OF_ONE_CLIENT: u32 = 5;
/// How long a breaker stays open.
const OPEN_FOR: Duration = Duration::from_secs(600);
/// Breakers of each kind that are remembered. Beyond that, the one unused for longest is forgotten.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(20_000).expect("twenty thousand is not zero");

/// The circuit breakers of all callback hosts. Clones share them.
#[derive(Clone, Debug)]
pub struct VerificationBreaker {
    enabled: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Failures that one client caused at one host.
    own: LruCache<(Option<IpAddr>, String), Failures, RandomState>,
    /// Failures that all clients caused at one host.
    hosts: LruCache<String, Failures, RandomState>,
    /// Hosts that confirmed something.
    confirmed: ConfirmedHosts,
}

/// Failures in a row.
#[derive(Clone, Debug, Default)]
struct Failures {
    count: u32,
    open_until: Option<Instant>,
    /// How many of them each client caused.
    by: Vec<(Option<IpAddr>, u32)>,
}

impl Failures {
    fn wait(&self, now: Instant) -> Option<Duration> {
        self.open_until?.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    fn add(&mut self, now: Instant) {
        self.count += 1;
        if self.count >= FAILURES {
            *self = Self { open_until: Some(now + OPEN_FOR), ..Self::default() };
        }
    }

    /// Adds a failure, unless this client caused as many as count of one.
    fn add_of(&mut self, client: Option<IpAddr>, now: Instant) {
        let at = self.by.iter().position(|(who, _)| *who == client).unwrap_or_else(|| {
            self.by.push((client, 0));
            self.by.len() - 1
        });
        if self.by[at].1 < OF_ONE_CLIENT {
            self.by[at].1 += 1;
            self.add(now);
        }
    }
}

impl VerificationBreaker {
    /// Closed breakers; with `enabled` false they never open.
    pub fn new(enabled: bool) -> Self {
        let state = State {
            own: LruCache::with_hasher(REMEMBERED, RandomState::new()),
            hosts: LruCache::with_hasher(REMEMBERED, RandomState::new()),
            confirmed: ConfirmedHosts::new(),
        };
        Self { enabled, state: Arc::new(Mutex::new(state)) }
    }

    /// How much longer the breaker of the callback's host is open for this client; `None` if it is closed.
    pub(super) fn wait(
        &self,
        client: Option<IpAddr>,
        callback: &CallbackUrl,
        now: Instant,
    ) -> Option<Duration> {
        self.with(callback, |state, host| {
            let own = state.own.get(&(client, host.to_owned())).and_then(|failures| failures.wait(now));
            let has_confirmed = state.confirmed.contains(host);
            own.or_else(|| state.hosts.get(host).filter(|_| !has_confirmed)?.wait(now))
        })?
    }

    /// Somebody has confirmed at the callback's host.
    pub(super) fn confirmed(&self, client: Option<IpAddr>, callback: &CallbackUrl) {
        self.with(callback, |state, host| {
            state.own.pop(&(client, host.to_owned()));
            state.hosts.pop(host);
            state.confirmed.confirmed(client, host);
        });
    }

    /// A client sent a request about a subscription in force with this callback.
    pub(super) fn in_force(&self, client: Option<IpAddr>, callback: &CallbackUrl) {
        self.with(callback, |state, host| state.confirmed.in_force(client, host));
    }

    /// Whether the callback's host confirmed a request of this client since the start.
    pub(super) fn has_confirmed(&self, client: Option<IpAddr>, callback: &CallbackUrl) -> bool {
        self.with(callback, |state, host| state.confirmed.has_confirmed(client, host)).unwrap_or_default()
    }

    /// The callback refused a request of this client or could not be reached, or policy refused the request.
    pub(super) fn failed(&self, client: Option<IpAddr>, callback: &CallbackUrl, now: Instant) {
        self.with(callback, |state, host| {
            state.own.get_or_insert_mut((client, host.to_owned()), Failures::default).add(now);
            state.hosts.get_or_insert_mut_ref(host, Failures::default).add_of(client, now);
        });
    }

    fn with<T>(&self, callback: &CallbackUrl, work: impl FnOnce(&mut State, &str) -> T) -> Option<T> {
        let host = callback.url().host_str().unwrap_or_default();
        self.enabled.then(|| work(&mut lock(&self.state), host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callback(host: &str, path: u32) -> CallbackUrl {
        format!("http://{host}/{path}").parse().unwrap()
    }

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn fail(breaker: &VerificationBreaker, who: IpAddr, times: u32, now: Instant) {
        (0..times).for_each(|path| breaker.failed(Some(who), &callback("victim.example", path), now));
    }

    fn wait(breaker: &VerificationBreaker, who: IpAddr, now: Instant) -> Option<Duration> {
        breaker.wait(Some(who), &callback("victim.example", 99), now)
    }

    #[test]
    fn b33_the_breaker_of_a_host_that_never_confirms_opens_for_a_while() {
        let (breaker, now) = (VerificationBreaker::new(true), Instant::now());
        fail(&breaker, client(1), 19, now);
        assert_eq!(wait(&breaker, client(1), now), None);
        fail(&breaker, client(1), 1, now);
        assert_eq!(wait(&breaker, client(1), now), Some(OPEN_FOR));
        assert_eq!(breaker.wait(Some(client(1)), &callback("other.example", 99), now), None);
        assert_eq!(wait(&breaker, client(1), now + OPEN_FOR), None);
    }

    #[test]
    fn b33_one_stranger_locks_nobody_else_out_but_four_are_a_pattern() {
        let (breaker, now) = (VerificationBreaker::new(true), Instant::now());
        for who in 1..4 {
            fail(&breaker, client(who), 100, now);
        }
        assert_eq!(wait(&breaker, client(9), now), None);
        fail(&breaker, client(4), 5, now);
        assert_eq!(wait(&breaker, client(9), now), Some(OPEN_FOR));
    }

    #[test]
    fn b33_where_a_client_confirmed_strangers_open_the_breaker_only_for_themselves() {
        let (breaker, now) = (VerificationBreaker::new(true), Instant::now());
        breaker.confirmed(Some(client(9)), &callback("victim.example", 0));
        for who in 1..9 {
            fail(&breaker, client(who), 20, now);
            assert_eq!(wait(&breaker, client(who), now), Some(OPEN_FOR));
        }
        assert_eq!(wait(&breaker, client(9), now), None);
    }

    #[test]
    fn b33_who_has_confirmed_at_a_host_is_known_there_and_nobody_else_is() {
        let breaker = VerificationBreaker::new(true);
        breaker.confirmed(Some(client(1)), &callback("d.example", 0));
        breaker.confirmed(None, &callback("d.example", 1));
        let known = |who, host| breaker.has_confirmed(who, &callback(host, 2));
        assert!(known(Some(client(1)), "d.example"));
        assert!(!known(Some(client(2)), "d.example") && !known(None, "d.example"));
        assert!(!known(Some(client(1)), "other.example"));
    }

    #[test]
    fn the_breaker_of_a_host_that_confirms_now_and_then_stays_closed() {
        let (breaker, now) = (VerificationBreaker::new(true), Instant::now());
        for number in 0..100 {
            if number % 19 == 0 {
                breaker.confirmed(Some(client(1)), &callback("victim.example", number));
            }
            fail(&breaker, client(1), 1, now);
        }
        assert_eq!(wait(&breaker, client(1), now), None);
    }

    #[test]
    fn a_breaker_that_is_off_never_opens() {
        let (breaker, now) = (VerificationBreaker::new(false), Instant::now());
        fail(&breaker, client(1), 100, now);
        assert_eq!(wait(&breaker, client(1), now), None);
    }
}
