//! Limits the requests to each host: how many at the same time, with which pause between them, and none during a pause that the
//! host asks for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use resync_common::locks::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use url::{Origin, Url};

/// How many hosts are kept besides those with requests in progress. A Source may lead to any number of hosts that ask for pauses.
const MAX_HOSTS: usize = 1024;

#[derive(Debug)]
pub(super) struct HostLimits {
    per_host: usize,
    delay: Duration,
    hosts: Mutex<HashMap<Origin, Host>>,
}

#[derive(Clone, Debug)]
struct Host {
    permits: Arc<Semaphore>,
    next: Instant,
    /// The end of the pause that it asked for.
    paused_until: Instant,
}

/// Permits one request.
#[derive(Debug)]
pub(super) struct Permit {
    _permit: Option<OwnedSemaphorePermit>,
}

impl HostLimits {
    pub(super) fn new(per_host: usize, delay: Duration) -> Self {
        Self { per_host: per_host.max(1), delay, hosts: Mutex::default() }
    }

    /// Waits for a permit for the host of `url`, and for its turn.
    ///
    /// # Errors
    /// How much of the host's pause remains.
    pub(super) async fn take(&self, url: &Url) -> Result<Permit, Duration> {
        let permits = self.with_host(url, |host| Arc::clone(&host.permits));
        // The semaphore is never closed.
        let permit = permits.acquire_owned().await.ok();
        self.check_pause(url)?;
        if !self.delay.is_zero() {
            let start = self.with_host(url, |host| {
                let start = host.next.max(Instant::now());
                host.next = start + self.delay;
                start
            });
            tokio::time::sleep_until(start).await;
            self.check_pause(url)?;
        }
        Ok(Permit { _permit: permit })
    }

    /// The host asks for a pause.
    pub(super) fn pause(&self, url: &Url, time: Duration) {
        let until = Instant::now() + time;
        self.with_host(url, |host| host.paused_until = host.paused_until.max(until));
    }

    fn check_pause(&self, url: &Url) -> Result<(), Duration> {
        let left = self.with_host(url, |host| host.paused_until.saturating_duration_since(Instant::now()));
        if left.is_zero() { Ok(()) } else { Err(left) }
    }

    fn with_host<R>(&self, url: &Url, take: impl FnOnce(&mut Host) -> R) -> R {
        let mut hosts = lock(&self.hosts);
        let origin = url.origin();
        if hosts.len() >= MAX_HOSTS && !hosts.contains_key(&origin) {
            self.make_room(&mut hosts);
        }
        let new = || {
            let (permits, now) = (Arc::new(Semaphore::new(self.per_host)), Instant::now());
            Host { permits, next: now, paused_until: now }
        };
        take(hosts.entry(origin).or_insert_with(new))
    }

    /// Forgets hosts without requests and pauses; if that is not enough, the one with the shortest pause.
    fn make_room(&self, hosts: &mut HashMap<Origin, Host>) {
        let now = Instant::now();
        // A request that waits for a permit holds the semaphore too.
        let is_in_use = |host: &Host| {
            Arc::strong_count(&host.permits) > 1 || host.permits.available_permits() < self.per_host
        };
        let until = |host: &Host| host.next.max(host.paused_until);
        hosts.retain(|_, host| is_in_use(host) || until(host) > now);
        if hosts.len() >= MAX_HOSTS {
            let paused = hosts.iter().filter(|(_, host)| !is_in_use(host));
            let first = paused.min_by_key(|(_, host)| until(host)).map(|(origin, _)| origin.clone());
            first.map(|origin| hosts.remove(&origin));
        }
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
        let host_limits = HostLimits::new(8, Duration::from_secs(2));
        let begun = Instant::now();
        for _ in 0..4 {
            host_limits.take(&url("http://a.example/x")).await.unwrap();
        }
        assert_eq!(begun.elapsed(), Duration::from_secs(6));
        host_limits.take(&url("http://b.example/x")).await.unwrap();
        assert_eq!(begun.elapsed(), Duration::from_secs(6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_in_use_by_so_many_at_a_time_and_not_more() {
        let host_limits = HostLimits::new(2, Duration::ZERO);
        let first = host_limits.take(&url("http://a.example/1")).await.unwrap();
        let _second = host_limits.take(&url("http://a.example/2")).await.unwrap();
        let permit = url("http://a.example/3");
        let third = host_limits.take(&permit);
        tokio::pin!(third);
        assert!(tokio::time::timeout(Duration::from_secs(9), &mut third).await.is_err());
        drop(first);
        third.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn of_hosts_without_end_that_ask_to_be_left_alone_so_many_are_remembered() {
        let host_limits = HostLimits::new(1, Duration::ZERO);
        let busy = url("http://busy.example/");
        let _under_way = host_limits.take(&busy).await.unwrap();
        for number in 0..3_000_u32 {
            let host = url(&format!("http://{number}.a.example/"));
            host_limits.pause(&host, Duration::from_secs(3_600 + u64::from(number)));
        }
        let hosts = host_limits.hosts.lock().unwrap();
        assert_eq!(hosts.len(), MAX_HOSTS);
        assert!(hosts.contains_key(&busy.origin()), "who is being asked is not forgotten");
        assert!(hosts.contains_key(&url("http://2999.a.example/").origin()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_asks_to_be_left_alone_is_in_use_by_nobody_until_then() {
        let host_limits = HostLimits::new(1, Duration::ZERO);
        let (paused, other) = (url("http://a.example/x"), url("http://b.example/x"));
        let under_way = host_limits.take(&paused).await.unwrap();
        let waiting = host_limits.take(&paused);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_secs(1), &mut waiting).await.is_err());
        host_limits.pause(&paused, Duration::from_secs(60));
        host_limits.pause(&paused, Duration::from_secs(9));
        drop(under_way);
        assert_eq!(waiting.await.unwrap_err(), Duration::from_secs(60), "also who waited before");
        assert!(host_limits.take(&other).await.is_ok());
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(host_limits.take(&paused).await.is_ok());
    }
}
