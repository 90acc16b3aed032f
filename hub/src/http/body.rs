//! Request bodies: bounded in size, in pace, and in what all of them together take.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, timeout_at};

use super::reply::{later, refuse};
use crate::topics::{BodyBudget, Reserved};

/// How long a body waits for others to leave room.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// When a client should come back for whose body there was no room.
const ROOM_RETRY: u64 = 5;

/// How slowly a body may come in.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Every body may take so long …
    pub patience: Duration,
    /// … and a second for so many bytes.
    pub bytes_per_second: u64,
}

/// What bodies may cost.
#[derive(Clone, Debug)]
pub struct Bodies {
    /// How slowly they may come in.
    pub pace: Pace,
    /// What they may take in memory.
    pub budget: BodyBudget,
}

impl Pace {
    /// When the next bytes must have come, with so many here already.
    fn deadline(self, begun: Instant, seen: usize) -> Instant {
        let earned =
            Duration::from_millis((seen as u64).saturating_mul(1_000) / self.bytes_per_second.max(1));
        begun + self.patience + earned
    }
}

/// Reads a body of at most `limit` bytes. Its room in the budget grows with what has really arrived, so that a client which
/// sends nothing holds nothing.
///
/// # Errors
/// The answer to give: 413, 408, 400, or 503 for want of room.
pub(super) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    limit: usize,
    bodies: &Bodies,
) -> Result<(Bytes, Reserved), Response> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    let (mut read, mut room) = (BytesMut::new(), bodies.budget.reserve());
    let mut begun = Instant::now();
    loop {
        let frame = match timeout_at(bodies.pace.deadline(begun, read.len()), body.frame()).await {
            Ok(None) => return Ok((read.freeze(), room)),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => {
                return Err(refuse(StatusCode::BAD_REQUEST, "the body ended before it was complete"));
            }
            Err(_) => return Err(too_slow(bodies.pace)),
        };
        let Ok(data) = frame.into_data() else { continue };
        let length = read.len() + data.len();
        if length > limit {
            return Err(too_large(limit));
        }
        let spent =
            |why| later(StatusCode::SERVICE_UNAVAILABLE, ROOM_RETRY, format_args!("{why}: try again"));
        let waits_since = Instant::now();
        room.grow_to(length, ROOM_TIMEOUT).await.map_err(spent)?;
        // The client is not to blame for others.
        begun += waits_since.elapsed();
        read.extend_from_slice(&data);
    }
}

fn too_large(limit: usize) -> Response {
    refuse(StatusCode::PAYLOAD_TOO_LARGE, format_args!("the body is larger than {limit} bytes"))
}

fn too_slow(Pace { patience, bytes_per_second }: Pace) -> Response {
    let why = format_args!(
        "the body came too slowly: it may take {patience:?} and a second for each {bytes_per_second} bytes"
    );
    refuse(StatusCode::REQUEST_TIMEOUT, why)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::{self, StreamExt};

    use super::*;

    const PACE: Pace = Pace { patience: Duration::from_secs(10), bytes_per_second: 1_000 };

    fn bodies() -> Bodies {
        Bodies { pace: PACE, budget: BodyBudget::new(1 << 20) }
    }

    /// A body that sends a piece of 100 bytes after every pause.
    fn dripping(pieces: usize, pause: Duration) -> Body {
        Body::from_stream(stream::iter(0..pieces).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 100]))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_at_a_decent_pace_may_take_longer_than_the_patience() {
        let steady = dripping(1_000, Duration::from_millis(100));
        assert_eq!(read(&HeaderMap::new(), steady, 1 << 20, &bodies()).await.unwrap().0.len(), 100_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_refused_when_its_time_is_over() {
        let begun = Instant::now();
        let slow = dripping(1_000, Duration::from_secs(5));
        let refused = read(&HeaderMap::new(), slow, 1 << 20, &bodies()).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(begun.elapsed() < Duration::from_secs(11));
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_refused_announced_or_not() {
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, 11.into())]);
        for headers in [announced, HeaderMap::new()] {
            let refused = read(&headers, Body::from("hello world"), 10, &bodies()).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
}
