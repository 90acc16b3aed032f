//! One request out, one bounded answer back. No redirects, no proxies, no unbounded reading.

use std::error::Error as StdError;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, HOST};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use ipnet::IpNet;
use resync_common::client::in_plain_words;
use resync_common::words::Size;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::connection::{BoxError, Connection, Failed, Protocols};
use super::connector::{ConnectError, GuardedConnector, Route, is_exhaustion, is_ours};
use super::guard::{Forbidden, Guard};
use super::network_limit::NetworkLimit;
use super::pool::{Bounds, Pool};
use super::rebinding::{ConfirmedAddresses, Reverification, Withheld};
use super::target::Target;
use crate::content_coding::content_coding;

/// The `User-Agent` of every request of the hub.
pub const USER_AGENT: &str = concat!("resync-hub/", env!("CARGO_PKG_VERSION"));

/// How long a body that is discarded may take.
const DISCARD_PATIENCE: Duration = Duration::from_millis(500);

/// The largest head of an answer, in bytes and in header fields.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_FIELDS: usize = 100;

/// The longest cause of a failure, in bytes. Some contain what a stranger's server sent, such as a certificate with thousands of
/// names. Causes are kept for the operator and logged.
const LONGEST_CAUSE: usize = 256;

/// Connections of a client without [`EgressClient::with_connections`].
const CONNECTIONS: usize = 1_024;

/// The hub's HTTP client. Its connections belong to the runtime that uses it, so each runtime has its own.
#[derive(Clone, Debug)]
pub struct EgressClient {
    pool: Pool,
    total: Duration,
}

/// How much of an answer's body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLimit {
    /// Read up to so many bytes, so that the connection can be reused, and throw them away (W-156).
    Discard(usize),
    /// Keep the body as it is on the wire. A longer one is an error, and so is a compressed one, which the request does not ask
    /// for; where the answer is no 2xx, such a body is left instead.
    Keep(usize),
    /// Keep the first so many bytes of the body and leave the rest; a compressed body is an error here too.
    First(usize),
}

/// Limits the memory for a body that is kept.
#[async_trait]
pub trait BodyMemory: Send {
    /// Whether so many bytes in all may be kept; waits for them if that makes sense.
    async fn reserve(&mut self, bytes: usize) -> bool;
}

/// For bodies that are small, or of which there are few.
#[derive(Clone, Copy, Debug)]
pub struct Unlimited;

#[async_trait]
impl BodyMemory for Unlimited {
    async fn reserve(&mut self, _: usize) -> bool {
        true
    }
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body, if it was kept.
    pub body: Bytes,
    /// The address that answered.
    pub peer: IpAddr,
}

/// Why there is no answer.
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
    /// The request was sent, and then the connection broke, or what came was no answer.
    #[error("{0}")]
    Interrupted(String),
    /// This machine has no route to the address.
    #[error("no route to host: {0}")]
    NoRoute(String),
    /// This process has no file descriptor left for a connection: nothing was sent.
    #[error("no file descriptor is left for a connection: raise the limit (LimitNOFILE, ulimit -n)")]
    NoFileDescriptors,
    /// The bodies that the hub keeps use up their memory.
    #[error("no memory is left for the answer: raise [publish] body_memory")]
    BodyMemoryFull,
    /// The limit for connections to the network is reached: nothing was sent.
    #[error("rate limit for connections to this network; retry in {0:?}")]
    RateLimited(Duration),
    /// The address is unconfirmed, and nothing may be sent there now.
    #[error("unconfirmed address: {0}")]
    Unconfirmed(Withheld),
    /// The address is unconfirmed, and has to be re-verified before it is sent anything ([`Route::Reverify`]).
    #[error("unconfirmed address: it has to be re-verified first")]
    ReverifyFirst(Reverification),
    /// Not within the time.
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
    /// The body is too long.
    #[error("the answer's body is longer than {}", Size(*.0 as u64))]
    TooLarge(usize),
    /// The body is compressed. A small one may unpack to any length, so none is ever unpacked.
    #[error("the answer is compressed, although the request has Accept-Encoding: identity")]
    Compressed,
}

/// What an exchange needs beside target and request.
struct Exchange<'a, M> {
    limit: ReadLimit,
    route: Route,
    memory: &'a mut M,
    /// Becomes the address that the request was sent to, unless it is unconfirmed.
    reached: &'a mut Option<IpAddr>,
}

impl EgressClient {
    /// `total` limits the time from the first byte of the connection to the last byte of the answer.
    pub fn new(guard: Guard, connect_timeout: Duration, total: Duration, idle_per_host: usize) -> Self {
        let tls = guard.tls_roots().client_config();
        let protocols = Protocols::new(HEAD_BYTES, HEAD_FIELDS);
        let bounds = Bounds { idle_per_origin: idle_per_host, all: CONNECTIONS };
        let connector = GuardedConnector::new(guard, connect_timeout);
        Self { pool: Pool::new(connector, tls, protocols, bounds), total }
    }

    /// A client like this one that limits connections per network. Its connections are its own.
    #[must_use]
    pub fn limiting_networks(&self, limit: NetworkLimit) -> Self {
        let connector = self.pool.connector().clone().limiting_networks(limit);
        Self { pool: self.pool.with_connector(connector), total: self.total }
    }

    /// A client like this one that limits requests to unconfirmed addresses. Its connections are its own.
    #[must_use]
    pub fn limiting_unconfirmed(&self, confirmed: ConfirmedAddresses) -> Self {
        let connector = self.pool.connector().clone().limiting_unconfirmed(confirmed);
        Self { pool: self.pool.with_connector(connector), total: self.total }
    }

    /// Keeps the number of connections below this, by closing idle ones. If all are in use there may be more.
    #[must_use]
    pub fn with_connections(self, most: usize) -> Self {
        self.pool.bound(most);
        self
    }

    /// How long a request may take.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The network of this URL's host: a /24, or a /48 of IPv6. `None` if nothing there would be contacted.
    pub async fn network(&self, url: &Url) -> Option<IpNet> {
        self.pool.connector().network(&url.as_str().parse().ok()?).await
    }

    /// Sends the request and reads the answer within the limits.
    ///
    /// # Errors
    /// [`EgressError`], by what the caller can do about it. An answer of any status is no error.
    pub async fn send(&self, request: Request<Full<Bytes>>, limit: ReadLimit) -> Result<Answer, EgressError> {
        self.send_within(request, limit, &mut Unlimited).await
    }

    /// Sends the request and reads the answer within the limits; `memory` limits what is kept of the body.
    ///
    /// # Errors
    /// As [`EgressClient::send`], and [`EgressError::BodyMemoryFull`].
    pub async fn send_within(
        &self,
        request: Request<Full<Bytes>>,
        limit: ReadLimit,
        memory: &mut impl BodyMemory,
    ) -> Result<Answer, EgressError> {
        let target = Target::of(request.uri())?;
        let exchange = Exchange { limit, route: Route::Any, memory, reached: &mut None };
        self.exchange(&target, request, exchange).await
    }

    /// Sends the request, which need not name a target, to one that was parsed before. `reached` becomes the address that it
    /// was sent to, also if no answer comes, unless it is unconfirmed.
    ///
    /// # Errors
    /// As [`EgressClient::send`]; [`EgressError::ReverifyFirst`] with [`Route::Reverify`] only.
    pub async fn send_to(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        limit: ReadLimit,
        route: Route,
        reached: &mut Option<IpAddr>,
    ) -> Result<Answer, EgressError> {
        self.exchange(target, request, Exchange { limit, route, memory: &mut Unlimited, reached }).await
    }

    /// Sends a re-verification to its address, over a connection of its own.
    pub(super) async fn send_reverification(
        &self,
        reverification: &mut Reverification,
        request: Request<Full<Bytes>>,
        limit: ReadLimit,
    ) -> Result<Answer, EgressError> {
        let target = Target::of(request.uri())?;
        let (deadline, request) = self.begin(&target, request, limit);
        reverification.weighs(request.uri().path_and_query().map_or(0, |target| target.as_str().len()));
        let sent = self.pool.reverify(&target, request, reverification.address(), deadline).await;
        let (answer, _) = self.read(sent, limit, &mut Unlimited, deadline).await?;
        Ok(answer)
    }

    async fn exchange(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        exchange: Exchange<'_, impl BodyMemory>,
    ) -> Result<Answer, EgressError> {
        let Exchange { limit, route, memory, reached } = exchange;
        let (deadline, request) = self.begin(target, request, limit);
        let sent = self.pool.send(target, request, route, deadline, reached).await;
        let (answer, connection) = self.read(sent, limit, memory, deadline).await?;
        if let Some(connection) = connection {
            self.pool.put(target, connection, &answer.headers);
        }
        Ok(answer)
    }

    fn begin(
        &self,
        target: &Target,
        mut request: Request<Full<Bytes>>,
        limit: ReadLimit,
    ) -> (Instant, Request<Full<Bytes>>) {
        *request.uri_mut() = target.path.clone();
        request.headers_mut().insert(HOST, target.host.clone());
        if !matches!(limit, ReadLimit::Discard(_)) {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        (Instant::now() + self.total, request)
    }

    /// Reads the answer, and returns the connection if the answer was read to its end.
    async fn read(
        &self,
        sent: Result<(Response<Incoming>, Connection), Failed>,
        limit: ReadLimit,
        memory: &mut impl BodyMemory,
        deadline: Instant,
    ) -> Result<(Answer, Option<Connection>), EgressError> {
        let late = |_| EgressError::Timeout(self.total);
        let (response, mut connection) = sent.map_err(|failed| match failed {
            Failed::TimedOut => EgressError::Timeout(self.total),
            Failed::ReverifyFirst(reverification) => EgressError::ReverifyFirst(reverification),
            Failed::Error(error) => self.name_cause(&error),
        })?;
        let (head, mut body) = response.into_parts();
        let peer = connection.peer();
        connection.answered(head.status.is_success());
        let (kept, read_to_its_end) = match limit {
            ReadLimit::Discard(_) if body.is_end_stream() => (Bytes::new(), true),
            ReadLimit::Discard(most) => {
                // The status is the answer. A body that does not end soon costs the connection, nothing else.
                let patience = deadline.min(Instant::now() + DISCARD_PATIENCE);
                let read = connection.during(timeout_at(patience, discard(&mut body, most))).await;
                (Bytes::new(), read.unwrap_or(false))
            }
            _ if content_coding(&head.headers).is_some() && head.status.is_success() => {
                return Err(EgressError::Compressed);
            }
            // An error page: the status is the answer.
            _ if content_coding(&head.headers).is_some() => (Bytes::new(), false),
            ReadLimit::Keep(most) => {
                let read = connection.during(timeout_at(deadline, collect(&mut body, most, memory))).await;
                match read.map_err(late)? {
                    Err(EgressError::TooLarge(_)) if !head.status.is_success() => (Bytes::new(), false),
                    kept => (kept?, true),
                }
            }
            ReadLimit::First(most) => {
                let read = connection.during(timeout_at(deadline, beginning(&mut body, most))).await;
                (read.map_err(late)??, body.is_end_stream())
            }
        };
        let answer = Answer { status: head.status, headers: head.headers, body: kept, peer };
        Ok((answer, read_to_its_end.then_some(connection)))
    }

    fn name_cause(&self, error: &BoxError) -> EgressError {
        let cause = name_cause(error.as_ref());
        if matches!(cause, EgressError::NoFileDescriptors) {
            self.pool.shrink();
        }
        cause
    }
}

/// Reads and drops the body, since only the status matters; so errors do not matter either. Returns whether it ended.
async fn discard(body: &mut Incoming, most: usize) -> bool {
    let mut seen = 0;
    while seen <= most {
        match body.frame().await {
            Some(Ok(frame)) => seen += frame.data_ref().map_or(0, Bytes::len),
            Some(Err(_)) => return false,
            None => return true,
        }
    }
    false
}

async fn collect(
    body: &mut Incoming,
    most: usize,
    memory: &mut impl BodyMemory,
) -> Result<Bytes, EgressError> {
    let mut kept = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| EgressError::Network(short(error.to_string())))?;
        if let Ok(data) = frame.into_data() {
            if kept.len() + data.len() > most {
                return Err(EgressError::TooLarge(most));
            }
            if !memory.reserve(kept.len() + data.len()).await {
                return Err(EgressError::BodyMemoryFull);
            }
            kept.extend_from_slice(&data);
        }
    }
    Ok(kept.freeze())
}

async fn beginning(body: &mut Incoming, most: usize) -> Result<Bytes, EgressError> {
    let mut kept = BytesMut::new();
    while kept.len() < most
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| EgressError::Network(short(error.to_string())))?;
        if let Ok(data) = frame.into_data() {
            kept.extend_from_slice(&data[..data.len().min(most - kept.len())]);
        }
    }
    Ok(kept.freeze())
}

/// Finds the connector's own error under the layers of the client's.
fn name_cause(error: &(dyn StdError + 'static)) -> EgressError {
    let mut cause = Some(error);
    let mut innermost = error.to_string();
    while let Some(current) = cause {
        match current.downcast_ref::<ConnectError>() {
            Some(ConnectError::Forbidden(forbidden)) => return forbidden.clone().into(),
            Some(found @ ConnectError::Dns { .. }) => return EgressError::Dns(short(found.to_string())),
            Some(ConnectError::RateLimited(wait)) => return EgressError::RateLimited(*wait),
            Some(ConnectError::Unconfirmed(why)) => return EgressError::Unconfirmed(*why),
            Some(ConnectError::Timeout(limit)) => return EgressError::Timeout(*limit),
            Some(ConnectError::Io(error)) if is_exhaustion(error) => return EgressError::NoFileDescriptors,
            Some(ConnectError::Io(error)) if is_ours(error) => {
                return EgressError::NoRoute(short(error.to_string()));
            }
            Some(ConnectError::ReverifyFirst | ConnectError::Io(_)) | None => {}
        }
        innermost = current.to_string();
        cause = current.source();
    }
    // hyper calls a request that was not sent cancelled, or its connection closed.
    let was_sent = error.downcast_ref::<hyper::Error>().is_some_and(|e| !e.is_canceled() && !e.is_closed());
    let innermost = short(in_plain_words(innermost));
    if was_sent { EgressError::Interrupted(innermost) } else { EgressError::Network(innermost) }
}

/// A cause of bounded length.
fn short(mut cause: String) -> String {
    if cause.len() > LONGEST_CAUSE {
        let end = (0..=LONGEST_CAUSE).rev().find(|at| cause.is_char_boundary(*at)).unwrap_or_default();
        cause.truncate(end);
        cause.push('…');
        cause.shrink_to_fit();
    }
    cause
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// Answers one connection with these bytes and then holds it open.
    async fn peer(answer: String) -> Uri {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            // A client that has seen enough closes its side.
            let _ = stream.write_all(answer.as_bytes()).await;
            std::future::pending::<()>().await;
        });
        format!("http://{address}/").parse().unwrap()
    }

    fn client() -> EgressClient {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        EgressClient::new(guard, Duration::from_secs(1), Duration::from_secs(2), 1)
    }

    #[test]
    fn a_cause_is_short_however_much_a_server_had_to_say() {
        assert_eq!(short("a name".to_owned()), "a name");
        let long = short("\u{e9}".repeat(40_000));
        assert!(long.len() <= LONGEST_CAUSE + '…'.len_utf8() && long.ends_with("\u{e9}…"), "{long}");
    }

    async fn send(answer: impl Into<String>, limit: ReadLimit) -> Result<Answer, EgressError> {
        let request = Request::get(peer(answer.into()).await).body(Full::new(Bytes::new())).unwrap();
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
    async fn the_status_counts_where_an_error_page_is_too_long_or_compressed() {
        let long = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 5\r\n\r\nabcde";
        let compressed =
            "HTTP/1.1 503 Service Unavailable\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x0b";
        for answer in [long, compressed] {
            let answer = send(answer, ReadLimit::Keep(4)).await.unwrap();
            assert_eq!((answer.status, answer.body), (StatusCode::SERVICE_UNAVAILABLE, Bytes::new()));
        }
    }

    #[tokio::test]
    async fn of_a_body_whose_beginning_is_wanted_no_more_is_kept_however_long_it_is() {
        let endless = "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nabcde";
        assert_eq!(send(endless, ReadLimit::First(4)).await.unwrap().body, "abcd");
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(send(short, ReadLimit::First(4)).await.unwrap().body, "abc");
        let compressed = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc";
        let compressed = send(compressed, ReadLimit::First(4)).await;
        assert!(matches!(compressed, Err(EgressError::Compressed)), "{compressed:?}");
    }

    #[tokio::test]
    async fn a_connection_is_used_again_however_its_answer_ends() {
        for answer in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        ] {
            for limit in [ReadLimit::Discard(1_024), ReadLimit::Keep(1_024)] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("http://{}/", listener.local_addr().unwrap());
                let client = client();
                let ask = || client.send(Request::get(&url).body(Full::default()).unwrap(), limit);
                let (first, mut stream) = tokio::join!(ask(), async {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream
                });
                first.unwrap();
                // Nobody accepts a second connection.
                let (second, ()) = tokio::join!(ask(), async {
                    assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                });
                assert_eq!(second.unwrap().status, StatusCode::OK, "{answer} {limit:?}");
            }
        }
    }

    #[tokio::test]
    async fn the_head_of_an_answer_is_bounded_in_bytes_and_in_fields() {
        let long =
            format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(2 * HEAD_BYTES));
        let many = format!("HTTP/1.1 200 OK\r\n{}Content-Length: 0\r\n\r\n", "X: y\r\n".repeat(HEAD_FIELDS));
        for answer in [long, many] {
            let answer = send(answer, ReadLimit::Discard(0)).await;
            assert!(matches!(answer, Err(EgressError::Interrupted(_))), "{answer:?}");
        }
    }

    #[tokio::test]
    async fn d11_a_compressed_body_is_refused_and_never_unpacked() {
        let answer = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x0b";
        let refused = send(answer, ReadLimit::Keep(1_024)).await;
        assert!(matches!(refused, Err(EgressError::Compressed)), "{refused:?}");
        assert!(send(answer, ReadLimit::Discard(1_024)).await.is_ok());
    }

    #[tokio::test]
    async fn a_server_that_hangs_up_on_a_request_is_told_from_one_that_is_not_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let client = client();
        let ask =
            || client.send(Request::post(&url).body(Full::default()).unwrap(), ReadLimit::Discard(1_024));
        let (cut, ()) = tokio::join!(ask(), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
        });
        assert!(matches!(cut, Err(EgressError::Interrupted(_))), "{cut:?}");
        drop(listener);
        let away = ask().await;
        assert!(matches!(away, Err(EgressError::Network(_))), "{away:?}");
    }

    #[tokio::test]
    async fn whom_a_request_was_sent_to_is_told_also_where_no_answer_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url: Uri = format!("http://{address}/").parse().unwrap();
        let (client, target, mut reached) = (client(), Target::of(&url).unwrap(), None);
        let request = Request::post(&url).body(Full::default()).unwrap();
        let ask = client.send_to(&target, request, ReadLimit::Discard(0), Route::Any, &mut reached);
        let (cut, ()) = tokio::join!(ask, async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
        });
        assert!(matches!(cut, Err(EgressError::Interrupted(_))), "{cut:?}");
        assert_eq!(reached, Some(address.ip()));
    }

    #[tokio::test]
    async fn b33_strangers_make_the_hub_connect_to_one_network_so_often_whatever_the_addresses() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let known = EgressClient::new(guard.clone(), Duration::from_secs(1), Duration::from_secs(2), 1);
        let network_limit = NetworkLimit::with("1/h, burst 2".parse().unwrap());
        let strangers = known.limiting_networks(network_limit);
        let ask = async |client: &EgressClient, address: &str| {
            let listener = TcpListener::bind((address, 0)).await.unwrap();
            let request = Request::get(format!("http://{}/", listener.local_addr().unwrap()));
            tokio::spawn(async move { while listener.accept().await.is_ok() {} });
            client
                .send(request.body(Full::new(Bytes::new())).unwrap(), ReadLimit::Discard(0))
                .await
                .unwrap_err()
        };
        // Whoever hangs up at once may do so before the request is sent.
        let was_tried =
            |error: &EgressError| matches!(error, EgressError::Network(_) | EgressError::Interrupted(_));
        for address in ["127.0.0.1", "127.0.0.2"] {
            assert!(was_tried(&ask(&strangers, address).await));
        }
        assert!(matches!(ask(&strangers, "127.0.0.3").await, EgressError::RateLimited(_)));
        assert!(was_tried(&ask(&strangers, "127.0.1.1").await), "another network");
        assert!(was_tried(&ask(&known, "127.0.0.3").await), "others are not counted with them");
    }

    #[tokio::test]
    async fn b32_a_name_that_resolves_to_a_forbidden_address_is_not_contacted() {
        let request = Request::get("http://localhost:9/").body(Full::new(Bytes::new())).unwrap();
        let closed =
            EgressClient::new(Guard::open_to(&[]), Duration::from_secs(1), Duration::from_secs(2), 1);
        let answer = closed.send(request, ReadLimit::Discard(0)).await;
        assert!(matches!(answer, Err(EgressError::Forbidden(_))), "{answer:?}");
    }
}
