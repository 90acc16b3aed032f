//! The operator, who pauses a topic and has another one delivered again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::time::sleep;
use url::form_urlencoded::Serializer;

use crate::topics::{PAUSED, REPLAYED, topic};
use crate::trial::HEALED_WITHIN;
use crate::world::World;

/// Between two tries.
const AGAIN: Duration = Duration::from_millis(150);
/// So many of the newest are delivered again.
const NEWEST: u64 = 5;

/// Pauses one topic for a moment, or has the newest of another one delivered again.
pub(crate) async fn operate(world: Arc<World>, mut rng: Rng) {
    while !world.is_stopped() {
        let hub = rng.usize(0..world.hubs.len());
        if rng.bool() {
            world.hubs[hub].operate("POST", &of_topic("pause", PAUSED, None), "").await;
            sleep(Duration::from_millis(rng.u64(200..1_500))).await;
            while !world.is_stopped() && !resume(&world, rng.usize(0..world.hubs.len())).await {
                sleep(AGAIN).await;
            }
        } else {
            let from = world.judge().newest(REPLAYED).saturating_sub(NEWEST).max(1);
            world.judge().replays(from, Instant::now());
            world.hubs[hub].operate("POST", &of_topic("replay", REPLAYED, Some(from)), "").await;
        }
        sleep(Duration::from_millis(rng.u64(1_000..3_000))).await;
    }
}

/// Has everything go on, whatever the operator was about when it was told to stop.
pub(crate) async fn resume_all(world: &World) {
    let until = Instant::now() + HEALED_WITHIN;
    for hub in (0..world.hubs.len()).cycle() {
        if resume(world, hub).await {
            return;
        }
        if Instant::now() > until {
            world.judge().complain("no hub lets a topic go on that was paused".to_owned());
            return;
        }
        sleep(AGAIN).await;
    }
}

/// Has the paused topic go on; whether this hub says that it does.
async fn resume(world: &World, hub: usize) -> bool {
    let answer = world.hubs[hub].operate("POST", &of_topic("resume", PAUSED, None), "").await;
    answer.is_some_and(|answer| answer.status == 200)
}

fn of_topic(what: &str, number: usize, from: Option<u64>) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("topic", &topic(number));
    if let Some(from) = from {
        query.append_pair("from", &from.to_string());
    }
    format!("/api/v1/deliveries/{what}?{}", query.finish())
}
