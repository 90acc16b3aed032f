//! The networks that callbacks are on: how many requests each has under way, of all hosts of a worker.
//!
//! Names cost nothing and addresses cost little, so that one owner may have any number of hosts; networks cost something. A network
//! has at most a share of the permits while hosts of others wait in vain, and all of them otherwise.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use resync_common::locks::lock;

use super::clock::millis;
use super::lanes::Lane;
use super::slowness::{LONG, micros, smoothed};
use crate::egress::network;

/// One network has at most so small a part of all permits while others wait.
const SHARE: usize = 8;
/// For how long a host that found no permit keeps other networks to their shares. Each time it finds none, and each time it gets one while it
/// has more to be sent, that begins again.
const STARVES: Duration = Duration::from_secs(1);
/// A new answer counts for so small a part of what is known of a network.
const SMOOTH: u32 = 64;
/// Networks that are known before those without hosts are looked for.
const TIDY_FROM: usize = 1_024;

/// The networks of one worker's hosts. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Networks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Of all permits, and of those of the lanes for retries and for slow hosts.
    shares: [usize; Lane::ALL.len()],
    known: Mutex<Known>,
    /// Of the hosts whose address is not known yet: together they are one network.
    nowhere: Arc<Network>,
    begun: Instant,
    /// Of the hosts that find no permit, and of those that find none of their lane.
    starving: [Starving; Lane::ALL.len()],
}

/// The network of the host that found no permit last, and until when that counts, in milliseconds after the beginning.
#[derive(Debug, Default)]
struct Starving {
    network: AtomicU64,
    until: AtomicU64,
}

#[derive(Debug)]
struct Known {
    networks: HashMap<IpNet, Weak<Network>>,
    next: u64,
    tidy_at: usize,
}

/// A network, for each host that is on it. Only the worker's thread counts here, so that no number needs an order; they are atomic since a
/// shard is loaded on another thread, which gives its hosts the networks that those of other shards have.
#[derive(Debug)]
pub(super) struct Network {
    number: u64,
    in_lanes: [AtomicUsize; Lane::ALL.len()],
    /// What it takes for an answer, smoothed, in microseconds.
    response_time: AtomicU32,
    /// Until so many milliseconds after the beginning it had less than its share, or answered.
    moved: AtomicU64,
}

impl Network {
    fn new(number: u64) -> Self {
        Self {
            number,
            in_lanes: Default::default(),
            response_time: AtomicU32::new(0),
            moved: AtomicU64::new(0),
        }
    }

    /// Requests to its hosts.
    pub(super) fn in_flight(&self) -> usize {
        self.in_lanes.iter().map(|requests| requests.load(Ordering::Relaxed)).sum()
    }

    /// So many more have a permit of this lane.
    pub(super) fn add(&self, lane: Lane, requests: usize) {
        self.in_lanes[lane as usize].fetch_add(requests, Ordering::Relaxed);
    }

    pub(super) fn subtract(&self, lane: Lane, requests: usize) {
        self.in_lanes[lane as usize].fetch_sub(requests, Ordering::Relaxed);
    }
}

impl Networks {
    /// For a worker with so many permits, of which one host may have `per_host`.
    pub(super) fn new(permits: usize, per_host: usize, now: Instant) -> Self {
        let known = Known { networks: HashMap::new(), next: 1, tidy_at: TIDY_FROM };
        Self(Arc::new(Shared {
            shares: Lane::ALL.map(|lane| {
                let least = if lane == Lane::First { per_host } else { 1 };
                (lane.share(permits) / SHARE).max(least).max(1)
            }),
            known: Mutex::new(known),
            nowhere: Arc::new(Network::new(0)),
            begun: now,
            starving: Default::default(),
        }))
    }

    /// The network of this address.
    pub(super) fn of(&self, address: Option<IpAddr>) -> Arc<Network> {
        let Some(address) = address else { return Arc::clone(&self.0.nowhere) };
        // Nothing in here can panic half-way.
        lock(&self.0.known).get(network(address))
    }

    /// Whether this network has as many permits as it may have while others wait.
    pub(super) fn has_its_share(&self, network: &Network) -> bool {
        self.has_its_share_of(Lane::First, network)
    }

    /// Of a lane that is not for first attempts, only the permits of that lane count.
    fn has_its_share_of(&self, lane: Lane, network: &Network) -> bool {
        let taken = match lane {
            Lane::First => network.in_flight(),
            Lane::Retry | Lane::Slow => network.in_lanes[lane as usize].load(Ordering::Relaxed),
        };
        taken >= self.0.shares[lane as usize]
    }

    /// A request to a host on this network begins.
    pub(super) fn begin(&self, lane: Lane, network: &Network, now: Instant) {
        if !self.has_its_share(network) {
            network.moved.store(millis(self.0.begun, now), Ordering::Relaxed);
        }
        network.add(lane, 1);
    }

    /// A request to a host on this network has ended after so long, or has hung for so long.
    pub(super) fn answered(&self, network: &Network, took: Duration, now: Instant) {
        network.moved.store(millis(self.0.begun, now), Ordering::Relaxed);
        let known = network.response_time.load(Ordering::Relaxed);
        network.response_time.store(smoothed(known, micros(took), SMOOTH), Ordering::Relaxed);
    }

    /// Whether its hosts themselves, and not a busy worker, let their requests wait: these take long, or none has ended for as long.
    pub(super) fn takes_long(&self, network: &Network, now: Instant) -> bool {
        let still = millis(self.0.begun, now).saturating_sub(network.moved.load(Ordering::Relaxed));
        network.response_time.load(Ordering::Relaxed) > LONG
            || self.has_its_share(network) && still > u64::from(LONG / 1_000)
    }

    /// A host on this network finds no permit of this lane, or none at all where that is for first attempts. That counts while the network
    /// has less than its share.
    pub(super) fn note_starving(&self, lane: Lane, network: &Network, now: Instant) {
        if !self.has_its_share_of(lane, network) {
            self.0.starving[lane as usize].note(network, millis(self.0.begun, now + STARVES));
        }
    }

    /// One that had found none has got one, and waits for more.
    pub(super) fn prolong_starving(&self, lane: Lane, network: &Network, now: Instant) {
        if self.0.starving[lane as usize].network(millis(self.0.begun, now)) == Some(network.number) {
            self.note_starving(lane, network, now);
        }
    }

    /// Whether this network has its share and hosts of another one starve.
    pub(super) fn gives_way(&self, lane: Lane, network: &Network, now: Instant) -> bool {
        self.has_its_share_of(lane, network)
            && self.0.starving[lane as usize]
                .network(millis(self.0.begun, now))
                .is_some_and(|number| number != network.number)
    }
}

impl Starving {
    fn note(&self, network: &Network, until: u64) {
        self.network.store(network.number, Ordering::Relaxed);
        self.until.store(until, Ordering::Relaxed);
    }

    /// The number of the network with a host that starves, if there is one.
    fn network(&self, now: u64) -> Option<u64> {
        (self.until.load(Ordering::Relaxed) > now).then(|| self.network.load(Ordering::Relaxed))
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
        let networks = Networks::new(80, 2, Instant::now());
        let one = at(&networks, "192.0.2.1");
        one.add(Lane::First, 9);
        let same = at(&networks, "192.0.2.200");
        assert_eq!(same.in_flight(), 9);
        assert!(!networks.has_its_share(&same));
        same.add(Lane::First, 1);
        assert!(networks.has_its_share(&one));
        assert_eq!(at(&networks, "192.0.3.1").in_flight(), 0);
        assert!(Arc::ptr_eq(&networks.of(None), &networks.of(None)));
    }

    #[test]
    fn a_network_gives_way_beyond_its_share_while_another_waits_and_to_nobody_else() {
        let now = Instant::now();
        let networks = Networks::new(80, 2, now);
        let (large, small) = (at(&networks, "192.0.2.1"), at(&networks, "192.0.3.1"));
        large.add(Lane::First, 40);
        assert!(!networks.gives_way(Lane::First, &large, now), "nobody waits");
        networks.note_starving(Lane::First, &large, now);
        assert!(!networks.gives_way(Lane::First, &large, now), "not to itself");
        networks.note_starving(Lane::First, &small, now);
        assert!(networks.gives_way(Lane::First, &large, now));
        assert!(!networks.gives_way(Lane::First, &small, now));
        assert!(!networks.gives_way(Lane::First, &large, now + STARVES), "it waits no more");
    }

    #[test]
    fn who_waits_for_more_keeps_others_to_their_shares_for_as_long() {
        let now = Instant::now();
        let networks = Networks::new(80, 2, now);
        let (large, small) = (at(&networks, "192.0.2.1"), at(&networks, "192.0.3.1"));
        large.add(Lane::Retry, 20);
        networks.prolong_starving(Lane::Retry, &small, now);
        assert!(!networks.gives_way(Lane::Retry, &large, now), "it has found a permit each time");
        networks.note_starving(Lane::Retry, &small, now);
        let later = now + STARVES / 2;
        networks.prolong_starving(Lane::Retry, &small, later);
        assert!(networks.gives_way(Lane::Retry, &large, now + STARVES));
        assert!(!networks.gives_way(Lane::Retry, &large, later + STARVES));
    }

    #[test]
    fn in_the_slow_lane_a_network_gives_way_beyond_a_share_of_that_lane() {
        let now = Instant::now();
        let networks = Networks::new(80, 2, now);
        let (tarpit, slow) = (at(&networks, "192.0.2.1"), at(&networks, "192.0.3.1"));
        tarpit.add(Lane::Slow, 2);
        assert!(!networks.gives_way(Lane::Slow, &tarpit, now), "nobody waits");
        networks.note_starving(Lane::Slow, &tarpit, now);
        assert!(!networks.gives_way(Lane::Slow, &tarpit, now), "who has its share is no reason");
        networks.note_starving(Lane::Slow, &slow, now);
        assert!(networks.gives_way(Lane::Slow, &tarpit, now));
        tarpit.subtract(Lane::Slow, 1);
        assert!(!networks.gives_way(Lane::Slow, &tarpit, now));
    }

    #[test]
    fn no_share_is_smaller_than_what_one_host_may_have() {
        let networks = Networks::new(8, 8, Instant::now());
        let network = at(&networks, "192.0.2.1");
        network.add(Lane::First, 7);
        assert!(!networks.has_its_share(&network));
    }

    #[test]
    fn networks_that_nobody_is_on_any_more_are_forgotten() {
        let networks = Networks::new(8, 8, Instant::now());
        for number in 0..10 * u32::try_from(TIDY_FROM).unwrap() {
            networks.of(Some(IpAddr::from(std::net::Ipv4Addr::from(number << 8))));
        }
        assert!(networks.0.known.lock().unwrap().networks.len() <= TIDY_FROM);
    }
}
