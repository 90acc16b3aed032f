//! Forms of the pages: only those that a session sent from one of our pages are read.

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use resync_core::websub::is_form;
use subtle::ConstantTimeEq;
use url::form_urlencoded;

use super::super::AdminState;
use super::layout::{self, CSRF_FIELD};
use super::session::Session;
use crate::http::body;
use crate::http::same_site::is_from_here;

/// No form of ours is larger.
const FORM_LIMIT: usize = 64 * 1024;

/// The fields of a form that a session sent from one of our pages.
pub(super) struct Form {
    pub(super) session: Session,
    fields: Vec<(String, String)>,
}

impl Form {
    /// The value of a field; `None` if it is empty.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }
}

impl FromRequest<AdminState> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, state: &AdminState) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let session = Session::from_request_parts(&mut parts, state).await?;
        let fields = fields(state, &parts.headers, body).await?;
        let token =
            fields.iter().find(|(name, _)| name == CSRF_FIELD).map_or("", |(_, value)| value.as_str());
        if !bool::from(token.as_bytes().ct_eq(session.csrf_token.as_bytes())) {
            return Err(refused(
                "This form belongs to an older session: go back, reload the page and try again.",
            ));
        }
        Ok(Self { session, fields })
    }
}

/// The fields of a form that comes from a page of this listener.
pub(super) async fn fields(
    state: &AdminState,
    headers: &HeaderMap,
    body: Body,
) -> Result<Vec<(String, String)>, Response> {
    if !is_from_here(headers, None) {
        return Err(refused("This form was sent by another site."));
    }
    if !headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(is_form) {
        return Err(refused("This is not a form."));
    }
    match body::read(headers, body, FORM_LIMIT, state.pace, state.bodies.reserve()).await {
        Ok((body, _room)) => Ok(form_urlencoded::parse(&body).into_owned().collect()),
        Err(unread) => {
            Err(layout::error(unread.status(), None, &format!("The form cannot be read: {unread}.")))
        }
    }
}

fn refused(why: &str) -> Response {
    layout::error(StatusCode::FORBIDDEN, None, why)
}
