//! A control group of the kernel: the processes in it together get no more than a share of a core.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;

/// Where systems have version 2, and the controller of version 1.
const VERSION_2: &str = "/sys/fs/cgroup";
const VERSION_1: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];
/// The share is that of each such period, in microseconds.
const PERIOD: u32 = 100_000;
/// A process that was killed may take a moment to leave.
const LEAVING: Duration = Duration::from_millis(20);
const TRIES: u32 = 50;

static MADE: AtomicU32 = AtomicU32::new(0);

/// A control group. It is removed when this is dropped, and by then its processes must have ended.
#[derive(Debug)]
pub(super) struct Cage(PathBuf);

impl Cage {
    /// With so many hundredths of a core.
    ///
    /// # Errors
    /// Why this machine lets nobody make one.
    pub(super) fn new(hundredths: u32) -> Result<Self, String> {
        let quota = PERIOD / 100 * hundredths;
        if has_cpu(&Path::new(VERSION_2).join("cgroup.controllers")) {
            // It is so already, or who may not do it is told below.
            let _ = fs::write(Path::new(VERSION_2).join("cgroup.subtree_control"), "+cpu");
            let cage = Self::make(VERSION_2)?;
            cage.set("cpu.max", &format!("{quota} {PERIOD}"))?;
            return Ok(cage);
        }
        let found = VERSION_1.into_iter().find(|folder| Path::new(folder).join("cpu.cfs_quota_us").exists());
        let cage =
            Self::make(found.ok_or("there is no controller `cpu` of control groups below /sys/fs/cgroup")?)?;
        cage.set("cpu.cfs_period_us", &PERIOD.to_string())?;
        cage.set("cpu.cfs_quota_us", &quota.to_string())?;
        Ok(cage)
    }

    /// This process is in it from now on, with whatever it starts.
    ///
    /// # Errors
    /// When that is not allowed.
    pub(super) fn take(&self, process: Pid) -> Result<(), String> {
        self.set("cgroup.procs", &process.to_string())
    }

    fn make(parent: &str) -> Result<Self, String> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder = Path::new(parent).join(format!("resync-load-{}-{number}", process::id()));
        fs::create_dir(&folder).map_err(|error| format!("{} cannot be made: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let file = self.0.join(name);
        fs::write(&file, value).map_err(|error| format!("{} cannot be written: {error}", file.display()))
    }
}

impl Drop for Cage {
    fn drop(&mut self) {
        for _ in 0..TRIES {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(LEAVING);
        }
    }
}

fn has_cpu(controllers: &Path) -> bool {
    let controllers = fs::read_to_string(controllers).unwrap_or_default();
    controllers.split_whitespace().any(|name| name == "cpu")
}
