//! Subscriptions: from a request over verification of intent to a lease in force.

mod lease;
mod queues;
mod requests;
mod resting;
mod verification;
mod verified;

pub use lease::LeasePolicy;
pub use requests::{NotAccepted, Requests, Waiting};
pub use resting::Resting;
pub use verification::Verification;
pub use verified::{VerifiedSubscription, VerifiedUnsubscription};
