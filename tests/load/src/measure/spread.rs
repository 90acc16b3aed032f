//! How long something took: half of the times, all but one in a hundred, the longest. Of a run with too many times to keep,
//! [`Quantiles`](super::Quantiles) say so by histograms.

use std::time::Duration;

use serde::Serialize;

use crate::Failure;

/// Times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    /// Half of them were shorter.
    pub p50: f64,
    /// One in a hundred was longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Spread {
    /// # Errors
    /// When there is no time.
    pub(crate) fn of(times: impl IntoIterator<Item = Duration>) -> Result<Self, Failure> {
        let mut times: Vec<f64> = times.into_iter().map(|time| time.as_secs_f64() * 1_000.0).collect();
        times.sort_by(f64::total_cmp);
        let at = |hundredths: usize| times.get(times.len() * hundredths / 100).copied();
        match (at(50), at(99), times.last().copied()) {
            (Some(p50), Some(p99), Some(max)) => Ok(Self { p50, p99, max }),
            _ => Err("nothing was acknowledged".into()),
        }
    }
}
