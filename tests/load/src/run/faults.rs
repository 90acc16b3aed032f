//! What is done to a hub and to its world, each at its moment, one after the other.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fastrand::Rng;
use rustix::io::Errno;
use tokio::time::{sleep, sleep_until};

use super::hub::Body;
use super::servers::Servers;
use super::subscribing::Subscribers;
use super::world::{DOMAIN, World, address};
use crate::Failure;
use crate::measure::{Excuse, FaultReport, Outcome, Posted};
use crate::scenario::{Act, FaultKind, Plan, Scenario};
use resync_harness::{Clock, Disk, Faults, HubProcess, NameServer, Trouble};

/// Bytes that a file may have while the disk is full.
const FULL: u64 = 50_000;
/// Seconds from when the hub listens again to the next fault in which posts must be taken again. How long it takes to listen is judged where
/// nothing else keeps the machine busy.
const TIME_ENOUGH: f64 = 1.0;
/// A clock that stays wrong is looked at by now.
const LOOKED_AT: Duration = Duration::from_secs(1);

/// Our hub with everything around it that can fail.
#[derive(Debug)]
pub(super) struct OurHub {
    process: HubProcess,
    disk: Option<Disk>,
    clock: Option<Clock>,
    names: Option<NameServer>,
    database: Option<Servers>,
}

impl OurHub {
    /// Starts one for a scenario whose data is in a folder.
    pub(super) async fn start(scenario: &Scenario, folder: &Path) -> Result<Self, Failure> {
        let data = folder.join("data");
        std::fs::create_dir_all(&data)?;
        let needs = |is: fn(FaultKind) -> bool| scenario.faults.iter().any(|fault| is(fault.kind));
        let may_compile = has_compiler();
        let disk = (may_compile && needs(|kind| matches!(kind, FaultKind::FailingWrites(_))))
            .then(|| Disk::under(&data, scenario.seed));
        let clock = (may_compile && needs(|kind| matches!(kind, FaultKind::ClockJump(_))))
            .then(|| Clock::new(folder));
        let names = if scenario.audience.named { Some(NameServer::start().await) } else { None };
        let database = if needs(|kind| kind == FaultKind::Failover) { Servers::start().await? } else { None };
        let store = database.as_ref().map(Servers::url);
        let mut keys: Vec<(&str, &str)> =
            scenario.hub.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let servers = names.as_ref().map(NameServer::configured);
        keys.extend(servers.as_deref().map(|servers| ("EGRESS_NAMESERVERS", servers)));
        keys.extend(store.iter().flat_map(|url| [("STORE_ENGINE", "postgres"), ("STORE_URL", url.as_str())]));
        if let Some(names) = &names {
            for host in 0..scenario.audience.hosts {
                names.set(&format!("h{host}.{DOMAIN}"), &[&address(host).to_string()]);
            }
        }
        let mut process = HubProcess::prepare(&data, &keys);
        let shims = disk.iter().flat_map(Disk::environment);
        for (key, value) in shims.chain(clock.iter().flat_map(Clock::environment)) {
            let joined = match process.environment().get(&key) {
                Some(before) => format!("{before}:{value}"),
                None => value,
            };
            process.environment().insert(key, joined);
        }
        process.try_restart().await.map_err(|said| format!("the hub did not come up; it said:\n{said}"))?;
        Ok(Self { process, disk, clock, names, database })
    }

    pub(super) fn url(&self) -> String {
        self.process.url()
    }

    pub(super) fn pid(&mut self) -> i32 {
        self.process.process().pid().as_raw_nonzero().get()
    }

    /// Syncs of its log since it started.
    pub(super) async fn syncs(&self) -> Option<u64> {
        let metrics = self.process.admin("/metrics").await.text();
        let line = metrics.lines().find_map(|line| line.strip_prefix("websub_log_fsync_seconds_count "))?;
        line.trim().parse().ok()
    }

    /// Waits until so many subscriptions are in force.
    pub(super) async fn until_subscribed(&self, count: u32) {
        self.process.until_subscribed(count as usize).await;
    }

    pub(super) async fn kill(mut self) {
        self.process.kill().await;
    }
}

/// Whoever makes the faults of a run.
#[derive(Debug)]
pub(super) struct Fate<'r> {
    pub(super) ours: Option<OurHub>,
    pub(super) body: Body,
    pub(super) subscribers: &'r Subscribers,
    pub(super) audience: u32,
    pub(super) rng: Rng,
    pub(super) excuses: Vec<Excuse>,
    pub(super) reports: Vec<FaultReport>,
}

impl Fate<'_> {
    /// Makes them all.
    ///
    /// # Errors
    /// When our hub does not come up again.
    pub(super) async fn fulfil(&mut self, acts: &[Act]) -> Result<(), Failure> {
        for act in acts {
            sleep_until((self.subscribers.world.zero() + act.at).into()).await;
            self.body.set_doing(&format!("  {}", act.kind.word()));
            let from = self.now();
            let impossible = self.make(act).await?;
            let until = self.now();
            if act.kind == FaultKind::Kill && impossible.is_none() {
                self.start_again().await?;
            }
            self.body.set_doing("");
            let listening = self.now();
            if impossible.is_none() && matches!(act.kind, FaultKind::Kill | FaultKind::Pause) {
                self.excuses.push(Excuse { from, until: listening });
            }
            self.reports.push(FaultReport {
                kind: act.kind.word().to_owned(),
                from: from.as_secs_f64(),
                until: until.as_secs_f64(),
                listening: listening.as_secs_f64(),
                taken_again_after: None,
                impossible,
            });
        }
        Ok(())
    }

    fn now(&self) -> Duration {
        self.subscribers.world.now()
    }

    /// Why it could not be made, if so.
    async fn make(&mut self, act: &Act) -> Result<Option<String>, Failure> {
        let lasting = act.lasting;
        match act.kind {
            FaultKind::Outage(share) => self.outage(share, lasting).await,
            FaultKind::MassRenewal => {
                return Ok(self
                    .subscribers
                    .subscribe_all(self.audience)
                    .await
                    .err()
                    .map(|error| error.to_string()));
            }
            FaultKind::Poison(_) => {}
            kind => {
                let Some(ours) = &mut self.ours else {
                    return Ok(Some("it needs the hub's own process or configuration".to_owned()));
                };
                return ours.suffer(kind, lasting, &self.body).await;
            }
        }
        Ok(None)
    }

    /// After a kill. What this takes belongs to the recovery, not to the fault.
    async fn start_again(&mut self) -> Result<(), Failure> {
        let Some(ours) = &mut self.ours else { return Ok(()) };
        let up = ours.process.try_restart().await;
        up.map_err(|said| format!("the hub did not come up again; it said:\n{said}"))?;
        self.body.set_pid(Some(ours.pid()));
        Ok(())
    }

    async fn outage(&mut self, share: f64, lasting: Duration) {
        let world = &self.subscribers.world;
        let mut hosts: Vec<usize> = (0..world.hosts()).collect();
        self.rng.shuffle(&mut hosts);
        // A share of some hosts is not more than these.
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        hosts.truncate((hosts.len() as f64 * share).ceil() as usize);
        world.away(hosts.iter().copied(), true);
        sleep(lasting).await;
        world.away(hosts.into_iter(), false);
    }
}

impl OurHub {
    async fn suffer(
        &mut self,
        kind: FaultKind,
        lasting: Duration,
        body: &Body,
    ) -> Result<Option<String>, Failure> {
        let without = |what: &str| Ok(Some(format!("{what} needs a C compiler (cc), and there is none")));
        match kind {
            FaultKind::Kill => {
                self.process.kill().await;
                body.set_pid(None);
                sleep(lasting).await;
            }
            FaultKind::Pause => {
                self.process.process().pause();
                sleep(lasting).await;
                self.process.process().resume();
            }
            FaultKind::FullDisk => {
                self.process.process().limit_files(Some(FULL));
                sleep(lasting).await;
                self.process.process().limit_files(None);
            }
            FaultKind::FailingWrites(share) => {
                let Some(disk) = &self.disk else { return without("a disk whose writes fail") };
                // A share of the largest number is not more than that.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let chance = (share * f64::from(u16::MAX)) as u16;
                let before = disk.failures();
                disk.fail(Faults { writes: chance, error: Errno::IO, syncs: chance });
                sleep(lasting).await;
                disk.fail(Faults::NONE);
                if disk.failures() == before {
                    return Ok(Some("nothing failed: too little was written meanwhile".to_owned()));
                }
            }
            FaultKind::ClockJump(by) => {
                let Some(clock) = &self.clock else { return without("a clock that jumps") };
                let before = clock.told();
                clock.jump(by);
                sleep(if lasting.is_zero() { LOOKED_AT } else { lasting }).await;
                if !lasting.is_zero() {
                    clock.jump(0);
                }
                if clock.told() == before {
                    return Ok(Some("nobody noticed: the hub did not ask for the time".to_owned()));
                }
            }
            FaultKind::ResolverFails | FaultKind::ResolverSilent => {
                let Some(names) = &self.names else { return Ok(Some("callbacks have no names".to_owned())) };
                let fails = kind == FaultKind::ResolverFails;
                let before = names.troubled();
                names.trouble(Some(if fails { Trouble::Fails } else { Trouble::Silent }));
                sleep(lasting).await;
                names.trouble(None);
                if names.troubled() == before {
                    return Ok(Some("nobody noticed: all connections were there already".to_owned()));
                }
            }
            FaultKind::Failover => {
                let Some(servers) = self.database.take() else {
                    return Ok(Some("there is no PostgreSQL that can be run".to_owned()));
                };
                self.database = Some(servers.fail_over(lasting).await?);
            }
            FaultKind::Outage(_) | FaultKind::MassRenewal | FaultKind::Poison(_) => {}
        }
        Ok(None)
    }
}

/// What is known of those faults whose effect shows in posts only: one that had none was not made.
pub(super) fn noticed(
    mut reports: Vec<FaultReport>,
    plan: &Plan,
    posts: &[Posted],
    world: &World,
) -> Vec<FaultReport> {
    for (report, act) in reports.iter_mut().zip(&plan.acts) {
        let why = match act.kind {
            FaultKind::FullDisk => {
                let is_meanwhile = |at: Duration| (report.from..=report.until).contains(&at.as_secs_f64());
                let is_hit = |post: &Posted| post.outcome != Outcome::Acknowledged && is_meanwhile(post.sent);
                (!posts.iter().any(is_hit)).then_some("nobody noticed: no post failed meanwhile")
            }
            FaultKind::Poison(_) => match plan.first_from(act.at) {
                None => Some("there was no post after its moment"),
                Some(post) if !world.was_tasted(post) => Some("nobody was to take it: no delivery was made"),
                Some(_) => None,
            },
            _ => None,
        };
        report.impossible = report.impossible.take().or(why.map(str::to_owned));
    }
    reports
}

/// When posts were taken again after each fault, and after the worst of them. A fault soon after which the next one came says nothing.
pub(super) fn recovered(mut reports: Vec<FaultReport>, posts: &[Posted]) -> (Vec<FaultReport>, Option<f64>) {
    let begins: Vec<f64> = reports.iter().skip(1).map(|next| next.from).chain([f64::INFINITY]).collect();
    let mut worst = Some(f64::NEG_INFINITY);
    for (report, next) in reports.iter_mut().zip(begins) {
        let between: Vec<&Posted> = posts
            .iter()
            .filter(|post| post.sent.as_secs_f64() >= report.until && post.answered.as_secs_f64() < next)
            .collect();
        let taken = taken_again(&between).map(|at| at.as_secs_f64() - report.until);
        if taken.is_none() && next - report.listening < TIME_ENOUGH {
            continue;
        }
        report.taken_again_after = taken;
        worst = worst.zip(report.taken_again_after).map(|(worst, after)| worst.max(after));
    }
    (reports, worst.filter(|worst| worst.is_finite()))
}

/// The first acknowledgement after which no post failed.
fn taken_again(posts: &[&Posted]) -> Option<Duration> {
    let is_taken = |post: &&&Posted| post.outcome == Outcome::Acknowledged;
    let last = posts.iter().filter(|post| !is_taken(post)).map(|post| post.sent).max();
    let taken = posts.iter().filter(is_taken).filter(|post| last.is_none_or(|last| post.sent > last));
    taken.map(|post| post.answered).min()
}

fn has_compiler() -> bool {
    let asked = Command::new("cc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(from: f64, until: f64) -> FaultReport {
        let kind = "kill".to_owned();
        FaultReport { kind, from, until, listening: until, taken_again_after: None, impossible: None }
    }

    /// One each second; `f`: it fails.
    fn posts(outcomes: &str) -> Vec<Posted> {
        let post = |(at, outcome)| Posted {
            topic: 0,
            sent: Duration::from_secs(at),
            answered: Duration::from_millis(1_000 * at + 100),
            outcome: if outcome == 'f' { Outcome::Unknown } else { Outcome::Acknowledged },
            is_poisoned: false,
        };
        (0..).zip(outcomes.chars()).map(post).collect()
    }

    fn after(outcomes: &str, faults: &[(f64, f64)]) -> (Vec<Option<f64>>, Option<f64>) {
        let reports = faults.iter().map(|(from, until)| fault(*from, *until)).collect();
        let (reports, worst) = recovered(reports, &posts(outcomes));
        let rounded = |after: f64| (after * 10.0).round() / 10.0;
        (reports.iter().map(|one| one.taken_again_after.map(rounded)).collect(), worst.map(rounded))
    }

    #[test]
    fn posts_are_taken_again_when_none_fails_any_more() {
        assert_eq!(after("ttfttt", &[(1.5, 2.5)]), (vec![Some(0.6)], Some(0.6)));
        assert_eq!(after("ttftft", &[(1.5, 2.5)]), (vec![Some(2.6)], Some(2.6)), "one success is luck");
        assert_eq!(after("ttftff", &[(1.5, 2.5)]), (vec![None], None));
    }

    #[test]
    fn what_the_next_fault_breaks_is_not_due_to_the_one_before() {
        assert_eq!(after("tftfttt", &[(0.5, 1.5), (3.05, 3.5)]), (vec![Some(0.6), Some(0.6)], Some(0.6)));
        assert_eq!(
            after("tft", &[(0.5, 1.2), (1.3, 1.5)]),
            (vec![None, Some(0.6)], Some(0.6)),
            "no post between"
        );
        assert_eq!(after("ttt", &[]), (vec![], None));
    }

    #[test]
    fn a_hub_that_listened_too_late_to_take_a_post_before_the_next_fault_is_not_judged_by_it() {
        let reports = |listening| vec![FaultReport { listening, ..fault(0.5, 1.2) }, fault(3.05, 3.5)];
        let worst = |listening| recovered(reports(listening), &posts("tfffttt")).1.is_some();
        assert!(!worst(2.0), "it had time to take one");
        assert!(worst(2.2), "only the second fault says something");
    }
}
