//! The pages: what the admin API shows and does, for a person. They need no script, and are livelier with one.
//!
//! The operator's token opens a session (`session`). Every page is made here as a whole (`layout`), by a template engine
//! that escapes all values: URLs and other texts that strangers chose never become markup.

mod assets;
mod audit;
mod cluster;
mod commands;
mod deliveries;
mod events;
mod form;
mod layout;
mod login;
mod missed;
mod notification;
mod overview;
mod plot;
mod publishers;
mod session;
mod subscription;
mod subscriptions;
mod topics;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize;
use url::form_urlencoded;

pub use session::Sessions;

use self::session::Session;
use super::AdminState;
use super::problem::status;
use crate::admin::Failed;
use crate::http::layout::{card, moment, table};

/// The pages, their styles and their script.
pub(super) fn routes(state: &AdminState) -> Router<AdminState> {
    Router::new()
        .route("/", get(overview::show))
        .route("/events", get(events::stream))
        .route("/topics", get(topics::list))
        .route("/topics/{topic}", get(topics::show))
        .route("/topics/{topic}/notifications/{offset}", get(notification::show))
        .route("/topics/{topic}/notifications/{offset}/content", get(notification::content))
        .route("/subscriptions", get(subscriptions::list))
        .route("/subscriptions/{subscription}", get(subscription::show))
        .route("/deliveries", get(deliveries::show))
        .route("/publishers", get(publishers::list).post(publishers::add))
        .route("/audit", get(audit::list))
        .route("/act", post(commands::command))
        .route("/login", get(login::ask).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route_layer(from_fn_with_state(state.sessions.clone(), session::keep_alive))
        .merge(assets::routes())
        .fallback(|| async {
            layout::error(StatusCode::NOT_FOUND, None, "There is no such page. Health is at /livez and /readyz, metrics are at /metrics, the API is at /api/v1.")
        })
}

/// What became of a command that led to this page.
#[derive(Debug, Default, Deserialize)]
struct Notice {
    done: Option<String>,
    of: Option<u64>,
}

impl Notice {
    /// One of our own sentences: a link cannot bring in other text.
    fn text(&self) -> Markup {
        let some = |one: &str, many: &str| match self.of {
            Some(1) => format!("One subscription {one}."),
            number => format!("{} subscriptions {many}.", number.unwrap_or_default()),
        };
        let text = match self.done.as_deref() {
            Some("retry") => some("is tried again now", "are tried again now"),
            Some("replay") => some("gets it once more", "get it once more"),
            Some("skip") => "The next notification is given up for this subscription.".to_owned(),
            Some("pause") => {
                "Nothing of this topic is delivered until you resume it. New notifications wait in the log."
                    .to_owned()
            }
            Some("resume") => "Deliveries of this topic are resumed.".to_owned(),
            Some("deny") => some(
                "has ended, and its callback is notified",
                "have ended, and their callbacks are notified",
            ),
            Some("address") => "Its page has the address below now. The old one no longer works.".to_owned(),
            Some("token revoke") => "The token is revoked.".to_owned(),
            _ => return html! {},
        };
        html! { p.notice role="status" { (text) } }
    }
}

/// The page that says what failed.
fn failed(session: &Session, failed: &Failed) -> Response {
    layout::error(status(failed), Some(session), &sentence(failed))
}

/// What failed, for a person.
fn sentence(failed: &Failed) -> String {
    if let Failed::Unknown(what) = failed {
        return format!("There is no such {what} (any more).");
    }
    let text = failed.to_string();
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase).into_iter().flatten();
    first.chain(letters).collect()
}

/// The link to the next page of a list, whose path may have a query.
fn more(next: Option<&String>, path: &str) -> Markup {
    let mark = if path.contains('?') { '&' } else { '?' };
    html! {
        @if let Some(next) = next {
            p.more { a rel="next" href={ (path) (mark) "after=" (next) } { "More" } }
        }
    }
}

/// A path with those of these parameters that have a value.
fn query<const N: usize>(path: &str, parameters: [(&str, Option<&str>); N]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters.into_iter().filter_map(|(name, value)| Some((name, value?))));
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// What is sought, if anything is.
fn text_of(field: Option<String>) -> Option<String> {
    field.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The form that searches a list.
fn search(path: &str, label: &str, text: Option<&str>) -> Markup {
    html! {
        form.search role="search" action=(path) {
            label for="q" { (label) }
            div.field {
                input id="q" name="q" type="search" value=[text] autocomplete="off" spellcheck="false";
                button { "Search" }
            }
        }
    }
}

/// The identity of a notification, which leads to its page.
fn notification_link(id: &str) -> Markup {
    html! {
        @match id.split_once('.') {
            Some((topic, offset)) => a href={ "/topics/" (topic) "/notifications/" (offset) } { code { (id) } },
            None => code { (id) },
        }
    }
}
