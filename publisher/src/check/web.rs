//! Documents from the web, as much of each and for as long as a check can bear.

use std::time::Duration;

use http::header::{CONTENT_TYPE, LINK};
use reqwest::{Response, redirect::Policy};
use resync_core::{
    lint::{Fetch, FetchFailure, Fetched, Method, TopicAnswer},
    websub::LinkHeader,
    xml::MAX_BYTES,
};
use tokio::{runtime::Handle, time::Instant};

use super::{CheckError, file::too_long};
use crate::client;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For one document, redirects included.
const TIMEOUT: Duration = Duration::from_secs(60);
const REDIRECTS: usize = 5;

/// A web client for code that is not async. Packages are not looked into, since all of one would have to be fetched.
#[derive(Debug)]
pub(super) struct Web {
    client: reqwest::Client,
    runtime: Handle,
    deadline: Instant,
    allowed: Duration,
}

impl Web {
    /// A client whose requests run on `runtime`, from now on for as long as `allowed`; to be used on threads outside of it.
    pub(super) fn new(runtime: Handle, allowed: Duration) -> Result<Self, CheckError> {
        let client = client::client(Policy::limited(REDIRECTS), CONNECT_TIMEOUT, TIMEOUT);
        let now = Instant::now();
        let deadline = now.checked_add(allowed).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        Ok(Self { client: client.map_err(CheckError::Client)?, runtime, deadline, allowed })
    }

    /// Runs a request unless time is up, and until it is.
    fn in_time<T>(&self, request: impl Future<Output = Result<T, FetchFailure>>) -> Result<T, FetchFailure> {
        let in_time = self.runtime.block_on(async { tokio::time::timeout_at(self.deadline, request).await });
        in_time.unwrap_or_else(|_| {
            let allowed = humantime::format_duration(self.allowed);
            Err(FetchFailure::last(format!("it took longer than {allowed}; allow more with --deadline")))
        })
    }

    async fn send(&self, method: http::Method, url: &str) -> Result<Response, FetchFailure> {
        let response = self.client.request(method, url).send().await.map_err(failure)?;
        match response.status() {
            status if status.is_success() => Ok(response),
            status => Err(FetchFailure::new(status.to_string())),
        }
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

    /// Only the head of the answer; the connection ends with its body unread.
    async fn ask(&self, method: http::Method, url: &str) -> Result<TopicAnswer, FetchFailure> {
        let response = self.send(method, url).await?;
        let links = LinkHeader::parse(response.headers().get_all(LINK)).resolve(response.url());
        Ok(TopicAnswer { content_type: content_type(&response), links })
    }
}

impl Fetch for Web {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        tracing::debug!(url, "fetching a document");
        self.in_time(self.load(url))
    }

    fn topic(&mut self, url: &str, method: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
        tracing::debug!(url, ?method, "asking a topic");
        let method = match method {
            Method::Get => http::Method::GET,
            Method::Head => http::Method::HEAD,
        };
        self.in_time(self.ask(method, url)).map(Some)
    }
}

fn content_type(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_TYPE)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn failure(error: reqwest::Error) -> FetchFailure {
    FetchFailure::new(client::reason(error))
}
