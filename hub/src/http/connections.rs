//! How many connections there are, in all and of each client.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::client::TrustedProxies;
use crate::buckets::network;
use crate::config::IngressConfig;

/// The connections of a listener. It remembers clients only while they are connected.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    most_per_client: usize,
    proxies: TrustedProxies,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// The right to be connected; it ends when dropped.
#[derive(Debug)]
pub(super) struct Place {
    connections: Connections,
    client: IpAddr,
}

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All places are taken.
    Full,
    /// All places of this client are taken.
    ClientFull,
}

impl Connections {
    pub(super) fn new(config: &IngressConfig) -> Self {
        let (most, most_per_client) = (config.connections, config.connections_per_client);
        let proxies = TrustedProxies::new(config);
        Self(Arc::new(Inner { most, most_per_client, proxies, open: Mutex::default() }))
    }

    /// A place for a connection from this address. A trusted proxy speaks for many clients, so only the total bounds it.
    pub(super) fn admit(&self, peer: IpAddr) -> Result<Place, NoPlace> {
        let client = network(peer);
        let mut open = self.open();
        if open.all >= self.0.most {
            return Err(NoPlace::Full);
        }
        let own = open.by_client.get(&client).copied().unwrap_or(0);
        if own >= self.0.most_per_client && !self.0.proxies.contains(peer) {
            return Err(NoPlace::ClientFull);
        }
        open.all += 1;
        open.by_client.insert(client, own + 1);
        Ok(Place { connections: self.clone(), client })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.all -= 1;
        if let Some(own) = open.by_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                open.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn bounds(connections: usize, connections_per_client: usize, proxies: &[&str]) -> IngressConfig {
        let config = config::load(None, |_| None, &Vec::new()).unwrap();
        let trusted_proxies = proxies.iter().map(|net| net.parse().unwrap()).collect();
        IngressConfig { connections, connections_per_client, trusted_proxies, ..config.ingress }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_has_its_places_and_the_listener_has_its_own() {
        let connections = Connections::new(&bounds(3, 2, &[]));
        let first =
            [connections.admit(ip("192.0.2.1")).unwrap(), connections.admit(ip("192.0.2.1")).unwrap()];
        assert_eq!(connections.admit(ip("::ffff:192.0.2.1")).unwrap_err(), NoPlace::ClientFull);
        let other = connections.admit(ip("2001:db8::1")).unwrap();
        assert_eq!(connections.admit(ip("2001:db8::2")).unwrap_err(), NoPlace::Full);
        drop(first);
        let neighbour = connections.admit(ip("2001:db8::2")).unwrap();
        assert_eq!(
            connections.admit(ip("2001:db8::3")).unwrap_err(),
            NoPlace::ClientFull,
            "one network, one client"
        );
        drop((other, neighbour));
        assert!(connections.open().by_client.is_empty(), "nobody is remembered who is gone");
    }

    #[test]
    fn a_trusted_proxy_is_bounded_by_the_total_only() {
        let connections = Connections::new(&bounds(5, 1, &["10.0.0.0/8"]));
        let places: Vec<_> = (0..5).map_while(|_| connections.admit(ip("10.0.0.1")).ok()).collect();
        assert_eq!(places.len(), 5);
        assert_eq!(connections.admit(ip("10.0.0.1")).unwrap_err(), NoPlace::Full);
    }
}
