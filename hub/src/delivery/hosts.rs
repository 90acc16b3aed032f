//! Callback origins: how many requests each may have at once, whose turn it is, and which of them are left alone.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::breaker::{Breaker, BreakerPolicy, Change, Sign};
use super::waiting::Waiting;
use crate::store::{SubscriptionId, TopicId};

/// An origin, as a small number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostId(u32);

/// A subscription that waits for its host.
pub(super) type Waiter = (TopicId, SubscriptionId);

/// A host whose answers take longer than this, or will, is a slow one.
const SLOW: Duration = Duration::from_secs(3);

/// What kind of work a request is. Each has a share of all requests under way, so that none can crowd out the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The first attempt at a notification.
    First,
    /// What failed before is tried again.
    Again,
    /// Whatever goes to a host that has been slow lately.
    Slow,
}

impl Lane {
    pub(super) const ALL: [Self; 3] = [Self::First, Self::Again, Self::Slow];

    /// What metrics call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Again => "again",
            Self::Slow => "slow",
        }
    }
}

/// The lanes that have a place left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenLanes([bool; 3]);

impl OpenLanes {
    #[cfg(test)]
    pub(super) const ALL: Self = Self([true; 3]);

    pub(super) fn new(has_place: impl Fn(Lane) -> bool) -> Self {
        Self(Lane::ALL.map(has_place))
    }

    pub(super) fn any(self) -> bool {
        self.0.contains(&true)
    }

    pub(super) fn has(self, lane: Lane) -> bool {
        self.0[lane as usize]
    }
}

/// The hosts of one shard.
#[derive(Debug)]
pub(super) struct Hosts {
    limit: usize,
    policy: BreakerPolicy,
    by_origin: HashMap<Arc<str>, HostId>,
    states: Vec<Host>,
    /// Numbers that are free again.
    free: Vec<HostId>,
    /// By lane, hosts that have both a waiter and a free place, in the order in which they got them.
    ready: [VecDeque<HostId>; 3],
    /// The lane that is served next.
    turn: usize,
    /// Hosts that have failed lately; most never do.
    breakers: HashMap<HostId, Breaker>,
    pauses: BinaryHeap<Reverse<(Instant, HostId)>>,
    /// How many requests are under way, by when they began, but for those that hang.
    under_way: BTreeMap<(Instant, HostId), u32>,
    /// Breakers that opened, for the log.
    opened: Vec<(String, Duration)>,
    /// When hosts were woken last.
    now: Instant,
}

#[derive(Debug)]
struct Host {
    origin: Arc<str>,
    /// Subscriptions with this origin.
    subscriptions: u32,
    in_flight: u32,
    /// So many of these have been under way for longer than a quick answer takes.
    hanging: u32,
    /// How often it has confirmed anything.
    confirmations: u32,
    first: Waiting,
    again: Waiting,
    in_ready: [bool; 3],
    /// It has been slow, and is until so many more answers have come quickly, one after the other.
    quick_owed: u32,
    next_again: bool,
    /// How often it has answered, be it with a refusal.
    answers: u32,
}

/// A host that is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenHost {
    /// Which one.
    pub origin: String,
    /// Until one request asks how it is.
    pub for_another: Duration,
    /// Subscriptions that wait for it.
    pub waiting: usize,
}

impl Hosts {
    pub(super) fn new(limit: usize, policy: BreakerPolicy) -> Self {
        Self {
            limit: limit.max(1),
            policy,
            by_origin: HashMap::new(),
            states: Vec::new(),
            free: Vec::new(),
            ready: Default::default(),
            turn: 0,
            breakers: HashMap::new(),
            pauses: BinaryHeap::new(),
            under_way: BTreeMap::new(),
            opened: Vec::new(),
            now: Instant::now(),
        }
    }

    /// The number of this origin, for one more subscription.
    pub(super) fn join(&mut self, origin: &Arc<str>) -> HostId {
        let id = self.by_origin.get(origin).copied().unwrap_or_else(|| self.add(origin));
        self.host(id).subscriptions += 1;
        id
    }

    /// One subscription less; the last one to leave takes the host along.
    pub(super) fn leave(&mut self, id: HostId) {
        self.host(id).subscriptions -= 1;
        self.forget_if_unused(id);
    }

    fn add(&mut self, origin: &Arc<str>) -> HostId {
        let host = Host::new(Arc::clone(origin));
        let id = if let Some(id) = self.free.pop() {
            *self.host(id) = host;
            id
        } else {
            self.states.push(host);
            HostId(u32::try_from(self.states.len() - 1).expect("fewer than 2^32 origins fit into memory"))
        };
        self.by_origin.insert(Arc::clone(origin), id);
        id
    }

    fn forget_if_unused(&mut self, id: HostId) {
        let host = self.host(id);
        if host.subscriptions == 0 && host.in_flight == 0 && host.in_ready == [false; 3] {
            let origin = Arc::clone(&host.origin);
            host.first.clear();
            host.again.clear();
            // A host that waits to be forgotten may have been left twice: by its last subscription and its last request.
            if self.by_origin.remove(&origin).is_some() {
                self.breakers.remove(&id);
                self.free.push(id);
            }
        }
    }

    /// Puts a subscription behind those of its topic that wait for its host; `again` if it failed before.
    pub(super) fn wait(&mut self, id: HostId, waiter: Waiter, again: bool) {
        let now = self.now;
        let host = self.host(id);
        let queue = if again { &mut host.again } else { &mut host.first };
        queue.push(waiter, now);
        self.mark_ready(id);
    }

    /// The next subscription whose host and lane have a free place, which it takes. Lanes take turns, and so do hosts.
    pub(super) fn take(&mut self, open: OpenLanes) -> Option<(HostId, Lane, Waiter)> {
        for step in 0..Lane::ALL.len() {
            let index = (self.turn + step) % Lane::ALL.len();
            if !open.0[index] {
                continue;
            }
            let lane = Lane::ALL[index];
            while let Some(id) = self.ready[index].pop_front() {
                let limit = self.at_once(id);
                let host = self.host(id);
                host.in_ready[index] = false;
                if (host.in_flight as usize) < limit
                    && let Some(waiter) = host.pop(lane)
                {
                    host.in_flight += 1;
                    *self.under_way.entry((self.now, id)).or_default() += 1;
                    self.turn = (index + 1) % Lane::ALL.len();
                    self.mark_ready(id);
                    return Some((id, lane, waiter));
                }
                self.forget_if_unused(id);
            }
        }
        None
    }

    /// The host has confirmed where its name leads now.
    pub(super) fn confirmed(&mut self, id: HostId) {
        let host = self.host(id);
        host.confirmations = host.confirmations.wrapping_add(1);
    }

    /// How often it has, so that whoever waits for that can tell whether it has happened.
    pub(super) fn confirmations(&self, id: HostId) -> u32 {
        self.states[id.0 as usize].confirmations
    }

    /// How often it has answered, so that whoever got no answer can tell whether others have.
    pub(super) fn answers(&self, id: HostId) -> u32 {
        self.states[id.0 as usize].answers
    }

    /// Gives a place back that was taken at this moment, for nothing.
    pub(super) fn release(&mut self, id: HostId, begun: Instant) {
        let has_hung = match self.under_way.entry((begun, id)) {
            Entry::Occupied(mut requests) if *requests.get() > 1 => {
                *requests.get_mut() -= 1;
                false
            }
            Entry::Occupied(last) => {
                last.remove();
                false
            }
            Entry::Vacant(_) => true,
        };
        let host = self.host(id);
        host.in_flight = host.in_flight.saturating_sub(1);
        host.hanging = host.hanging.saturating_sub(u32::from(has_hung));
        self.mark_ready(id);
        self.forget_if_unused(id);
    }

    /// Gives a place back after a request that began at this moment and ended so.
    pub(super) fn answered(&mut self, id: HostId, sign: Sign, begun: Instant, now: Instant) {
        if sign != Sign::None {
            // One quick answer among slow ones makes no quick host: as many in a row as may be under way at once do.
            let row = u32::try_from(self.limit).unwrap_or(u32::MAX);
            let host = self.host(id);
            host.quick_owed = if is_long(begun, now) { row } else { host.quick_owed.saturating_sub(1) };
            self.record(id, sign, now);
        }
        self.release(id, begun);
    }

    fn record(&mut self, id: HostId, sign: Sign, now: Instant) {
        if sign == Sign::Alive {
            let host = self.host(id);
            host.answers = host.answers.wrapping_add(1);
        }
        if sign == Sign::Alive && !self.breakers.contains_key(&id) {
            return;
        }
        let breaker = self.breakers.entry(id).or_insert_with(|| Breaker::new(now));
        match breaker.record(sign, self.limit, &self.policy, now) {
            Change::Nothing => {}
            Change::Well => drop(self.breakers.remove(&id)),
            Change::Opened(until) => {
                self.pauses.push(Reverse((until, id)));
                let origin = self.host(id).origin.to_string();
                self.opened.push((origin, until - now));
            }
        }
    }

    /// Lets hosts whose pause is over have a probe, and sees who keeps requests waiting.
    pub(super) fn wake(&mut self, now: Instant) {
        self.now = now;
        self.note_hanging(now);
        while let Some(Reverse((until, id))) = self.pauses.peek().copied() {
            if until > now {
                return;
            }
            self.pauses.pop();
            // The number may be another host's by now, and the pause another one.
            if let Some(breaker) = self.breakers.get_mut(&id)
                && breaker.until() == Some(until)
            {
                breaker.probe();
                self.mark_ready(id);
            }
        }
    }

    /// A host that lets requests hang is a slow one long before they end: until then it would take places from the others.
    fn note_hanging(&mut self, now: Instant) {
        while let Some(oldest) = self.under_way.first_entry().filter(|oldest| is_long(oldest.key().0, now)) {
            let ((_, id), requests) = oldest.remove_entry();
            self.host(id).hanging += requests;
            self.mark_ready(id);
        }
    }

    /// The operator does not want to wait for this host any longer.
    pub(super) fn probe_now(&mut self, id: HostId) {
        if let Some(breaker) = self.breakers.get_mut(&id) {
            breaker.probe();
            self.mark_ready(id);
        }
    }

    /// Whether nothing is sent to this host for now.
    pub(super) fn is_left_alone(&self, id: HostId) -> bool {
        self.breakers.get(&id).is_some_and(|breaker| breaker.until().is_some())
    }

    /// The host with this origin, if any subscription has it.
    pub(super) fn find(&self, origin: &str) -> Option<HostId> {
        self.by_origin.get(origin).copied()
    }

    /// For how long a host is left alone.
    pub(super) fn left_alone(&self, id: HostId, now: Instant) -> Option<Duration> {
        Some(self.breakers.get(&id)?.until()?.saturating_duration_since(now))
    }

    /// The origin of a host.
    pub(super) fn origin(&self, id: HostId) -> &str {
        &self.states[id.0 as usize].origin
    }

    /// When the next pause ends, if there is one.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.pauses.peek().map(|Reverse((until, _))| *until)
    }

    /// Breakers that opened since the last call, with their pauses.
    pub(super) fn take_opened(&mut self) -> Vec<(String, Duration)> {
        std::mem::take(&mut self.opened)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.by_origin.len()
    }

    /// How many breakers are open.
    pub(super) fn open_count(&self) -> usize {
        self.breakers.values().filter(|breaker| breaker.until().is_some()).count()
    }

    /// The hosts whose breakers are open.
    pub(super) fn open(&self, now: Instant) -> Vec<OpenHost> {
        let view = |(id, breaker): (&HostId, &Breaker)| {
            let host = &self.states[id.0 as usize];
            Some(OpenHost {
                origin: host.origin.to_string(),
                for_another: breaker.until()?.saturating_duration_since(now),
                waiting: host.first.len() + host.again.len(),
            })
        };
        self.breakers.iter().filter_map(view).collect()
    }

    /// How many wait since before this moment for a place at a host that is not left alone. Looks at every host.
    pub(super) fn waiting_since(&self, moment: Instant) -> usize {
        let waiting = |host: &Host| host.first.since(moment) + host.again.since(moment);
        let all: usize = self.states.iter().map(waiting).sum();
        let left_alone = self.breakers.iter().filter(|(_, breaker)| breaker.until().is_some());
        all - left_alone.map(|(id, _)| waiting(&self.states[id.0 as usize])).sum::<usize>()
    }

    fn at_once(&self, id: HostId) -> usize {
        self.breakers.get(&id).map_or(self.limit, |breaker| breaker.at_once(self.limit))
    }

    fn mark_ready(&mut self, id: HostId) {
        let limit = if self.breakers.is_empty() { self.limit } else { self.at_once(id) };
        let host = &mut self.states[id.0 as usize];
        if host.in_flight as usize >= limit {
            return;
        }
        let waits = if host.is_slow() {
            [false, false, !(host.first.is_empty() && host.again.is_empty())]
        } else {
            [!host.first.is_empty(), !host.again.is_empty(), false]
        };
        for (index, waits) in waits.into_iter().enumerate() {
            if waits && !host.in_ready[index] {
                host.in_ready[index] = true;
                self.ready[index].push_back(id);
            }
        }
    }

    fn host(&mut self, id: HostId) -> &mut Host {
        &mut self.states[id.0 as usize]
    }
}

impl Host {
    fn new(origin: Arc<str>) -> Self {
        Self {
            origin,
            subscriptions: 0,
            in_flight: 0,
            hanging: 0,
            confirmations: 0,
            first: Waiting::new(),
            again: Waiting::new(),
            in_ready: [false; 3],
            quick_owed: 0,
            next_again: false,
            answers: 0,
        }
    }

    fn is_slow(&self) -> bool {
        self.quick_owed > 0 || self.hanging > 0
    }

    /// The next one of a lane. A host may have become slow, or quick again, since it got into its queue.
    fn pop(&mut self, lane: Lane) -> Option<Waiter> {
        match lane {
            Lane::First if !self.is_slow() => self.first.pop(),
            Lane::Again if !self.is_slow() => self.again.pop(),
            Lane::Slow if self.is_slow() => {
                self.next_again = !self.next_again;
                let (one, other) = if self.next_again {
                    (&mut self.again, &mut self.first)
                } else {
                    (&mut self.first, &mut self.again)
                };
                one.pop().or_else(|| other.pop())
            }
            Lane::First | Lane::Again | Lane::Slow => None,
        }
    }
}

fn is_long(begun: Instant, now: Instant) -> bool {
    now.saturating_duration_since(begun) > SLOW
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(limit: usize) -> Hosts {
        let policy =
            BreakerPolicy { failures: 2, open: Duration::from_secs(30), open_max: Duration::from_secs(60) };
        Hosts::new(limit, policy)
    }

    /// Who is next, whatever the lane.
    fn next(hosts: &mut Hosts) -> Option<(HostId, Waiter)> {
        hosts.take(OpenLanes::ALL).map(|(host, _, waiter)| (host, waiter))
    }

    fn waiter(id: u64) -> Waiter {
        (TopicId(1), SubscriptionId(id))
    }

    /// What began when the hosts were woken last ends so, after so many seconds.
    fn answer(hosts: &mut Hosts, host: HostId, sign: Sign, seconds: u64) {
        let begun = hosts.now;
        hosts.answered(host, sign, begun, begun + Duration::from_secs(seconds));
    }

    #[test]
    fn a_host_serves_no_more_than_its_limit_and_the_rest_in_order() {
        let mut hosts = hosts(2);
        let host = hosts.join(&"https://a.example".into());
        (1..=4).for_each(|id| hosts.wait(host, waiter(id), false));
        assert_eq!(next(&mut hosts), Some((host, waiter(1))));
        assert_eq!(next(&mut hosts), Some((host, waiter(2))));
        assert_eq!(next(&mut hosts), None);
        hosts.release(host, hosts.now);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))));
        assert_eq!(next(&mut hosts), None);
    }

    #[test]
    fn a_busy_host_does_not_hold_up_another() {
        let mut hosts = hosts(1);
        let (slow, quick) =
            (hosts.join(&"https://slow.example".into()), hosts.join(&"https://quick.example".into()));
        hosts.wait(slow, waiter(1), false);
        hosts.wait(slow, waiter(2), false);
        hosts.wait(quick, waiter(3), false);
        assert_eq!(next(&mut hosts).map(|(_, waiter)| waiter), Some(waiter(1)));
        assert_eq!(next(&mut hosts).map(|(_, waiter)| waiter), Some(waiter(3)));
        assert_eq!(next(&mut hosts), None);
    }

    #[test]
    fn a_host_is_forgotten_with_its_last_subscription_and_its_last_request() {
        let mut hosts = hosts(1);
        let first = hosts.join(&"https://a.example".into());
        hosts.wait(first, waiter(1), false);
        next(&mut hosts);
        hosts.leave(first);
        assert_ne!(hosts.join(&"https://b.example".into()), first, "a request is still under way");
        hosts.release(first, hosts.now);
        assert_eq!(hosts.join(&"https://c.example".into()), first, "the number is free again");
        assert_eq!(hosts.count(), 2);
    }

    #[test]
    fn a_host_in_trouble_is_left_alone_and_then_probed_once() {
        let mut hosts = hosts(4);
        let (host, now) = (hosts.join(&"https://a.example".into()), Instant::now());
        (1..=6).for_each(|id| hosts.wait(host, waiter(id), false));
        for _ in 0..2 {
            assert!(next(&mut hosts).is_some());
        }
        for _ in 0..2 {
            answer(&mut hosts, host, Sign::Trouble(None), 0);
        }
        assert_eq!(next(&mut hosts), None, "the breaker is open");
        assert_eq!(hosts.open(now).len(), 1);
        assert_eq!(hosts.take_opened()[0].0, "https://a.example");
        let until = hosts.next_wake().unwrap();
        hosts.wake(until);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))));
        assert_eq!(next(&mut hosts), None, "one probe");
        answer(&mut hosts, host, Sign::Alive, 0);
        assert_eq!(next(&mut hosts), Some((host, waiter(4))));
        assert_eq!(next(&mut hosts), None, "it begins slowly");
    }

    #[test]
    fn lanes_take_turns_and_a_full_one_holds_up_no_other() {
        let mut hosts = hosts(8);
        let host = hosts.join(&"https://a.example".into());
        (1..=3).for_each(|id| hosts.wait(host, waiter(id), false));
        (4..=6).for_each(|id| hosts.wait(host, waiter(id), true));
        let order: Vec<_> = (0..4).filter_map(|_| next(&mut hosts)).map(|(_, (_, id))| id.0).collect();
        assert_eq!(order, [1, 4, 2, 5]);
        let only_first = OpenLanes::new(|lane| lane == Lane::First);
        assert_eq!(hosts.take(only_first).map(|(_, _, waiter)| waiter), Some(waiter(3)));
        assert_eq!(hosts.take(only_first), None);
        assert_eq!(next(&mut hosts), Some((host, waiter(6))));
    }

    #[test]
    fn a_slow_host_has_a_lane_of_its_own_until_it_is_quick_again() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into());
        (1..=3).for_each(|id| hosts.wait(host, waiter(id), false));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert!(hosts.take(quick).is_some());
        answer(&mut hosts, host, Sign::Alive, 4);
        assert_eq!(hosts.take(quick), None);
        assert!(hosts.take(OpenLanes::ALL).is_some());
        answer(&mut hosts, host, Sign::Alive, 1);
        assert!(hosts.take(quick).is_some());
    }

    /// Otherwise hosts that answer one request at once, and let all the others wait, would take every first attempt's place.
    #[test]
    fn a_host_that_answers_quickly_now_and_then_stays_a_slow_one() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into());
        (1..=20).for_each(|id| hosts.wait(host, waiter(id), false));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        for _ in 0..4 {
            assert!(hosts.take(quick).is_some());
        }
        let mut answered = |seconds| {
            answer(&mut hosts, host, Sign::Alive, seconds);
            let is_quick = hosts.take(quick).is_some();
            is_quick || hosts.take(OpenLanes::ALL).is_none()
        };
        assert_eq!([9, 0, 9, 0, 0, 0, 9].map(&mut answered), [false; 7]);
        assert_eq!([0; 4].map(&mut answered), [false, false, false, true]);
    }

    #[test]
    fn a_host_that_lets_a_request_hang_is_a_slow_one_until_that_ends() {
        let mut hosts = hosts(4);
        let (host, begun) = (hosts.join(&"https://a.example".into()), hosts.now);
        (1..=4).for_each(|id| hosts.wait(host, waiter(id), false));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert!(hosts.take(quick).is_some());
        hosts.wake(begun + SLOW);
        assert!(hosts.take(quick).is_some(), "it is not slow yet");
        let later = begun + SLOW + Duration::from_millis(1);
        hosts.wake(later);
        assert_eq!(hosts.take(quick), None);
        hosts.answered(host, Sign::Alive, begun + SLOW, later);
        assert_eq!(hosts.take(quick), None, "the first one hangs still");
        assert!(hosts.take(OpenLanes::ALL).is_some());
        // It ends for want of something on this side, which says nothing about the host.
        hosts.answered(host, Sign::None, begun, later);
        assert!(hosts.take(quick).is_some());
    }

    #[test]
    fn the_same_origin_is_the_same_host() {
        let mut hosts = hosts(1);
        assert_eq!(hosts.join(&"https://a.example".into()), hosts.join(&"https://a.example".into()));
        assert_ne!(hosts.join(&"https://a.example".into()), hosts.join(&"https://a.example:8443".into()));
    }
}
