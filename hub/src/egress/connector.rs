//! Connections to vetted addresses: resolve once, judge every answer, connect to exactly what was judged.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use resync_common::locks::lock;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tower_service::Service;
use url::Host;

use super::guard::{Forbidden, Guard, PublicAddress};
use super::network_limit::NetworkLimit;
use super::rebinding::{Blocked, ConfirmedAddresses, CountedRequest, Reverification, Withheld};
use super::resolver::Unresolved;

/// Addresses of one name that are tried. A name may list hundreds, each of them somebody who did not ask for it.
const TRIED: usize = 4;

/// A TCP connector behind the address guard.
#[derive(Clone, Debug)]
pub(super) struct GuardedConnector {
    guard: Guard,
    connect_timeout: Duration,
    network_limit: Option<NetworkLimit>,
    confirmed: Option<ConfirmedAddresses>,
    purpose: Purpose,
}

/// Which of a name's addresses a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// Any address. An unconfirmed one is re-verified first, for the subscription with this number.
    Reverify(u64),
    /// Any address, without re-verification.
    #[default]
    Any,
    /// This address.
    Pinned(IpAddr),
}

impl Route {
    /// The subscription for which an address may have to be re-verified first.
    pub(super) fn subscription(self) -> Option<u64> {
        match self {
            Self::Reverify(subscription) => Some(subscription),
            Self::Any | Self::Pinned(_) => None,
        }
    }
}

/// What a connection is made for.
#[derive(Clone, Debug, Default)]
pub(super) struct Purpose {
    /// Bytes of the request.
    bytes: usize,
    route: Route,
    /// It is a re-verification, which was counted before.
    is_reverification: bool,
    reserved: Arc<Mutex<Reserved>>,
}

/// What came of the limit for unconfirmed addresses.
#[derive(Debug, Default)]
struct Reserved {
    request: Option<CountedRequest>,
    reverification: Option<Reverification>,
}

impl Purpose {
    pub(super) fn request(bytes: usize, route: Route) -> Self {
        Self { bytes, route, ..Self::default() }
    }

    /// A re-verification of this address.
    pub(super) fn reverification(address: IpAddr) -> Self {
        Self { route: Route::Pinned(address), is_reverification: true, ..Self::default() }
    }

    /// The request, if it was counted.
    pub(super) fn take_request(&self) -> Option<CountedRequest> {
        self.reserved().request.take()
    }

    /// The re-verification that has to come first, if any.
    pub(super) fn take_reverification(&self) -> Option<Reverification> {
        self.reserved().reverification.take()
    }

    /// The connection failed for a reason that is not the hub's.
    pub(super) fn refused(&self) {
        if let Some(request) = self.take_request() {
            request.refused();
        }
    }

    fn reserved(&self) -> MutexGuard<'_, Reserved> {
        lock(&self.reserved)
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    #[error("DNS: {host} cannot be resolved: {reason}")]
    Dns { host: String, reason: Unresolved },
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    #[error("rate limit for connections to this network; retry in {0:?}")]
    RateLimited(Duration),
    #[error("unconfirmed address: {0}")]
    Unconfirmed(Withheld),
    #[error("unconfirmed address: it has to be re-verified first")]
    ReverifyFirst,
    #[error("no connection: {0}")]
    Io(#[from] io::Error),
}

impl GuardedConnector {
    pub(super) fn new(guard: Guard, connect_timeout: Duration) -> Self {
        Self { guard, connect_timeout, network_limit: None, confirmed: None, purpose: Purpose::default() }
    }

    /// Limits connections per network.
    pub(super) fn limiting_networks(self, network_limit: NetworkLimit) -> Self {
        Self { network_limit: Some(network_limit), ..self }
    }

    /// Limits requests to unconfirmed addresses.
    pub(super) fn limiting_unconfirmed(self, confirmed: ConfirmedAddresses) -> Self {
        Self { confirmed: Some(confirmed), ..self }
    }

    /// Connects for this purpose.
    pub(super) fn with_purpose(self, purpose: Purpose) -> Self {
        Self { purpose, ..self }
    }

    async fn connect(self, uri: Uri) -> Result<TokioIo<TcpStream>, ConnectError> {
        let limit = self.connect_timeout;
        let end = Instant::now() + limit;
        let host = uri.host().unwrap_or_default();
        let dialled = timeout(limit, async { self.dial(host, self.resolve(&uri).await?, end).await });
        let stream = dialled.await.unwrap_or(Err(ConnectError::Timeout(limit)))?;
        Ok(TokioIo::new(stream))
    }

    /// The network of the address that would be tried first.
    pub(super) async fn network(&self, uri: &Uri) -> Option<IpNet> {
        let vetted = timeout(self.connect_timeout, self.resolve(uri)).await.ok()?.ok()?;
        vetted.first().map(|address| address.network())
    }

    /// One forbidden address forbids the name: a mixed answer is how DNS rebinding begins. An address in the URL, however it is
    /// spelled, is never looked up.
    async fn resolve(&self, uri: &Uri) -> Result<Vec<PublicAddress>, ConnectError> {
        let authority = uri.authority().ok_or(Forbidden::Host)?;
        if authority.as_str().contains('@') {
            return Err(Forbidden::Credentials.into());
        }
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        self.guard.check_port(port)?;
        let found = match (Host::parse(authority.host()).map_err(|_| Forbidden::Host)?, self.purpose.route) {
            (Host::Ipv4(ip), _) => vec![IpAddr::V4(ip)],
            (Host::Ipv6(ip), _) => vec![IpAddr::V6(ip)],
            (Host::Domain(_), Route::Pinned(address)) => vec![address],
            (Host::Domain(name), Route::Reverify(_) | Route::Any) => self.look_up(&name).await?,
        };
        let vetted = found.into_iter().map(|ip| self.guard.check(SocketAddr::new(ip, port)));
        Ok(vetted.collect::<Result<Vec<_>, _>>()?)
    }

    /// Every address that is tried counts: a name may list one of its owner's before those of a victim.
    fn count_connection(&self, address: &PublicAddress) -> Result<(), ConnectError> {
        match &self.network_limit {
            Some(network_limit) => network_limit.admit(address.network()).map_err(ConnectError::RateLimited),
            None => Ok(()),
        }
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, ConnectError> {
        let found = self.guard.resolver().addresses(name).await;
        found.map_err(|reason| match shortage() {
            Some(shortage) => ConnectError::Io(shortage),
            None => ConnectError::Dns { host: name.to_owned(), reason },
        })
    }

    /// Tries confirmed addresses first. Each address has its share of the time that is left, so that one which does not answer
    /// does not hide a good one; nor does one to which nothing may be sent now.
    async fn dial(
        &self,
        host: &str,
        addresses: Vec<PublicAddress>,
        end: Instant,
    ) -> Result<TcpStream, ConnectError> {
        // Names are compared as the URL standard writes them.
        let host = Host::parse(host).map_or_else(|_| host.to_owned(), |host| host.to_string());
        let tried = self.chosen(&host, addresses);
        let (mut last, mut withheld) = (None, None::<Withheld>);
        for ((unconfirmed, address), left) in tried.iter().zip((1..=tried.len()).rev()) {
            self.count_connection(address)?;
            if let Some(confirmed) = unconfirmed {
                let unconfirmed = confirmed.unconfirmed(&host, address.socket().ip());
                match unconfirmed.admit(self.purpose.bytes, self.purpose.route.subscription()) {
                    Ok(request) => self.purpose.reserved().request = Some(request),
                    Err(Blocked::Reverify(reverification)) => {
                        self.purpose.reserved().reverification = Some(reverification);
                        return Err(ConnectError::ReverifyFirst);
                    }
                    Err(Blocked::Withheld(why)) => {
                        withheld = Some(withheld.map_or(why, |first| first.min(why)));
                        continue;
                    }
                }
            }
            let share = end.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
            last = Some(match timeout(share, TcpStream::connect(address.socket())).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) if is_ours(&error) => {
                    drop(self.purpose.take_request());
                    ConnectError::Io(error)
                }
                Ok(Err(error)) => {
                    self.purpose.refused();
                    ConnectError::Io(error)
                }
                Err(_) => {
                    self.purpose.refused();
                    ConnectError::Timeout(self.connect_timeout)
                }
            });
        }
        let nowhere = || io::Error::from(io::ErrorKind::AddrNotAvailable).into();
        Err(last.or(withheld.map(ConnectError::Unconfirmed)).unwrap_or_else(nowhere))
    }

    /// The addresses that are tried, each with its limit if it is unconfirmed.
    fn chosen(
        &self,
        host: &str,
        addresses: Vec<PublicAddress>,
    ) -> Vec<(Option<&ConfirmedAddresses>, PublicAddress)> {
        let limits = self.confirmed.as_ref().filter(|_| !self.purpose.is_reverification);
        let confirmed = match limits {
            Some(limits) => {
                limits.which_confirmed(host, addresses.iter().map(|address| address.socket().ip()))
            }
            None => vec![true; addresses.len()],
        };
        let limit = |is_confirmed: bool| limits.filter(|_| !is_confirmed);
        let mut chosen: Vec<_> = confirmed.into_iter().map(limit).zip(addresses).collect();
        chosen.sort_by_key(|(unconfirmed, _)| unconfirmed.is_some());
        chosen.truncate(TRIED);
        chosen
    }
}

/// Whether there is no connection because this machine has no route, no address or no file descriptor.
pub(super) fn is_ours(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | HostUnreachable | NetworkUnreachable) || is_exhaustion(error)
}

/// EMFILE and ENFILE, which have no `ErrorKind` of their own yet.
pub(super) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

/// A resolver that gets no file descriptor does not say so; opening a file does.
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
    use crate::store::WallClock;

    #[tokio::test]
    async fn b33_every_address_of_a_name_counts_for_its_network_and_not_only_the_first() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let network_limit = NetworkLimit::with("1/h, burst 1".parse().unwrap());
        let connector =
            GuardedConnector::new(guard.clone(), Duration::from_secs(1)).limiting_networks(network_limit);
        let closed = |address: &str| {
            let listener = std::net::TcpListener::bind((address, 0)).unwrap();
            guard.check(listener.local_addr().unwrap()).unwrap()
        };
        let dial = async |addresses: &[&str]| {
            let addresses: Vec<_> = addresses.iter().map(|address| closed(address)).collect();
            connector.dial("d.test", addresses, Instant::now() + Duration::from_secs(1)).await.unwrap_err()
        };
        assert!(matches!(dial(&["127.0.1.1", "127.0.2.1"]).await, ConnectError::Io(_)));
        assert!(matches!(dial(&["127.0.3.1", "127.0.2.2"]).await, ConnectError::RateLimited(_)));
    }

    #[tokio::test]
    async fn an_address_that_may_be_sent_nothing_now_does_not_hide_one_that_may() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let confirmed = ConfirmedAddresses::new(true, "1/h, burst 1".parse().unwrap(), WallClock::default());
        let connector =
            GuardedConnector::new(guard.clone(), Duration::from_secs(1)).limiting_unconfirmed(confirmed);
        let listen = |address: &str| std::net::TcpListener::bind((address, 0)).unwrap();
        let [crowded, well] = ["127.0.1.1", "127.0.2.1"].map(listen);
        let [crowded_at, well_at] =
            [&crowded, &well].map(|listener| guard.check(listener.local_addr().unwrap()).unwrap());
        let dial = async |addresses: &[PublicAddress]| {
            let dialled =
                connector.dial("d.test", addresses.to_vec(), Instant::now() + Duration::from_secs(1));
            dialled.await.map(|stream| stream.peer_addr().unwrap())
        };
        assert_eq!(dial(&[crowded_at]).await.unwrap(), crowded_at.socket());
        assert_eq!(dial(&[crowded_at, well_at]).await.unwrap(), well_at.socket());
        let neither = dial(&[crowded_at, well_at]).await;
        assert!(matches!(neither, Err(ConnectError::Unconfirmed(_))), "{neither:?}");
    }

    #[tokio::test]
    async fn an_unconfirmed_address_is_re_verified_first_and_that_request_goes_to_one_address() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let confirmed = ConfirmedAddresses::new(true, "1/h, burst 9".parse().unwrap(), WallClock::default());
        let connector =
            GuardedConnector::new(guard.clone(), Duration::from_secs(1)).limiting_unconfirmed(confirmed);
        let listener = std::net::TcpListener::bind(("127.0.1.1", 0)).unwrap();
        let at = guard.check(listener.local_addr().unwrap()).unwrap();
        let dial = async |purpose: &Purpose| {
            let connector = connector.clone().with_purpose(purpose.clone());
            connector.dial("d.test", vec![at], Instant::now() + Duration::from_secs(1)).await
        };
        let delivery = Purpose::request(0, Route::Reverify(1));
        assert!(matches!(dial(&delivery).await, Err(ConnectError::ReverifyFirst)));
        let reverification = delivery.take_reverification().unwrap();
        assert_eq!(reverification.address(), at.socket().ip());
        assert!(delivery.take_request().is_none(), "nothing else was taken into account");

        let asking = Purpose::reverification(reverification.address());
        assert!(dial(&asking).await.is_ok() && asking.take_request().is_none());
        let url: Uri = format!("http://d.test:{}/", at.socket().port()).parse().unwrap();
        let found = connector.clone().with_purpose(asking).resolve(&url).await.unwrap();
        assert_eq!(found.iter().map(|found| found.socket()).collect::<Vec<_>>(), [at.socket()]);

        let inside =
            connector.clone().with_purpose(Purpose::reverification([10, 0, 0, 1].into())).resolve(&url).await;
        assert!(matches!(inside, Err(ConnectError::Forbidden(_))), "the guard stands before it too");

        let waits = dial(&delivery).await;
        assert!(
            matches!(waits, Err(ConnectError::Unconfirmed(Withheld::AwaitingReverification))),
            "{waits:?}"
        );
        reverification.refused();
        assert!(dial(&delivery).await.is_ok() && delivery.take_request().is_some(), "it was asked just now");
    }

    #[tokio::test]
    async fn of_many_addresses_that_which_has_confirmed_is_tried_first() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let confirmed = ConfirmedAddresses::new(true, "1/h, burst 1".parse().unwrap(), WallClock::default());
        let connector = GuardedConnector::new(guard.clone(), Duration::from_secs(1))
            .limiting_unconfirmed(confirmed.clone());
        let listeners: Vec<_> =
            (0..20).map(|_| std::net::TcpListener::bind(("127.0.1.1", 0)).unwrap()).collect();
        let own = std::net::TcpListener::bind(("127.0.2.1", 0)).unwrap();
        let at = |listener: &std::net::TcpListener| guard.check(listener.local_addr().unwrap()).unwrap();
        let addresses: Vec<_> = listeners.iter().chain([&own]).map(at).collect();
        let tomorrow = std::time::SystemTime::now() + Duration::from_secs(86_400);
        let until = resync_core::datetime::DateTime::from_system_time(tomorrow);
        confirmed.remember("http://d.test", Some(at(&own).socket().ip()), until);
        for _ in 0..3 {
            let end = Instant::now() + Duration::from_secs(1);
            let stream = connector.dial("d.test", addresses.clone(), end).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), own.local_addr().unwrap());
            assert!(connector.purpose.take_request().is_none());
        }
    }

    #[test]
    fn what_fails_for_want_of_something_here_is_no_refusal() {
        // EMFILE, ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL; ECONNREFUSED.
        for (error, ours) in [(24, true), (101, true), (113, true), (99, true), (111, false)] {
            assert_eq!(is_ours(&io::Error::from_raw_os_error(error)), ours, "{error}");
        }
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
