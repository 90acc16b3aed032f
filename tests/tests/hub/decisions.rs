//! Where WebSub is silent: what this hub has decided (D-01 to D-18), seen from outside.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::time::Duration;

use resync_harness::{HubProcess, Receiver, Reply, Seen, eventually, form, post, request};
use tempfile::tempdir;

const TOPIC: &str = "http://source.example/topic";
/// Many short pauses, and an origin that fails is not left alone.
const STUBBORN: [(&str, &str); 2] = [
    (
        "DELIVERY_SCHEDULE",
        "[\"200ms\", \"200ms\", \"200ms\", \"200ms\", \"200ms\", \"200ms\", \"200ms\", \"200ms\", \"1s\", \"1s\", \"1s\", \"1s\", \"1s\", \"1s\", \"1s\", \"1s\", \"1s\", \"1s\"]",
    ),
    ("DELIVERY_BREAKER_FAILURES", "0"),
];

fn is_delivery(seen: &Seen) -> bool {
    seen.method == http::Method::POST
}

fn texts(deliveries: &[Seen]) -> Vec<String> {
    deliveries.iter().map(Seen::text).collect()
}

#[tokio::test]
async fn d01_w190_spellings_are_compared_by_what_they_mean_and_used_as_they_are() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let (first, second) = ("/%7ecb/%c3%bc?q=%2f%7E&q=", "/~cb/%C3%BC?q=%2F~&q=");
    hub.subscribe(TOPIC, &destination.url(first).replace("http://", "HTTP://"), &[], 1).await;
    let asked = destination.until_verified(1).await;
    assert!(asked.target.starts_with(&format!("{first}&hub.mode=")), "{}", asked.target);
    hub.publish(TOPIC, "one").await.unwrap();
    assert_eq!(destination.until_delivered(1).await[0].target, first);

    hub.subscribe(TOPIC, &destination.url(second), &[], 1).await;
    eventually("the newer spelling is the one in use", || async {
        let sent = destination.deliveries().len();
        hub.publish(TOPIC, "another").await.unwrap();
        destination.until_delivered(sent + 1).await[sent].target == second
    })
    .await;
    hub.until_subscribed(1).await;
}

#[tokio::test]
async fn d02_parameters_are_appended_to_any_callback() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let cases = [
        ("/plain", "/plain?hub.mode="),
        ("/empty?", "/empty?hub.mode="),
        ("/own?a=%20&&b", "/own?a=%20&&b&hub.mode="),
        ("/both?a#part", "/both?a&hub.mode="),
    ];
    for (number, (callback, begins)) in cases.into_iter().enumerate() {
        hub.subscribe(TOPIC, &destination.url(callback), &[], number + 1).await;
        let asked = destination.until_verified(number + 1).await;
        assert!(asked.target.starts_with(begins), "{callback}: {}", asked.target);
    }
    let wish = format!("{{\"topic\": {TOPIC:?}, \"reason\": \"50 % & more\"}}");
    assert_eq!(hub.admin_post("/api/v1/subscriptions/deny", &wish).await.status, 200);
    let told = destination.until_verified(cases.len() + 1).await;
    assert!(told.target.contains("&hub.reason=50%20%25%20%26%20more"), "{}", told.target);
}

#[tokio::test]
async fn d06_a_secret_that_can_be_overheard_is_taken_and_told_about() {
    for (public_url, overheard) in [("", true), ("https://hub.example", false)] {
        let folder = tempdir().unwrap();
        let hub = HubProcess::start_with(folder.path(), &[("PUBLIC_URL", public_url)]).await;
        let destination = Receiver::start().await;
        let callback = destination.url("/cb");
        let parameters = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
        let with_secret = [&parameters[..], &[("hub.secret", "s3cr3t")]].concat();
        let answer = form(hub.address, &with_secret).await.unwrap();
        assert_eq!((answer.status, answer.text().contains("plain http")), (202, overheard));
        hub.until_subscribed(1).await;
        let without = form(hub.address, &parameters).await.unwrap();
        assert_eq!((without.status, without.text().contains("plain http")), (202, false));
    }
}

#[tokio::test]
async fn d10_a_repetition_is_signed_with_the_secret_of_its_own_time() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &STUBBORN).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    hub.subscribe(TOPIC, &callback, &[("hub.secret", "old")], 1).await;
    destination.behave(|seen| {
        let refused = is_delivery(seen) && seen.is_signed_with("old");
        if refused { Reply::Status(503, String::new()) } else { Reply::Agree }
    });
    hub.publish(TOPIC, "news").await.unwrap();
    destination.until_delivered(1).await;
    hub.subscribe(TOPIC, &callback, &[("hub.secret", "new")], 1).await;
    let is_new = |seen: &Seen| is_delivery(seen) && seen.is_signed_with("new");
    destination.until("a repetition with the new secret", |log| log.iter().any(is_new)).await;
    let deliveries = destination.deliveries();
    let (last, before) = deliveries.split_last().unwrap();
    assert!(is_new(last) && before.iter().all(|seen| seen.is_signed_with("old")));
    assert!(before.iter().all(|seen| seen.header("webhook-id") == last.header("webhook-id")));
}

#[tokio::test]
async fn d10_nothing_is_repeated_for_a_subscription_that_has_ended() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &STUBBORN).await;
    let (leaving, control) = (Receiver::start().await, Receiver::start().await);
    let callback = leaving.url("/cb");
    hub.subscribe(TOPIC, &callback, &[], 1).await;
    leaving.behave(|seen| if is_delivery(seen) { Reply::Status(503, String::new()) } else { Reply::Agree });
    hub.publish(TOPIC, "news").await.unwrap();
    leaving.until_delivered(2).await;
    let unsubscribe = [("hub.mode", "unsubscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
    assert_eq!(form(hub.address, &unsubscribe).await.unwrap().status, 202);
    hub.until_subscribed(0).await;

    // Others that fail as often are asked again and again meanwhile.
    control.behave(|seen| if is_delivery(seen) { Reply::Status(503, String::new()) } else { Reply::Agree });
    hub.subscribe(TOPIC, &control.url("/cb"), &[], 1).await;
    hub.publish(TOPIC, "later").await.unwrap();
    control.until_delivered(1).await;
    let sent = leaving.deliveries().len();
    control.until_delivered(5).await;
    assert_eq!(leaving.deliveries().len(), sent);
}

#[tokio::test]
async fn d10_of_a_fetched_topic_only_the_newest_version_is_tried_again() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &STUBBORN).await;
    let (publisher, destination) = (Receiver::start().await, Receiver::start().await);
    let topic = publisher.url("/topic");
    hub.subscribe(&topic, &destination.url("/cb"), &[], 1).await;
    destination.behave(
        |seen| {
            if seen.text() == "first" { Reply::Status(503, String::new()) } else { Reply::Agree }
        },
    );
    for version in ["first", "second", "third"] {
        publisher.behave(move |_| Reply::Status(200, version.to_owned()));
        let ping = [("hub.mode", "publish"), ("hub.url", topic.as_str())];
        assert_eq!(form(hub.address, &ping).await.unwrap().status, 204);
        destination.until(version, |log| log.iter().any(|seen| seen.text() == version)).await;
    }
    let got = texts(&destination.deliveries());
    let repeated = got.iter().take_while(|text| *text == "first").count();
    assert_eq!(got[repeated..], ["second", "third"], "{got:?}");
}

#[tokio::test]
async fn d14_w124_fn041_leases_keep_to_an_hour_ten_days_and_thirty_days() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_public(folder.path(), &[]).await;
    let destination = Receiver::start().await;
    let wishes: [(&[(&str, &str)], _); 4] = [
        (&[("hub.lease_seconds", "1")], 3_600..=3_600),
        (&[("hub.lease_seconds", "7200")], 6_480..=7_200),
        (&[("hub.lease_seconds", "31536000")], 2_332_800..=2_592_000),
        (&[], 777_600..=864_000),
    ];
    for (number, (wish, granted)) in wishes.into_iter().enumerate() {
        hub.subscribe(TOPIC, &destination.url(&format!("/{number}")), wish, number + 1).await;
        let lease = destination.until_verified(number + 1).await.parameter("hub.lease_seconds").unwrap();
        assert!(granted.contains(&lease.parse::<u32>().unwrap()), "{wish:?}: {lease}");
    }
}

#[tokio::test]
async fn d15_who_asks_for_time_gets_it() {
    let folder = tempdir().unwrap();
    let keys = [("DELIVERY_SCHEDULE", "[\"50ms\", \"50ms\"]"), ("DELIVERY_BREAKER_FAILURES", "0")];
    let hub = HubProcess::start_with(folder.path(), &keys).await;
    let busy = Receiver::start().await;
    busy.behave(|seen| match (is_delivery(seen), seen.header("webhook-attempt"), seen.path()) {
        (true, "1", "/429") => Reply::With(429, "retry-after", "2".to_owned()),
        (true, "1", _) => Reply::With(503, "retry-after", "2".to_owned()),
        _ => Reply::Agree,
    });
    hub.subscribe(TOPIC, &busy.url("/429"), &[], 1).await;
    hub.subscribe(TOPIC, &busy.url("/503"), &[], 2).await;
    hub.publish(TOPIC, "news").await.unwrap();
    let got = busy.until_delivered(4).await;
    for path in ["/429", "/503"] {
        let times: Vec<_> = got.iter().filter(|seen| seen.path() == path).map(|seen| seen.at).collect();
        assert_eq!(times.len(), 2);
        // The first was noted before it was answered, the second after it had arrived: never less than two seconds.
        assert!(times[1] - times[0] >= Duration::from_secs(2), "{path}: {:?}", times[1] - times[0]);
    }
}

#[tokio::test]
async fn d15_repetitions_do_not_come_all_at_once() {
    let folder = tempdir().unwrap();
    let keys = [("DELIVERY_SCHEDULE", "[\"3s\"]"), ("DELIVERY_BREAKER_FAILURES", "0")];
    let hub = HubProcess::start_with(folder.path(), &keys).await;
    let destination = Receiver::start().await;
    destination.behave(|seen| match seen.header("webhook-attempt") {
        "1" => Reply::Status(503, String::new()),
        _ => Reply::Agree,
    });
    for number in 0..20 {
        hub.subscribe(TOPIC, &destination.url(&format!("/{number}")), &[], number + 1).await;
    }
    hub.publish(TOPIC, "news").await.unwrap();
    let got = destination.until_delivered(40).await;
    let pause = |number: usize| {
        let path = format!("/{number}");
        let mut times = got.iter().filter(|seen| seen.path() == path).map(|seen| seen.at);
        let (first, second) = (times.next().unwrap(), times.next().unwrap());
        second - first
    };
    let pauses: Vec<_> = (0..20).map(pause).collect();
    let (shortest, longest) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
    assert!(*shortest >= Duration::from_millis(2_400), "a fifth less at most: {shortest:?}");
    assert!(
        longest.saturating_sub(*shortest) >= Duration::from_millis(100),
        "all after {shortest:?} to {longest:?}"
    );
}

#[tokio::test]
async fn d18_what_is_no_request_is_told_what_would_be_one() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let send = async |method: &str| {
        let bytes = format!("{method} /websub/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        request(hub.address, bytes.as_bytes()).await.unwrap()
    };
    assert!(send("GET").await.text().contains("hub.mode=subscribe"));
    let head = send("HEAD").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let deleted = send("DELETE").await;
    assert_eq!((deleted.status, deleted.header("allow")), (405, Some("GET, HEAD, POST")));
    let json = post(hub.address, &[("Content-Type", "application/json")], b"{}").await.unwrap();
    assert_eq!(json.status, 415);
    assert!(json.text().contains("application/x-www-form-urlencoded"), "{}", json.text());
    let unknown = form(hub.address, &[("hub.mode", "juggle"), ("hub.topic", TOPIC)]).await.unwrap();
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains("juggle"), "{}", unknown.text());
}
