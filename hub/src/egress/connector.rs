//! Connections to vetted addresses: resolve once, judge every answer, connect to exactly what was judged.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tower_service::Service;
use url::Host;

use super::confirmed::{Admitted, Confirmed, HeldBack, Question, Unconfirmed};
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
    load: Load,
}

/// Which of the addresses that a name has a request goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Any, for the subscription with this number. One that has not confirmed under this name and was not asked of late is sent
    /// nothing: it has to be asked first.
    Asking(u64),
    /// Any, and nobody has to be asked.
    #[default]
    Plain,
    /// This one.
    To(IpAddr),
}

impl Way {
    /// The subscription about which an address may have to be asked first.
    pub(super) fn about(self) -> Option<u64> {
        match self {
            Self::Asking(about) => Some(about),
            Self::Plain | Self::To(_) => None,
        }
    }
}

/// What a connection is made for.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// What the request has the hub send.
    bytes: usize,
    way: Way,
    /// It is a question, which was taken into account before.
    is_question: bool,
    counted: Arc<Mutex<Counted>>,
}

/// What was taken into account for a connection.
#[derive(Debug, Default)]
struct Counted {
    admitted: Option<Admitted>,
    question: Option<Question>,
}

impl Load {
    pub(super) fn new(bytes: usize, way: Way) -> Self {
        Self { bytes, way, ..Self::default() }
    }

    /// A question for this address.
    pub(super) fn question(address: IpAddr) -> Self {
        Self { way: Way::To(address), is_question: true, ..Self::default() }
    }

    /// What was taken into account for the request, if anything.
    pub(super) fn take(&self) -> Option<Admitted> {
        self.counted().admitted.take()
    }

    /// What has to be asked first, if anything.
    pub(super) fn take_question(&self) -> Option<Question> {
        self.counted().question.take()
    }

    /// The connection came to nothing for no reason of this side.
    pub(super) fn refused(&self) {
        if let Some(admitted) = self.take() {
            admitted.refused();
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    #[error("nobody has confirmed there under this name: {0}")]
    Unconfirmed(HeldBack),
    #[error("nobody was asked there whether it wants what is sent under this name")]
    Unasked,
    #[error("no connection: {0}")]
    Io(#[from] io::Error),
}

impl GuardedConnector {
    pub(super) fn new(guard: Guard, connect_timeout: Duration) -> Self {
        Self { guard, connect_timeout, crowds: None, confirmed: None, load: Load::default() }
    }

    /// The same, counting by network.
    pub(super) fn counting(self, crowds: Crowds) -> Self {
        Self { crowds: Some(crowds), ..self }
    }

    /// The same, sending little to where nobody has confirmed.
    pub(super) fn heeding(self, confirmed: Confirmed) -> Self {
        Self { confirmed: Some(confirmed), ..self }
    }

    /// The same for one request.
    pub(super) fn carrying(self, load: Load) -> Self {
        Self { load, ..self }
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

    /// One forbidden answer condemns the name: a mixed answer is how rebinding begins. An address, however it is spelled, is
    /// never asked about.
    async fn resolve(&self, uri: &Uri) -> Result<Vec<PublicAddress>, ConnectError> {
        let authority = uri.authority().ok_or(Forbidden::Host)?;
        if authority.as_str().contains('@') {
            return Err(Forbidden::Credentials.into());
        }
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        self.guard.check_port(port)?;
        let found = match (Host::parse(authority.host()).map_err(|_| Forbidden::Host)?, self.load.way) {
            (Host::Ipv4(ip), _) => vec![IpAddr::V4(ip)],
            (Host::Ipv6(ip), _) => vec![IpAddr::V6(ip)],
            (Host::Domain(_), Way::To(address)) => vec![address],
            (Host::Domain(name), Way::Asking(_) | Way::Plain) => self.ask(&name).await?,
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
    /// nothing does not hide one that is well; nor does one that may be sent nothing now.
    async fn dial(
        &self,
        host: &str,
        addresses: Vec<PublicAddress>,
        end: Instant,
    ) -> Result<TcpStream, ConnectError> {
        // Names are compared as the URL standard writes them.
        let host = Host::parse(host).map_or_else(|_| host.to_owned(), |host| host.to_string());
        let tried = self.chosen(&host, addresses);
        let (mut last, mut held_back) = (None, None::<HeldBack>);
        for ((unconfirmed, address), left) in tried.iter().zip((1..=tried.len()).rev()) {
            self.admit(address)?;
            if let Some(confirmed) = unconfirmed
                && let Err(why) = self.admit_elsewhere(&confirmed.elsewhere(&host, address.socket().ip()))?
            {
                held_back = Some(held_back.map_or(why, |first| first.min(why)));
                continue;
            }
            let share = end.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
            last = Some(match timeout(share, TcpStream::connect(address.socket())).await {
                Ok(Ok(stream)) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) if is_ours(&error) => {
                    drop(self.load.take());
                    ConnectError::Io(error)
                }
                Ok(Err(error)) => {
                    self.load.refused();
                    ConnectError::Io(error)
                }
                Err(_) => {
                    self.load.refused();
                    ConnectError::Timeout(self.connect_timeout)
                }
            });
        }
        let nowhere = || io::Error::from(io::ErrorKind::AddrNotAvailable).into();
        Err(last.or(held_back.map(ConnectError::Unconfirmed)).unwrap_or_else(nowhere))
    }

    /// Takes into account that an address is connected to that has not confirmed, or says why it is not.
    ///
    /// # Errors
    /// [`ConnectError::Unasked`], and the question is in the load.
    fn admit_elsewhere(&self, there: &Arc<Unconfirmed>) -> Result<Result<(), HeldBack>, ConnectError> {
        let passed = there.pass(self.load.bytes, self.load.way.about()).map_err(|question| {
            self.load.counted().question = Some(question);
            ConnectError::Unasked
        })?;
        Ok(passed.map(|admitted| self.load.counted().admitted = Some(admitted)))
    }

    /// The addresses that are tried, with what knows how much may be sent to those that have not confirmed.
    fn chosen(&self, host: &str, addresses: Vec<PublicAddress>) -> Vec<(Option<&Confirmed>, PublicAddress)> {
        let confirmed = match self.confirmed.as_ref().filter(|_| !self.load.is_question) {
            Some(confirmed) => confirmed.have(host, addresses.iter().map(|address| address.socket().ip())),
            None => vec![true; addresses.len()],
        };
        let heeded = |has: bool| self.confirmed.as_ref().filter(|_| !has);
        let mut chosen: Vec<_> = confirmed.into_iter().map(heeded).zip(addresses).collect();
        chosen.sort_by_key(|(unconfirmed, _)| unconfirmed.is_some());
        chosen.truncate(TRIED);
        chosen
    }
}

/// Whether no connection came about for want of something on this side.
pub(super) fn is_ours(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), AddrNotAvailable | HostUnreachable | NetworkUnreachable) || is_exhaustion(error)
}

/// EMFILE and ENFILE, which have no `ErrorKind` of their own yet.
pub(super) fn is_exhaustion(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
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
    async fn an_address_that_may_be_sent_nothing_now_does_not_hide_one_that_may() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let confirmed = Confirmed::new(true, "1/h, burst 1".parse().unwrap());
        let connector = GuardedConnector::new(guard.clone(), Duration::from_secs(1)).heeding(confirmed);
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
    async fn an_address_that_was_not_asked_is_asked_first_and_a_question_goes_to_one_address() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let confirmed = Confirmed::new(true, "1/h, burst 9".parse().unwrap());
        let connector = GuardedConnector::new(guard.clone(), Duration::from_secs(1)).heeding(confirmed);
        let listener = std::net::TcpListener::bind(("127.0.1.1", 0)).unwrap();
        let at = guard.check(listener.local_addr().unwrap()).unwrap();
        let dial = async |load: &Load| {
            let connector = connector.clone().carrying(load.clone());
            connector.dial("d.test", vec![at], Instant::now() + Duration::from_secs(1)).await
        };
        let delivery = Load::new(0, Way::Asking(1));
        assert!(matches!(dial(&delivery).await, Err(ConnectError::Unasked)));
        let question = delivery.take_question().unwrap();
        assert_eq!(question.address(), at.socket().ip());
        assert!(delivery.take().is_none(), "nothing else was taken into account");

        let asking = Load::question(question.address());
        assert!(dial(&asking).await.is_ok() && asking.take().is_none());
        let url: Uri = format!("http://d.test:{}/", at.socket().port()).parse().unwrap();
        let found = connector.clone().carrying(asking).resolve(&url).await.unwrap();
        assert_eq!(found.iter().map(|found| found.socket()).collect::<Vec<_>>(), [at.socket()]);

        let inside = connector.clone().carrying(Load::question([10, 0, 0, 1].into())).resolve(&url).await;
        assert!(matches!(inside, Err(ConnectError::Forbidden(_))), "the guard stands before it too");

        let waits = dial(&delivery).await;
        assert!(matches!(waits, Err(ConnectError::Unconfirmed(HeldBack::Question))), "{waits:?}");
        question.refused();
        assert!(dial(&delivery).await.is_ok() && delivery.take().is_some(), "it was asked just now");
    }

    #[tokio::test]
    async fn of_many_addresses_that_which_has_confirmed_is_tried_first() {
        let guard = Guard::open_to(&["127.0.0.0/8"]);
        let confirmed = Confirmed::new(true, "1/h, burst 1".parse().unwrap());
        let connector =
            GuardedConnector::new(guard.clone(), Duration::from_secs(1)).heeding(confirmed.clone());
        let listeners: Vec<_> =
            (0..20).map(|_| std::net::TcpListener::bind(("127.0.1.1", 0)).unwrap()).collect();
        let own = std::net::TcpListener::bind(("127.0.2.1", 0)).unwrap();
        let at = |listener: &std::net::TcpListener| guard.check(listener.local_addr().unwrap()).unwrap();
        let addresses: Vec<_> = listeners.iter().chain([&own]).map(at).collect();
        let tomorrow = std::time::SystemTime::now() + Duration::from_secs(86_400);
        let until = resync_core::datetime::DateTime::from_system_time(tomorrow);
        confirmed.note("http://d.test", Some(at(&own).socket().ip()), until);
        for _ in 0..3 {
            let end = Instant::now() + Duration::from_secs(1);
            let stream = connector.dial("d.test", addresses.clone(), end).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), own.local_addr().unwrap());
            assert!(connector.load.take().is_none());
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
