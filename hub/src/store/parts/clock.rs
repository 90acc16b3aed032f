//! The clock of the store.

use resync_core::datetime::DateTime;

/// The clock of every moment that is stored, or compared with one that is. Hubs that share a store share this clock, however theirs may
/// be set: what one writes down another reads.
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// The present moment. Asks nothing of the disk or of a server. It may jump, so it measures no durations.
    fn now(&self) -> DateTime;
}
