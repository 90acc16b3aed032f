//! The figures of a run that a report compares.

use super::with_unit;
use crate::measure::{RunResult, Rung, float};

/// A figure of one or two runs.
pub(super) struct Figure {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// `None`: not measured.
    pub(super) values: Vec<Option<f64>>,
}

impl Figure {
    /// The value of a run with its unit.
    pub(super) fn text(&self, run: usize) -> String {
        self.values[run].map_or_else(|| "–".to_owned(), |value| with_unit(value, self.unit))
    }

    /// The second by the first.
    pub(super) fn ratio(&self) -> String {
        match self.values[..] {
            [Some(first), Some(second)] if first > 0.0 => {
                let ratio = second / first;
                format!("{ratio:.digits$}", digits = if ratio < 0.1 { 4 } else { 2 })
            }
            _ => "–".to_owned(),
        }
    }
}

/// What is asked of a run.
type Of = fn(&RunResult, &Rung) -> Option<f64>;

const FIGURES: &[(&str, &str, Of)] = &[
    ("deliveries", "/s", |_, rung| Some(rung.delivered.per_second)),
    ("of the bare client loop", "", |_, rung| rung.delivered.ratio_to_bound),
    ("of what the hub can do", "", |_, rung| rung.delivered.ratio_to_limit),
    ("delivery, p50", "ms", |_, rung| Some(rung.delivered.latency.p50)),
    ("delivery, p90", "ms", |_, rung| Some(rung.delivered.latency.p90)),
    ("delivery, p99", "ms", |_, rung| Some(rung.delivered.latency.p99)),
    ("delivery, p99.9", "ms", |_, rung| Some(rung.delivered.latency.p999)),
    ("publish, p50", "ms", |_, rung| Some(rung.published.latency.p50)),
    ("publish, p99", "ms", |_, rung| Some(rung.published.latency.p99)),
    ("CPU a delivery", "µs", |_, rung| Some(rung.resources?.cpu_per_delivery)),
    ("memory a subscription", "B", |_, rung| Some(rung.resources?.memory_per_subscription)),
    ("memory, most", "MiB", |_, rung| Some(float(rung.resources?.memory_most) / f64::from(1 << 20))),
    ("disk a notification", "B", |_, rung| Some(rung.resources?.disk_per_notification)),
    ("syncs a notification", "", |_, rung| rung.resources?.syncs_per_notification),
    ("memory growth an hour", "B", |_, rung| Some(rung.slopes?.memory)),
    ("deliveries lost", "", |_, rung| Some(float(rung.judgement.lost))),
    ("duplicated", "", |_, rung| Some(float(rung.judgement.duplicated))),
    ("repeated after a crash", "", |_, rung| Some(float(rung.judgement.repeated))),
    ("out of order", "", |_, rung| Some(float(rung.judgement.reordered))),
    ("gaps", "", |_, rung| Some(float(rung.judgement.gaps))),
    ("tool: CPU a delivery", "µs", |_, rung| Some(rung.overhead.cpu_per_delivery)),
    ("tool: share of the machine", "%", |_, rung| Some(rung.overhead.cpu_share * 100.0)),
    ("tool: posts late, p99", "ms", |_, rung| Some(rung.overhead.lateness.p99)),
    ("bound: signed requests", "/s", |result, _| Some(result.bound?.requests_per_second)),
    ("bound: durable appends", "/s", |result, _| Some(result.bound?.appends_per_second)),
];

/// Those that were measured in any of these runs.
pub(super) fn figures(runs: &[(&RunResult, &Rung)]) -> Vec<Figure> {
    FIGURES
        .iter()
        .map(|(name, unit, of)| Figure {
            name,
            unit,
            values: runs.iter().map(|(result, rung)| of(result, rung)).collect(),
        })
        .filter(|figure| figure.values.iter().any(Option::is_some))
        .collect()
}
