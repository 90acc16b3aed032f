//! A small HTTP/1 server for the callback, for a Destination that has no server of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::service::Callbacks;

/// How long a request's header may take to arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How many connections are served at the same time; more wait in the system's queue.
const MAX_CONNECTIONS: usize = 256;

/// How long requests that are under way may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// The pause after a connection that could not be taken, when file descriptors ran out for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Server {
    listener: TcpListener,
    graceful: GracefulShutdown,
    connections: Arc<Semaphore>,
}

impl Server {
    pub(crate) async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        Ok(Self { listener, graceful: GracefulShutdown::new(), connections })
    }

    pub(crate) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until it is dropped or no longer polled; connections go on by themselves.
    pub(crate) async fn run(&self, callback: Callbacks) {
        loop {
            let Ok(permit) = Arc::clone(&self.connections).acquire_owned().await else { return };
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Without this a hub that keeps its connection waits 40 ms for the second half of each answer.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "a connection cannot be made prompt");
            }
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(callback.clone()));
            let connection = self.graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection ended early");
                }
                drop(permit);
            });
        }
    }

    /// Takes no more connections and lets the requests under way end.
    pub(crate) async fn shut_down(self) {
        drop(self.listener);
        if tokio::time::timeout(GRACE, self.graceful.shutdown()).await.is_err() {
            tracing::warn!("requests under way were cut off");
        }
    }
}
