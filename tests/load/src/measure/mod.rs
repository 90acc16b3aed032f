//! What a run measures: latencies from the moment that something was due, what became of every notification, what the hub's
//! process takes, second by second.

mod latency;
mod live;
mod machine;
mod oracle;
mod process;
mod result;
mod spread;
mod summary;
mod verdict;

pub use latency::Quantiles;
pub(super) use latency::Recorder;
pub use live::Live;
pub use machine::Machine;
pub use oracle::Finding;
pub use oracle::Judgement;
pub(super) use oracle::{Arrival, Excuse, Ledger, Outcome, Posted, Rule, Subscription};
pub(super) use process::{Meter, Usage, bytes_below, files_below, pid_of_self};
pub use result::{
    Bound, Delivered, FaultReport, Overhead, Published, Resources, RunResult, Rung, Second, Slopes, Verdict,
};
pub use spread::Spread;
pub(super) use verdict::verdicts;

/// A count as a number to calculate with; counts of a run are far below 2^52.
#[expect(clippy::cast_precision_loss)]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}
