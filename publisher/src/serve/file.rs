//! Answers with a file: with tags, conditions and ranges.

use std::{
    fs,
    io::{self, Seek as _, SeekFrom},
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime},
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderValue, Method, StatusCode,
    header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED},
};
use http_body::{Frame, SizeHint};
use httpdate::HttpDate;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf, Take};

use super::{conditions::Validator, opened::Opened, range::Part};

/// A younger file may be modified again within the second of its `Last-Modified`.
const YOUNG: Duration = Duration::from_secs(2);

/// The first second that `Last-Modified` cannot write: the year 10000, since 1970.
const LAST_YEAR_ENDS: Duration = Duration::from_secs(253_402_300_800);

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// A file, streamed; with `ETag`, so that `If-Match`, `If-None-Match` and `If-Range` work to the nanosecond. Times of a second distinguish two versions only if the
/// older one was not young when it was requested (RFC 9110, section 8.8.2.2).
pub(super) fn file(request: &Request, opened: Opened) -> Response {
    let tag = match entity_tag(&opened) {
        Ok(tag) => tag,
        Err(error) => return unreadable(&error, "cannot read a file"),
    };
    let is_young = is_young(opened.modified, SystemTime::now());
    let validator = Validator::with_time(tag, last_modified(opened.modified), is_young);
    file_known_by(&validator, request, opened)
}

/// A file, streamed, whose versions are told apart by `validator`.
pub(super) fn file_known_by(validator: &Validator, request: &Request, opened: Opened) -> Response {
    let tag = validator.entity_tag();
    let mut response = match validator.unsent(request.headers()) {
        Some(status) => status.into_response(),
        None => match content(request, tag, opened) {
            Ok(response) => response,
            Err(error) => return unreadable(&error, "cannot read a file"),
        },
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, tag.clone());
    let modified = validator.last_modified().map(|time| HeaderValue::from_str(&time.to_string()));
    if let Some(Ok(time)) = modified {
        headers.insert(LAST_MODIFIED, time);
    }
    response
}

/// The file or the part of it that is asked for; only `GET` has parts (RFC 9110, section 14.2).
fn content(request: &Request, tag: &HeaderValue, opened: Opened) -> io::Result<Response> {
    let Opened { mut file, length, media_type, .. } = opened;
    let is_get = *request.method() == Method::GET;
    let part = if is_get { Part::of(request.headers(), tag, length) } else { Part::Whole };
    let (status, sent, range) = match part {
        Part::Whole => (StatusCode::OK, length, None),
        Part::Bytes { first, last } => {
            file.seek(SeekFrom::Start(first))?;
            let range = format!("bytes {first}-{last}/{length}");
            (StatusCode::PARTIAL_CONTENT, last - first + 1, Some(range))
        }
        Part::Unsatisfiable => (StatusCode::RANGE_NOT_SATISFIABLE, 0, Some(format!("bytes */{length}"))),
    };
    let body = if is_get && sent > 0 { Body::new(Content::new(file, sent)) } else { Body::empty() };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(sent));
    if let Some(range) = range {
        headers.insert(CONTENT_RANGE, HeaderValue::from_str(&range).map_err(io::Error::other)?);
    }
    Ok(response)
}

/// The body: so many bytes of a file. A file that has become shorter is an error, since the length is promised.
struct Content {
    file: Take<tokio::fs::File>,
    chunk: Box<[u8]>,
}

impl Content {
    /// From where the file stands.
    fn new(file: fs::File, bytes: u64) -> Self {
        let chunk = usize::try_from(bytes).map_or(CHUNK, |bytes| bytes.min(CHUNK));
        let file = tokio::fs::File::from_std(file).take(bytes);
        Self { file, chunk: vec![0; chunk].into() }
    }
}

impl http_body::Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let Self { file, chunk } = &mut *self;
        if file.limit() == 0 {
            return Poll::Ready(None);
        }
        let mut read = ReadBuf::new(chunk);
        ready!(Pin::new(file).poll_read(context, &mut read))?;
        if read.filled().is_empty() {
            return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(read.filled())))))
    }

    fn is_end_stream(&self) -> bool {
        self.file.limit() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.file.limit())
    }
}

/// It may exist, so this is no 404, after which a Destination might delete its copy.
pub(super) fn unreadable(error: &io::Error, what: &str) -> Response {
    tracing::error!(%error, "{what}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

fn is_young(modified: SystemTime, now: SystemTime) -> bool {
    now.duration_since(modified).map_or(true, |age| age < YOUNG)
}

/// `None` for a time that the header cannot write.
fn last_modified(time: SystemTime) -> Option<HttpDate> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    (since < LAST_YEAR_ENDS).then(|| HttpDate::from(time))
}

fn entity_tag(opened: &Opened) -> io::Result<HeaderValue> {
    let modified = opened.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let tag = format!("\"{:x}-{:x}\"", modified.as_nanos(), opened.length);
    HeaderValue::from_str(&tag).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_young_for_two_seconds_and_while_its_time_is_to_come() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let is_young = |age: i64| {
            let by = Duration::from_millis(age.unsigned_abs());
            is_young(if age < 0 { now + by } else { now - by }, now)
        };
        assert!(is_young(0) && is_young(1_999) && is_young(-1));
        assert!(!is_young(2_000));
    }

    #[test]
    fn a_time_that_no_header_can_write_is_left_out() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert!(last_modified(epoch).is_some() && last_modified(epoch + LAST_YEAR_ENDS).is_none());
        assert!(last_modified(epoch - Duration::from_secs(1)).is_none());
    }

    #[tokio::test]
    async fn what_was_opened_is_sent_whatever_its_path_leads_to_meanwhile() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.txt");
        fs::write(&path, "opened").unwrap();
        let opened = Opened::at(&path).unwrap();
        fs::rename(&path, place.path().join("old")).unwrap();
        fs::write(&path, "another one").unwrap();
        let response = file(&Request::new(Body::empty()), opened);
        assert_eq!(response.headers()[CONTENT_LENGTH], "6");
        assert_eq!(axum::body::to_bytes(response.into_body(), 100).await.unwrap(), "opened");
    }

    #[tokio::test]
    async fn a_file_that_became_shorter_ends_in_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.txt");
        fs::write(&path, "opened").unwrap();
        let opened = Opened::at(&path).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(3).unwrap();
        let response = file(&Request::new(Body::empty()), opened);
        assert!(axum::body::to_bytes(response.into_body(), 100).await.is_err());
    }
}
