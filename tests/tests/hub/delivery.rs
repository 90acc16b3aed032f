//! Delivery from outside: retries that survive a restart, order, and nobody held up by somebody else's trouble.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use resync_harness::{ENGINES, HubProcess, Receiver, Reply, Seen, eventually};
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/framework/";
/// Retries fast enough for a test to wait for.
const QUICK: [(&str, &str); 4] = [
    ("DELIVERY_SCHEDULE", "[\"50ms\", \"50ms\", \"50ms\"]"),
    ("DELIVERY_SCHEDULE_4XX", "[\"50ms\"]"),
    ("DELIVERY_GONE_CONFIRM_AFTER", "50ms"),
    ("DELIVERY_TIMEOUT", "2s"),
];

fn fails_first(times: usize, status: u16) -> impl Fn(&Seen) -> Reply {
    let count = Arc::new(AtomicUsize::new(0));
    move |seen| {
        let failing = seen.method == http::Method::POST && count.fetch_add(1, Ordering::SeqCst) < times;
        if failing { Reply::Status(status, String::new()) } else { Reply::Agree }
    }
}

fn texts(deliveries: &[Seen]) -> Vec<String> {
    deliveries.iter().map(Seen::text).collect()
}

#[tokio::test]
async fn b23_w157_a_failed_delivery_is_repeated_with_the_same_identity_and_then_no_more() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &QUICK).await;
    let destination = Receiver::start().await;
    destination.behave(fails_first(1, 500));
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    hub.publish(TOPIC, "first").await.unwrap();
    destination.until_delivered(2).await;
    hub.publish(TOPIC, "second").await.unwrap();
    destination.until_delivered(3).await;
    hub.until_done().await;
    let got = destination.deliveries();
    assert_eq!(texts(&got), ["first", "first", "second"]);
    assert_eq!(got[0].header("webhook-id"), got[1].header("webhook-id"));
    assert_eq!([got[0].header("webhook-attempt"), got[1].header("webhook-attempt")], ["1", "2"]);
}

#[tokio::test]
async fn b29_a_retry_survives_kill_9_and_a_restart() {
    let folder = tempdir().unwrap();
    // So many that none is given up before the last one is answered well.
    let schedule = format!("[{}]", ["\"1s\""; 100].join(", "));
    let mut hub = HubProcess::start_with(folder.path(), &[("DELIVERY_SCHEDULE", &schedule)]).await;
    let destination = Receiver::start().await;
    destination.behave(|seen| {
        if seen.method == http::Method::POST { Reply::Status(503, String::new()) } else { Reply::Agree }
    });
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    hub.publish(TOPIC, "news").await.unwrap();
    destination.until_delivered(1).await;
    // The operator's view counts a laggard once its record is durable.
    eventually("the subscription is a laggard", || async {
        hub.admin("/api/v1/status").await.text().contains("\"laggards\":1")
    })
    .await;
    hub.kill().await;
    let before = destination.deliveries().len();
    hub.restart().await;
    assert!(
        hub.admin("/api/v1/status").await.text().contains("\"laggards\":1"),
        "the operator still sees it"
    );
    // Not before: a retry that is due at once would make it none any more.
    destination.behave(|_| Reply::Agree);
    destination.until_delivered(2).await;
    hub.until_done().await;
    let got = destination.deliveries();
    assert!(
        got.iter().all(|one| one.text() == "news" && one.header("webhook-id") == got[0].header("webhook-id"))
    );
    let attempts: Vec<usize> = got.iter().map(|one| one.header("webhook-attempt").parse().unwrap()).collect();
    let repeated: Vec<_> = (1..got.len()).filter(|&at| attempts[at] == attempts[at - 1]).collect();
    let repeated_by = |number: usize| repeated.iter().filter(|&&at| at < number).count();
    let expected: Vec<_> = (1..=got.len()).map(|number| number - repeated_by(number)).collect();
    assert_eq!(attempts, expected, "the schedule goes on where it was");
    // What came of the last attempt may not have been durable yet; and that attempt itself may arrive after the death.
    let is_at_the_death = |at: usize| (before..=before + 1).contains(&at);
    assert!(
        repeated.len() <= 1 && repeated.iter().all(|&at| is_at_the_death(at)),
        "only the last attempt before the death ({before}) is repeated: {attempts:?}"
    );
}

#[tokio::test]
async fn b22_w152_w153_a_redirect_is_a_failure_and_is_not_followed() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &QUICK).await;
    let (destination, elsewhere) = (Receiver::start().await, Receiver::start().await);
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    let mut expected = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        let (count, away) = (AtomicUsize::new(0), elsewhere.url("/away"));
        destination.behave(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::With(status, "location", away.clone()),
            _ => Reply::Agree,
        });
        let news = format!("news with {status}");
        hub.publish(TOPIC, &news).await.unwrap();
        expected.extend([news.clone(), news]);
        assert_eq!(texts(&destination.until_delivered(expected.len()).await), expected);
    }
    hub.until_done().await;
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn b24_w158_w159_w160_given_up_notifications_do_not_end_the_subscription() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &QUICK).await;
    let destination = Receiver::start().await;
    destination.behave(fails_first(4, 500));
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    hub.publish(TOPIC, "given up").await.unwrap();
    destination.until_delivered(4).await;
    hub.publish(TOPIC, "next").await.unwrap();
    let got = destination.until_delivered(5).await;
    assert_eq!(texts(&got)[3..], ["given up", "next"]);
    eventually("the skip is counted", || async {
        hub.admin("/api/v1/status").await.text().contains("\"skipped\":1")
    })
    .await;
}

#[tokio::test]
async fn b25_w151_a_410_ends_the_subscription_when_it_is_repeated_and_only_then() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &QUICK).await;
    let (mistaken, gone) = (Receiver::start().await, Receiver::start().await);
    mistaken.behave(fails_first(1, 410));
    gone.behave(fails_first(usize::MAX, 410));
    hub.subscribe(TOPIC, &mistaken.url("/cb"), &[], 1).await;
    hub.subscribe(TOPIC, &gone.url("/cb"), &[], 2).await;
    hub.publish(TOPIC, "news").await.unwrap();
    mistaken.until_delivered(2).await;
    gone.until_delivered(2).await;
    hub.until_subscribed(1).await;
    hub.until_done().await;
    assert_eq!((mistaken.deliveries().len(), gone.deliveries().len()), (2, 2));
    gone.behave(|_| Reply::Agree);
    hub.subscribe(TOPIC, &gone.url("/cb"), &[], 2).await;
    hub.publish(TOPIC, "welcome back").await.unwrap();
    assert_eq!(texts(&gone.until_delivered(3).await)[2], "welcome back");
}

#[tokio::test]
async fn b26_a_hanging_subscriber_holds_up_nobody_else() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[("DELIVERY_TIMEOUT", "30s")]).await;
    let hanging = Receiver::start_at(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))).await;
    let healthy = Receiver::start_at(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3))).await;
    for number in 0..20 {
        hub.subscribe(TOPIC, &hanging.url(&format!("/{number}")), &[], 2 * number + 1).await;
        hub.subscribe(TOPIC, &healthy.url(&format!("/{number}")), &[], 2 * number + 2).await;
    }
    hanging.behave(|_| Reply::Hang);
    let published = Instant::now();
    for number in 0..10 {
        hub.publish(TOPIC, &number.to_string()).await.unwrap();
    }
    let got = healthy.until_delivered(200).await;
    assert!(published.elapsed() < Duration::from_secs(20), "nobody waited for the hanging ones");
    for number in 0..20 {
        let path = format!("/{number}");
        let bodies: Vec<_> = got.iter().filter(|seen| seen.path() == path).map(Seen::text).collect();
        let in_order: Vec<_> = (0..10).map(|n| n.to_string()).collect();
        assert_eq!(bodies, in_order, "each subscription got everything in order, once");
    }
}

#[tokio::test]
async fn the_same_post_with_the_same_idempotency_key_is_one_notification() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    let headers = [("Content-Type", "text/plain"), ("Link", link.as_str()), ("Idempotency-Key", "k-1")];
    let mut answers = Vec::new();
    for round in 0..3 {
        answers.push(resync_harness::post(hub.address, &headers, b"once").await.unwrap().text());
        if round == 1 {
            hub.kill().await;
            hub.restart().await;
        }
    }
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
    hub.publish(TOPIC, "another").await.unwrap();
    eventually("both have come", || async {
        destination.deliveries().iter().any(|seen| seen.text() == "another")
    })
    .await;
    let distinct: std::collections::BTreeSet<_> =
        destination.deliveries().iter().map(|seen| (seen.offset(), seen.text())).collect();
    assert_eq!(distinct.into_iter().collect::<Vec<_>>(), [(1, "once".to_owned()), (2, "another".to_owned())]);
}

#[tokio::test]
async fn b29_both_engines_deliver_and_remember_what_was_verified() {
    for engine in ENGINES {
        let folder = tempdir().unwrap();
        let mut hub = HubProcess::start_with(folder.path(), &[("STORE_ENGINE", engine)]).await;
        let destination = Receiver::start().await;
        hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
        hub.publish(TOPIC, "before").await.unwrap();
        destination.until_delivered(1).await;
        hub.kill().await;
        hub.restart().await;
        hub.until_subscribed(1).await;
        hub.publish(TOPIC, "after").await.unwrap();
        destination
            .until("the notification after the restart", |seen| {
                seen.iter().any(|seen| seen.text() == "after")
            })
            .await;
    }
}

#[tokio::test]
async fn a_hub_that_is_asked_to_stop_finishes_what_is_under_way() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    destination.behave(|_| Reply::Late(Duration::from_millis(500)));
    hub.publish(TOPIC, "under way").await.unwrap();
    destination.until_delivered(1).await;
    let (status, said) = hub.stop().await;
    assert!(status.success(), "{said}");
    assert!(said.contains("stopped"), "{said}");
    destination.behave(|_| Reply::Agree);
    hub.restart().await;
    hub.publish(TOPIC, "next").await.unwrap();
    destination.until("the next one", |seen| seen.iter().any(|seen| seen.text() == "next")).await;
    assert_eq!(texts(&destination.deliveries()), ["under way", "next"], "what was finished is not repeated");
}

/// The sweep cannot pass by a request that is still under way when the process ends, unless it lets go of it.
#[tokio::test]
async fn what_a_request_that_never_ends_has_held_back_is_not_repeated_after_a_stop() {
    const OTHERS: usize = 8;
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    // Taken up first, and in the shard of all the others.
    hub.subscribe(TOPIC, &destination.url("/hangs"), &[], 1).await;
    for other in 1..=OTHERS {
        hub.subscribe(TOPIC, &destination.url(&format!("/{other}")), &[], other + 1).await;
    }
    destination.behave(|seen| {
        let hangs = seen.method == http::Method::POST && seen.path() == "/hangs";
        if hangs { Reply::Hang } else { Reply::Agree }
    });
    hub.publish(TOPIC, "news").await.unwrap();
    destination.until_delivered(OTHERS + 1).await;
    let (_, said) = hub.stop().await;
    assert!(said.contains("still in flight at shutdown"), "{said}");
    destination.behave(|_| Reply::Agree);
    hub.restart().await;
    hub.publish(TOPIC, "more").await.unwrap();
    let got = destination.until_delivered(2 * OTHERS + 3).await;
    for other in 1..=OTHERS {
        let path = format!("/{other}");
        let its = got.iter().filter(|seen| seen.path() == path);
        assert_eq!(its.map(Seen::text).collect::<Vec<_>>(), ["news", "more"], "{path}");
    }
}
