//! Whose notification makes room first, and first of all among topics that no publisher speaks for.
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

use super::encoding::layout::TopicState;
use super::{Offset, Payer, Result, TopicId};

/// When room has to be made among strangers, so much of the share is made free beyond it: looking for the heaviest costs as much for one
/// notification as for many.
const SPARE: u64 = 16;

/// What strangers may keep once room is made among them, where their share is `most`.
pub(super) fn aim(most: u64) -> u64 {
    most - most / SPARE
}

/// Whether a topic's log is there for nobody, how much it weighs, and of equals which has the oldest notification.
pub(super) type BySize = (bool, u64, Reverse<DateTime>, TopicId);

/// When the oldest notification of the topic came in, if it is before what stays.
pub(super) fn oldest(state: &TopicState, stays: Offset) -> Option<Reverse<(DateTime, TopicId)>> {
    let oldest = state.oldest.filter(|_| state.topic.first < stays)?;
    Some(Reverse((oldest, state.topic.id)))
}

/// When the oldest notification of the topic came in, if it may go: the newest may only where nobody is subscribed.
pub(super) fn by_age(state: &TopicState, is_subscribed: bool) -> Option<Reverse<(DateTime, TopicId)>> {
    oldest(state, if is_subscribed { state.topic.newest() } else { state.topic.head.next() })
}

/// What the topic's log weighs, if any of it may go.
pub(super) fn by_size(state: &TopicState, is_subscribed: bool) -> Option<BySize> {
    let Reverse((oldest, id)) = by_age(state, is_subscribed)?;
    Some((state.bytes > 0 && !is_subscribed, state.bytes, Reverse(oldest), id))
}

/// As [`by_size`], but the newest may go too: only so is the strangers' share a bound.
pub(super) fn to_the_last(state: &TopicState, is_subscribed: bool) -> Option<BySize> {
    let Reverse((since, id)) = oldest(state, state.topic.head.next())?;
    Some((!is_subscribed, state.bytes, Reverse(since), id))
}

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
pub(super) struct Group {
    bytes: u64,
    members: Members,
}

enum Members {
    Topics(BinaryHeap<BySize>),
    /// And whose turn it is.
    Groups(Vec<Group>, BinaryHeap<Weighed>),
}

impl Default for Group {
    fn default() -> Self {
        Self { bytes: 0, members: Members::Topics(BinaryHeap::new()) }
    }
}

impl Group {
    /// Those of these topics that no publisher speaks for: each with whether anybody is subscribed, and the client that it counts for.
    pub(super) fn of_strangers<'a>(
        topics: impl Iterator<Item = (&'a TopicState, bool, Option<IpAddr>)>,
    ) -> Self {
        let mut clients = BTreeMap::<_, BTreeMap<_, BTreeMap<_, Self>>>::new();
        for (state, is_subscribed, founder) in topics.filter(|(state, ..)| state.bytes > 0) {
            let Payer::Strangers(network) = state.payer else { continue };
            let host = state.topic.url.url().host_str().unwrap_or_default();
            let network = network.map_or(Owner::Host(host), Owner::Network);
            let client = founder.map_or(network, Owner::Client);
            let hosts = clients.entry(client).or_default().entry(network).or_default();
            hosts.entry(host).or_default().add(state.bytes, to_the_last(state, is_subscribed));
        }
        let on_network = |hosts: BTreeMap<_, Self>| Self::of(hosts.into_values());
        Self::of(clients.into_values().map(|networks| Self::of(networks.into_values().map(on_network))))
    }

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

    pub(super) fn is_empty(&self) -> bool {
        match &self.members {
            Members::Topics(topics) => topics.is_empty(),
            Members::Groups(_, turns) => turns.is_empty(),
        }
    }

    /// The heaviest topic of the heaviest member, which is the next to be shortened.
    #[cfg(feature = "postgres")]
    pub(super) fn heaviest(&self) -> Option<TopicId> {
        match &self.members {
            Members::Topics(topics) => topics.peek().map(|(.., topic)| *topic),
            Members::Groups(groups, turns) => turns.peek().and_then(|(.., place)| groups[*place].heaviest()),
        }
    }

    /// Has the heaviest topic of the heaviest member shortened, which tells by how much and whether it may go on.
    pub(super) fn lighten<F>(&mut self, shorten: &mut F) -> Result<u64>
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
