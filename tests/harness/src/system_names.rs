//! Names for a program that asks the system's resolver: a library under it gives the answers (`system_names.c`).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::preload;

/// An address out there. No test contacts it: whoever connects to it is led to a server on this machine.
pub const OUT_THERE: &str = "8.8.8.8";

/// What the system says of one name.
#[derive(Debug)]
pub struct SystemNames {
    library: PathBuf,
    stand_in: Ipv4Addr,
}

impl SystemNames {
    /// With its files in this folder; the server at `stand_in` is the one at [`OUT_THERE`].
    ///
    /// # Panics
    /// When the library cannot be built: the system has no C compiler.
    pub fn new(folder: &Path, stand_in: Ipv4Addr) -> Self {
        let library =
            preload::build("system_names", &[("system_names.c", include_str!("system_names.c"))], folder);
        Self { library, stand_in }
    }

    /// The environment of a process for which the name has the first of these lists of addresses at its first lookup, the
    /// second at the next, and so on; then always the last.
    pub fn environment(&self, name: &str, lookups: &[&[&str]]) -> [(String, String); 5] {
        let answers: Vec<String> = lookups.iter().map(|addresses| addresses.join(",")).collect();
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("RESYNC_NAME", name.to_owned()),
            ("RESYNC_NAME_ANSWERS", answers.join(" ")),
            ("RESYNC_OUT_THERE", OUT_THERE.to_owned()),
            ("RESYNC_STAND_IN", self.stand_in.to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
    }

    /// The environment of a process that is led to this server wherever at this address it connects to.
    pub fn leading(&self, from: Ipv4Addr, to: SocketAddr) -> [(String, String); 4] {
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("RESYNC_OUT_THERE", from.to_string()),
            ("RESYNC_STAND_IN", to.ip().to_string()),
            ("RESYNC_STAND_IN_PORT", to.port().to_string()),
        ]
        .map(|(key, value)| (key.to_owned(), value))
    }
}
