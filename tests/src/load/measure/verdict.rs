//! What was expected of a run, against what came out.

use super::{Rung, Verdict, float};
use crate::load::scenario::Expect;

/// Correctness first, then whatever the scenario bounds.
pub(in crate::load) fn verdicts(expect: &Expect, rung: &Rung) -> Vec<Verdict> {
    let found = &rung.judgement;
    let most =
        |what: &str, measured: u64, bound: u64| verdict(what, "", float(measured), float(bound), false);
    let mut verdicts = vec![
        most("losses", found.lost, expect.losses),
        most("duplicates", found.duplicated, expect.duplicates),
        most("deliveries out of order", found.reordered, expect.disorder),
        most("gaps", found.gaps, expect.losses.saturating_add(expect.disorder)),
        most("uninvited deliveries", found.uninvited, 0),
        most("altered deliveries", found.altered, 0),
        most("redirects followed", found.followed, 0),
        // Whoever takes nothing loses nothing.
        verdict("acknowledged posts", "", float(rung.published.acknowledged), 1.0, true),
    ];
    let impossible = rung.faults.iter().filter(|fault| fault.impossible.is_some()).count() as u64;
    verdicts.push(most("faults that could not be made", impossible, 0));
    let failed = rung.published.refused + rung.published.unanswered;
    verdicts.extend(expect.failed_posts.map(|bound| most("posts that failed", failed, bound)));
    let mut bounded = |what, unit, measured: Option<f64>, bound: Option<f64>, at_least| {
        if let (Some(measured), Some(bound)) = (measured, bound) {
            verdicts.push(verdict(what, unit, measured, bound, at_least));
        }
    };
    let delivered = &rung.delivered;
    bounded("publish latency, p99", "ms", Some(rung.published.latency.p99), expect.publish_p99, false);
    bounded("delivery latency, p50", "ms", Some(delivered.latency.p50), expect.delivery_p50, false);
    bounded("delivery latency, p99", "ms", Some(delivered.latency.p99), expect.delivery_p99, false);
    bounded("deliveries a second", "/s", Some(delivered.per_second), expect.deliveries_per_second, true);
    bounded("ratio to the bound", "", delivered.ratio_to_bound, expect.ratio_to_bound, true);
    let hub = rung.resources.as_ref();
    bounded("CPU for a delivery", "µs", hub.map(|hub| hub.cpu_per_delivery), expect.cpu_per_delivery, false);
    let bytes = |bound: Option<u64>| bound.map(float);
    let memory = hub.map(|hub| hub.memory_per_subscription);
    bounded("memory for a subscription", "B", memory, bytes(expect.memory_per_subscription), false);
    let disk = hub.map(|hub| hub.disk_per_notification);
    bounded("disk for a notification", "B", disk, bytes(expect.disk_per_notification), false);
    let slope = rung.slopes.map(|slopes| slopes.memory);
    bounded("growth of memory an hour", "B", slope, bytes(expect.memory_slope), false);
    verdicts
}

fn verdict(what: &str, unit: &str, measured: f64, bound: f64, at_least: bool) -> Verdict {
    let holds = if at_least { measured >= bound } else { measured <= bound };
    Verdict { what: what.to_owned(), measured, bound, at_least, unit: unit.to_owned(), holds }
}
