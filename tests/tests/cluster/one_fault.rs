//! One fault by itself, and what it does.

use std::time::Duration;

use resync_harness::{Database, HubProcess, Postgres, Receiver, Reply, Seen, Traffic, eventually, form};
use serde_json::Value;
use tempfile::{TempDir, tempdir};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::endpoint::Endpoint;
use crate::nodes::Cluster;
use crate::shards::{QUERY, Shards};

const TOPIC: &str = "http://source.example/framework/";
/// So many hosts are in shards of all hubs, unless somebody is unlucky once in a million times.
const MANY: u8 = 40;
/// A hub that waits so long for an answer sends nothing twice on a busy machine …
const PATIENT: &str = "10s";
/// … and one that waits so long gives up before others take over what is its.
const IMPATIENT: &str = "2s";
/// Between two looks at the database.
const AGAIN: Duration = Duration::from_millis(50);

/// Hubs over a plain server.
struct Several {
    hubs: Vec<HubProcess>,
    database: Database,
    _folders: Vec<TempDir>,
}

impl Several {
    /// So many hubs that share the shards; `None` where there is no PostgreSQL.
    async fn start(count: usize) -> Option<Self> {
        Self::start_with(&vec![PATIENT; count]).await
    }

    /// Hubs that wait so long for an answer to a delivery.
    async fn start_with(timeouts: &[&str]) -> Option<Self> {
        let database = block_in_place(|| Postgres::shared().map(Postgres::database))?;
        let url = database.url();
        let settings = [
            ("STORE_ENGINE", "postgres"),
            ("STORE_URL", url.as_str()),
            ("STORE_DURABILITY", "declared"),
            ("DELIVERY_SCHEDULE", "[\"200ms\", \"200ms\", \"200ms\", \"1s\", \"1s\", \"1s\"]"),
            ("DELIVERY_BREAKER_FAILURES", "0"),
        ];
        let (mut hubs, mut folders) = (Vec::new(), Vec::new());
        for timeout in timeouts {
            let folder = tempdir().unwrap();
            let settings = [&settings[..], &[("DELIVERY_TIMEOUT", *timeout)]].concat();
            hubs.push(HubProcess::start_with(folder.path(), &settings).await);
            folders.push(folder);
        }
        let several = Self { hubs, database, _folders: folders };
        several.until_shared_by(timeouts.len()).await;
        Some(several)
    }

    /// The one value that the database answers.
    fn count(&self, query: &str) -> usize {
        let rows = block_in_place(|| self.database.sql(query)).unwrap();
        rows.into_iter().flatten().flatten().next().unwrap().parse().unwrap()
    }

    async fn until_shared_by(&self, hubs: usize) {
        eventually(&format!("{hubs} hubs share the shards"), || async {
            sleep(AGAIN).await;
            let rows = block_in_place(|| self.database.sql(QUERY)).unwrap();
            Shards::of(rows).are_shared_by(hubs)
        })
        .await;
    }

    /// New subscribers of the topic, each at a host of its own, whom this hub is asked to serve.
    async fn subscribers(&self, hub: usize, count: u8) -> Vec<Receiver> {
        let mut receivers = Vec::new();
        for host in 1..=count {
            let receiver = Receiver::start_at([127, 0, 3, host].into()).await;
            let callback = receiver.url("/cb");
            let parameters =
                [("hub.mode", "subscribe"), ("hub.topic", TOPIC), ("hub.callback", callback.as_str())];
            assert_eq!(form(self.hubs[hub].address, &parameters).await.unwrap().status, 202);
            receivers.push(receiver);
        }
        eventually("all are confirmed", || async {
            sleep(AGAIN).await;
            self.count("SELECT count(*) FROM hub.subscription") == usize::from(count)
        })
        .await;
        receivers
    }

    async fn post(&self, hub: usize, body: &str) {
        assert_eq!(self.hubs[hub].publish(TOPIC, body).await.unwrap().status, 202);
    }
}

/// How many deliveries this hub has made.
async fn delivered(hub: &HubProcess) -> u64 {
    let status: Value = serde_json::from_slice(&hub.admin("/api/v1/status").await.body).unwrap();
    status["deliveries"]["delivered"].as_u64().unwrap()
}

/// What was delivered, each as it came first.
fn firsts(seen: &[Seen]) -> Vec<String> {
    let mut firsts = Vec::new();
    for text in seen.iter().filter(|seen| seen.method == http::Method::POST).map(Seen::text) {
        if !firsts.contains(&text) {
            firsts.push(text);
        }
    }
    firsts
}

fn times(receiver: &Receiver, body: &str) -> usize {
    receiver.deliveries().iter().filter(|seen| seen.text() == body).count()
}

/// Waits until each has got exactly these, in this order but for repetitions.
async fn until_got(receivers: &[Receiver], bodies: &[String]) {
    for receiver in receivers {
        receiver.until(&format!("{bodies:?}, in this order"), |seen| firsts(seen) == bodies).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_subscribed_at_one_hub_and_posted_at_another_is_delivered_by_whoever_owns_it() {
    let Some(several) = Several::start(3).await else { return };
    let receivers = several.subscribers(0, MANY).await;
    several.post(1, "one").await;
    until_got(&receivers, &["one".to_owned()]).await;
    eventually("each hub has delivered some, and all together one to each", || async {
        let mut made = Vec::new();
        for hub in &several.hubs {
            made.push(delivered(hub).await);
        }
        made.iter().sum::<u64>() == u64::from(MANY) && made.iter().all(|made| *made > 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_dies_is_replaced_and_nothing_acknowledged_is_lost() {
    let Some(mut several) = Several::start(3).await else { return };
    let receivers = several.subscribers(0, MANY).await;
    let bodies: Vec<_> = (0..40).map(|number| number.to_string()).collect();
    for (number, body) in bodies[..30].iter().enumerate() {
        several.post(number % 3, body).await;
    }
    several.hubs[0].kill().await;
    for (number, body) in bodies[30..].iter().enumerate() {
        several.post(1 + number % 2, body).await;
    }
    until_got(&receivers, &bodies).await;
    several.until_shared_by(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_hub_that_wakes_sends_nothing_for_shards_that_others_took() {
    let Some(mut several) = Several::start_with(&[IMPATIENT, PATIENT]).await else { return };
    let receivers = several.subscribers(1, MANY).await;
    for receiver in &receivers {
        receiver.behave(|_| Reply::Hang);
    }
    several.post(1, "one").await;
    for receiver in &receivers {
        receiver.until_delivered(1).await;
    }
    several.hubs[0].process().pause();
    for receiver in &receivers {
        receiver.behave(|_| Reply::Agree);
    }
    several.post(1, "two").await;
    until_got(&receivers, &["one".to_owned(), "two".to_owned()]).await;
    several.until_shared_by(1).await;
    let after = receivers.iter().map(|receiver| times(receiver, "one")).sum::<usize>();
    several.hubs[0].process().resume();
    // Its requests have timed out by then, and it has its share again.
    several.until_shared_by(2).await;
    several.post(0, "three").await;
    until_got(&receivers, &["one".to_owned(), "two".to_owned(), "three".to_owned()]).await;
    for receiver in &receivers {
        assert_eq!((times(receiver, "two"), times(receiver, "three")), (1, 1));
    }
    let in_the_end = receivers.iter().map(|receiver| times(receiver, "one")).sum::<usize>();
    assert_eq!(in_the_end, after, "the hub that woke sent something for shards that were not its any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_hands_over_at_once_and_nothing_is_sent_twice() {
    let Some(mut several) = Several::start(2).await else { return };
    let receivers = several.subscribers(0, MANY).await;
    several.post(0, "one").await;
    until_got(&receivers, &["one".to_owned()]).await;
    let (status, said) = several.hubs[0].stop().await;
    assert!(status.success(), "{said}");
    assert_eq!(several.count("SELECT count(*) FROM hub.node"), 1, "it has left");
    let left = "SELECT count(*) FROM hub.shard s WHERE s.owner IS NOT NULL AND NOT EXISTS \
                (SELECT FROM hub.node n WHERE n.id = s.owner)";
    assert_eq!(several.count(left), 0, "nobody waits for the end of its lease");
    several.until_shared_by(1).await;
    several.post(1, "two").await;
    until_got(&receivers, &["one".to_owned(), "two".to_owned()]).await;
    for receiver in &receivers {
        assert_eq!((times(receiver, "one"), times(receiver, "two")), (1, 1));
    }
}

/// Posts until the hub says that it cannot, and when to come again. It may acknowledge nothing meanwhile.
async fn until_unavailable(hub: &Endpoint) {
    eventually("the hub answers 503", || async {
        let Some(answer) = hub.post(TOPIC, "not acknowledged", None).await else { return false };
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
        true
    })
    .await;
}

async fn until_ready_is(hub: &Endpoint, status: u16) {
    eventually(&format!("/readyz is {status}"), || async {
        sleep(AGAIN).await;
        hub.operate("GET", "/readyz", "").await.is_some_and(|answer| answer.status == status)
    })
    .await;
}

async fn until_taken(hub: &Endpoint, body: &str) {
    eventually("the hub takes a post", || async {
        sleep(AGAIN).await;
        hub.post(TOPIC, body, Some(body)).await.is_some_and(|answer| answer.status == 202)
    })
    .await;
}

/// A subscriber whom all hubs know.
async fn subscriber(cluster: &Cluster) -> Receiver {
    let receiver = Receiver::start().await;
    let answer = cluster.endpoints[0].ask("subscribe", TOPIC, &receiver.url("/cb"), None).await;
    assert_eq!(answer.map(|answer| answer.status), Some(202));
    let primary = cluster.servers.lock().await.at_primary();
    eventually("it is confirmed", || async {
        sleep(AGAIN).await;
        let query = "SELECT id FROM hub.subscription";
        block_in_place(|| primary.sql(query, Duration::from_secs(5))).is_ok_and(|rows| !rows.is_empty())
    })
    .await;
    receiver
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_that_is_cut_off_answers_503_is_not_ready_and_others_do_its_work() {
    let Some(cluster) = Cluster::start(2).await else { return };
    let receiver = subscriber(&cluster).await;
    let [cut, other] = &cluster.endpoints[..] else { panic!("there are two") };
    cluster.proxies[0].set(Traffic::Stalls);
    until_unavailable(cut).await;
    until_taken(other, "meanwhile").await;
    receiver.until("what the other one took", |seen| firsts(seen) == ["meanwhile"]).await;
    until_ready_is(cut, 503).await;
    until_ready_is(other, 200).await;
    cluster.proxies[0].set(Traffic::Flows);
    until_ready_is(cut, 200).await;
    until_taken(cut, "afterwards").await;
    receiver.until("what it took again", |seen| firsts(seen).iter().any(|text| text == "afterwards")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hubs_whose_database_has_lost_its_standbys_acknowledge_nothing() {
    let Some(cluster) = Cluster::start(2).await else { return };
    let receiver = subscriber(&cluster).await;
    let servers = cluster.servers.lock().await;
    for standby in servers.standbys() {
        servers.pause(standby);
    }
    for hub in &cluster.endpoints {
        until_unavailable(hub).await;
    }
    for hub in &cluster.endpoints {
        until_ready_is(hub, 503).await;
    }
    assert!(receiver.deliveries().is_empty(), "what no standby has is not delivered");
    for standby in servers.standbys() {
        servers.resume(standby);
    }
    for hub in &cluster.endpoints {
        until_ready_is(hub, 200).await;
    }
    until_taken(&cluster.endpoints[1], "kept").await;
    receiver.until("what was acknowledged", |seen| firsts(seen).iter().any(|text| text == "kept")).await;
}
