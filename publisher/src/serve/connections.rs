//! Connections: bounded in number, in the time and size of a request's header, in the time that a client takes nothing, and ended gracefully.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulConnection, GracefulShutdown},
};
use resync_core::connections::full;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;

use super::places::{Answering, Places};

/// How many more than are served may be open: those that make room end a moment later, and some of those that find none are told so.
const ENDING: usize = 32;

/// How many are told at the same time that there is no room; others are closed without a word.
const TURNED_AWAY_AT_ONCE: usize = 16;

/// How long telling one may take.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// A pause after `accept` failed, for example because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server gives its clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at once; for who comes later another one makes room, or else it is told to come again.
    pub(super) connections: usize,
    /// How long the header of a request may take to arrive, from the start of the connection or the end of the request before.
    pub(super) header_time: Duration,
    /// Bytes of a header.
    pub(super) header_size: usize,
    /// How long a client may take nothing of its answer.
    pub(super) write_time: Duration,
    /// How long requests under way may take when the server stops.
    pub(super) drain: Duration,
}

/// Answers with `router` until `shutdown` is ready, then lets what is under way finish.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let graceful = GracefulShutdown::new();
    let places = Places::new(limits.connections);
    let sockets = Arc::new(Semaphore::new(limits.connections + ENDING));
    let turning_away = Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let (stream, client, socket) = tokio::select! {
            accepted = accept(&listener, &sockets) => accepted,
            () = &mut shutdown => break,
        };
        let Some(place) = places.take(client.ip()).map(Arc::new) else {
            turn_away(stream, &turning_away, socket);
            continue;
        };
        let answering = Answering::new(router.clone(), Arc::clone(&place));
        let connection = graceful.watch(connection(stream, answering, limits));
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "connection ended");
                    }
                }
                () = place.is_lost() => tracing::debug!("a connection makes room for another client's"),
            }
            drop(socket);
        });
    }
    drop(listener);
    if timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests still under way at shutdown were cut off");
    }
}

async fn accept(
    listener: &TcpListener,
    sockets: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    loop {
        let accepted = match Arc::clone(sockets).acquire_owned().await {
            Ok(socket) => listener.accept().await.map(|(stream, client)| (stream, client, socket)),
            Err(closed) => Err(io::Error::other(closed)),
        };
        match accepted {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::warn!(%error, "no connection accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn turn_away(stream: TcpStream, turning_away: &Arc<Semaphore>, socket: OwnedSemaphorePermit) {
    let Ok(turn) = Arc::clone(turning_away).try_acquire_owned() else { return };
    tokio::spawn(async move {
        // Whoever does not take the answer in time goes without it.
        let _ = timeout(TURN_AWAY_TIMEOUT, say_full(stream)).await;
        drop((turn, socket));
    });
}

/// An honest refusal without reading the request.
async fn say_full(mut stream: TcpStream) -> io::Result<()> {
    let answer = full("all connections of this server are in use: try again\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing while the client still sends would take the answer away from it.
    tokio::io::copy(&mut stream.take(super::HEADER_LIMIT as u64), &mut tokio::io::sink()).await?;
    Ok(())
}

fn connection(
    stream: TcpStream,
    answering: Answering,
    limits: Limits,
) -> impl GracefulConnection<Error = hyper::Error> {
    // Answers are sent whole: waiting for the peer's acknowledgement of the header would delay every small file.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "small answers on this connection may be slow");
    }
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(limits.write_time));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(limits.header_size)
        .serve_connection(TokioIo::new(stream), answering)
}

#[cfg(test)]
mod tests {
    use axum::{extract::State, routing::get};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::{mpsc, oneshot},
        task::JoinHandle,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    /// Each request reports itself and is answered when the test says so.
    type Requests = mpsc::UnboundedReceiver<oneshot::Sender<()>>;

    async fn start(
        limits: Limits,
        shutdown: oneshot::Receiver<()>,
    ) -> (std::net::SocketAddr, Requests, JoinHandle<()>) {
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
    ) -> (std::net::SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (address, tokio::spawn(serve(listener, router, limits, async { drop(shutdown.await) })))
    }

    fn limits() -> Limits {
        Limits { connections: 16, header_time: LONG, header_size: 16 * 1024, write_time: LONG, drain: LONG }
    }

    async fn rest(stream: &mut TcpStream) -> String {
        let mut text = Vec::new();
        timeout(LONG / 2, stream.read_to_end(&mut text)).await.expect("the connection ends").unwrap();
        String::from_utf8(text).unwrap()
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
        let router = Router::new()
            .route("/large", get(async || vec![b'x'; 32 * 1024 * 1024]))
            .route("/", get(async || "done"));
        let limits = Limits { connections: 1, write_time: Duration::from_millis(50), ..limits() };
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
        timeout(LONG / 2, let_in).await.expect("the place is free soon");
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
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(address).await.unwrap();
        other.write_all(REQUEST).await.unwrap();
        assert!(rest(&mut other).await.ends_with("done"));
    }

    #[tokio::test]
    async fn a_client_with_many_answers_under_way_makes_room_for_another_one() {
        let (_stop, stopped) = oneshot::channel();
        let router = Router::new()
            .route("/large", get(async || vec![b'x'; 32 * 1024 * 1024]))
            .route("/", get(async || "done"));
        let (address, _serving) = start_with(router, Limits { connections: 4, ..limits() }, stopped).await;
        let mut slow = Vec::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
            stream.read_exact(&mut [0; 64]).await.unwrap();
            slow.push(stream);
        }
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut other = socket.connect(address).await.unwrap();
        other.write_all(REQUEST).await.unwrap();
        assert!(rest(&mut other).await.ends_with("done"));
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
