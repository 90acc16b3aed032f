//! `resync-load recovery`: a host with many subscriptions was away, and comes back.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::sleep;

use super::Failure;
use super::audience::Audience;
use super::check::Copies;
use super::receiver::{Receiver, Temper};
use super::stage::Publisher;
use resync_harness::{HubProcess, eventually};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// Subscriptions on the one host.
    pub subscriptions: usize,
    /// Notifications that it misses.
    pub missed: u32,
    /// Requests at once that it gets at most.
    pub per_host: usize,
    /// Seconds that it is away, at least.
    pub away: u64,
    /// The engine of the hub's store.
    pub engine: String,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct RecoveryReport {
    /// What was owed, all of which was delivered.
    pub deliveries: u64,
    /// Whether each subscription got everything once and as it was posted.
    pub copies: Copies,
    /// The most requests that the host had to answer at once.
    pub most_at_once: u32,
    /// Seconds from its return to the first delivery: the breaker asks again after its pause.
    pub until_first: f64,
    /// Seconds from the first delivery to the last one.
    pub until_last: f64,
    /// Between the two.
    pub per_second: f64,
}

/// Measures a hub whose data is in `folder`.
///
/// # Errors
/// When something that is owed does not come.
pub async fn recovery(plan: &Recovery, folder: &Path) -> Result<RecoveryReport, Failure> {
    let audience = Audience { topics: 1, subscribers: plan.subscriptions, hosts: 1 };
    let receiver = Receiver::start(audience).await?;
    let per_host = plan.per_host.to_string();
    let keys = [("DELIVERY_PER_HOST", per_host.as_str()), ("STORE_ENGINE", &plan.engine)];
    let mut hub = HubProcess::start_with(folder, &keys).await;
    audience.subscribe(&hub, &receiver).await?;
    receiver.behave(0, Temper::Refusing);
    let mut publisher = Publisher::to(&hub).await?;
    for _ in 0..plan.missed {
        publisher.post(&receiver, 0, Instant::now()).await?;
    }
    let parked = format!("\"laggards\":{},", plan.subscriptions);
    eventually("all of them are parked", || async {
        hub.admin("/api/v1/status").await.text().contains(&parked)
    })
    .await;
    sleep(Duration::from_secs(plan.away)).await;

    receiver.behave(0, Temper::Careful);
    let back = Instant::now();
    receiver.until(1).await?;
    let (until_first, first) = (back.elapsed().as_secs_f64(), Instant::now());
    let deliveries = plan.subscriptions as u64 * u64::from(plan.missed);
    receiver.until(deliveries).await?;
    let until_last = first.elapsed().as_secs_f64();
    hub.stop().await;
    Ok(RecoveryReport {
        deliveries,
        copies: receiver.check(|_| true),
        most_at_once: receiver.most_at_once(0),
        until_first,
        until_last,
        per_second: super::Rate::new(deliveries, Duration::from_secs_f64(until_last)).per_second,
    })
}
