//! Signatures judged by Python, which decodes the secrets by itself: the hub signs as it was asked to, by every method, through deaths,
//! restarts, new keys and renewals.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use resync_harness::{ENGINES, HubProcess, Receiver, Reply, Seen, eventually, post};
use resync_judge::{Signed, signatures_of_python};
use tempfile::tempdir;
use tokio::sync::Notify;

use super::secrecy::{command, new_key};

const TOPIC: &str = "http://source.example/topic";
/// Each method has a host of its own.
const METHODS: [(&str, u8); 4] = [("sha256", 1), ("sha1", 2), ("sha384", 3), ("sha512", 4)];
const BY_HOST: (&str, &str) =
    ("SIGNATURE_BY_HOST", "[\"127.0.0.2=sha1\", \"127.0.0.3=sha384\", \"127.0.0.4=sha512\"]");
/// As they stand in the form: letters of two, three and four bytes, digits of either case, what a form has to escape, what nobody can
/// see, and more bytes than a block of any of the hash functions.
const SECRETS: [&str; 5] = [
    "Gr%C3%BC%C3%9Fe+aus+K%c3%b6ln",
    "%E7%A7%98%E5%AF%86%F0%9F%94%91%CC%88",
    "a%2Bb%26c%3Dd%25e%20f%3B",
    "%00%09%0A%0D%01%7F%C2%85%EF%BB%BF",
    concat!(
        "%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC",
        "%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC",
        "%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC",
        "%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC%C3%BC",
        "x"
    ),
];
const LATER: &str = "sp%C3%A4ter+%E2%82%AC";

#[tokio::test]
async fn w017_w165_w166_w167_w168_w191_b21_python_agrees_with_every_signature_of_any_method_secret_and_body()
{
    let folder = tempdir().unwrap();
    let hub = HubProcess::start_with(folder.path(), &[BY_HOST]).await;
    let receivers = receivers().await;
    for (receiver, _) in &receivers {
        for (number, secret) in SECRETS.iter().enumerate() {
            ask(&hub, &receiver.url(&format!("/{number}")), secret, 86_400).await;
        }
    }
    hub.until_subscribed(METHODS.len() * SECRETS.len()).await;

    let any_byte: Vec<u8> = (0..=255).collect();
    let bodies = ["Gr\u{fc}\u{df}e\r\n".as_bytes(), &any_byte, &any_byte.repeat(2_000), b"\0"];
    let link = format!("<{TOPIC}>; rel=\"self\", <{}>; rel=\"hub\"", hub.url());
    for body in bodies {
        let headers = [("Content-Type", "application/octet-stream"), ("Link", link.as_str())];
        assert_eq!(post(hub.address, &headers, body).await.unwrap().status, 202);
    }
    for (receiver, method) in &receivers {
        let got = receiver.until_delivered(bodies.len() * SECRETS.len()).await;
        let secret = |seen: &Seen| SECRETS[seen.path()[1..].parse::<usize>().unwrap()];
        for body in bodies {
            assert_eq!(got.iter().filter(|seen| &seen.body[..] == body).count(), SECRETS.len(), "{method}");
        }
        let expected = by_python(method, got.iter().map(|seen| (secret(seen), seen)));
        for (seen, expected) in got.iter().zip(expected) {
            assert_eq!(signed(seen), expected, "{method}, {}", secret(seen));
        }
    }
}

#[tokio::test]
async fn w017_w063_w168_b21_a_death_a_restart_new_keys_and_a_renewal_leave_signatures_right_with_every_method()
 {
    for engine in ENGINES {
        lives(engine).await;
    }
}

/// One hub with one store, and subscribers that look at what they get after all that may happen to it.
struct Lives {
    hub: HubProcess,
    receivers: Vec<(Receiver, &'static str)>,
}

async fn lives(engine: &str) {
    let folder = tempdir().unwrap();
    let (data, file) = (folder.path().join("data"), folder.path().join("keys"));
    let (shown, key_file) = (data.display().to_string(), file.display().to_string());
    let [one, two, three] = [new_key().await, new_key().await, new_key().await];
    fs::write(&file, &one).unwrap();
    let patient = format!("[{}]", ["\"250ms\""; 200].join(", "));
    let keys =
        [("STORE_ENGINE", engine), ("SECRETS_KEY_FILE", &key_file), ("DELIVERY_SCHEDULE", &patient), BY_HOST];
    let hub = HubProcess::start_with(&data, &keys).await;
    let mut all = Lives { hub, receivers: receivers().await };
    let before = SECRETS[1];
    for (receiver, _) in &all.receivers {
        ask(&all.hub, &receiver.url("/cb"), before, 7_200).await;
    }
    all.hub.until_subscribed(4).await;
    all.hear("at first", before).await;

    // What is owed at a death is signed in the next life.
    all.receivers.iter().for_each(|(receiver, _)| receiver.behave(|_| Reply::Status(503, String::new())));
    all.publish("owed").await;
    for (receiver, _) in &all.receivers {
        receiver.until("it refuses", |log| log.iter().any(|seen| seen.text() == "owed")).await;
    }
    // So is what a subscriber gets who is not verified yet: its secret is in the record of the request.
    for (receiver, _) in &all.receivers {
        receiver.behave(|seen| match seen.path() {
            "/late" => Reply::Hang,
            _ => Reply::Status(503, String::new()),
        });
        ask(&all.hub, &receiver.url("/late"), SECRETS[3], 7_200).await;
        receiver.until("it is asked", |log| log.iter().any(|seen| seen.path() == "/late")).await;
    }
    fs::write(&file, format!("{two}\n{one}\n")).unwrap();
    let environment = all.hub.environment().clone();
    let rotate = ["secrets", "rotate", "--data-dir", &shown];
    let (success, said) = command(&rotate, &environment).await;
    assert!(success && said.contains("8 secrets rewritten"), "{engine}, running: {said}");
    fs::write(&file, &two).unwrap();
    all.hub.kill().await;
    all.receivers.iter().for_each(|(receiver, _)| receiver.behave(|_| Reply::Agree));
    all.hub.restart().await;
    all.hub.until_subscribed(8).await;
    all.hear("under the second key, after a death", before).await;
    for (receiver, method) in &all.receivers {
        let log = receiver.until("the late one hears", |log| log.iter().any(is_late)).await;
        let late = log.iter().find(|seen| is_late(seen)).unwrap();
        assert_eq!(
            signed(late),
            by_python(method, [(SECRETS[3], late)])[0],
            "{engine}, {method}, verified late"
        );
        let owed: Vec<_> = log.iter().filter(|seen| seen.text() == "owed").collect();
        assert!(owed.len() > 1, "{engine}, {method}");
        let expected = by_python(method, owed.iter().map(|seen| (before, *seen)));
        assert!(
            owed.iter().zip(expected).all(|(seen, expected)| signed(seen) == expected),
            "{engine}, {method}"
        );
    }

    all.hub.stop().await;
    fs::write(&file, format!("{three}\n{two}\n")).unwrap();
    let (success, said) = command(&rotate, &environment).await;
    assert!(success && said.contains("8 secrets rewritten"), "{engine}, stopped: {said}");
    fs::write(&file, &three).unwrap();
    all.hub.restart().await;
    all.hear("under the third key, after a restart", before).await;

    let leases = leases(&all.hub).await;
    for (receiver, _) in &all.receivers {
        ask(&all.hub, &receiver.url("/cb"), LATER, 86_400).await;
    }
    eventually("all are renewed", async || self::leases(&all.hub).await.difference(&leases).count() == 4)
        .await;
    all.hear("after a renewal", LATER).await;
    all.hub.kill().await;
    all.hub.restart().await;
    all.hear("after a renewal and a death", LATER).await;
}

impl Lives {
    async fn publish(&self, text: &str) {
        assert_eq!(self.hub.publish(TOPIC, text).await.unwrap().status, 202);
    }

    /// Each gets a notification, signed with this secret.
    async fn hear(&self, text: &str, secret: &str) {
        self.publish(text).await;
        for (receiver, method) in &self.receivers {
            let is_this = |seen: &&Seen| seen.path() == "/cb" && seen.text() == text;
            let log = receiver.until(text, |log| log.iter().any(|seen| is_this(&seen))).await;
            let seen = log.iter().find(is_this).unwrap();
            assert_eq!(signed(seen), by_python(method, [(secret, seen)])[0], "{method}, {text}");
        }
    }
}

#[tokio::test]
async fn w013_w060_w063_w086_while_a_secret_is_renewed_each_delivery_has_the_old_or_the_new_one_and_then_only_the_new()
 {
    let folder = tempdir().unwrap();
    let hub = HubProcess::start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    ask(&hub, &callback, SECRETS[0], 7_200).await;
    hub.until_subscribed(1).await;
    let agreed = Arc::new(Notify::new());
    let release = Arc::clone(&agreed);
    destination.behave(move |seen| match seen.method {
        Method::GET => Reply::After(Arc::clone(&release), Box::new(Reply::Agree)),
        _ => Reply::Agree,
    });

    let is_over = AtomicBool::new(false);
    let publishing = async {
        let mut posted = 0;
        while !is_over.load(Ordering::Relaxed) {
            assert_eq!(hub.publish(TOPIC, &posted.to_string()).await.unwrap().status, 202);
            posted += 1;
        }
        posted
    };
    let renewing = async {
        destination.until_delivered(20).await;
        let leases = leases(&hub).await;
        ask(&hub, &callback, LATER, 86_400).await;
        // It is asked while deliveries go on, and they go on while it thinks.
        destination.until_verified(2).await;
        let unconfirmed = destination.deliveries().len() + 20;
        destination.until_delivered(unconfirmed).await;
        agreed.notify_one();
        eventually("the renewal is in force", async || self::leases(&hub).await.is_disjoint(&leases)).await;
        let confirmed = destination.deliveries().len() + 20;
        destination.until_delivered(confirmed).await;
        is_over.store(true, Ordering::Relaxed);
        unconfirmed
    };
    let (posted, unconfirmed) = tokio::join!(publishing, renewing);
    hub.publish(TOPIC, "last").await.unwrap();
    let got = destination.until_delivered(posted + 1).await;
    let texts: Vec<_> = got.iter().map(Seen::text).collect();
    let expected = (0..posted).map(|number| number.to_string()).chain(["last".to_owned()]);
    assert_eq!(texts, expected.collect::<Vec<_>>(), "each once, in order");

    let [old, new] =
        [SECRETS[0], LATER].map(|secret| by_python("sha256", got.iter().map(|seen| (secret, seen))));
    let is_new: Vec<_> = got
        .iter()
        .zip(old.iter().zip(&new))
        .map(|(seen, (old, new))| match signed(seen) {
            signature if signature == *old => false,
            signature if signature == *new => true,
            signature => panic!("{} is signed with neither: {signature}", seen.text()),
        })
        .collect();
    assert!(is_new[..unconfirmed].iter().all(|is_new| !is_new), "nothing before the confirmation");
    assert!(is_new.is_sorted(), "the old one never comes back: {is_new:?}");
    assert!(is_new[is_new.len() - 10..].iter().all(|is_new| *is_new), "only the new one afterwards");
}

// --- helpers ---

/// A subscriber on the host of each method.
async fn receivers() -> Vec<(Receiver, &'static str)> {
    let mut receivers = Vec::new();
    for (method, host) in METHODS {
        receivers.push((Receiver::start_at(Ipv4Addr::new(127, 0, 0, host).into()).await, method));
    }
    receivers
}

/// Subscribes or renews, with a secret that is written so.
async fn ask(hub: &HubProcess, callback: &str, secret: &str, lease: u32) {
    let [topic, callback] =
        [TOPIC, callback].map(|url| url::form_urlencoded::byte_serialize(url.as_bytes()).collect::<String>());
    let form = format!(
        "hub.mode=subscribe&hub.topic={topic}&hub.callback={callback}&hub.secret={secret}&hub.lease_seconds={lease}"
    );
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let answer = post(hub.address, &headers, form.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 202, "{}", answer.text());
}

fn is_late(seen: &Seen) -> bool {
    seen.method == Method::POST && seen.path() == "/late"
}

fn signed(seen: &Seen) -> &str {
    seen.header("x-hub-signature")
}

/// What Python says that the signatures of these are.
fn by_python<'a>(method: &str, all: impl IntoIterator<Item = (&'a str, &'a Seen)>) -> Vec<String> {
    let all: Vec<_> =
        all.into_iter().map(|(secret, seen)| Signed { method, secret, body: &seen.body }).collect();
    signatures_of_python(&all)
}

/// Each subscription with the end of its lease.
async fn leases(hub: &HubProcess) -> BTreeSet<(u64, String)> {
    let answer = hub.admin("/api/v1/subscriptions").await.text();
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let lease = |one: &serde_json::Value| {
        (one["id"].as_u64().unwrap(), one["lease_end"].as_str().unwrap().to_owned())
    };
    answer["items"].as_array().unwrap().iter().map(lease).collect()
}
