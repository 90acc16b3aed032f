//! The only way out: every request that the hub makes for strangers goes through this client and its address guard.
//!
//! The hub resolves names itself, judges every address, and connects to exactly the address that it judged (D-20). Only the
//! topic fetch follows redirects, each as a request of its own. The environment's proxy settings are ignored: a proxy would
//! resolve the names again.

mod client;
mod coalesced;
mod connection;
mod connector;
mod driven;
mod guard;
mod network_limit;
mod pool;
mod rebinding;
mod resolver;
mod reverifier;
mod target;
mod tls_roots;
mod verification;

pub use client::{Answer, BodyMemory, EgressClient, EgressError, ReadLimit, USER_AGENT, Unlimited};
pub use connector::Route;
pub(crate) use guard::network;
pub use guard::{Forbidden, Guard, PublicAddress};
pub use network_limit::NetworkLimit;
pub use rebinding::{ConfirmedAddresses, Reverification, Withheld};
pub use resolver::{Resolver, Unresolved};
pub(crate) use reverifier::{Reverified, Reverifier};
pub use target::{RedirectError, Target, redirect, target};
pub use tls_roots::{TlsRoots, TlsRootsError};
pub(crate) use verification::{NotSent, REPLY_READ, Reply, verification, verification_reply};

#[cfg(test)]
mod scenarios;
