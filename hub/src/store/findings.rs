//! What a look at every record of a store has found.

use super::{Offset, SubscriptionId};

/// The result of [`check`](super::check).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// How many records there are.
    pub records: u64,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

/// Something in a store that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A record is damaged.
    #[error("a record of {space} cannot be read: {reason}")]
    Unreadable {
        /// Which kind of record.
        space: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The record that everything depends on.
    #[error("what was decided when the store was made is missing")]
    NoFoundation,
    /// Nothing leads to this record.
    #[error("a record of {space} belongs to nothing: key {key}")]
    Stray {
        /// Which kind of record.
        space: &'static str,
        /// Its key, in hexadecimal digits.
        key: String,
    },
    /// A log lacks a notification or a part of one: whoever has to get it next gets nothing any more.
    #[error(
        "notification {offset} of topic {topic} is missing; mended, its log begins behind that, and subscribers are told of a gap"
    )]
    Hole {
        /// The topic's URL.
        topic: String,
        /// The newest that is missing.
        offset: Offset,
    },
    /// A topic does not know what is in its log.
    #[error("the bounds that topic {topic} notes of its log are not those of its log")]
    Summary {
        /// The topic's URL.
        topic: String,
    },
    /// A watermark or a laggard is beyond the end of the log: what comes next would be passed by.
    #[error("delivery of topic {topic} is noted to be further than its log")]
    Ahead {
        /// The topic's URL.
        topic: String,
    },
    /// The topic's record is gone.
    #[error("subscription {} is of a topic that is missing", subscription.0)]
    NoTopic {
        /// Which subscription.
        subscription: SubscriptionId,
    },
    /// A renewal would not find the subscription.
    #[error("subscription {} cannot be found by its topic and callback", subscription.0)]
    Unindexed {
        /// Which subscription.
        subscription: SubscriptionId,
    },
    /// The next subscriptions, requests or pings would have numbers that are in use.
    #[error("numbers that are in use would be given out once more")]
    Numbers,
}

/// What came of mending a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What was done.
    pub mended: Vec<Mended>,
    /// What the store is like now.
    pub left: Findings,
}

/// Something in a store that was mended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mended {
    /// It could not be saved.
    #[error("lost: {0}")]
    Lost(String),
    /// It was made anew from what is there.
    #[error("made anew: {0}")]
    Rebuilt(String),
}
