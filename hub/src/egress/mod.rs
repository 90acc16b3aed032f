//! The only way out: every request that the hub makes for strangers goes through this client and its address guard.
//!
//! A name is resolved by the hub itself, every answer is judged, and the connection is made to exactly what was judged
//! (D-20). Redirects are followed by nobody but the topic fetch, each hop as a request of its own. The environment's proxy
//! settings mean nothing here: a proxy would resolve the names again.

mod asked;
mod client;
mod confirmed;
mod connection;
mod connector;
mod crowds;
mod gathered;
mod guard;
mod pool;
mod resolver;
mod target;
mod trust;

pub(crate) use client::coding;
pub use client::{Answer, EgressClient, EgressError, ReadLimit, Room, USER_AGENT, Unmeasured};
pub use confirmed::{Confirmed, HeldBack, Question};
pub use connector::Way;
pub use crowds::Crowds;
pub(crate) use guard::network as network_of;
pub use guard::{Forbidden, Guard, PublicAddress};
pub use resolver::{Resolver, Unresolved};
pub use target::{RedirectError, Target, redirect, target};
pub use trust::{Trust, TrustError};

#[cfg(test)]
mod scenarios;
