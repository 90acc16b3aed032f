//! `resync-load scale`: many subscriptions, few or many to a topic, against a small hub in the same run.
//!
//! The large hub delivers to each subscription once, of which it has read nothing before. A small one finds everything in its
//! caches from the second notification on: the ratios with it say what growth costs together with being cold. It makes as many
//! deliveries (at least one burst), and its topics have as many subscribers as the large one's, up to all that it has, so that a
//! post is shared by as many of them. What being cold costs alone is measured with a small hub that is started again and again,
//! and then delivers one notification to all subscribers of one topic.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use serde::Serialize;
use walkdir::WalkDir;

use super::delays::stamped;
use super::receiver::Receiver;
use super::stage::{Audience, Publisher, usage};
use super::{Failure, Rate};
use crate::harness::HubProcess;

/// The small case.
const SMALL_SUBSCRIBERS: usize = 1_000;
/// What it is sent in one burst.
const SMALL_NOTIFICATIONS: u32 = 200;
/// How often the small hub is started again, to deliver once to subscriptions of which it has read nothing.
const COLD_STARTS: usize = 30;
/// Who post, each over a connection of its own: what one alone could post would be the bound of many topics.
const PUBLISHERS: usize = 16;
/// On 127/8.
const HOSTS: usize = 1_000;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Scale {
    /// Topics.
    pub topics: usize,
    /// Subscribers of each.
    pub subscribers: usize,
    /// The engine of the hub's store.
    pub engine: String,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleReport {
    /// Subscriptions made over HTTP, each verified; `None` when they were there already.
    pub subscribing: Option<Rate>,
    /// The large hub.
    pub large: Size,
    /// The small one, just before …
    pub small: Size,
    /// … and just after, since a machine is not always as quick: ratios are with the mean of both.
    pub small_again: Size,
    /// The small one just after its start, over connections that stand.
    pub small_cold: Cold,
    /// Resident bytes for each subscription, before anything is delivered.
    pub memory_per_subscription: f64,
    /// Time for each delivery, the large hub's by the small one's.
    pub time_ratio: f64,
    /// CPU time for each delivery, the large hub's by the small one's.
    pub cpu_ratio: f64,
    /// Time for each delivery, the large hub's by that of a small one that is cold too.
    pub time_ratio_cold: f64,
    /// CPU time for each delivery, the large hub's by that of a small one that is cold too.
    pub cpu_ratio_cold: f64,
}

/// Deliveries to subscriptions that the hub had not read before.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cold {
    /// Starts of the hub, each with one notification.
    pub starts: usize,
    /// All their deliveries, in the time from each post to the last delivery.
    pub fan_out: Rate,
    /// Microseconds of CPU for each delivery.
    pub cpu: f64,
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
    /// Subscriptions that did not get everything exactly once.
    pub uneven: usize,
}

/// Measures. The large hub's data is in `folder`, and stays there for the next time.
///
/// # Errors
/// When a delivery does not come, or whatever the network or the disk reports.
pub async fn scale(plan: &Scale, folder: &Path) -> Result<ScaleReport, Failure> {
    let audience = Audience { topics: plan.topics, subscribers: plan.subscribers, hosts: HOSTS };
    let (mut staged, subscribing) = Staged::new(audience, &plan.engine, folder).await?;
    let small = measure_small(plan).await?;
    let large = staged.measure(1, 1).await?;
    let small_again = measure_small(plan).await?;
    let beside = tempfile::tempdir_in(".")?;
    let small_cold = measure_cold(&plan.engine, beside.path()).await?;
    // Sizes of a machine are far below 2^52.
    #[expect(clippy::cast_precision_loss)]
    let memory_per_subscription = large.memory.saturating_sub(small.memory) as f64
        / (large.subscriptions - small.subscriptions).max(1) as f64;
    let small_seconds = f64::midpoint(small.seconds_each(), small_again.seconds_each());
    Ok(ScaleReport {
        subscribing,
        memory_per_subscription,
        time_ratio: large.seconds_each() / small_seconds,
        cpu_ratio: large.cpu / f64::midpoint(small.cpu, small_again.cpu),
        time_ratio_cold: small_cold.fan_out.per_second / large.fan_out.per_second,
        cpu_ratio_cold: large.cpu / small_cold.cpu,
        large,
        small,
        small_again,
        small_cold,
    })
}

impl Size {
    /// For each delivery.
    fn seconds_each(&self) -> f64 {
        1.0 / self.fan_out.per_second
    }
}

/// A new hub with so few subscriptions that everything stays in its caches.
async fn measure_small(plan: &Scale) -> Result<Size, Failure> {
    let subscribers = plan.subscribers.min(SMALL_SUBSCRIBERS);
    let audience = Audience { topics: SMALL_SUBSCRIBERS / subscribers, subscribers, hosts: HOSTS };
    let beside = tempfile::tempdir_in(".")?;
    let (mut staged, _) = Staged::new(audience, &plan.engine, beside.path()).await?;
    let size = staged.measure(SMALL_NOTIFICATIONS, bursts(plan, audience)).await?;
    if size.uneven > 0 {
        return Err(format!(
            "{} subscriptions of a small hub did not get everything exactly once",
            size.uneven
        )
        .into());
    }
    Ok(size)
}

/// How many bursts make as many deliveries as the large hub makes; one at least.
fn bursts(plan: &Scale, small: Audience) -> u32 {
    let in_one = small.subscriptions() * SMALL_NOTIFICATIONS as usize;
    u32::try_from(plan.topics * plan.subscribers / in_one).unwrap_or(u32::MAX).max(1)
}

/// A hub that is stopped, and its subscribers.
struct Staged {
    audience: Audience,
    receiver: Receiver,
    hub: HubProcess,
    data: PathBuf,
}

impl Staged {
    /// All subscribe, unless the folder has a hub's data already.
    async fn new(audience: Audience, engine: &str, folder: &Path) -> Result<(Self, Option<Rate>), Failure> {
        let (data, note) = (folder.join("data"), folder.join("port"));
        let port = fs::read_to_string(&note).ok().and_then(|port| port.parse().ok());
        let receiver = Receiver::start_at(audience.subscriptions(), port.unwrap_or(0)).await?;
        let mut hub = HubProcess::prepare(&data, &[("STORE_ENGINE", engine)]);
        let mut subscribing = None;
        if port.is_none() {
            hub.restart().await;
            let began = Instant::now();
            audience.subscribe(&hub, &receiver).await?;
            subscribing = Some(Rate::new(audience.subscriptions() as u64, began.elapsed()));
            hub.stop().await;
            fs::write(&note, receiver.port().to_string())?;
        }
        Ok((Self { audience, receiver, hub, data }, subscribing))
    }

    /// Starts it and lets it deliver, each burst after the last one has arrived.
    async fn measure(&mut self, notifications: u32, bursts: u32) -> Result<Size, Failure> {
        let began = Instant::now();
        self.hub.restart().await;
        self.hub.until_ready().await;
        let start = began.elapsed().as_secs_f64();
        let (memory, cpu_before) = usage(&mut self.hub)?;
        let (mut posting, mut delivering) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..bursts {
            let (posted, delivered) =
                deliver(self.audience, notifications, &self.hub, &self.receiver).await?;
            posting += posted;
            delivering += delivered;
        }
        let notifications = notifications * bursts;
        let posts = self.audience.topics as u64 * u64::from(notifications);
        let deliveries = self.audience.subscriptions() as u64 * u64::from(notifications);
        let (publishing, fan_out) = (Rate::new(posts, posting), Rate::new(deliveries, delivering));
        let (memory_after, cpu) = usage(&mut self.hub)?;
        let uneven = self.receiver.uneven(notifications);
        self.hub.stop().await;
        Ok(Size {
            subscriptions: self.audience.subscriptions(),
            store: bytes_below(&self.data)?,
            start,
            memory,
            memory_after,
            cpu: (cpu - cpu_before) * 1e6 / (fan_out.per_second * fan_out.seconds),
            publishing,
            fan_out,
            uneven,
        })
    }
}

/// Two topics with the same hosts: deliveries of the first open the connections, those of the second are measured.
async fn measure_cold(engine: &str, data: &Path) -> Result<Cold, Failure> {
    let audience = Audience { topics: 2, subscribers: SMALL_SUBSCRIBERS, hosts: HOSTS };
    let receiver = Receiver::start(audience.subscriptions()).await?;
    let mut hub = HubProcess::prepare(data, &[("STORE_ENGINE", engine)]);
    hub.restart().await;
    audience.subscribe(&hub, &receiver).await?;
    hub.stop().await;
    let (mut took, mut cpu) = (Duration::ZERO, 0.0);
    for _ in 0..COLD_STARTS {
        hub.restart().await;
        hub.until_ready().await;
        let mut publisher = Publisher::to(&hub).await?;
        let before = receiver.total();
        publisher.post(&Audience::topic(0), &stamped(1_000)).await?;
        receiver.until(before + SMALL_SUBSCRIBERS as u64).await?;
        // The last checkpoint of the first topic.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (_, cpu_before) = usage(&mut hub)?;
        let began = Instant::now();
        publisher.post(&Audience::topic(1), &stamped(1_000)).await?;
        receiver.until(before + audience.subscriptions() as u64).await?;
        took += began.elapsed();
        tokio::time::sleep(Duration::from_millis(500)).await;
        cpu += usage(&mut hub)?.1 - cpu_before;
        hub.stop().await;
    }
    let fan_out = Rate::new((COLD_STARTS * SMALL_SUBSCRIBERS) as u64, took);
    Ok(Cold { starts: COLD_STARTS, cpu: cpu * 1e6 / (fan_out.per_second * fan_out.seconds), fan_out })
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
            publisher.post(&Audience::topic(number % audience.topics), &stamped(1_000)).await?;
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

fn bytes_below(folder: &Path) -> Result<u64, Failure> {
    let mut bytes = 0;
    for entry in WalkDir::new(folder) {
        bytes += std::os::unix::fs::MetadataExt::blocks(&entry?.metadata()?) * 512;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_hub_makes_as_many_deliveries_as_the_large_one_and_one_burst_at_least() {
        let bursts = |topics, subscribers, small| {
            let plan = Scale { topics, subscribers, engine: String::new() };
            bursts(&plan, Audience { topics: 1, subscribers: small, hosts: HOSTS })
        };
        assert_eq!(bursts(1, 1_000_000, 1_000), 5);
        assert_eq!(bursts(10_000, 100, 1_000), 5);
        assert_eq!(bursts(10, 10, 1_000), 1);
    }
}
