//! Serves a router on a listener, with limits for connections, headers, time and unread answers, and a graceful shutdown.
//!
//! The hub does not use the server of `common`, which closes a connection of the client that has most of them when all are in use. Here each
//! client has a limit instead, so that nobody's connection ends for another's. Moreover this one takes TLS, holds the sender of
//! a body to a rate, and lets thousands of connections that come at once wait in the system's backlog.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
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
use resync_common::pace::{Leeway, Pace, Paced};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::server::TlsStream;
use tower_service::Service;
use tracing::{debug, warn};

use super::client_limit::{ClientLimit, LimitReached};
use super::tls::Tls;
use crate::config::IngressConfig;

/// The largest header; hyper's own smallest buffer.
const HEADER_LIMIT: usize = 16 * 1024;
/// How long requests under way may take at shutdown.
const GRACE: Duration = Duration::from_secs(8);
/// How long a new connection may take to send a request at shutdown: it may have been sent before.
const FIRST_REQUEST: Duration = Duration::from_secs(1);
/// A pause after `accept` failed, for example because all file descriptors are in use.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// An error that repeats is logged no more often than this.
const LOG_EVERY: Duration = Duration::from_secs(10);
/// Bytes of an answer in the system's send buffer (it takes twice of what is set). They count as written.
const SEND_BUFFER: usize = 128 * 1024;
/// Connections beyond the limit that are answered at once; further ones are closed.
const TURNED_AWAY_AT_ONCE: usize = 64;
/// How long the answer to one of them may take.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(1);
/// Accepted connections that are not served yet. If thousands come at once they wait in the system's backlog, and requests under way
/// are served in between.
const ACCEPTED_AHEAD: usize = 16;
/// The backlog, if the system allows it: the default limit of connections. A client beyond it gets no answer, and tries again a
/// second later.
const WAITING: u32 = 4_096;
/// Connections that came at once should not all end at once: the time for a header is shortened by up to this share.
const HEADER_SPREAD: f64 = 0.1;

/// How connections are served.
#[derive(Clone, Debug)]
pub struct Ingress {
    connections: ClientLimit,
    header_timeout: Duration,
    reading: Pace,
    /// After this time a client is given up that vanished or reads nothing of the send buffer.
    silence: Duration,
    turning_away: Arc<Semaphore>,
    arrivals: Arc<Semaphore>,
    tls: Option<Tls>,
}

impl Ingress {
    /// The limits of one listener, and its certificate if it uses TLS.
    pub fn new(config: &IngressConfig, tls: Option<Tls>) -> Self {
        Self {
            connections: ClientLimit::for_connections(config),
            header_timeout: config.header_timeout,
            reading: Pace { patience: config.answer_timeout, bytes_per_second: config.body_rate },
            silence: config.answer_timeout,
            turning_away: Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE)),
            arrivals: Arc::new(Semaphore::new(ACCEPTED_AHEAD)),
            tls,
        }
    }

    /// Some answers of this listener may pause for so long.
    #[must_use]
    pub fn with_leeway(self, patience: Duration) -> Self {
        Self { silence: self.silence.max(patience), ..self }
    }
}

/// A listener for connections that may come by the thousand.
///
/// # Errors
/// When the address cannot be listened on.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A hub that was just restarted has the same address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

/// Serves until `stop` turns true, then lets what is under way finish.
pub async fn serve(listener: TcpListener, router: Router, ingress: Ingress, mut stop: watch::Receiver<bool>) {
    let graceful = GracefulShutdown::new();
    let mut logged = None;
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &ingress) => accepted,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((stream, client, arrival)) => {
                let ends = (graceful.watcher(), stop.clone());
                serve_connection(stream, client, arrival, &router, &ingress, ends);
            }
            Err(error) => {
                if logged.is_none_or(|logged: Instant| logged.elapsed() > LOG_EVERY) {
                    warn!(%error, "connection not accepted");
                    logged = Some(Instant::now());
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    if timeout(GRACE, graceful.shutdown()).await.is_err() {
        warn!("shutdown: requests that were still under way were aborted");
    }
}

/// The next connection, as soon as few enough wait to be looked at.
async fn accept(
    listener: &TcpListener,
    ingress: &Ingress,
) -> std::io::Result<(TcpStream, SocketAddr, Option<OwnedSemaphorePermit>)> {
    // It is never closed.
    let arrival = Arc::clone(&ingress.arrivals).acquire_owned().await.ok();
    let (stream, client) = listener.accept().await?;
    Ok((stream, client, arrival))
}

/// Serves one connection in a task of its own, if its client may have one more.
fn serve_connection(
    stream: TcpStream,
    client: SocketAddr,
    arrival: Option<OwnedSemaphorePermit>,
    router: &Router,
    ingress: &Ingress,
    (watcher, stop): (Watcher, watch::Receiver<bool>),
) {
    let tls = ingress.tls.clone();
    match ingress.connections.take(client.ip()) {
        Ok(permit) => {
            let (router, reading, silence) = (router.clone(), ingress.reading, ingress.silence);
            let header_timeout = ingress.header_timeout.mul_f64(1.0 - HEADER_SPREAD * fastrand::f64());
            tokio::spawn(async move {
                drop(arrival);
                // Answers are small and whole; waiting for more to send only delays them.
                let _ = stream.set_nodelay(true);
                bound_what_is_not_read(&stream, silence);
                let leeway = Leeway::default();
                let stream_of = |stream| Paced::new(stream, reading, leeway.clone());
                match tls {
                    None => {
                        converse(stream_of(stream), (client, leeway), router, header_timeout, stop).await;
                    }
                    Some(tls) => {
                        let shaken = shake_hands(stream, &tls, stream_of, header_timeout, stop.clone()).await;
                        if let Some(stream) = shaken {
                            converse(stream, (client, leeway), router, header_timeout, stop).await;
                        }
                    }
                }
                drop((permit, watcher));
            });
        }
        Err(reached) => {
            debug!(%client, ?reached, "connection refused: a limit is reached");
            // A handshake costs more than what is refused, so that within TLS nothing can be said.
            if tls.is_none()
                && let Ok(turn) = Arc::clone(&ingress.turning_away).try_acquire_owned()
            {
                tokio::spawn(async move {
                    // A client that does not read it in time does not get it.
                    let _ = timeout(TURN_AWAY_TIMEOUT, turn_away(stream, reached)).await;
                    drop(turn);
                });
            }
        }
    }
}

/// A handshake within the time limit; at shutdown it is aborted soon, since no request is under way yet.
async fn shake_hands(
    stream: TcpStream,
    tls: &Tls,
    paced: impl FnOnce(TcpStream) -> Paced<TcpStream>,
    limit: Duration,
    mut stop: watch::Receiver<bool>,
) -> Option<TlsStream<Paced<TcpStream>>> {
    let shaken = tokio::select! {
        shaken = timeout(limit, tls_or_advice(stream, tls, paced)) => shaken,
        () = stopped_for(&mut stop, FIRST_REQUEST) => return None,
    };
    match shaken {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            debug!(%error, "no TLS handshake");
            None
        }
        Err(_) => {
            debug!("TLS handshake timed out");
            None
        }
    }
}

/// Answers plain HTTP on a TLS port in plain HTTP.
async fn tls_or_advice(
    stream: TcpStream,
    tls: &Tls,
    paced: impl FnOnce(TcpStream) -> Paced<TcpStream>,
) -> std::io::Result<Option<TlsStream<Paced<TcpStream>>>> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0].is_ascii_uppercase() {
        let text = "this port expects HTTPS: use the hub's URL with https://";
        say(stream, "400 Bad Request", "", text).await?;
        return Ok(None);
    }
    tls.accept(paced(stream)).await.map(Some)
}

/// So long after the hub was asked to stop.
async fn stopped_for(stop: &mut watch::Receiver<bool>, pause: Duration) {
    // If the sender is gone, so is the hub.
    let _ = stop.wait_for(|stop| *stop).await.map(drop);
    sleep(pause).await;
}

/// All requests of one connection. At shutdown the one that is under way is the last.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    (client, leeway): (SocketAddr, Leeway),
    router: Router,
    header_timeout: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let began = Arc::new(Notify::new());
    let asked = Arc::clone(&began);
    let service = service_fn(move |mut request: Request<Incoming>| {
        asked.notify_one();
        request.extensions_mut().insert(ConnectInfo(client));
        request.extensions_mut().insert(leeway.clone());
        let mut router = router.clone();
        async move { Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {})) }
    });
    // The header timeout runs from the end of the last answer, so that it bounds idle connections too.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEADER_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopped_for(&mut stop, Duration::ZERO) => {
            // A connection that has not been read from yet would be closed at once, with what its client has sent already.
            let first = async { timeout(FIRST_REQUEST, began.notified()).await };
            tokio::select! {
                ended = &mut connection => ended,
                _ = first => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            }
        }
    };
    if let Err(error) = ended {
        debug!(%error, "connection ended");
    }
}

/// Limits the send buffer: what is in it counts as read, whatever the client's pace.
#[cfg_attr(not(target_os = "linux"), allow(unused_variables))]
fn bound_what_is_not_read(stream: &TcpStream, silence: Duration) {
    let bounded = rustix::net::sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER);
    #[cfg(target_os = "linux")]
    let bounded = bounded.and_then(|()| {
        let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        rustix::net::sockopt::set_tcp_user_timeout(stream, milliseconds)
    });
    if let Err(error) = bounded {
        debug!(%error, "the send buffer of a connection cannot be limited");
    }
}

/// Refuses without reading the request.
async fn turn_away(stream: TcpStream, why: LimitReached) -> std::io::Result<()> {
    let (status, text) = match why {
        LimitReached::Total => {
            ("503 Service Unavailable", "all connections of this hub are in use: try again")
        }
        LimitReached::Client => (
            "429 Too Many Requests",
            "too many connections from this address or its IPv6 /48 network: close some",
        ),
    };
    say(stream, status, "Retry-After: 5\r\n", text).await
}

async fn say(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    status: &str,
    field: &str,
    text: &str,
) -> std::io::Result<()> {
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n{field}Content-Length: {}\r\n\
         Connection: close\r\n\r\n{text}\n",
        text.len() + 1
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing while the client still sends would take the answer away from it.
    tokio::io::copy(&mut stream.take(HEADER_LIMIT as u64), &mut tokio::io::sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far more than this takes; and whoever is not let in the first time gets in never, since nobody is accepted.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn three_hundred_publishers_may_come_at_once() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        for number in 0..300 {
            let connected = timeout(PATIENCE, TcpStream::connect(address)).await;
            waiting.push(connected.unwrap_or_else(|_| panic!("after {number} there is no room")).unwrap());
        }
    }
}
