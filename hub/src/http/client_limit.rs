//! Concurrency limits that do not wait, in all and per client: for connections, and for answers that wait to be read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use resync_common::locks::lock;

use super::client::TrustedProxies;
use crate::config::IngressConfig;
use crate::rate_limiter::network;

/// A limit. It remembers clients only while they have permits. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ClientLimit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    most_per_client: usize,
    /// Peers without a limit of their own.
    unbounded: Option<TrustedProxies>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// A permit; dropping it gives it back.
#[derive(Debug)]
pub(super) struct ClientPermit {
    limit: ClientLimit,
    client: IpAddr,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    /// The limit in all is reached.
    Total,
    /// The limit of this client is reached.
    Client,
}

impl ClientLimit {
    /// The limit for the connections of a listener. A trusted proxy serves many clients, so only the total limits it.
    pub(super) fn for_connections(config: &IngressConfig) -> Self {
        let proxies = TrustedProxies::new(config);
        Self::bounded(config.connections, config.connections_per_client, Some(proxies))
    }

    /// A limit per client, and none in all.
    pub(super) fn for_each_client(most: usize) -> Self {
        Self::bounded(usize::MAX, most, None)
    }

    fn bounded(most: usize, most_per_client: usize, unbounded: Option<TrustedProxies>) -> Self {
        Self(Arc::new(Inner { most, most_per_client, unbounded, taken: Mutex::default() }))
    }

    /// A permit for the client with this address.
    pub(super) fn take(&self, peer: IpAddr) -> Result<ClientPermit, LimitReached> {
        let client = network(peer);
        let mut taken = self.taken();
        if taken.all >= self.0.most {
            return Err(LimitReached::Total);
        }
        let own = taken.by_client.get(&client).copied().unwrap_or(0);
        let is_bounded = self.0.unbounded.as_ref().is_none_or(|proxies| !proxies.contains(peer));
        if own >= self.0.most_per_client && is_bounded {
            return Err(LimitReached::Client);
        }
        taken.all += 1;
        taken.by_client.insert(client, own + 1);
        Ok(ClientPermit { limit: self.clone(), client })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        lock(&self.0.taken)
    }
}

/// Limits the unread answers of each client.
#[derive(Clone, Debug)]
pub struct Readers(ClientLimit);

impl Readers {
    /// Unread answers that one client may have: a slow reader uses no more of the memory for pages.
    pub(super) const ANSWERS: usize = 2;

    /// A permit for one more answer to this client.
    pub(super) fn take(&self, client: IpAddr) -> Result<ClientPermit, LimitReached> {
        self.0.take(client)
    }
}

impl Default for Readers {
    fn default() -> Self {
        Self(ClientLimit::for_each_client(Self::ANSWERS))
    }
}

impl Drop for ClientPermit {
    fn drop(&mut self) {
        let mut taken = self.limit.taken();
        taken.all -= 1;
        if let Some(own) = taken.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                taken.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn bounds(connections: usize, connections_per_client: usize, proxies: &[&str]) -> IngressConfig {
        let config = config::load(None, [], &Vec::new()).unwrap();
        let trusted_proxies = proxies.iter().map(|net| net.parse().unwrap()).collect();
        IngressConfig { connections, connections_per_client, trusted_proxies, ..config.ingress }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_has_its_limit_and_the_listener_has_one_in_all() {
        let limit = ClientLimit::for_connections(&bounds(3, 2, &[]));
        let first = [limit.take(ip("192.0.2.1")).unwrap(), limit.take(ip("192.0.2.1")).unwrap()];
        assert_eq!(limit.take(ip("::ffff:192.0.2.1")).unwrap_err(), LimitReached::Client);
        let other = limit.take(ip("2001:db8::1")).unwrap();
        assert_eq!(limit.take(ip("2001:db8::2")).unwrap_err(), LimitReached::Total);
        drop(first);
        let neighbour = limit.take(ip("2001:db8::2")).unwrap();
        assert_eq!(
            limit.take(ip("2001:db8::3")).unwrap_err(),
            LimitReached::Client,
            "one network, one client"
        );
        drop((other, neighbour));
        assert!(limit.taken().by_client.is_empty(), "nobody is remembered who is gone");
    }

    #[test]
    fn places_without_a_bound_in_all_have_one_for_each_client() {
        let limit = ClientLimit::for_each_client(1);
        let taken: Vec<_> = (1..100).map_while(|last| limit.take([192, 0, 2, last].into()).ok()).collect();
        assert_eq!(taken.len(), 99);
        assert_eq!(limit.take(ip("192.0.2.1")).unwrap_err(), LimitReached::Client);
    }

    #[test]
    fn a_trusted_proxy_is_bounded_by_the_total_only() {
        let limit = ClientLimit::for_connections(&bounds(5, 1, &["10.0.0.0/8"]));
        let taken: Vec<_> = (0..5).map_while(|_| limit.take(ip("10.0.0.1")).ok()).collect();
        assert_eq!(taken.len(), 5);
        assert_eq!(limit.take(ip("10.0.0.1")).unwrap_err(), LimitReached::Total);
    }
}
