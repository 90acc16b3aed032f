//! The measuring tool as a process.

use std::fs::File;
use std::path::Path;

use resync_tests::harness::{Process, binary, eventually};
use rustix::process::Signal;
use tokio::process::Command;

#[tokio::test]
async fn a_measurement_that_is_told_to_stop_takes_its_hub_along() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let keep = folder.path().join("keep");
        let mut command = Command::new(binary("resync-load"));
        command.args(["scale", "--keep"]).arg(&keep).current_dir(folder.path());
        let mut tool = Process::run("resync-load", &mut command);
        let lock = keep.join("data/lock");
        eventually("a hub runs", || async { is_held(&lock) }).await;
        tool.signal(signal);
        assert!(!tool.wait().await.success());
        eventually("the hub has ended", || async { !is_held(&lock) }).await;
    }
}

/// Whether a hub has the data folder with this lock.
fn is_held(lock: &Path) -> bool {
    File::open(lock).is_ok_and(|lock| lock.try_lock().is_err())
}
