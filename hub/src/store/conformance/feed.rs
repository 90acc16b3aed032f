//! What each of two hubs hears of the other.

use std::sync::Arc;

use futures_util::future::join_all;
use resync_core::datetime::DateTime;
use resync_harness::eventually;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_blocking;

use super::two_handles::both;
use super::{
    LEASE, Place, activate, append, ask_to_subscribe, at, callback, on_postgres, posted, subscribe, the,
    topic,
};
use crate::store::{
    Accepted, Activation, DenialScope, Document, NewDenial, Offset, Order, OrderEvent, PingClient, Shard,
    Spread, Store, StoreEvent, TopicId,
};

on_postgres!(
    what_both_append_is_told_at_each_once_and_in_its_order,
    a_feed_whose_connection_is_lost_goes_on_where_it_was,
    what_a_transaction_that_lasts_long_has_written_is_told_once_when_it_has_ended,
    subscriptions_are_told_at_the_other_with_their_topic_as_it_was_and_so_is_their_end,
    a_subscription_that_is_renewed_and_ended_by_turns_is_told_in_that_order,
    what_one_accepts_is_told_to_the_owners_of_shards_at_the_other_and_at_no_other,
    that_a_shard_is_released_or_a_hub_stops_is_told_at_the_other,
    an_order_is_told_behind_what_happened_before_it_and_so_is_its_answer,
    a_document_that_both_change_loses_nothing_and_each_reads_what_the_other_wrote,
);

/// The connections of all feeds end.
const END_FEEDS: &str = "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a \
    WHERE a.datname = current_database() AND a.query LIKE '%pg_snapshot_xmax%' AND a.pid <> pg_backend_pid()";

/// Writes something into the feed, and ends when a log has 30 notifications, or after half a minute.
const LASTS_LONG: &str = "
BEGIN;
INSERT INTO hub.feed (kind, node, topic) VALUES (4, 0, 77);
SELECT pg_advisory_xact_lock(77, 8);
DO $$ BEGIN
    FOR nth IN 1..3000 LOOP
        EXIT WHEN EXISTS (SELECT FROM hub.topic t WHERE t.head >= 30);
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
COMMIT";
const HAS_BEGUN: &str = "
SELECT 1 FROM pg_locks l JOIN pg_database d ON d.oid = l.database
WHERE d.datname = current_database() AND l.locktype = 'advisory' AND l.classid = 77 AND l.objid = 8 AND l.granted";

type Watching = UnboundedReceiver<StoreEvent>;

fn watch(stores: &[Arc<dyn Store>; 2]) -> [Watching; 2] {
    stores.each_ref().map(|store| store.watch())
}

/// So many notifications of one topic, from both at the same time.
async fn append_at_both(stores: &[Arc<dyn Store>; 2], notifications: usize) {
    let url = topic("t");
    let appends = (0..notifications).map(|number| append(&*stores[number % 2], posted(&url, "changed")));
    join_all(appends).await;
}

/// Each was told of these notifications, of each once and in their order, and of nothing else.
async fn assert_told(stores: &[Arc<dyn Store>; 2], watching: &mut [Watching; 2], notifications: u64) {
    let id = the(&*stores[0], &topic("t")).await.id;
    assert!(stores[0].pause(id).await.unwrap());
    for events in watching {
        for number in 1..=notifications {
            let event = events.recv().await.unwrap();
            let StoreEvent::Appended { topic, offset, .. } = event else { panic!("{number}: {event:?}") };
            assert_eq!((topic, offset), (id, Offset(number)));
        }
        assert_eq!(events.recv().await, Some(StoreEvent::Paused { topic: id }));
    }
}

async fn what_both_append_is_told_at_each_once_and_in_its_order(place: Place) {
    let stores = both(&place).await;
    let mut watching = watch(&stores);
    for _ in 0..10 {
        append_at_both(&stores, 12).await;
    }
    assert_told(&stores, &mut watching, 120).await;
}

async fn a_feed_whose_connection_is_lost_goes_on_where_it_was(place: Place) {
    let stores = both(&place).await;
    let mut watching = watch(&stores);
    for _ in 0..5 {
        append_at_both(&stores, 6).await;
        place.sql(END_FEEDS);
        append_at_both(&stores, 6).await;
    }
    assert_told(&stores, &mut watching, 60).await;
}

async fn what_a_transaction_that_lasts_long_has_written_is_told_once_when_it_has_ended(place: Place) {
    let place = Arc::new(place);
    let stores = both(&place).await;
    let mut watching = watch(&stores);
    let written = Arc::clone(&place);
    let lasting = spawn_blocking(move || written.sql(LASTS_LONG));
    eventually("it has begun", async || !place.sql(HAS_BEGUN).is_empty()).await;
    append_at_both(&stores, 30).await;
    lasting.await.unwrap();
    for events in &mut watching {
        let (mut appended, mut paused) = (0, 0);
        while appended < 30 || paused < 1 {
            match events.recv().await.unwrap() {
                StoreEvent::Appended { offset, .. } => {
                    appended += 1;
                    assert_eq!(offset, Offset(appended));
                }
                event => {
                    paused += 1;
                    assert_eq!(event, StoreEvent::Paused { topic: TopicId(77) });
                }
            }
        }
    }
    let id = the(&*stores[0], &topic("t")).await.id;
    assert!(stores[0].pause(id).await.unwrap());
    for events in &mut watching {
        assert_eq!(events.recv().await, Some(StoreEvent::Paused { topic: id }), "and nothing again");
    }
}

async fn subscriptions_are_told_at_the_other_with_their_topic_as_it_was_and_so_is_their_end(place: Place) {
    let stores = both(&place).await;
    let mut watching = watch(&stores);
    append(&*stores[0], posted(&topic("t"), "x")).await;
    let (shard, subscription) = subscribe(&*stores[0], &topic("t"), &callback("d")).await;
    let (topic_id, id) = (subscription.topic, subscription.id);
    append(&*stores[1], posted(&topic("t"), "x")).await;
    let scope = DenialScope::Everything;
    let denial = NewDenial { topic: topic("t"), callback: callback("d"), reason: String::new(), scope };
    assert!(stores[1].deny(denial).await.unwrap().is_some());
    for events in &mut watching {
        let event = events.recv().await.unwrap();
        assert!(matches!(event, StoreEvent::Appended { offset: Offset(1), .. }), "{event:?}");
        let event = events.recv().await.unwrap();
        let StoreEvent::Subscribed { shard: of, slot, topic } = event else { panic!("{event:?}") };
        assert_eq!((of, slot.id, slot.topic, slot.start), (shard, id, topic_id, Offset(1)));
        assert_eq!((slot.lease_end, slot.address), (subscription.lease_end, subscription.address));
        assert_eq!(
            (topic.id, topic.head, topic.posted, topic.latest),
            (topic_id, Offset(1), Offset(1), Offset(0))
        );
        let event = events.recv().await.unwrap();
        assert!(matches!(event, StoreEvent::Appended { offset: Offset(2), .. }), "{event:?}");
        assert_eq!(events.recv().await, Some(StoreEvent::Unsubscribed { shard, topic: topic_id, id }));
    }
}

async fn a_subscription_that_is_renewed_and_ended_by_turns_is_told_in_that_order(place: Place) {
    let stores = both(&place).await;
    let mut watching = watch(&stores);
    // Each some seconds later than the one before.
    let asked = |round: usize, turn: usize| 2_000_000_000 + i64::try_from(10 * round + turn).unwrap();
    for round in 0..6 {
        for turn in 0..2 {
            let store = &*stores[(round + turn) % 2];
            let request = ask_to_subscribe(store, &topic("t"), &callback("d"), "a secret").await;
            let activation = activate(store, &request, at(asked(round, turn))).await;
            assert_eq!(activation, Activation::Done);
        }
        let (topic, callback, scope) = (topic("t"), callback("d"), DenialScope::Everything);
        let denial = NewDenial { topic, callback, reason: String::new(), scope };
        assert!(stores[round % 2].deny(denial).await.unwrap().is_some());
    }
    for events in &mut watching {
        let mut last = None;
        for round in 0..6 {
            for turn in 0..2 {
                let event = events.recv().await.unwrap();
                let StoreEvent::Subscribed { slot, .. } = event else { panic!("{event:?}") };
                let lease_end = at(asked(round, turn) + 3_600);
                assert_eq!(slot.lease_end, lease_end, "as it was then, whatever came later");
                assert_eq!(last == Some(slot.id), turn == 1, "it is renewed, and then another begins");
                assert!(last.is_none_or(|last| last <= slot.id), "identities grow");
                last = Some(slot.id);
            }
            let event = events.recv().await.unwrap();
            assert!(matches!(event, StoreEvent::Unsubscribed { id, .. } if last == Some(id)), "{event:?}");
        }
    }
}

async fn what_one_accepts_is_told_to_the_owners_of_shards_at_the_other_and_at_no_other(place: Place) {
    let stores = both(&place).await;
    let [mut here, mut elsewhere] = stores.each_ref().map(|store| store.watch_accepted());
    let at = &*stores[0];
    let request = ask_to_subscribe(at, &topic("t"), &callback("d"), "a secret").await;
    let ping = at.put_ping(topic("u"), None, PingClient::default()).await.unwrap();
    let scope = DenialScope::Everything;
    let denial = NewDenial { topic: topic("t"), callback: callback("d"), reason: String::new(), scope };
    let denial = at.deny(denial).await.unwrap().unwrap();
    let shards = at.shards();
    let shard = Shard::of(&callback("d"), shards);
    for (shard, accepted) in [
        (shard, Accepted::Request(request.id)),
        (Shard::that_fetches(&topic("u"), shards), Accepted::Ping(ping.id)),
        (shard, Accepted::Denial(denial.id)),
    ] {
        assert_eq!(elsewhere.recv().await, Some((shard, accepted)));
    }
    assert!(here.try_recv().is_err(), "who has accepted it knows so");
}

async fn that_a_shard_is_released_or_a_hub_stops_is_told_at_the_other(place: Place) {
    let [one, other] = both(&place).await;
    let (here, mut elsewhere) = (one.watch_spread(), other.watch_spread());
    let epoch = one.claim(Shard(3)).await.unwrap();
    one.release(Shard(3), epoch).await.unwrap();
    elsewhere.changed().await.unwrap();
    other.claim(Shard(3)).await.unwrap();

    one.announce_stop().await.unwrap();
    elsewhere.changed().await.unwrap();
    let Spread { hubs, sharing, shares, .. } = other.spread().await.unwrap().unwrap();
    assert_eq!((hubs, sharing, shares), (2, 1, true), "it is up still, and shares nothing any more");
    // All of that was told there when this returns.
    one.resume(TopicId(1)).await.unwrap();
    assert!(!here.has_changed().unwrap(), "who lets go need not look");
}

async fn an_order_is_told_behind_what_happened_before_it_and_so_is_its_answer(place: Place) {
    let [one, owner] = both(&place).await;
    let (shard, subscription) = subscribe(&*one, &topic("t"), &callback("d")).await;
    let epoch = owner.claim(shard).await.unwrap();
    // All of that was told there when this returns.
    owner.resume(subscription.topic).await.unwrap();
    let (mut events, mut orders, mut answers) = (owner.watch(), owner.watch_orders(), one.watch_orders());
    let scope = DenialScope::Everything;
    let denial = NewDenial { topic: topic("t"), callback: callback("d"), reason: String::new(), scope };
    assert!(one.deny(denial).await.unwrap().is_some());
    let until = DateTime::from_system_time(one.now().to_system_time() + LEASE);
    let halt = Order::Halt(subscription.id);
    let id = one.order(&[shard], halt.clone(), until).await.unwrap();
    assert_eq!(orders.recv().await, Some(OrderEvent::Given(vec![shard])));
    let ended = StoreEvent::Unsubscribed { shard, topic: subscription.topic, id: subscription.id };
    assert_eq!(events.try_recv(), Ok(ended));
    assert_eq!(owner.take_orders(shard, epoch).await.unwrap(), [(id, halt)]);
    owner.answer_order(id, shard, 0).await.unwrap();
    assert_eq!(answers.recv().await, Some(OrderEvent::Given(vec![shard])));
    assert_eq!(answers.recv().await, Some(OrderEvent::Answered(id)));
    assert_eq!(one.answers_to(id).await.unwrap(), [(shard, 0)]);
}

async fn a_document_that_both_change_loses_nothing_and_each_reads_what_the_other_wrote(place: Place) {
    const OF: Document = Document::PublisherTokens;
    let stores = both(&place).await;
    let changes = (b'a'..=b't').map(|letter| {
        let registry = stores[usize::from(letter % 2)].registry();
        spawn_blocking(move || {
            let mut add = |kept: Option<Vec<u8>>| Some([kept.unwrap_or_default(), vec![letter]].concat());
            registry.change(OF, &mut add).unwrap();
        })
    });
    join_all(changes.collect::<Vec<_>>()).await.into_iter().for_each(|changed| changed.unwrap());
    for store in &stores {
        // All of that was told there when this returns.
        store.resume(TopicId(1)).await.unwrap();
        let registry = store.registry();
        let mut letters = registry.read(OF).unwrap().unwrap();
        letters.sort_unstable();
        assert_eq!(letters, (b'a'..=b't').collect::<Vec<_>>());
        assert_eq!(registry.version(OF), stores[0].registry().version(OF));
    }
}
