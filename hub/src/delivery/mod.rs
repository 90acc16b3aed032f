//! Delivery: what a topic's log holds reaches every subscription, in order, until it is acknowledged or given up.
//!
//! One worker per core, each with its own runtime, connections and shards; on the way of a notification they share only what the
//! store has in memory: the bounds of the logs, and notifications that were just posted or read. A worker drives its shards' machines (`shard`), which decide and know no input or output; it lets the
//! `courier` make the requests, and saves the progress.

mod addressed;
#[cfg(test)]
mod adversaries;
mod asking;
mod attempt;
mod breaker;
mod clock;
mod counters;
mod courier;
mod editions;
mod feed;
mod host;
mod hosts;
mod lanes;
mod large;
mod losses;
mod member;
mod meters;
mod networks;
mod notes;
mod operator;
mod pressure;
mod ready;
mod recent;
mod round;
mod schedule;
mod shard;
mod slots;
mod slowness;
mod spans;
mod sweep;
mod waiting;
mod worker;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt};
use resync_core::websub::SignatureMethod;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot, watch};

pub use breaker::BreakerPolicy;
pub use counters::{Counters, Totals};
pub use feed::without_known_entries;
pub use meters::{Meters, OUTCOMES};
pub use notes::{Came, Note, Notes};
pub use operator::{
    Act, LateSubscription, OpenHost, Operator, Owed, Progress, Stopped, TopicStanding, Waits, Which,
};
pub use schedule::RetryPolicy;

use crate::config::Prefixes;
use crate::egress::{ConfirmedAddresses, EgressClient, Guard};
use crate::store::{Shard, Slot, Store, StoreError, StoreEvent, SubscriptionId};
use crate::subscriptions::StopDeliveries;
use crate::telemetry::Tracer;
use clock::Clock;
use courier::Courier;
use hosts::Neighbours;
use large::Large;
use operator::Order;
use shard::{Limits, Machine, Now};
use worker::{Halt, Owned, Worker};

/// Subscriptions of one topic and shard that a sweep has on their way at once.
const WINDOW: usize = 1_024;

/// Subscriptions that a shard looks at before the others have their turns: for some tens of microseconds.
const STEPS: usize = 256;

/// How long deliveries in flight may take at the end; what is cut off is repeated at the next start.
const GRACE: Duration = Duration::from_secs(8);
/// How often the workers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How deliveries are made.
#[derive(Clone, Debug)]
pub struct Settings {
    /// When to repeat and when to give up.
    pub retry: RetryPolicy,
    /// When a host is left alone.
    pub breaker: BreakerPolicy,
    /// For a connection.
    pub connect_timeout: Duration,
    /// For a whole request.
    pub timeout: Duration,
    /// Requests at once at most, over all workers.
    pub max_in_flight: usize,
    /// Requests at once to one origin.
    pub per_host: usize,
    /// Connections that stand at once, over all workers, where not more than these are in use.
    pub max_connections: usize,
    /// Where names have confirmed, and what may be sent elsewhere.
    pub confirmed: ConfirmedAddresses,
    /// The method of signatures.
    pub signature: SignatureMethod,
    /// Topics whose feeds are sent without entries that the subscriber has got already.
    pub entry_diff: Prefixes,
    /// What begins the spans of attempts.
    pub tracer: Tracer,
}

/// The running delivery.
#[derive(Debug)]
pub struct Delivery {
    counters: Arc<Counters>,
    meters: Meters,
    notes: Notes,
    operator: Operator,
    stop: watch::Sender<bool>,
    workers: Vec<JoinHandle<()>>,
    halts: Halts,
}

/// Stops requests that are under way to subscriptions that have ended.
#[derive(Clone, Debug, Default)]
pub struct Halts(Vec<mpsc::UnboundedSender<Halt>>);

#[async_trait]
impl StopDeliveries for Halts {
    async fn halt(&self, shard: Shard, subscription: SubscriptionId) {
        let Some(worker) = self.0.get(usize::from(shard.0) % self.0.len().max(1)) else { return };
        let (done, halted) = oneshot::channel();
        if worker.send(Halt { shard, subscription, done }).is_ok() {
            // A worker that ends takes what was under way with it.
            let _ = halted.await;
        }
    }
}

impl Delivery {
    /// Takes over all shards of the store and starts one worker per core.
    ///
    /// # Errors
    /// [`StoreError`] when the state of delivery cannot be read.
    pub async fn start(store: Arc<dyn Store>, guard: Guard, settings: Settings) -> Result<Self, StoreError> {
        let counters = Arc::new(Counters::new(store.shards()));
        let (meters, notes) = (Meters::default(), Notes::default());
        let (stop, stopped) = watch::channel(false);
        let count = worker_count(store.shards());
        let (mut workers, mut order_senders, mut halts) = (Vec::new(), Vec::new(), Halts::default());
        // Before the shards are read, so that nothing is missed.
        let events: Vec<_> = (0..count).map(|_| store.watch()).collect();
        let doubted_until = doubt_at_start(store.as_ref()).await?;
        let places = settings.max_in_flight.div_ceil(count);
        let neighbours: Vec<_> = (0..count).map(|_| Neighbours::of(places, settings.per_host)).collect();
        let large = Large::default();
        let mut by_worker = take_over_all(&store, &settings, doubted_until, &neighbours).await?;
        for (index, events) in events.into_iter().enumerate() {
            let owned = std::mem::take(&mut by_worker[index]);
            for Owned { shard, machine, .. } in &owned {
                counters.set_gauges(*shard, machine.laggards(), 0);
                counters.set_subscriptions(*shard, machine.subscriptions(), machine.hosts());
            }
            // Who sends waits for the answer: no more wait than acts of operators, denials, fetches and pages are under way.
            let (halt, to_halt) = mpsc::unbounded_channel();
            halts.0.push(halt);
            let (sender, orders) = mpsc::unbounded_channel();
            order_senders.push(sender);
            let plan = Plan {
                store: Arc::clone(&store),
                guard: guard.clone(),
                settings: settings.clone(),
                counters: Arc::clone(&counters),
                meters: meters.clone(),
                notes: notes.clone(),
                large: large.clone(),
                max_in_flight: places,
                max_connections: settings.max_connections.div_ceil(count),
                owned,
                events,
                to_halt,
                orders,
                stopped: stopped.clone(),
            };
            let worker = thread::Builder::new().name(format!("delivery-{index}")).spawn(move || plan.run());
            workers
                .push(worker.map_err(|error| StoreError::Read(format!("no thread for delivery: {error}")))?);
        }
        Ok(Self { counters, meters, notes, operator: Operator::new(order_senders), stop, workers, halts })
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

    /// What attempts come to.
    pub fn meters(&self) -> Meters {
        self.meters.clone()
    }

    /// What failed lately.
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// What stops requests under way.
    pub fn halts(&self) -> Halts {
        self.halts.clone()
    }

    /// What an operator may see and do.
    pub fn operator(&self) -> Operator {
        self.operator.clone()
    }

    /// Stops making requests, waits a little for those in flight and saves the progress.
    pub async fn stop(self) {
        // Workers that are gone already need no telling.
        let _ = self.stop.send(true);
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
    }
}

fn worker_count(shards: u16) -> usize {
    thread::available_parallelism().map_or(1, usize::from).clamp(1, usize::from(shards.max(1)))
}

/// Until when no lease ends, where the wall clock cannot be believed yet.
async fn doubt_at_start(store: &dyn Store) -> Result<Option<Instant>, StoreError> {
    let now = Now::read();
    let until = match store.uptime().await {
        Ok(Some(uptime)) => clock::doubt_at_start(&uptime, now),
        // A store that is new has nobody whose lease could end.
        Ok(None) if store.topics().await?.is_empty() => None,
        Ok(None) | Err(StoreError::Damaged { .. }) => Some(clock::doubt(now)),
        Err(error) => return Err(error),
    };
    if let Some(until) = until {
        let seconds = until.saturating_duration_since(now.monotonic).as_secs();
        tracing::info!(seconds, "the hub was down, or the clock is wrong: no lease ends for so long");
    }
    Ok(until)
}

/// By worker, what each of them owns. Shards are read on all cores, but not all at once: what is read takes more room than what
/// is kept of it.
async fn take_over_all(
    store: &Arc<dyn Store>,
    settings: &Settings,
    doubted_until: Option<Instant>,
    neighbours: &[Neighbours],
) -> Result<Vec<Vec<Owned>>, StoreError> {
    let workers = neighbours.len();
    let mut by_worker: Vec<_> = (0..workers).map(|_| Vec::new()).collect();
    let mut taken = stream::iter((0..store.shards()).map(Shard))
        .map(|shard| {
            let (store, settings) = (Arc::clone(store), settings.clone());
            let neighbours = neighbours[usize::from(shard.0) % workers].clone();
            tokio::spawn(async move { take_over(&store, shard, &settings, doubted_until, neighbours).await })
        })
        .buffered(workers);
    while let Some(owned) = taken.next().await {
        let owned = owned.map_err(|error| StoreError::Read(error.to_string()))??;
        by_worker[usize::from(owned.shard.0) % workers].push(owned);
    }
    Ok(by_worker)
}

async fn take_over(
    store: &Arc<dyn Store>,
    shard: Shard,
    settings: &Settings,
    doubted_until: Option<Instant>,
    neighbours: Neighbours,
) -> Result<Owned, StoreError> {
    let epoch = store.claim(shard).await?;
    let state = store.load_shard(shard).await?;
    for Slot { origin, address, lease_end, .. } in &state.slots {
        settings.confirmed.remember(origin, *address, *lease_end);
    }
    let limits = Limits {
        per_host: settings.per_host,
        window: WINDOW,
        retry: settings.retry.clone(),
        breaker: settings.breaker,
        steps: STEPS,
        neighbours,
    };
    let now = Now::read();
    Ok(Owned {
        shard,
        epoch,
        machine: Machine::new(shard, limits, state, Clock::new(now, doubted_until), now),
    })
}

/// What a worker's thread needs to begin.
struct Plan {
    store: Arc<dyn Store>,
    guard: Guard,
    settings: Settings,
    counters: Arc<Counters>,
    meters: Meters,
    notes: Notes,
    large: Large,
    max_in_flight: usize,
    max_connections: usize,
    owned: Vec<Owned>,
    events: mpsc::UnboundedReceiver<StoreEvent>,
    to_halt: mpsc::UnboundedReceiver<Halt>,
    orders: mpsc::UnboundedReceiver<Order>,
    stopped: watch::Receiver<bool>,
}

impl Plan {
    fn run(self) {
        let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "no runtime for delivery"),
        };
        runtime.block_on(async {
            let Settings {
                connect_timeout, timeout, per_host, signature, entry_diff, confirmed, tracer, ..
            } = self.settings;
            let client = EgressClient::new(self.guard.clone(), connect_timeout, timeout, per_host)
                .limiting_unconfirmed(confirmed.clone())
                .with_connections(self.max_connections);
            // At most one for each request under way.
            let (confirming, confirmations) = mpsc::unbounded_channel();
            let courier = Courier::new(
                Arc::clone(&self.store),
                client,
                signature,
                entry_diff,
                (self.meters, self.notes, tracer),
                confirming,
                self.large,
            );
            let worker =
                Worker::new(self.store, courier, confirmed, self.counters, self.max_in_flight, self.owned);
            let grace = timeout.min(GRACE);
            worker.run(self.events, self.orders, self.to_halt, confirmations, self.stopped, grace).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::store::{self, Engine, Keyring, Uptime};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_clock_is_in_doubt_where_it_is_not_known_when_the_hub_was_up() {
        let directory = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, directory.path(), Keyring::none(), 0).unwrap();
        assert_eq!(doubt_at_start(store.as_ref()).await.unwrap(), None, "nobody has subscribed");
        let posted = store::posted(&"https://source.example/t".parse().unwrap(), "");
        store.append(posted, Duration::ZERO).await.unwrap();
        assert!(doubt_at_start(store.as_ref()).await.unwrap().is_some(), "it may have been down for days");
        store.put_uptime(Uptime { seen: DateTime::now(), clock_jumps: Vec::new() }).await.unwrap();
        assert_eq!(doubt_at_start(store.as_ref()).await.unwrap(), None);
    }
}
