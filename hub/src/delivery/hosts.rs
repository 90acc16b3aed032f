//! Callback origins: how many requests each may have at once, whose turn it is, and which of them are left alone.

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::breaker::{Breaker, BreakerPolicy, Change, Sent, Sign, UnderWay};
use super::host::{Candidates, Host};
use super::lanes::{Lane, OpenLanes};
use super::networks::Networks;
use super::ready::Ready;
use super::slowness::{Peers, SLOW};
use super::waiting::LastAttempt;
use crate::egress::network;
use crate::store::{SubscriptionId, TopicId};

/// An origin, as a small number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostId(u32);

/// A subscription that waits for its host.
pub(super) type Waiter = (TopicId, SubscriptionId);

/// A place of a host, as it is taken and given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Whose share of the requests under way it is of.
    pub(super) lane: Lane,
    /// Whether it is for one whose last attempt was delivered.
    pub(super) is_proven: bool,
    /// Whether the host is known to take long for an answer.
    pub(super) takes_long: bool,
    /// Whether the request tells how the host is, whose breaker waits for it.
    pub(super) is_probe: bool,
    /// When it was taken.
    pub(super) begun: Instant,
}

impl Place {
    /// When it was taken, if that may keep the worker busy: while an answer is known to take long, the worker does something else.
    pub(super) fn busy_from(self) -> Option<Instant> {
        (!self.takes_long).then_some(self.begun)
    }

    /// When it was taken, if the breaker waits for it.
    fn probe(self) -> Option<Instant> {
        self.is_probe.then_some(self.begun)
    }
}

/// Requests to one host that began together and do not hang.
#[derive(Clone, Copy, Debug, Default)]
struct Begun {
    all: u32,
    /// So many of these are for such whose last attempt was not delivered.
    unproven: u32,
}

/// Hosts that are looked at for one that finds no place and is not to blame for that.
const LOOKED_AT: usize = 4;

/// What the shards of a worker have in common, since they share its places.
#[derive(Clone, Debug)]
pub(super) struct Neighbours {
    networks: Networks,
    peers: Peers,
}

impl Neighbours {
    /// Of a worker with so many places, of which one host may have `per_host`.
    pub(super) fn of(places: usize, per_host: usize) -> Self {
        Self { networks: Networks::new(places, per_host), peers: Peers::default() }
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
    /// By lane.
    ready: [Ready; Lane::ALL.len()],
    /// Those that had a place left when it was looked last.
    open: OpenLanes,
    /// The lane that is served next.
    turn: usize,
    /// Hosts that have failed lately; most never do.
    breakers: HashMap<HostId, Breaker>,
    pauses: BinaryHeap<Reverse<(Instant, HostId)>>,
    /// How many requests are under way, by when they began, but for those that hang.
    under_way: BTreeMap<(Instant, HostId), Begun>,
    /// Breakers that opened, for the log.
    opened: Vec<(String, Duration)>,
    neighbours: Neighbours,
    /// What a host may take at most not to be a slow one, where others find no place.
    bound: Option<u32>,
    /// When hosts were woken last.
    now: Instant,
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
    pub(super) fn new(limit: usize, policy: BreakerPolicy, neighbours: Neighbours) -> Self {
        Self {
            limit: limit.max(1),
            policy,
            by_origin: HashMap::new(),
            states: Vec::new(),
            free: Vec::new(),
            ready: Default::default(),
            open: OpenLanes::new(|_| true),
            turn: 0,
            breakers: HashMap::new(),
            pauses: BinaryHeap::new(),
            under_way: BTreeMap::new(),
            opened: Vec::new(),
            neighbours,
            bound: None,
            now: Instant::now(),
        }
    }

    /// The number of this origin, for one more subscription, which was confirmed at this address.
    pub(super) fn join(&mut self, origin: &Arc<str>, address: Option<IpAddr>) -> HostId {
        let id = self.by_origin.get(origin).copied().unwrap_or_else(|| self.add(origin, address));
        self.host(id).subscriptions += 1;
        id
    }

    /// One subscription less; the last one to leave takes the host along.
    pub(super) fn leave(&mut self, id: HostId) {
        self.host(id).subscriptions -= 1;
        self.forget_if_unused(id);
    }

    fn add(&mut self, origin: &Arc<str>, address: Option<IpAddr>) -> HostId {
        let address = address.or_else(|| literal(origin));
        let host = Host::new(Arc::clone(origin), address, self.neighbours.networks.of(address));
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
        if host.is_unused() {
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

    /// Puts a subscription behind those of its topic that wait for its host.
    pub(super) fn wait(&mut self, id: HostId, waiter: Waiter, last: LastAttempt) {
        let now = self.now;
        self.host(id).wait(waiter, last, now);
        self.mark_ready(id);
    }

    /// Something was delivered to this one, which therefore tells best how the host is.
    pub(super) fn delivered(&mut self, id: HostId, waiter: Waiter) {
        self.host(id).delivered(waiter);
    }

    /// A request to this host went to this address.
    pub(super) fn reached(&mut self, id: HostId, address: IpAddr) {
        let known = self.states[id.0 as usize].address;
        if known != Some(address) {
            // A name may have several addresses, mostly of one network: that is not looked up each time.
            if known.map(network) != Some(network(address)) {
                let to = self.neighbours.networks.of(Some(address));
                self.host(id).moves(to);
            }
            self.host(id).address = Some(address);
        }
    }

    /// The next subscription whose host and lane have a free place, which it takes. Lanes take turns, and so do hosts.
    pub(super) fn take(&mut self, open: OpenLanes) -> Option<(HostId, Place, Waiter)> {
        self.open = open;
        if open.is_scarce() {
            self.note_who_finds_no_place();
        }
        for lane in [Lane::Again, Lane::Slow] {
            if !open.has(lane) {
                self.look_at_those_who_wait(lane);
            }
        }
        for step in 0..Lane::ALL.len() {
            let index = (self.turn + step) % Lane::ALL.len();
            let lane = Lane::ALL[index];
            let spare = if open.has(lane) { None } else { Some(open.spare()) };
            if spare == Some(0) || (spare.is_some() && lane == Lane::Slow) {
                continue;
            }
            while let Some(id) = self.next_ready(lane, spare) {
                self.host(id).in_ready[index] = false;
                if let Some((waiter, is_proven, is_probe)) = self.pop(id, lane) {
                    let host = &mut self.states[id.0 as usize];
                    host.in_flight += 1;
                    host.unproven += u32::from(!is_proven);
                    host.in_lanes[index] += 1;
                    host.network.add(lane, 1);
                    let begun = self.under_way.entry((self.now, id)).or_default();
                    begun.all += 1;
                    begun.unproven += u32::from(!is_proven);
                    self.turn = (index + 1) % Lane::ALL.len();
                    let takes_long = host.pace.takes_long();
                    self.mark_ready(id);
                    let host = &self.states[id.0 as usize];
                    if lane != Lane::First && host.in_ready[index] {
                        self.neighbours.networks.wait_on(lane, &host.network, self.now);
                    }
                    let place = Place { lane, is_proven, takes_long, is_probe, begun: self.now };
                    return Some((id, place, waiter));
                }
                // It may have become slow, or quick again, since it came here.
                self.mark_ready(id);
                self.forget_if_unused(id);
            }
        }
        None
    }

    /// Takes the next host whose network may have a place of this lane: one of `spare`, where no others are left.
    fn next_ready(&mut self, lane: Lane, spare: Option<usize>) -> Option<HostId> {
        let mut ready = std::mem::take(&mut self.ready[lane as usize]);
        let next = ready.take(|id| self.has_room_in(lane, id, spare));
        self.ready[lane as usize] = ready;
        next
    }

    fn has_room_in(&self, lane: Lane, id: HostId, spare: Option<usize>) -> bool {
        let network = &self.states[id.0 as usize].network;
        let gives_way = lane != Lane::First && self.neighbours.networks.gives_way(lane, network, self.now);
        !gives_way && self.has_room(id, spare)
    }

    /// The next one in this lane, whether its last attempt was delivered, and whether its request is the breaker's probe.
    fn pop(&mut self, id: HostId, lane: Lane) -> Option<(Waiter, bool, bool)> {
        let candidates = self.permits(id)?;
        let host = &mut self.states[id.0 as usize];
        let is_slow = host.is_slow(self.bound);
        let (waiter, chosen, last) = host.choose(candidates, lane, is_slow)?;
        let now = self.now;
        let sent = self.breaker(id).map_or(Sent::Other, |breaker| breaker.sent(chosen, now));
        if let Sent::Asks { next } = sent {
            self.pauses.push(Reverse((next, id)));
        }
        Some((waiter, last == LastAttempt::Delivered, sent == Sent::Probe))
    }

    /// Whether its network may have one more place: one of `spare`, where no others are left.
    pub(super) fn has_room(&self, id: HostId, spare: Option<usize>) -> bool {
        let host = &self.states[id.0 as usize];
        let networks = &self.neighbours.networks;
        match spare {
            None => !networks.gives_way(Lane::First, &host.network, self.now),
            Some(spare) => {
                host.network.in_flight() < spare
                    && !networks.has_its_share(&host.network)
                    && !host.is_slow(self.bound)
            }
        }
    }

    /// Whether somebody who is taken up for this host would be sent something at once with one of so many places, or has another lane to
    /// wait in.
    pub(super) fn may_spare(&self, id: HostId, spare: usize) -> bool {
        if self.states[id.0 as usize].is_slow(self.bound) {
            return true;
        }
        let is_free = self.permits(id) == Some(Candidates::InTurn);
        is_free && self.states[id.0 as usize].first.is_empty() && self.has_room(id, Some(spare))
    }

    /// Whether somebody who is taken up for this host would wait for others of its own host or network, and not because of anybody else.
    pub(super) fn waits_for_its_own(&self, id: HostId) -> bool {
        let host = &self.states[id.0 as usize];
        let has_all = host.in_flight as usize >= self.limit;
        has_all || !host.first.is_empty() || self.neighbours.networks.has_its_share(&host.network)
    }

    /// Places are scarce: who waits for a first attempt, is quick and has no more than its network's share, finds none because of others.
    fn note_who_finds_no_place(&mut self) {
        let waiting = self.ready[Lane::First as usize].hosts();
        let first: [Option<HostId>; LOOKED_AT] = std::array::from_fn(|at| waiting.get(at).copied());
        first.into_iter().flatten().for_each(|id| self.note_no_place(id));
    }

    /// The same of one that waits for this host, if that is to no blame for it.
    pub(super) fn note_no_place(&mut self, id: HostId) {
        let (host, Neighbours { networks, peers }) = (&self.states[id.0 as usize], &self.neighbours);
        if !host.is_slow(Some(peers.bound())) && !networks.has_its_share(&host.network) {
            networks.wait(Lane::First, &host.network, self.now);
            peers.crowd(self.now);
            self.bound = Some(peers.bound());
        }
    }

    /// There is no place of this lane. Of those that wait for one some may belong elsewhere since they became slow, or are slow no more, and
    /// some find none because of others.
    fn look_at_those_who_wait(&mut self, lane: Lane) {
        let mut ready = std::mem::take(&mut self.ready[lane as usize]);
        ready.come_back(|id| self.has_room_in(lane, id, None));
        let few = LOOKED_AT.min(ready.hosts().len());
        self.ready[lane as usize] = ready;
        for _ in 0..few {
            let Some(id) = self.ready[lane as usize].take_first() else { return };
            let host = &mut self.states[id.0 as usize];
            if host.is_slow(self.bound) == (lane == Lane::Slow) {
                self.neighbours.networks.wait(lane, &host.network, self.now);
                self.ready[lane as usize].push(id);
            } else {
                host.in_ready[lane as usize] = false;
                self.mark_ready(id);
                self.forget_if_unused(id);
            }
        }
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

    /// Gives a place back that was taken for nothing.
    pub(super) fn release(&mut self, id: HostId, place: Place) {
        let Place { lane, is_proven, begun, .. } = place;
        let unproven = u32::from(!is_proven);
        let has_hung = match self.under_way.entry((begun, id)) {
            Entry::Occupied(mut requests) if requests.get().all > 1 => {
                let requests = requests.get_mut();
                requests.all -= 1;
                lessen(&mut requests.unproven, unproven);
                false
            }
            Entry::Occupied(last) => {
                last.remove();
                false
            }
            Entry::Vacant(_) => true,
        };
        let host = self.host(id);
        lessen(&mut host.in_flight, 1);
        lessen(&mut host.unproven, unproven);
        lessen(&mut host.in_lanes[lane as usize], 1);
        host.network.subtract(lane, 1);
        if has_hung {
            lessen(&mut host.hanging, 1);
            lessen(&mut host.unproven_hanging, unproven);
        }
        if let Some(breaker) = self.breaker(id) {
            breaker.returned(place.probe());
        }
        self.mark_ready(id);
        self.forget_if_unused(id);
    }

    /// Gives a place back after a request that ended so.
    pub(super) fn answered(&mut self, id: HostId, place: Place, sign: Sign, now: Instant) {
        if sign != Sign::None {
            // One quick answer among slow ones makes no quick host: as many in a row as may be under way at once do.
            let row = u32::try_from(self.limit).unwrap_or(u32::MAX);
            let took = now.saturating_duration_since(place.begun);
            // Nobody can be as quick as a refused connection.
            if sign == Sign::Alive {
                self.neighbours.peers.answered(took);
            }
            let bound = self.neighbours.peers.bound();
            let host = self.host(id);
            host.pace.answered(took, bound);
            host.quick_owed = if took > SLOW { row } else { host.quick_owed.saturating_sub(1) };
            self.record(id, sign, place.probe(), now);
        }
        self.release(id, place);
    }

    fn record(&mut self, id: HostId, sign: Sign, probe: Option<Instant>, now: Instant) {
        if sign == Sign::Alive {
            let host = self.host(id);
            host.answers = host.answers.wrapping_add(1);
        }
        let host = &mut self.states[id.0 as usize];
        if sign == Sign::Alive && !host.in_trouble {
            return;
        }
        host.in_trouble = true;
        let breaker = self.breakers.entry(id).or_insert_with(|| Breaker::new(now));
        match breaker.record(sign, probe, self.limit, &self.policy, now) {
            Change::Nothing => {}
            Change::Well => {
                self.breakers.remove(&id);
                self.host(id).in_trouble = false;
            }
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
        self.bound = self.neighbours.peers.bound_where_crowded(now);
        self.note_hanging(now);
        while let Some(Reverse((until, id))) = self.pauses.peek().copied() {
            if until > now {
                return;
            }
            self.pauses.pop();
            // The number may be another host's by now, and the pause another one.
            let Some(breaker) = self.breakers.get_mut(&id) else { continue };
            if breaker.until() == Some(until) {
                breaker.probe();
                self.mark_ready(id);
            } else if breaker.asks_from(until) {
                self.mark_ready(id);
            }
        }
    }

    /// A host that lets requests hang is a slow one long before they end: until then it would take places from the others.
    fn note_hanging(&mut self, now: Instant) {
        let patience = self.bound.map_or(SLOW, |bound| Duration::from_micros(bound.into()).min(SLOW));
        let hangs = |begun: Instant| now.saturating_duration_since(begun) > patience;
        while let Some(oldest) = self.under_way.first_entry().filter(|oldest| hangs(oldest.key().0)) {
            let ((_, id), requests) = oldest.remove_entry();
            let host = self.host(id);
            host.hanging += requests.all;
            host.unproven_hanging += requests.unproven;
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

    /// Whether any host could be sent something if this lane had a place.
    pub(super) fn waits_in(&self, lane: Lane) -> bool {
        !self.ready[lane as usize].hosts().is_empty()
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

    /// Who may be sent something at this host now, if anybody.
    fn permits(&self, id: HostId) -> Option<Candidates> {
        let host = &self.states[id.0 as usize];
        let under_way = UnderWay {
            all: host.in_flight as usize,
            hanging: host.hanging as usize,
            unproven_hanging: host.unproven_hanging as usize,
        };
        let is_full = under_way.all >= self.limit;
        if is_full && (under_way.beside_unproven() >= self.limit || under_way.all >= 2 * self.limit) {
            return None;
        }
        let breaker = if host.in_trouble { self.breakers.get(&id) } else { None };
        let permits =
            breaker.map_or(Candidates::InTurn, |breaker| breaker.permits(under_way, self.limit, self.now));
        if is_full {
            return (permits != Candidates::Well).then_some(Candidates::OnlyProven);
        }
        // Where requests hang, those that answer must not wait behind each tenant that lets them.
        let hangs = permits == Candidates::InTurn && host.is_slow(None);
        let permits = if hangs { Candidates::WellFirst } else { permits };
        // Nor before they do: the others have no more than half of its places while somebody waits whose last attempt was delivered.
        let are_many = matches!(permits, Candidates::InTurn | Candidates::WellFirst)
            && host.unproven as usize >= (self.limit / 2).max(1);
        Some(if are_many { Candidates::ProvenFirst } else { permits })
    }

    fn breaker(&mut self, id: HostId) -> Option<&mut Breaker> {
        if self.states[id.0 as usize].in_trouble { self.breakers.get_mut(&id) } else { None }
    }

    fn mark_ready(&mut self, id: HostId) {
        let Some(candidates) = self.permits(id) else { return };
        let host = &mut self.states[id.0 as usize];
        let waits = host.lanes(candidates, host.is_slow(self.bound));
        for (lane, waits) in Lane::ALL.into_iter().zip(waits) {
            let is_in_ready = &mut host.in_ready[lane as usize];
            if waits && !*is_in_ready {
                *is_in_ready = true;
                self.ready[lane as usize].push(id);
                if lane != Lane::First && !self.open.has(lane) {
                    self.neighbours.networks.wait(lane, &host.network, self.now);
                }
            }
        }
    }

    fn host(&mut self, id: HostId) -> &mut Host {
        &mut self.states[id.0 as usize]
    }
}

/// Counts so many less. That there were as many is what the tests watch over; a wrong count must not stop a host for ever.
fn lessen(count: &mut u32, by: u32) {
    debug_assert!(*count >= by, "{count} are counted, and {by} end");
    *count = count.saturating_sub(by);
}

/// The address that an origin names itself.
fn literal(origin: &str) -> Option<IpAddr> {
    match url::Url::parse(origin).ok()?.host()? {
        url::Host::Ipv4(address) => Some(address.into()),
        url::Host::Ipv6(address) => Some(address.into()),
        url::Host::Domain(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(limit: usize) -> Hosts {
        let policy =
            BreakerPolicy { failures: 2, open: Duration::from_secs(30), open_max: Duration::from_secs(60) };
        Hosts::new(limit, policy, Neighbours::of(1_000, limit))
    }

    /// Who is next, whatever the lane.
    fn next(hosts: &mut Hosts) -> Option<(HostId, Waiter)> {
        hosts.take(OpenLanes::ALL).map(|(host, _, waiter)| (host, waiter))
    }

    fn waiter(id: u64) -> Waiter {
        (TopicId(1), SubscriptionId(id))
    }

    /// One of a first attempt.
    fn place(begun: Instant) -> Place {
        Place { lane: Lane::First, is_proven: false, takes_long: false, is_probe: false, begun }
    }

    /// What began when the hosts were woken last ends so, after so many seconds.
    fn answer(hosts: &mut Hosts, host: HostId, sign: Sign, seconds: u64) {
        let begun = hosts.now;
        let state = &hosts.states[host.0 as usize];
        let lane = Lane::ALL.into_iter().find(|lane| state.in_lanes[*lane as usize] > 0).unwrap();
        let is_proven = state.unproven == 0;
        let place = Place { lane, is_proven, is_probe: true, ..place(begun) };
        hosts.answered(host, place, sign, begun + Duration::from_secs(seconds));
    }

    #[test]
    fn a_host_serves_no_more_than_its_limit_and_the_rest_in_order() {
        let mut hosts = hosts(2);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=4).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::None));
        assert_eq!(next(&mut hosts), Some((host, waiter(1))));
        assert_eq!(next(&mut hosts), Some((host, waiter(2))));
        assert_eq!(next(&mut hosts), None);
        hosts.release(host, place(hosts.now));
        assert_eq!(next(&mut hosts), Some((host, waiter(3))));
        assert_eq!(next(&mut hosts), None);
    }

    #[test]
    fn a_busy_host_does_not_hold_up_another() {
        let mut hosts = hosts(1);
        let (slow, quick) = (
            hosts.join(&"https://slow.example".into(), None),
            hosts.join(&"https://quick.example".into(), None),
        );
        hosts.wait(slow, waiter(1), LastAttempt::None);
        hosts.wait(slow, waiter(2), LastAttempt::None);
        hosts.wait(quick, waiter(3), LastAttempt::None);
        assert_eq!(next(&mut hosts).map(|(_, waiter)| waiter), Some(waiter(1)));
        assert_eq!(next(&mut hosts).map(|(_, waiter)| waiter), Some(waiter(3)));
        assert_eq!(next(&mut hosts), None);
    }

    #[test]
    fn a_host_is_forgotten_with_its_last_subscription_and_its_last_request() {
        let mut hosts = hosts(1);
        let first = hosts.join(&"https://a.example".into(), None);
        hosts.wait(first, waiter(1), LastAttempt::None);
        next(&mut hosts);
        hosts.leave(first);
        assert_ne!(hosts.join(&"https://b.example".into(), None), first, "a request is still under way");
        hosts.release(first, place(hosts.now));
        assert_eq!(hosts.join(&"https://c.example".into(), None), first, "the number is free again");
        assert_eq!(hosts.count(), 2);
    }

    #[test]
    fn a_host_in_trouble_is_left_alone_and_then_probed_once() {
        let mut hosts = hosts(4);
        let (host, now) = (hosts.join(&"https://a.example".into(), None), Instant::now());
        (1..=6).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Failed));
        for _ in 0..2 {
            assert!(next(&mut hosts).is_some());
        }
        for _ in 0..2 {
            answer(&mut hosts, host, Sign::Trouble, 0);
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
    fn whatever_hangs_at_an_open_breaker_those_delivered_to_last_are_served_beside_it() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into(), None);
        let of_topic = |topic, id| (TopicId(topic), SubscriptionId(id));
        (1..=4).for_each(|topic| hosts.delivered(host, of_topic(topic, topic)));
        (11..=16).for_each(|id| hosts.wait(host, of_topic(id, id), LastAttempt::None));
        for _ in 0..2 {
            assert!(next(&mut hosts).is_some());
            answer(&mut hosts, host, Sign::Silent, 0);
        }
        assert!(hosts.is_left_alone(host));
        for id in [13, 14] {
            assert_eq!(next(&mut hosts), Some((host, of_topic(id, id))));
        }
        assert_eq!(next(&mut hosts), None, "half of its places are for those who ask");
        hosts.wait(host, of_topic(1, 1), LastAttempt::None);
        assert_eq!(next(&mut hosts), Some((host, of_topic(1, 1))), "the one that was delivered to first");
    }

    #[test]
    fn who_never_succeeded_and_hangs_keeps_nobody_out_who_did_and_no_host_gets_more_than_twice_its_limit() {
        let mut hosts = hosts(4);
        let (host, begun) = (hosts.join(&"https://a.example".into(), None), hosts.now);
        (1..=9).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::None));
        (0..4).for_each(|_| assert!(next(&mut hosts).is_some()));
        (11..=19).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Delivered));
        assert_eq!(next(&mut hosts), None, "they may answer at any moment");
        hosts.wake(begun + SLOW + Duration::from_millis(1));
        for id in 11..=14 {
            assert_eq!(next(&mut hosts), Some((host, waiter(id))));
        }
        assert_eq!(next(&mut hosts), None, "four for those who answered lately, and four that hang");
        hosts.wake(hosts.now + SLOW + Duration::from_millis(1));
        assert_eq!(next(&mut hosts), None, "nor more when these hang too");
        hosts.release(host, place(begun));
        assert_eq!(next(&mut hosts), None, "they have all that is theirs");
        let proven = Place { is_proven: true, ..place(begun + SLOW + Duration::from_millis(1)) };
        hosts.answered(host, proven, Sign::Alive, hosts.now);
        assert_eq!(next(&mut hosts), Some((host, waiter(15))));
    }

    #[test]
    fn at_a_slow_host_with_one_place_nobody_with_a_backlog_keeps_the_others_out() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        let of_topic = |topic| (TopicId(topic), SubscriptionId(topic));
        let last = |topic| match topic {
            4 => LastAttempt::Failed,
            5.. => LastAttempt::Delivered,
            _ => LastAttempt::None,
        };
        for topic in 1..=6 {
            hosts.wait(host, of_topic(topic), last(topic));
        }
        let mut served = [0; 7];
        for _ in 0..60 {
            let (_, place, waiter) = hosts.take(OpenLanes::ALL).unwrap();
            served[usize::try_from(waiter.0.0).unwrap()] += 1;
            hosts.delivered(host, waiter);
            hosts.answered(host, place, Sign::Alive, place.begun + Duration::from_secs(4));
            hosts.wait(host, waiter, last(waiter.0.0));
        }
        assert!(served[1..].iter().all(|times| *times >= 4), "{served:?}");
    }

    #[test]
    fn while_a_probe_hangs_there_is_no_second_one_and_no_other_request_speaks_for_it() {
        let mut hosts = hosts(4);
        let (host, begun) = (hosts.join(&"https://a.example".into(), None), hosts.now);
        hosts.delivered(host, waiter(9));
        (1..=6).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Failed));
        for _ in 0..2 {
            assert!(next(&mut hosts).is_some());
            answer(&mut hosts, host, Sign::Trouble, 0);
        }
        let until = hosts.next_wake().unwrap();
        hosts.wake(until);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))), "the probe");
        let later = until + Duration::from_millis(1);
        hosts.wake(later);
        hosts.wait(host, waiter(9), LastAttempt::None);
        assert_eq!(next(&mut hosts), Some((host, waiter(9))), "one that was delivered to last");
        hosts.answered(host, place(later), Sign::Trouble, later);
        assert!(!hosts.is_left_alone(host), "the probe has not told anything yet");
        assert_eq!(next(&mut hosts), None, "and there is no second one");
        hosts.answered(
            host,
            Place { lane: Lane::Again, is_probe: true, ..place(until) },
            Sign::Trouble,
            later,
        );
        assert!(hosts.is_left_alone(host) && begun < later);
    }

    #[test]
    fn hosts_that_are_slow_no_more_leave_the_slow_queue_while_it_has_no_place() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        let begun = hosts.now;
        (1..=2).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::None));
        hosts.neighbours.peers.crowd(begun);
        hosts.wake(begun);
        assert!(next(&mut hosts).is_some());
        hosts.answered(host, place(begun), Sign::Alive, begun + Duration::from_millis(2_900));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert_eq!(hosts.take(quick), None, "it is slow while others find no place");
        hosts.wake(begun + Duration::from_secs(60));
        assert!(hosts.take(quick).is_some());
    }

    #[test]
    fn a_refused_connection_makes_nobody_slow() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        hosts.wait(host, waiter(1), LastAttempt::None);
        assert!(next(&mut hosts).is_some());
        let bound = hosts.neighbours.peers.bound();
        answer(&mut hosts, host, Sign::Silent, 0);
        assert_eq!(hosts.neighbours.peers.bound(), bound);
    }

    #[test]
    fn lanes_take_turns_and_a_full_one_holds_up_no_other() {
        let mut hosts = hosts(8);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=3).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::None));
        (4..=6).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Failed));
        let order: Vec<_> = (0..4).filter_map(|_| next(&mut hosts)).map(|(_, (_, id))| id.0).collect();
        assert_eq!(order, [1, 4, 2, 5]);
        let only_first = OpenLanes::new(|lane| lane == Lane::First);
        assert!(hosts.waits_in(Lane::Again) && !hosts.waits_in(Lane::Slow));
        assert_eq!(hosts.take(only_first).map(|(_, _, waiter)| waiter), Some(waiter(3)));
        assert_eq!(hosts.take(only_first), None);
        assert_eq!(next(&mut hosts), Some((host, waiter(6))));
    }

    #[test]
    fn a_slow_host_has_a_lane_of_its_own_until_it_is_quick_again() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=3).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::None));
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
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=20).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::None));
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
        let (host, begun) = (hosts.join(&"https://a.example".into(), None), hosts.now);
        (1..=4).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::None));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert!(hosts.take(quick).is_some());
        hosts.wake(begun + SLOW);
        assert!(hosts.take(quick).is_some(), "it is not slow yet");
        let later = begun + SLOW + Duration::from_millis(1);
        hosts.wake(later);
        assert_eq!(hosts.take(quick), None);
        hosts.answered(host, place(begun + SLOW), Sign::Alive, later);
        assert_eq!(hosts.take(quick), None, "the first one hangs still");
        assert!(hosts.take(OpenLanes::ALL).is_some());
        // It ends for want of something on this side, which says nothing about the host.
        hosts.answered(host, place(begun), Sign::None, later);
        assert!(hosts.take(quick).is_some());
    }

    #[test]
    fn a_host_counts_for_the_network_where_its_requests_go() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into(), Some([192, 0, 2, 1].into()));
        (1..=2).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::None));
        assert!(next(&mut hosts).is_some());
        let in_flight = |hosts: &Hosts| {
            [[192, 0, 2, 9], [198, 51, 100, 9]]
                .map(|address: [u8; 4]| hosts.neighbours.networks.of(Some(address.into())).in_flight())
        };
        assert_eq!(in_flight(&hosts), [1, 0], "where it has confirmed");
        hosts.reached(host, [198, 51, 100, 1].into());
        assert_eq!(in_flight(&hosts), [0, 1]);
        hosts.release(host, place(hosts.now));
        assert_eq!(in_flight(&hosts), [0, 0]);
    }

    #[test]
    fn an_origin_that_names_its_address_is_on_its_network_from_the_beginning() {
        for (origin, expected) in [
            ("http://192.0.2.1:8080", Some([192, 0, 2, 1].into())),
            ("https://[2001:db8::1]", Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into())),
            ("https://a.example", None),
        ] {
            assert_eq!(literal(origin), expected, "{origin}");
        }
    }

    #[test]
    fn of_the_last_places_none_goes_to_who_has_as_many_under_way_as_are_left() {
        let mut hosts = hosts(4);
        let greedy = hosts.join(&"https://a.example".into(), Some([192, 0, 2, 1].into()));
        let modest = hosts.join(&"https://b.example".into(), Some([192, 0, 3, 1].into()));
        (1..=4).for_each(|id| hosts.wait(greedy, waiter(id), LastAttempt::None));
        for _ in 0..2 {
            assert_eq!(next(&mut hosts).map(|(host, _)| host), Some(greedy));
        }
        hosts.wait(modest, waiter(5), LastAttempt::None);
        let last = |left| OpenLanes::new(|_| false).with_spare(left);
        assert_eq!(hosts.take(last(2)).map(|(host, ..)| host), Some(modest));
        assert_eq!(hosts.take(last(1)), None);
        assert_eq!(hosts.take(last(3)).map(|(host, ..)| host), Some(greedy));
    }

    #[test]
    fn the_same_origin_is_the_same_host() {
        let mut hosts = hosts(1);
        assert_eq!(
            hosts.join(&"https://a.example".into(), None),
            hosts.join(&"https://a.example".into(), None)
        );
        assert_ne!(
            hosts.join(&"https://a.example".into(), None),
            hosts.join(&"https://a.example:8443".into(), None)
        );
    }
}
