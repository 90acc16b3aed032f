//! Stores of which something was changed or taken, and what mending makes of them.

use proptest::prelude::*;
use resync_core::datetime::DateTime;
use tokio::runtime;

use super::super::engine::{Engine as _, Keys};
use super::*;
use crate::store::embedded::check::tests::{callback, change, filled, over, records, subscribe, topic};
use crate::store::embedded::testing::{Fragile, damage};
use crate::store::{Log, Progress, Shares, Subscriptions};

fn mended(engine: &Fragile) -> Vec<String> {
    let repaired = repair_records(Closed::new(engine, &Keyring::none())).unwrap();
    assert_eq!(repaired.left.faults, [""; 0], "after {:?}", repaired.steps);
    repaired.steps.iter().map(ToString::to_string).collect()
}

fn remove(engine: &Fragile, space: Space, number: usize) {
    let key = engine.scan(space, &Keys::all()).nth(number).unwrap().unwrap().0;
    change(engine, |batch| batch.remove(space, key.to_vec()));
}

#[tokio::test]
async fn a_store_that_is_whole_is_not_changed() {
    let engine = filled().await;
    let (before, commits) = (records(&engine), engine.commits());
    assert!(mended(&engine).is_empty());
    assert_eq!((records(&engine), engine.commits()), (before, commits));
}

#[tokio::test]
async fn of_a_log_only_what_is_missing_is_lost_and_it_is_named() {
    let engine = filled().await;
    remove(&engine, Space::Bodies, 1);
    let told = mended(&engine);
    assert_eq!(
        told[0],
        "lost: notification 2 of topic https://source.example/t: missing or damaged; subscribers that had not got it have a gap"
    );
    let store = over(&engine);
    let state = store.topic(&topic()).await.unwrap().unwrap();
    assert_eq!((state.first, state.head), (Offset(1), Offset(4)));
    for (offset, length) in [(1, 10), (3, 20), (4, 30)] {
        let kept = store.notification_from(state.id, Offset(offset)).await.unwrap().unwrap();
        assert_eq!((kept.offset, kept.body.len()), (Offset(offset), length));
    }
    let lost = store.notification_from(state.id, Offset(2)).await.unwrap_err();
    assert!(lost.to_string().contains("a repair found it damaged"), "{lost}");
    store.trim(DateTime::from_unix_millis(4_000_000_000_000).unwrap(), Shares::of(0)).await.unwrap();
    let state = store.topic(&topic()).await.unwrap().unwrap();
    assert_eq!(state.first, Offset(4), "retention passes what is lost");
    drop(store);
    assert!(mended(&engine).is_empty());
}

#[tokio::test]
async fn a_log_whose_newest_notification_is_damaged_goes_on_behind_it() {
    let engine = filled().await;
    remove(&engine, Space::Log, 3);
    assert!(mended(&engine)[0].starts_with("lost: notification 4 of topic"));
    let store = over(&engine);
    let state = store.topic(&topic()).await.unwrap().unwrap();
    assert_eq!((state.first, state.head), (Offset(1), Offset(4)), "no number is given out twice");
    let kept = store.notification_from(state.id, Offset(3)).await.unwrap().unwrap();
    assert_eq!(kept.body.len(), 20, "what is whole stays");
}

/// Everything that is owed: how far each part is, and each who is behind.
async fn owed(engine: &Fragile) -> Vec<String> {
    let store = over(engine);
    let mut owed = Vec::new();
    for shard in (0..store.shards()).map(Shard) {
        let state = store.load_shard(shard).await.unwrap();
        owed.extend(state.watermarks.iter().map(|mark| format!("{shard:?} {mark:?}")));
        owed.extend(
            state.laggards.iter().map(|one| format!("{shard:?} {:?} {:?}", one.subscription, one.cursor)),
        );
    }
    let topic = store.topic(&topic()).await.unwrap().unwrap();
    owed.push(format!("{topic:?}"));
    for offset in (topic.first.0..=topic.head.0).map(Offset) {
        owed.push(format!(
            "{:?}",
            store.notification_from(topic.id, offset).await.map(|found| found.map(|n| n.offset))
        ));
    }
    owed
}

#[tokio::test]
async fn a_repair_that_is_interrupted_anywhere_is_finished_by_the_next_one() {
    let damaged = filled().await;
    for space in [Space::Laggards, Space::Watermarks, Space::Topics, Space::Log, Space::SubscriptionIndex] {
        damage(&damaged, space);
    }
    remove(&damaged, Space::Bodies, 1);
    let again = || {
        let engine = Fragile::default();
        let all = records(&damaged);
        change(&engine, |batch| {
            for (space, key, value) in &all {
                batch.put(*space, key.to_vec(), value.to_vec());
            }
        });
        engine
    };
    let whole = again();
    mended(&whole);
    let expected = owed(&whole).await;
    let mut interrupted = 0;
    loop {
        let engine = again();
        engine.break_after(interrupted);
        // Every change in a commit of its own.
        if repair_records(Closed::new(&engine, &Keyring::none()).one_at_a_time()).is_ok() {
            break;
        }
        engine.set_full(false);
        mended(&engine);
        assert_eq!(owed(&engine).await, expected, "interrupted after {interrupted} commits");
        interrupted += 1;
    }
    assert!(interrupted > 8, "{interrupted}");
}

#[tokio::test]
async fn what_the_engine_cannot_read_is_not_taken_for_missing() {
    for space in Space::ALL {
        let engine = filled().await;
        let commits = engine.commits();
        engine.set_unreadable(space);
        let error = repair_records(Closed::new(&engine, &Keyring::none())).unwrap_err().to_string();
        assert!(error.contains(space.name()) && error.contains("a block is damaged"), "{error}");
        assert!(error.contains("restore a backup"), "{error}");
        assert_eq!(engine.commits(), commits);
    }
}

#[tokio::test]
async fn a_topic_is_made_anew_from_its_subscriptions_and_its_log() {
    let engine = filled().await;
    let before = over(&engine).topic(&topic()).await.unwrap();
    damage(&engine, Space::Topics);
    assert_eq!(
        mended(&engine),
        [
            "rebuilt: the record of topic https://source.example/t",
            "rebuilt: the record of topic https://source.example/t from its log"
        ]
    );
    assert_eq!(over(&engine).topic(&topic()).await.unwrap(), before);
}

#[tokio::test]
async fn where_nobody_knows_what_was_forgotten_new_topics_begin_far_behind_all_others() {
    let engine = filled().await;
    change(&engine, |batch| batch.put(Space::Meta, key::FLOOR.to_vec(), b"damaged".to_vec()));
    assert_eq!(
        mended(&engine),
        ["rebuilt: where the logs of new topics begin: far behind all that are known"]
    );
    let store = over(&engine);
    let head = store.topic(&topic()).await.unwrap().unwrap().head;
    let new = "https://source.example/new".parse().unwrap();
    let appended = store.append(store::posted(&new, "x"), std::time::Duration::ZERO).await.unwrap();
    assert_eq!(Offset(appended.id().offset), head.leap().next());
}

#[tokio::test]
async fn an_index_entry_that_cannot_be_read_and_led_to_nobody_is_told_of() {
    let engine = filled().await;
    damage(&engine, Space::SubscriptionIndex);
    let indexed = records(&engine).into_iter().filter(|(space, ..)| *space == Space::Subscriptions);
    for (space, key, _) in indexed {
        change(&engine, |batch| batch.remove(space, key.to_vec()));
    }
    let told = mended(&engine);
    let unreadable = "rebuilt: the subscription_index without a record that could not be read";
    assert!(told.iter().any(|line| line == unreadable), "{told:?}");
}

#[tokio::test]
async fn a_subscription_that_cannot_be_read_is_named_and_may_subscribe_again() {
    let engine = filled().await;
    damage(&engine, Space::Subscriptions);
    let told = mended(&engine);
    assert!(told[0].starts_with("lost: subscription "), "{told:?}");
    assert!(told[0].ends_with("of topic https://source.example/t: its subscriber has to subscribe again"));
    let store = over(&engine);
    let mut left = 0;
    for number in 0..3 {
        left += usize::from(store.find_subscription(&topic(), &callback(number)).await.unwrap().is_some());
    }
    assert_eq!(left, 2);
}

#[tokio::test]
async fn a_subscription_that_cannot_be_read_may_be_ended_before_so_that_there_is_nothing_to_mend() {
    let engine = filled().await;
    damage(&engine, Space::Subscriptions);
    let store = over(&engine);
    let mut ended = 0;
    for shard in (0..store.shards()).map(Shard) {
        for (topic, id) in store.ids(shard).await.unwrap() {
            ended += usize::from(store.end_unreadable(shard, topic, id).await.unwrap());
        }
    }
    assert_eq!(ended, 1, "the others can be read and stay");
    drop(store);
    assert!(mended(&engine).is_empty());
    // Its subscriber may come back, as the others may renew.
    let store = over(&engine);
    for number in 0..3 {
        subscribe(&store, number).await;
    }
    drop(store);
    assert!(mended(&engine).is_empty());
}

#[tokio::test]
async fn who_was_behind_nobody_knows_how_far_gets_again_what_the_log_holds() {
    let engine = filled().await;
    damage(&engine, Space::Laggards);
    damage(&engine, Space::Watermarks);
    let told = mended(&engine);
    assert!(told.iter().all(|line| line.starts_with("rebuilt: how far")) && told.len() == 2, "{told:?}");
    let store = over(&engine);
    for shard in (0..store.shards()).map(Shard) {
        let state = store.load_shard(shard).await.unwrap();
        assert!(state.laggards.iter().all(|laggard| laggard.cursor == Offset(0)));
        assert!(state.watermarks.iter().all(|(_, mark)| mark.done == Offset(0)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_damaged_or_missing_is_mended_and_told_of(
        damaged in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..4),
    ) {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let engine = runtime.block_on(filled());
        let all = records(&engine);
        for (which, takes) in damaged {
            let (space, key, value) = which.get(&all);
            // Which keys are needed has to be known before anything is given up.
            if (*space, &key[..]) == (Space::Meta, key::ENCRYPTION) {
                continue;
            }
            change(&engine, |batch| {
                if takes {
                    batch.remove(*space, key.to_vec());
                } else {
                    let mut value = value.to_vec();
                    value[0] ^= 1;
                    batch.put(*space, key.to_vec(), value);
                }
            });
        }
        let (_, found) = check::inspect(&engine, &Keyring::none()).unwrap();
        let told = mended(&engine);
        prop_assert_eq!(found.is_empty(), told.is_empty(), "{:?} {:?}", found, told);
        runtime.block_on(async {
            let store = over(&engine);
            for shard in (0..store.shards()).map(Shard) {
                store.load_shard(shard).await.unwrap();
            }
        });
        prop_assert!(mended(&engine).is_empty(), "what is mended stays so");
    }
}
