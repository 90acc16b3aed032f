//! What a store is like after it was closed and opened again.

use futures_util::FutureExt as _;
use resync_core::datetime::DateTime;

use super::{
    DAY, Place, UNCLAIMED, activate, append, ask_to_subscribe, callback, gone, on_every_engine, posted,
    subscribe, the, topic,
};
use crate::store::{Activation, Offset};

on_every_engine!(
    what_a_shard_is_loaded_with_is_as_new_as_the_last_change_however_long_ago_the_store_was_opened,
    what_waits_when_the_store_is_dropped_is_still_done,
    the_number_of_shards_is_fixed,
);

/// What the opening read of subscriptions may be old by the time that somebody delivers to them.
async fn what_a_shard_is_loaded_with_is_as_new_as_the_last_change_however_long_ago_the_store_was_opened(
    place: Place,
) {
    let store = place.open().await;
    let (shard, kept) = subscribe(&*store, &topic("t"), &callback("kept")).await;
    let store = place.reopen(store).await;
    let request = ask_to_subscribe(&*store, &topic("t"), &callback("kept"), "another secret").await;
    let later = DateTime::from_system_time(kept.verified_at.to_system_time() + DAY);
    assert!(matches!(activate(&*store, &request, later).await, Activation::Done));
    for time in ["after a renewal", "once more"] {
        let slots = store.load_shard(shard).await.unwrap().slots;
        assert_eq!(slots.len(), 1, "{time}");
        assert!(slots[0].lease_end > kept.lease_end, "{time}");
    }
    let store = place.reopen(store).await;
    assert_eq!(
        store.load_shard(shard).await.unwrap().slots.len(),
        1,
        "as it was read when the store was opened"
    );
    let store = place.reopen(store).await;
    let renewed = store.find_subscription(&topic("t"), &callback("kept")).await.unwrap().unwrap();
    store.end(shard, UNCLAIMED, renewed.topic, renewed.id, gone(&renewed)).await.unwrap();
    assert_eq!(store.load_shard(shard).await.unwrap().slots, [], "after its end");
}

async fn what_waits_when_the_store_is_dropped_is_still_done(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    append(&*store, posted(&url, "first")).await;
    // Polled once, so that the command is on its way, and then given up by the caller.
    let _ = store.append(posted(&url, "second"), super::DAY).now_or_never();
    let store = place.reopen(store).await;
    assert_eq!(the(&*store, &url).await.head, Offset(2));
}

async fn the_number_of_shards_is_fixed(place: Place) {
    let store = place.open().await;
    let shards = store.shards();
    assert!(shards >= 16);
    let store = place.reopen(store).await;
    assert_eq!(store.shards(), shards);
}
