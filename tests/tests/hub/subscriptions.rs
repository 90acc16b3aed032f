//! Subscriptions from outside: verification of intent decides, leases end, renewals leave no gap.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::sync::Arc;
use std::time::Duration;

use resync_harness::{HubProcess, Receiver, Reply, Seen, eventually, form};
use tempfile::tempdir;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::guessing::assert_cannot_be_guessed;

type Temper = Box<dyn Fn(&Seen) -> Reply + Send + Sync>;

const TOPIC: &str = "http://example.com/framework/";

fn is_verification(seen: &Seen) -> bool {
    seen.method == http::Method::GET
}

#[tokio::test]
async fn b04_b05_w078_w079_w080_w106_the_callbacks_query_stays_as_it_is() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let own = "/cb?foo=bar&red=fish&hub.mode=x&a=1+2&b=%20%2F&foo=&empty";
    hub.subscribe(TOPIC, &destination.url(own), &[], 1).await;
    let verification = destination.until_verified(1).await;
    assert!(verification.target.starts_with(&format!("{own}&hub.")), "{}", verification.target);
    assert_eq!(
        verification.parameter("hub.mode").as_deref(),
        Some("subscribe"),
        "W-079: the hub's come last"
    );

    hub.publish(TOPIC, "news").await.unwrap();
    assert_eq!(destination.until_delivered(1).await[0].target, own, "W-080, B-05");
}

#[tokio::test]
async fn b06_w108_the_topic_is_echoed_as_it_was_written() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let topics = [
        "http://EXAMPLE.com/%7efeed?a=1&b=2%26c=%25+d",
        "http://example.com/feed?a=1&b=2#",
        "http://example.com/gr\u{fc}n/\u{4e00}?\u{e9}=\u{1f4da}",
        "https://example.com:443",
    ];
    for (number, topic) in topics.into_iter().enumerate() {
        hub.subscribe(topic, &destination.url("/cb"), &[], number + 1).await;
        let asked = destination.until_verified(number + 1).await;
        assert_eq!(asked.parameter("hub.topic").as_deref(), Some(topic), "{}", asked.target);
    }
}

#[tokio::test]
async fn b07_w073_two_spellings_of_one_url_are_one_subscription() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    hub.subscribe("http://example.com/~feed", &destination.url("/%7Ecb"), &[], 1).await;
    hub.subscribe("http://example.com/%7Efeed", &destination.url("/~cb"), &[], 1).await;
    destination.until_verified(2).await;
    hub.publish("http://example.com/%7efeed", "first").await.unwrap();
    hub.publish("http://example.com/~feed", "second").await.unwrap();
    let bodies: Vec<_> = destination.until_delivered(2).await.iter().map(Seen::text).collect();
    assert_eq!(bodies, ["first", "second"]);
}

#[tokio::test]
async fn b09_b10_d03_w116_w119_w120_only_the_bare_challenge_with_2xx_confirms() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let elsewhere = Receiver::start().await;
    let away = elsewhere.url("/yes");
    let echo = |seen: &Seen| seen.parameter("hub.challenge").unwrap_or_default();
    let redirects = [301, 302, 303, 307, 308].map(|status| -> Temper {
        let away = away.clone();
        Box::new(move |_| Reply::With(status, "location", away.clone()))
    });
    let mut tempers: Vec<Temper> = vec![
        Box::new(move |seen| Reply::Status(404, echo(seen))),
        Box::new(move |seen| Reply::Status(500, echo(seen))),
        Box::new(|_| Reply::Status(200, "yes".to_owned())),
        Box::new(move |seen| Reply::Status(200, format!("{} ", echo(seen)))),
        Box::new(move |seen| Reply::Status(200, format!("{}\n", echo(seen)))),
        Box::new(move |seen| Reply::Status(200, echo(seen).to_ascii_uppercase() + "A")),
        Box::new(|_| Reply::Status(200, String::new())),
        Box::new(|_| Reply::Status(204, String::new())),
    ];
    tempers.extend(redirects);
    let receivers = tempers.into_iter().map(async |temper| {
        let receiver = Receiver::start().await;
        receiver.behave(temper);
        let parameters =
            [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &receiver.url("/cb"))];
        assert_eq!(form(hub.address, &parameters).await.unwrap().status, 202);
        receiver.until_verified(1).await;
        receiver
    });
    let mut refusing = Vec::new();
    for receiver in receivers {
        refusing.push(receiver.await);
    }
    hub.until_judged().await;
    let agreeing = Receiver::start().await;
    agreeing.behave(move |seen| match seen.path() {
        _ if !is_verification(seen) => Reply::Agree,
        "/299" => Reply::Status(299, echo(seen)),
        _ => Reply::Status(202, echo(seen)),
    });
    hub.subscribe(TOPIC, &agreeing.url("/299"), &[], 1).await;
    hub.subscribe(TOPIC, &agreeing.url("/202"), &[], 2).await;
    hub.publish(TOPIC, "news").await.unwrap();
    agreeing.until_delivered(2).await;
    hub.until_done().await;
    hub.until_subscribed(2).await;
    assert!(refusing.iter().all(|receiver| receiver.deliveries().is_empty()));
    assert!(elsewhere.seen().is_empty(), "no redirect was followed");
}

#[tokio::test]
async fn b11_b12_w062_a_failed_verification_changes_nothing() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    hub.subscribe(TOPIC, &callback, &[("hub.secret", "old")], 1).await;
    destination
        .behave(|seen| if is_verification(seen) { Reply::Status(404, String::new()) } else { Reply::Agree });
    for (number, mode) in [(2, "subscribe"), (3, "unsubscribe")] {
        let parameters =
            [("hub.mode", mode), ("hub.topic", TOPIC), ("hub.callback", &callback), ("hub.secret", "new")];
        assert_eq!(form(hub.address, &parameters).await.unwrap().status, 202);
        destination.until_verified(number).await;
        // What the refusal changes, it has changed now.
        hub.until_judged().await;
        hub.publish(TOPIC, mode).await.unwrap();
        let deliveries = destination.until_delivered(number - 1).await;
        assert!(deliveries[number - 2].is_signed_with("old"));
    }
    hub.until_subscribed(1).await;
}

#[tokio::test]
async fn b11_d19_w062_a_renewal_that_fails_leaves_the_lease() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    hub.subscribe(TOPIC, &callback, &[("hub.lease_seconds", "3600")], 1).await;
    destination
        .behave(|seen| if is_verification(seen) { Reply::Status(404, String::new()) } else { Reply::Agree });
    let renewal = [
        ("hub.mode", "subscribe"),
        ("hub.topic", TOPIC),
        ("hub.callback", &callback),
        ("hub.lease_seconds", "1"),
    ];
    assert_eq!(form(hub.address, &renewal).await.unwrap().status, 202);
    let asked = destination.until_verified(2).await;
    assert_eq!(asked.parameter("hub.lease_seconds").as_deref(), Some("1"));
    hub.until_judged().await;
    eventually("the lease that was not confirmed would be over", || async {
        asked.at.elapsed() > Duration::from_millis(1_500)
    })
    .await;
    hub.publish(TOPIC, "news").await.unwrap();
    assert_eq!(destination.until_delivered(1).await[0].text(), "news");
}

#[tokio::test]
async fn b13_w061_w063_w064_a_new_secret_counts_from_its_verification_on() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    let mut expected: Vec<Option<&str>> = Vec::new();
    for secret in [Some("one"), Some("two"), None] {
        let more: Vec<_> = secret.iter().map(|secret| ("hub.secret", *secret)).collect();
        hub.subscribe(TOPIC, &callback, &more, 1).await;
        let number = expected.len() + 1;
        destination.until_verified(number).await;
        // The verification has been answered; that it is in force shows in the lease, which grows with each renewal.
        eventually("the renewal is in force", || async {
            hub.publish(TOPIC, &format!("{secret:?}")).await.unwrap();
            let seen = destination.until_delivered(destination.deliveries().len().max(1)).await;
            let last = seen.last().expect("there is one").clone();
            match secret {
                Some(secret) => last.is_signed_with(secret),
                None => last.headers.get("x-hub-signature").is_none(),
            }
        })
        .await;
        expected.push(secret);
    }
}

#[tokio::test]
async fn b14_w123_nothing_is_delivered_after_the_lease_and_a_renewal_extends_it() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (ending, renewing, control) =
        (Receiver::start().await, Receiver::start().await, Receiver::start().await);
    let lease = ("hub.lease_seconds", "4");
    hub.subscribe(TOPIC, &ending.url("/cb"), &[lease], 1).await;
    hub.subscribe(TOPIC, &renewing.url("/cb"), &[lease], 2).await;
    hub.subscribe(TOPIC, &control.url("/cb"), &[], 3).await;
    assert_eq!(ending.until_verified(1).await.parameter("hub.lease_seconds").as_deref(), Some("4"));
    hub.subscribe(TOPIC, &renewing.url("/cb"), &[("hub.lease_seconds", "3600")], 3).await;
    renewing.until_verified(2).await;
    let asked = ending.until_verified(1).await.at;
    eventually("the lease is over", || async { asked.elapsed() > Duration::from_millis(4_100) }).await;

    hub.publish(TOPIC, "late news").await.unwrap();
    control.until_delivered(1).await;
    renewing.until_delivered(1).await;
    hub.publish(TOPIC, "later news").await.unwrap();
    control.until_delivered(2).await;
    hub.until_done().await;
    assert!(ending.deliveries().is_empty(), "W-123");
}

#[tokio::test]
async fn b18_w002_pairs_of_topic_and_callback_are_independent() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let other = "http://example.com/other/";
    hub.subscribe(TOPIC, &destination.url("/a"), &[], 1).await;
    hub.subscribe(TOPIC, &destination.url("/b"), &[], 2).await;
    hub.subscribe(other, &destination.url("/a"), &[], 3).await;
    hub.publish(TOPIC, "framework").await.unwrap();
    hub.publish(other, "other").await.unwrap();
    let mut got: Vec<_> = destination
        .until_delivered(3)
        .await
        .iter()
        .map(|seen| (seen.path().to_owned(), seen.text()))
        .collect();
    got.sort();
    let expected = [("/a", "framework"), ("/a", "other"), ("/b", "framework")];
    assert_eq!(got, expected.map(|(path, body)| (path.to_owned(), body.to_owned())));
}

#[tokio::test]
async fn b29_a_request_that_was_acknowledged_is_verified_even_after_kill_9() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    destination.behave(|_| Reply::Hang);
    let parameters =
        [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &destination.url("/cb"))];
    assert_eq!(form(hub.address, &parameters).await.unwrap().status, 202);
    destination.until_verified(1).await;
    hub.kill().await;
    destination.behave(|_| Reply::Agree);
    hub.restart().await;
    destination.until_verified(2).await;
    hub.until_subscribed(1).await;
}

/// They hang up as soon as they have asked, while the request is written down. What is durable is acted upon, and not only by the next start.
#[tokio::test]
async fn b29_what_is_durable_is_verified_although_the_client_hung_up() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    for number in 0..60 {
        let callback = destination.url(&format!("/{number}"));
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)])
            .finish();
        let mut client = TcpStream::connect(hub.address).await.unwrap();
        let head = "POST /websub/ HTTP/1.1\r\nHost: hub\r\nContent-Type: application/x-www-form-urlencoded";
        let asked = format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        client.write_all(asked.as_bytes()).await.unwrap();
    }
    destination.until_verified(1).await;
    eventually("nothing that was written down waits for the next start", || async {
        let answer = hub.admin("/api/v1/drain").await;
        let owed: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
        owed["to_verify"] == 0 && owed["under_way"] == 0
    })
    .await;
}

#[tokio::test]
async fn b34_d17_a_hundred_parallel_requests_for_a_pair_end_as_one_subscription() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    let address = hub.address;
    let requests: Vec<_> = (0..100)
        .map(|_| {
            let callback = callback.clone();
            tokio::spawn(async move {
                let parameters =
                    [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
                form(address, &parameters).await.unwrap().status
            })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.unwrap(), 202);
    }
    hub.until_subscribed(1).await;
    hub.publish(TOPIC, "one").await.unwrap();
    hub.publish(TOPIC, "two").await.unwrap();
    let bodies: Vec<_> = destination.until_delivered(2).await.iter().map(Seen::text).collect();
    assert_eq!(bodies, ["one", "two"]);
}

#[tokio::test]
async fn b29_a_crash_between_the_202s_and_the_verifications_loses_none() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    destination.behave(|_| Reply::Hang);
    for number in 0..50 {
        let callback = destination.url(&format!("/{number}"));
        let parameters =
            [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
        assert_eq!(form(hub.address, &parameters).await.unwrap().status, 202);
    }
    hub.kill().await;
    destination.behave(|_| Reply::Agree);
    hub.restart().await;
    hub.until_subscribed(50).await;
    hub.publish(TOPIC, "news").await.unwrap();
    let paths: std::collections::BTreeSet<_> =
        destination.until_delivered(50).await.iter().map(|seen| seen.path().to_owned()).collect();
    assert_eq!(paths.len(), 50);
}

#[tokio::test]
async fn d17_the_newest_request_counts_and_not_the_one_that_was_verified_last() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_with(folder.path(), &[("LOG_FILTER", "debug")]).await;
    let destination = Receiver::start().await;
    let (callback, release) = (destination.url("/cb"), Arc::new(Notify::new()));
    let held = Arc::clone(&release);
    destination.behave(move |_| Reply::After(Arc::clone(&held), Box::new(Reply::Agree)));
    let older =
        [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback), ("hub.secret", "old")];
    assert_eq!(form(hub.address, &older).await.unwrap().status, 202);
    destination.until_verified(1).await;
    destination.behave(|_| Reply::Agree);
    hub.subscribe(TOPIC, &callback, &[("hub.secret", "new")], 1).await;
    release.notify_one();
    hub.process().line("request replaced by a newer one").await;
    hub.publish(TOPIC, "news").await.unwrap();
    assert!(destination.until_delivered(1).await[0].is_signed_with("new"));
}

#[tokio::test]
async fn d19_w061_until_a_renewal_is_confirmed_deliveries_go_on_as_before() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    hub.subscribe(TOPIC, &callback, &[("hub.secret", "old")], 1).await;
    destination.behave(|seen| if is_verification(seen) { Reply::Hang } else { Reply::Agree });
    let renewal =
        [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback), ("hub.secret", "new")];
    assert_eq!(form(hub.address, &renewal).await.unwrap().status, 202);
    destination.until_verified(2).await;
    hub.publish(TOPIC, "meanwhile").await.unwrap();
    assert!(destination.until_delivered(1).await[0].is_signed_with("old"));
}

#[tokio::test]
async fn b08_w110_w186_every_challenge_is_new_and_cannot_be_taken_for_code() {
    let destination = Receiver::start().await;
    // At two hubs, of which none may say what the other has said.
    for _ in 0..2 {
        let folder = tempdir().unwrap();
        let hub = HubProcess::start(folder.path()).await;
        let before = destination.seen().len();
        for number in 0..25 {
            hub.subscribe(TOPIC, &destination.url("/renewed"), &[], number + 1).await;
            hub.subscribe(TOPIC, &destination.url(&format!("/{number}")), &[], number + 2).await;
            destination.until_verified(before + 2 * number + 2).await;
        }
    }
    let challenges: Vec<_> =
        destination.seen().iter().filter_map(|seen| seen.parameter("hub.challenge")).collect();
    assert_eq!(challenges.len(), 100);
    let safe = |c: char| c.is_ascii_alphanumeric() || "+-./=_".contains(c);
    assert!(challenges.iter().all(|challenge| challenge.chars().all(safe)));
    assert_cannot_be_guessed("challenges", &challenges);
}

#[tokio::test]
async fn b15_w111_a_lease_counts_from_the_question_and_not_from_a_slow_answer() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let (slow, control) = (Receiver::start().await, Receiver::start().await);
    slow.behave(|_| Reply::Late(Duration::from_secs(2)));
    hub.subscribe(TOPIC, &slow.url("/cb"), &[("hub.lease_seconds", "4")], 1).await;
    hub.subscribe(TOPIC, &control.url("/cb"), &[], 2).await;
    let asked = slow.until_verified(1).await.at;
    eventually("the lease is over", || async { asked.elapsed() > Duration::from_millis(4_100) }).await;
    hub.publish(TOPIC, "late news").await.unwrap();
    control.until_delivered(1).await;
    hub.publish(TOPIC, "later news").await.unwrap();
    control.until_delivered(2).await;
    hub.until_done().await;
    assert!(slow.deliveries().is_empty());
}

#[tokio::test]
async fn b16_c07_d04_w051_w111_w124_no_lease_is_for_ever_whatever_was_wished() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let wishes: [&[(&str, &str)]; 3] =
        [&[("hub.lease_seconds", "99999999999")], &[], &[("hub.lease_seconds", "")]];
    for (number, wish) in wishes.into_iter().enumerate() {
        hub.subscribe(TOPIC, &destination.url(&format!("/{number}")), wish, number + 1).await;
        let lease = destination.until_verified(number + 1).await.parameter("hub.lease_seconds").unwrap();
        assert!((1..=2_592_000).contains(&lease.parse::<u64>().unwrap()), "{lease}");
    }
}

#[tokio::test]
async fn b17_d05_w053_c01_c03_what_older_subscribers_send_is_ignored() {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    let older = [
        ("hub.verify", "sync"),
        ("hub.verify", "async"),
        ("hub.verify_token", ""),
        ("hub.secret", ""),
        ("mode", "unsubscribe"),
    ];
    hub.subscribe(TOPIC, &callback, &older, 1).await;
    let unsubscribe = [
        ("hub.mode", "unsubscribe"),
        ("hub.topic", TOPIC),
        ("hub.callback", callback.as_str()),
        ("hub.lease_seconds", "abc"),
    ];
    assert_eq!(form(hub.address, &unsubscribe).await.unwrap().status, 202);
    hub.until_subscribed(0).await;
    assert_eq!(destination.until_verified(2).await.parameter("hub.mode").as_deref(), Some("unsubscribe"));
}

#[tokio::test]
async fn d07_unsubscribing_what_nobody_subscribed_tells_nothing() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let parameters =
        [("hub.mode", "unsubscribe"), ("hub.topic", TOPIC), ("hub.callback", &destination.url("/cb"))];
    assert_eq!(form(hub.address, &parameters).await.unwrap().status, 202);
    destination.until_verified(1).await;
    hub.process().line("subscription ended on request").await;
    hub.until_done().await;
    assert_eq!(destination.seen().len(), 1, "B-33: asked once, and nothing more");
}
