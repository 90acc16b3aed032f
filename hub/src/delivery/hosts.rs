//! Callback origins and how many requests each may have at once.

use std::collections::{HashMap, VecDeque};

use crate::store::{SubscriptionId, TopicId};

/// An origin, as a small number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HostId(u32);

/// A subscription that waits for its host.
pub(super) type Waiter = (TopicId, SubscriptionId);

/// The hosts of one shard.
#[derive(Debug)]
pub(super) struct Hosts {
    limit: usize,
    by_origin: HashMap<String, HostId>,
    states: Vec<Host>,
    /// Hosts that have both a waiter and a free place, in the order in which they got them.
    ready: VecDeque<HostId>,
}

#[derive(Debug, Default)]
struct Host {
    in_flight: usize,
    waiting: VecDeque<Waiter>,
    in_ready: bool,
}

impl Hosts {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), by_origin: HashMap::new(), states: Vec::new(), ready: VecDeque::new() }
    }

    /// The number of this origin.
    pub(super) fn intern(&mut self, origin: &str) -> HostId {
        if let Some(id) = self.by_origin.get(origin) {
            return *id;
        }
        let id = HostId(u32::try_from(self.states.len()).expect("fewer than 2^32 origins fit into memory"));
        self.states.push(Host::default());
        self.by_origin.insert(origin.to_owned(), id);
        id
    }

    /// Puts a subscription at the end of its host's queue.
    pub(super) fn wait(&mut self, id: HostId, waiter: Waiter) {
        self.host(id).waiting.push_back(waiter);
        self.mark_ready(id);
    }

    /// The next subscription whose host has a free place, which it takes.
    pub(super) fn take(&mut self) -> Option<(HostId, Waiter)> {
        let id = self.ready.pop_front()?;
        let host = self.host(id);
        host.in_ready = false;
        let waiter = host.waiting.pop_front()?;
        host.in_flight += 1;
        self.mark_ready(id);
        Some((id, waiter))
    }

    /// Gives a place back.
    pub(super) fn release(&mut self, id: HostId) {
        let host = self.host(id);
        host.in_flight = host.in_flight.saturating_sub(1);
        self.mark_ready(id);
    }

    fn mark_ready(&mut self, id: HostId) {
        let limit = self.limit;
        let host = self.host(id);
        if !host.in_ready && !host.waiting.is_empty() && host.in_flight < limit {
            host.in_ready = true;
            self.ready.push_back(id);
        }
    }

    fn host(&mut self, id: HostId) -> &mut Host {
        &mut self.states[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(id: u64) -> Waiter {
        (TopicId(1), SubscriptionId(id))
    }

    #[test]
    fn a_host_serves_no_more_than_its_limit_and_the_rest_in_order() {
        let mut hosts = Hosts::new(2);
        let host = hosts.intern("https://a.example");
        (1..=4).for_each(|id| hosts.wait(host, waiter(id)));
        assert_eq!(hosts.take(), Some((host, waiter(1))));
        assert_eq!(hosts.take(), Some((host, waiter(2))));
        assert_eq!(hosts.take(), None);
        hosts.release(host);
        assert_eq!(hosts.take(), Some((host, waiter(3))));
        assert_eq!(hosts.take(), None);
    }

    #[test]
    fn a_busy_host_does_not_hold_up_another() {
        let mut hosts = Hosts::new(1);
        let (slow, quick) = (hosts.intern("https://slow.example"), hosts.intern("https://quick.example"));
        hosts.wait(slow, waiter(1));
        hosts.wait(slow, waiter(2));
        hosts.wait(quick, waiter(3));
        assert_eq!(hosts.take().map(|(_, waiter)| waiter), Some(waiter(1)));
        assert_eq!(hosts.take().map(|(_, waiter)| waiter), Some(waiter(3)));
        assert_eq!(hosts.take(), None);
    }

    #[test]
    fn the_same_origin_is_the_same_host() {
        let mut hosts = Hosts::new(1);
        assert_eq!(hosts.intern("https://a.example"), hosts.intern("https://a.example"));
        assert_ne!(hosts.intern("https://a.example"), hosts.intern("https://a.example:8443"));
    }
}
