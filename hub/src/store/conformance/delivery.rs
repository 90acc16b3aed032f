//! The state of delivery: owners, watermarks, laggards and skips.

use super::{
    Place, activate, append, ask_to_subscribe, at, behind, callback, gone, on_every_engine, posted,
    subscribe, the, told, topic, within,
};
use crate::store::{
    Checkpoint, Epoch, FailureClass, Gap, Laggard, Missed, NotificationProgress, Offset, Replayed, Shard,
    Skip, StoreError, StoreEvent, Subscription, SubscriptionId, Sweep, TopicId, Watermark,
};

on_every_engine!(
    progress_is_found_again_after_reopening,
    a_subscription_that_caught_up_is_no_laggard_any_more,
    laggards_of_ended_subscriptions_are_left_out,
    a_subscription_that_is_in_both_lists_stays_a_laggard,
    an_owner_with_an_older_epoch_is_refused,
    a_refused_checkpoint_changes_nothing,
    a_former_owner_ends_no_subscription,
    nobody_owns_a_shard_that_was_never_claimed,
    a_shard_that_was_released_is_nobodys_until_it_is_claimed,
    epochs_grow_across_reopening,
    shards_do_not_mix,
    a_shard_knows_the_topics_of_its_subscriptions_and_no_others,
    laggards_are_listed_page_by_page_of_a_shard_or_of_one_topic_in_it,
    skips_are_listed_up_to_the_limit,
    what_one_subscription_has_missed_is_found_among_that_of_ten_thousands,
    what_is_replayed_was_not_given_up,
    a_replay_of_thousands_of_skips_forgets_them_all_but_the_newest,
    gaps_are_listed_in_the_order_of_time_and_forgotten_with_it,
    every_subscription_stands_somewhere_with_every_notification,
    a_paused_topic_stays_paused_until_it_is_resumed,
);

const WATERMARK: Watermark =
    Watermark { done: Offset(1), sweep: Some(Sweep { target: Offset(2), through: SubscriptionId(7) }) };

fn skip(subscription: &Subscription, offset: u64) -> Skip {
    Skip {
        topic: subscription.topic,
        subscription: subscription.id,
        offset: Offset(offset),
        at: at(1_700_000_000),
        class: FailureClass::Refused,
        status: Some(403),
    }
}

async fn progress_is_found_again_after_reopening(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    append(&*store, posted(&url, "x")).await;
    let (shard, subscription) = subscribe(&*store, &url, &callback("d")).await;
    let laggards =
        [FailureClass::NotFailed, FailureClass::Refused, FailureClass::Trouble, FailureClass::Gone];
    let epoch = store.claim(shard).await.unwrap();
    for class in laggards {
        let laggard = Laggard { class, failing: None, ..behind(&subscription, 1) };
        let checkpoint = Checkpoint {
            watermarks: vec![(subscription.topic, WATERMARK)],
            laggards: vec![laggard],
            skips: vec![skip(&subscription, 1)],
            caught_up: vec![],
            gaps: vec![],
            replayed: vec![],
        };
        store.checkpoint(shard, epoch, checkpoint).await.unwrap();
        assert_eq!(store.load_shard(shard).await.unwrap().laggards, [laggard]);
    }
    let store = place.reopen(store).await;
    let state = store.load_shard(shard).await.unwrap();
    assert_eq!(state.topics, [the(&*store, &url).await]);
    assert_eq!(state.watermarks, [(subscription.topic, WATERMARK)]);
    assert_eq!(state.laggards.len(), 1);
    assert_eq!(state.laggards[0].class, FailureClass::Gone);
    assert_eq!(state.slots.len(), 1);
    assert_eq!(state.slots[0].id, subscription.id);
    assert_eq!(state.slots[0].lease_end, subscription.lease_end);
    assert_eq!(store.skips(shard, None, 10).await.unwrap(), [skip(&subscription, 1)]);
}

async fn a_subscription_that_caught_up_is_no_laggard_any_more(place: Place) {
    let store = place.open().await;
    let (shard, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let epoch = store.claim(shard).await.unwrap();
    let late = Checkpoint { laggards: vec![behind(&subscription, 0)], ..Checkpoint::default() };
    store.checkpoint(shard, epoch, late).await.unwrap();
    let done = Checkpoint { caught_up: vec![(subscription.topic, subscription.id)], ..Checkpoint::default() };
    store.checkpoint(shard, epoch, done).await.unwrap();
    let store = place.reopen(store).await;
    assert!(store.load_shard(shard).await.unwrap().laggards.is_empty());
}

async fn laggards_of_ended_subscriptions_are_left_out(place: Place) {
    let store = place.open().await;
    let (shard, ended) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let (_, alive) = subscribe(&*store, &topic("t"), &callback("e")).await;
    let epoch = store.claim(shard).await.unwrap();
    let checkpoint =
        || Checkpoint { laggards: vec![behind(&ended, 0), behind(&alive, 0)], ..Checkpoint::default() };
    // In one group or in two, the end comes first.
    let (end, saved) = tokio::join!(
        store.end(shard, epoch, ended.topic, ended.id, gone(&ended)),
        store.checkpoint(shard, epoch, checkpoint())
    );
    end.unwrap();
    saved.unwrap();
    assert_eq!(store.load_shard(shard).await.unwrap().laggards, [behind(&alive, 0)]);
    store.checkpoint(shard, epoch, checkpoint()).await.unwrap();
    let store = place.reopen(store).await;
    assert_eq!(store.load_shard(shard).await.unwrap().laggards, [behind(&alive, 0)]);
}

async fn a_subscription_that_is_in_both_lists_stays_a_laggard(place: Place) {
    let store = place.open().await;
    let (shard, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let epoch = store.claim(shard).await.unwrap();
    let checkpoint = Checkpoint {
        laggards: vec![behind(&subscription, 0)],
        caught_up: vec![(subscription.topic, subscription.id)],
        ..Checkpoint::default()
    };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    assert_eq!(store.load_shard(shard).await.unwrap().laggards.len(), 1);
}

async fn an_owner_with_an_older_epoch_is_refused(place: Place) {
    let store = place.open().await;
    let paused = store.claim(Shard(3)).await.unwrap();
    let successor = store.claim(Shard(3)).await.unwrap();
    assert!(paused < successor);
    let outcome = store.checkpoint(Shard(3), paused, Checkpoint::default()).await;
    assert!(matches!(outcome, Err(StoreError::Fenced)), "{outcome:?}");
    store.checkpoint(Shard(3), successor, Checkpoint::default()).await.unwrap();
}

async fn a_refused_checkpoint_changes_nothing(place: Place) {
    let store = place.open().await;
    let (shard, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let paused = store.claim(shard).await.unwrap();
    store.claim(shard).await.unwrap();
    let checkpoint = Checkpoint {
        watermarks: vec![(subscription.topic, WATERMARK)],
        laggards: vec![behind(&subscription, 0)],
        skips: vec![skip(&subscription, 1)],
        caught_up: vec![],
        gaps: vec![],
        replayed: vec![],
    };
    assert!(store.checkpoint(shard, paused, checkpoint).await.is_err());
    let state = store.load_shard(shard).await.unwrap();
    assert!(state.watermarks.is_empty() && state.laggards.is_empty());
    assert!(store.skips(shard, None, 10).await.unwrap().is_empty());
}

async fn a_former_owner_ends_no_subscription(place: Place) {
    let store = place.open().await;
    let (shard, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let former = store.claim(shard).await.unwrap();
    let owner = store.claim(shard).await.unwrap();
    let mut events = store.watch();
    let end = async |epoch, id| store.end(shard, epoch, subscription.topic, id, gone(&subscription)).await;
    for id in [subscription.id, SubscriptionId(subscription.id.0 + 1)] {
        let outcome = end(former, id).await;
        assert!(matches!(outcome, Err(StoreError::Fenced)), "{outcome:?}");
    }
    assert!(told(&mut events).is_empty());
    assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_some());
    end(owner, subscription.id).await.unwrap();
    assert!(store.find_subscription(&topic("t"), &callback("d")).await.unwrap().is_none());
}

async fn nobody_owns_a_shard_that_was_never_claimed(place: Place) {
    let store = place.open().await;
    let outcome = store.checkpoint(Shard(0), Epoch(1), Checkpoint::default()).await;
    assert!(matches!(outcome, Err(StoreError::Fenced)), "{outcome:?}");
}

async fn a_shard_that_was_released_is_nobodys_until_it_is_claimed(place: Place) {
    let store = place.open().await;
    let owner = store.claim(Shard(3)).await.unwrap();
    store.release(Shard(3), owner).await.unwrap();
    let store = place.reopen(store).await;
    let outcome = store.checkpoint(Shard(3), owner, Checkpoint::default()).await;
    assert!(matches!(outcome, Err(StoreError::Fenced)), "{outcome:?}");
    let again = store.release(Shard(3), owner).await;
    assert!(matches!(again, Err(StoreError::Fenced)), "{again:?}");
    let next = store.claim(Shard(3)).await.unwrap();
    assert!(owner < next);
    let late = store.release(Shard(3), owner).await;
    assert!(matches!(late, Err(StoreError::Fenced)), "{late:?}");
    store.checkpoint(Shard(3), next, Checkpoint::default()).await.unwrap();
}

async fn laggards_are_listed_page_by_page_of_a_shard_or_of_one_topic_in_it(place: Place) {
    let store = place.open().await;
    let mut late = Vec::new();
    let mut shard = Shard(0);
    for (name, callbacks) in [("t", ["a", "b", "c"]), ("u", ["d", "e", "f"])] {
        for name_of in callbacks {
            let (of, subscription) = subscribe(&*store, &topic(name), &callback(name_of)).await;
            shard = of;
            late.push(behind(&subscription, 0));
        }
    }
    let (_, up_to_date) = subscribe(&*store, &topic("t"), &callback("g")).await;
    let epoch = store.claim(shard).await.unwrap();
    let checkpoint = Checkpoint { laggards: late.clone(), ..Checkpoint::default() };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    late.sort_unstable_by_key(|laggard| (laggard.topic, laggard.subscription));

    let store = place.reopen(store).await;
    for of in [None, Some(up_to_date.topic)] {
        let wanted: Vec<_> =
            late.iter().copied().filter(|late| of.is_none_or(|of| of == late.topic)).collect();
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = store.laggards_of(shard, of, after, 2).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.topic, last.subscription));
            assert!(page.len() <= 2);
            seen.extend(page);
        }
        assert_eq!(seen, wanted, "{of:?}");
    }
    let other = Shard((shard.0 + 1) % store.shards());
    assert!(store.laggards_of(other, None, None, 2).await.unwrap().is_empty());
}

async fn epochs_grow_across_reopening(place: Place) {
    let store = place.open().await;
    let before = store.claim(Shard(0)).await.unwrap();
    let store = place.reopen(store).await;
    store.checkpoint(Shard(0), before, Checkpoint::default()).await.unwrap();
    let after = store.claim(Shard(0)).await.unwrap();
    assert!(before < after);
    let outcome = store.checkpoint(Shard(0), before, Checkpoint::default()).await;
    assert!(matches!(outcome, Err(StoreError::Fenced)), "{outcome:?}");
}

async fn shards_do_not_mix(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    for number in 0..40 {
        let callback =
            resync_core::websub::CallbackUrl::parse(&format!("http://d{number}.example/cb")).unwrap();
        subscribe(&*store, &url, &callback).await;
    }
    let mut seen = 0;
    let mut used = 0;
    for shard in (0..store.shards()).map(Shard) {
        let state = store.load_shard(shard).await.unwrap();
        for slot in &state.slots {
            let callback = resync_core::websub::CallbackUrl::parse(&slot.origin).unwrap();
            assert_eq!(Shard::of(&callback, store.shards()), shard);
        }
        seen += state.slots.len();
        used += usize::from(!state.slots.is_empty());
    }
    assert_eq!(seen, 40);
    assert!(used > 1, "forty origins should not share one shard");
}

async fn a_shard_knows_the_topics_of_its_subscriptions_and_no_others(place: Place) {
    let store = place.open().await;
    append(&*store, posted(&topic("nobody-subscribed"), "x")).await;
    let (shard, _) = subscribe(&*store, &topic("a"), &callback("d")).await;
    subscribe(&*store, &topic("b"), &callback("d")).await;
    subscribe(&*store, &topic("a"), &callback("e")).await;
    let mut urls: Vec<_> =
        store.load_shard(shard).await.unwrap().topics.into_iter().map(|topic| topic.url).collect();
    urls.sort();
    assert_eq!(urls, [topic("a"), topic("b")]);
}

async fn skips_are_listed_up_to_the_limit(place: Place) {
    let store = place.open().await;
    let (shard, subscription) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let epoch = store.claim(shard).await.unwrap();
    let skips: Vec<_> = (1..=5).map(|offset| skip(&subscription, offset)).collect();
    // A repeated checkpoint, as after a crash, counts each once.
    for _ in 0..2 {
        let checkpoint = Checkpoint { skips: skips.clone(), ..Checkpoint::default() };
        store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    }
    assert_eq!(store.skips(shard, None, 100).await.unwrap(), skips);
    assert_eq!(store.skips(shard, None, 2).await.unwrap(), skips[..2]);
    let after = Some((skips[1].topic, skips[1].offset, skips[1].subscription));
    assert_eq!(store.skips(shard, after, 100).await.unwrap(), skips[2..]);
    assert!(store.skips(Shard((shard.0 + 1) % store.shards()), None, 100).await.unwrap().is_empty());
}

async fn every_subscription_stands_somewhere_with_every_notification(place: Place) {
    let store = place.open().await;
    let (url, other) = (topic("t"), topic("other"));
    // One origin, so that all of them are in one shard.
    let mut subscriptions = Vec::new();
    for name in ["a", "b", "c", "d"] {
        subscriptions.push(subscribe(&*store, &url, &callback(name)).await.1);
    }
    subscribe(&*store, &other, &callback("a")).await;
    let (id, offset) = append(&*store, posted(&url, "x")).await;
    let (shard, _) = subscribe(&*store, &url, &callback("late")).await;
    let standing = async || store.standing(id, offset).await.unwrap();
    assert_eq!(standing().await, NotificationProgress { delivered: 0, owing: 4, skipped: 0 });

    // The sweep has passed the first three; of these one is behind and one was given up.
    let epoch = store.claim(shard).await.unwrap();
    let through = subscriptions[2].id;
    let checkpoint = Checkpoint {
        watermarks: vec![(id, Watermark { done: Offset(0), sweep: Some(Sweep { target: offset, through }) })],
        laggards: vec![behind(&subscriptions[0], 0)],
        skips: vec![skip(&subscriptions[1], offset.0)],
        caught_up: vec![],
        gaps: vec![],
        replayed: vec![],
    };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    assert_eq!(standing().await, NotificationProgress { delivered: 1, owing: 2, skipped: 1 });

    let checkpoint = Checkpoint {
        watermarks: vec![(id, Watermark { done: offset, sweep: None })],
        caught_up: vec![(id, subscriptions[0].id)],
        ..Checkpoint::default()
    };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    assert_eq!(standing().await, NotificationProgress { delivered: 3, owing: 0, skipped: 1 });
}

async fn a_paused_topic_stays_paused_until_it_is_resumed(place: Place) {
    let store = place.open().await;
    let url = topic("t");
    let (shard, subscription) = subscribe(&*store, &url, &callback("d")).await;
    let mut events = store.watch();
    assert!(!store.pause(TopicId(subscription.topic.0 ^ 1)).await.unwrap(), "there is no such topic");
    assert!(store.pause(subscription.topic).await.unwrap());
    assert!(matches!(events.try_recv(), Ok(StoreEvent::Paused { topic }) if topic == subscription.topic));
    drop(events);
    let store = place.reopen(store).await;
    assert_eq!(store.paused().await.unwrap(), [subscription.topic]);
    assert_eq!(store.load_shard(shard).await.unwrap().paused, [subscription.topic]);
    store.resume(subscription.topic).await.unwrap();
    assert!(store.paused().await.unwrap().is_empty());
}

async fn gaps_are_listed_in_the_order_of_time_and_forgotten_with_it(place: Place) {
    let store = place.open().await;
    let (shard, one) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let (_, other) = subscribe(&*store, &topic("u"), &callback("d")).await;
    let epoch = store.claim(shard).await.unwrap();
    let gap = |subscription: &Subscription, seconds, from| Gap {
        topic: subscription.topic,
        subscription: subscription.id,
        from: Offset(from),
        to: Offset(from + 2),
        at: at(seconds),
    };
    let gaps = [gap(&one, 10, 1), gap(&other, 20, 1), gap(&one, 30, 4), gap(&one, 40, 9)];
    for gap in gaps.iter().rev() {
        let checkpoint = Checkpoint { gaps: vec![*gap], ..Checkpoint::default() };
        store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    }
    let store = place.reopen(store).await;
    assert_eq!(store.gaps(None, 10).await.unwrap(), gaps);
    assert_eq!(store.gaps(None, 2).await.unwrap(), gaps[..2]);
    assert_eq!(store.gaps(Some(gaps[1]), 10).await.unwrap(), gaps[2..]);
    store.trim(at(30), within(u64::MAX)).await.unwrap();
    assert_eq!(store.gaps(None, 10).await.unwrap(), gaps[2..]);
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}

async fn what_one_subscription_has_missed_is_found_among_that_of_ten_thousands(place: Place) {
    let store = place.open().await;
    let (url, callback) = (topic("t"), callback("d"));
    for _ in 0..2 {
        append(&*store, posted(&url, "x")).await;
    }
    let request = ask_to_subscribe(&*store, &url, &callback, "s").await;
    activate(&*store, &request, at(20)).await;
    let one = &store.find_subscription(&url, &callback).await.unwrap().unwrap();
    let shard = Shard::of(&callback, store.shards());
    let epoch = store.claim(shard).await.unwrap();
    let gap = |subscription, seconds| Gap {
        topic: one.topic,
        subscription,
        from: Offset(1),
        to: Offset(1),
        at: at(seconds),
    };
    let others = |count| (1..=count).map(move |number| SubscriptionId(one.id.0 + number));
    let skips = |offset, count| others(count).map(move |id| Skip { subscription: id, ..skip(one, offset) });
    let gaps = |seconds, count| others(count).map(move |id| gap(id, seconds));
    // The second gap was noted by a clock that was set back by then.
    let (hour, day) = (3_600, 24 * 3_600);
    let (own_skips, own_gaps) = ([skip(one, 9), skip(one, 7)], [gap(one.id, 50), gap(one.id, -hour)]);
    let checkpoint = Checkpoint {
        skips: skips(2, 12_000).chain(skips(8, 3)).chain(own_skips).collect(),
        gaps: gaps(-day, 12_000).chain(gaps(40, 3)).chain(own_gaps).collect(),
        ..Checkpoint::default()
    };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    let missed = async |limit| store.missed(shard, one, limit).await.unwrap();
    // What is from before it began is not looked at, and of what came after the newest is.
    assert_eq!(missed(5).await, Missed { skips: own_skips.to_vec(), gaps: own_gaps.to_vec(), all: true });
    let newest = Missed { skips: own_skips[..1].to_vec(), gaps: own_gaps[..1].to_vec(), all: false };
    assert_eq!(missed(4).await, newest);
    assert_eq!(missed(0).await, Missed::default());
}

async fn what_is_replayed_was_not_given_up(place: Place) {
    let store = place.open().await;
    let (shard, one) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let (_, two) = subscribe(&*store, &topic("t"), &callback("e")).await;
    let (_, other) = subscribe(&*store, &topic("u"), &callback("d")).await;
    let epoch = store.claim(shard).await.unwrap();
    let save = async |skips: Vec<Skip>, replayed: Vec<Replayed>| {
        let checkpoint = Checkpoint { skips, replayed, ..Checkpoint::default() };
        store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    };
    let given_up = async || {
        let skips = store.skips(shard, None, 100).await.unwrap();
        let mut places: Vec<_> = skips.iter().map(|skip| (skip.subscription, skip.offset.0)).collect();
        places.sort_unstable();
        places
    };
    let skips = [&one, &two, &other].into_iter().flat_map(|of| (1..=3).map(|offset| skip(of, offset)));
    save(skips.collect(), vec![]).await;
    let topic = one.topic;
    save(vec![], vec![Replayed { topic, subscription: Some(one.id), from: Offset(2) }]).await;
    let others = [1, 2, 3].map(|offset| (other.id, offset));
    let mut left = vec![(one.id, 1), (two.id, 1), (two.id, 2), (two.id, 3)];
    left.extend(others);
    assert_eq!(given_up().await, left);
    // What fails again is given up again.
    save(vec![skip(&two, 3)], vec![Replayed { topic, subscription: None, from: Offset(1) }]).await;
    let mut left = vec![(two.id, 3)];
    left.extend(others);
    assert_eq!(given_up().await, left);
}

async fn a_replay_of_thousands_of_skips_forgets_them_all_but_the_newest(place: Place) {
    let store = place.open().await;
    let (shard, one) = subscribe(&*store, &topic("t"), &callback("d")).await;
    let (_, other) = subscribe(&*store, &topic("t"), &callback("e")).await;
    let epoch = store.claim(shard).await.unwrap();
    let of = |subscription: &Subscription| -> Vec<_> {
        (1..=3_000).map(|offset| skip(subscription, offset)).collect()
    };
    let skips = [of(&one), of(&other)].concat();
    store.checkpoint(shard, epoch, Checkpoint { skips, ..Checkpoint::default() }).await.unwrap();
    let again = Skip { at: at(1_000), ..skip(&one, 2_500) };
    let replayed = Replayed { topic: one.topic, subscription: Some(one.id), from: Offset(2) };
    let checkpoint = Checkpoint { skips: vec![again], replayed: vec![replayed], ..Checkpoint::default() };
    store.checkpoint(shard, epoch, checkpoint).await.unwrap();
    let (mut left, others): (Vec<_>, Vec<_>) = store
        .skips(shard, None, 10_000)
        .await
        .unwrap()
        .into_iter()
        .partition(|skip| skip.subscription == one.id);
    left.sort_by_key(|skip| skip.offset);
    assert_eq!(left, [skip(&one, 1), again]);
    assert_eq!(others, of(&other));
}
