//! Request bodies, with limits for size, pace and the memory of all together.

use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use resync_common::pace::Pace;
use resync_common::words::Size;
use tokio::time::{Instant, timeout_at};

use super::reply::{later, refuse};
use crate::topics::{BodyBudget, BudgetExhausted, FormBudget, Reservation};

/// How long a body waits for memory.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// `Retry-After` when the memory for bodies is used up.
const ROOM_RETRY: u64 = 5;
/// Bytes of each body that do not count for the budget, since the number of connections limits them. So slow clients with large
/// bodies hold up no small ones.
const FREE: usize = 4 * 1_024;

/// The limits of bodies.
#[derive(Clone, Debug)]
pub struct Bodies {
    /// How slowly they may come in.
    pub pace: Pace,
    /// The memory for posted content.
    pub posts: BodyBudget,
    /// The memory for forms.
    pub forms: FormBudget,
}

/// Reads a body of at most `limit` bytes. Its memory is added to `room` as it arrives, so that a client which sends nothing holds nothing.
///
/// # Errors
/// [`Unread`]
pub(super) async fn read(
    headers: &HeaderMap,
    mut body: Body,
    limit: usize,
    pace: Pace,
    mut room: Reservation,
) -> Result<(Bytes, Reservation), Unread> {
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(Unread::TooLarge(limit));
    }
    let (mut read, mut deadline) = (BytesMut::new(), pace.latest());
    loop {
        let frame = match timeout_at(deadline, body.frame()).await {
            Ok(None) => return Ok((read.freeze(), room)),
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err(Unread::Cut),
            Err(_) => return Err(Unread::TooSlow(pace)),
        };
        let Ok(data) = frame.into_data() else { continue };
        let length = read.len() + data.len();
        if length > limit {
            return Err(Unread::TooLarge(limit));
        }
        let waits_since = Instant::now();
        room.grow_to(length.saturating_sub(FREE), ROOM_TIMEOUT).await?;
        // The client is not to blame for others.
        deadline = pace.extend(deadline + waits_since.elapsed(), data.len());
        read.extend_from_slice(&data);
    }
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum Unread {
    /// It is larger than so many bytes.
    #[error("the body is larger than {}", Size(*.0 as u64))]
    TooLarge(usize),
    /// Its client hung up, or it is malformed.
    #[error("the body ended before it was complete")]
    Cut,
    /// It came more slowly than this.
    #[error(
        "the body came too slowly: it may pause for {:?} in all, plus one second per {} bytes",
        .0.patience, .0.bytes_per_second
    )]
    TooSlow(Pace),
    /// The memory for bodies is used up.
    #[error("{0}: try again")]
    NoRoom(#[from] BudgetExhausted),
}

impl Unread {
    /// The status of the answer to give.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Cut => StatusCode::BAD_REQUEST,
            Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::NoRoom(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl IntoResponse for Unread {
    fn into_response(self) -> Response {
        match self {
            Self::NoRoom(_) => later(self.status(), ROOM_RETRY, self),
            _ => refuse(self.status(), self),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::stream::{self, StreamExt};

    use super::*;

    const PACE: Pace = Pace { patience: Duration::from_secs(10), bytes_per_second: 1_000 };

    async fn taken(headers: &HeaderMap, body: Body, limit: usize) -> Result<(Bytes, Reservation), Unread> {
        read(headers, body, limit, PACE, BodyBudget::new(1 << 20).reserve()).await
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
        assert_eq!(taken(&HeaderMap::new(), steady, 1 << 20).await.unwrap().0.len(), 100_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_refused_when_its_time_is_over() {
        let begun = Instant::now();
        let slow = dripping(1_000, Duration::from_secs(5));
        let refused = taken(&HeaderMap::new(), slow, 1 << 20).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(begun.elapsed() < Duration::from_secs(11));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_came_fast_and_then_drips_is_not_kept_for_what_it_has_earned() {
        let begun = Instant::now();
        let fast = stream::iter([Ok::<_, Infallible>(Bytes::from(vec![b'x'; 500_000]))]);
        let slow = dripping(1_000, Duration::from_secs(5)).into_data_stream().map(|piece| Ok(piece.unwrap()));
        let refused =
            taken(&HeaderMap::new(), Body::from_stream(fast.chain(slow)), 1 << 20).await.unwrap_err();
        assert_eq!(refused.status(), StatusCode::REQUEST_TIMEOUT);
        assert!(begun.elapsed() < Duration::from_secs(12), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_body_holds_what_has_come_and_small_ones_pass_when_all_is_held() {
        let budget = BodyBudget::new(16 * 1_024);
        let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
        let sent = stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|piece| (Ok::<_, Infallible>(piece), receiver))
        });
        let headers = HeaderMap::from_iter([(CONTENT_LENGTH, (1 << 20).into())]);
        let slow_room = budget.reserve();
        let slow = tokio::spawn(async move {
            read(&headers, Body::from_stream(sent), 1 << 20, PACE, slow_room).await.is_ok()
        });
        let piece = |bytes: usize| sender.send(Bytes::from(vec![b'x'; bytes])).unwrap();
        piece(4 * 1_024);
        tokio::task::yield_now().await;
        let take = async |bytes: usize| {
            let body = Body::from(vec![b'x'; bytes]);
            read(&HeaderMap::new(), body, 1 << 20, PACE, budget.reserve())
                .await
                .map(|(body, _)| body.len())
                .is_ok()
        };
        assert!(take(20 * 1_024).await, "what is only announced holds nothing");
        piece(16 * 1_024);
        while budget.reserve().grow_to(1, Duration::ZERO).await.is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(take(4 * 1_024).await, "a usual form needs no room");
        drop(sender);
        assert!(slow.await.unwrap());
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_refused_announced_or_not() {
        let announced = HeaderMap::from_iter([(CONTENT_LENGTH, 11.into())]);
        for headers in [announced, HeaderMap::new()] {
            let refused = taken(&headers, Body::from("hello world"), 10).await.unwrap_err();
            assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
    }
}
