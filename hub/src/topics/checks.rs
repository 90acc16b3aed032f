//! Whose turn it is to be asked whether it names this hub: few topics at once, and of one host fewer still, so that requests
//! by strangers neither knock at one host from all sides nor take the memory that publishing needs (B-33).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Checks at once, over all hosts.
const AT_ONCE: usize = 32;
/// Checks at once of one host's topics.
const PER_HOST: usize = 2;

/// The checks of all hosts.
#[derive(Clone, Debug)]
pub(super) struct Checks(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The right to ask now, until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    checks: Checks,
    host: String,
    own: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl Default for Checks {
    fn default() -> Self {
        Self(Arc::new(Inner { all: Arc::new(Semaphore::new(AT_ONCE)), hosts: Mutex::default() }))
    }
}

impl Checks {
    /// Waits for a place at this host; `None` only if the places were closed, which nobody does.
    pub(super) async fn place(&self, host: &str) -> Option<Place> {
        let places = Arc::clone(
            self.hosts().entry(host.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(PER_HOST))),
        );
        // First the host's own: whoever waits for a slow host takes nobody else's place.
        let own = places.acquire_owned().await.ok()?;
        let all = Arc::clone(&self.0.all).acquire_owned().await.ok()?;
        Some(Place { checks: self.clone(), host: host.to_owned(), own: Some(own), _all: all })
    }

    fn hosts(&self) -> MutexGuard<'_, HashMap<String, Arc<Semaphore>>> {
        self.0.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    /// Forgets a host that nobody waits for.
    fn drop(&mut self) {
        drop(self.own.take());
        let mut hosts = self.checks.hosts();
        if hosts.get(&self.host).is_some_and(|places| Arc::strong_count(places) == 1) {
            hosts.remove(&self.host);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn b33_two_topics_of_a_host_are_asked_at_once_and_a_slow_host_holds_up_nobody_else() {
        let checks = Checks::default();
        let mut slow =
            vec![checks.place("slow.example").await.unwrap(), checks.place("slow.example").await.unwrap()];
        let mut third = Box::pin(checks.place("slow.example"));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(checks.place("quick.example").now_or_never().flatten().is_some());
        slow.pop();
        assert!(third.await.is_some());
    }

    #[tokio::test]
    async fn b33_thirty_two_topics_are_asked_at_once_and_nothing_is_remembered_of_them() {
        let checks = Checks::default();
        let mut places = Vec::new();
        for host in 0..AT_ONCE {
            places.push(checks.place(&format!("host{host}.example")).await.unwrap());
        }
        let mut late = Box::pin(checks.place("late.example"));
        assert!(late.as_mut().now_or_never().is_none());
        places.pop();
        drop(late.await);
        drop(places);
        assert!(checks.hosts().is_empty());
    }
}
