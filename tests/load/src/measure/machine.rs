//! The shape of the machine that a run was on.

use std::fs;

use serde::{Deserialize, Serialize};

/// What a figure depends on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Cores that may be used.
    pub cores: usize,
    /// Bytes of memory.
    pub memory: u64,
    /// The system's kernel.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let file = |name: &str| fs::read_to_string(name).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
            line.split_once(':').map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = field(&file("/proc/meminfo"), "MemTotal");
        Self {
            processor: field(&file("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024,
            kernel: format!("Linux {}", file("/proc/sys/kernel/osrelease").trim()),
        }
    }
}
