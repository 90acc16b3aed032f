//! The circuit breakers of the hosts of one shard: which have one, and when each lets requests through again.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use super::breaker::{Breaker, BreakerPolicy, Change, HostSignal, Sent};
use super::host::{Chosen, HostId};

/// Breakers by host.
#[derive(Debug)]
pub(super) struct Breakers {
    policy: BreakerPolicy,
    /// Requests to one host at once.
    limit: usize,
    /// Hosts that have failed lately; most never do.
    by_host: HashMap<HostId, Breaker>,
    /// When breakers let the next request through. Some of these are outdated.
    wakes: BinaryHeap<Reverse<(Instant, HostId)>>,
    /// Those that opened, for the log.
    opened: Vec<(String, Duration)>,
}

impl Breakers {
    pub(super) fn new(policy: BreakerPolicy, limit: usize) -> Self {
        Self { policy, limit, by_host: HashMap::new(), wakes: BinaryHeap::new(), opened: Vec::new() }
    }

    pub(super) fn get(&self, id: HostId) -> Option<&Breaker> {
        self.by_host.get(&id)
    }

    pub(super) fn remove(&mut self, id: HostId) {
        self.by_host.remove(&id);
    }

    /// A request that the breaker of this host let through is on its way; returns whether it is the probe.
    pub(super) fn sent(&mut self, id: HostId, chosen: Chosen, now: Instant) -> bool {
        let sent = self.by_host.get_mut(&id).map_or(Sent::Other, |breaker| breaker.sent(chosen, now));
        if let Sent::Trial { next } = sent {
            self.wakes.push(Reverse((next, id)));
        }
        sent == Sent::Probe
    }

    /// A request to this host has come to its end: the probe that began at this moment, if it is one.
    pub(super) fn returned(&mut self, id: HostId, probe: Option<Instant>) {
        if let Some(breaker) = self.by_host.get_mut(&id) {
            breaker.returned(probe);
        }
    }

    /// Takes in how a request ended: the probe that began at this moment, if it is one. Returns whether the host needs a breaker from now on.
    pub(super) fn record(
        &mut self,
        id: HostId,
        origin: &str,
        signal: HostSignal,
        probe: Option<Instant>,
        now: Instant,
    ) -> bool {
        let breaker = self.by_host.entry(id).or_insert_with(|| Breaker::new(now));
        match breaker.record(signal, probe, self.limit, &self.policy, now) {
            Change::Nothing => true,
            Change::Recovered => {
                self.by_host.remove(&id);
                false
            }
            Change::Opened(until) => {
                self.wakes.push(Reverse((until, id)));
                self.opened.push((origin.to_owned(), until - now));
                true
            }
        }
    }

    /// The next host whose breaker lets a request through that had to wait until now.
    pub(super) fn next_due(&mut self, now: Instant) -> Option<HostId> {
        while let Some(Reverse((until, id))) =
            self.wakes.peek().copied().filter(|Reverse((until, _))| *until <= now)
        {
            self.wakes.pop();
            // The number may be another host's by now, and the pause another one.
            let Some(breaker) = self.by_host.get_mut(&id) else { continue };
            if breaker.until() == Some(until) {
                breaker.probe();
                return Some(id);
            }
            if breaker.tries_from(until) {
                return Some(id);
            }
        }
        None
    }

    /// Lets an open breaker have its probe now; returns whether the host has a breaker.
    pub(super) fn probe(&mut self, id: HostId) -> bool {
        self.by_host.get_mut(&id).map(Breaker::probe).is_some()
    }

    /// Until when the breaker of this host is open, if it is.
    pub(super) fn open_until(&self, id: HostId) -> Option<Instant> {
        self.get(id)?.until()
    }

    /// The open ones, and until when they are.
    pub(super) fn open_breakers(&self) -> impl Iterator<Item = (HostId, Instant)> {
        self.by_host.iter().filter_map(|(id, breaker)| Some((*id, breaker.until()?)))
    }

    /// When [`next_due`](Self::next_due) may have a host next.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.wakes.peek().map(|Reverse((until, _))| *until)
    }

    /// Those that opened since the last call, with their pauses.
    pub(super) fn take_opened(&mut self) -> Vec<(String, Duration)> {
        std::mem::take(&mut self.opened)
    }
}
