//! Callback hosts that confirmed something, by the client that asked for it. No client can push out what is remembered of another.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use lru::LruCache;

/// Hosts that are remembered for one client. Beyond that, the one of its hosts unused for longest is forgotten.
const OF_ONE_CLIENT: usize = 64;
/// Hosts whose client is unknown, as after a restart.
const OF_UNKNOWN: usize = 5_000;
/// Hosts of all clients. Beyond that, all hosts of the client that was quiet for longest are forgotten.
const OF_ALL: usize = 20_000;

/// Hosts of one client.
type Hosts = LruCache<String, Evidence, RandomState>;

/// Hosts by client.
#[derive(Debug)]
pub(super) struct ConfirmedHosts {
    clients: LruCache<Option<IpAddr>, Hosts, RandomState>,
    /// For how many clients each host is remembered.
    by_host: HashMap<String, u32>,
    hosts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// The host confirmed a request of the client.
    Confirmed,
    /// The client sent a request about a subscription in force.
    InForce,
}

impl ConfirmedHosts {
    pub(super) fn new() -> Self {
        Self {
            clients: LruCache::unbounded_with_hasher(RandomState::new()),
            by_host: HashMap::new(),
            hosts: 0,
        }
    }

    /// This host confirmed a request of this client.
    pub(super) fn confirmed(&mut self, client: Option<IpAddr>, host: &str) {
        self.put(client, host, Evidence::Confirmed);
    }

    /// A client sent a request about a subscription in force at this host.
    pub(super) fn in_force(&mut self, client: Option<IpAddr>, host: &str) {
        if !self.has_confirmed(client, host) {
            self.put(client, host, Evidence::InForce);
        }
    }

    /// Whether this host is remembered for any client.
    pub(super) fn contains(&self, host: &str) -> bool {
        self.by_host.contains_key(host)
    }

    /// Whether this host confirmed a request of this client.
    pub(super) fn has_confirmed(&mut self, client: Option<IpAddr>, host: &str) -> bool {
        let hosts = client.and_then(|client| self.clients.get_mut(&Some(client)));
        hosts.and_then(|hosts| hosts.get(host)).is_some_and(|evidence| *evidence == Evidence::Confirmed)
    }

    fn put(&mut self, client: Option<IpAddr>, host: &str, evidence: Evidence) {
        let most = if client.is_some() { OF_ONE_CLIENT } else { OF_UNKNOWN };
        let most = NonZeroUsize::new(most).expect("neither limit is zero");
        let hosts =
            self.clients.get_or_insert_mut(client, || LruCache::with_hasher(most, RandomState::new()));
        // Beyond its limit the oldest is pushed out.
        match hosts.push(host.to_owned(), evidence) {
            Some((same, _)) if same == host => return,
            Some((oldest, _)) => self.forget(&oldest),
            None => {}
        }
        *self.by_host.entry(host.to_owned()).or_default() += 1;
        self.hosts += 1;
        while self.hosts > OF_ALL
            && let Some((_, hosts)) = self.clients.pop_lru()
        {
            hosts.iter().for_each(|(host, _)| self.forget(host));
        }
    }

    fn forget(&mut self, host: &str) {
        self.hosts -= 1;
        if let Some(clients) = self.by_host.get_mut(host) {
            *clients -= 1;
            if *clients == 0 {
                self.by_host.remove(host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn b33_a_client_with_ever_new_names_pushes_out_its_own_only() {
        let mut confirmed_hosts = ConfirmedHosts::new();
        confirmed_hosts.confirmed(Some(client(1)), "d.example");
        confirmed_hosts.in_force(Some(client(2)), "e.example");
        for number in 0..100_000 {
            confirmed_hosts.confirmed(Some(client(9)), &format!("n{number}.evil.example"));
            confirmed_hosts.in_force(Some(client(9)), &format!("m{number}.evil.example"));
        }
        assert!(
            confirmed_hosts.has_confirmed(Some(client(1)), "d.example")
                && confirmed_hosts.contains("e.example")
        );
        assert!(!confirmed_hosts.has_confirmed(Some(client(2)), "e.example"), "it had not asked for that");
        assert!(!confirmed_hosts.contains("n0.evil.example"));
        assert_eq!(confirmed_hosts.by_host.len(), 2 + OF_ONE_CLIENT);
    }

    #[test]
    fn what_is_remembered_is_bounded_however_many_clients_there_are() {
        let mut confirmed_hosts = ConfirmedHosts::new();
        for number in 0..50_000 {
            confirmed_hosts.confirmed(Some(client(number)), "shared.example");
            confirmed_hosts.confirmed(Some(client(number)), &format!("d{number}.example"));
        }
        let counted: usize = confirmed_hosts.clients.iter().map(|(_, hosts)| hosts.len()).sum();
        assert_eq!((confirmed_hosts.hosts, counted), (OF_ALL, OF_ALL));
        assert_eq!(confirmed_hosts.by_host.len(), OF_ALL / 2 + 1);
        assert_eq!(confirmed_hosts.by_host["shared.example"] as usize, OF_ALL / 2);
    }

    #[test]
    fn who_confirms_stays_confirmed_when_it_renews() {
        let mut confirmed_hosts = ConfirmedHosts::new();
        confirmed_hosts.confirmed(Some(client(1)), "d.example");
        confirmed_hosts.in_force(Some(client(1)), "d.example");
        assert!(confirmed_hosts.has_confirmed(Some(client(1)), "d.example"));
        confirmed_hosts.confirmed(None, "d.example");
        assert!(!confirmed_hosts.has_confirmed(None, "d.example"), "nobody in particular is no client");
    }
}
