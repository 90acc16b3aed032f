//! Secrets on disk: under a key they are not to be found there, and keys can be replaced.

use super::*;
use crate::store::StoreError;

on_every_engine!(
    with_a_key_no_file_holds_a_secret,
    without_a_key_secrets_are_kept_as_they_are,
    a_plain_store_is_encrypted_by_the_first_rotation,
    a_replaced_key_is_needed_until_the_rotation_and_not_afterwards,
    a_store_that_was_encrypted_does_not_open_without_its_key,
    a_rotation_without_the_old_key_changes_nothing,
);

const SECRET: &str = "a-secret-that-must-not-be-found";

fn key() -> (String, Keyring) {
    let text = Keyring::generate();
    let keys = Keyring::parse(&text).unwrap();
    (text, keys)
}

/// One subscription in force and one request that waits, both with the secret.
async fn fill(store: &dyn Store) {
    let request = ask_to_subscribe(store, &topic("t"), &callback("active"), SECRET).await;
    activate(store, &request, DateTime::now()).await;
    ask_to_subscribe(store, &topic("t"), &callback("waiting"), SECRET).await;
}

async fn secrets(store: &dyn Store) -> Vec<Option<Secret>> {
    let active = store.find_subscription(&topic("t"), &callback("active")).await.unwrap().unwrap();
    let waiting = waiting(store).await.remove(0);
    let Intent::Subscribe { secret, .. } = waiting.intent else { panic!("it is no request to subscribe") };
    vec![active.secret.clone(), secret]
}

async fn assert_readable(store: &dyn Store) {
    assert_eq!(secrets(store).await, vec![Some(secret(SECRET)); 2]);
}

async fn with_a_key_no_file_holds_a_secret(place: Place) {
    let (_, keys) = key();
    let store = place.open_with(keys.clone()).await.unwrap();
    fill(&*store).await;
    assert_readable(&*store).await;
    assert!(!place.holds(SECRET), "while it is open");
    drop(store);
    assert!(!place.holds(SECRET), "after it was closed");
    assert_readable(&*place.open_with(keys).await.unwrap()).await;
}

/// The control: the search above would find it.
async fn without_a_key_secrets_are_kept_as_they_are(place: Place) {
    let store = place.open().await;
    fill(&*store).await;
    drop(store);
    assert!(place.holds(SECRET));
}

async fn a_plain_store_is_encrypted_by_the_first_rotation(place: Place) {
    let store = place.open().await;
    fill(&*store).await;
    drop(store);
    let (_, keys) = key();
    let store = place.open_with(keys.clone()).await.unwrap();
    assert_readable(&*store).await;
    assert_eq!(store.rotate_secrets(keys.clone()).await.unwrap(), 2);
    assert_eq!(store.rotate_secrets(keys.clone()).await.unwrap(), 0, "everything is done already");
    assert_readable(&*store).await;
    drop(store);
    assert!(place.open_with(Keyring::none()).await.is_err());
    assert_readable(&*place.open_with(keys).await.unwrap()).await;
}

async fn a_replaced_key_is_needed_until_the_rotation_and_not_afterwards(place: Place) {
    let ((old_text, old), (new_text, new)) = (key(), key());
    let store = place.open_with(old).await.unwrap();
    fill(&*store).await;
    drop(store);
    let both = Keyring::parse(&format!("{new_text}\n{old_text}")).unwrap();
    drop(place.open_with(both.clone()).await.unwrap());
    let error = place.open_with(new.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::SecretsKey { .. }), "{error}");
    let store = place.open_with(both.clone()).await.unwrap();
    assert_eq!(store.rotate_secrets(both).await.unwrap(), 2);
    drop(store);
    assert_readable(&*place.open_with(new).await.unwrap()).await;
}

async fn a_store_that_was_encrypted_does_not_open_without_its_key(place: Place) {
    let ((_, keys), (_, other)) = (key(), key());
    drop(place.open_with(keys.clone()).await.unwrap());
    for wrong in [Keyring::none(), other] {
        let error = place.open_with(wrong).await.unwrap_err().to_string();
        let id = keys.writes_with().unwrap().to_string();
        assert!(error.contains(&id) && error.contains("key_file"), "{error}");
    }
    place.open_with(keys).await.unwrap();
}

async fn a_rotation_without_the_old_key_changes_nothing(place: Place) {
    let ((_, old), (_, new)) = (key(), key());
    let store = place.open_with(old.clone()).await.unwrap();
    fill(&*store).await;
    assert!(matches!(store.rotate_secrets(new).await, Err(StoreError::SecretsKey { .. })));
    assert_readable(&*store).await;
    drop(store);
    assert_readable(&*place.open_with(old).await.unwrap()).await;
}
