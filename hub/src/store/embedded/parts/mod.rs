//! What the embedded store does for each part of the trait.

mod admin;
mod fetches;
mod log;
mod progress;
mod requests;
mod subscriptions;
