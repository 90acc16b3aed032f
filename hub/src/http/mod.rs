//! The hub's listeners: the public one with the hub endpoint, the operator's with health and the admin API.

mod admin;
mod endpoint;
mod limits;
mod reply;
mod server;

pub use admin::{AdminState, admin};
pub use endpoint::{EndpointState, public};
pub use limits::RateLimit;
pub use server::serve;
