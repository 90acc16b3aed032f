//! Archived data folders of every format of the store: a start opens them, even after some that died with the power,
//! and delivers everything that they owe.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::collections::HashMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use resync_harness::{
    Clock, Disk, Event, HubProcess, Kind, Receiver, Seen, Step, SystemNames, eventually, seed,
};
use tempfile::tempdir;
use tokio::process::Command;

use super::backups::well;

/// What `tests/peers/archive_store.py` has sent to the hubs that wrote them.
const TOPIC: &str = "http://source.example/earlier/";
const SUBSCRIBERS: Ipv4Addr = Ipv4Addr::new(127, 42, 7, 1);
const SECRET: &str = "s3cr3t of before";
const SECRETS_KEY: &str = "5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e5e";

/// No start has fewer.
const STEPS: u32 = 40;

/// The archive without its ending, and the engine.
const STORES: &[(&str, &str)] = &[
    ("fjall-1", "fjall"),
    #[cfg(feature = "sled")]
    ("sled-1", "sled"),
];

#[tokio::test]
async fn an_archived_data_folder_is_opened_and_all_that_it_owes_is_delivered() {
    // At any port: whom the archives know at another one is led here.
    let subscribers = Receiver::start().await;
    for &(name, engine) in STORES {
        let folder = tempdir().unwrap();
        let data = unpacked(name, folder.path()).await;
        let mark = data.join("engine");
        let as_written = fs::read_to_string(&mark).unwrap();
        let keys = [("STORE_ENGINE", engine), ("SECRETS_KEY", SECRETS_KEY)];
        assert!(well(&data, &keys, &["fsck"]).await.contains("no faults"));
        assert_eq!(fs::read_to_string(&mark).unwrap(), as_written, "a look changes nothing");

        let before = subscribers.seen().len();
        let got = async |path: &str, count: usize| {
            let own = |seen: &[Seen]| -> Vec<_> {
                let deliveries = seen.iter().skip(before).filter(|one| one.method == http::Method::POST);
                deliveries.filter(|one| one.path() == path).cloned().collect()
            };
            own(&subscribers.until(path, |seen| own(seen).len() >= count).await)
        };
        let mut hub = HubProcess::prepare(&data, &keys);
        // A death while sled opens its files can leave a folder that it cannot read any more (docs/storage.md).
        if engine == "fjall" {
            die_while_it_is_opened(&mut hub, &data).await;
        }
        hub.environment().extend(of_then(folder.path(), &mark, &subscribers));
        hub.restart().await;
        assert_eq!(fs::read_to_string(&mark).unwrap(), format!("{engine} 1\n"));
        // Who was not verified yet is asked again.
        hub.until_subscribed(3).await;
        // Only after a month does it begin by itself.
        let retry = format!("/api/v1/deliveries/retry?topic={TOPIC}");
        assert_eq!(hub.admin_post(&retry, "").await.status, 200);
        let owed = got("/late", 2).await;
        assert_eq!(owed[0].text(), "owed one");
        assert_eq!(owed[1].text(), format!("owed two {}", "x".repeat(100_000)));
        hub.publish(TOPIC, "of today").await.unwrap();
        assert!(got("/late", 3).await.iter().all(|one| one.is_signed_with(SECRET)));
        for path in ["/well", "/asked"] {
            let one = &got(path, 1).await[0];
            assert_eq!((one.text().as_str(), one.header("x-hub-signature")), ("of today", ""), "{path}");
        }

        // A renewal writes the subscription anew; the next start reads it again.
        let callback = format!("http://{SUBSCRIBERS}:4242/late");
        let renewed = [("hub.secret", "another"), ("hub.lease_seconds", "864000")];
        assert_eq!(leases_of_before(&hub).await, 2);
        hub.subscribe(TOPIC, &callback, &renewed, 3).await;
        eventually("the renewal is in force", || async { leases_of_before(&hub).await == 1 }).await;
        hub.stop().await;
        assert!(well(&data, &keys, &["fsck"]).await.contains("no faults"));
        hub.restart().await;
        hub.publish(TOPIC, "of tomorrow").await.unwrap();
        let last = got("/late", 4).await.pop().unwrap();
        assert_eq!(last.text(), "of tomorrow");
        assert!(last.is_signed_with("another"));
        assert_eq!(got("/well", 2).await[1].text(), "of tomorrow");
    }
}

/// The first hub to open the folder dies at some steps of that, and the power is cut each time.
async fn die_while_it_is_opened(hub: &mut HubProcess, data: &Path) {
    let mut rng = Rng::with_seed(seed());
    let mut disk = Disk::under(data, rng.u64(..));
    hub.environment().extend(disk.environment());
    for _ in 0..3 {
        let event = if rng.bool() { Event::DiesBefore } else { Event::DiesAfter };
        let number = rng.u32(1..=STEPS);
        disk.meet(Step { kinds: Kind::CHANGES, only: "", number, event });
        let said = hub.try_restart().await.expect_err("it dies before it listens");
        assert!(disk.met().is_some(), "step {number}: {said}");
        disk.forget_steps();
        disk.cut_power(&mut rng);
    }
    for (name, _) in disk.environment() {
        hub.environment().remove(&name);
    }
}

/// How many leases are those of the archives, which end in 2036.
async fn leases_of_before(hub: &HubProcess) -> usize {
    let all = hub.admin("/api/v1/subscriptions").await.text();
    all.matches("\"lease_end\":\"2036-").count()
}

/// The environment of a hub for which it is an hour after the archive was written, since leases end and notifications age, and which reaches
/// the subscribers of then where they are now.
fn of_then(folder: &Path, written: &Path, subscribers: &Receiver) -> HashMap<String, String> {
    let clock = Clock::new(folder);
    let age = fs::metadata(written).unwrap().modified().unwrap().elapsed().unwrap();
    clock.jump(3_600 - i64::try_from(age.as_secs()).unwrap());
    let names = SystemNames::new(folder, Ipv4Addr::LOCALHOST);
    let led = names.leading(SUBSCRIBERS, subscribers.address());
    let mut environment: HashMap<_, _> = clock.environment().into_iter().collect();
    let both = format!("{} {}", environment["LD_PRELOAD"], led[0].1);
    environment.extend(led);
    environment.insert("LD_PRELOAD".to_owned(), both);
    environment
}

/// The data folder in this archive.
async fn unpacked(name: &str, into: &Path) -> PathBuf {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/hub/stores/{name}.tar.gz"));
    let mut tar = Command::new("tar");
    assert!(tar.arg("-xzf").arg(archive).arg("-C").arg(into).status().await.unwrap().success());
    into.join("data")
}
