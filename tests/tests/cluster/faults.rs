//! What is done to the hubs and their database, each until it is over: the trial goes on when all is well again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_harness::{Traffic, happens_within};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::nodes::{Cluster, panic_in};
use crate::shards::{QUERY, Shards};
use crate::trial::HEALED_WITHIN;
use crate::world::World;

/// Milliseconds: longer than the word of a hub lasts, and until others have taken over what was its.
const LONGER_THAN_A_LEASE: std::ops::Range<u64> = 7_000..9_000;
/// Milliseconds: until somebody notices that a server is gone.
const NOTICED: std::ops::Range<u64> = 0..3_000;
/// Milliseconds: servers that stand by may be given up meanwhile, or not.
const STANDING_STILL: std::ops::Range<u64> = 1_000..5_000;
/// So soon all processes of a server stand still.
const STOOD_STILL: Duration = Duration::from_millis(200);
/// How far a clock jumps, in seconds.
const JUMP: i64 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    KillHub,
    PauseHub,
    StopHub,
    Stall,
    OneWay,
    Reset,
    Delay,
    KillPrimary,
    PausePrimary,
    SwitchOver,
    PauseStandby,
    PauseStandbys,
    Clock,
}

impl Kind {
    pub(crate) const ALL: [Self; 13] = [
        Self::KillHub,
        Self::PauseHub,
        Self::StopHub,
        Self::Stall,
        Self::OneWay,
        Self::Reset,
        Self::Delay,
        Self::KillPrimary,
        Self::PausePrimary,
        Self::SwitchOver,
        Self::PauseStandby,
        Self::PauseStandbys,
        Self::Clock,
    ];
    /// Of the way from a hub to the database.
    const PARTITIONS: [Self; 4] = [Self::Stall, Self::OneWay, Self::Reset, Self::Delay];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillHub => "kill-hub",
            Self::PauseHub => "pause-hub",
            Self::StopHub => "stop-hub",
            Self::Stall => "stall",
            Self::OneWay => "one-way",
            Self::Reset => "reset",
            Self::Delay => "delay",
            Self::KillPrimary => "kill-primary",
            Self::PausePrimary => "pause-primary",
            Self::SwitchOver => "switchover",
            Self::PauseStandby => "pause-standby",
            Self::PauseStandbys => "pause-standbys",
            Self::Clock => "clock",
        }
    }

    /// Those that are meant by a list like `kill-primary,partition`.
    pub(crate) fn listed(list: &str) -> Vec<Self> {
        let mut kinds = Vec::new();
        for name in list.split(',').map(str::trim) {
            let meant: Vec<_> = match name {
                "partition" => Self::PARTITIONS.to_vec(),
                name => Self::ALL.into_iter().filter(|kind| kind.name() == name).collect(),
            };
            assert!(
                !meant.is_empty(),
                "{name} is not a kind: write partition, {:?}",
                Self::ALL.map(Self::name)
            );
            kinds.extend(meant);
        }
        kinds
    }

    /// Whether it is done to the database, and to all hubs by that.
    pub(crate) fn is_of_database(self) -> bool {
        matches!(
            self,
            Self::KillPrimary
                | Self::PausePrimary
                | Self::SwitchOver
                | Self::PauseStandby
                | Self::PauseStandbys
        )
    }

    /// Whether a hub that others take for dead may still finish what it has begun.
    pub(crate) fn freezes(self) -> bool {
        !matches!(self, Self::KillHub | Self::StopHub | Self::PauseStandby | Self::Clock)
    }

    /// How often at most it changes the owner of a shard, or has that forget what it has not saved.
    pub(crate) fn changes(self) -> usize {
        if self.is_of_database() { 2 } else { 1 }
    }

    /// So long nobody may take a post: the other hubs go on, but a client first has to turn to them; a database has to be replaced.
    pub(crate) fn gap_allowed(self) -> Duration {
        Duration::from_secs(if self.is_of_database() { 30 } else { 10 })
    }

    /// It happens, to this hub or to the database, and is over.
    pub(crate) async fn happen(self, cluster: Arc<Cluster>, world: Arc<World>, hub: usize, mut rng: Rng) {
        match self {
            Self::KillHub => kill_hub(&cluster, &world, hub, &mut rng).await,
            Self::PauseHub => {
                let mut node = cluster.nodes[hub].lock().await;
                node.hub.process().pause();
                pause(LONGER_THAN_A_LEASE, &mut rng).await;
                node.hub.process().resume();
            }
            Self::StopHub => stop_hub(&cluster, &world, hub).await,
            Self::Stall => cut(&cluster, hub, Traffic::Stalls, &mut rng).await,
            Self::OneWay => {
                let ways = [Traffic::StallsTowardsServers, Traffic::StallsTowardsClient];
                cut(&cluster, hub, ways[rng.usize(0..ways.len())], &mut rng).await;
            }
            Self::Reset => cut(&cluster, hub, Traffic::Resets, &mut rng).await,
            Self::Delay => {
                let late = Duration::from_millis(rng.u64(10..80));
                cut(&cluster, hub, Traffic::Late(late), &mut rng).await;
            }
            Self::KillPrimary => kill_primary(&cluster, &world, &mut rng).await,
            Self::PausePrimary => pause_primary(&cluster, &world, &mut rng).await,
            Self::SwitchOver => {
                let mut servers = cluster.servers.lock().await;
                world.set_primary(None);
                block_in_place(|| servers.switch_over());
                world.set_primary(Some(servers.at_primary()));
            }
            Self::PauseStandby => pause_standby(&cluster, &mut rng).await,
            Self::PauseStandbys => pause_standbys(&cluster, &world, &mut rng).await,
            Self::Clock => {
                cluster.clocks[hub].jump(if rng.bool() { JUMP } else { -JUMP });
                pause(LONGER_THAN_A_LEASE, &mut rng).await;
                cluster.clocks[hub].jump(0);
            }
        }
    }
}

async fn pause(millis: std::ops::Range<u64>, rng: &mut Rng) {
    sleep(Duration::from_millis(rng.u64(millis))).await;
}

/// Sometimes it comes back at once, sometimes after others have taken over what was its.
async fn kill_hub(cluster: &Cluster, world: &World, hub: usize, rng: &mut Rng) {
    let mut node = cluster.nodes[hub].lock().await;
    complain_of_panic(world, hub, &node.hub.said());
    node.hub.kill().await;
    if rng.bool() {
        let are_owned = || async {
            sleep(Duration::from_millis(200)).await;
            world.sql(QUERY).is_some_and(|rows| Shards::of(rows).are_owned())
        };
        if !happens_within(HEALED_WITHIN, are_owned).await {
            world.judge().complain(format!("nobody has taken over the shards of hub {hub}, which is dead"));
        }
    }
    complain_of(world, hub, node.start_again().await);
}

/// It ends in order. While the database is away it may say that not all could be saved.
async fn stop_hub(cluster: &Cluster, world: &World, hub: usize) {
    let mut node = cluster.nodes[hub].lock().await;
    let (status, said) = node.hub.stop().await;
    complain_of_panic(world, hub, &said);
    if !matches!(status.code(), Some(0 | 1)) {
        world.judge().complain(format!("hub {hub} ended by {status}: {said}"));
    }
    complain_of(world, hub, node.start_again().await);
}

fn complain_of_panic(world: &World, hub: usize, said: &str) {
    complain_of(world, hub, panic_in(said).map_or(Ok(()), |line| Err(line.to_owned())));
}

fn complain_of(world: &World, hub: usize, what: Result<(), String>) {
    if let Err(what) = what {
        world.judge().complain(format!("hub {hub}: {what}"));
    }
}

/// For shorter than a lease lasts, or for longer.
async fn cut(cluster: &Cluster, hub: usize, traffic: Traffic, rng: &mut Rng) {
    cluster.proxies[hub].set(traffic);
    pause(500..9_000, rng).await;
    cluster.proxies[hub].set(Traffic::Flows);
}

async fn kill_primary(cluster: &Cluster, world: &World, rng: &mut Rng) {
    let mut servers = cluster.servers.lock().await;
    world.set_primary(None);
    let old = servers.primary();
    block_in_place(|| servers.kill(old));
    pause(NOTICED, rng).await;
    block_in_place(|| servers.promote());
    world.set_primary(Some(servers.at_primary()));
    block_in_place(|| servers.rejoin(old));
}

/// The old primary wakes after it was replaced, and may take itself for the primary until it dies.
async fn pause_primary(cluster: &Cluster, world: &World, rng: &mut Rng) {
    let mut servers = cluster.servers.lock().await;
    world.set_primary(None);
    let old = servers.primary();
    block_in_place(|| servers.pause(old));
    pause(NOTICED, rng).await;
    block_in_place(|| servers.promote());
    world.set_primary(Some(servers.at_primary()));
    block_in_place(|| servers.resume(old));
    pause(NOTICED, rng).await;
    block_in_place(|| servers.rejoin(old));
}

/// One of the servers that stand by stands still. It goes on, or dies and is made anew.
async fn pause_standby(cluster: &Cluster, rng: &mut Rng) {
    let mut servers = cluster.servers.lock().await;
    let standbys = servers.standbys();
    let standby = standbys[rng.usize(0..standbys.len())];
    block_in_place(|| servers.pause(standby));
    pause(STANDING_STILL, rng).await;
    let dies = rng.bool();
    block_in_place(|| {
        if dies {
            servers.rejoin(standby);
        } else {
            servers.resume(standby);
        }
        servers.until_followed();
    });
}

/// Both stand still, and go on. Nothing new is acknowledged meanwhile, since nobody has it but the primary.
async fn pause_standbys(cluster: &Cluster, world: &World, rng: &mut Rng) {
    let servers = cluster.servers.lock().await;
    block_in_place(|| servers.standbys().into_iter().for_each(|standby| servers.pause(standby)));
    sleep(STOOD_STILL).await;
    let from = Instant::now();
    pause(STANDING_STILL, rng).await;
    let until = Instant::now();
    block_in_place(|| servers.standbys().into_iter().for_each(|standby| servers.resume(standby)));
    let count = world.judge().acknowledged_between(from, until);
    if count > 0 {
        world.judge().complain(format!("{count} posts were acknowledged while both standbys stood still"));
    }
    block_in_place(|| servers.until_followed());
}
