//! What is late, what was given up, and which hosts are left alone.

use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{self, Room, word};
use super::session::Session;
use super::{AdminState, Told, failed, gaps, moment, more};
use crate::operator::{Gap, Host, Lasting, Late, Page, Skipped, Turn};

/// Notifications given up or lost that are shown here; the API has all.
const MISSED: usize = 50;

pub(super) async fn show(
    State(state): State<AdminState>,
    session: Session,
    (Query(turn), Query(told)): (Query<Turn>, Query<Told>),
) -> Response {
    let desk = &state.desk;
    let found = async {
        let missed = Turn { limit: Some(MISSED), ..Turn::default() };
        let (skips, gaps) = (desk.skips(&missed).await?, desk.gaps(&missed).await?);
        Ok((desk.hosts().await?, desk.laggards(&turn).await?, skips, gaps))
    };
    match found.await {
        Ok((open, laggards, skips, gaps)) => {
            let content = html! {
                h1 { "Deliveries" }
                (told.notice())
                (hosts(&session, &open))
                (late(&laggards))
                (given_up(&skips))
                (lost(&gaps))
            };
            layout::page(&session, Room::Deliveries, "Deliveries", &content)
        }
        Err(error) => failed(&session, &error),
    }
}

fn hosts(session: &Session, hosts: &[Host]) -> Markup {
    html! {
        section aria-labelledby="hosts" {
            h2 id="hosts" { "Hosts in trouble" }
            @if hosts.is_empty() {
                p.empty { "No host is left alone." }
            } @else {
                div.wide tabindex="0" role="region" aria-label="Table: hosts in trouble" {
                    table {
                        thead { tr { th scope="col" { "Host" } th.number scope="col" { "Waiting" } th.number scope="col" { "Asked again in" } th scope="col" { "What to do" } } }
                        tbody {
                            @for host in hosts {
                                tr {
                                    th scope="row" { span.url { (host.origin) } }
                                    td.number { (host.subscriptions_waiting) }
                                    td.number { (Lasting(Duration::from_secs(host.left_alone_for))) }
                                    td {
                                        form method="post" action="/act" {
                                            (word(session))
                                            input type="hidden" name="act" value="retry";
                                            input type="hidden" name="host" value=(host.origin);
                                            button.small aria-label={ "Ask now: " (host.origin) } { "Ask now" }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn late(page: &Page<Late>) -> Markup {
    html! {
        section aria-labelledby="late" {
            h2 id="late" { "Late subscriptions" }
            @if page.items.is_empty() {
                p.empty { "Nobody is behind." }
            } @else {
                div.wide tabindex="0" role="region" aria-label="Table: late subscriptions" {
                    table {
                        thead { tr { th.number scope="col" { "Number" } th scope="col" { "Host of the callback" } th.number scope="col" { "Behind" } th.number scope="col" { "Attempts" } th scope="col" { "Why" } th scope="col" { "Since" } th.number scope="col" { "Next attempt" } } }
                        tbody {
                            @for one in &page.items {
                                tr {
                                    th.number scope="row" { a href={ "/subscriptions/" (one.subscription) } { (one.subscription) } }
                                    td { span.url { (one.callback_origin) } }
                                    td.number { (one.behind) }
                                    td.number { (one.attempts) }
                                    td { (one.class) @if one.paused { " " span.tag.warn { "paused" } } }
                                    td { @if let Some(since) = &one.failing_since { (moment(since)) } }
                                    td.number { @match one.next_attempt_in { Some(pause) => { "in " (Lasting(Duration::from_secs(pause))) }, None => "waits" } }
                                }
                            }
                        }
                    }
                }
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
                p.empty { "No notification was given up for anybody." }
            } @else {
                div.wide tabindex="0" role="region" aria-label="Table: notifications given up" {
                    table {
                        thead { tr { th scope="col" { "Notification" } th.number scope="col" { "Subscription" } th scope="col" { "When" } th scope="col" { "Why" } } }
                        tbody {
                            @for one in &page.items {
                                tr {
                                    th scope="row" { code { (one.notification) } }
                                    td.number { a href={ "/subscriptions/" (one.subscription) } { (one.subscription) } }
                                    td { (moment(&one.at)) }
                                    td { (one.class) @if let Some(status) = one.status { " (" (status) ")" } }
                                }
                            }
                        }
                    }
                }
                @if page.next.is_some() { p.hint { "There are more: " code { "resync-hub deliveries skips" } " lists all." } }
            }
        }
    }
}

fn lost(page: &Page<Gap>) -> Markup {
    html! {
        section aria-labelledby="gaps" {
            h2 id="gaps" { "Lost to retention" }
            @if page.items.is_empty() {
                p.empty { "No notification was gone from the log before it was delivered." }
            } @else {
                (gaps::table(&page.items))
                @if page.next.is_some() { p.hint { "There are more: " code { "resync-hub deliveries gaps" } " lists all." } }
            }
        }
    }
}
