//! Which curves a report shows.

use super::chart::{Chart, Curve};
use crate::measure::{RunResult, Rung, Second, float};

/// A value of a second.
type Of = fn(&Second) -> f64;

/// Those that have something to show.
pub(super) fn charts(results: &[RunResult]) -> Vec<Chart> {
    let mut charts = Vec::new();
    if results.iter().any(|result| result.rungs.len() > 1) {
        charts.extend(ladder(results));
    }
    let over_time = |title: &str, unit, is_log_up, values: &[(&str, Of)]| Chart {
        title: title.to_owned(),
        unit,
        across: "seconds",
        curves: curves(results, values),
        bands: bands(results),
        is_log_up,
        is_log_across: false,
    };
    charts.extend([
        over_time(
            "Delivery latency",
            "ms",
            true,
            &[
                ("p50", |second| second.delivery_p50),
                ("p99", |second| second.delivery_p99),
                ("max", |second| second.delivery_max),
            ],
        ),
        over_time(
            "Publish latency",
            "ms",
            true,
            &[("p50", |second| second.publish_p50), ("p99", |second| second.publish_p99)],
        ),
        over_time("Deliveries", "a second", false, &[("delivered", |second| float(second.deliveries))]),
        over_time(
            "Acknowledged",
            "a second",
            false,
            &[("acknowledged", |second| float(second.acknowledged))],
        ),
        over_time(
            "CPU",
            "cores",
            false,
            &[("hub", |second| second.hub_cpu), ("tool", |second| second.tool_cpu)],
        ),
        over_time("Memory of the hub", "MiB", false, &[("resident", |second| mebibytes(second.hub_memory))]),
        over_time("Disk of the hub", "MiB", false, &[("data folder", |second| mebibytes(second.hub_store))]),
    ]);
    charts.retain(|chart| !chart.is_empty());
    charts
}

/// The largest number of subscribers is what is shown over time.
pub(super) fn shown(result: &RunResult) -> Option<&Rung> {
    result.rungs.iter().max_by_key(|rung| rung.subscribers)
}

/// Of one result each value has its colour; of two, each result has its colour and each value its dashes.
fn curves(results: &[RunResult], values: &[(&str, Of)]) -> Vec<Curve> {
    let mut curves = Vec::new();
    for (run, result) in results.iter().enumerate() {
        for (number, (name, of)) in values.iter().enumerate() {
            let alone = results.len() == 1;
            let series = shown(result).map_or(&[][..], |rung| &rung.series);
            curves.push(Curve {
                name: if alone { (*name).to_owned() } else { format!("{} {name}", letter(run)) },
                colour: if alone { number } else { run },
                dash: if alone { 0 } else { number },
                points: series.iter().map(|second| (second.at, of(second))).collect(),
            });
        }
    }
    curves
}

fn bands(results: &[RunResult]) -> Vec<(f64, f64, String)> {
    let faults = results.first().and_then(shown).map_or(&[][..], |rung| &rung.faults);
    let made = faults.iter().filter(|fault| fault.impossible.is_none());
    let name =
        |kind: &str| if results.len() == 1 { kind.to_owned() } else { format!("{} {kind}", letter(0)) };
    made.map(|fault| (fault.from, fault.until, name(&fault.kind))).collect()
}

fn ladder(results: &[RunResult]) -> [Chart; 3] {
    let over = |title: &str, unit: &'static str, of: fn(&Rung) -> f64| {
        let curve = |(run, result): (usize, &RunResult)| Curve {
            name: if results.len() == 1 { unit.to_owned() } else { letter(run).to_string() },
            colour: run,
            dash: 0,
            points: result.rungs.iter().map(|rung| (f64::from(rung.subscribers), of(rung))).collect(),
        };
        Chart {
            title: title.to_owned(),
            unit,
            across: "subscribers",
            curves: results.iter().enumerate().map(curve).collect(),
            is_log_across: true,
            ..Chart::default()
        }
    };
    [
        over("Throughput over subscribers", "deliveries a second", |rung| rung.delivered.per_second),
        over("CPU over subscribers", "µs a delivery", |rung| {
            rung.resources.map_or(0.0, |hub| hub.cpu_per_delivery)
        }),
        over("Memory over subscribers", "MiB", |rung| {
            rung.resources.map_or(0.0, |hub| mebibytes(hub.memory_most))
        }),
    ]
}

/// The name of the first, or of the second result.
pub(super) fn letter(run: usize) -> char {
    if run == 0 { 'A' } else { 'B' }
}

fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / f64::from(1 << 20)
}
