//! The callback, mounted in axum and in bare hyper, and asked by raw sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::support::{Hub, PATIENCE, Subscribed, client, get, post, send, signature};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use resync_core::websub::key::TopicUrl;
use resync_subscriber_kit::receive::{BadSignature, Callback, CallbackOptions, Deliveries};
use resync_subscriber_kit::state::{Phase, SubscriptionId, Subscriptions};
use resync_subscriber_kit::subscribe::{Subscriber, SubscriberOptions};
use tokio::net::TcpListener;
use url::Url;

const TOPIC: &str = "http://source.example/topic";

pub(crate) async fn mount_in_hyper(callback: Callback) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = TowerToHyperService::new(callback.clone());
            let http = hyper::server::conn::http1::Builder::new();
            tokio::spawn(http.serve_connection(TokioIo::new(stream), service));
        }
    });
    address
}

async fn mount_in_axum(callback: Callback) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().nest_service("/deep/inside", callback);
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// A Destination in hyper that a hub has accepted.
struct Destination {
    hub: Hub,
    subscriptions: Subscriptions,
    subscriber: Subscriber,
    id: SubscriptionId,
    deliveries: Deliveries,
    at: Subscribed,
}

impl Destination {
    async fn start(options: CallbackOptions) -> Self {
        let subscriptions = Subscriptions::in_memory();
        let (callback, deliveries) = Callback::new(&subscriptions, options);
        let address = mount_in_hyper(callback).await;
        Self::subscribed(subscriptions, deliveries, &format!("http://{address}/")).await
    }

    async fn subscribed(subscriptions: Subscriptions, deliveries: Deliveries, prefix: &str) -> Self {
        let mut hub = Hub::start().await;
        let topic = TopicUrl::parse(TOPIC).unwrap();
        let id = subscriptions.add(&topic, &Url::parse(&hub.url()).unwrap()).await.unwrap();
        let options = SubscriberOptions::new(Url::parse(prefix).unwrap());
        let subscriber = Subscriber::new(client(), subscriptions.clone(), options);
        let (asked, at) = tokio::join!(subscriber.subscribe(&id), hub.accept(600));
        asked.unwrap();
        Self { hub, subscriptions, subscriber, id, deliveries, at }
    }

    async fn next_body(&mut self) -> String {
        let delivery = tokio::time::timeout(PATIENCE, self.deliveries.next()).await.unwrap().unwrap();
        String::from_utf8(delivery.body.body().to_vec()).unwrap()
    }

    fn phase(&self) -> Phase {
        self.subscriptions.get(&self.id).unwrap().phase
    }
}

#[tokio::test]
async fn w008_w149_s300_a_signed_delivery_is_handed_on_in_hyper_and_in_axum() {
    let mut in_hyper = Destination::start(CallbackOptions::default()).await;
    assert_eq!(in_hyper.at.deliver("1.1", "hello").await.status(), 204);
    assert_eq!(in_hyper.next_body().await, "hello");

    let subscriptions = Subscriptions::in_memory();
    let (callback, deliveries) = Callback::new(&subscriptions, CallbackOptions::default());
    let prefix = format!("http://{}/deep/inside", mount_in_axum(callback).await);
    let mut in_axum = Destination::subscribed(subscriptions, deliveries, &prefix).await;
    assert!(in_axum.at.path.starts_with("/deep/inside/"));
    assert_eq!(in_axum.at.deliver("1.1", "hello").await.status(), 204);
    assert_eq!(in_axum.next_body().await, "hello");
}

#[tokio::test]
async fn a_test_delivery_is_answered_and_handed_to_nobody() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, secret, .. } = &destination.at;
    for (signature, status) in [(signature(secret, b"a test"), 204), (signature("another", b"a test"), 403)] {
        let headers = [("X-Hub-Signature", signature.as_str()), ("webhook-test", "true")];
        assert_eq!(post(*address, path, &headers, b"a test").await.status(), status);
    }
    assert_eq!(destination.at.deliver("1.1", "news").await.status(), 204);
    assert_eq!(destination.next_body().await, "news");
}

#[tokio::test]
async fn w117_s205_what_is_not_pending_is_404() {
    let destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, .. } = &destination.at;
    for query in [
        "hub.mode=subscribe&hub.topic=http%3A%2F%2Fsource.example%2Ftopic%3Finvalid&hub.challenge=x&hub.lease_seconds=9",
        "hub.mode=unsubscribe&hub.topic=http%3A%2F%2Fsource.example%2Ftopic&hub.challenge=x",
        "hub.mode=denied&hub.topic=http%3A%2F%2Fsource.example%2Fother",
        "hub.mode=publish&hub.topic=http%3A%2F%2Fsource.example%2Ftopic",
        "hub.challenge=%3Cscript%3E",
        "",
    ] {
        let answer = get(*address, &format!("{path}?{query}")).await;
        assert_eq!(answer.status(), 404, "{query}");
        assert!(!answer.text().contains("<script>"), "W-118");
    }
    let good = "hub.mode=subscribe&hub.topic=http%3A%2F%2Fsource.example%2Ftopic&hub.challenge=x&hub.lease_seconds=9";
    assert_eq!(get(*address, &format!("/guessed?{good}")).await.status(), 404);
}

/// What a hub signs of a question, in the words of docs/protocol.md.
fn as_signed(query: &str) -> String {
    format!("GET hub.mode=subscribe in force\n{query}")
}

#[tokio::test]
async fn w115_w117_what_is_in_force_is_confirmed_to_nobody_but_the_hub_that_signs_the_question() {
    for in_axum in [false, true] {
        let subscriptions = Subscriptions::in_memory();
        let (callback, deliveries) = Callback::new(&subscriptions, CallbackOptions::default());
        let prefix = if in_axum {
            format!("http://{}/deep/inside", mount_in_axum(callback).await)
        } else {
            format!("http://{}/", mount_in_hyper(callback).await)
        };
        let destination = Destination::subscribed(subscriptions, deliveries, &prefix).await;
        let before = destination.phase();
        let Subscribed { address, path, secret, .. } = &destination.at;
        let topic = "http%3A%2F%2Fsource.example%2Ftopic";
        let query = format!("hub.mode=subscribe&hub.topic={topic}&hub.challenge=abc&hub.lease_seconds=590");
        let ask = async |signature: String| {
            let head = format!("GET {path}?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
            send(*address, format!("{head}X-Hub-Query-Signature: {signature}\r\n\r\n").as_bytes()).await
        };
        let signed = as_signed(&query);
        for method in ["sha1", "sha256", "sha384", "sha512"] {
            let answer = ask(resync_judge::signature(method, secret, signed.as_bytes())).await;
            assert_eq!((answer.status(), answer.text().as_str()), (200, "abc"), "{method}");
        }
        assert_eq!(ask(signature("somebody else's", signed.as_bytes())).await.status(), 404);
        assert_eq!(ask(signature(secret, query.as_bytes())).await.status(), 404, "that is no body");
        assert_eq!(ask(String::new()).await.status(), 404);
        assert_eq!(destination.phase(), before);
    }
}

#[tokio::test]
async fn a_question_about_what_is_in_force_confirms_nothing_that_may_still_be_confirmed() {
    let destination = Destination::start(CallbackOptions::default()).await;
    let before = destination.phase();
    let query = "hub.mode=subscribe&hub.topic=http%3A%2F%2Fsource.example%2Ftopic&hub.challenge=x&hub.lease_seconds=9";
    let Subscribed { address, path, secret, .. } = &destination.at;
    let signature = signature(secret, as_signed(query).as_bytes());
    let head = format!("GET {path}?{query} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    // The request of a moment ago may still be confirmed again: this does not.
    let answer = send(*address, format!("{head}X-Hub-Query-Signature: {signature}\r\n\r\n").as_bytes()).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(destination.phase(), before);
}

#[tokio::test]
async fn w116_w118_w187_w188_fn043_the_echo_is_the_challenge_in_a_type_that_nothing_runs() {
    let destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, .. } = &destination.at;
    let topic = "http%3A%2F%2Fsource.example%2Ftopic";
    let query =
        format!("hub.mode=subscribe&hub.topic={topic}&hub.lease_seconds=600&hub.challenge=aZ9%2B-.%2F=_");
    let answer = get(*address, &format!("{path}?{query}")).await;
    assert_eq!((answer.status(), answer.text().as_str()), (200, "aZ9+-./=_"));
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
}

#[tokio::test]
async fn w148_the_callback_tells_the_subscription_whatever_the_links_say() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, secret, .. } = &destination.at;
    let headers = [
        ("Content-Type", "text/plain"),
        ("X-Hub-Signature", &signature(secret, b"news")),
        ("Link", "<http://other.example/hub>; rel=\"hub\", <http://other.example/topic>; rel=\"self\""),
    ];
    assert_eq!(post(*address, path, &headers, b"news").await.status(), 204);
    let delivery = tokio::time::timeout(PATIENCE, destination.deliveries.next()).await.unwrap().unwrap();
    assert_eq!(delivery.topic.as_str(), TOPIC);
    assert_eq!(delivery.links.first("self"), Some("http://other.example/topic"), "a hint only");
}

#[tokio::test]
async fn w189_a_challenge_that_is_too_long_or_not_of_the_alphabet_is_not_echoed() {
    let destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, .. } = &destination.at;
    // The subscription is still within the time in which its verification may be repeated.
    let ask = |challenge: String| async move {
        let topic = "http%3A%2F%2Fsource.example%2Ftopic";
        let query =
            format!("hub.mode=subscribe&hub.topic={topic}&hub.lease_seconds=600&hub.challenge={challenge}");
        get(*address, &format!("{path}?{query}")).await.status()
    };
    assert_eq!(ask("again".to_owned()).await, 200);
    assert_eq!(ask("a".repeat(1025)).await, 404);
    assert_eq!(ask("%3Cscript%3E".to_owned()).await, 404);
}

#[tokio::test]
async fn w192_w193_s302_a_missing_or_wrong_signature_is_403_and_not_handed_on() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, secret, .. } = destination.at.clone();
    let of_another_body = signature(&secret, b"other");
    let by_another_key = signature("guess", b"hello");
    let digits_too_many = format!("{}1234", signature(&secret, b"hello"));
    let headers: [&[(&str, &str)]; 5] = [
        &[],
        &[("X-Hub-Signature", &of_another_body)],
        &[("X-Hub-Signature", &by_another_key)],
        &[("X-Hub-Signature", &digits_too_many)],
        &[("X-Hub-Signature", "crc32=00000000")],
    ];
    for headers in headers {
        assert_eq!(post(address, &path, headers, b"hello").await.status(), 403, "{headers:?}");
    }
    destination.at.deliver("1.1", "genuine").await;
    assert_eq!(destination.next_body().await, "genuine");
}

#[tokio::test]
async fn w172_a_bad_signature_may_be_accepted_and_ignored_without_a_visible_difference() {
    let options =
        CallbackOptions { bad_signature: BadSignature::AcceptAndIgnore, ..CallbackOptions::default() };
    let mut destination = Destination::start(options).await;
    let Subscribed { address, path, .. } = destination.at.clone();
    let bad = post(address, &path, &[], b"forged").await;
    let good = destination.at.deliver("1.1", "genuine").await;
    assert_eq!(bad.start, good.start);
    assert_eq!(destination.next_body().await, "genuine");
}

#[tokio::test]
async fn w168_w170_each_of_the_four_methods_is_understood() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, secret, .. } = destination.at.clone();
    for method in ["sha1", "sha256", "sha384", "sha512"] {
        let body = format!("by {method}");
        let signature = resync_judge::signature(method, &secret, body.as_bytes());
        let forged = resync_judge::signature(method, &secret, b"another");
        let with = async |signature: &str| {
            post(address, &path, &[("X-Hub-Signature", signature)], body.as_bytes()).await.status()
        };
        assert_eq!(with(&forged).await, 403, "{method}");
        assert_eq!(with(&signature).await, 204, "{method}");
        assert_eq!(destination.next_body().await, body);
    }
}

#[tokio::test]
async fn what_was_acknowledged_and_not_done_is_handed_over_first_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_owned();
    let first_life = async move {
        let subscriptions = Subscriptions::open(&state).unwrap();
        let (callback, deliveries) = Callback::new(&subscriptions, CallbackOptions::default());
        let prefix = format!("http://{}/", mount_in_hyper(callback).await);
        let mut first = Destination::subscribed(subscriptions, deliveries, &prefix).await;
        for id in ["a.1", "a.2", "a.5"] {
            assert_eq!(first.at.deliver(id, id).await.status(), 204);
        }
        let _one = first.deliveries.next().await.unwrap();
        let two = first.deliveries.next().await.unwrap();
        two.done().await.unwrap();
        first.at.clone()
    };
    // All that runs ends with its runtime.
    let life = || tokio::runtime::Runtime::new().unwrap().block_on(first_life);
    let before = tokio::task::spawn_blocking(life).await.unwrap();

    let subscriptions = Subscriptions::open(folder.path()).unwrap();
    let (callback, mut deliveries) = Callback::new(&subscriptions, CallbackOptions::default());
    let after = Subscribed { address: mount_in_hyper(callback).await, ..before };
    assert_eq!(after.deliver("a.5", "a.5").await.status(), 204, "it is known");
    assert_eq!(after.deliver("a.6", "a.6").await.status(), 204);
    for (body, skipped) in [("a.1", 0), ("a.5", 2), ("a.6", 0)] {
        let delivery = deliveries.next().await.unwrap();
        assert_eq!((delivery.body.body(), delivery.skipped), (body.as_bytes(), skipped));
        assert_eq!(delivery.content_type.as_deref(), Some("application/xml"));
        delivery.done().await.unwrap();
    }
}

/// Whose state is kept here.
async fn kept_in(state: PathBuf, options: CallbackOptions) -> Destination {
    let subscriptions = Subscriptions::open(&state).unwrap();
    let (callback, deliveries) = Callback::new(&subscriptions, options);
    let prefix = format!("http://{}/", mount_in_hyper(callback).await);
    Destination::subscribed(subscriptions, deliveries, &prefix).await
}

#[tokio::test]
async fn what_is_left_open_for_a_state_that_was_moved_away_takes_no_room_and_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().to_owned();
    let first_life = async move {
        let first = kept_in(state, CallbackOptions::default()).await;
        assert_eq!(first.at.deliver("a.1", "0123456789").await.status(), 204);
    };
    // All that runs ends with its runtime.
    let life = || tokio::runtime::Runtime::new().unwrap().block_on(first_life);
    tokio::task::spawn_blocking(life).await.unwrap();
    std::fs::remove_file(folder.path().join("state.json")).unwrap();
    let left = folder.path().join(".inbox-left");
    let hours = std::time::SystemTime::now() - Duration::from_secs(7200);
    std::fs::File::create(&left).unwrap().set_modified(hours).unwrap();

    let options = CallbackOptions { max_waiting_bytes: 10, ..CallbackOptions::default() };
    let mut second = kept_in(folder.path().to_owned(), options).await;
    assert_eq!(second.at.deliver("b.1", "9876543210").await.status(), 204);
    assert_eq!(second.next_body().await, "9876543210");
    assert!(!left.exists(), "what a kill left half written is swept");
}

#[tokio::test]
async fn what_waits_is_bounded_in_bytes() {
    let options = CallbackOptions { max_waiting_bytes: 25_000, ..CallbackOptions::default() };
    let mut destination = Destination::start(options).await;
    let body = |length: usize| "x".repeat(length);
    assert_eq!(destination.at.deliver("a.1", &body(10_000)).await.status(), 204);
    assert_eq!(destination.at.deliver("a.2", &body(16_000)).await.status(), 503);
    assert_eq!(destination.at.deliver("a.3", &body(10_000)).await.status(), 204);
    destination.deliveries.next().await.unwrap().done().await.unwrap();
    assert_eq!(destination.at.deliver("a.4", &body(9_000)).await.status(), 204);
}

#[tokio::test]
async fn what_waits_is_weighed_with_its_headers_and_an_empty_body_is_not_nothing() {
    let options = CallbackOptions { max_waiting_bytes: 16_000, ..CallbackOptions::default() };
    let destination = Destination::start(options).await;
    let Subscribed { address, path, secret, .. } = destination.at.clone();
    let signed = signature(&secret, b"");
    let (long_type, long_link) =
        ("x".repeat(5_000), format!("<http://a.example/{}>; rel=self", "x".repeat(5_000)));
    let headers = [
        ("X-Hub-Signature", signed.as_str()),
        ("Content-Type", long_type.as_str()),
        ("Link", long_link.as_str()),
    ];
    assert_eq!(post(address, &path, &headers, b"").await.status(), 204);
    assert_eq!(post(address, &path, &headers, b"").await.status(), 503);
    for _ in 0..50 {
        if post(address, &path, &headers[..1], b"").await.status() == 503 {
            return;
        }
    }
    panic!("so many may wait as have no body");
}

#[tokio::test]
async fn a_notification_that_comes_again_is_acknowledged_and_not_handed_on() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    for (id, body) in
        [("a.1", "one"), ("a.1", "one"), ("a.2", "two"), ("a.1", "one"), ("b.1", "of a new hub")]
    {
        assert_eq!(destination.at.deliver(id, body).await.status(), 204);
    }
    assert_eq!(destination.next_body().await, "one");
    assert_eq!(destination.next_body().await, "two");
    assert_eq!(destination.next_body().await, "of a new hub");
}

#[tokio::test]
async fn a_notification_that_was_handled_is_not_handed_on_when_it_comes_again() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    assert_eq!(destination.at.deliver("a.1", "one").await.status(), 204);
    destination.deliveries.next().await.unwrap().done().await.unwrap();
    for (id, body) in [("a.1", "one"), ("a.2", "two")] {
        assert_eq!(destination.at.deliver(id, body).await.status(), 204);
    }
    assert_eq!(destination.next_body().await, "two");
}

#[tokio::test]
async fn w154_w155_the_answer_waits_for_no_handling_and_only_what_is_done_counts_as_handled() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    let last = |destination: &Destination| destination.subscriptions.get(&destination.id).unwrap().last;
    for (id, body) in [("a.1", "one"), ("a.2", "two")] {
        assert_eq!(destination.at.deliver(id, body).await.status(), 204);
    }
    let (one, two) =
        (destination.deliveries.next().await.unwrap(), destination.deliveries.next().await.unwrap());
    two.done().await.unwrap();
    assert_eq!(last(&destination), None, "one is still open");
    one.done().await.unwrap();
    assert_eq!(last(&destination).unwrap().offset, 2);
}

#[tokio::test]
async fn w173_a_forged_id_does_not_mute_what_follows() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    // The id is not signed: whoever saw one delivery can send its body again under any other.
    for id in [format!("a.{}", u64::MAX), "a.1".to_owned(), "a.2".to_owned()] {
        assert_eq!(destination.at.deliver(&id, &format!("under {id}")).await.status(), 204);
        let delivery = destination.deliveries.next().await.unwrap();
        assert_eq!(delivery.body.body(), format!("under {id}").as_bytes());
        delivery.done().await.unwrap();
    }
    assert_eq!(destination.at.deliver("a.1", "of a hub restored from a backup").await.status(), 204);
    assert_eq!(destination.next_body().await, "of a hub restored from a backup");
}

#[tokio::test]
async fn what_is_dropped_without_done_is_handed_over_again_and_holds_up_nothing() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    destination.at.deliver("a.1", "one").await;
    drop(destination.deliveries.next().await.unwrap());
    destination.at.deliver("a.2", "two").await;
    destination.deliveries.next().await.unwrap().done().await.unwrap();
    assert_eq!(destination.subscriptions.get(&destination.id).unwrap().last.unwrap().offset, 2);
    destination.at.deliver("a.1", "one").await;
    assert_eq!(destination.next_body().await, "one");
}

#[tokio::test]
async fn w193_of_several_signatures_one_that_fits_is_enough() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, secret, .. } = destination.at.clone();
    let (good, bad) = (signature(&secret, b"hello"), signature("old key", b"hello"));
    for order in [[&bad, &good], [&good, &bad]] {
        let headers = order.map(|one| ("X-Hub-Signature", one.as_str()));
        assert_eq!(post(address, &path, &headers, b"hello").await.status(), 204);
        assert_eq!(destination.next_body().await, "hello");
    }
    let headers = [("X-Hub-Signature", bad.as_str()), ("X-Hub-Signature", bad.as_str())];
    assert_eq!(post(address, &path, &headers, b"hello").await.status(), 403);
}

#[tokio::test]
async fn a_full_channel_is_503_and_the_repeated_delivery_is_taken() {
    let mut destination =
        Destination::start(CallbackOptions { capacity: 1, ..CallbackOptions::default() }).await;
    assert_eq!(destination.at.deliver("a.1", "one").await.status(), 204);
    let busy = destination.at.deliver("a.2", "two").await;
    assert_eq!(busy.status(), 503);
    assert_eq!(busy.header("retry-after"), Some("5"));
    assert_eq!(destination.next_body().await, "one");
    assert_eq!(destination.at.deliver("a.2", "two").await.status(), 204);
    assert_eq!(destination.next_body().await, "two");
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_with_and_without_a_length() {
    let destination =
        Destination::start(CallbackOptions { max_body: 10, ..CallbackOptions::default() }).await;
    let Subscribed { address, path, .. } = &destination.at;
    assert_eq!(destination.at.deliver("a.1", "12345678901").await.status(), 413);
    let chunked = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
         b\r\n12345678901\r\n0\r\n\r\n"
    );
    assert_eq!(send(*address, chunked.as_bytes()).await.status(), 413);
    assert_eq!(destination.at.deliver("a.1", "1234567890").await.status(), 204);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_408() {
    let options = CallbackOptions { body_timeout: Duration::from_millis(50), ..CallbackOptions::default() };
    let destination = Destination::start(options).await;
    let Subscribed { address, path, .. } = &destination.at;
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 10\r\n\r\n12345");
    assert_eq!(send(*address, request.as_bytes()).await.status(), 408);
}

#[tokio::test]
async fn w153_another_method_is_405_an_unknown_path_404_and_nothing_a_redirect() {
    let destination = Destination::start(CallbackOptions::default()).await;
    let Subscribed { address, path, secret, .. } = &destination.at;
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS"] {
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = send(*address, request.as_bytes()).await;
        assert_eq!((answer.status(), answer.header("allow")), (405, Some("GET, POST")), "{method}");
    }
    let signature = signature(secret, b"hello");
    let headers = [("X-Hub-Signature", signature.as_str())];
    assert_eq!(post(*address, "/guessed", &headers, b"hello").await.status(), 404);
}

#[tokio::test]
async fn w103_a_denial_is_noted_also_for_an_active_subscription() {
    let destination = Destination::start(CallbackOptions::default()).await;
    assert!(matches!(destination.phase(), Phase::Active { .. }));
    let query = "hub.mode=denied&hub.topic=http%3A%2F%2Fsource.example%2Ftopic&hub.reason=no%20more";
    let answer = get(destination.at.address, &format!("{}?{query}", destination.at.path)).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(destination.phase(), Phase::Denied { reason: "no more".to_owned() });
}

#[tokio::test]
async fn w009_w150_unsubscribing_ends_it_and_later_deliveries_are_410() {
    let mut destination = Destination::start(CallbackOptions::default()).await;
    let (done, _) =
        tokio::join!(destination.subscriber.unsubscribe(&destination.id), destination.hub.accept(0));
    done.unwrap();
    assert_eq!(destination.phase(), Phase::Ended);
    assert_eq!(destination.at.deliver("a.1", "late").await.status(), 410);
}
