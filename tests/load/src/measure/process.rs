//! What a process takes of the machine, as Linux tells it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use walkdir::WalkDir;

use super::float;

/// How such threads are called.
const STORE: &str = "fjall";
/// A tick is a hundredth of a second on Linux.
const TICKS: f64 = 100.0;

/// What a process has taken so far, and holds now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Seconds.
    pub(crate) cpu: f64,
    /// Of these, what the threads of the hub's store took that flush and merge.
    pub(crate) store_cpu: f64,
    /// Resident bytes.
    pub(crate) memory: u64,
    /// Bytes sent to the disk.
    pub(crate) written: u64,
}

/// Adds up over processes that follow each other: a hub that is killed and started again is one hub.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    pid: i32,
    last: Usage,
    before: Usage,
}

impl Meter {
    /// What has been taken until now; `None` for the process: it is down.
    pub(crate) fn read(&mut self, pid: Option<i32>) -> Usage {
        let now = pid.and_then(usage);
        if let (Some(pid), Some(now)) = (pid, now) {
            if pid != self.pid {
                self.before.cpu += self.last.cpu;
                self.before.store_cpu += self.last.store_cpu;
                self.before.written += self.last.written;
                self.pid = pid;
            }
            self.last = now;
        }
        Usage {
            cpu: self.before.cpu + self.last.cpu,
            store_cpu: self.before.store_cpu + self.last.store_cpu,
            memory: now.map_or(0, |now| now.memory),
            written: self.before.written + self.last.written,
        }
    }
}

/// The number of the tool's own process.
pub(crate) fn pid_of_self() -> Option<i32> {
    i32::try_from(std::process::id()).ok()
}

/// Bytes that files below a folder take on the disk; files that go away meanwhile do not count.
pub(crate) fn bytes_below(folder: &Path) -> u64 {
    files_below(folder).0
}

/// The same, and how many files.
pub(crate) fn files_below(folder: &Path) -> (u64, u64) {
    let found = WalkDir::new(folder).into_iter().flatten().filter_map(|file| file.metadata().ok());
    found.fold((0, 0), |(bytes, files), one| (bytes + one.blocks() * 512, files + u64::from(one.is_file())))
}

fn usage(pid: i32) -> Option<Usage> {
    let file = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let number = |text: &str, field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok()
    };
    let cpu = ticks(&file("stat")?)?.1;
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let of_store = stats.filter_map(|stat| ticks(&stat).filter(|(name, _)| name.starts_with(STORE)));
    let store_cpu = of_store.map(|(_, cpu)| cpu).sum();
    let memory = number(&file("status")?, "VmRSS:")? * 1024;
    // Another user's process does not tell this.
    let written = file("io").and_then(|text| number(&text, "write_bytes:")).unwrap_or(0);
    Some(Usage { cpu, store_cpu, memory, written })
}

/// The name of a process or a thread, and its seconds: fields 14 and 15 of the whole line.
fn ticks(stat: &str) -> Option<(String, f64)> {
    let (before, after) = stat.rsplit_once(") ")?;
    let ticks: u64 = after.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some((before.split_once('(')?.1.to_owned(), float(ticks) / TICKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_memory_and_its_time_goes_on_with_its_successor() {
        let mut meter = Meter::default();
        let before = meter.read(pid_of_self());
        assert!(before.memory > 100_000, "{before:?}");
        meter.last.cpu = 5.0;
        meter.pid = -1;
        let after = meter.read(pid_of_self());
        assert!(after.cpu >= 5.0, "{after:?}");
        let down = meter.read(None);
        assert!(down.memory == 0 && down.cpu >= 5.0, "{down:?}");
    }
}
