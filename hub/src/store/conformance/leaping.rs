//! What becomes of identities where a database may lack something that it had acknowledged.

use std::fs;

use resync_harness::eventually;
use serde_json::{Value, json};

use super::{Place, append, at, on_postgres, posted, the, topic, within};
use crate::store::{Checkpoint, Keyring, Offset, Shard, StoreError};

on_postgres!(
    what_a_promoted_server_may_lack_is_never_given_out_again,
    each_timeline_has_its_own_places_also_where_the_leap_before_was_lost,
    a_server_leaps_only_if_somebody_wrote_whose_durability_is_declared,
    a_database_at_an_earlier_point_is_refused_until_somebody_says_that_it_was_restored,
);

/// As if the server had been promoted once.
const PROMOTED: &str = "UPDATE hub.store SET timeline = timeline - 1";

async fn what_a_promoted_server_may_lack_is_never_given_out_again(place: Place) {
    let one = place.open().await;
    let (url, emptied) = (topic("t"), topic("emptied"));
    let (id, _) = append(&*one, posted(&emptied, "x")).await;
    assert!(one.pause(id).await.unwrap());
    one.trim(at(4_000_000_000), within(0)).await.unwrap();
    for _ in 0..2 {
        append(&*one, posted(&url, "x")).await;
    }
    let (id, epoch) = (the(&*one, &url).await.id, one.claim(Shard(1)).await.unwrap());
    place.sql(PROMOTED);
    let other = place.second().await;
    let first = Offset(2).leap().next();
    assert_eq!(append(&*one, posted(&url, "y")).await, (id, first));
    assert_eq!(append(&*other, posted(&url, "z")).await, (id, first.next()));
    assert_eq!(append(&*one, posted(&emptied, "y")).await.1, first);
    let found = other.notification_from(id, Offset(3)).await.unwrap().unwrap();
    assert_eq!(found.offset, first, "what is leaped over is passed");
    let saved = one.checkpoint(Shard(1), epoch, Checkpoint::default()).await;
    assert!(matches!(saved, Err(StoreError::Fenced)), "its claim may have been lost: {saved:?}");
    assert!(one.claim(Shard(1)).await.unwrap() > epoch);
    drop((one, other));
    assert_eq!(place.faults(), [""; 0]);
}

async fn each_timeline_has_its_own_places_also_where_the_leap_before_was_lost(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    append(&*store, posted(&url, "x")).await;
    place.sql(PROMOTED);
    // The server of this second timeline gave out places behind the first leap, and all of that is gone.
    place.sql(PROMOTED);
    let store = place.reopen(store).await;
    let first = append(&*store, posted(&url, "y")).await.1;
    assert_eq!(first, Offset(1).leap().leap().next());
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}

async fn a_server_leaps_only_if_somebody_wrote_whose_durability_is_declared(place: Place) {
    drop(place.open().await);
    place.sql(
        "DO $$ BEGIN \
            UPDATE hub.store SET timeline = timeline - 1, is_declared = false; \
            PERFORM hub.follow_timeline_1(true); \
            ASSERT (SELECT era FROM hub.store) = 0, 'a standby had all of it'; \
            UPDATE hub.store SET is_declared = true; \
            PERFORM hub.follow_timeline_1(true); \
            ASSERT (SELECT era = 1 AND NOT is_declared FROM hub.store), 'none may have had it'; \
            PERFORM hub.follow_timeline_1(false); \
            PERFORM hub.follow_timeline_1(false); \
            ASSERT (SELECT era = 1 AND is_declared FROM hub.store), 'it is the same server'; \
        END $$",
    );
}

async fn a_database_at_an_earlier_point_is_refused_until_somebody_says_that_it_was_restored(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    append(&*store, posted(&url, "x")).await;
    let (keys, history) = (Keyring::none(), place.data().join("database-history.json"));
    assert!(!place.store.restored(&keys).unwrap(), "a hub is up");
    eventually("it is written down", async || history.exists()).await;
    drop(store);
    // As if it had been further when this hub saw it last.
    let mut seen: Value = serde_json::from_slice(&fs::read(&history).unwrap()).unwrap();
    seen["position"] = json!(u64::MAX);
    fs::write(&history, seen.to_string()).unwrap();
    for _ in 0..2 {
        let error = place.open_with(keys.clone()).await.unwrap_err();
        assert!(matches!(error, StoreError::NotDurable(_)), "{error}");
        assert!(error.to_string().contains("`resync-hub restored`"), "{error}");
    }
    assert!(place.store.restored(&keys).unwrap());
    let store = place.open().await;
    assert_eq!(append(&*store, posted(&url, "y")).await.1, Offset(1).leap().next());
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}
