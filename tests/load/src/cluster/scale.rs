//! `cluster scale`: what more hubs deliver, each capped at a share of a core; the bound is as many times as much.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Cluster;
use super::cage::Cage;
use super::hubs::{Hubs, Laboratory};
use crate::audience::Audience;
use crate::check::Copies;
use crate::receiver::Receiver;
use crate::stage::Publisher;
use crate::{Failure, Rate, median};

/// Hubs at once.
const HUBS: [usize; 3] = [1, 2, 4];
/// Hundredths of a core that each of them gets.
const SHARE: u32 = 20;
/// Subscriptions of the one topic, each on a host of its own, so that each hub owns many.
const SUBSCRIBERS: usize = 1_000;
/// Notifications of a burst.
const BURST: u32 = 20;
/// The system counts in periods of a tenth of a second: what a hub has left of one does not count.
const PAUSE: Duration = Duration::from_millis(200);

/// What came out. Bursts of each number of hubs take turns.
#[derive(Clone, Debug, Serialize)]
pub struct CappedReport {
    /// Deliveries a second of 1, 2 and 4 hubs, the median of all rounds.
    pub per_second: [f64; 3],
    /// What 2 hubs deliver by what one does, in the middle one of all rounds.
    pub of_two: f64,
    /// The same of 4 hubs.
    pub of_four: f64,
    /// How many rounds there were.
    pub rounds: usize,
    /// Whether each subscriber got each notification once and as it was posted.
    pub copies: Copies,
}

/// Hubs with a cage for each.
struct Caged {
    hubs: Hubs,
    cages: Vec<Cage>,
}

/// Measures; the inner error says why this machine cannot cap a process.
pub(super) async fn measure(
    laboratory: &Laboratory,
    plan: &Cluster,
) -> Result<Result<CappedReport, String>, Failure> {
    let cages = HUBS.into_iter().max().unwrap_or_default();
    let cages = match (0..cages).map(|_| Cage::new(SHARE)).collect::<Result<Vec<_>, _>>() {
        Ok(cages) => cages,
        Err(reason) => return Ok(Err(reason)),
    };
    let audience = Audience { topics: 1, subscribers: SUBSCRIBERS, hosts: SUBSCRIBERS };
    let receiver = Receiver::start(audience).await?;
    receiver.link_to_any();
    let mut caged = Caged { hubs: laboratory.hubs(1, &[]).await?, cages };
    audience.ask(&caged.hubs.entrances, &receiver).await?;
    if let Err(reason) = caged.take(0) {
        caged.hubs.end().await;
        return Ok(Err(reason));
    }
    let (mut rounds, mut copies) = (Vec::new(), Copies::default());
    let began = Instant::now();
    while rounds.is_empty() || began.elapsed() < plan.time() {
        let mut round = [0.0; HUBS.len()];
        for (rate, count) in round.iter_mut().zip(HUBS) {
            caged.grow(laboratory, count).await?;
            *rate = caged.burst(&receiver).await?.per_second;
            copies = copies.and(receiver.check(|_| true));
        }
        rounds.push(round);
        caged.shrink(laboratory).await?;
    }
    caged.hubs.end().await;
    let of = |value: fn(&[f64; HUBS.len()]) -> f64| median(rounds.iter().map(value));
    Ok(Ok(CappedReport {
        per_second: [of(|round| round[0]), of(|round| round[1]), of(|round| round[2])],
        of_two: of(|round| round[1] / round[0]),
        of_four: of(|round| round[2] / round[0]),
        rounds: rounds.len(),
        copies,
    }))
}

impl Caged {
    fn take(&mut self, number: usize) -> Result<(), String> {
        self.cages[number].take(self.hubs.nodes[number].process().pid())
    }

    /// Starts more, up to so many, and waits until they share the shards and all subscriptions.
    async fn grow(&mut self, laboratory: &Laboratory, count: usize) -> Result<(), Failure> {
        for number in self.hubs.nodes.len()..count {
            self.hubs.add().await?;
            self.take(number)?;
        }
        self.hubs.until_shared(&laboratory.database).await?;
        self.hubs.until_subscribed(SUBSCRIBERS).await
    }

    /// Stops all but the first.
    async fn shrink(&mut self, laboratory: &Laboratory) -> Result<(), Failure> {
        self.hubs.remove_all_but_one().await;
        self.hubs.until_shared(&laboratory.database).await
    }

    /// Posts to the hubs in turn, and waits until all has come. Before it one notification makes the connections.
    async fn burst(&self, receiver: &Receiver) -> Result<Rate, Failure> {
        let mut publishers = Vec::new();
        for hub in &self.hubs.entrances {
            publishers.push(Publisher::at(hub).await?);
        }
        let due = receiver.total() + SUBSCRIBERS as u64;
        publishers[0].post(receiver, 0, Instant::now()).await?;
        receiver.until(due).await?;
        tokio::time::sleep(PAUSE).await;
        let count = SUBSCRIBERS as u64 * u64::from(BURST);
        let (due, began, all) = (receiver.total() + count, Instant::now(), publishers.len());
        for number in 0..BURST as usize {
            publishers[number % all].post(receiver, 0, Instant::now()).await?;
        }
        receiver.until(due).await?;
        Ok(Rate::new(count, began.elapsed()))
    }
}
