//! One callback origin of a shard: what waits for it, what it has under way, and how it has answered.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::lanes::Lane;
use super::networks::Network;
use super::slowness::ResponseTime;
use super::wait_queue::{LastAttempt, WaitQueue, Waiter};

/// An origin, as a small number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostId(u32);

impl HostId {
    pub(super) fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("fewer than 2^32 origins fit into memory"))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What one request takes of the permits: one of its host and network, and one of its lane. It must be given back to both: to the lanes by
/// [`LaneLimiter::give_back`](super::LaneLimiter::give_back), and to the host by what the scheduler is told of the attempt's end. It does not
/// give itself back, since an attempt is a value that may be compared and copied.
#[must_use = "it is to be given back to the host and to the lanes"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// Of whose share of the requests under way it is.
    pub(crate) lane: Lane,
    /// Whether it counts as one of a proven subscription: whether this was proven when it began to wait, and for no retry. A replay waits as
    /// a retry even for a proven one, so that this may differ from [`Attempt::was_proven`](super::Attempt::was_proven).
    pub(super) counted_as_proven: bool,
    /// Whether the host is known to take long for an answer.
    pub(super) takes_long: bool,
    /// Whether it is for the probe of the host's breaker.
    pub(super) is_probe: bool,
    /// When it was taken.
    pub(super) begun: Instant,
}

impl Charge {
    /// When it was taken, if that may keep the worker busy: while an answer is known to take long, the worker does something else.
    pub(crate) fn busy_from(self) -> Option<Instant> {
        (!self.takes_long).then_some(self.begun)
    }

    /// When it was taken, if it is for the probe.
    pub(super) fn probe(self) -> Option<Instant> {
        self.is_probe.then_some(self.begun)
    }
}

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
    /// So many of these are for subscriptions that are not proven.
    pub(super) unproven: u32,
    /// So many of these have a permit of each lane.
    pub(super) in_lanes: [u32; Lane::ALL.len()],
    /// So many of these hang: they have been under way for longer than a quick answer takes.
    pub(super) hanging: u32,
    /// So many of those that hang are for subscriptions that are not proven.
    pub(super) unproven_hanging: u32,
    /// How often it has confirmed anything.
    pub(super) confirmations: u32,
    /// Who waits for a first attempt.
    pub(super) first: WaitQueue,
    /// Who waits for another attempt after a failure.
    pub(super) retries: WaitQueue,
    /// The queues of hosts that it stands in.
    pub(super) in_ready: [bool; 3],
    /// It has been slow, and is until so many more answers have come quickly, one after the other.
    pub(super) quick_owed: u32,
    pub(super) response_time: ResponseTime,
    /// It has a breaker.
    pub(super) in_trouble: bool,
    next_is_retry: bool,
    /// Of first attempts, and of retries: how many preferred ones were served since the last one in turn.
    preferred: [u8; 2],
    /// How often it has answered, be it with a refusal.
    pub(super) answers: u32,
    /// To whom something was delivered last.
    last_delivered: Option<RecentDelivery>,
    /// To whom something was delivered before that, in other topics: one tenant alone must not make the host forget the others.
    delivered_before: Vec<RecentDelivery>,
}

/// How many of other topics are remembered.
const DELIVERED_BEFORE: usize = 3;

/// A subscription to which something was delivered.
#[derive(Clone, Copy, Debug)]
struct RecentDelivery {
    who: Waiter,
    /// Whether it waits, and if so for a retry.
    waits: Option<bool>,
}

/// Who may be served at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidates {
    /// Whose turn it is.
    InTurn,
    /// A proven one, whose last attempt was delivered, else whose turn it is.
    ProvenFirst,
    /// One of those to which something was delivered last, then a proven one, then whose turn it is: no backlog keeps the others out.
    RecentlyDeliveredFirst,
    /// One of those to which something was delivered last.
    RecentlyDelivered,
    /// One of those to which something was delivered last, else a proven one.
    Proven,
    /// A proven one, and no other.
    OnlyProven,
    /// As `Proven`, else one that has not failed.
    NotFailing,
    /// As `Proven`, else anybody: first one that has not failed.
    Anybody,
    /// As `Proven`, else anybody: first one that has failed, since untried ones without end must not keep these out.
    FailingFirst,
}

/// Who may be served, in this order: one of those to which something was delivered last, a proven one, one of the others.
#[derive(Clone, Copy, Debug)]
struct Rule {
    recent: bool,
    proven: bool,
    others: Others,
}

/// Who may be served where none of those waits.
#[derive(Clone, Copy, Debug)]
enum Others {
    Nobody,
    Everybody,
    NotFailing,
    NotFailingFirst,
    FailingFirst,
}

impl Candidates {
    fn rule(self) -> Rule {
        use Others::{Everybody, FailingFirst, Nobody, NotFailing, NotFailingFirst};
        let rule = |recent, proven, others| Rule { recent, proven, others };
        match self {
            Self::InTurn => rule(false, false, Everybody),
            Self::ProvenFirst => rule(false, true, Everybody),
            Self::RecentlyDeliveredFirst => rule(true, true, Everybody),
            Self::RecentlyDelivered => rule(true, false, Nobody),
            Self::Proven => rule(true, true, Nobody),
            Self::OnlyProven => rule(false, true, Nobody),
            Self::NotFailing => rule(true, true, NotFailing),
            Self::Anybody => rule(true, true, NotFailingFirst),
            Self::FailingFirst => rule(true, true, FailingFirst),
        }
    }
}

/// What kind of subscription was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    /// One of those to which something was delivered last.
    RecentlyDelivered,
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
            Self::RecentlyDelivered => 0,
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
            first: WaitQueue::new(),
            retries: WaitQueue::new(),
            in_ready: [false; 3],
            quick_owed: 0,
            response_time: ResponseTime::default(),
            in_trouble: false,
            next_is_retry: false,
            preferred: [0; 2],
            answers: 0,
            last_delivered: None,
            delivered_before: Vec::new(),
        }
    }

    pub(super) fn is_unused(&self) -> bool {
        self.subscriptions == 0 && self.in_flight == 0 && self.in_ready == [false; 3]
    }

    /// Whether it is slow by itself, or far above its peers; `bound` says what that is, where others find no permit.
    pub(super) fn is_slow(&self, bound: Option<u32>) -> bool {
        self.quick_owed > 0
            || self.hanging > 0
            || bound.is_some_and(|bound| self.response_time.is_above(bound))
    }

    /// Puts a subscription behind those of its topic: for a retry, if its last attempt failed.
    pub(super) fn enqueue(&mut self, waiter: Waiter, last: LastAttempt, now: Instant) {
        let is_retry = last == LastAttempt::Failed;
        self.queue(is_retry).push(waiter, last, now);
        self.set_waits(waiter, Some(is_retry));
    }

    fn queue(&mut self, is_retry: bool) -> &mut WaitQueue {
        if is_retry { &mut self.retries } else { &mut self.first }
    }

    fn set_waits(&mut self, waiter: Waiter, waits: Option<bool>) {
        let known = self.last_delivered.iter_mut().chain(&mut self.delivered_before);
        known.filter(|known| known.who == waiter).for_each(|known| known.waits = waits);
    }

    /// Something was delivered to this one, which waits for nothing now.
    pub(super) fn delivered(&mut self, who: Waiter) {
        let Some(last) = self.last_delivered.replace(RecentDelivery { who, waits: None }) else { return };
        if last.who.0 != who.0 {
            self.delivered_before.retain(|before| before.who.0 != who.0);
            self.delivered_before.truncate(DELIVERED_BEFORE - 1);
            self.delivered_before.insert(0, last);
        }
    }

    /// The lanes in which one of these waits.
    pub(super) fn lanes(&self, candidates: Candidates, is_slow: bool) -> [bool; 3] {
        let [first, retry] = [false, true].map(|is_retry| self.choice(candidates, is_retry).is_some());
        if is_slow { [false, false, first || retry] } else { [first, retry, false] }
    }

    /// The one that waits there of those to which something was delivered last.
    fn recently_delivered(&self, is_retry: bool) -> Option<Waiter> {
        let mut known = self.last_delivered.iter().chain(&self.delivered_before);
        known.find(|known| known.waits == Some(is_retry)).map(|known| known.who)
    }

    /// The best of these among those that wait for a retry, or for a first attempt.
    fn choice(&self, candidates: Candidates, is_retry: bool) -> Option<Chosen> {
        let Rule { recent, proven, others } = candidates.rule();
        let alternates = candidates == Candidates::RecentlyDeliveredFirst;
        let preferred = if alternates { self.preferred[usize::from(is_retry)] } else { 0 };
        if recent && preferred == 0 && self.recently_delivered(is_retry).is_some() {
            return Some(Chosen::RecentlyDelivered);
        }
        if proven && preferred < 2 && !is_retry && self.first.has_proven() {
            return Some(Chosen::Proven);
        }
        let (queue, chosen) =
            if is_retry { (&self.retries, Chosen::Failing) } else { (&self.first, Chosen::NotFailing) };
        let may_be = match others {
            Others::Everybody => true,
            Others::Nobody => false,
            Others::NotFailing => !is_retry,
            Others::NotFailingFirst => !is_retry || self.first.is_empty(),
            Others::FailingFirst => is_retry || self.retries.is_empty(),
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
        let is_retry = match lane {
            Lane::First | Lane::Retry if is_slow => return None,
            Lane::First => false,
            Lane::Retry => true,
            Lane::Slow if !is_slow => return None,
            Lane::Slow => self.is_next_retry(candidates),
        };
        let chosen = self.choice(candidates, is_retry)?;
        if candidates == Candidates::RecentlyDeliveredFirst {
            self.preferred[usize::from(is_retry)] = match chosen {
                Chosen::RecentlyDelivered => 1,
                Chosen::Proven => 2,
                Chosen::NotFailing | Chosen::Failing => 0,
            };
        }
        let is_recent = chosen == Chosen::RecentlyDelivered;
        let recent = if is_recent { self.recently_delivered(is_retry) } else { None };
        let queue = self.queue(is_retry);
        let next = match recent {
            Some(recent) => queue.remove(recent).map(|last| (recent, last)),
            None if chosen == Chosen::Proven => queue.pop_proven(),
            None => queue.pop(),
        };
        // A subscription that waited and was removed meanwhile waits no more either.
        if let Some(waiter) = recent.or(next.map(|(waiter, _)| waiter)) {
            self.set_waits(waiter, None);
        }
        let (waiter, last) = next?;
        Some((waiter, chosen, last))
    }

    /// At a slow host both kinds wait for the same permits: in turn, unless one is the better choice.
    fn is_next_retry(&mut self, candidates: Candidates) -> bool {
        let [first, retry] = [false, true].map(|is_retry| self.choice(candidates, is_retry));
        match (first, retry) {
            (None, _) => true,
            (_, None) => false,
            (Some(first), Some(retry)) if first.rank() != retry.rank() => retry.rank() < first.rank(),
            (Some(_), Some(_)) => {
                self.next_is_retry = !self.next_is_retry;
                self.next_is_retry
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
