//! Which topics may be subscribed to (W-001, W-095). It is asked after the 202, before the callback is.

use async_trait::async_trait;
use resync_core::websub::TopicUrl;

use crate::places::{Asker, Place, Places};

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
    /// What can be said of this topic without asking anybody.
    fn at_once(&self, topic: &TopicUrl, asker: Asker) -> Option<Verdict>;

    /// Where places to look at topics are had; `None` where none are needed.
    fn places(&self) -> Option<&Places>;

    /// Where on the network a place is needed to look at this topic.
    async fn whereabouts(&self, topic: &TopicUrl) -> String;

    /// Looks at the topic, from a place there.
    async fn look(&self, topic: &TopicUrl, place: Option<&mut Place>) -> Verdict;

    /// Whether this topic may be subscribed to by this one: waits for a place if need be.
    async fn judge(&self, topic: &TopicUrl, asker: Asker) -> Verdict {
        if let Some(verdict) = self.at_once(topic, asker) {
            return verdict;
        }
        let Some(places) = self.places() else { return self.look(topic, None).await };
        let mut place = places.place(asker, &self.whereabouts(topic).await).await;
        // Somebody else may have looked meanwhile.
        match self.at_once(topic, asker) {
            Some(verdict) => verdict,
            None => self.look(topic, Some(&mut place)).await,
        }
    }
}

/// The policy of an open hub.
#[derive(Clone, Copy, Debug)]
pub struct EveryTopic;

#[async_trait]
impl TopicPolicy for EveryTopic {
    fn at_once(&self, _: &TopicUrl, _: Asker) -> Option<Verdict> {
        Some(Verdict::Accepted)
    }

    fn places(&self) -> Option<&Places> {
        None
    }

    async fn whereabouts(&self, topic: &TopicUrl) -> String {
        topic.url().host_str().unwrap_or_default().to_owned()
    }

    async fn look(&self, _: &TopicUrl, _: Option<&mut Place>) -> Verdict {
        Verdict::Accepted
    }
}
