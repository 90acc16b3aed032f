//! Turns at the disk: what takes a search through many records is looked for one search at a time. Of one client one waits for its turn
//! and a few others for that one, so that nobody waits for more than one search of each client, however many somebody asks for and
//! however soon it hangs up.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use resync_core::address::customer;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::completion::run_to_completion;

/// Those of one client that have a turn or wait for one; of others nothing is kept.
const OF_ONE_CLIENT: usize = 16;

/// Whose turn it is.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    all: Arc<Semaphore>,
    /// Of those who have a turn or wait for one.
    clients: Arc<Mutex<HashMap<IpAddr, Weak<Own>>>>,
}

/// What one client has.
#[derive(Debug)]
struct Own {
    turn: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

/// Why somebody gets no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoTurn {
    /// As many as may wait of this client do so already.
    Crowded,
    /// Others take too long.
    Late,
}

/// A turn, until this is dropped.
#[derive(Debug)]
struct Turn {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
    _room: OwnedSemaphorePermit,
    _client: Arc<Own>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(1)), clients: Arc::default() }
    }

    /// Does this in the client's turn, which lasts as long: the disk does not stop searching for whoever hangs up, which drops the
    /// returned future.
    ///
    /// # Errors
    /// [`NoTurn::Late`] when the turn takes longer to come than the patience.
    pub(super) async fn during<T: Send + 'static>(
        &self,
        client: IpAddr,
        patience: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoTurn> {
        let turn = self.take(client, patience).await?;
        let worked = async move {
            let done = work.await;
            drop(turn);
            done
        };
        Ok(run_to_completion(worked).await)
    }

    async fn take(&self, client: IpAddr, patience: Duration) -> Result<Turn, NoTurn> {
        let client = self.of(customer(client));
        let room = Arc::clone(&client.room).try_acquire_owned().map_err(|_| NoTurn::Crowded)?;
        let turn = async {
            let own = Arc::clone(&client.turn).acquire_owned().await?;
            let of_all = Arc::clone(&self.all).acquire_owned().await?;
            Ok::<_, AcquireError>((own, of_all))
        };
        // No semaphore of this room is ever closed.
        let (own, of_all) = timeout(patience, turn).await.ok().and_then(Result::ok).ok_or(NoTurn::Late)?;
        Ok(Turn { _own: own, _of_all: of_all, _room: room, _client: client })
    }

    /// Whether somebody has the turn.
    #[cfg(test)]
    pub(super) fn is_taken(&self) -> bool {
        self.all.available_permits() == 0
    }

    fn of(&self, client: IpAddr) -> Arc<Own> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = clients.get(&client).and_then(Weak::upgrade) {
            return known;
        }
        clients.retain(|_, known| known.strong_count() > 0);
        let (turn, room) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(OF_ONE_CLIENT)));
        let fresh = Arc::new(Own { turn, room });
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
        let turns = Turns::new();
        let first = turns.take(client(1), Duration::ZERO).await;
        assert!(first.is_ok());
        assert_eq!(turns.take(client(2), Duration::from_millis(1)).await.err(), Some(NoTurn::Late));
        drop(first);
        assert!(turns.take(client(2), Duration::ZERO).await.is_ok());
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
        let other = other.now_or_never().and_then(Result::ok);
        assert!(other.is_some());
        drop(other);
        let by_one = many.iter_mut().filter_map(|one| one.now_or_never().and_then(Result::ok));
        assert_eq!(by_one.count(), 10, "one by one");
        drop(many);
        assert!(turns.take(client(3), PATIENCE).await.is_ok());
        assert_eq!(turns.clients.lock().unwrap().len(), 1, "whoever is done is forgotten");
    }

    #[tokio::test]
    async fn of_one_client_few_wait_and_the_others_are_told_at_once() {
        let turns = Turns::new();
        let mut many: Vec<_> =
            (0..OF_ONE_CLIENT).map(|_| Box::pin(turns.take(client(1), PATIENCE))).collect();
        let first = many[0].as_mut().now_or_never().unwrap();
        assert!(first.is_ok() && many[1..].iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(turns.take(client(1), PATIENCE).await.err(), Some(NoTurn::Crowded));
        assert!(turns.take(client(2), PATIENCE).now_or_never().is_none(), "another waits for one");
        drop(first);
        assert!(turns.take(client(2), PATIENCE).await.is_ok());
    }

    #[tokio::test]
    async fn whoever_hangs_up_has_its_turn_until_its_search_is_over() {
        let turns = Turns::new();
        let (go_on, held) = oneshot::channel::<()>();
        let mut first = Box::pin(turns.during(client(1), PATIENCE, held));
        assert!((&mut first).now_or_never().is_none());
        drop(first);
        let mut own = Box::pin(turns.during(client(1), PATIENCE, async { "own" }));
        let mut other = Box::pin(turns.during(client(2), PATIENCE, async { "other" }));
        for _ in 0..10 {
            tokio::task::yield_now().await;
            assert!((&mut own).now_or_never().is_none() && (&mut other).now_or_never().is_none());
        }
        go_on.send(()).unwrap();
        assert_eq!(tokio::join!(own, other), (Ok("own"), Ok("other")));
        assert!(!turns.is_taken());
    }

    #[tokio::test]
    async fn the_networks_of_an_ipv6_site_have_one_turn_together() {
        let turns = Turns::new();
        let of = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 1, network, 0, 0, 0, host]);
        let networks = 0..u16::try_from(OF_ONE_CLIENT).unwrap();
        let mut many: Vec<_> =
            networks.map(|network| Box::pin(turns.take(of(network, 1), PATIENCE))).collect();
        let first = many[0].as_mut().now_or_never();
        assert!(first.is_some() && many[1..].iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(turns.take(of(99, 2), PATIENCE).await.err(), Some(NoTurn::Crowded));
        let other_site = IpAddr::from([0x2001, 0xdb8, 2, 1, 0, 0, 0, 1]);
        assert!(turns.take(other_site, PATIENCE).now_or_never().is_none(), "another site waits for its turn");
    }
}
