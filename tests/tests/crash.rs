//! `kill -9` of the hub twenty times at random moments of publishing and delivery, against a model that knows what was
//! acknowledged: nothing of it is lost, order holds for every subscription, and only what was under way or younger than one
//! checkpoint interval comes twice.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_tests::harness::{HubProcess, Receiver, Reply, Seen, post};
use tempfile::tempdir;
use tokio::time::sleep;

const KILLS: usize = 20;
const TOPICS: usize = 3;
const HOSTS: u8 = 4;
/// DESIGN: progress is checkpointed every 250 ms.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(250);
/// A checkpoint itself takes a moment until it is durable, the more so on a busy machine.
const SAVING: Duration = Duration::from_millis(750);

fn topic(number: usize) -> String {
    format!("http://source.example/set{number}/framework/")
}

/// What the publishers know: which bodies got a 2xx.
#[derive(Debug, Default)]
struct Acknowledged(Mutex<Vec<(usize, String)>>);

/// Publishes numbered bodies to one topic until told to stop; goes on to the next only after an answer, whatever it is.
async fn publish(number: usize, hub: SocketAddr, known: Arc<Acknowledged>, stop: Arc<AtomicBool>) {
    let link = format!("<{}>; rel=\"self\", <http://{hub}/websub/>; rel=\"hub\"", topic(number));
    for serial in 0_u32.. {
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let body = format!("{number}/{serial}");
        let headers = [("Content-Type", "text/plain"), ("Link", link.as_str())];
        match post(hub, &headers, body.as_bytes()).await {
            Ok(answer) if answer.status == 202 => known.0.lock().unwrap().push((number, body)),
            Ok(answer) => panic!("a running hub refused: {} {}", answer.status, answer.text()),
            // The hub is dead for the moment; whether it got this one, nobody knows.
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Everything one subscription got, in the order of arrival.
fn of_subscription<'a>(log: &'a [Seen], path: &str) -> Vec<&'a Seen> {
    log.iter().filter(|seen| seen.method == http::Method::POST && seen.path() == path).collect()
}

/// A death of the hub: what it had sent before may still arrive until its successor is up.
struct Death {
    at: Instant,
    succeeded_at: Instant,
}

/// Order and duplicates of one subscription; returns how many deliveries were repetitions.
fn check(deliveries: &[&Seen], deaths: &[Death]) -> usize {
    let mut bodies: BTreeMap<u64, String> = BTreeMap::new();
    let mut last_at: BTreeMap<u64, Instant> = BTreeMap::new();
    let mut newest = 0;
    let mut repeated = 0;
    for seen in deliveries {
        let offset = seen.offset();
        let body = bodies.entry(offset).or_insert_with(|| seen.text());
        assert_eq!(*body, seen.text(), "offset {offset} means the same notification for ever");
        if offset > newest {
            assert_eq!(offset, newest + 1, "nothing is left out");
            newest = offset;
        } else {
            let before = last_at[&offset];
            let excuse = deaths.iter().find(|death| before <= death.succeeded_at && death.at <= seen.at);
            let death =
                excuse.unwrap_or_else(|| panic!("offset {offset} came twice without a crash in between"));
            let age = death.at.saturating_duration_since(before);
            assert!(
                age <= CHECKPOINT_INTERVAL + SAVING,
                "offset {offset} was {age:?} old at the crash and came again"
            );
            repeated += 1;
        }
        last_at.insert(offset, seen.at);
    }
    repeated
}

async fn survive(engine: &str, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_with(folder.path(), &[("STORE_ENGINE", engine)]).await;
    let mut receivers = Vec::new();
    let mut subscriptions = Vec::new();
    for host in 0..HOSTS {
        let receiver = Receiver::start_at(IpAddr::V4(Ipv4Addr::new(127, 0, 1, host + 1))).await;
        for number in 0..TOPICS {
            for copy in 0..2 {
                let path = format!("/set{number}/copy{copy}");
                subscriptions.push((usize::from(host), number, path.clone()));
                hub.subscribe(
                    &topic(number),
                    &receiver.url(&path),
                    &[("hub.secret", "s")],
                    subscriptions.len(),
                )
                .await;
            }
        }
        receivers.push(receiver);
    }
    // One of the hosts is slow, so that there is always something under way.
    receivers[0].behave(|_| Reply::Late(Duration::from_millis(20)));

    let (known, stop) = (Arc::new(Acknowledged::default()), Arc::new(AtomicBool::new(false)));
    let publishers: Vec<_> = (0..TOPICS)
        .map(|number| tokio::spawn(publish(number, hub.address, Arc::clone(&known), Arc::clone(&stop))))
        .collect();
    let mut deaths = Vec::new();
    for _ in 0..KILLS {
        sleep(Duration::from_millis(rng.u64(30..400))).await;
        let at = Instant::now();
        hub.kill().await;
        hub.restart().await;
        deaths.push(Death { at, succeeded_at: Instant::now() });
    }
    stop.store(true, Ordering::SeqCst);
    for publisher in publishers {
        publisher.await.expect("publishers only stop when told");
    }

    let acknowledged = known.0.lock().unwrap().clone();
    let mut repeated = 0;
    for (host, number, path) in &subscriptions {
        let owed: Vec<_> =
            acknowledged.iter().filter(|(of, _)| of == number).map(|(_, body)| body.as_str()).collect();
        let last = (*owed.last().expect("every topic had acknowledged posts")).to_owned();
        let log = receivers[*host]
            .until(&format!("{path} gets {last}"), |log| {
                of_subscription(log, path).iter().any(|seen| seen.body == last)
            })
            .await;
        let deliveries = of_subscription(&log, path);
        let bodies: std::collections::BTreeSet<_> = deliveries.iter().map(|seen| seen.text()).collect();
        let lost: Vec<_> = owed.iter().filter(|body| !bodies.contains(**body)).collect();
        assert!(lost.is_empty(), "seed {seed}: {path} never got {lost:?}");
        repeated += check(&deliveries, &deaths);
    }
    println!(
        "{engine}, seed {seed}: {} acknowledged, {} subscriptions, {KILLS} kills, 0 lost, {repeated} repeated",
        acknowledged.len(),
        subscriptions.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_kill_9_with_fjall() {
    survive("fjall", 20_130_103).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_kill_9_with_sled() {
    survive("sled", 20_170_720).await;
}
