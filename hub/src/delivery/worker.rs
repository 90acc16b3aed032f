//! One core's share of delivery: a loop that feeds its shards' machines, makes their requests and saves their progress.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{Future, FutureExt, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt};
use resync_core::websub::NotificationId;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tracing::{error, info, warn};

use super::attempt::{Attempt, Finished};
use super::counters::Counters;
use super::courier::Courier;
use super::hosts::HostId;
use super::lanes::{Lane, Lanes};
use super::losses::Losses;
use super::operator::Order;
use super::shard::{Machine, Now};
use crate::egress::ConfirmedAddresses;
use crate::store::{
    Checkpoint, Ended, Epoch, Shard, Skip, Slot, Store, StoreError, StoreEvent, SubscriptionId, TopicId,
};

/// Half of the interval within which a crash may repeat deliveries: what a crash repeats is younger than two of these.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(125);
/// The same bound in deliveries.
const CHECKPOINT_AFTER: u64 = 2_048;
/// The pause after a save that failed.
const SAVE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a save may take before no more requests are started: what is delivered meanwhile may be delivered again.
const SLOW_SAVE: Duration = Duration::from_secs(1);
/// Subscriptions that are ended with one save. When many leases are over at once, publishers need room in the store too; nothing
/// is sent to those who wait for their end.
const ENDS: usize = 512;
/// How often a worker that stops tries to save what is left.
const LAST_SAVES: usize = 5;
/// The pause before it does so after one that failed.
const LAST_PAUSE: Duration = Duration::from_millis(300);
/// How often idle subscriptions are looked through for leases that are over, and losses are told.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often it is counted what is past due.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// How often places that are kept for networks with few requests are offered to the shards, while there are no others.
const SPARE_EVERY: Duration = Duration::from_millis(1);
/// Events and answers taken in at once before new requests are made.
const BATCH: usize = 256;

/// A shard that this worker owns.
pub(super) struct Owned {
    pub(super) shard: Shard,
    pub(super) epoch: Epoch,
    pub(super) machine: Machine,
}

/// Something that the store has to take before it is forgotten here.
enum Save {
    Checkpoint(Shard, Epoch, Checkpoint),
    End(Shard, TopicId, SubscriptionId, Ended),
}

/// A request under way.
struct UnderWay {
    index: usize,
    attempt: Attempt,
    carried: Pin<Box<dyn Future<Output = (Finished, Option<IpAddr>)>>>,
    waker: Option<Waker>,
}

/// What became of one.
struct Carried {
    index: usize,
    attempt: Attempt,
    finished: Finished,
    /// Whom it was sent to, if it got that far.
    reached: Option<IpAddr>,
}

/// The wish that nothing is under way to a subscription that has ended.
#[derive(Debug)]
pub(super) struct Halt {
    pub(super) shard: Shard,
    pub(super) subscription: SubscriptionId,
    pub(super) done: oneshot::Sender<()>,
}

impl Future for UnderWay {
    type Output = Carried;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.carried.as_mut().poll(context) {
            Poll::Ready((finished, reached)) => {
                let (index, attempt) = (self.index, self.attempt);
                Poll::Ready(Carried { index, attempt, finished, reached })
            }
            Poll::Pending => {
                self.waker.get_or_insert_with(|| context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl UnderWay {
    /// Drops the request, which closes its connection, or its stream where it shares one.
    fn halt(&mut self) {
        self.carried = Box::pin(ready((Finished::Vanished, None)));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

type Saving = Pin<Box<dyn Future<Output = Vec<(Save, Result<(), StoreError>)>>>>;

pub(super) struct Worker {
    store: Arc<dyn Store>,
    courier: Rc<Courier>,
    confirmed: ConfirmedAddresses,
    counters: Arc<Counters>,
    lanes: Lanes,
    /// The requests under way that were told last.
    told: [usize; 3],
    owned: Vec<Owned>,
    turn: usize,
    in_flight: FuturesUnordered<UnderWay>,
    unsaved: VecDeque<Save>,
    /// Orders that were carried out and are not durable yet; the second ones will be with the save under way.
    carried_out: Vec<(oneshot::Sender<usize>, usize)>,
    being_saved: Vec<(oneshot::Sender<usize>, usize)>,
    saving: Option<Saving>,
    losses: Losses,
    delivered_since_save: u64,
    save_began: Instant,
    /// The last checkpoint failed: what is delivered now would be delivered again after a restart, so nothing is.
    cannot_save: bool,
    /// When the shards were asked last who may have one of the last places.
    spared: std::time::Instant,
}

impl Worker {
    pub(super) fn new(
        store: Arc<dyn Store>,
        courier: Courier,
        confirmed: ConfirmedAddresses,
        counters: Arc<Counters>,
        max_in_flight: usize,
        owned: Vec<Owned>,
    ) -> Self {
        Self {
            store,
            courier: Rc::new(courier),
            confirmed,
            counters,
            lanes: Lanes::new(max_in_flight),
            told: [0; 3],
            owned,
            turn: 0,
            in_flight: FuturesUnordered::new(),
            unsaved: VecDeque::new(),
            carried_out: Vec::new(),
            being_saved: Vec::new(),
            saving: None,
            losses: Losses::default(),
            delivered_since_save: 0,
            save_began: Instant::now(),
            cannot_save: false,
            spared: std::time::Instant::now(),
        }
    }

    /// Delivers until `stop` turns true; then finishes what is in flight within `grace` and saves the progress.
    pub(super) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<StoreEvent>,
        mut orders: mpsc::UnboundedReceiver<Order>,
        mut halts: mpsc::UnboundedReceiver<Halt>,
        mut confirmations: mpsc::UnboundedReceiver<(Shard, HostId)>,
        mut stop: watch::Receiver<bool>,
        grace: Duration,
    ) {
        let mut checkpoints = interval(CHECKPOINT_EVERY);
        checkpoints.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = interval(LOOK_EVERY);
        let mut counts = interval(COUNT_EVERY);
        while !*stop.borrow() {
            self.start_requests();
            // A timer that is due and may not start anything would only keep the loop turning.
            let timer = if self.may_start() { self.next_timer() } else { None };
            tokio::select! {
                Some(event) = events.recv() => self.take_events(event, &mut events),
                Some(order) = orders.recv() => self.take_order(order, &mut events),
                Some(carried) = self.in_flight.next(), if !self.in_flight.is_empty() => self.take_answers(carried),
                Some(halt) = halts.recv() => self.halt(halt, &mut events),
                Some((shard, host)) = confirmations.recv() => self.release(shard, host),
                results = run_or_wait(&mut self.saving) => self.take_saved(results),
                turn = self.lanes.pressure.looked() => self.lanes.pressure.take(turn),
                () = wait_until(timer) => {}
                _ = checkpoints.tick() => {
                    self.tell_in_flight();
                    self.save_progress();
                }
                _ = looks.tick() => self.look(),
                _ = counts.tick() => self.count_past_due(),
                () = yield_now(), if self.is_interrupted() => {}
                _ = stop.changed() => {}
            }
            if self.delivered_since_save >= CHECKPOINT_AFTER {
                self.save_progress();
            }
        }
        self.finish(grace).await;
    }

    async fn finish(&mut self, grace: Duration) {
        self.save_all(grace).await;
        self.losses.tell();
    }

    async fn save_all(&mut self, grace: Duration) {
        let drained = timeout(grace, async {
            while let Some(carried) = self.in_flight.next().await {
                self.take_answers(carried);
            }
        });
        if drained.await.is_err() {
            warn!(
                in_flight = self.in_flight.len(),
                "deliveries still in flight at shutdown: they will be repeated"
            );
        }
        for _ in 0..LAST_SAVES {
            if let Some(saving) = self.saving.take() {
                let results = saving.await;
                self.take_saved(results);
            }
            // What had failed before goes first, and alone: then there is one more round to come.
            let last = self.unsaved.is_empty();
            self.owned.iter_mut().for_each(|owned| owned.machine.let_go());
            self.start_saving();
            let Some(saving) = self.saving.take() else { return };
            let results = saving.await;
            self.take_saved(results);
            if last && self.unsaved.is_empty() {
                return;
            }
            if self.cannot_save {
                sleep(LAST_PAUSE).await;
            }
        }
        warn!("the last progress of delivery is not saved: some deliveries will be repeated");
    }

    fn take_events(&mut self, first: StoreEvent, events: &mut mpsc::UnboundedReceiver<StoreEvent>) {
        let more = std::iter::from_fn(|| events.try_recv().ok()).take(BATCH);
        self.apply(std::iter::once(first).chain(more));
    }

    /// Takes in everything that was durable before.
    fn catch_up(&mut self, events: &mut mpsc::UnboundedReceiver<StoreEvent>) {
        self.apply(std::iter::from_fn(|| events.try_recv().ok()));
    }

    fn apply(&mut self, events: impl Iterator<Item = StoreEvent>) {
        for event in events {
            if let StoreEvent::Subscribed { shard, slot, .. } = &event {
                self.note(*shard, slot);
            }
            self.owned.iter_mut().for_each(|owned| owned.machine.apply(&event));
        }
        for owned in &self.owned {
            let machine = &owned.machine;
            self.counters.set_subscriptions(owned.shard, machine.subscriptions(), machine.hosts());
        }
    }

    /// What was confirmed is known to all once the worker of its shard has noted it.
    fn note(&self, shard: Shard, Slot { origin, address, lease_end, .. }: &Slot) {
        if self.owned.iter().any(|owned| owned.shard == shard) {
            self.confirmed.remember(origin, *address, *lease_end);
        }
    }

    /// A host has confirmed where its name leads now: what is held back for it goes out.
    fn release(&mut self, shard: Shard, host: HostId) {
        if let Some(owned) = self.owned.iter_mut().find(|owned| owned.shard == shard) {
            owned.machine.confirmed(host);
        }
    }

    /// The subscription has ended, which an event has told by now: after this nothing is sent to it, and nothing is under way.
    fn halt(&mut self, halt: Halt, events: &mut mpsc::UnboundedReceiver<StoreEvent>) {
        self.catch_up(events);
        let index = self.owned.iter().position(|owned| owned.shard == halt.shard);
        for under_way in &mut self.in_flight {
            if Some(under_way.index) == index && under_way.attempt.subscription == halt.subscription {
                under_way.halt();
            }
        }
        // Whoever waits no longer needs no answer.
        let _ = halt.done.send(());
    }

    fn take_order(&mut self, order: Order, events: &mut mpsc::UnboundedReceiver<StoreEvent>) {
        if matches!(order, Order::Owed(_)) {
            self.catch_up(events);
        }
        let now = Now::read();
        let mut machines = self.owned.iter().map(|owned| &owned.machine);
        // Whoever has asked and gone does not want to know.
        match order {
            Order::Answer(reply) => {
                let _ = reply.send(());
            }
            Order::Late((after, limit), reply) => {
                let _ = reply.send(machines.flat_map(|m| m.late(after, limit, now.monotonic)).collect());
            }
            Order::Hosts(reply) => {
                let _ = reply.send(machines.flat_map(|m| m.open_hosts(now.monotonic)).collect());
            }
            Order::KnowsHost(origin, reply) => {
                let _ = reply.send(machines.any(|m| m.knows_host(&origin)));
            }
            Order::TopicOf(id, reply) => {
                let _ = reply.send(machines.find_map(|m| m.topic_of(id)));
            }
            Order::Subscriptions(topic, reply) => {
                let _ = reply.send(machines.map(|m| m.subscriptions_of(topic)).sum());
            }
            Order::Topic(topic, reply) => {
                let _ = reply.send(machines.map(|m| m.topic_standing(topic)).sum());
            }
            Order::Progress(topic, id, reply) => {
                let _ = reply.send(machines.find_map(|m| m.progress(topic, id, now.monotonic)));
            }
            Order::Owed(reply) => {
                let _ = reply.send(machines.map(Machine::owed).sum());
            }
            Order::Act(act, reply) => {
                let concerned = self.owned.iter_mut().map(|owned| owned.machine.act(&act, now)).sum();
                self.carried_out.push((reply, concerned));
            }
        }
    }

    fn take_answers(&mut self, first: Carried) {
        let now = Now::read();
        let mut taken = 0;
        let mut next = Some(first);
        while let Some(Carried { index, attempt, finished, reached }) = next {
            self.delivered_since_save += 1;
            self.lanes.release(attempt.place.lane, attempt.place.busy_from());
            if let Some(owned) = self.owned.get_mut(index) {
                owned.machine.reached(attempt.host, reached);
                owned.machine.finished(&attempt, finished, now);
            }
            taken += 1;
            next = if taken < BATCH { self.in_flight.next().now_or_never().flatten() } else { None };
        }
    }

    /// Makes as many requests as may be in flight, the shards in turn.
    fn start_requests(&mut self) {
        let now = Now::read();
        self.lanes.age(now.monotonic);
        let mut idle = 0;
        // Asking for each answer who may have one of the last places would be in vain nearly always.
        let spares = now.monotonic.saturating_duration_since(self.spared) >= SPARE_EVERY;
        while idle < self.owned.len() && self.is_saving_in_time() {
            let open = self.lanes.open();
            if !(open.any() || spares && open.spare() > 0) {
                break;
            }
            if !open.any() {
                self.spared = now.monotonic;
            }
            self.turn = (self.turn + 1) % self.owned.len();
            let index = self.turn;
            let owned = &mut self.owned[index];
            match owned.machine.next(now, open) {
                None => idle += 1,
                Some(attempt) => {
                    idle = 0;
                    self.lanes.take(attempt.place.lane, attempt.place.busy_from());
                    let (courier, shard) = (Rc::clone(&self.courier), owned.shard);
                    let carried = Box::pin(async move { courier.carry(shard, &attempt).await });
                    self.in_flight.push(UnderWay { index, attempt, carried, waker: None });
                }
            }
        }
        let open = self.lanes.open();
        let repetitions = self.lanes.holds_back_repetitions(open)
            && self.owned.iter().any(|owned| owned.machine.has_repetitions());
        if repetitions || !open.has(Lane::First) {
            self.lanes.pressure.missed();
        }
    }

    /// Whether there is a place for another request, and progress is being saved fast enough to make it.
    fn may_start(&self) -> bool {
        self.lanes.open().any() && self.is_saving_in_time()
    }

    fn is_saving_in_time(&self) -> bool {
        let slow = self.saving.is_some()
            && (self.delivered_since_save >= CHECKPOINT_AFTER || self.save_began.elapsed() > SLOW_SAVE);
        !self.cannot_save && !slow
    }

    fn next_timer(&self) -> Option<Instant> {
        self.owned.iter().filter_map(|owned| owned.machine.next_timer()).min().map(Instant::from_std)
    }

    fn tell_in_flight(&mut self) {
        let taken = self.lanes.all_taken();
        self.counters.move_in_flight(self.told, taken);
        self.told = taken;
    }

    fn count_past_due(&mut self) {
        let now = Now::read().monotonic;
        for owned in &mut self.owned {
            self.counters.set_past_due(owned.shard, owned.machine.past_due(now));
        }
    }

    /// Whether a shard has more to look at before it knows what may be started.
    fn is_interrupted(&self) -> bool {
        self.may_start() && self.owned.iter().any(|owned| owned.machine.is_interrupted())
    }

    fn look(&mut self) {
        self.losses.tell();
        if self.cannot_save {
            return;
        }
        let now = Now::read();
        self.owned.iter_mut().for_each(|owned| owned.machine.expire(now));
    }

    /// Starts saving what has moved, unless a save is under way or has just failed.
    fn save_progress(&mut self) {
        let pausing = self.cannot_save && self.save_began.elapsed() < SAVE_AGAIN_AFTER;
        if self.saving.is_none() && !pausing {
            self.start_saving();
        }
    }

    fn start_saving(&mut self) {
        self.save_began = Instant::now();
        self.delivered_since_save = 0;
        let now = Now::read();
        let behind = self.unsaved.iter().any(|save| matches!(save, Save::Checkpoint(..)));
        if !behind {
            self.being_saved.append(&mut self.carried_out);
        }
        let ends = self.unsaved.iter().filter(|save| matches!(save, Save::End(..))).count();
        let mut ends_left = ENDS.saturating_sub(ends);
        for owned in &mut self.owned {
            // A checkpoint that failed goes first and alone: a newer one beside it might be written before it.
            let waits = self
                .unsaved
                .iter()
                .any(|save| matches!(save, Save::Checkpoint(shard, ..) if *shard == owned.shard));
            if owned.machine.has_progress() && !waits {
                let checkpoint = owned.machine.checkpoint(now);
                if !checkpoint.is_empty() {
                    self.unsaved.push_back(Save::Checkpoint(owned.shard, owned.epoch, checkpoint));
                }
            }
            let ended = owned.machine.take_ended(ends_left);
            ends_left -= ended.len();
            self.unsaved
                .extend(ended.into_iter().map(|(topic, id, why)| Save::End(owned.shard, topic, id, why)));
            for (origin, pause) in owned.machine.take_opened() {
                warn!(origin, pause = pause.as_secs(), "host in trouble: left alone for a while");
            }
            let counts = owned.machine.take_counts();
            self.counters.add(counts);
        }
        if self.unsaved.is_empty() {
            self.all_saved();
        } else {
            let store = Arc::clone(&self.store);
            let saves = std::mem::take(&mut self.unsaved);
            self.saving =
                Some(Box::pin(
                    async move { join_all(saves.into_iter().map(|save| put(&store, save))).await },
                ));
        }
    }

    fn take_saved(&mut self, results: Vec<(Save, Result<(), StoreError>)>) {
        self.saving = None;
        self.cannot_save = false;
        let mut again = VecDeque::new();
        for (save, result) in results {
            match result {
                Ok(()) => self.saved(&save),
                Err(StoreError::Fenced) => self.lose(&save),
                // Trying again mends no damage, and must not hold up everybody else.
                Err(error @ StoreError::Damaged { .. }) if matches!(save, Save::End(..)) => {
                    error!(%error, "the end of a subscription cannot be saved and is dropped");
                }
                Err(error) => {
                    error!(%error, "progress of delivery not saved: delivery waits until it is");
                    self.cannot_save |= matches!(save, Save::Checkpoint(..));
                    again.push_back(save);
                }
            }
        }
        again.append(&mut self.unsaved);
        self.unsaved = again;
        if self.unsaved.is_empty() {
            self.all_saved();
        }
    }

    /// What was done before the last save began is durable.
    fn all_saved(&mut self) {
        let until = self.save_began.into_std();
        self.owned.iter().for_each(|owned| self.counters.set_saved(owned.shard, until));
        for (reply, concerned) in self.being_saved.drain(..) {
            let _ = reply.send(concerned);
        }
    }

    fn saved(&mut self, save: &Save) {
        match save {
            Save::Checkpoint(shard, _, checkpoint) => {
                for Skip { topic, subscription, offset, class, status, .. } in &checkpoint.skips {
                    let id = NotificationId { topic: topic.0, offset: offset.0 };
                    warn!(%id, subscription = subscription.0, ?class, status, "notification given up for this subscription");
                }
                checkpoint.gaps.iter().for_each(|gap| self.losses.add(gap));
                if let Some(owned) = self.owned.iter().find(|owned| owned.shard == *shard) {
                    self.counters.set_gauges(*shard, owned.machine.laggards(), owned.machine.open_breakers());
                }
            }
            Save::End(_, topic, id, why) => {
                info!(topic = format!("{:016x}", topic.0), subscription = id.0, ?why, "subscription over");
            }
        }
    }

    /// Another owner has taken the shard over: whatever is decided here counts no more.
    fn lose(&mut self, save: &Save) {
        let (Save::Checkpoint(shard, ..) | Save::End(shard, ..)) = save;
        error!(shard = shard.0, "this shard has a newer owner: delivery for it stops here");
        if let Some(owned) = self.owned.iter_mut().find(|owned| owned.shard == *shard) {
            owned.machine.retire();
            self.counters.set_subscriptions(owned.shard, 0, 0);
        }
    }
}

async fn put(store: &Arc<dyn Store>, save: Save) -> (Save, Result<(), StoreError>) {
    let result = match &save {
        Save::Checkpoint(shard, epoch, checkpoint) => {
            store.checkpoint(*shard, *epoch, checkpoint.clone()).await
        }
        Save::End(shard, topic, id, why) => store.end(*shard, *topic, *id, *why).await,
    };
    (save, result)
}

async fn run_or_wait(saving: &mut Option<Saving>) -> Vec<(Save, Result<(), StoreError>)> {
    match saving {
        Some(saving) => saving.await,
        None => pending().await,
    }
}

async fn wait_until(timer: Option<Instant>) {
    match timer {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}
