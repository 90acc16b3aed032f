//! Opening and closing the data directory of an embedded engine.

use std::fs;

use super::{Place, append, on_embedded_engines, posted, topic};
use crate::store::{Engine, Keyring, StoreError};

on_embedded_engines!(
    a_second_process_is_locked_out,
    the_other_engine_is_refused_by_name,
    a_newer_or_unknown_format_is_refused_and_left_as_it_is,
    what_a_restore_has_left_half_done_is_refused,
    an_unreadable_mark_is_damage,
    a_data_directory_is_made_with_its_parents,
);

async fn a_second_process_is_locked_out(place: Place) {
    let store = place.open().await;
    let error = place.store.open(Keyring::none(), 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    append(&*store, posted(&topic("t"), "the first owner is not disturbed")).await;
    drop(store);
    place.open().await;
}

async fn the_other_engine_is_refused_by_name(place: Place) {
    drop(place.open().await);
    let mark = place.data().join("engine");
    let own = fs::read_to_string(&mark).unwrap();
    // Of what the hub may have been built without, the mark is all that it knows.
    let other = if own.starts_with(Engine::Fjall.name()) { "sled" } else { "fjall" };
    fs::write(&mark, format!("{other} 1\n")).unwrap();
    let error = place.store.open(Keyring::none(), 0).await.unwrap_err();
    assert!(matches!(&error, StoreError::OtherEngine { found, .. } if found == other), "{error}");
    fs::write(&mark, own).unwrap();
    place.open().await;
}

async fn a_newer_or_unknown_format_is_refused_and_left_as_it_is(place: Place) {
    drop(place.open().await);
    let keys = Keyring::none();
    let mark = place.data().join("engine");
    for (written, number) in [("tomorrows-engine 2\n", 2), ("fjall 0\n", 0), ("restoring 3\n", 3)] {
        fs::write(&mark, written).unwrap();
        let refused =
            [place.store.open(keys.clone(), 0).await.unwrap_err(), place.store.check(&keys).unwrap_err()];
        for error in refused {
            assert!(
                matches!(error, StoreError::Format { found, supported: 1, .. } if found == number),
                "{error}"
            );
            let told = format!(
                "the store in {} has format {number}, and this hub reads format 1: start the version of resync-hub that wrote it, \
                 or choose another --data-dir",
                place.data().display()
            );
            assert_eq!(error.to_string(), told);
        }
        assert_eq!(fs::read_to_string(&mark).unwrap(), written);
    }
}

async fn what_a_restore_has_left_half_done_is_refused(place: Place) {
    drop(place.open().await);
    fs::write(place.data().join("engine"), "restoring 1\n").unwrap();
    let error = place.store.open(Keyring::none(), 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Unfinished { .. }), "{error}");
}

async fn an_unreadable_mark_is_damage(place: Place) {
    drop(place.open().await);
    for mark in ["", "fjall", "fjall one", "sled 1 2", "fjall 99999"] {
        fs::write(place.data().join("engine"), mark).unwrap();
        let error = place.store.open(Keyring::none(), 0).await.unwrap_err();
        assert!(matches!(error, StoreError::Damaged { space: "engine", .. }), "{mark}: {error}");
    }
}

async fn a_data_directory_is_made_with_its_parents(place: Place) {
    assert!(!place.data().parent().unwrap().exists());
    place.open().await;
    assert!(place.data().join("engine").is_file());
}
