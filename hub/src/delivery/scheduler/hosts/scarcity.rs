//! Where permits are scarce: who may have one of the last, and which hosts find none because of others.

use super::{Hosts, WorkerState};
use crate::delivery::scheduler::host::{Candidates, HostId};
use crate::delivery::scheduler::lanes::Lane;

/// Hosts that are looked at for one that finds no permit and is not to blame for that.
const LOOKED_AT: usize = 4;

impl Hosts {
    /// Whether a subscription that is taken up for this host would get one of so many permits at once, or wait in another lane.
    pub(in crate::delivery::scheduler) fn may_spare(&self, id: HostId, spare: usize) -> bool {
        if self.states[id.index()].is_slow(self.bound) {
            return true;
        }
        let is_free = self.candidates(id) == Some(Candidates::InTurn);
        is_free && self.states[id.index()].first.is_empty() && self.has_permit(id, Some(spare))
    }

    /// Whether a subscription that is taken up for this host would wait for others of its own host or network, which take long, or may.
    /// Where these are quick, all wait for the worker alone, and it is soon their turn.
    pub(in crate::delivery::scheduler) fn waits_for_its_own(&self, id: HostId) -> bool {
        let (host, networks) = (&self.states[id.index()], &self.worker.networks);
        let has_all = host.in_flight as usize >= self.limit;
        (has_all || !host.first.is_empty() || networks.has_its_share(&host.network))
            && (host.hanging > 0
                || host.response_time.takes_long_or_is_unknown()
                || networks.takes_long(&host.network, self.now))
    }

    /// Permits are scarce. A quick host whose network has less than its share finds none because of others.
    pub(super) fn note_first_without_permit(&mut self) {
        let waiting = self.ready[Lane::First as usize].hosts();
        let first: [Option<HostId>; LOOKED_AT] = std::array::from_fn(|at| waiting.get(at).copied());
        first.into_iter().flatten().for_each(|id| self.note_no_permit(id));
    }

    /// Permits are scarce, and this host finds none: notes that, unless the host itself is to blame.
    pub(in crate::delivery::scheduler) fn note_no_permit(&mut self, id: HostId) {
        let (host, WorkerState { networks, peers }) = (&self.states[id.index()], &self.worker);
        if !host.is_slow(Some(peers.bound())) && !networks.has_its_share(&host.network) {
            networks.note_starving(Lane::First, &host.network, self.now);
            peers.note_scarcity(self.now);
            self.bound = Some(peers.bound());
        }
    }

    /// There is no permit of this lane. Of the hosts that wait for one, some belong elsewhere, since they became slow or quick again, and
    /// others find none because of other networks.
    pub(super) fn look_at_waiting(&mut self, lane: Lane) {
        let mut ready = std::mem::take(&mut self.ready[lane as usize]);
        ready.come_back(|id| self.has_permit_in(lane, id, None));
        let few = LOOKED_AT.min(ready.hosts().len());
        self.ready[lane as usize] = ready;
        for _ in 0..few {
            let Some(id) = self.ready[lane as usize].take_first() else { return };
            let host = &mut self.states[id.index()];
            if host.is_slow(self.bound) == (lane == Lane::Slow) {
                self.worker.networks.note_starving(lane, &host.network, self.now);
                self.ready[lane as usize].push(id);
            } else {
                host.in_ready[lane as usize] = false;
                self.mark_ready(id);
                self.forget_if_unused(id);
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
    use crate::delivery::scheduler::lanes::OpenLanes;
    use crate::delivery::scheduler::wait_queue::LastAttempt;

    #[test]
    fn hosts_that_are_slow_no_more_leave_the_slow_queue_while_it_has_no_permit() {
        let mut hosts = hosts(1);
        let host = hosts.join(&"https://a.example".into(), None);
        let begun = hosts.now;
        (1..=2).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Untried));
        hosts.worker.peers.note_scarcity(begun);
        hosts.wake(begun);
        assert!(next(&mut hosts).is_some());
        hosts.answered(host, charge(begun), HostSignal::Alive, begun + Duration::from_millis(2_900));
        let quick = OpenLanes::new(|lane| lane != Lane::Slow);
        assert_eq!(hosts.take(quick), None, "it is slow while others find no permit");
        hosts.wake(begun + Duration::from_secs(60));
        assert!(hosts.take(quick).is_some());
    }

    #[test]
    fn of_the_last_permits_none_goes_to_who_has_as_many_under_way_as_are_left() {
        let mut hosts = hosts(4);
        let greedy = hosts.join(&"https://a.example".into(), Some([192, 0, 2, 1].into()));
        let modest = hosts.join(&"https://b.example".into(), Some([192, 0, 3, 1].into()));
        (1..=4).for_each(|id| hosts.enqueue(greedy, waiter(id), LastAttempt::Untried));
        for _ in 0..2 {
            assert_eq!(next(&mut hosts).map(|(host, _)| host), Some(greedy));
        }
        hosts.enqueue(modest, waiter(5), LastAttempt::Untried);
        let last = |left| OpenLanes::new(|_| false).with_spare(left);
        assert_eq!(hosts.take(last(2)).map(|(host, ..)| host), Some(modest));
        assert_eq!(hosts.take(last(1)), None);
        assert_eq!(hosts.take(last(3)).map(|(host, ..)| host), Some(greedy));
    }
}
