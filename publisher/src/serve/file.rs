//! Answers with a file: with tags, conditions and ranges.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE},
};
use tower_http::services::ServeFile;

/// A younger file may be modified again within the second of its `Last-Modified`.
const YOUNG: Duration = Duration::from_secs(2);

/// What a file is known by to those who have it already.
pub(super) struct Validator {
    tag: HeaderValue,
    /// Whether `Last-Modified` tells its versions apart, too.
    has_time: bool,
}

impl Validator {
    /// A tag alone.
    pub(super) fn tag(tag: HeaderValue) -> Self {
        Self { tag, has_time: false }
    }
}

/// A file, streamed; with `ETag`, so that `If-None-Match` and `If-Range` work to the nanosecond. Times of a second distinguish two versions only if the
/// older one was not young when it was requested (RFC 9110, section 8.8.2.2).
pub(super) async fn file(request: Request, path: &Path) -> Response {
    let validator = tokio::fs::metadata(path).await.and_then(|metadata| {
        let has_time = !is_young(metadata.modified()?, SystemTime::now());
        Ok(Validator { tag: entity_tag(&metadata)?, has_time })
    });
    match validator {
        Ok(validator) => file_known_by(validator, request, path).await,
        Err(error) if error.kind() == io::ErrorKind::NotFound => StatusCode::NOT_FOUND.into_response(),
        Err(error) => unreadable(&error, "cannot read a file"),
    }
}

/// A file, streamed, whose versions are told apart by `validator`.
pub(super) async fn file_known_by(validator: Validator, mut request: Request, path: &Path) -> Response {
    let Validator { tag, has_time } = validator;
    let headers = request.headers_mut();
    if headers.contains_key(IF_NONE_MATCH) {
        if matches(headers, &tag) {
            return (StatusCode::NOT_MODIFIED, [(ETAG, tag)]).into_response();
        }
        headers.remove(IF_MODIFIED_SINCE);
    }
    if !has_time {
        headers.remove(IF_MODIFIED_SINCE);
        headers.remove(IF_UNMODIFIED_SINCE);
    }
    if headers.get(IF_RANGE).is_some_and(|version| version != tag) {
        headers.remove(RANGE);
    }
    match ServeFile::new(path).try_call(request).await {
        Ok(response) => {
            let mut response = response.map(Body::new);
            response.headers_mut().insert(ETAG, tag);
            if !has_time {
                response.headers_mut().remove(LAST_MODIFIED);
            }
            response
        }
        Err(error) => unreadable(&error, "cannot read a file"),
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

fn entity_tag(metadata: &fs::Metadata) -> io::Result<HeaderValue> {
    let modified = metadata.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let tag = format!("\"{:x}-{:x}\"", modified.as_nanos(), metadata.len());
    HeaderValue::from_str(&tag).map_err(io::Error::other)
}

fn matches(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let listed = headers
        .get_all(IF_NONE_MATCH)
        .into_iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let mut tags = listed.map(<[u8]>::trim_ascii).map(|one| one.strip_prefix(b"W/").unwrap_or(one));
    tags.any(|one| one == b"*" || one == tag.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_tag_is_found_in_a_list_and_by_a_star() {
        let tag = HeaderValue::from_static("\"a-1\"");
        let asks = |value: &'static str| {
            matches(&HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static(value))]), &tag)
        };
        assert!(asks("\"b-1\", W/\"a-1\"") && asks("*"));
        assert!(!asks("\"a-2\"") && !asks(""));
    }

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
}
