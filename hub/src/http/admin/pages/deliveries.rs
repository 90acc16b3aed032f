//! Laggards, skips, and hosts with an open circuit breaker.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{self, Section, csrf_field};
use super::session::Session;
use super::table::{
    self,
    Head::{Number, Row, RowNumber, Text},
};
use super::{AdminState, Notice, failed, missed, moment, more, notification_link};
use crate::admin::{Host, Laggard, Lasting, Lost, Page, PageRequest, Skipped};

/// Notifications given up or lost that are shown here; the API has all.
const MISSED: usize = 50;

pub(super) async fn show(
    State(state): State<AdminState>,
    session: Session,
    (Query(page), Query(notice)): (Query<PageRequest>, Query<Notice>),
) -> Response {
    let service = &state.service;
    let found = async {
        let missed = PageRequest { limit: Some(MISSED), ..PageRequest::default() };
        let (skips, gaps) = (service.skips(&missed).await?, service.lost(&missed).await?);
        Ok((service.hosts().await?, service.laggards(&page).await?, skips, gaps))
    };
    match found.await {
        Ok((open, laggards, skips, gaps)) => {
            let content = html! {
                h1 { "Deliveries" }
                (notice.text())
                (hosts(&session, &open))
                (late(&laggards))
                (given_up(&skips))
                (lost(&gaps))
            };
            layout::page(&session, Section::Deliveries, "Deliveries", &content)
        }
        Err(error) => failed(&session, &error),
    }
}

fn hosts(session: &Session, hosts: &[Host]) -> Markup {
    html! {
        section aria-labelledby="hosts" {
            h2 id="hosts" { "Hosts in trouble" }
            @if hosts.is_empty() {
                p.empty { "No circuit breaker is open." }
            } @else {
                (table::wide("hosts in trouble", [Row("Host"), Number("Waiting"), Number("Asked again in"), Text("What to do")], hosts.iter().map(|host| [
                    html! { span.url { (host.origin) } },
                    html! { (host.subscriptions_waiting) },
                    html! { (Lasting(Duration::from_secs(host.breaker_open_for))) },
                    html! {
                        form method="post" action="/act" {
                            (csrf_field(session))
                            input type="hidden" name="act" value="retry";
                            input type="hidden" name="host" value=(host.origin);
                            button.small aria-label={ "Ask now: " (host.origin) } { "Ask now" }
                        }
                    },
                ])))
            }
        }
    }
}

fn late(page: &Page<Laggard>) -> Markup {
    html! {
        section aria-labelledby="late" {
            h2 id="late" { "Late subscriptions" }
            @if page.items.is_empty() {
                p.empty { "Nobody is behind." }
            } @else {
                (table::wide("late subscriptions", [RowNumber("Number"), Text("Callback host"), Number("Behind"), Number("Attempts"), Text("Why"), Text("Since"), Number("Next attempt")], page.items.iter().map(|one| [
                    html! { a href={ "/subscriptions/" (one.subscription) } { (one.subscription) } },
                    html! { span.url { (one.callback_origin) } },
                    html! { (one.behind) },
                    html! { (one.failed_attempts) },
                    html! { (one.class) @if one.paused { " " span.tag.warn { "paused" } } },
                    html! { @if let Some(since) = &one.failing_since { (moment(since)) } },
                    html! { @match one.next_attempt_in { Some(pause) => { "in " (Lasting(Duration::from_secs(pause))) }, None => "waits" } },
                ])))
                (more(page.next.as_ref(), "/deliveries"))
            }
        }
    }
}

fn given_up(page: &Page<Skipped>) -> Markup {
    html! {
        section aria-labelledby="skips" {
            h2 id="skips" { "Given up" }
            @if page.items.is_empty() {
                p.empty { "No notification was given up." }
            } @else {
                (table::wide("notifications given up", [Row("Notification"), Number("Subscription"), Text("When"), Text("Why")], page.items.iter().map(|one| [
                    notification_link(&one.notification),
                    html! { a href={ "/subscriptions/" (one.subscription) } { (one.subscription) } },
                    moment(&one.at),
                    missed::why(one),
                ])))
                @if page.next.is_some() { p.hint { "There are more: " code { "resync-hub deliveries skips" } " lists all." } }
            }
        }
    }
}

fn lost(page: &Page<Lost>) -> Markup {
    html! {
        section aria-labelledby="gaps" {
            h2 id="gaps" { "Lost to retention" }
            @if page.items.is_empty() {
                p.empty { "No notification was removed from the log before it was delivered." }
            } @else {
                (missed::lost(&page.items))
                @if page.next.is_some() { p.hint { "There are more: " code { "resync-hub deliveries lost" } " lists all." } }
            }
        }
    }
}
