//! One hub on one data folder with all its deaths, from the first subscription to the verdict.

use std::future::ready;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_harness::{
    Clock, Disk, Event, Faults, HubProcess, Kind, Loss, PATIENCE, Receiver, Reply, Step, eventually,
    happens_within,
};
use rustix::io::Errno;
use tempfile::tempdir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::clients::{Known, LAST, TOPICS, ask, come_and_go, publish, publish_one, topic, weigh_down};
use crate::oracle::{Death, Fault, Saves, Steady, temper, verdict};

const HOSTS: u8 = 4;
/// The step to be met is one of so many: about as many as a start takes.
const ONE_OF: u32 = 60;
/// No start takes fewer steps before it listens.
const FEWEST: u32 = 20;
/// Callbacks that come and go.
const RESTLESS: usize = 6;
/// What fails is tried again soon, and no host is left alone.
const QUICK: [(&str, &str); 3] = [
    ("DELIVERY_SCHEDULE", "[\"20ms\", \"20ms\", \"20ms\", \"20ms\", \"20ms\", \"20ms\"]"),
    ("DELIVERY_SCHEDULE_4XX", "[\"20ms\"]"),
    ("DELIVERY_BREAKER_FAILURES", "0"),
];

const YEAR: i64 = 365 * 86_400;
/// Longer than from the furthest that the clock is set back to the furthest forward: whether a lease may end is not asked here.
const LEASES: [(&str, &str); 2] = [("LEASE_DEFAULT", "3650d"), ("LEASE_MAX", "3650d")];

/// How the hub dies, and what happens before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) engine: &'static str,
    /// Deaths on one data folder.
    pub(crate) deaths: usize,
    /// The machine dies, and not just the process.
    pub(crate) power: Power,
    /// How the disk fails meanwhile.
    pub(crate) errors: Errors,
    /// So much is posted beside that the engine has to write tables and to give up journals.
    pub(crate) heavy: bool,
    /// It dies at a step of its own, and a few times more before it listens again.
    pub(crate) steps: bool,
    /// Somebody sets the clock, by up to a year, before it dies or while it is dead.
    pub(crate) jumps: bool,
}

/// How often the power is cut when the hub dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    Never,
    Sometimes,
    Always,
}

/// How the disk fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Errors {
    None,
    /// Now and then for a while, at many writes and syncs.
    ForAWhile,
    /// Once in each life: at one step of these kinds, at a path with this in it, or from there on for a moment.
    Once(&'static [Kind], &'static str),
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    deaths: usize,
    /// Beside those: before it listened again.
    in_recovery: usize,
    power_cuts: usize,
    acknowledged: usize,
    changes: usize,
    refused: usize,
    repeated: usize,
    loss: Loss,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.deaths += more.deaths;
        self.in_recovery += more.in_recovery;
        self.power_cuts += more.power_cuts;
        self.acknowledged += more.acknowledged;
        self.changes += more.changes;
        self.refused += more.refused;
        self.repeated += more.repeated;
        self.loss += more.loss;
    }
}

impl Trial {
    /// A hub that dies by `kill -9`.
    pub(crate) const fn of(engine: &'static str, deaths: usize) -> Self {
        let (power, errors) = (Power::Never, Errors::None);
        Self { engine, deaths, power, errors, heavy: false, steps: false, jumps: false }
    }

    /// One hub with all its deaths.
    pub(crate) async fn run(self, seed: u64) -> Result<Tally, Fault> {
        let mut rng = Rng::with_seed(seed);
        let folder = tempdir().unwrap();
        let mut mortal = Mortal::start(self, &folder.path().join("data"), rng.u64(..)).await;
        let receivers = receivers().await;
        let steady = subscribe_all(&mortal.hub, &receivers).await;
        give_tempers(&receivers);
        let known = Arc::new(Known { may_refuse: self.may_refuse(), ..Known::default() });
        let callbacks: Vec<_> =
            (0..RESTLESS).map(|which| receivers[1].url(&format!("/restless{which}"))).collect();
        let clients = self.clients(mortal.hub.address, &callbacks, &known, &mut rng);
        let mut deaths = Vec::new();
        let mut loss = Loss::default();
        for number in 1..=self.deaths {
            mortal.is_last = number == self.deaths;
            mortal.live(&known, &mut rng).await?;
            let (death, lost) = mortal.die(&mut rng).await?;
            deaths.push(death);
            loss += lost;
        }
        mortal.assert_tried();
        if let Some(clock) = &mortal.clock {
            clock.jump(0);
            deaths.push(mortal.start_again().await?);
        }
        known.stop.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.expect("clients only stop when told");
        }
        settle(&mortal.hub, &known, &callbacks, steady.len()).await?;
        let saves = Saves::of_posts(&known, self.fails());
        let repeated = verdict(&mortal.hub, &known, &receivers, &steady, &deaths, &saves).await?;
        let (acknowledged, changes) = (known.posts.lock().unwrap().len(), *known.changes.lock().unwrap());
        let refused = *known.refused.lock().unwrap();
        let Mortal { in_recovery, power_cuts, .. } = mortal;
        let deaths = deaths.len();
        Ok(Tally { deaths, in_recovery, power_cuts, acknowledged, changes, refused, repeated, loss })
    }

    fn fails(self) -> bool {
        !matches!(self.errors, Errors::None)
    }

    /// Nothing is promised to be taken over a disk that fails, nor by sled once the power was cut.
    fn may_refuse(self) -> bool {
        self.fails() || (self.power != Power::Never && self.engine == "sled")
    }

    fn clients(
        self,
        hub: SocketAddr,
        callbacks: &[String],
        known: &Arc<Known>,
        rng: &mut Rng,
    ) -> Vec<JoinHandle<()>> {
        let mut clients: Vec<_> = (0..TOPICS)
            .map(|number| tokio::spawn(publish(number, hub, Arc::clone(known), rng.fork())))
            .collect();
        clients.push(tokio::spawn(come_and_go(callbacks.to_vec(), hub, Arc::clone(known), rng.fork())));
        if self.heavy {
            clients.push(tokio::spawn(weigh_down(hub, Arc::clone(known))));
        }
        clients
    }
}

/// The hub of a trial, and what is below it where that may fail.
struct Mortal {
    trial: Trial,
    hub: HubProcess,
    disk: Option<Disk>,
    clock: Option<Clock>,
    /// This life ends with the last of its deaths.
    is_last: bool,
    /// Deaths before it listened, and power cuts, so far.
    in_recovery: usize,
    power_cuts: usize,
}

impl Mortal {
    async fn start(trial: Trial, data: &Path, seed: u64) -> Self {
        std::fs::create_dir(data).unwrap();
        let on_disk = trial.power != Power::Never || trial.fails() || trial.steps;
        let disk = on_disk.then(|| Disk::under(data, seed));
        let clock = trial.jumps.then(|| Clock::new(data.parent().unwrap()));
        let mut keys = [&[("STORE_ENGINE", trial.engine)][..], &QUICK].concat();
        keys.extend(trial.jumps.then_some(LEASES).into_iter().flatten());
        let mut hub = HubProcess::prepare(data, &keys);
        for (name, value) in
            disk.iter().flat_map(Disk::environment).chain(clock.iter().flat_map(Clock::environment))
        {
            // Both are loaded.
            let before = hub.environment().remove(&name).map_or_else(String::new, |before| before + " ");
            hub.environment().insert(name, before + &value);
        }
        hub.restart().await;
        Self { trial, hub, disk, clock, is_last: false, in_recovery: 0, power_cuts: 0 }
    }

    /// A while under load, and before it a disk that fails, if this is one of those trials.
    async fn live(&self, known: &Known, rng: &mut Rng) -> Result<(), Fault> {
        match (&self.disk, self.trial.errors) {
            (Some(disk), Errors::ForAWhile) => trouble(disk, &self.hub, known, rng).await?,
            (Some(disk), Errors::Once(kinds, only)) => {
                let event = match rng.u8(0..4) {
                    0 => Event::FailsFrom(Errno::NOSPC),
                    1 => Event::Fails(Errno::MFILE),
                    2 => Event::IsDoneAndFails(Errno::IO),
                    _ => Event::Fails(Errno::IO),
                };
                let number = rng.u32(1..=ONE_OF);
                disk.meet(Step { kinds, only, number, event });
                eventually("the disk fails once", || ready(disk.met().is_some())).await;
                sleep(Duration::from_millis(rng.u64(0..100))).await;
                println!(
                    "{event:?}: {:?}",
                    disk.taken().into_iter().filter(|step| step.is_met).collect::<Vec<_>>()
                );
                disk.forget_steps();
                if rng.bool() {
                    goes_on(&self.hub, known).await?;
                }
            }
            (_, Errors::None) | (None, _) => {}
        }
        let life = Duration::from_millis(rng.u64(30..400));
        sleep(if self.trial.heavy { 5 * life } else { life }).await;
        Ok(())
    }

    /// Dies, with the machine or without, and comes up again.
    async fn die(&mut self, rng: &mut Rng) -> Result<(Death, Loss), Fault> {
        let at = Instant::now();
        let mut loss = Loss::default();
        self.jump(rng).await;
        match &self.disk {
            Some(disk) if self.trial.steps => {
                disk.meet(some_step(ONE_OF, rng));
                self.hub.process().wait().await;
            }
            _ => self.hub.kill().await,
        }
        self.jump(rng).await;
        loss += self.cut_power(rng);
        let (again, before) = (if self.trial.steps { rng.u8(1..4) } else { 0 }, self.in_recovery);
        for _ in 0..again {
            self.die_in_recovery(ONE_OF, rng).await?;
            loss += self.cut_power(rng);
        }
        // Each of them came as far as to listen.
        if again > 0 && self.in_recovery == before {
            self.die_in_recovery(FEWEST, rng).await?;
            loss += self.cut_power(rng);
        }
        self.hub.try_restart().await.map_err(Fault::Unreadable)?;
        Ok((Death { at, succeeded_at: Instant::now() }, loss))
    }

    async fn start_again(&mut self) -> Result<Death, Fault> {
        let at = Instant::now();
        self.hub.kill().await;
        self.hub.try_restart().await.map_err(Fault::Unreadable)?;
        Ok(Death { at, succeeded_at: Instant::now() })
    }

    /// It is started, and dies at one of so many steps; sometimes it gets as far as to listen first.
    async fn die_in_recovery(&mut self, steps: u32, rng: &mut Rng) -> Result<(), Fault> {
        let Some(disk) = &self.disk else { return Ok(()) };
        disk.meet(some_step(steps, rng));
        match self.hub.try_restart().await {
            Ok(()) => self.hub.kill().await,
            Err(said) if disk.met().is_none() => return Err(Fault::Unreadable(said)),
            Err(_) => self.in_recovery += 1,
        }
        disk.forget_steps();
        Ok(())
    }

    /// Whatever failed is well again; with the power goes what was not synced.
    fn cut_power(&mut self, rng: &mut Rng) -> Loss {
        let Some(disk) = &mut self.disk else { return Loss::default() };
        disk.fail(Faults::NONE);
        disk.forget_steps();
        let is_cut = match self.trial.power {
            Power::Never => false,
            Power::Sometimes => rng.bool() || (self.is_last && self.power_cuts == 0),
            Power::Always => true,
        };
        self.power_cuts += usize::from(is_cut);
        let loss = if is_cut { disk.cut_power(rng) } else { Loss::default() };
        println!("dead, and the power is cut: {is_cut}: {loss:?}");
        loss
    }

    /// Sets the clock to any time within a year, or to the right one, or not; the first time for certain to a wrong one.
    async fn jump(&self, rng: &mut Rng) {
        let Some(clock) = &self.clock else { return };
        let was_always_right = clock.told() == 0;
        if was_always_right || rng.bool() {
            let is_right = !was_always_right && rng.bool();
            clock.jump(if is_right { 0 } else { rng.i64(1..YEAR) * if rng.bool() { 1 } else { -1 } });
            sleep(Duration::from_millis(rng.u64(0..50))).await;
        }
    }

    /// What the trial is about did happen: else it would prove nothing.
    fn assert_tried(&self) {
        let Trial { power, errors, steps, deaths, .. } = self.trial;
        assert!(power == Power::Never || self.power_cuts > 0, "no power was cut");
        assert!(!steps || self.in_recovery >= deaths, "{} deaths before it listened", self.in_recovery);
        let has_failed = || self.disk.as_ref().is_some_and(|disk| disk.failures() > 0);
        assert!(!matches!(errors, Errors::ForAWhile) || has_failed(), "the disk never failed");
        assert!(self.clock.as_ref().is_none_or(|clock| clock.told() > 0), "the clock was always right");
    }
}

/// A step at which the process dies, before it or after.
fn some_step(of: u32, rng: &mut Rng) -> Step {
    let event = if rng.bool() { Event::DiesBefore } else { Event::DiesAfter };
    Step { kinds: Kind::CHANGES, only: "", number: rng.u32(1..=of), event }
}

async fn receivers() -> Vec<Receiver> {
    let mut receivers = Vec::new();
    for host in 0..HOSTS {
        receivers.push(Receiver::start_at(IpAddr::V4(Ipv4Addr::new(127, 0, 1, host + 1))).await);
    }
    receivers
}

/// From now on two of them refuse something, and one is slow, so that there is always something under way.
fn give_tempers(receivers: &[Receiver]) {
    receivers[0].behave(|_| Reply::Late(Duration::from_millis(20)));
    for host in [2, 3] {
        receivers[host].behave(move |seen| match temper(host, seen) {
            204 => Reply::Agree,
            status => Reply::Status(status, String::new()),
        });
    }
}

async fn subscribe_all(hub: &HubProcess, receivers: &[Receiver]) -> Vec<Steady> {
    let mut steady = Vec::new();
    for (host, receiver) in receivers.iter().enumerate() {
        for number in 0..TOPICS {
            for copy in 0..2 {
                let path = format!("/set{number}/copy{copy}");
                let callback = receiver.url(&path);
                steady.push(Steady { host, topic: number, path });
                hub.subscribe(&topic(number), &callback, &[("hub.secret", "s")], steady.len()).await;
            }
        }
    }
    steady
}

/// The disk fails for a while. Then either the hub goes on by itself, or it dies while the disk still fails.
async fn trouble(disk: &Disk, hub: &HubProcess, known: &Known, rng: &mut Rng) -> Result<(), Fault> {
    let error = if rng.bool() { Errno::IO } else { Errno::NOSPC };
    let (writes, syncs) = (rng.u16(0..20_000), rng.u16(0..20_000));
    disk.fail(Faults { writes, error, syncs });
    sleep(Duration::from_millis(rng.u64(50..400))).await;
    if rng.u8(0..3) == 0 {
        return Ok(());
    }
    disk.fail(Faults::NONE);
    goes_on(hub, known).await
}

/// By itself it takes posts again.
async fn goes_on(hub: &HubProcess, known: &Known) -> Result<(), Fault> {
    let is_ready = || async { hub.admin("/readyz").await.status == 200 };
    if !happens_within(PATIENCE / 2, is_ready).await {
        return Err(Fault::Unreadable(hub.admin("/readyz").await.text()));
    }
    let before = known.posts.lock().unwrap().len();
    let acknowledges = || async { known.posts.lock().unwrap().len() > before };
    if !happens_within(PATIENCE / 2, acknowledges).await {
        let said = hub.admin("/readyz").await.text();
        return Err(Fault::Unreadable(format!("nothing is acknowledged any more: {said}")));
    }
    Ok(())
}

/// Every subscription is as was acknowledged last, and one last notification of each topic goes to all that there are.
async fn settle(hub: &HubProcess, known: &Known, callbacks: &[String], steady: usize) -> Result<(), Fault> {
    let restless = known.restless.lock().unwrap().clone();
    for (which, last) in restless {
        if last.is_none() {
            taken(ask(hub.address, which, &callbacks[which], true).await, hub, known).await?;
            known.restless.lock().unwrap().insert(which, Some(true));
        }
    }
    let on = known.restless.lock().unwrap().values().filter(|last| **last == Some(true)).count();
    let wanted = format!("\"subscriptions\":{},", steady + on);
    let agrees = || async { hub.admin("/api/v1/status").await.text().contains(&wanted) };
    if !happens_within(PATIENCE / 2, agrees).await {
        let status = hub.admin("/api/v1/status").await.text();
        return Err(Fault::Broken(format!("not {wanted} but {status}")));
    }
    for number in 0..TOPICS {
        taken(publish_one(hub.address, number, LAST).await, hub, known).await?;
    }
    Ok(())
}

/// At the end everything is taken, but by a hub that may refuse for good.
async fn taken(answer: std::io::Result<u16>, hub: &HubProcess, known: &Known) -> Result<(), Fault> {
    match answer.unwrap() {
        202 => Ok(()),
        503 if known.may_refuse => Err(Fault::Unreadable(hub.admin("/readyz").await.text())),
        status => panic!("a running hub refused at the end: {status}"),
    }
}
