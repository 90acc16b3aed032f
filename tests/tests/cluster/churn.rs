//! Subscriptions that come and go at any hub: some are left, some are unsubscribed, and some the operator denies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use tokio::time::sleep;

use crate::subscribers::{HOSTS, secret};
use crate::topics::{TOPICS, topic};
use crate::trial::HEALED_WITHIN;
use crate::world::World;

/// So many of each task stay until the end.
const MOST_STAYING: usize = 20;
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(150);
/// So soon the owner of a shard knows that a subscription has ended.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// So long it may take where the answer to the first request was lost.
const SURELY_HEARD_WITHIN: Duration = Duration::from_secs(15);

/// Subscribes a new callback, and after a while ends that, has it ended, or leaves it. What is under way when the trial stops is left open.
pub(crate) async fn come_and_go(world: Arc<World>, task: usize, mut rng: Rng) {
    let mut staying = 0;
    for serial in 0_usize.. {
        if world.is_stopped() {
            return;
        }
        let (number, host) = (rng.usize(0..TOPICS), rng.usize(0..HOSTS));
        let path = format!("/t{number}/task{task}-{serial}");
        let callback = world.hosts.callback(host, &path);
        world.judge().asked(&path, number);
        let secret = secret(&path);
        let subscribe = Request { mode: "subscribe", number, callback: &callback, secret: secret.as_deref() };
        let Some(is_certain) = subscribe.ask(&world, &mut rng).await else { return };
        let Some(ids) = until_listed(&world, &callback, |ids| !ids.is_empty()).await else {
            complain_unless_stopped(&world, format!("{path} was accepted, and never came into force"));
            continue;
        };
        world.judge().in_force(&path, Instant::now());
        sleep(Duration::from_millis(rng.u64(300..4_000))).await;
        // A request that nobody knows about may yet be carried out.
        if !is_certain || (staying < MOST_STAYING && rng.u8(0..5) == 0) {
            staying += 1;
            continue;
        }
        world.judge().ending(&path);
        if rng.bool() {
            let Some(is_certain) = deny(&world, &ids.join(","), &mut rng).await else { return };
            let heard = if is_certain { Duration::ZERO } else { SURELY_HEARD_WITHIN };
            world.judge().ended(&path, Instant::now() + heard);
        } else {
            let unsubscribe = Request { mode: "unsubscribe", secret: None, ..subscribe };
            if unsubscribe.ask(&world, &mut rng).await.is_none() {
                return;
            }
            if until_listed(&world, &callback, <[String]>::is_empty).await.is_some() {
                world.judge().ended(&path, Instant::now() + HEARD_WITHIN);
            } else {
                complain_unless_stopped(&world, format!("{path} was unsubscribed, and never ended"));
            }
        }
    }
}

/// What a subscriber asks for.
#[derive(Clone, Copy, Debug)]
struct Request<'a> {
    mode: &'a str,
    number: usize,
    callback: &'a str,
    secret: Option<&'a str>,
}

impl Request<'_> {
    /// Asks one hub after the other until one has accepted it; whether none may have that did not say so. `None` where the trial stops before.
    async fn ask(self, world: &World, rng: &mut Rng) -> Option<bool> {
        let Self { mode, number, callback, secret } = self;
        let mut is_certain = true;
        let mut hub = rng.usize(0..world.hubs.len());
        while !world.is_stopped() {
            let answer = world.hubs[hub].ask(mode, &topic(number), callback, secret).await;
            match answer.map(|answer| answer.status) {
                Some(202) => return Some(is_certain),
                Some(503) | None => is_certain = false,
                Some(status) => {
                    world.judge().complain(format!("hub {hub} answers a {mode} with {status}"));
                    return None;
                }
            }
            hub = (hub + 1) % world.hubs.len();
            sleep(AGAIN).await;
        }
        None
    }
}

/// Waits until the numbers of subscriptions with this callback, as the database has them, are so; `None` where they are not in time, or the
/// trial stops before.
async fn until_listed(
    world: &World,
    callback: &str,
    are_so: impl Fn(&[String]) -> bool,
) -> Option<Vec<String>> {
    let query = format!("SELECT id FROM hub.subscription WHERE callback = '{callback}'");
    let until = Instant::now() + HEALED_WITHIN;
    while !world.is_stopped() && Instant::now() < until {
        let ids = world.sql(&query).map(|rows| rows.into_iter().flatten().flatten().collect::<Vec<_>>());
        if let Some(ids) = ids.filter(|ids| are_so(ids)) {
            return Some(ids);
        }
        sleep(AGAIN).await;
    }
    None
}

/// Ends subscriptions as an operator does; whether the first answer said so. `None` where the trial stops before.
async fn deny(world: &World, ids: &str, rng: &mut Rng) -> Option<bool> {
    let body = format!("{{\"ids\":[{ids}],\"reason\":\"moved\"}}");
    let mut is_first = true;
    while !world.is_stopped() {
        let hub = &world.hubs[rng.usize(0..world.hubs.len())];
        let answer = hub.operate("POST", "/api/v1/subscriptions/deny", &body).await;
        // 404: what nobody knew about was carried out.
        if answer.is_some_and(|answer| [200, 404].contains(&answer.status)) {
            return Some(is_first);
        }
        is_first = false;
        sleep(AGAIN).await;
    }
    None
}

/// Who stops early does not see the end of what it has begun.
fn complain_unless_stopped(world: &World, what: String) {
    if !world.is_stopped() {
        world.judge().complain(what);
    }
}
