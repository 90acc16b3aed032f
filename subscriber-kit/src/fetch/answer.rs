//! An answer: what its headers say, how its body is read and how fast, and what proves that parts of it belong together.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, LINK, RANGE,
};
use http::{HeaderMap, HeaderValue};
use resync_core::websub::link_header::LinkHeader;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

use super::host_limits::Permit;
use super::{ClientOptions, FetchError};

/// How much older than its answer a `Last-Modified` must be to tell versions apart: it knows only seconds, and what was
/// modified in this one may be so again (RFC 9110, 8.8.2.2).
const SETTLED: Duration = Duration::from_secs(2);

/// A 200 whose body has not been read yet.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Where the answer came from, after redirects.
    pub(crate) url: Url,
    /// The `Link` header, its targets made absolute.
    pub(crate) links: LinkHeader,
    pub(crate) content_type: Option<String>,
    pub(crate) last_modified: Option<SystemTime>,
    /// Of what is sent.
    pub(crate) length: Option<u64>,
    /// Where in the whole that begins.
    pub(crate) start: u64,
    pub(crate) validators: Validators,
    response: reqwest::Response,
    throughput: Throughput,
    /// Until the body is read.
    _permit: Permit,
}

/// The rest of something that was fetched in part.
#[derive(Clone, Debug)]
pub(crate) struct Remainder {
    pub(crate) start: u64,
    /// Of what came first: it must be the rest of the same.
    pub(crate) validators: Validators,
}

impl Remainder {
    /// `None` if the server gave nothing by which to know that it is the same.
    pub(crate) fn of(start: u64, validators: &Validators) -> Option<Self> {
        let is_known = validators.strong().is_some();
        (start > 0 && is_known).then(|| Self { start, validators: validators.clone() })
    }

    pub(crate) fn headers(&self) -> HeaderMap {
        let range = HeaderValue::from_str(&format!("bytes={}-", self.start)).ok();
        let same = self.validators.strong().and_then(|tag| HeaderValue::from_str(tag).ok());
        range.zip(same).into_iter().flat_map(|(range, same)| [(RANGE, range), (IF_RANGE, same)]).collect()
    }
}

/// What a server gives to ask later whether its document is still the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Validators {
    etag: Option<String>,
    last_modified: Option<String>,
}

impl Validators {
    fn of(headers: &HeaderMap) -> Self {
        let date = text(headers, &DATE).and_then(http_date).unwrap_or_else(SystemTime::now);
        let is_settled = |modified: &&str| http_date(modified).is_some_and(|at| at + SETTLED <= date);
        let last_modified = text(headers, &LAST_MODIFIED).filter(is_settled).map(str::to_owned);
        Self { etag: text(headers, &ETAG).map(str::to_owned), last_modified }
    }

    /// What proves that bytes belong to the same representation (RFC 9110, 13.1.5).
    fn strong(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/")).or(self.last_modified.as_deref())
    }

    /// Whether there is anything to ask by.
    pub(crate) fn are_given(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// Only one of the two, since a server must disregard the weaker one if it knows the other.
    pub(crate) fn conditions(&self) -> HeaderMap {
        let value = |text: &Option<String>| text.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
        let etag = value(&self.etag).map(|value| (IF_NONE_MATCH, value));
        let condition = etag.or_else(|| value(&self.last_modified).map(|value| (IF_MODIFIED_SINCE, value)));
        condition.into_iter().collect()
    }
}

/// How fast a body comes.
#[derive(Debug)]
struct Throughput {
    begun: Instant,
    received: u64,
    grace: Duration,
    min_rate: u64,
}

impl Throughput {
    fn is_too_slow(&self) -> bool {
        let judged = self.begun.elapsed().saturating_sub(self.grace).as_millis();
        u128::from(self.received) * 1000 < judged * u128::from(self.min_rate)
    }
}

impl Answer {
    pub(super) fn new(
        url: Url,
        response: reqwest::Response,
        start: u64,
        turn: Permit,
        options: &ClientOptions,
    ) -> Self {
        let headers = response.headers();
        let links = LinkHeader::parse(headers.get_all(LINK).iter().map(HeaderValue::as_bytes)).resolve(&url);
        let content_type = text(headers, &CONTENT_TYPE).map(str::to_owned);
        let last_modified = text(headers, &LAST_MODIFIED).and_then(http_date);
        let length = text(headers, &CONTENT_LENGTH).and_then(|value| value.trim().parse().ok());
        let validators = Validators::of(headers);
        let (begun, grace, min_rate) = (Instant::now(), options.idle_timeout, options.min_rate);
        let throughput = Throughput { begun, received: 0, grace, min_rate };
        Self {
            url,
            links,
            content_type,
            last_modified,
            length,
            start,
            validators,
            response,
            throughput,
            _permit: turn,
        }
    }

    /// The next piece of the body, `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        let url = &self.url;
        let chunk = self.response.chunk().await.map_err(|error| FetchError::from_body(url, &error))?;
        self.throughput.received += chunk.as_ref().map_or(0, |chunk| chunk.len() as u64);
        if chunk.is_some() && self.throughput.is_too_slow() {
            return Err(FetchError::TooSlow { url: url.clone(), min: self.throughput.min_rate });
        }
        Ok(chunk)
    }
}

/// Where a part begins, by `Content-Range: bytes 7-99/100`.
pub(super) fn range_start(headers: &HeaderMap) -> Option<u64> {
    let (start, _) = text(headers, &CONTENT_RANGE)?.trim().strip_prefix("bytes ")?.split_once('-')?;
    start.trim().parse().ok()
}

pub(super) fn text<'h>(headers: &'h HeaderMap, name: &http::HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// How long a `Retry-After` asks for, in seconds or until a moment.
pub(super) fn retry_after(value: &str) -> Option<Duration> {
    let seconds = value.trim().parse().map(Duration::from_secs);
    seconds.ok().or_else(|| http_date(value)?.duration_since(SystemTime::now()).ok())
}

fn http_date(value: &str) -> Option<SystemTime> {
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    parser.parse_timestamp(value).ok().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_http_date_becomes_an_instant() {
        let at = http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs(), 784_111_777);
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn a_last_modified_of_a_moment_ago_tells_no_versions_apart() {
        let at = |second: u32| format!("Sun, 06 Nov 1994 08:49:{second} GMT");
        let is_validator = |modified: u32, date: Option<u32>| {
            let modified = (LAST_MODIFIED, HeaderValue::from_str(&at(modified)).unwrap());
            let date = date.map(|date| (DATE, HeaderValue::from_str(&at(date)).unwrap()));
            Validators::of(&date.into_iter().chain([modified]).collect()).are_given()
        };
        assert_eq!([37, 38, 39].map(|date| is_validator(37, Some(date))), [false, false, true]);
        assert!(!is_validator(39, Some(37)), "one of the two clocks is wrong");
        assert!(is_validator(37, None), "without a date it came now");
    }

    #[test]
    fn how_long_a_server_asks_to_be_left_alone_is_told_in_seconds_or_as_a_moment() {
        assert_eq!(retry_after("120"), Some(Duration::from_secs(120)));
        assert!(retry_after("Tue, 31 Dec 2199 23:59:59 GMT").unwrap() > Duration::from_secs(3600));
        assert_eq!([retry_after("Sun, 06 Nov 1994 08:49:37 GMT"), retry_after("soon")], [None, None]);
        let url = Url::parse("http://a.example/").unwrap();
        let asks = |seconds| FetchError::Status {
            url: url.clone(),
            status: 503,
            retry_after: Some(Duration::from_secs(seconds)),
        };
        let rest = |seconds| asks(seconds).retry_after().unwrap().as_secs();
        assert_eq!([rest(1), rest(60), rest(1_000_000)], [1, 60, 3600]);
    }
}
