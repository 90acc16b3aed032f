//! When a run has passed: bounds on what it measures.

use resync_common::config::Keys;

use super::reader::Amounts as _;

/// The most, or the least, that may come out. What has no bound is not judged; correctness always is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    /// In milliseconds.
    pub publish_p99: Option<f64>,
    /// In milliseconds.
    pub delivery_p50: Option<f64>,
    /// In milliseconds.
    pub delivery_p99: Option<f64>,
    /// In milliseconds, what the p99 of nine of ten windows of ten seconds may be.
    pub delivery_p99_of_windows: Option<f64>,
    /// At least.
    pub deliveries_per_second: Option<f64>,
    /// Of the bare client loop's rate, at least.
    pub ratio_to_bound: Option<f64>,
    /// Of what the hub can do, at least, where the rate is a share of that.
    pub ratio_to_limit: Option<f64>,
    /// In microseconds.
    pub cpu_per_delivery: Option<f64>,
    /// Bytes.
    pub memory_per_subscription: Option<u64>,
    /// Bytes.
    pub disk_per_notification: Option<u64>,
    /// Bytes of the data folder, at any moment.
    pub store: Option<u64>,
    /// Bytes an hour by which the hub's memory may grow.
    pub memory_slope: Option<u64>,
    /// Bytes an hour by which the hub's data folder may grow.
    pub store_slope: Option<u64>,
    /// Milliseconds an hour by which the p99 of deliveries may grow.
    pub delivery_slope: Option<f64>,
    /// Losses that are allowed; 0 where nothing is said.
    pub losses: u64,
    /// Duplicates without a crash in between that are allowed.
    pub duplicates: u64,
    /// Notifications that may come after a later one.
    pub disorder: u64,
    /// Posts that may be refused or remain unanswered; `None`: any.
    pub failed_posts: Option<u64>,
    /// In seconds, from the end of each fault until posts are taken again.
    pub taken_again_within: Option<f64>,
}

impl Expect {
    pub(super) fn read(keys: Keys<'_, '_>) -> Self {
        let milliseconds = |key| keys.duration(key).map(|time| time.as_secs_f64() * 1e3);
        let allowed = |key| keys.count(key, 0, u64::MAX);
        let expect = Self {
            publish_p99: milliseconds("publish_p99"),
            delivery_p50: milliseconds("delivery_p50"),
            delivery_p99: milliseconds("delivery_p99"),
            delivery_p99_of_windows: milliseconds("delivery_p99_of_windows"),
            deliveries_per_second: keys.number("deliveries_per_second", 0.0, 1e9),
            ratio_to_bound: keys.number("ratio_to_bound", 0.0, 100.0),
            ratio_to_limit: keys.number("ratio_to_limit", 0.0, 1.0),
            cpu_per_delivery: keys.duration("cpu_per_delivery").map(|time| time.as_secs_f64() * 1e6),
            memory_per_subscription: keys.size("memory_per_subscription"),
            disk_per_notification: keys.size("disk_per_notification"),
            store: keys.size("store"),
            memory_slope: keys.size("memory_slope"),
            store_slope: keys.size("store_slope"),
            delivery_slope: milliseconds("delivery_slope"),
            losses: allowed("losses").unwrap_or(0),
            duplicates: allowed("duplicates").unwrap_or(0),
            disorder: allowed("disorder").unwrap_or(0),
            failed_posts: allowed("failed_posts"),
            taken_again_within: keys.duration("taken_again_within").map(|time| time.as_secs_f64()),
        };
        keys.finish();
        expect
    }
}
