//! Data folders of hubs of before: taken up by a start, with everything that they owe.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::{Path, PathBuf};

use resync_core::websub::{Secret, Signature};
use resync_tests::harness::{Backup, HubProcess, Receiver, Reply, Seen, refusing};
use tempfile::tempdir;
use tokio::process::Command;

use super::backups::{topic, well};

/// What `stores/README.md` says of them.
const TOPIC: &str = "http://source.example/of-before/";
const SUBSCRIBERS: ([u8; 4], u16) = ([127, 42, 7, 1], 4242);
const SECRET: &str = "s3cr3t of before";

/// The kind of record that subscriptions are.
const SUBSCRIPTIONS: u8 = 6;

#[tokio::test]
async fn what_a_hub_of_before_has_written_is_taken_up_with_all_that_it_owes() {
    let subscribers = Receiver::try_start_at(SUBSCRIBERS.into()).await.unwrap();
    for (engine, version) in [("fjall", 1), ("sled", 1), ("fjall", 2), ("sled", 2)] {
        let folder = tempdir().unwrap();
        let data = unpacked(&format!("{engine}-{version}"), folder.path()).await;
        let mark = data.join("engine");
        assert_eq!(fs::read_to_string(&mark).unwrap(), format!("{engine} {version}\n"));
        // They are as old as this test is.
        let keys = [("STORE_ENGINE", engine), ("RETENTION_AGE", "3650d")];
        assert!(well(&data, &keys, &["fsck"]).await.contains("all well"));

        let before = subscribers.deliveries().len();
        let came = |seen: &[Seen], path: &str| -> Vec<_> {
            let own = seen.iter().filter(|one| one.method == http::Method::POST).skip(before);
            own.filter(|one| one.path() == path).cloned().collect()
        };
        let hub = HubProcess::start_with(&data, &keys).await;
        assert_eq!(fs::read_to_string(&mark).unwrap(), format!("{engine} 3\n"));
        let retry = format!("/api/v1/deliveries/retry?topic={TOPIC}");
        assert_eq!(hub.admin_post(&retry, "").await.status, 200);
        hub.publish(TOPIC, "of today").await.unwrap();
        let all = subscribers
            .until("both have everything", |seen| {
                came(seen, "/late").len() == 3 && !came(seen, "/well").is_empty()
            })
            .await;

        let late = came(&all, "/late");
        assert_eq!(late.iter().map(Seen::text).collect::<Vec<_>>(), ["owed one", "owed two", "of today"]);
        for one in &late {
            let signature = Signature::parse(one.header("x-hub-signature")).unwrap();
            assert_eq!(signature.verify(&Secret::new(SECRET).unwrap(), &one.body), Ok(()));
        }
        let well = came(&all, "/well");
        assert_eq!(well.iter().map(Seen::text).collect::<Vec<_>>(), ["of today"], "it had the others");
        assert_eq!(well[0].header("x-hub-signature"), "");
    }
}

/// The data folder that is packed under this name.
async fn unpacked(name: &str, into: &Path) -> PathBuf {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/hub/stores/{name}.tar.gz"));
    let mut tar = Command::new("tar");
    assert!(tar.arg("-xzf").arg(packed).arg("-C").arg(into).status().await.unwrap().success());
    into.join("data")
}

/// What a hub of before wrote: records of the first version, in which subscriptions had no addresses, or of the second, in which no
/// notification had a trace, as this one has none.
fn as_of_before(version: u8, space: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    assert_eq!(value[0], 3, "this test knows what changed up to version 3 only");
    let mut content = value[..value.len() - 4].to_vec();
    content[0] = version;
    if version == 1 && space == SUBSCRIPTIONS {
        let mut at = 1;
        let number = |at: &mut usize| {
            let begin = *at;
            while content[*at] >= 0x80 {
                *at += 1;
            }
            *at += 1;
            usize::from(content[begin])
        };
        let _id = number(&mut at);
        let _topic = number(&mut at);
        let origin = number(&mut at);
        at += origin;
        let _start = number(&mut at);
        at += 8;
        let _nanoseconds = number(&mut at);
        assert_eq!(content.remove(at), 0, "a callback that is an address has none beside it");
    }
    let checksum = crc32fast::hash(&[&[space], key, &content].concat());
    content.extend_from_slice(&checksum.to_be_bytes());
    content
}

#[tokio::test]
async fn a_store_of_a_hub_of_before_is_migrated_by_a_start_and_nothing_is_lost() {
    for (engine, version) in [("fjall", 1), ("sled", 1), ("fjall", 2), ("sled", 2)] {
        let folder = tempdir().unwrap();
        let [data, old, file] = ["one", "two", "hub.backup"].map(|name| folder.path().join(name));
        let keys = [("STORE_ENGINE", engine)];
        let destination = Receiver::start().await;
        destination.behave(refusing(503));
        let mut hub = HubProcess::start_with(&data, &keys).await;
        hub.subscribe(&topic(0), &destination.url("/cb"), &[("hub.secret", "s3cr3t")], 1).await;
        hub.publish(&topic(0), "owed").await.unwrap();
        destination.until_delivered(1).await;
        hub.stop().await;
        well(&data, &keys, &["backup", file.to_str().unwrap()]).await;
        let mut backup = Backup::read(&file);
        backup.say("\"store\":3", &format!("\"store\":{version}"));
        backup.change(|space, key, value| as_of_before(version, space, key, &value));
        backup.write(&file);
        well(&old, &keys, &["restore", file.to_str().unwrap()]).await;
        // That is now what the other hub had, but for the mark.
        let mark = old.join("engine");
        let older = format!("{engine} {version}\n");
        fs::write(&mark, &older).unwrap();
        assert!(well(&old, &keys, &["fsck"]).await.contains("all well"));
        assert_eq!(fs::read_to_string(&mark).unwrap(), older, "a look changes nothing");

        destination.behave(|_| Reply::Agree);
        let new = HubProcess::start_with(&old, &keys).await;
        assert_eq!(fs::read_to_string(&mark).unwrap(), format!("{engine} 3\n"));
        let retry = format!("/api/v1/deliveries/retry?topic={}", topic(0));
        assert_eq!(new.admin_post(&retry, "").await.status, 200);
        let got = destination.until_delivered(2).await;
        assert!(got[1].text() == "owed" && got[1].header("x-hub-signature").starts_with("sha256="));
        // A renewal writes the subscription anew.
        new.subscribe(&topic(0), &destination.url("/cb"), &[("hub.secret", "s3cr3t")], 1).await;
        new.publish(&topic(0), "next").await.unwrap();
        destination.until("the next one", |seen| seen.iter().any(|one| one.body == "next")).await;
    }
}
