//! `resync-load isolation`: what healthy subscribers notice of hosts that hang and hosts that refuse.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::sleep;

use super::audience::Audience;
use super::check::Copies;
use super::delays::until_due;
use super::receiver::{Receiver, Temper};
use super::stage::Publisher;
use super::{Failure, Rate, median};
use resync_harness::{HubProcess, Scratch};

/// After sick hosts have fallen ill, until the paced part begins.
const PAUSE: Duration = Duration::from_millis(500);

/// What is measured.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// Subscriptions of the one topic.
    pub subscribers: usize,
    /// Hosts on 127/8 that they are on.
    pub hosts: usize,
    /// One of so many hosts hangs, and another one of so many refuses.
    pub sick_one_in: usize,
    /// Notifications of a burst, for throughput.
    pub burst: u32,
    /// Notifications a second after that, for delays, and for how many seconds.
    pub rate: u32,
    /// Seconds of that.
    pub seconds: u32,
    /// Pairs of measurements, well and sick by turns, each with a new hub; the median of each value counts.
    pub rounds: usize,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct IsolationReport {
    /// Hosts that hang, and as many that refuse.
    pub sick_hosts: usize,
    /// With all hosts well.
    pub well: Health,
    /// What the healthy ones got while the others were sick.
    pub sick: Health,
    /// Throughput of healthy subscribers, the second by the first, the median of the pairs.
    pub throughput_ratio: f64,
    /// Their 99th hundredth of delays, the second by the first, the median of the pairs.
    pub p99_ratio: f64,
    /// Whether the healthy ones got each notification once and as it was posted.
    pub copies: Copies,
    /// All rounds: well, sick.
    pub rounds: Vec<(Health, Health)>,
}

/// What the healthy subscribers got.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Health {
    /// Notifications a second to each of them in the burst.
    pub burst: f64,
    /// Delays of the paced notifications in milliseconds: half were shorter.
    pub p50: f64,
    /// One in a hundred was longer.
    pub p99: f64,
}

/// Measures.
///
/// # Errors
/// When a healthy subscriber does not get everything.
pub async fn isolation(plan: &Isolation) -> Result<IsolationReport, Failure> {
    let (mut rounds, mut copies) = (Vec::new(), Copies::default());
    for _ in 0..plan.rounds {
        let (well, of_well) = once(plan, false).await?;
        let (sick, of_sick) = once(plan, true).await?;
        rounds.push((well, sick));
        copies = copies.and(of_well).and(of_sick);
    }
    let (well, sick): (Vec<_>, Vec<_>) = rounds.iter().copied().unzip();
    // Of each pair by itself: the machine is not always as quick.
    let ratio = |of: fn(&Health) -> f64| median(rounds.iter().map(|(well, sick)| of(sick) / of(well)));
    Ok(IsolationReport {
        sick_hosts: plan.hosts / plan.sick_one_in,
        well: medians(&well),
        sick: medians(&sick),
        throughput_ratio: ratio(|one| one.burst),
        p99_ratio: ratio(|one| one.p99),
        copies,
        rounds,
    })
}

async fn once(plan: &Isolation, sick: bool) -> Result<(Health, Copies), Failure> {
    let folder = Scratch::new_in(Path::new("."))?;
    let audience = Audience { topics: 1, subscribers: plan.subscribers, hosts: plan.hosts };
    let receiver = Receiver::start(audience).await?;
    let mut hub = HubProcess::start(folder.path()).await;
    audience.subscribe(&hub, &receiver).await?;
    let mut publisher = Publisher::to(&hub).await?;
    // The first one makes the connections.
    publisher.post(&receiver, 0, Instant::now()).await?;
    receiver.until(plan.subscribers as u64).await?;
    let is_sick = |host: usize| sick && host % plan.sick_one_in < 2;
    for host in (0..plan.hosts).filter(|host| is_sick(*host)) {
        let temper = if host % plan.sick_one_in == 0 { Temper::Hanging } else { Temper::Refusing };
        receiver.behave(host, temper);
    }
    let healthy = (0..plan.subscribers).filter(|one| !is_sick(one % plan.hosts)).count() as u64;
    let mut expected = plan.subscribers as u64;

    let began = Instant::now();
    for _ in 0..plan.burst {
        publisher.post(&receiver, 0, Instant::now()).await?;
    }
    expected += healthy * u64::from(plan.burst);
    receiver.until(expected).await?;
    let burst = Rate::new(u64::from(plan.burst), began.elapsed()).per_second;

    sleep(PAUSE).await;
    receiver.delays().take([0.5, 0.99]);
    let began = Instant::now();
    for number in 0..plan.rate * plan.seconds {
        let moment = until_due(began + Duration::from_secs(1) * number / plan.rate).await;
        publisher.post(&receiver, 0, moment).await?;
    }
    expected += healthy * u64::from(plan.rate * plan.seconds);
    receiver.until(expected).await?;
    let [p50, p99] = receiver.delays().take([0.5, 0.99]);
    // What is still owed to the sick ones need not be waited for.
    hub.kill().await;
    let copies = receiver.check(|one| !is_sick(one as usize % plan.hosts));
    Ok((Health { burst, p50, p99 }, copies))
}

/// Of each value by itself.
fn medians(rounds: &[Health]) -> Health {
    let of = |value: fn(&Health) -> f64| median(rounds.iter().map(value));
    Health { burst: of(|one| one.burst), p50: of(|one| one.p50), p99: of(|one| one.p99) }
}
