//! `resync-load fanout`: deliveries a second of a hub with everything that belongs to it, against the bare client loop.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::stream::{self, TryStreamExt};
use serde::Serialize;

use super::bare::{Bare, BareClient, Bounds};
use super::limit::payload;
use super::receiver::Receiver;
use super::{Failure, Rate};
use resync_harness::{HubProcess, form, post};

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
    /// Requests under way at once at most, of the hub and of the bare loop.
    pub at_once: usize,
    /// Measurements; the middle one counts.
    pub rounds: usize,
    /// The engine of the store.
    pub engine: String,
}

/// What came out. Rounds of the hub and of the bare loop take turns, so that whatever else the machine does is shared.
#[derive(Clone, Debug, Serialize)]
pub struct FanoutReport {
    /// The one by the other, in the middle one of all rounds, where both may have as many requests under way at once.
    pub ratio: f64,
    /// The same against the loop with as many at once as do best.
    pub ratio_to_the_best: f64,
    /// From the first post to the last delivery, in the middle round.
    pub hub: Rate,
    /// Signed requests without a hub, with as many of them at once as do best, in the middle round.
    pub bare_client: BareClient,
    /// Seconds from the first post to the last acknowledgement, in the hub's middle round.
    pub publishing: f64,
    /// Subscribers that did not get each notification exactly once.
    pub uneven: usize,
    /// Resident memory of the hub, in bytes, before the first subscription.
    pub hub_memory_empty: u64,
    /// The same after the last delivery.
    pub hub_memory: u64,
    /// CPU time of the hub for a delivery, over all rounds, in microseconds.
    pub hub_cpu_per_delivery: f64,
}

/// One round of each.
struct Round {
    hub: Rate,
    publishing: f64,
    /// With each number of requests at once.
    bare: Vec<BareClient>,
}

impl Round {
    /// Against the loop with one of these numbers, by its place.
    fn ratio(&self, tried: usize) -> f64 {
        self.hub.per_second / self.bare[tried].rate.per_second
    }
}

/// Requests of the bare loop in a round, with each number of them at once: beginning and ending it must not count for much.
const BARE_ROUND: u64 = 20_000;

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
    let pid = hub.process().pid().to_string();
    let (hub_memory_empty, _) = usage(&pid)?;
    subscribe(plan, &hub, &receiver).await?;
    // The first one makes the connections.
    publish(plan, &hub, 1).await?;
    receiver.until(plan.subscribers as u64).await?;
    let (_, cpu_before) = usage(&pid)?;
    let bare_receiver = Receiver::start(plan.subscribers).await?;
    let mut bounds = bounds(plan, &bare_receiver).await?;
    let (mut rounds, mut expected) = (Vec::new(), plan.subscribers as u64);
    let count = plan.subscribers as u64 * u64::from(plan.notifications);
    for _ in 0..plan.rounds {
        let began = Instant::now();
        publish(plan, &hub, plan.notifications).await?;
        let publishing = began.elapsed().as_secs_f64();
        expected += count;
        receiver.until(expected).await?;
        let hub = Rate::new(count, began.elapsed());
        let (again, bare) = bounds.measure(BARE_ROUND).await?;
        bounds = again;
        rounds.push(Round { hub, publishing, bare });
    }
    let uneven = receiver.take_uneven(1 + plan.notifications * u32::try_from(plan.rounds)?);
    let (hub_memory, cpu_after) = usage(&pid)?;
    hub.stop().await;
    let all = Rate::new(count * plan.rounds as u64, Duration::from_secs_f64(cpu_after - cpu_before));
    let hub_cpu_per_delivery = 1_000_000.0 / all.per_second;
    let (ratio_to_the_best, bare_client) = against_the_bound(&mut rounds);
    let ratio = against_as_many(&mut rounds);
    let &mut Round { hub, publishing, .. } = middle(&mut rounds, |round| round.hub.per_second);
    Ok(FanoutReport {
        ratio,
        ratio_to_the_best,
        hub,
        bare_client,
        publishing,
        uneven,
        hub_memory_empty,
        hub_memory,
        hub_cpu_per_delivery,
    })
}

/// The one in the middle by this measure; there is at least one.
fn middle(rounds: &mut [Round], measure: impl Fn(&Round) -> f64) -> &mut Round {
    rounds.sort_by(|one, other| measure(one).total_cmp(&measure(other)));
    &mut rounds[rounds.len() / 2]
}

/// The ratio in the middle one of all rounds, to the bare loop with as many requests at once as do best in the middle one of theirs.
fn against_the_bound(rounds: &mut [Round]) -> (f64, BareClient) {
    let middles: Vec<_> = (0..rounds[0].bare.len())
        .map(|tried| middle(rounds, |round| round.bare[tried].rate.per_second).bare[tried])
        .collect();
    let best = BareClient::fastest(&middles);
    (middle(rounds, |round| round.ratio(best)).ratio(best), middles[best])
}

/// The ratio in the middle one of all rounds, to the bare loop with as many requests at once as the hub may make, which is tried last.
fn against_as_many(rounds: &mut [Round]) -> f64 {
    let last = rounds[0].bare.len() - 1;
    middle(rounds, |round| round.ratio(last)).ratio(last)
}

async fn bounds(plan: &Fanout, receiver: &Receiver) -> Result<Bounds, Failure> {
    let bare = Bare {
        subscribers: plan.subscribers,
        hosts: plan.hosts,
        at_once: plan.at_once,
        body: payload(plan.payload),
    };
    Bounds::connect(&bare, receiver).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_number_of_requests_at_once_that_does_best_in_its_middle_round_not_in_its_luckiest() {
        let a_second = |count| Rate::new(count, Duration::from_secs(1));
        let round = |hub, few, many| Round {
            hub: a_second(hub),
            publishing: 0.0,
            bare: [(64, few), (512, many)]
                .map(|(at_once, rate)| BareClient { at_once, rate: a_second(rate) })
                .into(),
        };
        let mut rounds = [round(30, 50, 40), round(40, 50, 90), round(20, 50, 40)];
        let (ratio, bound) = against_the_bound(&mut rounds);
        assert_eq!((bound.at_once, bound.rate.count), (64, 50));
        assert!((ratio - 0.6).abs() < 1e-9, "{ratio}");
        let ratio = against_as_many(&mut rounds);
        assert!((ratio - 0.5).abs() < 1e-9, "{ratio}");
    }
}
