//! DNS rebinding: nobody makes the hub deliver to a server that did not subscribe (B-33).
//!
//! Names cost nothing, and their owner can change their addresses at any time. An attacker could confirm a thousand subscriptions
//! under its own names and then point the names at a victim. So an address gets deliveries at full speed only if it confirmed a
//! subscription under this name itself. All unconfirmed addresses of one network share a rate limit. A subscriber that moved, or
//! whose name has many addresses, is not slowed down: each new address is asked once whether it wants the subscription, and a
//! confirmation lifts the limit.
//!
//! This is all that delivery needs:
//!
//! 1. It sends with [`Route::Reverify`](super::Route::Reverify). At an unconfirmed address that gives
//!    [`EgressError::ReverifyFirst`](super::EgressError::ReverifyFirst).
//! 2. It hands that [`Reverification`] to [`Reverifier::ask`](super::Reverifier::ask).
//! 3. If the address confirmed, it sends again with [`Route::Pinned`](super::Route::Pinned) to this address. Otherwise it sends as
//!    in 1, which now obeys the rate limit ([`Withheld`]).
//! 4. It reports the address of each verified subscription with [`ConfirmedAddresses::remember`].
//!
//! A re-verification is a verification of intent as for a renewal, with what is left of the lease, and one header that WebSub does
//! not know: `X-Hub-Query-Signature` ([`resync_core::websub::query_signature`]). It cannot be left out:
//!
//! * A subscriber may confirm only what it asked for (WebSub section 5.3), and it did not ask for this. Without further proof it has to
//!   refuse, since any hub that knows the callback could subscribe it to something in this way. Then a subscriber that moved would get
//!   only what the rate limit allows until its next renewal.
//! * The subscription's secret is the only proof that both sides have. `X-Hub-Signature` signs a body, and this request has none: the
//!   signature of an empty body is the same each time, so anybody who saw it once could repeat it.
//! * So the signature has to cover the query, which contains the challenge, and a receiver must not take it for that of a body. A
//!   subscriber that does not know the header ignores it and answers as it would without.

mod addresses;
mod recent;

pub(super) use addresses::{Blocked, CountedRequest, UnconfirmedAddress};
pub use addresses::{ConfirmedAddresses, Reverification, Withheld};
