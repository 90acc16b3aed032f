//! Two hubs over one database: what each does at the same time as the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::future::join_all;
use resync_core::datetime::DateTime;
use resync_core::websub::CallbackUrl;
use resync_harness::eventually;
use tokio::join;
use tokio::task::{spawn_blocking, yield_now};

use super::{
    DAY, PINGED_BY, Place, activate, append, ask_from, ask_to_subscribe, at, callback, gone, is_new, named,
    on_postgres, posted, read, subscribe, the, topic, waiting,
};
use crate::store::{
    Activation, Checkpoint, DenialScope, Epoch, Intent, Keyring, KnownDurability, NewDenial, NewRequest,
    Offset, Ping, Shard, Spread, Store, StoreError, Uptime, WaitingLimits,
};

on_postgres!(
    appends_of_both_are_dense_and_each_reads_what_the_other_wrote,
    a_post_that_is_repeated_at_the_other_is_recognised,
    what_was_asked_at_one_is_confirmed_at_the_other,
    what_waits_is_limited_for_both_together_and_what_replaces_another_is_not_more,
    of_many_requests_at_once_as_many_are_taken_as_may_wait,
    strangers_are_counted_apart_from_trusted_clients_and_some_places_are_kept_for_clients_with_few,
    identities_grow_in_the_order_in_which_they_were_acknowledged_whoever_gave_them,
    identities_are_given_under_the_lock_of_the_topic,
    no_place_is_seen_without_its_body_and_no_identity_after_a_greater_one,
    a_former_owner_is_refused_after_the_other_has_taken_its_shard,
    a_shard_of_a_hub_that_is_up_is_not_taken,
    how_the_shards_are_spread_over_the_hubs_is_known_to_each,
    the_shards_of_a_hub_that_is_drained_are_shared_by_the_others_if_there_are_any,
    whoever_subscribes_and_leaves_at_both_is_counted_once,
    what_both_put_in_force_at_once_is_counted_once_and_neither_keeps_the_other_waiting_for_good,
    the_uptime_that_both_write_is_that_of_one_of_them,
    whose_a_ping_is_the_other_hub_knows_and_a_stranger_takes_no_trust_from_it,
    when_another_hub_was_up_last_is_known_by_its_heartbeats,
    a_key_that_another_hub_lacks_is_not_written_with_and_one_that_it_writes_with_stays_needed,
    each_knows_which_hubs_are_up_and_who_owns_what,
);

/// Locks all topics until a statement of each of two hubs waits, for half a minute at most, and tells which identity was given last by then.
const HOLD_TOPICS: &str = "
BEGIN;
DO $$ BEGIN
    PERFORM FROM hub.topic FOR UPDATE;
    PERFORM pg_advisory_xact_lock(77, 7);
    FOR nth IN 1..3000 LOOP
        PERFORM pg_stat_clear_snapshot();
        EXIT WHEN (
            SELECT count(*) FROM pg_stat_activity a
            WHERE a.datname = current_database() AND a.wait_event_type = 'Lock' AND a.query LIKE '%hub.activate_%'
        ) = 2;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT last_value FROM hub.subscription_id;
COMMIT";
const ARE_HELD: &str = "
SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.classid = 77 AND l.objid = 7 AND l.granted";
/// Whether the only log is dense and whole, and the identities of all subscriptions; as of one moment.
const SEEN: &str = "
SELECT t.head = count(n.place) AND t.head = count(n.body) AND t.head = max(n.place),
    (SELECT coalesce(string_agg(s.id || ',', '' ORDER BY s.id), '') FROM hub.subscription s)
FROM hub.topic t LEFT JOIN hub.notification n ON n.topic = t.id GROUP BY t.id";

pub(super) async fn both(place: &Place) -> [Arc<dyn Store>; 2] {
    [place.open().await, place.second().await]
}

async fn appends_of_both_are_dense_and_each_reads_what_the_other_wrote(place: Place) {
    let stores = both(&place).await;
    let url = topic("t");
    let appends = (0..120).map(|number| append(&*stores[number % 2], posted(&url, format!("body {number}"))));
    let places = join_all(appends).await;
    let offsets: BTreeSet<_> = places.iter().map(|(_, offset)| offset.0).collect();
    assert_eq!(offsets, (1..=120).collect());
    for (number, (id, offset)) in places.into_iter().enumerate() {
        for store in &stores {
            let found = read(&**store, id, offset).await.unwrap();
            assert_eq!(found.body, format!("body {number}"));
        }
    }
    for store in &stores {
        assert_eq!(the(&**store, &url).await.head, Offset(120));
    }
    drop(stores);
    assert_eq!(place.faults(), [""; 0]);
}

async fn a_post_that_is_repeated_at_the_other_is_recognised(place: Place) {
    let stores = both(&place).await;
    let new = |key| named(posted(&topic("t"), "x"), key, DateTime::now());
    for key in ["a", "b", "c", "d"] {
        let appends = (0..16).map(|number| stores[number % 2].append(new(key), DAY));
        let outcomes: Vec<_> = join_all(appends).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(outcomes.iter().filter(|outcome| is_new(**outcome)).count(), 1, "{key}: {outcomes:?}");
        let ids: BTreeSet<_> = outcomes.iter().map(|outcome| outcome.id().offset).collect();
        assert_eq!(ids.len(), 1, "{key}: {outcomes:?}");
    }
    assert_eq!(the(&*stores[1], &topic("t")).await.head, Offset(4));
}

async fn what_was_asked_at_one_is_confirmed_at_the_other(place: Place) {
    let [one, other] = both(&place).await;
    let (url, callback) = (topic("t"), callback("d"));
    let older = ask_to_subscribe(&*one, &url, &callback, "older").await;
    let newer = ask_to_subscribe(&*other, &url, &callback, "newer").await;
    assert_eq!(waiting(&*one).await, std::slice::from_ref(&newer), "D-17");
    assert!(matches!(activate(&*other, &older, at(0)).await, Activation::Superseded));
    assert!(matches!(activate(&*one, &newer, DateTime::now()).await, Activation::Done));
    assert!(
        matches!(activate(&*other, &newer, at(0)).await, Activation::Superseded),
        "it was applied already"
    );
    let found = other.find_subscription(&url, &callback).await.unwrap().unwrap();
    assert_eq!(found.secret, Some(super::secret("newer")));
    let denial =
        NewDenial { topic: url.clone(), callback, reason: String::new(), scope: DenialScope::Everything };
    let denied = other.deny(denial).await.unwrap().unwrap();
    assert_eq!(denied.ended.map(|(_, topic, id)| (topic, id)), Some((found.topic, found.id)));
    assert!(newer.id.0 < denied.id.0, "requests and denials are counted together");
    assert_eq!(super::untold(&*one).await, [denied]);
}

async fn what_waits_is_limited_for_both_together_and_what_replaces_another_is_not_more(place: Place) {
    let stores = both(&place).await;
    let limits = WaitingLimits { total: 6, host: 4, client: Some(3), ..FOR_STRANGERS };
    let mut first = None;
    for (number, (client, to, is_taken)) in [
        (1, "http://a.example/1", true),
        (1, "http://a.example/2", true),
        (1, "http://a.example/3", true),
        (1, "http://b.example/4", false),
        (1, "http://a.example/1", true),
        (2, "http://a.example/1", true),
        (2, "http://A.example:81/6", false),
        (2, "http://b.example/7", true),
        (2, "http://b.example/8", true),
        (3, "http://c.example/9", false),
        (2, "http://b.example/8", true),
    ]
    .into_iter()
    .enumerate()
    {
        let put = stores[number % 2].put_request_within(of_client(client, to), limits).await.unwrap();
        assert_eq!(put.is_some(), is_taken, "{number}");
        first = first.or(put);
    }
    let left = waiting(&*stores[1]).await;
    assert_eq!(left.len(), 6);
    assert!(!left.contains(&first.unwrap()), "it was replaced");
    stores[0].remove_request(&left[0]).await.unwrap();
    let put = stores[1].put_request_within(of_client(3, "http://c.example/9"), limits).await.unwrap();
    assert!(put.is_some());
}

async fn of_many_requests_at_once_as_many_are_taken_as_may_wait(place: Place) {
    let store = place.open().await;
    let limits = WaitingLimits { client: Some(3), ..FOR_STRANGERS };
    let callbacks: Vec<_> = (0..20).map(|number| format!("http://d.example/{number}")).collect();
    let putting = callbacks.iter().map(|callback| store.put_request_within(of_client(1, callback), limits));
    let put: Vec<_> = join_all(putting).await.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!((put.len(), waiting(&*store).await.len()), (3, 3));
    let again = of_client(1, put[0].callback.as_str());
    // Fewer may wait by now than do.
    let fewer = WaitingLimits { client: Some(1), ..limits };
    assert!(store.put_request_within(again, fewer).await.unwrap().is_some());
    assert!(store.put_request_within(of_client(1, "http://d.example/more"), fewer).await.unwrap().is_none());
    assert_eq!(waiting(&*store).await.len(), 3, "who is refused loses nothing");
}

async fn strangers_are_counted_apart_from_trusted_clients_and_some_places_are_kept_for_clients_with_few(
    place: Place,
) {
    let store = place.open().await;
    let trusted = WaitingLimits { is_trusted: true, total: 9, ..FOR_STRANGERS };
    let strangers = WaitingLimits { total: 5, kept: 2, few: 2, ..FOR_STRANGERS };
    for (number, (client, limits, is_taken)) in [
        (1, trusted, true),
        (1, trusted, true),
        (1, trusted, true),
        (1, strangers, true),
        (1, strangers, true),
        (1, strangers, true),
        (1, strangers, false),
        (2, strangers, true),
        (2, strangers, true),
        (3, strangers, false),
        (3, trusted, true),
        (3, trusted, false),
    ]
    .into_iter()
    .enumerate()
    {
        let request = of_client(client, &format!("http://a.example/{number}"));
        let put = store.put_request_within(request, limits).await.unwrap();
        assert_eq!(put.is_some(), is_taken, "{number}");
    }
}

/// Wide limits.
const FOR_STRANGERS: WaitingLimits =
    WaitingLimits { is_trusted: false, total: 100, kept: 0, few: 20, host: 100, client: Some(100) };

/// A request of a client of this number.
fn of_client(last: u8, callback: &str) -> NewRequest {
    NewRequest {
        topic: topic("t"),
        callback: callback.parse().unwrap(),
        intent: Intent::Unsubscribe,
        verify_token: None,
        received_at: at(0),
        client: Some([192, 0, 2, last].into()),
    }
}

/// A sweep that has passed an identity never comes back to a smaller one.
async fn identities_grow_in_the_order_in_which_they_were_acknowledged_whoever_gave_them(place: Place) {
    let stores = both(&place).await;
    let moment = AtomicU64::new(0);
    let tick = || moment.fetch_add(1, Ordering::SeqCst);
    let url = topic("t");
    let subscribing = (0..6).map(|lane| {
        let (store, url, tick) = (&stores[lane % 2], &url, &tick);
        async move {
            let mut seen = Vec::new();
            for number in 0..12 {
                let callback: CallbackUrl = format!("http://d{lane}.example/{number}").parse().unwrap();
                let request = ask_to_subscribe(&**store, url, &callback, "s").await;
                let begun = tick();
                activate(&**store, &request, DateTime::now()).await;
                let ended = tick();
                let id = store.find_subscription(url, &callback).await.unwrap().unwrap().id;
                seen.push((begun, ended, id));
            }
            seen
        }
    });
    let seen: Vec<_> = join_all(subscribing).await.concat();
    for (_, ended, before) in &seen {
        for (_, _, after) in seen.iter().filter(|(begun, ..)| begun > ended) {
            assert!(before < after, "{before:?} was in force before {after:?} was asked for");
        }
    }
}

async fn identities_are_given_under_the_lock_of_the_topic(place: Place) {
    let place = Arc::new(place);
    let [one, other] = both(&place).await;
    let url = topic("t");
    for (store, name) in [(&one, "a"), (&other, "b")] {
        subscribe(&**store, &url, &callback(name)).await;
    }
    let before = place.sql("SELECT last_value FROM hub.subscription_id");
    let asked_at_one = ask_to_subscribe(&*one, &url, &callback("c"), "s").await;
    let asked_at_other = ask_to_subscribe(&*other, &url, &callback("d"), "s").await;
    let held = Arc::clone(&place);
    let holding = spawn_blocking(move || held.sql(HOLD_TOPICS));
    eventually("the topic is locked", async || !place.sql(ARE_HELD).is_empty()).await;
    let (first, second) = join!(
        activate(&*one, &asked_at_one, DateTime::now()),
        activate(&*other, &asked_at_other, DateTime::now())
    );
    assert!(matches!((first, second), (Activation::Done, Activation::Done)));
    assert_eq!(holding.await.unwrap(), before, "while both waited for the topic none had an identity");
}

async fn no_place_is_seen_without_its_body_and_no_identity_after_a_greater_one(place: Place) {
    let stores = both(&place).await;
    let url = topic("t");
    append(&*stores[0], posted(&url, "first")).await;
    let is_done = AtomicBool::new(false);
    let writing = async {
        let appends = (0..120).map(|number| append(&*stores[number % 2], posted(&url, "changed")));
        let subscribing = (0..24).map(|number| {
            let (store, url) = (&stores[number % 2], &url);
            async move {
                let callback: CallbackUrl = format!("http://d{number}.example/").parse().unwrap();
                subscribe(&**store, url, &callback).await
            }
        });
        join!(join_all(appends), join_all(subscribing));
        is_done.store(true, Ordering::SeqCst);
    };
    let reading = async {
        let mut known = String::new();
        loop {
            let is_last = is_done.load(Ordering::SeqCst);
            let seen = place.sql(SEEN).concat();
            assert_eq!(seen[0].as_deref(), Some("t"), "places are dense, and each has its body");
            let now = seen[1].clone().unwrap();
            assert!(now.starts_with(&known), "a smaller one came after a greater one: {known} {now}");
            known = now;
            if is_last {
                return known;
            }
            yield_now().await;
        }
    };
    let ((), known) = join!(writing, reading);
    assert_eq!(known.matches(',').count(), 24);
}

async fn a_former_owner_is_refused_after_the_other_has_taken_its_shard(place: Place) {
    let [former, owner] = both(&place).await;
    let (shard, subscription) = subscribe(&*former, &topic("t"), &callback("d")).await;
    let old = former.claim(shard).await.unwrap();
    former.checkpoint(shard, old, Checkpoint::default()).await.unwrap();
    former.release(shard, old).await.unwrap();
    let new = owner.claim(shard).await.unwrap();
    assert!(old < new);
    let is_fenced = |outcome: crate::store::Result<()>| matches!(outcome, Err(StoreError::Fenced));
    for store in [&former, &owner] {
        assert!(is_fenced(store.checkpoint(shard, old, Checkpoint::default()).await));
        let end = store.end(shard, old, subscription.topic, subscription.id, gone(&subscription)).await;
        assert!(is_fenced(end));
        assert!(is_fenced(store.release(shard, old).await));
    }
    assert!(former.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_some());
    owner.checkpoint(shard, new, Checkpoint::default()).await.unwrap();
    owner.end(shard, new, subscription.topic, subscription.id, gone(&subscription)).await.unwrap();
    assert!(former.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_none());
}

async fn a_shard_of_a_hub_that_is_up_is_not_taken(place: Place) {
    let [owner, other] = both(&place).await;
    let epoch = owner.claim(Shard(3)).await.unwrap();
    let refused = other.claim(Shard(3)).await;
    assert!(matches!(refused, Err(StoreError::Owned)), "{refused:?}");
    owner.checkpoint(Shard(3), epoch, Checkpoint::default()).await.unwrap();
    drop(owner);
    let taken: Epoch = other.claim(Shard(3)).await.unwrap();
    assert!(epoch < taken, "who has closed its store is up no longer");
}

async fn how_the_shards_are_spread_over_the_hubs_is_known_to_each(place: Place) {
    let [owner, other] = both(&place).await;
    let epoch = owner.claim(Shard(3)).await.unwrap();
    let again = owner.claim(Shard(3)).await.unwrap();
    assert!(again > epoch, "its own it claims again");
    let all = owner.all_shards();
    let mut others = all.clone();
    others.retain(|shard| *shard != Shard(3));
    let spread = |hubs, free: &[Shard], own: &[(Shard, Epoch)]| {
        Some(Spread { hubs, sharing: hubs, shares: true, free: free.to_vec(), own: own.to_vec() })
    };
    assert_eq!(owner.spread().await.unwrap(), spread(2, &all, &[(Shard(3), again)]));
    assert_eq!(other.spread().await.unwrap(), spread(2, &others, &[]));
    assert!(owner.may_begin() && other.may_begin());
    drop(owner);
    assert_eq!(other.spread().await.unwrap(), spread(1, &all, &[]), "it has left");
}

async fn the_shards_of_a_hub_that_is_drained_are_shared_by_the_others_if_there_are_any(place: Place) {
    let stores = both(&place).await;
    let sharing = async |number: usize| {
        let Spread { sharing, shares, .. } = stores[number].spread().await.unwrap().unwrap();
        (sharing, shares)
    };
    stores[0].set_drained(true);
    eventually("the other hears of it", async || sharing(1).await == (1, true)).await;
    assert_eq!(sharing(0).await, (1, false));
    stores[1].set_drained(true);
    eventually("both are drained", async || sharing(0).await == (2, true)).await;
    assert_eq!(sharing(1).await, (2, true), "somebody has to own them");
    stores[0].set_drained(false);
    eventually("the other hears of it, too", async || sharing(1).await == (1, false)).await;
    assert_eq!(sharing(0).await, (1, true));
}

/// Topics, hosts and clients are shared by many, and locked by each in the same order.
async fn whoever_subscribes_and_leaves_at_both_is_counted_once(place: Place) {
    let stores = both(&place).await;
    let lanes = (0..8_u8).map(|lane| {
        let store = &stores[usize::from(lane % 2)];
        async move {
            for number in 0..10_u8 {
                let url = topic(&format!("t{}", (lane + number) % 5));
                let callback: CallbackUrl =
                    format!("http://d{}.example/{lane}", (lane * 3 + number) % 4).parse().unwrap();
                let client = Some([192, 0, 2, (lane + 2 * number) % 3].into());
                let intent = Intent::Subscribe { lease: None, secret: None };
                let request = ask_from(&**store, client, &url, &callback, intent).await;
                activate(&**store, &request, DateTime::now()).await;
                append(&**store, posted(&url, "x")).await;
                if number % 3 == 0 {
                    let scope = DenialScope::Everything;
                    let denial = NewDenial { topic: url, callback, reason: String::new(), scope };
                    assert!(store.deny(denial).await.unwrap().is_some());
                }
            }
        }
    });
    join_all(lanes).await;
    drop(stores);
    assert_eq!(place.faults(), [""; 0]);
}

/// Each puts many in force by one statement, which needs the same pairs, topics, hosts and clients as those of the other.
async fn what_both_put_in_force_at_once_is_counted_once_and_neither_keeps_the_other_waiting_for_good(
    place: Place,
) {
    let stores = both(&place).await;
    // Who makes topics at the same time as another hub may be refused and try again.
    for number in 0..5 {
        append(&*stores[0], posted(&topic(&format!("t{number}")), "x")).await;
    }
    for round in 0..2 {
        let lanes = (0..240).map(|lane: u8| {
            let store = &stores[usize::from(lane % 2)];
            async move {
                // Each comes to them in the order opposite to that of the other.
                let nth = if lane.is_multiple_of(2) { lane / 2 } else { 119 - lane / 2 };
                let url = topic(&format!("t{}", nth % 5));
                let callback: CallbackUrl = format!("http://d{}.example/{nth}", nth % 7).parse().unwrap();
                let client = Some([192, 0, 2, (nth + round) % 3].into());
                let intent = Intent::Subscribe { lease: None, secret: None };
                let request = ask_from(&**store, client, &url, &callback, intent).await;
                activate(&**store, &request, DateTime::now()).await;
            }
        });
        join_all(lanes).await;
    }
    let in_force = place.sql("SELECT count(*) FROM hub.subscription").concat();
    assert_eq!(in_force, [Some("120".to_owned())]);
    drop(stores);
    assert_eq!(place.faults(), [""; 0]);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(place.sql(deadlocks).concat(), [Some("0".to_owned())]);
}

async fn the_uptime_that_both_write_is_that_of_one_of_them(place: Place) {
    let stores = both(&place).await;
    let moments: Vec<_> = (1..=40).map(at).collect();
    let uptimes = moments.iter().map(|seen| Uptime { seen: *seen, clock_jumps: Vec::new() });
    let puts = uptimes.enumerate().map(|(number, uptime)| stores[number % 2].put_uptime(uptime));
    for put in join_all(puts).await {
        put.unwrap();
    }
    let kept = stores[0].uptime().await.unwrap().unwrap();
    assert_eq!(stores[1].uptime().await.unwrap().as_ref(), Some(&kept));
    assert!(moments.contains(&kept.seen));
}

async fn whose_a_ping_is_the_other_hub_knows_and_a_stranger_takes_no_trust_from_it(place: Place) {
    let [one, other] = both(&place).await;
    for (by, kept) in PINGED_BY {
        let ping = one.put_ping(topic("t"), None, by).await.unwrap();
        assert_eq!(super::pinged(&*other).await, [Ping { client: kept, ..ping }]);
    }
}

async fn when_another_hub_was_up_last_is_known_by_its_heartbeats(place: Place) {
    let store = place.open().await;
    assert_eq!(store.others_seen().await.unwrap(), None);
    place.sql("INSERT INTO hub.node (id, name, version, alive_until) VALUES (9, 'dead', '', to_timestamp(1000000005))");
    assert_eq!(store.others_seen().await.unwrap(), Some(at(1_000_000_000)));
    let other = place.second().await;
    assert!(store.others_seen().await.unwrap().unwrap() > at(1_000_000_000), "the last of them counts");
    drop(other);
    assert_eq!(store.others_seen().await.unwrap(), Some(at(1_000_000_000)), "it has stopped");
}

async fn a_key_that_another_hub_lacks_is_not_written_with_and_one_that_it_writes_with_stays_needed(
    place: Place,
) {
    let (old, new) = (Keyring::generate(), Keyring::generate());
    let keys = |text: &str| Keyring::parse(text).unwrap();
    let (old_first, new_first) = (keys(&format!("{old} {new}")), keys(&format!("{new} {old}")));
    let one = place.open_with(keys(&old)).await.unwrap();
    let refused = place.second_with(new_first.clone()).await.unwrap_err();
    let is_named =
        matches!(refused, StoreError::KeyElsewhere { key, .. } if Some(key) == new_first.writes_with());
    assert!(is_named, "{refused}");

    assert_eq!(one.rotate_secrets(old_first).await.unwrap(), 0, "it reads with the new one from now on");
    let reads_both = "SELECT 1 FROM hub.node HAVING bool_and(cardinality(reads) = 2)";
    eventually("a heartbeat says so", async || !place.sql(reads_both).is_empty()).await;
    let other = place.second_with(new_first.clone()).await.unwrap();
    other.rotate_secrets(new_first.clone()).await.unwrap();
    // Also if the first had been taken for dead meanwhile.
    place.sql("UPDATE hub.store SET secret_keys = secret_keys[1:0]");
    let needs_both = "SELECT 1 FROM hub.store WHERE cardinality(secret_keys) = 2";
    eventually("each says with which key it writes", async || !place.sql(needs_both).is_empty()).await;
    ask_to_subscribe(&*one, &topic("t"), &callback("d"), "under the old key").await;
    drop((one, other));
    let missing = place.open_with(keys(&new)).await.unwrap_err();
    assert!(matches!(missing, StoreError::SecretsKey { .. }), "{missing}");
    let store = place.open_with(new_first.clone()).await.unwrap();
    assert_eq!(store.rotate_secrets(new_first).await.unwrap(), 1);
    drop(store);
    place.open_with(keys(&new)).await.unwrap();
}

async fn each_knows_which_hubs_are_up_and_who_owns_what(place: Place) {
    let [one, other] = both(&place).await;
    one.claim(Shard(3)).await.unwrap();
    other.claim(Shard(5)).await.unwrap();
    for shard in [3, 7] {
        place.sql(&format!("INSERT INTO hub.laggard VALUES ({shard}, 1, 1, 0, 0, now(), 0, NULL, NULL, 0)"));
    }
    for (store, own, late) in [(&one, Shard(3), 1), (&other, Shard(5), 0)] {
        let found = store.hubs().await.unwrap();
        let shards: BTreeSet<_> = found.hubs.iter().map(|hub| hub.shards.clone()).collect();
        assert_eq!(shards, BTreeSet::from([vec![Shard(3)], vec![Shard(5)]]));
        let this: Vec<_> = found.hubs.iter().filter(|hub| hub.is_this).collect();
        assert!(this.len() == 1 && this[0].is_up && this[0].shards == [own], "{found:?}");
        assert_eq!((this[0].laggards, found.unowned_laggards), (late, 1));
        assert_eq!(found.unowned.len(), usize::from(store.shards()) - 2);
        let database = store.database().unwrap();
        assert_eq!((database.away_for, database.durability), (None, KnownDurability::Declared));
        assert!(database.host.is_some() && database.timeline > 0, "{database:?}");
    }
    drop(other);
    let found = one.hubs().await.unwrap();
    assert!(found.hubs.len() == 1 && found.unowned.contains(&Shard(5)), "{found:?}");
}
