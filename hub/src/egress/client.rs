//! One request out, one bounded answer back. No redirects, no proxies, no unbounded reading.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use resync_core::websub::CallbackUrl;
use tokio::time::timeout;

use super::connector::{ConnectError, GuardedConnector};
use super::guard::{Forbidden, Guard};

/// What every request of the hub calls itself.
pub const USER_AGENT: &str = concat!("resync-hub/", env!("CARGO_PKG_VERSION"));

/// The hub's HTTP client. Its connections belong to the runtime that uses it, so each runtime has its own.
#[derive(Clone, Debug)]
pub struct EgressClient {
    client: Client<HttpsConnector<GuardedConnector>, Full<Bytes>>,
    total: Duration,
}

/// The request target of a callback: exactly what the subscriber wrote (W-190), as long as that can stand in a request; else
/// what the URL standard makes of it.
///
/// # Errors
/// When not even that is a request target.
pub fn target(callback: &CallbackUrl) -> Result<Uri, http::Error> {
    let written: Result<Uri, _> = callback.as_str().parse();
    written.or_else(|_| callback.url().as_str().parse()).map_err(http::Error::from)
}

/// How much of an answer's body is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLimit {
    /// Read up to so many bytes, so that the connection can be used again, and throw them away (W-156).
    Discard(usize),
    /// Keep the body; more than so many bytes are an error.
    Keep(usize),
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body, where it was kept.
    pub body: Bytes,
}

/// Why no answer came back.
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The guard refused an address.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// The name could not be resolved.
    #[error("{0}")]
    Dns(String),
    /// No connection, or it broke.
    #[error("{0}")]
    Network(String),
    /// Not within the time.
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
    /// The body is larger than wanted.
    #[error("the answer's body is larger than {0} bytes")]
    TooLarge(usize),
}

impl EgressClient {
    /// `total` bounds a request from the first byte of the connection to the last byte of the answer.
    pub fn new(guard: Guard, connect_timeout: Duration, total: Duration, idle_per_host: usize) -> Self {
        let https = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .wrap_connector(GuardedConnector::new(guard, connect_timeout));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(idle_per_host)
            .build(https);
        Self { client, total }
    }

    /// Sends the request and reads the answer within the limits.
    ///
    /// # Errors
    /// [`EgressError`], by what the caller can do about it. An answer of any status is no error.
    pub async fn send(&self, request: Request<Full<Bytes>>, limit: ReadLimit) -> Result<Answer, EgressError> {
        timeout(self.total, self.exchange(request, limit))
            .await
            .unwrap_or(Err(EgressError::Timeout(self.total)))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, limit: ReadLimit) -> Result<Answer, EgressError> {
        let response = self.client.request(request).await.map_err(|error| name_cause(&error))?;
        let (head, body) = response.into_parts();
        let body = match limit {
            ReadLimit::Discard(most) => {
                discard(body, most).await;
                Bytes::new()
            }
            ReadLimit::Keep(most) => collect(body, most).await?,
        };
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

/// The status is known and the body means nothing, so trouble while reading it means nothing either.
async fn discard(mut body: Incoming, most: usize) {
    let mut seen = 0;
    while seen <= most {
        match body.frame().await {
            Some(Ok(frame)) => seen += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) | None => return,
        }
    }
}

async fn collect(mut body: Incoming, most: usize) -> Result<Bytes, EgressError> {
    let mut kept = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| EgressError::Network(error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            if kept.len() + data.len() > most {
                return Err(EgressError::TooLarge(most));
            }
            kept.extend_from_slice(&data);
        }
    }
    Ok(kept.freeze())
}

/// Finds the connector's own error under the layers of the client's.
fn name_cause(error: &legacy::Error) -> EgressError {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut innermost = error.to_string();
    while let Some(current) = cause {
        match current.downcast_ref::<ConnectError>() {
            Some(ConnectError::Forbidden(forbidden)) => return forbidden.clone().into(),
            Some(found @ ConnectError::Dns { .. }) => return EgressError::Dns(found.to_string()),
            Some(ConnectError::Timeout(limit)) => return EgressError::Timeout(*limit),
            Some(ConnectError::Io(_)) | None => {}
        }
        innermost = current.to_string();
        cause = current.source();
    }
    EgressError::Network(innermost)
}
