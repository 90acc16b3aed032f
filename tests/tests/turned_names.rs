//! Names that confirm here and lead elsewhere afterwards: nobody makes the hub deliver to somebody who asked for nothing (B-33).
//!
//! The attacker lives on 127.0.1.1 and confirms whatever it is asked; at the same port of 127.0.2.1 is its victim.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::{IpAddr, Ipv4Addr};

use resync_tests::harness::{HubProcess, NameServer, Receiver, Reply, eventually, form};
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
        let (own, elsewhere) = neighbours().await;
        let data = tempdir().unwrap();
        let nameservers = names.configured();
        let keys = [("EGRESS_NAMESERVERS", nameservers.as_str()), ("LIMITS_UNCONFIRMED", trickle)];
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

    async fn attempts(&self) -> u64 {
        let metrics = self.hub.admin("/metrics").await.text();
        let counts = metrics.lines().filter(|line| line.starts_with("websub_deliveries_total{"));
        counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

/// Receivers at the same port of the attacker's address and elsewhere.
async fn neighbours() -> (Receiver, Receiver) {
    loop {
        let own = Receiver::start_at(IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1))).await;
        let there = (Ipv4Addr::new(127, 0, 2, 1), own.address().port()).into();
        if let Ok(elsewhere) = Receiver::try_start_at(there).await {
            return (own, elsewhere);
        }
    }
}

#[tokio::test]
async fn b33_under_however_many_names_who_asked_for_nothing_gets_a_trickle_and_who_asked_gets_all() {
    let scene = Scene::start("1/h, burst 12").await;
    scene.turn(40).await;
    // It takes what it is sent …
    scene.publish("one", 40).await;
    let taken = scene.elsewhere.deliveries().len();
    assert!((1..=12).contains(&taken), "of forty names: {taken}");
    // … and gets no more over the connections that stand.
    scene.publish("two", taken as u64).await;
    let seen = scene.elsewhere.deliveries().len();
    assert_eq!(seen, taken);
    assert!(scene.own.deliveries().is_empty());

    // Another subscriber at the very same address has asked, and is not held up by any of this.
    scene.names.set("honest.test", &[ELSEWHERE]);
    scene.hub.subscribe(TOPIC, &scene.callback("honest.test"), &[], 41).await;
    for number in 0..20 {
        scene.hub.publish(TOPIC, &number.to_string()).await.unwrap();
    }
    let got = scene.elsewhere.until_delivered(taken + 20).await;
    let honest = got.iter().filter(|seen| seen.path() == "/honest.test").count();
    assert_eq!(honest, 20, "and nobody else got more");
}

#[tokio::test]
async fn b33_under_however_many_names_who_asked_for_nothing_gets_few_bytes() {
    const BODY: usize = 512 * 1_024;
    let scene = Scene::start("1/h, burst 40").await;
    scene.turn(20).await;
    scene.publish(&"x".repeat(BODY), 20).await;
    let bytes: usize = scene.elsewhere.deliveries().iter().map(|seen| seen.body.len()).sum();
    assert!(bytes > 0 && bytes <= 40 * 16 * 1_024 + BODY, "{bytes}");
}

#[tokio::test]
async fn a_subscriber_that_has_moved_gets_a_little_and_all_of_it_as_soon_as_it_renews_also_after_a_restart() {
    let mut scene = Scene::start("1/h, burst 3").await;
    scene.names.set("moving.test", &[OWN]);
    let callback = scene.callback("moving.test");
    scene.hub.subscribe(TOPIC, &callback, &[], 1).await;
    scene.names.set("moving.test", &[ELSEWHERE]);
    for number in 0..10 {
        scene.hub.publish(TOPIC, &number.to_string()).await.unwrap();
    }
    eventually("it is held up", || async { scene.attempts().await >= 4 }).await;
    assert_eq!(scene.elsewhere.deliveries().len(), 3);

    let renewal = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
    assert_eq!(form(scene.hub.address, &renewal).await.unwrap().status, 202);
    let all = scene.elsewhere.until_delivered(10).await;
    assert_eq!(all.last().unwrap().text(), "9");

    scene.hub.stop().await;
    scene.hub.restart().await;
    for number in 10..20 {
        scene.hub.publish(TOPIC, &number.to_string()).await.unwrap();
    }
    let all = scene.elsewhere.until_delivered(20).await;
    assert_eq!(all.last().unwrap().text(), "19");
}

#[tokio::test]
async fn b33_who_refuses_what_it_never_asked_for_gets_less() {
    let scene = Scene::start("1/h, burst 40").await;
    scene.elsewhere.behave(|_| Reply::Status(405, String::new()));
    let mut refused = 0;
    // One after the other, so that each refusal is known before the next name has its turn.
    for number in 0..20 {
        let (name, topic) = (format!("n{number}.evil.test"), format!("{TOPIC}/{number}"));
        scene.names.set(&name, &[OWN]);
        scene.hub.subscribe(&topic, &scene.callback(&name), &[], number + 1).await;
        scene.names.set(&name, &[ELSEWHERE]);
        let before = scene.attempts().await;
        scene.hub.publish(&topic, "unwanted").await.unwrap();
        eventually("it had its turn", || async { scene.attempts().await > before }).await;
        refused = scene.elsewhere.deliveries().len();
    }
    assert_eq!(refused, 10, "four times as few as would be taken");
}
