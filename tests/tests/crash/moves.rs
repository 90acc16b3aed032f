//! Backups and restores that die at any step, with a power cut: what is there afterwards is the old or the new, whole.

use std::fs;
use std::path::Path;

use fastrand::Rng;
use resync_harness::{Disk, ENGINES, Event, HubProcess, Kind, Step, binary, deaths_wanted, seed};
use resync_hub::store::verify;
use tempfile::{TempDir, tempdir};
use tokio::process::Command;

/// Deaths of each; `RESYNC_TEST_DEATHS` asks for more.
const DEATHS: usize = 6;

/// Runs a command of the hub on this data folder: whether it went well, and what it said.
async fn run(data: &Path, keys: &[(String, String)], arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(binary("resync-hub"));
    command.args(arguments).arg("--data-dir").arg(data).envs(keys.iter().cloned());
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

async fn well(data: &Path, keys: &[(String, String)], arguments: &[&str]) -> String {
    let (well, said) = run(data, keys, arguments).await;
    assert!(well, "{arguments:?}: {said}");
    said
}

/// A stopped hub with some notifications and a token, in a folder of its own.
async fn stopped_hub() -> (TempDir, HubProcess) {
    let folder = tempdir().unwrap();
    let mut hub = HubProcess::start(&folder.path().join("data")).await;
    hub.add_token("library", "http://source.example/").await;
    post(&hub, 12).await;
    hub.stop().await;
    (folder, hub)
}

async fn post(hub: &HubProcess, count: usize) {
    for number in 0..count {
        let body = format!("{number:03}").repeat(30_000);
        assert_eq!(hub.publish("http://source.example/set/", &body).await.unwrap().status, 202);
    }
}

const fn at(number: u32, event: Event) -> Step {
    Step { kinds: Kind::CHANGES, only: "", number, event }
}

/// Some steps of so many, the last one among them.
fn some_steps(rng: &mut Rng, of: u32) -> Vec<Step> {
    let mut steps = vec![at(of, Event::DiesAfter)];
    for _ in 1..deaths_wanted(DEATHS) {
        let event = if rng.bool() { Event::DiesBefore } else { Event::DiesAfter };
        steps.push(at(rng.u32(1..=of), event));
    }
    steps
}

#[tokio::test]
async fn a_restore_that_dies_anywhere_with_a_power_cut_leaves_no_store_or_the_whole() {
    let mut rng = Rng::with_seed(seed());
    let (folder, _) = stopped_hub().await;
    let (data, root) = (folder.path().join("data"), folder.path().join("root"));
    fs::create_dir(&root).unwrap();
    let backup = folder.path().join("hub.backup");
    let backup = backup.to_str().unwrap();
    well(&data, &[], &["backup", backup]).await;
    let mut disk = Disk::under(&root, rng.u64(..));
    for &name in ENGINES {
        let engine = [("RESYNC_HUB_STORE_ENGINE".to_owned(), name.to_owned())];
        let on_disk = [&engine[..], &disk.environment()].concat();
        let restored = root.join("counted");
        disk.meet(Step::none(Kind::CHANGES));
        well(&restored, &on_disk, &["restore", backup]).await;
        let steps = u32::try_from(disk.taken().len()).unwrap();
        let whole = well(&restored, &engine, &["fsck"]).await;
        fs::remove_dir_all(&restored).unwrap();
        disk.assume_durable();
        let restored = root.join("restored");
        for step in some_steps(&mut rng, steps) {
            disk.meet(step);
            let (is_done, _) = run(&restored, &on_disk, &["restore", backup]).await;
            let met = format!("{name}: {:?} at {:?}", step.event, disk.met());
            disk.forget_steps();
            // sled promises nothing once the power was cut.
            if name == "fjall" {
                disk.cut_power(&mut rng);
            }
            let (is_store, said) = run(&restored, &engine, &["fsck"]).await;
            assert!(is_store || !is_done, "{met}: it had said that it was restored: {said}");
            if is_store {
                assert_eq!(said, whole, "{met}");
            } else {
                let is_none = said.contains("was not finished") || said.contains("there is no store");
                assert!(is_none || !restored.exists(), "{met}: {said}");
                well(&restored, &engine, &["restore", backup]).await;
                assert_eq!(well(&restored, &engine, &["fsck"]).await, whole, "{met}");
            }
            assert!(well(&restored, &engine, &["token", "list"]).await.contains("library"), "{met}");
            fs::remove_dir_all(&restored).unwrap();
            disk.assume_durable();
        }
    }
}

#[tokio::test]
async fn a_backup_that_dies_anywhere_with_a_power_cut_leaves_the_one_before_or_a_whole_one() {
    let mut rng = Rng::with_seed(seed());
    let (folder, mut hub) = stopped_hub().await;
    let (data, root) = (folder.path().join("data"), folder.path().join("root"));
    fs::create_dir(&root).unwrap();
    let file = root.join("hub.backup");
    let name = file.to_str().unwrap();
    well(&data, &[], &["backup", name]).await;
    hub.restart().await;
    post(&hub, 1).await;
    hub.stop().await;
    let mut disk = Disk::under(&root, rng.u64(..));
    let on_disk = disk.environment();
    disk.meet(Step::none(Kind::CHANGES));
    well(&data, &on_disk, &["backup", root.join("counted").to_str().unwrap()]).await;
    let steps = u32::try_from(disk.taken().len()).unwrap();
    let old = fs::read(&file).unwrap();
    for step in some_steps(&mut rng, steps) {
        disk.meet(step);
        let (is_done, _) = run(&data, &on_disk, &["backup", name]).await;
        let met = format!("{:?} at {:?}", step.event, disk.met());
        disk.forget_steps();
        disk.cut_power(&mut rng);
        let found = fs::read(&file).unwrap();
        if found != old {
            verify(&found[..]).unwrap_or_else(|error| panic!("{met}: {error}"));
            assert!(found.len() > old.len(), "{met}");
        }
        assert!(found != old || !is_done, "{met}: it had said that it was written");
        fs::write(&file, &old).unwrap();
        disk.assume_durable();
    }
}
