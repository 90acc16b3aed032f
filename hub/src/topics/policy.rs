//! Which topics may be subscribed to (W-001, W-095). This is judged after the 202, before the callback is asked.

use async_trait::async_trait;
use resync_core::websub::TopicUrl;

use crate::concurrency::{Client, Limiter, Permit};

/// What a policy says of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be subscribed to.
    Accepted,
    /// It may not. Strangers read why, so this says nothing about what the hub saw on the network.
    Refused(String),
    /// It cannot be judged now, for a reason that may pass: nothing follows from it (W-062).
    Unknown,
}

/// Judges topics. It may take its time and ask others: no HTTP answer waits for it (W-090).
#[async_trait]
pub trait TopicPolicy: std::fmt::Debug + Send + Sync + 'static {
    /// The verdict on this topic that needs no request.
    fn known_verdict(&self, topic: &TopicUrl, client: Client) -> Option<Verdict>;

    /// Limits the requests to topics; `None` if none are needed.
    fn limiter(&self) -> Option<&Limiter>;

    /// The peer for which a permit is needed to look at this topic.
    async fn peer(&self, topic: &TopicUrl) -> String;

    /// Looks at the topic for a client, with a permit for its peer.
    async fn look(&self, topic: &TopicUrl, client: Client, permit: Option<&mut Permit>) -> Verdict;

    /// Judges the topic for a client; waits for a permit if one is needed.
    async fn judge(&self, topic: &TopicUrl, client: Client) -> Verdict {
        if let Some(verdict) = self.known_verdict(topic, client) {
            return verdict;
        }
        let Some(limiter) = self.limiter() else { return self.look(topic, client, None).await };
        let mut permit = limiter.acquire(client, &self.peer(topic).await).await;
        // Another request may have looked meanwhile.
        match self.known_verdict(topic, client) {
            Some(verdict) => verdict,
            None => self.look(topic, client, Some(&mut permit)).await,
        }
    }
}

/// The policy of an open hub: any topic.
#[derive(Clone, Copy, Debug)]
pub struct EveryTopic;

#[async_trait]
impl TopicPolicy for EveryTopic {
    fn known_verdict(&self, _: &TopicUrl, _: Client) -> Option<Verdict> {
        Some(Verdict::Accepted)
    }

    fn limiter(&self) -> Option<&Limiter> {
        None
    }

    async fn peer(&self, topic: &TopicUrl) -> String {
        topic.url().host_str().unwrap_or_default().to_owned()
    }

    async fn look(&self, _: &TopicUrl, _: Client, _: Option<&mut Permit>) -> Verdict {
        Verdict::Accepted
    }
}
