//! What delivery counts, for the operator.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde::Serialize;
use utoipa::ToSchema;

use super::shard::Counts;
use crate::store::Shard;

/// Totals since the start of the process.
#[derive(Debug)]
pub struct Counters {
    delivered: AtomicU64,
    failed: AtomicU64,
    skipped: AtomicU64,
    lost_to_retention: AtomicU64,
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
    /// Hosts that are left alone for a while.
    pub open_breakers: usize,
    /// Subscriptions that could have been served for longer than a minute and were not.
    pub past_due: usize,
}

impl Counters {
    pub(crate) fn new(shards: u16) -> Self {
        Self {
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            lost_to_retention: AtomicU64::new(0),
            shards: (0..shards).map(|_| Gauges::default()).collect(),
        }
    }

    pub(super) fn add(&self, counts: Counts) {
        self.delivered.fetch_add(counts.delivered, Ordering::Relaxed);
        self.failed.fetch_add(counts.failed, Ordering::Relaxed);
        self.skipped.fetch_add(counts.skipped, Ordering::Relaxed);
        self.lost_to_retention.fetch_add(counts.lost_to_retention, Ordering::Relaxed);
    }

    pub(super) fn set_subscriptions(&self, shard: Shard, subscriptions: usize, hosts: usize) {
        if let Some(gauges) = self.shards.get(usize::from(shard.0)) {
            gauges.subscriptions.store(subscriptions, Ordering::Relaxed);
            gauges.hosts.store(hosts, Ordering::Relaxed);
        }
    }

    pub(super) fn set_gauges(&self, shard: Shard, laggards: usize, open_breakers: usize) {
        if let Some(gauges) = self.shards.get(usize::from(shard.0)) {
            gauges.laggards.store(laggards, Ordering::Relaxed);
            gauges.open_breakers.store(open_breakers, Ordering::Relaxed);
        }
    }

    pub(super) fn set_past_due(&self, shard: Shard, past_due: usize) {
        if let Some(gauges) = self.shards.get(usize::from(shard.0)) {
            gauges.past_due.store(past_due, Ordering::Relaxed);
        }
    }

    /// How many subscriptions are in force. Counting them in the store would take time in proportion to their number.
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
            skipped: self.skipped.load(Ordering::Relaxed),
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
