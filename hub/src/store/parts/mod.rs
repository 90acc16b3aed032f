//! The parts of the store, one trait for each subject. A module asks for the part that it uses.

mod admin;
mod clock;
mod fetches;
mod log;
mod orders;
mod progress;
mod registry;
mod requests;
mod subscriptions;

pub use admin::Admin;
pub use clock::{Clock, WallClock};
pub use fetches::Fetches;
pub use log::Log;
pub use orders::Orders;
pub use progress::Progress;
pub use registry::{Change, Document, DocumentVersion, Registry};
pub use requests::Requests;
pub use subscriptions::Subscriptions;
