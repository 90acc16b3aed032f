//! The end of a trial: everything has arrived, and all hubs say the same about it.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use resync_harness::happens_within;
use serde_json::Value;
use tokio::time::sleep;
use url::Url;
use url::form_urlencoded::byte_serialize;

use crate::judge::{Id, meaning};
use crate::topics::{TOPICS, topic};
use crate::trial::{HEALED_WITHIN, HUBS, until_arrived};
use crate::world::World;

/// Entries of a page.
const PAGE: usize = 1_000;

/// Complains about all that is not as it must be, once nothing more is posted.
pub(crate) async fn pass(world: &World, rng: &mut Rng) {
    for number in 0..TOPICS {
        let Some(last) = world.probe(rng.usize(0..HUBS), number, HEALED_WITHIN).await else {
            world.judge().complain(format!("the last post of topic {number} was not taken"));
            continue;
        };
        if let Err(what) = until_arrived(world, last).await {
            world.judge().complain(what);
        }
    }
    let late = world.judge().began_late();
    for what in late {
        world.judge().complain(what);
    }
    agree_on_logs(world).await;
    agree_on_subscriptions(world).await;
}

/// Every hub has the same log of each topic: the offsets are dense, and each means what it meant when it arrived.
async fn agree_on_logs(world: &World) {
    for (hub, number) in (0..HUBS).flat_map(|hub| (0..TOPICS).map(move |number| (hub, number))) {
        if let Err(what) = check_log(world, hub, number).await {
            world.judge().complain(format!("hub {hub} reads topic {number} again: {what}"));
        }
    }
}

async fn check_log(world: &World, hub: usize, number: usize) -> Result<(), String> {
    let newest = world.judge().newest(number);
    // What others took in is heard of soon.
    let has_heard = || async {
        let page = page(world, hub, number, newest.saturating_sub(1)).await;
        page.is_ok_and(|(head, _)| head >= newest)
    };
    if !happens_within(HEALED_WITHIN / 3, has_heard).await {
        return Err(format!("{newest} was acknowledged, and is not there"));
    }
    let (mut after, mut head) = (0, u64::MAX);
    while after < head {
        let (now, notifications) = page(world, hub, number, after).await?;
        head = now;
        if notifications.is_empty() {
            return Err(format!("nothing is behind {after}, and the newest is {head}"));
        }
        for notification in notifications {
            after += 1;
            let id = notification["id"].as_str().and_then(Id::parse).ok_or("no identity")?;
            if id.offset != after {
                return Err(format!("where {after} is to be there is {}", id.offset));
            }
            let body = notification["body"].as_str().ok_or("no body")?;
            world.judge().means(id, meaning(body.as_bytes()))?;
        }
    }
    Ok(())
}

/// The newest offset of a topic, and the notifications behind this one, as a hub has them.
async fn page(world: &World, hub: usize, number: usize, after: u64) -> Result<(u64, Vec<Value>), String> {
    let url: String = byte_serialize(topic(number).as_bytes()).collect();
    let target = format!("/websub/notifications?topic={url}&after={after}&limit={PAGE}");
    let answer = world.hubs[hub].get(&target).await.ok_or("no answer")?;
    let mut page: Value = serde_json::from_slice(&answer.body).map_err(|error| error.to_string())?;
    let head = page["head"].as_u64().ok_or_else(|| format!("no head in {page}"))?;
    match page["notifications"].take() {
        Value::Array(notifications) => Ok((head, notifications)),
        other => Err(format!("no notifications but {other}")),
    }
}

/// What was confirmed and not ended is in the database and in every hub's list, and what has ended is in none.
async fn agree_on_subscriptions(world: &World) {
    let Some(rows) = world.sql("SELECT id, callback FROM hub.subscription") else {
        world.judge().complain("the database does not answer at the end".to_owned());
        return;
    };
    let mut ids = BTreeSet::new();
    let mut paths = BTreeSet::new();
    let count = rows.len();
    for row in rows {
        let mut columns = row.into_iter().flatten();
        ids.extend(columns.next());
        let callback = columns.next().and_then(|callback| Url::parse(&callback).ok());
        paths.extend(callback.map(|callback| callback.path().to_owned()));
    }
    if count != paths.len() {
        world.judge().complain(format!("{count} rows are the subscriptions of {} callbacks", paths.len()));
    }
    for path in &paths {
        let mut judge = world.judge();
        if !judge.knows(path) {
            judge.complain(format!("{path} is there, and nobody has asked for it"));
        }
    }
    let (in_force, ended) = world.judge().standing();
    for path in in_force.iter().filter(|path| !paths.contains(*path)) {
        world.judge().complain(format!("{path} was confirmed, and is gone"));
    }
    for path in ended.iter().filter(|path| paths.contains(*path)) {
        world.judge().complain(format!("{path} has ended, and is there"));
    }
    for hub in 0..HUBS {
        // What others did is heard of soon.
        let are_same = || async {
            sleep(Duration::from_millis(200)).await;
            listed(world, hub).await.is_some_and(|listed| listed == ids)
        };
        if !happens_within(HEALED_WITHIN / 3, are_same).await {
            let listed = listed(world, hub).await.unwrap_or_default();
            let differing = listed.symmetric_difference(&ids).count();
            world
                .judge()
                .complain(format!("{differing} subscriptions are not the same in the list of hub {hub}"));
        }
    }
}

/// The numbers of all subscriptions that a hub lists.
async fn listed(world: &World, hub: usize) -> Option<BTreeSet<String>> {
    let (mut ids, mut after) = (BTreeSet::new(), String::new());
    loop {
        let path = format!("/api/v1/subscriptions?limit={PAGE}{after}");
        let answer = world.hubs[hub].operate("GET", &path, "").await?;
        let page: Value = serde_json::from_slice(&answer.body).ok()?;
        ids.extend(page["items"].as_array()?.iter().map(|one| one["id"].to_string()));
        let Some(next) = page["next"].as_str() else { return Some(ids) };
        let next: String = byte_serialize(next.as_bytes()).collect();
        after = format!("&after={next}");
    }
}
