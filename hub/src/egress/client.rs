//! One request out, one bounded answer back. No redirects, no proxies, no unbounded reading.

use std::error::Error as StdError;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HOST};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use ipnet::IpNet;
use rustls::ClientConfig;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::confirmed::{Confirmed, HeldBack, Question};
use super::connection::{Broken, Connection, Failed, Protocols};
use super::connector::{ConnectError, GuardedConnector, Way, is_exhaustion, is_ours};
use super::crowds::Crowds;
use super::guard::{Forbidden, Guard};
use super::pool::{Bounds, Pool};
use super::target::Target;

/// What every request of the hub calls itself.
pub const USER_AGENT: &str = concat!("resync-hub/", env!("CARGO_PKG_VERSION"));

/// How long an unwanted body may take.
const DISCARD_PATIENCE: Duration = Duration::from_millis(500);

/// The largest head of an answer, in bytes and in header fields.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_FIELDS: usize = 100;

/// The longest cause of a failure, in bytes. Some say what a stranger's server has sent: a certificate may have thousands of names.
/// Causes are kept, for the operator, and written to the log.
const LONGEST_CAUSE: usize = 256;

/// Connections of a client that was not given another bound.
const CONNECTIONS: usize = 1_024;

/// The hub's HTTP client. Its connections belong to the runtime that uses it, so each runtime has its own.
#[derive(Clone, Debug)]
pub struct EgressClient {
    pool: Pool,
    connector: GuardedConnector,
    total: Duration,
}

/// How much of an answer's body is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadLimit {
    /// Read up to so many bytes, so that the connection can be used again, and throw them away (W-156).
    Discard(usize),
    /// Keep the body, as it comes over the wire; more than so many bytes are an error, and so is a compressed body, which
    /// the request does not ask for.
    Keep(usize),
    /// Keep so many bytes of the body from its beginning and leave the rest; a compressed body is an error here too.
    First(usize),
}

/// Where a body is kept as it comes in.
#[async_trait]
pub trait Room: Send {
    /// Whether there is room for so many bytes in all.
    async fn hold(&mut self, bytes: usize) -> bool;
}

/// For bodies that are small, or of which there are few.
#[derive(Clone, Copy, Debug)]
pub struct Unmeasured;

#[async_trait]
impl Room for Unmeasured {
    async fn hold(&mut self, _: usize) -> bool {
        true
    }
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
    /// Who answered.
    pub peer: IpAddr,
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
    /// The request was sent, and then the connection broke, or what came was no answer.
    #[error("{0}")]
    Cut(String),
    /// There is no way from here to the address.
    #[error("no way leads there: {0}")]
    NoWay(String),
    /// This process has no file descriptor left for a connection: nothing was asked.
    #[error("no file descriptor is left for a connection: raise the limit (LimitNOFILE, ulimit -n)")]
    Exhausted,
    /// The hub has no room for the body.
    #[error("there is no room in memory for the answer ([publish] body_memory)")]
    NoRoom,
    /// The hub was made to connect to this network too often of late: nothing was asked.
    #[error("this network is asked too often: it may be again in {0:?}")]
    Crowded(Duration),
    /// Nobody has confirmed there under this name, and nothing may be sent there now.
    #[error("the name leads to where nobody has confirmed under it: {0}")]
    Unconfirmed(HeldBack),
    /// Nobody was asked there yet whether it wants what is sent under this name ([`Way::Asking`]): only the question may be sent now.
    #[error("the name leads to where nobody has confirmed under it: that is asked first")]
    Unasked(Question),
    /// Not within the time.
    #[error("no complete answer within {0:?}")]
    Timeout(Duration),
    /// The body is larger than wanted.
    #[error("the answer's body is larger than {0} bytes")]
    TooLarge(usize),
    /// The body is compressed. A small one may become endless, so none is ever unpacked.
    #[error("the answer is compressed, although it was asked for as it is (Accept-Encoding: identity)")]
    Compressed,
}

impl EgressClient {
    /// `total` bounds a request from the first byte of the connection to the last byte of the answer.
    pub fn new(guard: Guard, connect_timeout: Duration, total: Duration, idle_per_host: usize) -> Self {
        let tls = guard.trust().client_config();
        Self::with(GuardedConnector::new(guard, connect_timeout), tls, total, idle_per_host)
    }

    /// The same for requests that are counted by the networks that they make the hub connect to. Its connections are its own.
    #[must_use]
    pub fn counting(&self, guard: &Guard, idle_per_host: usize, crowds: Crowds) -> Self {
        let tls = guard.trust().client_config();
        Self::with(self.connector.clone().counting(crowds), tls, self.total, idle_per_host)
    }

    /// The same, sending little to where a name leads that has not confirmed there. Its connections are its own.
    #[must_use]
    pub fn heeding(&self, guard: &Guard, idle_per_host: usize, confirmed: Confirmed) -> Self {
        let tls = guard.trust().client_config();
        Self::with(self.connector.clone().heeding(confirmed), tls, self.total, idle_per_host)
    }

    fn with(connector: GuardedConnector, tls: ClientConfig, total: Duration, idle_per_host: usize) -> Self {
        let protocols = Protocols::new(HEAD_BYTES, HEAD_FIELDS);
        let bounds = Bounds { idle_per_origin: idle_per_host, all: CONNECTIONS };
        Self { pool: Pool::new(connector.clone(), tls, protocols, bounds), connector, total }
    }

    /// Keeps the number of connections below this, by closing idle ones. Where so many are in use there may be more.
    #[must_use]
    pub fn with_connections(self, most: usize) -> Self {
        self.pool.bound(most);
        self
    }

    /// How long a request may take.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The network where this URL leads now: a /24, or a /48 of IPv6. `None` when nothing there would be contacted.
    pub async fn network(&self, url: &Url) -> Option<IpNet> {
        self.connector.network(&url.as_str().parse().ok()?).await
    }

    /// Sends the request and reads the answer within the limits.
    ///
    /// # Errors
    /// [`EgressError`], by what the caller can do about it. An answer of any status is no error.
    pub async fn send(&self, request: Request<Full<Bytes>>, limit: ReadLimit) -> Result<Answer, EgressError> {
        self.send_into(request, limit, &mut Unmeasured).await
    }

    /// The same, keeping in `room` what is kept of the body.
    ///
    /// # Errors
    /// The same, and [`EgressError::NoRoom`].
    pub async fn send_into(
        &self,
        request: Request<Full<Bytes>>,
        limit: ReadLimit,
        room: &mut impl Room,
    ) -> Result<Answer, EgressError> {
        let target = Target::of(request.uri())?;
        self.exchange(&target, request, limit, (Way::Plain, room), &mut None).await
    }

    /// The same for a target that was taken apart before, which the request need not name. `reached` becomes whom it was sent to,
    /// also where no answer comes.
    ///
    /// # Errors
    /// As [`EgressClient::send`]; [`EgressError::Unasked`] with [`Way::Asking`] only.
    pub async fn send_to(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        limit: ReadLimit,
        way: Way,
        reached: &mut Option<IpAddr>,
    ) -> Result<Answer, EgressError> {
        self.exchange(target, request, limit, (way, &mut Unmeasured), reached).await
    }

    /// Sends a request to the address that the question is for, over a connection of its own. What becomes of it the caller
    /// has to tell the question.
    ///
    /// # Errors
    /// As [`EgressClient::send`].
    pub async fn ask(
        &self,
        question: &mut Question,
        request: Request<Full<Bytes>>,
        limit: ReadLimit,
    ) -> Result<Answer, EgressError> {
        let target = Target::of(request.uri())?;
        let (deadline, request) = self.begin(&target, request, limit);
        question.weighs(request.uri().path_and_query().map_or(0, |target| target.as_str().len()));
        let sent = self.pool.ask(&target, request, question.address(), deadline).await;
        let (answer, _) = self.read(sent, limit, &mut Unmeasured, deadline).await?;
        Ok(answer)
    }

    async fn exchange(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        limit: ReadLimit,
        (way, room): (Way, &mut impl Room),
        reached: &mut Option<IpAddr>,
    ) -> Result<Answer, EgressError> {
        let (deadline, request) = self.begin(target, request, limit);
        let sent = self.pool.send(target, request, way, deadline, reached).await;
        let (answer, connection) = self.read(sent, limit, room, deadline).await?;
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

    /// Reads the answer, and gives back the connection if that was read to its end.
    async fn read(
        &self,
        sent: Result<(Response<Incoming>, Connection), Failed>,
        limit: ReadLimit,
        room: &mut impl Room,
        deadline: Instant,
    ) -> Result<(Answer, Option<Connection>), EgressError> {
        let late = |_| EgressError::Timeout(self.total);
        let (response, mut connection) = sent.map_err(|failed| match failed {
            Failed::Late => EgressError::Timeout(self.total),
            Failed::Unasked(question) => EgressError::Unasked(question),
            Failed::Broken(error) => self.name_cause(&error),
        })?;
        let (head, mut body) = response.into_parts();
        let peer = connection.peer();
        connection.answered(head.status.is_success());
        let (kept, read_to_its_end) = match limit {
            ReadLimit::Discard(_) if body.is_end_stream() => (Bytes::new(), true),
            ReadLimit::Discard(most) => {
                // The status is the answer. A body that does not end soon costs the connection, nothing else.
                let patience = deadline.min(Instant::now() + DISCARD_PATIENCE);
                (Bytes::new(), timeout_at(patience, discard(&mut body, most)).await.unwrap_or(false))
            }
            _ if coding(&head.headers).is_some() => return Err(EgressError::Compressed),
            ReadLimit::Keep(most) => {
                (timeout_at(deadline, collect(&mut body, most, room)).await.map_err(late)??, true)
            }
            ReadLimit::First(most) => {
                let kept = timeout_at(deadline, beginning(&mut body, most)).await.map_err(late)??;
                (kept, body.is_end_stream())
            }
        };
        let answer = Answer { status: head.status, headers: head.headers, body: kept, peer };
        Ok((answer, read_to_its_end.then_some(connection)))
    }

    fn name_cause(&self, error: &Broken) -> EgressError {
        let cause = name_cause(error.as_ref());
        if matches!(cause, EgressError::Exhausted) {
            self.pool.shrink();
        }
        cause
    }
}

/// The status is known and the body means nothing, so trouble while reading it means nothing either. Tells whether it ended.
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

/// What a body is coded with, where that is not `identity`.
pub(crate) fn coding(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    codings.find(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
}

async fn collect(body: &mut Incoming, most: usize, room: &mut impl Room) -> Result<Bytes, EgressError> {
    let mut kept = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| EgressError::Network(short(error.to_string())))?;
        if let Ok(data) = frame.into_data() {
            if kept.len() + data.len() > most {
                return Err(EgressError::TooLarge(most));
            }
            if !room.hold(kept.len() + data.len()).await {
                return Err(EgressError::NoRoom);
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
            Some(ConnectError::Crowded(wait)) => return EgressError::Crowded(*wait),
            Some(ConnectError::Unconfirmed(why)) => return EgressError::Unconfirmed(*why),
            Some(ConnectError::Timeout(limit)) => return EgressError::Timeout(*limit),
            Some(ConnectError::Io(error)) if is_exhaustion(error) => return EgressError::Exhausted,
            Some(ConnectError::Io(error)) if is_ours(error) => {
                return EgressError::NoWay(short(error.to_string()));
            }
            Some(ConnectError::Unasked | ConnectError::Io(_)) | None => {}
        }
        innermost = current.to_string();
        cause = current.source();
    }
    // Of what did not go out the client says that it was cancelled, or that there was no connection any more.
    let was_sent = error.downcast_ref::<hyper::Error>().is_some_and(|e| !e.is_canceled() && !e.is_closed());
    let innermost = short(innermost);
    if was_sent { EgressError::Cut(innermost) } else { EgressError::Network(innermost) }
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
            assert!(matches!(answer, Err(EgressError::Cut(_))), "{answer:?}");
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
        assert!(matches!(cut, Err(EgressError::Cut(_))), "{cut:?}");
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
        let ask = client.send_to(&target, request, ReadLimit::Discard(0), Way::Plain, &mut reached);
        let (cut, ()) = tokio::join!(ask, async {
            let (mut stream, _) = listener.accept().await.unwrap();
            assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
        });
        assert!(matches!(cut, Err(EgressError::Cut(_))), "{cut:?}");
        assert_eq!(reached, Some(address.ip()));
    }

    #[tokio::test]
    async fn b33_strangers_make_the_hub_connect_to_one_network_so_often_whatever_the_addresses() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let known = EgressClient::new(guard.clone(), Duration::from_secs(1), Duration::from_secs(2), 1);
        let crowds = Crowds::with("1/h, burst 2".parse().unwrap());
        let strangers = known.counting(&guard, 1, crowds);
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
        let was_tried = |error: &EgressError| matches!(error, EgressError::Network(_) | EgressError::Cut(_));
        for address in ["127.0.0.1", "127.0.0.2"] {
            assert!(was_tried(&ask(&strangers, address).await));
        }
        assert!(matches!(ask(&strangers, "127.0.0.3").await, EgressError::Crowded(_)));
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
