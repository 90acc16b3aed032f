//! The operator's listener: health and metrics for everybody who may reach it, the admin API and the pages behind a token.

mod api;
mod auth;
mod openapi;
mod pages;
mod parameters;
mod pipe;
mod problem;
mod token;

use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use resync_common::pace::Pace;
use serde::Deserialize;
use tokio::sync::watch;

use super::page_headers::page_headers;
use super::reply::text;
use crate::admin::AdminService;
use crate::liveness::Liveness;
use crate::metrics::{self, Metrics};
use crate::topics::BodyBudget;

pub use auth::Authentication;
pub use pages::Sessions;
pub use token::AdminToken;

/// What the operator's listener shows.
#[derive(Clone, Debug)]
pub struct AdminState {
    /// What may be seen and done.
    pub service: AdminService,
    /// Who may.
    pub auth: Authentication,
    /// Sessions of the pages.
    pub sessions: Sessions,
    /// Metrics.
    pub metrics: Metrics,
    /// How slowly bodies may come in.
    pub pace: Pace,
    /// Their memory.
    pub bodies: BodyBudget,
    /// Whether the hub's parts answer.
    pub liveness: Liveness,
    /// How long a reader of a backup may pause.
    pub backup_timeout: Duration,
    /// Turns true when the hub stops.
    pub stopped: watch::Receiver<bool>,
}

/// The operator's routes.
pub fn admin(state: AdminState) -> Router {
    Router::new()
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .route("/identity", get(identity))
        .route("/metrics", get(metrics))
        .nest(parameters::BASE, api::routes(&state))
        .merge(pages::routes(&state))
        .with_state(state)
        .layer(map_response(guarded))
}

/// Bytes of a challenge.
const SHORTEST_CHALLENGE: usize = 16;
const LONGEST_CHALLENGE: usize = 128;
/// Pages load only from this listener, send nothing elsewhere, and cannot be framed.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

async fn guarded(mut answer: Response) -> Response {
    page_headers(&mut answer, POLICY, "same-origin");
    answer
}

/// Fails only after a minute: what asks this restarts the hub.
async fn alive(State(state): State<AdminState>) -> Response {
    match state.liveness.silent() {
        None => text(StatusCode::OK, "alive"),
        Some(part) => {
            text(StatusCode::SERVICE_UNAVAILABLE, format_args!("{part} has not answered for a minute"))
        }
    }
}

async fn ready(State(state): State<AdminState>) -> Response {
    match state.service.unready() {
        None => text(StatusCode::OK, "ready"),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format_args!("not ready: {why}")),
    }
}

/// What a command asks before it shows its token.
#[derive(Deserialize)]
struct ToProve {
    challenge: String,
}

/// Proves which hub this is, so that a command never shows its token to another. Whoever asks can try guesses on the answer for as long
/// as it likes, which only a long token withstands.
async fn identity(State(state): State<AdminState>, Query(asked): Query<ToProve>) -> Response {
    if !(SHORTEST_CHALLENGE..=LONGEST_CHALLENGE).contains(&asked.challenge.len()) {
        return text(StatusCode::BAD_REQUEST, "challenge is a text of 16 to 128 bytes");
    }
    match state.auth.proof(&asked.challenge) {
        Some(proof) => text(StatusCode::OK, proof),
        None => text(
            StatusCode::NOT_FOUND,
            "this hub's admin token is short enough to be guessed from a proof: write a longer one, and start the hub again",
        ),
    }
}

/// No topic and no callback is named in it, so it needs no token.
async fn metrics(State(state): State<AdminState>) -> Response {
    match state.metrics.write() {
        Ok(metrics) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics).into_response(),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}
