//! The networks that callbacks are on: how many requests each has under way, of all hosts of a worker.
//!
//! Names cost nothing and addresses cost little, so that one owner may have any number of hosts; networks cost something. A network
//! has at most a share of the places while hosts of others wait in vain, and all of them otherwise.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use ipnet::IpNet;

use super::lanes::Lanes;
use crate::egress::network;

/// One network has at most so small a part of all places while others wait.
const SHARE: usize = 8;
/// For how long a host that found no place keeps other networks to their shares: it comes again sooner than that.
const WAITS: Duration = Duration::from_secs(1);
/// Networks that are known before it is looked for such as no host is on any more.
const TIDY_FROM: usize = 1_024;

/// The networks of one worker's hosts. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Networks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    share: usize,
    /// Of the places for slow hosts.
    slow_share: usize,
    known: Mutex<Known>,
    /// Of the hosts whose address is not known yet: together they are one network.
    nowhere: Arc<Network>,
    begun: Instant,
    /// Of the hosts that find no place …
    waiting: Waiting,
    /// … and of slow ones that find none of the slow lane.
    waiting_slow: Waiting,
}

/// The network of the host that found no place last, and until when that counts, in milliseconds after the beginning.
#[derive(Debug, Default)]
struct Waiting {
    network: AtomicU64,
    until: AtomicU64,
}

#[derive(Debug)]
struct Known {
    networks: HashMap<IpNet, Weak<Network>>,
    next: u64,
    tidy_at: usize,
}

/// A network, for each host that is on it. The worker's thread alone counts.
#[derive(Debug)]
pub(super) struct Network {
    number: u64,
    in_flight: AtomicUsize,
    in_slow_lane: AtomicUsize,
}

impl Network {
    fn new(number: u64) -> Self {
        Self { number, in_flight: AtomicUsize::new(0), in_slow_lane: AtomicUsize::new(0) }
    }

    /// Requests to its hosts.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, requests: usize) {
        self.in_flight.fetch_add(requests, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, requests: usize) {
        self.in_flight.fetch_sub(requests, Ordering::Relaxed);
    }

    /// Of these, so many more have a place of the slow lane.
    pub(super) fn add_slow(&self, requests: usize) {
        self.in_slow_lane.fetch_add(requests, Ordering::Relaxed);
    }

    pub(super) fn subtract_slow(&self, requests: usize) {
        self.in_slow_lane.fetch_sub(requests, Ordering::Relaxed);
    }
}

impl Networks {
    /// For a worker with so many places, of which one host may have `per_host`.
    pub(super) fn new(places: usize, per_host: usize) -> Self {
        let known = Known { networks: HashMap::new(), next: 1, tidy_at: TIDY_FROM };
        Self(Arc::new(Shared {
            share: (places / SHARE).max(per_host).max(1),
            slow_share: (Lanes::for_slow(places) / SHARE).max(1),
            known: Mutex::new(known),
            nowhere: Arc::new(Network::new(0)),
            begun: Instant::now(),
            waiting: Waiting::default(),
            waiting_slow: Waiting::default(),
        }))
    }

    /// The network of this address.
    pub(super) fn of(&self, address: Option<IpAddr>) -> Arc<Network> {
        let Some(address) = address else { return Arc::clone(&self.0.nowhere) };
        // Nothing in here can panic half-way.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).get(network(address))
    }

    /// Whether this network has as many places as it may have while others wait.
    pub(super) fn has_its_share(&self, network: &Network) -> bool {
        network.in_flight() >= self.0.share
    }

    /// A host on this network, which has less than its share, finds no place.
    pub(super) fn wait(&self, network: &Network, now: Instant) {
        self.0.waiting.note(network, self.millis(now + WAITS));
    }

    /// Whether this network has its share and hosts of another one wait.
    pub(super) fn gives_way(&self, network: &Network, now: Instant) -> bool {
        self.has_its_share(network) && self.0.waiting.is_another(network, self.millis(now))
    }

    /// A slow host on this network finds no place of the slow lane, which counts while the network has less than its share of that.
    pub(super) fn wait_slow(&self, network: &Network, now: Instant) {
        if !self.has_its_slow_share(network) {
            self.0.waiting_slow.note(network, self.millis(now + WAITS));
        }
    }

    /// Whether this network has its share of the slow lane and slow hosts of another one wait.
    pub(super) fn gives_way_in_slow_lane(&self, network: &Network, now: Instant) -> bool {
        self.has_its_slow_share(network) && self.0.waiting_slow.is_another(network, self.millis(now))
    }

    fn has_its_slow_share(&self, network: &Network) -> bool {
        network.in_slow_lane.load(Ordering::Relaxed) >= self.0.slow_share
    }

    fn millis(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.0.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Waiting {
    fn note(&self, network: &Network, until: u64) {
        self.network.store(network.number, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
    }

    /// Whether a host of another network than this one waits.
    fn is_another(&self, network: &Network, now: u64) -> bool {
        self.until.load(Ordering::Relaxed) > now && self.network.load(Ordering::Relaxed) != network.number
    }
}

impl Known {
    fn get(&mut self, network: IpNet) -> Arc<Network> {
        if let Some(known) = self.networks.get(&network).and_then(Weak::upgrade) {
            return known;
        }
        if self.networks.len() >= self.tidy_at {
            self.networks.retain(|_, network| network.strong_count() > 0);
            self.tidy_at = (2 * self.networks.len()).max(TIDY_FROM);
        }
        let new = Arc::new(Network::new(self.next));
        self.next += 1;
        self.networks.insert(network, Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(networks: &Networks, address: &str) -> Arc<Network> {
        networks.of(Some(address.parse().unwrap()))
    }

    #[test]
    fn addresses_of_one_network_count_together_and_those_that_are_not_known_too() {
        let networks = Networks::new(80, 2);
        let one = at(&networks, "192.0.2.1");
        one.add(9);
        let same = at(&networks, "192.0.2.200");
        assert_eq!(same.in_flight(), 9);
        assert!(!networks.has_its_share(&same));
        same.add(1);
        assert!(networks.has_its_share(&one));
        assert_eq!(at(&networks, "192.0.3.1").in_flight(), 0);
        assert!(Arc::ptr_eq(&networks.of(None), &networks.of(None)));
    }

    #[test]
    fn a_network_gives_way_beyond_its_share_while_another_waits_and_to_nobody_else() {
        let (networks, now) = (Networks::new(80, 2), Instant::now());
        let (large, small) = (at(&networks, "192.0.2.1"), at(&networks, "192.0.3.1"));
        large.add(40);
        assert!(!networks.gives_way(&large, now), "nobody waits");
        networks.wait(&large, now);
        assert!(!networks.gives_way(&large, now), "not to itself");
        networks.wait(&small, now);
        assert!(networks.gives_way(&large, now));
        assert!(!networks.gives_way(&small, now));
        assert!(!networks.gives_way(&large, now + WAITS), "it waits no more");
    }

    #[test]
    fn in_the_slow_lane_a_network_gives_way_beyond_a_share_of_that_lane() {
        let (networks, now) = (Networks::new(80, 2), Instant::now());
        let (tarpit, slow) = (at(&networks, "192.0.2.1"), at(&networks, "192.0.3.1"));
        tarpit.add_slow(2);
        assert!(!networks.gives_way_in_slow_lane(&tarpit, now), "nobody waits");
        networks.wait_slow(&tarpit, now);
        assert!(!networks.gives_way_in_slow_lane(&tarpit, now), "who has its share is no reason");
        networks.wait_slow(&slow, now);
        assert!(networks.gives_way_in_slow_lane(&tarpit, now));
        tarpit.subtract_slow(1);
        assert!(!networks.gives_way_in_slow_lane(&tarpit, now));
    }

    #[test]
    fn no_share_is_smaller_than_what_one_host_may_have() {
        let networks = Networks::new(8, 8);
        let network = at(&networks, "192.0.2.1");
        network.add(7);
        assert!(!networks.has_its_share(&network));
    }

    #[test]
    fn networks_that_nobody_is_on_any_more_are_forgotten() {
        let networks = Networks::new(8, 8);
        for number in 0..10 * u32::try_from(TIDY_FROM).unwrap() {
            networks.of(Some(IpAddr::from(std::net::Ipv4Addr::from(number << 8))));
        }
        assert!(networks.0.known.lock().unwrap().networks.len() <= TIDY_FROM);
    }
}
