//! Answers: plain text for developers (W-088), JSON for programs.

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tracing::{debug, error};

use super::limits::TooMany;
use crate::store::StoreError;

/// `Retry-After` when the store refused a write.
const STORE_RETRY: u64 = 10;

/// A short text, ended by a newline so that it reads well in a terminal.
pub(super) fn text(status: StatusCode, text: impl std::fmt::Display) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, format!("{text}\n")).into_response()
}

/// 405 with what is allowed, and what else may help.
pub(super) fn method_not_allowed(allowed: &'static str, hint: &str) -> Response {
    let mut response =
        text(StatusCode::METHOD_NOT_ALLOWED, format_args!("only {allowed} can be used here{hint}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// An answer that asks to come back later.
pub(super) fn later(status: StatusCode, seconds: u64, why: impl std::fmt::Display) -> Response {
    let mut response = text(status, why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// The answer to a request beyond a rate limit.
pub(super) fn too_many(early: TooMany) -> Response {
    later(StatusCode::TOO_MANY_REQUESTS, early.seconds(), early)
}

/// An answer that says what was wrong with the request, and what would be right.
pub(super) fn refuse(status: StatusCode, why: impl std::fmt::Display) -> Response {
    debug!(status = status.as_u16(), "request refused");
    text(status, why)
}

/// The store does not work: nothing was acknowledged, and the client can try again.
pub(super) fn unavailable(error: &StoreError) -> Response {
    match error {
        // The store logs its own trouble once, not for each request.
        StoreError::Full { .. }
        | StoreError::Busy
        | StoreError::Write(_)
        | StoreError::Away(_)
        | StoreError::Unknown(_)
        | StoreError::NotDurable(_)
        | StoreError::EarlierPoint => {
            debug!(%error, "request not accepted: the store is full, busy or away");
        }
        _ => error!(%error, "request failed: the store does not work"),
    }
    later(StatusCode::SERVICE_UNAVAILABLE, STORE_RETRY, "the hub cannot use its store now: try again")
}

/// A value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    match serde_json::to_vec(value) {
        Ok(bytes) => (status, headers, bytes).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}
