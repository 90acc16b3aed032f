//! Serving a router on a listener: bounded headers, bounded time, and a graceful end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulConnection, GracefulShutdown};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower_service::Service;
use tracing::{debug, warn};

/// How long a client may take to send its header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest header; hyper's own smallest buffer.
const HEADER_LIMIT: usize = 16 * 1024;
/// Connections at once.
const CONNECTIONS: usize = 4_096;
/// How long requests under way may take at shutdown.
const GRACE: Duration = Duration::from_secs(8);
/// A pause after `accept` failed, for example because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` turns true, then lets what is under way finish.
pub async fn serve(listener: TcpListener, router: Router, mut stop: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let (stream, client, place) = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let connection = connection(stream, client, router.clone());
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                debug!(%error, "connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    if timeout(GRACE, graceful.shutdown()).await.is_err() {
        warn!("requests still under way at shutdown were cut off");
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else { continue };
        match listener.accept().await {
            Ok((stream, client)) => return (stream, client, place),
            Err(error) => {
                warn!(%error, "no connection accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn connection(
    stream: TcpStream,
    client: SocketAddr,
    router: Router,
) -> impl GracefulConnection<Error = hyper::Error> {
    // Answers are small and whole; waiting for more to send only delays them.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(client));
        let mut router = router.clone();
        async move { Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {})) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service)
}
