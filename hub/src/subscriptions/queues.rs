//! Whose turn it is to be verified: a few at once for each origin, so that one slow host holds up nobody else, and only the
//! newest request of a pair, so that repeating a request does not multiply what a callback is asked (D-17, B-33).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::select_all;
use resync_core::websub::CallbackUrl;

use crate::places::{Asker, Bounds, Place, Places, Share, Slow};
use crate::store::{PendingRequest, RequestId};

/// Verifications at once: over all origins, at slow ones, of one origin and for one client.
const ALL: Share = Share { most: 1_024, strangers: 768 };
const SLOW: Slow = Slow { known: 128, strangers: 256 };
const OF_ONE_ORIGIN: Share = Share { most: 6, strangers: 4 };
pub(super) const OF_ONE_CLIENT: Share = Share { most: 24, strangers: 8 };
/// Clients by whose shares the newest request of a pair may be asked about.
const ASKERS: usize = 8;

/// The queues of all origins.
#[derive(Clone, Debug)]
pub(super) struct Queues {
    places: Places,
    newest: Arc<Mutex<HashMap<Pair, Newest>>>,
}

type Pair = (String, String);

#[derive(Debug)]
struct Newest {
    id: RequestId,
    /// Who has asked about the pair while something waits for it.
    askers: VecDeque<Asker>,
}

impl Queues {
    /// With `by_client` no client has more than its share.
    pub(super) fn new(by_client: bool) -> Self {
        let client = by_client.then_some(OF_ONE_CLIENT);
        let places = Places::new(Bounds { all: ALL, slow: SLOW, here: OF_ONE_ORIGIN, client });
        Self { places, newest: Arc::default() }
    }

    /// From now on older requests of the same pair need not be asked about. Requests may come in another order than that in
    /// which they were stored, which is the one that counts.
    pub(super) fn newest(&self, request: &PendingRequest, asker: Option<Asker>) {
        let mut books = self.books();
        let new = || Newest { id: request.id, askers: VecDeque::new() };
        let newest = books.entry(pair(request)).or_insert_with(new);
        newest.id = request.id.max(newest.id);
        newest.askers.retain(|other| Some(*other) != asker);
        newest.askers.extend(asker);
        if newest.askers.len() > ASKERS {
            newest.askers.pop_front();
        }
    }

    /// Waits for a place at the callback's origin: the first that one of those gets who have asked about the pair. So nobody can
    /// keep a pair waiting by asking about it with a full share.
    pub(super) async fn turn(&self, request: &PendingRequest, asker: Asker) -> Place {
        let mut askers = vec![asker];
        if let Some(newest) = self.books().get(&pair(request)) {
            askers.extend(newest.askers.iter().filter(|other| **other != asker));
        }
        let origin = request.callback.origin();
        let waits = askers.into_iter().map(|asker| Box::pin(self.places.place(asker, &origin)));
        let (place, _, _) = select_all(waits).await;
        place
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
        if books.get(&pair).is_some_and(|newest| newest.id == request.id) {
            books.remove(&pair);
        }
    }

    /// Whether no newer request of the same pair has come in.
    pub(super) fn is_newest(&self, request: &PendingRequest) -> bool {
        self.books().get(&pair(request)).is_some_and(|newest| newest.id == request.id)
    }

    fn books(&self) -> MutexGuard<'_, HashMap<Pair, Newest>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(request: &PendingRequest) -> Pair {
    (request.topic.key().to_owned(), request.callback.key().to_owned())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::places::Lane;
    use crate::store::Intent;

    fn request(id: u64) -> PendingRequest {
        PendingRequest {
            id: RequestId(id),
            topic: "http://source.example/framework/".parse().unwrap(),
            callback: "http://a.example/cb".parse().unwrap(),
            intent: Intent::Unsubscribe,
            client: None,
            received_at: DateTime::now(),
        }
    }

    #[test]
    fn d17_only_the_newest_request_of_a_pair_is_asked_about_and_nothing_is_remembered_of_what_is_done() {
        let queues = Queues::new(true);
        let (old, new) = (request(1), request(2));
        queues.newest(&old, None);
        queues.newest(&new, None);
        assert!(!queues.is_newest(&old) && queues.is_newest(&new));
        queues.newest(&old, None);
        assert!(queues.is_newest(&new), "an older one that comes in late changes nothing");
        queues.done(&old);
        assert!(queues.is_newest(&new));
        queues.done(&new);
        assert!(queues.books().is_empty());
    }

    #[test]
    fn b33_who_asks_in_a_subscribers_name_with_a_full_share_keeps_it_waiting_for_nothing() {
        let queues = Queues::new(true);
        let of = |last: u8| Asker { client: Some([192, 0, 2, last].into()), lane: Lane::Known };
        let mut tarpits = Vec::new();
        let mut tarpit = |number: usize| {
            let callback = format!("http://tarpit{number}.example/").parse().unwrap();
            queues.place(of(66), &callback).now_or_never().map(|place| tarpits.push(place)).is_some()
        };
        assert!((0..OF_ONE_CLIENT.most).all(&mut tarpit) && !tarpit(99));
        let (own, in_its_name) = (request(1), request(2));
        queues.newest(&own, Some(of(1)));
        (0..100).for_each(|_| queues.newest(&in_its_name, Some(of(66))));
        assert!(queues.turn(&in_its_name, of(66)).now_or_never().is_some());
        queues.done(&in_its_name);
        let alone = request(3);
        queues.newest(&alone, Some(of(66)));
        assert!(queues.turn(&alone, of(66)).now_or_never().is_none(), "with its own share it waits");
    }
}
