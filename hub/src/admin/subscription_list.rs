//! The subscriptions with what an operator asks about them first: whether their deliveries arrive. A hub may have a million: lists and
//! searches look at a bounded number, and go on where they stopped.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use resync_core::datetime::DateTime;
use resync_core::websub::{NotificationId, TopicUrl};
use serde::Deserialize;

use super::page_request::PageRequest;
use super::queries::{parse_slot, parse_topic, place_of};
use super::responses::topic_id;
use super::{AdminService, Failed};
use crate::delivery::{LaggardProgress, Progress};
use crate::store::{Offset, Search, Shard, SubscriptionId, SubscriptionSummary, TopicId};

/// Subscriptions of a page.
const ROWS: usize = 50;
/// Subscriptions that a search looks at for one page.
const SEARCHED: usize = 20_000;

/// Which subscriptions are wanted.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SubscriptionsRequest {
    /// What the page before said in `next`.
    pub after: Option<String>,
    /// Part of the topic or of the callback's origin, or the whole callback.
    pub q: Option<String>,
    /// `late`: only those that are late or failing.
    pub only: Option<String>,
}

/// A page of subscriptions.
#[derive(Clone, Debug, Default)]
pub struct SubscriptionPage {
    /// The subscriptions.
    pub rows: Vec<SubscriptionRow>,
    /// What the next page is asked for with.
    pub next: Option<String>,
    /// The search stopped before the end after so many subscriptions.
    pub stopped_after: Option<usize>,
}

/// A subscription of the list.
#[derive(Clone, Debug)]
pub struct SubscriptionRow {
    /// Its number.
    pub id: u64,
    /// The identity of its topic.
    pub topic_id: String,
    /// The URL of its topic.
    pub topic: String,
    /// The origin of its callback.
    pub callback_origin: String,
    /// When its lease ends.
    pub lease_end: String,
    /// Whether its deliveries arrive.
    pub standing: Standing,
}

/// Whether deliveries arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Everything was delivered or given up.
    UpToDate,
    /// So many notifications wait.
    Behind(u64),
    /// So many wait until the topic is resumed.
    Paused(u64),
    /// Attempts have been failing since then.
    Failing(String),
    /// Its lease is over, or it has just ended.
    Over,
}

impl Standing {
    fn of(cursor: Offset, head: Offset, failing_since: Option<DateTime>, paused: bool) -> Self {
        match (failing_since, head.distance(cursor)) {
            (Some(since), _) => Self::Failing(since.to_string()),
            (None, 0) => Self::UpToDate,
            (None, behind) if paused => Self::Paused(behind),
            (None, behind) => Self::Behind(behind),
        }
    }

    /// In a few words.
    pub fn words(&self) -> String {
        match self {
            Self::UpToDate => "up to date".to_owned(),
            Self::Behind(behind) => format!("{behind} behind"),
            Self::Paused(behind) => format!("paused, {behind} behind"),
            Self::Failing(_) => "failing".to_owned(),
            Self::Over => "over".to_owned(),
        }
    }
}

/// What was found, and where it goes on.
type Found = (Vec<(Shard, SubscriptionSummary)>, Option<String>);

impl AdminService {
    /// Subscriptions of one topic, or of all.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn subscription_page(
        &self,
        of: Option<&str>,
        request: &SubscriptionsRequest,
    ) -> Result<SubscriptionPage, Failed> {
        match request.only.as_deref() {
            Some("late") => return self.late_page(request).await,
            Some(_) => return Err(Failed::asked("only is late, or absent")),
            None => {}
        }
        let page = PageRequest { after: request.after.clone(), limit: Some(ROWS) };
        let text = request.q.as_deref().filter(|text| !text.is_empty());
        let (found, next, stopped_after) = if let Some(text) = text {
            self.search(text, &page, SEARCHED).await?
        } else {
            let (found, next) = self.walk(of.map(parse_topic).transpose()?, &page).await?;
            (found.into_iter().map(|(_, summary)| summary).collect(), next, None)
        };
        Ok(SubscriptionPage { rows: self.rows(found).await?, next, stopped_after })
    }

    /// The subscriptions in force in the order of shards, topics and ids.
    pub(super) async fn walk(&self, of: Option<TopicId>, request: &PageRequest) -> Result<Found, Failed> {
        let (from, mut after) = match request.place(parse_slot)? {
            Some((_, place)) if of.is_some_and(|of| of != place.0) => return Err(PageRequest::no_place()),
            Some((shard, place)) => (shard.0, Some(place)),
            None => (0, None),
        };
        let (limit, now) = (request.limit(), self.store.now());
        let mut found = Vec::new();
        for shard in (from..self.store.shards()).map(Shard) {
            loop {
                // One more than wanted, to know whether there is another page.
                let room = limit + 1 - found.len();
                let read = self.store.slots_after(shard, of, after.take(), room).await?;
                let is_last = read.len() < room;
                after = read.last().filter(|_| !is_last).map(|last| (last.topic, last.id));
                // What is over stays in the store for up to half a minute.
                found.extend(read.into_iter().filter(|slot| slot.lease_end > now).map(|slot| (shard, slot)));
                if found.len() > limit {
                    found.truncate(limit);
                    let last = found.last().map(|(shard, slot)| place_of(*shard, slot));
                    return Ok((found, last));
                }
                if is_last {
                    break;
                }
            }
        }
        Ok((found, None))
    }

    /// Those whose topic or callback's origin contains this or whose callback is this, what the next page is asked for with, and after how many it stopped.
    async fn search(
        &self,
        text: &str,
        request: &PageRequest,
        look_at: usize,
    ) -> Result<(Vec<SubscriptionSummary>, Option<String>, Option<usize>), Failed> {
        let (callback, part) = (Arc::<str>::from(text), Arc::<str>::from(text.to_ascii_lowercase()));
        let (from, mut after) =
            request.place(parse_slot)?.map_or((0, None), |(shard, place)| (shard.0, Some(place)));
        let (mut found, mut looked_at) = (Vec::new(), 0);
        for shard in (from..self.store.shards()).map(Shard) {
            let search = Search {
                part: Arc::clone(&part),
                callback: Arc::clone(&callback),
                most: request.limit() - found.len(),
                look_at: look_at - looked_at,
            };
            let part = self.store.search(shard, after.take(), search).await?;
            found.extend(part.found);
            looked_at += part.looked_at;
            if let Some((topic, id)) = part.stopped_at {
                let next = format!("{}.{:016x}.{}", shard.0, topic.0, id.0);
                let early = (found.len() < request.limit()).then_some(looked_at);
                return Ok((found, Some(next), early));
            }
        }
        Ok((found, None, None))
    }

    async fn rows(&self, found: Vec<SubscriptionSummary>) -> Result<Vec<SubscriptionRow>, Failed> {
        let ids = found.iter().map(|one| (one.topic, one.id)).collect();
        let progress = self.operator.progress_of(ids).await?.of_all()?;
        let urls = self.topic_urls(found.iter().map(|one| one.topic).collect()).await?;
        let now = self.store.now();
        let standing = |one: &SubscriptionSummary| match progress.get(&one.id) {
            Some(Progress { cursor, head, failing_since, paused, .. }) if one.lease_end > now => {
                Standing::of(*cursor, *head, *failing_since, *paused)
            }
            _ => Standing::Over,
        };
        let row = |one: &SubscriptionSummary| SubscriptionRow {
            id: one.id.0,
            topic_id: topic_id(one.topic),
            topic: url(&urls, one.topic),
            callback_origin: one.origin.to_string(),
            lease_end: one.lease_end.to_string(),
            standing: standing(one),
        };
        Ok(found.iter().map(row).collect())
    }

    async fn late_page(&self, request: &SubscriptionsRequest) -> Result<SubscriptionPage, Failed> {
        let page = PageRequest { after: request.after.clone(), limit: Some(ROWS) };
        let after = page.place(|after| {
            let NotificationId { topic, offset } = after.parse().ok()?;
            Some((TopicId(topic), SubscriptionId(offset)))
        })?;
        let late = self.operator.laggards(after, ROWS).await?.of_all()?;
        let next = late.last().filter(|_| late.len() == ROWS);
        let next = next.map(|late| format!("{:016x}.{}", late.topic.0, late.subscription.0));
        let urls = self.topic_urls(late.iter().map(|one| one.topic).collect()).await?;
        let row = |one: LaggardProgress| SubscriptionRow {
            id: one.subscription.0,
            topic_id: topic_id(one.topic),
            topic: url(&urls, one.topic),
            standing: Standing::of(one.cursor, one.head, one.failing_since, one.paused),
            callback_origin: one.origin,
            lease_end: one.lease_end.to_string(),
        };
        Ok(SubscriptionPage { rows: late.into_iter().map(row).collect(), next, stopped_after: None })
    }

    /// The URLs of these topics.
    pub(super) async fn topic_urls(
        &self,
        of: BTreeSet<TopicId>,
    ) -> Result<HashMap<TopicId, TopicUrl>, Failed> {
        let topics = self.store.topics_of(&Vec::from_iter(of)).await?;
        Ok(topics.into_iter().map(|topic| (topic.id, topic.url)).collect())
    }
}

fn url(urls: &HashMap<TopicId, TopicUrl>, topic: TopicId) -> String {
    urls.get(&topic).map_or_else(String::new, |url| url.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::store::{self, Engine, Keyring};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_search_over_all_shards_says_where_it_stopped_and_finds_everything_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, folder.path(), Keyring::none(), 0).unwrap();
        for number in 0..40 {
            let callback =
                format!("https://{}{number}.example/Path", ["even", "odd"][number % 2]).parse().unwrap();
            store::subscribe(&*store, &"https://source.example/t".parse().unwrap(), &callback).await;
        }
        let service = AdminService::where_nothing_is_delivered(store, folder.path());
        for (text, count, rests) in [
            ("/EVEN", 20, true),
            ("source.example", 40, false),
            ("nowhere", 0, true),
            // Parts of a path would give it away letter by letter.
            ("/path", 0, true),
            ("https://odd7.example/Pat", 0, true),
            ("https://odd7.example/Path", 1, true),
        ] {
            let (mut found, mut after, mut stops) = (HashSet::new(), None, 0);
            loop {
                let page = PageRequest { after, limit: Some(5) };
                let (part, next, stopped_after) = service.search(text, &page, 7).await.unwrap();
                assert!(part.len() <= 5 && stopped_after.is_none_or(|looked_at| looked_at == 7));
                found.extend(part.into_iter().map(|one| one.id));
                stops += usize::from(stopped_after.is_some());
                after = next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!((found.len(), stops > 0), (count, rests), "{text}: {stops}");
        }
    }
}
