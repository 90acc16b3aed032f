//! One callback origin of a shard: who waits for it, what it has under way, and how it has answered.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::hosts::Waiter;
use super::lanes::Lane;
use super::networks::Network;
use super::slowness::Pace;
use super::waiting::{LastAttempt, Waiting};

#[derive(Debug)]
pub(super) struct Host {
    pub(super) origin: Arc<str>,
    /// Where requests to it went last, or where it has confirmed.
    pub(super) address: Option<IpAddr>,
    /// Its requests under way are counted there too.
    pub(super) network: Arc<Network>,
    /// Subscriptions with this origin.
    pub(super) subscriptions: u32,
    pub(super) in_flight: u32,
    /// So many of these are for such whose last attempt was not delivered.
    pub(super) unproven: u32,
    /// So many of these have a place of each lane.
    pub(super) in_lanes: [u32; Lane::ALL.len()],
    /// So many of these have been under way for longer than a quick answer takes …
    pub(super) hanging: u32,
    /// … and so many of those are for such whose last attempt was not delivered.
    pub(super) unproven_hanging: u32,
    /// How often it has confirmed anything.
    pub(super) confirmations: u32,
    pub(super) first: Waiting,
    pub(super) again: Waiting,
    /// The queues of hosts that it stands in.
    pub(super) in_ready: [bool; 3],
    /// It has been slow, and is until so many more answers have come quickly, one after the other.
    pub(super) quick_owed: u32,
    pub(super) pace: Pace,
    /// It has a breaker.
    pub(super) in_trouble: bool,
    next_again: bool,
    /// Of those who wait for a first attempt, and of those who are tried again: what those who are well have had since it was somebody's turn.
    preferred: [u8; 2],
    /// How often it has answered, be it with a refusal.
    pub(super) answers: u32,
    /// To whom something was delivered last …
    well: Option<Well>,
    /// … and in other topics before: one tenant alone must not make the host forget the others.
    well_before: Vec<Well>,
}

/// How many of other topics are remembered.
const WELL_BEFORE: usize = 3;

/// One to whom something was delivered.
#[derive(Clone, Copy, Debug)]
struct Well {
    who: Waiter,
    /// Whether it waits, and if so among those that are tried again.
    waits: Option<bool>,
}

/// Who may be served at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidates {
    /// Whose turn it is.
    InTurn,
    /// Somebody whose last attempt was delivered, else whose turn it is.
    ProvenFirst,
    /// One of those that something was delivered to last, then somebody whose last attempt was delivered, then whose turn it is: nobody with
    /// a backlog keeps the others out.
    WellFirst,
    /// One of those that something was delivered to last.
    Well,
    /// One of these, else somebody whose last attempt was delivered.
    Proven,
    /// Somebody whose last attempt was delivered, and nobody else.
    OnlyProven,
    /// As `Proven`, else somebody who has not failed.
    NotFailing,
    /// As `Proven`, else anybody: first somebody who has not failed.
    Anybody,
    /// The same, but first somebody who has: whoever brings one after the other that never was sent anything must not keep them out.
    FailingFirst,
}

/// How it is with the one that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// One of those that something was delivered to last.
    Well,
    /// Its last attempt was delivered.
    Proven,
    /// Has not failed.
    NotFailing,
    /// Has failed before.
    Failing,
}

impl Chosen {
    /// The lower, the better a choice where not all may be sent something.
    fn rank(self) -> u8 {
        match self {
            Self::Well => 0,
            Self::Proven => 1,
            Self::NotFailing | Self::Failing => 2,
        }
    }
}

impl Host {
    pub(super) fn new(origin: Arc<str>, address: Option<IpAddr>, network: Arc<Network>) -> Self {
        Self {
            origin,
            address,
            network,
            subscriptions: 0,
            in_flight: 0,
            unproven: 0,
            in_lanes: Default::default(),
            hanging: 0,
            unproven_hanging: 0,
            confirmations: 0,
            first: Waiting::new(),
            again: Waiting::new(),
            in_ready: [false; 3],
            quick_owed: 0,
            pace: Pace::default(),
            in_trouble: false,
            next_again: false,
            preferred: [0; 2],
            answers: 0,
            well: None,
            well_before: Vec::new(),
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.subscriptions == 0 && self.in_flight == 0 && self.in_ready == [false; 3]
    }

    /// Whether it is slow by itself, or far above its peers; `bound` says what that is, where others find no place.
    pub(super) fn is_slow(&self, bound: Option<u32>) -> bool {
        self.quick_owed > 0 || self.hanging > 0 || bound.is_some_and(|bound| self.pace.is_above(bound))
    }

    /// Puts a subscription behind those of its topic: of such as are tried again, if its last attempt failed.
    pub(super) fn wait(&mut self, waiter: Waiter, last: LastAttempt, now: Instant) {
        let again = last == LastAttempt::Failed;
        let queue = if again { &mut self.again } else { &mut self.first };
        queue.push(waiter, last, now);
        self.note_waits(waiter, Some(again));
    }

    fn note_waits(&mut self, waiter: Waiter, waits: Option<bool>) {
        let known = self.well.iter_mut().chain(&mut self.well_before);
        known.filter(|known| known.who == waiter).for_each(|known| known.waits = waits);
    }

    /// Something was delivered to this one, which waits for nothing now.
    pub(super) fn delivered(&mut self, who: Waiter) {
        let Some(last) = self.well.replace(Well { who, waits: None }) else { return };
        if last.who.0 != who.0 {
            self.well_before.retain(|before| before.who.0 != who.0);
            self.well_before.truncate(WELL_BEFORE - 1);
            self.well_before.insert(0, last);
        }
    }

    /// The lanes in which one of these waits.
    pub(super) fn lanes(&self, candidates: Candidates, is_slow: bool) -> [bool; 3] {
        let [first, again] = [false, true].map(|again| self.choice(candidates, again).is_some());
        if is_slow { [false, false, first || again] } else { [first, again, false] }
    }

    /// The one of those that something was delivered to last that waits there.
    fn well(&self, again: bool) -> Option<Waiter> {
        let mut known = self.well.iter().chain(&self.well_before);
        known.find(|known| known.waits == Some(again)).map(|known| known.who)
    }

    /// The best of these among those that are tried again, or among the others.
    fn choice(&self, candidates: Candidates, again: bool) -> Option<Chosen> {
        let in_turn = matches!(candidates, Candidates::InTurn | Candidates::ProvenFirst);
        let preferred =
            if candidates == Candidates::WellFirst { self.preferred[usize::from(again)] } else { 0 };
        let may_be_well = !in_turn && candidates != Candidates::OnlyProven;
        if may_be_well && preferred == 0 && self.well(again).is_some() {
            return Some(Chosen::Well);
        }
        let may_be_proven = !matches!(candidates, Candidates::InTurn | Candidates::Well);
        if may_be_proven && preferred < 2 && !again && self.first.has_delivered() {
            return Some(Chosen::Proven);
        }
        let (queue, chosen) =
            if again { (&self.again, Chosen::Failing) } else { (&self.first, Chosen::NotFailing) };
        let may_be = match candidates {
            Candidates::InTurn | Candidates::ProvenFirst | Candidates::WellFirst => true,
            Candidates::Well | Candidates::Proven | Candidates::OnlyProven => false,
            Candidates::NotFailing => !again,
            Candidates::Anybody => !again || self.first.is_empty(),
            Candidates::FailingFirst => again || self.again.is_empty(),
        };
        (may_be && !queue.is_empty()).then_some(chosen)
    }

    /// The next one of these in a lane. A host may have become slow, or quick again, since it got into its queue.
    pub(super) fn choose(
        &mut self,
        candidates: Candidates,
        lane: Lane,
        is_slow: bool,
    ) -> Option<(Waiter, Chosen, LastAttempt)> {
        let again = match lane {
            Lane::First | Lane::Again if is_slow => return None,
            Lane::First => false,
            Lane::Again => true,
            Lane::Slow if !is_slow => return None,
            Lane::Slow => self.is_next_again(candidates),
        };
        let chosen = self.choice(candidates, again)?;
        if candidates == Candidates::WellFirst {
            self.preferred[usize::from(again)] = match chosen {
                Chosen::Well => 1,
                Chosen::Proven => 2,
                Chosen::NotFailing | Chosen::Failing => 0,
            };
        }
        let well = if chosen == Chosen::Well { self.well(again) } else { None };
        let queue = if again { &mut self.again } else { &mut self.first };
        let next = match well {
            Some(well) => queue.remove(well).map(|last| (well, last)),
            None if chosen == Chosen::Proven => queue.pop_delivered(),
            None => queue.pop(),
        };
        // Who waited and was removed meanwhile waits no more either.
        if let Some(waiter) = well.or(next.map(|(waiter, _)| waiter)) {
            self.note_waits(waiter, None);
        }
        let (waiter, last) = next?;
        Some((waiter, chosen, last))
    }

    /// At a slow host both kinds wait for the same places: in turn, unless one is the better choice.
    fn is_next_again(&mut self, candidates: Candidates) -> bool {
        let [first, again] = [false, true].map(|again| self.choice(candidates, again));
        match (first, again) {
            (None, _) => true,
            (_, None) => false,
            (Some(first), Some(again)) if first.rank() != again.rank() => again.rank() < first.rank(),
            (Some(_), Some(_)) => {
                self.next_again = !self.next_again;
                self.next_again
            }
        }
    }

    /// Lets it be on another network, together with its requests under way.
    pub(super) fn moves(&mut self, network: Arc<Network>) {
        for lane in Lane::ALL {
            let requests = self.in_lanes[lane as usize] as usize;
            network.add(lane, requests);
            self.network.subtract(lane, requests);
        }
        self.network = network;
    }
}
