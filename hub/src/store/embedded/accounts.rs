//! What each client has the hub keep: counted as subscriptions begin and end, and from their records when a store is opened.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::net::IpAddr;

use crate::store::{SubscriptionCounts, SubscriptionId, TopicId};

/// One entry for each client, for each topic and for each callback origin, none for a subscription.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    /// Random, so that nobody can choose whose origin to share.
    hasher: RandomState,
    clients: HashMap<IpAddr, SubscriptionCounts>,
    /// Only topics that have subscriptions.
    topics: HashMap<TopicId, Held>,
    /// Callback origins, by their hashes.
    hosts: HashMap<u64, Held>,
    /// All of them together.
    subscriptions: u64,
}

/// By what a callback origin is counted where the others are hashed with this.
pub(super) fn host(hasher: &RandomState, origin: &[u8]) -> u64 {
    hasher.hash_one(origin)
}

/// How many subscriptions something has, and for whom it counts until it has none.
#[derive(Debug)]
struct Held {
    count: u64,
    /// Who brought it: the client of the first subscription.
    founder: Option<IpAddr>,
    first: SubscriptionId,
}

/// A subscription as it is counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) id: SubscriptionId,
    pub(super) topic: TopicId,
    /// Its callback origin and its client; `None` where its record cannot be read.
    pub(super) of: Option<(u64, Option<IpAddr>)>,
}

/// What becomes of a subscription.
#[derive(Clone, Copy, Debug)]
pub(super) enum SubscriptionChange {
    Began(Counted),
    Ended(Counted),
}

impl Accounts {
    /// By what a callback origin is counted.
    pub(super) fn host(&self, origin: &[u8]) -> u64 {
        host(&self.hasher, origin)
    }

    /// What these hashes are made with.
    pub(super) fn hasher(&self) -> RandomState {
        self.hasher.clone()
    }

    pub(super) fn of(&self, client: IpAddr) -> SubscriptionCounts {
        self.clients.get(&client).copied().unwrap_or_default()
    }

    pub(super) fn subscriptions(&self) -> u64 {
        self.subscriptions
    }

    /// How many callback origins there are.
    pub(super) fn hosts(&self) -> u64 {
        self.hosts.len() as u64
    }

    pub(super) fn of_topic(&self, topic: TopicId) -> u64 {
        self.topics.get(&topic).map_or(0, |held| held.count)
    }

    /// For which client a topic counts, if it has subscriptions and the client of the first is known.
    pub(super) fn founder(&self, topic: TopicId) -> Option<IpAddr> {
        self.topics.get(&topic).and_then(|held| held.founder)
    }

    /// How many subscriptions there are at this origin.
    pub(super) fn at(&self, host: u64) -> u64 {
        self.hosts.get(&host).map_or(0, |held| held.count)
    }

    /// In the order in which they happened, but for those that a store is opened with.
    pub(super) fn follow(&mut self, change: SubscriptionChange) {
        match change {
            SubscriptionChange::Began(counted) => self.begin(counted),
            SubscriptionChange::Ended(counted) => self.end(counted),
        }
    }

    fn begin(&mut self, Counted { id, topic, of }: Counted) {
        let client = of.and_then(|(_, client)| client);
        self.subscriptions += 1;
        self.change(client, |account| &mut account.subscriptions, 1);
        let moves = held(&mut self.topics, topic, id, client);
        self.hand_over(moves, client, |account| &mut account.topics);
        if let Some((host, _)) = of {
            let moves = held(&mut self.hosts, host, id, client);
            self.hand_over(moves, client, |account| &mut account.hosts);
        }
    }

    fn end(&mut self, Counted { topic, of, .. }: Counted) {
        self.subscriptions = self.subscriptions.saturating_sub(1);
        let founder = let_go(&mut self.topics, &topic);
        self.change(founder, |account| &mut account.topics, -1);
        if let Some((host, client)) = of {
            self.change(client, |account| &mut account.subscriptions, -1);
            let founder = let_go(&mut self.hosts, &host);
            self.change(founder, |account| &mut account.hosts, -1);
        }
    }

    /// From now on it counts for this client, and no longer for the one before.
    fn hand_over(
        &mut self,
        moves: Option<Before>,
        to: Option<IpAddr>,
        part: fn(&mut SubscriptionCounts) -> &mut u64,
    ) {
        if let Some(Before(before)) = moves {
            self.change(before, part, -1);
            self.change(to, part, 1);
        }
    }

    fn change(&mut self, client: Option<IpAddr>, part: fn(&mut SubscriptionCounts) -> &mut u64, by: i64) {
        let Some(client) = client else { return };
        let account = self.clients.entry(client).or_default();
        let part = part(account);
        *part = part.saturating_add_signed(by);
        if *account == SubscriptionCounts::default() {
            self.clients.remove(&client);
        }
    }
}

/// For whom something counted until now.
#[derive(Clone, Copy)]
struct Before(Option<IpAddr>);

/// One more subscription of this. Tells for whom it counted before, if it counts for this one's client now.
fn held<K: Hash + Eq>(
    all: &mut HashMap<K, Held>,
    key: K,
    id: SubscriptionId,
    client: Option<IpAddr>,
) -> Option<Before> {
    let held = all.entry(key).or_insert(Held { count: 0, founder: None, first: id });
    let is_first = held.count == 0 || id < held.first;
    held.count += 1;
    is_first.then(|| {
        held.first = id;
        Before(std::mem::replace(&mut held.founder, client))
    })
}

/// One fewer. Tells for whom it counted, if that was the last.
fn let_go<K: Hash + Eq>(all: &mut HashMap<K, Held>, key: &K) -> Option<IpAddr> {
    let held = all.get_mut(key)?;
    held.count = held.count.saturating_sub(1);
    if held.count > 0 {
        return None;
    }
    all.remove(key)?.founder
}
