//! From a name to its addresses: the hub asks name servers itself, so that what is judged is what is connected to.
//!
//! The system's resolver would block a thread for each name; a flood of slow names would then hold up the store as well.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use tokio::time::timeout;
use tracing::warn;

/// How long a name may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one name server may take before it is asked again.
const QUERY_PATIENCE: Duration = Duration::from_secs(2);
/// No answer is remembered for longer, whatever it says itself.
const REMEMBER: Duration = Duration::from_secs(300);
/// No failure is remembered for longer.
const REMEMBER_FAILURE: Duration = Duration::from_secs(30);
/// Questions at once to one name server.
const AT_ONCE: usize = 1_024;

/// Why a name has no addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The name servers do not know it, or could not be asked.
    #[error("{0}")]
    Refused(String),
    /// Not within the time.
    #[error("no answer within {PATIENCE:?}")]
    Timeout,
    /// It exists and has no addresses.
    #[error("it has no addresses")]
    Empty,
}

/// Asks name servers, and remembers what they say for as long as they allow. Clones share what they remember.
#[derive(Clone)]
pub struct Resolver(Arc<TokioResolver>);

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl Resolver {
    /// Asks these name servers; with none given those of the system (`/etc/resolv.conf`), and where the system names none,
    /// one on this machine, as the C library does.
    ///
    /// # Errors
    /// What the resolver says when it cannot be set up.
    pub fn new(servers: &[SocketAddr]) -> Result<Self, Unresolved> {
        let mut builder = if servers.is_empty() { of_the_system() } else { asking(servers) };
        bound(builder.options_mut());
        builder
            .build()
            .map(|resolver| Self(Arc::new(resolver)))
            .map_err(|error| Unresolved::Refused(error.to_string()))
    }

    /// Every address of this name, IPv4 first. The name is taken as it is: the search domains of this machine's network are
    /// not for strangers' names.
    ///
    /// # Errors
    /// [`Unresolved`].
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let full = format!("{}.", name.trim_end_matches('.'));
        let found = timeout(PATIENCE, self.0.lookup_ip(full)).await.map_err(|_| Unresolved::Timeout)?;
        let found = found.map_err(|error| Unresolved::Refused(error.to_string()))?;
        let mut addresses: Vec<IpAddr> = found.iter().collect();
        addresses.sort_by_key(IpAddr::is_ipv6);
        if addresses.is_empty() { Err(Unresolved::Empty) } else { Ok(addresses) }
    }
}

fn bound(options: &mut ResolverOpts) {
    options.timeout = QUERY_PATIENCE;
    // One question for both kinds of addresses: a name must not show one face to the judge and another to the socket.
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.positive_max_ttl = Some(REMEMBER);
    options.negative_max_ttl = Some(REMEMBER_FAILURE);
    options.max_active_requests = AT_ONCE;
}

fn of_the_system() -> ResolverBuilder<TokioRuntimeProvider> {
    TokioResolver::builder_tokio().unwrap_or_else(|error| {
        warn!(%error, "the system names no name servers: asking the one on this machine ([egress] nameservers chooses others)");
        asking(&[SocketAddr::from(([127, 0, 0, 1], 53))])
    })
}

fn asking(servers: &[SocketAddr]) -> ResolverBuilder<TokioRuntimeProvider> {
    let servers = servers.iter().map(|server| {
        let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
        for connection in &mut connections {
            connection.port = server.port();
        }
        NameServerConfig::new(server.ip(), true, connections.into())
    });
    let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default())
}
