//! What all pages share: the frame and the navigation.

use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use super::assets;
use super::session::{Session, WORD};
use crate::http::dress::mark;

/// The rooms of the pages, in the order of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Overview,
    Topics,
    Deliveries,
    Publishers,
    Audit,
}

impl Room {
    const ALL: [(Self, &'static str, &'static str); 5] = [
        (Self::Overview, "/", "Overview"),
        (Self::Topics, "/topics", "Topics"),
        (Self::Deliveries, "/deliveries", "Deliveries"),
        (Self::Publishers, "/publishers", "Publishers"),
        (Self::Audit, "/audit", "Audit log"),
    ];
}

/// A page for somebody who is in.
pub(super) fn page(session: &Session, room: Room, title: &str, content: &Markup) -> Response {
    send(StatusCode::OK, frame(Some((session, Some(room))), title, content))
}

/// A page that says what went wrong, and what would be right.
pub(super) fn error(status: StatusCode, session: Option<&Session>, why: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Error");
    let content = html! {
        h1 { (title) }
        p.notice.bad role="alert" { (why) }
        p { a href="/" { "To the overview" } }
    };
    send(status, frame(session.map(|session| (session, None)), title, &content))
}

/// A page for anybody.
pub(super) fn outside(status: StatusCode, title: &str, content: &Markup) -> Response {
    send(status, frame(None, title, content))
}

fn frame(who: Option<(&Session, Option<Room>)>, title: &str, content: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · resync-hub" }
                link rel="stylesheet" href=(assets::STYLE);
                link rel="icon" type="image/svg+xml" href=(assets::ICON);
                @if who.is_some() { script src=(assets::LIVE) defer {} }
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                header {
                    div.bar {
                        a.brand href="/" { (mark()) "resync-hub" }
                        @if let Some((session, room)) = who { (navigation(session, room)) }
                    }
                }
                main id="content" { (content) }
                footer { p { "resync-hub " (env!("CARGO_PKG_VERSION")) @if who.is_some() { " · times are in UTC" } } }
            }
        }
    }
}

fn navigation(session: &Session, room: Option<Room>) -> Markup {
    html! {
        nav aria-label="Main" {
            ul {
                @for (of, path, name) in Room::ALL {
                    li { a href=(path) aria-current=[(room == Some(of)).then_some("page")] { (name) } }
                }
            }
        }
        form.out method="post" action="/logout" {
            (word(session))
            button.plain { "Log out" }
        }
    }
}

/// The field that shows that a form is of this session.
pub(super) fn word(session: &Session) -> Markup {
    html! { input type="hidden" name=(WORD) value=(session.word); }
}

fn send(status: StatusCode, page: Markup) -> Response {
    (status, Html(page.0)).into_response()
}
