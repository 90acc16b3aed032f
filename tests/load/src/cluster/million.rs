//! `cluster million`: how soon three hubs are ready that have very many subscriptions, against a plain copy of these out of the database.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use futures_util::future::BoxFuture;
use serde::Serialize;
use tokio_postgres::{CopyOutStream, Error};

use super::Cluster;
use super::database::Database;
use super::hubs::Laboratory;
use crate::audience::Audience;
use crate::measure::float;
use crate::receiver::Receiver;
use crate::{Failure, Rate, median};

const HUBS: usize = 3;
/// Hosts that subscriptions are on.
const HOSTS: usize = 1_000;
const COPY: &str = "COPY (SELECT * FROM hub.subscription) TO STDOUT (FORMAT binary)";

/// What came out, the medians of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct MillionReport {
    /// How many were made.
    pub subscriptions: usize,
    /// Made over HTTP at all hubs, each verified.
    pub subscribing: Rate,
    /// Seconds from the start of the processes until each is ready, and all together deliver to all subscriptions.
    pub start: f64,
    /// Seconds of a plain copy of these over one connection.
    pub plain_copy: f64,
    /// The one by the other, in the middle one of all rounds.
    pub ratio: f64,
    /// Resident bytes of all hubs for each subscription, without what they take before the first.
    pub memory_per_subscription: f64,
    /// How many rounds there were.
    pub rounds: usize,
}

/// Measures hubs that are stopped and started again.
pub(super) async fn measure(laboratory: &Laboratory, plan: &Cluster) -> Result<MillionReport, Failure> {
    let count = plan.subscriptions;
    let audience = Audience { topics: 1, subscribers: count, hosts: HOSTS };
    let receiver = Receiver::start(audience).await?;
    receiver.link_to_any();
    let mut hubs = laboratory.hubs(HUBS, &[]).await?;
    let empty = hubs.memory()?;
    let began = Instant::now();
    audience.ask(&hubs.entrances, &receiver).await?;
    hubs.until_subscribed(count).await?;
    let subscribing = Rate::new(count as u64, began.elapsed());
    let mut rounds: Vec<[f64; 3]> = Vec::new();
    let began = Instant::now();
    while rounds.is_empty() || began.elapsed() < plan.time() {
        hubs.stop_all().await;
        let copied = copy(&laboratory.database).await?;
        let began = Instant::now();
        hubs.start_all().await?;
        hubs.until_subscribed(count).await?;
        let start = began.elapsed();
        let memory = float(hubs.memory()?.saturating_sub(empty)) / float(count as u64);
        rounds.push([start.as_secs_f64(), copied.as_secs_f64(), memory]);
    }
    hubs.end().await;
    let of = |value: fn(&[f64; 3]) -> f64| median(rounds.iter().map(value));
    Ok(MillionReport {
        subscriptions: count,
        subscribing,
        start: of(|round| round[0]),
        plain_copy: of(|round| round[1]),
        ratio: of(|round| round[0] / round[1]),
        memory_per_subscription: of(|round| round[2]),
        rounds: rounds.len(),
    })
}

/// How long it takes to read all of them.
async fn copy(database: &Database) -> Result<Duration, Failure> {
    let session = database.connect().await?;
    let began = Instant::now();
    let copying: BoxFuture<'_, Result<CopyOutStream, Error>> = Box::pin(session.client().copy_out(COPY));
    let mut rows = pin!(copying.await?);
    while rows.try_next().await?.is_some() {}
    Ok(began.elapsed())
}
