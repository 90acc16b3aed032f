//! The topics with what an operator asks about them first: which is the newest notification, and who gets it?

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use resync_core::datetime::DateTime;

use super::queries::PageRequest;
use super::responses::Topic;
use super::{AdminService, Failed};
use crate::store::{self, Offset, TopicId};

/// Topics of a page.
const ROWS: usize = 50;
/// Times that are read from the logs for one page, each within some microseconds.
const READ: usize = 20_000;

/// Which topics are wanted.
#[derive(Clone, Debug, Default)]
pub struct TopicsRequest {
    /// What the page before said in `next`.
    pub after: Option<String>,
    /// Part of their URLs.
    pub q: Option<String>,
    /// Their order.
    pub sort: TopicOrder,
}

/// The order of topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopicOrder {
    /// Those with the newest notifications first.
    #[default]
    Newest,
    /// Those with the most subscriptions first.
    Subscribers,
    /// By their URLs.
    Url,
}

/// A page of topics.
#[derive(Clone, Debug)]
pub struct TopicPage {
    /// The topics.
    pub rows: Vec<TopicRow>,
    /// What the next page is asked for with.
    pub next: Option<String>,
    /// Topics that are not in their place yet, since their logs have not been read.
    pub unknown: usize,
}

/// A topic of the list.
#[derive(Clone, Debug)]
pub struct TopicRow {
    /// The topic.
    pub topic: Topic,
    /// Its subscriptions.
    pub subscriptions: u64,
    /// When its newest notification came in, if its log still has that.
    pub last_received_at: Option<String>,
}

/// When the topics' newest notifications came in: read from the logs once for each.
#[derive(Clone, Debug, Default)]
pub struct LastReceived(Arc<Mutex<Times>>);

/// By topics, each with the notification that it is of.
type Times = HashMap<TopicId, (Offset, Option<DateTime>)>;

/// The first topics are the greatest.
type Rank = (Reverse<u64>, String);

impl AdminService {
    /// Topics in an order for people.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn topic_page(&self, request: &TopicsRequest) -> Result<TopicPage, Failed> {
        let after = request.after.as_deref().map(|after| parse(after).ok_or_else(PageRequest::no_place));
        let after = after.transpose()?;
        let mut topics = self.store.topics().await?;
        if let Some(text) = request.q.as_deref().map(str::to_ascii_lowercase) {
            topics.retain(|topic| topic.url.as_str().to_ascii_lowercase().contains(&text));
        }
        let mut unknown = 0;
        let keys = match request.sort {
            TopicOrder::Url => vec![0; topics.len()],
            TopicOrder::Subscribers => self.subscribers(&topics),
            TopicOrder::Newest => {
                let times = self.last_received(&topics).await?;
                unknown = topics.iter().filter(|topic| !times.contains_key(&topic.id)).count();
                topics.iter().map(|topic| millis(times.get(&topic.id).copied().flatten())).collect()
            }
        };
        let ranks = keys.into_iter().zip(topics);
        let ranked = ranks.map(|(key, topic)| ((Reverse(key), topic.url.as_str().to_owned()), topic));
        let mut ranked: Vec<(Rank, store::Topic)> =
            ranked.filter(|(rank, _)| after.as_ref().is_none_or(|after| rank > after)).collect();
        let found = ranked.len();
        if found > ROWS {
            ranked.select_nth_unstable_by(ROWS - 1, |(one, _), (other, _)| one.cmp(other));
            ranked.truncate(ROWS);
        }
        ranked.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let last = ranked.last().filter(|_| found > ROWS);
        let next = last.map(|((Reverse(key), url), _)| format!("{key}.{}", hex::encode(url)));
        let shown = ranked.into_iter().map(|(_, topic)| topic).collect();
        Ok(TopicPage { rows: self.topic_rows(shown).await?, next, unknown })
    }

    async fn topic_rows(&self, topics: Vec<store::Topic>) -> Result<Vec<TopicRow>, Failed> {
        let paused: HashSet<_> = self.store.paused().await?.into_iter().collect();
        let times = self.last_received(&topics).await?;
        let subscribers = self.subscribers(&topics);
        let mut rows = Vec::with_capacity(topics.len());
        for (topic, subscriptions) in topics.into_iter().zip(subscribers) {
            let chain = self.store.chain(topic.id).await?;
            let last = times.get(&topic.id).copied().flatten();
            rows.push(TopicRow {
                subscriptions,
                last_received_at: last.map(|last| last.to_string()),
                topic: Topic::new(&topic, chain, paused.contains(&topic.id)),
            });
        }
        Ok(rows)
    }

    fn subscribers(&self, topics: &[store::Topic]) -> Vec<u64> {
        self.store.subscribers(&topics.iter().map(|topic| topic.id).collect::<Vec<_>>())
    }

    /// When the newest notification of each of these topics came in; topics that are not read yet are left out.
    async fn last_received(
        &self,
        topics: &[store::Topic],
    ) -> Result<HashMap<TopicId, Option<DateTime>>, Failed> {
        let unread: Vec<_> = {
            let known = self.last_received.times();
            let newest = topics.iter().map(|topic| (topic.id, topic.newest()));
            newest
                .filter(|(id, newest)| known.get(id).is_none_or(|(of, _)| of != newest))
                .take(READ)
                .collect()
        };
        let read = self.store.received_at(unread.clone()).await?;
        let mut known = self.last_received.times();
        known.extend(unread.into_iter().zip(read).map(|((id, newest), at)| (id, (newest, at))));
        let current = |topic: &store::Topic| {
            let (of, at) = known.get(&topic.id)?;
            (*of == topic.newest()).then_some((topic.id, *at))
        };
        let times = topics.iter().filter_map(current).collect();
        // Topics that are gone.
        if known.len() > 2 * self.store.usage().topics + ROWS {
            known.clear();
        }
        Ok(times)
    }
}

impl LastReceived {
    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(at: Option<DateTime>) -> u64 {
    at.and_then(|at| u64::try_from(at.unix_millis()).ok()).unwrap_or_default()
}

fn parse(after: &str) -> Option<Rank> {
    let (key, url) = after.split_once('.')?;
    Some((Reverse(key.parse().ok()?), String::from_utf8(hex::decode(url).ok()?).ok()?))
}
