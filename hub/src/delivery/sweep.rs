//! One topic in one shard: the watermark, the sweep that moves it, and the laggards that do not hold it back.
//!
//! A sweep brings every subscription, in the order of the ids, from the watermark to a target. A subscription takes part
//! as a *member* while it is on its way. An *attached* member holds the sweep back; as soon as it fails, or is slower than
//! a checkpoint interval, or the next sweep waits only for it, it is *detached*: from then on it is a laggard with a record
//! of its own, and the watermark passes it by. So a healthy sweep leaves a handful of records, whatever its size.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Instant;

use resync_core::datetime::DateTime;

use super::hosts::HostId;
use super::member::{Failing, Member, Phase};
use super::slots::{HotSlot, Slots};
use super::waiting::LastAttempt;
use crate::store::{FailureClass, Laggard, Offset, Slot, SubscriptionId, Sweep, Topic, TopicId, Watermark};

/// So many subscriptions of a topic may wait for their hosts because of others, where places are kept for those who are served at once.
const FEW: usize = 64;

/// The state of one topic in one shard.
#[derive(Debug)]
pub(super) struct TopicState {
    id: TopicId,
    head: Offset,
    /// The newest fetched version.
    latest: Offset,
    /// The newest posted notification: everybody gets it, although there are newer ones.
    posted: Offset,
    /// Of the newest body; zero until there is one in this life.
    bytes: u64,
    done: Offset,
    pass: Option<Pass>,
    slots: Slots,
    members: BTreeMap<SubscriptionId, Member>,
    attached: BTreeSet<SubscriptionId>,
    /// Who waits for the end of the sweep, or rests beyond it.
    parked: BTreeSet<SubscriptionId>,
    changed: BTreeSet<SubscriptionId>,
    caught_up: Vec<SubscriptionId>,
    /// As counted last.
    laggards: usize,
    /// Whose turn came while the topic was paused.
    held: Vec<SubscriptionId>,
    /// The watermark as the last checkpoint left it, if this is known.
    saved: Option<Watermark>,
}

/// The sweep under way.
#[derive(Debug)]
struct Pass {
    target: Offset,
    /// Every subscription up to here has been taken up.
    position: SubscriptionId,
    exhausted: bool,
    /// It has begun anew once already.
    renewed: bool,
    /// When it was seen to be under way for the first time.
    seen: Option<Instant>,
}

/// The next thing that a sweep finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// This subscription is owed something and waits for its host now.
    Wait(HostId, SubscriptionId, LastAttempt),
    /// The same for one that has failed before …
    Again(HostId, SubscriptionId),
    /// … which may have to wait until this moment.
    Later(Instant, SubscriptionId),
    /// As many have been looked at as may be.
    Interrupted,
    /// The next one may not be taken up for its host now.
    Busy(HostId),
    /// Nothing to take up until members move on.
    Blocked,
}

impl TopicState {
    /// As its watermark in the store has it.
    pub(super) fn new(topic: &Topic, mark: Watermark) -> Self {
        Self { saved: Some(mark), ..Self::at(topic, mark) }
    }

    /// One that the shard hears of through its first subscription: nothing before that is owed to anybody here. What the
    /// store has of it may be older.
    pub(super) fn fresh(topic: &Topic) -> Self {
        Self::at(topic, Watermark { done: topic.head, sweep: None })
    }

    fn at(topic: &Topic, mark: Watermark) -> Self {
        let pass = mark.sweep.map(|sweep| Pass {
            target: sweep.target,
            position: sweep.through,
            exhausted: false,
            renewed: false,
            seen: None,
        });
        Self {
            id: topic.id,
            head: topic.head,
            latest: topic.latest,
            posted: topic.posted,
            bytes: 0,
            done: mark.done,
            pass,
            slots: Slots::default(),
            members: BTreeMap::new(),
            attached: BTreeSet::new(),
            parked: BTreeSet::new(),
            changed: BTreeSet::new(),
            caught_up: Vec::new(),
            laggards: 0,
            held: Vec::new(),
            saved: None,
        }
    }

    /// Puts back a laggard of an earlier life, due at `due`.
    pub(super) fn restore(&mut self, laggard: &Laggard, due: Instant, failing: Option<Failing>) {
        let member = Member {
            cursor: laggard.cursor,
            attempts: laggard.attempts,
            // Of a topic that is fetched the row may be about versions of which nobody asks any more.
            tries: if self.latest.0 > 0 { 0 } else { laggard.attempts },
            faults: 0,
            answers: 0,
            failing,
            held_back: u16::from(laggard.class == FailureClass::Unsent),
            class: laggard.class,
            phase: Phase::Backoff(due),
            suspect: None,
            saved: true,
            joined: 0,
        };
        self.members.insert(laggard.subscription, member);
        let start = self.slots.get(laggard.subscription).map_or(Offset(0), |slot| slot.start);
        self.note_last(laggard.subscription, failing.is_none() && laggard.cursor > start);
    }

    /// To be called before the laggards of an earlier life come back: whoever it leaves without a record has got what sweeps were about.
    pub(super) fn assume_delivered(&mut self) {
        let (done, pass) = (self.done, self.pass.as_ref().map(|pass| (pass.position, pass.target)));
        for (id, slot) in self.slots.iter_mut() {
            let done = pass.filter(|(position, _)| id <= *position).map_or(done, |(_, target)| target);
            slot.was_delivered = slot.start < done;
        }
    }

    /// Notes whether the last attempt for a subscription was delivered.
    pub(super) fn note_last(&mut self, id: SubscriptionId, was_delivered: bool) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.was_delivered = was_delivered;
        }
    }

    /// The log has grown. A fetched version supersedes a sweep that was about older versions only: nobody needs these any
    /// more, and everybody needs the new one. Returns members that it wakes.
    pub(super) fn appended(
        &mut self,
        offset: Offset,
        newest_only: bool,
        bytes: u64,
    ) -> Vec<(HostId, SubscriptionId)> {
        self.head = self.head.max(offset);
        self.bytes = bytes;
        if !newest_only {
            self.posted = self.posted.max(offset);
            return Vec::new();
        }
        self.latest = self.latest.max(offset);
        self.begin_anew()
    }

    /// Lets a sweep that is about fetched versions only begin anew when there is a newer one. Once in each sweep: content that
    /// changes faster than a sweep takes must not keep the last in line waiting for ever.
    pub(super) fn begin_anew(&mut self) -> Vec<(HostId, SubscriptionId)> {
        match &mut self.pass {
            Some(pass) if !pass.renewed && self.done >= self.posted && pass.target < self.latest => {
                let (target, position) = (self.latest, SubscriptionId(0));
                *pass = Pass { target, position, exhausted: false, renewed: true, seen: pass.seen };
                self.wake_parked()
            }
            Some(_) | None => Vec::new(),
        }
    }

    fn wake_parked(&mut self) -> Vec<(HostId, SubscriptionId)> {
        let mut woken = Vec::new();
        for id in std::mem::take(&mut self.parked) {
            let (Some(slot), Some(member)) = (self.slots.get(id), self.members.get_mut(&id)) else {
                continue;
            };
            if member.phase != Phase::Parked {
                // The sweep finds it where it rests.
                self.parked.insert(id);
                continue;
            }
            member.phase = Phase::Waiting;
            // It is behind again, and the sweep will pass it by.
            self.changed.insert(id);
            woken.push((slot.host, id));
        }
        woken
    }

    /// Returns what it replaces.
    pub(super) fn put_slot(&mut self, id: SubscriptionId, slot: &Slot, host: HostId) -> Option<HotSlot> {
        let was_delivered =
            self.slots.get(id).is_some_and(|before| before.host == host && before.was_delivered);
        self.slots.insert(id, HotSlot { host, start: slot.start, lease_end: slot.lease_end, was_delivered })
    }

    pub(super) fn slot(&self, id: SubscriptionId) -> Option<&HotSlot> {
        self.slots.get(id)
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = (SubscriptionId, &HotSlot)> {
        self.slots.iter()
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn remove_slot(&mut self, id: SubscriptionId) -> Option<HotSlot> {
        self.remove_member(id);
        self.slots.remove(id)
    }

    pub(super) fn is_unused(&self) -> bool {
        self.slots.is_empty() && !self.is_unsaved()
    }

    /// Whether the next checkpoint has to look at it.
    pub(super) fn is_unsaved(&self) -> bool {
        !(self.attached.is_empty() && self.changed.is_empty() && self.caught_up.is_empty())
            || self.unsaved_mark().is_some()
    }

    /// The watermark, where the store has another one. Most topics wait for their turn, and their sweep says nothing yet: to
    /// write that again and again would cost more than all deliveries.
    fn unsaved_mark(&self) -> Option<Watermark> {
        let mark = self.watermark();
        let says =
            |mark: Watermark| (mark.done, mark.sweep.filter(|sweep| sweep.through > SubscriptionId(0)));
        self.saved.is_none_or(|saved| says(saved) != says(mark)).then_some(mark)
    }

    pub(super) fn member(&mut self, id: SubscriptionId) -> Option<&mut Member> {
        self.members.get_mut(&id)
    }

    /// The newest fetched version that the present sweep is about: nothing newer is sent, so that nobody gets ahead of it.
    pub(super) fn latest(&self) -> Offset {
        self.latest.min(self.goal())
    }

    /// Whether the sweep goes beyond this offset, in a topic of posted notifications only.
    pub(super) fn has_after(&self, offset: Offset) -> bool {
        self.latest == Offset(0) && offset < self.goal()
    }

    /// The newest posted notification.
    pub(super) fn posted(&self) -> Offset {
        self.posted
    }

    /// How large the newest body is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn head(&self) -> Offset {
        self.head
    }

    /// How the last attempt for a subscription ended.
    pub(super) fn last_attempt(&self, id: SubscriptionId) -> LastAttempt {
        if self.members.get(&id).is_some_and(Member::goes_again) {
            return LastAttempt::Failed;
        }
        self.slots.get(id).map_or(LastAttempt::None, HotSlot::last)
    }

    /// A subscription on its way, to look at.
    pub(super) fn member_of(&self, id: SubscriptionId) -> Option<&Member> {
        self.members.get(&id)
    }

    /// Through where a subscription is done that is not on its way.
    pub(super) fn done_of(&self, id: SubscriptionId) -> Offset {
        match &self.pass {
            Some(pass) if id <= pass.position => pass.target,
            Some(_) | None => self.done,
        }
    }

    /// The subscriptions after this one that are behind the watermark or the sweep, and those that fail.
    pub(super) fn late(&self, after: SubscriptionId) -> impl Iterator<Item = (SubscriptionId, &Member)> {
        let on_time = |id: &SubscriptionId| self.attached.contains(id) || self.parked.contains(id);
        let members = self.members.range((Bound::Excluded(after), Bound::Unbounded));
        members.filter(move |(id, _)| !on_time(id)).map(|(id, member)| (*id, member))
    }

    /// Puts a subscription aside until the topic is resumed.
    pub(super) fn hold(&mut self, id: SubscriptionId) {
        self.held.push(id);
    }

    /// Those who were put aside and still wait.
    pub(super) fn take_held(&mut self) -> Vec<(HostId, SubscriptionId)> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().filter_map(|id| Some((self.slots.get(id)?.host, id))).collect()
    }

    /// Ends the pauses of the members that are chosen by id and host; they wait for their hosts now. Returns them first, and then
    /// the chosen ones that waited already.
    pub(super) fn hurry(
        &mut self,
        chosen: impl Fn(SubscriptionId, HostId) -> bool,
    ) -> (Vec<(HostId, SubscriptionId)>, Vec<HostId>) {
        let (mut hurried, mut waiting) = (Vec::new(), Vec::new());
        for (id, member) in &mut self.members {
            let Some(host) = self.slots.get(*id).map(|slot| slot.host) else { continue };
            if !chosen(*id, host) {
                continue;
            }
            if matches!(member.phase, Phase::Backoff(_)) {
                member.phase = Phase::Waiting;
                self.changed.insert(*id);
                hurried.push((host, *id));
            } else if member.phase == Phase::Waiting {
                waiting.push(host);
            }
        }
        (hurried, waiting)
    }

    /// Ends the pause of this member, if it pauses; it waits for its host now.
    pub(super) fn hurry_one(&mut self, id: SubscriptionId) -> bool {
        let paused = self.members.get_mut(&id).filter(|member| matches!(member.phase, Phase::Backoff(_)));
        let Some(member) = paused else { return false };
        member.phase = Phase::Waiting;
        self.changed.insert(id);
        true
    }

    /// Lets a subscription have everything from this offset on once more, as a laggard that waits for its host; false when it
    /// has none of that yet.
    pub(super) fn rewind(&mut self, id: SubscriptionId, from: Offset) -> bool {
        let Some(slot) = self.slots.get(id) else { return false };
        let to = Offset(from.0.saturating_sub(1)).max(slot.start);
        let done = self.done_of(id);
        if self.members.get(&id).map_or(done, |member| member.cursor) <= to {
            return false;
        }
        self.parked.remove(&id);
        let member = self.members.entry(id).or_insert(Member::waiting(to, 0));
        member.rewind(to);
        self.detach(id);
        true
    }

    /// The same for all subscriptions: by a new sweep from there, so that it costs no record for each. Whoever a sweep under
    /// way has not reached yet gets nothing twice; the others may get a little more than was asked for. Returns whom it wakes.
    pub(super) fn rewind_all(&mut self, from: Offset) -> Vec<(HostId, SubscriptionId)> {
        let to = Offset(from.0.saturating_sub(1));
        let mut woken = Vec::new();
        for (id, member) in &mut self.members {
            let Some(slot) = self.slots.get(*id) else { continue };
            let to = to.max(slot.start);
            let parked = member.phase == Phase::Parked;
            if member.cursor > to || parked {
                member.rewind(member.cursor.min(to));
                woken.push((slot.host, *id));
            }
            self.changed.insert(*id);
        }
        self.attached.clear();
        self.parked.retain(|id| self.members.get(id).is_some_and(Member::is_resting));
        self.done = self.done.min(to);
        self.pass = None;
        self.begin();
        woken
    }

    /// How many subscriptions were behind or failing when this was asked last, and how many are now.
    pub(super) fn count_laggards(&mut self) -> (usize, usize) {
        let now = self.late_count();
        (std::mem::replace(&mut self.laggards, now), now)
    }

    /// How many subscriptions are behind or failing.
    pub(super) fn late_count(&self) -> usize {
        self.members.len() - self.attached.len() - self.parked.len()
    }

    /// How many subscriptions sweeps still have to serve, the next one too, and how many that were passed by are behind. Nobody is owed
    /// anything where both are zero.
    pub(super) fn owed(&self) -> (usize, usize) {
        let owes = |member: &Member| member.cursor < self.head;
        let behind = self.late(SubscriptionId(0)).filter(|(_, member)| owes(member)).count();
        if self.pass.is_none() {
            return (0, behind);
        }
        let on_time = self.attached.union(&self.parked).filter_map(|id| self.members.get(id));
        let idle = self.slots.iter().filter(|(id, slot)| {
            self.done_of(*id).max(slot.start) < self.head && !self.members.contains_key(id)
        });
        (on_time.filter(|member| owes(member)).count() + idle.count(), behind)
    }

    /// Begins the next sweep where one is due.
    fn begin(&mut self) {
        if self.pass.is_some() || self.head <= self.done {
            return;
        }
        if self.slots.is_empty() {
            self.done = self.head;
        } else {
            self.pass = Some(Pass {
                target: self.head,
                position: SubscriptionId(0),
                exhausted: false,
                renewed: false,
                seen: None,
            });
        }
    }

    /// How many subscriptions a sweep that was seen before this moment has not taken up yet.
    pub(super) fn not_taken_up_since(&mut self, moment: Instant, now: Instant) -> usize {
        let Some(pass) = self.pass.as_mut().filter(|pass| !pass.exhausted) else { return 0 };
        if *pass.seen.get_or_insert(now) > moment { 0 } else { self.slots.count_after(pass.position) }
    }

    /// Takes up the next subscription; at most `window` may be attached at once. `checkpoint` numbers the present interval, and each
    /// subscription that is looked at is one of the `steps`. Who may not be taken up for its host now is left for later.
    pub(super) fn step(
        &mut self,
        window: usize,
        checkpoint: u32,
        now: Instant,
        steps: &mut usize,
        mut may: impl FnMut(HostId) -> bool,
    ) -> Step {
        let Some(pass) = &mut self.pass else { return Step::Blocked };
        if self.attached.len() >= window {
            return Step::Blocked;
        }
        for (id, slot) in self.slots.after(pass.position) {
            if *steps == 0 {
                return Step::Interrupted;
            }
            *steps -= 1;
            let before = std::mem::replace(&mut pass.position, id);
            if slot.start >= pass.target {
                continue;
            }
            if let Some(member) = self.members.get_mut(&id) {
                let Phase::Resting(due) = member.phase else { continue };
                if member.cursor >= pass.target {
                    continue;
                }
                self.parked.remove(&id);
                if due > now {
                    member.phase = Phase::Backoff(due);
                    return Step::Later(due, id);
                }
                member.phase = Phase::Waiting;
                return Step::Again(slot.host, id);
            }
            // A few wait for their hosts even so: who is next must not hold up the others of the topic.
            if self.attached.len() >= FEW && !may(slot.host) {
                pass.position = before;
                return Step::Busy(slot.host);
            }
            self.members.insert(id, Member::waiting(self.done.max(slot.start), checkpoint));
            self.attached.insert(id);
            return Step::Wait(slot.host, id, slot.last());
        }
        pass.exhausted = true;
        Step::Blocked
    }

    /// Whether the sweep could take up more subscriptions.
    pub(super) fn has_more(&self, window: usize) -> bool {
        self.pass.as_ref().is_some_and(|pass| !pass.exhausted) && self.attached.len() < window
    }

    /// A member is done through its cursor; tells whether it has further to go.
    pub(super) fn advanced(&mut self, id: SubscriptionId, now: Instant) -> bool {
        let goal = self.goal();
        // Who finishes before the sweep has come by must not be taken up by it again. That is a laggard that has caught up, or
        // a member of a sweep that began anew for a newer version.
        let early = self.pass.as_ref().is_some_and(|pass| id > pass.position || !self.attached.contains(&id));
        let Some(member) = self.members.get_mut(&id) else { return false };
        if member.saved {
            self.changed.insert(id);
        }
        if member.cursor < goal {
            member.phase = Phase::Waiting;
            self.parked.remove(&id);
            return true;
        }
        // A sweep that began anew may have been forgotten in a crash, but not what it brought: the next one must not bring that again.
        let ahead = member.cursor > goal;
        if member.is_failing() || ahead {
            member.phase = Phase::Resting(now);
            if ahead {
                self.parked.insert(id);
            }
            self.detach(id);
        } else if early {
            member.phase = Phase::Parked;
            self.parked.insert(id);
            self.detach(id);
        } else {
            self.remove_member(id);
        }
        false
    }

    /// Lets the sweep go on without this member, which becomes a laggard.
    pub(super) fn detach(&mut self, id: SubscriptionId) {
        self.attached.remove(&id);
        self.changed.insert(id);
    }

    /// The same for all that hold the sweep back.
    pub(super) fn detach_all(&mut self) {
        self.changed.append(&mut self.attached);
    }

    /// Ends the sweep if nothing holds it back any more, and begins the next one if it is due.
    pub(super) fn settle(&mut self) {
        let Some(pass) = &self.pass else { return self.begin() };
        let target = pass.target;
        if !pass.exhausted || !(self.attached.is_empty() || self.head > target) {
            return;
        }
        // The next sweep is due: who is still on the way goes on as a laggard instead of holding up everybody else.
        self.detach_all();
        self.done = target;
        self.pass = None;
        for id in std::mem::take(&mut self.parked) {
            match self.members.get(&id) {
                Some(member) if member.cursor > target => drop(self.parked.insert(id)),
                Some(member) if member.is_failing() => {}
                Some(_) | None => self.remove_member(id),
            }
        }
        self.begin();
    }

    /// What has changed since the last checkpoint. Members that were attached during the whole interval are detached.
    pub(super) fn checkpoint(&mut self, number: u32, now: Instant, wall: DateTime) -> TopicCheckpoint {
        let slow: Vec<_> = self
            .attached
            .iter()
            .copied()
            .filter(|id| self.members.get(id).is_some_and(|m| m.joined < number))
            .collect();
        for id in slow {
            self.detach(id);
        }
        let through = self.watermark().sweep.map_or(SubscriptionId(u64::MAX), |sweep| sweep.through);
        let mut laggards = Vec::new();
        for id in std::mem::take(&mut self.changed) {
            let Some(member) = self.members.get_mut(&id) else { continue };
            // Who has caught up needs a record only where the sweep has not come by yet.
            let implied = member.phase == Phase::Parked && !member.saved && id <= through;
            if implied || self.attached.contains(&id) {
                continue;
            }
            member.saved = true;
            laggards.push(member.laggard(self.id, id, now, wall));
        }
        let watermark = self.unsaved_mark();
        self.saved = watermark.or(self.saved);
        // Who caught up and fell behind again since the last checkpoint has a new record, which must stay.
        let mut caught_up = std::mem::take(&mut self.caught_up);
        caught_up.retain(|id| !self.members.get(id).is_some_and(|member| member.saved));
        self.give_back();
        TopicCheckpoint { watermark, laggards, caught_up }
    }

    fn watermark(&self) -> Watermark {
        let sweep = self.pass.as_ref().map(|pass| Sweep {
            target: pass.target,
            // Members may be ahead of the place where a sweep has begun anew.
            through: self
                .attached
                .first()
                .map_or(pass.position, |id| pass.position.min(SubscriptionId(id.0 - 1))),
        });
        Watermark { done: self.done, sweep }
    }

    /// Where members have to get.
    pub(super) fn goal(&self) -> Offset {
        self.pass.as_ref().map_or(self.done, |pass| pass.target)
    }

    /// A tree that was emptied keeps its last node: of members more than a kilobyte, and in each shard there may be ten thousand topics.
    fn give_back(&mut self) {
        if self.members.is_empty() {
            self.members = BTreeMap::new();
        }
        for ids in [&mut self.attached, &mut self.parked] {
            if ids.is_empty() {
                *ids = BTreeSet::new();
            }
        }
    }

    fn remove_member(&mut self, id: SubscriptionId) {
        self.attached.remove(&id);
        self.parked.remove(&id);
        self.changed.remove(&id);
        if self.members.remove(&id).is_some_and(|member| member.saved) {
            self.caught_up.push(id);
        }
    }
}

/// What one topic adds to a checkpoint.
#[derive(Debug)]
pub(super) struct TopicCheckpoint {
    pub(super) watermark: Option<Watermark>,
    pub(super) laggards: Vec<Laggard>,
    pub(super) caught_up: Vec<SubscriptionId>,
}
