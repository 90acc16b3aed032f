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
    /// Numbers that are free again.
    free: Vec<HostId>,
    /// Hosts that have both a waiter and a free place, in the order in which they got them.
    ready: VecDeque<HostId>,
}

#[derive(Debug, Default)]
struct Host {
    origin: String,
    /// Subscriptions with this origin.
    subscriptions: usize,
    in_flight: usize,
    waiting: VecDeque<Waiter>,
    in_ready: bool,
}

impl Hosts {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            by_origin: HashMap::new(),
            states: Vec::new(),
            free: Vec::new(),
            ready: VecDeque::new(),
        }
    }

    /// The number of this origin, for one more subscription.
    pub(super) fn join(&mut self, origin: &str) -> HostId {
        let id = self.by_origin.get(origin).copied().unwrap_or_else(|| self.add(origin));
        self.host(id).subscriptions += 1;
        id
    }

    /// One subscription less; the last one to leave takes the host along.
    pub(super) fn leave(&mut self, id: HostId) {
        self.host(id).subscriptions -= 1;
        self.forget_if_unused(id);
    }

    fn add(&mut self, origin: &str) -> HostId {
        let host = Host { origin: origin.to_owned(), ..Host::default() };
        let id = if let Some(id) = self.free.pop() {
            *self.host(id) = host;
            id
        } else {
            self.states.push(host);
            HostId(u32::try_from(self.states.len() - 1).expect("fewer than 2^32 origins fit into memory"))
        };
        self.by_origin.insert(origin.to_owned(), id);
        id
    }

    fn forget_if_unused(&mut self, id: HostId) {
        let host = self.host(id);
        if host.subscriptions == 0 && host.in_flight == 0 && !host.in_ready {
            let origin = std::mem::take(&mut host.origin);
            host.waiting.clear();
            // A host that waits to be forgotten may have been left twice: by its last subscription and its last request.
            if self.by_origin.remove(&origin).is_some() {
                self.free.push(id);
            }
        }
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
        self.forget_if_unused(id);
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
        let host = hosts.join("https://a.example");
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
        let (slow, quick) = (hosts.join("https://slow.example"), hosts.join("https://quick.example"));
        hosts.wait(slow, waiter(1));
        hosts.wait(slow, waiter(2));
        hosts.wait(quick, waiter(3));
        assert_eq!(hosts.take().map(|(_, waiter)| waiter), Some(waiter(1)));
        assert_eq!(hosts.take().map(|(_, waiter)| waiter), Some(waiter(3)));
        assert_eq!(hosts.take(), None);
    }

    #[test]
    fn a_host_is_forgotten_with_its_last_subscription_and_its_last_request() {
        let mut hosts = Hosts::new(1);
        let first = hosts.join("https://a.example");
        hosts.wait(first, waiter(1));
        hosts.take();
        hosts.leave(first);
        assert_ne!(hosts.join("https://b.example"), first, "a request is still under way");
        hosts.release(first);
        assert_eq!(hosts.join("https://c.example"), first, "the number is free again");
        assert_eq!(hosts.by_origin.len(), 2);
    }

    #[test]
    fn the_same_origin_is_the_same_host() {
        let mut hosts = Hosts::new(1);
        assert_eq!(hosts.join("https://a.example"), hosts.join("https://a.example"));
        assert_ne!(hosts.join("https://a.example"), hosts.join("https://a.example:8443"));
    }
}
