//! Names that confirm here and lead elsewhere afterwards: nobody makes the hub deliver to somebody who asked for nothing (B-33),
//! and who moves or has many addresses gets everything all the same.
//!
//! The attacker lives on 127.0.1.1 and confirms whatever it is asked; at the same port of 127.0.2.1 is its victim, which takes what
//! it is sent and knows nothing of the attacker's subscriptions.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::SocketAddr;

use http::Method;
use resync_harness::{HubProcess, NameServer, Receiver, Reply, Seen, eventually, form};
use resync_judge::is_signature;
use tempfile::{TempDir, tempdir};

const TOPIC: &str = "http://source.example/topic";
const OWN: &str = "127.0.1.1";
const ELSEWHERE: &str = "127.0.2.1";

/// A public hub with a name server, and receivers at the same port of two networks.
struct Scene {
    hub: HubProcess,
    names: NameServer,
    own: Receiver,
    elsewhere: Receiver,
    _data: TempDir,
}

impl Scene {
    /// `trickle` is what goes to a network whose addresses have not confirmed.
    async fn start(trickle: &str) -> Self {
        let names = NameServer::start().await;
        let [own, elsewhere] = at_one_port(&[OWN, ELSEWHERE]).await.try_into().unwrap();
        elsewhere.behave(bystander);
        let data = tempdir().unwrap();
        let nameservers = names.configured();
        let keys = [
            ("EGRESS_NAMESERVERS", nameservers.as_str()),
            ("LIMITS_UNCONFIRMED", trickle),
            ("SIGNATURE_BY_HOST", "[\"moving.test=sha512\"]"),
        ];
        let hub = HubProcess::start_public(data.path(), &keys).await;
        Self { hub, names, own, elsewhere, _data: data }
    }

    fn callback(&self, name: &str) -> String {
        format!("http://{name}:{}/{name}", self.own.address().port())
    }

    /// Subscribes under so many names, which then lead elsewhere.
    async fn turn(&self, count: usize) {
        for number in 0..count {
            let name = format!("n{number}.evil.test");
            self.names.set(&name, &[OWN]);
            let callback = self.callback(&name);
            let parameters =
                [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
            assert_eq!(form(self.hub.address, &parameters).await.unwrap().status, 202);
        }
        self.hub.until_subscribed(count).await;
        (0..count).for_each(|number| self.names.set(&format!("n{number}.evil.test"), &[ELSEWHERE]));
    }

    /// Publishes, and waits until so many deliveries have come to something.
    async fn publish(&self, body: &str, count: u64) {
        let before = self.attempts().await;
        assert_eq!(self.hub.publish(TOPIC, body).await.unwrap().status, 202);
        eventually("everybody had a turn", || async { self.attempts().await >= before + count }).await;
    }

    async fn publish_many(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            assert_eq!(self.hub.publish(TOPIC, &number.to_string()).await.unwrap().status, 202);
        }
    }

    async fn attempts(&self) -> u64 {
        self.count("websub_deliveries_total{").await
    }

    /// How many callbacks were asked where their names led, and answered so.
    async fn asked(&self, result: &str) -> u64 {
        self.count(&format!("websub_reverifications_total{{result=\"{result}\"}}")).await
    }

    async fn count(&self, series: &str) -> u64 {
        let metrics = self.hub.admin("/metrics").await.text();
        let counts = metrics.lines().filter(|line| line.starts_with(series));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

/// Whoever is no party to the subscriptions of the evil names; deliveries are taken.
fn bystander(seen: &Seen) -> Reply {
    let is_evil = seen.path().ends_with(".evil.test");
    if seen.method == Method::GET && is_evil { Reply::Status(404, String::new()) } else { Reply::Agree }
}

fn questions(receiver: &Receiver) -> Vec<Seen> {
    receiver.seen().into_iter().filter(|seen| seen.method == Method::GET).collect()
}

/// Receivers at the same port of all these addresses.
async fn at_one_port(addresses: &[&str]) -> Vec<Receiver> {
    'ports: loop {
        let mut receivers = vec![Receiver::start_at(addresses[0].parse().unwrap()).await];
        let port = receivers[0].address().port();
        for address in &addresses[1..] {
            let there = SocketAddr::new(address.parse().unwrap(), port);
            match Receiver::try_start_at(there).await {
                Ok(receiver) => receivers.push(receiver),
                Err(_) => continue 'ports,
            }
        }
        return receivers;
    }
}

#[tokio::test]
async fn b33_under_any_number_of_names_an_unconfirmed_address_gets_little_and_a_confirmed_one_gets_all() {
    let scene = Scene::start("1/h, burst 12").await;
    scene.turn(40).await;
    // Forty names want the same of it: twelve are asked about, and as many deliveries come …
    scene.publish("one", 40).await;
    scene.elsewhere.until_delivered(12).await;
    let taken = scene.elsewhere.seen().len();
    assert_eq!((questions(&scene.elsewhere).len(), taken), (12, 24));
    // … and nothing more, whatever is published.
    for number in 0..3 {
        assert_eq!(scene.hub.publish(TOPIC, &number.to_string()).await.unwrap().status, 202);
    }

    // Another subscriber at the very same address has asked, and is not held up by any of this.
    scene.names.set("honest.test", &[ELSEWHERE]);
    scene.hub.subscribe(TOPIC, &scene.callback("honest.test"), &[], 41).await;
    scene.publish_many(0..20).await;
    let got = scene.elsewhere.until("twenty are honest", |seen| honest(seen).len() >= 20).await;
    let others = got.iter().filter(|seen| seen.path() != "/honest.test").count();
    assert_eq!((honest(&got).len(), others), (20, taken), "and nobody else got more");
}

fn honest(seen: &[Seen]) -> Vec<&Seen> {
    seen.iter().filter(|seen| seen.path() == "/honest.test" && seen.method == Method::POST).collect()
}

#[tokio::test]
async fn b33_w062_a_name_pointed_at_a_victim_brings_it_one_small_request_and_what_the_rate_limit_allows() {
    let scene = Scene::start("1/h, burst 12").await;
    scene.turn(1).await;
    scene.publish_many(0..20).await;
    scene.elsewhere.until_delivered(12).await;
    eventually("the thirteenth is held back", || async { scene.attempts().await > 12 }).await;
    assert_eq!(scene.elsewhere.deliveries().len(), 12);
    let asked = questions(&scene.elsewhere);
    assert_eq!(asked.len(), 1, "it is not asked again");
    assert_eq!(asked[0].parameter("hub.mode").as_deref(), Some("subscribe"));
    assert_eq!(asked[0].parameter("hub.topic").as_deref(), Some(TOPIC));
    assert!(asked[0].body.is_empty() && asked[0].target.len() < 300, "{}", asked[0].target);
    assert_eq!((scene.asked("refused").await, scene.asked("confirmed").await), (1, 0));
    // Its no ends nothing: the subscription is its subscriber's.
    scene.names.set("n0.evil.test", &[OWN]);
    let callback = scene.callback("n0.evil.test");
    scene.hub.subscribe(TOPIC, &callback, &[], 1).await;
    assert_eq!(scene.own.until_delivered(8).await.len(), 8, "what was held back goes home");
}

#[tokio::test]
async fn b33_under_however_many_names_who_asked_for_nothing_gets_few_bytes() {
    const BODY: usize = 512 * 1_024;
    let scene = Scene::start("1/h, burst 40").await;
    scene.turn(5).await;
    scene.publish(&"x".repeat(BODY), 5).await;
    let bytes: usize = scene.elsewhere.deliveries().iter().map(|seen| seen.body.len()).sum();
    assert!(bytes > 0 && bytes <= 40 * 16 * 1_024 + BODY, "{bytes}");
}

#[tokio::test]
async fn w065_a_subscriber_that_has_moved_is_asked_once_and_gets_everything_at_once_also_after_a_restart() {
    let mut scene = Scene::start("1/h, burst 2").await;
    scene.names.set("moving.test", &[OWN]);
    scene.hub.subscribe(TOPIC, &scene.callback("moving.test"), &[("hub.secret", "s3cr3t")], 1).await;
    scene.names.set("moving.test", &[ELSEWHERE]);
    scene.publish_many(0..20).await;
    let all = scene.elsewhere.until_delivered(20).await;
    assert_eq!(all.last().unwrap().text(), "19");
    let asked = questions(&scene.elsewhere);
    assert_eq!(asked.len(), 1);
    let lease: u64 = asked[0].parameter("hub.lease_seconds").unwrap().parse().unwrap();
    let told = questions(&scene.own)[0].parameter("hub.lease_seconds").unwrap().parse().unwrap();
    assert!(lease <= told && lease + 600 > told, "what is left of {told}: {lease}");
    assert_eq!(scene.asked("confirmed").await, 1);
    // As docs/protocol.md has it for those who check it themselves: the words, and the method of deliveries.
    let signed = format!("GET hub.mode=subscribe in force\n{}", asked[0].target.split_once('?').unwrap().1);
    let signature = asked[0].header("x-hub-query-signature");
    let shows_who_asks = is_signature(signature, "s3cr3t", signed.as_bytes());
    assert!(shows_who_asks && signature.starts_with("sha512="), "{signature}");

    // What the record does not know is asked once more.
    scene.hub.stop().await;
    scene.hub.restart().await;
    scene.publish_many(20..40).await;
    let all = scene.elsewhere.until_delivered(40).await;
    assert_eq!(all.last().unwrap().text(), "39");
    assert_eq!(questions(&scene.elsewhere).len(), 2);
}

#[tokio::test]
async fn w065_a_pool_of_addresses_in_rotation_gets_everything() {
    let scene = Scene::start("1/h, burst 2").await;
    let addresses = ["127.0.3.1", "127.0.3.2", "127.0.3.3"];
    let pool = at_one_port(&addresses).await;
    for receiver in &pool {
        // Each delivery needs a connection of its own, and so a lookup.
        receiver.behave(|seen| match seen.method {
            Method::POST => Reply::With(204, "connection", "close".to_owned()),
            _ => Reply::Agree,
        });
    }
    let callback = format!("http://pool.test:{}/pool.test", pool[0].address().port());
    scene.names.set("pool.test", &addresses[..1]);
    scene.hub.subscribe(TOPIC, &callback, &[], 1).await;
    let turns: Vec<_> = (0..60).map(|turn| &addresses[turn % 3..=turn % 3]).collect();
    scene.names.set_in_turn("pool.test", &turns);
    scene.publish_many(0..30).await;
    let came = || pool.iter().map(|receiver| receiver.deliveries().len()).collect::<Vec<_>>();
    eventually("all thirty have come", || async { came().iter().sum::<usize>() == 30 }).await;
    assert!(came().iter().all(|count| *count >= 9), "{:?}", came());
    let asked: Vec<_> = pool.iter().map(|receiver| questions(receiver).len()).collect();
    assert_eq!(asked, [1, 1, 1], "the first when it subscribed, the others when they were new");
}

#[tokio::test]
async fn a_subscriber_that_moves_and_says_no_gets_a_little_and_all_as_soon_as_it_renews_also_after_a_restart()
{
    let mut scene = Scene::start("1/h, burst 7").await;
    scene.names.set("moving.evil.test", &[OWN]);
    let callback = scene.callback("moving.evil.test");
    scene.hub.subscribe(TOPIC, &callback, &[], 1).await;
    scene.names.set("moving.evil.test", &[ELSEWHERE]);
    scene.publish_many(0..10).await;
    eventually("it is held up", || async { scene.attempts().await >= 8 }).await;
    assert_eq!(scene.elsewhere.deliveries().len(), 7);

    scene.elsewhere.behave(|_| Reply::Agree);
    let renewal = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
    assert_eq!(form(scene.hub.address, &renewal).await.unwrap().status, 202);
    let all = scene.elsewhere.until_delivered(10).await;
    assert_eq!(all.last().unwrap().text(), "9");
    let asked = questions(&scene.elsewhere).len();

    scene.hub.stop().await;
    scene.hub.restart().await;
    scene.publish_many(10..20).await;
    let all = scene.elsewhere.until_delivered(20).await;
    assert_eq!(all.last().unwrap().text(), "19");
    assert_eq!(questions(&scene.elsewhere).len(), asked, "its record knows where");
}

#[tokio::test]
async fn b33_who_refuses_what_it_never_asked_for_gets_less() {
    let scene = Scene::start("1/h, burst 40").await;
    scene.elsewhere.behave(|_| Reply::Status(405, String::new()));
    // One after the other, so that each refusal is known before the next name has its turn.
    for number in 0..20 {
        let (name, topic) = (format!("n{number}.evil.test"), format!("{TOPIC}/{number}"));
        scene.names.set(&name, &[OWN]);
        scene.hub.subscribe(&topic, &scene.callback(&name), &[], number + 1).await;
        scene.names.set(&name, &[ELSEWHERE]);
        let before = scene.attempts().await;
        scene.hub.publish(&topic, "unwanted").await.unwrap();
        eventually("it had its turn", || async { scene.attempts().await > before }).await;
    }
    assert_eq!(scene.elsewhere.deliveries().len(), 10, "four times as few as would be taken");
    assert_eq!(questions(&scene.elsewhere).len(), 20, "each name is asked about once");
}

#[tokio::test]
async fn w065_who_has_one_path_of_a_shared_name_does_not_say_no_for_the_others() {
    let scene = Scene::start("1/h, burst 4").await;
    scene.names.set("shared.test", &[OWN]);
    let at = |path: &str| format!("http://shared.test:{}/{path}", scene.own.address().port());
    let topic = format!("{TOPIC}/honest");
    scene.hub.subscribe(TOPIC, &at("a.evil.test"), &[], 1).await;
    scene.hub.subscribe(&topic, &at("honest.test"), &[], 2).await;
    scene.names.set("shared.test", &[ELSEWHERE]);
    scene.publish_many(0..10).await;
    eventually("it has said no", || async { scene.asked("refused").await == 1 }).await;
    for number in 0..20 {
        scene.hub.publish(&topic, &number.to_string()).await.unwrap();
    }
    scene.elsewhere.until("all twenty have come", |seen| honest(seen).len() == 20).await;
    assert_eq!(scene.asked("confirmed").await, 1);
}
