//! Connections to vetted addresses: resolve once, judge every answer, connect to exactly what was judged.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tower_service::Service;
use url::Host;

use super::confirmed::{Confirmed, Unconfirmed};
use super::crowds::Crowds;
use super::guard::{Forbidden, Guard, PublicAddress};
use super::resolver::Unresolved;

/// Addresses of one name that are tried. A name may list hundreds, each of them somebody who did not ask for it.
const TRIED: usize = 4;

/// A TCP connector that the guard stands in front of.
#[derive(Clone, Debug)]
pub(super) struct GuardedConnector {
    guard: Guard,
    connect_timeout: Duration,
    crowds: Option<Crowds>,
    confirmed: Option<Confirmed>,
    body: usize,
}

/// Why no connection came about.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("the name {host} could not be resolved: {reason}")]
    Dns { host: String, reason: Unresolved },
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    #[error("this network has been asked too often of late")]
    Crowded(Duration),
    #[error("nobody has confirmed there under this name, and the network is sent enough of that for now")]
    Unconfirmed(Duration),
    #[error("no connection: {0}")]
    Io(#[from] io::Error),
}

impl GuardedConnector {
    pub(super) fn new(guard: Guard, connect_timeout: Duration) -> Self {
        Self { guard, connect_timeout, crowds: None, confirmed: None, body: 0 }
    }

    /// The same, counting by network.
    pub(super) fn counting(self, crowds: Crowds) -> Self {
        Self { crowds: Some(crowds), ..self }
    }

    /// The same, sending little to where nobody has confirmed.
    pub(super) fn heeding(self, confirmed: Confirmed) -> Self {
        Self { confirmed: Some(confirmed), ..self }
    }

    /// The same for a request with a body of so many bytes.
    pub(super) fn carrying(self, body: usize) -> Self {
        Self { body, ..self }
    }

    /// What to keep to at this address under this name, if anything.
    pub(super) fn judge(&self, host: &str, address: IpAddr) -> Option<Unconfirmed> {
        let confirmed = self.confirmed.as_ref()?;
        // Names are compared as the URL standard writes them.
        let host = Host::parse(host).map_or_else(|_| host.to_owned(), |host| host.to_string());
        confirmed.judge(&host, address)
    }

    async fn connect(self, uri: Uri) -> Result<TokioIo<TcpStream>, ConnectError> {
        let limit = self.connect_timeout;
        let end = Instant::now() + limit;
        let host = uri.host().unwrap_or_default();
        timeout(limit, async { self.dial(host, self.resolve(&uri).await?, end).await })
            .await
            .unwrap_or(Err(ConnectError::Timeout(limit)))
    }

    /// The network of the address that would be tried first.
    pub(super) async fn network(&self, uri: &Uri) -> Option<IpNet> {
        let vetted = timeout(self.connect_timeout, self.resolve(uri)).await.ok()?.ok()?;
        vetted.first().map(|address| address.network())
    }

    /// One forbidden answer condemns the name: a mixed answer is how rebinding begins. An address, however it is spelled, is
    /// never asked about.
    async fn resolve(&self, uri: &Uri) -> Result<Vec<PublicAddress>, ConnectError> {
        let authority = uri.authority().ok_or(Forbidden::Host)?;
        if authority.as_str().contains('@') {
            return Err(Forbidden::Credentials.into());
        }
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        self.guard.check_port(port)?;
        let found = match Host::parse(authority.host()).map_err(|_| Forbidden::Host)? {
            Host::Ipv4(ip) => vec![IpAddr::V4(ip)],
            Host::Ipv6(ip) => vec![IpAddr::V6(ip)],
            Host::Domain(name) => self.ask(&name).await?,
        };
        let vetted = found.into_iter().map(|ip| self.guard.check(SocketAddr::new(ip, port)));
        Ok(vetted.collect::<Result<Vec<_>, _>>()?)
    }

    /// Each address counts that is tried: a name may have one of a stranger's own in front of those of somebody else.
    fn admit(&self, address: &PublicAddress) -> Result<(), ConnectError> {
        match &self.crowds {
            Some(crowds) => crowds.admit(address.network()).map_err(ConnectError::Crowded),
            None => Ok(()),
        }
    }

    async fn ask(&self, name: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let found = self.guard.resolver().addresses(name).await;
        found.map_err(|reason| match shortage() {
            Some(shortage) => ConnectError::Io(shortage),
            None => ConnectError::Dns { host: name.to_owned(), reason },
        })
    }

    /// Where the name has confirmed goes first. Each address has its share of the time that is left, so that one which says
    /// nothing does not hide one that is well.
    async fn dial(
        &self,
        host: &str,
        addresses: Vec<PublicAddress>,
        end: Instant,
    ) -> Result<TokioIo<TcpStream>, ConnectError> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let judge = |address: PublicAddress| (self.judge(host, address.socket().ip()), address);
        let mut judged: Vec<_> = addresses.into_iter().map(judge).collect();
        judged.sort_by_key(|(unconfirmed, _)| unconfirmed.is_some());
        let tried = &judged[..judged.len().min(TRIED)];
        for ((unconfirmed, address), left) in tried.iter().zip((1..=tried.len()).rev()) {
            self.admit(address)?;
            if let Some(unconfirmed) = unconfirmed {
                unconfirmed.admit(self.body).map_err(ConnectError::Unconfirmed)?;
            }
            let share = end.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
            let connected = timeout(share, TcpStream::connect(address.socket())).await;
            if !matches!(connected, Ok(Ok(_))) {
                unconfirmed.iter().for_each(Unconfirmed::refused);
            }
            match connected {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(TokioIo::new(stream));
                }
                Ok(Err(error)) => last = error,
                Err(_) if left == 1 => return Err(ConnectError::Timeout(self.connect_timeout)),
                Err(_) => last = io::ErrorKind::TimedOut.into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn b33_every_address_of_a_name_counts_for_its_network_and_not_only_the_first() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let crowds = Crowds::with("1/h, burst 1".parse().unwrap());
        let connector = GuardedConnector::new(guard.clone(), Duration::from_secs(1)).counting(crowds);
        let closed = |address: &str| {
            let listener = std::net::TcpListener::bind((address, 0)).unwrap();
            guard.check(listener.local_addr().unwrap()).unwrap()
        };
        let dial = async |addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|address| closed(address)).collect();
            connector.dial("d.test", addresses, Instant::now() + Duration::from_secs(1)).await.unwrap_err()
        };
        assert!(matches!(dial(&["127.0.1.1", "127.0.2.1"]).await, ConnectError::Io(_)));
        assert!(matches!(dial(&["127.0.3.1", "127.0.2.2"]).await, ConnectError::Crowded(_)));
    }

    #[tokio::test]
    async fn an_address_that_says_nothing_does_not_hide_one_that_is_well() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        // A listener whose line is full answers nobody.
        let silent = tokio::net::TcpSocket::new_v4().unwrap();
        silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = silent.listen(1).unwrap();
        let well = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let [silent_at, well_at] = [&silent, &well].map(|listener| listener.local_addr().unwrap());
        let mut line = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(200), TcpStream::connect(silent_at)).await {
            line.push(stream.unwrap());
        }
        let addresses = [silent_at, well_at].map(|address| guard.check(address).unwrap());
        let patience = Duration::from_secs(2);
        let connector = GuardedConnector::new(guard, patience);
        assert!(connector.dial("d.test", addresses.into(), Instant::now() + patience).await.is_ok());
        let silent = vec![addresses[0]];
        let outcome = connector.dial("d.test", silent, Instant::now() + Duration::from_millis(100)).await;
        assert!(matches!(outcome, Err(ConnectError::Timeout(_))), "{outcome:?}");
    }
}
