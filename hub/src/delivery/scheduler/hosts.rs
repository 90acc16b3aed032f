//! Callback origins: how many requests each may have at once, and which of them is next.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::breaker::{BreakerPolicy, InFlightCounts, Sign};
use super::breakers::Breakers;
use super::host::{Candidates, Host, HostId, Permit, Waiter};
use super::in_flight::{Begun, InFlight, lessen};
use super::lanes::{Lane, OpenLanes};
use super::networks::Networks;
use super::ready::ReadyHosts;
use super::slowness::{Peers, SLOW};
use super::wait_queue::LastAttempt;
use crate::egress::network;

/// Hosts that are looked at for one that finds no permit and is not to blame for that.
const LOOKED_AT: usize = 4;

/// What the shards of a worker have in common, since they share its permits. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct WorkerState {
    networks: Networks,
    peers: Peers,
}

impl WorkerState {
    /// Of a worker with so many permits, of which one host may have `per_host`.
    pub(crate) fn new(permits: usize, per_host: usize, now: Instant) -> Self {
        Self { networks: Networks::new(permits, per_host, now), peers: Peers::new(now) }
    }
}

/// The hosts of one shard.
#[derive(Debug)]
pub(super) struct Hosts {
    limit: usize,
    by_origin: HashMap<Arc<str>, HostId>,
    states: Vec<Host>,
    /// Numbers that are free again.
    free: Vec<HostId>,
    /// By lane.
    ready: [ReadyHosts; Lane::ALL.len()],
    /// The lanes that had permits left in the last call.
    lanes: OpenLanes,
    /// The lane that is served next.
    turn: usize,
    breakers: Breakers,
    in_flight: InFlight,
    worker: WorkerState,
    /// What a host may take at most not to be a slow one, where others find no permit.
    bound: Option<u32>,
    /// When hosts were woken last.
    now: Instant,
}

/// A host whose circuit breaker is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenHost {
    /// Which one.
    pub origin: String,
    /// Until it lets a probe through.
    pub for_another: Duration,
    /// Subscriptions that wait for it.
    pub waiting: usize,
}

impl Hosts {
    pub(super) fn new(limit: usize, policy: BreakerPolicy, worker: WorkerState, now: Instant) -> Self {
        let limit = limit.max(1);
        Self {
            limit,
            by_origin: HashMap::new(),
            states: Vec::new(),
            free: Vec::new(),
            ready: Default::default(),
            lanes: OpenLanes::new(|_| true),
            turn: 0,
            breakers: Breakers::new(policy, limit),
            in_flight: InFlight::default(),
            worker,
            bound: None,
            now,
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
        let host = Host::new(Arc::clone(origin), address, self.worker.networks.of(address));
        let id = if let Some(id) = self.free.pop() {
            *self.host(id) = host;
            id
        } else {
            self.states.push(host);
            HostId::new(self.states.len() - 1)
        };
        self.by_origin.insert(Arc::clone(origin), id);
        id
    }

    fn forget_if_unused(&mut self, id: HostId) {
        let host = self.host(id);
        if host.is_unused() {
            let origin = Arc::clone(&host.origin);
            host.first.clear();
            host.retries.clear();
            // A host that waits to be forgotten may have been left twice: by its last subscription and its last request.
            if self.by_origin.remove(&origin).is_some() {
                self.breakers.remove(id);
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

    /// Something was delivered to this one, which therefore shows best how the host is.
    pub(super) fn delivered(&mut self, id: HostId, waiter: Waiter) {
        self.host(id).delivered(waiter);
    }

    /// A request to this host went to this address, at which its name has confirmed.
    pub(super) fn reached(&mut self, id: HostId, address: IpAddr) {
        let known = self.states[id.index()].address;
        if known != Some(address) {
            // A name may have several addresses, mostly of one network: that is not looked up each time.
            if known.map(network) != Some(network(address)) {
                let to = self.worker.networks.of(Some(address));
                self.host(id).moves(to);
            }
            self.host(id).address = Some(address);
        }
    }

    /// The next subscription whose host and lane have a permit left, which it takes. Lanes take turns, and so do hosts.
    pub(super) fn take(&mut self, lanes: OpenLanes) -> Option<(HostId, Permit, Waiter)> {
        self.lanes = lanes;
        if lanes.is_scarce() {
            self.note_first_without_permit();
        }
        for lane in [Lane::Retry, Lane::Slow] {
            if !lanes.has(lane) {
                self.look_at_waiting(lane);
            }
        }
        for step in 0..Lane::ALL.len() {
            let index = (self.turn + step) % Lane::ALL.len();
            let lane = Lane::ALL[index];
            let spare = if lanes.has(lane) { None } else { Some(lanes.spare()) };
            if spare == Some(0) || (spare.is_some() && lane == Lane::Slow) {
                continue;
            }
            while let Some(id) = self.next_ready(lane, spare) {
                self.host(id).in_ready[index] = false;
                if let Some((waiter, permit)) = self.pop(id, lane) {
                    self.turn = (index + 1) % Lane::ALL.len();
                    self.begin(id, permit);
                    return Some((id, permit, waiter));
                }
                // It may have become slow, or quick again, since it came here.
                self.mark_ready(id);
                self.forget_if_unused(id);
            }
        }
        None
    }

    /// A request to this host begins.
    fn begin(&mut self, id: HostId, permit: Permit) {
        let Permit { lane, is_proven, begun, .. } = permit;
        let host = self.host(id);
        host.in_flight += 1;
        host.unproven += u32::from(!is_proven);
        host.in_lanes[lane as usize] += 1;
        self.worker.networks.begin(lane, &self.states[id.index()].network, begun);
        self.in_flight.begin(id, is_proven, begun);
        self.mark_ready(id);
        let host = &self.states[id.index()];
        if lane != Lane::First && host.in_ready[lane as usize] {
            self.worker.networks.wait_on(lane, &host.network, begun);
        }
    }

    /// Takes the next host whose network may have a permit of this lane: one of `spare`, where no others are left.
    fn next_ready(&mut self, lane: Lane, spare: Option<usize>) -> Option<HostId> {
        let mut ready = std::mem::take(&mut self.ready[lane as usize]);
        let next = ready.take(|id| self.has_permit_in(lane, id, spare));
        self.ready[lane as usize] = ready;
        next
    }

    fn has_permit_in(&self, lane: Lane, id: HostId, spare: Option<usize>) -> bool {
        let network = &self.states[id.index()].network;
        let gives_way = lane != Lane::First && self.worker.networks.gives_way(lane, network, self.now);
        !gives_way && self.has_permit(id, spare)
    }

    /// The next one in this lane, and what its request takes.
    fn pop(&mut self, id: HostId, lane: Lane) -> Option<(Waiter, Permit)> {
        let candidates = self.candidates(id)?;
        let host = &mut self.states[id.index()];
        let is_slow = host.is_slow(self.bound);
        let (waiter, chosen, last) = host.choose(candidates, lane, is_slow)?;
        let permit = Permit {
            lane,
            is_proven: last == LastAttempt::Proven,
            takes_long: host.response_time.takes_long(),
            is_probe: host.in_trouble && self.breakers.sent(id, chosen, self.now),
            begun: self.now,
        };
        Some((waiter, permit))
    }

    /// Whether its network may have one more permit: one of `spare`, where no others are left.
    pub(super) fn has_permit(&self, id: HostId, spare: Option<usize>) -> bool {
        let host = &self.states[id.index()];
        let networks = &self.worker.networks;
        match spare {
            None => !networks.gives_way(Lane::First, &host.network, self.now),
            Some(spare) => {
                host.network.in_flight() < spare
                    && !networks.has_its_share(&host.network)
                    && !host.is_slow(self.bound)
            }
        }
    }

    /// Whether a subscription that is taken up for this host would get one of so many permits at once, or wait in another lane.
    pub(super) fn may_spare(&self, id: HostId, spare: usize) -> bool {
        if self.states[id.index()].is_slow(self.bound) {
            return true;
        }
        let is_free = self.candidates(id) == Some(Candidates::InTurn);
        is_free && self.states[id.index()].first.is_empty() && self.has_permit(id, Some(spare))
    }

    /// Whether a subscription that is taken up for this host would wait for others of its own host or network, which take long, or may.
    /// Where these are quick, all wait for the worker alone, and it is soon their turn.
    pub(super) fn waits_for_its_own(&self, id: HostId) -> bool {
        let (host, networks) = (&self.states[id.index()], &self.worker.networks);
        let has_all = host.in_flight as usize >= self.limit;
        (has_all || !host.first.is_empty() || networks.has_its_share(&host.network))
            && (host.hanging > 0
                || host.response_time.takes_long_or_is_unknown()
                || networks.takes_long(&host.network, self.now))
    }

    /// Permits are scarce. A quick host whose network has less than its share finds none because of others.
    fn note_first_without_permit(&mut self) {
        let waiting = self.ready[Lane::First as usize].hosts();
        let first: [Option<HostId>; LOOKED_AT] = std::array::from_fn(|at| waiting.get(at).copied());
        first.into_iter().flatten().for_each(|id| self.note_no_permit(id));
    }

    /// The same of this host, if it is not to blame itself.
    pub(super) fn note_no_permit(&mut self, id: HostId) {
        let (host, WorkerState { networks, peers }) = (&self.states[id.index()], &self.worker);
        if !host.is_slow(Some(peers.bound())) && !networks.has_its_share(&host.network) {
            networks.wait(Lane::First, &host.network, self.now);
            peers.note_scarcity(self.now);
            self.bound = Some(peers.bound());
        }
    }

    /// There is no permit of this lane. Of the hosts that wait for one, some belong elsewhere, since they became slow or quick again, and
    /// others find none because of other networks.
    fn look_at_waiting(&mut self, lane: Lane) {
        let mut ready = std::mem::take(&mut self.ready[lane as usize]);
        ready.come_back(|id| self.has_permit_in(lane, id, None));
        let few = LOOKED_AT.min(ready.hosts().len());
        self.ready[lane as usize] = ready;
        for _ in 0..few {
            let Some(id) = self.ready[lane as usize].take_first() else { return };
            let host = &mut self.states[id.index()];
            if host.is_slow(self.bound) == (lane == Lane::Slow) {
                self.worker.networks.wait(lane, &host.network, self.now);
                self.ready[lane as usize].push(id);
            } else {
                host.in_ready[lane as usize] = false;
                self.mark_ready(id);
                self.forget_if_unused(id);
            }
        }
    }

    /// The address to which its name leads now was confirmed.
    pub(super) fn confirmed(&mut self, id: HostId) {
        let host = self.host(id);
        host.confirmations = host.confirmations.wrapping_add(1);
    }

    /// How often it has, to find out whether it has happened meanwhile.
    pub(super) fn confirmations(&self, id: HostId) -> u32 {
        self.states[id.index()].confirmations
    }

    /// How often it has answered, to find out whether others were answered meanwhile.
    pub(super) fn answers(&self, id: HostId) -> u32 {
        self.states[id.index()].answers
    }

    /// Gives a permit back that was taken for nothing.
    pub(super) fn release(&mut self, id: HostId, permit: Permit) {
        let Permit { lane, is_proven, begun, .. } = permit;
        let unproven = u32::from(!is_proven);
        let has_hung = self.in_flight.end(id, is_proven, begun);
        let host = self.host(id);
        lessen(&mut host.in_flight, 1);
        lessen(&mut host.unproven, unproven);
        lessen(&mut host.in_lanes[lane as usize], 1);
        host.network.subtract(lane, 1);
        if has_hung {
            lessen(&mut host.hanging, 1);
            lessen(&mut host.unproven_hanging, unproven);
        }
        if host.in_trouble {
            self.breakers.returned(id, permit.probe());
        }
        self.mark_ready(id);
        self.forget_if_unused(id);
    }

    /// Gives a permit back after a request that ended so.
    pub(super) fn answered(&mut self, id: HostId, permit: Permit, sign: Sign, now: Instant) {
        if sign != Sign::None {
            // One quick answer among slow ones makes no quick host: as many in a row as may be under way at once do.
            let row = u32::try_from(self.limit).unwrap_or(u32::MAX);
            let took = now.saturating_duration_since(permit.begun);
            // Nobody can be as quick as a refused connection.
            if sign == Sign::Alive {
                self.worker.peers.answered(took);
            }
            let bound = self.worker.peers.bound();
            self.worker.networks.answered(&self.states[id.index()].network, took, now);
            let host = self.host(id);
            host.response_time.answered(took, bound);
            host.quick_owed = if took > SLOW { row } else { host.quick_owed.saturating_sub(1) };
            self.record(id, sign, permit.probe(), now);
        }
        self.release(id, permit);
    }

    fn record(&mut self, id: HostId, sign: Sign, probe: Option<Instant>, now: Instant) {
        let host = &mut self.states[id.index()];
        if sign == Sign::Alive {
            host.answers = host.answers.wrapping_add(1);
            if !host.in_trouble {
                return;
            }
        }
        host.in_trouble = self.breakers.record(id, &host.origin, sign, probe, now);
    }

    /// Lets breakers whose pause is over have a probe, and finds hosts that let requests hang.
    pub(super) fn wake(&mut self, now: Instant) {
        self.now = now;
        self.bound = self.worker.peers.bound_while_scarce(now);
        self.note_hanging(now);
        while let Some(id) = self.breakers.next_due(now) {
            self.mark_ready(id);
        }
    }

    /// A host that lets requests hang is a slow one long before they end: until then it would take permits from the others.
    fn note_hanging(&mut self, now: Instant) {
        let patience = self.bound.map_or(SLOW, |bound| Duration::from_micros(bound.into()).min(SLOW));
        while let Some((id, Begun { all, unproven })) = self.in_flight.take_hanging(patience, now) {
            self.worker.networks.answered(&self.states[id.index()].network, patience, now);
            let host = self.host(id);
            host.hanging += all;
            host.unproven_hanging += unproven;
            self.mark_ready(id);
        }
    }

    /// The operator does not want to wait for this host any longer.
    pub(super) fn probe_now(&mut self, id: HostId) {
        if self.breakers.probe(id) {
            self.mark_ready(id);
        }
    }

    /// Whether the breaker of this host is open.
    pub(super) fn is_open(&self, id: HostId) -> bool {
        self.breakers.open_until(id).is_some()
    }

    /// The host with this origin, if any subscription has it.
    pub(super) fn find(&self, origin: &str) -> Option<HostId> {
        self.by_origin.get(origin).copied()
    }

    /// For how much longer the breaker of this host is open.
    pub(super) fn open_for(&self, id: HostId, now: Instant) -> Option<Duration> {
        Some(self.breakers.open_until(id)?.saturating_duration_since(now))
    }

    /// The origin of a host.
    pub(super) fn origin(&self, id: HostId) -> &str {
        &self.states[id.index()].origin
    }

    /// When the next pause ends, if there is one.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.breakers.next_wake()
    }

    /// Breakers that opened since the last call, with their pauses.
    pub(super) fn take_opened(&mut self) -> Vec<(String, Duration)> {
        self.breakers.take_opened()
    }

    /// Whether any host could be sent something if this lane had a permit.
    pub(super) fn waits_in(&self, lane: Lane) -> bool {
        !self.ready[lane as usize].hosts().is_empty()
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.by_origin.len()
    }

    /// How many breakers are open.
    pub(super) fn open_breaker_count(&self) -> usize {
        self.breakers.open_breakers().count()
    }

    /// The hosts whose breakers are open.
    pub(super) fn open_breakers(&self, now: Instant) -> Vec<OpenHost> {
        let view = |(id, until): (HostId, Instant)| {
            let host = &self.states[id.index()];
            OpenHost {
                origin: host.origin.to_string(),
                for_another: until.saturating_duration_since(now),
                waiting: host.first.len() + host.retries.len(),
            }
        };
        self.breakers.open_breakers().map(view).collect()
    }

    /// How many wait since before this moment for a permit of a host whose breaker is not open. Looks at every host.
    pub(super) fn waiting_since(&self, moment: Instant) -> usize {
        let waiting = |host: &Host| host.first.since(moment) + host.retries.since(moment);
        let all: usize = self.states.iter().map(waiting).sum();
        all - self.breakers.open_breakers().map(|(id, _)| waiting(&self.states[id.index()])).sum::<usize>()
    }

    /// Which subscriptions may be sent something at this host now, if any.
    fn candidates(&self, id: HostId) -> Option<Candidates> {
        let host = &self.states[id.index()];
        let under_way = InFlightCounts {
            all: host.in_flight as usize,
            unproven: host.unproven as usize,
            hanging: host.hanging as usize,
            unproven_hanging: host.unproven_hanging as usize,
        };
        let is_full = under_way.all >= self.limit;
        if is_full && (under_way.beside_unproven() >= self.limit || under_way.all >= 2 * self.limit) {
            return None;
        }
        let breaker = if host.in_trouble { self.breakers.get(id) } else { None };
        let candidates =
            breaker.map_or(Candidates::InTurn, |breaker| breaker.candidates(under_way, self.limit, self.now));
        if is_full {
            return (candidates != Candidates::RecentlyDelivered).then_some(Candidates::OnlyProven);
        }
        // Where requests hang, tenants that answer must not wait behind those that let them hang.
        let hangs = candidates == Candidates::InTurn && host.is_slow(None);
        let candidates = if hangs { Candidates::RecentlyDeliveredFirst } else { candidates };
        // Nor before they do: unproven subscriptions have no more than half of its permits while proven ones wait.
        let are_many = matches!(candidates, Candidates::InTurn | Candidates::RecentlyDeliveredFirst)
            && host.unproven as usize >= (self.limit / 2).max(1);
        Some(if are_many { Candidates::ProvenFirst } else { candidates })
    }

    fn mark_ready(&mut self, id: HostId) {
        let Some(candidates) = self.candidates(id) else { return };
        let host = &mut self.states[id.index()];
        let waits = host.lanes(candidates, host.is_slow(self.bound));
        for (lane, waits) in Lane::ALL.into_iter().zip(waits) {
            let is_in_ready = &mut host.in_ready[lane as usize];
            if waits && !*is_in_ready {
                *is_in_ready = true;
                self.ready[lane as usize].push(id);
                if lane != Lane::First && !self.lanes.has(lane) {
                    self.worker.networks.wait(lane, &host.network, self.now);
                }
            }
        }
    }

    fn host(&mut self, id: HostId) -> &mut Host {
        &mut self.states[id.index()]
    }
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
    use crate::store::{SubscriptionId, TopicId};

    fn hosts(limit: usize) -> Hosts {
        let policy =
            BreakerPolicy { failures: 2, open: Duration::from_secs(30), open_max: Duration::from_secs(60) };
        let now = Instant::now();
        Hosts::new(limit, policy, WorkerState::new(1_000, limit, now), now)
    }

    /// Who is next, whatever the lane.
    fn next(hosts: &mut Hosts) -> Option<(HostId, Waiter)> {
        hosts.take(OpenLanes::ALL).map(|(host, _, waiter)| (host, waiter))
    }

    fn waiter(id: u64) -> Waiter {
        (TopicId(1), SubscriptionId(id))
    }

    /// One of a first attempt.
    fn permit(begun: Instant) -> Permit {
        Permit { lane: Lane::First, is_proven: false, takes_long: false, is_probe: false, begun }
    }

    /// What began when the hosts were woken last ends so, after so many seconds.
    fn answer(hosts: &mut Hosts, host: HostId, sign: Sign, seconds: u64) {
        let begun = hosts.now;
        let state = &hosts.states[host.index()];
        let lane = Lane::ALL.into_iter().find(|lane| state.in_lanes[*lane as usize] > 0).unwrap();
        let is_proven = state.unproven == 0;
        let permit = Permit { lane, is_proven, is_probe: true, ..permit(begun) };
        hosts.answered(host, permit, sign, begun + Duration::from_secs(seconds));
    }

    #[test]
    fn a_host_serves_no_more_than_its_limit_and_the_rest_in_order() {
        let mut hosts = hosts(2);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=4).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Untried));
        assert_eq!(next(&mut hosts), Some((host, waiter(1))));
        assert_eq!(next(&mut hosts), Some((host, waiter(2))));
        assert_eq!(next(&mut hosts), None);
        hosts.release(host, permit(hosts.now));
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
        hosts.wait(slow, waiter(1), LastAttempt::Untried);
        hosts.wait(slow, waiter(2), LastAttempt::Untried);
        hosts.wait(quick, waiter(3), LastAttempt::Untried);
        assert_eq!(next(&mut hosts).map(|(_, waiter)| waiter), Some(waiter(1)));
        assert_eq!(next(&mut hosts).map(|(_, waiter)| waiter), Some(waiter(3)));
        assert_eq!(next(&mut hosts), None);
    }

    #[test]
    fn a_host_is_forgotten_with_its_last_subscription_and_its_last_request() {
        let mut hosts = hosts(1);
        let first = hosts.join(&"https://a.example".into(), None);
        hosts.wait(first, waiter(1), LastAttempt::Untried);
        next(&mut hosts);
        hosts.leave(first);
        assert_ne!(hosts.join(&"https://b.example".into(), None), first, "a request is still under way");
        hosts.release(first, permit(hosts.now));
        assert_eq!(hosts.join(&"https://c.example".into(), None), first, "the number is free again");
        assert_eq!(hosts.count(), 2);
    }

    /// A host whose breaker is open after two failures; four more that have failed wait there.
    fn in_trouble(hosts: &mut Hosts) -> HostId {
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=6).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Failed));
        for _ in 0..2 {
            assert!(next(hosts).is_some());
        }
        for _ in 0..2 {
            answer(hosts, host, Sign::Trouble, 0);
        }
        host
    }

    /// The pause of the open breaker is over; tells when.
    fn end_pause(hosts: &mut Hosts) -> Instant {
        let until = hosts.next_wake().unwrap();
        hosts.wake(until);
        until
    }

    #[test]
    fn the_breaker_of_a_host_in_trouble_opens_and_lets_one_probe_through() {
        let mut hosts = hosts(4);
        let host = in_trouble(&mut hosts);
        assert_eq!(next(&mut hosts), None, "the breaker is open");
        assert_eq!(hosts.open_breakers(hosts.now).len(), 1);
        assert_eq!(hosts.take_opened()[0].0, "https://a.example");
        end_pause(&mut hosts);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))));
        assert_eq!(next(&mut hosts), None, "one probe");
        answer(&mut hosts, host, Sign::Alive, 0);
        assert_eq!(next(&mut hosts), Some((host, waiter(4))));
        assert_eq!(next(&mut hosts), None, "it begins slowly");
    }

    #[test]
    fn a_probe_that_ends_without_showing_how_the_host_is_gives_way_to_another() {
        let mut hosts = hosts(4);
        let host = in_trouble(&mut hosts);
        end_pause(&mut hosts);
        for id in [3, 4] {
            let (_, probe, probing) = hosts.take(OpenLanes::ALL).unwrap();
            assert_eq!(probing, waiter(id));
            assert_eq!(next(&mut hosts), None, "one probe");
            hosts.release(host, probe);
        }
    }

    #[test]
    fn a_proven_one_does_not_wait_for_an_untried_one_at_a_host_that_recovers() {
        let mut hosts = hosts(4);
        let host = in_trouble(&mut hosts);
        end_pause(&mut hosts);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))), "the probe");
        answer(&mut hosts, host, Sign::Alive, 0);
        hosts.wait(host, waiter(11), LastAttempt::Untried);
        let (_, unproven) = next(&mut hosts).unwrap();
        assert!([waiter(4), waiter(11)].contains(&unproven), "{unproven:?}");
        assert_eq!(next(&mut hosts), None, "one request, which may yet hang");
        hosts.wait(host, waiter(12), LastAttempt::Proven);
        assert_eq!(next(&mut hosts), Some((host, waiter(12))));
        hosts.wait(host, waiter(13), LastAttempt::Proven);
        assert_eq!(next(&mut hosts), None, "it begins slowly");
    }

    #[test]
    fn whatever_hangs_at_an_open_breaker_those_delivered_to_last_are_served_beside_it() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into(), None);
        let of_topic = |topic, id| (TopicId(topic), SubscriptionId(id));
        (1..=4).for_each(|topic| hosts.delivered(host, of_topic(topic, topic)));
        (11..=16).for_each(|id| hosts.wait(host, of_topic(id, id), LastAttempt::Untried));
        for _ in 0..2 {
            assert!(next(&mut hosts).is_some());
            answer(&mut hosts, host, Sign::Silent, 0);
        }
        assert!(hosts.is_open(host));
        for id in [13, 14] {
            assert_eq!(next(&mut hosts), Some((host, of_topic(id, id))));
        }
        assert_eq!(next(&mut hosts), None, "half of its permits are for trials");
        hosts.wait(host, of_topic(1, 1), LastAttempt::Untried);
        assert_eq!(next(&mut hosts), Some((host, of_topic(1, 1))), "the one that was delivered to first");
    }

    #[test]
    fn who_never_succeeded_and_hangs_keeps_nobody_out_who_did_and_no_host_gets_more_than_twice_its_limit() {
        let mut hosts = hosts(4);
        let (host, begun) = (hosts.join(&"https://a.example".into(), None), hosts.now);
        (1..=9).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Untried));
        (0..4).for_each(|_| assert!(next(&mut hosts).is_some()));
        (11..=19).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Proven));
        assert_eq!(next(&mut hosts), None, "they may answer at any moment");
        hosts.wake(begun + SLOW + Duration::from_millis(1));
        for id in 11..=14 {
            assert_eq!(next(&mut hosts), Some((host, waiter(id))));
        }
        assert_eq!(next(&mut hosts), None, "four for those who answered lately, and four that hang");
        hosts.wake(hosts.now + SLOW + Duration::from_millis(1));
        assert_eq!(next(&mut hosts), None, "nor more when these hang too");
        hosts.release(host, permit(begun));
        assert_eq!(next(&mut hosts), None, "they have all that is theirs");
        let proven = Permit { is_proven: true, ..permit(begun + SLOW + Duration::from_millis(1)) };
        hosts.answered(host, proven, Sign::Alive, hosts.now);
        assert_eq!(next(&mut hosts), Some((host, waiter(15))));
    }

    #[test]
    fn at_a_slow_host_with_one_permit_nobody_with_a_backlog_keeps_the_others_out() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        let of_topic = |topic| (TopicId(topic), SubscriptionId(topic));
        let last = |topic| match topic {
            4 => LastAttempt::Failed,
            5.. => LastAttempt::Proven,
            _ => LastAttempt::Untried,
        };
        for topic in 1..=6 {
            hosts.wait(host, of_topic(topic), last(topic));
        }
        let mut served = [0; 7];
        for _ in 0..60 {
            let (_, permit, waiter) = hosts.take(OpenLanes::ALL).unwrap();
            served[usize::try_from(waiter.0.0).unwrap()] += 1;
            hosts.delivered(host, waiter);
            hosts.answered(host, permit, Sign::Alive, permit.begun + Duration::from_secs(4));
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
        let until = end_pause(&mut hosts);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))), "the probe");
        let later = until + Duration::from_millis(1);
        hosts.wake(later);
        hosts.wait(host, waiter(9), LastAttempt::Untried);
        assert_eq!(next(&mut hosts), Some((host, waiter(9))), "one that was delivered to last");
        hosts.answered(host, permit(later), Sign::Trouble, later);
        assert!(!hosts.is_open(host), "the probe is under way still");
        assert_eq!(next(&mut hosts), None, "and there is no second one");
        hosts.answered(
            host,
            Permit { lane: Lane::Retry, is_probe: true, ..permit(until) },
            Sign::Trouble,
            later,
        );
        assert!(hosts.is_open(host) && begun < later);
    }

    #[test]
    fn hosts_that_are_slow_no_more_leave_the_slow_queue_while_it_has_no_permit() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        let begun = hosts.now;
        (1..=2).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Untried));
        hosts.worker.peers.note_scarcity(begun);
        hosts.wake(begun);
        assert!(next(&mut hosts).is_some());
        hosts.answered(host, permit(begun), Sign::Alive, begun + Duration::from_millis(2_900));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert_eq!(hosts.take(quick), None, "it is slow while others find no permit");
        hosts.wake(begun + Duration::from_secs(60));
        assert!(hosts.take(quick).is_some());
    }

    #[test]
    fn a_refused_connection_makes_nobody_slow() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        hosts.wait(host, waiter(1), LastAttempt::Untried);
        assert!(next(&mut hosts).is_some());
        let bound = hosts.worker.peers.bound();
        answer(&mut hosts, host, Sign::Silent, 0);
        assert_eq!(hosts.worker.peers.bound(), bound);
    }

    #[test]
    fn lanes_take_turns_and_a_full_one_holds_up_no_other() {
        let mut hosts = hosts(8);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=3).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Untried));
        (4..=6).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Failed));
        let order: Vec<_> = (0..4).filter_map(|_| next(&mut hosts)).map(|(_, (_, id))| id.0).collect();
        assert_eq!(order, [1, 4, 2, 5]);
        let only_first = OpenLanes::new(|lane| lane == Lane::First);
        assert!(hosts.waits_in(Lane::Retry) && !hosts.waits_in(Lane::Slow));
        assert_eq!(hosts.take(only_first).map(|(_, _, waiter)| waiter), Some(waiter(3)));
        assert_eq!(hosts.take(only_first), None);
        assert_eq!(next(&mut hosts), Some((host, waiter(6))));
    }

    #[test]
    fn a_slow_host_has_a_lane_of_its_own_until_it_is_quick_again() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=3).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Untried));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert!(hosts.take(quick).is_some());
        answer(&mut hosts, host, Sign::Alive, 4);
        assert_eq!(hosts.take(quick), None);
        assert!(hosts.take(OpenLanes::ALL).is_some());
        answer(&mut hosts, host, Sign::Alive, 1);
        assert!(hosts.take(quick).is_some());
    }

    /// Otherwise hosts that answer one request at once, and let all the others wait, would take every first attempt's permit.
    #[test]
    fn a_host_that_answers_quickly_now_and_then_stays_a_slow_one() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=20).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Untried));
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
        (1..=4).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Untried));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert!(hosts.take(quick).is_some());
        hosts.wake(begun + SLOW);
        assert!(hosts.take(quick).is_some(), "it is not slow yet");
        let later = begun + SLOW + Duration::from_millis(1);
        hosts.wake(later);
        assert_eq!(hosts.take(quick), None);
        hosts.answered(host, permit(begun + SLOW), Sign::Alive, later);
        assert_eq!(hosts.take(quick), None, "the first one hangs still");
        assert!(hosts.take(OpenLanes::ALL).is_some());
        // It ends for want of something on this side, which says nothing about the host.
        hosts.answered(host, permit(begun), Sign::None, later);
        assert!(hosts.take(quick).is_some());
    }

    #[test]
    fn a_host_counts_for_the_network_where_its_requests_go() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into(), Some([192, 0, 2, 1].into()));
        (1..=2).for_each(|id| hosts.wait(host, waiter(id), LastAttempt::Untried));
        assert!(next(&mut hosts).is_some());
        let in_flight = |hosts: &Hosts| {
            [[192, 0, 2, 9], [198, 51, 100, 9]]
                .map(|address: [u8; 4]| hosts.worker.networks.of(Some(address.into())).in_flight())
        };
        assert_eq!(in_flight(&hosts), [1, 0], "where it has confirmed");
        hosts.reached(host, [198, 51, 100, 1].into());
        assert_eq!(in_flight(&hosts), [0, 1]);
        hosts.release(host, permit(hosts.now));
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
    fn of_the_last_permits_none_goes_to_who_has_as_many_under_way_as_are_left() {
        let mut hosts = hosts(4);
        let greedy = hosts.join(&"https://a.example".into(), Some([192, 0, 2, 1].into()));
        let modest = hosts.join(&"https://b.example".into(), Some([192, 0, 3, 1].into()));
        (1..=4).for_each(|id| hosts.wait(greedy, waiter(id), LastAttempt::Untried));
        for _ in 0..2 {
            assert_eq!(next(&mut hosts).map(|(host, _)| host), Some(greedy));
        }
        hosts.wait(modest, waiter(5), LastAttempt::Untried);
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
