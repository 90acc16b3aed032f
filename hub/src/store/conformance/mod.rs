//! What every engine has to do, told as tests that run against each of them.

mod backups;
#[cfg(feature = "postgres")]
mod databases;
mod delivery;
mod denials;
#[cfg(feature = "postgres")]
mod feed;
mod folders;
#[cfg(feature = "postgres")]
mod leaping;
mod log;
mod model;
mod opening;
mod orders;
mod place;
mod registry;
mod reopening;
mod requests;
mod retention;
mod secrets;
mod shares;
mod subscribing;
#[cfg(feature = "postgres")]
mod two_handles;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Secret, TopicUrl};

use self::place::Place;
#[cfg(feature = "postgres")]
pub(crate) use self::place::SharedDatabase;
use super::{
    Activation, Appended, ContentKind, Denial, Ended, Epoch, Failing, FailureClass, Intent, Keyring, Laggard,
    NewNotification, NewRequest, Notification, NotificationLinks, Offset, Payer, PendingRequest, Ping,
    PingClient, Shard, Shares, Store, StoreEvent, Subscription, Topic, TopicId,
};
use crate::store::{VerifiedSubscription, VerifiedUnsubscription};

/// Runs each test of the file on each engine.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        crate::store::conformance::on_embedded_engines!($($test),+);
        #[cfg(feature = "postgres")]
        crate::store::conformance::on_postgres!($($test),+);
    };
}

/// Runs each test of the file on a database.
#[cfg(feature = "postgres")]
macro_rules! on_postgres {
    ($($test:ident),+ $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(place) = crate::store::conformance::Place::in_postgres() {
                    super::$test(place).await;
                }
            })+
        }
    };
}

/// Runs each test of the file on each engine that keeps its records in a folder.
macro_rules! on_embedded_engines {
    ($($test:ident),+ $(,)?) => {
        mod fjall {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::store::conformance::Place::embedded(crate::store::Engine::Fjall)).await;
            })+
        }
        #[cfg(feature = "sled")]
        mod sled {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::store::conformance::Place::embedded(crate::store::Engine::Sled)).await;
            })+
        }
    };
}
#[cfg(feature = "postgres")]
use on_postgres;
use {on_embedded_engines, on_every_engine};

const DAY: Duration = Duration::from_secs(86_400);
const LEASE: Duration = Duration::from_secs(3_600);

/// Of a shard that nobody has claimed.
const UNCLAIMED: Epoch = Epoch(0);

fn topic(name: &str) -> TopicUrl {
    TopicUrl::parse(&format!("https://source.example/{name}")).unwrap()
}

fn callback(name: &str) -> CallbackUrl {
    CallbackUrl::parse(&format!("https://destination.example/{name}")).unwrap()
}

fn at(seconds: i64) -> DateTime {
    DateTime::from_unix_millis(seconds * 1000).unwrap()
}

/// A posted notification, for the tests of other modules too.
pub(crate) fn posted(topic: &TopicUrl, body: impl Into<Bytes>) -> NewNotification {
    NewNotification {
        topic: topic.clone(),
        content_type: Bytes::from_static(b"application/xml"),
        links: NotificationLinks {
            hubs: vec!["https://hub.example/websub/".into()],
            canonical: topic.as_str().into(),
            resourcesync: None,
        },
        body: body.into(),
        kind: ContentKind::Posted,
        payer: Payer::Publishers,
        idempotency_key: None,
        interval: None,
        validators: None,
        received_at: DateTime::now(),
        trace: None,
    }
}

/// A log of topics that publishers speak for.
fn within(publishers: u64) -> Shares {
    Shares { publishers, strangers: 0 }
}

fn named(notification: NewNotification, key: &str, received_at: DateTime) -> NewNotification {
    NewNotification { idempotency_key: Some(key.into()), received_at, ..notification }
}

async fn append(store: &dyn Store, notification: NewNotification) -> (TopicId, Offset) {
    let id = store.append(notification, DAY).await.unwrap().id();
    (TopicId(id.topic), Offset(id.offset))
}

/// The notification at this very offset.
async fn read(store: &dyn Store, topic: TopicId, offset: Offset) -> Option<Arc<Notification>> {
    let found = store.notification_from(topic, offset).await.unwrap();
    found.filter(|notification| notification.offset == offset)
}

fn is_new(appended: Appended) -> bool {
    matches!(appended, Appended::New(_))
}

async fn the(store: &dyn Store, url: &TopicUrl) -> Topic {
    store.topic(url).await.unwrap().unwrap()
}

fn secret(text: &str) -> Secret {
    Secret::new(text.as_bytes().to_vec()).unwrap()
}

async fn ask(store: &dyn Store, topic: &TopicUrl, callback: &CallbackUrl, intent: Intent) -> PendingRequest {
    ask_from(store, None, topic, callback, intent).await
}

async fn ask_from(
    store: &dyn Store,
    client: Option<IpAddr>,
    topic: &TopicUrl,
    callback: &CallbackUrl,
    intent: Intent,
) -> PendingRequest {
    let (topic, callback, received_at) = (topic.clone(), callback.clone(), DateTime::now());
    store
        .put_request(NewRequest { topic, callback, intent, verify_token: None, received_at, client })
        .await
        .unwrap()
}

async fn ask_to_subscribe(
    store: &dyn Store,
    topic: &TopicUrl,
    callback: &CallbackUrl,
    key: &str,
) -> PendingRequest {
    ask(store, topic, callback, Intent::Subscribe { lease: Some(60), secret: Some(secret(key)) }).await
}

/// What a hub may own: nothing, every second shard, the others, all, and each alone.
fn owned_by_hubs(store: &dyn Store) -> Vec<Vec<Shard>> {
    let all = store.all_shards();
    let (odd, even): (Vec<_>, Vec<_>) = all.iter().copied().partition(|shard| shard.0 % 2 == 1);
    let each = all.iter().map(|shard| vec![*shard]);
    [Vec::new(), odd, even, all.clone()].into_iter().chain(each).collect()
}

/// All requests that wait, the oldest first.
async fn waiting(store: &dyn Store) -> Vec<PendingRequest> {
    store.requests(&store.all_shards()).await.unwrap()
}

/// All denials of which callbacks are to be informed, the oldest first.
async fn untold(store: &dyn Store) -> Vec<Denial> {
    store.denials(&store.all_shards()).await.unwrap()
}

/// Clients that ping one topic, one after the other, and whose ping it is then.
const PINGED_BY: [(PingClient, PingClient); 4] = [
    (client(1, false), client(1, false)),
    (client(2, true), client(2, true)),
    (client(3, false), client(2, true)),
    (client(4, true), client(4, true)),
];

const fn client(last: u8, is_trusted: bool) -> PingClient {
    PingClient { network: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))), is_trusted }
}

/// All pings that wait, the oldest first.
async fn pinged(store: &dyn Store) -> Vec<Ping> {
    store.pings(&store.all_shards()).await.unwrap()
}

async fn activate(store: &dyn Store, request: &PendingRequest, asked_at: DateTime) -> Activation {
    store.activate(VerifiedSubscription::assumed(request.clone(), LEASE, asked_at)).await.unwrap()
}

async fn deactivate(store: &dyn Store, request: &PendingRequest) -> Activation {
    store.deactivate(VerifiedUnsubscription::assumed(request.clone())).await.unwrap()
}

/// A subscription in force, for the tests of other modules too.
pub(crate) async fn subscribe(
    store: &dyn Store,
    topic: &TopicUrl,
    callback: &CallbackUrl,
) -> (Shard, Subscription) {
    let request = ask_to_subscribe(store, topic, callback, "first secret").await;
    assert!(matches!(activate(store, &request, DateTime::now()).await, Activation::Done));
    let shard = Shard::of(callback, store.shards());
    (shard, store.find_subscription(topic, callback).await.unwrap().unwrap())
}

fn behind(subscription: &Subscription, cursor: u64) -> Laggard {
    Laggard {
        topic: subscription.topic,
        subscription: subscription.id,
        cursor: Offset(cursor),
        streak_failures: 3,
        next_attempt: at(2_000_000_000),
        pause: Duration::from_secs(3_600),
        failing: Some(Failing { since: at(1_000_000_000), lasted: Duration::from_secs(90) }),
        class: FailureClass::Trouble,
    }
}

/// It has answered 410 twice under the lease that it has.
fn gone(subscription: &Subscription) -> Ended {
    Ended::Gone { lease_end: subscription.lease_end }
}

/// What has been told so far.
fn told(events: &mut tokio::sync::mpsc::UnboundedReceiver<StoreEvent>) -> Vec<StoreEvent> {
    std::iter::from_fn(|| events.try_recv().ok()).collect()
}
