//! How things went in the last hour at this hub: a row of samples in memory, for small plots.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use resync_common::locks::lock;
use tokio::sync::watch;
use tokio::time::interval;

use crate::delivery::{Counters, Meters, OUTCOMES};

/// The pause between two samples.
const EVERY: Duration = Duration::from_secs(10);
/// Samples of an hour.
const KEPT: usize = 360;

/// What is sampled.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Posts and pings that were accepted.
    pub published: Vec<Counter>,
    /// Attempts by their outcome.
    pub delivering: Meters,
    /// What delivery counts.
    pub counters: Arc<Counters>,
}

/// The numbers at one moment, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Publishes that were accepted.
    pub published: u64,
    /// Attempts by outcome.
    pub outcomes: [u64; OUTCOMES],
    /// What the time from publish to success adds up to, over all that were delivered.
    pub lag: Duration,
    /// Subscriptions that are behind.
    pub laggards: usize,
    /// Subscriptions that could have been served for longer than a minute.
    pub past_due: usize,
}

impl Sample {
    /// Attempts that were answered with 2xx.
    pub fn delivered(&self) -> u64 {
        self.outcomes[0]
    }

    /// All other attempts.
    pub fn failed(&self) -> u64 {
        self.outcomes[1..].iter().sum()
    }

    /// The mean time from publish to success of what was delivered after an earlier sample.
    pub fn mean_lag_since(&self, earlier: &Self) -> Option<Duration> {
        let delivered = u32::try_from(self.delivered() - earlier.delivered()).unwrap_or(u32::MAX);
        self.lag.saturating_sub(earlier.lag).checked_div(delivered)
    }
}

/// The samples.
#[derive(Clone, Debug)]
pub struct Trends {
    sources: Sources,
    begun: Instant,
    kept: Arc<Mutex<VecDeque<Sample>>>,
    ticks: watch::Sender<u64>,
}

impl Trends {
    /// Nothing sampled yet.
    pub fn new(sources: Sources) -> Self {
        Self { sources, begun: Instant::now(), kept: Arc::default(), ticks: watch::Sender::new(0) }
    }

    /// Takes samples until `stop` turns true.
    pub async fn keep(self, mut stop: watch::Receiver<bool>) {
        let mut ticks = interval(EVERY);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.take(),
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    fn take(&self) {
        let sample = self.now();
        let mut kept = lock(&self.kept);
        kept.push_back(sample);
        let surplus = kept.len().saturating_sub(KEPT + 1);
        kept.drain(..surplus);
        drop(kept);
        self.ticks.send_modify(|ticks| *ticks += 1);
    }

    /// The numbers at this moment.
    pub fn now(&self) -> Sample {
        let totals = self.sources.counters.totals();
        Sample {
            published: self.sources.published.iter().map(Counter::get).sum(),
            outcomes: self.sources.delivering.outcomes().map(|(_, count)| count),
            lag: self.sources.delivering.lag(),
            laggards: totals.laggards,
            past_due: totals.past_due,
        }
    }

    /// The names of the outcomes.
    pub fn outcomes(&self) -> [&'static str; OUTCOMES] {
        self.sources.delivering.outcomes().map(|(name, _)| name)
    }

    /// The samples of the last hour, oldest first, and the present one.
    pub fn hour(&self) -> Vec<Sample> {
        let kept = lock(&self.kept);
        kept.iter().copied().chain([self.now()]).collect()
    }

    /// Changes whenever a sample was taken.
    pub fn ticks(&self) -> watch::Receiver<u64> {
        self.ticks.subscribe()
    }

    /// How long the hub has been running.
    pub fn running_for(&self) -> Duration {
        self.begun.elapsed()
    }
}
