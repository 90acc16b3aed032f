//! A small HTTP/1 server for the callback, for a Destination that has no server of its own.

mod place;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use resync_core::connections::full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::service::Callbacks;
use place::{Place, Places, Timed, Watched};

/// How many connections are served at the same time.
const MAX_CONNECTIONS: usize = 256;

/// How many more may be open: those that make room end a moment later, and some of those that find none are told so.
const ENDING: usize = 32;

/// How many are told at the same time that there is no room; others are closed without a word.
const TURNED_AWAY_AT_ONCE: usize = 16;

/// How long telling one may take.
const TURN_AWAY_TIMEOUT: Duration = Duration::from_secs(1);

/// The largest header, in bytes: together the connections hold 8 MiB of them.
const HEADER_LIMIT: usize = 32 * 1024;

/// How long requests that are under way may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be taken, when file descriptors ran out for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    graceful: GracefulShutdown,
    places: Places,
    sockets: Arc<Semaphore>,
    turning_away: Arc<Semaphore>,
}

impl Server {
    pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        Ok(Self {
            listener: TcpListener::bind(address).await?,
            graceful: GracefulShutdown::new(),
            places: Places::new(MAX_CONNECTIONS),
            sockets: Arc::new(Semaphore::new(MAX_CONNECTIONS + ENDING)),
            turning_away: Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE)),
        })
    }

    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is dropped or no longer polled; connections go on by themselves.
    pub(crate) async fn run(&self, callback: Callbacks) {
        loop {
            // It waits for connections that are ending, and never for a client.
            let Ok(socket) = Arc::clone(&self.sockets).acquire_owned().await else { return };
            let (stream, client) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match self.places.take(client.ip()) {
                Some(place) => self.serve(stream, place, socket, callback.clone()),
                None => self.turn_away(stream, socket),
            }
        }
    }

    fn serve(&self, stream: TcpStream, place: Place, socket: OwnedSemaphorePermit, callback: Callbacks) {
        // Without this a hub that keeps its connection waits 40 ms for the second half of each answer.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection cannot be made prompt");
        }
        let place = Arc::new(place);
        let service = Timed::new(callback, Arc::clone(&place));
        let stream = TokioIo::new(Watched::new(stream, Arc::clone(&place)));
        // The place knows how long a header may take, and how long the pause before it.
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(HEADER_LIMIT)
            .serve_connection(stream, service);
        let connection = self.graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection ended early");
                    }
                }
                () = place.ends() => tracing::debug!("a connection took too long, or makes room"),
            }
            drop(socket);
        });
    }

    fn turn_away(&self, stream: TcpStream, socket: OwnedSemaphorePermit) {
        tracing::debug!("all connections have requests under way: one is turned away");
        let Ok(turn) = Arc::clone(&self.turning_away).try_acquire_owned() else { return };
        tokio::spawn(async move {
            // Whoever does not take the answer in time goes without it.
            let _ = tokio::time::timeout(TURN_AWAY_TIMEOUT, say_full(stream)).await;
            drop((turn, socket));
        });
    }

    /// Takes no more connections and lets the requests under way end.
    pub(crate) async fn shut_down(self) {
        drop(self.listener);
        if tokio::time::timeout(GRACE, self.graceful.shutdown()).await.is_err() {
            tracing::warn!("requests under way were cut off");
        }
    }
}

/// An honest refusal without reading the request.
async fn say_full(mut stream: TcpStream) -> std::io::Result<()> {
    let answer = full("all connections are in use: try again\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closing while the client still sends would take the answer away from it.
    tokio::io::copy(&mut stream.take(HEADER_LIMIT as u64), &mut tokio::io::sink()).await?;
    Ok(())
}
