//! How many places are taken, in all and by each client: for connections, and for answers that wait to be read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::client::TrustedProxies;
use crate::config::IngressConfig;
use crate::rate_limiter::network;

/// Places of one kind. They remember clients only while those have one.
#[derive(Clone, Debug)]
pub(super) struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    most_per_client: usize,
    /// Who has as many as there are.
    unbounded: Option<TrustedProxies>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

/// It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    client: IpAddr,
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All places are taken.
    Full,
    /// All places of this client are taken.
    ClientFull,
}

impl Places {
    /// Places for the connections of a listener. A trusted proxy speaks for many clients, so only the total bounds it.
    pub(super) fn for_connections(config: &IngressConfig) -> Self {
        let proxies = TrustedProxies::new(config);
        Self::bounded(config.connections, config.connections_per_client, Some(proxies))
    }

    /// So many for each client, and no bound in all.
    pub(super) fn for_each_client(most: usize) -> Self {
        Self::bounded(usize::MAX, most, None)
    }

    fn bounded(most: usize, most_per_client: usize, unbounded: Option<TrustedProxies>) -> Self {
        Self(Arc::new(Inner { most, most_per_client, unbounded, taken: Mutex::default() }))
    }

    /// A place for whoever has this address.
    pub(super) fn take(&self, peer: IpAddr) -> Result<Place, NoPlace> {
        let client = network(peer);
        let mut taken = self.taken();
        if taken.all >= self.0.most {
            return Err(NoPlace::Full);
        }
        let own = taken.by_client.get(&client).copied().unwrap_or(0);
        let is_bounded = self.0.unbounded.as_ref().is_none_or(|proxies| !proxies.contains(peer));
        if own >= self.0.most_per_client && is_bounded {
            return Err(NoPlace::ClientFull);
        }
        taken.all += 1;
        taken.by_client.insert(client, own + 1);
        Ok(Place { places: self.clone(), client })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
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
    fn a_client_has_its_places_and_the_listener_has_its_own() {
        let places = Places::for_connections(&bounds(3, 2, &[]));
        let first = [places.take(ip("192.0.2.1")).unwrap(), places.take(ip("192.0.2.1")).unwrap()];
        assert_eq!(places.take(ip("::ffff:192.0.2.1")).unwrap_err(), NoPlace::ClientFull);
        let other = places.take(ip("2001:db8::1")).unwrap();
        assert_eq!(places.take(ip("2001:db8::2")).unwrap_err(), NoPlace::Full);
        drop(first);
        let neighbour = places.take(ip("2001:db8::2")).unwrap();
        assert_eq!(
            places.take(ip("2001:db8::3")).unwrap_err(),
            NoPlace::ClientFull,
            "one network, one client"
        );
        drop((other, neighbour));
        assert!(places.taken().by_client.is_empty(), "nobody is remembered who is gone");
    }

    #[test]
    fn places_without_a_bound_in_all_have_one_for_each_client() {
        let places = Places::for_each_client(1);
        let taken: Vec<_> = (1..100).map_while(|last| places.take([192, 0, 2, last].into()).ok()).collect();
        assert_eq!(taken.len(), 99);
        assert_eq!(places.take(ip("192.0.2.1")).unwrap_err(), NoPlace::ClientFull);
    }

    #[test]
    fn a_trusted_proxy_is_bounded_by_the_total_only() {
        let places = Places::for_connections(&bounds(5, 1, &["10.0.0.0/8"]));
        let taken: Vec<_> = (0..5).map_while(|_| places.take(ip("10.0.0.1")).ok()).collect();
        assert_eq!(taken.len(), 5);
        assert_eq!(places.take(ip("10.0.0.1")).unwrap_err(), NoPlace::Full);
    }
}
