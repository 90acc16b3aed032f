//! The answer to a GET: its headers, its body and the rate at which it arrives, and the validators of its version.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, LINK, RANGE,
};
use http::{HeaderMap, HeaderValue};
use resync_common::client::http_date;
use resync_core::memento::MEMENTO_DATETIME;
use resync_core::websub::link_header::LinkHeader;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

use super::host_limits::Permit;
use super::{ClientOptions, FetchError};

/// How much older than its answer a `Last-Modified` must be to distinguish versions, since it has only seconds (RFC 9110,
/// 8.8.2.2).
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
    /// The length of the body.
    pub(crate) length: Option<u64>,
    /// Where the body begins in the whole.
    pub(crate) start: u64,
    pub(crate) validators: Validators,
    response: reqwest::Response,
    throughput: Throughput,
    /// Held until the body is read.
    _permit: Permit,
}

/// What a server says in the end, after redirects, whatever its status.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Where it came from.
    pub(crate) url: Url,
    /// The `Link` header, its targets made absolute.
    pub(crate) links: LinkHeader,
    /// `Memento-Datetime` (RFC 7089, 2.1.1), if it is there once.
    pub(crate) memento_datetime: Option<String>,
    /// A 200 whose body has not been read yet, or why there is none.
    pub(crate) body: Result<Answer, FetchError>,
}

/// The rest of a document or resource that was received in part.
#[derive(Clone, Debug)]
pub(crate) struct Remainder {
    pub(crate) start: u64,
    /// Of the first part; the rest must be of the same version.
    pub(crate) validators: Validators,
}

impl Remainder {
    /// `None` if the server sent no strong validator.
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

/// What a server sends to ask later whether a document has changed.
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

    /// The validator that is strong enough to join parts (RFC 9110, 13.1.5).
    fn strong(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/")).or(self.last_modified.as_deref())
    }

    /// Whether there is a validator.
    pub(crate) fn are_given(&self) -> bool {
        self.etag.is_some() || self.last_modified.is_some()
    }

    /// Whether they tell one representation of a URL from another: a time does not.
    pub(crate) fn tell_representations(&self) -> bool {
        self.etag.is_some()
    }

    /// The headers of a conditional request; only one, since a server ignores the weaker one.
    pub(crate) fn conditions(&self) -> HeaderMap {
        let value = |text: &Option<String>| text.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
        let etag = value(&self.etag).map(|value| (IF_NONE_MATCH, value));
        let condition = etag.or_else(|| value(&self.last_modified).map(|value| (IF_MODIFIED_SINCE, value)));
        condition.into_iter().collect()
    }
}

/// The rate of a body.
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
        permit: Permit,
        options: &ClientOptions,
    ) -> Self {
        let headers = response.headers();
        let links = links(headers, &url);
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
            _permit: permit,
        }
    }

    /// The next piece of the body; `None` at the end.
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

/// The `Link` header of an answer from this URL, its targets made absolute.
pub(super) fn links(headers: &HeaderMap, url: &Url) -> LinkHeader {
    LinkHeader::parse(headers.get_all(LINK).iter().map(HeaderValue::as_bytes)).resolve(url)
}

/// The moment of the state that an answer is, as it is written. Two of them say nothing.
pub(super) fn memento_datetime(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(MEMENTO_DATETIME).iter();
    let only = values.next().filter(|_| values.next().is_none());
    only.and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// Where a part begins, from `Content-Range: bytes 7-99/100`.
pub(super) fn range_start(headers: &HeaderMap) -> Option<u64> {
    let (start, _) = text(headers, &CONTENT_RANGE)?.trim().strip_prefix("bytes ")?.split_once('-')?;
    start.trim().parse().ok()
}

pub(super) fn text<'h>(headers: &'h HeaderMap, name: &http::HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let older = HeaderValue::from_static("Sunday, 06-Nov-94 08:49:37 GMT");
        assert!(Validators::of(&HeaderMap::from_iter([(LAST_MODIFIED, older)])).are_given());
    }
}
