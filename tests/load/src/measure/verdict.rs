//! What was expected of a run, against what came out.

use super::{Quantiles, Rung, Verdict, float};
use crate::scenario::Expect;

/// Correctness first, then whatever the scenario bounds. What is bounded and was not measured does not hold.
pub(crate) fn verdicts(expect: &Expect, rung: &Rung) -> Vec<Verdict> {
    let found = &rung.judgement;
    let most =
        |what: &str, measured: u64, bound: u64| verdict(what, "", Some(float(measured)), float(bound), false);
    let mut verdicts = vec![
        most("losses", found.lost, expect.losses),
        most("duplicates", found.duplicated, expect.duplicates),
        most("deliveries out of order", found.reordered, expect.disorder),
        most("gaps", found.gaps, expect.losses.saturating_add(expect.disorder)),
        most("uninvited deliveries", found.uninvited, 0),
        most("altered deliveries", found.altered, 0),
        most("redirects followed", found.followed, 0),
        // Whoever takes nothing loses nothing.
        verdict("acknowledged posts", "", Some(float(rung.published.acknowledged)), 1.0, true),
    ];
    let impossible = rung.faults.iter().filter(|fault| fault.impossible.is_some()).count() as u64;
    verdicts.push(most("faults that could not be made", impossible, 0));
    verdicts.extend(expect.failed_posts.map(|bound| most("posts that failed", rung.published.failed, bound)));
    let mut bounded = |what, unit, measured: Option<f64>, bound: Option<f64>, at_least| {
        verdicts.extend(bound.map(|bound| verdict(what, unit, measured, bound, at_least)));
    };
    bounded("posts taken again after a fault", "s", rung.taken_again_after, expect.taken_again_within, false);
    let delivered = &rung.delivered;
    let p50 = |of: Quantiles| (of.count > 0).then_some(of.p50);
    let p99 = |of: Quantiles| (of.count > 0).then_some(of.p99);
    bounded("publish latency, p99", "ms", p99(rung.published.latency), expect.publish_p99, false);
    bounded("delivery latency, p50", "ms", p50(delivered.latency), expect.delivery_p50, false);
    bounded("delivery latency, p99", "ms", p99(delivered.latency), expect.delivery_p99, false);
    let windows = delivered.latency_p99_of_windows;
    bounded("delivery latency, p99 of windows", "ms", windows, expect.delivery_p99_of_windows, false);
    bounded("deliveries a second", "/s", Some(delivered.per_second), expect.deliveries_per_second, true);
    bounded("ratio to the bound", "", delivered.ratio_to_bound, expect.ratio_to_bound, true);
    bounded("ratio to what the hub can do", "", delivered.ratio_to_limit, expect.ratio_to_limit, true);
    let hub = rung.resources.as_ref();
    bounded("CPU for a delivery", "µs", hub.map(|hub| hub.cpu_per_delivery), expect.cpu_per_delivery, false);
    let bytes = |bound: Option<u64>| bound.map(float);
    let memory = hub.map(|hub| hub.memory_per_subscription);
    bounded("memory for a subscription", "B", memory, bytes(expect.memory_per_subscription), false);
    let disk = hub.map(|hub| hub.disk_per_notification);
    bounded("disk for a notification", "B", disk, bytes(expect.disk_per_notification), false);
    // Nobody knows the folder of a hub elsewhere.
    let store = rung.series.iter().map(|second| second.hub_store).max().filter(|most| *most > 0);
    bounded("the store at most", "B", bytes(store), bytes(expect.store), false);
    let slopes = rung.slopes.as_ref();
    let memory = slopes.map(|slopes| slopes.memory);
    bounded("growth of memory an hour", "B", memory, bytes(expect.memory_slope), false);
    let growth = slopes.filter(|_| store.is_some()).map(|slopes| slopes.store);
    bounded("growth of the store an hour", "B", growth, bytes(expect.store_slope), false);
    let latency = slopes.map(|slopes| slopes.delivery_p99);
    bounded("growth of the p99 of deliveries an hour", "ms", latency, expect.delivery_slope, false);
    verdicts
}

fn verdict(what: &str, unit: &str, measured: Option<f64>, bound: f64, at_least: bool) -> Verdict {
    let holds = measured.is_some_and(|measured| if at_least { measured >= bound } else { measured <= bound });
    Verdict { what: what.to_owned(), measured, bound, at_least, unit: unit.to_owned(), holds }
}

#[cfg(test)]
mod tests {
    use super::super::{Published, Second, Slopes};
    use super::*;

    /// Everything that can go unmeasured: by too short a run, without a bound, without the hub's process, by nothing that came.
    fn expectations() -> Expect {
        Expect {
            publish_p99: Some(5.0),
            delivery_p50: Some(5.0),
            delivery_p99: Some(5.0),
            delivery_p99_of_windows: Some(5.0),
            taken_again_within: Some(1.0),
            ratio_to_bound: Some(0.5),
            ratio_to_limit: Some(0.5),
            cpu_per_delivery: Some(50.0),
            memory_per_subscription: Some(500),
            disk_per_notification: Some(500),
            store: Some(500),
            memory_slope: Some(500),
            store_slope: Some(500),
            delivery_slope: Some(5.0),
            ..Expect::default()
        }
    }

    fn failed(rung: &Rung) -> Vec<String> {
        let verdicts = verdicts(&expectations(), rung).into_iter();
        verdicts.filter(|verdict| !verdict.holds).map(|verdict| verdict.to_string()).collect()
    }

    #[test]
    fn what_was_expected_and_not_measured_does_not_hold() {
        let published = Published { acknowledged: 1, ..Published::default() };
        let failed = failed(&Rung { published, ..Rung::default() });
        assert_eq!(failed.len(), 14, "{failed:?}");
        assert!(
            failed.contains(&"NOT  publish latency, p99: not measured (≤ 5.00)".to_owned()),
            "{failed:?}"
        );
        assert!(failed.iter().all(|verdict| verdict.contains(": not measured (")), "{failed:?}");
    }

    #[test]
    fn more_posts_that_fail_and_a_later_recovery_than_expected_are_not_as_expected() {
        let expect = Expect { failed_posts: Some(3), taken_again_within: Some(1.0), ..Expect::default() };
        let broken = |failed, after| {
            let published = Published { acknowledged: 1, failed, ..Published::default() };
            let rung = Rung { published, taken_again_after: Some(after), ..Rung::default() };
            let broken = verdicts(&expect, &rung).into_iter().filter(|verdict| !verdict.holds);
            broken.map(|verdict| verdict.what).collect::<Vec<_>>()
        };
        assert_eq!(broken(3, 1.0), [""; 0]);
        assert_eq!(broken(4, 1.01), ["posts that failed", "posts taken again after a fault"]);
    }

    #[test]
    fn latencies_that_grow_and_a_store_that_grows_or_is_too_large_are_not_as_expected() {
        let slopes = Some(Slopes { memory: 500.0, delivery_p99: 5.5, store: 501.0 });
        let sizes = [400, 501, 300].map(|hub_store| Second { hub_store, ..Second::default() });
        let failed = failed(&Rung { slopes, series: sizes.to_vec(), ..Rung::default() });
        assert!(failed.contains(&"NOT  the store at most: 501.00 B (≤ 500.00)".to_owned()), "{failed:?}");
        let store = "NOT  growth of the store an hour: 501.00 B (≤ 500.00)".to_owned();
        assert!(failed.contains(&store), "{failed:?}");
        let slope = "NOT  growth of the p99 of deliveries an hour: 5.50 ms (≤ 5.00)".to_owned();
        assert!(
            failed.contains(&slope) && !failed.iter().any(|one| one.contains("memory an hour")),
            "{failed:?}"
        );
    }
}
