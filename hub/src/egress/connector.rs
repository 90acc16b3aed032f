//! Connections to vetted addresses: resolve once, judge every answer, connect to exactly what was judged.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tower_service::Service;

use super::guard::{Forbidden, Guard, PublicAddress};

/// A TCP connector that the guard stands in front of.
#[derive(Clone, Debug)]
pub(super) struct GuardedConnector {
    guard: Guard,
    connect_timeout: Duration,
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("the name {host} could not be resolved: {reason}")]
    Dns { host: String, reason: String },
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    #[error("no connection: {0}")]
    Io(#[from] io::Error),
}

impl GuardedConnector {
    pub(super) fn new(guard: Guard, connect_timeout: Duration) -> Self {
        Self { guard, connect_timeout }
    }

    async fn connect(self, uri: Uri) -> Result<TokioIo<TcpStream>, ConnectError> {
        let limit = self.connect_timeout;
        timeout(limit, async { self.dial(&self.resolve(&uri).await?).await })
            .await
            .unwrap_or(Err(ConnectError::Timeout(limit)))
    }

    /// One forbidden answer condemns the name: a mixed answer is how rebinding begins.
    async fn resolve(&self, uri: &Uri) -> Result<Vec<PublicAddress>, ConnectError> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        let unresolved = |reason: String| ConnectError::Dns { host: host.to_owned(), reason };
        let found = lookup_host((host, port)).await.map_err(|error| match shortage() {
            Some(shortage) => ConnectError::Io(shortage),
            None => unresolved(error.to_string()),
        })?;
        let vetted = found.map(|address| self.guard.check(address)).collect::<Result<Vec<_>, _>>()?;
        if vetted.is_empty() { Err(unresolved("no addresses".to_owned())) } else { Ok(vetted) }
    }

    async fn dial(&self, addresses: &[PublicAddress]) -> Result<TokioIo<TcpStream>, ConnectError> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match TcpStream::connect(address.socket()).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }
}

/// A resolver that gets no file descriptor does not say so: the system is asked for one.
fn shortage() -> Option<io::Error> {
    std::fs::File::open("/dev/null").err()
}

impl Service<Uri> for GuardedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}
