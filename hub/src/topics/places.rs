//! Whose turn it is to be asked for a topic: few at once, of one place on the network fewer still, and some of both are kept
//! for those who are known, so that requests by strangers neither knock at one host from all sides nor hold up publishers (B-33).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many may ask at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// In all.
    pub(super) all: Share,
    /// At one place on the network.
    pub(super) here: Share,
}

/// So many at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Whoever asks.
    pub(super) most: usize,
    /// For strangers.
    pub(super) strangers: usize,
}

/// On whose behalf a topic is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Somebody with a token for the topic.
    Known,
    /// Anybody.
    Stranger,
}

/// All places.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bounds: Bounds,
    all: Shared,
    here: Mutex<HashMap<String, Arc<Shared>>>,
}

#[derive(Debug)]
struct Shared {
    most: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

/// The right to ask now, until this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    key: String,
    own: Option<(Arc<Shared>, Permits)>,
    _all: Permits,
}

type Permits = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

impl Shared {
    fn new(share: Share) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { most: semaphore(share.most), strangers: semaphore(share.strangers) }
    }

    /// A stranger waits among strangers first, so that it takes nobody else's place meanwhile.
    async fn acquire(&self, lane: Lane) -> Option<Permits> {
        let strange = match lane {
            Lane::Stranger => Some(Arc::clone(&self.strangers).acquire_owned().await.ok()?),
            Lane::Known => None,
        };
        Some((Arc::clone(&self.most).acquire_owned().await.ok()?, strange))
    }
}

impl Places {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Inner { bounds, all: Shared::new(bounds.all), here: Mutex::default() }))
    }

    /// Waits for a place among those with this key; `None` only if the places were closed, which nobody does.
    pub(super) async fn place(&self, key: &str, lane: Lane) -> Option<Place> {
        let here = Arc::clone(
            self.here().entry(key.to_owned()).or_insert_with(|| Arc::new(Shared::new(self.0.bounds.here))),
        );
        let mut waiting = Waiting { places: self, key, here: Some(here) };
        // First its own: whoever waits for a slow host takes nobody else's place.
        let own = waiting.here.as_ref()?.acquire(lane).await?;
        let all = self.0.all.acquire(lane).await?;
        let here = waiting.here.take()?;
        Some(Place { places: self.clone(), key: key.to_owned(), own: Some((here, own)), _all: all })
    }

    /// Forgets a key that nobody needs but the books.
    fn leave(&self, key: &str, here: Arc<Shared>) {
        let mut books = self.here();
        drop(here);
        if books.get(key).is_some_and(|here| Arc::strong_count(here) == 1) {
            books.remove(key);
        }
    }

    fn here(&self) -> MutexGuard<'_, HashMap<String, Arc<Shared>>> {
        self.0.here.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who may give up waiting.
struct Waiting<'a> {
    places: &'a Places,
    key: &'a str,
    here: Option<Arc<Shared>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(here) = self.here.take() {
            self.places.leave(self.key, here);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((here, permits)) = self.own.take() {
            drop(permits);
            self.places.leave(&self.key, here);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn places() -> Places {
        Places::new(Bounds { all: Share { most: 5, strangers: 4 }, here: Share { most: 3, strangers: 2 } })
    }

    /// A place that is free.
    fn now(places: &Places, key: &str, lane: Lane) -> Option<Place> {
        places.place(key, lane).now_or_never().flatten()
    }

    #[tokio::test]
    async fn b33_a_slow_host_holds_up_nobody_else() {
        let places = places();
        let mut slow: Vec<_> = (0..2).filter_map(|_| now(&places, "slow", Lane::Stranger)).collect();
        let mut third = Box::pin(places.place("slow", Lane::Stranger));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(now(&places, "quick", Lane::Stranger).is_some());
        slow.pop();
        assert!(third.await.is_some());
    }

    #[test]
    fn strangers_leave_places_for_those_who_are_known_in_all_and_at_each_host() {
        let places = places();
        let take = |key| now(&places, key, Lane::Stranger);
        let _strangers: Vec<_> = ["a", "a", "b", "b"].into_iter().map(|key| take(key).unwrap()).collect();
        assert!(take("c").is_none() && take("a").is_none());
        let known = now(&places, "a", Lane::Known).unwrap();
        assert!(now(&places, "d", Lane::Known).is_none(), "that was the last");
        drop(known);
        assert!(now(&places, "d", Lane::Known).is_some());
    }

    #[test]
    fn b33_nothing_is_remembered_of_those_who_are_gone() {
        let places = places();
        let taken: Vec<_> =
            (0..4).map(|key| now(&places, &key.to_string(), Lane::Stranger).unwrap()).collect();
        assert!(now(&places, "in vain", Lane::Stranger).is_none());
        drop(taken);
        assert!(places.here().is_empty());
    }
}
