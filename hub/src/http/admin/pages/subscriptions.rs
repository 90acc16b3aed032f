//! All subscriptions, and those that are sought or late.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};

use super::layout::{self, Section};
use super::session::Session;
use super::table::{
    self,
    Head::{RowNumber, Text},
};
use super::{AdminState, failed, moment, more, query, search, text_of};
use crate::admin::{Standing, SubscriptionPage, SubscriptionRow, SubscriptionsRequest, counted};

const PATH: &str = "/subscriptions";

pub(super) async fn list(
    State(state): State<AdminState>,
    session: Session,
    Query(mut request): Query<SubscriptionsRequest>,
) -> Response {
    request.q = text_of(request.q);
    request.only.take_if(|_| request.q.is_some());
    match state.service.subscription_page(None, &request).await {
        Ok(page) => layout::page(&session, Section::Subscriptions, "Subscriptions", &all(&request, &page)),
        Err(error) => failed(&session, &error),
    }
}

fn all(request: &SubscriptionsRequest, page: &SubscriptionPage) -> Markup {
    let (text, only) = (request.q.as_deref(), request.only.as_deref());
    let path = query(PATH, [("q", text), ("only", only)]);
    html! {
        h1 { "Subscriptions" }
        (search(PATH, "Part of the topic or the callback host, or the whole callback", text))
        (choice(text, only))
        @if page.rows.is_empty() {
            p.empty { (nothing(request, page)) }
        } @else {
            (rows(&page.rows, true))
        }
        @if let Some(looked_at) = page.stopped_after {
            p.notice.warn role="status" { "The search stopped after " (counted(looked_at, "subscription", "subscriptions")) ". “More” continues it." }
        }
        (more(page.next.as_ref(), &path))
    }
}

/// All of them, or those that are late.
fn choice(text: Option<&str>, only: Option<&str>) -> Markup {
    let choices = [
        (PATH.to_owned(), "All", None),
        (query(PATH, [("only", Some("late"))]), "Late or failing", Some("late")),
    ];
    html! {
        @if text.is_none() {
            nav.choice aria-label="Which subscriptions" {
                ul { @for (path, name, value) in choices { li { a href=(path) aria-current=[(only == value).then_some("true")] { (name) } } } }
            }
        } @else {
            p { a href=(PATH) { "All subscriptions" } }
        }
    }
}

fn nothing(request: &SubscriptionsRequest, page: &SubscriptionPage) -> &'static str {
    match (&request.q, &request.only) {
        _ if page.stopped_after.is_some() => "Nothing found so far.",
        _ if request.after.is_some() => "There are no more.",
        (Some(_), _) => {
            "No topic and no callback host of a subscription contains this, and no callback is this."
        }
        (None, Some(_)) => "No subscription is late or failing.",
        (None, None) => "Nobody is subscribed.",
    }
}

/// The table of these; with their topics where these differ.
pub(super) fn rows(rows: &[SubscriptionRow], with_topics: bool) -> Markup {
    let number = |one: &SubscriptionRow| html! { a href={ "/subscriptions/" (one.id) } { (one.id) } };
    let callback = |one: &SubscriptionRow| html! { span.url { (one.callback_origin) } };
    let topic = |one: &SubscriptionRow| html! { a.url href={ "/topics/" (one.topic_id) } { (one.topic) } };
    if with_topics {
        let heads =
            [RowNumber("Number"), Text("Topic"), Text("Callback host"), Text("State"), Text("Lease until")];
        let row = |one: &SubscriptionRow| {
            [number(one), topic(one), callback(one), standing(&one.standing), moment(&one.lease_end)]
        };
        table::wide("subscriptions", heads, rows.iter().map(row))
    } else {
        let heads = [RowNumber("Number"), Text("Callback host"), Text("State"), Text("Lease until")];
        let row = |one: &SubscriptionRow| {
            [number(one), callback(one), standing(&one.standing), moment(&one.lease_end)]
        };
        table::wide("subscribers", heads, rows.iter().map(row))
    }
}

fn standing(standing: &Standing) -> Markup {
    let words = standing.words();
    html! {
        @match standing {
            Standing::UpToDate => span.tag.good { (words) },
            Standing::Behind(_) | Standing::Paused(_) => span.tag.warn { (words) },
            Standing::Failing(since) => { span.tag.bad { (words) } " since " (moment(since)) },
            Standing::Over => span.tag { (words) },
        }
    }
}
