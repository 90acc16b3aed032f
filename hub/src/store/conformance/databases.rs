//! What is so of a store in a database only.

use std::fs::{self, File};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;
use resync_harness::{Rows, eventually};
use tokio::task::{JoinHandle, spawn_blocking};

use super::backups::Elsewhere;
use super::{
    LEASE, Place, activate, append, ask_from, ask_to_subscribe, at, callback, on_postgres, pinged, posted,
    read, secret, subscribe, topic, waiting, within,
};
use crate::store::{
    Activation, BackupError, Credentials, Intent, Keyring, NewNotification, NewRequest, Offset, Order,
    OrderId, Ping, PingClient, Shard, Store, StoreError, SubscriptionId, Uptime, VerifiedSubscription,
};

on_postgres!(
    a_check_names_what_foreign_keys_would_have_held,
    a_backup_is_taken_beside_a_hub_that_runs_and_needs_the_keys_of_the_secrets,
    what_a_restore_has_left_in_the_folder_is_not_opened,
    a_database_without_a_store_is_neither_checked_nor_backed_up,
    hubs_that_start_together_do_not_show_each_other_that_any_was_up_before,
    what_stays_of_an_old_day_is_set_aside_and_the_table_of_that_day_is_dropped,
    tables_that_are_over_are_dropped_and_nobody_is_kept_from_the_feed_while_it_is_looked_which_are_empty,
    many_who_subscribe_at_once_share_commits,
    many_pings_at_once_share_commits,
    it_answers_while_commands_wait,
    orders_that_were_taken_and_not_heard_of_are_taken_once_more_by_the_same_call_and_by_no_other,
    the_time_of_an_order_begins_when_it_is_given_however_long_it_had_to_wait_for_that,
    what_shares_a_commit_comes_out_as_if_each_came_alone,
    a_pair_that_leads_nowhere_leads_to_the_subscription_that_begins,
    what_the_database_refuses_fails_alone,
);

async fn a_check_names_what_foreign_keys_would_have_held(place: Place) {
    let store = place.open().await;
    subscribe(&*store, &topic("kept"), &callback("d")).await;
    subscribe(&*store, &topic("t"), &callback("d")).await;
    for _ in 0..3 {
        append(&*store, posted(&topic("t"), "x")).await;
    }
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
    for (broken, told) in [
        ("UPDATE hub.topic SET bytes = bytes + 1 WHERE head = 3", "source.example/t does not match its log"),
        (
            "DELETE FROM hub.notification WHERE place = 2",
            "notification 2 of topic https://source.example/t: missing",
        ),
        (
            "INSERT INTO hub.laggard VALUES (1, 2, 3, 0, 0, now(), 0, NULL, NULL, 0)",
            "laggards belongs to nothing",
        ),
        ("INSERT INTO hub.watermark VALUES (1, 2, 3)", "watermarks belongs to nothing"),
        (
            "INSERT INTO hub.watermark SELECT 1, id, 9 FROM hub.topic WHERE head = 3",
            "noted to be further than its log",
        ),
        ("INSERT INTO hub.pair VALUES ('x', 1, 2, 3)", "subscription_index belongs to nothing"),
        ("DELETE FROM hub.pair WHERE id = 1", "subscription 1 cannot be found by its topic and callback"),
        ("SELECT setval('hub.subscription_id', 1)", "would get numbers that are in use"),
        (
            "UPDATE hub.subscription SET callback = 'none' WHERE id = 2",
            "a record of subscriptions cannot be read",
        ),
        (
            "UPDATE hub.host SET subscriptions = 9",
            "subscriptions of callback origins: the counts do not match",
        ),
        ("DELETE FROM hub.topic WHERE head = 0", "source.example/kept is missing, which has subscriptions"),
    ] {
        place.sql(broken);
        let faults = place.faults();
        assert!(faults.iter().any(|fault| fault.contains(told)), "{broken}: {faults:?}");
    }
}

async fn a_backup_is_taken_beside_a_hub_that_runs_and_needs_the_keys_of_the_secrets(place: Place) {
    let keys = Keyring::parse(&Keyring::generate()).unwrap();
    let store = place.open_with(keys.clone()).await.unwrap();
    subscribe(&*store, &topic("t"), &callback("d")).await;
    let elsewhere = Elsewhere::than(&place);
    let file = || File::create(elsewhere.backup()).unwrap();
    let error = place.store.back_up(&Keyring::none(), &[], &mut file()).unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::SecretsKey { .. })), "{error}");
    place.store.back_up(&keys, &[], &mut file()).unwrap();
    let into = &elsewhere.into;
    into.store.restore(&keys, Credentials::Restored, &elsewhere.backup()).unwrap();
    let restored = into.open_with(keys).await.unwrap();
    let kept = restored.find_subscription(&topic("t"), &callback("d")).await.unwrap().unwrap();
    assert_eq!(kept.secret, Some(secret("first secret")));
    drop(store);
}

async fn what_a_restore_has_left_in_the_folder_is_not_opened(place: Place) {
    drop(place.open().await);
    assert_eq!(fs::read_to_string(place.data().join("engine")).unwrap(), "postgres 1\n");
    fs::write(place.data().join("engine"), "restoring 1\n").unwrap();
    let error = place.open_with(Keyring::none()).await.unwrap_err();
    assert!(matches!(error, StoreError::Unfinished { .. }), "{error}");
}

async fn a_database_without_a_store_is_neither_checked_nor_backed_up(place: Place) {
    let none = Keyring::none();
    let unchecked = place.store.check(&none).unwrap_err().to_string();
    assert!(unchecked.contains("there is no store in the database"), "{unchecked}");
    let not_backed_up = place.store.back_up(&none, &[], &mut Vec::new()).unwrap_err().to_string();
    assert!(not_backed_up.contains("there is no store in the database"), "{not_backed_up}");
    assert!(place.is_empty());
}

async fn hubs_that_start_together_do_not_show_each_other_that_any_was_up_before(place: Place) {
    let store = place.open().await;
    let was_up = async |seconds| {
        let seen = store.clock().system_time() - Duration::from_secs(seconds);
        let seen = DateTime::from_system_time(seen);
        store.put_uptime(Uptime { seen, clock_jumps: Vec::new() }).await.unwrap();
    };
    was_up(86_400).await;
    let other = place.second().await;
    assert_eq!(store.others_seen().await.unwrap(), None, "all were down for a day");
    was_up(60).await;
    assert!(store.others_seen().await.unwrap().is_some(), "it was there when somebody was up");
    drop(other);
}

async fn what_stays_of_an_old_day_is_set_aside_and_the_table_of_that_day_is_dropped(place: Place) {
    let store = place.open().await;
    let urls = ["a", "b", "c", "d"].map(topic);
    for url in &urls {
        subscribe(&*store, url, &callback("e")).await;
        for second in [1, 2] {
            append(&*store, NewNotification { received_at: at(second), ..posted(url, "old") }).await;
        }
    }
    place.sql(
        "SELECT hub.make_part_1('hub.notification', 'notification_20250107', '2025-01-07', '2025-01-08'); \
        UPDATE hub.notification SET day = '2025-01-07'",
    );
    let drop_day = "SELECT hub.drop_part_1('hub.notification_20250107', true); \
        SELECT to_regclass('hub.notification_20250107')::text";
    let is_there = || place.sql(drop_day).last().is_some_and(|row| row[0].is_some());
    store.trim(at(0), within(u64::MAX)).await.unwrap();
    assert!(is_there(), "nothing of it is old enough");
    let trimmed = store.trim(DateTime::now(), within(u64::MAX)).await.unwrap();
    assert_eq!(trimmed.notifications, 4);
    assert!(!is_there());
    assert_eq!(place.faults(), [""; 0], "what was set aside belongs to its logs");
    for url in &urls {
        let (id, next) = append(&*store, posted(url, "new")).await;
        assert_eq!(next, Offset(3));
        assert_eq!(read(&*store, id, Offset(2)).await.unwrap().body, "old");
    }
    assert_eq!(store.trim(at(3), within(u64::MAX)).await.unwrap().notifications, 4);
    assert_eq!(place.sql("SELECT 1 FROM hub.notification_aside").len(), 0);
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}

async fn tables_that_are_over_are_dropped_and_nobody_is_kept_from_the_feed_while_it_is_looked_which_are_empty(
    place: Place,
) {
    const OVER: [&str; 2] = ["hub.feed_20250107_00", "hub.notification_20250107"];
    let _store = place.open().await;
    place.sql(
        "SELECT hub.make_part_1('hub.feed', 'feed_20250107_00', '2025-01-07 00:00+00', '2025-01-07 01:00+00'); \
        SELECT hub.make_part_1('hub.notification', 'notification_20250107', '2025-01-07', '2025-01-08')",
    );
    let line = "(SELECT l.id, l.generation FROM hub.line l LIMIT 1) l";
    let found = place.sql(&format!(
        "BEGIN; SELECT h.part FROM {line}, hub.housekeep_2(l.id, l.generation) h; \
        SELECT count(*) FROM pg_locks k WHERE k.pid = pg_backend_pid() AND k.relation = 'hub.feed'::regclass \
        AND k.mode = 'AccessExclusiveLock'; COMMIT"
    ));
    assert_eq!(found.concat(), [OVER[0], OVER[1], "0"].map(|told| Some(told.to_owned())));
    for (part, only_empty) in OVER.into_iter().zip([false, true]) {
        let drop_it = format!(
            "SELECT hub.drop_over_1(l.id, l.generation, '{part}', {only_empty}) FROM {line}; \
            SELECT to_regclass('{part}')::text"
        );
        // Where somebody reads the whole for long it is left for the next time.
        eventually("it is dropped", async || place.sql(&drop_it).last().is_some_and(|row| row[0].is_none()))
            .await;
    }
}

async fn many_who_subscribe_at_once_share_commits(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let callbacks: Vec<_> = (0..200).map(|number| callback(&number.to_string())).collect();
    let asking = callbacks.iter().map(|callback| ask_to_subscribe(&*store, &url, callback, "s"));
    let asked = join_all(asking).await;
    assert!(commits(&place, "request") < asked.len());
    join_all(asked.iter().map(|request| activate(&*store, request, DateTime::now()))).await;
    assert!(commits(&place, "pair") < asked.len());
}

/// By how many the rows of this table were written.
fn commits(place: &Place, table: &str) -> usize {
    let commits = place.sql(&format!("SELECT count(DISTINCT xmin::text) FROM hub.{table}")).concat();
    commits[0].as_ref().unwrap().parse().unwrap()
}

async fn many_pings_at_once_share_commits(place: Place) {
    let store = place.open().await;
    let topics: Vec<_> = (0..200).map(|number| topic(&number.to_string())).collect();
    let older = put_pings(&*store, &topics).await;
    assert!(commits(&place, "ping") < older.len());
    let mut newer = put_pings(&*store, &topics).await;
    remove_pings(&*store, &older).await;
    for (ping, topic) in newer.iter().zip(&topics) {
        assert_eq!(&ping.topic, topic);
    }
    newer.sort_by_key(|ping| ping.id);
    assert_eq!(pinged(&*store).await, newer, "each has its own number, and the older ones are replaced");
    remove_pings(&*store, &newer).await;
    assert_eq!(pinged(&*store).await, []);
}

async fn put_pings(store: &dyn Store, topics: &[TopicUrl]) -> Vec<Ping> {
    let putting = topics.iter().map(|topic| store.put_ping(topic.clone(), None, PingClient::default()));
    join_all(putting).await.into_iter().map(Result::unwrap).collect()
}

async fn remove_pings(store: &dyn Store, pings: &[Ping]) {
    for removed in join_all(pings.iter().map(|ping| store.remove_ping(ping))).await {
        removed.unwrap();
    }
}

/// What watches over the process takes a store that does not answer for stuck.
async fn it_answers_while_commands_wait(place: Place) {
    let place = Arc::new(place);
    let store = place.open().await;
    let holding = hold(&place, "hub.ping", "SELECT FROM hub.paused").await;
    let asked = Arc::clone(&store);
    let pinging = tokio::spawn(async move { asked.put_ping(topic("t"), None, PingClient::default()).await });
    let waits = waits_for_lock("put_pings");
    eventually("a ping waits", async || !place.sql(&waits).is_empty()).await;
    store.answers().await.unwrap();
    assert!(!pinging.is_finished());
    place.sql("INSERT INTO hub.paused VALUES (1)");
    holding.await.unwrap();
    pinging.await.unwrap().unwrap();
}

async fn orders_that_were_taken_and_not_heard_of_are_taken_once_more_by_the_same_call_and_by_no_other(
    place: Place,
) {
    let store = place.open().await;
    let epoch = store.claim(Shard(1)).await.unwrap();
    let until = DateTime::from_system_time(store.now().to_system_time() + LEASE);
    let mut given = Vec::new();
    for id in [7, 8] {
        given.push(store.order(&[Shard(1)], Order::Halt(SubscriptionId(id)), until).await.unwrap());
    }
    let taken_by = |taker| {
        let taken = place.sql(&format!(
            "SELECT t.id FROM (SELECT l.id, l.generation FROM hub.line l LIMIT 1) l, \
            hub.take_orders_2(l.id, l.generation, 1::smallint, {}, {taker}) t",
            epoch.0
        ));
        taken.concat().into_iter().flatten().map(|id| OrderId(id.parse().unwrap())).collect::<Vec<_>>()
    };
    assert_eq!([taken_by(5), taken_by(5), taken_by(6)], [given.clone(), given, Vec::new()]);
    assert_eq!(store.take_orders(Shard(1), epoch).await.unwrap(), []);
    let later = store.order(&[Shard(1)], Order::Halt(SubscriptionId(9)), until).await.unwrap();
    assert_eq!(taken_by(7), [later]);
}

/// Denials of hundreds give hundreds of orders at once, one after the other.
async fn the_time_of_an_order_begins_when_it_is_given_however_long_it_had_to_wait_for_that(place: Place) {
    let place = Arc::new(place);
    let store = place.open().await;
    let holding = hold(&place, "hub.act", &waits_for_lock("order")).await;
    let until = DateTime::from_system_time(store.now().to_system_time() + LEASE);
    store.order(&[Shard(1)], Order::Halt(SubscriptionId(7)), until).await.unwrap();
    holding.await.unwrap();
    let later =
        format!("SELECT 1 FROM hub.act a WHERE a.until > to_timestamp({} / 1000.0)", until.unix_millis());
    assert_eq!(place.sql(&later).len(), 1);
}

/// Locks a table until this query finds something and for a moment longer, but for half a minute or so at most.
async fn hold(place: &Arc<Place>, table: &str, until: &str) -> JoinHandle<Rows> {
    let hold = format!(
        "BEGIN; LOCK TABLE {table}; DO $$ BEGIN \
        FOR nth IN 1..3000 LOOP \
            PERFORM pg_stat_clear_snapshot(); \
            EXIT WHEN EXISTS ({until}); \
            PERFORM pg_sleep(0.01); \
        END LOOP; \
        PERFORM pg_sleep(0.1); \
        END $$; COMMIT"
    );
    let held = Arc::clone(place);
    let holding = spawn_blocking(move || held.sql(&hold));
    let is_held = format!(
        "SELECT 1 FROM pg_locks l WHERE l.relation = '{table}'::regclass \
        AND l.mode = 'AccessExclusiveLock' AND l.granted"
    );
    eventually("the table is locked", async || !place.sql(&is_held).is_empty()).await;
    holding
}

/// Finds a statement that waits for a lock in a function of this name.
fn waits_for_lock(function: &str) -> String {
    format!(
        "SELECT 1 FROM pg_stat_activity a WHERE a.datname = current_database() \
        AND a.wait_event_type = 'Lock' AND a.query LIKE '%hub.{function}_%'"
    )
}

/// What comes while another is under way goes together, in one round or another.
async fn what_shares_a_commit_comes_out_as_if_each_came_alone(place: Place) {
    let store = place.open().await;
    let mut has_shared = false;
    for round in 0..50 {
        confirm_of_every_kind(&*store, &place, round).await;
        let most = "SELECT max(count) FROM (SELECT count(*) FROM hub.pair GROUP BY xmin::text) n";
        has_shared |= place.sql(most).concat() == [Some("3".to_owned())];
        if has_shared {
            break;
        }
    }
    assert!(has_shared, "all three that began, beside the renewed and the superseded one");
    drop(store);
    assert_eq!(place.faults(), [""; 0], "everything is counted once, for whom it counts");
}

/// At once: three new ones, one that is renewed and one that is superseded, behind another that keeps them waiting.
async fn confirm_of_every_kind(store: &dyn Store, place: &Place, round: u8) {
    let [alice, bob] = [1, 2].map(|host| IpAddr::from([192, 0, 2, host]));
    let named = |name: &str| callback(&format!("{name}{round}"));
    let at_new = |path: u8| format!("http://new{round}.example/{path}").parse().unwrap();
    let new = format!("new{round}");
    let (_, before) = subscribe(store, &topic("t"), &named("renewed")).await;
    let mut requests = Vec::new();
    for (client, url, to, key) in [
        (Some(alice), "t", named("first"), None),
        (Some(bob), &new, at_new(1), Some("a")),
        (Some(alice), &new, at_new(2), None),
        (None, "t", named("renewed"), Some("b")),
        (Some(alice), "t", named("superseded"), Some("c")),
        (None, "t", named("nobody's"), None),
    ] {
        let intent = Intent::Subscribe { lease: None, secret: key.map(secret) };
        requests.push(ask_from(store, client, &topic(url), &to, intent).await);
    }
    store.remove_request(&requests[4]).await.unwrap();
    let outcomes = join_all(requests.iter().map(|request| activate(store, request, at(2_000_000_000)))).await;
    for (index, outcome) in outcomes.into_iter().enumerate() {
        let expected = if index == 4 { Activation::Superseded } else { Activation::Done };
        assert_eq!(outcome, expected, "{index}");
    }

    let mut found = Vec::new();
    for request in &requests {
        found.push(store.find_subscription(&request.topic, &request.callback).await.unwrap());
    }
    let renewed = found[3].clone().unwrap();
    assert_eq!((renewed.id, renewed.start, renewed.created_at), (before.id, before.start, before.created_at));
    assert_eq!((renewed.secret, renewed.lease_end), (Some(secret("b")), at(2_000_003_600)));
    assert_eq!(found[4], None);
    for (index, key) in [(1, Some("a")), (2, None), (5, None)] {
        let begun = found[index].clone().unwrap();
        assert_eq!((begun.secret, begun.client), (key.map(secret), requests[index].client), "{index}");
        assert_eq!(begun.callback, requests[index].callback);
    }
    // Whoever came to the queue first.
    let founder = |of: &str| place.sql(&format!("SELECT host(founder) FROM hub.{of}")).concat();
    let of_topic = founder(&format!("topic WHERE url LIKE '%/{new}'"));
    assert!([alice, bob].map(|client| vec![Some(client.to_string())]).contains(&of_topic), "{of_topic:?}");
    assert_eq!(founder(&format!("host WHERE origin LIKE '%{new}.example%'")), of_topic);
}

async fn a_pair_that_leads_nowhere_leads_to_the_subscription_that_begins(place: Place) {
    let store = place.open().await;
    let (_, lost) = subscribe(&*store, &topic("t"), &callback("d")).await;
    place.sql("DELETE FROM hub.subscription");
    let (_, begun) = subscribe(&*store, &topic("t"), &callback("d")).await;
    assert!(begun.id > lost.id);
}

async fn what_the_database_refuses_fails_alone(place: Place) {
    let store = place.open().await;
    place.sql("ALTER TABLE hub.request ADD CHECK (callback NOT LIKE '%/7')");
    place.sql("ALTER TABLE hub.subscription ADD CHECK (callback NOT LIKE '%/8')");
    let asking = (0..20).map(|number: u8| {
        store.put_request(NewRequest {
            topic: topic("t"),
            callback: callback(&number.to_string()),
            intent: Intent::Subscribe { lease: None, secret: None },
            verify_token: None,
            received_at: DateTime::now(),
            client: None,
        })
    });
    let mut asked = Vec::new();
    for (number, outcome) in join_all(asking).await.into_iter().enumerate() {
        match outcome {
            Ok(request) => asked.push(request),
            Err(StoreError::Write(_)) if number == 7 => {}
            Err(error) => panic!("{number}: {error}"),
        }
    }
    assert_eq!(asked.len(), 19);
    let verified = |request| VerifiedSubscription::assumed(request, LEASE, DateTime::now());
    let confirming = asked.iter().cloned().map(|request| store.activate(verified(request)));
    for (request, outcome) in asked.iter().zip(join_all(confirming).await) {
        let is_refused = request.callback == callback("8");
        assert_eq!(matches!(outcome, Err(StoreError::Write(_))), is_refused, "{request:?}: {outcome:?}");
    }
    assert_eq!(waiting(&*store).await.len(), 1, "what was refused waits");
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}
