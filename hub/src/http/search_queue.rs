//! A queue for requests that search many records: one search at a time uses the disk. Each client has one search in this queue, and
//! its others wait for that one. So nobody waits for more than one search of each other client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use resync_common::locks::lock;
use resync_core::address::customer;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::completion::run_to_completion;

/// Requests of one client that are searching or waiting.
const OF_ONE_CLIENT: usize = 16;

/// The queue. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct SearchQueue {
    all: Arc<Semaphore>,
    /// Clients with requests that are searching or waiting.
    clients: Arc<Mutex<HashMap<IpAddr, Weak<OfClient>>>>,
}

/// The limits of one client.
#[derive(Debug)]
struct OfClient {
    granted: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

/// Why a request does not search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotGranted {
    /// Too many requests of this client are waiting.
    TooMany,
    /// Other searches take too long.
    TimedOut,
}

/// The right to search, until this is dropped.
#[derive(Debug)]
struct Granted {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
    _client: Arc<OfClient>,
}

impl SearchQueue {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(1)), clients: Arc::default() }
    }

    /// Does this when it is the client's turn. The turn lasts until the work is done, also if the client hangs up, which drops the
    /// returned future: the disk does not stop searching.
    ///
    /// # Errors
    /// [`NotGranted`].
    pub(super) async fn during<T: Send + 'static>(
        &self,
        client: IpAddr,
        patience: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NotGranted> {
        let granted = self.take(client, patience).await?;
        let worked = async move {
            let done = work.await;
            drop(granted);
            done
        };
        Ok(run_to_completion(worked).await)
    }

    async fn take(&self, client: IpAddr, patience: Duration) -> Result<Granted, NotGranted> {
        let client = self.of(customer(client));
        let room = Arc::clone(&client.room).try_acquire_owned().map_err(|_| NotGranted::TooMany)?;
        let granted = async {
            let own = Arc::clone(&client.granted).acquire_owned().await?;
            let of_all = Arc::clone(&self.all).acquire_owned().await?;
            Ok::<_, AcquireError>((own, of_all))
        };
        // These semaphores are never closed.
        let (own, of_all) =
            timeout(patience, granted).await.ok().and_then(Result::ok).ok_or(NotGranted::TimedOut)?;
        Ok(Granted { _own: own, _of_all: of_all, _room: room, _client: client })
    }

    /// Whether somebody is searching.
    #[cfg(test)]
    pub(super) fn is_taken(&self) -> bool {
        self.all.available_permits() == 0
    }

    fn of(&self, client: IpAddr) -> Arc<OfClient> {
        let mut clients = lock(&self.clients);
        if let Some(known) = clients.get(&client).and_then(Weak::upgrade) {
            return known;
        }
        clients.retain(|_, known| known.strong_count() > 0);
        let (granted, room) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(OF_ONE_CLIENT)));
        let fresh = Arc::new(OfClient { granted, room });
        clients.insert(client, Arc::downgrade(&fresh));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[tokio::test]
    async fn nobody_waits_for_a_turn_without_end() {
        let searches = SearchQueue::new();
        let first = searches.take(client(1), Duration::ZERO).await;
        assert!(first.is_ok());
        assert_eq!(
            searches.take(client(2), Duration::from_millis(1)).await.err(),
            Some(NotGranted::TimedOut)
        );
        drop(first);
        assert!(searches.take(client(2), Duration::ZERO).await.is_ok());
    }

    #[tokio::test]
    async fn who_asks_for_many_pages_holds_up_nobody_for_more_than_one() {
        let searches = SearchQueue::new();
        let first = searches.take(client(1), PATIENCE).await;
        let mut many: Vec<_> = (0..10).map(|_| Box::pin(searches.take(client(1), PATIENCE))).collect();
        assert!(many.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut other = Box::pin(searches.take(client(2), PATIENCE));
        assert!((&mut other).now_or_never().is_none());
        drop(first);
        assert!(many.iter_mut().all(|one| one.now_or_never().is_none()), "the other one comes first");
        let other = other.now_or_never().and_then(Result::ok);
        assert!(other.is_some());
        drop(other);
        let by_one = many.iter_mut().filter_map(|one| one.now_or_never().and_then(Result::ok));
        assert_eq!(by_one.count(), 10, "one by one");
        drop(many);
        assert!(searches.take(client(3), PATIENCE).await.is_ok());
        assert_eq!(searches.clients.lock().unwrap().len(), 1, "whoever is done is forgotten");
    }

    #[tokio::test]
    async fn of_one_client_few_wait_and_the_others_are_told_at_once() {
        let searches = SearchQueue::new();
        let mut many: Vec<_> =
            (0..OF_ONE_CLIENT).map(|_| Box::pin(searches.take(client(1), PATIENCE))).collect();
        let first = many[0].as_mut().now_or_never().unwrap();
        assert!(first.is_ok() && many[1..].iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(searches.take(client(1), PATIENCE).await.err(), Some(NotGranted::TooMany));
        assert!(searches.take(client(2), PATIENCE).now_or_never().is_none(), "another waits for one");
        drop(first);
        assert!(searches.take(client(2), PATIENCE).await.is_ok());
    }

    #[tokio::test]
    async fn a_client_that_hangs_up_has_its_turn_until_its_search_is_over() {
        let searches = SearchQueue::new();
        let (go_on, held) = oneshot::channel::<()>();
        let mut first = Box::pin(searches.during(client(1), PATIENCE, held));
        assert!((&mut first).now_or_never().is_none());
        drop(first);
        let mut own = Box::pin(searches.during(client(1), PATIENCE, async { "own" }));
        let mut other = Box::pin(searches.during(client(2), PATIENCE, async { "other" }));
        for _ in 0..10 {
            tokio::task::yield_now().await;
            assert!((&mut own).now_or_never().is_none() && (&mut other).now_or_never().is_none());
        }
        go_on.send(()).unwrap();
        assert_eq!(tokio::join!(own, other), (Ok("own"), Ok("other")));
        assert!(!searches.is_taken());
    }

    #[tokio::test]
    async fn the_networks_of_an_ipv6_site_have_one_turn_together() {
        let searches = SearchQueue::new();
        let of = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 1, network, 0, 0, 0, host]);
        let networks = 0..u16::try_from(OF_ONE_CLIENT).unwrap();
        let mut many: Vec<_> =
            networks.map(|network| Box::pin(searches.take(of(network, 1), PATIENCE))).collect();
        let first = many[0].as_mut().now_or_never();
        assert!(first.is_some() && many[1..].iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(searches.take(of(99, 2), PATIENCE).await.err(), Some(NotGranted::TooMany));
        let other_site = IpAddr::from([0x2001, 0xdb8, 2, 1, 0, 0, 0, 1]);
        assert!(
            searches.take(other_site, PATIENCE).now_or_never().is_none(),
            "another site waits for its turn"
        );
    }
}
