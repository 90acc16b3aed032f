//! The only way out: every request that the hub makes for strangers goes through this client and its address guard.

mod client;
mod connector;
mod guard;

pub use client::{Answer, EgressClient, EgressError, ReadLimit, USER_AGENT, target};
pub use guard::{Forbidden, Guard, PublicAddress};
