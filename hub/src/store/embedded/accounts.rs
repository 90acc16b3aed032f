//! What each client has the hub keep: counted as subscriptions begin and end, and from their records when a store is opened.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use crate::store::{Account, Founded};

/// One entry for each client and for each callback origin, none for a subscription.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Random, so that nobody can choose whose origin to share.
    hasher: RandomState,
    clients: HashMap<IpAddr, Account>,
    /// How many subscriptions there are at each callback origin, by its hash.
    hosts: HashMap<u64, u64>,
}

/// What a group of commands changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    clients: HashMap<IpAddr, Change>,
    hosts: HashMap<u64, i64>,
}

/// So much more, or less.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    subscriptions: i64,
    topics: i64,
    hosts: i64,
}

impl Accounts {
    /// By what a callback origin is counted.
    pub(super) fn host(&self, origin: &[u8]) -> u64 {
        self.hasher.hash_one(origin)
    }

    pub(super) fn of(&self, client: IpAddr) -> Account {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    /// How many callback origins there are.
    pub(super) fn hosts(&self) -> u64 {
        self.hosts.len() as u64
    }

    /// How many subscriptions there are at this origin.
    pub(super) fn at(&self, host: u64) -> u64 {
        self.hosts.get(&host).copied().unwrap_or_default()
    }

    pub(super) fn follow(&mut self, changes: &mut Changes) {
        for (client, change) in changes.clients.drain() {
            let account = self.clients.entry(client).or_default();
            account.subscriptions = account.subscriptions.saturating_add_signed(change.subscriptions);
            account.topics = account.topics.saturating_add_signed(change.topics);
            account.hosts = account.hosts.saturating_add_signed(change.hosts);
            if *account == Account::default() {
                self.clients.remove(&client);
            }
        }
        for (host, change) in changes.hosts.drain() {
            let count = self.hosts.entry(host).or_default();
            *count = count.saturating_add_signed(change);
            if *count == 0 {
                self.hosts.remove(&host);
            }
        }
    }
}

impl Changes {
    /// A subscription of this client begins.
    pub(super) fn begin(&mut self, client: Option<IpAddr>, host: u64, founded: Founded) {
        self.count(client, host, founded, 1);
    }

    /// It ends.
    pub(super) fn end(&mut self, client: Option<IpAddr>, host: u64, founded: Founded) {
        self.count(client, host, founded, -1);
    }

    /// How many subscriptions more there are at this origin.
    pub(super) fn at(&self, host: u64) -> i64 {
        self.hosts.get(&host).copied().unwrap_or_default()
    }

    fn count(&mut self, client: Option<IpAddr>, host: u64, founded: Founded, by: i64) {
        *self.hosts.entry(host).or_default() += by;
        let Some(client) = client else { return };
        let change = self.clients.entry(client).or_default();
        change.subscriptions += by;
        change.topics += by * i64::from(founded.topic);
        change.hosts += by * i64::from(founded.host);
    }
}
