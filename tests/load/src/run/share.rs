//! What a hub delivers when more is due than it can do: a scenario's rate may be a share of that.

use std::path::Path;
use std::time::Duration;

use super::{Options, Run};
use crate::Failure;
use crate::measure::{Live, Rung, float};
use crate::scenario::{By, Churn, Expect, Pattern, Scenario};

/// Deliveries from which is taken what a hub can do: so many for each second of the run that follows …
const A_SECOND: u32 = 5_000;
/// … and at most so many.
const MOST: u32 = 500_000;
/// Before them one notification to each topic makes the connections. That takes so long, and a second more for each of …
const CONNECTED: Duration = Duration::from_secs(2);
/// … so many subscribers.
const CONNECTED_A_SECOND: u32 = 10_000;
/// Posts after the warm-up from which something can be said about a run.
const FEWEST_POSTS: f64 = 10.0;

/// How fast a scenario is published.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paced {
    pub(super) pattern: Pattern,
    /// Deliveries a second that the hub can do, where the pattern was made from it.
    pub(super) limit: Option<f64>,
}

/// Steadily, this share of what the hub delivers to so many, all of them on hosts that are well, while nothing else happens.
pub(super) async fn paced(
    share: f64,
    scenario: &Scenario,
    options: &Options,
    subscribers: u32,
    folder: &Path,
    live: &mut Live,
) -> Result<Paced, Failure> {
    if scenario.publish.by == By::Ping {
        return Err(
            "a hub that is pinged owes the newest version only, so nothing says what it can do at most: \
                    write publish.rate instead of publish.share"
                .into(),
        );
    }
    live.say("measuring what the hub can do …");
    let crowded = Scenario {
        duration: Duration::ZERO,
        warmup: CONNECTED + Duration::from_secs(u64::from(subscribers / CONNECTED_A_SECOND)),
        receivers: Vec::new(),
        churn: Churn::default(),
        faults: Vec::new(),
        expect: Expect::default(),
        ..scenario.clone()
    };
    let topics = scenario.audience.topics;
    let seconds = u32::try_from(scenario.duration.as_secs()).unwrap_or(u32::MAX);
    let deliveries = A_SECOND.saturating_mul(seconds.max(1)).min(MOST);
    let size = (deliveries / (subscribers / topics).max(1)).max(topics);
    let paced = Paced { pattern: Pattern::Burst { size, every: Duration::MAX }, limit: None };
    let rung = Run { scenario: &crowded, options, paced, bound: None, memory_empty: None, subscribers };
    let limit = limit_of(&rung.measure(folder, live).await?)?;
    let rate = share * limit * f64::from(topics) / f64::from(subscribers);
    if rate * scenario.duration.saturating_sub(scenario.warmup).as_secs_f64() < FEWEST_POSTS {
        let limit = limit.round();
        return Err(format!(
            "the hub delivers {limit} a second, and a share of {share} of that is {rate:.3} notifications a second: \
             too few are due in the scenario's time; give it a longer duration, or fewer subscribers to a topic"
        )
        .into());
    }
    Ok(Paced { pattern: Pattern::Steady(rate), limit: Some(limit) })
}

/// A hub that refused some of the burst, or lost or repeated some, was not at its limit but beyond it.
fn limit_of(rung: &Rung) -> Result<f64, Failure> {
    let (published, delivered) = (&rung.published, &rung.delivered);
    let failed = published.sent - published.acknowledged;
    if failed > 0 {
        let sent = published.sent;
        return Err(format!(
            "the hub did not take {failed} of the {sent} notifications that tell what it can do: write publish.rate instead \
             of publish.share"
        )
        .into());
    }
    if let Some(finding) = rung.judgement.findings.first() {
        let (count, name) = (float(finding.count), &finding.name);
        return Err(
            format!("while it was measured what the hub can do, it made mistakes: {count} {name}").into()
        );
    }
    Ok(delivered.per_second)
}
