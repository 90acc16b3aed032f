//! A result in words, for a terminal.

use std::fmt;

use super::{RunResult, Rung, Second, Verdict, float};

/// Seconds of a long run.
const LONG: usize = 60;

impl fmt::Display for RunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} (seed {}), {}", self.scenario, self.about, self.seed, self.hub)?;
        if let Some(bound) = &self.bound {
            let (requests, appends) = (bound.requests_per_second, bound.appends_per_second);
            writeln!(f, "  at best    {requests:.0} signed requests/s, {appends:.0} durable appends/s")?;
        }
        for rung in &self.rungs {
            rung.fmt(f)?;
        }
        write!(f, "{}", if self.passed { "passed" } else { "NOT passed" })
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { published, delivered, judgement, .. } = self;
        writeln!(
            f,
            "\n  {} subscribers, {} topics, {} hosts, {:.1} s",
            self.subscribers, self.topics, self.hosts, self.seconds
        )?;
        let latency = &published.latency;
        writeln!(
            f,
            "  published  {} acknowledged, {} refused, {} unanswered; p50 {:.2} p99 {:.2} max {:.1} ms",
            published.acknowledged,
            published.refused,
            published.unanswered,
            latency.p50,
            latency.p99,
            latency.max
        )?;
        let latency = &delivered.latency;
        let share = |ratio: Option<f64>, of: &str| ratio.map(|ratio| format!(", {ratio:.2} of {of}"));
        let ratio = [
            share(delivered.ratio_to_bound, "the bound"),
            share(delivered.ratio_to_limit, "what the hub can do"),
        ];
        let ratio: String = ratio.into_iter().flatten().collect();
        writeln!(
            f,
            "  delivered  {} ({} refused), {:.0}/s{ratio}; p50 {:.2} p90 {:.2} p99 {:.2} p99.9 {:.2} max {:.1} ms",
            delivered.accepted,
            delivered.refused,
            delivered.per_second,
            latency.p50,
            latency.p90,
            latency.p99,
            latency.p999,
            latency.max
        )?;
        if let Some(hub) = &self.resources {
            writeln!(
                f,
                "  hub        {:.1} µs CPU/delivery, {:.0} B memory/subscription, {:.0} B disk/notification, {}",
                hub.cpu_per_delivery,
                hub.memory_per_subscription,
                hub.disk_per_notification,
                hub.syncs_per_notification
                    .map_or_else(|| "syncs unknown".into(), |syncs| format!("{syncs:.2} syncs/notification"))
            )?;
        }
        let own = &self.overhead;
        writeln!(
            f,
            "  tool       {:.1} µs CPU/delivery, {:.0} % of the machine, posts late by p99 {:.2} ms",
            own.cpu_per_delivery,
            own.cpu_share * 100.0,
            own.lateness.p99
        )?;
        writeln!(
            f,
            "  oracle     {} owed, {} delivered, {} lost, {} duplicated, {} repeated after a crash, {} reordered, {} gaps",
            judgement.owed,
            judgement.delivered,
            judgement.lost,
            judgement.duplicated,
            judgement.repeated,
            judgement.reordered,
            judgement.gaps
        )?;
        for finding in &judgement.findings {
            writeln!(f, "  FAULT      {} × {}: {}", finding.count, finding.name, finding.meaning)?;
            for example in &finding.examples {
                writeln!(f, "               {example}")?;
            }
        }
        for fault in &self.faults {
            let what = match (&fault.impossible, fault.taken_again_after) {
                (Some(why), _) => format!("could not be made: {why}"),
                (None, Some(after)) => format!("posts taken again {after:.2} s after its end"),
                (None, None) => "no post was taken after it".to_owned(),
            };
            writeln!(f, "  {:<16} {:.2} s to {:.2} s, {what}", fault.kind, fault.from, fault.until)?;
        }
        slowest(&self.series).try_for_each(|second| {
            writeln!(
                f,
                "  slow       at {:.0} s: p99 {:.1} ms, hub {:.2} cores, its flushes and merges {:.2}, {:.1} MiB written",
                second.at,
                second.delivery_p99,
                second.hub_cpu,
                second.store_cpu,
                float(second.hub_written) / f64::from(1 << 20)
            )
        })?;
        self.verdicts.iter().try_for_each(|verdict| writeln!(f, "  {verdict}"))
    }
}

/// What the hub did in the slowest seconds of a long run.
fn slowest(series: &[Second]) -> impl Iterator<Item = &Second> {
    let mut slowest: Vec<_> = series.iter().collect();
    slowest.sort_by(|one, other| other.delivery_p99.total_cmp(&one.delivery_p99));
    slowest.into_iter().take(if series.len() < LONG { 0 } else { 5 })
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, bound, unit, .. } = self;
        let (mark, side) = (if self.holds { "ok " } else { "NOT" }, if self.at_least { "≥" } else { "≤" });
        let Some(measured) = self.measured else {
            return write!(f, "{mark}  {what}: not measured ({side} {bound:.2})");
        };
        let digits = if unit.is_empty() && measured.fract() == 0.0 { 0 } else { 2 };
        write!(
            f,
            "{mark}  {what}: {measured:.digits$} {unit}{}({side} {bound:.digits$})",
            if unit.is_empty() { "" } else { " " }
        )
    }
}
