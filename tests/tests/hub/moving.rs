//! A hub moves from the embedded store into a database and back, by backup and restore: everything is there as it was, and whoever was late gets
//! what is owed, and nothing else.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::Path;

use resync_harness::{HubProcess, Postgres, Receiver, Reply, Seen, eventually, refusing};
use serde_json::{Value, json};
use tempfile::tempdir;

use super::backups::well;

const TOPIC: &str = "http://source.example/set/";
const PAUSED: &str = "http://source.example/paused/";

/// What the operator sees of a hub, but for what changes by itself: the paths of lists, and what of each entry stays the same; all of it where
/// nothing is named.
const LISTS: [(&str, &[&str]); 6] = [
    ("subscriptions", &["id", "topic", "callback_origin", "start"]),
    ("topics", &["id", "url"]),
    ("deliveries/laggards", &["subscription", "topic", "owed", "class"]),
    ("deliveries/skips", &["notification", "subscription", "class", "status"]),
    ("deliveries/lost", &["first"]),
    ("deliveries/paused", &[]),
];

async fn list(hub: &HubProcess, path: &str) -> Vec<Value> {
    let answer = hub.admin(&format!("/api/v1/{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    let listed: Value = serde_json::from_slice(&answer.body).unwrap();
    // Some come in pages.
    listed.as_array().or(listed["items"].as_array()).unwrap().clone()
}

async fn state(hub: &HubProcess) -> Value {
    let mut state = json!({});
    for (path, parts) in LISTS {
        let entries = list(hub, path).await.into_iter().map(|entry| {
            if parts.is_empty() {
                return entry;
            }
            parts.iter().map(|part| entry[*part].clone()).collect::<Value>()
        });
        // Engines have other shards, by which some lists are ordered.
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(Value::to_string);
        state[path] = entries.into();
    }
    state
}

/// Until it is as before: what is late is so once a worker has looked.
async fn is_as_before(hub: &HubProcess, before: &Value) {
    eventually("everything is there as it was", || async { state(hub).await == *before }).await;
}

fn bodies(deliveries: &[Seen]) -> Vec<String> {
    deliveries.iter().map(Seen::text).collect()
}

fn names(deliveries: &[Seen]) -> Vec<(String, String)> {
    deliveries.iter().map(|seen| (seen.header("webhook-id").to_owned(), seen.text())).collect()
}

/// Stops a hub, and makes another one of its backup, with these settings.
async fn moved(
    hub: &mut HubProcess,
    (from, of): (&Path, &[(&str, &str)]),
    (to, settings): (&Path, &[(&str, &str)]),
) -> HubProcess {
    hub.stop().await;
    let backup = to.with_extension("backup");
    let backup = backup.to_str().unwrap();
    well(from, of, &["backup", backup]).await;
    let said = well(to, settings, &["restore", backup]).await;
    assert!(said.contains("\"library\""), "the publishers' tokens come along: {said}");
    assert!(well(to, settings, &["fsck"]).await.contains("no faults"));
    HubProcess::start_with(to, settings).await
}

#[tokio::test]
async fn a_hub_that_moves_into_a_database_and_back_owes_everybody_exactly_what_it_owed() {
    let Some(server) = Postgres::shared() else { return };
    let (database, folder) = (server.database(), tempdir().unwrap());
    let [one, two, three] = ["one", "two", "three"].map(|name| folder.path().join(name));
    let url = database.url();
    // The server of the tests has no standby.
    let in_database =
        [("STORE_ENGINE", "postgres"), ("STORE_URL", url.as_str()), ("STORE_DURABILITY", "declared")];

    let mut first = HubProcess::start(&one).await;
    first.add_token("library", "http://source.example/").await;
    let [well_off, in_trouble, held] =
        [Receiver::start().await, Receiver::start().await, Receiver::start().await];
    in_trouble.behave(refusing(503));
    first.subscribe(TOPIC, &well_off.url("/cb"), &[], 1).await;
    first.subscribe(TOPIC, &in_trouble.url("/cb"), &[("hub.secret", "s3cr3t")], 2).await;
    first.subscribe(PAUSED, &held.url("/cb"), &[], 3).await;
    let of_paused = |act: &str| format!("/api/v1/deliveries/{act}?topic={PAUSED}");
    assert_eq!(first.admin_post(&of_paused("pause"), "").await.status, 200);
    assert_eq!(first.publish(PAUSED, "held").await.unwrap().status, 202);
    for news in ["one", "two", "three"] {
        assert_eq!(first.publish(TOPIC, news).await.unwrap().status, 202);
    }
    let given = names(&well_off.until_delivered(3).await);
    let late = list(&first, "subscriptions").await;
    let number = |receiver: &Receiver| {
        let origin = receiver.url("");
        late.iter().find(|one| one["callback_origin"] == origin.as_str()).unwrap()["id"].as_u64().unwrap()
    };
    let (sound, troubled) = (number(&well_off), number(&in_trouble));
    let skip = format!("/api/v1/deliveries/skip?subscription={troubled}");
    eventually("the first is given up", || async { first.admin_post(&skip, "").await.status == 200 }).await;
    eventually("the second is owed", || async {
        list(&first, "deliveries/laggards").await.iter().any(|late| {
            late["subscription"] == troubled && late["owed"].as_str().is_some_and(|owed| owed.ends_with(".2"))
        })
    })
    .await;
    let before = state(&first).await;

    let mut second = moved(&mut first, (&one, &[]), (&two, &in_database)).await;
    is_as_before(&second, &before).await;
    let third = moved(&mut second, (&two, &in_database), (&three, &[])).await;
    is_as_before(&third, &before).await;
    assert_eq!(names(&well_off.deliveries()), given, "who was not late got nothing more");
    assert!(held.deliveries().is_empty(), "nor did who is paused");

    let refused = in_trouble.deliveries().len();
    in_trouble.behave(|_| Reply::Agree);
    let retry = format!("/api/v1/deliveries/retry?subscription={troubled}");
    assert_eq!(third.admin_post(&retry, "").await.status, 200);
    assert_eq!(third.admin_post(&of_paused("resume"), "").await.status, 200);
    assert_eq!(third.publish(TOPIC, "four").await.unwrap().status, 202);
    third.until_done().await;
    let came = in_trouble.deliveries().split_off(refused);
    assert_eq!(bodies(&came), ["two", "three", "four"]);
    assert!(came.iter().all(|seen| seen.is_signed_with("s3cr3t")));
    assert_eq!(bodies(&well_off.deliveries()), ["one", "two", "three", "four"]);
    assert_eq!(bodies(&held.deliveries()), ["held"]);

    // The whole log is there, under the same names.
    let replay = format!("/api/v1/deliveries/replay?subscription={sound}&from=1");
    assert_eq!(third.admin_post(&replay, "").await.status, 200);
    let again = well_off.until_delivered(8).await;
    assert_eq!(names(&again)[4..7], given);
}
