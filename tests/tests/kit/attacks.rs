//! Strangers against the real Destination: clients that take all connections of its callback, and a Source whose name comes to
//! lead into the Destination's own network.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use resync_harness::{
    OUT_THERE, PATIENCE, Process, Receiver, Reply, Seen, SystemNames, Trap, binary, eventually,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::Url;

/// Far more than the callback serves at once.
const SILENT: usize = 600;
/// From here they come, and from there the hub.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const HUB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// How long the hub may take for one request, half of what an honest one waits: long for a machine with other work, and too short
/// for who waits until silent connections have had their time.
const SOON: Duration = Duration::from_secs(5);

async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// Connects and says nothing; connects anew whenever the server has closed.
async fn stay_silent(to: SocketAddr, connected: Arc<AtomicUsize>) {
    loop {
        if let Ok(mut stream) = connect(STRANGER, to).await {
            connected.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0]).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What the callback answers to the hub, and `None` when it does not soon.
async fn ask(callback: SocketAddr, request: &str) -> Option<String> {
    let exchange = async {
        let mut stream = connect(HUB, callback).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    timeout(SOON, exchange).await.ok()?.ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_of_one_client_keep_no_hub_from_the_callback() {
    let folder = TempDir::new().unwrap();
    let hub = Receiver::start().await;
    let (own, topic) = (hub.url("/hub"), hub.url("/topic"));
    let links = format!("<{own}>; rel=\"hub\", <{topic}>; rel=\"self\"");
    hub.behave(move |seen: &Seen| match seen.path() {
        "/topic" => Reply::With(200, "Link", links.clone()),
        _ => Reply::Status(202, String::new()),
    });
    let state = folder.path().join("state").display().to_string();
    let arguments = ["subscribe", &topic, "--state", &state, "--listen", "127.0.0.1:0"];
    let mut destination = Process::start("resync-destination", &arguments, &HashMap::new());
    let asked = hub.until("a subscription request", |seen| seen.iter().any(|one| one.path() == "/hub")).await;
    let request = asked.into_iter().find(|one| one.path() == "/hub").unwrap();
    let field = |name: &str| {
        let mut pairs = url::form_urlencoded::parse(&request.body);
        pairs.find(|(found, _)| found == name).unwrap().1.into_owned()
    };
    let callback = Url::parse(&field("hub.callback")).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, callback.port().unwrap()));

    let connected = Arc::new(AtomicUsize::new(0));
    let mut strangers = JoinSet::new();
    for _ in 0..SILENT {
        strangers.spawn(stay_silent(address, Arc::clone(&connected)));
    }
    eventually("all strangers are connected", || async { connected.load(Ordering::SeqCst) >= SILENT }).await;

    let path = callback.path();
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("hub.mode", "subscribe"), ("hub.topic", &topic), ("hub.challenge", "c4allenge")])
        .append_pair("hub.lease_seconds", "86400")
        .finish();
    let verification = format!("GET {path}?{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let answer = ask(address, &verification).await.expect("the hub verifies soon");
    assert!(answer.ends_with("c4allenge"), "{answer}");
    destination.line("subscribed to").await;
    let secret = field("hub.secret");
    for number in 0..5 {
        let body = format!("news {number}");
        let delivery = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Hub-Signature: {}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            resync_judge::signature("sha256", &secret, body.as_bytes()),
            body.len()
        );
        let answer = ask(address, &delivery).await.expect("the hub delivers soon");
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }
}

/// Copies a Source for whose name the system has these addresses, at one lookup after the other; what that says, and its exit
/// code.
async fn sync(names: &SystemNames, port: u16, lookups: &[&[&str]], copy: &Path) -> (String, i32) {
    let mut command = Command::new(binary("resync-destination"));
    command.args(["sync", &format!("http://source.test:{port}/capabilitylist.xml"), "--retries=0"]).arg(copy);
    command
        .args(["--connect-timeout=2s", "--idle-timeout=2s"])
        .envs(names.environment("source.test", lookups));
    let output = timeout(PATIENCE, command.output()).await.expect("it ends soon").unwrap();
    let [said, complained] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (format!("{said}{complained}"), output.status.code().unwrap())
}

fn document(capability: &str, entries: &str) -> String {
    let document = format!(
        "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" xmlns:rs=\"http://www.openarchives.org/rs/terms/\">\
         <rs:md capability=\"{capability}\" at=\"2026-11-20T09:00:00Z\"/>{entries}</urlset>"
    );
    resync_judge::fixture("attacks", &document);
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn b32_a_source_that_adds_an_address_of_this_machine_to_its_name_leads_nowhere_there() {
    let folder = TempDir::new().unwrap();
    let source = Receiver::start_at(Ipv4Addr::new(127, 0, 0, 9).into()).await;
    let (names, port) =
        (SystemNames::new(folder.path(), Ipv4Addr::new(127, 0, 0, 9)), source.address().port());
    let trap = Trap::start(0).await.unwrap();
    let page = |lists_at: String| {
        let entry = format!("<url><loc>{lists_at}</loc><rs:md capability=\"resourcelist\"/></url>");
        document("capabilitylist", &entry)
    };
    let named = |path: &str| format!("http://source.test:{port}{path}");
    let inside = format!("http://127.0.0.1:{}/admin", trap.port());
    let turned = format!("http://source.test:{}/admin", trap.port());
    let list = page(named("/resourcelist.xml"));
    source.behave(move |seen: &Seen| match seen.path() {
        "/capabilitylist.xml" => Reply::Status(200, list.clone()),
        _ => Reply::With(302, "Location", inside.clone()),
    });
    let copy = folder.path().join("copy");
    let (alone, both) = (&[OUT_THERE][..], &[OUT_THERE, "127.0.0.1"][..]);

    let (said, code) = sync(&names, port, &[alone, both], &copy).await;
    assert!(!source.seen().is_empty(), "the Source was asked first: {said}");
    assert_eq!(trap.caught(), 0, "a redirect led to this machine: {said}");
    assert!(code == 1 && said.contains("not a public address"), "{code}: {said}");

    let before = source.seen().len();
    let (said, code) = sync(&names, port, &[both], &copy).await;
    assert_eq!((trap.caught(), source.seen().len()), (0, before), "nobody is asked by such a name: {said}");
    assert!(code == 1 && said.contains("source.test") && said.contains("--any-address"), "{code}: {said}");

    let list = page(turned);
    source.behave(move |_: &Seen| Reply::Status(200, list.clone()));
    let (said, code) = sync(&names, port, &[alone, &["127.0.0.1"]], &copy).await;
    assert_eq!(trap.caught(), 0, "the name itself led to this machine: {said}");
    assert!(code == 1 && said.contains("source.test"), "{code}: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b32_a_hub_whose_name_leads_to_this_machine_later_gets_no_form_when_a_subscription_is_ended() {
    let folder = TempDir::new().unwrap();
    let away = Ipv4Addr::new(127, 0, 0, 9);
    let names = SystemNames::new(folder.path(), away);
    let (hub, trap) = loop {
        let hub = Receiver::start_at(away.into()).await;
        if let Some(trap) = Trap::start(hub.address().port()).await {
            break (hub, trap);
        }
    };
    let named = |path: &str| format!("http://hub.test:{}{path}", trap.port());
    let (own, topic) = (named("/hub"), named("/topic"));
    let links = format!("<{own}>; rel=\"hub\", <{topic}>; rel=\"self\"");
    hub.behave(move |seen: &Seen| match seen.path() {
        "/topic" => Reply::With(200, "Link", links.clone()),
        _ => Reply::Status(202, String::new()),
    });
    let state = folder.path().join("state").display().to_string();
    let environment = |addresses: &[&str]| names.environment("hub.test", &[addresses]);
    let mut subscribing = Command::new(binary("resync-destination"));
    subscribing.args(["subscribe", &topic, "--state", &state, "--listen", "127.0.0.1:0"]);
    let mut destination = Process::run("resync-destination", subscribing.envs(environment(&[OUT_THERE])));
    let asked = hub.until("a subscription request", |seen| seen.iter().any(|one| one.path() == "/hub")).await;
    let request = asked.into_iter().find(|one| one.path() == "/hub").unwrap();
    let (_, callback) =
        url::form_urlencoded::parse(&request.body).find(|(name, _)| name == "hub.callback").unwrap();
    let callback = Url::parse(&callback).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, callback.port().unwrap()));
    let query = url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs([("hub.mode", "subscribe"), ("hub.topic", &topic), ("hub.challenge", "c4allenge")])
        .append_pair("hub.lease_seconds", "86400")
        .finish();
    let path = callback.path();
    ask(address, &format!("GET {path}?{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"))
        .await
        .unwrap();
    destination.line("subscribed to").await;
    drop(destination);

    let unsubscribe = async |addresses: &[&str]| {
        let mut command = Command::new(binary("resync-destination"));
        command.args(["unsubscribe", "--state", &state, "--listen", &address.to_string()]);
        let ended = timeout(PATIENCE, command.envs(environment(addresses)).output()).await;
        let output = ended.expect("it ends soon").unwrap();
        (String::from_utf8(output.stderr).unwrap(), output.status.code())
    };
    let (said, code) = unsubscribe(&["127.0.0.1"]).await;
    assert_eq!(trap.caught(), 0, "the form was sent to this machine: {said}");
    assert!(code == Some(1) && said.contains("--any-address"), "{code:?}: {said}");
}
