//! Which topics may be subscribed to (W-001, W-095). It is asked after the 202, before the callback is.

use async_trait::async_trait;
use resync_core::websub::TopicUrl;

/// Decides about topics. It may take its time and ask others: nobody's answer waits for it (W-090).
#[async_trait]
pub trait TopicPolicy: std::fmt::Debug + Send + Sync + 'static {
    /// Why this topic may not be subscribed to, as the subscriber is told; `None` accepts it.
    async fn refusal(&self, topic: &TopicUrl) -> Option<String>;
}

/// The policy of an open hub.
#[derive(Clone, Copy, Debug)]
pub struct EveryTopic;

#[async_trait]
impl TopicPolicy for EveryTopic {
    async fn refusal(&self, _: &TopicUrl) -> Option<String> {
        None
    }
}
