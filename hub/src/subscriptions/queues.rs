//! Whose turn it is to be asked: a few callbacks at once of each origin, so that one slow host holds up nobody else, and few for one
//! client (B-33). And how many may wait for that.

use crate::places::{Bounds, Places, Share, Slow};

/// Verifications at once: over all origins, at slow ones, of one origin and for one client. So many tasks with their texts exist at
/// most, whatever waits.
const ALL: Share = Share { most: 1_024, strangers: 768 };
const SLOW: Slow = Slow { known: 128, strangers: 256 };
const OF_ONE_ORIGIN: Share = Share { most: 6, strangers: 4 };
pub(super) const OF_ONE_CLIENT: Share = Share { most: 24, strangers: 8 };

/// Those who wait of whom it is read at once what they wait for. All reads go to one disk, so that more would be no faster.
const READ: Share = Share { most: 32, strangers: 24 };

/// Requests that may wait for verification: in all, for callbacks on one host, and of one client. Each is a few records of
/// fixed sizes, some 500 bytes together (see `requests`, `verification`, `places/books` and the store's memory); its texts wait in
/// the store.
pub(super) const WAITING: Share = Share { most: 50_000, strangers: 40_000 };
pub(super) const WAITING_AT_ONE_HOST: Share = Share { most: 20_000, strangers: 5_000 };
const WAITING_OF_ONE_CLIENT: Share = Share { most: 10_000, strangers: 1_000 };

/// Places to ask callbacks. With `by_client` no client has more than its share.
pub(super) fn queues(by_client: bool) -> Places {
    let client = by_client.then_some(OF_ONE_CLIENT);
    Places::new(Bounds { all: ALL, slow: SLOW, here: OF_ONE_ORIGIN, client })
}

/// Places to read.
pub(super) fn reading() -> Places {
    Places::new(Bounds { all: READ, slow: none_slow(READ), here: READ, client: None })
}

/// Places to wait. With `by_client` no client has more than its share.
pub(super) fn waiting(by_client: bool) -> Places {
    let client = by_client.then_some(WAITING_OF_ONE_CLIENT);
    Places::new(Bounds { all: WAITING, slow: none_slow(WAITING), here: WAITING_AT_ONE_HOST, client })
}

/// Nobody is asked anything for these, and so nobody is slow.
fn none_slow(Share { most, strangers }: Share) -> Slow {
    Slow { known: most, strangers }
}
