//! Concurrency limits that do not wait, in all and per client: for connections, and for answers that wait to be read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use resync_common::locks::lock;

use super::client::TrustedProxies;
use crate::config::IngressConfig;
use crate::rate_limiter::{CLIENTS_OF_ONE_SITE, network, site};

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
    by_site: HashMap<IpAddr, usize>,
}

/// A permit; dropping it gives it back.
#[derive(Debug)]
pub(super) struct ClientPermit {
    limit: ClientLimit,
    /// Who is counted, if not only the total is.
    client: Option<IpAddr>,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    /// The limit in all is reached.
    Total,
    /// The limit of this client, or of its IPv6 site, is reached.
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
        let is_bounded = self.0.unbounded.as_ref().is_none_or(|proxies| !proxies.contains(peer));
        let client = is_bounded.then(|| network(peer));
        let mut taken = self.taken();
        if taken.all >= self.0.most {
            return Err(LimitReached::Total);
        }
        if client.is_some_and(|client| !taken.has_room(client, self.0.most_per_client)) {
            return Err(LimitReached::Client);
        }
        taken.add(client);
        Ok(ClientPermit { limit: self.clone(), client })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        lock(&self.0.taken)
    }
}

impl Taken {
    /// Whether a client may have one more, of so many for each.
    fn has_room(&self, client: IpAddr, most: usize) -> bool {
        let most_of_site = most.saturating_mul(CLIENTS_OF_ONE_SITE);
        let below = |taken: Option<&usize>, most: usize| taken.is_none_or(|taken| *taken < most);
        below(self.by_client.get(&client), most)
            && site(client).is_none_or(|site| below(self.by_site.get(&site), most_of_site))
    }

    fn add(&mut self, client: Option<IpAddr>) {
        self.all += 1;
        let Some(client) = client else { return };
        *self.by_client.entry(client).or_default() += 1;
        if let Some(site) = site(client) {
            *self.by_site.entry(site).or_default() += 1;
        }
    }

    fn give_back(&mut self, client: Option<IpAddr>) {
        self.all -= 1;
        let Some(client) = client else { return };
        subtract(&mut self.by_client, client);
        if let Some(site) = site(client) {
            subtract(&mut self.by_site, site);
        }
    }
}

fn subtract(taken: &mut HashMap<IpAddr, usize>, who: IpAddr) {
    if let Some(own) = taken.get_mut(&who) {
        *own -= 1;
        if *own == 0 {
            taken.remove(&who);
        }
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
        self.limit.taken().give_back(self.client);
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
    fn the_networks_of_an_ipv6_site_have_together_what_four_clients_have() {
        let limit = ClientLimit::for_connections(&bounds(4_096, 256, &[]));
        let of = |site: u16, network: u16| IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 1]);
        let all = |client: IpAddr| (0..).map_while(|_| limit.take(client).ok()).collect::<Vec<_>>();
        let taken: Vec<_> = (0..16).flat_map(|network| all(of(1, network))).collect();
        assert_eq!(taken.len(), 4 * 256);
        assert_eq!(limit.take(of(1, 99)).unwrap_err(), LimitReached::Client);
        assert!(limit.take(of(2, 1)).is_ok() && limit.take(ip("192.0.2.1")).is_ok());
        drop(taken);
        assert!(limit.taken().by_site.is_empty(), "nobody is remembered who is gone");
        assert!(limit.take(of(1, 99)).is_ok());
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

    #[test]
    fn the_connections_of_a_trusted_proxy_are_not_those_of_its_neighbours() {
        let limit = ClientLimit::for_connections(&bounds(100, 2, &["2001:db8::1/128"]));
        let of_proxy: Vec<_> = (0..50).map_while(|_| limit.take(ip("2001:db8::1")).ok()).collect();
        assert_eq!(of_proxy.len(), 50);
        assert!(limit.take(ip("2001:db8::2")).is_ok() && limit.take(ip("2001:db8:0:1::1")).is_ok());
    }
}
