//! Which topics this hub serves: any, or only its own (D-13).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use resync_core::websub::TopicUrl;

use super::budget::BodyBudget;
use super::discover::discover;
use super::get::TopicClient;
use super::prefixes::Prefixes;
use crate::subscriptions::TopicPolicy;

/// How long a check waits for room in memory.
const ROOM_TIMEOUT: Duration = Duration::from_secs(60);

/// A hub for topics that name it, or that lie below allowed prefixes.
#[derive(Clone, Debug)]
pub struct ClosedHub {
    allowed: Prefixes,
    client: TopicClient,
    budget: BodyBudget,
    hub_url: Arc<str>,
}

impl ClosedHub {
    /// Topics below `allowed` are served unasked; others are asked whether they name `hub_url`.
    pub fn new(allowed: Prefixes, client: TopicClient, budget: BodyBudget, hub_url: Arc<str>) -> Self {
        Self { allowed, client, budget, hub_url }
    }
}

#[async_trait]
impl TopicPolicy for ClosedHub {
    async fn refusal(&self, topic: &TopicUrl) -> Option<String> {
        if self.allowed.cover(topic) {
            return None;
        }
        let mut room = self.budget.reserve();
        if let Err(error) = room.grow_to(self.client.largest(), ROOM_TIMEOUT).await {
            return Some(format!("{error}: try again later"));
        }
        let fetched = match self.client.get(topic.url(), None).await {
            Ok(Some(fetched)) => fetched,
            Ok(None) => return Some("the topic has no content".to_owned()),
            Err(error) => {
                return Some(format!(
                    "this hub serves topics that name it, and whether this one does cannot be seen: {error}"
                ));
            }
        };
        let found = discover(&fetched.url, &fetched.answer.headers, &fetched.answer.body);
        let same = |named: &String| named.trim_end_matches('/') == self.hub_url.trim_end_matches('/');
        if !found.hubs.iter().any(same) {
            return Some(format!(
                "the topic does not name this hub: it has no link with rel=\"hub\" to {}",
                self.hub_url
            ));
        }
        let canonical = found.canonical.and_then(|url| TopicUrl::parse(&url).ok());
        canonical.filter(|canonical| canonical != topic).map(|canonical| {
            format!(
                "the topic names another URL as its own (rel=\"self\"): subscribe to {}",
                canonical.as_str()
            )
        })
    }
}
