//! A small HTTP/1 server. It bounds the number of connections, the time and size of a request's header, and how slowly a client reads its
//! answer. If all connections are in use, the client that has most of them makes room.

mod connections;
mod permit;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tower_service::Service;

use self::permit::{Answering, Permit, Permits, Watched};
use crate::pace::{Leeway, Pace, Paced};

/// Connections that may be open beyond the limit: those that are ending to make room, and those that are being refused.
const ENDING: usize = 32;

/// Connections that are refused with an answer at once; further ones are closed without one.
const TURNED_AWAY_AT_ONCE: usize = 16;

/// How long a refusal may take.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// A pause after `accept` failed, for example because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a client is told that gets no permit.
const FULL: &str = "all connections are in use: try again\n";

/// What a server gives its clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at once. Beyond that, another connection makes room for the new one, or the new one gets 503.
    pub connections: usize,
    /// How long the header of a request may take to arrive from its first byte, and the first request to begin.
    pub header_time: Duration,
    /// How long a connection may wait for its next request.
    pub idle_time: Duration,
    /// Bytes of a header.
    pub header_size: usize,
    /// How slowly a client may read its answers. A faster one may take as long as it needs, as far as [`Paced`] sees it.
    pub reading: Pace,
    /// How long requests under way may take when the server stops.
    pub drain: Duration,
}

/// A server on one listener.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    limits: Limits,
    graceful: GracefulShutdown,
    permits: Permits,
    sockets: Arc<Semaphore>,
    turning_away: Arc<Semaphore>,
}

impl Server {
    /// A server that takes nobody before it [runs](Self::run).
    pub fn new(listener: TcpListener, limits: Limits) -> Self {
        Self {
            listener,
            limits,
            graceful: GracefulShutdown::new(),
            permits: Permits::new(&limits),
            sockets: Arc::new(Semaphore::new(limits.connections + ENDING)),
            turning_away: Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE)),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers with `service` until this is dropped or no longer polled; connections go on by themselves.
    pub async fn run<S, B>(&self, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        loop {
            // It waits for connections that are ending, and never for a client.
            let Ok(socket) = Arc::clone(&self.sockets).acquire_owned().await else { return };
            let (stream, client) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "connection not accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match self.permits.take(client.ip()) {
                Some(permit) => self.serve(stream, permit, socket, service.clone()),
                None => self.turn_away(stream, socket),
            }
        }
    }

    /// Answers with `service` until `shutdown` is ready, then lets what is under way finish.
    pub async fn run_until<S, B>(self, service: S, shutdown: impl Future<Output = ()>)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        tokio::select! {
            () = self.run(service) => {}
            () = shutdown => {}
        }
        self.shut_down().await;
    }

    /// Takes no more connections and lets the requests under way end.
    pub async fn shut_down(self) {
        drop(self.listener);
        if timeout(self.limits.drain, self.graceful.shutdown()).await.is_err() {
            tracing::warn!("shutdown: requests that were still under way were aborted");
        }
    }

    fn serve<S, B>(&self, stream: TcpStream, permit: Permit, socket: OwnedSemaphorePermit, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        // Without this a client that keeps its connection waits 40 ms for the second half of each answer.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY cannot be set");
        }
        let permit = Arc::new(permit);
        let stream = Paced::new(stream, self.limits.reading, Leeway::default());
        let stream = TokioIo::new(Watched::new(stream, Arc::clone(&permit)));
        // The permit knows how long a header may take, and how long the pause before it.
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(self.limits.header_size)
            .serve_connection(stream, Answering::new(service, Arc::clone(&permit)));
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "connection ended");
                    }
                }
                () = permit.ends() => tracing::debug!("connection closed: it took too long, or makes room for another client"),
            }
            drop(socket);
        });
    }

    fn turn_away(&self, stream: TcpStream, socket: OwnedSemaphorePermit) {
        tracing::debug!("connection refused: all have requests under way");
        let Ok(turn) = Arc::clone(&self.turning_away).try_acquire_owned() else { return };
        let header_size = self.limits.header_size;
        tokio::spawn(async move {
            // Whoever does not take the answer in time goes without it.
            let _ = timeout(TURN_AWAY_TIMEOUT, say_full(stream, header_size)).await;
            drop((turn, socket));
        });
    }
}

/// An honest refusal without reading the request. The connection ends with it.
async fn say_full(mut stream: TcpStream, header_size: usize) -> io::Result<()> {
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 5\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{FULL}",
        FULL.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing while the client still sends would take the answer away from it.
    tokio::io::copy(&mut stream.take(header_size as u64), &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::extract::State;
    use axum::routing::get;
    use tokio::sync::{mpsc, oneshot};
    use tokio::task::JoinHandle;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    /// Far more than the buffers of a connection hold.
    const LARGE: usize = 32 * 1024 * 1024;
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    /// Each request reports itself and is answered when the test says so.
    type Requests = mpsc::UnboundedReceiver<oneshot::Sender<()>>;

    async fn start(
        limits: Limits,
        shutdown: oneshot::Receiver<()>,
    ) -> (SocketAddr, Requests, JoinHandle<()>) {
        let (reports, requests) = mpsc::unbounded_channel::<oneshot::Sender<()>>();
        let answer = async |State(reports): State<mpsc::UnboundedSender<oneshot::Sender<()>>>| {
            let (go, gone) = oneshot::channel();
            reports.send(go).ok();
            gone.await.ok();
            "done"
        };
        let router = Router::new().route("/", get(answer)).with_state(reports);
        let (address, serving) = start_with(router, limits, shutdown).await;
        (address, requests, serving)
    }

    async fn start_with(
        router: Router,
        limits: Limits,
        shutdown: oneshot::Receiver<()>,
    ) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::new(listener, limits);
        (address, tokio::spawn(server.run_until(router, async { drop(shutdown.await) })))
    }

    fn limits() -> Limits {
        Limits {
            connections: 16,
            header_time: LONG,
            idle_time: LONG,
            header_size: 16 * 1024,
            reading: Pace { patience: LONG, bytes_per_second: 1_024 },
            drain: LONG,
        }
    }

    async fn rest(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        timeout(LONG / 2, stream.read_to_end(&mut text)).await.expect("the connection ends").unwrap();
        String::from_utf8(text).unwrap()
    }

    async fn another_client_is_answered(address: SocketAddr) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(address).await.unwrap();
        other.write_all(REQUEST).await.unwrap();
        assert!(rest(&mut other).await.ends_with("done"));
    }

    #[tokio::test]
    async fn a_client_that_does_not_finish_its_header_is_sent_away() {
        let (_stop, stopped) = oneshot::channel();
        let limits = Limits { header_time: Duration::from_millis(50), ..limits() };
        let (address, _requests, _serving) = start(limits, stopped).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-Slow: ").await.unwrap();
        assert!(!rest(&mut slow).await.contains("200 OK"));
    }

    #[tokio::test]
    async fn a_client_that_takes_nothing_of_its_answer_is_sent_away_and_another_gets_its_place() {
        let (_stop, stopped) = oneshot::channel();
        let router =
            Router::new().route("/large", get(async || vec![b'x'; LARGE])).route("/", get(async || "done"));
        let reading = Pace { patience: Duration::from_millis(50), bytes_per_second: 1_024 };
        let limits = Limits { connections: 1, reading, ..limits() };
        let (address, _serving) = start_with(router, limits, stopped).await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        idle.read_exact(&mut [0; 64]).await.unwrap();
        let next = async || {
            let mut next = TcpStream::connect(address).await.unwrap();
            next.write_all(REQUEST).await.unwrap();
            rest(&mut next).await
        };
        let let_in = async {
            while !next().await.ends_with("done") {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(LONG / 2, let_in).await.expect("the permit is free soon");
    }

    #[tokio::test]
    async fn a_client_that_never_stops_reading_its_answer_and_reads_too_slowly_is_sent_away() {
        let (_stop, stopped) = oneshot::channel();
        let router = Router::new().route("/large", get(async || vec![b'x'; LARGE]));
        // At this rate what is read earns no time, and each pause is far below the patience.
        let reading = Pace { patience: Duration::from_secs(1), bytes_per_second: 1 << 40 };
        let (address, _serving) = start_with(router, Limits { reading, ..limits() }, stopped).await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let (mut read, mut buffer) = (0, vec![0; 64 * 1024]);
        while let Ok(bytes @ 1..) = slow.read(&mut buffer).await {
            read += bytes;
            assert!(read < LARGE, "it got the whole answer");
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_is_told_to_come_again_while_all_others_are_answered() {
        let (_stop, stopped) = oneshot::channel();
        let (address, mut requests, _serving) = start(Limits { connections: 1, ..limits() }, stopped).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(REQUEST).await.unwrap();
        let go = requests.recv().await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        second.write_all(REQUEST).await.unwrap();
        let told = rest(&mut second).await;
        assert!(told.starts_with("HTTP/1.1 503") && told.contains("Retry-After"), "{told}");
        go.send(()).unwrap();
        assert!(rest(&mut first).await.ends_with("done"));
    }

    #[tokio::test]
    async fn silent_connections_of_one_client_keep_no_other_out() {
        let (_stop, stopped) = oneshot::channel();
        let router = Router::new().route("/", get(async || "done"));
        let (address, _serving) = start_with(router, Limits { connections: 8, ..limits() }, stopped).await;
        let mut silent = Vec::new();
        for _ in 0..32 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        another_client_is_answered(address).await;
    }

    #[tokio::test]
    async fn a_client_with_many_answers_under_way_makes_room_for_another_one() {
        let (_stop, stopped) = oneshot::channel();
        let router =
            Router::new().route("/large", get(async || vec![b'x'; LARGE])).route("/", get(async || "done"));
        let (address, _serving) = start_with(router, Limits { connections: 4, ..limits() }, stopped).await;
        let mut slow = Vec::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            stream.read_exact(&mut [0; 64]).await.unwrap();
            slow.push(stream);
        }
        another_client_is_answered(address).await;
    }

    #[tokio::test]
    async fn a_request_under_way_is_answered_after_the_server_was_asked_to_stop() {
        let (stop, stopped) = oneshot::channel();
        let (address, mut requests, mut serving) = start(limits(), stopped).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        let go = requests.recv().await.unwrap();
        stop.send(()).unwrap();
        assert!(timeout(Duration::from_millis(100), &mut serving).await.is_err(), "it waits for the answer");
        go.send(()).unwrap();
        assert!(rest(&mut client).await.ends_with("done"));
        timeout(LONG / 2, serving).await.expect("then it ends").unwrap();
    }
}
