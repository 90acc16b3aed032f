//! Subscriptions that come and go at any hub, and an operator who denies some, pauses a topic and has another one delivered again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_harness::happens_within;
use tokio::time::sleep;
use url::form_urlencoded::Serializer;

use crate::load::{PAUSED, REPLAYED, TOPICS, World, topic};
use crate::subscribers::HOSTS;
use crate::trial::HEALED_WITHIN;

/// So many of each task stay until the end.
const MOST_STAYING: usize = 20;
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(150);
/// So soon the owner of a shard knows that a subscription has ended.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// So long it may take where the answer to the first request was lost.
const SURELY_HEARD_WITHIN: Duration = Duration::from_secs(15);

/// Subscribes a new callback, and after a while ends that, has it ended, or leaves it.
pub(crate) async fn come_and_go(world: Arc<World>, task: usize, mut rng: Rng) {
    let mut staying = 0;
    for serial in 0_usize.. {
        if world.is_stopped() {
            return;
        }
        let (number, host) = (rng.usize(0..TOPICS), rng.usize(0..HOSTS));
        let path = format!("/t{number}/task{task}-{serial}");
        let callback = world.hosts.callback(host, &path);
        world.book().asked(&path, number);
        let is_certain = ask(&world, "subscribe", number, &callback, &mut rng).await;
        let Some(id) = until_listed(&world, &callback).await else {
            world.book().complain(format!("{path} was accepted, and never came into force"));
            continue;
        };
        world.book().in_force(&path, Instant::now());
        sleep(Duration::from_millis(rng.u64(300..4_000))).await;
        // A request that nobody knows about may yet be carried out.
        if !is_certain || (staying < MOST_STAYING && rng.u8(0..5) == 0) {
            staying += 1;
            continue;
        }
        world.book().ending(&path);
        if rng.bool() {
            let is_certain = deny(&world, &id, &mut rng).await;
            let heard = if is_certain { Duration::ZERO } else { SURELY_HEARD_WITHIN };
            world.book().ended(&path, Instant::now() + heard);
        } else {
            ask(&world, "unsubscribe", number, &callback, &mut rng).await;
            if until_gone(&world, &callback).await {
                world.book().ended(&path, Instant::now() + HEARD_WITHIN);
            } else {
                world.book().complain(format!("{path} was unsubscribed, and never ended"));
            }
        }
    }
}

/// Asks one hub after the other until one has accepted it; whether none may have that did not say so.
async fn ask(world: &World, mode: &str, number: usize, callback: &str, rng: &mut Rng) -> bool {
    let mut is_certain = true;
    let mut hub = rng.usize(0..world.hubs.len());
    loop {
        let answer = world.hubs[hub].ask(mode, &topic(number), callback).await;
        match answer.map(|answer| answer.status) {
            Some(202) => return is_certain,
            Some(503) | None => is_certain = false,
            Some(status) => {
                world.book().complain(format!("hub {hub} answers a {mode} with {status}"));
                return is_certain;
            }
        }
        hub = (hub + 1) % world.hubs.len();
        sleep(AGAIN).await;
    }
}

/// The numbers of subscriptions with this callback, as the database has them; `None` where it does not answer.
fn listed(world: &World, callback: &str) -> Option<Vec<String>> {
    let rows = world.sql(&format!("SELECT id FROM hub.subscription WHERE callback = '{callback}'"))?;
    Some(rows.into_iter().flatten().flatten().collect())
}

async fn until_listed(world: &World, callback: &str) -> Option<String> {
    let until = Instant::now() + HEALED_WITHIN;
    while Instant::now() < until {
        let id = listed(world, callback).and_then(|ids| ids.into_iter().next());
        if id.is_some() {
            return id;
        }
        sleep(AGAIN).await;
    }
    None
}

async fn until_gone(world: &World, callback: &str) -> bool {
    happens_within(HEALED_WITHIN, || async {
        sleep(AGAIN).await;
        listed(world, callback).is_some_and(|ids| ids.is_empty())
    })
    .await
}

/// Ends a subscription as an operator does; whether the first answer said so.
async fn deny(world: &World, id: &str, rng: &mut Rng) -> bool {
    let body = format!("{{\"ids\":[{id}],\"reason\":\"moved\"}}");
    let mut is_first = true;
    loop {
        let hub = &world.hubs[rng.usize(0..world.hubs.len())];
        let answer = hub.operate("POST", "/api/v1/subscriptions/deny", &body).await;
        // 404: what nobody knew about was carried out.
        if answer.is_some_and(|answer| [200, 404].contains(&answer.status)) {
            return is_first;
        }
        is_first = false;
        sleep(AGAIN).await;
    }
}

/// Pauses one topic for a moment, or has the newest of another one delivered again.
pub(crate) async fn operate(world: Arc<World>, mut rng: Rng) {
    while !world.is_stopped() {
        let hub = rng.usize(0..world.hubs.len());
        if rng.bool() {
            world.hubs[hub].operate("POST", &of_topic("pause", PAUSED, None), "").await;
            sleep(Duration::from_millis(rng.u64(200..1_500))).await;
            resume(&world, &mut rng).await;
        } else {
            let newest = {
                let book = world.book();
                let of_topic = book.acks().iter().rev().find(|ack| ack.topic == REPLAYED);
                of_topic.map_or(1, |ack| ack.id.offset)
            };
            let from = newest.saturating_sub(5).max(1);
            world.hubs[hub].operate("POST", &of_topic("replay", REPLAYED, Some(from)), "").await;
        }
        sleep(Duration::from_millis(rng.u64(1_000..3_000))).await;
    }
}

async fn resume(world: &World, rng: &mut Rng) {
    loop {
        let hub = &world.hubs[rng.usize(0..world.hubs.len())];
        let answer = hub.operate("POST", &of_topic("resume", PAUSED, None), "").await;
        if answer.is_some_and(|answer| answer.status == 200) {
            return;
        }
        sleep(AGAIN).await;
    }
}

fn of_topic(what: &str, number: usize, from: Option<u64>) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("topic", &topic(number));
    if let Some(from) = from {
        query.append_pair("from", &from.to_string());
    }
    format!("/api/v1/deliveries/{what}?{}", query.finish())
}
