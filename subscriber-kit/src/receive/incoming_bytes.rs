//! Limits the memory of bodies while they arrive. Anybody who knows a callback can send bodies, and only a complete one can be
//! checked. So there is a limit for all together, and a share of it for each subscription.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use resync_common::locks::lock;

/// This much of each body is not counted, so that small bodies arrive while large ones use up the limit.
const FREE: u64 = 16 * 1024;

/// The bodies of one subscription may use the limit divided by this; a single body may use all it needs.
const SHARES: u64 = 4;

#[derive(Debug)]
pub(crate) struct IncomingBytes {
    max: u64,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: u64,
    /// Only of those with bodies that are counted.
    by_subscription: HashMap<String, u64>,
}

/// The memory of one body, which is released when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    incoming: &'a IncomingBytes,
    token: &'a str,
    length: u64,
}

impl IncomingBytes {
    pub(crate) fn new(max: u64) -> Self {
        Self { max, used: Mutex::default() }
    }

    /// For a body of the subscription with this token.
    pub(crate) fn begin<'a>(&'a self, token: &'a str) -> Reservation<'a> {
        Reservation { incoming: self, token, length: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        lock(&self.used)
    }
}

impl Reservation<'_> {
    /// Reserves memory for more bytes; whether there is enough.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        let (before, length) = (counted(self.length), self.length + bytes as u64);
        let (more, max) = (counted(length) - before, self.incoming.max);
        let mut used = self.incoming.lock();
        let own = used.by_subscription.get(self.token).copied().unwrap_or(0);
        let fits_all = used.all + more <= max || used.all == before;
        let fits_own = own + more <= max / SHARES || own == before;
        if more > 0 && !(fits_all && fits_own) {
            return false;
        }
        self.length = length;
        if more > 0 {
            used.all += more;
            *used.by_subscription.entry(self.token.to_owned()).or_default() += more;
        }
        true
    }
}

/// How much of a body is counted.
fn counted(length: u64) -> u64 {
    length.saturating_sub(FREE)
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let counted = counted(self.length);
        let mut used = self.incoming.lock();
        used.all -= counted;
        if let Some(own) = used.by_subscription.get_mut(self.token) {
            *own -= counted;
            if *own == 0 {
                used.by_subscription.remove(self.token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1024;

    #[test]
    fn bodies_of_one_subscription_that_arrive_at_once_leave_room_for_those_of_others() {
        let incoming = IncomingBytes::new(400 * KIB as u64);
        let mut large = incoming.begin("one");
        assert!(large.reserve(16 * KIB + 90 * KIB), "within the share");
        let mut second = incoming.begin("one");
        assert!(second.reserve(16 * KIB), "the beginning takes no room");
        assert!(!second.reserve(20 * KIB), "with the first one it is more than a quarter");
        let mut other = incoming.begin("two");
        assert!(other.reserve(200 * KIB), "one body may be larger than the share");
        let mut third = incoming.begin("three");
        assert!(!third.reserve(200 * KIB), "all have no more together");
        drop(other);
        assert!(third.reserve(200 * KIB));
        drop((large, second, third));
        let used = incoming.lock();
        assert!(used.all == 0 && used.by_subscription.is_empty(), "nobody is remembered who is gone");
    }

    #[test]
    fn a_body_that_is_larger_than_all_room_is_taken_alone() {
        let incoming = IncomingBytes::new(10);
        let mut large = incoming.begin("one");
        assert!(large.reserve(1024 * KIB) && large.reserve(1024 * KIB));
        assert!(!incoming.begin("two").reserve(17 * KIB));
        assert!(incoming.begin("two").reserve(16 * KIB));
    }
}
