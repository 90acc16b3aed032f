//! The life of a hub in an operator's hands: sockets that outlive it, draining, stopping, the level of its log, what it tells of one
//! subscriber, and its papers.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashMap;
use std::fs;
use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use resync_harness::{
    Answer, Disk, HubProcess, PATIENCE, Process, Receiver, Reply, Seen, binary, eventually, form,
    happens_within, post, refusing, request,
};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::tempdir;
use tokio::net::UnixDatagram;
use tokio::process::Command;
use tokio::sync::Notify;
use tokio::time::timeout;

const TOPIC: &str = "http://source.example/set/";

/// What a command on a running hub says.
async fn order(hub: &HubProcess, data: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(binary("resync-hub"));
    command.args(arguments).arg("--data-dir").arg(data).args(["--admin", &hub.admin_address().to_string()]);
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

async fn well(hub: &HubProcess, data: &Path, arguments: &[&str]) -> String {
    let (well, said) = order(hub, data, arguments).await;
    assert!(well, "{arguments:?}: {said}");
    said
}

/// Sockets as systemd holds them: they are there whether a hub runs or not.
struct Passed {
    public: TcpListener,
    admin: TcpListener,
}

impl Passed {
    fn bind() -> Self {
        let bind = || TcpListener::bind("127.0.0.1:0").unwrap();
        Self { public: bind(), admin: bind() }
    }

    fn address(&self) -> SocketAddr {
        self.public.local_addr().unwrap()
    }

    /// What the operator is told.
    async fn status(&self, data: &Path) -> String {
        let token = fs::read_to_string(data.join("admin-token")).unwrap();
        let asked = format!(
            "GET /api/v1/status HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        request(self.admin.local_addr().unwrap(), asked.as_bytes()).await.unwrap().text()
    }

    async fn start(&self, data: &Path) -> Process {
        self.start_with(data, &[]).await
    }

    /// A hub that gets them as its descriptors 3 and 4 (`LISTEN_FDS`), with more variables.
    async fn start_with(&self, data: &Path, environment: &[(&str, &str)]) -> Process {
        let inherited = |socket: &TcpListener| -> OwnedFd {
            let copy = fcntl_dupfd_cloexec(socket.as_fd(), 100).unwrap();
            fcntl_setfd(&copy, FdFlags::empty()).unwrap();
            copy
        };
        let copies = [inherited(&self.public), inherited(&self.admin)];
        let [public, admin] = copies.each_ref().map(|copy| copy.as_raw_fd().to_string());
        let script = r#"exec 3<&"$1" 4<&"$2"; export LISTEN_FDS=2 LISTEN_PID=$$; shift 2; exec "$@""#;
        let mut command = Command::new("bash");
        command.args(["-c", script, "bash", &public, &admin]).arg(binary("resync-hub"));
        command.args(["--dev", "--data-dir"]).arg(data).envs(environment.iter().copied());
        let mut hub = Process::run("resync-hub", &mut command);
        hub.line("listening on").await;
        hub
    }
}

async fn publish(hub: SocketAddr, body: &str) -> std::io::Result<Answer> {
    let link = format!("<{TOPIC}>; rel=\"self\", <http://{hub}/websub/>; rel=\"hub\"");
    post(hub, &[("Content-Type", "text/plain"), ("Link", &link)], body.as_bytes()).await
}

#[tokio::test]
async fn whoever_connects_while_no_hub_runs_is_answered_by_the_next_one() {
    let folder = tempdir().unwrap();
    let sockets = Passed::bind();
    let hub = sockets.address();
    // Before the first hub, after one that was asked to stop, and after one that died.
    let mut running: Option<Process> = None;
    for round in 0..3 {
        match (running.take(), round) {
            (Some(process), 1) => assert!(process.terminate().await.success()),
            (Some(process), _) => process.kill().await,
            (None, _) => {}
        }
        let waiting = tokio::spawn(async move { publish(hub, &format!("of round {round}")).await });
        let admin = sockets.admin.local_addr().unwrap();
        let asking = tokio::spawn(async move {
            request(admin, b"GET /livez HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n").await
        });
        eventually("both wait to be accepted", || async {
            let listening = fs::read_to_string("/proc/net/tcp").unwrap();
            waits(&listening, hub) && waits(&listening, admin)
        })
        .await;
        running = Some(sockets.start(folder.path()).await);
        assert_eq!(waiting.await.unwrap().unwrap().status, 202);
        assert_eq!(asking.await.unwrap().unwrap().status, 200);
    }
    running.unwrap().kill().await;
}

/// What a hub tells systemd, or whoever else is in its place (`NOTIFY_SOCKET`).
struct Told(UnixDatagram);

impl Told {
    fn at(address: &net::SocketAddr) -> Self {
        let socket = net::UnixDatagram::bind_addr(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(UnixDatagram::from_std(socket).unwrap())
    }

    /// Waits until it tells this; returns what it has told before.
    async fn hears(&self, wanted: &str) -> String {
        let (mut told, mut before) = ([0; 1_000], String::new());
        let heard = timeout(PATIENCE, async {
            loop {
                let length = self.0.recv(&mut told).await.unwrap();
                let lines = String::from_utf8_lossy(&told[..length]);
                if lines.lines().any(|line| line == wanted) {
                    return;
                }
                before.push_str(&lines);
                before.push('\n');
            }
        });
        heard.await.unwrap_or_else(|_| panic!("{wanted} was never told"));
        before
    }
}

#[tokio::test]
async fn systemd_is_told_when_a_hub_with_its_sockets_is_ready_that_it_is_alive_and_that_it_stops() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("notify");
    let path = path.to_str().unwrap();
    let hidden = format!("resync-hub-test-{}", std::process::id());
    let places = [
        (path.to_owned(), net::SocketAddr::from_pathname(path).unwrap()),
        (format!("@{hidden}"), net::SocketAddr::from_abstract_name(&hidden).unwrap()),
    ];
    for (name, address) in places {
        let (told, sockets) = (Told::at(&address), Passed::bind());
        let variables = [("NOTIFY_SOCKET", name.as_str()), ("WATCHDOG_USEC", "50000")];
        let mut hub = sockets.start_with(&folder.path().join("data"), &variables).await;
        told.hears("STATUS=opening the store").await;
        told.hears("READY=1").await;
        let asked = b"GET /readyz HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n";
        assert_eq!(request(sockets.admin.local_addr().unwrap(), asked).await.unwrap().status, 200);
        for _ in 0..5 {
            told.hears("WATCHDOG=1").await;
        }
        hub.signal(Signal::TERM);
        told.hears("STOPPING=1").await;
        assert!(hub.wait().await.success());
    }
}

#[tokio::test]
async fn systemd_is_told_that_a_hub_is_ready_once_its_store_is_open_and_is_asked_for_time_until_then() {
    let folder = tempdir().unwrap();
    let [data, path] = ["data", "notify"].map(|name| folder.path().join(name));
    fs::create_dir(&data).unwrap();
    let (told, disk) = (Told::at(&net::SocketAddr::from_pathname(&path).unwrap()), Disk::under(&data, 1));
    disk.hold(true);
    let mut hub = HubProcess::prepare(&data, &[]);
    hub.environment().extend(disk.environment());
    hub.environment().insert("NOTIFY_SOCKET".to_owned(), path.display().to_string());
    let (address, admin) = (hub.address, hub.admin_address());
    let opened = async {
        eventually("the store is being opened", || ready(disk.is_waited_for())).await;
        for nobody in [address, admin] {
            assert!(request(nobody, b"GET / HTTP/1.0\r\n\r\n").await.is_err(), "nobody is let in before");
        }
        let first = told.hears("EXTEND_TIMEOUT_USEC=300000000").await;
        assert!(first.contains("STATUS=opening the store") && !first.contains("READY"), "{first}");
        assert!(told.0.try_recv(&mut [0; 100]).is_err(), "nothing more while the store is not open");
        disk.hold(false);
        told.hears("READY=1").await;
        assert_eq!(publish(address, "news").await.unwrap().status, 202);
    };
    tokio::join!(hub.restart(), opened);
}

/// It takes the minute that it is about.
#[tokio::test]
async fn a_hub_whose_writer_hangs_tells_whoever_may_start_it_again_until_it_does_no_more() {
    let folder = tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    let disk = Disk::under(&data, 1);
    let mut hub = HubProcess::prepare(&data, &[]);
    hub.environment().extend(disk.environment());
    hub.restart().await;
    assert_eq!(publish(hub.address, "before").await.unwrap().status, 202);
    disk.hold(true);
    let held = tokio::spawn(publish(hub.address, "held"));
    eventually("the writer waits for its disk", || ready(disk.is_waited_for())).await;
    let alive = hub.admin("/livez").await;
    assert_eq!((alive.status, alive.text().trim()), (200, "alive"), "slow to fail");
    let tells = happens_within(2 * PATIENCE, || async {
        let alive = hub.admin("/livez").await;
        alive.status == 503 && alive.text().contains("the store's writer has not answered for a minute")
    });
    assert!(tells.await, "it goes on as if it were alive");
    disk.hold(false);
    eventually("it answers again", || async { hub.admin("/livez").await.status == 200 }).await;
    assert_eq!(publish(hub.address, "after").await.unwrap().status, 202);
    held.abort();
}

/// Whether somebody waits to be accepted there: the queue of a listening socket (state 0A) is not empty.
fn waits(sockets: &str, address: SocketAddr) -> bool {
    let port = format!(":{:04X}", address.port());
    sockets.lines().any(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&port))
            && fields.get(3) == Some(&"0A")
            && fields.get(4).is_some_and(|queues| !queues.ends_with(":00000000"))
    })
}

#[tokio::test]
async fn publishers_notice_nothing_of_restarts() {
    let folder = tempdir().unwrap();
    let sockets = Passed::bind();
    let hub = sockets.address();
    let mut running = sockets.start(folder.path()).await;
    let destination = Receiver::start().await;
    let callback = destination.url("/cb");
    let wish = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
    assert_eq!(form(hub, &wish).await.unwrap().status, 202);
    eventually("the subscription is in force", || async {
        sockets.status(folder.path()).await.contains("\"subscriptions\":1,")
    })
    .await;
    let posted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&posted);
    let publisher = tokio::spawn(async move {
        for number in 0..400 {
            let answer =
                publish(hub, &number.to_string()).await.unwrap_or_else(|error| panic!("{number}: {error}"));
            assert_eq!(answer.status, 202, "{number}: {}", answer.text());
            counter.store(number + 1, Ordering::SeqCst);
        }
    });
    for restart in 1..=2 {
        eventually("some are posted", || async { posted.load(Ordering::SeqCst) >= 100 * restart }).await;
        assert!(running.terminate().await.success());
        running = sockets.start(folder.path()).await;
    }
    publisher.await.unwrap();
    let got = destination
        .until("every notification", |seen| {
            (300..400).all(|one| seen.iter().any(|seen| seen.text() == one.to_string()))
        })
        .await;
    for number in 0..400 {
        assert!(got.iter().any(|seen| seen.text() == number.to_string()), "{number}");
    }
}

#[tokio::test]
async fn a_hub_that_is_drained_takes_nothing_new_and_delivers_what_it_has() {
    let folder = tempdir().unwrap();
    let data = folder.path();
    let mut hub = HubProcess::start(data).await;
    let destination = Receiver::start().await;
    destination.behave(refusing(503));
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    hub.publish(TOPIC, "before").await.unwrap();
    destination.until_delivered(1).await;

    assert!(well(&hub, data, &["drain"]).await.contains("draining: nothing new is accepted"));
    let callback = destination.url("/new");
    let subscribe = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
    let ping = [("hub.mode", "publish"), ("hub.url", TOPIC)];
    for refused in [
        hub.publish(TOPIC, "refused").await.unwrap(),
        form(hub.address, &subscribe).await.unwrap(),
        form(hub.address, &ping).await.unwrap(),
    ] {
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("30")), "{}", refused.text());
    }
    let ready = hub.admin("/readyz").await;
    assert_eq!((ready.status, ready.text().trim()), (503, "not ready: draining"));
    assert_eq!(hub.admin("/livez").await.status, 200);
    assert!(hub.admin("/metrics").await.text().contains("websub_ready 0"));
    eventually("it is told that one subscription is behind", || async {
        let state: Value = serde_json::from_str(&well(&hub, data, &["drain", "--json"]).await).unwrap();
        state["draining"] == true && state["laggards"] == 1
    })
    .await;

    destination.behave(|_| Reply::Agree);
    well(&hub, data, &["deliveries", "retry", "--topic", TOPIC]).await;
    let got = destination.until_delivered(2).await;
    assert!(got.iter().all(|seen| seen.body == "before"), "deliveries go on");

    // A socket that systemd holds would start it again for the next post.
    let (status, _) = hub.stop().await;
    assert!(status.success());
    hub.restart().await;
    assert_eq!(hub.publish(TOPIC, "refused").await.unwrap().status, 503, "a start does not end it");

    assert!(well(&hub, data, &["drain", "--end"]).await.contains("everything is accepted again"));
    hub.until_ready().await;
    assert_eq!(hub.publish(TOPIC, "after").await.unwrap().status, 202);
    destination.until("what was taken then", |seen| seen.iter().any(|one| one.body == "after")).await;
    let acts = hub.admin("/api/v1/audit").await.text();
    assert!(acts.contains("\"drain\"") && acts.contains("\"end drain\""), "{acts}");
}

/// `resync-hub drain --wait`, which says on the way what it waits for.
fn waiting(hub: &HubProcess, data: &Path, more: &[&str]) -> Process {
    let admin = hub.admin_address().to_string();
    let arguments = ["drain", "--wait", "--data-dir", data.to_str().unwrap(), "--admin", &admin];
    Process::start("resync-hub", &[&arguments[..], more].concat(), &HashMap::new())
}

#[tokio::test]
async fn a_drain_waits_until_nothing_is_owed_and_says_what_it_waits_for() {
    let folder = tempdir().unwrap();
    let data = folder.path();
    let hub = HubProcess::start_with(data, &[("DELIVERY_SCHEDULE_4XX", "[\"50ms\"]")]).await;
    let [slow, away, gone, new] = [(); 4].map(|()| Receiver::start());
    let (slow, away, gone, new) = (slow.await, away.await, gone.await, new.await);
    let (taken, confirmed) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let until = |wanted: http::Method, told: &Arc<Notify>| {
        let told = Arc::clone(told);
        move |seen: &Seen| {
            if seen.method == wanted {
                Reply::After(Arc::clone(&told), Box::new(Reply::Agree))
            } else {
                Reply::Agree
            }
        }
    };
    slow.behave(until(http::Method::POST, &taken));
    away.behave(refusing(503));
    gone.behave(refusing(404));
    new.behave(until(http::Method::GET, &confirmed));
    for (number, receiver) in [&slow, &away, &gone].into_iter().enumerate() {
        hub.subscribe(TOPIC, &receiver.url("/cb"), &[], number + 1).await;
    }
    hub.publish(TOPIC, "news").await.unwrap();
    slow.until_delivered(1).await;
    away.until_delivered(1).await;
    eventually("one has given it up", || async {
        hub.admin("/api/v1/deliveries/skips").await.text().contains("\"class\":\"refused\"")
    })
    .await;
    let callback = new.url("/cb");
    let subscribe = [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", &callback)];
    assert_eq!(form(hub.address, &subscribe).await.unwrap().status, 202);

    let mut waits = waiting(&hub, data, &[]);
    waits.line("1 callback to verify").await;
    waits.line("2 subscriptions behind").await;
    let mut short = waiting(&hub, data, &["--timeout", "1ms"]);
    assert_eq!(short.wait().await.code(), Some(3), "{}", short.said());
    short.line("timed out: ").await;
    well(&hub, data, &["deliveries", "pause", TOPIC]).await;
    waits.line("2 of them until their topic is resumed").await;
    well(&hub, data, &["deliveries", "resume", TOPIC]).await;

    for receiver in [&slow, &away] {
        receiver.behave(|_| Reply::Agree);
    }
    confirmed.notify_one();
    taken.notify_one();
    well(&hub, data, &["deliveries", "retry", "--topic", TOPIC]).await;
    assert_eq!(waits.wait().await.code(), Some(0), "{}", waits.said());
    waits.line("draining: nothing new is accepted, deliveries go on; nothing is left to deliver").await;
    assert!(away.deliveries().len() > 1, "it has got it");
    let mut read = waiting(&hub, data, &["--json"]);
    assert!(read.wait().await.success());
    let state: Value = serde_json::from_str(&read.line("draining").await).unwrap();
    assert!(state["nothing_left"] == true && state["laggards"] == 0, "{state}");

    well(&hub, data, &["drain", "--end"]).await;
    away.behave(refusing(503));
    hub.publish(TOPIC, "more").await.unwrap();
    away.until("it has come", |seen| seen.iter().any(|one| one.body == "more")).await;
    let mut ended = waiting(&hub, data, &[]);
    ended.line("1 subscription behind").await;
    well(&hub, data, &["drain", "--end"]).await;
    assert_eq!(ended.wait().await.code(), Some(1));
    ended.line("the drain was ended before").await;
}

#[tokio::test]
async fn a_hub_stops_within_ten_seconds_whatever_is_under_way_and_what_was_not_delivered_is_afterwards() {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(folder.path()).await;
    let (hangs, late) = (Receiver::start().await, Receiver::start().await);
    hangs.behave(|seen| if seen.method == http::Method::POST { Reply::Hang } else { Reply::Agree });
    late.behave(|_| Reply::Late(Duration::from_secs(1)));
    hub.subscribe(TOPIC, &hangs.url("/cb"), &[], 1).await;
    hub.subscribe(TOPIC, &late.url("/cb"), &[], 2).await;
    hub.publish(TOPIC, "under way").await.unwrap();
    hangs.until_delivered(1).await;
    late.until_delivered(1).await;
    let asked = Instant::now();
    let (status, said) = hub.stop().await;
    assert!(status.success(), "{said}");
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    for receiver in [&hangs, &late] {
        receiver.behave(|_| Reply::Agree);
    }
    hub.restart().await;
    hangs.until_delivered(2).await;
    hub.publish(TOPIC, "next").await.unwrap();
    let got = late.until("the next one", |seen| seen.iter().any(|one| one.body == "next")).await;
    assert_eq!(
        got.iter().filter(|seen| seen.body == "under way").count(),
        1,
        "what was finished is not repeated"
    );
}

#[tokio::test]
async fn the_level_of_the_log_is_changed_while_the_hub_runs() {
    let folder = tempdir().unwrap();
    let data = folder.path();
    let mut hub = HubProcess::start_with(data, &[("LOG_FILTER", "warn")]).await;
    assert_eq!(well(&hub, data, &["log-level"]).await.trim(), "warn");
    let refused = |hub: &HubProcess| {
        let address = hub.address;
        async move { form(address, &[("hub.mode", "nothing")]).await.unwrap().status }
    };
    assert_eq!(refused(&hub).await, 400);
    assert!(!hub.process().said().contains("request refused"));
    assert_eq!(well(&hub, data, &["log-level", "hub=debug"]).await.trim(), "info,resync_hub=debug");
    assert_eq!(refused(&hub).await, 400);
    hub.process().line("request refused").await;
    let (fine, said) = order(&hub, data, &["log-level", "hub=loud"]).await;
    assert!(!fine && said.contains("is not a log filter"), "{said}");
    assert_eq!(well(&hub, data, &["log-level"]).await.trim(), "info,resync_hub=debug");
    let acts = hub.admin("/api/v1/audit").await.text();
    assert!(acts.contains("\"log level\"") && acts.contains("info,resync_hub=debug"), "{acts}");
}

#[tokio::test]
async fn everything_about_one_subscriber_is_told_except_the_secret_and_nothing_about_others() {
    let folder = tempdir().unwrap();
    let data = folder.path();
    let hub = HubProcess::start(data).await;
    let (one, other) = (Receiver::start().await, Receiver::start().await);
    one.behave(refusing(503));
    let callback = one.url("/capability");
    hub.subscribe(TOPIC, &callback, &[("hub.secret", "s3cr3t-of-one")], 1).await;
    hub.subscribe(TOPIC, &other.url("/other"), &[], 2).await;
    hub.subscribe("http://source.example/more/", &callback, &[], 3).await;
    hub.publish(TOPIC, "news").await.unwrap();
    one.until_delivered(1).await;
    eventually("how far it is has been stored", || async {
        well(&hub, data, &["subscriptions", "export", &callback]).await.contains("\"failed_attempts\": 1")
    })
    .await;

    let told = well(&hub, data, &["subscriptions", "export", &callback]).await;
    let all: Value = serde_json::from_str(&told).unwrap();
    let subscriptions = all["subscriptions"].as_array().unwrap();
    assert_eq!(subscriptions.len(), 2, "{told}");
    assert!(subscriptions.iter().all(|one| one["callback"] == callback.as_str()));
    let signed = subscriptions.iter().find(|one| one["topic"] == TOPIC).unwrap();
    assert_eq!(signed["has_secret"], true);
    assert!(signed["laggard"]["failed_attempts"].as_u64().is_some(), "{told}");
    assert!(!told.contains("s3cr3t-of-one") && !told.contains("/other"), "{told}");

    let id = signed["id"].to_string();
    let told: Value =
        serde_json::from_str(&well(&hub, data, &["subscriptions", "export", &id]).await).unwrap();
    assert_eq!(
        (told["subscriptions"].as_array().unwrap().len(), &told["subscriptions"][0]["id"]),
        (1, &signed["id"])
    );
    let (found, said) = order(&hub, data, &["subscriptions", "export", "4711"]).await;
    assert!(!found && said.contains("no such subscription"), "{said}");
    let acts = hub.admin("/api/v1/audit").await.text();
    assert!(acts.contains("\"export\"") && !acts.contains("capability"), "{acts}");

    // What is deleted is told of no more.
    well(&hub, data, &["subscriptions", "deny", &id]).await;
    one.behave(|_| Reply::Agree);
    eventually("the denial is told", || async {
        let all: Value =
            serde_json::from_str(&well(&hub, data, &["subscriptions", "export", &callback]).await).unwrap();
        all["subscriptions"].as_array().unwrap().len() == 1 && all["denials"].as_array().unwrap().is_empty()
    })
    .await;
}

#[tokio::test]
async fn every_program_writes_man_pages_and_completions_that_shells_and_man_understand() {
    let folder = tempdir().unwrap();
    for name in ["resync-hub", "resync-source", "resync-destination"] {
        let run = async |arguments: &[&str]| {
            let output = Command::new(binary(name)).args(arguments).output().await.unwrap();
            assert!(
                output.status.success(),
                "{name} {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            String::from_utf8(output.stdout).unwrap()
        };
        for shell in ["bash", "zsh", "fish"] {
            let script = run(&["completions", shell]).await;
            assert!(script.contains(name) && script.contains("completions"), "{shell}: {script}");
        }
        let script = folder.path().join("completions.bash");
        fs::write(&script, run(&["completions", "bash"]).await).unwrap();
        // bash itself knows what may follow.
        let function = name.replace('-', "__");
        let ask = format!(
            "source {}; COMP_WORDS=({name} comp); COMP_CWORD=1; _{function} {name} comp {name}; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let asked = Command::new("bash").args(["-c", &ask]).output().await.unwrap();
        assert_eq!(String::from_utf8_lossy(&asked.stdout).trim(), "completions", "{asked:?}");

        let pages = folder.path().join("man");
        run(&["man", pages.to_str().unwrap()]).await;
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".TH") && page.contains("completions"), "{page}");
        assert!(pages.join(format!("{name}-completions.1")).is_file());
    }
    assert!(folder.path().join("man/resync-hub-subscriptions-export.1").is_file());
    let process = Process::start("resync-hub", &["completions", "smalltalk"], &HashMap::new()).wait().await;
    assert_eq!(process.code(), Some(2));
}

#[tokio::test]
async fn a_configuration_is_printed_with_a_word_from_which_file_it_is() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("hub.toml");
    fs::write(&file, "listen = \"127.0.0.1:7\"\n").unwrap();
    let file = file.to_str().unwrap();
    let printed = async |arguments: &[&str], variable: (&str, &str)| {
        let mut command = Command::new(binary("resync-hub"));
        command.args(["config", "print"]).args(arguments).env(variable.0, variable.1);
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{output:?}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for (arguments, variable) in [
        (vec!["--config", file], ("RESYNC_HUB_CONFIG", "elsewhere.toml")),
        (Vec::new(), ("RESYNC_HUB_CONFIG", file)),
    ] {
        let (configuration, told) = printed(&arguments, variable).await;
        assert!(configuration.contains("127.0.0.1:7"), "{configuration}");
        assert!(told.contains(&format!("the configuration file is {file}")), "{told}");
    }
    // Also where a hub is installed as a service: another one is meant.
    let (configuration, told) = printed(&[], ("RESYNC_HUB_DATA_DIR", "elsewhere")).await;
    assert!(
        configuration.contains("\"elsewhere\"") && !configuration.contains("127.0.0.1:7"),
        "{configuration}"
    );
    assert!(told.contains("no configuration file is used"), "{told}");
}

#[tokio::test]
async fn the_command_for_a_token_that_a_hub_suggests_works_in_another_folder() {
    let folder = tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::create_dir(place("elsewhere")).unwrap();
    let on_this_machine = "listen = \"127.0.0.1:0\"\n";
    let settings = format!(
        "{on_this_machine}data_dir = {:?}\n[admin]\n{on_this_machine}token_file = {:?}\n",
        place("data"),
        place("elsewhere/token")
    );
    let config = place("our hub.toml");
    fs::write(&config, settings).unwrap();
    let arguments = ["--config", config.to_str().unwrap()];
    let mut hub = Process::start("resync-hub", &arguments, &HashMap::new());
    let suggested = hub.line("resync-hub token add").await;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", &suggested]).env("PATH", binary("resync-hub").parent().unwrap());
    let output = shell.current_dir(place("elsewhere")).output().await.unwrap();
    assert!(output.status.success() && output.stdout.starts_with(b"rsh_"), "{suggested}: {output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("by the hub that runs there"), "{said}");
    hub.terminate().await;
}

#[tokio::test]
async fn a_hub_that_starts_with_the_url_of_an_example_says_so_once() {
    for (url, times) in [("https://hub.example.org", 1), ("http://127.0.0.1:8080", 0)] {
        let folder = tempdir().unwrap();
        let mut hub = HubProcess::start_with(folder.path(), &[("PUBLIC_URL", url)]).await;
        let (_, said) = hub.stop().await;
        assert_eq!(said.matches("public_url is still").count(), times, "{said}");
    }
}
