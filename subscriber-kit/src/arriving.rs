//! How much room bodies take while they arrive. Whoever has the address of a callback, a hub that a Source chose, may send bodies
//! that nothing proves yet: all of them together are bounded, and of each subscription's there is a share.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So much of a body takes no room, so that small ones arrive when large ones have it all.
const FREE: u64 = 16 * 1024;

/// One subscription's bodies have this part of all room, or one of them as much as it needs.
const SHARES: u64 = 4;

#[derive(Debug)]
pub(crate) struct Arriving {
    max: u64,
    room: Mutex<Room>,
}

#[derive(Debug, Default)]
struct Room {
    all: u64,
    /// Only of those whose bodies take room now.
    by_subscription: HashMap<String, u64>,
}

/// A body that arrives; its room is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Coming<'a> {
    arriving: &'a Arriving,
    token: &'a str,
    length: u64,
}

impl Arriving {
    pub(crate) fn new(max: u64) -> Self {
        Self { max, room: Mutex::default() }
    }

    /// A body for the subscription of this token.
    pub(crate) fn begin<'a>(&'a self, token: &'a str) -> Coming<'a> {
        Coming { arriving: self, token, length: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coming<'_> {
    /// Whether there is room for so many more bytes; it then takes it.
    pub(crate) fn takes(&mut self, bytes: usize) -> bool {
        let (before, length) = (counted(self.length), self.length + bytes as u64);
        let (more, max) = (counted(length) - before, self.arriving.max);
        let mut room = self.arriving.lock();
        let own = room.by_subscription.get(self.token).copied().unwrap_or(0);
        let fits_all = room.all + more <= max || room.all == before;
        let fits_own = own + more <= max / SHARES || own == before;
        if more > 0 && !(fits_all && fits_own) {
            return false;
        }
        self.length = length;
        if more > 0 {
            room.all += more;
            *room.by_subscription.entry(self.token.to_owned()).or_default() += more;
        }
        true
    }
}

/// What of a body takes room.
fn counted(length: u64) -> u64 {
    length.saturating_sub(FREE)
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let counted = counted(self.length);
        let mut room = self.arriving.lock();
        room.all -= counted;
        if let Some(own) = room.by_subscription.get_mut(self.token) {
            *own -= counted;
            if *own == 0 {
                room.by_subscription.remove(self.token);
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
        let arriving = Arriving::new(400 * KIB as u64);
        let mut large = arriving.begin("one");
        assert!(large.takes(16 * KIB + 90 * KIB), "within the share");
        let mut second = arriving.begin("one");
        assert!(second.takes(16 * KIB), "the beginning takes no room");
        assert!(!second.takes(20 * KIB), "with the first one it is more than a quarter");
        let mut other = arriving.begin("two");
        assert!(other.takes(200 * KIB), "one body may be larger than the share");
        let mut third = arriving.begin("three");
        assert!(!third.takes(200 * KIB), "all have no more together");
        drop(other);
        assert!(third.takes(200 * KIB));
        drop((large, second, third));
        let room = arriving.lock();
        assert!(room.all == 0 && room.by_subscription.is_empty(), "nobody is remembered who is gone");
    }

    #[test]
    fn a_body_that_is_larger_than_all_room_is_taken_alone() {
        let arriving = Arriving::new(10);
        let mut large = arriving.begin("one");
        assert!(large.takes(1024 * KIB) && large.takes(1024 * KIB));
        assert!(!arriving.begin("two").takes(17 * KIB));
        assert!(arriving.begin("two").takes(16 * KIB));
    }
}
