//! The trial: load, one fault after the other, each healed and followed by a calm before the next, and the verdict.

use std::env;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_harness::happens_within;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::churn::come_and_go;
use crate::faults::Kind;
use crate::judge::{Ack, Judge};
use crate::load::{PUBLISHERS, fail_hosts, publish};
use crate::nodes::Cluster;
use crate::operator::{operate, resume_all};
use crate::report::{Line, Report};
use crate::shards::{QUERY, Shards};
use crate::subscribers::{HOSTS, Hosts, secret};
use crate::topics::{TOPICS, is_undisturbed, topic};
use crate::verdict;
use crate::windows::{SETTLED_WITHIN, Suffered};
use crate::world::World;

pub(crate) const HUBS: usize = 3;
/// Everything is well again so soon after a fault, on a busy machine too.
pub(crate) const HEALED_WITHIN: Duration = Duration::from_secs(90);
/// Deliveries may pause so much longer than posts: a shard is taken over after 6.5 s at most, and its host may be down just then.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(5);
/// Milliseconds after all has settled, in which nothing may be repeated.
const CALM: std::ops::Range<u64> = 2_000..3_000;
/// Between two looks.
const AGAIN: Duration = Duration::from_millis(100);
/// Tasks that subscribe.
const TASKS: usize = 2;
/// Of one of so many faults there are two at once.
const PAIRS: u8 = 3;

/// What happens in a trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) seed: u64,
    pub(crate) faults: usize,
    pub(crate) kinds: Vec<Kind>,
}

impl Trial {
    /// So many faults of all kinds, unless `RESYNC_CLUSTER_FAULTS` and `RESYNC_CLUSTER_KINDS` say otherwise.
    pub(crate) fn of(faults: usize, seed: u64) -> Self {
        let faults = env::var("RESYNC_CLUSTER_FAULTS")
            .map_or(faults, |number| number.parse().expect("RESYNC_CLUSTER_FAULTS is a number"));
        let kinds = env::var("RESYNC_CLUSTER_KINDS").map_or(Kind::ALL.to_vec(), |list| Kind::listed(&list));
        Self { seed, faults, kinds }
    }

    /// Where there is no PostgreSQL nothing happens, which is said.
    ///
    /// # Panics
    /// When anything is not as it must be.
    pub(crate) async fn run(self) {
        let Some(cluster) = Cluster::start(HUBS).await else { return };
        let cluster = Arc::new(cluster);
        let broken = match Run::begin(Arc::clone(&cluster), Rng::with_seed(self.seed)).await {
            Ok(run) => self.go_through(run).await,
            Err(what) => vec![what],
        };
        if !broken.is_empty() {
            let (seed, broken, words) = (self.seed, broken.join("\n"), cluster.last_words().await);
            panic!("RESYNC_TEST_SEED={seed}: what was promised was broken:\n{broken}\n\n{words}");
        }
    }

    /// All faults, until something is broken, and then the verdict; what was broken.
    async fn go_through(&self, mut run: Run) -> Vec<String> {
        let tasks = run.load();
        let (mut report, mut deck) = (Report::default(), Vec::new());
        for number in 1..=self.faults {
            let faults = self.draw(&mut deck, &mut run.rng);
            let line = run.suffer(number, &faults).await;
            println!("{line}");
            report.add(line);
            if run.is_broken() {
                break;
            }
        }
        run.world.stop();
        for task in tasks {
            run.until_ended("the load", task).await;
        }
        // Of what is broken already the rest would be said at length.
        if !run.is_broken() {
            resume_all(&run.world).await;
            verdict::pass(&run.world, &mut run.rng).await;
        }
        for what in run.cluster.panics().await {
            run.world.judge().complain(what);
        }
        println!("{report}");
        run.world.judge().broken().to_vec()
    }

    /// One fault, or two at once of which at most one is of the database; each with the number of a hub. All kinds have their turn before one
    /// comes again.
    fn draw(&self, deck: &mut Vec<Kind>, rng: &mut Rng) -> Vec<(Kind, usize)> {
        if deck.is_empty() {
            deck.extend_from_slice(&self.kinds);
            rng.shuffle(deck);
        }
        let first = (deck.pop().expect("there are kinds"), rng.usize(0..HUBS));
        let of_hubs: Vec<_> = self.kinds.iter().copied().filter(|kind| !kind.is_of_database()).collect();
        if of_hubs.is_empty() || rng.u8(0..PAIRS) > 0 {
            return vec![first];
        }
        // Another hub.
        let second = (of_hubs[rng.usize(0..of_hubs.len())], (first.1 + rng.usize(1..HUBS)) % HUBS);
        vec![first, second]
    }
}

/// A trial that runs.
struct Run {
    cluster: Arc<Cluster>,
    world: Arc<World>,
    shards: Shards,
    rng: Rng,
}

impl Run {
    /// Every topic has a subscription at every host before anything is posted. Why that cannot be is the error.
    async fn begin(cluster: Arc<Cluster>, rng: Rng) -> Result<Self, String> {
        let judge = Arc::new(Mutex::new(Judge::new()));
        let hosts = Hosts::start(&judge).await;
        let primary = cluster.servers.lock().await.at_primary();
        let world = Arc::new(World::new(judge, cluster.endpoints.clone(), hosts, primary));
        let shards = until_shared(&world).await.ok_or("the hubs do not share the shards at the start")?;
        for number in 0..TOPICS {
            for host in 0..HOSTS {
                let path = steady(number, host);
                world.judge().asked(&path, number);
                let (callback, secret) = (world.hosts.callback(host, &path), secret(&path));
                let hub = &world.hubs[(number + host) % HUBS];
                let answer = hub.ask("subscribe", &topic(number), &callback, secret.as_deref()).await;
                let status = answer.map(|answer| answer.status);
                if status != Some(202) {
                    return Err(format!("{path} is answered with {status:?}"));
                }
            }
        }
        let all = Some((TOPICS * HOSTS).to_string());
        let are_there = || async {
            sleep(AGAIN).await;
            let rows = world.sql("SELECT count(*) FROM hub.subscription").unwrap_or_default();
            rows.into_iter().flatten().next() == Some(all.clone())
        };
        if !happens_within(HEALED_WITHIN, are_there).await {
            return Err("not all subscriptions were confirmed".to_owned());
        }
        let since = Instant::now();
        for (number, host) in (0..TOPICS).flat_map(|number| (0..HOSTS).map(move |host| (number, host))) {
            world.judge().in_force(&steady(number, host), since);
        }
        Ok(Self { cluster, world, shards, rng })
    }

    /// Begins all that goes on until it is told to stop.
    fn load(&mut self) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for publisher in 0..PUBLISHERS {
            tasks.push(tokio::spawn(publish(Arc::clone(&self.world), publisher, self.rng.fork())));
        }
        for task in 0..TASKS {
            tasks.push(tokio::spawn(come_and_go(Arc::clone(&self.world), task, self.rng.fork())));
        }
        tasks.push(tokio::spawn(operate(Arc::clone(&self.world), self.rng.fork())));
        tasks.push(tokio::spawn(fail_hosts(Arc::clone(&self.world), self.rng.fork())));
        tasks
    }

    /// These happen at once, all is well again, and for a while nothing happens.
    async fn suffer(&mut self, number: usize, faults: &[(Kind, usize)]) -> Line {
        let suffered = suffered(number, faults);
        let label = suffered.label.clone();
        let window = self.world.judge().open_window(suffered);
        let happening: Vec<_> = faults
            .iter()
            .map(|(kind, hub)| {
                let (cluster, world) = (Arc::clone(&self.cluster), Arc::clone(&self.world));
                tokio::spawn(kind.happen(cluster, world, *hub, self.rng.fork()))
            })
            .collect();
        for fault in happening {
            self.until_ended(&label, fault).await;
        }
        if !self.is_broken()
            && let Err(what) = self.heal().await
        {
            self.world.judge().complain(format!("{label}: {what}"));
        }
        let course = self.world.judge().close_window(window);
        sleep(SETTLED_WITHIN + Duration::from_millis(self.rng.u64(CALM))).await;
        let mut judge = self.world.judge();
        let posts_allowed: Duration = faults.iter().map(|(kind, _)| kind.gap_allowed()).sum();
        if course.posts_gap > posts_allowed {
            judge.complain(format!("{label}: nobody took a post for {:?}", course.posts_gap));
        }
        let (deliveries_gap, host) = course.deliveries_gap;
        if deliveries_gap > posts_allowed + TAKEN_OVER_WITHIN {
            judge.complain(format!("{label}: nothing new came to host {host} for {deliveries_gap:?}"));
        }
        let (repeats, most_repeats) = judge.repeats(window);
        if repeats > most_repeats {
            judge.complain(format!("{label}: {repeats} deliveries came again, and {most_repeats} may"));
        }
        let (lasted, posts_gap) = (course.lasted, course.posts_gap);
        Line { label, lasted, posts_gap, deliveries_gap, repeats, most_repeats }
    }

    fn is_broken(&self) -> bool {
        self.world.judge().is_broken()
    }

    /// A task that fails, or does not end, is complained of.
    async fn until_ended(&self, what: &str, task: JoinHandle<()>) {
        let ended = timeout(2 * HEALED_WITHIN, task).await;
        let wrong = match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("{what} failed: {error}"),
            Err(elapsed) => format!("{what} does not end: {elapsed}"),
        };
        self.world.judge().complain(wrong);
    }

    /// Waits until all hubs share the shards, and each takes posts, which arrive.
    async fn heal(&mut self) -> Result<(), String> {
        let shards = until_shared(&self.world).await.ok_or("the hubs do not share the shards")?;
        if !shards.follow(&self.shards) {
            return Err(format!("an epoch is smaller than it was: {shards:?}, before: {:?}", self.shards));
        }
        self.shards = shards;
        for hub in 0..HUBS {
            let mut number = self.rng.usize(0..TOPICS);
            while !is_undisturbed(number) {
                number = self.rng.usize(0..TOPICS);
            }
            let probe = self.world.probe(hub, number, HEALED_WITHIN).await;
            let probe = probe.ok_or_else(|| format!("hub {hub} takes no posts"))?;
            until_arrived(&self.world, probe).await?;
        }
        Ok(())
    }
}

/// What these faults are called together, and what they excuse.
fn suffered(number: usize, faults: &[(Kind, usize)]) -> Suffered {
    let named = |(kind, hub): &(Kind, usize)| {
        if kind.is_of_database() { kind.name().to_owned() } else { format!("{} {hub}", kind.name()) }
    };
    let names = faults.iter().map(named).collect::<Vec<_>>().join(" + ");
    Suffered {
        label: format!("{number}. {names}"),
        freezes: faults.iter().any(|(kind, _)| kind.freezes()),
        changes: faults.iter().map(|(kind, _)| kind.changes()).sum(),
    }
}

/// The callback of a subscription that lasts.
fn steady(number: usize, host: usize) -> String {
    format!("/t{number}/steady{host}")
}

/// Waits until each shard is owned by a hub that is up, and each of these has its share.
async fn until_shared(world: &World) -> Option<Shards> {
    let until = Instant::now() + HEALED_WITHIN;
    while Instant::now() < until {
        if let Some(shards) = world.sql(QUERY).map(Shards::of).filter(|shards| shards.are_shared_by(HUBS)) {
            return Some(shards);
        }
        sleep(AGAIN).await;
    }
    None
}

/// Waits until this has come to every subscription that it is owed to.
pub(crate) async fn until_arrived(world: &World, ack: Ack) -> Result<(), String> {
    let has_arrived = || async { world.judge().behind(ack).is_empty() };
    if happens_within(HEALED_WITHIN, has_arrived).await {
        return Ok(());
    }
    let behind = world.judge().behind(ack);
    Err(format!(
        "{:?} of topic {} never came to {} subscriptions: {behind:?}",
        ack.id,
        ack.topic,
        behind.len()
    ))
}
