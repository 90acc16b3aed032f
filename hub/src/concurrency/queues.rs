//! The queues of a limiter: who has a permit, who waits at which limit, and who is next. They know no task and no socket.
//!
//! An entry passes five limits in this order: its client, the client's IPv6 site, the peer, slow peers, and the total. While it
//! waits at one limit it counts at those before and at none behind, so it takes nothing from others meanwhile. Each limit serves
//! its queue in the order of arrival, except that strangers may not use what is reserved for trusted clients.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;
use tokio::sync::oneshot;

use super::{Client, ClientClass, ConcurrencyLimits, GrantSender, Limit};
use crate::rate_limiter::{CLIENTS_OF_ONE_SITE, site};

/// For how long a peer counts as slow after a timeout.
const SLOW_FOR: Duration = Duration::from_secs(600);
/// One in so many places to wait is kept for clients with few entries, so that a few clients cannot keep out all others.
pub(crate) const KEPT_ONE_IN: usize = 10;
/// Entries of one client that are few.
pub(crate) const FEW: usize = 20;
/// Slow peers that are remembered, a hash and a time each. Beyond that, the one that was slow longest ago is forgotten.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(20_000).expect("twenty thousand is not zero");

/// Bytes of a waiting entry; with a counter for a client, a site and a peer of its own, twice 96 bytes more.
const WAITING_BYTES: usize = 80;
const _: () = assert!(size_of::<Option<Entry>>() <= WAITING_BYTES);
const _: () = assert!(size_of::<(u64, Counter)>() <= 32);

/// A counter of which nothing is taken.
const UNUSED: Counter = Counter {
    taken: 0,
    strangers: 0,
    trusted_queue: Queue { first: NONE, last: NONE },
    stranger_queue: Queue { first: NONE, last: NONE },
};
/// No entry: the end of a queue.
pub(super) const NONE: EntryId = EntryId(u32::MAX);

/// The index of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryId(u32);

/// The name of a peer as a hash, so that long names take no more memory than short ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer(u64);

impl Peer {
    pub(super) fn of(hasher: &RandomState, peer: &str) -> Self {
        Self(hasher.hash_one(peer))
    }
}

/// Who is notified when an entry gets its permit.
#[derive(Debug)]
pub(super) enum Notify {
    Task(oneshot::Sender<()>),
    Channel(GrantSender, u64),
}

/// An entry that got its permit.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) id: EntryId,
    pub(super) notify: Notify,
}

/// The limits in the order in which an entry passes them; `Complete` is behind the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Level {
    Client,
    Site,
    Peer,
    Slow,
    Total,
    Complete,
}

const LEVELS: [Level; 5] = [Level::Client, Level::Site, Level::Peer, Level::Slow, Level::Total];

/// Which counter: one of many, by the hash of level and name, or one of the few that all share.
#[derive(Clone, Copy, Debug)]
enum CounterKey {
    Of(Level, u64),
    Slow(ClientClass),
    Total,
}

/// A permit, or what waits for one.
#[derive(Debug)]
struct Entry {
    client: Client,
    peer: Peer,
    notify: Option<Notify>,
    /// Its position in the order of arrival at the queue in which it waits.
    order: u64,
    next: EntryId,
    before: EntryId,
    /// The first limit that it has not passed.
    missing: Level,
    waits: bool,
    /// It counts as slow.
    slow: bool,
}

/// How much of one limit is taken, and who waits for it.
#[derive(Debug, Default)]
struct Counter {
    taken: u32,
    strangers: u32,
    trusted_queue: Queue,
    stranger_queue: Queue,
}

/// The first and the last entry that wait.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: EntryId,
    last: EntryId,
}

#[derive(Debug)]
pub(super) struct Queues {
    bounds: ConcurrencyLimits,
    hasher: RandomState,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    counters: HashMap<u64, Counter>,
    slow: [Counter; 2],
    total: Counter,
    slow_since: LruCache<u64, Instant, RandomState>,
    last_order: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl Counter {
    fn has_room(&self, class: ClientClass, limit: Limit) -> bool {
        let below = |taken: u32, most: usize| usize::try_from(taken).is_ok_and(|taken| taken < most);
        below(self.taken, limit.total)
            && (class == ClientClass::Trusted || below(self.strangers, limit.strangers))
    }

    fn take(&mut self, class: ClientClass) {
        self.taken += 1;
        self.strangers += u32::from(class == ClientClass::Stranger);
    }

    fn give_back(&mut self, class: ClientClass) {
        self.taken -= 1;
        self.strangers -= u32::from(class == ClientClass::Stranger);
    }

    fn queue(&mut self, class: ClientClass) -> &mut Queue {
        match class {
            ClientClass::Trusted => &mut self.trusted_queue,
            ClientClass::Stranger => &mut self.stranger_queue,
        }
    }

    fn is_unused(&self) -> bool {
        self.taken == 0 && self.trusted_queue.first == NONE && self.stranger_queue.first == NONE
    }
}

impl Limit {
    /// The part of places to wait that is open to a client. Strangers never use those that are kept of the total: they have no
    /// need of a subscription in force, so there may be many of them.
    fn open_to(self, class: ClientClass, has_few: bool) -> Self {
        let Self { total, strangers } = self;
        let less = |places: usize| places - places / KEPT_ONE_IN;
        match (class, has_few) {
            (ClientClass::Trusted, true) => self,
            (ClientClass::Stranger, true) => Self { total: less(total), strangers },
            (_, false) => Self { total: less(total), strangers: less(strangers) },
        }
    }
}

impl Level {
    fn next(self) -> Self {
        match self {
            Self::Client => Self::Site,
            Self::Site => Self::Peer,
            Self::Peer => Self::Slow,
            Self::Slow => Self::Total,
            Self::Total | Self::Complete => Self::Complete,
        }
    }
}

impl EntryId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl Queues {
    pub(super) fn new(bounds: ConcurrencyLimits) -> Self {
        Self {
            bounds,
            hasher: RandomState::new(),
            entries: Vec::new(),
            free: Vec::new(),
            counters: HashMap::new(),
            slow: Default::default(),
            total: Counter::default(),
            slow_since: LruCache::with_hasher(REMEMBERED, RandomState::new()),
            last_order: 0,
        }
    }

    pub(super) fn bounds(&self) -> ConcurrencyLimits {
        self.bounds
    }

    /// An entry that counts nowhere yet and does not wait.
    pub(super) fn insert(&mut self, client: Client, peer: Peer) -> EntryId {
        let entry = Entry {
            client,
            peer,
            notify: None,
            order: 0,
            next: NONE,
            before: NONE,
            missing: Level::Client,
            waits: false,
            slow: false,
        };
        if let Some(free) = self.free.pop() {
            let id = EntryId(free);
            self.entries[id.index()] = Some(entry);
            return id;
        }
        let id =
            u32::try_from(self.entries.len()).expect("bounds of what may wait are far below four billion");
        self.entries.push(Some(entry));
        EntryId(id)
    }

    /// An entry with a permit, if one is free now. It is for waiting, not for a request, so slow peers are no exception. The last
    /// places of those that clients share are for clients with few entries.
    pub(super) fn try_insert(&mut self, client: Client, peer: Peer) -> Option<EntryId> {
        let id = self.insert(client, peer);
        let has_few = self.has_few(id);
        let has_room = |key: CounterKey| {
            let limit = match key {
                CounterKey::Of(Level::Client | Level::Site, _) => self.limit(key),
                _ => self.limit(key).open_to(client.class, has_few),
            };
            self.counter(key).unwrap_or(&UNUSED).has_room(client.class, limit)
        };
        if !self.keys_without_slow(id).into_iter().flatten().all(has_room) {
            self.remove_entry(id);
            return None;
        }
        self.take_whole(id);
        Some(id)
    }

    /// Whether the client of an entry, and its site, have few others.
    fn has_few(&self, id: EntryId) -> bool {
        [(Level::Client, FEW), (Level::Site, FEW * CLIENTS_OF_ONE_SITE)].into_iter().all(|(level, few)| {
            let counter = self.counter_key(id, level).and_then(|key| self.counter(key));
            let few = Limit { total: few, strangers: few };
            counter.unwrap_or(&UNUSED).has_room(ClientClass::Trusted, few)
        })
    }

    /// An entry with a permit, whether or not one is free.
    pub(super) fn force_insert(&mut self, client: Client, peer: Peer) -> EntryId {
        let id = self.insert(client, peer);
        self.take_whole(id);
        id
    }

    fn take_whole(&mut self, id: EntryId) {
        let class = self.entry(id).client.class;
        for key in self.keys_without_slow(id).into_iter().flatten() {
            self.counter_mut(key).take(class);
        }
        self.entry_mut(id).missing = Level::Complete;
    }

    /// The counters of a permit that is not for a request.
    fn keys_without_slow(&self, id: EntryId) -> [Option<CounterKey>; 5] {
        LEVELS.map(|level| if level == Level::Slow { None } else { self.counter_key(id, level) })
    }

    /// Has an entry wait for the limits that it has not passed. Returns the entries that get their permits by that.
    pub(super) fn enqueue(&mut self, id: EntryId, notify: Notify) -> Vec<Grant> {
        let mut granted = Vec::new();
        self.entry_mut(id).notify = Some(notify);
        self.advance(id, &mut granted);
        granted
    }

    pub(super) fn has_permit_at(&self, id: EntryId, peer: Peer) -> bool {
        let entry = self.entry(id);
        entry.missing == Level::Complete && entry.peer == peer
    }

    /// Has an entry wait for a permit for another peer; it keeps only the share of its client.
    pub(super) fn move_to(&mut self, id: EntryId, peer: Peer, notify: Notify) -> Vec<Grant> {
        let mut granted = Vec::new();
        self.unlink(id);
        self.give_back(id, Level::Peer, &mut granted);
        self.entry_mut(id).peer = peer;
        granted.extend(self.enqueue(id, notify));
        granted
    }

    /// Gives back all but the shares of client and peer.
    pub(super) fn release_shared(&mut self, id: EntryId) -> Vec<Grant> {
        let mut granted = Vec::new();
        self.give_back(id, Level::Slow, &mut granted);
        granted
    }

    /// Gives back everything and forgets the entry.
    pub(super) fn remove(&mut self, id: EntryId) -> Vec<Grant> {
        let mut granted = Vec::new();
        self.unlink(id);
        self.give_back(id, Level::Client, &mut granted);
        self.remove_entry(id);
        granted
    }

    pub(super) fn set_slow(&mut self, id: EntryId, slow: bool) {
        let Some(peer) = self.hash(id, Level::Peer) else { return };
        if slow {
            self.slow_since.put(peer, Instant::now());
        } else {
            self.slow_since.pop(&peer);
        }
    }

    pub(super) fn set_client_slow(&mut self, id: EntryId) {
        for key in [Level::Client, Level::Site].map(|level| self.hash(id, level)).into_iter().flatten() {
            self.slow_since.put(key, Instant::now());
        }
    }

    pub(super) fn is_slow(&self, id: EntryId) -> bool {
        let keys =
            [Level::Client, Level::Site, Level::Peer].into_iter().filter_map(|level| self.hash(id, level));
        keys.filter_map(|key| self.slow_since.peek(&key)).any(|since| since.elapsed() < SLOW_FOR)
    }

    /// Passes one limit after the other until one is reached, and waits there.
    fn advance(&mut self, id: EntryId, granted: &mut Vec<Grant>) {
        loop {
            let Entry { missing, client: Client { class, .. }, .. } = *self.entry(id);
            if missing == Level::Complete {
                let notify = self.entry_mut(id).notify.take();
                return granted.extend(notify.map(|notify| Grant { id, notify }));
            }
            if missing == Level::Slow {
                self.entry_mut(id).slow = self.is_slow(id);
            }
            if let Some(key) = self.counter_key(id, missing) {
                let limit = self.limit(key);
                let counter = self.counter_mut(key);
                if !counter.has_room(class, limit) {
                    return self.push_waiter(id, key);
                }
                counter.take(class);
            }
            self.entry_mut(id).missing = missing.next();
        }
    }

    /// Gives back the shares from this level on, from the last to the first.
    fn give_back(&mut self, id: EntryId, from: Level, granted: &mut Vec<Grant>) {
        let Entry { missing, client: Client { class, .. }, .. } = *self.entry(id);
        if missing <= from {
            return;
        }
        self.entry_mut(id).missing = from;
        let had = LEVELS.into_iter().rev().filter(|level| (from..missing).contains(level));
        let counters: Vec<_> = had.filter_map(|level| self.counter_key(id, level)).collect();
        for key in counters {
            self.counter_mut(key).give_back(class);
            self.grant_next(key, granted);
        }
    }

    /// Gives what has become free to the entries that wait for it.
    fn grant_next(&mut self, key: CounterKey, granted: &mut Vec<Grant>) {
        while let Some(next) = self.first(key) {
            self.unlink(next);
            let class = self.entry(next).client.class;
            self.counter_mut(key).take(class);
            let entry = self.entry_mut(next);
            entry.missing = entry.missing.next();
            self.advance(next, granted);
        }
        if let CounterKey::Of(_, key) = key
            && self.counters.get(&key).is_some_and(Counter::is_unused)
        {
            self.counters.remove(&key);
        }
    }

    /// The entry that waits longest, of those that may take what is free.
    fn first(&self, key: CounterKey) -> Option<EntryId> {
        let (counter, limit) = (self.counter(key)?, self.limit(key));
        let heads = [
            (ClientClass::Trusted, counter.trusted_queue.first),
            (ClientClass::Stranger, counter.stranger_queue.first),
        ];
        let waiting =
            heads.into_iter().filter(|(class, head)| *head != NONE && counter.has_room(*class, limit));
        waiting.map(|(_, head)| head).min_by_key(|head| self.entry(*head).order)
    }

    fn push_waiter(&mut self, id: EntryId, key: CounterKey) {
        self.last_order += 1;
        let order = self.last_order;
        let class = self.entry(id).client.class;
        let queue = self.counter_mut(key).queue(class);
        let last = std::mem::replace(&mut queue.last, id);
        if last == NONE {
            queue.first = id;
        } else {
            self.entry_mut(last).next = id;
        }
        let entry = self.entry_mut(id);
        (entry.order, entry.waits, entry.before, entry.next) = (order, true, last, NONE);
    }

    fn unlink(&mut self, id: EntryId) {
        let entry = self.entry_mut(id);
        if !std::mem::take(&mut entry.waits) {
            return;
        }
        let (before, next, class, missing) = (entry.before, entry.next, entry.client.class, entry.missing);
        let Some(key) = self.counter_key(id, missing) else { return };
        if before == NONE {
            self.counter_mut(key).queue(class).first = next;
        } else {
            self.entry_mut(before).next = next;
        }
        if next == NONE {
            self.counter_mut(key).queue(class).last = before;
        } else {
            self.entry_mut(next).before = before;
        }
    }

    fn remove_entry(&mut self, id: EntryId) {
        self.entries[id.index()] = None;
        self.free.push(id.0);
        // After a burst the memory is given back.
        if self.free.len() == self.entries.len() {
            (self.entries, self.free) = (Vec::new(), Vec::new());
            self.counters.shrink_to_fit();
        }
    }

    /// The counter of this level; `None` where it is not counted for this one.
    fn counter_key(&self, id: EntryId, level: Level) -> Option<CounterKey> {
        let entry = self.entry(id);
        match level {
            Level::Client | Level::Site | Level::Peer => {
                self.hash(id, level).map(|key| CounterKey::Of(level, key))
            }
            Level::Slow => entry.slow.then_some(CounterKey::Slow(entry.client.class)),
            Level::Total => Some(CounterKey::Total),
            Level::Complete => None,
        }
    }

    fn hash(&self, id: EntryId, level: Level) -> Option<u64> {
        let Entry { client, peer, .. } = self.entry(id);
        let client = self.bounds.client.and(client.network);
        match level {
            Level::Client => client.map(|client| self.hasher.hash_one((level, client))),
            Level::Site => client.and_then(site).map(|site| self.hasher.hash_one((level, site))),
            Level::Peer => Some(peer.0),
            Level::Slow | Level::Total | Level::Complete => None,
        }
    }

    fn limit(&self, key: CounterKey) -> Limit {
        let ConcurrencyLimits { total, slow, peer, client } = self.bounds;
        let one_kind = |permits| Limit { total: permits, strangers: permits };
        match key {
            CounterKey::Of(Level::Client, _) => client.unwrap_or(total),
            CounterKey::Of(Level::Site, _) => client.unwrap_or(total).times(CLIENTS_OF_ONE_SITE),
            CounterKey::Of(..) => peer,
            CounterKey::Slow(ClientClass::Trusted) => one_kind(slow.trusted),
            CounterKey::Slow(ClientClass::Stranger) => one_kind(slow.strangers),
            CounterKey::Total => total,
        }
    }

    fn counter(&self, key: CounterKey) -> Option<&Counter> {
        match key {
            CounterKey::Of(_, key) => self.counters.get(&key),
            CounterKey::Slow(ClientClass::Trusted) => self.slow.first(),
            CounterKey::Slow(ClientClass::Stranger) => self.slow.last(),
            CounterKey::Total => Some(&self.total),
        }
    }

    fn counter_mut(&mut self, key: CounterKey) -> &mut Counter {
        match key {
            CounterKey::Of(_, key) => self.counters.entry(key).or_default(),
            CounterKey::Slow(ClientClass::Trusted) => &mut self.slow[0],
            CounterKey::Slow(ClientClass::Stranger) => &mut self.slow[1],
            CounterKey::Total => &mut self.total,
        }
    }

    fn entry(&self, id: EntryId) -> &Entry {
        self.entries[id.index()].as_ref().expect("a id is given back once, by whoever has it")
    }

    fn entry_mut(&mut self, id: EntryId) -> &mut Entry {
        self.entries[id.index()].as_mut().expect("a id is given back once, by whoever has it")
    }

    #[cfg(test)]
    pub(super) fn are_empty(&self) -> bool {
        self.counters.is_empty() && self.entries.is_empty() && self.total.is_unused()
    }
}
