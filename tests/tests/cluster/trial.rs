//! The trial: load, one fault after the other, each healed before the next, and the verdict.

use std::env;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_harness::happens_within;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::churn::{come_and_go, operate};
use crate::faults::Kind;
use crate::load::{PUBLISHERS, TOPICS, World, fail_hosts, publish, topic};
use crate::nodes::Cluster;
use crate::oracle::{Ack, Book, is_undisturbed};
use crate::report::{Line, Report};
use crate::shards::{QUERY, Shards};
use crate::subscribers::{HOSTS, Hosts};
use crate::verdict;

pub(crate) const HUBS: usize = 3;
/// Everything is well again so soon after a fault, on a busy machine too.
pub(crate) const HEALED_WITHIN: Duration = Duration::from_secs(90);
/// Somebody takes posts again so soon.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Between two looks.
const AGAIN: Duration = Duration::from_millis(100);
/// Tasks that subscribe.
const TASKS: usize = 2;
/// Of one of so many faults there are two at once.
const PAIRS: u8 = 5;

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
        let mut run = Run::begin(cluster, Rng::with_seed(self.seed)).await;
        let tasks = run.load();
        let mut report = Report::default();
        let mut deck = Vec::new();
        for number in 1..=self.faults {
            let faults = self.draw(&mut deck, &mut run.rng);
            let line = run.suffer(number, &faults).await;
            println!("{line}");
            report.add(line);
            if !run.world.book().broken().is_empty() {
                break;
            }
        }
        run.world.stop();
        for task in tasks {
            let ended =
                timeout(2 * HEALED_WITHIN, task).await.expect("a task of the load ends when it is told to");
            ended.expect("a task of the load does not fail");
        }
        verdict::judge(&run.world, &mut run.rng).await;
        println!("{report}");
        let broken = run.world.book().broken().join("\n");
        if !broken.is_empty() {
            let words = run.cluster.last_words().await;
            panic!("RESYNC_TEST_SEED={}: what was promised was broken:\n{broken}\n\n{words}", self.seed);
        }
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
    /// Every topic has a subscription at every host before anything is posted.
    async fn begin(cluster: Cluster, rng: Rng) -> Self {
        let book = Arc::new(Mutex::new(Book::new()));
        let hosts = Hosts::start(&book).await;
        let primary = cluster.servers.lock().await.at_primary();
        let world = Arc::new(World::new(book, cluster.endpoints.clone(), hosts, primary));
        let shards = until_shared(&world).await.expect("three hubs share the shards when they are started");
        for number in 0..TOPICS {
            for host in 0..HOSTS {
                let path = steady(number, host);
                world.book().asked(&path, number);
                let callback = world.hosts.callback(host, &path);
                let answer =
                    world.hubs[(number + host) % HUBS].ask("subscribe", &topic(number), &callback).await;
                assert_eq!(answer.map(|answer| answer.status), Some(202), "{path}");
            }
        }
        let all = Some((TOPICS * HOSTS).to_string());
        let are_there = || async {
            sleep(AGAIN).await;
            let rows = world.sql("SELECT count(*) FROM hub.subscription").unwrap_or_default();
            rows.into_iter().flatten().next() == Some(all.clone())
        };
        assert!(happens_within(HEALED_WITHIN, are_there).await, "not all were confirmed");
        let since = Instant::now();
        for (number, host) in (0..TOPICS).flat_map(|number| (0..HOSTS).map(move |host| (number, host))) {
            world.book().in_force(&steady(number, host), since);
        }
        Self { cluster: Arc::new(cluster), world, shards, rng }
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

    /// These happen at once, and all is well again.
    async fn suffer(&mut self, number: usize, faults: &[(Kind, usize)]) -> Line {
        let named = |(kind, hub): &(Kind, usize)| {
            if kind.is_of_database() { kind.name().to_owned() } else { format!("{} {hub}", kind.name()) }
        };
        let label = faults.iter().map(named).collect::<Vec<_>>().join(" + ");
        let freezes = faults.iter().any(|(kind, _)| kind.freezes());
        let window = self.world.book().open_window(format!("{number}. {label}"), freezes);
        let happening: Vec<_> = faults
            .iter()
            .map(|(kind, hub)| {
                let (cluster, world) = (Arc::clone(&self.cluster), Arc::clone(&self.world));
                tokio::spawn(kind.happen(cluster, world, *hub, self.rng.fork()))
            })
            .collect();
        for fault in happening {
            fault.await.expect("a fault can be made and ended");
        }
        if let Err(what) = self.heal().await {
            self.world.book().complain(format!("{label}: {what}"));
        }
        let mut book = self.world.book();
        let window = book.close_window(window);
        let closed = window.closed.unwrap_or(window.opened);
        let gap = book.longest_pause(window.opened, closed);
        if gap > TAKEN_WITHIN {
            book.complain(format!("{label}: nobody took a post for {gap:?}"));
        }
        Line { label: window.label, lasted: closed - window.opened, gap, repeats: window.repeats }
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
    let has_arrived = || async { world.book().behind(ack).is_empty() };
    if happens_within(HEALED_WITHIN, has_arrived).await {
        return Ok(());
    }
    let behind = world.book().behind(ack);
    Err(format!(
        "{:?} of topic {} never came to {} subscriptions: {behind:?}",
        ack.id,
        ack.topic,
        behind.len()
    ))
}
