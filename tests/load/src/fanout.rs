//! `resync-load fanout`: deliveries a second of a hub with everything that belongs to it, against the bare client loop.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::audience::Audience;
use super::bare::{Bare, BareClient, Bounds};
use super::check::{Copies, KIND};
use super::receiver::Receiver;
use super::stage::usage;
use super::{Failure, Rate};
use resync_harness::{HubProcess, post};

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
    pub payload: u32,
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
    /// Whether each subscriber got each notification once and as it was posted.
    pub copies: Copies,
    /// Resident memory of the hub, in bytes, before the first subscription.
    pub hub_memory_empty: u64,
    /// The same after the last delivery.
    pub hub_memory: u64,
    /// CPU time of the hub for a delivery, over all rounds, in microseconds.
    pub hub_cpu_per_delivery: f64,
    /// The same of the bare loop for a request, with as many of them at once as do best.
    pub bare_cpu_per_request: f64,
    /// The one by the other.
    pub cpu_ratio: f64,
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
    let audience = Audience { topics: 1, subscribers: plan.subscribers, hosts: plan.hosts };
    let receiver = Receiver::start(audience).await?;
    let at_once = plan.at_once.to_string();
    let mut hub = HubProcess::start_with(
        folder,
        &[("DELIVERY_MAX_IN_FLIGHT", &at_once), ("STORE_ENGINE", &plan.engine)],
    )
    .await;
    let (hub_memory_empty, _) = usage(&mut hub)?;
    audience.subscribe(&hub, &receiver).await?;
    // The first one makes the connections.
    publish(plan, &hub, &receiver, 1).await?;
    receiver.until(plan.subscribers as u64).await?;
    let mut copies = receiver.check(|_| true);
    let (_, cpu_before) = usage(&mut hub)?;
    let bare = Bare { audience, at_once: plan.at_once, bytes: plan.payload };
    let mut bounds = Bounds::connect(&bare).await?;
    let (mut rounds, mut expected) = (Vec::new(), plan.subscribers as u64);
    let count = plan.subscribers as u64 * u64::from(plan.notifications);
    for _ in 0..plan.rounds {
        let began = Instant::now();
        publish(plan, &hub, &receiver, plan.notifications).await?;
        let publishing = began.elapsed().as_secs_f64();
        expected += count;
        receiver.until(expected).await?;
        let hub = Rate::new(count, began.elapsed());
        let (again, bare) = bounds.measure(BARE_ROUND).await?;
        bounds = again;
        rounds.push(Round { hub, publishing, bare });
        // A repetition has had the time of the bare loop to come.
        copies = copies.and(receiver.check(|_| true));
    }
    let (hub_memory, cpu_after) = usage(&mut hub)?;
    hub.stop().await;
    let all = Rate::new(count * plan.rounds as u64, Duration::from_secs_f64(cpu_after - cpu_before));
    let hub_cpu_per_delivery = 1_000_000.0 / all.per_second;
    let (ratio_to_the_best, bare_client) = against_the_bound(&mut rounds);
    let ratio = against_as_many(&mut rounds);
    let bare_cpu_per_request = bare_client.cpu;
    let &mut Round { hub, publishing, .. } = middle(&mut rounds, |round| round.hub.per_second);
    Ok(FanoutReport {
        ratio,
        ratio_to_the_best,
        hub,
        bare_client,
        publishing,
        copies,
        hub_memory_empty,
        hub_memory,
        hub_cpu_per_delivery,
        bare_cpu_per_request,
        cpu_ratio: hub_cpu_per_delivery / bare_cpu_per_request,
    })
}

/// The one in the middle by this measure; there is at least one.
fn middle(rounds: &mut [Round], measure: impl Fn(&Round) -> f64) -> &mut Round {
    rounds.sort_by(|one, other| measure(one).total_cmp(&measure(other)));
    &mut rounds[rounds.len() / 2]
}

/// The ratio in the middle one of all rounds, to the bare loop with as many requests at once as do best in the middle one of theirs. What
/// that loop took of the processor is that of all its rounds, as it is of the hub.
fn against_the_bound(rounds: &mut [Round]) -> (f64, BareClient) {
    let middles: Vec<_> = (0..rounds[0].bare.len())
        .map(|tried| {
            let cpu = mean(rounds.iter().map(|round| round.bare[tried].cpu));
            let middle = middle(rounds, |round| round.bare[tried].rate.per_second).bare[tried];
            BareClient { cpu, ..middle }
        })
        .collect();
    let best = BareClient::fastest(&middles);
    (middle(rounds, |round| round.ratio(best)).ratio(best), middles[best])
}

/// Of rounds that are of the same size.
fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
    values.sum::<f64>() / f64::from(count)
}

/// The ratio in the middle one of all rounds, to the bare loop with as many requests at once as the hub may make, which is tried last.
fn against_as_many(rounds: &mut [Round]) -> f64 {
    let last = rounds[0].bare.len() - 1;
    middle(rounds, |round| round.ratio(last)).ratio(last)
}

async fn publish(
    plan: &Fanout,
    hub: &HubProcess,
    receiver: &Receiver,
    notifications: u32,
) -> Result<(), Failure> {
    let link = format!("<{}>; rel=\"self\", <{}>; rel=\"hub\"", Audience::topic(0), hub.url());
    for _ in 0..notifications {
        let (number, body) = receiver.notification(0, Instant::now(), plan.payload);
        let answer = post(hub.address, &[("Content-Type", KIND), ("Link", link.as_str())], &body).await?;
        if answer.status != 202 {
            return Err(answer.text().into());
        }
        receiver.acknowledged(number);
    }
    Ok(())
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
                .map(|(at_once, rate)| BareClient {
                    at_once,
                    rate: a_second(rate),
                    cpu: f64::from(u32::try_from(hub).unwrap()),
                })
                .into(),
        };
        let mut rounds = [round(30, 50, 40), round(40, 50, 90), round(20, 50, 40)];
        let (ratio, bound) = against_the_bound(&mut rounds);
        assert_eq!((bound.at_once, bound.rate.count), (64, 50));
        assert!((ratio - 0.6).abs() < 1e-9, "{ratio}");
        assert!((bound.cpu - 30.0).abs() < 1e-9, "of all rounds: {bound:?}");
        let ratio = against_as_many(&mut rounds);
        assert!((ratio - 0.5).abs() < 1e-9, "{ratio}");
    }
}
