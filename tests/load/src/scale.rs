//! `resync-load scale`: many subscriptions, few or many to a topic, against a small hub in the same run.
//!
//! The large hub delivers to each subscription once, of which it has read nothing before. A small one finds everything in its
//! caches from the second notification on: the ratios with it say what growth costs together with being cold. It makes as many
//! deliveries (at least one burst), and its topics have as many subscribers as the large one's, up to all that it has, so that a
//! post is shared by as many of them. It is measured before and after the large one, and all of it several times over: a machine is
//! not always as quick. Each time the large hub starts with a copy of its data as it was when all had subscribed, which the system's
//! cache has: cold is what the hub itself keeps.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::Serialize;
use walkdir::WalkDir;

use super::audience::Audience;
use super::check::Copies;
use super::measure::bytes_below;
use super::receiver::Receiver;
use super::stage::{Publisher, usage};
use super::{Failure, Rate, median};
use resync_harness::{HubProcess, Scratch};

/// What a small hub is sent in one burst.
const SMALL_NOTIFICATIONS: u32 = 200;
/// Who post, each over a connection of its own: what one alone could post would be the bound of many topics.
const PUBLISHERS: usize = 16;
/// On 127/8.
const HOSTS: usize = 1_000;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Topics.
    pub topics: NonZeroUsize,
    /// Subscribers of each.
    pub subscribers: NonZeroUsize,
    /// Subscriptions of the small hub.
    pub small: NonZeroUsize,
    /// The engine of the hub's store.
    pub engine: String,
    /// How often it is measured; of each figure the median counts, by itself.
    pub rounds: NonZeroUsize,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleReport {
    /// Subscriptions made over HTTP, each verified; `None` when they were there already.
    pub subscribing: Option<Rate>,
    /// Resident bytes for each subscription, before anything is delivered.
    pub memory_per_subscription: f64,
    /// Seconds from the start of the large hub's process to its readiness.
    pub start: f64,
    /// Deliveries a second of the large hub.
    pub per_second: f64,
    /// Time for each delivery, the large hub's by the small one's.
    pub time_ratio: f64,
    /// CPU time for each delivery, the large hub's by the small one's.
    pub cpu_ratio: f64,
    /// Time in the worst round.
    pub worst_time_ratio: f64,
    /// CPU time in the worst round.
    pub worst_cpu_ratio: f64,
    /// Whether each subscription of the large hub got everything once and as it was posted, in all rounds.
    pub copies: Copies,
    /// All rounds.
    pub rounds: Vec<Round>,
}

/// The large hub, and the small one around it: ratios are with the mean of both.
#[derive(Clone, Debug, Serialize)]
pub struct Round {
    /// The small one, just before …
    pub before: Size,
    /// … the large one …
    pub large: Size,
    /// … and the small one just after, which is the one before the next.
    pub after: Size,
    /// Resident bytes for each subscription, before anything is delivered.
    pub memory_per_subscription: f64,
    /// Time for each delivery, the large hub's by the small one's.
    pub time_ratio: f64,
    /// CPU time for each delivery, the large hub's by the small one's.
    pub cpu_ratio: f64,
}

/// A hub with so many subscriptions.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    /// How many.
    pub subscriptions: usize,
    /// Bytes on the disk.
    pub store: u64,
    /// Seconds from the start of its process to its readiness.
    pub start: f64,
    /// Resident bytes when it is ready.
    pub memory: u64,
    /// Resident bytes after the deliveries.
    pub memory_after: u64,
    /// What was posted, from the first to the last acknowledgement of each burst.
    pub publishing: Rate,
    /// From the first post to the last delivery of each burst.
    pub fan_out: Rate,
    /// Microseconds of CPU for each delivery.
    pub cpu: f64,
    /// Whether each subscription got everything once and as it was posted.
    pub copies: Copies,
}

/// Measures. The large hub's data is in `folder`, and stays there for the next time as it was when all had subscribed.
///
/// # Errors
/// When a delivery does not come, or whatever the network or the disk reports.
pub async fn scale(plan: &Scale, folder: &Path) -> Result<ScaleReport, Failure> {
    let (topics, subscribers) = (plan.topics.get(), plan.subscribers.get());
    let audience = Audience { topics, subscribers, hosts: HOSTS };
    let (staged, subscribing) = Staged::new(audience, &plan.engine, folder).await?;
    let mut rounds = Vec::new();
    let mut before = measure_small(plan).await?;
    for _ in 0..plan.rounds.get() {
        let large = staged.measure_copy(folder).await?;
        let after = measure_small(plan).await?;
        rounds.push(Round::new(before, large, after.clone()));
        before = after;
    }
    let of_rounds = |value: fn(&Round) -> f64| median(rounds.iter().map(value));
    let worst = |value: fn(&Round) -> f64| rounds.iter().map(value).fold(0.0, f64::max);
    Ok(ScaleReport {
        subscribing,
        memory_per_subscription: of_rounds(|round| round.memory_per_subscription),
        start: of_rounds(|round| round.large.start),
        per_second: of_rounds(|round| round.large.fan_out.per_second),
        time_ratio: of_rounds(|round| round.time_ratio),
        cpu_ratio: of_rounds(|round| round.cpu_ratio),
        worst_time_ratio: worst(|round| round.time_ratio),
        worst_cpu_ratio: worst(|round| round.cpu_ratio),
        copies: rounds.iter().fold(Copies::default(), |all, round| all.and(round.large.copies.clone())),
        rounds,
    })
}

impl Round {
    fn new(before: Size, large: Size, after: Size) -> Self {
        // Sizes of a machine are far below 2^52.
        #[expect(clippy::cast_precision_loss)]
        let memory_per_subscription = large.memory.saturating_sub(before.memory) as f64
            / large.subscriptions.saturating_sub(before.subscriptions).max(1) as f64;
        let time_ratio = large.seconds_each() / f64::midpoint(before.seconds_each(), after.seconds_each());
        let cpu_ratio = large.cpu / f64::midpoint(before.cpu, after.cpu);
        Self { before, large, after, memory_per_subscription, time_ratio, cpu_ratio }
    }
}

impl Size {
    /// For each delivery.
    fn seconds_each(&self) -> f64 {
        1.0 / self.fan_out.per_second
    }
}

/// A new hub with so few subscriptions that everything stays in its caches.
async fn measure_small(plan: &Scale) -> Result<Size, Failure> {
    let subscribers = plan.subscribers.min(plan.small).get();
    let audience = Audience { topics: plan.small.get() / subscribers, subscribers, hosts: HOSTS };
    let beside = Scratch::new_in(Path::new("."))?;
    let (staged, _) = Staged::new(audience, &plan.engine, beside.path()).await?;
    let size = staged.measure(&staged.data, SMALL_NOTIFICATIONS, bursts(plan, audience)).await?;
    if size.copies.wrong > 0 {
        return Err(format!("a small hub made mistakes: {:?}", size.copies).into());
    }
    Ok(size)
}

/// How many bursts make as many deliveries as the large hub makes; one at least.
fn bursts(plan: &Scale, small: Audience) -> u32 {
    let in_one = small.subscriptions() * SMALL_NOTIFICATIONS as usize;
    u32::try_from(plan.topics.get() * plan.subscribers.get() / in_one).unwrap_or(u32::MAX).max(1)
}

/// Subscribers, and the data of the hub, which does not run, that they are subscribed to.
struct Staged {
    audience: Audience,
    receiver: Receiver,
    engine: String,
    data: PathBuf,
}

impl Staged {
    /// All subscribe, unless the folder has a hub's data already.
    async fn new(audience: Audience, engine: &str, folder: &Path) -> Result<(Self, Option<Rate>), Failure> {
        let (data, note) = (folder.join("data"), folder.join("port"));
        let port = fs::read_to_string(&note).ok().and_then(|port| port.parse().ok());
        let receiver = Receiver::start_at(audience, port.unwrap_or(0)).await?;
        let staged = Self { audience, receiver, engine: engine.to_owned(), data };
        let mut subscribing = None;
        if port.is_none() {
            let mut hub = staged.hub(&staged.data);
            hub.restart().await;
            let began = Instant::now();
            audience.subscribe(&hub, &staged.receiver).await?;
            subscribing = Some(Rate::new(audience.subscriptions() as u64, began.elapsed()));
            hub.stop().await;
            fs::write(&note, staged.receiver.port().to_string())?;
        }
        Ok((staged, subscribing))
    }

    fn hub(&self, data: &Path) -> HubProcess {
        HubProcess::prepare(data, &[("STORE_ENGINE", &self.engine)])
    }

    /// One delivery to each, by a hub with a copy of the data, which is in this folder for as long.
    async fn measure_copy(&self, folder: &Path) -> Result<Size, Failure> {
        let round = Scratch::new_in(folder)?;
        let copy = round.path().join("data");
        copy_folder(&self.data, &copy)?;
        self.measure(&copy, 1, 1).await
    }

    /// Lets a hub with this data deliver, each burst after the last one has arrived.
    async fn measure(&self, data: &Path, notifications: u32, bursts: u32) -> Result<Size, Failure> {
        let mut hub = self.hub(data);
        let began = Instant::now();
        hub.restart().await;
        hub.until_ready().await;
        self.receiver.link_to(&hub.url());
        let start = began.elapsed().as_secs_f64();
        let (memory, cpu_before) = usage(&mut hub)?;
        let (mut posting, mut delivering) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..bursts {
            let (posted, delivered) = deliver(self.audience, notifications, &hub, &self.receiver).await?;
            posting += posted;
            delivering += delivered;
        }
        let notifications = notifications * bursts;
        let posts = self.audience.topics as u64 * u64::from(notifications);
        let deliveries = self.audience.subscriptions() as u64 * u64::from(notifications);
        let (publishing, fan_out) = (Rate::new(posts, posting), Rate::new(deliveries, delivering));
        let (memory_after, cpu) = usage(&mut hub)?;
        hub.stop().await;
        let copies = self.receiver.check(|_| true);
        Ok(Size {
            subscriptions: self.audience.subscriptions(),
            store: bytes_below(data),
            start,
            memory,
            memory_after,
            cpu: (cpu - cpu_before) * 1e6 / (fan_out.per_second * fan_out.seconds),
            publishing,
            fan_out,
            copies,
        })
    }
}

/// From the first post to the last acknowledgement, and to the last delivery.
async fn deliver(
    audience: Audience,
    notifications: u32,
    hub: &HubProcess,
    receiver: &Receiver,
) -> Result<(Duration, Duration), Failure> {
    let (next, posts) = (AtomicUsize::new(0), audience.topics * notifications as usize);
    let one = || async {
        let mut publisher = Publisher::to(hub).await?;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= posts {
                return Ok::<_, Failure>(());
            }
            publisher.post(receiver, number % audience.topics, Instant::now()).await?;
        }
    };
    let due = receiver.total() + audience.subscriptions() as u64 * u64::from(notifications);
    let began = Instant::now();
    try_join_all((0..PUBLISHERS).map(|_| one())).await?;
    let posting = began.elapsed();
    receiver.until(due).await?;
    let delivering = began.elapsed();
    // A repetition would come now.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok((posting, delivering))
}

/// Copies it all the way to the disk, which is to be idle while the copy is measured.
fn copy_folder(from: &Path, to: &Path) -> Result<(), Failure> {
    for entry in WalkDir::new(from) {
        let entry = entry?;
        let place = to.join(entry.path().strip_prefix(from)?);
        if entry.file_type().is_dir() {
            fs::create_dir(place)?;
        } else {
            fs::copy(entry.path(), &place)?;
            File::open(place)?.sync_all()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_hub_makes_as_many_deliveries_as_the_large_one_and_one_burst_at_least() {
        let bursts = |topics, subscribers, small| {
            let [topics, subscribers, of_small, rounds] =
                [topics, subscribers, small, 1].map(|count| NonZeroUsize::new(count).unwrap());
            let plan = Scale { topics, subscribers, small: of_small, engine: String::new(), rounds };
            bursts(&plan, Audience { topics: 1, subscribers: small, hosts: HOSTS })
        };
        assert_eq!(bursts(1, 1_000_000, 1_000), 5);
        assert_eq!(bursts(10_000, 100, 1_000), 5);
        assert_eq!(bursts(10, 10, 1_000), 1);
    }
}
