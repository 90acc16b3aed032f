//! What becomes of identities where a database may lack something that it had acknowledged.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use resync_harness::eventually;
use serde_json::Value;

use super::{DAY, Place, append, at, on_postgres, posted, the, topic, within};
use crate::store::{Checkpoint, Keyring, Offset, Shard, StoreError};

on_postgres!(
    what_a_promoted_server_may_lack_is_never_given_out_again,
    each_timeline_has_its_own_places_also_where_the_leap_before_was_lost,
    a_server_leaps_only_if_somebody_wrote_whose_durability_is_declared,
    a_database_at_an_earlier_point_is_refused_until_somebody_says_that_it_was_restored,
    a_hub_notices_also_while_it_runs_that_the_database_is_at_an_earlier_point,
    whoever_is_to_say_so_hears_of_the_hubs_that_the_database_knows,
    a_database_without_a_store_is_none_that_was_restored,
);

/// The connections of all hubs end.
const END_OTHERS: &str = "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a \
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()";
const HOURS_UNTIL_2025: u64 = 482_136;
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
    let (of, first) = append(&*one, posted(&url, "y")).await;
    assert!(of == id && Offset(2).leaps_to(Offset(first.0 - 1)), "{first:?}");
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
    place.sql("CREATE TABLE before AS SELECT * FROM hub.store");
    drop(store);
    let mut firsts = Vec::new();
    for timelines in [1, 2] {
        // The server of the first of these gave out places behind its leap, and all of that is gone.
        place.sql(&format!(
            "UPDATE hub.store s SET era = b.era, timeline = b.timeline - {timelines} FROM before b"
        ));
        let store = place.open().await;
        firsts.push(append(&*store, posted(&topic(&format!("t{timelines}")), "y")).await.1);
        drop(store);
    }
    assert!(firsts[0].leap() < firsts[1], "{firsts:?}");
    assert_eq!(place.faults(), [""; 0]);
}

async fn a_server_leaps_only_if_somebody_wrote_whose_durability_is_declared(place: Place) {
    drop(place.open().await);
    place.sql(
        "DO $$ DECLARE leaped bigint; BEGIN \
            UPDATE hub.store SET timeline = timeline - 1, is_declared = false; \
            PERFORM hub.follow_timeline_1(true); \
            ASSERT (SELECT era FROM hub.store) = 0, 'a standby had all of it'; \
            UPDATE hub.store SET is_declared = true; \
            PERFORM hub.follow_timeline_1(true); \
            SELECT era INTO leaped FROM hub.store WHERE NOT is_declared; \
            ASSERT leaped > 0, 'none may have had it'; \
            PERFORM hub.follow_timeline_1(false); \
            PERFORM hub.follow_timeline_1(false); \
            ASSERT (SELECT era = leaped AND is_declared FROM hub.store), 'it is the same server'; \
        END $$",
    );
}

async fn a_database_at_an_earlier_point_is_refused_until_somebody_says_that_it_was_restored(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    append(&*store, posted(&url, "x")).await;
    let keys = Keyring::none();
    assert!(!place.store.restored(&keys).unwrap().is_done, "a hub is up");
    drop(store);
    until_nobody_is_up(&place).await;
    let known = fs::read(history_of(&place)).unwrap();
    for earlier in ["UPDATE hub.witness SET beats = beats - 1", "DELETE FROM hub.witness"] {
        // As a hub knows it that has never refused it.
        fs::write(history_of(&place), &known).unwrap();
        place.sql(earlier);
        assert_refused(&place).await;
    }
    place.sql("CREATE TABLE written AS SELECT n FROM generate_series(1, 100000) n");
    assert_refused(&place).await;
    let known: Value = serde_json::from_slice(&known).unwrap();
    place.sql(&format!("INSERT INTO hub.witness VALUES ({}, 1000000, now())", known["folder"]));
    assert_refused(&place).await;
    let before = SystemTime::now();
    assert!(place.store.restored(&keys).unwrap().is_done);
    let store = place.open().await;
    let first = append(&*store, posted(&url, "y")).await.1;
    assert!(Offset(1).leaps_to(Offset(first.0 - 1)), "{first:?}");
    // An era for each hour, so that no restore sets it back, and all of it can be written in JSON.
    let hours = before.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() / 3_600 - HOURS_UNTIL_2025;
    assert!(first.0 >> 32 > hours && first.0 < 1 << 53, "{first:?}");
    drop(store);
    drop(place.open().await);
    assert_eq!(place.faults(), [""; 0]);
}

async fn a_hub_notices_also_while_it_runs_that_the_database_is_at_an_earlier_point(place: Place) {
    let store = place.open().await;
    place.sql("UPDATE hub.witness SET beats = 1000");
    let has_heard = async || !place.sql("SELECT 1 FROM hub.witness WHERE beats > 1001").is_empty();
    eventually("the hub has heard of that, and gone on", has_heard).await;
    place.sql("UPDATE hub.witness SET beats = 0");
    place.sql(END_OTHERS);
    let is_refused = async || matches!(store.health(), Err(StoreError::EarlierPoint));
    eventually("it is refused", is_refused).await;
    until_nobody_is_up(&place).await;
    assert!(place.store.restored(&Keyring::none()).unwrap().is_done);
    let is_used = async || store.append(posted(&topic("t"), "x"), DAY).await.is_ok();
    eventually("it is used again", is_used).await;
}

async fn whoever_is_to_say_so_hears_of_the_hubs_that_the_database_knows(place: Place) {
    drop(place.open().await);
    until_nobody_is_up(&place).await;
    place.sql("INSERT INTO hub.node (id, name, version, alive_until) VALUES (9, 'old', '', to_timestamp(1000000005))");
    place.sql("INSERT INTO hub.node (id, name, version, alive_until) VALUES (8, 'ahead', '', now() + interval '1 hour')");
    let said = place.store.restored(&Keyring::none()).unwrap();
    assert!(said.is_done, "the clock of the server on which that one was up was ahead");
    let names: Vec<_> = said.hubs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ahead", "old"]);
    assert_eq!(said.hubs[1].1, at(1_000_000_000));
}

async fn a_database_without_a_store_is_none_that_was_restored(place: Place) {
    let error = place.store.restored(&Keyring::none()).unwrap_err();
    assert!(error.to_string().contains("[store] url"), "{error}");
    assert!(place.is_empty());
}

fn history_of(place: &Place) -> PathBuf {
    place.data().join("database-history.json")
}

/// Hubs that were closed here have told the database so when this returns.
async fn until_nobody_is_up(place: &Place) {
    let is_up = "SELECT 1 FROM hub.node n WHERE hub.is_up_1(n.alive_until)";
    eventually("nobody is up", async || place.sql(is_up).is_empty()).await;
}

async fn assert_refused(place: &Place) {
    let error = place.open_with(Keyring::none()).await.unwrap_err();
    assert!(matches!(error, StoreError::EarlierPoint), "{error}");
    assert!(error.to_string().contains("`resync-hub restored`"), "{error}");
}
