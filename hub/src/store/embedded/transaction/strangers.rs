//! Whose notification makes room first among topics that no publisher speaks for.
//!
//! Who takes most pays first: of the networks, then of the hosts on that network, then of the topics on that host. So whoever is within
//! its fair part loses nothing, however many topics, hosts or networks somebody else has.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::IpAddr;

use resync_core::datetime::DateTime;

use super::Transaction;
use super::retention::{BySize, Cut, oldest};
use crate::store::embedded::layout::TopicState;
use crate::store::{Payer, Result, TopicId};

/// When room has to be made, so much of the share is made free beyond it: looking for the heaviest costs as much for one
/// notification as for many.
const SPARE: u64 = 16;

/// By whom a topic's bytes are paid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Owner<'a> {
    /// The network that it was fetched from.
    Network(IpAddr),
    /// The host in its URL, where that is not known.
    Host(&'a str),
}

/// How much something takes, of equals what has been there for longest, and its place in a list.
type Weighed = (u64, Reverse<DateTime>, usize);

/// All topics that may be shortened, by owner and host.
#[derive(Default)]
struct Heaviest {
    owners: BinaryHeap<Weighed>,
    hosts: Vec<BinaryHeap<Weighed>>,
    topics: Vec<BinaryHeap<BySize>>,
}

/// The topic whose turn it is, taken out with those that it belongs to.
struct Taken {
    owner: Weighed,
    host: Weighed,
    topic: TopicId,
}

impl Transaction<'_> {
    /// Removes notifications of strangers while theirs take more than this; true when one command may not remove any more.
    pub(super) fn make_strangers_room(&self, cut: &mut Cut, most: u64, limit: usize) -> Result<bool> {
        if cut.strangers <= cut.aim.unwrap_or(most) {
            return Ok(false);
        }
        let aim = *cut.aim.get_or_insert(most - most / SPARE);
        let mut heaviest = self.heaviest(cut);
        while cut.strangers > aim
            && let Some(taken) = heaviest.pop()
        {
            if cut.is_full(limit) {
                return Ok(true);
            }
            let before = cut.strangers;
            let left = self.shorten(cut, taken.topic)?.clone();
            cut.trimmed.early += 1;
            heaviest.put_back(&taken, before.saturating_sub(cut.strangers), self.to_the_last(&left));
        }
        Ok(false)
    }

    fn heaviest(&self, cut: &Cut) -> Heaviest {
        let mut owners = BTreeMap::<_, BTreeMap<_, (u64, BinaryHeap<BySize>)>>::new();
        let states = self.states().map(|state| cut.changed.get(&state.topic.id).unwrap_or(state));
        for state in states.filter(|state| state.bytes > 0) {
            let Payer::Strangers(network) = state.payer else { continue };
            let host = state.topic.url.url().host_str().unwrap_or_default();
            let owner = network.map_or(Owner::Host(host), Owner::Network);
            let (bytes, topics) = owners.entry(owner).or_default().entry(host).or_default();
            *bytes += state.bytes;
            topics.extend(self.to_the_last(state));
        }
        let mut heaviest = Heaviest::default();
        for hosts in owners.into_values() {
            heaviest.add(hosts.into_values());
        }
        heaviest
    }

    /// As [`Transaction::by_size`], but the newest may go too: only so is the share a bound.
    fn to_the_last(&self, state: &TopicState) -> Option<BySize> {
        let Reverse((since, id)) = oldest(state, state.topic.head.next())?;
        Some((!self.is_subscribed(id), state.bytes, Reverse(since), id))
    }
}

impl Heaviest {
    fn add(&mut self, hosts: impl Iterator<Item = (u64, BinaryHeap<BySize>)>) {
        let mut own = BinaryHeap::new();
        for (bytes, topics) in hosts {
            let since = topics.iter().map(|(.., since, _)| *since).max();
            own.extend(since.map(|since| (bytes, since, self.topics.len())));
            self.topics.push(topics);
        }
        let bytes = own.iter().map(|(bytes, ..)| *bytes).sum();
        let since = own.iter().map(|(_, since, _)| *since).max();
        self.owners.extend(since.map(|since| (bytes, since, self.hosts.len())));
        self.hosts.push(own);
    }

    fn pop(&mut self) -> Option<Taken> {
        let owner = self.owners.pop()?;
        let host = self.hosts[owner.2].pop()?;
        let (.., topic) = self.topics[host.2].pop()?;
        Some(Taken { owner, host, topic })
    }

    /// So many bytes lighter, those that still have something wait for their next turn.
    fn put_back(&mut self, Taken { owner, host, .. }: &Taken, freed: u64, topic: Option<BySize>) {
        let lighter = |(bytes, since, place): Weighed| (bytes.saturating_sub(freed), since, place);
        let (hosts, topics) = (&mut self.hosts[owner.2], &mut self.topics[host.2]);
        topics.extend(topic);
        hosts.extend((!topics.is_empty()).then_some(lighter(*host)));
        self.owners.extend((!hosts.is_empty()).then_some(lighter(*owner)));
    }
}
