//! Which topics may be subscribed to (W-001, W-095). It is asked after the 202, before the callback is.

use async_trait::async_trait;
use resync_core::websub::TopicUrl;

use crate::places::Asker;

/// What a policy makes of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be subscribed to.
    Accepted,
    /// It may not. Strangers read why, so this says nothing about what the hub saw on the network.
    Refused(String),
    /// It cannot be told now, for a reason that may pass: nothing follows from it (W-062).
    Unknown,
}

/// Decides about topics. It may take its time and ask others: nobody's answer waits for it (W-090).
#[async_trait]
pub trait TopicPolicy: std::fmt::Debug + Send + Sync + 'static {
    /// Whether this topic may be subscribed to by this one.
    async fn judge(&self, topic: &TopicUrl, asker: Asker) -> Verdict;
}

/// The policy of an open hub.
#[derive(Clone, Copy, Debug)]
pub struct EveryTopic;

#[async_trait]
impl TopicPolicy for EveryTopic {
    async fn judge(&self, _: &TopicUrl, _: Asker) -> Verdict {
        Verdict::Accepted
    }
}
