//! Turns at the disk: what a subscription has missed is searched for, one search at a time. Of one client one waits for its turn and
//! the others for that one, so that nobody waits for more than one search of each client, however many pages somebody asks for.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::buckets::network;

/// Whose turn it is.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    all: Arc<Semaphore>,
    /// Of those who have a turn or wait for one.
    clients: Arc<Mutex<HashMap<IpAddr, Weak<Semaphore>>>>,
}

/// A turn, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(1)), clients: Arc::default() }
    }

    /// This client's turn; `None` when that takes longer than the patience.
    pub(super) async fn take(&self, client: IpAddr, patience: Duration) -> Option<Turn> {
        let own = self.of(network(client));
        let turn = async {
            let own = own.acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(Turn { _own: own, _of_all: of_all })
        };
        timeout(patience, turn).await.ok()?
    }

    fn of(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clients.get(&client).and_then(Weak::upgrade) {
            return known;
        }
        clients.retain(|_, known| known.strong_count() > 0);
        let fresh = Arc::new(Semaphore::new(1));
        clients.insert(client, Arc::downgrade(&fresh));
        fresh
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn client(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[tokio::test]
    async fn nobody_waits_for_a_turn_without_end() {
        let turns = Turns::new();
        let first = turns.take(client(1), Duration::ZERO).await;
        assert!(first.is_some());
        assert!(turns.take(client(2), Duration::from_millis(1)).await.is_none());
        drop(first);
        assert!(turns.take(client(2), Duration::ZERO).await.is_some());
    }

    #[tokio::test]
    async fn who_asks_for_many_pages_holds_up_nobody_for_more_than_one() {
        let turns = Turns::new();
        let first = turns.take(client(1), PATIENCE).await;
        let mut many: Vec<_> = (0..10).map(|_| Box::pin(turns.take(client(1), PATIENCE))).collect();
        assert!(many.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut other = Box::pin(turns.take(client(2), PATIENCE));
        assert!((&mut other).now_or_never().is_none());
        drop(first);
        assert!(many.iter_mut().all(|one| one.now_or_never().is_none()), "the other one comes first");
        let other = other.now_or_never().flatten();
        assert!(other.is_some());
        drop(other);
        assert_eq!(many.iter_mut().filter_map(|one| one.now_or_never().flatten()).count(), 10, "one by one");
        drop(many);
        assert!(turns.take(client(3), PATIENCE).await.is_some());
        assert_eq!(turns.clients.lock().unwrap().len(), 1, "whoever is done is forgotten");
    }
}
