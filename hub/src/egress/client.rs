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
use tokio::time::{Instant, timeout_at};

use super::connector::{ConnectError, GuardedConnector};
use super::guard::{Forbidden, Guard};

/// What every request of the hub calls itself.
pub const USER_AGENT: &str = concat!("resync-hub/", env!("CARGO_PKG_VERSION"));

/// How long an unwanted body may take.
const DISCARD_PATIENCE: Duration = Duration::from_millis(500);

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
    /// This process has no file descriptor left for a connection: nothing was asked.
    #[error("no file descriptor is left for a connection: raise the limit (LimitNOFILE, ulimit -n)")]
    Exhausted,
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
        let deadline = Instant::now() + self.total;
        let late = |_| EgressError::Timeout(self.total);
        let response = timeout_at(deadline, self.client.request(request)).await.map_err(late)?;
        let (head, body) = response.map_err(|error| name_cause(&error))?.into_parts();
        let body = match limit {
            ReadLimit::Discard(most) => {
                // The status is the answer. A body that does not end soon costs the connection, nothing else.
                let patience = deadline.min(Instant::now() + DISCARD_PATIENCE);
                let _ = timeout_at(patience, discard(body, most)).await;
                Bytes::new()
            }
            ReadLimit::Keep(most) => timeout_at(deadline, collect(body, most)).await.map_err(late)??,
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
            Some(ConnectError::Io(error)) if is_exhaustion(error) => return EgressError::Exhausted,
            Some(ConnectError::Io(_)) | None => {}
        }
        innermost = current.to_string();
        cause = current.source();
    }
    EgressError::Network(innermost)
}

/// EMFILE and ENFILE, which have no `ErrorKind` of their own yet.
fn is_exhaustion(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one connection with these bytes and then holds it open.
    async fn peer(answer: &'static str) -> Uri {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream.write_all(answer.as_bytes()).await.unwrap();
            std::future::pending::<()>().await;
        });
        format!("http://{address}/").parse().unwrap()
    }

    fn client() -> EgressClient {
        let guard = Guard::new(vec!["127.0.0.0/8".parse().unwrap()], vec![]);
        EgressClient::new(guard, Duration::from_secs(1), Duration::from_secs(2), 1)
    }

    async fn send(answer: &'static str, limit: ReadLimit) -> Result<Answer, EgressError> {
        let request = Request::get(peer(answer).await).body(Full::new(Bytes::new())).unwrap();
        client().send(request, limit).await
    }

    #[tokio::test]
    async fn w149_w156_the_status_counts_although_the_body_never_ends() {
        let answer = send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab", ReadLimit::Discard(1_024)).await;
        assert_eq!(answer.unwrap().status, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_body_that_is_wanted_must_end_in_time_and_within_its_limit() {
        let stalled = send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nab", ReadLimit::Keep(1_024)).await;
        assert!(matches!(stalled, Err(EgressError::Timeout(_))), "{stalled:?}");
        let large = send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde", ReadLimit::Keep(4)).await;
        assert!(matches!(large, Err(EgressError::TooLarge(4))), "{large:?}");
    }

    #[tokio::test]
    async fn b32_a_name_that_resolves_to_a_forbidden_address_is_not_contacted() {
        let request = Request::get("http://localhost:9/").body(Full::new(Bytes::new())).unwrap();
        let closed = EgressClient::new(Guard::default(), Duration::from_secs(1), Duration::from_secs(2), 1);
        let answer = closed.send(request, ReadLimit::Discard(0)).await;
        assert!(matches!(answer, Err(EgressError::Forbidden(_))), "{answer:?}");
    }
}
