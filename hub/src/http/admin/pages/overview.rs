//! The overview: is the hub well?

use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{self, Section};
use super::plot::plot;
use super::session::Session;
use super::table::{
    self,
    Head::{Number, Row},
};
use super::{AdminState, card, cluster, failed};
use crate::admin::{AdminService, Failed, Lasting, Overview, Sample, Size, counted};

/// Points of a plot.
const POINTS: usize = 120;

pub(super) async fn show(State(state): State<AdminState>, session: Session) -> Response {
    match live(&state.service).await {
        Ok(live) => {
            let content = html! {
                div.title { h1 { "Overview" } p.state id="live-state" role="status" { "As of now" } }
                div id="live" { (live) }
            };
            layout::page(&session, Section::Overview, "Overview", &content)
        }
        Err(error) => failed(&session, &error),
    }
}

/// The part of the page that is renewed while it is open.
pub(super) async fn live(service: &AdminService) -> Result<Markup, Failed> {
    let (overview, hour) = (service.overview().await?, service.trends.hour());
    Ok(html! {
        (health(&overview))
        (cards(&overview))
        @if let Some(shared) = &overview.status.cluster { (cluster::section(shared)) }
        (plots(&hour, &overview))
        div.columns { (failures(&overview)) (hosts(&overview)) }
    })
}

fn health(overview: &Overview) -> Markup {
    let totals = &overview.status.deliveries;
    html! {
        @if let Some(trouble) = &overview.trouble {
            p.notice.bad role="alert" { strong { "The hub accepts nothing new: " } (trouble) }
        } @else if totals.past_due > 0 {
            p.notice.warn { strong { (counted(totals.past_due, "subscription is past due: it", "subscriptions are past due: they")) } " could have been served for more than a minute. The hub is overloaded." }
        } @else if totals.open_breakers > 0 {
            p.notice.warn { strong { "The hub is well. " } "Circuit breakers are open for " (counted(totals.open_breakers, "host", "hosts")) "." }
        } @else {
            p.notice.good { strong { "The hub is well." } " It has been running for " (Lasting(Duration::from_secs(overview.running_for))) "." }
        }
    }
}

fn cards(overview: &Overview) -> Markup {
    let (status, totals) = (&overview.status, &overview.status.deliveries);
    let disk = match (overview.disk_free, overview.disk_size) {
        (Some(free), Some(size)) => format!("{} of {} free on the disk", Size(free), Size(size)),
        _ => String::new(),
    };
    html! {
        dl.cards {
            (card("Topics", status.topics, ""))
            (card("Subscriptions", status.subscriptions, "in force"))
            (card("Late", totals.laggards, "subscriptions behind the others"))
            (card("Past due", totals.past_due, "not served for over a minute"))
            (card("Given up", totals.skipped, "notifications, after all attempts"))
            (card("Lost to retention", totals.lost_to_retention, "notifications, before delivery"))
            (card("Logs", maud::display(Size(overview.log_bytes)), disk))
        }
    }
}

fn plots(hour: &[Sample], overview: &Overview) -> Markup {
    let rate = |count: fn(&Sample) -> u64| -> Vec<f64> {
        hour.windows(2).map(|pair| number(count(&pair[1]) - count(&pair[0]))).collect()
    };
    let level = |count: fn(&Sample) -> usize| -> Vec<f64> {
        hour.iter().map(|sample| number(count(sample) as u64)).collect()
    };
    let lag: Vec<f64> = hour
        .windows(2)
        .map(|pair| pair[1].mean_lag_since(&pair[0]).unwrap_or_default().as_secs_f64())
        .collect();
    let (published, delivered, failed) =
        (rate(|s| s.published), rate(Sample::delivered), rate(Sample::failed));
    let (late, past_due) = (level(|s| s.laggards), level(|s| s.past_due));
    let mean = overview.mean_lag_ms.map_or_else(
        || "nothing delivered".to_owned(),
        |mean| format!("{} on average", Lasting(Duration::from_millis(mean))),
    );
    html! {
        section aria-labelledby="hour" {
            h2 id="hour" { "The last hour" }
            div.plots {
                (figure("Published", &format!("{} accepted", sum(&published)), &thinned(&published, sum), false))
                (figure("Delivered", &format!("{} acknowledged", sum(&delivered)), &thinned(&delivered, sum), false))
                (figure("Lag", &mean, &thinned(&lag, highest), false))
                (figure("Failed attempts", &format!("{} failed", sum(&failed)), &thinned(&failed, sum), true))
                (figure("Late", &format!("{} now", late.last().unwrap_or(&0.0)), &thinned(&late, highest), true))
                (figure("Past due", &format!("{} now", past_due.last().unwrap_or(&0.0)), &thinned(&past_due, highest), true))
            }
        }
    }
}

/// As many values as a plot has room for.
fn thinned(values: &[f64], of: fn(&[f64]) -> f64) -> Vec<f64> {
    values.rchunks(values.len().div_ceil(POINTS).max(1)).rev().map(of).collect()
}

/// Nothing adds up to zero, which `Iterator::sum` writes as minus zero.
fn sum(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |sum, value| sum + value)
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

fn figure(name: &str, sum: &str, values: &[f64], bad: bool) -> Markup {
    html! {
        figure {
            figcaption { (name) span { (sum) } }
            (plot(&format!("{name} in the last hour: {sum}"), values, bad))
        }
    }
}

fn failures(overview: &Overview) -> Markup {
    let any = overview.outcomes.iter().any(|outcome| outcome.total > 0);
    html! {
        section aria-labelledby="attempts" {
            h2 id="attempts" { "Attempts by outcome" }
            @if any {
                (table::narrow([Row("Outcome"), Number("Last hour"), Number("Since the start")], overview.outcomes.iter().filter(|outcome| outcome.total > 0).map(|outcome| [
                    html! { (words(outcome.outcome)) },
                    html! { (outcome.last_hour) },
                    html! { (outcome.total) },
                ])))
            } @else { p.empty { "Nothing was delivered since the start." } }
        }
    }
}

fn hosts(overview: &Overview) -> Markup {
    html! {
        section aria-labelledby="hosts" {
            h2 id="hosts" { "Hosts in trouble" }
            @if overview.hosts.is_empty() {
                p.empty { "No circuit breaker is open." }
            } @else {
                (table::narrow([Row("Host"), Number("Waiting"), Number("Asked again in")], overview.hosts.iter().map(|host| [
                    html! { span.url { (host.origin) } },
                    html! { (host.subscriptions_waiting) },
                    html! { (Lasting(Duration::from_secs(host.breaker_open_for))) },
                ])))
                p { a href="/deliveries" { "All hosts, and what to do about them" } }
            }
        }
    }
}

/// What the label of an outcome means.
fn words(outcome: &str) -> &str {
    match outcome {
        "2xx" => "Acknowledged (2xx)",
        "3xx" => "Redirected (3xx)",
        "410" => "Gone (410)",
        "429" => "Too many requests (429)",
        "4xx" => "Refused (other 4xx)",
        "5xx" => "Server errors (5xx)",
        "timeout" => "No answer in time",
        "dns" => "Name not found",
        "blocked_ip" => "Address not allowed",
        "connection" => "No connection",
        "not_sent" => "Not sent: no file descriptor",
        "unconfirmed_address" => "Limited: unconfirmed address",
        other => other,
    }
}

/// For drawing only.
#[allow(clippy::cast_precision_loss, reason = "said above")]
fn number(count: u64) -> f64 {
    count as f64
}
