//! Stores of which something was changed or taken, and what mending makes of them.

use proptest::prelude::*;
use tokio::runtime;

use super::*;
use crate::store::embedded::check::tests::{callback, change, filled, over, records, topic};
use crate::store::embedded::testing::{Fragile, damage};
use crate::store::{Offset, Store};

fn mended(engine: &Fragile) -> Vec<String> {
    let repaired = mend(engine, &Keyring::none()).unwrap();
    assert_eq!(repaired.left.faults, [], "after {:?}", repaired.mended);
    repaired.mended.iter().map(ToString::to_string).collect()
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
async fn a_log_begins_behind_what_is_missing_and_what_goes_is_named() {
    let engine = filled().await;
    remove(&engine, Space::Bodies, 1);
    let told = mended(&engine);
    assert_eq!(
        told[0],
        "lost: notifications 1 to 2 of topic https://source.example/t: 2 missing or damaged, and with them 1 whole, \
         since a log has no holes; whoever had not got them is told of a gap"
    );
    let store = over(&engine);
    let state = store.topic(&topic()).await.unwrap().unwrap();
    assert_eq!((state.first, state.head), (Offset(3), Offset(4)));
    let next = store.notification_from(state.id, Offset(1)).await.unwrap().unwrap();
    assert_eq!((next.offset, next.body.len()), (Offset(3), 20));
}

#[tokio::test]
async fn a_log_whose_newest_notification_is_damaged_goes_on_behind_it() {
    let engine = filled().await;
    remove(&engine, Space::Log, 3);
    assert!(mended(&engine)[0].starts_with("lost: notifications 1 to 4 of topic"));
    let store = over(&engine);
    let state = store.topic(&topic()).await.unwrap().unwrap();
    assert_eq!((state.first, state.head), (Offset(5), Offset(4)), "no number is given out twice");
}

#[tokio::test]
async fn a_topic_is_made_anew_from_its_subscriptions_and_its_log() {
    let engine = filled().await;
    let before = over(&engine).topic(&topic()).await.unwrap();
    damage(&engine, Space::Topics);
    assert_eq!(
        mended(&engine),
        [
            "made anew: topic https://source.example/t",
            "made anew: what topic https://source.example/t notes of its log"
        ]
    );
    assert_eq!(over(&engine).topic(&topic()).await.unwrap(), before);
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
async fn who_was_behind_nobody_knows_how_far_gets_again_what_the_log_holds() {
    let engine = filled().await;
    damage(&engine, Space::Laggards);
    damage(&engine, Space::Watermarks);
    let told = mended(&engine);
    assert!(told.iter().all(|line| line.starts_with("made anew: how far")) && told.len() == 2, "{told:?}");
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
        let found = check::look(&engine, &Keyring::none()).unwrap().faults;
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
