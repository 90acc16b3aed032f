//! The most memory that a process ever had resident.

/// In words.
pub(crate) fn peak() -> String {
    peak_kib().map_or_else(|| "unknown".to_owned(), |kib| format!("{kib} kB"))
}

/// In KiB; `None` where the system does not say.
pub(crate) fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
