//! Subscribing: requests to hubs, renewal of leases, and topics and channels that move.

mod channels;
mod subscriber;
mod topic;

pub(crate) use channels::{end_subscription, keep_channels};
pub(crate) use subscriber::{Lease, ROTATE_AFTER};
pub use subscriber::{SubscribeError, Subscriber, SubscriberOptions};
pub use topic::{TopicError, TopicEvent, keep_topic, keep_topic_at};
pub(crate) use topic::{TopicEvents, keep_topics};
