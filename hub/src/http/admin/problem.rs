//! Errors of the admin API as RFC 9457 has them.

use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tracing::{debug, error};
use utoipa::ToSchema;

use super::super::reply::json;
use crate::admin::Failed;

/// What says that an answer is a problem.
pub(super) const MEDIA_TYPE: &str = "application/problem+json";
/// `Retry-After` when the store refused, in seconds.
const STORE_RETRY: u64 = 10;

/// Why a request was not served.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The status.
    status: u16,
    /// What was wrong, and what would be right.
    detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl std::fmt::Display) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        Self { kind: "about:blank", title, status: status.as_u16(), detail: detail.to_string() }
    }
}

impl From<Failed> for Problem {
    fn from(failed: Failed) -> Self {
        let status = status(&failed);
        if status.is_server_error() {
            error!(error = %failed, "admin request failed");
        } else {
            debug!(status = status.as_u16(), "admin request refused");
        }
        Self::new(status, failed)
    }
}

/// What a failure means for a client.
pub(super) fn status(failed: &Failed) -> StatusCode {
    match failed {
        Failed::Asked(_) => StatusCode::BAD_REQUEST,
        Failed::Unknown(_) => StatusCode::NOT_FOUND,
        Failed::Conflict(_) => StatusCode::CONFLICT,
        Failed::Store(_)
        | Failed::Partly { .. }
        | Failed::Stopped(_)
        | Failed::Elsewhere(_)
        | Failed::NotOwned(_)
        | Failed::DoneHere { .. }
        | Failed::Audit(_)
        | Failed::Backup(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, &self);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from(STORE_RETRY));
        }
        response
    }
}
