//! Whose notification makes room first among topics that no publisher speaks for.
//!
//! Who takes most pays first: of the clients for which topics count, then of the networks that the topics of one were fetched from, then
//! of the hosts on that network, then of the topics on that host. So whoever is within its fair part loses nothing, however many topics,
//! hosts or networks somebody else has.
//!
//! A topic counts for the client of its first subscription: without one it would not be fetched. So whoever has the hub fetch one page
//! of somebody else's host under many names takes nothing from who reads that host. Where the client is not known, as of subscriptions
//! that are older than its record, the network stands for it. Who is the first to subscribe to somebody else's topic has it count in its
//! own part, where it is beside its network and its host.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;

use resync_core::datetime::DateTime;

use super::Transaction;
use super::retention::{BySize, Cut, oldest};
use crate::store::encoding::layout::TopicState;
use crate::store::{Payer, Result, TopicId};

/// When room has to be made, so much of the share is made free beyond it: looking for the heaviest costs as much for one
/// notification as for many.
const SPARE: u64 = 16;

/// By whom a topic's bytes are paid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner<'a> {
    /// The client that it counts for.
    Client(IpAddr),
    /// The network that it was fetched from.
    Network(IpAddr),
    /// The host in its URL, where that is not known.
    Host(&'a str),
}

/// How much something takes, of equals what has been there for longest, and its place in a list.
type Weighed = (u64, Reverse<DateTime>, usize);

/// Topics that may be shortened, or groups of such topics.
struct Group {
    bytes: u64,
    members: Members,
}

enum Members {
    Topics(BinaryHeap<BySize>),
    /// And whose turn it is.
    Groups(Vec<Group>, BinaryHeap<Weighed>),
}

impl Transaction<'_> {
    /// Removes notifications of strangers while theirs take more than this; true when one command may not remove any more.
    pub(super) fn make_strangers_room(&self, cut: &mut Cut, most: u64, limit: usize) -> Result<bool> {
        if cut.left.strangers <= cut.aim.unwrap_or(most) {
            return Ok(false);
        }
        let aim = *cut.aim.get_or_insert(most - most / SPARE);
        let mut all = self.by_owner(cut);
        while cut.left.strangers > aim && !all.is_empty() {
            if cut.is_full(limit) {
                return Ok(true);
            }
            all.lighten(&mut |topic| {
                let before = cut.left.strangers;
                let left = self.to_the_last(self.shorten(cut, topic)?);
                cut.trimmed.early += 1;
                Ok((before.saturating_sub(cut.left.strangers), left))
            })?;
        }
        Ok(false)
    }

    fn by_owner(&self, cut: &Cut) -> Group {
        let mut clients = BTreeMap::<_, BTreeMap<_, BTreeMap<_, Group>>>::new();
        let states = self.states().map(|state| cut.changed.get(&state.topic.id).unwrap_or(state));
        for state in states.filter(|state| state.bytes > 0) {
            let Payer::Strangers(network) = state.payer else { continue };
            let host = state.topic.url.url().host_str().unwrap_or_default();
            let network = network.map_or(Owner::Host(host), Owner::Network);
            let client = self.topics.accounts.founder(state.topic.id).map_or(network, Owner::Client);
            let hosts = clients.entry(client).or_default().entry(network).or_default();
            hosts.entry(host).or_default().add(state.bytes, self.to_the_last(state));
        }
        let on_network = |hosts: BTreeMap<_, Group>| Group::of(hosts.into_values());
        Group::of(clients.into_values().map(|networks| Group::of(networks.into_values().map(on_network))))
    }

    /// As [`Transaction::by_size`], but the newest may go too: only so is the share a bound.
    fn to_the_last(&self, state: &TopicState) -> Option<BySize> {
        let Reverse((since, id)) = oldest(state, state.topic.head.next())?;
        Some((!self.is_subscribed(id), state.bytes, Reverse(since), id))
    }
}

impl Default for Group {
    fn default() -> Self {
        Self { bytes: 0, members: Members::Topics(BinaryHeap::new()) }
    }
}

impl Group {
    fn of(all: impl Iterator<Item = Self>) -> Self {
        let (mut bytes, mut groups, mut turns) = (0, Vec::new(), BinaryHeap::new());
        for group in all {
            let Some(since) = group.since() else { continue };
            bytes += group.bytes;
            turns.push((group.bytes, since, groups.len()));
            groups.push(group);
        }
        Self { bytes, members: Members::Groups(groups, turns) }
    }

    fn add(&mut self, bytes: u64, topic: Option<BySize>) {
        self.bytes += bytes;
        if let Members::Topics(topics) = &mut self.members {
            topics.extend(topic);
        }
    }

    /// How long there has been something that may go.
    fn since(&self) -> Option<Reverse<DateTime>> {
        match &self.members {
            Members::Topics(topics) => topics.iter().map(|(.., since, _)| *since).max(),
            Members::Groups(_, turns) => turns.iter().map(|(_, since, _)| *since).max(),
        }
    }

    fn is_empty(&self) -> bool {
        match &self.members {
            Members::Topics(topics) => topics.is_empty(),
            Members::Groups(_, turns) => turns.is_empty(),
        }
    }

    /// Has the heaviest topic of the heaviest member shortened, which tells by how much and whether it may go on.
    fn lighten<F>(&mut self, shorten: &mut F) -> Result<u64>
    where
        F: FnMut(TopicId) -> Result<(u64, Option<BySize>)>,
    {
        let freed = match &mut self.members {
            Members::Topics(topics) => {
                let Some((.., topic)) = topics.pop() else { return Ok(0) };
                let (freed, left) = shorten(topic)?;
                topics.extend(left);
                freed
            }
            Members::Groups(groups, turns) => {
                let Some((_, since, place)) = turns.pop() else { return Ok(0) };
                let heaviest = &mut groups[place];
                let freed = heaviest.lighten(shorten)?;
                turns.extend((!heaviest.is_empty()).then_some((heaviest.bytes, since, place)));
                freed
            }
        };
        self.bytes = self.bytes.saturating_sub(freed);
        Ok(freed)
    }
}
