//! The only way out: GET and POST with bounds on redirects, size and time.

use std::error::Error as _;
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LAST_MODIFIED, LINK, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use resync_core::websub::FORM_CONTENT_TYPE;
use resync_core::websub::link_header::LinkHeader;
use url::Url;

/// The largest ResourceSync document that is read, in bytes (RS-042).
pub const MAX_DOCUMENT_BYTES: u64 = resync_core::xml::MAX_BYTES;

/// How much of a hub's explanation is kept for a message, in bytes.
const MAX_EXPLANATION: usize = 512;

/// How patient and how generous a [`Client`] is.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// What the `User-Agent` header says.
    pub user_agent: String,
    /// How long opening a connection may take.
    pub connect_timeout: Duration,
    /// How long a server may stay silent in the middle of an answer.
    pub idle_timeout: Duration,
    /// How long one document may take as a whole.
    pub document_timeout: Duration,
    /// How long one resource may take as a whole.
    pub resource_timeout: Duration,
    /// How many redirects one request may go through.
    pub max_redirects: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            user_agent: concat!("resync-destination/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            document_timeout: Duration::from_secs(300),
            resource_timeout: Duration::from_secs(3600),
            max_redirects: 5,
        }
    }
}

/// An HTTP client with every bound in place. Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    options: Arc<ClientOptions>,
}

/// Why a request had no usable answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The TLS settings or the client itself could not be set up.
    #[error("the HTTP client cannot be set up: {0}")]
    Setup(String),
    /// Only `http` and `https` are spoken.
    #[error("{0} is not an http or https URL: give one that starts with http:// or https://")]
    Scheme(String),
    /// Nobody answered: name resolution, connection, TLS or a broken exchange.
    #[error("{url} cannot be reached ({reason}): check the address and that the server is up")]
    Network {
        /// What was asked for.
        url: Url,
        /// What the network said.
        reason: String,
    },
    /// The server was too slow.
    #[error("{url} did not answer in time: try again later, or allow more time")]
    Timeout {
        /// What was asked for.
        url: Url,
    },
    /// More redirects than allowed, a loop for instance.
    #[error(
        "{url} redirects more than {max} times, the last time to {last}: the server's redirects go in a circle or are too long"
    )]
    TooManyRedirects {
        /// What was asked for.
        url: Url,
        /// Where the last redirect led.
        last: Box<Url>,
        /// How many are followed.
        max: usize,
    },
    /// A redirect without a usable `Location`.
    #[error("{url} redirects with {status} but its Location is missing or unusable")]
    BadRedirect {
        /// The redirecting URL.
        url: Url,
        /// The redirect's status.
        status: u16,
    },
    /// A resource redirects to another origin (RS-200).
    #[error("{url} redirects to another origin, {target}: allow other origins if you trust this Source")]
    ForeignRedirect {
        /// The redirecting URL.
        url: Url,
        /// Where it points.
        target: Box<Url>,
    },
    /// An answer other than 200.
    #[error("{url} answers {status}")]
    Status {
        /// What was asked for.
        url: Url,
        /// The status it answered.
        status: u16,
    },
    /// The body is larger than allowed.
    #[error("{url} is larger than {max} bytes")]
    TooLarge {
        /// What was asked for.
        url: Url,
        /// The bound.
        max: u64,
    },
    /// The body ended before it was complete.
    #[error("{url} ended too early ({reason}): the transfer was cut off")]
    CutOff {
        /// What was asked for.
        url: Url,
        /// What the connection said.
        reason: String,
    },
    /// A document could not be kept in a temporary file.
    #[error("no temporary file for {url}: {reason}")]
    Spool {
        /// What was asked for.
        url: Url,
        /// What the file system said.
        reason: String,
    },
}

impl FetchError {
    /// Whether the same request may well succeed a little later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Network { .. } | Self::Timeout { .. } | Self::CutOff { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            _ => false,
        }
    }

    fn from_send(url: &Url, error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::Timeout { url: url.clone() };
        }
        Self::Network { url: url.clone(), reason: root_cause(error) }
    }

    fn from_body(url: &Url, error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::Timeout { url: url.clone() };
        }
        Self::CutOff { url: url.clone(), reason: root_cause(error) }
    }
}

/// Which redirects of a GET are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// To anywhere: for documents, which a Source may keep on another host.
    Anywhere,
    /// Within the origin, or from http to https on the same host: for resources (RS-200).
    SameOrigin,
}

/// A 200 whose body has not been read yet.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Where the answer came from, after redirects.
    pub(crate) url: Url,
    /// The `Link` header, its targets made absolute.
    pub(crate) links: LinkHeader,
    pub(crate) last_modified: Option<SystemTime>,
    pub(crate) length: Option<u64>,
    response: reqwest::Response,
}

impl Answer {
    /// The next piece of the body, `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, FetchError> {
        let url = &self.url;
        self.response.chunk().await.map_err(|error| FetchError::from_body(url, &error))
    }
}

/// A document that was read to its end, kept in an unnamed temporary file.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) url: Url,
    pub(crate) links: LinkHeader,
    /// Rewound to its start.
    pub(crate) file: std::fs::File,
}

/// What a hub said to a form.
#[derive(Clone, Debug)]
pub(crate) struct FormAnswer {
    /// Where the answer came from, after redirects.
    pub(crate) url: Url,
    pub(crate) status: u16,
    /// The beginning of the body as plain text.
    pub(crate) text: String,
}

impl Client {
    /// A client with these bounds, TLS by rustls with the Mozilla roots.
    ///
    /// # Errors
    /// [`FetchError::Setup`] when the options cannot be used, a `User-Agent` with a line break for instance.
    pub fn new(options: ClientOptions) -> Result<Self, FetchError> {
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls_config()?)
            .user_agent(options.user_agent.as_str())
            // Lengths and hashes of a list speak about what is stored, so nothing may be compressed on the
            // way.
            .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(options.connect_timeout)
            .read_timeout(options.idle_timeout)
            .build()
            .map_err(|error| FetchError::Setup(root_cause(&error)))?;
        Ok(Self { http, options: Arc::new(options) })
    }

    /// The bounds this client keeps.
    #[must_use]
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }

    /// GET with redirects; only a 200 is an answer.
    pub(crate) async fn get(&self, url: &Url, follow: Follow) -> Result<Answer, FetchError> {
        let mut at = url.clone();
        for _ in 0..=self.options.max_redirects {
            check_scheme(&at)?;
            let sent = self.http.get(at.clone()).send().await;
            let response = sent.map_err(|error| FetchError::from_send(&at, &error))?;
            let status = response.status();
            if is_redirect(status) {
                let next = redirect_target(&at, status, response.headers())?;
                if follow == Follow::SameOrigin && !stays_home(&at, &next) {
                    return Err(FetchError::ForeignRedirect { url: at, target: Box::new(next) });
                }
                at = next;
                continue;
            }
            if status != StatusCode::OK {
                return Err(FetchError::Status { url: at, status: status.as_u16() });
            }
            return Ok(answer(at, response));
        }
        Err(FetchError::TooManyRedirects {
            url: url.clone(),
            last: Box::new(at),
            max: self.options.max_redirects,
        })
    }

    /// A whole document, at most [`MAX_DOCUMENT_BYTES`], within the document time.
    pub(crate) async fn document(&self, url: &Url) -> Result<Fetched, FetchError> {
        let whole = tokio::time::timeout(self.options.document_timeout, self.spool(url)).await;
        whole.unwrap_or_else(|_| Err(FetchError::Timeout { url: url.clone() }))
    }

    async fn spool(&self, url: &Url) -> Result<Fetched, FetchError> {
        let too_large = || FetchError::TooLarge { url: url.clone(), max: MAX_DOCUMENT_BYTES };
        let no_file =
            |error: std::io::Error| FetchError::Spool { url: url.clone(), reason: error.to_string() };
        let mut answer = self.get(url, Follow::Anywhere).await?;
        if answer.length.is_some_and(|length| length > MAX_DOCUMENT_BYTES) {
            return Err(too_large());
        }
        let mut file = tempfile::tempfile().map_err(no_file)?;
        let mut read = 0;
        while let Some(chunk) = answer.chunk().await? {
            read += chunk.len() as u64;
            if read > MAX_DOCUMENT_BYTES {
                return Err(too_large());
            }
            file.write_all(&chunk).map_err(no_file)?;
        }
        file.seek(SeekFrom::Start(0)).map_err(no_file)?;
        Ok(Fetched { url: answer.url, links: answer.links, file })
    }

    /// POST of a form, sent again at the target of a 307 or 308 (W-093). Every final status is an answer.
    pub(crate) async fn post_form(&self, url: &Url, form: &str) -> Result<FormAnswer, FetchError> {
        let mut at = url.clone();
        for _ in 0..=self.options.max_redirects {
            check_scheme(&at)?;
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
        Err(FetchError::TooManyRedirects {
            url: url.clone(),
            last: Box::new(at),
            max: self.options.max_redirects,
        })
    }
}

fn tls_config() -> Result<rustls::ClientConfig, FetchError> {
    let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| FetchError::Setup(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn check_scheme(url: &Url) -> Result<(), FetchError> {
    match url.scheme() {
        "http" | "https" => Ok(()),
        _ => Err(FetchError::Scheme(url.to_string())),
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

fn redirect_target(at: &Url, status: StatusCode, headers: &HeaderMap) -> Result<Url, FetchError> {
    let location = headers.get(LOCATION).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    location
        .and_then(|location| at.join(location).ok())
        .ok_or_else(|| FetchError::BadRedirect { url: at.clone(), status: status.as_u16() })
}

/// Same origin, or the move from http to https that many hosts make.
fn stays_home(from: &Url, to: &Url) -> bool {
    let upgraded = from.scheme() == "http" && to.scheme() == "https" && from.host() == to.host();
    from.origin() == to.origin() || upgraded
}

fn answer(url: Url, response: reqwest::Response) -> Answer {
    let headers = response.headers();
    let links = LinkHeader::parse(headers.get_all(LINK).iter().map(HeaderValue::as_bytes)).resolve(&url);
    let last_modified = text(headers, &LAST_MODIFIED).and_then(http_date);
    let length = text(headers, &CONTENT_LENGTH).and_then(|value| value.trim().parse().ok());
    Answer { url, links, last_modified, length, response }
}

fn text<'h>(headers: &'h HeaderMap, name: &http::HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn http_date(value: &str) -> Option<SystemTime> {
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    parser.parse_timestamp(value).ok().map(SystemTime::from)
}

async fn explanation(response: &mut reqwest::Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_EXPLANATION {
        match response.chunk().await {
            Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            // A status that arrived is worth more than the end of its explanation.
            Ok(None) | Err(_) => break,
        }
    }
    bytes.truncate(MAX_EXPLANATION);
    let text = String::from_utf8_lossy(&bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    if error.source().is_none() { error.to_string() } else { cause.to_string() }
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
    fn rs200_a_redirect_stays_home_only_within_the_origin_or_up_to_https() {
        let url = |text: &str| Url::parse(text).unwrap();
        assert!(stays_home(&url("http://a.example/x"), &url("http://a.example/y")));
        assert!(stays_home(&url("http://a.example/x"), &url("https://a.example/x")));
        assert!(!stays_home(&url("https://a.example/x"), &url("http://a.example/x")));
        assert!(!stays_home(&url("http://a.example/x"), &url("http://127.0.0.1/x")));
        assert!(!stays_home(&url("http://a.example/x"), &url("http://a.example:81/x")));
    }
}
