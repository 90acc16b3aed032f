//! Subscriptions: from a request over verification of intent to a lease in force.

mod acquaintances;
mod bounds;
mod denial;
mod intent;
mod lease;
mod line;
mod meters;
mod queues;
mod requests;
mod resting;
mod verification;

pub use bounds::{Beyond, Bounds, Counted, Full};
pub use denial::{Denials, NewlyDenied, StopDeliveries, Telling, ToTell};
pub(crate) use intent::{ANSWER_READ, NotAsked, Reply, asking, reply};
pub use lease::LeasePolicy;
pub use meters::VerificationMeters;
pub use requests::{Acquaintance, NotAccepted, Requests, Waiting};
pub use resting::Resting;
pub use verification::{Verification, Ways};
