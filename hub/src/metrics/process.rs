//! Metrics of the process, named as in Prometheus' own libraries.

use std::fmt;
use std::fs;
use std::time::SystemTime;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use rustix::param::page_size;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::{count, write};

#[derive(Debug)]
pub(super) struct Process {
    begun: SystemTime,
}

impl Process {
    /// The process, which began about now.
    pub(super) fn begin() -> Self {
        Self { begun: SystemTime::now() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let begun = self.begun.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let gauges = [
            ("process_start_time_seconds", "When the process started, in Unix time", Some(begun)),
            ("process_resident_memory_bytes", "Resident memory", resident().map(count)),
            ("process_open_fds", "Open file descriptors", open_files().map(count)),
            (
                "process_max_fds",
                "Limit of open file descriptors",
                getrlimit(Resource::Nofile).current.map(count),
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                write(&mut encoder, (name, help), &ConstGauge::new(value))?;
            }
        }
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = count(spent.tv_sec.unsigned_abs()) + count(spent.tv_nsec.unsigned_abs()) / 1e9;
        write(
            &mut encoder,
            ("process_cpu_seconds", "Time that the process has spent on processors"),
            &ConstCounter::new(seconds),
        )
    }
}

/// `None` if the system does not say.
fn resident() -> Option<u64> {
    let pages: u64 = fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    Some(pages * page_size() as u64)
}

fn open_files() -> Option<u64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}
