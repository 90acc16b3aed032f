//! Compresses documents for clients that accept gzip, a few of them at once.
//!
//! A document is compressed while it is sent, so that asking again and again costs work each time. Only [`AT_ONCE`] documents are compressed
//! at the same time; whoever asks for one more gets it as it is. A client that reads slowly holds its place no longer than the
//! server's least rate lets it.

use std::{
    io::Write as _,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    response::Response,
};
use flate2::{Compression, write::GzEncoder};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, VARY},
};
use http_body::Frame;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Documents that are compressed at once. Each takes about 300 KiB of memory, and all together no more than so many processors.
const AT_ONCE: usize = 4;

static COMPRESSIONS: Semaphore = Semaphore::const_new(AT_ONCE);

/// Whether a client accepts gzip, according to its `Accept-Encoding`. A star is for the codings that are not named (RFC 9110, section
/// 12.5.3).
pub(super) fn is_taken(headers: &HeaderMap) -> bool {
    let weight = weight_of(headers, &["gzip", "x-gzip"]).or_else(|| weight_of(headers, &["*"]));
    weight.is_some_and(|weight| weight > 0.0)
}

/// The weight of the first coding that has one of these names; 0 where it is not understood.
fn weight_of(headers: &HeaderMap, names: &[&str]) -> Option<f32> {
    let values = headers.get_all(ACCEPT_ENCODING).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).find_map(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next()?;
        let weight = parts.find_map(|part| part.strip_prefix(['q', 'Q'])?.strip_prefix('='));
        let is_named = names.iter().any(|known| name.eq_ignore_ascii_case(known));
        is_named.then(|| weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
    })
}

/// Compresses a response that is accepted so and has the whole content, unless too many are being compressed. Caches distinguish both
/// forms, and the tag of the compressed one is weak.
pub(super) fn offer(response: Response, is_taken: bool) -> Response {
    offer_within(&COMPRESSIONS, response, is_taken)
}

fn offer_within(compressions: &'static Semaphore, mut response: Response, is_taken: bool) -> Response {
    let status = response.status();
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if !is_taken || status != StatusCode::OK {
        return response;
    }
    let Ok(permit) = compressions.try_acquire() else { return response };
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.remove(CONTENT_LENGTH);
    headers.remove(ACCEPT_RANGES);
    let weak = headers.get(ETAG).map(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()));
    if let Some(Ok(tag)) = weak {
        headers.insert(ETAG, tag);
    }
    response.map(|plain| {
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Body::new(Gzip { plain, encoder: Some((encoder, permit)) })
    })
}

/// A body that is compressed while it is sent.
struct Gzip {
    plain: Body,
    /// `None` at the end, when another document may be compressed.
    encoder: Option<(GzEncoder<Vec<u8>>, SemaphorePermit<'static>)>,
}

impl http_body::Body for Gzip {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            let Some((mut encoder, permit)) = self.encoder.take() else { return Poll::Ready(None) };
            let frame = match Pin::new(&mut self.plain).poll_frame(context) {
                Poll::Pending => {
                    self.encoder = Some((encoder, permit));
                    return Poll::Pending;
                }
                Poll::Ready(frame) => frame.transpose()?,
            };
            let Some(frame) = frame else {
                let rest = encoder.finish().map_err(axum::Error::new)?;
                return Poll::Ready(Some(Ok(Frame::data(rest.into()))));
            };
            if let Ok(data) = frame.into_data() {
                encoder.write_all(&data).map_err(axum::Error::new)?;
            }
            let written = std::mem::take(encoder.get_mut());
            self.encoder = Some((encoder, permit));
            if !written.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(written.into()))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_taken_by_its_name_or_else_by_a_star_and_not_with_a_weight_of_0() {
        let takes = |value: &'static str| {
            is_taken(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(takes("gzip") && takes("br, GZIP;q=0.5") && takes("*"));
        assert!(!takes("br") && !takes("gzip;q=0") && !takes("gzip; q=0.0, br") && !takes("gzip;q=x"));
        assert!(!takes("gzip;q=0, *") && !takes("*, x-gzip;Q=0") && !takes("*;Q=0"));
        assert!(takes("*;q=0, gzip") && takes("gzip;Q=1, identity;q=0"));
        assert!(!is_taken(&HeaderMap::new()));
    }

    #[tokio::test]
    async fn where_enough_documents_are_being_compressed_the_next_is_sent_as_it_is() {
        static ONE: Semaphore = Semaphore::const_new(1);
        let offered = || offer_within(&ONE, Response::new(Body::from("a list")), true);
        let is_compressed = |response: &Response| response.headers().contains_key(CONTENT_ENCODING);
        let first = offered();
        let second = offered();
        assert!(is_compressed(&first) && !is_compressed(&second));
        assert_eq!(second.headers()[VARY], "accept-encoding");
        assert_eq!(axum::body::to_bytes(second.into_body(), 100).await.unwrap(), "a list");

        axum::body::to_bytes(first.into_body(), 100).await.unwrap();
        let third = offered();
        assert!(is_compressed(&third), "the first is sent");
        drop(third);
        assert!(is_compressed(&offered()), "its client has gone");
    }
}
