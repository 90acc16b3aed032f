//! The hub's listeners: the public one with the hub endpoint, the operator's with health and the admin API.

mod admin;
mod body;
mod catch_up;
mod certificates;
mod client;
mod client_limit;
mod cookies;
mod endpoint;
mod layout;
mod limits;
mod meters;
mod notifications;
mod paced;
mod page_headers;
mod ping_limit;
mod publish;
mod reply;
mod same_site;
mod search_queue;
mod self_service;
mod server;
mod tls;

pub use admin::{AdminState, AdminToken, Authentication, Sessions, admin};
pub use body::{Bodies, Pace};
pub use catch_up::{CatchUpQuery, Readers};
pub use certificates::Certificates;
pub use client::TrustedProxies;
pub use endpoint::{EndpointState, public};
pub use limits::{Limits, TooMany};
pub use meters::PublishMeters;
pub use notifications::Statuses;
pub use ping_limit::PingLimit;
pub use publish::{PublishState, wants_representation};
pub use self_service::SelfService;
pub use server::{Ingress, listen, serve};
pub use tls::{Tls, TlsError, check as check_tls};
