//! Updates the open overview with each sample, by server-sent events.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::StatusCode;

use super::session::Session;
use super::{AdminState, overview};
use crate::http::reply::later;

/// When a page beyond these may try again, in seconds.
const RETRY: u64 = 30;

pub(super) async fn stream(State(state): State<AdminState>, session: Session) -> Response {
    let Some(permit) = state.sessions.permit() else {
        return later(StatusCode::SERVICE_UNAVAILABLE, RETRY, "too many pages are open");
    };
    let ticks = state.service.trends.ticks();
    let events = stream::unfold(
        (state, session, ticks, permit),
        |(mut state, session, mut ticks, permit)| async move {
            tokio::select! {
                tick = ticks.changed() => tick.ok()?,
                _ = state.stopped.wait_for(|stopped| *stopped) => return None,
            }
            if !state.sessions.is_in(&session) {
                return None;
            }
            let live = overview::live(&state.service).await.ok()?;
            let event = Event::default().event("overview").data(live.0);
            Some((Ok::<_, Infallible>(event), (state, session, ticks, permit)))
        },
    );
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
