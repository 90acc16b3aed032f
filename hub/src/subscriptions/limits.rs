//! How many callbacks are asked at once, so that one slow host holds up nobody else (B-33), and how many requests may wait for that.

use crate::concurrency::{Client, ConcurrencyLimits, FEW, KEPT_ONE_IN, Limit, Limiter, SlowLimit};
use crate::rate_limiter::{CLIENTS_OF_ONE_SITE, site};
use crate::store::WaitingLimits;

/// Verifications at once: in all, at slow origins, at one origin and for one client. So many tasks with their texts exist at
/// most, whatever waits.
const TOTAL: Limit = Limit { total: 1_024, strangers: 768 };
const SLOW: SlowLimit = SlowLimit { trusted: 128, strangers: 256 };
const OF_ONE_ORIGIN: Limit = Limit { total: 6, strangers: 4 };
pub(super) const OF_ONE_CLIENT: Limit = Limit { total: 24, strangers: 8 };

/// Reads from the store at once. All go to one disk, so more would be no faster.
const READ: Limit = Limit { total: 32, strangers: 24 };

/// Requests that may wait for verification: in all, for callbacks on one host, and of one client. Each takes some 500 bytes in
/// records of fixed sizes (see `requests`, `verification`, `concurrency/queues` and the store's memory); its texts wait in the
/// store.
pub(super) const WAITING: Limit = Limit { total: 50_000, strangers: 40_000 };
pub(super) const WAITING_AT_ONE_HOST: Limit = Limit { total: 20_000, strangers: 5_000 };
const WAITING_OF_ONE_CLIENT: Limit = Limit { total: 10_000, strangers: 1_000 };

/// Limits requests to callbacks. With `by_client` each client has a limit of its own.
pub(super) fn callbacks(by_client: bool) -> Limiter {
    let client = by_client.then_some(OF_ONE_CLIENT);
    Limiter::new(ConcurrencyLimits { total: TOTAL, slow: SLOW, peer: OF_ONE_ORIGIN, client })
}

/// Limits reads from the store.
pub(super) fn reading() -> Limiter {
    Limiter::new(ConcurrencyLimits { total: READ, slow: none_slow(READ), peer: READ, client: None })
}

/// Limits what may wait. With `by_client` each client has a limit of its own.
pub(super) fn waiting(by_client: bool) -> Limiter {
    let client = by_client.then_some(WAITING_OF_ONE_CLIENT);
    Limiter::new(ConcurrencyLimits {
        total: WAITING,
        slow: none_slow(WAITING),
        peer: WAITING_AT_ONE_HOST,
        client,
    })
}

/// What may wait at all hubs together, before one more request of this client is refused. The store knows an IPv6 client by its site.
pub(super) fn waiting_in_store(waiting: &Limiter, client: Client) -> WaitingLimits {
    let ConcurrencyLimits { total, peer, client: of_one, .. } = waiting.limits();
    let is_trusted = client.is_trusted();
    let most = |limit: Limit| if is_trusted { limit.total } else { limit.strangers };
    let networks = if client.network.and_then(site).is_some() { CLIENTS_OF_ONE_SITE } else { 1 };
    WaitingLimits {
        is_trusted,
        total: most(total),
        kept: most(total) / KEPT_ONE_IN,
        few: FEW * networks,
        host: most(peer),
        client: of_one.map(|limit| most(limit) * networks),
    }
}

/// These permits are not for requests, so no peer is slow.
fn none_slow(Limit { total, strangers }: Limit) -> SlowLimit {
    SlowLimit { trusted: total, strangers }
}
