//! What is done to the hubs and their database, each until it is over: the trial goes on when all is well again.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use resync_harness::{Traffic, happens_within};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::load::World;
use crate::nodes::Cluster;
use crate::shards::{QUERY, Shards};
use crate::trial::HEALED_WITHIN;

/// Milliseconds: longer than the word of a hub lasts, and until others have taken over what was its.
const LONGER_THAN_A_LEASE: std::ops::Range<u64> = 7_000..9_000;

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
}

impl Kind {
    pub(crate) const ALL: [Self; 10] = [
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
        matches!(self, Self::KillPrimary | Self::PausePrimary | Self::SwitchOver)
    }

    /// Whether a hub that others take for dead may still finish what it has begun.
    pub(crate) fn freezes(self) -> bool {
        !matches!(self, Self::KillHub | Self::StopHub)
    }

    /// It happens, to this hub or to the database, and is over.
    pub(crate) async fn happen(self, cluster: Arc<Cluster>, world: Arc<World>, hub: usize, mut rng: Rng) {
        match self {
            Self::KillHub => kill_hub(&cluster, &world, hub, &mut rng).await,
            Self::PauseHub => {
                let mut node = cluster.nodes[hub].lock().await;
                node.hub.process().pause();
                sleep(Duration::from_millis(rng.u64(LONGER_THAN_A_LEASE))).await;
                node.hub.process().resume();
            }
            Self::StopHub => {
                let mut node = cluster.nodes[hub].lock().await;
                let (status, said) = node.hub.stop().await;
                // While the database is away it may say that not all could be saved.
                if status.code().is_none() {
                    world.book().complain(format!("hub {hub} ended by {status}: {said}"));
                }
                node.start_again().await;
            }
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
        }
    }
}

/// Sometimes it comes back at once, sometimes after others have taken over what was its.
async fn kill_hub(cluster: &Cluster, world: &World, hub: usize, rng: &mut Rng) {
    let mut node = cluster.nodes[hub].lock().await;
    node.hub.kill().await;
    if rng.bool() {
        let are_owned = || async {
            sleep(Duration::from_millis(200)).await;
            world.sql(QUERY).is_some_and(|rows| Shards::of(rows).are_owned())
        };
        if !happens_within(HEALED_WITHIN, are_owned).await {
            world.book().complain(format!("nobody has taken over the shards of hub {hub}, which is dead"));
        }
    }
    node.start_again().await;
}

/// For shorter than a lease lasts, or for longer.
async fn cut(cluster: &Cluster, hub: usize, traffic: Traffic, rng: &mut Rng) {
    cluster.proxies[hub].set(traffic);
    sleep(Duration::from_millis(rng.u64(500..9_000))).await;
    cluster.proxies[hub].set(Traffic::Flows);
}

async fn kill_primary(cluster: &Cluster, world: &World, rng: &mut Rng) {
    let mut servers = cluster.servers.lock().await;
    world.set_primary(None);
    let old = servers.primary();
    block_in_place(|| servers.kill(old));
    // Until somebody notices it.
    sleep(Duration::from_millis(rng.u64(0..3_000))).await;
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
    sleep(Duration::from_millis(rng.u64(0..3_000))).await;
    block_in_place(|| servers.promote());
    world.set_primary(Some(servers.at_primary()));
    block_in_place(|| servers.resume(old));
    sleep(Duration::from_millis(rng.u64(0..3_000))).await;
    block_in_place(|| servers.rejoin(old));
}
