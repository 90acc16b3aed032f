//! Whose turn it is to have the hub ask somebody: few at once, fewer of one place on the network, fewer for one client.
//!
//! Some of each are kept for those whom the hub knows, so that strangers hold up no subscription in force and no publisher
//! with a token. To be known takes one confirmation, so both kinds share few where the hub was last made to wait in vain (B-33).
//!
//! Whoever waits is a line in the books (`books`) of a fixed size, without a task and without a text.

mod books;

use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::books::Here;
use self::books::{Books, Granted, NOBODY, Number, Turn};

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
    /// The client's network; `None` is nobody in particular.
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

impl Share {
    fn times(self, factor: usize) -> Self {
        Self { most: self.most * factor, strangers: self.strangers * factor }
    }
}

/// All places.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// For names of places on the network, which takes no lock.
    hasher: RandomState,
    books: Mutex<Books>,
}

/// Where somebody who waits without a task is told that its turn has come: by the number under which it waits.
pub(crate) type Turns = mpsc::UnboundedSender<(u64, Place)>;

/// The right to ask now, until this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    number: Number,
}

impl Places {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self(Arc::new(Shared { hasher: RandomState::new(), books: Mutex::new(Books::new(bounds)) }))
    }

    /// Waits for a place to ask somebody `here`. Who waits for its own client's others, or for a slow host, takes nobody else's
    /// place.
    pub(crate) async fn place(&self, asker: Asker, here: &str) -> Place {
        let (turn, come) = oneshot::channel();
        let here = self.here(here);
        let (number, granted) = {
            let mut books = self.books();
            let number = books.enter(asker, here);
            (number, books.line_up(number, Turn::Awaited(turn)))
        };
        let place = Place { places: self.clone(), number };
        self.hand_over(granted);
        // Its sender is kept until the turn has come, which it does as long as the place is kept.
        let _ = come.await;
        place
    }

    /// Has somebody wait for a place `here` whose turn is told to `turns` under this number. Where nobody listens there any more,
    /// the place goes to the next one.
    pub(crate) fn line_up(&self, asker: Asker, here: Here, turns: &Turns, number: u64) {
        let granted = {
            let mut books = self.books();
            let entered = books.enter(asker, here);
            books.line_up(entered, Turn::Told(turns.clone(), number))
        };
        self.hand_over(granted);
    }

    /// The same `here` as a number, so that who waits keeps no text.
    pub(crate) fn here(&self, here: &str) -> Here {
        Here::of(&self.0.hasher, here)
    }

    /// A place that is free now.
    pub(crate) fn try_place(&self, asker: Asker, here: &str) -> Option<Place> {
        let here = self.here(here);
        let number = self.books().try_enter(asker, here)?;
        Some(Place { places: self.clone(), number })
    }

    /// The place of somebody who was let in by an earlier life. It counts even where that is beyond the bounds: nobody else is let in
    /// until as many have left.
    pub(crate) fn readmit(&self, asker: Asker, here: &str) -> Place {
        let here = self.here(here);
        let number = self.books().enter_anyway(asker, here);
        Place { places: self.clone(), number }
    }

    /// Tells those whose turn has come. A place that nobody takes is free for the next one.
    fn hand_over(&self, mut granted: Vec<Granted>) {
        while let Some(Granted { number, turn }) = granted.pop() {
            match turn {
                // Whoever has stopped waiting has left by itself, or does so now.
                Turn::Awaited(turn) => drop(turn.send(())),
                Turn::Told(turns, _) if turns.is_closed() => granted.extend(self.books().leave(number)),
                Turn::Told(turns, told) => {
                    let _ = turns.send((told, Place { places: self.clone(), number }));
                }
            }
        }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Goes on `here`: with the place that it has where that is the same, else when it is its turn there.
    pub(crate) async fn move_to(&mut self, here: &str) {
        let (turn, come) = oneshot::channel();
        let here = self.places.here(here);
        let granted = {
            let mut books = self.places.books();
            if books.is_placed(self.number, here) {
                return;
            }
            books.move_to(self.number, here, Turn::Awaited(turn))
        };
        self.places.hand_over(granted);
        let _ = come.await;
    }

    /// Lets others go first. What its client and this place on the network have is kept, so that nobody gets further by asking for
    /// more.
    pub(crate) fn give_way(&self) {
        let granted = self.places.books().give_way(self.number);
        self.places.hand_over(granted);
    }

    /// Waits for its turn again, as in [`Places::line_up`], with what it has kept.
    pub(crate) fn line_up(mut self, turns: &Turns, number: u64) {
        // The books keep it from here on.
        let own = std::mem::replace(&mut self.number, NOBODY);
        let granted = self.places.books().line_up(own, Turn::Told(turns.clone(), number));
        self.places.hand_over(granted);
    }

    /// Remembers whether the hub waited here in vain.
    pub(crate) fn note_slow(&self, slow: bool) {
        self.places.books().note_slow(self.number, slow);
    }

    /// Remembers that this client had the hub wait in vain, wherever that was: a host has any number of names. Only time mends
    /// that, since whoever has the hub wait can also have it answered.
    pub(crate) fn note_slow_client(&self) {
        self.places.books().note_slow_client(self.number);
    }

    /// Whether the hub waited in vain of late, here or for this client.
    #[cfg(test)]
    pub(crate) fn is_slow(&self) -> bool {
        self.places.books().is_slow(self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.number != NOBODY {
            let granted = self.places.books().leave(self.number);
            self.places.hand_over(granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::books::CLIENTS_OF_ONE_SITE;
    use super::*;

    const STRANGER: Asker = Asker { client: None, lane: Lane::Stranger };
    const KNOWN: Asker = Asker { client: None, lane: Lane::Known };

    fn bounds() -> Bounds {
        let share = |most, strangers| Share { most, strangers };
        let slow = Slow { known: 1, strangers: 1 };
        Bounds { all: share(5, 4), slow, here: share(3, 2), client: Some(share(2, 1)) }
    }

    fn places() -> Places {
        Places::new(bounds())
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
    fn b33_who_was_let_in_before_counts_even_beyond_the_bounds_until_it_leaves() {
        let places = places();
        let let_in = |number: u8| places.readmit(of(1, Lane::Stranger), &number.to_string());
        let mut before: Vec<_> = (0..6).map(let_in).collect();
        assert!(places.try_place(of(2, Lane::Known), "elsewhere").is_none(), "six have what five may have");
        before.truncate(3);
        assert!(places.try_place(of(2, Lane::Stranger), "elsewhere").is_some());
        assert!(places.try_place(of(1, Lane::Stranger), "elsewhere").is_none(), "its client has three");
        before.clear();
        assert!(places.books().are_empty());
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
                ..bounds()
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

    #[test]
    fn who_gives_way_keeps_only_what_is_its_own_and_waits_for_its_turn() {
        let places = places();
        let (turns, mut come) = mpsc::unbounded_channel();
        let crowded = now(&places, "a", of(1, Lane::Stranger)).unwrap();
        let _others: Vec<_> =
            ["b", "b", "c"].into_iter().map(|here| now(&places, here, STRANGER).unwrap()).collect();
        assert!(now(&places, "d", STRANGER).is_none());
        crowded.give_way();
        let other = now(&places, "d", STRANGER);
        assert!(other.is_some() && now(&places, "e", of(1, Lane::Stranger)).is_none());
        crowded.line_up(&turns, 7);
        assert!(come.try_recv().is_err(), "it waits for its turn");
        drop(other);
        assert_eq!(come.try_recv().unwrap().0, 7);
    }

    #[test]
    fn who_waits_without_a_task_is_told_in_its_turn_and_who_is_gone_is_passed_over() {
        let places = places();
        let ((turns, mut come), (gone, _)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let taken: Vec<_> = (0..2).map(|_| now(&places, "a", STRANGER).unwrap()).collect();
        let here = places.here("a");
        places.line_up(STRANGER, here, &gone, 1);
        places.line_up(STRANGER, here, &turns, 2);
        places.line_up(KNOWN, here, &turns, 3);
        assert_eq!(come.try_recv().unwrap().0, 3, "a place is kept for the known");
        assert!(come.try_recv().is_err());
        drop(taken);
        assert_eq!(come.try_recv().unwrap().0, 2);
        assert!(places.books().are_empty(), "nobody kept its place");
    }

    #[test]
    fn many_who_wait_for_somebody_gone_are_passed_over_one_after_the_other() {
        let places = places();
        let (gone, _) = mpsc::unbounded_channel();
        let taken: Vec<_> = (0..2).map(|_| now(&places, "a", STRANGER).unwrap()).collect();
        let here = places.here("a");
        (0..100_000).for_each(|number| places.line_up(STRANGER, here, &gone, number));
        drop(taken);
        assert!(places.books().are_empty());
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
        assert!(places.books().are_empty());
    }
}
