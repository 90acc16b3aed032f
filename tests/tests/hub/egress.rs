//! Nobody makes the hub contact what is not public: every attack on every way out, over real sockets (B-32, D-20).
//!
//! The honest peers live on 127.0.0.2, which this hub is allowed to contact; at the same port of 127.0.0.1 and `::1` is a trap.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use resync_harness::{HubProcess, NameServer, Receiver, Reply, Seen, Trap, eventually, form};
use tempfile::{TempDir, tempdir};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

const HONEST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const REFUSED: &str = "is not a public address";

/// Addresses that a name may turn to, each of them forbidden; `T` in a literal stands for the trap's port.
const ANSWERS: &[&[&str]] = &[
    &["127.0.0.1"],
    &["::1"],
    &["0.0.0.0"],
    &["::"],
    &["::ffff:127.0.0.1"],
    &["::ffff:0:7f00:1"],
    &["::7f00:1"],
    &["64:ff9b::7f00:1"],
    &["2002:7f00:1::"],
    &["fd00::1"],
    &["10.0.0.1"],
    &["169.254.169.254"],
    &["100.64.0.1"],
    // One honest answer does not excuse the other.
    &["127.0.0.2", "127.0.0.1"],
    &["127.0.0.2", "::1"],
];

/// Ways to write loopback and private addresses in a URL.
const SPELLINGS: &[&str] = &[
    "http://127.0.0.1:T/",
    "http://127.1:T/",
    "http://2130706433:T/",
    "http://0x7f000001:T/",
    "http://0x7f.1:T/",
    "http://0177.0.0.1:T/",
    "http://017700000001:T/",
    "http://0.0.0.0:T/",
    "http://0:T/",
    "http://127.0.0.1.:T/",
    "http://%31%32%37.0.0.1:T/",
    "http://①②⑦.0.0.1:T/",
    "http://127。0。0。1:T/",
    "http://[::1]:T/",
    "http://[::]:T/",
    "http://[0:0:0:0:0:0:0:1]:T/",
    "http://[::ffff:127.0.0.1]:T/",
    "http://[::ffff:7f00:1]:T/",
    "http://[::ffff:0:7f00:1]:T/",
    "http://[::7f00:1]:T/",
    "http://[64:ff9b::7f00:1]:T/",
    "http://[2002:7f00:1::]:T/",
    "http://[fe80::1%25lo]:T/",
    "http://[::1%25lo]:T/",
    "http://[fd00::1]:T/",
    "http://10.0.0.1:T/",
    "http://169.254.169.254/latest/meta-data/",
    "http://100.64.0.1/",
    "http://user@127.0.0.1:T/",
    "http://127.0.0.2:T@127.0.0.1:T/",
    "http://127.0.0.2:T\\@127.0.0.1:T/",
    "http://127.0.0.1:T\\@127.0.0.2:T/",
];

/// A public hub that may contact 127.0.0.2, with a name server, an honest peer and the trap at the same port.
struct Scene {
    hub: HubProcess,
    names: NameServer,
    honest: Receiver,
    trap: Trap,
    _data: TempDir,
}

impl Scene {
    async fn start(more: &[(&str, &str)]) -> Self {
        let names = NameServer::start().await;
        let (honest, trap) = neighbours().await;
        let data = tempdir().unwrap();
        let nameservers = names.configured();
        let mut keys = vec![
            ("EGRESS_ALLOW", "[\"127.0.0.2/32\"]"),
            ("EGRESS_NAMESERVERS", nameservers.as_str()),
            ("LIMITS_ENABLED", "false"),
        ];
        keys.extend_from_slice(more);
        let hub = HubProcess::start_public(data.path(), &keys).await;
        Self { hub, names, honest, trap, _data: data }
    }

    fn at_trap(&self, url: &str) -> String {
        url.replace('T', &self.trap.port().to_string())
    }

    async fn ask(&self, topic: &str, callback: &str) -> u16 {
        let parameters = [("hub.mode", "subscribe"), ("hub.topic", topic), ("hub.callback", callback)];
        form(self.hub.address, &parameters).await.unwrap().status
    }

    /// Waits until the log has so many lines with both texts.
    async fn until_said(&mut self, what: &str, why: &str, count: usize) {
        let process = self.hub.process();
        let said = || process.said().lines().filter(|line| line.contains(what) && line.contains(why)).count();
        eventually(&format!("{count} lines with {what:?} and {why:?}"), || async { said() >= count }).await;
    }

    fn assert_nobody_was_caught(&self) {
        assert_eq!(self.trap.caught(), 0, "the trap was contacted");
    }
}

/// An honest peer on 127.0.0.2 and a trap at the same port of 127.0.0.1.
async fn neighbours() -> (Receiver, Trap) {
    loop {
        let honest = Receiver::start_at(HONEST).await;
        if let Some(trap) = Trap::start(honest.address().port()).await {
            return (honest, trap);
        }
    }
}

#[tokio::test]
async fn b32_d20_a_callback_at_a_forbidden_address_is_refused_however_it_is_spelled() {
    let scene = Scene::start(&[]).await;
    for spelling in SPELLINGS {
        let callback = scene.at_trap(spelling);
        assert_eq!(scene.ask("http://source.example/", &callback).await, 400, "{spelling}");
    }
    scene.hub.until_done().await;
    scene.assert_nobody_was_caught();
}

#[tokio::test]
async fn b32_d20_verification_refuses_a_name_with_a_forbidden_address() {
    let mut scene = Scene::start(&[]).await;
    for (number, addresses) in ANSWERS.iter().enumerate() {
        let name = format!("destination-{number}.test");
        scene.names.set(&name, addresses);
        let callback = scene.at_trap(&format!("http://{name}:T/"));
        assert_eq!(scene.ask("http://source.example/", &callback).await, 202, "{addresses:?}");
    }
    // The resolver knows these without asking anybody.
    for name in ["localhost", "localhost.", "a.localhost"] {
        let callback = scene.at_trap(&format!("http://{name}:T/"));
        assert_eq!(scene.ask("http://source.example/", &callback).await, 202, "{name}");
    }
    scene.until_said("request not verified", REFUSED, ANSWERS.len() + 3).await;
    scene.assert_nobody_was_caught();
    assert!(scene.honest.seen().is_empty(), "a mixed answer condemns the name");
}

#[tokio::test]
async fn b32_d20_delivery_refuses_a_name_that_resolves_to_a_forbidden_address_since_its_verification() {
    let mut scene = Scene::start(&[]).await;
    let topic = "http://source.example/turning";
    for (number, addresses) in ANSWERS.iter().enumerate() {
        let name = format!("destination-{number}.test");
        scene.names.set(&name, &["127.0.0.2"]);
        let callback = scene.at_trap(&format!("http://{name}:T/{number}"));
        scene.hub.subscribe(topic, &callback, &[], number + 1).await;
        scene.names.set(&name, addresses);
    }
    assert_eq!(scene.hub.publish(topic, "for nobody").await.unwrap().status, 202);
    scene.until_said("delivery failed", REFUSED, ANSWERS.len()).await;
    scene.assert_nobody_was_caught();
    assert!(scene.honest.deliveries().is_empty());

    // The subscription lives (W-159): as soon as the name is honest again, what comes next arrives.
    scene.names.set("destination-0.test", &["127.0.0.2"]);
    assert_eq!(scene.hub.publish(topic, "for the honest").await.unwrap().status, 202);
    scene.honest.until_delivered(1).await;
}

#[tokio::test]
async fn b32_d20_a_topic_fetch_refuses_forbidden_addresses_and_names() {
    let mut scene = Scene::start(&[]).await;
    let mut topics = vec!["http://127.0.0.1:T/topic".to_owned(), "http://[::1]:T/topic".to_owned()];
    for (number, addresses) in ANSWERS.iter().enumerate() {
        let name = format!("source-{number}.test");
        scene.names.set(&name, addresses);
        topics.push(format!("http://{name}:T/topic"));
    }
    let mut refused = 0;
    for (number, topic) in topics.iter().enumerate() {
        let topic = scene.at_trap(topic);
        scene.hub.subscribe(&topic, &scene.honest.url(&format!("/{number}")), &[], number + 1).await;
        let ping = form(scene.hub.address, &[("hub.mode", "publish"), ("hub.url", &topic)]).await.unwrap();
        // An address in the URL itself may be refused at once.
        refused += usize::from(ping.status == 400);
    }
    scene.until_said("topic not fetched", REFUSED, topics.len() - refused).await;
    scene.assert_nobody_was_caught();
}

#[tokio::test]
async fn b32_d20_every_hop_of_a_redirected_topic_fetch_is_judged() {
    let mut scene = Scene::start(&[]).await;
    scene.names.set("loopback.test", &["127.0.0.1"]);
    let mut hops: Vec<String> = SPELLINGS.iter().map(|url| scene.at_trap(url)).collect();
    hops.retain(|url| url.is_ascii());
    hops.extend([
        scene.at_trap("http://loopback.test:T/"),
        scene.at_trap("//127.0.0.1:T/"),
        "file:///etc/passwd".to_owned(),
        scene.at_trap("gopher://127.0.0.1:T/_x"),
        // An honest hop in between is no excuse.
        scene.honest.url("/hop/0"),
    ]);
    let (targets, port) = (hops.clone(), scene.trap.port());
    scene.honest.behave(move |seen| match seen.path().strip_prefix("/hop/").map(str::parse::<usize>) {
        Some(Ok(hop)) => Reply::With(302, "location", targets[hop].clone()),
        _ => Reply::Agree,
    });
    for number in 0..hops.len() {
        let topic = format!("http://127.0.0.2:{port}/hop/{number}");
        scene.hub.subscribe(&topic, &scene.honest.url(&format!("/cb/{number}")), &[], number + 1).await;
        let ping = form(scene.hub.address, &[("hub.mode", "publish"), ("hub.url", &topic)]).await.unwrap();
        assert_eq!(ping.status / 100, 2, "{topic}");
    }
    for number in 0..hops.len() {
        scene.until_said("topic not fetched", &format!("/hop/{number}"), 1).await;
    }
    scene.assert_nobody_was_caught();
}

#[tokio::test]
async fn d20_the_environments_proxies_are_not_used() {
    let names = NameServer::start().await;
    names.set("destination.test", &["127.0.0.2"]);
    let (honest, trap) = neighbours().await;
    let data = tempdir().unwrap();
    let nameservers = names.configured();
    let keys = [
        ("EGRESS_ALLOW", "[\"127.0.0.2/32\"]"),
        ("EGRESS_NAMESERVERS", nameservers.as_str()),
        ("LIMITS_ENABLED", "false"),
    ];
    let mut hub = HubProcess::prepare_public(data.path(), &keys);
    for variable in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        hub.environment().insert(variable.to_owned(), format!("http://127.0.0.1:{}", trap.port()));
    }
    hub.restart().await;
    let port = trap.port();
    let topic = format!("http://destination.test:{port}/topic");
    hub.subscribe(&topic, &format!("http://destination.test:{port}/cb"), &[], 1).await;
    form(hub.address, &[("hub.mode", "publish"), ("hub.url", &topic)]).await.unwrap();
    assert_eq!(hub.publish(&topic, "direct").await.unwrap().status, 202);
    honest.until_delivered(1).await;
    assert_eq!(trap.caught(), 0, "a proxy was asked");
}

#[tokio::test]
async fn b32_w089_a_port_that_is_not_on_the_list_is_not_contacted() {
    let scene = Scene::start(&[("EGRESS_PORTS", "[80, 443]")]).await;
    assert_eq!(scene.ask("http://source.example/", &scene.honest.url("/cb")).await, 400);
    assert_eq!(scene.ask("http://source.example/", "http://destination.test:25/cb").await, 400);
    assert_eq!(scene.ask("http://source.example/", "http://destination.test:0/cb").await, 400);
    scene.hub.until_done().await;
    assert!(scene.honest.seen().is_empty());
}

/// The first lookup finds the honest peer, any later one the trap: whoever looks a name up once to judge it and once more to
/// connect is caught, or judges what it does not connect to.
const REBINDING: &[&[&str]] = &[&["127.0.0.2"], &["127.0.0.1"]];

#[tokio::test]
async fn b32_d20_what_verification_judges_it_connects_to() {
    let scene = Scene::start(&[]).await;
    scene.names.set_in_turn("rebinding.test", REBINDING);
    scene.hub.subscribe("http://source.example/", &scene.at_trap("http://rebinding.test:T/cb"), &[], 1).await;
    scene.assert_nobody_was_caught();
}

#[tokio::test]
async fn b32_d20_what_delivery_judges_it_connects_to() {
    let scene = Scene::start(&[]).await;
    let topic = "http://source.example/";
    scene.names.set("rebinding.test", &["127.0.0.2"]);
    scene.hub.subscribe(topic, &scene.at_trap("http://rebinding.test:T/cb"), &[], 1).await;
    scene.names.set_in_turn("rebinding.test", REBINDING);
    assert_eq!(scene.hub.publish(topic, "for the honest").await.unwrap().status, 202);
    scene.honest.until_delivered(1).await;
    scene.assert_nobody_was_caught();
}

#[tokio::test]
async fn b32_d20_what_a_topic_fetch_judges_it_connects_to() {
    let scene = Scene::start(&[]).await;
    let topic = scene.at_trap("http://rebinding.test:T/topic");
    scene.hub.subscribe(&topic, &scene.honest.url("/cb"), &[], 1).await;
    // The very first lookup tells whose turn it is to be asked, and is neither judged nor connected to.
    scene.names.set_in_turn("rebinding.test", &[&["127.0.0.2"], REBINDING[0], REBINDING[1]]);
    scene.honest.behave(|seen| match seen.path() {
        "/topic" => Reply::Status(200, "news".to_owned()),
        _ => Reply::Agree,
    });
    let ping = form(scene.hub.address, &[("hub.mode", "publish"), ("hub.url", &topic)]).await.unwrap();
    assert_eq!(ping.status, 204);
    assert_eq!(scene.honest.until_delivered(1).await[0].text(), "news");
    scene.assert_nobody_was_caught();
}

#[tokio::test]
async fn b32_d20_what_a_denial_judges_it_connects_to() {
    let scene = Scene::start(&[]).await;
    let topic = "http://source.example/denied";
    // Without an open connection, which leads where it was judged, the denial has to connect anew.
    scene.honest.behave(|seen| {
        let challenge = seen.parameter("hub.challenge").unwrap_or_default();
        Reply::Page(200, vec![("connection", "close".into())], challenge)
    });
    scene.names.set("rebinding.test", &["127.0.0.2"]);
    scene.hub.subscribe(topic, &scene.at_trap("http://rebinding.test:T/cb"), &[], 1).await;
    scene.names.set_in_turn("rebinding.test", REBINDING);
    let denied = format!("{{\"topic\":\"{topic}\"}}");
    assert_eq!(scene.hub.admin_post("/api/v1/subscriptions/deny", &denied).await.status, 200);
    let told = |seen: &Seen| seen.parameter("hub.mode").as_deref() == Some("denied");
    scene.honest.until("it is told", |log| log.iter().any(told)).await;
    scene.assert_nobody_was_caught();
}

/// What an endless answer has come to.
#[derive(Default)]
struct Sent {
    bytes: usize,
    cut_off: bool,
}

/// A peer that agrees to its verification and answers deliveries with the head and then these bytes for ever.
async fn endless(
    head: &'static str,
    drip: &'static [u8],
    pause: Duration,
) -> (String, watch::Receiver<Sent>) {
    let listener = TcpListener::bind((HONEST, 0)).await.unwrap();
    let url = format!("http://{}/cb", listener.local_addr().unwrap());
    let (written, read) = watch::channel(Sent::default());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let written = written.clone();
            tokio::spawn(async move {
                let mut request = vec![0; 8_192];
                let length = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                if let Some((_, rest)) = request.split_once("hub.challenge=") {
                    let challenge = rest.split(['&', ' ']).next().unwrap_or_default();
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{challenge}",
                        challenge.len()
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                    return;
                }
                let _ = stream.write_all(head.as_bytes()).await;
                while stream.write_all(drip).await.is_ok() {
                    written.send_modify(|sent| sent.bytes += drip.len());
                    tokio::time::sleep(pause).await;
                }
                written.send_modify(|sent| sent.cut_off = true);
            });
        }
    });
    (url, read)
}

const BLOCK: &[u8] = &[b'x'; 65_536];

#[tokio::test]
async fn b23_w156_an_endless_answer_is_cut_off_and_its_status_counts() {
    let mut scene = Scene::start(&[]).await;
    let (url, mut written) = endless("HTTP/1.1 200 OK\r\n\r\n", BLOCK, Duration::ZERO).await;
    scene.hub.subscribe("http://source.example/", &url, &[], 1).await;
    scene.hub.publish("http://source.example/", "x").await.unwrap();
    eventually("the delivery counts as done", || async {
        scene.hub.admin("/api/v1/status").await.text().contains("\"delivered\":1")
    })
    .await;
    // What the hub did not read fills the buffers of two sockets and no more.
    let sent = written.wait_for(|sent| sent.cut_off).await.expect("the peer runs").bytes;
    assert!(sent < 32 * 1024 * 1024, "{sent}");
    assert_eq!(scene.hub.process().said().matches("delivery failed").count(), 0);
}

#[tokio::test]
async fn b23_an_answer_whose_head_never_ends_is_given_up_in_time() {
    let mut scene = Scene::start(&[("DELIVERY_TIMEOUT", "1s")]).await;
    let (url, _) = endless("HTTP/1.1 200 OK\r\nX: ", b"y", Duration::from_millis(50)).await;
    scene.hub.subscribe("http://source.example/", &url, &[], 1).await;
    scene.hub.publish("http://source.example/", "x").await.unwrap();
    scene.until_said("delivery failed", "no complete answer within 1s", 1).await;
}

#[tokio::test]
async fn b23_an_answer_with_an_enormous_head_is_not_read_to_its_end() {
    let mut scene = Scene::start(&[]).await;
    let (url, mut written) = endless("HTTP/1.1 200 OK\r\nX: ", BLOCK, Duration::ZERO).await;
    scene.hub.subscribe("http://source.example/", &url, &[], 1).await;
    scene.hub.publish("http://source.example/", "x").await.unwrap();
    scene.until_said("delivery failed", "", 1).await;
    let sent = written.wait_for(|sent| sent.cut_off).await.expect("the peer runs").bytes;
    assert!(sent < 32 * 1024 * 1024, "{sent}");
}

#[tokio::test]
async fn b32_d20_denial_refuses_a_name_that_resolves_to_a_forbidden_address_by_now() {
    let mut scene = Scene::start(&[]).await;
    let topic = "http://source.example/denied";
    // Without an open connection, which leads where it was judged, each denial has to connect anew.
    scene.honest.behave(|seen| {
        Reply::Page(
            200,
            vec![("connection", "close".into())],
            seen.parameter("hub.challenge").unwrap_or_default(),
        )
    });
    for (number, addresses) in ANSWERS.iter().enumerate() {
        let name = format!("destination-{number}.test");
        scene.names.set(&name, &["127.0.0.2"]);
        let callback = scene.at_trap(&format!("http://{name}:T/{number}"));
        scene.hub.subscribe(topic, &callback, &[], number + 1).await;
        scene.names.set(&name, addresses);
    }
    let answer =
        scene.hub.admin_post("/api/v1/subscriptions/deny", &format!("{{\"topic\":\"{topic}\"}}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    scene.until_said("callback not notified of its denial", REFUSED, ANSWERS.len()).await;
    scene.assert_nobody_was_caught();
}
