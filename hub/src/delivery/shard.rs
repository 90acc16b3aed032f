//! One shard's delivery as a state machine without input or output: what to send next, and what an answer means.
//!
//! Time comes in with every call and requests go out as values, so that the whole of it runs in a simulation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use resync_core::datetime::DateTime;

use super::attempt::Attempt;
use super::breaker::BreakerPolicy;
use super::clock::Clock;
use super::hosts::{HostId, Hosts, Neighbours, Place};
use super::lanes::{Lane, OpenLanes};
use super::member::{Failing, Phase};
use super::round::Round;
use super::schedule::{GivenUp, RetryPolicy};
use super::slots::HotSlot;
use super::sweep::{Step, TopicState};
use super::waiting::LastAttempt;
use crate::store::{
    Ahead, Checkpoint, Ended, FailureClass, Gap, Keep, Replayed, Rule, Shard, ShardState, Skip, Slot,
    StoreEvent, SubscriptionId, TopicId,
};

/// The present moment on both clocks: leases follow the wall, timers the monotonic one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Now {
    /// For pauses.
    pub(super) monotonic: Instant,
    /// For leases and for what is written down.
    pub(super) wall: DateTime,
}

impl Now {
    /// What the machine's clocks say.
    pub(super) fn read() -> Self {
        Self { monotonic: Instant::now(), wall: DateTime::now() }
    }
}

/// Limits of one shard.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// Requests to one origin at once.
    pub(super) per_host: usize,
    /// Subscriptions of one topic that a sweep has on their way at once.
    pub(super) window: usize,
    /// When to repeat.
    pub(super) retry: RetryPolicy,
    /// When to leave a host alone.
    pub(super) breaker: BreakerPolicy,
    /// Subscriptions that are looked at in one call, so that none takes long.
    pub(super) steps: usize,
    /// What it shares with the other shards of its worker.
    pub(super) neighbours: Neighbours,
}

/// What the shard has counted since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Answers of 2xx.
    pub(super) delivered: u64,
    /// All other attempts.
    pub(super) failed: u64,
    /// Notifications given up, by why.
    pub(super) given_up: [u64; GivenUp::ALL.len()],
    /// Notifications that were owed and no longer in the log.
    pub(super) lost_to_retention: u64,
}

/// The delivery of one shard.
#[derive(Debug)]
pub(super) struct Machine {
    shard: Shard,
    limits: Limits,
    clock: Clock,
    hosts: Hosts,
    /// Ordered, like all collections that are walked through: the same events make the same decisions.
    topics: BTreeMap<TopicId, TopicState>,
    /// Topics whose sweep can take up more.
    round: Round,
    timers: BinaryHeap<Reverse<(Instant, TopicId, SubscriptionId)>>,
    touched: BTreeSet<TopicId>,
    subscriptions: usize,
    laggards: usize,
    skips: Vec<Skip>,
    gaps: Vec<Gap>,
    replayed: Vec<Replayed>,
    ended: BTreeMap<(TopicId, SubscriptionId), Ended>,
    checkpoints: u32,
    counts: Counts,
    /// Topics of which nothing is delivered for now, also such as this shard has no subscriptions of.
    paused: BTreeSet<TopicId>,
    held_back: HeldBack,
    /// The last call looked at as many subscriptions as it may, and not at all of them.
    interrupted: bool,
    /// Until then it is remembered that places were scarce.
    scarce_until: Instant,
    /// Whoever was taken up last, while it was, waits for others of its own host or network.
    took_own: bool,
    retired: bool,
}

/// How long that is.
const SCARCE: Duration = Duration::from_secs(5);

/// How long a subscription waits whose lease is over by a clock that is in doubt.
const WITHHELD: Duration = Duration::from_secs(30);

/// How long after a failure the next notification tells whether it was for what was sent. Later than this the host may have been
/// down, and be well again: what failed then is as good as any other.
const MOMENT: Duration = Duration::from_secs(5);

/// Whoever could be served and is not for longer than this is past due.
const PAST_DUE: Duration = Duration::from_secs(60);
/// How long the end of a subscription may take before it is asked for again.
const ENDING: Duration = Duration::from_secs(5);

/// Subscriptions that are looked at in one call for such as may have one of the last places.
const SPARES: usize = 32;

/// More subscriptions than this are not kept ready for the next notification: as many again, in each shard, are what the
/// recipients of smaller topics take.
const MANY: usize = 2_048;
/// No more than this are taken up in a turn or two: where many topics wait, it is soon the turn of those whose records stand behind.
const FEW: usize = 32;

impl Machine {
    /// Goes on where the shard was left.
    pub(super) fn new(shard: Shard, limits: Limits, state: ShardState, clock: Clock, now: Now) -> Self {
        let mut machine = Self {
            shard,
            clock,
            hosts: Hosts::new(limits.per_host, limits.breaker, limits.neighbours.clone()),
            limits,
            topics: BTreeMap::new(),
            round: Round::default(),
            timers: BinaryHeap::new(),
            touched: BTreeSet::new(),
            subscriptions: 0,
            laggards: 0,
            skips: Vec::new(),
            gaps: Vec::new(),
            replayed: Vec::new(),
            ended: BTreeMap::new(),
            checkpoints: 1,
            counts: Counts::default(),
            paused: state.paused.iter().copied().collect(),
            held_back: HeldBack::default(),
            interrupted: false,
            scarce_until: now.monotonic,
            took_own: false,
            retired: false,
        };
        machine.load(state, now);
        machine
    }

    fn load(&mut self, state: ShardState, now: Now) {
        let marks: HashMap<_, _> = state.watermarks.into_iter().collect();
        for topic in &state.topics {
            self.topics
                .insert(topic.id, TopicState::new(topic, marks.get(&topic.id).copied().unwrap_or_default()));
        }
        for slot in &state.slots {
            self.put_slot(slot);
        }
        self.topics.values_mut().for_each(TopicState::assume_delivered);
        for laggard in &state.laggards {
            let Some(topic) = self.topics.get_mut(&laggard.topic) else { continue };
            let Some(slot) = topic.slot(laggard.subscription) else { continue };
            if laggard.class == FailureClass::Unsent {
                self.held_back.insert(slot.host, (laggard.topic, laggard.subscription));
            }
            let pause = pause_until(laggard.next_attempt, now.wall);
            let due = now.monotonic + pause.min(self.limits.retry.longest_pause(laggard.attempts));
            let failing = laggard.failing_since.map(|since| Failing {
                since,
                before: pause_until(now.wall, since),
                counted: now.monotonic,
            });
            topic.restore(laggard, due, failing);
            self.timers.push(Reverse((due, laggard.topic, laggard.subscription)));
        }
        let topics: Vec<_> = self.topics.keys().copied().collect();
        for id in topics {
            // Versions may have come in after the last checkpoint. Nobody waits yet, so nobody is woken.
            self.topics.get_mut(&id).map(TopicState::begin_anew);
            self.settle(id);
        }
    }

    /// Takes in what became durable.
    pub(super) fn apply(&mut self, event: &StoreEvent) {
        if self.retired {
            return;
        }
        match event {
            StoreEvent::Appended { topic, offset, rule, bytes } => {
                if let Some(state) = self.topics.get_mut(topic) {
                    for (host, id) in state.appended(*offset, *rule == Rule::Latest, *bytes) {
                        self.hosts.wait(host, (*topic, id), state.last_attempt(id));
                    }
                    self.settle(*topic);
                }
            }
            StoreEvent::Subscribed { shard, slot, topic } => {
                if *shard == self.shard {
                    self.topics.entry(topic.id).or_insert_with(|| TopicState::fresh(topic));
                    // What was to end it came before its subscriber was told yes.
                    self.ended.remove(&(topic.id, slot.id));
                    let known = self.topics.get_mut(&topic.id);
                    if let Some(member) = known.and_then(|topic| topic.member(slot.id)) {
                        member.confirmed();
                    }
                    self.put_slot(slot);
                }
                if slot.address.is_some() {
                    self.release(&slot.origin);
                }
            }
            StoreEvent::Unsubscribed { shard, topic, id } if *shard == self.shard => self.remove(*topic, *id),
            StoreEvent::Paused { topic } => drop(self.paused.insert(*topic)),
            StoreEvent::Resumed { topic } => self.resume(*topic),
            StoreEvent::Unsubscribed { .. } => {}
        }
    }

    /// The next request to make, as long as there is one that may be made now in an open lane. There may be one in the next
    /// call if this one [was interrupted](Self::is_interrupted).
    pub(super) fn next(&mut self, now: Now, open: OpenLanes) -> Option<Attempt> {
        self.interrupted = self.fire_timers(now);
        self.hosts.wake(now.monotonic);
        let mut steps = self.limits.steps;
        // Whoever is taken up wants a first attempt: where there is no place for one, it would wait here and become a laggard
        // for nothing but the hub's own haste.
        let sweeps = open.has(Lane::First);
        // Each call takes up something new before it serves who waits, so that neither starves the other.
        if open.is_scarce() {
            self.scarce_until = now.monotonic + SCARCE;
        }
        self.took_own = false;
        if sweeps {
            self.sweep_one(now, &mut steps, None);
            // Where places are few those who wait for their own must not stand before the others of their topic.
            let mut own = SPARES;
            while std::mem::take(&mut self.took_own) && self.sweep_one(now, &mut own, None) {}
        }
        // Nor where the last places are kept for few: only who gets one of them at once is taken up.
        let mut spares = if open.spare() > 0 { SPARES } else { 0 };
        for _ in 0..self.limits.steps {
            let Some((host, place, (topic, id))) = self.hosts.take(open) else {
                if sweeps && self.sweep_one(now, &mut steps, None) {
                    continue;
                }
                if self.sweep_one(now, &mut spares, Some(open.spare())) {
                    continue;
                }
                self.interrupted |= steps == 0;
                return None;
            };
            match self.start(host, place, topic, id, now) {
                Some(attempt) => return Some(attempt),
                None => self.hosts.release(host, place),
            }
        }
        self.interrupted = true;
        None
    }

    /// Whether the last call for a request ended because it had taken long, not because there was nothing more to do.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Whether somebody waits for a place to be tried again.
    pub(super) fn has_repetitions(&self) -> bool {
        self.hosts.waits_in(Lane::Again)
    }

    /// When the next timer is due, if any.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((due, ..))| *due);
        timer.into_iter().chain(self.hosts.next_wake()).min()
    }

    /// Hosts that are left alone since the last call, and for how long.
    pub(super) fn take_opened(&mut self) -> Vec<(String, Duration)> {
        self.hosts.take_opened()
    }

    /// How many hosts are left alone.
    pub(super) fn open_breakers(&self) -> usize {
        self.hosts.open_count()
    }

    /// At most so many subscriptions that are over and have to be ended in the store.
    pub(super) fn take_ended(&mut self, limit: usize) -> Vec<(TopicId, SubscriptionId, Ended)> {
        let over = std::iter::from_fn(|| self.ended.pop_first());
        over.take(limit).map(|((topic, id), why)| (topic, id, why)).collect()
    }

    /// What was counted since the last call.
    pub(super) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// How many subscriptions there are.
    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// How many hosts they are on.
    pub(super) fn hosts(&self) -> usize {
        self.hosts.count()
    }

    /// How many subscriptions of this topic there are.
    pub(super) fn subscriptions_of(&self, topic: TopicId) -> usize {
        self.topics.get(&topic).map_or(0, TopicState::subscriptions)
    }

    /// How many subscriptions are behind the watermark.
    pub(super) fn laggards(&self) -> usize {
        self.laggards
    }

    /// How many subscriptions could have been served for a while and were not: they wait for a place at a host that is not left
    /// alone, for their turn in a sweep, or for an attempt whose time has come. What was seen when this was asked before counts,
    /// so it has to be asked now and then. Takes time in proportion to hosts and topics, not to subscriptions.
    pub(super) fn past_due(&mut self, now: Instant) -> usize {
        let Some(moment) = now.checked_sub(PAST_DUE) else { return 0 };
        let paused = &self.paused;
        let sweeping = self.topics.iter_mut().filter(|(id, _)| !paused.contains(*id));
        let not_taken_up: usize = sweeping.map(|(_, topic)| topic.not_taken_up_since(moment, now)).sum();
        let overdue = self.timers.peek().is_some_and(|Reverse((due, ..))| *due < moment);
        // Only where nothing may be started do timers wait, and then no others matter.
        let timers =
            if overdue { self.timers.iter().filter(|Reverse((due, ..))| *due < moment).count() } else { 0 };
        not_taken_up + timers + self.hosts.waiting_since(moment)
    }

    /// Ends all subscriptions whose lease is over (W-123); delivery itself never waits for this.
    pub(super) fn expire(&mut self, now: Now) {
        if self.clock.look(now) {
            return;
        }
        let over: Vec<_> = self
            .topics
            .iter()
            .flat_map(|(topic, state)| {
                state.slots().filter(|(_, slot)| slot.lease_end <= now.wall).map(|(id, _)| (*topic, id))
            })
            .collect();
        self.ended.extend(over.into_iter().map(|key| (key, Ended::Expired)));
    }

    /// The progress since the last checkpoint, to be saved as a whole.
    pub(super) fn checkpoint(&mut self, now: Now) -> Checkpoint {
        let (skips, gaps) = (std::mem::take(&mut self.skips), std::mem::take(&mut self.gaps));
        let replayed = std::mem::take(&mut self.replayed);
        let mut checkpoint = Checkpoint { skips, gaps, replayed, ..Checkpoint::default() };
        let number = self.checkpoints;
        self.checkpoints = self.checkpoints.wrapping_add(1);
        for id in std::mem::take(&mut self.touched) {
            let Some(topic) = self.topics.get_mut(&id) else { continue };
            let part = topic.checkpoint(number, now.monotonic, now.wall);
            checkpoint.watermarks.extend(part.watermark.map(|mark| (id, mark)));
            checkpoint.laggards.extend(part.laggards);
            checkpoint.caught_up.extend(part.caught_up.into_iter().map(|subscription| (id, subscription)));
            self.settle_quietly(id);
            match self.topics.get(&id) {
                Some(topic) if topic.is_unused() => drop(self.topics.remove(&id)),
                Some(topic) if topic.is_unsaved() => drop(self.touched.insert(id)),
                Some(_) | None => {}
            }
        }
        checkpoint
    }

    /// Before the last checkpoint of this life: whoever is still on the way becomes a laggard, however short the way was. What
    /// was held back by them would be delivered again in the next life.
    pub(super) fn let_go(&mut self) {
        let topics: Vec<_> = self.topics.keys().copied().collect();
        for id in topics {
            self.topics.get_mut(&id).map(TopicState::detach_all);
            self.settle(id);
        }
    }

    /// Whether there is progress to save.
    pub(super) fn has_progress(&self) -> bool {
        !(self.touched.is_empty()
            && self.skips.is_empty()
            && self.gaps.is_empty()
            && self.replayed.is_empty())
    }

    /// Forgets everything: another owner delivers for this shard now.
    pub(super) fn retire(&mut self) {
        self.retired = true;
        self.topics.clear();
        self.round.clear();
        self.timers.clear();
        self.touched.clear();
        self.subscriptions = 0;
        self.laggards = 0;
        self.skips.clear();
        self.gaps.clear();
        self.replayed.clear();
        self.ended.clear();
        self.held_back.clear();
    }

    fn put_slot(&mut self, slot: &Slot) {
        let Some(topic) = self.topics.get_mut(&slot.topic) else { return };
        let host = self.hosts.join(&slot.origin, slot.address);
        match topic.put_slot(slot.id, slot, host) {
            Some(before) => self.hosts.leave(before.host),
            None => self.subscriptions += 1,
        }
    }

    fn remove(&mut self, topic: TopicId, id: SubscriptionId) {
        if let Some(state) = self.topics.get_mut(&topic) {
            if let Some(slot) = state.remove_slot(id) {
                self.subscriptions -= 1;
                self.held_back.remove(slot.host, (topic, id));
                self.hosts.leave(slot.host);
            }
            self.settle(topic);
        }
    }

    /// Asks for the end of a subscription. Until the store says that it has ended, or that it was renewed at the last moment,
    /// it keeps its place and gets nothing.
    fn end(&mut self, topic: TopicId, id: SubscriptionId, why: Ended, now: Now) {
        self.ended.insert((topic, id), why);
        match why {
            Ended::Expired => self.withhold(topic, id, ENDING, now),
            Ended::Gone { .. } => self.back_off(topic, id, ENDING, now),
        }
    }

    /// Lets those whose pause is over wait for their hosts; tells whether there are more of them than it may look at.
    fn fire_timers(&mut self, now: Now) -> bool {
        for _ in 0..self.limits.steps {
            let Some(Reverse((due, topic, id))) = self.timers.peek().copied() else { return false };
            if due > now.monotonic {
                return false;
            }
            self.timers.pop();
            let Some(state) = self.topics.get_mut(&topic) else { continue };
            let Some((host, last)) = state.slot(id).map(|slot| (slot.host, slot.last())) else { continue };
            // A timer may be older than the member's present pause; only the one that belongs to it counts.
            let Some(member) = state.member(id).filter(|member| member.phase == Phase::Backoff(due)) else {
                continue;
            };
            member.phase = Phase::Waiting;
            let last = if member.goes_again() { LastAttempt::Failed } else { last };
            self.hosts.wait(host, (topic, id), last);
        }
        self.timers.peek().is_some_and(|Reverse((due, ..))| *due <= now.monotonic)
    }

    /// Lets the next topic in turn take up one subscription; tells whether anything moved. `steps` says at how many it may look, and
    /// `spare` how many places there are, if they are not for everybody.
    fn sweep_one(&mut self, now: Now, steps: &mut usize, spare: Option<usize>) -> bool {
        while *steps > 0
            && let Some(id) = self.round.next(|id| self.topics.get(&id).map_or(0, TopicState::bytes))
        {
            let topic = self.topics.get_mut(&id).filter(|_| !self.paused.contains(&id));
            let hosts = &self.hosts;
            let may = |host| {
                spare.is_none_or(|spare| hosts.may_spare(host, spare) || hosts.waits_for_its_own(host))
            };
            let (window, checkpoint) = (self.limits.window, self.checkpoints);
            match topic.map(|topic| topic.step(window, checkpoint, now.monotonic, steps, may)) {
                Some(Step::Wait(host, subscription, last)) => {
                    self.touched.insert(id);
                    let was_scarce = now.monotonic < self.scarce_until;
                    self.took_own = was_scarce && self.hosts.waits_for_its_own(host);
                    if spare.is_some() {
                        self.hosts.note_no_place(host);
                    }
                    self.hosts.wait(host, (id, subscription), last);
                    return true;
                }
                Some(Step::Again(host, subscription)) => {
                    self.hosts.wait(host, (id, subscription), LastAttempt::Failed);
                    return true;
                }
                Some(Step::Later(due, subscription)) => {
                    self.timers.push(Reverse((due, id, subscription)));
                    return true;
                }
                Some(Step::Interrupted) => {
                    self.round.pass();
                    return false;
                }
                Some(Step::Busy(host)) => {
                    self.hosts.note_no_place(host);
                    self.round.pass();
                }
                Some(Step::Blocked) => {
                    *steps = steps.saturating_sub(1);
                    self.round.leave();
                    self.settle(id);
                }
                None => {
                    *steps = steps.saturating_sub(1);
                    self.round.leave();
                }
            }
        }
        false
    }

    fn join_round(&mut self, id: TopicId) {
        let more = self.topics.get(&id).is_some_and(|topic| topic.has_more(self.limits.window));
        if more && !self.paused.contains(&id) {
            self.round.join(id);
        }
    }

    fn start(
        &mut self,
        host: HostId,
        place: Place,
        topic: TopicId,
        id: SubscriptionId,
        now: Now,
    ) -> Option<Attempt> {
        let state = self.topics.get_mut(&topic)?;
        if self.paused.contains(&topic) {
            state.hold(id);
            return None;
        }
        let HotSlot { lease_end, was_delivered, .. } = *state.slot(id)?;
        if lease_end <= now.wall {
            if self.clock.look(now) {
                self.withhold(topic, id, WITHHELD, now);
            } else {
                self.end(topic, id, Ended::Expired, now);
            }
            return None;
        }
        let (goal, latest, posted) = (state.goal(), state.latest(), state.posted());
        let member = state.member(id).filter(|member| member.phase == Phase::Waiting)?;
        if member.cursor >= goal {
            self.go_on(topic, id, now);
            return None;
        }
        if let Some(poison) = member.suspect.take_if(|poison| now.monotonic - poison.failed > MOMENT) {
            self.back_off(topic, id, poison.due.saturating_duration_since(now.monotonic), now);
            return None;
        }
        member.phase = Phase::InFlight;
        let probe = member.suspect.is_some();
        let (offset, number) = if probe {
            (member.cursor.next().next(), 1)
        } else {
            (member.cursor.next(), member.tries.saturating_add(1))
        };
        let newest_only = posted < offset && offset <= latest;
        let number = if newest_only && offset < latest { 1 } else { number };
        let crowded = self.round.is_crowded();
        let turn = if crowded { self.subscriptions } else { state.subscriptions() };
        // Who has got everything is asked for again when all the others of this turn have been.
        let keep = if turn > MANY && (newest_only || offset >= goal) { Keep::Nothing } else { Keep::Ready };
        let ahead = if crowded && state.subscriptions() <= FEW { Ahead::Shard } else { Ahead::Topic };
        Some(Attempt {
            topic,
            subscription: id,
            offset,
            latest,
            newest_only,
            number,
            place,
            probe,
            was_delivered,
            ahead,
            keep,
            host,
            confirmations: self.hosts.confirmations(host),
            lease_end,
        })
    }

    fn skip(&mut self, skip: Skip, why: GivenUp) {
        self.counts.given_up[why as usize] += 1;
        self.skips.push(skip);
    }

    fn resume(&mut self, topic: TopicId) {
        self.paused.remove(&topic);
        let Some(state) = self.topics.get_mut(&topic) else { return };
        for (host, id) in state.take_held() {
            self.hosts.wait(host, (topic, id), state.last_attempt(id));
        }
        self.settle(topic);
    }

    fn back_off(&mut self, topic: TopicId, id: SubscriptionId, pause: Duration, now: Now) {
        let Some(state) = self.topics.get_mut(&topic) else { return };
        let due = now.monotonic + pause;
        if let Some(member) = state.member(id) {
            member.phase = Phase::Backoff(due);
            state.detach(id);
            self.timers.push(Reverse((due, topic, id)));
        }
        self.settle(topic);
    }

    /// Puts off one whose lease is over. Where it has a record of its own, that says what the next life has to know: there may be
    /// very many, for minutes, and each moment of theirs is not worth a write.
    fn withhold(&mut self, topic: TopicId, id: SubscriptionId, pause: Duration, now: Now) {
        let due = now.monotonic + pause;
        let member = self.topics.get_mut(&topic).and_then(|state| state.member(id));
        match member.filter(|member| member.saved) {
            Some(member) => {
                member.phase = Phase::Backoff(due);
                self.timers.push(Reverse((due, topic, id)));
            }
            None => self.back_off(topic, id, pause, now),
        }
    }

    /// A member has moved: it goes on to its next notification or is done.
    fn go_on(&mut self, topic: TopicId, id: SubscriptionId, now: Now) {
        let Some(state) = self.topics.get_mut(&topic) else { return };
        let known = state.slot(id).map(|slot| (slot.host, slot.last()));
        if state.advanced(id, now.monotonic)
            && let Some((host, last)) = known
        {
            let again = state.member(id).is_some_and(|member| member.goes_again());
            self.hosts.wait(host, (topic, id), if again { LastAttempt::Failed } else { last });
        }
        self.settle(topic);
    }

    /// After anything that may have changed a topic: sweeps end and begin, and the next checkpoint looks at it.
    fn settle(&mut self, topic: TopicId) {
        self.touched.insert(topic);
        self.settle_quietly(topic);
    }

    fn settle_quietly(&mut self, id: TopicId) {
        if let Some(topic) = self.topics.get_mut(&id) {
            topic.settle();
            let (before, after) = topic.count_laggards();
            self.laggards = self.laggards + after - before;
            self.join_round(id);
        }
    }
}

/// Wall clocks may have jumped back: then there is no pause.
fn pause_until(later: DateTime, earlier: DateTime) -> Duration {
    later.to_system_time().duration_since(earlier.to_system_time()).unwrap_or_default()
}

#[path = "answers.rs"]
mod answers;
#[path = "hand.rs"]
mod hand;
#[path = "held_back.rs"]
mod held_back;

use held_back::HeldBack;

#[cfg(test)]
#[path = "simulation.rs"]
mod simulation;
