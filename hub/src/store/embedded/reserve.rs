//! Free space on the disk: looked at often and cheaply, so that what makes the store grow is refused before anything else fails.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use resync_common::space::Space;

use crate::store::StoreError;

/// How often the disk is asked.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The share of the reserve that may be written between two looks.
const WRITTEN: u64 = 8;

/// Tells how many bytes are free; `None` when nobody knows.
type Probe = Box<dyn Fn() -> Option<u64> + Send>;

/// Watches over the reserve.
pub(super) struct DiskReserve {
    free: Probe,
    reserve: u64,
    looked: Option<Instant>,
    written: u64,
    short: Option<StoreError>,
}

impl DiskReserve {
    /// The disk that `directory` is on must keep `reserve` bytes free; 0 means that nobody looks.
    pub(super) fn on_disk(directory: &Path, reserve: u64) -> Self {
        let directory = directory.to_owned();
        Self::new(move || Space::of(&directory).ok().map(|disk| disk.free), reserve)
    }

    pub(super) fn new(free: impl Fn() -> Option<u64> + Send + 'static, reserve: u64) -> Self {
        Self { free: Box::new(free), reserve, looked: None, written: 0, short: None }
    }

    /// Whether the reserve is touched, when `bytes` more are about to be written.
    pub(super) fn check(&mut self, bytes: usize) -> Option<StoreError> {
        self.written = self.written.saturating_add(bytes as u64);
        let fresh = self.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY);
        if self.reserve > 0 && !(fresh && self.written < self.reserve / WRITTEN) {
            self.look();
        }
        self.short.clone()
    }

    fn look(&mut self) {
        self.looked = Some(Instant::now());
        self.written = 0;
        let free = (self.free)();
        self.short = free
            .filter(|free| *free < self.reserve)
            .map(|free| StoreError::Full { free, reserve: self.reserve });
    }
}

impl fmt::Debug for DiskReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskReserve").field("reserve", &self.reserve).finish_non_exhaustive()
    }
}
