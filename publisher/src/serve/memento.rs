//! The past of a set: TimeGates, TimeMaps and mementos, from the journal of its versions (MEM-020 to MEM-034).
//!
//! Nothing is fetched from anywhere: an original that the journal does not know is unknown (MEM-027).

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use axum::{
    body::Body,
    extract::Request,
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LINK, LOCATION, VARY},
};
use resync_core::{
    document::Change,
    memento::{
        ACCEPT_DATETIME, Described, HttpDate, LINK_FORMAT_TYPE, Layout, MEMENTO_DATETIME, Stamp,
        VERSIONS_PATH, Version as _, VersionPath, Versions,
    },
    websub::{LinkHeader, legal_target},
};
use tokio::sync::Semaphore;
use url::Url;

use super::{
    conditions::Validator,
    file::{file_known_by, unreadable},
    opened::Opened,
    time_map::TimeMapText,
};
use crate::{
    publish,
    site::Site,
    state::State,
    versions::{Journal, Version, spellings},
};

/// Requests that look into the journal at once. Each may hold a few bytes of every version of one resource.
static LOOKUPS: Semaphore = Semaphore::const_new(4);

/// A memento never changes: its URI names one version for good.
const FOR_GOOD: &str = "public, max-age=31536000, immutable";

/// Another version may be there the next time.
const ASK_AGAIN: &str = "no-cache";

/// Where the versions of one set are.
pub(super) struct Past {
    layout: Layout,
    /// The path of the prefix, as requests have it.
    path: String,
    /// Where the set is.
    out: PathBuf,
    journal: Journal,
}

/// What the journal knows of one original.
struct History {
    /// Its URI in the lists.
    original: String,
    /// All its versions; never none.
    stamps: Vec<Stamp>,
    /// The one that was asked for by its URI.
    wanted: Option<Version>,
}

/// An answer, or what it is made of.
enum Found {
    Said(Response),
    Memento(Memento),
}

/// One version with its bytes.
struct Memento {
    opened: Opened,
    validator: Validator,
    headers: HeaderMap,
}

/// Answers what stands behind the prefix. Methods are `GET` and `HEAD`, which are answered alike (MEM-022).
pub(super) async fn answer(past: Arc<Past>, rest: &str, request: Request) -> Response {
    let Some(path) = VersionPath::parse(rest) else {
        return text(
            StatusCode::NOT_FOUND,
            HeaderMap::new(),
            "there is no such version; write an absolute URL behind /versions/",
        );
    };
    // Only a TimeGate negotiates (MEM-029).
    let asked = match path {
        VersionPath::TimeGate { .. } => accept_datetime(request.headers()),
        VersionPath::TimeMap { .. } | VersionPath::Memento { .. } => Ok(None),
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(reason) => return text(StatusCode::BAD_REQUEST, HeaderMap::new(), reason),
    };
    let Ok(permit) = LOOKUPS.acquire().await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let looked_up = tokio::task::spawn_blocking(move || {
        let found = past.find(&path, asked);
        drop(permit);
        found
    });
    match looked_up.await {
        Ok(Ok(Found::Said(response))) => response,
        Ok(Ok(Found::Memento(memento))) => memento.serve(&request),
        Ok(Err(error)) => unreadable(&error, "cannot read the journal of versions"),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

impl Past {
    /// `None` where the set keeps no versions.
    pub(super) fn of(out: &Path, state: &State, site: &Site) -> Option<Self> {
        let journal = Journal::of(out, state)?;
        let prefix = site.place(VERSIONS_PATH).url;
        let path = Url::parse(&prefix).ok()?.path().to_owned();
        Some(Self { layout: Layout::new(prefix), path, out: out.to_owned(), journal })
    }

    /// What stands behind the prefix in a path with its query.
    pub(super) fn behind_prefix<'a>(&self, wanted: &'a str) -> Option<&'a str> {
        wanted.strip_prefix(self.path.as_str())
    }

    /// Adds where the versions of an original are, if there are any (MEM-021).
    pub(super) fn offer(&self, original: &str, links: LinkHeader) -> LinkHeader {
        match self.journal.versions(original).next() {
            Some(Ok(_)) => Described { layout: &self.layout, original }.offer(links),
            None => links,
            Some(Err(error)) => {
                tracing::error!(%error, "cannot read the journal of versions");
                links
            }
        }
    }

    fn find(&self, path: &VersionPath, asked: Option<HttpDate>) -> io::Result<Found> {
        let named = match path {
            VersionPath::Memento { stamp, .. } => Some(*stamp),
            VersionPath::TimeGate { .. } | VersionPath::TimeMap { .. } => None,
        };
        let known = History::of(&self.journal, path.original(), named)?;
        let Some(History { original, stamps, wanted }) = known else {
            return Ok(Found::Said(unknown()));
        };
        let described = Described { layout: &self.layout, original: &original };
        let versions = Versions::of(&stamps);
        match (path, named, wanted) {
            (VersionPath::TimeMap { from, .. }, ..) => {
                Ok(Found::Said(time_map(described, &stamps, *from).unwrap_or_else(unknown)))
            }
            (_, Some(named), Some(version)) => memento(&self.journal, described, versions, named, &version),
            (_, Some(named), None) if self.may_come(named, &stamps) => Ok(Found::Said(unknown())),
            (_, Some(named), None) => leading(described, versions, Some(named.at)),
            (_, None, _) => negotiated(described, versions, asked),
        }
    }

    /// Whether a list may link to this version already, and the journal has it when the run is completed that is under way.
    fn may_come(&self, named: Stamp, known: &[Stamp]) -> bool {
        known.last().is_some_and(|last| named > *last) && publish::is_interrupted(&self.out)
    }
}

impl History {
    /// All that is known of an original, by its URI as it was sent or in its normal form.
    fn of(journal: &Journal, sent: &str, named: Option<Stamp>) -> io::Result<Option<Self>> {
        for original in spellings(sent) {
            let (mut stamps, mut wanted) = (Vec::new(), None);
            for version in journal.versions(&original) {
                let version = version?;
                stamps.push(version.stamp());
                if named == Some(version.stamp()) {
                    wanted = Some(version);
                }
            }
            if !stamps.is_empty() {
                return Ok(Some(Self { original, stamps, wanted }));
            }
        }
        Ok(None)
    }
}

impl Memento {
    fn serve(self, request: &Request) -> Response {
        let Self { opened, validator, mut headers } = self;
        let mut response = file_known_by(&validator, request, opened);
        match response.status() {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                response.headers_mut().extend(headers);
                response
            }
            StatusCode::NOT_MODIFIED => {
                headers.remove(CONTENT_TYPE);
                headers.remove(CONTENT_ENCODING);
                response.headers_mut().extend(headers);
                response
            }
            _ => response,
        }
    }
}

/// The moment that is asked for, if there is one.
fn accept_datetime(headers: &HeaderMap) -> Result<Option<HttpDate>, &'static str> {
    let mut values = headers.get_all(ACCEPT_DATETIME).into_iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err("Accept-Datetime is there twice; send it once");
    }
    let read = |value: &HeaderValue| value.to_str().ok()?.parse::<HttpDate>().ok();
    first
        .map(|value| {
            read(value)
                .ok_or("Accept-Datetime is no HTTP date in GMT; write it as Thu, 01 Feb 2024 00:00:00 GMT")
        })
        .transpose()
}

/// A TimeGate leads to the version of the moment asked for (MEM-022, MEM-024 to MEM-026).
fn negotiated(
    described: Described<'_>,
    versions: Versions<'_, Stamp>,
    asked: Option<HttpDate>,
) -> io::Result<Found> {
    let mut found = leading(described, versions, asked)?;
    if let Found::Said(response) = &mut found {
        response.headers_mut().insert(VARY, HeaderValue::from_static(ACCEPT_DATETIME));
    }
    Ok(found)
}

/// Leads to the version of a moment; the answer itself is none (MEM-023, MEM-030).
fn leading(
    described: Described<'_>,
    versions: Versions<'_, Stamp>,
    asked: Option<HttpDate>,
) -> io::Result<Found> {
    let chosen = versions.choose(asked).and_then(|index| Some((index, versions.stamp(index)?)));
    let Some((index, stamp)) = chosen else { return Ok(Found::Said(unknown())) };
    let uri = legal_target(&described.layout.memento(stamp, described.original));
    let headers = HeaderMap::from_iter([
        (LOCATION, value(&uri)?),
        (LINK, value(&described.links(versions, index).to_string())?),
        (CACHE_CONTROL, HeaderValue::from_static(ASK_AGAIN)),
    ]);
    Ok(Found::Said(text(StatusCode::FOUND, headers, &uri)))
}

/// One version: its bytes (MEM-028), that it was a deletion, or that it is gone (MEM-031).
fn memento(
    journal: &Journal,
    described: Described<'_>,
    versions: Versions<'_, Stamp>,
    named: Stamp,
    version: &Version,
) -> io::Result<Found> {
    let Some(index) = versions.find(named) else { return Ok(Found::Said(unknown())) };
    let mut headers = HeaderMap::new();
    headers.insert(LINK, value(&described.links(versions, index).to_string())?);
    if version.change == Change::Deleted {
        headers.insert(MEMENTO_DATETIME, value(&named.at.to_string())?);
        return Ok(Found::Said(text(StatusCode::GONE, headers, "the resource was deleted then")));
    }
    let Some(path) = journal.content(version) else { return Ok(Found::Said(gone(headers))) };
    let opened = match Opened::at(&path) {
        Ok(opened) if version.length.is_none_or(|length| length == opened.length) => opened,
        // Cut, so that the bytes are there no more.
        Ok(_) => return Ok(Found::Said(gone(headers))),
        // There was no room for it, or it was removed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Said(gone(headers))),
        Err(error) => return Err(error),
    };
    let media_type = version.media_type.as_deref().unwrap_or("application/octet-stream");
    headers.insert(MEMENTO_DATETIME, value(&named.at.to_string())?);
    headers.insert(CONTENT_TYPE, value(media_type)?);
    if let Some(encoding) = &version.encoding {
        headers.insert(CONTENT_ENCODING, value(encoding)?);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(FOR_GOOD));
    let digest = version.digest.ok_or_else(|| io::Error::other("a version has no digest"))?;
    let validator = Validator::tag(value(&format!("\"{digest}\""))?);
    Ok(Found::Memento(Memento { opened, validator, headers }))
}

/// The list of all versions (MEM-033, MEM-034); `None` where it would have none.
fn time_map(described: Described<'_>, stamps: &[Stamp], from: Option<Stamp>) -> Option<Response> {
    let (head, page) = described.time_map_in_parts(Versions::of(stamps), from)?;
    let text = TimeMapText::new(described, &head, stamps.get(page)?.to_vec());
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static(LINK_FORMAT_TYPE)),
        (CACHE_CONTROL, HeaderValue::from_static(ASK_AGAIN)),
        (CONTENT_LENGTH, HeaderValue::from(text.length())),
    ]);
    let mut response = Response::new(Body::new(text));
    *response.headers_mut() = headers;
    Some(response)
}

fn unknown() -> Response {
    text(StatusCode::NOT_FOUND, HeaderMap::new(), "no version of this resource is kept here")
}

fn gone(headers: HeaderMap) -> Response {
    text(StatusCode::GONE, headers, "this version is no longer kept")
}

/// One line for a person.
fn text(status: StatusCode, mut headers: HeaderMap, line: &str) -> Response {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    whole(status, headers, format!("{line}\n"))
}

/// An answer whose length is told to `HEAD`, too.
fn whole(status: StatusCode, mut headers: HeaderMap, body: String) -> Response {
    headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn value(text: &str) -> io::Result<HeaderValue> {
    HeaderValue::from_str(text).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(values: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for &value in values {
            headers.append(ACCEPT_DATETIME, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn mem027_accept_datetime_is_one_rfc_1123_date_in_gmt_or_absent() {
        assert_eq!(accept_datetime(&asking(&[])), Ok(None));
        let date = "Thu, 01 Feb 2024 00:00:00 GMT";
        assert_eq!(accept_datetime(&asking(&[date])), Ok(Some(date.parse().unwrap())));
        for bad in [&["2024-02-01"][..], &["Thursday, 01-Feb-24 00:00:00 GMT"], &[""], &[date, date]] {
            assert!(accept_datetime(&asking(bad)).is_err(), "{bad:?}");
        }
    }
}
