//! Two hubs over one database: what each does at the same time as the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use resync_core::datetime::DateTime;
use resync_core::websub::CallbackUrl;

use super::{
    DAY, Place, activate, append, ask_from, ask_to_subscribe, at, callback, gone, is_new, named, on_postgres,
    posted, read, subscribe, the, topic, waiting,
};
use crate::store::{
    Activation, Checkpoint, DenialScope, Epoch, Intent, KnownDurability, NewDenial, Offset, Shard, Spread,
    Store, StoreError, Uptime,
};

on_postgres!(
    appends_of_both_are_dense_and_each_reads_what_the_other_wrote,
    a_post_that_is_repeated_at_the_other_is_recognised,
    what_was_asked_at_one_is_confirmed_at_the_other,
    identities_grow_in_the_order_in_which_they_were_acknowledged_whoever_gave_them,
    a_former_owner_is_refused_after_the_other_has_taken_its_shard,
    a_shard_of_a_hub_that_is_up_is_not_taken,
    how_the_shards_are_spread_over_the_hubs_is_known_to_each,
    whoever_subscribes_and_leaves_at_both_is_counted_once,
    the_uptime_that_both_write_is_that_of_one_of_them,
    each_knows_which_hubs_are_up_and_who_owns_what,
);

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
    assert!(owner.claim(Shard(3)).await.unwrap() > epoch, "its own it claims again");
    let all = owner.all_shards();
    let mut others = all.clone();
    others.retain(|shard| *shard != Shard(3));
    assert_eq!(owner.spread().await.unwrap(), Some(Spread { hubs: 2, free: all.clone() }));
    assert_eq!(other.spread().await.unwrap(), Some(Spread { hubs: 2, free: others }));
    assert!(owner.may_begin() && other.may_begin());
    drop(owner);
    assert_eq!(other.spread().await.unwrap(), Some(Spread { hubs: 1, free: all }), "it has left");
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
