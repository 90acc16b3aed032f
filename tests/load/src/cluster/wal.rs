//! `cluster wal`: what the database writes into its log for a post, for a healthy delivery and for a failed attempt.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::sleep;

use super::Cluster;
use super::database::Session;
use super::hubs::{Hubs, Laboratory};
use crate::Failure;
use crate::audience::Audience;
use crate::check::Copies;
use crate::measure::float;
use crate::publish::together;
use crate::receiver::{Receiver, Temper};
use crate::stage::Publisher;
use resync_harness::{PATIENCE, happens_within};

const PUBLISHERS: usize = 64;
const BYTES: u32 = 1_000;
/// Hosts that subscriptions are on.
const HOSTS: usize = 1_000;
/// Each failed attempt is one: an open circuit breaker would make fewer.
const KEYS: [(&str, &str); 1] = [("DELIVERY_BREAKER_FAILURES", "0")];
/// Until all is saved that was done.
const SAVED: Duration = Duration::from_secs(1);
/// Of the time of this measurement, posts take one part of so many …
const POSTING: u32 = 10;
/// … and what the hub writes while it has nothing to do is measured for so long.
const IDLE: Duration = Duration::from_secs(3);

/// What came out. What an idle hub writes in the same time is taken off.
#[derive(Clone, Debug, Serialize)]
pub struct WalReport {
    /// Bytes a second that are written while the hub has nothing to do.
    pub idle: f64,
    /// Bytes for a post of 1 kB, with 64 publishers at once.
    pub per_post: f64,
    /// Posts of that.
    pub posts: u64,
    /// Bytes for a delivery of one notification to all subscriptions, the notification included.
    pub per_delivery: f64,
    /// Deliveries of that.
    pub deliveries: u64,
    /// Bytes for an attempt that fails, where all subscribers refuse.
    pub per_failed_attempt: f64,
    /// Attempts of that.
    pub failed_attempts: u64,
    /// Whether each subscriber got the notification once and as it was posted.
    pub copies: Copies,
}

/// The log of a database from a moment on.
struct Log {
    session: Session,
    idle: f64,
    began: Instant,
    before: u64,
}

impl Log {
    /// Of an idle hub.
    async fn begin(session: Session) -> Result<Self, Failure> {
        let before = session.wal().await?;
        let mut log = Self { session, idle: 0.0, began: Instant::now(), before };
        sleep(IDLE).await;
        log.idle = log.written().await? / log.began.elapsed().as_secs_f64();
        log.start().await?;
        Ok(log)
    }

    /// From now on.
    async fn start(&mut self) -> Result<(), Failure> {
        (self.before, self.began) = (self.session.wal().await?, Instant::now());
        Ok(())
    }

    /// Bytes since it was begun, without those of an idle hub.
    async fn written(&self) -> Result<f64, Failure> {
        let bytes = float(self.session.wal().await?.saturating_sub(self.before));
        Ok((bytes - self.idle * self.began.elapsed().as_secs_f64()).max(0.0))
    }
}

/// Measures one hub.
pub(super) async fn measure(laboratory: &Laboratory, plan: &Cluster) -> Result<WalReport, Failure> {
    let hubs = laboratory.hubs(1, &KEYS).await?;
    let mut log = Log::begin(laboratory.database.connect().await?).await?;
    let (posted, _) = together(&hubs.urls(), PUBLISHERS, plan.time() / POSTING, BYTES).await?;
    let per_post = log.written().await? / float(posted.count);

    let audience = Audience { topics: 1, subscribers: plan.subscribers, hosts: HOSTS };
    let receiver = Receiver::start(audience).await?;
    receiver.link_to_any();
    audience.ask(&hubs.entrances, &receiver).await?;
    hubs.until_subscribed(plan.subscribers).await?;
    let (mut publisher, deliveries) = (Publisher::at(&hubs.entrances[0]).await?, plan.subscribers as u64);
    sleep(SAVED).await;
    log.start().await?;
    publisher.post(&receiver, 0, Instant::now()).await?;
    receiver.until(deliveries).await?;
    sleep(SAVED).await;
    let per_delivery = log.written().await? / float(deliveries);
    let copies = receiver.check(|_| true);

    for host in 0..HOSTS {
        receiver.behave(host, Temper::Refusing);
    }
    let failed_before = hubs.totals().await?.failed;
    // The hub closes a connection that was idle for as long as a slow fan-out may last.
    publisher = Publisher::at(&hubs.entrances[0]).await?;
    log.start().await?;
    publisher.post(&receiver, 0, Instant::now()).await?;
    until_behind(&hubs, deliveries).await?;
    sleep(SAVED).await;
    let (written, failed_attempts) = (log.written().await?, hubs.totals().await?.failed - failed_before);
    let per_failed_attempt = written / float(failed_attempts);
    let (idle, posts) = (log.idle, posted.count);
    hubs.end().await;
    Ok(WalReport {
        idle,
        per_post,
        posts,
        per_delivery,
        deliveries,
        per_failed_attempt,
        failed_attempts,
        copies,
    })
}

/// Waits until an attempt has failed for each subscription.
async fn until_behind(hubs: &Hubs, subscriptions: u64) -> Result<(), Failure> {
    let are_behind = || async { hubs.totals().await.is_ok_and(|totals| totals.laggards == subscriptions) };
    if happens_within(PATIENCE, are_behind).await {
        return Ok(());
    }
    let laggards = hubs.totals().await?.laggards;
    Err(format!("{laggards} subscriptions are behind, and {subscriptions} were refused").into())
}
