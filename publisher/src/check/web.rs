//! Fetches documents from the web, within the limits of a check.

use std::{
    io::{BufReader, Seek as _, Write as _},
    time::Duration,
};

use http::{
    HeaderName, HeaderValue,
    header::{CONTENT_TYPE, LINK, LOCATION, VARY},
};
use reqwest::{Response, redirect::Policy};
use resync_core::{
    lint::{Fetch, FetchFailure, Fetched, Method, PackageBytes, TopicAnswer, VersionAnswer},
    memento::{LINK_FORMAT_TYPE, MEMENTO_DATETIME},
    websub::LinkHeader,
    xml::MAX_BYTES,
};
use tokio::{runtime::Handle, time::Instant};

use super::file::too_long;
use crate::{error::Error, helpers::http_client};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For one document, redirects included.
const TIMEOUT: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 5;
/// How much of a TimeMap is looked at.
const TIME_MAP_BYTES: usize = 4 << 20;

/// An HTTP client for code that is not async. Packages are stored in temporary files, one at a time.
#[derive(Debug)]
pub(super) struct Web {
    client: reqwest::Client,
    /// Follows no redirects.
    direct: reqwest::Client,
    runtime: Handle,
    deadline: Instant,
    allowed: Duration,
    /// How many bytes of packages may still be fetched.
    packages: u64,
}

impl Web {
    /// A client whose requests run on `runtime`, for the time `allowed` from now on; to be used on threads outside of it. It fetches
    /// at most `packages` bytes of packages.
    pub(super) fn new(runtime: Handle, allowed: Duration, packages: u64) -> Result<Self, Error> {
        let client =
            |redirects| http_client::client(redirects, CONNECT_TIMEOUT, TIMEOUT).map_err(Error::Client);
        let now = Instant::now();
        let deadline = now.checked_add(allowed).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        let (client, direct) = (client(Policy::limited(REDIRECTS))?, client(Policy::none())?);
        Ok(Self { client, direct, runtime, deadline, allowed, packages })
    }

    /// Runs a request unless time is up, and until it is.
    fn in_time<T>(&self, request: impl Future<Output = Result<T, FetchFailure>>) -> Result<T, FetchFailure> {
        let in_time = self.runtime.block_on(async { tokio::time::timeout_at(self.deadline, request).await });
        in_time.unwrap_or_else(|_| Err(self.too_late()))
    }

    fn too_late(&self) -> FetchFailure {
        let allowed = humantime::format_duration(self.allowed);
        FetchFailure::last(format!("it took longer than {allowed}; allow more with --deadline"))
    }

    async fn send(&self, method: http::Method, url: &str) -> Result<Response, FetchFailure> {
        successful(self.client.request(method, url).send().await)
    }

    /// A package in a temporary file; `None` if that exceeds the bytes that may be fetched. `fetched` counts them in any case.
    async fn load_package(
        &self,
        url: &str,
        fetched: &mut u64,
    ) -> Result<Option<std::fs::File>, FetchFailure> {
        let failed = |error: std::io::Error| FetchFailure::new(format!("it cannot be stored: {error}"));
        // The deadline of the check is the only one that a long package has.
        let request = self.client.get(url).timeout(self.allowed);
        let mut response = successful(request.send().await)?;
        if response.content_length().is_some_and(|length| length > self.packages) {
            return Ok(None);
        }
        let mut file = tempfile::tempfile().map_err(failed)?;
        while let Some(chunk) = response.chunk().await.map_err(failure)? {
            *fetched += chunk.len() as u64;
            if *fetched > self.packages {
                return Ok(None);
            }
            file.write_all(&chunk).map_err(failed)?;
        }
        file.rewind().map_err(failed)?;
        Ok(Some(file))
    }

    async fn load(&self, url: &str) -> Result<Fetched, FetchFailure> {
        let mut response = self.send(http::Method::GET, url).await?;
        let (last_url, content_type) = (response.url().to_string(), content_type(&response));
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failure)? {
            if (bytes.len() + chunk.len()) as u64 > MAX_BYTES {
                return Err(too_long());
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Fetched { bytes, content_type, last_url })
    }

    /// Only the head of the answer; its body is not read.
    async fn ask(&self, method: http::Method, url: &str) -> Result<TopicAnswer, FetchFailure> {
        let response = self.send(method, url).await?;
        let links = LinkHeader::parse(response.headers().get_all(LINK)).resolve(response.url());
        Ok(TopicAnswer { content_type: content_type(&response), links })
    }

    /// The answer as it is, and of a TimeMap what it says.
    async fn ask_version(&self, method: http::Method, url: &str) -> Result<VersionAnswer, FetchFailure> {
        let mut response = self.direct.request(method, url).send().await.map_err(failure)?;
        let text = |name: HeaderName| response.headers().get(name).map(as_text);
        let mut answer = VersionAnswer {
            status: response.status().as_u16(),
            location: text(LOCATION),
            vary: response.headers().get_all(VARY).iter().map(as_text).collect(),
            memento_datetime: text(HeaderName::from_static(MEMENTO_DATETIME)),
            content_type: content_type(&response),
            links: LinkHeader::parse(response.headers().get_all(LINK)).resolve(response.url()),
            body: Vec::new(),
            is_whole: true,
        };
        let is_time_map =
            answer.content_type.as_deref().is_some_and(|text| text.starts_with(LINK_FORMAT_TYPE));
        while is_time_map && let Some(chunk) = response.chunk().await.map_err(failure)? {
            answer.body.extend_from_slice(&chunk);
            if answer.body.len() > TIME_MAP_BYTES {
                answer.is_whole = false;
                break;
            }
        }
        Ok(answer)
    }
}

impl Fetch for Web {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        tracing::debug!(url, "fetching a document");
        self.in_time(self.load(url))
    }

    fn package(&mut self, url: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
        if self.packages == 0 {
            return Ok(None);
        }
        tracing::debug!(url, "fetching a package");
        let mut fetched = 0;
        let loaded = self.in_time(self.load_package(url, &mut fetched));
        self.packages = self.packages.saturating_sub(fetched);
        Ok(loaded?.map(|file| Box::new(BufReader::new(file)) as Box<dyn PackageBytes>))
    }

    fn end(&mut self) -> Option<FetchFailure> {
        (self.deadline < Instant::now()).then(|| self.too_late())
    }

    fn topic(&mut self, url: &str, method: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
        tracing::debug!(url, ?method, "asking a topic");
        self.in_time(self.ask(http_method(method), url)).map(Some)
    }

    fn version(&mut self, url: &str, method: Method) -> Result<Option<VersionAnswer>, FetchFailure> {
        tracing::debug!(url, ?method, "asking for a version");
        self.in_time(self.ask_version(http_method(method), url)).map(Some)
    }
}

fn successful(answer: Result<Response, reqwest::Error>) -> Result<Response, FetchFailure> {
    let response = answer.map_err(failure)?;
    match response.status() {
        status if status.is_success() => Ok(response),
        status => Err(FetchFailure::answered(status.as_u16(), status.to_string())),
    }
}

fn content_type(response: &Response) -> Option<String> {
    response.headers().get(CONTENT_TYPE).map(as_text)
}

fn as_text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn http_method(method: Method) -> http::Method {
    match method {
        Method::Get => http::Method::GET,
        Method::Head => http::Method::HEAD,
    }
}

fn failure(error: reqwest::Error) -> FetchFailure {
    FetchFailure::new(http_client::reason(error))
}
