//! The page of a report: HTML with everything in it, no script, light and dark, from phones to wide screens.

use std::fmt::Write as _;

use super::chart::{Chart, STYLE};
use super::charts::{letter, shown};
use super::figures::{Figure, figures};
use super::{escaped, short, with_unit};
use crate::measure::{Resources, RunResult, Rung};

/// Figures of a single run that are told first.
const TILES: [&str; 8] = [
    "deliveries",
    "delivery, p50",
    "delivery, p99",
    "publish, p99",
    "CPU a delivery",
    "memory a subscription",
    "deliveries lost",
    "tool: share of the machine",
];

pub(super) fn html(results: &[RunResult], charts: &[Chart]) -> String {
    let runs: Vec<(&RunResult, &Rung)> = results.iter().filter_map(|one| Some((one, shown(one)?))).collect();
    let names: Vec<_> = results.iter().map(|result| escaped(&result.scenario)).collect();
    let title = if names.len() == 2 { format!("{} and {}", names[0], names[1]) } else { names.concat() };
    let about = match results {
        [one] => escaped(&one.about),
        _ => "Two runs side by side".to_owned(),
    };
    let figures = figures(&runs);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\"><title>{title} – resync-load</title>\
         <style>{}{STYLE}</style></head><body><main>\n<h1>{title}</h1><p class=\"about\">{about}</p>\n",
        include_str!("style.css")
    );
    page.push_str("<section class=\"runs\">");
    for (number, (result, rung)) in runs.iter().enumerate() {
        card(&mut page, number, runs.len() == 2, result, rung);
    }
    page.push_str("</section>\n");
    if runs.len() == 1 {
        tiles(&mut page, &figures);
    }
    page.push_str("<h2>Over time</h2>\n<section class=\"charts\">");
    for chart in charts {
        let _ = write!(page, "<figure class=\"card\">{}</figure>", chart.within());
    }
    page.push_str("</section>\n");
    verdicts(&mut page, &runs);
    findings(&mut page, &runs);
    faults(&mut page, &runs);
    if results.iter().any(|result| result.rungs.len() > 1) {
        rungs(&mut page, results);
    }
    table(&mut page, &figures);
    repeat(&mut page, results);
    page.push_str("</main></body></html>\n");
    page
}

fn badge(passed: bool) -> &'static str {
    if passed {
        "<span class=\"badge good\">passed</span>"
    } else {
        "<span class=\"badge bad\">not passed</span>"
    }
}

/// The same in a table.
fn mark(holds: bool) -> &'static str {
    if holds {
        "<span class=\"badge good\">holds</span>"
    } else {
        "<span class=\"badge bad\">does not hold</span>"
    }
}

fn card(page: &mut String, number: usize, is_named: bool, result: &RunResult, rung: &Rung) {
    let name = if is_named {
        let name = escaped(&result.scenario);
        format!("<span class=\"swatch r{number}\"></span><b>{}: {name}</b> ", letter(number))
    } else {
        String::new()
    };
    let about =
        if is_named { format!("<p class=\"what\">{}</p>", escaped(&result.about)) } else { String::new() };
    let machine = &result.machine;
    let gibibytes = crate::measure::float(machine.memory) / f64::from(1 << 30);
    let _ = write!(
        page,
        "<div class=\"card\">{name}{}{about}<dl><dt>hub</dt><dd>{}</dd><dt>audience</dt><dd>{} subscribers, {} topics, {} hosts</dd>\
         <dt>published</dt><dd>{} acknowledged, {} refused, {} unanswered, in {:.1} s</dd>\
         <dt>machine</dt><dd>{} × {}, {gibibytes:.0} GiB, {}</dd><dt>seed</dt><dd>{}</dd><dt>tool</dt><dd>resync-load {}</dd></dl></div>",
        badge(result.passed),
        escaped(&result.hub),
        short(rung.subscribers.into()),
        rung.topics,
        rung.hosts,
        rung.published.acknowledged,
        rung.published.refused,
        rung.published.unanswered,
        rung.seconds,
        machine.cores,
        escaped(&machine.processor),
        escaped(&machine.kernel),
        result.seed,
        escaped(&result.tool),
    );
}

fn tiles(page: &mut String, figures: &[Figure]) {
    page.push_str("<h2>At a glance</h2>\n<section class=\"tiles\">");
    for figure in TILES.iter().filter_map(|name| figures.iter().find(|figure| figure.name == *name)) {
        let _ = write!(
            page,
            "<div class=\"card tile\"><b>{}</b><span>{}</span></div>",
            figure.text(0),
            figure.name
        );
    }
    page.push_str("</section>\n");
}

fn verdicts(page: &mut String, runs: &[(&RunResult, &Rung)]) {
    page.push_str(
        "<h2>Verdict</h2>\n<div class=\"card scroll\"><table><thead><tr><th>what</th><th>measured</th><th>bound</th><th></th></tr></thead>",
    );
    for (number, (_, rung)) in runs.iter().enumerate() {
        let run = if runs.len() == 2 { format!("{}: ", letter(number)) } else { String::new() };
        for verdict in &rung.verdicts {
            let side = if verdict.at_least { "≥" } else { "≤" };
            let _ = write!(
                page,
                "<tr><td>{run}{}</td><td>{}</td><td>{side} {}</td><td>{}</td></tr>",
                escaped(&verdict.what),
                verdict
                    .measured
                    .map_or_else(|| "not measured".to_owned(), |measured| with_unit(measured, &verdict.unit)),
                with_unit(verdict.bound, &verdict.unit),
                mark(verdict.holds)
            );
        }
    }
    page.push_str("</table></div>\n");
}

fn findings(page: &mut String, runs: &[(&RunResult, &Rung)]) {
    for (number, (_, rung)) in runs.iter().enumerate() {
        let run = if runs.len() == 2 { format!(" of {}", letter(number)) } else { String::new() };
        for finding in &rung.judgement.findings {
            let examples: Vec<_> =
                finding.examples.iter().map(|one| format!("<li>{}</li>", escaped(one))).collect();
            let _ = writeln!(
                page,
                "<h2>Fault{run}: {} × {}</h2><div class=\"card\"><p>{}</p><ul>{}</ul></div>",
                finding.count,
                escaped(&finding.name),
                escaped(&finding.meaning),
                examples.concat()
            );
        }
    }
}

fn faults(page: &mut String, runs: &[(&RunResult, &Rung)]) {
    if runs.iter().all(|(_, rung)| rung.faults.is_empty()) {
        return;
    }
    page.push_str(
        "<h2>What was done to the hub</h2>\n<div class=\"card scroll\"><table><thead><tr><th>what</th><th>from</th><th>until</th>\
         <th>next acknowledgement</th></tr></thead>",
    );
    for (number, (_, rung)) in runs.iter().enumerate() {
        let run = if runs.len() == 2 { format!("{}: ", letter(number)) } else { String::new() };
        for fault in &rung.faults {
            let after = match (&fault.impossible, fault.taken_again_after) {
                (Some(why), _) => format!("not made: {}", escaped(why)),
                (None, Some(after)) => format!("{after:.2} s later"),
                (None, None) => "none".to_owned(),
            };
            let _ = write!(
                page,
                "<tr><td>{run}{}</td><td>{:.2} s</td><td>{:.2} s</td><td>{after}</td></tr>",
                escaped(&fault.kind),
                fault.from,
                fault.until
            );
        }
    }
    page.push_str("</table></div>\n");
}

fn rungs(page: &mut String, results: &[RunResult]) {
    page.push_str(
        "<h2>Ladder</h2>\n<div class=\"card scroll\"><table><thead><tr><th>subscribers</th><th>deliveries/s</th><th>of the bound</th>\
         <th>CPU a delivery</th><th>memory a subscription</th><th>p99</th><th></th></tr></thead>",
    );
    for (number, result) in results.iter().enumerate() {
        let run = if results.len() == 2 { format!("{}: ", letter(number)) } else { String::new() };
        for rung in &result.rungs {
            let hub = |of: fn(&Resources) -> f64, unit| {
                rung.resources.as_ref().map_or_else(|| "–".to_owned(), |hub| with_unit(of(hub), unit))
            };
            let _ = write!(
                page,
                "<tr><td>{run}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                short(rung.subscribers.into()),
                short(rung.delivered.per_second),
                rung.delivered.ratio_to_bound.map_or_else(|| "–".to_owned(), short),
                hub(|hub| hub.cpu_per_delivery, "µs"),
                hub(|hub| hub.memory_per_subscription, "B"),
                with_unit(rung.delivered.latency.p99, "ms"),
                mark(rung.verdicts.iter().all(|verdict| verdict.holds))
            );
        }
    }
    page.push_str("</table></div>\n");
}

fn table(page: &mut String, figures: &[Figure]) {
    let runs = figures.first().map_or(0, |figure| figure.values.len());
    let heads: String = match runs {
        2 => "<th><span class=\"swatch r0\"></span>A</th><th><span class=\"swatch r1\"></span>B</th><th>B / A</th>".to_owned(),
        _ => "<th>measured</th>".to_owned(),
    };
    let _ = write!(
        page,
        "<h2>All figures</h2>\n<div class=\"card scroll\"><table><thead><tr><th>figure</th>{heads}</tr></thead>"
    );
    for figure in figures {
        let values: Vec<_> = (0..runs).map(|run| format!("<td>{}</td>", figure.text(run))).collect();
        let ratio = match runs {
            2 => format!("<td>{}</td>", figure.ratio()),
            _ => String::new(),
        };
        let _ = write!(page, "<tr><td>{}</td>{}{ratio}</tr>", figure.name, values.concat());
    }
    page.push_str("</table></div>\n");
}

fn repeat(page: &mut String, results: &[RunResult]) {
    page.push_str("<footer><p>Latencies begin when a post was due, not when it was sent, so a hub that stalls does not hide it. \
        Once more:</p>");
    for result in results {
        let _ = write!(
            page,
            "<pre><code>resync-load run {} --seed {} --out result.json</code></pre>",
            escaped(&result.scenario),
            result.seed
        );
    }
    page.push_str("</footer>\n");
}
