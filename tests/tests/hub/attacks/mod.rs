//! Attacks of strangers on a hub with its release configuration: what each costs, and that nobody else pays for it.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod bounds;
mod links;
mod retention;
mod shared_origin;
mod slow_hosts;
mod status_queries;
mod waiting_requests;

use std::fs;

use resync_harness::HubProcess;

/// What the process has in memory now, in bytes.
fn resident(hub: &mut HubProcess) -> u64 {
    memory(hub, "VmRSS:")
}

/// What it has had at most.
fn peak(hub: &mut HubProcess) -> u64 {
    memory(hub, "VmHWM:")
}

fn memory(hub: &mut HubProcess, field: &str) -> u64 {
    let pid = hub.process().pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}
