//! How much one package of a dump holds (RS-102, RS-109).

use crate::xml::MAX_ENTRIES;

/// When one package ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackageLimits {
    /// Most bitstreams of one package; 50,000 at most, since a manifest cannot be split (RS-109).
    pub bitstreams: usize,
    /// Most bytes of the bitstreams of one package, before compression; a longer bitstream has a package of its own. Only what grows
    /// while it is packed can pass it.
    pub bytes: u64,
}

impl Default for PackageLimits {
    /// 50,000 bitstreams, 100 MiB.
    fn default() -> Self {
        Self { bitstreams: MAX_ENTRIES, bytes: 100 * 1024 * 1024 }
    }
}

impl PackageLimits {
    pub(super) fn entries(self) -> usize {
        self.bitstreams.clamp(1, MAX_ENTRIES)
    }
}
