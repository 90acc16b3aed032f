//! What the embedded store does for each part of the trait.

mod admin;
mod clock;
mod fetches;
mod log;
mod orders;
mod progress;
mod requests;
mod subscriptions;
