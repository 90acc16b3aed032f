//! `resync-load run`: a scenario against our hub or any other, measured, judged by the oracle.

mod alone;
mod checker;
mod faults;
mod hub;
mod manners;
mod publishing;
mod reply;
mod sampler;
mod servers;
mod serving;
mod share;
mod sink;
mod subscribing;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fastrand::Rng;
use resync_harness::Scratch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use self::faults::{Fate, OurHub, noticed, recovered};
use self::hub::{Body, Endpoint};
use self::publishing::Publishers;
use self::sampler::{Sampler, Taken};
use self::share::{Paced, paced};
use self::sink::Sink;
use self::subscribing::Subscribers;
use self::world::World;
use super::limit::{Limit, limit};
use super::measure::{
    Bound, Delivered, Excuse, Ledger, Live, Machine, Meter, Overhead, Published, Quantiles, Resources, Rule,
    RunResult, Rung, Slopes, Subscription, float, verdicts,
};
use super::scenario::{By, FaultKind, Pace, Pattern, Plan, Scenario};
use super::{Failure, median};

pub use alone::{Alone, hyper_alone, receiver_alone};

/// After a remote hub has verified all subscriptions, until they are taken to be in force.
const IN_FORCE: Duration = Duration::from_secs(1);
/// Nothing may come for so long before it is looked whether all is there.
const QUIET: Duration = Duration::from_millis(200);
/// After the last delivery: a repetition would come now.
const REPETITION: Duration = Duration::from_millis(500);
/// Requests of the bare client loop, with each number of them at once.
const BOUND: u64 = 40_000;

/// How a scenario is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// A hub that runs already; `None`: ours is started.
    pub hub: Option<String>,
    /// The process of that hub, if it is on this machine: its CPU and memory are measured.
    pub hub_pid: Option<i32>,
    /// Whether the bound of the machine is measured first.
    pub bound: bool,
    /// Where progress is shown.
    pub live: Live,
}

/// Runs a scenario for each of its numbers of subscribers; data of our hub goes to temporary folders in `folder`.
///
/// # Errors
/// When a hub does not come up, or takes no subscriptions.
pub async fn run(scenario: &Scenario, options: &Options, folder: &Path) -> Result<RunResult, Failure> {
    let mut live = options.live.clone();
    let bound = if options.bound {
        live.say("measuring what the machine could do at best …");
        Some(bound(scenario, folder).await?)
    } else {
        None
    };
    let memory_empty = options.hub_pid.map(|pid| Meter::default().read(Some(pid)).memory);
    let mut rungs = Vec::new();
    for &subscribers in &scenario.audience.subscribers {
        let paced = match scenario.publish.pace {
            Pace::Given(pattern) => Paced { pattern, limit: None },
            Pace::Share(share) => paced(share, scenario, options, subscribers, folder, &mut live).await?,
        };
        let run = Run { scenario, options, paced, bound, memory_empty, subscribers };
        rungs.push(run.measure(folder, &mut live).await?);
    }
    let engine =
        scenario.hub.iter().find(|(key, _)| key == "STORE_ENGINE").map_or("fjall", |(_, engine)| engine);
    let ours = format!("resync-hub {} ({engine})", env!("CARGO_PKG_VERSION"));
    Ok(RunResult {
        tool: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: scenario.name.clone(),
        about: scenario.about.clone(),
        seed: scenario.seed,
        began: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
        hub: options.hub.clone().unwrap_or(ours),
        machine: Machine::this(),
        bound,
        passed: rungs.iter().all(|rung| rung.verdicts.iter().all(|verdict| verdict.holds)),
        rungs,
    })
}

async fn bound(scenario: &Scenario, folder: &Path) -> Result<Bound, Failure> {
    let (from, to) = scenario.publish.payload;
    let plan = Limit {
        requests: BOUND,
        hosts: (scenario.audience.hosts as usize).min(1_000),
        payload: usize::midpoint(from as usize, to as usize),
        at_once: 512,
    };
    let report = limit(&plan, folder).await?;
    Ok(Bound {
        requests_per_second: report.bare_client.rate.per_second,
        appends_per_second: report.durable_appends.per_second,
    })
}

/// One number of subscribers.
struct Run<'r> {
    scenario: &'r Scenario,
    options: &'r Options,
    paced: Paced,
    bound: Option<Bound>,
    /// Of a hub elsewhere, before it heard of this tool.
    memory_empty: Option<u64>,
    subscribers: u32,
}

impl Run<'_> {
    async fn measure(&self, folder: &Path, live: &mut Live) -> Result<Rung, Failure> {
        let scenario = self.scenario;
        let plan = Plan::new(scenario, self.paced.pattern, self.subscribers);
        let folder = Scratch::new_in(folder)?;
        let body = Body::default();
        let (ours, url) = self.hub(folder.path(), &body).await?;
        let endpoint = Endpoint::new(&url, scenario.publish.connections)?;
        let topics = scenario.audience.topics;
        let named = scenario.audience.named;
        let sink = Sink::start(fastrand::u32(..), scenario.seed, scenario.warmup, &plan, topics, named)?;
        let names = (0..topics).map(|topic| Publishers::topic(scenario.publish.by, sink.port, topic));
        sink.world.link_to(&url, sink.port, ours.is_some(), names);
        let subscribers = Subscribers {
            endpoint: Arc::clone(&endpoint),
            world: Arc::clone(&sink.world),
            by: scenario.publish.by,
            port: sink.port,
            lease: scenario.churn.lease,
        };
        let mut sampler = Sampler::new(body.clone(), live);
        let memory_empty = self.memory_empty.unwrap_or_else(|| sampler.hub().memory);
        sampler.say(&format!("subscribing {} to {topics} topics of {url} …", self.subscribers));
        let subscribing_per_second = subscribers.subscribe_all(self.subscribers).await?;
        match &ours {
            Some(ours) => ours.until_subscribed(self.subscribers).await,
            None => sleep(IN_FORCE).await,
        }
        let memory_subscribed = sampler.hub().memory;
        let syncs_before = syncs(ours.as_ref()).await;

        sink.world.begin();
        sampler.begin();
        let publishers = Publishers::new(endpoint, &sink, scenario.publish.by, scenario.warmup, &plan.posts);
        publishers.begin();
        let mut fate = Fate {
            ours,
            body,
            subscribers: &subscribers,
            audience: self.subscribers,
            rng: Rng::with_seed(scenario.seed),
            excuses: Vec::new(),
            reports: Vec::new(),
        };
        let work = async {
            let (fulfilled, unheard, ()) = tokio::join!(
                fate.fulfil(&plan.acts),
                subscribers.move_about(&plan.motions),
                publishers.finish()
            );
            fulfilled?;
            let ledger = self.drained(&sink.world, &publishers, &fate.excuses).await;
            Ok::<_, Failure>((ledger, unheard))
        };
        let (ledger, unheard) = watched(work, &mut sampler, &sink.world, &publishers).await?;
        sampler.tick(&sink.world, &publishers);
        if unheard > 0 {
            sampler.say(&format!("{unheard} requests of subscribers were not taken"));
        }
        let syncs_after = syncs(fate.ours.as_ref()).await;
        let was_killed = fate.reports.iter().any(|report| report.kind == FaultKind::Kill.word());
        let syncs =
            syncs_after.zip(syncs_before).filter(|_| !was_killed).map(|(after, before)| after - before);
        let (delivered, published) =
            (self.delivered(&plan, &ledger, &sink.world), publishers.published(&ledger.posts));
        let taken = sampler.taken();
        let memory = (memory_empty, memory_subscribed);
        let resources = self.resources(&taken, memory, syncs, &delivered, &published);
        let overhead = overhead(&taken, delivered.accepted, publishers.lateness.whole());
        if let Some(ours) = fate.ours {
            ours.kill().await;
        } else {
            // It runs on, and would deliver the next run's notifications to nobody.
            let staying = subscribers.leave(plan.subscribers).await;
            if staying > 0 {
                sampler.say(&format!("{staying} subscriptions of this run stay with the hub"));
            }
        }
        let series = sampler.finish();
        let faults = noticed(fate.reports, &plan, &ledger.posts, &sink.world);
        let (faults, taken_again_after) = recovered(faults, &ledger.posts);
        let mut rung = Rung {
            subscribers: self.subscribers,
            topics,
            hosts: scenario.audience.hosts,
            subscribing_per_second,
            seconds: taken.seconds,
            published,
            delivered,
            judgement: ledger.judge(),
            resources,
            overhead,
            faults,
            taken_again_after,
            slopes: Slopes::of(&series),
            series,
            verdicts: Vec::new(),
        };
        rung.verdicts = verdicts(&scenario.expect, &rung);
        Ok(rung)
    }

    /// The hub and its URL: ours is started, another one runs already.
    async fn hub(&self, folder: &Path, body: &Body) -> Result<(Option<OurHub>, String), Failure> {
        if let Some(url) = &self.options.hub {
            body.set_pid(self.options.hub_pid);
            return Ok((None, url.clone()));
        }
        let mut ours = OurHub::start(self.scenario, folder).await?;
        body.set_pid(Some(ours.pid()));
        body.set_data(folder.join("data"));
        let url = ours.url();
        Ok((Some(ours), url))
    }

    fn resources(
        &self,
        taken: &Taken,
        (empty, subscribed): (u64, u64),
        syncs: Option<u64>,
        delivered: &Delivered,
        published: &Published,
    ) -> Option<Resources> {
        let hub = taken.hub?;
        let notifications = float(published.acknowledged.max(1));
        Some(Resources {
            cpu_per_delivery: hub.cpu * 1e6 / float(delivered.accepted.max(1)),
            memory_empty: empty,
            memory_subscribed: subscribed,
            memory_most: taken.memory_most,
            memory_per_subscription: float(subscribed.saturating_sub(empty)) / f64::from(self.subscribers),
            disk_per_notification: float(hub.written) / notifications,
            store: taken.store,
            syncs_per_notification: syncs.map(|syncs| float(syncs) / notifications),
        })
    }

    /// Waits until everything owed has come, or nothing has for long enough.
    async fn drained(&self, world: &World, publishers: &Publishers, excuses: &[Excuse]) -> Ledger {
        let (mut seen, mut since, mut judged) = (world.accepted(), Instant::now(), None);
        loop {
            sleep(QUIET / 10).await;
            let accepted = world.accepted();
            if accepted != seen {
                (seen, since) = (accepted, Instant::now());
            } else if since.elapsed() >= QUIET && judged != Some(seen) {
                judged = Some(seen);
                if self.ledger(world, publishers, excuses).await.judge().lost == 0 {
                    break;
                }
            } else if since.elapsed() >= self.scenario.patience {
                break;
            }
        }
        sleep(REPETITION).await;
        self.ledger(world, publishers, excuses).await
    }

    async fn ledger(&self, world: &World, publishers: &Publishers, excuses: &[Excuse]) -> Ledger {
        let mut subscriptions = world.subscriptions();
        // What was verified before the beginning is in force at the beginning.
        for subscription in subscriptions.iter_mut().take(self.subscribers as usize) {
            subscription.from = subscription.from.map(|_| Duration::ZERO);
        }
        let (altered, notes, followed) = world.wrongs().await;
        Ledger {
            rule: match self.scenario.publish.by {
                By::Content => Rule::Every,
                By::Ping => Rule::Latest,
            },
            posts: publishers.posted(),
            subscriptions,
            excuses: excuses.to_vec(),
            altered,
            followed,
            notes,
        }
    }

    fn delivered(&self, plan: &Plan, ledger: &Ledger, world: &World) -> Delivered {
        let per_second = self.throughput(plan, &ledger.subscriptions);
        Delivered {
            accepted: world.accepted(),
            refused: world.refused(),
            per_second,
            ratio_to_bound: self.bound.map(|bound| per_second / bound.requests_per_second),
            limit_per_second: self.paced.limit,
            ratio_to_limit: self.paced.limit.map(|limit| per_second / limit),
            latency: world.well.whole(),
            latency_p99_of_windows: world.well.p99_of_windows(),
            latency_of_sick: world.sick.whole(),
        }
    }

    /// Deliveries a second: of the middle burst, or of all.
    fn throughput(&self, plan: &Plan, subscriptions: &[Subscription]) -> f64 {
        let is_burst = matches!(self.paced.pattern, Pattern::Burst { .. });
        let measured = plan.posts.partition_point(|post| post.due < self.scenario.warmup);
        let mut bursts: Vec<(Duration, Duration, u64)> = Vec::new();
        let mut of_post = vec![0; plan.posts.len()];
        for (number, post) in plan.posts.iter().enumerate().skip(measured) {
            if bursts.last().is_none_or(|(due, ..)| is_burst && *due != post.due) {
                bursts.push((post.due, post.due, 0));
            }
            of_post[number] = bursts.len();
        }
        for arrival in subscriptions.iter().flat_map(|one| &one.arrivals) {
            if let Some((_, last, count)) =
                of_post[arrival.post as usize].checked_sub(1).map(|at| &mut bursts[at])
            {
                *last = (*last).max(arrival.moment());
                *count += 1;
            }
        }
        let rates: Vec<f64> = bursts
            .iter()
            .filter(|(due, last, _)| last > due)
            .map(|(due, last, count)| float(*count) / last.saturating_sub(*due).as_secs_f64())
            .collect();
        if rates.is_empty() { 0.0 } else { median(rates) }
    }
}

/// Each second is measured until the work is done.
async fn watched<T>(
    work: impl Future<Output = T>,
    sampler: &mut Sampler<'_>,
    world: &World,
    publishers: &Publishers,
) -> T {
    let second = Duration::from_secs(1);
    let mut ticks = interval_at(Instant::now() + second, second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = ticks.tick() => sampler.tick(world, publishers),
        }
    }
}

fn overhead(taken: &Taken, accepted: u64, lateness: Quantiles) -> Overhead {
    let cores = float(std::thread::available_parallelism().map_or(1, usize::from) as u64);
    Overhead {
        cpu_per_delivery: taken.own.cpu * 1e6 / float(accepted.max(1)),
        cpu_share: taken.own.cpu / taken.seconds / cores,
        lateness,
        memory: taken.own.memory,
    }
}

async fn syncs(ours: Option<&OurHub>) -> Option<u64> {
    match ours {
        Some(ours) => ours.syncs().await,
        None => None,
    }
}
