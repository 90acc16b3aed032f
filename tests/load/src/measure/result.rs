//! The result of a run, as it stands in its JSON file. All times in milliseconds, sizes in bytes, unless a name says otherwise.

use serde::{Deserialize, Serialize};

use super::{Judgement, Machine, Quantiles};

/// A run of a scenario.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The version of the tool.
    pub tool: String,
    /// The scenario's name.
    pub scenario: String,
    /// What it is for.
    pub about: String,
    /// Whatever was drawn by lot, was drawn from this.
    pub seed: u64,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// Which hub: ours with its version, or a URL.
    pub hub: String,
    /// The machine.
    pub machine: Machine,
    /// What the machine could do at best, measured in the same run.
    pub bound: Option<Bound>,
    /// For each number of subscribers.
    pub rungs: Vec<Rung>,
    /// Whether every verdict of every rung holds.
    pub passed: bool,
}

/// What the machine could do at best.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Signed requests a second of a bare client loop to a receiver in the same process.
    pub requests_per_second: f64,
    /// Appends a second, each synced before the next.
    pub appends_per_second: f64,
}

/// One number of subscribers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rung {
    /// Subscriptions from the beginning.
    pub subscribers: u32,
    /// Topics.
    pub topics: u32,
    /// Hosts.
    pub hosts: u32,
    /// Subscriptions made and verified a second.
    pub subscribing_per_second: f64,
    /// Seconds from the first post to the end of the run.
    pub seconds: f64,
    /// What was published.
    pub published: Published,
    /// What came of it.
    pub delivered: Delivered,
    /// What the oracle says.
    pub judgement: Judgement,
    /// What the hub took; nothing is known of a hub elsewhere.
    pub resources: Option<Resources>,
    /// What the tool itself took.
    pub overhead: Overhead,
    /// What was done to the hub.
    pub faults: Vec<FaultReport>,
    /// Seconds after the worst of these until posts were taken again; `None` where they were not, or nothing was done.
    pub taken_again_after: Option<f64>,
    /// Second by second.
    pub series: Vec<Second>,
    /// How memory and latency change over the second half of the run; `None` for a short one.
    pub slopes: Option<Slopes>,
    /// What was expected, and whether it holds.
    pub verdicts: Vec<Verdict>,
}

/// What was published. Latencies begin at the moment when a post was due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Posts, or pings.
    pub sent: u64,
    /// Answered by a 2xx.
    pub acknowledged: u64,
    /// Answered by something else.
    pub refused: u64,
    /// Not answered.
    pub unanswered: u64,
    /// Both together.
    pub failed: u64,
    /// Until the answer.
    pub latency: Quantiles,
}

/// What came. Latencies begin at the moment when the post was due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delivered {
    /// Answered by a 2xx.
    pub accepted: u64,
    /// Answered by something else, or not.
    pub refused: u64,
    /// Accepted ones a second: of a burst until its last one came, in the middle one of all bursts; else over the whole run.
    pub per_second: f64,
    /// By the bound's requests a second.
    pub ratio_to_bound: Option<f64>,
    /// What the hub delivers a second when more is due than it can do; `None` where the scenario's rate is no share of that.
    pub limit_per_second: Option<f64>,
    /// By that.
    pub ratio_to_limit: Option<f64>,
    /// To receivers that are well.
    pub latency: Quantiles,
    /// The p99 that nine of ten windows of ten seconds do not exceed; `None` for a short run.
    pub latency_p99_of_windows: Option<f64>,
    /// To all others.
    pub latency_of_sick: Quantiles,
}

/// What the hub's process took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// Microseconds of CPU for each accepted delivery.
    pub cpu_per_delivery: f64,
    /// Resident bytes before the first subscription.
    pub memory_empty: u64,
    /// Resident bytes when all are subscribed.
    pub memory_subscribed: u64,
    /// The most that was seen.
    pub memory_most: u64,
    /// For each subscription of the audience.
    pub memory_per_subscription: f64,
    /// Bytes sent to the disk for each acknowledged notification, checkpoints of deliveries included.
    pub disk_per_notification: f64,
    /// Bytes of the data folder at the end.
    pub store: u64,
    /// Syncs for each acknowledged notification; `None` where the hub was restarted, or does not tell.
    pub syncs_per_notification: Option<f64>,
}

/// What the tool itself took: as long as this is small, the hub is what is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Microseconds of CPU for each accepted delivery, publishing included.
    pub cpu_per_delivery: f64,
    /// Of all cores over the run.
    pub cpu_share: f64,
    /// How late posts were sent after the moment when they were due.
    pub lateness: Quantiles,
    /// Resident bytes.
    pub memory: u64,
}

/// A fault that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultReport {
    /// As in the scenario.
    pub kind: String,
    /// When it began, in seconds.
    pub from: f64,
    /// When its cause was gone: after a kill, when the hub was started again.
    pub until: f64,
    /// When the hub listened after it: as `until`, but for a kill.
    pub listening: f64,
    /// Seconds from `until` to the first acknowledgement after which no post failed until the next fault; `None`: there was none, or no post
    /// in between.
    pub taken_again_after: Option<f64>,
    /// Why it could not be done.
    pub impossible: Option<String>,
}

/// A second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the beginning, at its end.
    pub at: f64,
    /// Acknowledged in it.
    pub acknowledged: u64,
    /// Accepted in it.
    pub deliveries: u64,
    /// Publish latency, half.
    pub publish_p50: f64,
    /// Publish latency, one in a hundred.
    pub publish_p99: f64,
    /// Delivery latency, half.
    pub delivery_p50: f64,
    /// Delivery latency, one in a hundred.
    pub delivery_p99: f64,
    /// The longest.
    pub delivery_max: f64,
    /// Cores that the hub used.
    pub hub_cpu: f64,
    /// Of these, what its store used for flushes and merges.
    pub store_cpu: f64,
    /// The hub's resident bytes.
    pub hub_memory: u64,
    /// Bytes of the hub's data folder.
    pub hub_store: u64,
    /// Files in it: journals and tables come with a flush, and go with a merge.
    pub hub_files: u64,
    /// Bytes that the hub has sent to the disk in this second.
    pub hub_written: u64,
    /// Cores that the tool used.
    pub tool_cpu: f64,
}

/// Straight lines through the second half of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slopes {
    /// Bytes an hour.
    pub memory: f64,
    /// Milliseconds an hour, of the p99 of deliveries.
    pub delivery_p99: f64,
    /// Bytes an hour of the store.
    pub store: f64,
}

/// Something that was expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What.
    pub what: String,
    /// As it came out; `None`: it was not measured, so nobody can say that it is as expected.
    pub measured: Option<f64>,
    /// As it may be at most or must be at least.
    pub bound: f64,
    /// Whether the bound is a least one.
    pub at_least: bool,
    /// Its unit.
    pub unit: String,
    /// Whether it is so.
    pub holds: bool,
}

/// Seconds from which something can be said about an hour.
const ENOUGH: usize = 120;

impl Slopes {
    /// Of the second half, which must be long enough. Seconds in which nothing came say nothing of latency.
    pub(crate) fn of(series: &[Second]) -> Option<Self> {
        let half = &series[series.len() / 2..];
        let slope = |value: fn(&Second) -> Option<f64>| {
            let points: Vec<_> =
                half.iter().filter_map(|second| value(second).map(|value| (second.at, value))).collect();
            slope(&points) * 3_600.0
        };
        (half.len() >= ENOUGH).then(|| Self {
            memory: slope(|second| Some(super::float(second.hub_memory))),
            delivery_p99: slope(|second| (second.deliveries > 0).then_some(second.delivery_p99)),
            store: slope(|second| Some(super::float(second.hub_store))),
        })
    }
}

/// By least squares, a second.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = super::float(points.len() as u64);
    let middle = points.iter().map(|(at, _)| at).sum::<f64>() / count;
    let level = points.iter().map(|(_, value)| value).sum::<f64>() / count;
    let together: f64 = points.iter().map(|(at, value)| (at - middle) * (value - level)).sum();
    let alone: f64 = points.iter().map(|(at, _)| (at - middle).powi(2)).sum();
    if alone > 0.0 { together / alone } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slope_is_that_of_the_second_half_by_the_hour() {
        let second = |at: u32| Second {
            at: f64::from(at),
            hub_memory: if at < 120 { 9_999_999 } else { 1_000_000 + 10 * u64::from(at) },
            deliveries: u64::from(at % 2),
            delivery_p99: f64::from(at % 2) * (5.0 + f64::from(at)),
            ..Second::default()
        };
        let series: Vec<_> = (0..240).map(second).collect();
        let slopes = Slopes::of(&series).unwrap();
        assert!((slopes.memory - 36_000.0).abs() < 0.1, "{slopes:?}");
        assert!(
            (slopes.delivery_p99 - 3_600.0).abs() < 0.1,
            "in every other second nothing came: {slopes:?}"
        );
        assert!(Slopes::of(&series[..238]).is_none());
    }
}
