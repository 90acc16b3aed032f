//! Whose turn it is to be asked: a few callbacks at once of each origin, so that one slow host holds up nobody else, and few for one
//! client (B-33).

use crate::places::{Bounds, Places, Share, Slow};

/// Verifications at once: over all origins, at slow ones, of one origin and for one client. So many tasks with their texts exist at
/// most, whatever waits.
const ALL: Share = Share { most: 1_024, strangers: 768 };
const SLOW: Slow = Slow { known: 128, strangers: 256 };
const OF_ONE_ORIGIN: Share = Share { most: 6, strangers: 4 };
pub(super) const OF_ONE_CLIENT: Share = Share { most: 24, strangers: 8 };

/// Places to ask callbacks. With `by_client` no client has more than its share.
pub(super) fn queues(by_client: bool) -> Places {
    let client = by_client.then_some(OF_ONE_CLIENT);
    Places::new(Bounds { all: ALL, slow: SLOW, here: OF_ONE_ORIGIN, client })
}
