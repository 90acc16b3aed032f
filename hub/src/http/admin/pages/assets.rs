//! What the pages are dressed in. It is part of the program, so that nothing has to be installed or fetched.

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};

use super::super::AdminState;

// The version is in their names, so that no browser dresses the pages of a new hub in what it kept of the old one.
pub(super) const STYLE: &str = concat!("/assets/style-", env!("CARGO_PKG_VERSION"), ".css");
pub(super) const LIVE: &str = concat!("/assets/live-", env!("CARGO_PKG_VERSION"), ".js");
pub(super) const ICON: &str = concat!("/assets/icon-", env!("CARGO_PKG_VERSION"), ".svg");

pub(super) fn routes() -> Router<AdminState> {
    let served = |kind, content| get(move || async move { serve(kind, content) });
    Router::new()
        .route(STYLE, served("text/css; charset=utf-8", include_str!("style.css")))
        .route(LIVE, served("text/javascript; charset=utf-8", include_str!("live.js")))
        .route(ICON, served("image/svg+xml", include_str!("icon.svg")))
}

fn serve(kind: &'static str, content: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CACHE_CONTROL, HeaderValue::from_static("max-age=3600")),
    ];
    (headers, content).into_response()
}
