//! Hosts that are left alone: where twenty verifications in a row have failed, the hub asks nobody for ten minutes, so that it
//! cannot be used to knock at a stranger's door (B-33).
//!
//! Whoever fails is left alone first: its own requests for that host rest, those of others do not. The host rests for all
//! only when several clients have failed there, and never when somebody has confirmed there before: one stranger must not be
//! able to lock others out.

use std::hash::RandomState;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_core::websub::CallbackUrl;

use super::acquaintances::Acquaintances;

/// So many failures in a row …
pub(super) const FAILURES: u32 = 20;
/// … of which one client counts for no more than so many where all clients are meant …
const OF_ONE_CLIENT: u32 = 5;
/// … and the host is left alone for so long.
const REST: Duration = Duration::from_secs(600);
/// Hosts and clients remembered of each kind; beyond that, those that have been quiet longest are forgotten.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(20_000).expect("twenty thousand is not zero");

/// The hosts that have failed of late, and those that have confirmed.
#[derive(Clone, Debug)]
pub struct Resting {
    enabled: bool,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug)]
struct Books {
    /// What one client has brought about at one host.
    own: LruCache<(Option<IpAddr>, String), Run, RandomState>,
    /// What all have.
    hosts: LruCache<String, Run, RandomState>,
    /// Where somebody has confirmed.
    known: Acquaintances,
}

/// Failures in a row.
#[derive(Clone, Debug, Default)]
struct Run {
    failures: u32,
    until: Option<Instant>,
    /// How many of them each client brought about.
    by: Vec<(Option<IpAddr>, u32)>,
}

impl Run {
    fn wait(&self, now: Instant) -> Option<Duration> {
        self.until?.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    fn count(&mut self, now: Instant) {
        self.failures += 1;
        if self.failures >= FAILURES {
            *self = Self { until: Some(now + REST), ..Self::default() };
        }
    }

    /// Counts no client's failures beyond its share.
    fn count_share(&mut self, client: Option<IpAddr>, now: Instant) {
        let at = self.by.iter().position(|(who, _)| *who == client).unwrap_or_else(|| {
            self.by.push((client, 0));
            self.by.len() - 1
        });
        if self.by[at].1 < OF_ONE_CLIENT {
            self.by[at].1 += 1;
            self.count(now);
        }
    }
}

impl Resting {
    /// Nobody rests yet; with `enabled` false nobody ever does.
    pub fn new(enabled: bool) -> Self {
        let books = Books {
            own: LruCache::with_hasher(REMEMBERED, RandomState::new()),
            hosts: LruCache::with_hasher(REMEMBERED, RandomState::new()),
            known: Acquaintances::new(),
        };
        Self { enabled, books: Arc::new(Mutex::new(books)) }
    }

    /// How much longer the callback's host is to be left alone by this client.
    pub(super) fn wait(
        &self,
        client: Option<IpAddr>,
        callback: &CallbackUrl,
        now: Instant,
    ) -> Option<Duration> {
        self.with(callback, |books, host| {
            let own = books.own.get(&(client, host.to_owned())).and_then(|run| run.wait(now));
            let is_known = books.known.knows(host);
            own.or_else(|| books.hosts.get(host).filter(|_| !is_known)?.wait(now))
        })?
    }

    /// Somebody has confirmed at the callback's host.
    pub(super) fn confirmed(&self, client: Option<IpAddr>, callback: &CallbackUrl) {
        self.with(callback, |books, host| {
            books.own.pop(&(client, host.to_owned()));
            books.hosts.pop(host);
            books.known.confirmed(client, host);
        });
    }

    /// There is a subscription in force with this callback, of which a client speaks.
    pub(super) fn in_force(&self, client: Option<IpAddr>, callback: &CallbackUrl) {
        self.with(callback, |books, host| books.known.in_force(client, host));
    }

    /// Whether something that this client has asked for at the callback's host was confirmed since the start.
    pub(super) fn has_confirmed(&self, client: Option<IpAddr>, callback: &CallbackUrl) -> bool {
        self.with(callback, |books, host| books.known.has_confirmed(client, host)).unwrap_or_default()
    }

    /// The callback has refused, could not be reached, or was asked for in vain.
    pub(super) fn failed(&self, client: Option<IpAddr>, callback: &CallbackUrl, now: Instant) {
        self.with(callback, |books, host| {
            books.own.get_or_insert_mut((client, host.to_owned()), Run::default).count(now);
            books.hosts.get_or_insert_mut_ref(host, Run::default).count_share(client, now);
        });
    }

    fn with<T>(&self, callback: &CallbackUrl, work: impl FnOnce(&mut Books, &str) -> T) -> Option<T> {
        let host = callback.url().host_str().unwrap_or_default();
        self.enabled.then(|| work(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner), host))
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

    fn fail(resting: &Resting, who: IpAddr, times: u32, now: Instant) {
        (0..times).for_each(|path| resting.failed(Some(who), &callback("victim.example", path), now));
    }

    fn wait(resting: &Resting, who: IpAddr, now: Instant) -> Option<Duration> {
        resting.wait(Some(who), &callback("victim.example", 99), now)
    }

    #[test]
    fn b33_a_host_that_never_confirms_is_left_alone_for_a_while() {
        let (resting, now) = (Resting::new(true), Instant::now());
        fail(&resting, client(1), 19, now);
        assert_eq!(wait(&resting, client(1), now), None);
        fail(&resting, client(1), 1, now);
        assert_eq!(wait(&resting, client(1), now), Some(REST));
        assert_eq!(resting.wait(Some(client(1)), &callback("other.example", 99), now), None);
        assert_eq!(wait(&resting, client(1), now + REST), None);
    }

    #[test]
    fn b33_one_stranger_locks_nobody_else_out_but_four_are_a_pattern() {
        let (resting, now) = (Resting::new(true), Instant::now());
        for who in 1..4 {
            fail(&resting, client(who), 100, now);
        }
        assert_eq!(wait(&resting, client(9), now), None);
        fail(&resting, client(4), 5, now);
        assert_eq!(wait(&resting, client(9), now), Some(REST));
    }

    #[test]
    fn b33_where_somebody_has_confirmed_strangers_make_only_themselves_rest() {
        let (resting, now) = (Resting::new(true), Instant::now());
        resting.confirmed(Some(client(9)), &callback("victim.example", 0));
        for who in 1..9 {
            fail(&resting, client(who), 20, now);
            assert_eq!(wait(&resting, client(who), now), Some(REST));
        }
        assert_eq!(wait(&resting, client(9), now), None);
    }

    #[test]
    fn b33_who_has_confirmed_at_a_host_is_known_there_and_nobody_else_is() {
        let resting = Resting::new(true);
        resting.confirmed(Some(client(1)), &callback("d.example", 0));
        resting.confirmed(None, &callback("d.example", 1));
        let known = |who, host| resting.has_confirmed(who, &callback(host, 2));
        assert!(known(Some(client(1)), "d.example"));
        assert!(!known(Some(client(2)), "d.example") && !known(None, "d.example"));
        assert!(!known(Some(client(1)), "other.example"));
    }

    #[test]
    fn a_host_that_confirms_now_and_then_is_not_left_alone() {
        let (resting, now) = (Resting::new(true), Instant::now());
        for number in 0..100 {
            if number % 19 == 0 {
                resting.confirmed(Some(client(1)), &callback("victim.example", number));
            }
            fail(&resting, client(1), 1, now);
        }
        assert_eq!(wait(&resting, client(1), now), None);
    }

    #[test]
    fn where_it_is_off_nobody_is_left_alone() {
        let (resting, now) = (Resting::new(false), Instant::now());
        fail(&resting, client(1), 100, now);
        assert_eq!(wait(&resting, client(1), now), None);
    }
}
