//! Resolves names. The hub asks name servers itself, so that it connects to exactly the addresses that it judged.
//!
//! The system's resolver would block a thread for each name, so that many slow names would hold up the store as well.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RecordType;
use hickory_resolver::{ResolverBuilder, TokioResolver};
use tokio::time::timeout;
use tracing::warn;

/// How long a lookup may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one name server may take before it is asked again.
const QUERY_PATIENCE: Duration = Duration::from_secs(2);
/// The longest time for which an answer is cached, whatever its TTL.
const REMEMBER: Duration = Duration::from_secs(300);
/// The longest time for which a failure is cached.
const REMEMBER_FAILURE: Duration = Duration::from_secs(30);
/// Queries at once to one name server.
const AT_ONCE: usize = 1_024;

/// Responses that are cached. The cache knows no other bound, and one response may have 64 KiB.
const CACHED: u64 = 2_048;
/// The most records of a name that stays in the cache. One with 13 name servers, all listed with their addresses, has fewer.
const CACHED_RECORDS: usize = 64;
/// Addresses of a name at most.
const MOST_ADDRESSES: usize = 64;

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
    #[error("the name has no addresses")]
    Empty,
    /// It has more addresses than the hub looks at.
    #[error("the name has more than {MOST_ADDRESSES} addresses")]
    TooMany,
}

/// Asks name servers, and caches their answers within their TTL. Clones share the cache.
#[derive(Clone)]
pub struct Resolver(Arc<TokioResolver>);

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl Resolver {
    /// Asks these name servers; without any, those of the system (`/etc/resolv.conf`), and if the system names none, the one on
    /// this machine, as the C library does.
    ///
    /// # Errors
    /// When the resolver cannot be set up.
    pub fn new(servers: &[SocketAddr]) -> Result<Self, Unresolved> {
        let mut builder = if servers.is_empty() { of_the_system() } else { asking(servers) };
        bound(builder.options_mut());
        builder
            .build()
            .map(|resolver| Self(Arc::new(resolver)))
            .map_err(|error| Unresolved::Refused(error.to_string()))
    }

    /// Every address of this name, IPv4 first. The search domains of this machine are not used for strangers' names.
    ///
    /// # Errors
    /// [`Unresolved`].
    pub(super) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Unresolved> {
        let full = format!("{}.", name.trim_end_matches('.'));
        let found =
            timeout(PATIENCE, self.0.lookup_ip(full.as_str())).await.map_err(|_| Unresolved::Timeout)?;
        let found = found.map_err(|error| Unresolved::Refused(error.to_string()))?;
        let response = found.as_lookup();
        let records = response.answers().len() + response.authorities().len() + response.additionals().len();
        if records > CACHED_RECORDS {
            for kind in [RecordType::A, RecordType::AAAA] {
                self.0.clear_lookup_cache(full.as_str(), kind);
            }
        }
        in_order(found.iter())
    }
}

/// IPv4 first.
fn in_order(found: impl Iterator<Item = IpAddr>) -> Result<Vec<IpAddr>, Unresolved> {
    let mut addresses: Vec<IpAddr> = found.take(MOST_ADDRESSES + 1).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    match addresses.len() {
        0 => Err(Unresolved::Empty),
        1..=MOST_ADDRESSES => Ok(addresses),
        _ => Err(Unresolved::TooMany),
    }
}

fn bound(options: &mut ResolverOpts) {
    options.timeout = QUERY_PATIENCE;
    // Both kinds of addresses in one lookup: a name must not have one answer for the guard and another for the socket.
    options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
    options.positive_max_ttl = Some(REMEMBER);
    options.negative_max_ttl = Some(REMEMBER_FAILURE);
    options.max_active_requests = AT_ONCE;
    options.cache_size = CACHED;
}

fn of_the_system() -> ResolverBuilder<TokioRuntimeProvider> {
    TokioResolver::builder_tokio().unwrap_or_else(|error| {
        warn!(%error, "the system names no name servers: using 127.0.0.1; set others with [egress] nameservers");
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

#[cfg(test)]
mod tests {
    use super::*;

    /// So many addresses, IPv6 and IPv4 by turns.
    fn addresses(count: u8) -> impl Iterator<Item = IpAddr> {
        let one = |last: u8| match last % 2 {
            0 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)]),
            _ => IpAddr::from([192, 0, 2, last]),
        };
        (0..count).map(one)
    }

    #[test]
    fn a_name_with_more_addresses_than_anybody_needs_is_refused() {
        let most = in_order(addresses(64)).unwrap();
        assert_eq!(most.len(), 64);
        assert!(most[..32].iter().all(IpAddr::is_ipv4) && most[32..].iter().all(IpAddr::is_ipv6));
        assert_eq!(in_order(addresses(65)), Err(Unresolved::TooMany));
        assert_eq!(in_order(addresses(0)), Err(Unresolved::Empty));
    }

    #[test]
    fn few_responses_are_cached_since_each_may_be_large() {
        let mut options = ResolverOpts::default();
        bound(&mut options);
        assert_eq!(options.cache_size, 2_048);
    }
}
