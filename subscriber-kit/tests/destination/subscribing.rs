//! The side of a subscription that speaks first, against hubs made by hand.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{self, Hub, client, status};
use resync_core::websub::key::TopicUrl;
use resync_subscriber_kit::receive::{Callback, CallbackOptions};
use resync_subscriber_kit::state::{Phase, SubscriptionId, Subscriptions};
use resync_subscriber_kit::subscribe::{SubscribeError, Subscriber, SubscriberOptions};
use tokio::net::TcpListener;
use tokio::time::Instant;
use url::Url;

const TOPIC: &str = "http://source.example/topic?a=1&b=%7E";

/// Serves the callback of these subscriptions and gives a subscriber for it.
async fn subscriber(subscriptions: &Subscriptions) -> Subscriber {
    subscriber_with(subscriptions, |options| options).await
}

async fn subscriber_with(
    subscriptions: &Subscriptions,
    change: impl FnOnce(SubscriberOptions) -> SubscriberOptions,
) -> Subscriber {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let prefix = Url::parse(&format!("http://{}/", listener.local_addr().unwrap())).unwrap();
    let (callback, deliveries) = Callback::new(subscriptions, CallbackOptions::default());
    let app = axum::Router::new().fallback_service(callback);
    tokio::spawn(async move {
        let _kept = deliveries;
        axum::serve(listener, app).await
    });
    let options = SubscriberOptions {
        lease: Some(Duration::from_secs(864_000)),
        first_retry: Duration::from_millis(10),
        longest_retry: Duration::from_millis(50),
        ..SubscriberOptions::new(prefix)
    };
    Subscriber::new(client(), subscriptions.clone(), change(options))
}

async fn add(subscriptions: &Subscriptions, hub: &Hub) -> SubscriptionId {
    let hub = Url::parse(&hub.url()).unwrap();
    subscriptions.add(&TopicUrl::parse(TOPIC).unwrap(), &hub).await.unwrap()
}

#[tokio::test]
async fn w005_w006_w040_w041_w043_to_w047_w049_w054_w184_the_request_is_a_form_with_everything_it_needs() {
    let mut hub = Hub::start().await;
    let subscriptions = Subscriptions::in_memory();
    let id = add(&subscriptions, &hub).await;
    let subscriber = subscriber(&subscriptions).await;
    let asking = tokio::spawn(async move { subscriber.subscribe(&id).await });
    let form = hub.form().await;
    assert!(form.start.starts_with("POST "), "{}", form.start);
    assert_eq!(form.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(form.parameter("hub.mode").as_deref(), Some("subscribe"));
    assert_eq!(form.parameter("hub.topic").as_deref(), Some(TOPIC));
    assert_eq!(form.parameter("hub.lease_seconds").as_deref(), Some("864000"));
    let callback = form.parameter("hub.callback").unwrap();
    let token = callback.rsplit('/').next().unwrap();
    assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "W-045: {callback}");
    let secret = form.parameter("hub.secret").unwrap();
    assert!(secret.len() >= 32 && secret.len() < 200 && !callback.contains(&secret), "W-054, W-057");
    asking.abort();
}

#[tokio::test]
async fn w093_s203_s204_the_same_form_follows_307_and_308_to_another_hub() {
    for line in ["307 Temporary Redirect", "308 Permanent Redirect"] {
        let mut real = Hub::start().await;
        let location = format!("Location: {}\r\n", real.url());
        let mut first = Hub::answering(move |_| status(line, &location)).await;
        let subscriptions = Subscriptions::in_memory();
        let id = add(&subscriptions, &first).await;
        let subscriber = subscriber(&subscriptions).await;
        let (done, _) = tokio::join!(subscriber.subscribe(&id), real.accept(600));
        done.unwrap();
        assert_eq!(first.form().await.parameter("hub.mode").as_deref(), Some("subscribe"), "{line}");
        assert!(matches!(subscriptions.get(&id).unwrap().phase, Phase::Active { .. }), "{line}");
    }
}

#[tokio::test]
async fn a_hub_that_refuses_is_quoted() {
    let refusal =
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 14\r\nConnection: close\r\n\r\nnot your\x07topic";
    let hub = Hub::answering(|_| refusal.to_vec()).await;
    let subscriptions = Subscriptions::in_memory();
    let id = add(&subscriptions, &hub).await;
    let error = subscriber(&subscriptions).await.subscribe(&id).await.unwrap_err();
    assert!(
        matches!(&error, SubscribeError::Refused { status: 403, text, .. } if text == "not your topic"),
        "{error}"
    );
    assert!(!error.is_transient());
}

/// The clock goes on by itself to whatever is waited for next, so that ten days take a moment.
#[tokio::test(start_paused = true)]
async fn w122_fn042_each_lease_is_renewed_when_80_to_90_percent_of_it_have_passed_and_nothing_else_changes() {
    const LEASE: u64 = 864_000;
    let mut hub = Hub::start().await;
    let subscriptions = Subscriptions::in_memory();
    let id = add(&subscriptions, &hub).await;
    let subscriber = subscriber(&subscriptions).await;
    let keeping = tokio::spawn(async move { subscriber.keep(&id, |_| {}).await.map(|_| ()) });
    let first = hub.accept(LEASE).await;
    let mut granted = Instant::now();
    for _ in 0..5 {
        let form = hub.form_within(Duration::from_secs(2 * LEASE)).await;
        let share = granted.elapsed().as_secs_f64() / Duration::from_secs(LEASE).as_secs_f64();
        // A thousandth is more than a request takes.
        assert!((0.799..=0.901).contains(&share), "renewed after {share} of the lease");
        assert_eq!(hub.verify(&form, LEASE).await, first, "the same callback and secret");
        granted = Instant::now();
    }
    keeping.abort();
}

#[tokio::test]
async fn while_the_hub_is_away_it_is_asked_again() {
    let tries = AtomicUsize::new(0);
    let mut hub = Hub::answering(move |_| match tries.fetch_add(1, Ordering::Relaxed) {
        0 => status("503 Service Unavailable", ""),
        1 => Vec::new(),
        _ => status("202 Accepted", ""),
    })
    .await;
    let subscriptions = Subscriptions::in_memory();
    let id = add(&subscriptions, &hub).await;
    let subscriber = subscriber(&subscriptions).await;
    let keeping = tokio::spawn(async move { subscriber.keep(&id, |_| {}).await.map(|_| ()) });
    hub.form().await;
    hub.form().await;
    hub.accept(600).await;
    keeping.abort();
}

#[tokio::test]
async fn w103_a_denial_ends_keeping_it() {
    let mut hub = Hub::start().await;
    let subscriptions = Subscriptions::in_memory();
    let id = add(&subscriptions, &hub).await;
    let subscriber = subscriber(&subscriptions).await;
    let keeping = tokio::spawn(async move { subscriber.keep(&id, |_| {}).await.map(|_| ()) });
    let at = hub.accept(600).await;
    let topic: String = url::form_urlencoded::byte_serialize(TOPIC.as_bytes()).collect();
    support::get(at.address, &format!("{}?hub.mode=denied&hub.topic={topic}&hub.reason=gone", at.path)).await;
    let result = tokio::time::timeout(support::PATIENCE, keeping).await.unwrap().unwrap();
    assert!(matches!(result, Err(SubscribeError::Denied { reason }) if reason == "gone"));
}

#[tokio::test]
async fn w063_a_renewal_brings_a_new_secret_and_the_old_one_counts_a_while_longer() {
    let mut hub = Hub::start().await;
    let subscriptions = Subscriptions::in_memory();
    let id = add(&subscriptions, &hub).await;
    let rotating = |options: SubscriberOptions| SubscriberOptions {
        rotate_secret_after: Some(Duration::ZERO),
        ..options
    };
    let subscriber = subscriber_with(&subscriptions, rotating).await;
    let (asked, before) = tokio::join!(subscriber.subscribe(&id), hub.accept(600));
    asked.unwrap();
    let (asked, after) = tokio::join!(subscriber.subscribe(&id), hub.accept(600));
    asked.unwrap();
    assert_eq!(before.path, after.path, "the same callback, so the same subscription");
    assert_ne!(before.secret, after.secret);
    assert_eq!(after.deliver("a.1", "signed with the new secret").await.status(), 204);
    assert_eq!(before.deliver("a.2", "signed before the renewal").await.status(), 204);
}
