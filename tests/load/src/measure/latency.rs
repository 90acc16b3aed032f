//! Latencies in HDR histograms, to three digits, recorded by many tasks at once.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;
use resync_common::locks::lock;
use serde::{Deserialize, Serialize};

use super::float;

/// An hour, in microseconds.
const LONGEST: u64 = 3_600_000_000;
const DIGITS: u8 = 3;
/// Tasks that record at once hardly ever meet.
const SHARDS: usize = 8;

/// Seconds of a window, of which each has its own p99.
const WINDOW: u32 = 10;
/// From so many windows something can be said about most of them.
const WINDOWS: usize = 10;

/// Latencies of a whole run, of its windows and of its present second.
pub(crate) struct Recorder {
    shards: Vec<Mutex<Histogram<u64>>>,
    all: Mutex<Histogram<u64>>,
    windows: Mutex<Windows>,
}

/// Those that are over, by their p99 in milliseconds, and the present one.
struct Windows {
    over: Vec<f64>,
    present: Histogram<u64>,
    seconds: u32,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(empty())).collect(),
            all: Mutex::new(empty()),
            windows: Mutex::new(Windows { over: Vec::new(), present: empty(), seconds: 0 }),
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

impl Recorder {
    /// `hint` tells apart those who record at once.
    pub(crate) fn note(&self, hint: usize, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(LONGEST);
        lock(&self.shards[hint % SHARDS]).saturating_record(micros.max(1));
    }

    /// What was noted since the last time; from now on it is part of the whole.
    pub(crate) fn second(&self) -> Quantiles {
        let mut second = empty();
        for shard in &self.shards {
            let mut shard = lock(shard);
            if !shard.is_empty() {
                // Both have the same bounds, so one takes whatever the other has.
                let _ = second.add(&*shard);
                shard.reset();
            }
        }
        let _ = lock(&self.all).add(&second);
        lock(&self.windows).second(&second);
        Quantiles::of(&second)
    }

    /// The p99 that nine of ten windows do not exceed. A spike that comes back is in many windows, a second in which the machine was
    /// busy with something else is in one.
    pub(crate) fn p99_of_windows(&self) -> Option<f64> {
        let mut over = lock(&self.windows).over.clone();
        over.sort_by(f64::total_cmp);
        over.get((over.len() * 9).div_ceil(10).checked_sub(1)?).copied().filter(|_| over.len() >= WINDOWS)
    }

    /// The whole run.
    pub(crate) fn whole(&self) -> Quantiles {
        self.second();
        Quantiles::of(&lock(&self.all))
    }
}

impl Windows {
    fn second(&mut self, second: &Histogram<u64>) {
        // Both have the same bounds.
        let _ = self.present.add(second);
        self.seconds += 1;
        if self.seconds == WINDOW {
            if !self.present.is_empty() {
                self.over.push(Quantiles::of(&self.present).p99);
            }
            self.present.reset();
            self.seconds = 0;
        }
    }
}

/// Of latencies in milliseconds; all 0 where nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many were measured.
    pub count: u64,
    /// Half were shorter.
    pub p50: f64,
    /// One in ten was longer.
    pub p90: f64,
    /// One in a hundred was longer.
    pub p99: f64,
    /// One in a thousand was longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Quantiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| float(histogram.value_at_quantile(quantile)) / 1e3;
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            count: histogram.len(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: float(histogram.max()) / 1e3,
        }
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, DIGITS).expect("these bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_its_own_latencies_and_the_whole_has_all() {
        let recorder = Recorder::default();
        for number in 0..99 {
            recorder.note(number, Duration::from_millis(1));
        }
        recorder.note(0, Duration::from_secs(1));
        let first = recorder.second();
        assert_eq!(first.count, 100);
        assert!((first.p50 - 1.0).abs() < 0.01 && (first.max - 1_000.0).abs() < 1.0, "{first:?}");
        recorder.note(3, Duration::from_millis(5));
        let second = recorder.second();
        assert!(second.count == 1 && (second.p99 - 5.0).abs() < 0.01, "{second:?}");
        recorder.note(3, Duration::from_millis(5));
        assert_eq!(recorder.whole().count, 102);
    }

    #[test]
    fn most_windows_say_what_is_usual_and_a_spike_in_every_fifth_of_them_is() {
        let windows = |is_slow: fn(u32) -> bool| {
            let recorder = Recorder::default();
            for window in 0..20 {
                for second in 0..WINDOW {
                    let time = if is_slow(window) && second == 3 { 200 } else { 5 };
                    recorder.note(0, Duration::from_millis(time));
                    recorder.second();
                }
            }
            recorder.p99_of_windows().unwrap()
        };
        assert!((windows(|_| false) - 5.0).abs() < 0.1);
        assert!((windows(|window| window == 7) - 5.0).abs() < 0.1, "by chance");
        assert!((windows(|window| window % 5 == 0) - 200.0).abs() < 0.5, "again and again");
        assert_eq!(Recorder::default().p99_of_windows(), None);
    }
}
