//! Open connections: reused while they are good, limited in number, and closed when they are idle for too long.
//!
//! A connection that was taken belongs to its user until it is put back; if it is not, it closes. An HTTP/2 connection is shared
//! instead: it stays in the pool until it is idle for too long. If a request over it fails, no new one begins until another that
//! is under way is answered.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper_rustls::HttpsConnector;
use lru::LruCache;
use resync_common::locks::lock;
use rustls::ClientConfig;
use tokio::time::{Instant, sleep, timeout_at};
use tower_service::Service;

use super::connection::{BoxError, Connection, Failed, OpenCount, Protocols, Unsent};
use super::connector::{ConnectError, GuardedConnector, Purpose, Route, is_exhaustion};
use super::rebinding::Blocked;
use super::target::{Origin, Target};

/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(30);
/// How much earlier the hub closes an idle connection than its peer announced to: a request must not meet the closing.
const AHEAD: Duration = Duration::from_secs(1);
/// How often expired connections are closed.
const TIDY_EVERY: Duration = Duration::from_secs(1);

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// The connections of one client. Clones share them.
#[derive(Clone)]
pub(super) struct Pool {
    connector: GuardedConnector,
    tls: Arc<ClientConfig>,
    protocols: Protocols,
    state: Arc<Mutex<State>>,
}

/// How many connections may be open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Idle ones of one origin.
    pub(super) idle_per_origin: usize,
    /// All, idle or not. New ones are made beyond this where none is idle, and idle ones close for them.
    pub(super) all: usize,
}

/// The connections of a pool. Nothing that changes them can panic half-way.
struct State {
    bounds: Bounds,
    /// Those that were used last are at the back. Strangers choose the keys, but there are no more of them than open connections.
    idle: LruCache<Origin, VecDeque<Idle>>,
    open: Arc<AtomicUsize>,
    tidied: bool,
}

struct Idle {
    connection: Connection,
    until: Instant,
}

impl Pool {
    pub(super) fn new(
        connector: GuardedConnector,
        tls: ClientConfig,
        protocols: Protocols,
        bounds: Bounds,
    ) -> Self {
        let tls = Arc::new(Protocols::offered(tls));
        Self { connector, tls, protocols, state: State::new(bounds) }
    }

    /// An empty pool like this one, whose connections are made by another connector.
    pub(super) fn with_connector(&self, connector: GuardedConnector) -> Self {
        let bounds = lock(&self.state).bounds;
        Self {
            connector,
            tls: Arc::clone(&self.tls),
            protocols: self.protocols.clone(),
            state: State::new(bounds),
        }
    }

    pub(super) fn connector(&self) -> &GuardedConnector {
        &self.connector
    }

    /// Sets how many connections may be open in all.
    pub(super) fn bound(&self, all: usize) {
        lock(&self.state).bounds.all = all;
    }

    /// Sends the request over an open connection, or over a new one, before the deadline. A connection that turns out to be
    /// closed before anything was sent is skipped. `reached` becomes the address at the other end, unless it is unconfirmed: a
    /// rebound name's requests must not count for the victim's network.
    pub(super) async fn send(
        &self,
        target: &Target,
        mut request: Request<Full<Bytes>>,
        route: Route,
        deadline: Instant,
        reached: &mut Option<IpAddr>,
    ) -> Result<(Response<Incoming>, Connection), Failed> {
        let bytes = weight(&request);
        let mut withheld = None;
        while let Some(mut idle) = self.take(&target.origin) {
            if let Err(blocked) = idle.connection.admit(bytes, route) {
                self.keep(target, idle);
                match blocked {
                    Blocked::Reverify(reverification) => return Err(Failed::ReverifyFirst(reverification)),
                    // A new connection may reach another address of the name by now.
                    Blocked::Withheld(why) => withheld = Some(why),
                }
                break;
            }
            let mut connection = idle.connection;
            *reached = connection.confirmed_peer();
            let unsent = match connection.try_send(request, deadline).await {
                Ok(response) => return Ok((response, connection)),
                Err(unsent) => unsent,
            };
            self.forget(target, &connection);
            match unsent {
                Unsent::Returned(unsent) => request = *unsent,
                Unsent::Failed(failed) => return Err(failed),
            }
        }
        // Rare: boxed, it takes no memory in every request under way.
        let connected = Box::pin(self.connect_until(deadline, target, Purpose::request(bytes, route))).await;
        let mut connection = connected.map_err(|failed| match (failed, withheld) {
            (Failed::TimedOut, Some(why)) => ConnectError::Unconfirmed(why).into(),
            (Failed::Error(error), Some(why)) if is_no_connection(error.as_ref()) => {
                ConnectError::Unconfirmed(why).into()
            }
            (failed, _) => failed,
        })?;
        *reached = connection.confirmed_peer();
        self.offer(target, &connection);
        let sent = Box::pin(connection.send(request, deadline)).await;
        let response = sent.inspect_err(|_| self.forget(target, &connection))?;
        Ok((response, connection))
    }

    /// Sends a re-verification to this address, over a connection of its own.
    pub(super) async fn reverify(
        &self,
        target: &Target,
        request: Request<Full<Bytes>>,
        address: IpAddr,
        deadline: Instant,
    ) -> Result<(Response<Incoming>, Connection), Failed> {
        let mut connection = self.connect_until(deadline, target, Purpose::reverification(address)).await?;
        let response = connection.send(request, deadline).await?;
        Ok((response, connection))
    }

    /// Takes back a connection whose answer, with these header fields, was read to its end.
    pub(super) fn put(&self, target: &Target, connection: Connection, answered: &HeaderMap) {
        let idle = answered.get(KEEP_ALIVE).map_or(IDLE, idle_time);
        if idle.is_zero() || connection.is_closed() {
            return;
        }
        self.keep(target, Idle { connection, until: Instant::now() + idle });
    }

    /// Shares a new connection, if it takes many requests at once.
    fn offer(&self, target: &Target, connection: &Connection) {
        if let Some(connection) = connection.share() {
            self.keep(target, Idle { connection, until: Instant::now() + IDLE });
        }
    }

    /// No request begins over this connection any more, unless another one over it is answered.
    fn forget(&self, target: &Target, connection: &Connection) {
        lock(&self.state).forget(&target.origin, connection);
    }

    fn keep(&self, target: &Target, idle: Idle) {
        let mut state = lock(&self.state);
        state.put(&target.origin, idle);
        if !state.tidied {
            state.tidied = true;
            tokio::spawn(tidy(Arc::downgrade(&self.state)));
        }
    }

    /// Closes half of the idle connections: the process has no file descriptor left.
    pub(super) fn shrink(&self) {
        let mut state = lock(&self.state);
        let unused =
            state.idle.iter().flat_map(|(_, idle)| idle).filter(|one| one.connection.is_unused()).count();
        (0..unused.div_ceil(2)).for_each(|_| state.close_one());
    }

    fn take(&self, origin: &Origin) -> Option<Idle> {
        lock(&self.state).take(origin)
    }

    async fn connect_until(
        &self,
        deadline: Instant,
        target: &Target,
        purpose: Purpose,
    ) -> Result<Connection, Failed> {
        let connected = timeout_at(deadline, self.connect(target, &purpose)).await;
        let failed = match connected {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => Failed::Error(error),
            Err(_) => Failed::TimedOut,
        };
        purpose.refused();
        Err(purpose.take_reverification().map_or(failed, Failed::ReverifyFirst))
    }

    async fn connect(&self, target: &Target, purpose: &Purpose) -> Result<Connection, BoxError> {
        let open_count = lock(&self.state).count_one();
        let connector = self.connector.clone().with_purpose(purpose.clone());
        let stream =
            HttpsConnector::from((connector, Arc::clone(&self.tls))).call(target.origin.uri()?).await?;
        Ok(Connection::over(stream, &self.protocols, open_count).await?.with_counted(purpose.take_request()))
    }
}

impl State {
    fn new(bounds: Bounds) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            bounds,
            idle: LruCache::unbounded(),
            open: Arc::default(),
            tidied: false,
        }))
    }

    fn take(&mut self, origin: &Origin) -> Option<Idle> {
        let idle = self.idle.get_mut(origin)?;
        let now = Instant::now();
        while let Some(one) = idle.pop_back() {
            if one.until > now && !one.connection.is_closed() {
                let shared = one.connection.share();
                idle.extend(shared.map(|connection| Idle { connection, until: one.until }));
                return Some(one);
            }
        }
        None
    }

    fn forget(&mut self, origin: &Origin, connection: &Connection) {
        if let Some(idle) = self.idle.peek_mut(origin) {
            idle.retain(|one| !one.connection.is_same(connection));
        }
    }

    fn put(&mut self, origin: &Origin, one: Idle) {
        let most = self.bounds.idle_per_origin;
        let idle = match self.idle.get_mut(origin) {
            Some(idle) => idle,
            None => self.idle.get_or_insert_mut(origin.clone(), VecDeque::new),
        };
        if let Some(standing) = idle.iter_mut().find(|standing| standing.connection.is_same(&one.connection))
        {
            standing.until = standing.until.max(one.until);
            return;
        }
        idle.push_back(one);
        if idle.len() > most {
            idle.pop_front();
        }
    }

    /// Counts one more; if the limit is reached, an idle one closes.
    fn count_one(&mut self) -> OpenCount {
        if self.open.load(Ordering::Relaxed) >= self.bounds.all {
            self.close_one();
        }
        OpenCount::new(&self.open)
    }

    /// Closes the idle connection whose origin was unused for longest. One over which requests are under way is not idle.
    fn close_one(&mut self) {
        for _ in 0..self.idle.len() {
            let Some((origin, _)) = self.idle.peek_lru() else { return };
            let origin = origin.clone();
            let Some(idle) = self.idle.peek_mut(&origin) else { return };
            let unused = idle.iter().position(|one| one.connection.is_unused());
            unused.and_then(|at| idle.remove(at));
            if idle.is_empty() {
                self.idle.pop(&origin);
            } else if unused.is_none() {
                self.idle.promote(&origin);
            }
            if unused.is_some() {
                return;
            }
        }
    }

    /// Closes what was idle for too long; returns whether anything is left.
    fn close_expired(&mut self, now: Instant) -> bool {
        let mut unused = Vec::new();
        for (origin, idle) in &mut self.idle {
            idle.retain_mut(|one| one.until > now && !one.connection.has_ended());
            if idle.is_empty() {
                unused.push(origin.clone());
            }
        }
        for origin in unused {
            self.idle.pop(&origin);
        }
        self.tidied = !self.idle.is_empty();
        self.tidied
    }
}

/// Whether the peer did not answer or broke the connection; guard, resolver and limits refused nothing.
fn is_no_connection(error: &(dyn StdError + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |cause| <dyn StdError>::source(*cause));
    let named = causes.find_map(|cause| cause.downcast_ref::<ConnectError>());
    named.is_none_or(|named| match named {
        ConnectError::Timeout(_) | ConnectError::Unconfirmed(_) => true,
        ConnectError::Io(error) => !is_exhaustion(error),
        ConnectError::Forbidden(_)
        | ConnectError::Dns { .. }
        | ConnectError::RateLimited(_)
        | ConnectError::ReverifyFirst => false,
    })
}

/// Bytes of the request that a stranger chooses: its body, target and header values.
fn weight(request: &Request<Full<Bytes>>) -> usize {
    let body = request.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let head: usize = request.headers().values().map(HeaderValue::len).sum();
    body.unwrap_or(usize::MAX).saturating_add(target + head)
}

/// Closes expired connections, also if nothing is sent any more; ends with the last one.
async fn tidy(state: Weak<Mutex<State>>) {
    loop {
        sleep(TIDY_EVERY).await;
        let Some(state) = state.upgrade() else { return };
        if !lock(&state).close_expired(Instant::now()) {
            return;
        }
    }
}

/// How long a connection with `Keep-Alive: timeout=5, max=100` may be idle.
fn idle_time(value: &http::HeaderValue) -> Duration {
    let parameters = value.to_str().unwrap_or_default().split(',');
    let timeout = parameters.filter_map(|parameter| parameter.split_once('=')).find_map(|(name, value)| {
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().parse::<u64>().ok())?
    });
    timeout.map_or(IDLE, |seconds| Duration::from_secs(seconds).saturating_sub(AHEAD).min(IDLE))
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        f.debug_struct("Pool")
            .field("bounds", &state.bounds)
            .field("open", &state.open)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::{Context, Poll};

    use http::{StatusCode, Uri};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::mpsc;
    use tokio::task::coop::poll_proceed;

    use super::*;
    use crate::egress::Guard;

    const DONE: &str = "HTTP/1.1 204 No Content\r\n\r\n";

    /// Answers every request in the same way, and counts connections.
    struct Peer {
        target: Target,
        opened: Arc<AtomicUsize>,
        closed: mpsc::UnboundedReceiver<()>,
    }

    impl Peer {
        async fn start(answer: &'static str) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
            let (opened, (closing, closed)) = (Arc::new(AtomicUsize::new(0)), mpsc::unbounded_channel());
            let count = Arc::clone(&opened);
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    count.fetch_add(1, Ordering::Relaxed);
                    let closing = closing.clone();
                    tokio::spawn(async move {
                        serve(stream, answer).await;
                        // Not every test asks.
                        let _ = closing.send(());
                    });
                }
            });
            Self { target: Target::of(&url).unwrap(), opened, closed }
        }

        fn opened(&self) -> usize {
            self.opened.load(Ordering::Relaxed)
        }
    }

    async fn serve(mut stream: TcpStream, answer: &str) {
        let mut request = [0; 1_024];
        while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
            // A client that has seen enough closes its side.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }

    fn pool(all: usize) -> Pool {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let tls = guard.tls_roots().client_config();
        let connector = GuardedConnector::new(guard, Duration::from_secs(1));
        Pool::new(connector, tls, Protocols::new(65_536, 100), Bounds { idle_per_origin: 1, all })
    }

    async fn ask(pool: &Pool, peer: &Peer) {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = peer.target.path.clone();
        let deadline = Instant::now() + Duration::from_secs(5);
        let (response, connection) =
            pool.send(&peer.target, request, Route::Any, deadline, &mut None).await.unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        pool.put(&peer.target, connection, response.headers());
    }

    #[tokio::test]
    async fn a_connection_is_used_for_one_request_after_the_other() {
        let (pool, peer) = (pool(8), Peer::start(DONE).await);
        for _ in 0..5 {
            ask(&pool, &peer).await;
        }
        assert_eq!(peer.opened(), 1);
    }

    #[tokio::test]
    async fn the_connection_that_was_idle_for_longest_makes_room_for_a_new_one() {
        let pool = pool(2);
        let mut peers = [Peer::start(DONE).await, Peer::start(DONE).await, Peer::start(DONE).await];
        for peer in &peers {
            ask(&pool, peer).await;
        }
        peers[0].closed.recv().await.unwrap();
        ask(&pool, &peers[2]).await;
        ask(&pool, &peers[1]).await;
        assert_eq!(peers.each_ref().map(Peer::opened), [1, 1, 1]);
        ask(&pool, &peers[0]).await;
        assert_eq!(peers.each_ref().map(Peer::opened), [2, 1, 1]);
    }

    #[tokio::test]
    async fn without_a_file_descriptor_half_of_what_is_idle_is_closed() {
        let pool = pool(8);
        let mut peers = [Peer::start(DONE).await, Peer::start(DONE).await];
        for peer in &peers {
            ask(&pool, peer).await;
        }
        pool.shrink();
        peers[0].closed.recv().await.unwrap();
        ask(&pool, &peers[1]).await;
        assert_eq!(peers[1].opened(), 1);
    }

    #[tokio::test]
    async fn a_connection_over_which_others_wait_for_answers_makes_room_for_nothing() {
        let (pool, peer) = (pool(1), Peer::start(DONE).await);
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("https://{}/", silent.local_addr().unwrap()).parse().unwrap();
        let target = Target::of(&url).unwrap();
        let stream = TcpStream::connect(silent.local_addr().unwrap()).await.unwrap();
        let open_count = lock(&pool.state).count_one();
        let in_use = Connection::shared(stream, &pool.protocols, open_count).await;
        pool.offer(&target, &in_use);
        let stands = || pool.take(&target.origin).is_some_and(|idle| idle.connection.is_same(&in_use));

        ask(&pool, &peer).await;
        assert!(stands(), "there is one more than may be");
        pool.shrink();
        assert!(stands());
        assert!(pool.take(&peer.target.origin).is_none(), "what nobody uses is closed instead");
        assert_eq!(lock(&pool.state).open.load(Ordering::Relaxed), 1);

        drop(in_use);
        ask(&pool, &peer).await;
        assert!(pool.take(&target.origin).is_none(), "nobody waits any more");
    }

    #[tokio::test]
    async fn what_was_idle_for_long_is_closed() {
        let (pool, mut peer) = (pool(8), Peer::start(DONE).await);
        ask(&pool, &peer).await;
        let now = Instant::now();
        assert!(lock(&pool.state).close_expired(now), "it is not idle for long yet");
        assert!(!lock(&pool.state).close_expired(now + IDLE));
        peer.closed.recv().await.unwrap();
    }

    #[tokio::test]
    async fn a_connection_that_its_peer_closes_is_not_used_again() {
        let close = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
        let soon = "HTTP/1.1 204 No Content\r\nKeep-Alive: timeout=1\r\n\r\n";
        for answer in [close, soon] {
            let (pool, peer) = (pool(8), Peer::start(answer).await);
            ask(&pool, &peer).await;
            ask(&pool, &peer).await;
            assert_eq!(peer.opened(), 2, "{answer}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_its_peer_closes_while_it_is_idle_is_let_go_and_costs_no_request() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let peer = Peer {
            target: Target::of(&url).unwrap(),
            opened: Arc::default(),
            closed: mpsc::unbounded_channel().1,
        };
        let pool = pool(8);
        for _ in 0..2 {
            let answer_and_close = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                assert!(stream.read(&mut [0; 1_024]).await.unwrap() > 0);
                stream.write_all(DONE.as_bytes()).await.unwrap();
            };
            tokio::join!(ask(&pool, &peer), answer_and_close);
        }
        // However much its task has read in this turn.
        let is_left = |context: &mut Context<'_>| {
            while let Poll::Ready(turn) = poll_proceed(context) {
                turn.made_progress();
            }
            Poll::Ready(lock(&pool.state).close_expired(Instant::now()))
        };
        while poll_fn(is_left).await {
            tokio::task::yield_now().await;
        }
        assert_eq!(lock(&pool.state).open.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_held_back_on_a_connection_that_stands_hides_no_word_of_the_guard_or_of_a_budget() {
        let io = |code| ConnectError::from(std::io::Error::from_raw_os_error(code));
        // ECONNREFUSED; EMFILE.
        for (error, hidden) in [
            (ConnectError::Timeout(IDLE), true),
            (io(111), true),
            (io(24), false),
            (ConnectError::Forbidden(crate::egress::Forbidden::Host), false),
            (ConnectError::RateLimited(IDLE), false),
        ] {
            assert_eq!(is_no_connection(&error), hidden, "{error}");
        }
    }

    #[test]
    fn a_peer_that_tells_how_long_it_waits_is_forestalled() {
        let seconds = |value: &'static str| idle_time(&http::HeaderValue::from_static(value)).as_secs();
        assert_eq!(seconds("timeout=5, max=100"), 4);
        assert_eq!(seconds("max=100, Timeout = 20"), 19);
        assert_eq!(seconds("timeout=3600"), 30);
        assert_eq!(seconds("timeout=soon"), 30);
        assert_eq!(seconds("max=100"), 30);
        assert_eq!(seconds("timeout=0"), 0);
    }
}
