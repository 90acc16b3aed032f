//! A subscriber for tests: answers as it is told, remembers everything, and its temper can change mid-test.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use resync_judge::is_signature;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use super::PATIENCE;
use super::locks::lock;

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When it had arrived completely.
    pub at: Instant,
    /// GET for verification, POST for deliveries.
    pub method: Method,
    /// Path and query, as on the wire.
    pub target: String,
    /// The header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Seen {
    /// The value of a header field, or nothing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// A parameter of the query, decoded; the last one where it stands several times.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?')?.1;
        let pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs.filter(|(found, _)| found == name).last().map(|(_, value)| value.into_owned())
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// The offset in `webhook-id`.
    pub fn offset(&self) -> u64 {
        self.header("webhook-id")
            .rsplit('.')
            .next()
            .and_then(|offset| offset.parse().ok())
            .unwrap_or_default()
    }

    /// Whether it is signed with this secret, by the method that it names (W-166).
    pub fn is_signed_with(&self, secret: &str) -> bool {
        is_signature(self.header("x-hub-signature"), secret, &self.body)
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What to answer.
#[derive(Clone, Debug)]
pub enum Reply {
    /// The challenge of a verification, as a subscriber that agrees; 204 to a delivery.
    Agree,
    /// This status and body.
    Status(u16, String),
    /// This status with a header field.
    With(u16, &'static str, String),
    /// This status with these header fields and this body.
    Page(u16, Vec<(&'static str, String)>, String),
    /// This reply once the test says so.
    After(Arc<Notify>, Box<Reply>),
    /// Nothing, until the peer gives up.
    Hang,
    /// As [`Reply::Agree`], after a while.
    Late(Duration),
}

/// How requests are answered.
pub type Temper = Arc<dyn Fn(&Seen) -> Reply + Send + Sync>;

struct State {
    temper: Mutex<Temper>,
    log: watch::Sender<Vec<Seen>>,
}

/// For [`Receiver::behave`]: whoever verifies is agreed with, and every delivery is answered so.
pub fn refusing(status: u16) -> impl Fn(&Seen) -> Reply + Send + Sync + 'static {
    move |seen| match seen.method {
        http::Method::POST => Reply::Status(status, String::new()),
        _ => Reply::Agree,
    }
}

/// A running subscriber; it stops when dropped.
pub struct Receiver {
    address: SocketAddr,
    state: Arc<State>,
    server: AbortHandle,
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Receiver {
    /// A subscriber on 127.0.0.1 that agrees to everything.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into()).await
    }

    /// The same on another loopback address, which makes it another host for the hub.
    pub async fn start_at(address: IpAddr) -> Self {
        Self::try_start_at((address, 0).into()).await.expect("a loopback port is free")
    }

    /// The same at a port of its own.
    ///
    /// # Errors
    /// When it is taken.
    pub async fn try_start_at(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr().expect("a bound socket has an address");
        let temper: Temper = Arc::new(|_| Reply::Agree);
        let state = Arc::new(State { temper: Mutex::new(temper), log: watch::Sender::new(Vec::new()) });
        let server = tokio::spawn(serve(listener, Arc::clone(&state))).abort_handle();
        Ok(Self { address, state, server })
    }

    /// A callback URL of this subscriber.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on requests are answered so.
    pub fn behave(&self, temper: impl Fn(&Seen) -> Reply + Send + Sync + 'static) {
        *lock(&self.state.temper) = Arc::new(temper);
    }

    /// How requests are answered now.
    pub fn temper(&self) -> Temper {
        Arc::clone(&lock(&self.state.temper))
    }

    /// Everything that has arrived.
    pub fn seen(&self) -> Vec<Seen> {
        self.state.log.borrow().clone()
    }

    /// Looks at everything that has arrived, without a copy of it.
    pub fn look<T>(&self, at: impl FnOnce(&[Seen]) -> T) -> T {
        at(&self.state.log.borrow())
    }

    /// The deliveries that have arrived.
    pub fn deliveries(&self) -> Vec<Seen> {
        deliveries(&self.state.log.borrow())
    }

    /// Waits until this condition on the log holds and returns the log.
    ///
    /// # Panics
    /// When it does not hold within [`PATIENCE`].
    pub async fn until(&self, what: &str, condition: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let mut log = self.state.log.subscribe();
        let held = timeout(PATIENCE, log.wait_for(|seen| condition(seen))).await;
        match held {
            Ok(Ok(seen)) => seen.clone(),
            Ok(Err(_)) | Err(_) => panic!("it never happened: {what}; seen: {:#?}", self.summary()),
        }
    }

    /// Waits until so many deliveries have arrived and returns them.
    pub async fn until_delivered(&self, count: usize) -> Vec<Seen> {
        let log = self.until(&format!("{count} deliveries"), |seen| deliveries(seen).len() >= count).await;
        deliveries(&log)
    }

    /// Waits for the verification request with this number (1 = the first) and returns it.
    pub async fn until_verified(&self, number: usize) -> Seen {
        let log =
            self.until(&format!("{number} verifications"), |seen| verifications(seen).len() >= number).await;
        verifications(&log).swap_remove(number - 1)
    }

    fn summary(&self) -> Vec<String> {
        self.seen()
            .iter()
            .map(|seen| format!("{} {} {}", seen.method, seen.target, seen.header("webhook-id")))
            .collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn deliveries(log: &[Seen]) -> Vec<Seen> {
    log.iter().filter(|seen| seen.method == Method::POST).cloned().collect()
}

fn verifications(log: &[Seen]) -> Vec<Seen> {
    log.iter().filter(|seen| seen.method == Method::GET).cloned().collect()
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    // Connections die with the server, as those of a process that is gone.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&state), request));
            // Peers that are killed mid-request are part of the tests.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Ok(plain(400, "the body broke off")) };
    let target = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let seen = Seen {
        at: Instant::now(),
        method: head.method,
        target,
        headers: head.headers,
        body: body.to_bytes(),
    };
    let temper = Arc::clone(&lock(&state.temper));
    let reply = temper(&seen);
    state.log.send_modify(|log| log.push(seen.clone()));
    let reply = match reply {
        Reply::After(release, reply) => {
            release.notified().await;
            *reply
        }
        reply => reply,
    };
    Ok(match reply {
        Reply::Agree => agree(&seen),
        Reply::Page(status, headers, body) => {
            let mut response = plain(status, &body);
            for (name, value) in headers {
                response.headers_mut().append(name, value.parse().expect("tests use valid header values"));
            }
            response
        }
        Reply::Late(pause) => {
            tokio::time::sleep(pause).await;
            agree(&seen)
        }
        Reply::Status(status, body) => plain(status, &body),
        Reply::With(status, name, value) => {
            let mut response = plain(status, "");
            response.headers_mut().insert(name, value.parse().expect("tests use valid header values"));
            response
        }
        Reply::Hang | Reply::After(..) => std::future::pending().await,
    })
}

fn agree(seen: &Seen) -> Response<Full<Bytes>> {
    match seen.parameter("hub.challenge") {
        Some(challenge) => plain(200, &challenge),
        None => plain(204, ""),
    }
}

fn plain(status: u16, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status.try_into().expect("tests use valid statuses");
    response
}
