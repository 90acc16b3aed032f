//! The HTTP client of all requests: GET and POST with limits on redirects, size and time.

mod address_policy;
mod answer;
mod credentials;
mod deadline;
mod error;
mod host_limits;
mod refused;
mod retries;

use std::collections::{HashMap, HashSet};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, CONTENT_TYPE, IF_MODIFIED_SINCE, IF_NONE_MATCH, LOCATION, RANGE, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use resync_common::client::{retry_after, root_cause, tls, web_roots};
use resync_core::digest::{Algorithm, Hasher};
use resync_core::websub::FORM_CONTENT_TYPE;
use resync_core::websub::link_header::LinkHeader;
use url::Url;

use address_policy::AddressGuard;
pub use address_policy::AddressPolicy;
pub(crate) use answer::{Answer, Remainder, Reply, Validators};
use answer::{links, memento_datetime, range_start, text};
pub use credentials::Credentials;
pub(crate) use credentials::is_moved;
pub(crate) use deadline::Deadline;
pub use error::FetchError;
pub(crate) use error::origin_of;
use host_limits::{HostLimits, Permit};
pub(crate) use retries::Retries;

use crate::space::free_space;

/// The largest ResourceSync document that is read, in bytes (RS-042).
pub const MAX_DOCUMENT_BYTES: u64 = resync_core::xml::MAX_BYTES;

/// The longest URL that a document, a header or a redirect may name, in bytes, so that a number of URLs also limits their memory.
pub(crate) const MAX_URL: usize = 4096;

/// How many bytes of a hub's explanation are kept.
const MAX_EXPLANATION: usize = 512;

/// Options of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The `User-Agent` header.
    pub user_agent: String,
    /// Time limit for opening a connection.
    pub connect_timeout: Duration,
    /// How long a server may send nothing within a response.
    pub idle_timeout: Duration,
    /// The minimum average bytes per second of a body, once `idle_timeout` has passed.
    pub min_rate: u64,
    /// The time limit for one document, without the time that it waits for a permit for its host.
    pub document_timeout: Duration,
    /// The time limit for one resource, likewise.
    pub resource_timeout: Duration,
    /// How many redirects one request may follow.
    pub max_redirects: usize,
    /// Which addresses may get requests.
    pub address_policy: AddressPolicy,
    /// Maximum number of concurrent requests to one host.
    pub per_host: usize,
    /// The pause between the beginnings of two requests to one host.
    pub delay: Duration,
    /// Credentials for the Source.
    pub credentials: Credentials,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("resync-destination/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            min_rate: 1024,
            document_timeout: Duration::from_secs(300),
            resource_timeout: Duration::from_secs(3600),
            max_redirects: 5,
            address_policy: AddressPolicy::default(),
            per_host: 8,
            delay: Duration::ZERO,
            credentials: Credentials::default(),
        }
    }
}

/// An HTTP client with limits. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    /// Cheap to clone.
    tls: rustls::ClientConfig,
    options: Arc<ClientOptions>,
    address_guard: Arc<AddressGuard>,
    host_limits: Arc<HostLimits>,
}

/// Which redirects of a GET are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow<'f> {
    /// All: for documents, which may be on another host.
    Anywhere,
    /// Within the origin, or from http to https on the same host: for resources (RS-200).
    Home,
    /// As [`Follow::Home`], or to the origin of one of these URLs, or of the Source's list.
    Among(&'f [Url], &'f Url),
}

/// A complete document in an unnamed file.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) url: Url,
    pub(crate) links: LinkHeader,
    pub(crate) content_type: Option<String>,
    pub(crate) validators: Validators,
    /// In bytes.
    pub(crate) length: u64,
    /// The digest of its bytes.
    pub(crate) digest: String,
    /// Rewound to its start.
    pub(crate) file: std::fs::File,
}

/// An answer that is no redirect, before its status is judged.
struct Final {
    /// Where it came from, after redirects.
    url: Url,
    response: reqwest::Response,
    permit: Permit,
}

/// The answer of a hub to a form.
#[derive(Clone, Debug)]
pub(crate) struct FormAnswer {
    /// The URL after redirects.
    pub(crate) url: Url,
    pub(crate) status: u16,
    /// The beginning of the body as plain text.
    pub(crate) text: String,
}

impl Client {
    /// A client with these options; TLS by rustls with the Mozilla roots.
    ///
    /// # Errors
    /// [`FetchError::Setup`] when the options cannot be used, a `User-Agent` with a line break for instance.
    pub fn new(options: ClientOptions) -> Result<Self, FetchError> {
        let host_limits = Arc::new(HostLimits::new(options.per_host, options.delay));
        Self::with(options, tls(web_roots()), host_limits)
    }

    fn with(
        options: ClientOptions,
        tls: rustls::ClientConfig,
        host_limits: Arc<HostLimits>,
    ) -> Result<Self, FetchError> {
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.clone())
            .user_agent(options.user_agent.as_str())
            // Lengths and hashes of a list are those of the uncompressed resource.
            .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.idle_timeout);
        let address_guard = AddressGuard::new(options.address_policy.clone());
        let http =
            address_guard.guard(builder).build().map_err(|error| FetchError::Setup(root_cause(&error)))?;
        Ok(Self { http, tls, options: Arc::new(options), address_guard, host_limits })
    }

    /// The options of this client.
    #[must_use]
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// A client for each of these Sources: one Source must not open its network to the Sources of other hosts.
    pub(crate) fn for_each(&self, sources: &[String]) -> Result<Vec<Self>, FetchError> {
        let AddressPolicy::NetworkOf(trusted) = &self.options.address_policy else {
            return Ok(vec![self.clone(); sources.len()]);
        };
        let hosts: Vec<Option<String>> =
            sources.iter().map(|source| host_of(&Url::parse(source).ok()?)).collect();
        let of_sources: HashSet<&String> = hosts.iter().flatten().collect();
        if of_sources.len() <= 1 {
            return Ok(vec![self.clone(); sources.len()]);
        }
        let mut by_host: HashMap<&Option<String>, Self> = HashMap::new();
        for own in &hosts {
            if !by_host.contains_key(own) {
                let networks = |url: &&Url| {
                    let host = host_of(url);
                    host == *own || host.is_none_or(|host| !of_sources.contains(&host))
                };
                let address_policy =
                    AddressPolicy::NetworkOf(trusted.iter().filter(networks).cloned().collect());
                let options = ClientOptions { address_policy, ..(*self.options).clone() };
                let client = Self::with(options, self.tls.clone(), Arc::clone(&self.host_limits))?;
                by_host.insert(own, client);
            }
        }
        Ok(hosts.iter().map(|own| by_host[own].clone()).collect())
    }

    /// GET with redirects. With [conditions](Validators::conditions), `None` if the document is unchanged. With the headers of a
    /// [`Remainder`], a server may send only that; see [`Answer::start`].
    pub(crate) async fn get(
        &self,
        url: &Url,
        follow: Follow<'_>,
        headers: HeaderMap,
        deadline: &mut Deadline,
    ) -> Result<Option<Answer>, FetchError> {
        let last = self.follow(url, follow, &headers, deadline).await?;
        let is_conditional = headers.contains_key(IF_NONE_MATCH) || headers.contains_key(IF_MODIFIED_SINCE);
        if last.response.status() == StatusCode::NOT_MODIFIED && is_conditional {
            return Ok(None);
        }
        self.body(last, headers.contains_key(RANGE)).map(Some)
    }

    /// As [`Client::get`], but every final status is an answer, with what its headers say of versions.
    pub(crate) async fn ask(
        &self,
        url: &Url,
        follow: Follow<'_>,
        headers: HeaderMap,
        deadline: &mut Deadline,
    ) -> Result<Reply, FetchError> {
        let last = self.follow(url, follow, &headers, deadline).await?;
        let (url, said) = (last.url.clone(), last.response.headers());
        let (links, memento_datetime) = (links(said, &url), memento_datetime(said));
        Ok(Reply { url, links, memento_datetime, body: self.body(last, false) })
    }

    /// GET, until something else than a redirect is answered.
    async fn follow(
        &self,
        url: &Url,
        follow: Follow<'_>,
        headers: &HeaderMap,
        deadline: &mut Deadline,
    ) -> Result<Final, FetchError> {
        let mut at = url.clone();
        for _ in 0..=self.options.max_redirects {
            self.check(&at)?;
            let permit = deadline.without(self.host_limits.take(&at)).await;
            let permit = permit.map_err(|left| FetchError::HostPaused { url: at.clone(), left })?;
            let request = self.http.get(at.clone()).headers(headers.clone());
            let sent = deadline.meet(&at, request.headers(self.options.credentials.of(&at)).send()).await?;
            let response = sent.map_err(|error| FetchError::from_send(&at, &error))?;
            let status = response.status();
            if !is_redirect(status) {
                return Ok(Final { url: at, response, permit });
            }
            let next = redirect_target(&at, status, response.headers())?;
            if !follow.leads(&at, &next) {
                return Err(FetchError::ForeignRedirect { url: at, target: Box::new(next) });
            }
            at = next;
        }
        Err(self.too_many_redirects(url, at))
    }

    /// The body of a 200, or of a part if one was asked for.
    fn body(&self, last: Final, may_be_part: bool) -> Result<Answer, FetchError> {
        let Final { url, response, permit } = last;
        let start = match response.status() {
            StatusCode::OK => Some(0),
            StatusCode::PARTIAL_CONTENT if may_be_part => range_start(response.headers()),
            _ => None,
        };
        if let Some(start) = start {
            return Ok(Answer::new(url, response, start, permit, &self.options));
        }
        let retry_after = text(response.headers(), &RETRY_AFTER).and_then(retry_after);
        let error = FetchError::Status { url: url.clone(), status: response.status().as_u16(), retry_after };
        if let Some(rest) = error.retry_after() {
            self.host_limits.pause(&url, rest);
        }
        Err(error)
    }

    /// Whether a request may go there.
    fn check(&self, url: &Url) -> Result<(), FetchError> {
        match url.scheme() {
            "http" | "https" => self.address_guard.check(url),
            _ => Err(FetchError::Scheme { url: url.clone() }),
        }
    }

    /// Fetches a document of at most [`MAX_DOCUMENT_BYTES`] into a temporary file.
    pub(crate) async fn document(&self, url: &Url) -> Result<Fetched, FetchError> {
        let document = self.document_unless(url, None, &std::env::temp_dir()).await?;
        document.ok_or_else(|| FetchError::of_status(url, 304))
    }

    /// Fetches a document into a file in `folder`; `None` if it has not changed since `known`.
    pub(crate) async fn document_unless(
        &self,
        url: &Url,
        known: Option<&Validators>,
        folder: &Path,
    ) -> Result<Option<Fetched>, FetchError> {
        let mut deadline = Deadline::after(self.options.document_timeout);
        let conditions = known.map(Validators::conditions).unwrap_or_default();
        match self.get(url, Follow::Anywhere, conditions, &mut deadline).await? {
            Some(answer) => deadline.meet(url, spool(url, answer, folder)).await?.map(Some),
            None => Ok(None),
        }
    }

    /// POST of a form; follows 307 and 308 (W-093). Every final status is an answer.
    pub(crate) async fn post_form(&self, url: &Url, form: &str) -> Result<FormAnswer, FetchError> {
        let mut at = url.clone();
        for _ in 0..=self.options.max_redirects {
            self.check(&at)?;
            let request = self.http.post(at.clone()).header(CONTENT_TYPE, FORM_CONTENT_TYPE);
            let sent = request.body(form.to_owned()).timeout(self.options.idle_timeout).send().await;
            let mut response = sent.map_err(|error| FetchError::from_send(&at, &error))?;
            let status = response.status();
            if matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
                at = redirect_target(&at, status, response.headers())?;
                continue;
            }
            let text = explanation(&mut response).await;
            return Ok(FormAnswer { url: at, status: status.as_u16(), text });
        }
        Err(self.too_many_redirects(url, at))
    }
}

impl Client {
    fn too_many_redirects(&self, url: &Url, last: Url) -> FetchError {
        let max = self.options.max_redirects;
        FetchError::TooManyRedirects { url: url.clone(), last: Box::new(last), max }
    }
}

/// The host of a URL.
fn host_of(url: &Url) -> Option<String> {
    url.host_str().map(str::to_owned)
}

/// Reads a document to its end.
async fn spool(url: &Url, mut answer: Answer, folder: &Path) -> Result<Fetched, FetchError> {
    let too_large = || FetchError::TooLarge { url: url.clone(), max: MAX_DOCUMENT_BYTES };
    let no_file = |error: std::io::Error| FetchError::Spool { url: url.clone(), reason: error.to_string() };
    if answer.length.is_some_and(|length| length > MAX_DOCUMENT_BYTES) {
        return Err(too_large());
    }
    // If the free space is unknown, writing may fail.
    if let (Some(needed), Ok(free)) = (answer.length, free_space(folder))
        && needed > free
    {
        return Err(FetchError::NoSpace { url: url.clone(), needed, free });
    }
    let mut file = tempfile::tempfile_in(folder).map_err(no_file)?;
    let mut hasher = Hasher::new([Algorithm::Sha256]);
    let mut length = 0;
    while let Some(chunk) = answer.chunk().await? {
        length += chunk.len() as u64;
        if length > MAX_DOCUMENT_BYTES {
            return Err(too_large());
        }
        hasher.update(&chunk);
        file.write_all(&chunk).map_err(no_file)?;
    }
    file.seek(SeekFrom::Start(0)).map_err(no_file)?;
    let Answer { url, links, content_type, validators, .. } = answer;
    Ok(Fetched { url, links, content_type, validators, length, digest: hasher.finish().to_string(), file })
}

/// Resolves a reference in a document; `None` if it is not a URL, or too long.
pub(crate) fn led_to(document: &Url, reference: &str) -> Option<Url> {
    let reference = reference.trim();
    // A relative reference may be shorter than its URL.
    let resolved = if reference.len() > MAX_URL { None } else { document.join(reference).ok() };
    resolved.filter(|url| url.as_str().len() <= MAX_URL)
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn redirect_target(at: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Url, FetchError> {
    let location = headers.get(LOCATION).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    location
        .and_then(|location| led_to(at, location))
        .ok_or_else(|| FetchError::BadRedirect { url: at.clone(), status: status.as_u16() })
}

impl Follow<'_> {
    fn leads(self, from: &Url, to: &Url) -> bool {
        match self {
            Self::Anywhere => true,
            Self::Home => stays_home(from, to),
            Self::Among(others, list) => {
                let is_of = |other: &Url| other.origin() == to.origin();
                stays_home(from, to) || stays_home(list, to) || others.iter().any(is_of)
            }
        }
    }
}

/// The same origin, or from http to https on the same host.
fn stays_home(from: &Url, to: &Url) -> bool {
    let upgraded = from.scheme() == "http" && to.scheme() == "https" && from.host() == to.host();
    from.origin() == to.origin() || upgraded
}

async fn explanation(response: &mut reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_EXPLANATION {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            // The status matters more than the end of its explanation.
            Ok(None) | Err(_) => break,
        }
    }
    bytes.truncate(MAX_EXPLANATION);
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn b32_a_hub_that_is_not_public_is_not_posted_to() {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let hub = format!("http://{}/", nobody.local_addr().unwrap());
        let posted = Client::new(ClientOptions::default())
            .unwrap()
            .post_form(&Url::parse(&hub).unwrap(), "hub.mode=x")
            .await;
        assert!(matches!(posted, Err(FetchError::NotPublic { .. })), "{posted:?}");
        nobody.set_nonblocking(true).unwrap();
        assert!(nobody.accept().is_err(), "it was not even asked");
    }

    #[test]
    fn a_document_leads_to_no_url_that_is_longer_than_anybody_would_answer_to() {
        let long = |length: usize| "x".repeat(length);
        let base = Url::parse(&format!("http://a.example/{}/list.xml", long(3_000))).unwrap();
        assert_eq!(led_to(&base, " /b ").unwrap().as_str(), "http://a.example/b");
        assert!(led_to(&base, &long(1_000)).is_some());
        assert_eq!(led_to(&base, &long(1_100)), None, "relative, and long by what it is relative to");
        assert_eq!(led_to(&base, &format!("/{}", long(MAX_URL))), None);
        let location = HeaderValue::from_str(&format!("/{}", long(MAX_URL))).unwrap();
        let redirect =
            redirect_target(&base, StatusCode::FOUND, &HeaderMap::from_iter([(LOCATION, location)]));
        assert!(matches!(redirect, Err(FetchError::BadRedirect { .. })), "{redirect:?}");
    }

    #[test]
    fn b32_what_one_of_several_sources_is_near_to_opens_nothing_to_another() {
        let (here, away) = ("http://127.0.0.1:8090/", "http://8.8.8.8/");
        let all = [here.to_owned(), away.to_owned()];
        let trusted = all.iter().map(|url| Url::parse(url).unwrap()).collect();
        let options =
            ClientOptions { address_policy: AddressPolicy::NetworkOf(trusted), ..ClientOptions::default() };
        let both = Client::new(options).unwrap();
        let private = Url::parse("http://127.0.0.1:6379/").unwrap();
        let [own, other] = both.for_each(&all).unwrap().try_into().unwrap();
        assert!(both.address_guard.check(&private).is_ok() && own.address_guard.check(&private).is_ok());
        assert!(matches!(other.address_guard.check(&private), Err(FetchError::NotPublic { .. })));
        assert!(Arc::ptr_eq(&both.host_limits, &other.host_limits), "each host has one limit");
        let alone = both.for_each(&all[1..]).unwrap();
        assert_eq!(alone[0].options.address_policy, both.options.address_policy, "what else was given stays");
    }

    #[test]
    fn rs200_a_redirect_stays_home_only_within_the_origin_or_up_to_https() {
        let url = |text: &str| Url::parse(text).unwrap();
        assert!(stays_home(&url("http://a.example/x"), &url("http://a.example/y")));
        assert!(stays_home(&url("http://a.example/x"), &url("https://a.example/x")));
        assert!(!stays_home(&url("https://a.example/x"), &url("http://a.example/x")));
        assert!(!stays_home(&url("http://a.example/x"), &url("http://127.0.0.1/x")));
        assert!(!stays_home(&url("http://a.example/x"), &url("http://a.example:81/x")));
    }
}
