//! What goes on all the time: publishers post to any hub, half of them with idempotency keys, and hosts of subscribers fail for a moment.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::time::sleep;

use crate::subscribers::HOSTS;
use crate::topics::TOPICS;
use crate::world::{Posted, World};

pub(crate) const PUBLISHERS: usize = 6;

/// Posts to any topic until told to stop. With keys, what nobody knows about is posted again to another hub until it is acknowledged; without,
/// never again.
pub(crate) async fn publish(world: Arc<World>, publisher: usize, mut rng: Rng) {
    let has_keys = publisher.is_multiple_of(2);
    let mut hub = rng.usize(0..world.hubs.len());
    for serial in 0.. {
        if world.is_stopped() {
            return;
        }
        let number = rng.usize(0..TOPICS);
        let size = if rng.u8(0..20) == 0 { rng.usize(0..20_000) } else { rng.usize(0..200) };
        let rest: String = std::iter::repeat_with(|| rng.alphanumeric()).take(size).collect();
        let body = world.judge().body(number, &publisher.to_string(), serial, &rest);
        let key = has_keys.then(|| format!("{publisher}-{serial}"));
        while matches!(world.post(hub, number, &body, key.as_deref()).await, Posted::Unknown) {
            hub = (hub + 1) % world.hubs.len();
            sleep(Duration::from_millis(50)).await;
            if !has_keys || world.is_stopped() {
                break;
            }
        }
        if rng.u8(0..30) == 0 {
            hub = rng.usize(0..world.hubs.len());
        }
        sleep(Duration::from_millis(rng.u64(30..200))).await;
    }
}

/// Hosts fail for a moment, one after the other.
pub(crate) async fn fail_hosts(world: Arc<World>, mut rng: Rng) {
    while !world.is_stopped() {
        let host = rng.usize(0..HOSTS);
        world.hosts.set_down(host, true);
        sleep(Duration::from_millis(rng.u64(200..1_200))).await;
        world.hosts.set_down(host, false);
        sleep(Duration::from_millis(rng.u64(500..2_000))).await;
    }
}
