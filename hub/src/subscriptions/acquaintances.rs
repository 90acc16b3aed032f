//! Hosts of callbacks where the hub has been welcome, and by whose asking: what a client has, others cannot push out.

use std::collections::HashMap;
use std::hash::RandomState;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use lru::LruCache;

/// Hosts that are remembered for one client; beyond that, its own that have been quiet longest are forgotten.
const OF_ONE_CLIENT: usize = 64;
/// For all whose client is not known, as after a restart.
const OF_NOBODY: usize = 5_000;
/// Hosts of all clients; beyond that, all of the client that has been quiet longest are forgotten.
const OF_ALL: usize = 20_000;

/// Hosts of one client.
type Hosts = LruCache<String, Welcome, RandomState>;

/// What is remembered.
#[derive(Debug)]
pub(super) struct Acquaintances {
    clients: LruCache<Option<IpAddr>, Hosts, RandomState>,
    /// For how many clients each host is remembered.
    known: HashMap<String, u32>,
    hosts: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Welcome {
    /// Something that the client had asked for was confirmed.
    Confirmed,
    /// There was a subscription in force that the client spoke of.
    InForce,
}

impl Acquaintances {
    pub(super) fn new() -> Self {
        Self { clients: LruCache::unbounded_with_hasher(RandomState::new()), known: HashMap::new(), hosts: 0 }
    }

    /// Something that this client had asked for was confirmed at this host.
    pub(super) fn confirmed(&mut self, client: Option<IpAddr>, host: &str) {
        self.put(client, host, Welcome::Confirmed);
    }

    /// A client spoke of a subscription in force at this host.
    pub(super) fn in_force(&mut self, client: Option<IpAddr>, host: &str) {
        if !self.has_confirmed(client, host) {
            self.put(client, host, Welcome::InForce);
        }
    }

    /// Whether somebody was welcome at this host.
    pub(super) fn knows(&self, host: &str) -> bool {
        self.known.contains_key(host)
    }

    /// Whether something that this client had asked for was confirmed at this host.
    pub(super) fn has_confirmed(&mut self, client: Option<IpAddr>, host: &str) -> bool {
        let hosts = client.and_then(|client| self.clients.get_mut(&Some(client)));
        hosts.and_then(|hosts| hosts.get(host)).is_some_and(|welcome| *welcome == Welcome::Confirmed)
    }

    fn put(&mut self, client: Option<IpAddr>, host: &str, welcome: Welcome) {
        let most = if client.is_some() { OF_ONE_CLIENT } else { OF_NOBODY };
        let most = NonZeroUsize::new(most).expect("neither share is zero");
        let hosts =
            self.clients.get_or_insert_mut(client, || LruCache::with_hasher(most, RandomState::new()));
        // Beyond its share the oldest is pushed out.
        match hosts.push(host.to_owned(), welcome) {
            Some((same, _)) if same == host => return,
            Some((oldest, _)) => self.forget(&oldest),
            None => {}
        }
        *self.known.entry(host.to_owned()).or_default() += 1;
        self.hosts += 1;
        while self.hosts > OF_ALL
            && let Some((_, hosts)) = self.clients.pop_lru()
        {
            hosts.iter().for_each(|(host, _)| self.forget(host));
        }
    }

    fn forget(&mut self, host: &str) {
        self.hosts -= 1;
        if let Some(clients) = self.known.get_mut(host) {
            *clients -= 1;
            if *clients == 0 {
                self.known.remove(host);
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
        let mut acquaintances = Acquaintances::new();
        acquaintances.confirmed(Some(client(1)), "d.example");
        acquaintances.in_force(Some(client(2)), "e.example");
        for number in 0..100_000 {
            acquaintances.confirmed(Some(client(9)), &format!("n{number}.evil.example"));
            acquaintances.in_force(Some(client(9)), &format!("m{number}.evil.example"));
        }
        assert!(
            acquaintances.has_confirmed(Some(client(1)), "d.example") && acquaintances.knows("e.example")
        );
        assert!(!acquaintances.has_confirmed(Some(client(2)), "e.example"), "it had not asked for that");
        assert!(!acquaintances.knows("n0.evil.example"));
        assert_eq!(acquaintances.known.len(), 2 + OF_ONE_CLIENT);
    }

    #[test]
    fn what_is_remembered_is_bounded_however_many_clients_there_are() {
        let mut acquaintances = Acquaintances::new();
        for number in 0..50_000 {
            acquaintances.confirmed(Some(client(number)), "shared.example");
            acquaintances.confirmed(Some(client(number)), &format!("d{number}.example"));
        }
        let counted: usize = acquaintances.clients.iter().map(|(_, hosts)| hosts.len()).sum();
        assert_eq!((acquaintances.hosts, counted), (OF_ALL, OF_ALL));
        assert_eq!(acquaintances.known.len(), OF_ALL / 2 + 1);
        assert_eq!(acquaintances.known["shared.example"] as usize, OF_ALL / 2);
    }

    #[test]
    fn who_confirms_stays_confirmed_when_it_renews() {
        let mut acquaintances = Acquaintances::new();
        acquaintances.confirmed(Some(client(1)), "d.example");
        acquaintances.in_force(Some(client(1)), "d.example");
        assert!(acquaintances.has_confirmed(Some(client(1)), "d.example"));
        acquaintances.confirmed(None, "d.example");
        assert!(!acquaintances.has_confirmed(None, "d.example"), "nobody in particular is no client");
    }
}
