//! Whose turn it is to have the hub ask somebody: few at once, fewer of one place on the network, fewer for one client.
//!
//! Some of each are kept for those whom the hub knows, so that strangers hold up no subscription in force and no publisher
//! with a token. To be known takes one confirmation, so both kinds share few where the hub was last made to wait in vain (B-33).

use std::collections::HashMap;
use std::hash::{Hash, RandomState};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::buckets::site;

/// A place where the hub waited in vain counts as slow for so long.
const SLOW_FOR: Duration = Duration::from_secs(600);
/// Clients of one IPv6 site, each with a network of its own, that have a full share together.
const CLIENTS_OF_ONE_SITE: usize = 4;
/// Slow places remembered; beyond that, those that were slow longest ago are forgotten.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(20_000).expect("twenty thousand is not zero");

/// How many may ask at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// In all.
    pub(crate) all: Share,
    /// Among them, those who ask where the hub last waited in vain.
    pub(crate) slow: Slow,
    /// At one place on the network.
    pub(crate) here: Share,
    /// For one client; `None` where limits are off.
    pub(crate) client: Option<Share>,
}

/// So many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Whoever asks.
    pub(crate) most: usize,
    /// For strangers.
    pub(crate) strangers: usize,
}

/// So many at once of each kind, which take nothing from each other. Where the known ones take less than strangers leave of all,
/// those who are known and quick always have some.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slow {
    /// For those whom the hub knows.
    pub(crate) known: usize,
    /// For strangers.
    pub(crate) strangers: usize,
}

/// On whose behalf somebody is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The client's network; `None` is nobody in particular, as after a restart.
    pub client: Option<IpAddr>,
    /// How well the hub knows it.
    pub lane: Lane,
}

/// Those who need not queue behind strangers, and the strangers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Somebody about a subscription in force, who has confirmed before, or with a token.
    Known,
    /// Anybody.
    Stranger,
}

/// All places.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bounds: Bounds,
    all: Shared,
    slow: [Arc<Semaphore>; 2],
    shares: Mutex<HashMap<Key, Arc<Shared>>>,
    slow_of_late: Mutex<LruCache<Key, Instant, RandomState>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Client(IpAddr),
    Site(IpAddr),
    Here(String),
}

#[derive(Debug)]
struct Shared {
    most: Arc<Semaphore>,
    strangers: Arc<Semaphore>,
}

/// The right to ask now, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    asker: Asker,
    all: Option<InAll>,
    here: Option<Seat>,
    client: Vec<Seat>,
}

type Permits = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);
type InAll = (Permits, Option<OwnedSemaphorePermit>);

/// A share of what one client or its site, or one place on the network, has. The permits go first.
#[derive(Debug)]
struct Seat {
    _permits: Permits,
    entry: Entry,
}

/// A line in the books, which goes with the last one who needs it.
#[derive(Debug)]
struct Entry {
    places: Places,
    key: Key,
    shared: Arc<Shared>,
}

impl Share {
    fn times(self, factor: usize) -> Self {
        Self { most: self.most * factor, strangers: self.strangers * factor }
    }
}

impl Shared {
    fn new(share: Share) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { most: semaphore(share.most), strangers: semaphore(share.strangers) }
    }

    /// A stranger waits among strangers first, so that it takes nobody else's place meanwhile.
    async fn acquire(&self, lane: Lane) -> Permits {
        let strange = match lane {
            Lane::Stranger => Some(permit(&self.strangers).await),
            Lane::Known => None,
        };
        (permit(&self.most).await, strange)
    }

    fn try_acquire(&self, lane: Lane) -> Option<Permits> {
        let strange = match lane {
            Lane::Stranger => Some(Arc::clone(&self.strangers).try_acquire_owned().ok()?),
            Lane::Known => None,
        };
        Some((Arc::clone(&self.most).try_acquire_owned().ok()?, strange))
    }
}

async fn permit(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(semaphore).acquire_owned().await.expect("no semaphore of this room is ever closed")
}

impl Places {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Inner {
            bounds,
            all: Shared::new(bounds.all),
            slow: [bounds.slow.known, bounds.slow.strangers].map(|permits| Arc::new(Semaphore::new(permits))),
            shares: Mutex::default(),
            slow_of_late: Mutex::new(LruCache::with_hasher(REMEMBERED, RandomState::new())),
        }))
    }

    /// Waits for a place to ask somebody `here`. Who waits for its own client's others, or for a slow host, takes nobody else's
    /// place.
    pub(crate) async fn place(&self, asker: Asker, here: &str) -> Place {
        let mut place = Place { places: self.clone(), asker, all: None, here: None, client: Vec::new() };
        for entry in self.client_entries(asker) {
            place.client.push(entry.seat(asker.lane).await);
        }
        place.move_to(here).await;
        place
    }

    /// A place that is free now.
    pub(crate) fn try_place(&self, asker: Asker, here: &str) -> Option<Place> {
        let client =
            self.client_entries(asker).map(|entry| entry.try_seat(asker.lane)).collect::<Option<_>>()?;
        let here = self.entry(Key::Here(here.to_owned())).try_seat(asker.lane)?;
        let all = (self.0.all.try_acquire(asker.lane)?, None);
        Some(Place { places: self.clone(), asker, all: Some(all), here: Some(here), client })
    }

    /// The client's own first, so that it waits for its site with nothing of anybody else's.
    fn client_entries(&self, asker: Asker) -> impl Iterator<Item = Entry> {
        let client = self.0.bounds.client.and(asker.client);
        let keys = [client.map(Key::Client), client.and_then(site).map(Key::Site)];
        keys.into_iter().flatten().map(|key| self.entry(key))
    }

    fn entry(&self, key: Key) -> Entry {
        let bounds = self.0.bounds;
        let of_client = bounds.client.unwrap_or(bounds.all);
        let share = match key {
            Key::Client(_) => of_client,
            Key::Site(_) => of_client.times(CLIENTS_OF_ONE_SITE),
            Key::Here(_) => bounds.here,
        };
        let shared =
            Arc::clone(self.shares().entry(key.clone()).or_insert_with(|| Arc::new(Shared::new(share))));
        Entry { places: self.clone(), key, shared }
    }

    async fn among_all(&self, lane: Lane, slow: bool) -> InAll {
        let [known, strangers] = &self.0.slow;
        let slow = match lane {
            _ if !slow => None,
            Lane::Known => Some(permit(known).await),
            Lane::Stranger => Some(permit(strangers).await),
        };
        (self.0.all.acquire(lane).await, slow)
    }

    fn shares(&self) -> MutexGuard<'_, HashMap<Key, Arc<Shared>>> {
        self.0.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slow_of_late(&self) -> MutexGuard<'_, LruCache<Key, Instant, RandomState>> {
        self.0.slow_of_late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Goes on `here`: with the place that it has where that is the same, else when it is its turn there.
    pub(crate) async fn move_to(&mut self, here: &str) {
        if self.all.is_some() && self.here() == Some(here) {
            return;
        }
        (self.all, self.here) = (None, None);
        self.here = Some(self.places.entry(Key::Here(here.to_owned())).seat(self.asker.lane).await);
        self.all = Some(self.places.among_all(self.asker.lane, self.is_slow()).await);
    }

    /// Lets others go first for so long, and waits for its turn again. What its client and this place on the network have is
    /// kept, so that nobody gets further by asking for more.
    pub(crate) async fn step_aside(&mut self, pause: Duration) {
        self.all = None;
        sleep(pause).await;
        self.all = Some(self.places.among_all(self.asker.lane, self.is_slow()).await);
    }

    /// Remembers whether the hub waited here in vain.
    pub(crate) fn note_slow(&self, slow: bool) {
        let Some(here) = &self.here else { return };
        let mut slow_of_late = self.places.slow_of_late();
        if slow {
            slow_of_late.put(here.entry.key.clone(), Instant::now());
        } else {
            slow_of_late.pop(&here.entry.key);
        }
    }

    /// Remembers that this client had the hub wait in vain, wherever that was: a host has any number of names. Only time mends
    /// that, since whoever has the hub wait can also have it answered.
    pub(crate) fn note_slow_client(&self) {
        let mut slow_of_late = self.places.slow_of_late();
        for seat in &self.client {
            slow_of_late.put(seat.entry.key.clone(), Instant::now());
        }
    }

    /// Whether the hub waited in vain of late, here or for this client.
    pub(crate) fn is_slow(&self) -> bool {
        let slow_of_late = self.places.slow_of_late();
        let keys = self.client.iter().chain(&self.here).map(|seat| &seat.entry.key);
        keys.filter_map(|key| slow_of_late.peek(key)).any(|since| since.elapsed() < SLOW_FOR)
    }

    fn here(&self) -> Option<&str> {
        match &self.here.as_ref()?.entry.key {
            Key::Here(here) => Some(here),
            Key::Client(_) | Key::Site(_) => None,
        }
    }
}

impl Entry {
    async fn seat(self, lane: Lane) -> Seat {
        Seat { _permits: self.shared.acquire(lane).await, entry: self }
    }

    fn try_seat(self, lane: Lane) -> Option<Seat> {
        let permits = self.shared.try_acquire(lane)?;
        Some(Seat { _permits: permits, entry: self })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut shares = self.places.shares();
        // Two: the books and this. A permit counts for nobody, it holds its semaphore only.
        if shares.get(&self.key).is_some_and(|shared| Arc::strong_count(shared) == 2) {
            shares.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const STRANGER: Asker = Asker { client: None, lane: Lane::Stranger };
    const KNOWN: Asker = Asker { client: None, lane: Lane::Known };

    fn places() -> Places {
        let share = |most, strangers| Share { most, strangers };
        let slow = Slow { known: 1, strangers: 1 };
        Places::new(Bounds { all: share(5, 4), slow, here: share(3, 2), client: Some(share(2, 1)) })
    }

    fn of(last: u8, lane: Lane) -> Asker {
        Asker { client: Some(IpAddr::from([192, 0, 2, last])), lane }
    }

    /// A place that is free.
    fn now(places: &Places, here: &str, asker: Asker) -> Option<Place> {
        places.place(asker, here).now_or_never()
    }

    #[tokio::test]
    async fn b33_a_slow_host_holds_up_nobody_else() {
        let places = places();
        let mut slow: Vec<_> = (0..2).filter_map(|_| now(&places, "slow", STRANGER)).collect();
        let mut third = Box::pin(places.place(STRANGER, "slow"));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(now(&places, "quick", STRANGER).is_some());
        slow.pop();
        third.await;
    }

    #[test]
    fn b33_strangers_leave_places_for_those_who_are_known_in_all_and_at_each_host() {
        for take in [now, |places: &Places, here: &str, asker| places.try_place(asker, here)] {
            let places = places();
            let _strangers: Vec<_> =
                ["a", "a", "b", "b"].into_iter().map(|here| take(&places, here, STRANGER).unwrap()).collect();
            assert!(take(&places, "c", STRANGER).is_none() && take(&places, "a", STRANGER).is_none());
            let known = take(&places, "a", KNOWN).unwrap();
            assert!(take(&places, "d", KNOWN).is_none(), "that was the last");
            drop(known);
            assert!(take(&places, "d", KNOWN).is_some());
        }
    }

    #[test]
    fn b33_one_client_takes_its_share_and_leaves_the_others_theirs() {
        for take in [now, |places: &Places, here: &str, asker| places.try_place(asker, here)] {
            let places = places();
            let _own = take(&places, "a", of(1, Lane::Stranger)).unwrap();
            assert!(take(&places, "b", of(1, Lane::Stranger)).is_none());
            assert!(take(&places, "b", of(2, Lane::Stranger)).is_some());
            let _renewal = take(&places, "b", of(1, Lane::Known)).unwrap();
            assert!(take(&places, "b", of(1, Lane::Known)).is_none(), "known clients have a share too");
        }
    }

    #[test]
    fn b33_the_networks_of_one_site_share_what_a_few_clients_have() {
        for take in [now, |places: &Places, here: &str, asker| places.try_place(asker, here)] {
            let places = Places::new(Bounds {
                all: Share { most: 99, strangers: 99 },
                here: Share { most: 99, strangers: 99 },
                ..places().0.bounds
            });
            let at = |site: u16, network: u16| Asker {
                client: Some(IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 0])),
                lane: Lane::Stranger,
            };
            let networks = 0..u16::try_from(CLIENTS_OF_ONE_SITE).unwrap();
            let taken: Vec<_> = networks.map(|network| take(&places, "a", at(1, network)).unwrap()).collect();
            assert!(take(&places, "a", at(1, 99)).is_none());
            assert!(
                take(&places, "a", at(2, 99)).is_some()
                    && take(&places, "a", of(1, Lane::Stranger)).is_some()
            );
            drop(taken);
            assert!(take(&places, "a", at(1, 99)).is_some());
        }
    }

    #[test]
    fn b33_who_is_known_shares_few_places_where_the_hub_waited_in_vain_and_leaves_those_of_strangers() {
        let places = places();
        now(&places, "tarpit", KNOWN).unwrap().note_slow(true);
        let _first = now(&places, "tarpit", KNOWN).unwrap();
        assert!(now(&places, "tarpit", KNOWN).is_none());
        assert!(now(&places, "quick", KNOWN).is_some() && now(&places, "tarpit", STRANGER).is_some());
    }

    #[test]
    fn b33_who_had_the_hub_wait_in_vain_shares_few_places_under_whatever_new_name() {
        let places = places();
        now(&places, "one", of(1, Lane::Known)).unwrap().note_slow_client();
        now(&places, "quick", of(1, Lane::Known)).unwrap().note_slow(false);
        let _two = now(&places, "two", of(1, Lane::Known)).unwrap();
        assert!(now(&places, "three", of(1, Lane::Known)).is_none());
        assert!(now(&places, "one", of(2, Lane::Known)).is_some(), "it was the client's doing");
    }

    #[test]
    fn b33_where_the_hub_waited_in_vain_strangers_share_few_places_until_it_is_quick_again() {
        let places = places();
        for here in ["tarpit", "swamp"] {
            let place = now(&places, here, STRANGER).unwrap();
            place.note_slow(true);
            assert!(place.is_slow());
        }
        let first = now(&places, "tarpit", STRANGER).unwrap();
        assert!(now(&places, "swamp", STRANGER).is_none(), "whatever it is called");
        assert!(now(&places, "swamp", KNOWN).is_some() && now(&places, "quick", STRANGER).is_some());
        drop(first);
        let second = now(&places, "swamp", STRANGER).unwrap();
        second.note_slow(false);
        assert!(now(&places, "tarpit", STRANGER).is_none());
        assert!(now(&places, "swamp", STRANGER).is_some(), "it was quick");
    }

    #[tokio::test]
    async fn b33_who_is_sent_elsewhere_needs_a_place_there_and_leaves_its_own() {
        let places = places();
        let _others: Vec<_> = (0..2).map(|_| now(&places, "victim", STRANGER).unwrap()).collect();
        let mut sent = now(&places, "start", STRANGER).unwrap();
        let _beside = now(&places, "start", STRANGER).unwrap();
        assert!(sent.move_to("victim").now_or_never().is_none());
        assert!(now(&places, "start", STRANGER).is_some(), "it has left");
    }

    #[tokio::test(start_paused = true)]
    async fn who_steps_aside_keeps_only_what_is_its_own() {
        let places = places();
        let mut crowded = now(&places, "a", of(1, Lane::Stranger)).unwrap();
        let _others: Vec<_> =
            ["b", "b", "c"].into_iter().map(|here| now(&places, here, STRANGER).unwrap()).collect();
        assert!(now(&places, "d", STRANGER).is_none());
        let mut aside = Box::pin(crowded.step_aside(Duration::from_secs(5)));
        assert!(aside.as_mut().now_or_never().is_none());
        let other = now(&places, "d", STRANGER);
        assert!(other.is_some() && now(&places, "e", of(1, Lane::Stranger)).is_none());
        sleep(Duration::from_secs(6)).await;
        assert!(aside.as_mut().now_or_never().is_none(), "it waits for its turn");
        drop(other);
        aside.await;
    }

    #[test]
    fn b33_nothing_is_remembered_of_those_who_are_gone() {
        let places = places();
        let taken: Vec<_> = (0..4)
            .map(|number| now(&places, &number.to_string(), of(number, Lane::Stranger)).unwrap())
            .collect();
        assert!(now(&places, "in vain", of(9, Lane::Stranger)).is_none());
        assert!(places.try_place(of(9, Lane::Stranger), "in vain").is_none());
        drop(taken);
        assert!(places.shares().is_empty());
    }
}
