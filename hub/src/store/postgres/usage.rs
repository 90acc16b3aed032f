//! What the store holds, as far as this hub knows: as it was looked at last, and what it has done since.

use std::sync::{Mutex, MutexGuard};

use resync_common::locks::lock;
use resync_core::datetime::DateTime;
use tokio_postgres::Row;

use super::rows::{Fields, the_only};
use crate::store::{Result, Usage};

pub(super) const LOOK: &str = "
SELECT (SELECT coalesce(sum(a.topics), 0)::bigint FROM hub.tally a) AS topics, coalesce(sum(t.bytes), 0)::bigint AS bytes,
    coalesce(sum(t.bytes) FILTER (WHERE NOT t.for_publishers), 0)::bigint AS strangers, min(t.oldest) AS oldest
FROM hub.topic t";

#[derive(Debug)]
pub(super) struct KnownUsage(Mutex<Usage>);

impl KnownUsage {
    pub(super) fn unknown() -> Self {
        Self(Mutex::default())
    }

    pub(super) fn get(&self) -> Usage {
        *self.lock()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Usage)) {
        change(&mut self.lock());
    }

    /// Takes what [`LOOK`] has found.
    pub(super) fn take(&self, rows: &[Row]) -> Result<()> {
        let fields = Fields::of("topics", the_only(rows)?);
        let usage = Usage {
            topics: fields.small("topics")?,
            log_bytes: fields.number("bytes")?,
            strangers_bytes: fields.number("strangers")?,
            oldest: fields.maybe_moment("oldest")?,
        };
        *self.lock() = usage;
        Ok(())
    }

    /// Logs weigh more by this, or less.
    pub(super) fn weigh(&self, publishers: i64, strangers: i64) {
        self.change(|usage| {
            usage.log_bytes = usage.log_bytes.saturating_add_signed(publishers.saturating_add(strangers));
            usage.strangers_bytes = usage.strangers_bytes.saturating_add_signed(strangers);
        });
    }

    /// A notification came in then.
    pub(super) fn came(&self, received_at: DateTime) {
        self.change(|usage| {
            let oldest = usage.oldest.map_or(received_at, |oldest| oldest.min(received_at));
            usage.oldest = Some(oldest);
        });
    }

    fn lock(&self) -> MutexGuard<'_, Usage> {
        // What it guards is complete between any two statements.
        lock(&self.0)
    }
}
