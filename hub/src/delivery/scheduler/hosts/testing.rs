//! Hosts for the tests of the modules here: who is next there, and how requests end.

use std::time::{Duration, Instant};

use super::{Hosts, WorkerState};
use crate::delivery::scheduler::breaker::{BreakerPolicy, HostSignal};
use crate::delivery::scheduler::host::{Charge, HostId};
use crate::delivery::scheduler::lanes::{Lane, OpenLanes};
use crate::delivery::scheduler::wait_queue::Waiter;
use crate::store::{SubscriptionId, TopicId};

pub(super) fn hosts(limit: usize) -> Hosts {
    let policy =
        BreakerPolicy { failures: 2, open: Duration::from_secs(30), open_max: Duration::from_secs(60) };
    let now = Instant::now();
    Hosts::new(limit, policy, WorkerState::new(1_000, limit, now), now)
}

/// Who is next, whatever the lane.
pub(super) fn next(hosts: &mut Hosts) -> Option<(HostId, Waiter)> {
    hosts.take(OpenLanes::ALL).map(|(host, _, waiter)| (host, waiter))
}

pub(super) fn waiter(id: u64) -> Waiter {
    (TopicId(1), SubscriptionId(id))
}

/// What a first attempt takes.
pub(super) fn charge(begun: Instant) -> Charge {
    Charge { lane: Lane::First, counted_as_proven: false, takes_long: false, is_probe: false, begun }
}

/// What began when the hosts were woken last ends so, after so many seconds.
pub(super) fn answer(hosts: &mut Hosts, host: HostId, signal: HostSignal, seconds: u64) {
    let begun = hosts.now;
    let state = &hosts.states[host.index()];
    let lane = Lane::ALL.into_iter().find(|lane| state.in_lanes[*lane as usize] > 0).unwrap();
    let counted_as_proven = state.unproven == 0;
    let charge = Charge { lane, counted_as_proven, is_probe: true, ..charge(begun) };
    hosts.answered(host, charge, signal, begun + Duration::from_secs(seconds));
}
