//! Who may ask a host now: a bounded number at a time, one after another with a pause if that is asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use url::{Origin, Url};

/// How many hosts are remembered before those that nobody asks are forgotten.
const MAX_HOSTS: usize = 1024;

#[derive(Debug)]
pub(super) struct Turns {
    per_host: usize,
    delay: Duration,
    hosts: Mutex<HashMap<Origin, Host>>,
}

#[derive(Clone, Debug)]
struct Host {
    places: Arc<Semaphore>,
    next: Instant,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Turn {
    _place: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(super) fn new(per_host: usize, delay: Duration) -> Self {
        Self { per_host: per_host.max(1), delay, hosts: Mutex::default() }
    }

    /// Waits for a place at the host of `url`, and for its moment.
    pub(super) async fn take(&self, url: &Url) -> Turn {
        let places = Arc::clone(&self.with_host(url, |host| Arc::clone(&host.places)));
        // The semaphore is never closed.
        let place = places.acquire_owned().await.ok();
        if !self.delay.is_zero() {
            let moment = self.with_host(url, |host| {
                let moment = host.next.max(Instant::now());
                host.next = moment + self.delay;
                moment
            });
            tokio::time::sleep_until(moment).await;
        }
        Turn { _place: place }
    }

    fn with_host<R>(&self, url: &Url, take: impl FnOnce(&mut Host) -> R) -> R {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if hosts.len() >= MAX_HOSTS {
            let now = Instant::now();
            hosts.retain(|_, host| host.places.available_permits() < self.per_host || host.next > now);
        }
        let new = || Host { places: Arc::new(Semaphore::new(self.per_host)), next: Instant::now() };
        take(hosts.entry(url.origin()).or_insert_with(new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn requests_to_one_host_begin_one_pause_apart_and_to_another_at_once() {
        let turns = Turns::new(8, Duration::from_secs(2));
        let begun = Instant::now();
        for _ in 0..4 {
            turns.take(&url("http://a.example/x")).await;
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(6));
        turns.take(&url("http://b.example/x")).await;
        assert_eq!(begun.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_asked_by_so_many_at_a_time_and_not_more() {
        let turns = Turns::new(2, Duration::ZERO);
        let first = turns.take(&url("http://a.example/1")).await;
        let _second = turns.take(&url("http://a.example/2")).await;
        let place = url("http://a.example/3");
        let third = turns.take(&place);
        tokio::pin!(third);
        assert!(tokio::time::timeout(Duration::from_secs(9), &mut third).await.is_err());
        drop(first);
        third.await;
    }
}
