//! One subscription: why does nothing arrive there, and what can be done?

use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::layout::{self, Section, csrf_field};
use super::session::Session;
use super::table::{
    self,
    Head::{Row, Text},
};
use super::{AdminState, Notice, card, failed, missed, moment, notification_link};
use crate::admin::{Lasting, Lost, Skipped, SubscriptionDetail, Trouble};
use crate::http::layout::attempts::{Attempt, attempts};

pub(super) async fn show(
    State(state): State<AdminState>,
    session: Session,
    Path(id): Path<String>,
    Query(notice): Query<Notice>,
) -> Response {
    let Ok(id) = id.parse() else {
        return layout::error(
            StatusCode::NOT_FOUND,
            Some(&session),
            "A subscription is named by its number.",
        );
    };
    match state.service.subscription(id).await {
        Ok(detail) => layout::page(
            &session,
            Section::Subscriptions,
            &format!("Subscription {id}"),
            &one(&session, &detail, &notice),
        ),
        Err(error) => failed(&session, &error),
    }
}

fn one(session: &Session, detail: &SubscriptionDetail, notice: &Notice) -> Markup {
    let subscription = &detail.subscription;
    html! {
        p.crumb { a href="/subscriptions" { "Subscriptions" } " / " a.url href={ "/topics/" (detail.topic_id) } { (subscription.topic) } }
        h1 { "Subscription " (subscription.id) }
        p { "Delivered to " strong.url { (subscription.callback_origin) } }
        (notice.text())
        (standing(detail))
        dl.cards {
            (card("Done through", detail.done_through, done(detail)))
            (card("Behind", detail.behind, html! { "of " (detail.head) " notifications" }))
            (card("Failed attempts", detail.failed_attempts, "at the next notification"))
            (card("Lease until", moment(&subscription.lease_end), html! { "granted for " (Lasting(Duration::from_secs(detail.lease))) }))
            (card("Verified", moment(&detail.verified_at), html! { "first " (moment(&detail.created_at)) }))
            (card("Signed", if detail.signed { "yes" } else { "no" }, if detail.signed { "with its secret" } else { "it gave no secret" }))
        }
        (commands(session, detail))
        (attempts("Notification", &detail.recent_attempts.iter().map(attempt).collect::<Vec<_>>()))
        (skipped(&detail.skipped))
        (lost(&detail.lost))
        (for_the_subscriber(session, detail))
        @if detail.search_incomplete { p.hint { "Too much was given up or lost to search all of it: " code { "resync-hub deliveries skips" } " and " code { "lost" } " list everything." } }
    }
}

fn for_the_subscriber(session: &Session, detail: &SubscriptionDetail) -> Markup {
    html! {
        section aria-labelledby="page" {
            h2 id="page" { "For its subscriber" }
            p { "This address shows why nothing arrives at this callback, and can send it a test delivery. Send it to the subscriber, or to the Source if the subscriber agrees." }
            p { code.token { (detail.status_page) } }
            div.acts {
                details.danger {
                    summary { "Replace it …" }
                    form method="post" action="/act" {
                        (csrf_field(session))
                        input type="hidden" name="subscription" value=(detail.subscription.id);
                        input type="hidden" name="act" value="address";
                        p.hint { "If others know the address: it stops working, also for open visits. Send the new one." }
                        button { "Replace the address" }
                    }
                }
            }
        }
    }
}

fn done(detail: &SubscriptionDetail) -> Markup {
    html! {
        @if let Some(received) = &detail.done_received_at { "came in " (moment(received)) }
        @else if detail.done_through <= detail.subscription.start { "nothing since it began" }
        @else { "no longer in the log" }
    }
}

fn standing(detail: &SubscriptionDetail) -> Markup {
    let kind = if detail.failing_since.is_some() {
        "bad"
    } else if detail.behind > 0 {
        "warn"
    } else {
        "good"
    };
    html! {
        p.notice.(kind) {
            strong { (detail.waits) }
            @if let Some(since) = &detail.failing_since { " Attempts have been failing since " (moment(since)) "." }
        }
    }
}

fn commands(session: &Session, detail: &SubscriptionDetail) -> Markup {
    let id = detail.subscription.id;
    let about = html! {
        (csrf_field(session))
        input type="hidden" name="subscription" value=(id);
        input type="hidden" name="topic_id" value=(detail.topic_id);
    };
    html! {
        section aria-labelledby="acts" {
            h2 id="acts" { "What to do" }
            div.acts {
                form method="post" action="/act" { (about) input type="hidden" name="act" value="retry"; button { "Retry now" } }
                details {
                    summary { "Replay …" }
                    form method="post" action="/act" {
                        (about) input type="hidden" name="act" value="replay";
                        label for="from" { "From notification" }
                        input id="from" name="from" type="number" min=(detail.subscription.start + 1) value=(detail.done_through.max(detail.subscription.start + 1)) required;
                        p.hint { "All notifications in the log from this one on are delivered again, with the same ids." }
                        button { "Replay" }
                    }
                }
                @if detail.behind > 0 {
                    details {
                        summary { "Skip one …" }
                        form method="post" action="/act" {
                            (about) input type="hidden" name="act" value="skip";
                            p.hint { "The next notification is given up for this subscription. It can be replayed later." }
                            button { "Skip notification " (detail.done_through + 1) }
                        }
                    }
                }
                details {
                    summary { "Pause its topic …" }
                    form method="post" action="/act" {
                        (csrf_field(session))
                        input type="hidden" name="topic" value=(detail.subscription.topic);
                        input type="hidden" name="topic_id" value=(detail.topic_id);
                        input type="hidden" name="act" value="pause";
                        p.hint { "Only whole topics can be paused: until this one is resumed, none of its subscribers gets anything." }
                        button { "Pause the topic" }
                    }
                }
                details.danger {
                    summary { "Deny …" }
                    form method="post" action="/act" {
                        (about) input type="hidden" name="act" value="deny";
                        label for="reason" { "Reason for the subscriber" }
                        input id="reason" name="reason" maxlength="500";
                        p.hint { "The subscription ends now, and its callback is notified (hub.mode=denied). It may subscribe again." }
                        button.danger { "End this subscription" }
                    }
                }
            }
        }
    }
}

fn attempt(trouble: &Trouble) -> Attempt<'_> {
    let Trouble { at, failure, attempt, notification } = trouble;
    let came = failure.as_deref().unwrap_or("delivered");
    let notification = notification_link(notification);
    Attempt { at, delivered: failure.is_none(), came, number: *attempt, notification }
}

fn skipped(skipped: &[Skipped]) -> Markup {
    html! {
        @if !skipped.is_empty() {
            section aria-labelledby="skipped" {
                h2 id="skipped" { "Given up for it" }
                (table::wide("notifications given up", [Row("Notification"), Text("When"), Text("Why")], skipped.iter().map(|one| [
                    notification_link(&one.notification),
                    moment(&one.at),
                    missed::why(one),
                ])))
            }
        }
    }
}

fn lost(lost: &[Lost]) -> Markup {
    html! {
        @if !lost.is_empty() {
            section aria-labelledby="lost" {
                h2 id="lost" { "Lost to retention" }
                p { "These were removed from the log before they could be delivered." }
                (missed::lost(lost))
            }
        }
    }
}
