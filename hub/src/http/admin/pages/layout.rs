//! What all pages share: the frame and the navigation.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};

use super::assets;
use super::session::Session;
use crate::http::layout::frame::Frame;

/// The name of the field with the CSRF token of the session.
pub(super) const CSRF_FIELD: &str = "csrf_token";

/// The sections of the pages, in the order of the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Topics,
    Subscriptions,
    Deliveries,
    Publishers,
    Audit,
}

impl Section {
    const ALL: [(Self, &'static str, &'static str); 6] = [
        (Self::Overview, "/", "Overview"),
        (Self::Topics, "/topics", "Topics"),
        (Self::Subscriptions, "/subscriptions", "Subscriptions"),
        (Self::Deliveries, "/deliveries", "Deliveries"),
        (Self::Publishers, "/publishers", "Publishers"),
        (Self::Audit, "/audit", "Audit log"),
    ];
}

/// A page for a session.
pub(super) fn page(session: &Session, section: Section, title: &str, content: &Markup) -> Response {
    send(StatusCode::OK, Some((session, Some(section))), title, content)
}

/// A page that says what went wrong, and what would be right.
pub(super) fn error(status: StatusCode, session: Option<&Session>, why: &str) -> Response {
    let title = status.canonical_reason().unwrap_or("Error");
    let content = html! {
        h1 { (title) }
        p.notice.bad role="alert" { (why) }
        p { a href="/" { "To the overview" } }
    };
    send(status, session.map(|session| (session, None)), title, &content)
}

/// A page without a session.
pub(super) fn outside(status: StatusCode, title: &str, content: &Markup) -> Response {
    send(status, None, title, content)
}

fn send(
    status: StatusCode,
    who: Option<(&Session, Option<Section>)>,
    title: &str,
    content: &Markup,
) -> Response {
    let frame = Frame {
        style: assets::STYLE,
        icon: assets::ICON,
        head: html! { @if who.is_some() { script src=(assets::LIVE) defer {} } },
        home: "/",
        navigation: html! { @if let Some((session, section)) = who { (navigation(session, section)) } },
        has_times: who.is_some(),
    };
    frame.send(status, title, content)
}

fn navigation(session: &Session, section: Option<Section>) -> Markup {
    html! {
        nav aria-label="Main" {
            ul {
                @for (of, path, name) in Section::ALL {
                    li { a href=(path) aria-current=[(section == Some(of)).then_some("page")] { (name) } }
                }
            }
        }
        form.out method="post" action="/logout" {
            (csrf_field(session))
            button.plain { "Log out" }
        }
    }
}

/// The field that shows that a form is of this session.
pub(super) fn csrf_field(session: &Session) -> Markup {
    html! { input type="hidden" name=(CSRF_FIELD) value=(session.csrf_token); }
}
