//! Single steps of a hub on its disk: one that fails while it starts, and a checkpoint of whose fate it hears nothing, or the wrong thing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;
use resync_harness::{
    Disk, Event, HubProcess, Kind, Receiver, Reply, Seen, Step, deaths_wanted, eventually, refusing, seed,
};
use rustix::io::Errno;
use tempfile::tempdir;

const TOPIC: &str = "http://source.example/steps/";
/// Starts with a step that fails; `RESYNC_TEST_DEATHS` asks for more.
const STARTS: usize = 8;

/// A hub on a disk that can fail, not yet started.
fn on_disk(data: &std::path::Path, seed: u64) -> (HubProcess, Disk) {
    std::fs::create_dir(data).unwrap();
    let disk = Disk::under(data, Rng::with_seed(seed).u64(..));
    let mut hub = HubProcess::prepare(data, &[]);
    hub.environment().extend(disk.environment());
    (hub, disk)
}

fn bodies(seen: &[Seen]) -> Vec<String> {
    seen.iter().filter(|one| one.method == http::Method::POST).map(Seen::text).collect()
}

/// Publishes until it is taken.
async fn publish(hub: &HubProcess, body: &str) {
    eventually("it is acknowledged", || async {
        let answer = hub.publish(TOPIC, body).await.unwrap();
        let is_taken = answer.status == 202;
        assert!(
            is_taken || (answer.status == 503 && answer.header("retry-after").is_some()),
            "{}",
            answer.text()
        );
        is_taken
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_step_of_a_start_fails_the_hub_serves_or_says_why_and_has_everything_afterwards() {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let folder = tempdir().unwrap();
    let (mut hub, mut disk) = on_disk(&folder.path().join("data"), seed);
    hub.restart().await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    destination.behave(refusing(503));
    let mut acknowledged = vec!["first".to_owned()];
    publish(&hub, "first").await;
    hub.kill().await;
    let met = |number, event| Step { kinds: Kind::ALL, only: "", number, event };
    disk.meet(Step::none(Kind::ALL));
    hub.restart().await;
    let steps = u32::try_from(disk.taken().len()).unwrap();
    assert!(steps > 100, "{steps}");
    hub.kill().await;
    let mut refused = 0;
    for number in 0..deaths_wanted(STARTS) {
        let error = rng.choice([Errno::IO, Errno::NOSPC, Errno::MFILE]).unwrap();
        disk.meet(met(rng.u32(1..=steps), Event::Fails(error)));
        let started = hub.try_restart().await;
        let what = format!("{:?} fails with {error}", disk.met());
        disk.forget_steps();
        match started {
            Ok(()) => {
                let body = format!("of start {number}");
                publish(&hub, &body).await;
                acknowledged.push(body);
                let said = hub.process().said();
                assert!(!said.contains("panicked"), "{what}: {said}");
                hub.kill().await;
            }
            Err(said) => {
                let says_why = said.contains("os error") || said.contains("Os {");
                assert!(says_why && !said.contains("panicked"), "{what}: {said}");
                refused += 1;
            }
        }
        if rng.bool() {
            disk.cut_power(&mut rng);
        }
    }
    println!("{refused} starts were refused, of {steps} steps each");
    destination.behave(|_| Reply::Agree);
    hub.restart().await;
    let retry = format!("/api/v1/deliveries/retry?topic={TOPIC}");
    assert_eq!(hub.admin_post(&retry, "").await.status, 200);
    publish(&hub, "last").await;
    let seen = destination.until("the last", |seen| seen.iter().any(|one| one.body == "last")).await;
    let mut got = bodies(&seen);
    got.dedup();
    let lost: Vec<_> = acknowledged.iter().filter(|body| !got.contains(body)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

/// After a failed sync the system shows what the disk does not have, also to the next process, and no later sync mends that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_after_a_failed_sync_and_a_restart_survives_a_power_cut() {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let folder = tempdir().unwrap();
    let (mut hub, mut disk) = on_disk(&folder.path().join("data"), seed);
    hub.restart().await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    destination.behave(refusing(503));
    let mut acknowledged = Vec::new();
    let is_closed = || folder.path().join("data/fjall/closed").exists();
    for round in 0..3 {
        hub.stop().await;
        assert!(is_closed(), "a store that was stopped in good order says so");
        hub.restart().await;
        assert!(!is_closed(), "until it is open again");
        disk.meet(Step { kinds: &[Kind::Sync], only: ".jnl", number: 1, event: Event::Fails(Errno::IO) });
        // Incompressible, and larger than a page.
        let body: String = std::iter::repeat_with(|| rng.alphanumeric()).take(20_000).collect();
        eventually("a sync fails", || async { hub.publish(TOPIC, &body).await.unwrap().status == 503 }).await;
        if round == 0 {
            hub.stop().await;
        } else {
            hub.kill().await;
        }
        assert!(!is_closed(), "a sync has failed");
        disk.forget_steps();
        hub.restart().await;
        for number in 0..3 {
            let body = format!("{round}.{number}");
            publish(&hub, &body).await;
            acknowledged.push(body);
        }
        hub.kill().await;
        disk.cut_power_at_once(&mut rng);
        hub.restart().await;
    }
    destination.behave(|_| Reply::Agree);
    let retry = format!("/api/v1/deliveries/retry?topic={TOPIC}");
    assert_eq!(hub.admin_post(&retry, "").await.status, 200);
    publish(&hub, "last").await;
    let got = bodies(&destination.until("the last", |seen| seen.iter().any(|one| one.body == "last")).await);
    let lost: Vec<_> = acknowledged.iter().filter(|body| !got.contains(body)).collect();
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
}

/// This happens when the hub saves that something was delivered; tells what came to the subscriber in the end.
async fn at_a_checkpoint(kinds: &'static [Kind], event: Event) -> Vec<String> {
    let folder = tempdir().unwrap();
    let (mut hub, disk) = on_disk(&folder.path().join("data"), seed());
    let disk = Arc::new(disk);
    hub.restart().await;
    let destination = Receiver::start().await;
    hub.subscribe(TOPIC, &destination.url("/cb"), &[], 1).await;
    // With the first delivery under way, nothing else is to be saved.
    let (armed, at_save) = (AtomicBool::new(false), Arc::clone(&disk));
    destination.behave(move |_| {
        if !armed.swap(true, Ordering::SeqCst) {
            at_save.meet(Step { kinds, only: ".jnl", number: 1, event });
        }
        Reply::Agree
    });
    publish(&hub, "one").await;
    eventually("it is saved", || std::future::ready(disk.met().is_some())).await;
    if matches!(event, Event::DiesBefore | Event::DiesAfter) {
        hub.process().wait().await;
        disk.forget_steps();
        hub.restart().await;
    }
    publish(&hub, "two").await;
    destination.until("the second", |seen| seen.iter().any(|one| one.body == "two")).await;
    hub.stop().await;
    hub.restart().await;
    publish(&hub, "three").await;
    bodies(&destination.until("the third", |seen| seen.iter().any(|one| one.body == "three")).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_is_saved_or_not_without_the_hub_knowing_it_leaves_nothing_out() {
    for event in [Event::IsDoneAndFails(Errno::IO), Event::Fails(Errno::IO)] {
        let got = at_a_checkpoint(&[Kind::Sync], event).await;
        assert_eq!(got, ["one", "two", "three"], "{event:?}: a hub that lives on repeats nothing");
    }
    for (kind, event) in [(&[Kind::Sync], Event::DiesAfter), (&[Kind::Write], Event::DiesBefore)] {
        let mut got = at_a_checkpoint(kind, event).await;
        assert!(got.len() <= 4, "{event:?}: it repeats at most what was not saved: {got:?}");
        got.dedup();
        assert_eq!(got, ["one", "two", "three"], "{event:?}");
    }
}
