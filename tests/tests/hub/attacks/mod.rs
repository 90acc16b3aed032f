//! Attacks of strangers on a hub with its release configuration: what each costs, and that nobody else pays for it.

mod bounds;
mod links;
mod retention;
mod shared_origin;
mod slow_hosts;
mod status_queries;
mod waiting_requests;
