//! What is stored in each space: the fields of every record in their order.
//!
//! All of this is the data format: changing it means a new version.

mod log;
mod meta;
mod subscriptions;

#[cfg(test)]
mod tests;

pub(in crate::store) use log::{
    Body, Empty, Expiry, IdempotencyRecord, LogRecord, Part, StoredValidators, TopicState, received_at_of,
};
pub(in crate::store) use meta::{Counters, Encryption, Floor, Foundation, PausedTopic};
pub(in crate::store) use subscriptions::{Address, TopicWatermark, recipient_of, with_callback, with_client};
