//! The frame around the content of every page.

use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use super::mark;

/// What differs between the operator's pages and the subscribers'.
pub(in crate::http) struct Frame<'f> {
    /// Where the style sheet is.
    pub(in crate::http) style: &'f str,
    /// Where the icon of the tab is.
    pub(in crate::http) icon: &'f str,
    /// What else belongs into the head.
    pub(in crate::http) head: Markup,
    /// Where the name at the top leads.
    pub(in crate::http) home: &'f str,
    /// What is beside the name.
    pub(in crate::http) navigation: Markup,
    /// Whether a page may show times.
    pub(in crate::http) has_times: bool,
}

impl Frame<'_> {
    /// The whole page.
    pub(in crate::http) fn send(&self, status: StatusCode, title: &str, content: &Markup) -> Response {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · resync-hub" }
                    link rel="stylesheet" href=(self.style);
                    link rel="icon" type="image/svg+xml" href=(self.icon);
                    (self.head)
                }
                body {
                    a.skip href="#content" { "Skip to the content" }
                    header {
                        div.bar {
                            a.brand href=(self.home) { (mark()) "resync-hub" }
                            (self.navigation)
                        }
                    }
                    main id="content" { (content) }
                    footer { p { "resync-hub " (env!("CARGO_PKG_VERSION")) @if self.has_times { " · times are in UTC" } } }
                }
            }
        };
        (status, Html(page.0)).into_response()
    }
}
