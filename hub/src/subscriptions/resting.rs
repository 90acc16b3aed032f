//! Hosts that are left alone: where twenty verifications in a row have failed, the hub asks nobody for ten minutes, so that it
//! cannot be used to knock at a stranger's door (B-33).

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_core::websub::CallbackUrl;

/// So many failures in a row …
pub(super) const FAILURES: u32 = 20;
/// … and the host is left alone for so long.
const REST: Duration = Duration::from_secs(600);
/// Hosts remembered; beyond that, those that have been quiet longest are forgotten.
const HOSTS: NonZeroUsize = NonZeroUsize::new(10_000).expect("ten thousand is not zero");

/// The hosts that have failed of late.
#[derive(Clone, Debug)]
pub struct Resting(Option<Arc<Mutex<LruCache<String, Host>>>>);

#[derive(Clone, Copy, Debug, Default)]
struct Host {
    failures: u32,
    until: Option<Instant>,
}

impl Resting {
    /// Nobody rests yet; with `enabled` false nobody ever does.
    pub fn new(enabled: bool) -> Self {
        Self(enabled.then(|| Arc::new(Mutex::new(LruCache::new(HOSTS)))))
    }

    /// How much longer the callback's host is to be left alone.
    pub(super) fn wait(&self, callback: &CallbackUrl, now: Instant) -> Option<Duration> {
        self.with(callback, |host| host.until?.checked_duration_since(now).filter(|wait| !wait.is_zero()))?
    }

    /// The callback has confirmed: its host is well.
    pub(super) fn confirmed(&self, callback: &CallbackUrl) {
        self.with(callback, |host| *host = Host::default());
    }

    /// The callback has refused, or could not be reached.
    pub(super) fn failed(&self, callback: &CallbackUrl, now: Instant) {
        self.with(callback, |host| {
            host.failures += 1;
            if host.failures >= FAILURES {
                *host = Host { failures: 0, until: Some(now + REST) };
            }
        });
    }

    fn with<T>(&self, callback: &CallbackUrl, change: impl FnOnce(&mut Host) -> T) -> Option<T> {
        let mut hosts = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        let host = callback.url().host_str().unwrap_or_default();
        Some(change(hosts.get_or_insert_mut_ref(host, Host::default)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callback(host: &str, path: u32) -> CallbackUrl {
        format!("http://{host}/{path}").parse().unwrap()
    }

    #[test]
    fn b33_a_host_that_never_confirms_is_left_alone_for_a_while() {
        let (resting, now) = (Resting::new(true), Instant::now());
        for path in 0..20 {
            assert_eq!(resting.wait(&callback("victim.example", path), now), None);
            resting.failed(&callback("victim.example", path), now);
        }
        assert_eq!(resting.wait(&callback("victim.example", 99), now), Some(REST));
        assert_eq!(resting.wait(&callback("other.example", 99), now), None);
        assert_eq!(resting.wait(&callback("victim.example", 99), now + REST), None);
    }

    #[test]
    fn a_host_that_confirms_now_and_then_is_not_left_alone() {
        let (resting, now) = (Resting::new(true), Instant::now());
        for number in 0..100 {
            if number % 19 == 0 {
                resting.confirmed(&callback("busy.example", number));
            }
            resting.failed(&callback("busy.example", number), now);
        }
        assert_eq!(resting.wait(&callback("busy.example", 0), now), None);
    }

    #[test]
    fn where_it_is_off_nobody_is_left_alone() {
        let (resting, now) = (Resting::new(false), Instant::now());
        (0..100).for_each(|path| resting.failed(&callback("victim.example", path), now));
        assert_eq!(resting.wait(&callback("victim.example", 0), now), None);
    }
}
