//! Answers in plain text, for developers (W-088).

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

/// A short text, ended by a newline so that it reads well in a terminal.
pub(super) fn text(status: StatusCode, text: impl std::fmt::Display) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, format!("{text}\n")).into_response()
}

/// 405 with what is allowed.
pub(super) fn method_not_allowed(allowed: &'static str) -> Response {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, format_args!("only {allowed} can be used here"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// An answer that asks to come back later.
pub(super) fn later(status: StatusCode, seconds: u64, why: impl std::fmt::Display) -> Response {
    let mut response = text(status, why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}
