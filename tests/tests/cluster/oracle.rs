//! The judge: it knows what was acknowledged, hears of everything that arrives while it arrives, and remembers little of it. It shares nothing
//! with the hub.
//!
//! For ever one identity has one body, and one body one identity. A subscription gets its topic's notifications in the order of their offsets,
//! none is left out, and none comes again unless a fault excuses that. After the end of a subscription nothing newer comes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::load::{PAUSED, REPLAYED, TOPICS};

/// Progress is saved every 125 ms; on a busy machine, and by a database that waits for its standby, it may be this old.
const SAVED_WITHIN: Duration = Duration::from_secs(5);
/// What is repeated after a fault was on its way before the fault was over, or shortly afterwards.
const SETTLED_WITHIN: Duration = Duration::from_secs(3);
/// So long arrivals are remembered: what is repeated later has no excuse.
const REMEMBERED: Duration = Duration::from_secs(120);
/// So long after the end of a subscription what was posted before it may still arrive.
const UNDER_WAY: Duration = Duration::from_secs(2);
/// No more is said of what went wrong.
const MOST_SAID: usize = 40;

/// What a notification is called: `webhook-id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    pub(crate) topic: u64,
    pub(crate) offset: u64,
}

impl Id {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (topic, offset) = text.split_once('.')?;
        Some(Self { topic: u64::from_str_radix(topic, 16).ok()?, offset: offset.parse().ok()? })
    }
}

/// What it says, as a hash.
pub(crate) type Meaning = [u8; 32];

pub(crate) fn meaning(body: &[u8]) -> Meaning {
    Sha256::digest(body).into()
}

/// A request at a subscriber.
#[derive(Debug)]
pub(crate) struct Arrival<'a> {
    pub(crate) path: &'a str,
    pub(crate) id: Option<Id>,
    pub(crate) meaning: Meaning,
    pub(crate) body: &'a [u8],
    pub(crate) at: Instant,
    pub(crate) is_accepted: bool,
}

/// A post that was answered with 202.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) topic: usize,
    pub(crate) id: Id,
    pub(crate) begun: Instant,
    pub(crate) at: Instant,
}

/// A time in which something was done to the hubs or their database, until all was well again.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) label: String,
    pub(crate) opened: Instant,
    pub(crate) closed: Option<Instant>,
    /// A hub may have stood still, or been cut off, with a request that it had begun.
    pub(crate) freezes: bool,
    pub(crate) repeats: usize,
}

impl Window {
    /// Whether what arrived at this moment may come again.
    fn excuses(&self, arrived: Instant) -> bool {
        self.opened <= arrived + SAVED_WITHIN
            && self.closed.is_none_or(|closed| arrived <= closed + SETTLED_WITHIN)
    }
}

/// What is known of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody knows whether it is in force.
    Open,
    /// It gets everything that is posted later.
    InForce(Instant),
    /// It gets nothing that is posted later.
    Ended(Instant),
}

#[derive(Debug)]
struct Subscription {
    topic: usize,
    state: State,
    first: Option<u64>,
    newest: u64,
    recent: VecDeque<(u64, Instant)>,
    /// What came although it had ended.
    late: usize,
}

/// What the judge knows.
#[derive(Debug)]
pub(crate) struct Book {
    begun: Instant,
    meanings: HashMap<Id, Meaning>,
    ids: HashMap<Meaning, Id>,
    topics: [Option<u64>; TOPICS],
    subscriptions: BTreeMap<String, Subscription>,
    acks: Vec<Ack>,
    windows: Vec<Window>,
    broken: Vec<String>,
}

impl Book {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            meanings: HashMap::new(),
            ids: HashMap::new(),
            topics: [None; TOPICS],
            subscriptions: BTreeMap::new(),
            acks: Vec::new(),
            windows: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// Something is not as it must be.
    pub(crate) fn complain(&mut self, what: String) {
        if self.broken.len() < MOST_SAID {
            eprintln!("BROKEN: {what}");
            self.broken.push(what);
        }
    }

    pub(crate) fn broken(&self) -> &[String] {
        &self.broken
    }

    /// The body of a post: no two are the same, and it says when it was made.
    pub(crate) fn body(&self, topic: usize, publisher: usize, serial: usize, rest: &str) -> String {
        format!("{topic} {publisher} {serial} {} {rest}", self.begun.elapsed().as_millis())
    }

    /// A subscription is asked for.
    pub(crate) fn asked(&mut self, path: &str, topic: usize) {
        let (first, recent) = (None, VecDeque::new());
        let new = Subscription { topic, state: State::Open, first, newest: 0, recent, late: 0 };
        self.subscriptions.insert(path.to_owned(), new);
    }

    /// It is in force since this moment at the latest.
    pub(crate) fn in_force(&mut self, path: &str, since: Instant) {
        self.set(path, State::InForce(since));
    }

    /// Somebody is about to end it.
    pub(crate) fn ending(&mut self, path: &str) {
        self.set(path, State::Open);
    }

    /// It gets nothing that is posted after this moment.
    pub(crate) fn ended(&mut self, path: &str, at: Instant) {
        self.set(path, State::Ended(at));
    }

    fn set(&mut self, path: &str, state: State) {
        if let Some(subscription) = self.subscriptions.get_mut(path) {
            subscription.state = state;
        }
    }

    /// The paths of all subscriptions in force, and of all that have ended.
    pub(crate) fn standing(&self) -> (Vec<String>, Vec<String>) {
        let all = self.subscriptions.iter().filter(|(_, subscription)| subscription.state != State::Open);
        let (in_force, ended): (Vec<_>, Vec<_>) =
            all.partition(|(_, subscription)| matches!(subscription.state, State::InForce(_)));
        let paths =
            |all: Vec<(&String, &Subscription)>| all.into_iter().map(|(path, _)| path.clone()).collect();
        (paths(in_force), paths(ended))
    }

    /// A post was acknowledged.
    pub(crate) fn acknowledged(&mut self, ack: Ack, meaning: Meaning) {
        let known = self.means(ack.id, meaning).and_then(|()| self.is_of(ack.topic, ack.id));
        if let Err(what) = known {
            self.complain(format!("acknowledged: {what}"));
        }
        self.acks.push(ack);
    }

    pub(crate) fn acks(&self) -> &[Ack] {
        &self.acks
    }

    /// The longest time without an acknowledgement between these moments.
    pub(crate) fn longest_pause(&self, from: Instant, until: Instant) -> Duration {
        let mut moments = vec![from, until];
        let acks = self.acks.iter().rev().map(|ack| ack.at);
        moments
            .extend(acks.take_while(|at| *at + REMEMBERED >= from).filter(|at| (from..=until).contains(at)));
        moments.sort_unstable();
        moments.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// The subscriptions in force that have not come to this notification.
    pub(crate) fn behind(&self, ack: Ack) -> Vec<String> {
        let of_topic = self.subscriptions.iter().filter(|(_, subscription)| subscription.topic == ack.topic);
        let behind = of_topic.filter(|(_, subscription)| {
            matches!(subscription.state, State::InForce(since) if since < ack.begun)
                && subscription.newest < ack.id.offset
        });
        behind.map(|(path, subscription)| format!("{path} (at {})", subscription.newest)).collect()
    }

    /// The subscriptions in force that began behind something that was posted after they were confirmed. All else that they lack is noticed as
    /// it arrives.
    pub(crate) fn began_late(&self) -> Vec<String> {
        let late = self.subscriptions.iter().filter(|(_, subscription)| {
            let State::InForce(since) = subscription.state else { return false };
            let owed = self.acks.iter().filter(|ack| ack.topic == subscription.topic && ack.begun > since);
            let first = owed.map(|ack| ack.id.offset).min();
            first.is_some_and(|owed| subscription.first.is_none_or(|first| first > owed))
        });
        late.map(|(path, subscription)| format!("{path} began with {:?}", subscription.first)).collect()
    }

    pub(crate) fn open_window(&mut self, label: String, freezes: bool) -> usize {
        let opened = Instant::now();
        self.windows.push(Window { label, opened, closed: None, freezes, repeats: 0 });
        self.windows.len() - 1
    }

    pub(crate) fn close_window(&mut self, number: usize) -> Window {
        let window = &mut self.windows[number];
        window.closed = Some(Instant::now());
        window.clone()
    }

    /// Something has arrived.
    pub(crate) fn arrived(&mut self, arrival: &Arrival<'_>) {
        if let Err(what) = self.judge(arrival) {
            self.complain(format!("{}: {what}", arrival.path));
        }
    }

    fn judge(&mut self, arrival: &Arrival<'_>) -> Result<(), String> {
        let id = arrival.id.ok_or("it has no identity")?;
        self.means(id, arrival.meaning)?;
        let topic = self.subscriptions.get(arrival.path).ok_or("nobody has asked for it")?.topic;
        self.is_of(topic, id)?;
        let posted = self.posted(arrival.body).ok_or("nobody has posted it")?;
        let Self { subscriptions, windows, .. } = self;
        let subscription = subscriptions.get_mut(arrival.path).ok_or("nobody has asked for it")?;
        subscription.is_wanted(arrival, posted, windows)?;
        subscription.is_in_order(arrival, id.offset, windows)
    }

    /// One identity, one body; and the other way round, since no body is posted twice under two keys, nor twice without one.
    pub(crate) fn means(&mut self, id: Id, meaning: Meaning) -> Result<(), String> {
        match self.meanings.entry(id) {
            Entry::Vacant(entry) => {
                entry.insert(meaning);
            }
            Entry::Occupied(known) if *known.get() == meaning => return Ok(()),
            Entry::Occupied(_) => return Err(format!("{id:?} stands for two bodies")),
        }
        match self.ids.insert(meaning, id) {
            Some(other) => Err(format!("one body is both {other:?} and {id:?}")),
            None => Ok(()),
        }
    }

    fn is_of(&mut self, topic: usize, id: Id) -> Result<(), String> {
        let known = *self.topics[topic].get_or_insert(id.topic);
        if known == id.topic {
            Ok(())
        } else {
            Err(format!("topic {topic} is both {known:x} and {:x}", id.topic))
        }
    }

    /// When a body was made, as it says itself.
    fn posted(&self, body: &[u8]) -> Option<Instant> {
        let millis = std::str::from_utf8(body).ok()?.split(' ').nth(3)?.parse().ok()?;
        Some(self.begun + Duration::from_millis(millis))
    }
}

impl Subscription {
    /// Nothing newer than its end comes, and what is older only for as long as a request takes. A hub that stood still may then finish the one
    /// that it had begun.
    fn is_wanted(
        &mut self,
        arrival: &Arrival<'_>,
        posted: Instant,
        windows: &[Window],
    ) -> Result<(), String> {
        let State::Ended(at) = self.state else { return Ok(()) };
        if posted > at {
            return Err(format!("it had ended {:?} before this was posted", posted - at));
        }
        if arrival.at > at + UNDER_WAY {
            self.late += 1;
            let is_excused = windows.iter().any(|window| window.freezes && window.excuses(at));
            if !is_excused || self.late > 1 {
                return Err(format!("it had ended {:?} before this came", arrival.at - at));
            }
        }
        Ok(())
    }

    fn is_in_order(
        &mut self,
        arrival: &Arrival<'_>,
        offset: u64,
        windows: &mut [Window],
    ) -> Result<(), String> {
        let next = self.newest + 1;
        if self.first.is_some() && offset > next {
            return Err(format!("after {} came {offset}: something was left out", self.newest));
        }
        if !arrival.is_accepted {
            return Ok(());
        }
        let repeats = self.first.is_some() && offset < next;
        let before = self.recent.iter().rev().find(|(of, _)| *of == offset).map(|(_, at)| *at);
        self.first.get_or_insert(offset);
        self.newest = self.newest.max(offset);
        self.recent.push_back((offset, arrival.at));
        while self.recent.front().is_some_and(|(_, at)| *at + REMEMBERED < arrival.at) {
            self.recent.pop_front();
        }
        // An operator has it repeated.
        if !repeats || self.topic == REPLAYED {
            return Ok(());
        }
        let before = before.ok_or_else(|| format!("{offset} came again after a long time"))?;
        let excuse = windows.iter_mut().rev().find(|window| window.excuses(before));
        let excuse = excuse.ok_or_else(|| {
            format!(
                "{offset} came again {:?} after it had come, and no fault excuses that",
                arrival.at - before
            )
        })?;
        excuse.repeats += 1;
        Ok(())
    }
}

/// Topics in which the operator does nothing: what is posted to them arrives at once.
pub(crate) fn is_undisturbed(topic: usize) -> bool {
    ![PAUSED, REPLAYED].contains(&topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: usize = 5;

    /// A judge who has heard of one subscription, and what may be told to it.
    struct Scene(Book);

    impl Scene {
        fn new() -> Self {
            let mut book = Book::new();
            let since = book.begun;
            book.asked("/s", TOPIC);
            book.in_force("/s", since);
            Self(book)
        }

        /// Tells that this offset with this word in it has come so many milliseconds after the beginning; what is wrong with that.
        fn comes(&mut self, offset: u64, word: &str, millis: u64, is_accepted: bool) -> Option<String> {
            let body = format!("{TOPIC} 0 {word} 1000 x");
            let at = self.0.begun + Duration::from_millis(millis);
            let (id, meaning) = (Some(Id { topic: 7, offset }), meaning(body.as_bytes()));
            let arrival = Arrival { path: "/s", id, meaning, body: body.as_bytes(), at, is_accepted };
            self.0.judge(&arrival).err()
        }

        fn says(&mut self, offset: u64, word: &str, millis: u64, what: &str) {
            let said = self.comes(offset, word, millis, true).expect("something is wrong with that");
            assert!(said.contains(what), "{said}");
        }
    }

    #[test]
    fn what_is_left_out_or_means_something_else_or_is_there_twice_is_noticed() {
        let mut scene = Scene::new();
        assert_eq!(scene.comes(1, "one", 1_000, true), None);
        scene.says(1, "other", 1_001, "two bodies");
        scene.says(2, "one", 1_002, "one body is both");
        assert_eq!(scene.comes(3, "three", 1_003, false).unwrap(), "after 1 came 3: something was left out");
    }

    #[test]
    fn what_fails_has_not_come_yet_and_comes_again_before_the_next() {
        let mut scene = Scene::new();
        assert_eq!(scene.comes(1, "one", 1_000, true), None);
        assert_eq!(scene.comes(2, "two", 1_001, false), None);
        assert_eq!(scene.comes(2, "two", 1_002, false), None);
        scene.says(3, "three", 1_003, "left out");
        assert_eq!(scene.comes(2, "two", 1_004, true), None);
    }

    #[test]
    fn what_comes_again_needs_a_fault_that_was_not_long_after_it() {
        let mut scene = Scene::new();
        assert_eq!(scene.comes(1, "one", 1_000, true), None);
        scene.says(1, "one", 1_100, "no fault excuses");
        let opened = scene.0.begun + Duration::from_secs(3);
        let window = Window { label: "a fault".to_owned(), opened, closed: None, freezes: false, repeats: 0 };
        scene.0.windows.push(window);
        assert_eq!(scene.comes(1, "one", 3_500, true), None);
        assert_eq!(scene.0.windows[0].repeats, 1);
        scene.0.windows[0].closed = Some(opened + Duration::from_secs(1));
        assert_eq!(scene.comes(2, "two", 20_000, true), None);
        scene.says(2, "two", 20_100, "no fault excuses");
    }

    #[test]
    fn after_its_end_a_subscription_gets_nothing_new_and_from_a_frozen_hub_one_thing_at_most() {
        let mut scene = Scene::new();
        let begun = scene.0.begun;
        scene.0.ended("/s", begun + Duration::from_millis(500));
        scene.says(1, "one", 1_000, "before this was posted");
        scene.0.ended("/s", begun + Duration::from_secs(2));
        assert_eq!(scene.comes(1, "one", 2_500, true), None);
        scene.says(2, "two", 9_000, "before this came");
        let label = "a pause".to_owned();
        scene.0.windows.push(Window { label, opened: begun, closed: None, freezes: true, repeats: 0 });
        scene.0.subscriptions.get_mut("/s").unwrap().late = 0;
        assert_eq!(scene.comes(2, "two", 9_001, true), None);
        scene.says(3, "three", 9_002, "before this came");
    }

    #[test]
    fn a_subscription_that_begins_behind_what_it_is_owed_is_noticed() {
        let mut scene = Scene::new();
        let begun = scene.0.begun + Duration::from_secs(1);
        let ack = Ack { topic: TOPIC, id: Id { topic: 7, offset: 4 }, begun, at: begun };
        scene.0.acknowledged(ack, meaning(b"four"));
        assert_eq!(scene.0.behind(ack), ["/s (at 0)"]);
        assert_eq!(scene.0.began_late(), ["/s began with None"]);
        assert_eq!(scene.comes(5, "five", 1_500, true), None);
        assert_eq!(scene.0.began_late(), ["/s began with Some(5)"]);
        assert!(scene.0.behind(ack).is_empty());
    }
}
