//! The database of hubs, as this tool uses it: by SQL over TCP, at whichever of its servers takes writes.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls, Row};

use crate::Failure;

const PORT: u16 = 5432;
/// For a connection until it takes statements.
const CONNECT: Duration = Duration::from_secs(2);
const IS_STANDBY: &str = "SELECT pg_is_in_recovery()";
const WRITTEN: &str = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint";

/// The servers of a database.
#[derive(Debug)]
pub(super) struct Database {
    config: Config,
    servers: Vec<SocketAddr>,
}

/// A connection. It ends when this is dropped.
pub(super) struct Session {
    client: Client,
    driver: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Database {
    /// Of a URL as `[store] url` has it. TLS is not spoken.
    ///
    /// # Errors
    /// When it names no server that can be reached by TCP. The URL is not repeated: there may be a password in it.
    pub(super) fn new(url: &str) -> Result<Self, Failure> {
        let config = url.parse::<Config>();
        let config =
            config.map_err(|_| "the database's URL cannot be read: write postgres://USER@HOST/DATABASE")?;
        let (mut servers, ports) = (Vec::new(), config.get_ports());
        for (number, host) in config.get_hosts().iter().enumerate() {
            let Host::Tcp(name) = host else {
                return Err("the database must be reached by TCP, not by a socket in a folder".into());
            };
            let port = ports.get(number).or(ports.first()).copied().unwrap_or(PORT);
            servers.extend((name.as_str(), port).to_socket_addrs()?.next());
        }
        if servers.is_empty() {
            return Err("the URL of the database names no host".into());
        }
        Ok(Self { config, servers })
    }

    /// A session at the server that takes writes.
    ///
    /// # Errors
    /// When there is none at present.
    pub(super) async fn connect(&self) -> Result<Session, Failure> {
        let mut refusals = Vec::new();
        for server in &self.servers {
            match timeout(CONNECT, self.connect_to(*server)).await {
                Ok(Ok(session)) => return Ok(session),
                Ok(Err(error)) => refusals.push(format!("{server}: {error}")),
                Err(_) => refusals.push(format!("{server}: no answer within {CONNECT:?}")),
            }
        }
        Err(format!("no server of the database takes writes: {}", refusals.join("; ")).into())
    }

    async fn connect_to(&self, server: SocketAddr) -> Result<Session, Failure> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        // Boxed, so that the compiler sees that it may go to another thread.
        let connecting: BoxFuture<'_, Result<_, tokio_postgres::Error>> =
            Box::pin(self.config.connect_raw(stream, NoTls));
        let (client, connection) = connecting.await?;
        let driver = tokio::spawn(connection).abort_handle();
        let session = Session { client, driver };
        let is_standby: bool = session.row(IS_STANDBY).await?.try_get(0)?;
        if is_standby {
            return Err("it is a standby".into());
        }
        Ok(session)
    }
}

impl Session {
    /// For what is no query.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// The only row that a query gives.
    pub(super) fn row(&self, query: &'static str) -> BoxFuture<'_, Result<Row, tokio_postgres::Error>> {
        Box::pin(self.client.query_one(query, &[]))
    }

    /// All rows that a query gives.
    pub(super) fn rows(&self, query: &'static str) -> BoxFuture<'_, Result<Vec<Row>, tokio_postgres::Error>> {
        Box::pin(self.client.query(query, &[]))
    }

    /// Bytes of WAL that the server has written since it was made.
    pub(super) async fn wal(&self) -> Result<u64, Failure> {
        let written: i64 = self.row(WRITTEN).await?.try_get(0)?;
        Ok(u64::try_from(written)?)
    }
}
