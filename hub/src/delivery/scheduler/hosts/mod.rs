//! The callback origins of one shard: which there are, who waits for them, and where their requests go.
//!
//! `permits` says how many requests each may have at once and which is next, `scarcity` who may have one of the last permits, `responses` which
//! hosts are slow or in trouble, and `circuit_breaking` what is known of those in trouble.

mod circuit_breaking;
mod permits;
mod responses;
mod scarcity;
#[cfg(test)]
mod testing;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

pub use self::circuit_breaking::OpenHost;
use super::breaker::BreakerPolicy;
use super::breakers::Breakers;
use super::host::{Host, HostId};
use super::in_flight::InFlight;
use super::lanes::{Lane, OpenLanes};
use super::networks::Networks;
use super::ready::ReadyHosts;
use super::slowness::Peers;
use super::wait_queue::{LastAttempt, Waiter};
use crate::egress::network;

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

    /// Puts a subscription behind those of its topic that wait for its host.
    pub(super) fn enqueue(&mut self, id: HostId, waiter: Waiter, last: LastAttempt) {
        let now = self.now;
        self.host(id).enqueue(waiter, last, now);
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

    /// The host with this origin, if any subscription has it.
    pub(super) fn find(&self, origin: &str) -> Option<HostId> {
        self.by_origin.get(origin).copied()
    }

    /// The origin of a host.
    pub(super) fn origin(&self, id: HostId) -> &str {
        &self.states[id.index()].origin
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.by_origin.len()
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
    use super::testing::{charge, hosts, next, waiter};
    use super::*;

    #[test]
    fn a_host_is_forgotten_with_its_last_subscription_and_its_last_request() {
        let mut hosts = hosts(1);
        let first = hosts.join(&"https://a.example".into(), None);
        hosts.enqueue(first, waiter(1), LastAttempt::Untried);
        next(&mut hosts);
        hosts.leave(first);
        assert_ne!(hosts.join(&"https://b.example".into(), None), first, "a request is still under way");
        hosts.give_back(first, charge(hosts.now));
        assert_eq!(hosts.join(&"https://c.example".into(), None), first, "the number is free again");
        assert_eq!(hosts.count(), 2);
    }

    #[test]
    fn a_host_counts_for_the_network_where_its_requests_go() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into(), Some([192, 0, 2, 1].into()));
        (1..=2).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Untried));
        assert!(next(&mut hosts).is_some());
        let in_flight = |hosts: &Hosts| {
            [[192, 0, 2, 9], [198, 51, 100, 9]]
                .map(|address: [u8; 4]| hosts.worker.networks.of(Some(address.into())).in_flight())
        };
        assert_eq!(in_flight(&hosts), [1, 0], "where it has confirmed");
        hosts.reached(host, [198, 51, 100, 1].into());
        assert_eq!(in_flight(&hosts), [0, 1]);
        hosts.give_back(host, charge(hosts.now));
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
