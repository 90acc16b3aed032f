//! One callback origin of a shard: who waits for it, what it has under way, and how it has answered.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::hosts::Waiter;
use super::lanes::Lane;
use super::networks::Network;
use super::slowness::Pace;
use super::waiting::Waiting;

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
    /// So many of these have been under way for longer than a quick answer takes.
    pub(super) hanging: u32,
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
    /// How often it has answered, be it with a refusal.
    pub(super) answers: u32,
    /// To whom something was delivered last.
    well: Option<Waiter>,
    /// Whether that one waits, and if so among those that are tried again.
    well_waits: Option<bool>,
}

/// Who may be served at a host that is in trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidates {
    /// Whoever it was that something was delivered to last.
    Well,
    /// That one, else somebody who has not failed.
    NotFailing,
    /// One of these, else anybody.
    Anybody,
}

/// How it is with the one that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// Nothing was delivered to anybody later.
    Well,
    /// Has not failed.
    NotFailing,
    /// Has failed before.
    Failing,
}

impl Host {
    pub(super) fn new(origin: Arc<str>, address: Option<IpAddr>, network: Arc<Network>) -> Self {
        Self {
            origin,
            address,
            network,
            subscriptions: 0,
            in_flight: 0,
            hanging: 0,
            confirmations: 0,
            first: Waiting::new(),
            again: Waiting::new(),
            in_ready: [false; 3],
            quick_owed: 0,
            pace: Pace::default(),
            in_trouble: false,
            next_again: false,
            answers: 0,
            well: None,
            well_waits: None,
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.subscriptions == 0 && self.in_flight == 0 && self.in_ready == [false; 3]
    }

    /// Whether it is slow by itself, or far above its peers; `bound` says what that is, where others find no place.
    pub(super) fn is_slow(&self, bound: Option<u32>) -> bool {
        self.quick_owed > 0 || self.hanging > 0 || bound.is_some_and(|bound| self.pace.is_above(bound))
    }

    /// Puts a subscription behind those of its topic; `again` if it failed before.
    pub(super) fn wait(&mut self, waiter: Waiter, again: bool, now: Instant) {
        let queue = if again { &mut self.again } else { &mut self.first };
        queue.push(waiter, now);
        if self.well == Some(waiter) {
            self.well_waits = Some(again);
        }
    }

    /// Something was delivered to this one, which waits for nothing now.
    pub(super) fn delivered(&mut self, waiter: Waiter) {
        if self.well != Some(waiter) {
            self.well = Some(waiter);
            self.well_waits = None;
        }
    }

    /// Whether anything was ever delivered to it in this life of the hub.
    pub(super) fn has_been_well(&self) -> bool {
        self.well.is_some()
    }

    /// The lanes in which somebody waits.
    pub(super) fn lanes(&self, is_slow: bool) -> [bool; 3] {
        Self::in_lanes(is_slow, !self.first.is_empty(), !self.again.is_empty())
    }

    /// The lane in which one of these waits, if any does.
    pub(super) fn lanes_of(&self, candidates: Candidates, is_slow: bool) -> [bool; 3] {
        let again = match self.choice(candidates) {
            None => return [false; 3],
            Some(Chosen::Well) => self.well_waits == Some(true),
            Some(Chosen::NotFailing) => false,
            Some(Chosen::Failing) => true,
        };
        Self::in_lanes(is_slow, !again, again)
    }

    fn in_lanes(is_slow: bool, first: bool, again: bool) -> [bool; 3] {
        if is_slow { [false, false, first || again] } else { [first, again, false] }
    }

    fn choice(&self, candidates: Candidates) -> Option<Chosen> {
        if self.well_waits.is_some() {
            return Some(Chosen::Well);
        }
        let failing = || (!self.again.is_empty()).then_some(Chosen::Failing);
        let not_failing = (!self.first.is_empty()).then_some(Chosen::NotFailing);
        match candidates {
            Candidates::Well => None,
            Candidates::NotFailing => not_failing,
            Candidates::Anybody => not_failing.or_else(failing),
        }
    }

    /// The best of these, if it belongs into this lane.
    pub(super) fn choose(
        &mut self,
        candidates: Candidates,
        lane: Lane,
        is_slow: bool,
    ) -> Option<(Waiter, Chosen)> {
        if !self.lanes_of(candidates, is_slow)[lane as usize] {
            return None;
        }
        let chosen = self.choice(candidates)?;
        let waiter = match (chosen, self.well.zip(self.well_waits)) {
            (Chosen::Well, Some((waiter, again))) => {
                let queue = if again { &mut self.again } else { &mut self.first };
                queue.remove(waiter).then_some(waiter)
            }
            (Chosen::Well, None) => None,
            (Chosen::NotFailing, _) => self.first.pop(),
            (Chosen::Failing, _) => self.again.pop(),
        };
        self.well_waits = None;
        Some((waiter?, chosen))
    }

    /// The next one of a lane. A host may have become slow, or quick again, since it got into its queue.
    pub(super) fn pop(&mut self, lane: Lane, is_slow: bool) -> Option<Waiter> {
        let waiter = match lane {
            Lane::First if !is_slow => self.first.pop(),
            Lane::Again if !is_slow => self.again.pop(),
            Lane::Slow if is_slow => {
                self.next_again = !self.next_again;
                let (one, other) = if self.next_again {
                    (&mut self.again, &mut self.first)
                } else {
                    (&mut self.first, &mut self.again)
                };
                one.pop().or_else(|| other.pop())
            }
            Lane::First | Lane::Again | Lane::Slow => None,
        };
        if waiter.is_some() && waiter == self.well {
            self.well_waits = None;
        }
        waiter
    }

    /// Lets it be on another network, together with its requests under way.
    pub(super) fn moves(&mut self, address: IpAddr, network: Arc<Network>) {
        self.address = Some(address);
        network.add(self.in_flight as usize);
        self.network.subtract(self.in_flight as usize);
        self.network = network;
    }
}
