//! `resync-load fanout`: deliveries a second of a hub with everything that belongs to it, against the bare client loop.

use std::path::Path;
use std::time::Instant;

use futures_util::stream::{self, TryStreamExt};
use serde::Serialize;

use super::bare::Bare;
use super::limit::{bare_rate, payload};
use super::receiver::Receiver;
use super::{Failure, Rate};
use crate::harness::{HubProcess, form, post};

const TOPIC: &str = "http://source.example/load/";
/// Requests to the hub at once, while subscriptions are made.
const SUBSCRIBING: usize = 16;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Fanout {
    /// Subscriptions of the one topic.
    pub subscribers: usize,
    /// Hosts on 127/8 that they are on.
    pub hosts: usize,
    /// Notifications, posted one after the other as fast as the hub accepts them.
    pub notifications: u32,
    /// Bytes of each.
    pub payload: usize,
    /// Requests under way at once, of the hub and of the bare loop.
    pub at_once: usize,
    /// Measurements; the middle one counts.
    pub rounds: usize,
    /// The engine of the store.
    pub engine: String,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct FanoutReport {
    /// From the first post to the last delivery.
    pub hub: Rate,
    /// The same number of signed requests without a hub.
    pub bare_client: Rate,
    /// The one by the other.
    pub ratio: f64,
    /// Seconds from the first post to the last acknowledgement.
    pub publishing: f64,
    /// Subscribers that did not get each notification exactly once.
    pub uneven: usize,
    /// Resident memory of the hub, in bytes, after the last delivery.
    pub hub_memory: u64,
    /// CPU seconds of the hub for all rounds.
    pub hub_cpu: f64,
}

/// Measures a hub whose data is in `folder`.
///
/// # Errors
/// When a delivery does not come, or whatever the network reports.
pub async fn fanout(plan: &Fanout, folder: &Path) -> Result<FanoutReport, Failure> {
    let receiver = Receiver::start(plan.subscribers).await?;
    let at_once = plan.at_once.to_string();
    let mut hub = HubProcess::start_with(
        folder,
        &[("DELIVERY_MAX_IN_FLIGHT", &at_once), ("STORE_ENGINE", &plan.engine)],
    )
    .await;
    subscribe(plan, &hub, &receiver).await?;
    // The first one makes the connections.
    publish(plan, &hub, 1).await?;
    receiver.until(plan.subscribers as u64).await?;
    let (mut rounds, mut expected) = (Vec::new(), plan.subscribers as u64);
    for _ in 0..plan.rounds {
        let began = Instant::now();
        publish(plan, &hub, plan.notifications).await?;
        let publishing = began.elapsed().as_secs_f64();
        let count = plan.subscribers as u64 * u64::from(plan.notifications);
        expected += count;
        receiver.until(expected).await?;
        rounds.push((Rate::new(count, began.elapsed()), publishing));
    }
    let each = 1 + plan.notifications * u32::try_from(plan.rounds)?;
    let uneven = receiver.uneven(each);
    let (hub_memory, hub_cpu) = usage(&hub.process().pid().to_string())?;
    hub.stop().await;
    let bare_client = bound(plan).await?;
    rounds.sort_by(|(one, _), (other, _)| one.seconds.total_cmp(&other.seconds));
    let (hub, publishing) = rounds[rounds.len() / 2];
    let ratio = hub.per_second / bare_client.per_second;
    Ok(FanoutReport { hub, bare_client, ratio, publishing, uneven, hub_memory, hub_cpu })
}

async fn bound(plan: &Fanout) -> Result<Rate, Failure> {
    let receiver = Receiver::start(plan.subscribers).await?;
    let count = plan.subscribers as u64 * u64::from(plan.notifications);
    let bare = Bare {
        // Many rounds, so that making the connections does not count for much.
        requests: count.max(50_000),
        subscribers: plan.subscribers,
        hosts: plan.hosts,
        at_once: plan.at_once.min(plan.subscribers),
        body: payload(plan.payload),
    };
    bare_rate(bare, receiver).await
}

async fn subscribe(plan: &Fanout, hub: &HubProcess, receiver: &Receiver) -> Result<(), Failure> {
    stream::iter((0..plan.subscribers).map(Ok))
        .try_for_each_concurrent(SUBSCRIBING, |subscriber| async move {
            let (callback, secret) =
                (receiver.url(subscriber, plan.hosts), format!("secret of subscriber {subscriber}"));
            let parameters = [
                ("hub.mode", "subscribe"),
                ("hub.topic", TOPIC),
                ("hub.callback", &callback),
                ("hub.secret", &secret),
            ];
            let answer = form(hub.address, &parameters).await?;
            if answer.status == 202 { Ok(()) } else { Err(Failure::from(answer.text())) }
        })
        .await?;
    hub.until_subscribed(plan.subscribers).await;
    Ok(())
}

async fn publish(plan: &Fanout, hub: &HubProcess, notifications: u32) -> Result<(), Failure> {
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let body = payload(plan.payload);
    for _ in 0..notifications {
        let headers = [("Content-Type", "text/plain"), ("Link", link.as_str())];
        let answer = post(hub.address, &headers, &body).await?;
        if answer.status != 202 {
            return Err(answer.text().into());
        }
    }
    Ok(())
}

/// Resident bytes and CPU seconds of a process.
fn usage(pid: &str) -> Result<(u64, f64), Failure> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks = |field: usize| after_name.split(' ').nth(field).and_then(|ticks| ticks.parse::<f64>().ok());
    // Fields 14 and 15 of the whole line; a tick is a hundredth of a second on Linux.
    let cpu = (ticks(11).unwrap_or_default() + ticks(12).unwrap_or_default()) / 100.0;
    Ok((kilobytes * 1024, cpu))
}
