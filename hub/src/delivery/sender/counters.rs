//! What delivery counts, for the operator.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use utoipa::ToSchema;

use crate::delivery::scheduler::{Counts, GivenUp, Lane, millis};
use crate::store::Shard;

/// Saved until this moment: a shard that is not delivered for here.
const NOT_HERE: u64 = u64::MAX;

/// Totals since the start of the process.
#[derive(Debug)]
pub struct Counters {
    delivered: AtomicU64,
    failed: AtomicU64,
    given_up: [AtomicU64; GivenUp::ALL.len()],
    lost_to_retention: AtomicU64,
    in_flight: [AtomicUsize; Lane::ALL.len()],
    hubs: AtomicUsize,
    shards_taken: AtomicU64,
    begun: Instant,
    shards: Vec<Gauges>,
}

/// What one shard is like now.
#[derive(Debug, Default)]
struct Gauges {
    subscriptions: AtomicUsize,
    hosts: AtomicUsize,
    laggards: AtomicUsize,
    open_breakers: AtomicUsize,
    past_due: AtomicUsize,
    /// Until so many milliseconds after the beginning all progress is durable; or [`NOT_HERE`].
    saved: AtomicU64,
}

impl Gauges {
    fn not_here() -> Self {
        Self { saved: AtomicU64::new(NOT_HERE), ..Self::default() }
    }

    fn is_here(&self) -> bool {
        self.saved.load(Ordering::Relaxed) != NOT_HERE
    }
}

/// The totals at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Totals {
    /// Attempts answered with 2xx.
    pub delivered: u64,
    /// All other attempts.
    pub failed: u64,
    /// Notifications given up for a subscription.
    pub skipped: u64,
    /// Notifications that retention removed before a laggard got them.
    pub lost_to_retention: u64,
    /// Subscriptions that are behind.
    pub laggards: usize,
    /// Hosts whose circuit breakers are open.
    pub open_breakers: usize,
    /// Subscriptions that could have been served for longer than a minute and were not.
    pub past_due: usize,
}

impl Counters {
    pub(crate) fn new(shards: u16) -> Self {
        Self {
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            given_up: Default::default(),
            lost_to_retention: AtomicU64::new(0),
            in_flight: Default::default(),
            hubs: AtomicUsize::new(1),
            shards_taken: AtomicU64::new(0),
            begun: Instant::now(),
            shards: (0..shards).map(|_| Gauges::not_here()).collect(),
        }
    }

    pub(super) fn add(&self, counts: Counts) {
        self.delivered.fetch_add(counts.delivered, Ordering::Relaxed);
        self.failed.fetch_add(counts.failed, Ordering::Relaxed);
        for (total, more) in self.given_up.iter().zip(counts.given_up) {
            total.fetch_add(more, Ordering::Relaxed);
        }
        self.lost_to_retention.fetch_add(counts.lost_to_retention, Ordering::Relaxed);
    }

    pub(crate) fn set_subscriptions(&self, shard: Shard, subscriptions: usize, hosts: usize) {
        if let Some(gauges) = self.of(shard) {
            gauges.subscriptions.store(subscriptions, Ordering::Relaxed);
            gauges.hosts.store(hosts, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_gauges(&self, shard: Shard, laggards: usize, open_breakers: usize) {
        if let Some(gauges) = self.of(shard) {
            gauges.laggards.store(laggards, Ordering::Relaxed);
            gauges.open_breakers.store(open_breakers, Ordering::Relaxed);
        }
    }

    pub(super) fn set_past_due(&self, shard: Shard, past_due: usize) {
        if let Some(gauges) = self.of(shard) {
            gauges.past_due.store(past_due, Ordering::Relaxed);
        }
    }

    /// A worker has so many requests of each lane under way, and had reported so many before.
    pub(super) fn move_in_flight(&self, before: [usize; Lane::ALL.len()], now: [usize; Lane::ALL.len()]) {
        for ((total, before), now) in self.in_flight.iter().zip(before).zip(now) {
            total.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// So many hubs that use this store are up, this one among them.
    pub(crate) fn set_hubs(&self, hubs: usize) {
        self.hubs.store(hubs, Ordering::Relaxed);
    }

    /// A shard was taken over.
    pub(crate) fn count_taken(&self) {
        self.shards_taken.fetch_add(1, Ordering::Relaxed);
    }

    /// All progress of a shard until this moment is durable, as it is when the shard is taken over.
    pub(crate) fn set_saved(&self, shard: Shard, until: Instant) {
        if let Some(gauges) = self.of(shard) {
            gauges.saved.store(millis(self.begun, until), Ordering::Relaxed);
        }
    }

    fn of(&self, shard: Shard) -> Option<&Gauges> {
        self.shards.get(usize::from(shard.0))
    }

    /// This shard is not delivered for here any more.
    pub(super) fn forget(&self, shard: Shard) {
        self.set_subscriptions(shard, 0, 0);
        self.set_gauges(shard, 0, 0);
        self.set_past_due(shard, 0);
        if let Some(gauges) = self.of(shard) {
            gauges.saved.store(NOT_HERE, Ordering::Relaxed);
        }
    }

    /// The shards that this hub delivers for.
    pub fn here(&self) -> Vec<Shard> {
        let shards = self.shards.iter().zip(0..);
        shards.filter(|(gauges, _)| gauges.is_here()).map(|(_, shard)| Shard(shard)).collect()
    }

    /// Whether this hub does what is done once for the whole store, as the owner of its first shard.
    pub fn keeps_house(&self) -> bool {
        self.of(Shard::FIRST).is_some_and(Gauges::is_here)
    }

    /// How many requests are under way, by lane; as of a checkpoint interval ago at most.
    pub fn in_flight(&self) -> [(&'static str, usize); Lane::ALL.len()] {
        Lane::ALL.map(|lane| (lane.name(), self.in_flight[lane as usize].load(Ordering::Relaxed)))
    }

    /// How many notifications were given up for a subscription, by why.
    pub fn given_up(&self) -> [(&'static str, u64); GivenUp::ALL.len()] {
        GivenUp::ALL.map(|why| (why.name(), self.given_up[why as usize].load(Ordering::Relaxed)))
    }

    /// For how long there may have been progress that is not durable yet.
    pub fn checkpoint_age(&self, now: Instant) -> Duration {
        let saved = self.shards.iter().map(|gauges| gauges.saved.load(Ordering::Relaxed));
        let oldest = saved.filter(|saved| *saved != NOT_HERE).min();
        oldest.map_or(Duration::ZERO, |oldest| {
            now.saturating_duration_since(self.begun + Duration::from_millis(oldest))
        })
    }

    /// How many hubs that use this store are up, this one among them; as of when the database answered last.
    pub fn hubs(&self) -> usize {
        self.hubs.load(Ordering::Relaxed)
    }

    /// How often this hub took a shard over, those of its start included.
    pub fn shards_taken(&self) -> u64 {
        self.shards_taken.load(Ordering::Relaxed)
    }

    /// How many subscriptions are in force; as of a second ago at most.
    pub fn subscriptions(&self) -> usize {
        self.sum(|gauges| &gauges.subscriptions)
    }

    /// How many callback origins they have.
    pub fn hosts(&self) -> usize {
        self.sum(|gauges| &gauges.hosts)
    }

    /// The totals now; they trail what happens by up to a checkpoint interval.
    pub fn totals(&self) -> Totals {
        Totals {
            delivered: self.delivered.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            skipped: self.given_up().map(|(_, number)| number).iter().sum(),
            lost_to_retention: self.lost_to_retention.load(Ordering::Relaxed),
            laggards: self.sum(|gauges| &gauges.laggards),
            open_breakers: self.sum(|gauges| &gauges.open_breakers),
            past_due: self.sum(|gauges| &gauges.past_due),
        }
    }

    fn sum(&self, gauge: impl Fn(&Gauges) -> &AtomicUsize) -> usize {
        self.shards.iter().map(|gauges| gauge(gauges).load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_as_old_as_that_of_the_shard_that_was_saved_longest_ago() {
        let counters = Counters::new(2);
        let at = |seconds| counters.begun + Duration::from_secs(seconds);
        assert_eq!(counters.checkpoint_age(at(3)), Duration::ZERO, "no shard is here yet");
        counters.set_saved(Shard(0), at(9));
        counters.set_saved(Shard(1), at(4));
        assert_eq!(counters.checkpoint_age(at(10)), Duration::from_secs(6));
        counters.set_saved(Shard(1), at(9));
        assert_eq!(counters.checkpoint_age(at(10)), Duration::from_secs(1));
        assert!(counters.keeps_house());
        counters.forget(Shard(0));
        assert!(!counters.keeps_house(), "the first shard is another hub's");
        assert_eq!(counters.here(), [Shard(1)]);
        assert_eq!(counters.checkpoint_age(at(13)), Duration::from_secs(4), "of the one that is left");
        counters.forget(Shard(1));
        assert_eq!(counters.checkpoint_age(at(99)), Duration::ZERO);
    }

    #[test]
    fn the_requests_of_all_workers_add_up_by_lane() {
        let counters = Counters::new(1);
        counters.move_in_flight([0, 0, 0], [5, 1, 0]);
        counters.move_in_flight([0, 0, 0], [2, 0, 7]);
        counters.move_in_flight([5, 1, 0], [0, 1, 1]);
        assert_eq!(counters.in_flight(), [("first", 2), ("retry", 1), ("slow", 8)]);
    }
}
