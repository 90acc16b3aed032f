//! Connections: bounded in number, in the time and size of a request's header, in the time that a client takes nothing, and ended gracefully.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulConnection, GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;

/// A pause after `accept` failed, for example because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server gives its clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections at once; who comes later waits.
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
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let (stream, place) = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = &mut shutdown => break,
        };
        let connection = graceful.watch(connection(stream, router.clone(), limits));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    if timeout(limits.drain, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests still under way at shutdown were cut off");
    }
}

async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    loop {
        let accepted = match Arc::clone(places).acquire_owned().await {
            Ok(place) => listener.accept().await.map(|(stream, _)| (stream, place)),
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

fn connection(
    stream: TcpStream,
    router: Router,
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
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
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
        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(REQUEST).await.unwrap();
        assert!(rest(&mut next).await.ends_with("done"));
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_waits_until_another_ends() {
        let (_stop, stopped) = oneshot::channel();
        let (address, mut requests, _serving) = start(Limits { connections: 1, ..limits() }, stopped).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(REQUEST).await.unwrap();
        let go = requests.recv().await.unwrap();
        let mut second = TcpStream::connect(address).await.unwrap();
        second.write_all(REQUEST).await.unwrap();
        assert!(timeout(Duration::from_millis(100), requests.recv()).await.is_err(), "one at a time");
        go.send(()).unwrap();
        assert!(rest(&mut first).await.ends_with("done"));
        requests.recv().await.unwrap().send(()).unwrap();
        assert!(rest(&mut second).await.ends_with("done"));
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
