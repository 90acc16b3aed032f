//! Whose turn it is to be verified: a few at once for each origin, so that one slow host holds up nobody else, and only the
//! newest request of a pair, so that repeating a request does not multiply what a callback is asked (D-17, B-33).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resync_core::websub::CallbackUrl;

use crate::places::{Asker, Bounds, Place, Places, Share};
use crate::store::{PendingRequest, RequestId};

/// Verifications at once: over all origins, at slow ones, of one origin and for one client.
const ALL: Share = Share { most: 1_024, strangers: 768 };
const SLOW: usize = 256;
const OF_ONE_ORIGIN: Share = Share { most: 6, strangers: 4 };
const OF_ONE_CLIENT: Share = Share { most: 24, strangers: 8 };

/// The queues of all origins.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    places: Places,
    newest: Arc<Mutex<HashMap<Pair, RequestId>>>,
}

type Pair = (String, String);

impl Queues {
    /// With `by_client` no client has more than its share.
    pub(super) fn new(by_client: bool) -> Self {
        let client = by_client.then_some(OF_ONE_CLIENT);
        let places = Places::new(Bounds { all: ALL, slow: SLOW, here: OF_ONE_ORIGIN, client });
        Self { places, newest: Arc::default() }
    }

    /// From now on older requests of the same pair need not be asked about. Requests may come in another order than that in
    /// which they were stored, which is the one that counts.
    pub(super) fn newest(&self, request: &PendingRequest) {
        let mut books = self.books();
        let newest = books.entry(pair(request)).or_insert(request.id);
        *newest = request.id.max(*newest);
    }

    /// Waits for a place at the callback's origin.
    pub(super) async fn place(&self, asker: Asker, callback: &CallbackUrl) -> Place {
        self.places.place(asker, &callback.origin()).await
    }

    /// The request needs no further turn.
    pub(super) fn done(&self, request: &PendingRequest) {
        let pair = pair(request);
        let mut books = self.books();
        // Looked at and removed in one go: a newer request may come in at any moment.
        if books.get(&pair) == Some(&request.id) {
            books.remove(&pair);
        }
    }

    /// Whether no newer request of the same pair has come in.
    pub(super) fn is_newest(&self, request: &PendingRequest) -> bool {
        self.books().get(&pair(request)) == Some(&request.id)
    }

    fn books(&self) -> MutexGuard<'_, HashMap<Pair, RequestId>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(request: &PendingRequest) -> Pair {
    (request.topic.key().to_owned(), request.callback.key().to_owned())
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::store::Intent;

    fn request(id: u64) -> PendingRequest {
        PendingRequest {
            id: RequestId(id),
            topic: "http://source.example/framework/".parse().unwrap(),
            callback: "http://a.example/cb".parse().unwrap(),
            intent: Intent::Unsubscribe,
            received_at: DateTime::now(),
        }
    }

    #[test]
    fn d17_only_the_newest_request_of_a_pair_is_asked_about_and_nothing_is_remembered_of_what_is_done() {
        let queues = Queues::new(true);
        let (old, new) = (request(1), request(2));
        queues.newest(&old);
        queues.newest(&new);
        assert!(!queues.is_newest(&old) && queues.is_newest(&new));
        queues.newest(&old);
        assert!(queues.is_newest(&new), "an older one that comes in late changes nothing");
        queues.done(&old);
        assert!(queues.is_newest(&new));
        queues.done(&new);
        assert!(queues.books().is_empty());
    }
}
