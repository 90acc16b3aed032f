//! The layout and styles of all pages. They are part of the program, so that nothing has to be installed or fetched.

pub(super) mod attempts;
pub(super) mod frame;
pub(super) mod table;

use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use maud::{Markup, html};

const STYLE: &str = include_str!("style.css");
const ICON: &str = include_str!("icon.svg");

/// The style sheet.
pub(super) async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

/// The icon of the tab.
pub(super) async fn icon() -> Response {
    asset("image/svg+xml", ICON)
}

/// A part of pages that browsers cache for a while.
pub(super) fn asset(kind: &'static str, content: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("max-age=3600")),
    ];
    (headers, content).into_response()
}

/// The mark beside the name.
fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 24 24" aria-hidden="true" {
            circle cx="12" cy="12" r="4" {}
            path d="M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2" {}
        }
    }
}

/// A time as people read it, with the exact one as a tooltip.
pub(super) fn moment(exact: &str) -> Markup {
    let short = exact.get(..19).map_or_else(|| exact.to_owned(), |short| short.replacen('T', " ", 1));
    html! { time datetime=(exact) { (short) } }
}

/// A number and what it counts, for the cards at the top of a page.
pub(super) fn card(name: &str, value: impl maud::Render, note: impl maud::Render) -> Markup {
    html! { div.card { dt { (name) } dd { strong { (value) } span { (note) } } } }
}
