//! The books of places: who has one, who waits for which part of one, and who comes next. They know no task and no socket.
//!
//! A place is made of five parts, for which everybody waits in this order: a share of its client, of the client's site, of where it
//! asks, among those who were slow, and of all. Whoever waits for one part has those before it and none behind it, so that it takes
//! nothing of others meanwhile. Each part goes to those who wait for it in the order in which they came, except that strangers wait
//! behind what is kept for the known.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;
use tokio::sync::oneshot;

use super::{Asker, Bounds, Lane, Share, Turns};
use crate::buckets::site;

/// A place where the hub waited in vain counts as slow for so long.
const SLOW_FOR: Duration = Duration::from_secs(600);
/// Clients of one IPv6 site, each with a network of its own, that have a full share together.
pub(super) const CLIENTS_OF_ONE_SITE: usize = 4;
/// Slow places remembered; beyond that, those that were slow longest ago are forgotten. A hash and a time each.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(20_000).expect("twenty thousand is not zero");

/// What somebody who waits takes at most; with a row for a client, a site and a host of its own, twice 96 bytes more.
const WAITING_BYTES: usize = 80;
const _: () = assert!(size_of::<Option<Member>>() <= WAITING_BYTES);
const _: () = assert!(size_of::<(u64, Row)>() <= 32);

/// The row of those of whom nobody has anything.
const UNUSED: Row = Row {
    taken: 0,
    strangers: 0,
    known: Queue { first: NOBODY, last: NOBODY },
    strange: Queue { first: NOBODY, last: NOBODY },
};
/// Nobody: the end of a queue.
pub(super) const NOBODY: Number = Number(u32::MAX);

/// Somebody in the books.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(u32);

/// A place on the network as a hash, so that long names take no more room than short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Here(u64);

impl Here {
    pub(super) fn of(hasher: &RandomState, here: &str) -> Self {
        Self(hasher.hash_one(here))
    }
}

/// How somebody hears that its turn has come.
#[derive(Debug)]
pub(super) enum Turn {
    Awaited(oneshot::Sender<()>),
    Told(Turns, u64),
}

/// Somebody whose turn has come.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) number: Number,
    pub(super) turn: Turn,
}

/// The parts of a place in the order in which they are waited for; the last is a whole place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part {
    Client,
    Site,
    Here,
    Slow,
    All,
    Whole,
}

const PARTS: [Part; 5] = [Part::Client, Part::Site, Part::Here, Part::Slow, Part::All];

/// Whose row it is: one of many by the hash of part and name, or one of the few that all share.
#[derive(Clone, Copy, Debug)]
enum Whose {
    Of(Part, u64),
    Slow(Lane),
    All,
}

/// Somebody who has a place or waits for one.
#[derive(Debug)]
struct Member {
    asker: Asker,
    here: Here,
    turn: Option<Turn>,
    /// When it came to the queue in which it waits.
    order: u64,
    next: Number,
    before: Number,
    /// The first part that it does not have.
    lacks: Part,
    waits: bool,
    /// Among the slow ones it has a part of theirs.
    slow: bool,
}

/// What is taken of one share, and who waits for it.
#[derive(Debug, Default)]
struct Row {
    taken: u32,
    strangers: u32,
    known: Queue,
    strange: Queue,
}

/// The first and the last who wait.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: Number,
    last: Number,
}

#[derive(Debug)]
pub(super) struct Books {
    bounds: Bounds,
    hasher: RandomState,
    members: Vec<Option<Member>>,
    free: Vec<u32>,
    rows: HashMap<u64, Row>,
    slow: [Row; 2],
    all: Row,
    slow_of_late: LruCache<u64, Instant, RandomState>,
    came: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { first: NOBODY, last: NOBODY }
    }
}

impl Row {
    fn has_room(&self, lane: Lane, share: Share) -> bool {
        let below = |taken: u32, most: usize| usize::try_from(taken).is_ok_and(|taken| taken < most);
        below(self.taken, share.most) && (lane == Lane::Known || below(self.strangers, share.strangers))
    }

    fn take(&mut self, lane: Lane) {
        self.taken += 1;
        self.strangers += u32::from(lane == Lane::Stranger);
    }

    fn give_back(&mut self, lane: Lane) {
        self.taken -= 1;
        self.strangers -= u32::from(lane == Lane::Stranger);
    }

    fn queue(&mut self, lane: Lane) -> &mut Queue {
        match lane {
            Lane::Known => &mut self.known,
            Lane::Stranger => &mut self.strange,
        }
    }

    fn is_unused(&self) -> bool {
        self.taken == 0 && self.known.first == NOBODY && self.strange.first == NOBODY
    }
}

impl Part {
    fn next(self) -> Self {
        match self {
            Self::Client => Self::Site,
            Self::Site => Self::Here,
            Self::Here => Self::Slow,
            Self::Slow => Self::All,
            Self::All | Self::Whole => Self::Whole,
        }
    }
}

impl Number {
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl Books {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            hasher: RandomState::new(),
            members: Vec::new(),
            free: Vec::new(),
            rows: HashMap::new(),
            slow: Default::default(),
            all: Row::default(),
            slow_of_late: LruCache::with_hasher(REMEMBERED, RandomState::new()),
            came: 0,
        }
    }

    /// Somebody who has nothing yet and does not wait.
    pub(super) fn enter(&mut self, asker: Asker, here: Here) -> Number {
        let member = Member {
            asker,
            here,
            turn: None,
            order: 0,
            next: NOBODY,
            before: NOBODY,
            lacks: Part::Client,
            waits: false,
            slow: false,
        };
        if let Some(free) = self.free.pop() {
            let number = Number(free);
            self.members[number.index()] = Some(member);
            return number;
        }
        let number =
            u32::try_from(self.members.len()).expect("bounds of what may wait are far below four billion");
        self.members.push(Some(member));
        Number(number)
    }

    /// Somebody with a whole place, if that is free now. Nothing is asked of anybody for it, so that slow ones are no exception.
    pub(super) fn try_enter(&mut self, asker: Asker, here: Here) -> Option<Number> {
        let number = self.enter(asker, here);
        let has_room = |whose: Whose| {
            let share = self.share(whose);
            self.row(whose).unwrap_or(&UNUSED).has_room(asker.lane, share)
        };
        if !self.asked_of_nobody(number).into_iter().flatten().all(has_room) {
            self.forget(number);
            return None;
        }
        self.take_whole(number);
        Some(number)
    }

    /// Somebody with a whole place, whether or not that is free.
    pub(super) fn enter_anyway(&mut self, asker: Asker, here: Here) -> Number {
        let number = self.enter(asker, here);
        self.take_whole(number);
        number
    }

    fn take_whole(&mut self, number: Number) {
        let lane = self.member(number).asker.lane;
        for whose in self.asked_of_nobody(number).into_iter().flatten() {
            self.row_mut(whose).take(lane);
        }
        self.member_mut(number).lacks = Part::Whole;
    }

    /// The rows of a whole place for which nothing is asked of anybody.
    fn asked_of_nobody(&self, number: Number) -> [Option<Whose>; 5] {
        PARTS.map(|part| if part == Part::Slow { None } else { self.whose(number, part) })
    }

    /// Has it wait for what it lacks. Returns whose turn has come by that.
    pub(super) fn line_up(&mut self, number: Number, turn: Turn) -> Vec<Granted> {
        let mut granted = Vec::new();
        self.member_mut(number).turn = Some(turn);
        self.advance(number, &mut granted);
        granted
    }

    pub(super) fn is_placed(&self, number: Number, here: Here) -> bool {
        let member = self.member(number);
        member.lacks == Part::Whole && member.here == here
    }

    /// Has it wait for a place elsewhere, with what its client has only.
    pub(super) fn move_to(&mut self, number: Number, here: Here, turn: Turn) -> Vec<Granted> {
        let mut granted = Vec::new();
        self.stop_waiting(number);
        self.give_back(number, Part::Here, &mut granted);
        self.member_mut(number).here = here;
        granted.extend(self.line_up(number, turn));
        granted
    }

    /// Gives back what is not its client's or of this place on the network.
    pub(super) fn give_way(&mut self, number: Number) -> Vec<Granted> {
        let mut granted = Vec::new();
        self.give_back(number, Part::Slow, &mut granted);
        granted
    }

    /// It is gone.
    pub(super) fn leave(&mut self, number: Number) -> Vec<Granted> {
        let mut granted = Vec::new();
        self.stop_waiting(number);
        self.give_back(number, Part::Client, &mut granted);
        self.forget(number);
        granted
    }

    pub(super) fn note_slow(&mut self, number: Number, slow: bool) {
        let Some(here) = self.key(number, Part::Here) else { return };
        if slow {
            self.slow_of_late.put(here, Instant::now());
        } else {
            self.slow_of_late.pop(&here);
        }
    }

    pub(super) fn note_slow_client(&mut self, number: Number) {
        for key in [Part::Client, Part::Site].map(|part| self.key(number, part)).into_iter().flatten() {
            self.slow_of_late.put(key, Instant::now());
        }
    }

    pub(super) fn is_slow(&self, number: Number) -> bool {
        let keys =
            [Part::Client, Part::Site, Part::Here].into_iter().filter_map(|part| self.key(number, part));
        keys.filter_map(|key| self.slow_of_late.peek(&key)).any(|since| since.elapsed() < SLOW_FOR)
    }

    /// Takes one part after the other until one is not free, and waits for that.
    fn advance(&mut self, number: Number, granted: &mut Vec<Granted>) {
        loop {
            let Member { lacks, asker: Asker { lane, .. }, .. } = *self.member(number);
            if lacks == Part::Whole {
                let turn = self.member_mut(number).turn.take();
                return granted.extend(turn.map(|turn| Granted { number, turn }));
            }
            if lacks == Part::Slow {
                self.member_mut(number).slow = self.is_slow(number);
            }
            if let Some(whose) = self.whose(number, lacks) {
                let share = self.share(whose);
                let row = self.row_mut(whose);
                if !row.has_room(lane, share) {
                    return self.wait(number, whose);
                }
                row.take(lane);
            }
            self.member_mut(number).lacks = lacks.next();
        }
    }

    /// Gives back the parts from this one on, from the last to the first.
    fn give_back(&mut self, number: Number, from: Part, granted: &mut Vec<Granted>) {
        let Member { lacks, asker: Asker { lane, .. }, .. } = *self.member(number);
        if lacks <= from {
            return;
        }
        self.member_mut(number).lacks = from;
        let had = PARTS.into_iter().rev().filter(|part| (from..lacks).contains(part));
        let rows: Vec<_> = had.filter_map(|part| self.whose(number, part)).collect();
        for whose in rows {
            self.row_mut(whose).give_back(lane);
            self.serve(whose, granted);
        }
    }

    /// What has become free goes to those who wait for it.
    fn serve(&mut self, whose: Whose, granted: &mut Vec<Granted>) {
        while let Some(next) = self.first(whose) {
            self.stop_waiting(next);
            let lane = self.member(next).asker.lane;
            self.row_mut(whose).take(lane);
            let member = self.member_mut(next);
            member.lacks = member.lacks.next();
            self.advance(next, granted);
        }
        if let Whose::Of(_, key) = whose
            && self.rows.get(&key).is_some_and(Row::is_unused)
        {
            self.rows.remove(&key);
        }
    }

    /// Who waits longest of those for whom there is room.
    fn first(&self, whose: Whose) -> Option<Number> {
        let (row, share) = (self.row(whose)?, self.share(whose));
        let heads = [(Lane::Known, row.known.first), (Lane::Stranger, row.strange.first)];
        let waiting = heads.into_iter().filter(|(lane, head)| *head != NOBODY && row.has_room(*lane, share));
        waiting.map(|(_, head)| head).min_by_key(|head| self.member(*head).order)
    }

    fn wait(&mut self, number: Number, whose: Whose) {
        self.came += 1;
        let order = self.came;
        let lane = self.member(number).asker.lane;
        let queue = self.row_mut(whose).queue(lane);
        let last = std::mem::replace(&mut queue.last, number);
        if last == NOBODY {
            queue.first = number;
        } else {
            self.member_mut(last).next = number;
        }
        let member = self.member_mut(number);
        (member.order, member.waits, member.before, member.next) = (order, true, last, NOBODY);
    }

    fn stop_waiting(&mut self, number: Number) {
        let member = self.member_mut(number);
        if !std::mem::take(&mut member.waits) {
            return;
        }
        let (before, next, lane, lacks) = (member.before, member.next, member.asker.lane, member.lacks);
        let Some(whose) = self.whose(number, lacks) else { return };
        if before == NOBODY {
            self.row_mut(whose).queue(lane).first = next;
        } else {
            self.member_mut(before).next = next;
        }
        if next == NOBODY {
            self.row_mut(whose).queue(lane).last = before;
        } else {
            self.member_mut(next).before = before;
        }
    }

    fn forget(&mut self, number: Number) {
        self.members[number.index()] = None;
        self.free.push(number.0);
        // A crowd that is gone takes no room any more.
        if self.free.len() == self.members.len() {
            (self.members, self.free) = (Vec::new(), Vec::new());
            self.rows.shrink_to_fit();
        }
    }

    /// The row of this part; `None` where it is not counted for this one.
    fn whose(&self, number: Number, part: Part) -> Option<Whose> {
        let member = self.member(number);
        match part {
            Part::Client | Part::Site | Part::Here => self.key(number, part).map(|key| Whose::Of(part, key)),
            Part::Slow => member.slow.then_some(Whose::Slow(member.asker.lane)),
            Part::All => Some(Whose::All),
            Part::Whole => None,
        }
    }

    fn key(&self, number: Number, part: Part) -> Option<u64> {
        let Member { asker, here, .. } = self.member(number);
        let client = self.bounds.client.and(asker.client);
        match part {
            Part::Client => client.map(|client| self.hasher.hash_one((part, client))),
            Part::Site => client.and_then(site).map(|site| self.hasher.hash_one((part, site))),
            Part::Here => Some(here.0),
            Part::Slow | Part::All | Part::Whole => None,
        }
    }

    fn share(&self, whose: Whose) -> Share {
        let Bounds { all, slow, here, client } = self.bounds;
        let one_kind = |places| Share { most: places, strangers: places };
        match whose {
            Whose::Of(Part::Client, _) => client.unwrap_or(all),
            Whose::Of(Part::Site, _) => client.unwrap_or(all).times(CLIENTS_OF_ONE_SITE),
            Whose::Of(..) => here,
            Whose::Slow(Lane::Known) => one_kind(slow.known),
            Whose::Slow(Lane::Stranger) => one_kind(slow.strangers),
            Whose::All => all,
        }
    }

    fn row(&self, whose: Whose) -> Option<&Row> {
        match whose {
            Whose::Of(_, key) => self.rows.get(&key),
            Whose::Slow(Lane::Known) => self.slow.first(),
            Whose::Slow(Lane::Stranger) => self.slow.last(),
            Whose::All => Some(&self.all),
        }
    }

    fn row_mut(&mut self, whose: Whose) -> &mut Row {
        match whose {
            Whose::Of(_, key) => self.rows.entry(key).or_default(),
            Whose::Slow(Lane::Known) => &mut self.slow[0],
            Whose::Slow(Lane::Stranger) => &mut self.slow[1],
            Whose::All => &mut self.all,
        }
    }

    fn member(&self, number: Number) -> &Member {
        self.members[number.index()].as_ref().expect("a number is given back once, by whoever has it")
    }

    fn member_mut(&mut self, number: Number) -> &mut Member {
        self.members[number.index()].as_mut().expect("a number is given back once, by whoever has it")
    }

    #[cfg(test)]
    pub(super) fn are_empty(&self) -> bool {
        self.rows.is_empty() && self.members.is_empty() && self.all.is_unused()
    }
}
