//! Request bodies: bounded in size, in time, and in what all of them together take.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::reply::{later, refuse};
use crate::topics::{BodyBudget, Reserved};

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a body waits for others to leave room.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// When a client should come back for whose body there was no room.
const ROOM_RETRY: u64 = 5;

/// Reads a body of at most `limit` bytes. Its room in the budget grows with what has really arrived, so that a client which
/// sends nothing holds nothing.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
    budget: &BodyBudget,
) -> Result<(Bytes, Reserved), Response> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    match timeout(BODY_TIMEOUT, collect(body, limit, budget)).await {
        Ok(read) => read,
        Err(_) => {
            Err(refuse(StatusCode::REQUEST_TIMEOUT, format_args!("no complete body within {BODY_TIMEOUT:?}")))
        }
    }
}

async fn collect(mut body: Body, limit: usize, budget: &BodyBudget) -> Result<(Bytes, Reserved), Response> {
    let (mut read, mut room) = (BytesMut::new(), budget.reserve());
    while let Some(frame) = body.frame().await {
        let broken = |_| refuse(StatusCode::BAD_REQUEST, "the body ended before it was complete");
        let Ok(data) = frame.map_err(broken)?.into_data() else { continue };
        let length = read.len() + data.len();
        if length > limit {
            return Err(too_large(limit));
        }
        let spent =
            |why| later(StatusCode::SERVICE_UNAVAILABLE, ROOM_RETRY, format_args!("{why}: try again"));
        room.grow_to(length, ROOM_TIMEOUT).await.map_err(spent)?;
        read.extend_from_slice(&data);
    }
    Ok((read.freeze(), room))
}

fn too_large(limit: usize) -> Response {
    refuse(StatusCode::PAYLOAD_TOO_LARGE, format_args!("the body is larger than {limit} bytes"))
}
