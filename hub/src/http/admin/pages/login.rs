//! The login page, which takes the operator's token.

use std::net::SocketAddr;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::SET_COOKIE;
use http::{HeaderValue, StatusCode};
use maud::{Markup, html};
use tracing::warn;

use super::form::{Form, fields};
use super::{AdminState, layout, sentence};
use crate::http::admin::auth::NotAdmitted;

pub(super) async fn ask() -> Response {
    layout::outside(StatusCode::OK, "Log in", &form(None))
}

pub(super) async fn log_in(
    State(state): State<AdminState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request<Body>,
) -> Response {
    let (head, body) = request.into_parts();
    let fields = match fields(&state, &head.headers, body).await {
        Ok(fields) => fields,
        Err(refusal) => return refusal,
    };
    let shown = fields.iter().find(|(name, _)| name == "token").map_or("", |(_, token)| token.as_str());
    // Only forms of our own pages count: other sites cannot use up the limit of wrong tokens.
    if let Err(error) = state.auth.check(shown, peer.ip(), Instant::now()) {
        let (status, why) = match error {
            NotAdmitted::Wrong => (StatusCode::FORBIDDEN, "Wrong admin token."),
            NotAdmitted::TooMany(_) => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many wrong tokens came from your address. Try again in a minute.",
            ),
        };
        return layout::outside(status, "Log in", &form(Some(why)));
    }
    if let Err(error) = state.service.logged_in().await {
        return layout::outside(StatusCode::SERVICE_UNAVAILABLE, "Log in", &form(Some(&sentence(&error))));
    }
    with_cookie(&state.sessions.begin(), "/")
}

pub(super) async fn log_out(State(state): State<AdminState>, form: Form) -> Response {
    match state.sessions.end(&form.session).await {
        Ok(cookie) => with_cookie(&cookie, "/login"),
        Err(error) => {
            warn!(%error, "a session of the admin pages was not ended");
            let why = "You are still logged in, since the log-out could not be saved. Try again.";
            layout::error(StatusCode::SERVICE_UNAVAILABLE, Some(&form.session), why)
        }
    }
}

fn with_cookie(cookie: &str, to: &str) -> Response {
    let mut response = Redirect::to(to).into_response();
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn form(why: Option<&str>) -> Markup {
    html! {
        div.login {
            h1 { "Log in" }
            @if let Some(why) = why { p.notice.bad role="alert" { (why) } }
            form method="post" action="/login" {
                label for="token" { "The operator's token" }
                input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
                p.hint { "It is in the file " code { "admin-token" } " of the hub's data folder." }
                button { "Log in" }
            }
        }
    }
}
