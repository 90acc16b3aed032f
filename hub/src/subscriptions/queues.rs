//! Whose turn it is to be verified: a few at once for each origin, so that one slow host holds up nobody else, and only the
//! newest request of a pair, so that repeating a request does not multiply what a callback is asked (D-17, B-33).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resync_core::websub::CallbackUrl;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::{PendingRequest, RequestId};

/// Verifications at once, over all origins.
const AT_ONCE: usize = 1_024;
/// Verifications at once of one origin.
const PER_ORIGIN: usize = 4;

/// The queues of all origins.
#[derive(Clone, Debug)]
pub(super) struct Queues(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Arc<Semaphore>,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    newest: HashMap<(String, String), RequestId>,
    origins: HashMap<String, Arc<Semaphore>>,
}

/// The right to ask now.
#[derive(Debug)]
pub(super) struct Turn {
    _origin: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Default for Queues {
    fn default() -> Self {
        Self(Arc::new(Inner { all: Arc::new(Semaphore::new(AT_ONCE)), books: Mutex::default() }))
    }
}

impl Queues {
    /// From now on older requests of the same pair need not be asked about. Requests may come in another order than that in
    /// which they were stored, which is the one that counts.
    pub(super) fn newest(&self, request: &PendingRequest) {
        let mut books = self.books();
        let newest = books.newest.entry(pair(request)).or_insert(request.id);
        *newest = request.id.max(*newest);
    }

    /// Waits for a place; `None` when a newer request of the same pair has come in.
    pub(super) async fn turn(&self, request: &PendingRequest) -> Option<Turn> {
        let turn = self.place(&request.callback).await?;
        self.is_newest(request).then_some(turn)
    }

    /// Waits for a place at the callback's origin.
    pub(super) async fn place(&self, callback: &CallbackUrl) -> Option<Turn> {
        let origin = callback.origin();
        let places = Arc::clone(
            self.books()
                .origins
                .entry(origin.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(PER_ORIGIN))),
        );
        let own = places.acquire_owned().await.ok()?;
        let all = Arc::clone(&self.0.all).acquire_owned().await.ok()?;
        self.sweep(&origin);
        Some(Turn { _origin: own, _all: all })
    }

    /// The request needs no further turn.
    pub(super) fn done(&self, request: &PendingRequest) {
        let pair = pair(request);
        let mut books = self.books();
        // Looked at and removed in one go: a newer request may come in at any moment.
        if books.newest.get(&pair) == Some(&request.id) {
            books.newest.remove(&pair);
        }
        drop(books);
        self.sweep(&request.callback.origin());
    }

    pub(super) fn is_newest(&self, request: &PendingRequest) -> bool {
        self.books().newest.get(&pair(request)) == Some(&request.id)
    }

    /// Forgets an origin that nobody waits for.
    fn sweep(&self, origin: &str) {
        let mut books = self.books();
        if books.origins.get(origin).is_some_and(|places| Arc::strong_count(places) == 1) {
            books.origins.remove(origin);
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(request: &PendingRequest) -> (String, String) {
    (request.topic.key().to_owned(), request.callback.key().to_owned())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::store::Intent;

    fn request(id: u64, callback: &str) -> PendingRequest {
        PendingRequest {
            id: RequestId(id),
            topic: "http://source.example/framework/".parse().unwrap(),
            callback: callback.parse().unwrap(),
            intent: Intent::Unsubscribe,
            received_at: DateTime::now(),
        }
    }

    #[tokio::test]
    async fn a_slow_origin_holds_up_nobody_else() {
        let queues = Queues::default();
        let mut turns = Vec::new();
        for id in 0..4 {
            let slow = request(id, &format!("http://slow.example/{id}"));
            queues.newest(&slow);
            turns.push(queues.turn(&slow).await.unwrap());
        }
        let (late, quick) = (request(8, "http://slow.example/8"), request(9, "http://quick.example/"));
        queues.newest(&late);
        queues.newest(&quick);
        let mut waiting = Box::pin(queues.turn(&late));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(queues.turn(&quick).await.is_some());
        turns.pop();
        assert!(waiting.await.is_some());
    }

    #[tokio::test]
    async fn d17_only_the_newest_request_of_a_pair_gets_a_turn() {
        let queues = Queues::default();
        let (old, new) = (request(1, "http://a.example/cb"), request(2, "http://a.example/cb"));
        queues.newest(&old);
        queues.newest(&new);
        assert!(queues.turn(&old).await.is_none());
        queues.newest(&old);
        assert!(queues.turn(&new).await.is_some(), "an older one that comes in late changes nothing");
    }

    #[tokio::test]
    async fn nothing_is_remembered_of_what_is_done() {
        let queues = Queues::default();
        for id in 0..100 {
            let request = request(id, &format!("http://host{id}.example/"));
            queues.newest(&request);
            drop(queues.turn(&request).await);
            queues.done(&request);
        }
        assert!(queues.books().newest.is_empty() && queues.books().origins.is_empty());
    }
}
