//! The permits of hosts: how many each may have at once, and which subscription gets the next one.

use std::time::Instant;

use super::Hosts;
use crate::delivery::scheduler::breaker::InFlightCounts;
use crate::delivery::scheduler::host::{Candidates, Charge, Host, HostId};
use crate::delivery::scheduler::in_flight::lessen;
use crate::delivery::scheduler::lanes::{Lane, OpenLanes};
use crate::delivery::scheduler::wait_queue::{LastAttempt, Waiter};

impl Hosts {
    /// The next subscription whose host and lane have a permit left, which it takes. Lanes take turns, and so do hosts.
    pub(in crate::delivery::scheduler) fn take(
        &mut self,
        lanes: OpenLanes,
    ) -> Option<(HostId, Charge, Waiter)> {
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
                if let Some((waiter, charge)) = self.pop(id, lane) {
                    self.turn = (index + 1) % Lane::ALL.len();
                    self.begin(id, charge);
                    return Some((id, charge, waiter));
                }
                // It may have become slow, or quick again, since it came here.
                self.mark_ready(id);
                self.forget_if_unused(id);
            }
        }
        None
    }

    /// Gives back what was taken for nothing.
    pub(in crate::delivery::scheduler) fn give_back(&mut self, id: HostId, charge: Charge) {
        let Charge { lane, counted_as_proven, begun, .. } = charge;
        let unproven = u32::from(!counted_as_proven);
        let has_hung = self.in_flight.end(id, counted_as_proven, begun);
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
            self.breakers.returned(id, charge.probe());
        }
        self.mark_ready(id);
        self.forget_if_unused(id);
    }

    /// Whether any host could be sent something if this lane had a permit.
    pub(in crate::delivery::scheduler) fn waits_in(&self, lane: Lane) -> bool {
        !self.ready[lane as usize].hosts().is_empty()
    }

    /// How many wait since before this moment for a permit of a host whose breaker is not open. Looks at every host.
    pub(in crate::delivery::scheduler) fn waiting_since(&self, moment: Instant) -> usize {
        let waiting = |host: &Host| host.first.since(moment) + host.retries.since(moment);
        let all: usize = self.states.iter().map(waiting).sum();
        all - self.breakers.open_breakers().map(|(id, _)| waiting(&self.states[id.index()])).sum::<usize>()
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

    /// A request to this host begins.
    fn begin(&mut self, id: HostId, charge: Charge) {
        let Charge { lane, counted_as_proven, begun, .. } = charge;
        let host = self.host(id);
        host.in_flight += 1;
        host.unproven += u32::from(!counted_as_proven);
        host.in_lanes[lane as usize] += 1;
        self.worker.networks.begin(lane, &self.states[id.index()].network, begun);
        self.in_flight.begin(id, counted_as_proven, begun);
        self.mark_ready(id);
        let host = &self.states[id.index()];
        if lane != Lane::First && host.in_ready[lane as usize] {
            self.worker.networks.prolong_starving(lane, &host.network, begun);
        }
    }

    /// Takes the next host whose network may have a permit of this lane: one of `spare`, where no others are left.
    fn next_ready(&mut self, lane: Lane, spare: Option<usize>) -> Option<HostId> {
        let mut ready = std::mem::take(&mut self.ready[lane as usize]);
        let next = ready.take(|id| self.has_permit_in(lane, id, spare));
        self.ready[lane as usize] = ready;
        next
    }

    pub(super) fn has_permit_in(&self, lane: Lane, id: HostId, spare: Option<usize>) -> bool {
        let network = &self.states[id.index()].network;
        let gives_way = lane != Lane::First && self.worker.networks.gives_way(lane, network, self.now);
        !gives_way && self.has_permit(id, spare)
    }

    /// The next one in this lane, and what its request takes.
    fn pop(&mut self, id: HostId, lane: Lane) -> Option<(Waiter, Charge)> {
        let candidates = self.candidates(id)?;
        let host = &mut self.states[id.index()];
        let is_slow = host.is_slow(self.bound);
        let (waiter, chosen, last) = host.choose(candidates, lane, is_slow)?;
        let charge = Charge {
            lane,
            counted_as_proven: last == LastAttempt::Proven,
            takes_long: host.response_time.takes_long(),
            is_probe: host.in_trouble && self.breakers.sent(id, chosen, self.now),
            begun: self.now,
        };
        Some((waiter, charge))
    }

    /// Which subscriptions may be sent something at this host now, if any.
    pub(super) fn candidates(&self, id: HostId) -> Option<Candidates> {
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

    pub(super) fn mark_ready(&mut self, id: HostId) {
        let Some(candidates) = self.candidates(id) else { return };
        let host = &mut self.states[id.index()];
        let waits = host.lanes(candidates, host.is_slow(self.bound));
        for (lane, waits) in Lane::ALL.into_iter().zip(waits) {
            let is_in_ready = &mut host.in_ready[lane as usize];
            if waits && !*is_in_ready {
                *is_in_ready = true;
                self.ready[lane as usize].push(id);
                if lane != Lane::First && !self.lanes.has(lane) {
                    self.worker.networks.note_starving(lane, &host.network, self.now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::scheduler::breaker::HostSignal;
    use crate::delivery::scheduler::hosts::testing::{charge, hosts, next, waiter};
    use crate::delivery::scheduler::slowness::SLOW;
    use crate::store::{SubscriptionId, TopicId};

    #[test]
    fn a_host_serves_no_more_than_its_limit_and_the_rest_in_order() {
        let mut hosts = hosts(2);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=4).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Untried));
        assert_eq!(next(&mut hosts), Some((host, waiter(1))));
        assert_eq!(next(&mut hosts), Some((host, waiter(2))));
        assert_eq!(next(&mut hosts), None);
        hosts.give_back(host, charge(hosts.now));
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
        hosts.enqueue(slow, waiter(1), LastAttempt::Untried);
        hosts.enqueue(slow, waiter(2), LastAttempt::Untried);
        hosts.enqueue(quick, waiter(3), LastAttempt::Untried);
        assert_eq!(next(&mut hosts).map(|(_, waiter)| waiter), Some(waiter(1)));
        assert_eq!(next(&mut hosts).map(|(_, waiter)| waiter), Some(waiter(3)));
        assert_eq!(next(&mut hosts), None);
    }

    #[test]
    fn who_never_succeeded_and_hangs_keeps_nobody_out_who_did_and_no_host_gets_more_than_twice_its_limit() {
        let mut hosts = hosts(4);
        let (host, begun) = (hosts.join(&"https://a.example".into(), None), hosts.now);
        (1..=9).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Untried));
        (0..4).for_each(|_| assert!(next(&mut hosts).is_some()));
        (11..=19).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Proven));
        assert_eq!(next(&mut hosts), None, "they may answer at any moment");
        hosts.wake(begun + SLOW + Duration::from_millis(1));
        for id in 11..=14 {
            assert_eq!(next(&mut hosts), Some((host, waiter(id))));
        }
        assert_eq!(next(&mut hosts), None, "four for those who answered lately, and four that hang");
        hosts.wake(hosts.now + SLOW + Duration::from_millis(1));
        assert_eq!(next(&mut hosts), None, "nor more when these hang too");
        hosts.give_back(host, charge(begun));
        assert_eq!(next(&mut hosts), None, "they have all that is theirs");
        let proven = Charge { counted_as_proven: true, ..charge(begun + SLOW + Duration::from_millis(1)) };
        hosts.answered(host, proven, HostSignal::Alive, hosts.now);
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
            hosts.enqueue(host, of_topic(topic), last(topic));
        }
        let mut served = [0; 7];
        for _ in 0..60 {
            let (_, charge, waiter) = hosts.take(OpenLanes::ALL).unwrap();
            served[usize::try_from(waiter.0.0).unwrap()] += 1;
            hosts.delivered(host, waiter);
            hosts.answered(host, charge, HostSignal::Alive, charge.begun + Duration::from_secs(4));
            hosts.enqueue(host, waiter, last(waiter.0.0));
        }
        assert!(served[1..].iter().all(|times| *times >= 4), "{served:?}");
    }

    #[test]
    fn lanes_take_turns_and_a_full_one_holds_up_no_other() {
        let mut hosts = hosts(8);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=3).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Untried));
        (4..=6).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Failed));
        let order: Vec<_> = (0..4).filter_map(|_| next(&mut hosts)).map(|(_, (_, id))| id.0).collect();
        assert_eq!(order, [1, 4, 2, 5]);
        let only_first = OpenLanes::new(|lane| lane == Lane::First);
        assert!(hosts.waits_in(Lane::Retry) && !hosts.waits_in(Lane::Slow));
        assert_eq!(hosts.take(only_first).map(|(_, _, waiter)| waiter), Some(waiter(3)));
        assert_eq!(hosts.take(only_first), None);
        assert_eq!(next(&mut hosts), Some((host, waiter(6))));
    }
}
