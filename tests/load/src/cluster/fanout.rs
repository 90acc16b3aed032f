//! `cluster fanout`: deliveries a second of a hub over PostgreSQL, against the same hub with its embedded store.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::Cluster;
use super::hubs::{Hubs, KEY, Laboratory};
use crate::audience::Audience;
use crate::check::Copies;
use crate::receiver::Receiver;
use crate::stage::{Entrance, Publisher};
use crate::{Failure, Rate, median};
use resync_harness::HubProcess;

/// Subscriptions of the one topic, each on a host of its own.
const SUBSCRIBERS: usize = 1_000;
const AUDIENCE: Audience = Audience { topics: 1, subscribers: SUBSCRIBERS, hosts: SUBSCRIBERS };
/// Notifications of a burst.
const BURST: u32 = 50;

/// What came out. Bursts of both hubs take turns, so that whatever else the machine does is shared.
#[derive(Clone, Debug, Serialize)]
pub struct EnginesReport {
    /// Deliveries a second over PostgreSQL by those of the embedded store, in the middle one of all rounds.
    pub ratio: f64,
    /// Of the hub over PostgreSQL, from the first post of a burst to its last delivery: deliveries a second, the median of all rounds.
    pub postgres: f64,
    /// The same with the embedded store.
    pub embedded: f64,
    /// How many rounds there were.
    pub rounds: usize,
    /// Whether each subscriber of either hub got each notification once and as it was posted.
    pub copies: Copies,
}

/// One of the hubs with its subscribers.
struct Side {
    receiver: Receiver,
    hub: Entrance,
}

/// Measures.
pub(super) async fn measure(
    laboratory: &Laboratory,
    plan: &Cluster,
    folder: &Path,
) -> Result<EnginesReport, Failure> {
    let hubs = laboratory.hubs(1, &[]).await?;
    let data = tempfile::tempdir_in(folder)?;
    let mut alone = HubProcess::start_with(data.path(), &[KEY]).await;
    let mut postgres = Side::over_postgres(&hubs).await?;
    let mut embedded = Side::embedded(&alone).await?;
    let (mut rounds, mut copies) = (Vec::new(), Copies::default());
    let began = Instant::now();
    while rounds.is_empty() || began.elapsed() < plan.time() {
        let round = (postgres.burst().await?, embedded.burst().await?);
        rounds.push((round.0.per_second, round.1.per_second));
        copies = copies.and(postgres.receiver.check(|_| true)).and(embedded.receiver.check(|_| true));
    }
    alone.kill().await;
    hubs.end().await;
    Ok(EnginesReport {
        ratio: median(rounds.iter().map(|(postgres, embedded)| postgres / embedded)),
        postgres: median(rounds.iter().map(|(postgres, _)| *postgres)),
        embedded: median(rounds.iter().map(|(_, embedded)| *embedded)),
        rounds: rounds.len(),
        copies,
    })
}

impl Side {
    async fn over_postgres(hubs: &Hubs) -> Result<Self, Failure> {
        let receiver = Receiver::start(AUDIENCE).await?;
        receiver.link_to(&hubs.entrances[0].url);
        AUDIENCE.ask(&hubs.entrances, &receiver).await?;
        hubs.until_subscribed(SUBSCRIBERS).await?;
        Self::ready(&hubs.entrances[0], receiver).await
    }

    async fn embedded(hub: &HubProcess) -> Result<Self, Failure> {
        let receiver = Receiver::start(AUDIENCE).await?;
        AUDIENCE.subscribe(hub, &receiver).await?;
        Self::ready(&Entrance::of(hub), receiver).await
    }

    /// The first notification makes the connections of the deliveries.
    async fn ready(hub: &Entrance, receiver: Receiver) -> Result<Self, Failure> {
        let mut side = Self { receiver, hub: hub.clone() };
        side.post(1).await?;
        side.receiver.check(|_| true);
        Ok(side)
    }

    async fn burst(&mut self) -> Result<Rate, Failure> {
        let began = Instant::now();
        let count = self.post(BURST).await?;
        Ok(Rate::new(count, began.elapsed()))
    }

    /// Posts so many, and waits until all have come; returns how many deliveries these were.
    async fn post(&mut self, notifications: u32) -> Result<u64, Failure> {
        let count = SUBSCRIBERS as u64 * u64::from(notifications);
        let due = self.receiver.total() + count;
        // A connection that was idle while the other side had its turn may be closed.
        let mut publisher = Publisher::at(&self.hub).await?;
        for _ in 0..notifications {
            publisher.post(&self.receiver, 0, Instant::now()).await?;
        }
        self.receiver.until(due).await?;
        Ok(count)
    }
}
