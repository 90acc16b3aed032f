//! One core's share of delivery: a loop that feeds its shards' schedulers, makes their requests and saves their progress.

use std::collections::BTreeSet;
use std::future::pending;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::coop::unconstrained;
use tokio::task::yield_now;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tracing::warn;

use super::checkpoints::{CHECKPOINT_EVERY, Checkpoints};
use super::counters::Counters;
use super::expected::Expected;
use super::letting_go::{LetGo, Step};
use super::owned_shard::{OwnedShard, Ownership};
use super::running_request::{Completed, RunningRequest};
use super::send::Sender;
use super::shards::Shards;
use super::worker_load::LoadMeter;
use super::workers::{WorkerMessage, Workers};
use crate::delivery::scheduler::{Lane, LaneLimiter, Now};
use crate::egress::ConfirmedAddresses;
use crate::store::{Shard, Store, StoreEvent, SubscriptionId, SubscriptionSummary, WallClock};
use crate::subscriptions::NotOwned;

/// How often leases that are over are looked for, and losses are logged.
const EXPIRE_EVERY: Duration = Duration::from_secs(30);
/// How often what is past due is counted.
const COUNT_EVERY: Duration = Duration::from_secs(10);
/// How often subscriptions are counted. As soon as leases are over these are fewer, without an event that says so.
const GAUGE_EVERY: Duration = Duration::from_secs(1);
/// How often permits that are reserved for networks with few requests are offered to the shards, while there are no others.
const SPARE_EVERY: Duration = Duration::from_millis(1);
/// Events and answers taken in at once before new requests are made.
const BATCH: usize = 256;

/// How long after the beginning of a stop deliveries may be in flight; what is cut off is repeated at the next start.
const GRACE: Duration = Duration::from_secs(8);

/// What reaches a worker.
pub(crate) struct Inputs {
    pub(crate) events: mpsc::UnboundedReceiver<StoreEvent>,
    pub(crate) messages: mpsc::UnboundedReceiver<WorkerMessage>,
    /// Since when delivery stops. Shards may be handed over first.
    pub(crate) stop: watch::Receiver<Option<std::time::Instant>>,
}

pub(super) struct Worker {
    sender: Rc<Sender>,
    clock: WallClock,
    confirmed: ConfirmedAddresses,
    counters: Arc<Counters>,
    workers: Workers,
    limiter: LaneLimiter,
    load: LoadMeter,
    /// The requests under way as last reported.
    reported: [usize; 3],
    shards: Shards,
    expected: Expected,
    in_flight: FuturesUnordered<RunningRequest>,
    checkpoints: Checkpoints,
    /// When the shards were offered the reserved permits last.
    spared: std::time::Instant,
}

impl Worker {
    /// One of these workers, which has no shard yet.
    pub(super) fn new(
        store: Arc<dyn Store>,
        sender: Sender,
        confirmed: ConfirmedAddresses,
        counters: Arc<Counters>,
        max_in_flight: usize,
        workers: Workers,
    ) -> Self {
        let now = std::time::Instant::now();
        Self {
            sender: Rc::new(sender),
            clock: store.clock().clone(),
            confirmed,
            counters,
            limiter: LaneLimiter::new(max_in_flight, now),
            load: LoadMeter::default(),
            reported: [0; 3],
            shards: Shards::default(),
            expected: Expected::default(),
            in_flight: FuturesUnordered::new(),
            checkpoints: Checkpoints::new(store, workers.clone()),
            workers,
            spared: now,
        }
    }

    /// Delivers until it shall stop; then finishes what is in flight within `longest`, saves the progress and releases its shards.
    pub(super) async fn run(mut self, inputs: Inputs, longest: Duration) {
        let Inputs { mut events, mut messages, mut stop } = inputs;
        let mut checkpoints = interval(CHECKPOINT_EVERY);
        checkpoints.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut expiries = interval(EXPIRE_EVERY);
        let mut counts = interval(COUNT_EVERY);
        let mut gauges = interval(GAUGE_EVERY);
        gauges.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.borrow().is_none() {
            self.start_requests();
            // A timer that is due and may not start anything would only keep the loop turning.
            let timer = if self.may_start() { self.next_timer() } else { None };
            tokio::select! {
                Some(event) = events.recv() => self.apply_events(event, &mut events),
                Some(message) = messages.recv() => self.handle_message(message, &mut events),
                Some(completed) = unconstrained(self.in_flight.next()), if !self.in_flight.is_empty() => self.finish_requests(completed),
                results = self.checkpoints.results() => self.checkpoints.take(results, &mut self.shards, &self.counters),
                load = self.load.measured() => self.limiter.pressure.adjust_to(load),
                () = wait_until(timer) => {}
                _ = checkpoints.tick() => {
                    self.report_in_flight();
                    self.save();
                }
                _ = expiries.tick() => self.expire_leases(),
                _ = counts.tick() => self.count_past_due(),
                _ = gauges.tick() => self.count_subscriptions(),
                () = yield_now(), if self.is_interrupted() => {}
                changed = stop.changed() => if changed.is_err() {
                    // Whoever started the worker is gone without a word.
                    break;
                }
            }
            if self.checkpoints.is_due() {
                self.save();
            }
            self.go_on_letting_go();
        }
        let passed = stop.borrow().map_or(Duration::ZERO, |since| since.elapsed());
        self.finish(longest.min(GRACE.saturating_sub(passed))).await;
        self.release(messages).await;
    }

    fn now(&self) -> Now {
        Now::read(&self.clock)
    }

    async fn finish(&mut self, grace: Duration) {
        let drained = timeout(grace, async {
            while let Some(completed) = self.in_flight.next().await {
                self.finish_requests(completed);
            }
        });
        if drained.await.is_err() {
            let in_flight = self.in_flight.len();
            warn!(in_flight, "deliveries still in flight at shutdown: they will be repeated");
            // Before anybody else may begin them.
            self.in_flight.clear();
        }
        self.checkpoints.save_all(&mut self.shards, &self.counters).await;
        for of in self.shards.leaving() {
            self.give_up(of, self.shards.ends(of, self.checkpoints.have(of)));
        }
        self.checkpoints.log_losses();
    }

    /// Gives all shards up, also those that were brought at last. From now on nothing reaches this worker, and who waits for it need not.
    async fn release(&mut self, mut messages: mpsc::UnboundedReceiver<WorkerMessage>) {
        messages.close();
        while let Some(message) = messages.recv().await {
            if let WorkerMessage::TakeOver(owned) = message {
                self.shards.take_over(*owned);
            }
        }
        self.checkpoints.release(self.shards.owned()).await;
    }

    fn save(&mut self) {
        self.checkpoints.save(&mut self.shards, &self.counters);
    }

    fn apply_events(&mut self, first: StoreEvent, events: &mut mpsc::UnboundedReceiver<StoreEvent>) {
        let more = std::iter::from_fn(|| events.try_recv().ok()).take(BATCH);
        self.apply(std::iter::once(first).chain(more));
    }

    /// Takes in everything that was durable before.
    fn catch_up(&mut self, events: &mut mpsc::UnboundedReceiver<StoreEvent>) {
        self.apply(std::iter::from_fn(|| events.try_recv().ok()));
    }

    fn apply(&mut self, events: impl Iterator<Item = StoreEvent>) {
        let mut ended = BTreeSet::new();
        for event in events {
            match &event {
                StoreEvent::Subscribed { shard, slot, .. } => self.note(*shard, slot),
                StoreEvent::Unsubscribed { shard, id, .. } => drop(ended.insert((*shard, *id))),
                StoreEvent::Resync => {
                    let all = self.shards.owned().iter().map(|owned| owned.ownership.shard);
                    all.collect::<Vec<_>>().into_iter().for_each(|shard| self.have_read_again(shard));
                }
                _ => {}
            }
            self.shards.schedulers().for_each(|scheduler| scheduler.apply(&event));
            self.expected.keep(&event);
        }
        self.cancel_requests(&ended);
    }

    /// These subscriptions have ended. What is under way to one of them may still wait for its name or for a connection: it would be sent after
    /// the end, seconds later.
    fn cancel_requests(&mut self, ended: &BTreeSet<(Shard, SubscriptionId)>) {
        if ended.is_empty() {
            return;
        }
        for request in &mut self.in_flight {
            if ended.contains(&(request.of.shard, request.attempt.subscription)) {
                request.cancel();
            }
        }
    }

    /// Something that has happened in this shard may never be told: nothing more is started there, and as soon as what is under way has ended
    /// the shard is taken over anew.
    fn have_read_again(&mut self, shard: Shard) {
        let (reply, given_up) = oneshot::channel();
        self.shards.let_go(shard, std::time::Instant::now(), reply);
        self.workers.give_up((shard, given_up));
    }

    /// Takes over a shard that was expected.
    fn take_over(&mut self, mut owned: OwnedShard) {
        let shard = owned.ownership.shard;
        let kept = self.expected.end(shard);
        for event in &kept {
            owned.scheduler.apply(event);
        }
        self.shards.take_over(owned);
        // It may have been read before that.
        if kept.contains(&StoreEvent::Resync) {
            self.have_read_again(shard);
        }
    }

    /// Goes on with the shards that are let go. The timer of the checkpoints wakes the worker often enough for that.
    fn go_on_letting_go(&mut self) {
        for of in self.shards.leaving() {
            match self.shards.step(of, std::time::Instant::now(), self.checkpoints.have(of)) {
                Step::Wait => {}
                Step::Cut => self.cut(of),
                Step::Save => self.save(),
                Step::GiveUp(how) => self.give_up(of, how),
            }
        }
    }

    /// Ends the requests of a shard: its next owner makes them again.
    fn cut(&mut self, of: Ownership) {
        self.in_flight.iter_mut().filter(|request| request.of == of).for_each(RunningRequest::cut);
    }

    fn give_up(&mut self, of: Ownership, how: LetGo) {
        if how == LetGo::Unsaved {
            warn!(
                shard = of.shard.0,
                "the last progress of this shard is not saved: some deliveries will be repeated"
            );
            self.checkpoints.forget(of);
        }
        if let Some(given_up) = self.shards.give_up(of, how) {
            given_up.report(&self.counters, &self.workers);
        }
    }

    /// What was confirmed is known to all once the worker of its shard has noted it.
    fn note(
        &self,
        shard: Shard,
        SubscriptionSummary { origin, address, lease_end, .. }: &SubscriptionSummary,
    ) {
        if self.shards.has(shard) || self.expected.contains(shard) {
            self.confirmed.remember(origin, *address, *lease_end);
        }
    }

    /// The subscription has ended, and an event has said so by now: after this nothing is sent to it from here, and nothing is under way.
    /// That is the whole truth only where nobody else delivers for its shard.
    fn cancel(
        &mut self,
        shard: Shard,
        subscription: SubscriptionId,
        events: &mut mpsc::UnboundedReceiver<StoreEvent>,
    ) -> Result<(), NotOwned> {
        self.catch_up(events);
        // Another hub's order may come before the event.
        self.cancel_requests(&BTreeSet::from([(shard, subscription)]));
        // One that is expected hears of the end before it starts anything, but may be another hub's still.
        if self.shards.has(shard) { Ok(()) } else { Err(NotOwned(shard)) }
    }

    fn handle_message(&mut self, message: WorkerMessage, events: &mut mpsc::UnboundedReceiver<StoreEvent>) {
        match message {
            WorkerMessage::Query(query) => query(self.shards.owned(), self.now()),
            WorkerMessage::UpToDateQuery(query) => {
                self.catch_up(events);
                query(self.shards.owned(), self.now());
            }
            WorkerMessage::Command(command, of, reply) => {
                let now = self.now();
                let is_meant = |owned: &&mut OwnedShard| of.is_none_or(|of| of == owned.ownership.shard);
                let execute =
                    |owned: &mut OwnedShard| (owned.ownership, owned.scheduler.execute(&command, now));
                let concerned = self.shards.owned_mut().iter_mut().filter(is_meant).map(execute).collect();
                self.checkpoints.note_executed(reply, concerned);
            }
            WorkerMessage::Cancel(shard, subscription, reply) => {
                // A caller that is gone needs no answer.
                let _ = reply.send(self.cancel(shard, subscription, events));
            }
            WorkerMessage::Confirmed(origin) => {
                self.shards.schedulers().for_each(|scheduler| scheduler.origin_confirmed(&origin));
            }
            WorkerMessage::Expect(shard, reply) => {
                self.expected.begin(shard);
                // Who is gone has said, or will say, that the shard does not come.
                let _ = reply.send(());
            }
            WorkerMessage::TakeOver(owned) => self.take_over(*owned),
            WorkerMessage::Abandon(shard) => drop(self.expected.end(shard)),
            WorkerMessage::LetGo(shard, reply) => {
                self.shards.let_go(shard, std::time::Instant::now(), reply);
            }
        }
    }

    fn finish_requests(&mut self, first: Completed) {
        let now = self.now();
        let mut taken = 0;
        let mut next = Some(first);
        while let Some(Completed { of, attempt, finished, reached }) = next {
            self.checkpoints.note_answer();
            self.limiter.give_back(attempt.charge.lane, attempt.charge.busy_from());
            self.shards.end(of, |scheduler| {
                scheduler.reached(attempt.host, reached);
                scheduler.attempt_finished(&attempt, finished, now);
            });
            taken += 1;
            next = if taken < BATCH {
                unconstrained(self.in_flight.next()).now_or_never().flatten()
            } else {
                None
            };
        }
    }

    /// Makes as many requests as may be in flight, the shards in turn.
    fn start_requests(&mut self) {
        let now = self.now();
        self.limiter.age(now.monotonic);
        let mut idle = 0;
        // To offer the reserved permits with each answer would be in vain nearly always.
        let spares = now.monotonic.saturating_duration_since(self.spared) >= SPARE_EVERY;
        while idle < self.shards.owned().len() && self.checkpoints.are_in_time() {
            let open = self.limiter.open();
            if !(open.any() || spares && open.spare() > 0) {
                break;
            }
            if !open.any() {
                self.spared = now.monotonic;
            }
            let Some(owned) = self.shards.next() else { break };
            match owned.scheduler.next(now, open) {
                None => idle += 1,
                Some(attempt) => {
                    idle = 0;
                    self.limiter.take(attempt.charge.lane, attempt.charge.busy_from());
                    owned.begin();
                    let (sender, of) = (Rc::clone(&self.sender), owned.ownership);
                    let sending = async move { sender.send(of.shard, &attempt).await };
                    self.in_flight.push(RunningRequest::new(of, attempt, sending));
                }
            }
        }
        let open = self.limiter.open();
        let retries = self.limiter.holds_back_retries(open)
            && self.shards.owned().iter().any(|owned| owned.scheduler.has_retries());
        if retries || !open.has(Lane::First) {
            self.limiter.pressure.missed();
            self.load.start();
        }
    }

    /// Whether there is a permit for another request, and progress is being saved fast enough to make it.
    fn may_start(&self) -> bool {
        self.limiter.open().any() && self.checkpoints.are_in_time()
    }

    fn next_timer(&self) -> Option<Instant> {
        self.shards
            .owned()
            .iter()
            .filter_map(|owned| owned.scheduler.next_timer())
            .min()
            .map(Instant::from_std)
    }

    fn report_in_flight(&mut self) {
        let taken = self.limiter.all_taken();
        self.counters.move_in_flight(self.reported, taken);
        self.reported = taken;
    }

    fn count_past_due(&mut self) {
        let now = std::time::Instant::now();
        for OwnedShard { ownership, scheduler, .. } in self.shards.owned_mut() {
            self.counters.set_past_due(ownership.shard, scheduler.past_due(now));
        }
    }

    fn count_subscriptions(&self) {
        let now = self.now();
        for OwnedShard { ownership, scheduler, .. } in self.shards.owned() {
            self.counters.set_subscriptions(ownership.shard, scheduler.in_force(now), scheduler.hosts());
        }
    }

    /// Whether a shard has more to look at before it knows what may be started.
    fn is_interrupted(&self) -> bool {
        self.may_start() && self.shards.owned().iter().any(|owned| owned.scheduler.is_interrupted())
    }

    /// Ends the subscriptions whose leases are over, and logs what was lost since the last time.
    fn expire_leases(&mut self) {
        self.checkpoints.log_losses();
        if self.checkpoints.has_failed() {
            return;
        }
        let now = self.now();
        self.shards.schedulers().for_each(|scheduler| scheduler.expire(now));
    }
}

async fn wait_until(timer: Option<Instant>) {
    match timer {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}
