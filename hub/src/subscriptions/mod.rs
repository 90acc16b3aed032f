//! Subscriptions: from a request over verification of intent to a lease in force.

mod bounds;
mod breaker;
mod callback_clients;
mod confirmed_hosts;
mod denial;
mod lease;
mod limits;
mod meters;
mod requests;
mod store_retry;
mod verification;
mod wait_queue;

pub use bounds::{Bounds, Counted, Exceeded, Full};
pub use breaker::VerificationBreaker;
pub use callback_clients::CallbackClients;
pub use denial::{DenialNotifier, Denials, NewlyDenied, NotOwned, PendingDenial, StopDeliveries};
pub use lease::LeasePolicy;
pub use meters::VerificationMeters;
pub use requests::{NotAccepted, Requester, Requests, ToVerify};
pub use verification::Verification;
