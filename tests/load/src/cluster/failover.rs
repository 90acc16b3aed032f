//! `cluster failover`: for how long nothing is acknowledged and nothing delivered when the primary is killed, against a bare client that
//! inserts into the same database in the same run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::Cluster;
use super::gaps::longest_pause;
use super::hubs::{Hubs, Laboratory};
use super::inserts::{self, Inserting};
use crate::audience::Audience;
use crate::receiver::Receiver;
use crate::stage::{Entrance, Publisher};
use crate::{Failure, median};
use resync_harness::{PATIENCE, happens_within};

const HUBS: usize = 3;
/// Subscriptions of the one topic, each on a host of its own.
const SUBSCRIBERS: usize = 24;
/// Publishers, and as many bare clients.
const CLIENTS: usize = 8;
/// Each of them waits so long after an answer, so that nothing is left to deliver when the primary dies.
const PACE: Duration = Duration::from_millis(40);
/// And so long for an answer at most.
const DEADLINE: Duration = Duration::from_secs(2);
/// After a failure they come again so soon.
const AGAIN: Duration = Duration::from_millis(20);
/// Before the primary is killed, and after all go on.
const CALM: Duration = Duration::from_secs(2);
const BYTES: u32 = 1_000;

/// What came out, the medians of all rounds, in seconds.
#[derive(Clone, Debug, Serialize)]
pub struct FailoverReport {
    /// No post was acknowledged for so long.
    pub posts: f64,
    /// No delivery came for so long.
    pub deliveries: f64,
    /// No INSERT of a bare client was committed for so long.
    pub inserts: f64,
    /// By how much posts stood still longer than INSERTs.
    pub posts_beyond: f64,
    /// By how much deliveries stood still longer than INSERTs.
    pub deliveries_beyond: f64,
    /// All rounds: posts, deliveries, INSERTs.
    pub rounds: Vec<[f64; 3]>,
}

/// What goes on all the time.
struct Load {
    receiver: Receiver,
    acknowledged: AtomicU64,
    inserted: AtomicU64,
    is_over: AtomicBool,
}

/// Measures three hubs whose primary is killed again and again; or the hubs of others, whose failover is theirs to make meanwhile.
pub(super) async fn measure(laboratory: &mut Laboratory, plan: &Cluster) -> Result<FailoverReport, Failure> {
    let audience = Audience { topics: 1, subscribers: SUBSCRIBERS, hosts: SUBSCRIBERS };
    let receiver = Receiver::start(audience).await?;
    receiver.link_to_any();
    let hubs = laboratory.hubs_or_theirs(HUBS).await?;
    inserts::make_table(&laboratory.database).await?;
    audience.ask(&hubs.entrances, &receiver).await?;
    if !hubs.nodes.is_empty() {
        hubs.until_subscribed(SUBSCRIBERS).await?;
    }
    let (mut rounds, began) = (Vec::new(), Instant::now());
    while rounds.is_empty() || began.elapsed() < plan.time() {
        rounds.push(round(laboratory, &hubs, &receiver, plan.time()).await?);
    }
    inserts::remove_table(&laboratory.database).await?;
    hubs.end().await;
    let of = |value: fn(&[f64; 3]) -> f64| median(rounds.iter().map(value));
    Ok(FailoverReport {
        posts: of(|round| round[0]),
        deliveries: of(|round| round[1]),
        inserts: of(|round| round[2]),
        posts_beyond: of(|round| round[0] - round[2]),
        deliveries_beyond: of(|round| round[1] - round[2]),
        rounds,
    })
}

/// For how long posts, deliveries and INSERTs stood still, in seconds.
async fn round(
    laboratory: &mut Laboratory,
    hubs: &Hubs,
    receiver: &Receiver,
    time: Duration,
) -> Result<[f64; 3], Failure> {
    let load = Arc::new(Load {
        receiver: receiver.clone(),
        acknowledged: AtomicU64::new(0),
        inserted: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let database = Arc::clone(&laboratory.database);
    let mut running = JoinSet::new();
    for hub in hubs.entrances.iter().cycle().take(CLIENTS) {
        running.spawn(publish(Arc::clone(&load), hub.clone()));
        let (load, database) = (Arc::clone(&load), Arc::clone(&database));
        running.spawn(async move {
            let mut inserting = None;
            while !load.is_over() {
                let done = timeout(DEADLINE, async {
                    let own = match inserting.take() {
                        Some(own) => own,
                        None => Inserting::connect(&database, BYTES).await?,
                    };
                    own.insert().await?;
                    Ok::<_, Failure>(own)
                });
                // Whose connection failed, or has waited in vain, is of no use any more.
                inserting = done.await.ok().and_then(Result::ok);
                load.count(inserting.is_some(), &load.inserted).await;
            }
        });
    }
    // What needs a connection or a moment to begin does not count.
    sleep(CALM / 2).await;
    let fault = async {
        let failed = fail_over(laboratory, &load, time).await;
        load.is_over.store(true, Ordering::Relaxed);
        failed
    };
    let (failed, posts, deliveries, inserts) = tokio::join!(
        fault,
        longest_pause(|| load.acknowledged.load(Ordering::Relaxed), &load.is_over),
        longest_pause(|| load.receiver.total(), &load.is_over),
        longest_pause(|| load.inserted.load(Ordering::Relaxed), &load.is_over),
    );
    running.join_all().await;
    failed?;
    Ok([posts, deliveries, inserts].map(|pause| pause.as_secs_f64()))
}

/// The primary's machine dies, and a standby takes its place; when all go on, the dead one comes back.
async fn fail_over(laboratory: &mut Laboratory, load: &Load, time: Duration) -> Result<(), Failure> {
    let Some(mut servers) = laboratory.servers.take() else {
        sleep(time).await;
        return Ok(());
    };
    sleep(CALM).await;
    let (mut servers, old) = spawn_blocking(move || {
        servers.kill(servers.primary());
        let old = servers.promote();
        (servers, old)
    })
    .await?;
    let before = load.counts();
    let go_on = || async { load.counts().into_iter().zip(before).all(|(now, before)| now > before) };
    let do_go_on = happens_within(PATIENCE, go_on).await;
    sleep(CALM).await;
    let servers = spawn_blocking(move || {
        servers.rejoin(old);
        servers
    });
    laboratory.servers = Some(servers.await?);
    if do_go_on { Ok(()) } else { Err("not all went on after the failover".into()) }
}

/// One notification after the other.
async fn publish(load: Arc<Load>, hub: Entrance) {
    let mut publisher = None;
    while !load.is_over() {
        let done = timeout(DEADLINE, async {
            let mut own = match publisher.take() {
                Some(own) => own,
                None => Publisher::at(&hub).await?,
            };
            own.post(&load.receiver, 0, Instant::now()).await?;
            Ok::<_, Failure>(own)
        });
        publisher = done.await.ok().and_then(Result::ok);
        load.count(publisher.is_some(), &load.acknowledged).await;
    }
}

impl Load {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn counts(&self) -> [u64; 3] {
        let [acknowledged, inserted] = [&self.acknowledged, &self.inserted];
        [acknowledged.load(Ordering::Relaxed), self.receiver.total(), inserted.load(Ordering::Relaxed)]
    }

    /// Counts what was done, and pauses until the next.
    async fn count(&self, is_done: bool, count: &AtomicU64) {
        if is_done {
            count.fetch_add(1, Ordering::Relaxed);
        }
        sleep(if is_done { PACE } else { AGAIN }).await;
    }
}
