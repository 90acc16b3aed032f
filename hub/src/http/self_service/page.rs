//! The HTML of the pages for subscribers.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use crate::admin::{Grade, Lasting, OwnAttempt, OwnView, PageId, Skipped, TestResult};
use crate::http::layout::attempts::{Attempt, attempts};
use crate::http::layout::frame::Frame;
use crate::http::layout::table::{
    self,
    Head::{Row, Text},
};
use crate::http::layout::{card, moment};

// The version is in their names, so that browsers do not use the styles of an old hub.
pub(super) const STYLE: &str = concat!("assets/style-", env!("CARGO_PKG_VERSION"), ".css");
pub(super) const ICON: &str = concat!("assets/icon-", env!("CARGO_PKG_VERSION"), ".svg");

/// The field with the CSRF token, which shows that a form is of this visit.
pub(super) const CSRF_FIELD: &str = "csrf_token";

/// The answer to every mistake: it must not show who is subscribed.
pub(super) const NO_MATCH: &str = "No subscription in force has this topic, callback and secret. A subscription without a secret, or one that has ended, cannot be opened here: subscribe again, or ask the hub's operator.";
pub(super) const NO_URLS: &str =
    "Topic and callback are http or https URLs, written as in the request to subscribe.";

/// The form for the subscription's secret.
pub(super) fn login(status: StatusCode, base: &str, overheard: bool, why: Option<&str>) -> Response {
    let content = html! {
        div.login {
            h1 { "Why does nothing arrive?" }
            @if let Some(why) = why { p.notice.bad role="alert" { (why) } }
            p { "This hub shows subscribers the state of their subscriptions." }
            form method="post" action={ (base) "subscriptions" } {
                label for="topic" { "Topic" }
                input id="topic" name="topic" type="url" placeholder="https://…" required;
                label for="callback" { "Callback" }
                input id="callback" name="callback" type="url" placeholder="https://…" required;
                label for="secret" { "Secret of the subscription" }
                input id="secret" name="secret" type="password" autocomplete="off" required;
                @if overheard { p.hint { "This hub is reached by plain http: others may read the secret on its way." } }
                p.hint { "Enter what was sent as hub.topic, hub.callback and hub.secret. Without a secret, ask the hub's operator for the address of the page." }
                button { "Show" }
            }
        }
    };
    send(status, base, "Why does nothing arrive?", &content)
}

/// For wrong addresses, and for visits that are over.
pub(super) fn unknown(base: &str) -> Response {
    let content = html! {
        h1 { "Not found" }
        p.notice.bad role="alert" { strong { "There is no such page, or you may not see it." } }
        h2 { "What to do" }
        ul {
            li { "Open the complete address that you were given. A visit lasts an hour and needs a cookie." }
            li { "If it no longer works, it was replaced: ask the hub's operator for the new one." }
            li { "Or " a href={ (base) "subscriptions" } { "open the page with the subscription's secret" } "." }
        }
    };
    send(StatusCode::NOT_FOUND, base, "Not found", &content)
}

/// For forms that no page of ours has sent.
pub(super) fn foreign(base: &str) -> Response {
    let content = html! {
        h1 { "Not sent" }
        p.notice.bad role="alert" { strong { "This form was not sent by your page." } }
        p { "Open the page again, and use its button." }
    };
    send(StatusCode::FORBIDDEN, base, "Not sent", &content)
}

/// For requests that have to wait.
pub(super) fn later(status: StatusCode, base: &str, seconds: u64, why: &str) -> Response {
    let title = if status == StatusCode::TOO_MANY_REQUESTS { "Too many requests" } else { "Not now" };
    let content = html! {
        h1 { (title) }
        p.notice.warn role="alert" { strong { (why) } }
        p { "Try again in " (Lasting(Duration::from_secs(seconds))) ". Deliveries go on meanwhile." }
    };
    send(status, base, title, &content)
}

/// For a subscription that has ended.
pub(super) fn over(base: &str) -> Response {
    let content = html! {
        h1 { "This subscription has ended" }
        p.notice.bad { strong { "Nothing is delivered any more." } }
        p { "Its lease ended without a renewal, it was unsubscribed, the hub denied it (the callback was notified with hub.mode=denied), or the callback answered 410 twice." }
        h2 { "What to do" }
        p { "Subscribe again, and renew before each lease ends. The new subscription has a page of its own. Get what was published meanwhile from the Source, or from the hub's log." }
    };
    send(StatusCode::OK, base, "This subscription has ended", &content)
}

/// The state of a subscription, and what a test delivery has shown. `csrf_token` belongs into its forms.
pub(super) fn view(
    base: &str,
    id: PageId,
    csrf_token: &str,
    view: &OwnView,
    tested: Option<&TestResult>,
) -> Response {
    let detail = &view.detail;
    let subscription = &detail.subscription;
    let is_past_any = detail.done_through > subscription.start;
    let content = html! {
        h1 { "Your subscription" }
        p { "To " strong.url { (subscription.topic) } ", delivered to " strong.url { (subscription.callback_origin) } }
        @if let Some(tested) = tested { (result(tested)) }
        (standing(view))
        dl.cards {
            (card("Lease until", moment(&subscription.lease_end), html! { "granted for " (Lasting(Duration::from_secs(detail.lease))) }))
            (card("Verified", moment(&detail.verified_at), html! { "first " (moment(&detail.created_at)) }))
            (card("Done through", if is_past_any { detail.done_through.to_string() } else { "none".to_owned() }, done(view)))
            (card("Waiting", detail.behind, html! { "of " (detail.head) " notifications" }))
            (card("Failed attempts", detail.failed_attempts, "at the next notification"))
            (card("Signed", if detail.signed { "yes" } else { "no" }, if detail.signed { "with its secret" } else { "it gave no secret" }))
        }
        section aria-labelledby="advice" {
            h2 id="advice" { "What to do" }
            ul { @for advice in &view.advice { li { (advice) } } }
        }
        section aria-labelledby="test" {
            h2 id="test" { "Try it" }
            form method="post" action={ (base) "subscriptions/" (id) } {
                input type="hidden" name=(CSRF_FIELD) value=(csrf_token);
                p { "The hub sends a short text to your callback now" @if detail.signed { ", signed like every delivery," } " and shows the answer here. Its header " code { "webhook-test" } " says that it is a test. Your subscription does not change." }
                button { "Send a test delivery" }
            }
        }
        (attempts("webhook-id", &view.attempts.iter().map(attempt).collect::<Vec<_>>()))
        (missed(view))
        @if detail.search_incomplete { p.hint { "This hub gave up or lost too much to search all of it: more may have been missed." } }
    };
    send(StatusCode::OK, base, "Your subscription", &content)
}

fn result(tested: &TestResult) -> Markup {
    html! {
        @if tested.delivered {
            p.notice.good role="status" { strong { "The test was delivered: " } (tested.came) "." }
        } @else {
            p.notice.bad role="alert" {
                strong { "The test failed: " } (tested.came) "."
                @if let Some(remedy) = tested.remedy { " " (remedy) }
            }
        }
    }
}

fn standing(view: &OwnView) -> Markup {
    let detail = &view.detail;
    let kind = match view.grade {
        Grade::Good => "good",
        Grade::Fair => "warn",
        Grade::Bad => "bad",
    };
    html! {
        p.notice.(kind) {
            strong { (view.standing) }
            @if let Some(since) = &detail.failing_since { " Attempts have been failing since " (moment(since)) "." }
        }
    }
}

fn done(view: &OwnView) -> Markup {
    let detail = &view.detail;
    html! {
        @if let Some(received) = &detail.done_received_at { "published " (moment(received)) }
        @else if detail.done_through <= detail.subscription.start { "nothing since it began" }
        @else { "no longer in the log" }
    }
}

fn attempt(one: &OwnAttempt) -> Attempt<'_> {
    let OwnAttempt { at, delivered, came, attempt, notification } = one;
    let notification = html! { code { (notification) } };
    Attempt { at, delivered: *delivered, came, number: *attempt, notification }
}

fn missed(view: &OwnView) -> Markup {
    let detail = &view.detail;
    let why = |one: &Skipped| match one.status {
        Some(status) => format!("given up: the callback answered {status}"),
        None => "given up after all attempts".to_owned(),
    };
    let skipped = detail
        .skipped
        .iter()
        .map(|one| [html! { code { (one.notification) } }, moment(&one.at), html! { (why(one)) }]);
    let lost = detail.lost.iter().map(|gap| {
        let which = html! { code { (gap.first) } " to " (gap.last) };
        [which, moment(&gap.at), html! { "removed from the log before it was delivered" }]
    });
    html! {
        @if !detail.skipped.is_empty() || !detail.lost.is_empty() {
            section aria-labelledby="missed" {
                h2 id="missed" { "Missed" }
                (table::wide("notifications missed", [Row("webhook-id"), Text("When"), Text("Why")], skipped.chain(lost)))
            }
        }
    }
}

fn send(status: StatusCode, base: &str, title: &str, content: &Markup) -> Response {
    let below = |path: &str| format!("{base}{path}");
    let frame = Frame {
        style: &below(STYLE),
        icon: &below(ICON),
        head: html! { meta name="robots" content="noindex, nofollow"; },
        home: &below("subscriptions"),
        navigation: html! {},
        has_times: true,
    };
    frame.send(status, title, content)
}
