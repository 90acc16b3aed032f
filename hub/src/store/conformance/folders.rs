//! Backups of a folder that no hub is using, and restores into one in which something is.

use std::fs::{self, File};
use std::path::Path;

use super::backups::Elsewhere;
use super::{Place, append, callback, on_embedded_engines, posted, subscribe, topic};
use crate::store::{BackupError, Credentials, Keyring, StoreError};

on_embedded_engines!(
    a_store_that_is_closed_is_backed_up_without_its_keys,
    only_what_a_restore_makes_is_removed_where_one_was_not_finished,
);

async fn a_store_that_is_closed_is_backed_up_without_its_keys(place: Place) {
    let (keys, none) = (Keyring::parse(&Keyring::generate()).unwrap(), Keyring::none());
    let store = place.open_with(keys.clone()).await.unwrap();
    subscribe(&*store, &topic("t"), &callback("d")).await;
    let elsewhere = Elsewhere::than(&place);
    let mut file = File::create(elsewhere.backup()).unwrap();
    let error = place.store.back_up(&none, &[], &mut file).unwrap_err();
    assert!(matches!(error, BackupError::Store(StoreError::Locked { .. })), "{error}");
    drop(store);
    place.store.back_up(&none, &[], &mut File::create(elsewhere.backup()).unwrap()).unwrap();
    let (_, found) = elsewhere.into.store.restore(&keys, Credentials::Restored, &elsewhere.backup()).unwrap();
    assert_eq!(found.faults, [""; 0]);
    let nowhere = place.another().store.back_up(&none, &[], &mut Vec::new()).unwrap_err();
    assert!(nowhere.to_string().contains("there is no store"), "{nowhere}");
}

async fn only_what_a_restore_makes_is_removed_where_one_was_not_finished(place: Place) {
    let store = place.open().await;
    append(&*store, posted(&topic("t"), "kept")).await;
    let elsewhere = Elsewhere::than(&place);
    elsewhere.take(&*store).await;
    drop(store);
    let into = elsewhere.into.data();
    let left = into.join("sled");
    fs::create_dir_all(&left).unwrap();
    fs::write(into.join("engine"), "restoring 1\n").unwrap();
    fs::write(left.join("of-before"), "half").unwrap();
    let restored =
        |backup: &Path| elsewhere.into.store.restore(&Keyring::none(), Credentials::Restored, backup);
    let refused = |backup: &Path| restored(backup).unwrap_err().to_string();
    for copied in [into.join("hub.backup"), left.join("hub.backup")] {
        fs::copy(elsewhere.backup(), &copied).unwrap();
        let said = refused(&copied);
        assert!(said.contains("put it elsewhere"), "{said}");
        assert_eq!(fs::read(&copied).unwrap(), fs::read(elsewhere.backup()).unwrap());
    }
    let said = refused(&elsewhere.backup());
    assert!(said.contains("(hub.backup is in it)") && into.join("hub.backup").exists(), "{said}");
    fs::remove_file(into.join("hub.backup")).unwrap();
    restored(&elsewhere.backup()).unwrap();
    assert!(!left.join("of-before").exists(), "what was left of the other one is gone");
}
