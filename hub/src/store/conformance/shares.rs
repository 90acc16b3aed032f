//! Topics that a publisher speaks for and those that strangers have fetched do not take each other's room.

use std::net::IpAddr;

use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};

use super::{
    Place, UNCLAIMED, activate, append, at, callback, gone, on_every_engine, posted, subscribe, topic,
};
use crate::store::{
    Additions, ClientUsage, ContentKind, Intent, NewNotification, NewRequest, Offset, Payer, Shard, Shares,
    Store, SubscriptionCounts, Trimmed, Validators,
};

on_every_engine!(
    strangers_take_no_room_from_publishers_nor_they_from_strangers,
    of_strangers_who_takes_most_makes_room_by_network_then_by_host,
    of_strangers_the_client_that_brought_most_makes_room_before_others_on_the_same_host,
    where_strangers_have_too_much_their_newest_goes_too,
    of_what_made_room_no_validators_stay_so_that_it_is_fetched_again,
    who_posts_speaks_for_the_topic_from_then_on,
    a_topic_that_was_pinged_with_a_token_takes_the_publishers_share_with_its_whole_log_and_for_good,
    what_strangers_have_without_a_subscription_goes_with_the_next_trim,
    a_topic_counts_for_who_brought_it_until_nobody_is_subscribed,
    what_each_takes_is_known_after_reopening,
    what_a_client_has_is_known_after_reopening_and_given_back,
);

const MUCH: u64 = u64::MAX;

fn url(name: &str) -> TopicUrl {
    format!("https://{name}.example/t").parse().unwrap()
}

/// What a notification of this topic weighs, with a body of so many bytes.
fn weight(name: &str, bytes: usize) -> u64 {
    posted(&url(name), vec![7; bytes]).weight()
}

async fn fetch(store: &dyn Store, name: &str, network: u8, second: i64, bytes: usize) -> Offset {
    append(store, fetched(&url(name), network, second, bytes)).await.1
}

fn fetched(topic: &TopicUrl, network: u8, second: i64, bytes: usize) -> NewNotification {
    let payer = Payer::Strangers(Some(IpAddr::from([192, 0, network, 0])));
    let received_at = at(second);
    NewNotification { kind: ContentKind::Fetched, payer, received_at, ..posted(topic, vec![7; bytes]) }
}

/// A subscription in force that this client has asked for.
async fn subscribe_from(store: &dyn Store, client: Option<IpAddr>, topic: &TopicUrl, at: &CallbackUrl) {
    let intent = Intent::Subscribe { lease: None, secret: None };
    let (topic, callback, received_at) = (topic.clone(), at.clone(), DateTime::now());
    let request = NewRequest { topic, callback, intent, verify_token: None, received_at, client };
    let request = store.put_request(request).await.unwrap();
    activate(store, &request, DateTime::now()).await;
}

async fn first(store: &dyn Store, name: &str) -> u64 {
    store.topic(&url(name)).await.unwrap().unwrap().first.0
}

async fn strangers_take_no_room_from_publishers_nor_they_from_strangers(place: Place) {
    let store = place.open().await;
    let spoken_for = topic("t");
    subscribe(&*store, &spoken_for, &callback("d")).await;
    for second in 1..=6 {
        append(&*store, NewNotification { received_at: at(second), ..posted(&spoken_for, vec![7; 100]) })
            .await;
    }
    for number in 0..9 {
        let name = format!("s{number}");
        subscribe(&*store, &url(&name), &callback("d")).await;
        fetch(&*store, &name, 1, 10 + number, 1_000).await;
    }
    let (each, fetched) = (posted(&spoken_for, vec![7; 100]).weight(), weight("s0", 1_000));
    let strangers = 2 * fetched;
    store.trim(at(0), Shares { publishers: 6 * each, strangers }).await.unwrap();
    let usage = store.usage();
    assert_eq!((usage.log_bytes - usage.strangers_bytes, usage.strangers_bytes), (6 * each, fetched));
    assert_eq!(store.topic(&spoken_for).await.unwrap().unwrap().first, Offset(1));
    let trimmed = store.trim(at(0), Shares { publishers: 3 * each + each / 2, strangers }).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 3, bytes: 3 * each, early: 3 });
    assert_eq!(store.usage().strangers_bytes, fetched);
}

async fn of_strangers_who_takes_most_makes_room_by_network_then_by_host(place: Place) {
    let store = place.open().await;
    fetch(&*store, "quiet", 1, 1, 300).await;
    fetch(&*store, "neighbour", 2, 2, 200).await;
    for second in 3..=9 {
        fetch(&*store, "greedy", 2, second, 300).await;
    }
    let (greedy, others) = (weight("greedy", 300), weight("quiet", 300) + weight("neighbour", 200));
    // A sixteenth is made free beyond the share.
    let strangers = (others + 3 * greedy + greedy / 2) * 16 / 15;
    let shares = Shares { publishers: 0, strangers };
    let trimmed = store.make_room(shares).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 4, bytes: 4 * greedy, early: 4 });
    assert_eq!(first(&*store, "greedy").await, 5);
    assert_eq!((first(&*store, "quiet").await, first(&*store, "neighbour").await), (1, 1));
    assert_eq!(store.make_room(shares).await.unwrap(), Trimmed::default(), "now there is room");
}

async fn of_strangers_the_client_that_brought_most_makes_room_before_others_on_the_same_host(place: Place) {
    let store = place.open().await;
    let [reader, greedy] = [1, 2].map(|last| Some(IpAddr::from([198, 51, 100, last])));
    let [feed, other] = ["feed", "other"].map(|path| format!("https://blog.example/{path}").parse().unwrap());
    let variants = (0..6).map(|number| format!("https://blog.example/feed?n={number}").parse().unwrap());
    let variants: Vec<TopicUrl> = variants.collect();
    for topic in [&feed, &other] {
        subscribe_from(&*store, reader, topic, &callback("d")).await;
        append(&*store, fetched(topic, 1, 1, 900)).await;
    }
    for topic in &variants {
        subscribe_from(&*store, greedy, topic, &callback("e")).await;
        append(&*store, fetched(topic, 1, 2, 100)).await;
    }
    let store = place.reopen(store).await;
    let weigh = |topic: &TopicUrl, bytes| posted(topic, vec![7; bytes]).weight();
    let read = weigh(&feed, 900) + weigh(&other, 900);
    let taken = store.usage().strangers_bytes;
    assert!(taken - read > read, "each of theirs is smaller than any of the reader's, all together are not");
    store.make_room(Shares { publishers: MUCH, strangers: taken - 1 }).await.unwrap();
    for topic in [&feed, &other] {
        assert_eq!(store.topic(topic).await.unwrap().unwrap().first, Offset(1));
    }
    assert!(store.usage().strangers_bytes < taken);
}

async fn where_strangers_have_too_much_their_newest_goes_too(place: Place) {
    let store = place.open().await;
    let url = url("greedy");
    subscribe(&*store, &url, &callback("d")).await;
    fetch(&*store, "greedy", 1, 1, 900).await;
    let strangers = weight("greedy", 900) - 1;
    store.make_room(Shares { publishers: MUCH, strangers }).await.unwrap();
    let topic = store.topic(&url).await.unwrap().unwrap();
    assert_eq!((topic.first, topic.head, store.usage().log_bytes), (Offset(2), Offset(1), 0));
    assert_eq!(fetch(&*store, "greedy", 1, 2, 100).await, Offset(2), "it goes on behind that");
    let store = place.reopen(store).await;
    assert_eq!(store.usage().strangers_bytes, weight("greedy", 100));
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}

async fn of_what_made_room_no_validators_stay_so_that_it_is_fetched_again(place: Place) {
    let store = place.open().await;
    let url = url("greedy");
    subscribe(&*store, &url, &callback("d")).await;
    let validators = Validators {
        url: url.as_str().to_owned(),
        etag: Some("\"1\"".into()),
        last_modified: None,
        digest: [7; 32],
    };
    let (payer, kind) = (Payer::Strangers(None), ContentKind::Fetched);
    let fetched =
        NewNotification { kind, payer, validators: Some(validators.clone()), ..posted(&url, vec![7; 900]) };
    let (id, version) = append(&*store, fetched.clone()).await;
    assert_eq!(store.validators(id, version).await.unwrap().as_ref(), Some(&validators));
    let too_much = Shares { publishers: MUCH, strangers: fetched.weight() - 1 };
    store.make_room(too_much).await.unwrap();
    assert_eq!(store.validators(id, version).await.unwrap(), None);
    // A fetch that began before finds nothing new, and says so after.
    store.put_validators(id, version, validators.clone()).await.unwrap();
    let store = place.reopen(store).await;
    assert_eq!(store.validators(id, version).await.unwrap(), None);
    let (_, version) = append(&*store, fetched).await;
    assert_eq!(store.validators(id, version).await.unwrap(), Some(validators));
}

async fn who_posts_speaks_for_the_topic_from_then_on(place: Place) {
    let store = place.open().await;
    fetch(&*store, "t", 1, 1, 100).await;
    let (large, small) = (weight("t", 100), weight("t", 10));
    assert_eq!(store.usage().strangers_bytes, large);
    append(&*store, posted(&url("t"), vec![7; 10])).await;
    assert_eq!((store.usage().log_bytes, store.usage().strangers_bytes), (large + small, 0));
    fetch(&*store, "t", 1, 2, 100).await;
    assert_eq!((store.usage().log_bytes, store.usage().strangers_bytes), (2 * large + small, 0));
}

async fn a_topic_that_was_pinged_with_a_token_takes_the_publishers_share_with_its_whole_log_and_for_good(
    place: Place,
) {
    let store = place.open().await;
    fetch(&*store, "t", 1, 1, 100).await;
    let each = weight("t", 100);
    assert_eq!(store.usage().strangers_bytes, each);
    let with_token = NewNotification { payer: Payer::Publishers, ..fetched(&url("t"), 1, 2, 100) };
    append(&*store, with_token).await;
    assert_eq!((store.usage().log_bytes, store.usage().strangers_bytes), (2 * each, 0));
    fetch(&*store, "t", 1, 3, 100).await;
    let store = place.reopen(store).await;
    assert_eq!((store.usage().log_bytes, store.usage().strangers_bytes), (3 * each, 0));
}

async fn what_each_takes_is_known_after_reopening(place: Place) {
    let store = place.open().await;
    append(&*store, posted(&url("t"), vec![7; 10])).await;
    for (name, network) in [("a", 1), ("b", 1), ("c", 2)] {
        fetch(&*store, name, network, 1, 100).await;
    }
    let store = place.reopen(store).await;
    let (each, posted) = (weight("a", 100), weight("t", 10));
    assert_eq!((store.usage().log_bytes, store.usage().strangers_bytes), (3 * each + posted, 3 * each));
    store.make_room(Shares { publishers: 0, strangers: 3 * each - 1 }).await.unwrap();
    assert_eq!(first(&*store, "c").await, 1, "the network is known, too");
    assert_eq!(store.usage().strangers_bytes, 2 * each);
}

async fn what_a_client_has_is_known_after_reopening_and_given_back(place: Place) {
    let client = Some(IpAddr::from([192, 0, 2, 1]));
    let of = async |store: &dyn Store| store.accounted(client, &topic("t"), &callback("d")).await.unwrap();
    let store = place.open().await;
    let new = Additions { topic: true, host: true };
    let none_yet = of(&*store).await;
    assert_eq!((none_yet.new_to_client, none_yet.new_to_hub), (new, new));
    let mut subscriptions = Vec::new();
    for (topic, at) in [(topic("t"), callback("d")), (topic("t"), callback("e")), (topic("u"), callback("d"))]
    {
        subscribe_from(&*store, client, &topic, &at).await;
        subscriptions.push(store.find_subscription(&topic, &at).await.unwrap().unwrap());
    }
    let account = SubscriptionCounts { subscriptions: 3, topics: 2, hosts: 1 };
    let all = ClientUsage {
        of_client: account,
        in_all: account,
        new_to_client: Additions::default(),
        new_to_hub: Additions::default(),
    };
    assert_eq!(of(&*store).await, all);
    let store = place.reopen(store).await;
    assert_eq!(of(&*store).await, all);
    let shard = Shard::of(&callback("d"), store.shards());
    for subscription in &subscriptions {
        store.end(shard, UNCLAIMED, subscription.topic, subscription.id, gone(subscription)).await.unwrap();
    }
    // Nobody is subscribed; the hub knows both topics until it trims.
    let none = ClientUsage {
        of_client: SubscriptionCounts::default(),
        in_all: SubscriptionCounts { topics: 2, ..SubscriptionCounts::default() },
        new_to_client: new,
        new_to_hub: Additions { topic: false, host: true },
    };
    assert_eq!(of(&*store).await, none);
    drop(store);
    assert_eq!(place.faults(), [""; 0]);
}

async fn what_strangers_have_without_a_subscription_goes_with_the_next_trim(place: Place) {
    let store = place.open().await;
    fetch(&*store, "left", 1, 1, 100).await;
    fetch(&*store, "needed", 1, 1, 100).await;
    subscribe(&*store, &url("needed"), &callback("d")).await;
    let trimmed = store.trim(at(0), Shares { publishers: MUCH, strangers: MUCH }).await.unwrap();
    assert_eq!(trimmed, Trimmed { notifications: 1, bytes: weight("left", 100), early: 0 });
    assert_eq!(store.topic(&url("left")).await.unwrap(), None);
    assert_eq!(first(&*store, "needed").await, 1);
    let accounted = store.accounted(None, &topic("t"), &callback("d")).await.unwrap();
    assert_eq!(accounted.in_all.topics, 1);
}

async fn a_topic_counts_for_who_brought_it_until_nobody_is_subscribed(place: Place) {
    let client = Some(IpAddr::from([192, 0, 2, 1]));
    let of = async |store: &dyn Store| {
        store.accounted(client, &topic("t"), &callback("d")).await.unwrap().of_client
    };
    let store = place.open().await;
    let mut subscriptions = Vec::new();
    for (at, client) in [(callback("d"), client), (callback("e"), None)] {
        subscribe_from(&*store, client, &topic("t"), &at).await;
        subscriptions.push((store.find_subscription(&topic("t"), &at).await.unwrap().unwrap(), at));
    }
    for (subscription, at) in &subscriptions {
        assert_eq!(of(&*store).await.topics, 1, "also when its own subscription has ended");
        let shard = Shard::of(at, store.shards());
        store.end(shard, UNCLAIMED, subscription.topic, subscription.id, gone(subscription)).await.unwrap();
    }
    assert_eq!(of(&*store).await, SubscriptionCounts::default());
}
