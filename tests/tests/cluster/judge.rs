//! The judge: it knows what was acknowledged, hears of everything that arrives while it arrives, and remembers little of it. It shares nothing
//! with the hub.
//!
//! For ever one identity has one body and one head, and one body one identity. A subscription begins after what was acknowledged before it was
//! asked for, and gets its topic's notifications in the order of their offsets; none is left out, and none comes again unless a fault excuses
//! that. After the end of a subscription nothing newer comes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::subscription::{Replay, State, Subscription};
use crate::topics::TOPICS;
use crate::windows::{Firsts, SETTLED_WITHIN, Suffered, Window, longest_pause};

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
    pub(crate) host: usize,
    pub(crate) path: &'a str,
    pub(crate) id: Option<Id>,
    pub(crate) meaning: Meaning,
    /// What the header fields say about the content.
    pub(crate) head: Meaning,
    pub(crate) body: &'a [u8],
    pub(crate) at: Instant,
    /// By the secret of the subscription, or not at all where it has none.
    pub(crate) is_signed: bool,
    pub(crate) is_accepted: bool,
}

/// A post that was answered with 202.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ack {
    pub(crate) topic: usize,
    pub(crate) id: Id,
    /// When its body was made, before it was posted for the first time: a hub may have taken it in at any time since, and say so only when it is
    /// posted again.
    pub(crate) made: Instant,
    pub(crate) at: Instant,
}

/// What happened between the opening of a window and its end.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) lasted: Duration,
    /// The longest time without an acknowledgement.
    pub(crate) posts_gap: Duration,
    /// The longest time without a delivery to some host, and that host.
    pub(crate) deliveries_gap: (Duration, usize),
}

/// What the judge knows.
#[derive(Debug)]
pub(crate) struct Judge {
    begun: Instant,
    meanings: HashMap<Id, Meaning>,
    heads: HashMap<Id, Meaning>,
    ids: HashMap<Meaning, Id>,
    topics: [Option<u64>; TOPICS],
    /// The newest offset that was acknowledged of each topic.
    newest: [u64; TOPICS],
    subscriptions: BTreeMap<String, Subscription>,
    acks: Vec<Ack>,
    firsts: Firsts,
    windows: Vec<Window>,
    replays: Vec<Replay>,
    broken: Vec<String>,
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            meanings: HashMap::new(),
            heads: HashMap::new(),
            ids: HashMap::new(),
            topics: [None; TOPICS],
            newest: [0; TOPICS],
            subscriptions: BTreeMap::new(),
            acks: Vec::new(),
            firsts: Firsts::default(),
            windows: Vec::new(),
            replays: Vec::new(),
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

    pub(crate) fn is_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// The body of a post: no two are the same, and it says when it was made.
    pub(crate) fn body(&self, topic: usize, publisher: &str, serial: usize, rest: &str) -> String {
        format!("{topic} {publisher} {serial} {} {rest}", self.begun.elapsed().as_millis())
    }

    /// When a body was made, as it says itself.
    pub(crate) fn made(&self, body: &[u8]) -> Option<Instant> {
        let millis = std::str::from_utf8(body).ok()?.split(' ').nth(3)?.parse().ok()?;
        Some(self.begun + Duration::from_millis(millis))
    }

    /// A subscription is asked for.
    pub(crate) fn asked(&mut self, path: &str, topic: usize) {
        self.subscriptions.insert(path.to_owned(), Subscription::new(topic, self.newest[topic]));
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

    /// Whether somebody has asked for this subscription.
    pub(crate) fn knows(&self, path: &str) -> bool {
        self.subscriptions.contains_key(path)
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
        self.newest[ack.topic] = self.newest[ack.topic].max(ack.id.offset);
        self.acks.push(ack);
    }

    /// The newest offset of a topic that was acknowledged; 0 where none was.
    pub(crate) fn newest(&self, topic: usize) -> u64 {
        self.newest[topic]
    }

    /// How many posts were acknowledged between these moments that nobody had made before.
    pub(crate) fn acknowledged_between(&self, from: Instant, until: Instant) -> usize {
        self.acks.iter().filter(|ack| ack.made > from && ack.at <= until).count()
    }

    /// The operator asks at this moment to deliver a topic again from this offset on.
    pub(crate) fn replays(&mut self, from: u64, at: Instant) {
        self.replays.push(Replay { from, at });
    }

    /// The subscriptions in force that have not come to this notification.
    pub(crate) fn behind(&self, ack: Ack) -> Vec<String> {
        let of_topic = self.subscriptions.iter().filter(|(_, subscription)| subscription.topic == ack.topic);
        let behind = of_topic.filter(|(_, subscription)| {
            matches!(subscription.state, State::InForce(since) if since < ack.made)
                && subscription.newest < ack.id.offset
        });
        behind.map(|(path, subscription)| format!("{path} (at {})", subscription.newest)).collect()
    }

    /// The subscriptions in force that began behind something that was made after they were confirmed. All else that they lack is noticed as
    /// it arrives.
    pub(crate) fn began_late(&self) -> Vec<String> {
        let late = self.subscriptions.iter().filter_map(|(path, subscription)| {
            let State::InForce(since) = subscription.state else { return None };
            let owed = self.acks.iter().filter(|ack| ack.topic == subscription.topic && ack.made > since);
            let owed = owed.min_by_key(|ack| ack.id.offset)?;
            let (offset, first) = (owed.id.offset, subscription.first);
            first.is_none_or(|first| first > offset).then(|| {
                format!(
                    "{path} began with {first:?}, and {offset} was made {:?} after its start",
                    owed.made - since
                )
            })
        });
        late.collect()
    }

    /// From now on something is done; its number.
    pub(crate) fn open_window(&mut self, suffered: Suffered) -> usize {
        self.windows.push(Window::open(suffered, Instant::now()));
        self.windows.len() - 1
    }

    /// All is well again.
    pub(crate) fn close_window(&mut self, number: usize) -> Course {
        let (from, until) = (self.windows[number].opened, Instant::now());
        self.windows[number].closed = Some(until);
        let newest_first = self.acks.iter().rev().map(|ack| ack.at);
        // They are noted a moment after they came.
        let acks = newest_first.take_while(|at| *at + SETTLED_WITHIN >= from);
        Course {
            lasted: until - from,
            posts_gap: longest_pause(acks, from, until),
            deliveries_gap: self.firsts.longest_pause(from, until),
        }
    }

    /// How many deliveries came again because of it, and how many may at most.
    pub(crate) fn repeats(&self, number: usize) -> (usize, usize) {
        let window = &self.windows[number];
        (window.repeats, window.most_repeats(&self.firsts))
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
        self.is_headed(id, arrival.head)?;
        if !arrival.is_signed {
            return Err(format!("{id:?} is not signed as it must be"));
        }
        let topic = self.subscriptions.get(arrival.path).ok_or("nobody has asked for it")?.topic;
        self.is_of(topic, id)?;
        let made = self.made(arrival.body).ok_or("nobody has posted it")?;
        let Self { subscriptions, windows, replays, .. } = self;
        let subscription = subscriptions.get_mut(arrival.path).ok_or("nobody has asked for it")?;
        subscription.is_wanted(arrival, made, windows)?;
        if subscription.take(arrival, id.offset, windows, replays)? {
            self.firsts.add(arrival.at, arrival.host);
        }
        Ok(())
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

    /// What it says about its content is the same whoever delivers it, and how often.
    fn is_headed(&mut self, id: Id, head: Meaning) -> Result<(), String> {
        let known = *self.heads.entry(id).or_insert(head);
        if known == head { Ok(()) } else { Err(format!("{id:?} has two content types, or two Link fields")) }
    }

    fn is_of(&mut self, topic: usize, id: Id) -> Result<(), String> {
        let known = *self.topics[topic].get_or_insert(id.topic);
        if known == id.topic {
            Ok(())
        } else {
            Err(format!("topic {topic} is both {known:x} and {:x}", id.topic))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::REPLAYED;

    const TOPIC: usize = 5;
    /// Everything that is told was made then.
    const MADE: u64 = 1_000;

    /// A judge who has heard of one subscription, and what may be told to it.
    struct Scene {
        judge: Judge,
        topic: usize,
    }

    impl Scene {
        fn of(topic: usize) -> Self {
            let mut judge = Judge::new();
            let since = judge.begun;
            judge.asked("/s", topic);
            judge.in_force("/s", since);
            Self { judge, topic }
        }

        fn at(&self, millis: u64) -> Instant {
            self.judge.begun + Duration::from_millis(millis)
        }

        /// Tells that this offset with this word in it has come so many milliseconds after the beginning; what is wrong with that.
        fn comes(&mut self, offset: u64, word: &str, millis: u64, is_accepted: bool) -> Option<String> {
            self.arrives(offset, word, millis, |arrival| arrival.is_accepted = is_accepted)
        }

        fn arrives(
            &mut self,
            offset: u64,
            word: &str,
            millis: u64,
            but: impl FnOnce(&mut Arrival<'_>),
        ) -> Option<String> {
            let body = format!("{} 0 {word} {MADE} x", self.topic);
            let mut arrival = Arrival {
                host: 0,
                path: "/s",
                id: Some(Id { topic: 7, offset }),
                meaning: meaning(body.as_bytes()),
                head: [0; 32],
                body: body.as_bytes(),
                at: self.at(millis),
                is_signed: true,
                is_accepted: true,
            };
            but(&mut arrival);
            self.judge.judge(&arrival).err()
        }

        fn says(&mut self, offset: u64, word: &str, millis: u64, what: &str) {
            let said = self.comes(offset, word, millis, true).expect("something is wrong with that");
            assert!(said.contains(what), "{said}");
        }

        /// A post with this offset is acknowledged, long after its body was made.
        fn acknowledges(&mut self, offset: u64, made: u64) -> Ack {
            let id = Id { topic: 7, offset };
            let ack = Ack { topic: self.topic, id, made: self.at(made), at: self.at(made + 9_000) };
            self.judge.acknowledged(ack, meaning(&offset.to_be_bytes()));
            ack
        }

        /// Something that may make an owner forget what it has not saved, between these milliseconds.
        fn suffers(&mut self, from: u64, until: u64, freezes: bool) {
            let suffered = Suffered { label: "a fault".to_owned(), freezes, changes: 1 };
            let closed = Some(self.at(until));
            let window = Window { closed, ..Window::open(suffered, self.at(from)) };
            self.judge.windows.push(window);
        }
    }

    #[test]
    fn what_is_left_out_or_means_something_else_or_is_there_twice_is_noticed() {
        let mut scene = Scene::of(TOPIC);
        assert_eq!(scene.comes(1, "one", 1_000, true), None);
        scene.says(1, "other", 1_001, "two bodies");
        scene.says(2, "one", 1_002, "one body is both");
        assert_eq!(scene.comes(3, "three", 1_003, false).unwrap(), "after 1 came 3: something was left out");
    }

    #[test]
    fn a_wrong_signature_and_another_head_are_noticed() {
        let mut scene = Scene::of(TOPIC);
        let said = scene.arrives(1, "one", 1_000, |arrival| arrival.is_signed = false);
        assert!(said.unwrap().contains("not signed"));
        let said = scene.arrives(1, "one", 1_000, |arrival| arrival.head = [1; 32]);
        assert!(said.unwrap().contains("two content types"));
    }

    #[test]
    fn what_fails_has_not_come_yet_and_comes_again_before_the_next() {
        let mut scene = Scene::of(TOPIC);
        assert_eq!(scene.comes(1, "one", 1_000, true), None);
        assert_eq!(scene.comes(2, "two", 1_001, false), None);
        assert_eq!(scene.comes(2, "two", 1_002, false), None);
        scene.says(3, "three", 1_003, "left out");
        assert_eq!(scene.comes(2, "two", 1_004, true), None);
    }

    #[test]
    fn what_comes_again_needs_a_fault_and_comes_once_more_for_each_owner_it_makes() {
        let mut scene = Scene::of(TOPIC);
        assert_eq!(scene.comes(1, "one", 1_000, true), None);
        scene.says(1, "one", 1_100, "no fault excuses");
        let mut scene = Scene::of(TOPIC);
        scene.suffers(3_000, 4_000, false);
        assert_eq!(scene.comes(1, "one", 1_000, true), None);
        assert_eq!(scene.comes(1, "one", 3_500, true), None);
        assert_eq!(scene.judge.windows[0].repeats, 1);
        scene.says(1, "one", 3_600, "came 3 times, and a fault excuses 2");
        assert_eq!(scene.comes(2, "two", 20_000, true), None);
        scene.says(2, "two", 20_100, "no fault excuses");
    }

    #[test]
    fn what_came_before_the_calm_is_not_excused_by_the_next_fault() {
        let mut scene = Scene::of(TOPIC);
        scene.suffers(1_000, 4_000, false);
        scene.suffers(8_000, 9_000, false);
        assert_eq!(scene.comes(1, "one", 3_900, true), None);
        scene.says(1, "one", 7_000, "no fault excuses");
        scene.says(1, "one", 8_500, "no fault excuses");
    }

    #[test]
    fn the_operator_has_only_that_repeated_which_it_asks_for_and_once_each_time() {
        let mut scene = Scene::of(REPLAYED);
        for (offset, word) in [(1, "one"), (2, "two"), (3, "three")] {
            assert_eq!(scene.comes(offset, word, 1_000, true), None);
        }
        scene.says(2, "two", 1_900, "no fault excuses");
        let at = scene.at(2_000);
        scene.judge.replays(3, at);
        scene.says(2, "two", 2_100, "no fault excuses");
        assert_eq!(scene.comes(3, "three", 2_200, true), None);
        scene.says(3, "three", 2_300, "what the operator asked for excuses 2");
    }

    #[test]
    fn after_its_end_a_subscription_gets_nothing_new_and_from_a_frozen_hub_one_thing_at_most() {
        let mut scene = Scene::of(TOPIC);
        let (before, after) = (scene.at(500), scene.at(2_000));
        scene.judge.ended("/s", before);
        scene.says(1, "one", 1_000, "before this was posted");
        scene.judge.ended("/s", after);
        assert_eq!(scene.comes(1, "one", 2_500, true), None);
        scene.says(2, "two", 9_000, "before this came");
        scene.judge.subscriptions.get_mut("/s").unwrap().late = 0;
        scene.suffers(1_000, 6_000, true);
        scene.says(2, "two", 9_000, "before this came");
        scene.judge.subscriptions.get_mut("/s").unwrap().late = 0;
        assert_eq!(scene.comes(2, "two", 7_000, true), None);
        scene.says(3, "three", 7_001, "before this came");
    }

    #[test]
    fn a_subscription_that_begins_behind_what_it_is_owed_is_noticed() {
        let mut scene = Scene::of(TOPIC);
        let ack = scene.acknowledges(4, 1_000);
        assert_eq!(scene.judge.behind(ack), ["/s (at 0)"]);
        assert_eq!(scene.judge.began_late(), ["/s began with None, and 4 was made 1s after its start"]);
        assert_eq!(scene.comes(5, "five", 1_500, true), None);
        assert_eq!(scene.judge.began_late(), ["/s began with Some(5), and 4 was made 1s after its start"]);
        assert!(scene.judge.behind(ack).is_empty());
    }

    #[test]
    fn a_subscription_is_not_owed_what_was_made_before_it_and_acknowledged_only_when_it_was_posted_again() {
        let mut scene = Scene::of(TOPIC);
        let since = scene.at(1_500);
        scene.judge.in_force("/s", since);
        let again = scene.acknowledges(4, 1_000);
        assert!(scene.judge.behind(again).is_empty());
        assert_eq!(scene.comes(5, "five", 1_600, true), None);
        assert!(scene.judge.began_late().is_empty());
        scene.acknowledges(3, 1_501);
        assert_eq!(scene.judge.began_late(), ["/s began with Some(5), and 3 was made 1ms after its start"]);
    }

    #[test]
    fn a_subscription_that_begins_with_what_was_acknowledged_before_it_was_asked_for_is_noticed() {
        let mut scene = Scene::of(TOPIC);
        scene.acknowledges(4, 1_000);
        scene.judge.asked("/s", TOPIC);
        scene.says(3, "three", 1_500, "it began early with 3");
        assert_eq!(scene.comes(5, "five", 1_500, true), None);
    }
}
