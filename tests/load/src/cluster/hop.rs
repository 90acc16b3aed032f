//! `cluster hop`: how much later a notification is delivered that was posted at another hub than the one that delivers it.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Cluster;
use super::hubs::{Laboratory, totals};
use crate::Failure;
use crate::audience::Audience;
use crate::check::Copies;
use crate::delays::until_due;
use crate::measure::Spread;
use crate::receiver::Receiver;
use crate::stage::Publisher;

/// Between the moments at which two notifications are due.
const QUIET: Duration = Duration::from_millis(20);
/// These make the connections.
const FIRST: u32 = 20;

/// What came out. Posts at either hub take turns.
#[derive(Clone, Debug, Serialize)]
pub struct HopReport {
    /// Posted at the hub that delivers, from the moment that it was due to the delivery's arrival.
    pub same: Spread,
    /// The same, posted at the other hub.
    pub other: Spread,
    /// How much longer the other hub's took, in milliseconds: their halves …
    pub p50: f64,
    /// … and all but one in a hundred.
    pub p99: f64,
    /// Whether what was delivered is what was posted.
    pub copies: Copies,
}

/// Measures two hubs with one subscription.
pub(super) async fn measure(laboratory: &Laboratory, plan: &Cluster) -> Result<HopReport, Failure> {
    let audience = Audience { topics: 1, subscribers: 1, hosts: 1 };
    let receiver = Receiver::start(audience).await?;
    receiver.link_to_any();
    let hubs = laboratory.hubs(2, &[]).await?;
    audience.ask(&hubs.entrances, &receiver).await?;
    hubs.until_subscribed(1).await?;
    let [one, other] = [&hubs.entrances[0], &hubs.entrances[1]];
    let mut publishers = [Publisher::at(one).await?, Publisher::at(other).await?];
    let mut times = [Vec::new(), Vec::new()];
    let begin = Instant::now();
    for number in 0.. {
        if number > 2 * FIRST && begin.elapsed() >= plan.time() {
            break;
        }
        let at = usize::from(number % 2 == 1);
        let due = until_due(begin + QUIET * number).await;
        let before = receiver.total();
        let arrival = async {
            receiver.next_after(before).await?;
            Ok::<_, Failure>(due.elapsed())
        };
        let ((), arrived) = tokio::try_join!(publishers[at].post(&receiver, 0, due), arrival)?;
        if number >= FIRST {
            times[at].push(arrived);
        }
    }
    let delivered = [totals(&hubs.nodes[0]).await?.delivered, totals(&hubs.nodes[1]).await?.delivered];
    hubs.end().await;
    if delivered.iter().all(|count| *count > 0) {
        return Err("the subscription went over to the other hub while it was measured".into());
    }
    let [mut same, mut other] = times;
    if delivered[0] == 0 {
        std::mem::swap(&mut same, &mut other);
    }
    let (same, other) = (Spread::of(same)?, Spread::of(other)?);
    let (p50, p99) = (other.p50 - same.p50, other.p99 - same.p99);
    Ok(HopReport { same, other, p50, p99, copies: receiver.check(|_| true) })
}
