//! Delivery: what a topic's log holds reaches every subscription, in order, until it is acknowledged or given up.
//!
//! Two modules. `scheduler` decides which request is next and what an answer means; it does no input or output. `sender` above it
//! makes the requests and saves the progress. There is one worker per core, each with its own runtime, connections and shards. Workers
//! share only what the store has in memory: the bounds of the logs, and notifications that were just posted or read.
//! Shards come and go while they run (`owner`).

mod clocks;
mod load;
mod orders;
mod owner;
mod scheduler;
mod sender;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

pub use self::orders::{NotExecuted, Orders};
pub use self::owner::{NotTaken, Owner};
use self::scheduler::WorkerState;
pub use self::scheduler::{
    BreakerPolicy, Command, LaggardProgress, OpenHost, Owed, Progress, RetryPolicy, Target, TopicCounts,
    WaitsFor,
};
#[cfg(test)]
pub(crate) use self::sender::testing;
pub use self::sender::{
    AttemptLog, AttemptOutcome, Counters, Elsewhere, LetGo, Meters, NoAnswer, OUTCOMES, Operator,
    PartialAnswer, RecordedAttempt, Settings, Stopped, TestDelivery, TestSender, Totals,
    without_known_entries,
};
use self::sender::{Inputs, LargeBodies, Observers, WorkerThread, Workers};
use crate::egress::Guard;
use crate::store::Store;
use crate::waiting_work::WaitingWork;

/// How often it is checked that the workers are alive.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// For all of a stop, but for the workers' last progress. What goes on after that is the store's.
const STOPPING: Duration = Duration::from_secs(10);

/// The system gives no thread for a worker.
#[derive(Debug, thiserror::Error)]
#[error("no thread for delivery: {0}; raise the limit for threads (TasksMax, ulimit -u)")]
pub struct NoThread(#[from] io::Error);

/// The running delivery.
#[derive(Debug)]
pub struct Delivery {
    counters: Arc<Counters>,
    observers: Observers,
    operator: Operator,
    orders: Orders,
    tests: TestSender,
    owner: Owner,
    /// What else is done for the shards.
    waiting: Vec<Arc<dyn WaitingWork>>,
    /// Since when it stops.
    stop: watch::Sender<Option<Instant>>,
    workers: Vec<JoinHandle<()>>,
}

impl Delivery {
    /// Starts one worker per core. They own no shard yet.
    ///
    /// # Errors
    /// [`NoThread`]
    pub async fn start(store: Arc<dyn Store>, guard: Guard, settings: Settings) -> Result<Self, NoThread> {
        let counters = Arc::new(Counters::new(store.shards()));
        let observers = Observers { tracer: settings.tracer.clone(), ..Observers::default() };
        let count = worker_count(store.shards());
        // There are no more messages than commands, denials, pages and re-verifications under way, and shards that come or go.
        let (to_workers, messages): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::unbounded_channel()).unzip();
        let workers = Workers::new(to_workers, store.shards());
        let operator = Operator::new(workers.clone());
        let orders = Orders::new(Arc::clone(&store), operator.clone());
        let tests = TestSender::new(guard.clone(), &settings, observers.meters.clone(), operator.clone());
        let (max_in_flight, now) = (settings.max_in_flight.div_ceil(count), Instant::now());
        let states = (0..count).map(|_| WorkerState::new(max_in_flight, settings.per_host, now)).collect();
        let (stop, stopped) = watch::channel(None);
        let owner = Owner::new(
            Arc::clone(&store),
            settings.clone(),
            Arc::clone(&counters),
            workers.clone(),
            states,
            stopped.clone(),
        );
        let (waiting, threads) = (Vec::new(), Vec::new());
        let mut delivery =
            Self { counters, observers, operator, orders, tests, owner, waiting, stop, workers: threads };
        let large = LargeBodies::default();
        for (index, messages) in messages.into_iter().enumerate() {
            let worker = WorkerThread {
                store: Arc::clone(&store),
                guard: guard.clone(),
                settings: settings.clone(),
                counters: delivery.counters(),
                observers: delivery.observers.clone(),
                workers: workers.clone(),
                large: large.clone(),
                max_in_flight,
                max_connections: settings.max_connections.div_ceil(count),
                inputs: Inputs { events: store.watch(), messages, stop: stopped.clone() },
            };
            let worker = thread::Builder::new().name(format!("delivery-{index}")).spawn(move || worker.run());
            match worker {
                Ok(worker) => delivery.workers.push(worker),
                Err(error) => {
                    delivery.stop().await;
                    return Err(error.into());
                }
            }
        }
        delivery.owner.follow_orders();
        delivery.owner.follow_accepted();
        Ok(delivery)
    }

    /// Takes over all shards of the store, or this hub's share where others use it too, and with each shard this work, now and whenever one
    /// comes or goes later. A shard that another hub owns comes when it is released.
    ///
    /// # Errors
    /// [`NotTaken`] when the state of a shard cannot be read. Then delivery has stopped.
    pub async fn take_all(mut self, waiting: Vec<Arc<dyn WaitingWork>>) -> Result<Self, NotTaken> {
        self.waiting = waiting;
        match self.owner.take_all(&self.waiting).await {
            Ok(()) => Ok(self),
            Err(not_taken) => {
                self.stop().await;
                Err(not_taken)
            }
        }
    }

    /// Waits until a worker has died, which it does only by a fault of ours.
    pub async fn broken(&self) {
        loop {
            if self.workers.iter().any(JoinHandle::is_finished) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// What has been delivered and what has not.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// The metrics of attempts.
    pub fn meters(&self) -> Meters {
        self.observers.meters.clone()
    }

    /// The last attempts that failed.
    pub fn attempt_log(&self) -> AttemptLog {
        self.observers.log.clone()
    }

    /// Queries and commands to the shards of this hub.
    pub fn operator(&self) -> Operator {
        self.operator.clone()
    }

    /// Commands to all shards, whichever hubs own them.
    pub fn orders(&self) -> Orders {
        self.orders.clone()
    }

    /// What takes shards over and lets them go.
    pub fn owner(&self) -> Owner {
        self.owner.clone()
    }

    /// What sends test deliveries.
    pub fn test_sender(&self) -> TestSender {
        self.tests.clone()
    }

    /// Hands the shards over to other hubs, if there are any. Then stops making requests, waits a little for those in flight, saves the progress
    /// and releases the shards.
    pub async fn stop(self) {
        let began = Instant::now();
        self.owner.hand_over_all().await;
        // Workers that are gone need no signal. For those that are here the time runs already.
        let _ = self.stop.send(Some(began));
        let joined = tokio::task::spawn_blocking(move || {
            for worker in self.workers {
                if worker.join().is_err() {
                    tracing::error!("a delivery worker had panicked");
                }
            }
        });
        if joined.await.is_err() {
            tracing::error!("waiting for the delivery workers failed");
        }
        if timeout(STOPPING.saturating_sub(began.elapsed()), self.owner.finish()).await.is_err() {
            tracing::warn!("work for some shards cut off: other hubs take them over when this one has ended");
        }
    }
}

fn worker_count(shards: u16) -> usize {
    thread::available_parallelism().map_or(1, usize::from).clamp(1, usize::from(shards.max(1)))
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;
    use resync_harness::{PATIENCE, eventually};

    use super::sender::testing::{Subscriber, settings, until, workers_with};
    use super::*;
    use crate::store::{
        self, Engine, Intent, Keyring, NewRequest, Offset, Shard, VerifiedUnsubscription, Watermark,
    };

    /// Whether the store knows of both requests that hang in this shard, and that its sweep is over.
    async fn are_both_laggards(store: &dyn Store, shard: Shard) -> bool {
        let state = store.load_shard(shard).await.unwrap();
        let is_over = |mark: &Watermark| mark.done == Offset(1) && mark.sweep.is_none();
        state.laggards.len() == 2 && state.watermarks.iter().any(|(_, mark)| is_over(mark))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_shard_that_somebody_else_takes_over_is_sent_nothing_more_and_counts_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topics = ["http://source.example/a", "http://source.example/b"].map(|url| url.parse().unwrap());
        let mut lost = Subscriber::that_answers(0).await;
        store::subscribe(&*store, &topics[0], &lost.callback("1")).await;
        let (shard, _) = store::subscribe(&*store, &topics[0], &lost.callback("2")).await;
        let mut kept = Subscriber::start().await;
        while Shard::of(&kept.callback(""), store.shards()) == shard {
            kept = Subscriber::start().await;
        }
        store::subscribe(&*store, &topics[1], &kept.callback("")).await;
        // Permits to spare on however many cores: a sweep ends only where it may look for more.
        let settings = Settings { per_host: 2, max_in_flight: 1_024, ..settings() };
        let delivery = workers_with(&store, settings).await;
        let delivery = delivery.take_all(Vec::new()).await.unwrap();
        let counters = delivery.counters();
        until(|| counters.subscriptions() == 3).await;

        let append = async |topic: usize| {
            store.append(store::posted(&topics[topic], "changed"), Duration::ZERO).await.unwrap();
        };
        append(0).await;
        let mut posts = 0;
        while posts < 2 {
            posts += usize::from(lost.next().await.starts_with("POST"));
        }
        // Once nothing else moves, they become laggards. That is progress too: only once it is durable is an answer the first that the store
        // refuses.
        eventually("both are laggards", || are_both_laggards(&*store, shard)).await;
        let now = Instant::now();
        until(|| counters.checkpoint_age(now).is_zero()).await;
        store.claim(shard).await.unwrap();
        let left = store.load_shard(shard).await.unwrap();
        // What one of them answers is progress, which the store refuses.
        lost.answer(1);
        until(|| counters.subscriptions() == 1).await;
        lost.answer(1);
        append(0).await;
        append(1).await;
        while !kept.next().await.starts_with("POST") {}
        assert_eq!(lost.seen(), None);
        until(|| counters.totals().delivered == 2).await;
        assert_eq!(counters.subscriptions(), 1, "it is not counted again when its last request ends");
        delivery.stop().await;
        assert_eq!(counters.totals().delivered, 2, "nor is what that request has delivered");
        let found = store.load_shard(shard).await.unwrap();
        let unchanged = (left.laggards, left.watermarks);
        assert_eq!((found.laggards, found.watermarks), unchanged, "nothing was written for it");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_request_under_way_ends_with_its_subscription() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        let topic = "http://source.example/a".parse().unwrap();
        let mut leaving = Subscriber::that_answers(0).await;
        let callback = leaving.callback("");
        store::subscribe(&*store, &topic, &callback).await;
        // By itself the request ends only after the test.
        let delivery = workers_with(&store, Settings { timeout: 2 * PATIENCE, ..settings() }).await;
        let delivery = delivery.take_all(Vec::new()).await.unwrap();
        let counters = delivery.counters();
        let under_way = || counters.in_flight().iter().map(|(_, number)| number).sum::<usize>();
        store.append(store::posted(&topic, "changed"), Duration::ZERO).await.unwrap();
        while !leaving.next().await.starts_with("POST") {}
        until(|| under_way() == 1).await;

        let request = NewRequest {
            client: None,
            topic,
            callback,
            intent: Intent::Unsubscribe,
            verify_token: None,
            received_at: DateTime::now(),
        };
        let request = store.put_request(request).await.unwrap();
        store.deactivate(VerifiedUnsubscription::assumed(request)).await.unwrap();
        until(|| under_way() == 0).await;
        delivery.stop().await;
        let totals = counters.totals();
        assert_eq!((totals.delivered, totals.failed), (0, 0), "the callback is not to blame");
    }
}
