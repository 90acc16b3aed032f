//! The requests under way of one shard, by when they began: which of them hang.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use super::host::HostId;

/// Requests to one host that began together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begun {
    pub(super) all: u32,
    /// So many of these are for subscriptions that are not proven.
    pub(super) unproven: u32,
}

/// The requests that do not hang yet.
#[derive(Debug, Default)]
pub(super) struct InFlight(BTreeMap<(Instant, HostId), Begun>);

impl InFlight {
    /// A request begins.
    pub(super) fn begin(&mut self, id: HostId, counted_as_proven: bool, now: Instant) {
        let begun = self.0.entry((now, id)).or_default();
        begun.all += 1;
        begun.unproven += u32::from(!counted_as_proven);
    }

    /// One that began at this moment has ended; returns whether it was known to hang.
    pub(super) fn end(&mut self, id: HostId, counted_as_proven: bool, began: Instant) -> bool {
        match self.0.entry((began, id)) {
            Entry::Occupied(mut requests) if requests.get().all > 1 => {
                let requests = requests.get_mut();
                requests.all -= 1;
                lessen(&mut requests.unproven, u32::from(!counted_as_proven));
                false
            }
            Entry::Occupied(last) => {
                last.remove();
                false
            }
            Entry::Vacant(_) => true,
        }
    }

    /// Takes out the oldest ones, where they have been under way for longer than `patience`: they hang from now on.
    pub(super) fn take_hanging(&mut self, patience: Duration, now: Instant) -> Option<(HostId, Begun)> {
        let oldest = self.0.first_entry()?;
        let hangs = now.saturating_duration_since(oldest.key().0) > patience;
        hangs.then(|| oldest.remove_entry()).map(|((_, id), requests)| (id, requests))
    }
}

/// Counts so many less. That there were as many is what the tests watch over; a wrong count must not stop a host for ever.
pub(super) fn lessen(count: &mut u32, by: u32) {
    debug_assert!(*count >= by, "{count} are counted, and {by} end");
    *count = count.saturating_sub(by);
}
