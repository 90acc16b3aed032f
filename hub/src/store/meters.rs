//! What the store measures of its commits.

use std::time::Duration;

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The meters of a store.
#[derive(Clone, Debug)]
pub struct Meters {
    seconds: Histogram,
    commands: Histogram,
}

impl Default for Meters {
    fn default() -> Self {
        let seconds = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
        Self { seconds: Histogram::new(seconds), commands: Histogram::new(exponential_buckets(1.0, 2.0, 11)) }
    }
}

impl Meters {
    /// A commit that was synced to the disk, successful or not, of so many commands.
    pub(super) fn committed(&self, commands: usize, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        self.commands.observe(f64::from(u32::try_from(commands).unwrap_or(u32::MAX)));
    }
}

impl crate::meters::Meters for Meters {
    fn register(&self, registry: &mut Registry) {
        let help = "Time to write a group of commands and to sync it to the disk";
        registry.register("log_fsync_seconds", help, self.seconds.clone());
        registry.register("log_batch_size", "Commands that shared one sync", self.commands.clone());
    }
}
