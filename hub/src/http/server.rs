//! Serving a router on a listener: bounded connections, headers and time, and a graceful end.

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
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tower_service::Service;
use tracing::{debug, warn};

use super::connections::{Connections, NoPlace};
use crate::config::IngressConfig;

/// The largest header; hyper's own smallest buffer.
const HEADER_LIMIT: usize = 16 * 1024;
/// How long requests under way may take at shutdown.
const GRACE: Duration = Duration::from_secs(8);
/// A pause after `accept` failed, for example because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The same trouble is told no more often than this.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// Connections without a place that are told so at once; further ones are closed without a word.
const TURNED_AWAY_AT_ONCE: usize = 64;
/// How long telling them may take.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// How connections are served.
#[derive(Clone, Debug)]
pub struct Ingress {
    connections: Connections,
    header_timeout: Duration,
    turning_away: Arc<Semaphore>,
}

impl Ingress {
    /// The bounds of one listener.
    pub fn new(config: &IngressConfig) -> Self {
        Self {
            connections: Connections::new(config),
            header_timeout: config.header_timeout,
            turning_away: Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE)),
        }
    }
}

/// Serves until `stop` turns true, then lets what is under way finish.
pub async fn serve(listener: TcpListener, router: Router, ingress: Ingress, mut stop: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    let mut told = None;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, client)) => take(stream, client, &router, &ingress, graceful.watcher()),
            Err(error) => {
                if told.is_none_or(|told: Instant| told.elapsed() > TELL_EVERY) {
                    warn!(%error, "no connection accepted");
                    told = Some(Instant::now());
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if timeout(GRACE, graceful.shutdown()).await.is_err() {
        warn!("requests still under way at shutdown were cut off");
    }
}

fn take(stream: TcpStream, client: SocketAddr, router: &Router, ingress: &Ingress, watcher: Watcher) {
    match ingress.connections.admit(client.ip()) {
        Ok(place) => {
            let (router, header_timeout) = (router.clone(), ingress.header_timeout);
            tokio::spawn(async move {
                // Answers are small and whole; waiting for more to send only delays them.
                let _ = stream.set_nodelay(true);
                give_up_on_readers_that_stall(&stream);
                converse(stream, client, router, header_timeout, watcher).await;
                drop(place);
            });
        }
        Err(no_place) => {
            debug!(%client, ?no_place, "connection turned away");
            if let Ok(turn) = Arc::clone(&ingress.turning_away).try_acquire_owned() {
                tokio::spawn(async move {
                    // Whoever does not take the answer in time goes without it.
                    let _ = timeout(TURN_AWAY_TIMEOUT, turn_away(stream, no_place)).await;
                    drop(turn);
                });
            }
        }
    }
}

/// All requests of one connection.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    client: SocketAddr,
    router: Router,
    header_timeout: Duration,
    watcher: Watcher,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(client));
        let mut router = router.clone();
        async move { Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {})) }
    });
    // The header timeout runs from the end of the last answer, so that it bounds idle connections too.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = watcher.watch(connection).await {
        debug!(%error, "connection ended");
    }
}

/// A client that asks and does not read its answers would keep its connection for ever.
fn give_up_on_readers_that_stall(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::net::sockopt::set_tcp_user_timeout(stream, 30_000) {
        debug!(%error, "answers that nobody reads are not bounded in time");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

/// An honest refusal without reading the request, as far as it is worth waiting for.
async fn turn_away(mut stream: TcpStream, why: NoPlace) -> std::io::Result<()> {
    let (status, text) = match why {
        NoPlace::Full => ("503 Service Unavailable", "all connections of this hub are in use: try again"),
        NoPlace::ClientFull => {
            ("429 Too Many Requests", "too many connections from this address: close some")
        }
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 5\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{text}\n",
        text.len() + 1
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing while the client still sends would take the answer away from it.
    tokio::io::copy(&mut stream.take(HEADER_LIMIT as u64), &mut tokio::io::sink()).await?;
    Ok(())
}
