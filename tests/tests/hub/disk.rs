//! A disk that does not take writes any more: nothing is acknowledged, and the hub goes on by itself as soon as it can.
//! The limit of file sizes stands in for the disk: it cuts writes in the middle, as a full disk does.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeSet;

use fastrand::Rng;
use resync_harness::{HubProcess, Receiver, Seen, eventually, seed};
use tempfile::tempdir;

const TOPIC: &str = "http://example.com/framework/";
const ROUNDS: usize = 6;

fn distinct(deliveries: &[Seen]) -> BTreeSet<String> {
    deliveries.iter().map(Seen::text).collect()
}

async fn survive(engine: &str, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start_with(folder.path(), &[("STORE_ENGINE", engine)]).await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[("hub.secret", "s")], 1).await;
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        hub.process().limit_files(Some(rng.u64(0..100_000)));
        let mut refused = 0;
        for serial in 0..200 {
            let body = format!("{round}/{serial} {}", "x".repeat(rng.usize(0..3_000)));
            let answer = hub.publish(TOPIC, &body).await.unwrap();
            match answer.status {
                202 => acknowledged.push(body),
                503 => {
                    assert!(answer.header("retry-after").is_some(), "{}", answer.text());
                    refused += 1;
                }
                other => panic!("{other}: {}", answer.text()),
            }
            if refused == 3 {
                break;
            }
        }
        assert_eq!(
            refused, 3,
            "{engine}, round {round}: the disk was full, and the hub went on acknowledging"
        );
        assert_eq!(hub.admin("/readyz").await.status, 503);
        if rng.bool() {
            hub.kill().await;
            hub.restart().await;
        }
        hub.process().limit_files(None);
        eventually("the hub goes on by itself", || async { hub.admin("/readyz").await.status == 200 }).await;
        let body = format!("{round}/after");
        assert_eq!(hub.publish(TOPIC, &body).await.unwrap().status, 202);
        acknowledged.push(body.clone());
        destination
            .until(&format!("{body} arrives"), |seen| seen.iter().any(|seen| seen.text() == body))
            .await;
    }
    let log = destination.deliveries();
    let got = distinct(&log);
    let lost: Vec<_> = acknowledged.iter().filter(|body| !got.contains(*body)).collect();
    assert!(lost.is_empty(), "{engine}, seed {seed}: acknowledged and lost: {lost:?}");
    // A write that failed half-way may turn out to be on the disk: one in each round, no more.
    assert!(
        got.len() <= acknowledged.len() + ROUNDS,
        "{} came, {} were accepted",
        got.len(),
        acknowledged.len()
    );
    let mut offsets: Vec<_> = log.iter().map(Seen::offset).collect();
    offsets.dedup();
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), got.len(), "one offset for one notification");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_whose_disk_fills_up_loses_nothing_and_goes_on_by_itself_with_fjall() {
    survive("fjall", seed()).await;
}

#[cfg(feature = "sled")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_whose_disk_fills_up_loses_nothing_and_goes_on_by_itself_with_sled() {
    survive("sled", seed()).await;
}
