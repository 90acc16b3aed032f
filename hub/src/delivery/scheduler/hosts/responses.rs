//! How hosts respond: which are slow, which let requests hang, and which are in trouble.

use std::time::{Duration, Instant};

use super::Hosts;
use crate::delivery::scheduler::breaker::HostSignal;
use crate::delivery::scheduler::host::{Charge, HostId};
use crate::delivery::scheduler::in_flight::Begun;
use crate::delivery::scheduler::slowness::SLOW;

impl Hosts {
    /// Gives back what a request took that ended so.
    pub(in crate::delivery::scheduler) fn answered(
        &mut self,
        id: HostId,
        charge: Charge,
        signal: HostSignal,
        now: Instant,
    ) {
        if signal != HostSignal::None {
            // One quick answer among slow ones makes no quick host: as many in a row as may be under way at once do.
            let row = u32::try_from(self.limit).unwrap_or(u32::MAX);
            let took = now.saturating_duration_since(charge.begun);
            // Nobody can be as quick as a refused connection.
            if signal == HostSignal::Alive {
                self.worker.peers.answered(took);
            }
            let bound = self.worker.peers.bound();
            self.worker.networks.answered(&self.states[id.index()].network, took, now);
            let host = self.host(id);
            host.response_time.answered(took, bound);
            host.quick_owed = if took > SLOW { row } else { host.quick_owed.saturating_sub(1) };
            self.record(id, signal, charge.probe(), now);
        }
        self.give_back(id, charge);
    }

    /// Lets breakers whose pause is over have a probe, and finds hosts that let requests hang.
    pub(in crate::delivery::scheduler) fn wake(&mut self, now: Instant) {
        self.now = now;
        self.bound = self.worker.peers.bound_while_scarce(now);
        self.note_hanging(now);
        while let Some(id) = self.breakers.next_due(now) {
            self.mark_ready(id);
        }
    }

    fn record(&mut self, id: HostId, signal: HostSignal, probe: Option<Instant>, now: Instant) {
        let host = &mut self.states[id.index()];
        if signal == HostSignal::Alive {
            host.answers = host.answers.wrapping_add(1);
            if !host.in_trouble {
                return;
            }
        }
        host.in_trouble = self.breakers.record(id, &host.origin, signal, probe, now);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::scheduler::hosts::testing::{answer, charge, hosts, next, waiter};
    use crate::delivery::scheduler::lanes::{Lane, OpenLanes};
    use crate::delivery::scheduler::wait_queue::LastAttempt;

    #[test]
    fn a_refused_connection_makes_nobody_slow() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        hosts.enqueue(host, waiter(1), LastAttempt::Untried);
        assert!(next(&mut hosts).is_some());
        let bound = hosts.worker.peers.bound();
        answer(&mut hosts, host, HostSignal::Silent, 0);
        assert_eq!(hosts.worker.peers.bound(), bound);
    }

    #[test]
    fn a_slow_host_has_a_lane_of_its_own_until_it_is_quick_again() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=3).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Untried));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert!(hosts.take(quick).is_some());
        answer(&mut hosts, host, HostSignal::Alive, 4);
        assert_eq!(hosts.take(quick), None);
        assert!(hosts.take(OpenLanes::ALL).is_some());
        answer(&mut hosts, host, HostSignal::Alive, 1);
        assert!(hosts.take(quick).is_some());
    }

    /// Otherwise hosts that answer one request at once, and let all the others wait, would take every first attempt's permit.
    #[test]
    fn a_host_that_answers_quickly_now_and_then_stays_a_slow_one() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=20).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Untried));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        for _ in 0..4 {
            assert!(hosts.take(quick).is_some());
        }
        let mut answered = |seconds| {
            answer(&mut hosts, host, HostSignal::Alive, seconds);
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
        (1..=4).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Untried));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert!(hosts.take(quick).is_some());
        hosts.wake(begun + SLOW);
        assert!(hosts.take(quick).is_some(), "it is not slow yet");
        let later = begun + SLOW + Duration::from_millis(1);
        hosts.wake(later);
        assert_eq!(hosts.take(quick), None);
        hosts.answered(host, charge(begun + SLOW), HostSignal::Alive, later);
        assert_eq!(hosts.take(quick), None, "the first one hangs still");
        assert!(hosts.take(OpenLanes::ALL).is_some());
        // It ends for want of something on this side, which says nothing about the host.
        hosts.answered(host, charge(begun), HostSignal::None, later);
        assert!(hosts.take(quick).is_some());
    }
}
