//! Where the database is: its hosts, how to speak to them, and which of them takes writes.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use resync_common::client::{tls, web_roots};
use resync_common::locks::lock;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_postgres::config::{Host as ConfigHost, SslMode};
use tokio_rustls::TlsConnector;

use super::session::{Session, words};
use super::tls::Connector;
use crate::config::DatabaseConfig;
use crate::pem;
use crate::store::{Result, StoreError};

/// For a connection until it takes commands.
const CONNECT: Duration = Duration::from_secs(2);
/// Once one host takes writes, so long is waited for one that has been promoted after it.
const GRACE: Duration = Duration::from_millis(50);
const PORT: u16 = 5432;

/// A socket to the database, of any kind.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// The servers of a database.
#[derive(Debug)]
pub(super) struct Server {
    hosts: Vec<Arc<Host>>,
    /// The newest timeline that was seen: a server of an older one was replaced, and does not know it.
    timeline: AtomicU32,
    /// The host that was chosen last.
    in_use: Mutex<Option<String>>,
}

/// One host, and how it is spoken to.
#[derive(Debug)]
pub(super) struct Host {
    address: Address,
    config: tokio_postgres::Config,
    connector: Connector,
}

#[derive(Clone, Debug)]
enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Server {
    /// Reads what the configuration says. Nothing is looked up and nobody is asked.
    ///
    /// # Errors
    /// [`StoreError::Away`], which does not repeat the URL: there may be a password in it.
    pub(super) fn new(config: &DatabaseConfig) -> Result<Self> {
        let url = with_known_modes(config.url.reveal());
        // The driver takes the first one for the end of the password, and would repeat the rest of it.
        if url.matches('@').count() > 1 {
            return Err(unusable("[store] url: write an @ in a name or a password as %40"));
        }
        let parsed = url.parse::<tokio_postgres::Config>();
        let parsed = parsed.map_err(|error| unusable(format_args!("[store] url: {}", words(&error))))?;
        let ports = parsed.get_ports();
        let connector = TlsConnector::from(Arc::new(tls(roots(config.ca.as_deref())?)));
        let hosts = parsed.get_hosts().iter().enumerate().map(|(at, host)| {
            let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
            Host::new(&parsed, Address::of(host, port), &connector).map(Arc::new)
        });
        let hosts = hosts.collect::<Result<Vec<_>>>()?;
        if hosts.is_empty() {
            return Err(unusable("[store] url names no host"));
        }
        Ok(Self { hosts, timeline: AtomicU32::new(0), in_use: Mutex::default() })
    }

    /// The newest timeline that was seen.
    pub(super) fn timeline(&self) -> u32 {
        self.timeline.load(Ordering::Relaxed)
    }

    /// The host that was chosen last, as `name:port`.
    pub(super) fn host_in_use(&self) -> Option<String> {
        lock(&self.in_use).clone()
    }

    /// Asks all hosts at once for one that takes writes; of several it is the one that was promoted last, and never one that was promoted
    /// before another that was seen already.
    ///
    /// # Errors
    /// Why each of them cannot be used.
    pub(super) async fn connect(&self) -> std::result::Result<Session, String> {
        let mut asked = JoinSet::new();
        for host in &self.hosts {
            asked.spawn(Arc::clone(host).session());
        }
        let mut until = Instant::now() + CONNECT;
        let (mut best, mut refusals) = (None::<(Session, String)>, Vec::new());
        while let Ok(Some(answer)) = timeout_at(until, asked.join_next()).await {
            match answer {
                Ok(Ok((session, _))) if session.timeline() < self.timeline() => {
                    refusals.push("it is a primary that was replaced by another".to_owned());
                }
                Ok(Ok((session, host))) => {
                    until = until.min(Instant::now() + GRACE);
                    if best.as_ref().is_none_or(|(best, _)| best.timeline() < session.timeline()) {
                        best = Some((session, host));
                    }
                }
                Ok(Err(reason)) => refusals.push(reason),
                Err(error) => refusals.push(error.to_string()),
            }
        }
        let Some((best, host)) = best else {
            refusals.resize(self.hosts.len(), format!("no answer within {CONNECT:?}"));
            return Err(refusals.join("; "));
        };
        self.timeline.fetch_max(best.timeline(), Ordering::Relaxed);
        *lock(&self.in_use) = Some(host);
        Ok(best)
    }
}

impl Host {
    fn new(config: &tokio_postgres::Config, address: Address, tls: &TlsConnector) -> Result<Self> {
        let mut config = config.clone();
        config.ssl_mode(address.mode(config.get_ssl_mode()));
        if config.get_application_name().is_none() {
            config.application_name("resync-hub");
        }
        let name = match &address {
            Address::Tcp(name, _) => name.clone(),
            Address::Unix(_) => "localhost".to_owned(),
        };
        let name =
            ServerName::try_from(name).map_err(|error| unusable(format_args!("[store] url: {error}")))?;
        Ok(Self { address, config, connector: Connector::new(tls.clone(), name) })
    }

    /// A connection, and where it leads.
    async fn session(self: Arc<Self>) -> std::result::Result<(Session, String), String> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", self.address.shown());
        // Boxed, each, so that the compiler sees that it may go to another thread.
        let opening: BoxFuture<'_, io::Result<Box<dyn Socket>>> = Box::pin(self.address.open());
        let socket = opening.await.map_err(|error| named(&error))?;
        let connecting = self.config.connect_raw(socket, self.connector.clone());
        let connecting: BoxFuture<'_, std::result::Result<_, tokio_postgres::Error>> = Box::pin(connecting);
        let (client, connection) = connecting.await.map_err(|error| named(&words(&error)))?;
        let beginning: BoxFuture<'_, std::result::Result<Session, String>> =
            Box::pin(Session::begin(client, connection));
        let session = beginning.await.map_err(|reason| named(&reason))?;
        Ok((session, self.address.shown()))
    }
}

impl Address {
    fn of(host: &ConfigHost, port: u16) -> Self {
        match host {
            ConfigHost::Tcp(name) => Self::Tcp(name.clone(), port),
            ConfigHost::Unix(folder) => Self::Unix(folder.join(format!(".s.PGSQL.{port}"))),
        }
    }

    /// Whether TLS is spoken there, of which the URL says this: unless that is told, only where others are on the way.
    fn mode(&self, told: SslMode) -> SslMode {
        match self {
            Self::Tcp(..) if told == SslMode::Require => SslMode::Require,
            Self::Tcp(name, _) if told == SslMode::Prefer && !is_near(name) => SslMode::Require,
            Self::Tcp(..) | Self::Unix(_) => SslMode::Disable,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Tcp(name, port) => format!("{name}:{port}"),
            Self::Unix(path) => path.display().to_string(),
        }
    }

    async fn open(&self) -> io::Result<Box<dyn Socket>> {
        match self {
            Self::Tcp(name, port) => {
                let stream = TcpStream::connect((name.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
            Self::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        }
    }
}

/// Whether nobody else is on the way.
fn is_near(name: &str) -> bool {
    name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The modes in which other clients look at the certificate are what is done here whenever TLS is spoken; the driver knows one name for it.
fn with_known_modes(url: &str) -> String {
    let Some((place, query)) = url.split_once('?') else { return url.to_owned() };
    let known = query.split('&').map(|parameter| match parameter {
        "sslmode=verify-full" | "sslmode=verify-ca" => "sslmode=require",
        other => other,
    });
    format!("{place}?{}", known.collect::<Vec<_>>().join("&"))
}

/// With a file its certificates vouch for the servers, and nobody else does.
fn roots(ca: Option<&Path>) -> Result<RootCertStore> {
    let Some(path) = ca else { return Ok(web_roots()) };
    let mut roots = RootCertStore::empty();
    let unfit = |error: &dyn std::fmt::Display| unusable(format_args!("[store] ca: {error}"));
    for certificate in pem::certificates(path).map_err(|error| unfit(&error))? {
        roots.add(certificate).map_err(|error| unfit(&error))?;
    }
    Ok(roots)
}

fn unusable(reason: impl std::fmt::Display) -> StoreError {
    StoreError::Away(reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{DatabaseLimits, Durability};

    fn config(url: &str) -> DatabaseConfig {
        let url = url.to_owned().into();
        let (data_dir, limits) = (PathBuf::from("data"), DatabaseLimits::default());
        DatabaseConfig { url, ca: None, durability: Durability::Proven, data_dir, limits }
    }

    fn modes(url: &str) -> Vec<(String, SslMode)> {
        let server = Server::new(&config(url)).unwrap();
        server.hosts.iter().map(|host| (host.address.shown(), host.config.get_ssl_mode())).collect()
    }

    #[test]
    fn every_host_has_its_port_and_only_what_stays_on_the_machine_goes_without_tls() {
        let far = |name: &str| (name.to_owned(), SslMode::Require);
        assert_eq!(modes("postgres://hub:s@one:1,two/hub"), [far("one:1"), far("two:5432")]);
        let near = |name: &str| (name.to_owned(), SslMode::Disable);
        for (url, host) in [
            ("postgres://hub@localhost/hub", "localhost:5432"),
            ("postgres://hub@[::1]:7/hub", "::1:7"),
            ("postgres://hub@%2Frun%2Fpg:7/hub", "/run/pg/.s.PGSQL.7"),
            ("postgres://hub@one/hub?sslmode=disable", "one:5432"),
        ] {
            assert_eq!(modes(url), [near(host)], "{url}");
        }
        for mode in ["prefer", "require", "verify-ca", "verify-full"] {
            assert_eq!(modes(&format!("postgres://hub@one/hub?sslmode={mode}")), [far("one:5432")], "{mode}");
        }
        assert_eq!(
            modes("postgres://hub@[::1]:7/hub?sslmode=verify-full"),
            [far("::1:7")],
            "if that is told"
        );
    }

    #[test]
    fn only_the_mode_itself_is_written_otherwise() {
        let password = "postgres://hub:sslmode=verify-ca@one/sslmode=verify-full";
        assert_eq!(with_known_modes(password), password);
        let known = with_known_modes(&format!("{password}?connect_timeout=5&sslmode=verify-ca"));
        assert_eq!(known, format!("{password}?connect_timeout=5&sslmode=require"));
        let name = "postgres://one/hub?application_name=sslmode=verify-ca";
        assert_eq!(with_known_modes(name), name);
    }

    #[test]
    fn what_is_wrong_with_a_url_is_told_without_it() {
        for url in [
            "postgres://hub:s3cr3t@/hub",
            "postgres://hub:s3cr3t@one/hub?colour=red",
            "postgres://hub:p@ss?s3cr3t=1@one/hub",
            "s3cr3t",
        ] {
            let told = Server::new(&config(url)).unwrap_err().to_string();
            assert!(told.contains("[store] url") && !told.contains("s3cr3t"), "{told}");
        }
    }
}
