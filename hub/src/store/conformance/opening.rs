//! Opening and closing a data directory.

use std::fs;

use futures_util::FutureExt as _;
use resync_core::datetime::DateTime;

use super::{
    DAY, Place, UNCLAIMED, activate, append, ask_to_subscribe, callback, gone, on_every_engine, posted,
    subscribe, the, topic,
};
use crate::store::{Activation, Engine, Keyring, Offset, StoreError, check, open};

on_every_engine!(
    a_second_process_is_locked_out,
    the_other_engine_is_refused_by_name,
    a_newer_or_unknown_format_is_refused_and_left_as_it_is,
    what_a_restore_has_left_half_done_is_refused,
    an_unreadable_mark_is_damage,
    what_waits_when_the_store_is_dropped_is_still_done,
    the_number_of_shards_is_fixed,
    a_data_directory_is_made_with_its_parents,
    what_a_shard_is_loaded_with_is_as_new_as_the_last_change_however_long_ago_the_store_was_opened,
);

/// What the opening read of subscriptions may be old by the time that somebody delivers to them.
async fn what_a_shard_is_loaded_with_is_as_new_as_the_last_change_however_long_ago_the_store_was_opened(
    place: Place,
) {
    let store = place.open();
    let (shard, kept) = subscribe(&*store, &topic("t"), &callback("kept")).await;
    let store = place.reopen(store);
    let request = ask_to_subscribe(&*store, &topic("t"), &callback("kept"), "another secret").await;
    let later = DateTime::from_system_time(kept.verified_at.to_system_time() + DAY);
    assert!(matches!(activate(&*store, &request, later).await, Activation::Done));
    for time in ["after a renewal", "once more"] {
        let slots = store.load_shard(shard).await.unwrap().slots;
        assert_eq!(slots.len(), 1, "{time}");
        assert!(slots[0].lease_end > kept.lease_end, "{time}");
    }
    let store = place.reopen(store);
    assert_eq!(
        store.load_shard(shard).await.unwrap().slots.len(),
        1,
        "as it was read when the store was opened"
    );
    let store = place.reopen(store);
    let renewed = store.find_subscription(&topic("t"), &callback("kept")).await.unwrap().unwrap();
    store.end(shard, UNCLAIMED, renewed.topic, renewed.id, gone(&renewed)).await.unwrap();
    assert_eq!(store.load_shard(shard).await.unwrap().slots, [], "after its end");
}

async fn a_second_process_is_locked_out(place: Place) {
    let store = place.open();
    let error = open(place.engine, place.directory.path(), Keyring::none(), 0).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    append(&*store, posted(&topic("t"), "the first owner is not disturbed")).await;
    drop(store);
    place.open();
}

async fn the_other_engine_is_refused_by_name(place: Place) {
    drop(place.open());
    let mark = place.directory.path().join("engine");
    let own = fs::read_to_string(&mark).unwrap();
    // Of what the hub may have been built without, the mark is all that it knows.
    let other = if place.engine == Engine::Fjall { "sled" } else { "fjall" };
    fs::write(&mark, format!("{other} 1\n")).unwrap();
    let error = open(place.engine, place.directory.path(), Keyring::none(), 0).unwrap_err();
    assert!(matches!(&error, StoreError::OtherEngine { found, .. } if found == other), "{error}");
    fs::write(&mark, own).unwrap();
    place.open();
}

async fn a_newer_or_unknown_format_is_refused_and_left_as_it_is(place: Place) {
    drop(place.open());
    let (directory, keys) = (place.directory.path(), Keyring::none());
    let mark = directory.join("engine");
    for (written, number) in [("tomorrows-engine 2\n", 2), ("fjall 0\n", 0), ("restoring 3\n", 3)] {
        fs::write(&mark, written).unwrap();
        let refused = [
            open(place.engine, directory, keys.clone(), 0).unwrap_err(),
            check(place.engine, directory, &keys).unwrap_err(),
        ];
        for error in refused {
            assert!(
                matches!(error, StoreError::Format { found, supported: 1, .. } if found == number),
                "{error}"
            );
            let told = format!(
                "the store in {} has format {number}, and this hub reads format 1: start the version of resync-hub that wrote it, \
                 or choose another --data-dir",
                directory.display()
            );
            assert_eq!(error.to_string(), told);
        }
        assert_eq!(fs::read_to_string(&mark).unwrap(), written);
    }
}

async fn what_a_restore_has_left_half_done_is_refused(place: Place) {
    drop(place.open());
    fs::write(place.directory.path().join("engine"), "restoring 1\n").unwrap();
    let error = open(place.engine, place.directory.path(), Keyring::none(), 0).unwrap_err();
    assert!(matches!(error, StoreError::Unfinished { .. }), "{error}");
}

async fn an_unreadable_mark_is_damage(place: Place) {
    drop(place.open());
    for mark in ["", "fjall", "fjall one", "sled 1 2", "fjall 99999"] {
        fs::write(place.directory.path().join("engine"), mark).unwrap();
        let error = open(place.engine, place.directory.path(), Keyring::none(), 0).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { space: "engine", .. }), "{mark}: {error}");
    }
}

async fn what_waits_when_the_store_is_dropped_is_still_done(place: Place) {
    let store = place.open();
    let url = topic("t");
    append(&*store, posted(&url, "first")).await;
    // Polled once, so that the command is on its way, and then given up by the caller.
    let _ = store.append(posted(&url, "second"), super::DAY).now_or_never();
    let store = place.reopen(store);
    assert_eq!(the(&*store, &url).await.head, Offset(2));
}

async fn the_number_of_shards_is_fixed(place: Place) {
    let store = place.open();
    assert_eq!(store.shards(), 16);
    let store = place.reopen(store);
    assert_eq!(store.shards(), 16);
}

async fn a_data_directory_is_made_with_its_parents(place: Place) {
    let deep = place.directory.path().join("a/b/c");
    open(place.engine, &deep, Keyring::none(), 0).unwrap();
    assert!(deep.join("engine").is_file());
}
