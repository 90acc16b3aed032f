//! One hub on one data folder with all its deaths, from the first subscription to the verdict.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::AddAssign;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_harness::{Disk, Faults, HubProcess, Loss, PATIENCE, Receiver, Reply, happens_within};
use rustix::io::Errno;
use tempfile::tempdir;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::clients::{Known, LAST, TOPICS, ask, come_and_go, publish, publish_one, topic, weigh_down};
use crate::oracle::{Death, Fault, Saves, Steady, temper, verdict};

const HOSTS: u8 = 4;
/// Callbacks that come and go.
const RESTLESS: usize = 6;
/// What fails is tried again soon, and no host is left alone.
const QUICK: [(&str, &str); 3] = [
    ("DELIVERY_SCHEDULE", "[\"20ms\", \"20ms\", \"20ms\", \"20ms\", \"20ms\", \"20ms\"]"),
    ("DELIVERY_SCHEDULE_4XX", "[\"20ms\"]"),
    ("DELIVERY_BREAKER_FAILURES", "0"),
];

/// How the hub dies, and what happens before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trial {
    pub(crate) engine: &'static str,
    /// Deaths on one data folder.
    pub(crate) deaths: usize,
    /// The machine dies, and not just the process.
    pub(crate) power: bool,
    /// Now and then the disk fails for a while.
    pub(crate) errors: bool,
    /// So much is posted beside that the engine has to write tables and to give up journals.
    pub(crate) heavy: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    deaths: usize,
    acknowledged: usize,
    changes: usize,
    refused: usize,
    repeated: usize,
    loss: Loss,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, more: Self) {
        self.deaths += more.deaths;
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
        Self { engine, deaths, power: false, errors: false, heavy: false }
    }

    /// One hub with all its deaths.
    pub(crate) async fn run(self, seed: u64) -> Result<Tally, Fault> {
        let mut rng = Rng::with_seed(seed);
        let folder = tempdir().unwrap();
        let mut mortal = Mortal::start(self, &folder.path().join("data"), u32::try_from(seed).unwrap()).await;
        let receivers = receivers().await;
        let steady = subscribe_all(&mortal.hub, &receivers).await;
        give_tempers(&receivers);
        let known = Arc::new(Known { may_refuse: self.may_refuse(), ..Known::default() });
        let callbacks: Vec<_> =
            (0..RESTLESS).map(|which| receivers[1].url(&format!("/restless{which}"))).collect();
        let clients = self.clients(mortal.hub.address, &callbacks, &known, &mut rng);
        let mut deaths = Vec::new();
        let mut loss = Loss::default();
        for _ in 0..self.deaths {
            mortal.live(&known, &mut rng).await?;
            let (death, lost) = mortal.die(&mut rng).await?;
            deaths.push(death);
            loss += lost;
        }
        known.stop.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.expect("clients only stop when told");
        }
        settle(&mortal.hub, &known, &callbacks, steady.len()).await?;
        let saves = Saves::of_posts(&known, self.errors);
        let repeated = verdict(&mortal.hub, &known, &receivers, &steady, &deaths, &saves).await?;
        let (acknowledged, changes) = (known.posts.lock().unwrap().len(), *known.changes.lock().unwrap());
        let refused = *known.refused.lock().unwrap();
        Ok(Tally { deaths: deaths.len(), acknowledged, changes, refused, repeated, loss })
    }

    /// Nothing is promised to be taken over a disk that fails, nor by sled once the power was cut.
    fn may_refuse(self) -> bool {
        self.errors || (self.power && self.engine == "sled")
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

/// The hub of a trial, and the disk below it where that may fail.
struct Mortal {
    trial: Trial,
    hub: HubProcess,
    disk: Option<Disk>,
}

impl Mortal {
    async fn start(trial: Trial, data: &Path, seed: u32) -> Self {
        std::fs::create_dir(data).unwrap();
        let disk = (trial.power || trial.errors).then(|| Disk::under(data, seed));
        let mut hub = HubProcess::prepare(data, &[&[("STORE_ENGINE", trial.engine)][..], &QUICK].concat());
        if let Some(disk) = &disk {
            hub.environment().extend(disk.environment());
        }
        hub.restart().await;
        Self { trial, hub, disk }
    }

    /// A while under load, and before it a disk that fails, if this is one of those trials.
    async fn live(&self, known: &Known, rng: &mut Rng) -> Result<(), Fault> {
        if let Some(disk) = self.disk.as_ref().filter(|_| self.trial.errors) {
            trouble(disk, &self.hub, known, rng).await?;
        }
        let life = Duration::from_millis(rng.u64(30..400));
        sleep(if self.trial.heavy { 5 * life } else { life }).await;
        Ok(())
    }

    /// Dies, with the machine or without, and comes up again.
    async fn die(&mut self, rng: &mut Rng) -> Result<(Death, Loss), Fault> {
        let at = Instant::now();
        self.hub.kill().await;
        let mut loss = Loss::default();
        if let Some(disk) = &mut self.disk {
            disk.fail(Faults::NONE);
            if self.trial.power {
                loss = disk.cut_power(rng);
            }
        }
        self.hub.try_restart().await.map_err(Fault::Unreadable)?;
        Ok((Death { at, succeeded_at: Instant::now() }, loss))
    }
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
    if rng.u8(0..3) > 0 {
        disk.fail(Faults::NONE);
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
