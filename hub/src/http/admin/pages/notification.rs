//! One notification: what its publisher posted, as text if it is one, and to be downloaded.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use maud::{Markup, html};

use super::layout::{self, Section};
use super::session::Session;
use super::{AdminState, card, failed, moment};
use crate::admin::{Failed, NotificationView, Size};

pub(super) async fn show(
    State(state): State<AdminState>,
    session: Session,
    Path((topic, offset)): Path<(String, String)>,
) -> Response {
    match find(&state, &topic, &offset).await {
        Ok(found) => layout::page(&session, Section::Topics, &format!("Notification {offset}"), &one(&found)),
        Err(error) => failed(&session, &error),
    }
}

/// Whatever its publisher called it, it is sent as something that no browser shows or runs.
pub(super) async fn content(
    State(state): State<AdminState>,
    session: Session,
    Path((topic, offset)): Path<(String, String)>,
) -> Response {
    let found = match find(&state, &topic, &offset).await {
        Ok(found) => found,
        Err(error) => return failed(&session, &error),
    };
    let ending = if found.text().is_some() { "txt" } else { "bin" };
    let disposition = format!("attachment; filename=\"notification-{}.{ending}\"", found.id);
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_DISPOSITION, disposition)];
    (headers, found.body()).into_response()
}

async fn find(state: &AdminState, topic: &str, offset: &str) -> Result<NotificationView, Failed> {
    let offset = offset.parse().map_err(|_| Failed::Unknown("notification"))?;
    state.service.notification(topic, offset).await
}

fn one(found: &NotificationView) -> Markup {
    let entry = &found.entry;
    let of = format!("/topics/{}", found.topic_id);
    let place = |offset: u64| format!("{of}/notifications/{offset}");
    html! {
        p.crumb { a href="/topics" { "Topics" } " / " a.url href=(of) { (found.topic) } }
        h1 { "Notification " (entry.offset) }
        dl.cards {
            (card("Came in", moment(&entry.received_at), entry.kind))
            (card("Size", maud::display(Size(entry.bytes as u64)), ""))
            (card("webhook-id", html! { code { (found.id) } }, "the same on every attempt"))
        }
        section aria-labelledby="sent" {
            h2 id="sent" { "Sent with it" }
            dl.pairs {
                dt { "Content-Type" } dd { code { (entry.content_type) } }
                @for (relation, target) in found.links() { dt { "Link, " (relation) } dd { code { (target) } } }
            }
        }
        section aria-labelledby="body" {
            h2 id="body" { "Content" }
            @match found.text() {
                Some(("", _)) => p.empty { "It is empty." },
                Some((text, all)) => {
                    pre.payload tabindex="0" role="region" aria-label="Text of the notification" { (text) }
                    @if !all { p.hint { "This is only its beginning. The download has all of it." } }
                }
                None => p.empty { "This is not text." },
            }
            p.more { a href={ (place(entry.offset)) "/content" } download { "Download (" (Size(entry.bytes as u64)) ")" } }
        }
        nav.choice aria-label="Notifications beside it" {
            ul {
                @if let Some(previous) = found.previous { li { a rel="prev" href=(place(previous)) { "Notification " (previous) } } }
                @if let Some(next) = found.next { li { a rel="next" href=(place(next)) { "Notification " (next) } } }
            }
        }
    }
}
