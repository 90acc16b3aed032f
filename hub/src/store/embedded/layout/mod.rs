//! What is kept in each space: the fields of every record in their order.
//!
//! All of this is the data format: changing it means a new version.

mod encryption;
mod log;
mod subscriptions;

#[cfg(test)]
mod tests;

pub(super) use encryption::Encryption;
pub(super) use log::{
    Body, Counters, Empty, Expiry, Floor, Foundation, LogRecord, Part, PausedTopic, Remembered, Stated,
    TopicState, received_at_of,
};
pub(super) use subscriptions::{Address, TopicWatermark, account_of, recipient_of, slot_of};

type Decoded<T> = std::result::Result<T, super::codec::Fault>;
