//! The topics with what an operator asks about them first: which is the newest notification, and who gets it?

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use resync_common::locks::lock;
use resync_core::datetime::DateTime;
use resync_core::websub::TopicUrl;

use super::page_request::PageRequest;
use super::queries::parse_url;
use super::responses::Topic;
use super::{AdminService, Failed};
use crate::store::{self, Offset, TopicId};

/// Topics of a page.
const ROWS: usize = 50;
/// Topics that are looked at at once. In tests so few that a page is found in several steps.
const AT_ONCE: usize = if cfg!(test) { 7 } else { 1_000 };
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

/// Where a topic stands: its number, the greatest first, then its URL.
type Rank = (Reverse<u64>, TopicUrl);

/// The topics of a page, of all those that were looked at so far.
#[derive(Debug)]
struct Ranking {
    /// The last one of the page before.
    after: Option<Rank>,
    first: Vec<(Rank, store::Topic)>,
    /// How many stand after the page before.
    found: usize,
}

impl Ranking {
    fn add(&mut self, topics: impl Iterator<Item = (u64, store::Topic)>) {
        let ranked = topics.map(|(key, topic)| ((Reverse(key), topic.url.clone()), topic));
        let before = self.first.len();
        self.first.extend(ranked.filter(|(rank, _)| self.after.as_ref().is_none_or(|after| rank > after)));
        self.found += self.first.len() - before;
        if self.first.len() > ROWS {
            self.first.select_nth_unstable_by(ROWS - 1, |(one, _), (other, _)| one.cmp(other));
            self.first.truncate(ROWS);
        }
    }

    /// The topics in their order, and what the next page is asked for with.
    fn finish(mut self) -> (Vec<store::Topic>, Option<String>) {
        self.first.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let last = self.first.last().filter(|_| self.found > ROWS);
        let next = last.map(|((Reverse(key), url), _)| format!("{key}.{}", hex::encode(url.as_str())));
        (self.first.into_iter().map(|(_, topic)| topic).collect(), next)
    }
}

impl AdminService {
    /// Topics in an order for people. Walks over all topics, except where they are wanted in the order of the walk.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn topic_page(&self, request: &TopicsRequest) -> Result<TopicPage, Failed> {
        let after = request.after.as_deref().map(|after| parse(after).ok_or_else(PageRequest::no_place));
        let after = after.transpose()?;
        let text = request.q.as_deref().map(str::to_ascii_lowercase);
        let by_url = request.sort == TopicOrder::Url;
        let mut walked = after.as_ref().filter(|_| by_url).map(|(_, url)| url.clone());
        let mut ranking = Ranking { after, first: Vec::new(), found: 0 };
        let (mut to_read, mut unknown) = (READ, 0);
        while !(by_url && ranking.found > ROWS) {
            let mut topics = self.store.topics(walked.as_ref(), AT_ONCE).await?;
            let Some(last) = topics.last() else { break };
            walked = Some(last.url.clone());
            if let Some(text) = &text {
                topics.retain(|topic| topic.url.as_str().to_ascii_lowercase().contains(text));
            }
            let keys = match request.sort {
                TopicOrder::Url => vec![0; topics.len()],
                TopicOrder::Subscribers => self.subscribers(&topics).await?,
                TopicOrder::Newest => {
                    let times = self.last_received(&topics, &mut to_read).await?;
                    unknown += topics.iter().filter(|topic| !times.contains_key(&topic.id)).count();
                    topics.iter().map(|topic| millis(times.get(&topic.id).copied().flatten())).collect()
                }
            };
            ranking.add(keys.into_iter().zip(topics));
        }
        self.last_received.tidy(|| self.store.usage().topics);
        let (shown, next) = ranking.finish();
        Ok(TopicPage { rows: self.topic_rows(shown).await?, next, unknown })
    }

    async fn topic_rows(&self, topics: Vec<store::Topic>) -> Result<Vec<TopicRow>, Failed> {
        let paused: HashSet<_> = self.store.paused().await?.into_iter().collect();
        let times = self.last_received(&topics, &mut topics.len()).await?;
        let subscribers = self.subscribers(&topics).await?;
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

    async fn subscribers(&self, topics: &[store::Topic]) -> Result<Vec<u64>, Failed> {
        let ids: Vec<_> = topics.iter().map(|topic| topic.id).collect();
        Ok(self.store.subscribers(&ids).await?)
    }

    /// When the newest notification of each of these topics came in; topics that are not read yet are left out. At most `to_read` are
    /// read now, and these are subtracted from it.
    async fn last_received(
        &self,
        topics: &[store::Topic],
        to_read: &mut usize,
    ) -> Result<HashMap<TopicId, Option<DateTime>>, Failed> {
        let unread: Vec<_> = {
            let known = self.last_received.times();
            let newest = topics.iter().map(|topic| (topic.id, topic.newest()));
            newest
                .filter(|(id, newest)| known.get(id).is_none_or(|(of, _)| of != newest))
                .take(*to_read)
                .collect()
        };
        *to_read -= unread.len();
        let read =
            if unread.is_empty() { Vec::new() } else { self.store.received_at(unread.clone()).await? };
        let mut known = self.last_received.times();
        known.extend(unread.into_iter().zip(read).map(|((id, newest), at)| (id, (newest, at))));
        let current = |topic: &store::Topic| {
            let (of, at) = known.get(&topic.id)?;
            (*of == topic.newest()).then_some((topic.id, *at))
        };
        Ok(topics.iter().filter_map(current).collect())
    }
}

impl LastReceived {
    fn times(&self) -> std::sync::MutexGuard<'_, Times> {
        lock(&self.0)
    }

    /// Forgets what is known where much of it is of topics that are gone. To be called once for a page: `topics` counts those that there
    /// are, which takes time.
    fn tidy(&self, topics: impl FnOnce() -> usize) {
        let mut known = self.times();
        if known.len() > ROWS && known.len() > 2 * topics() + ROWS {
            known.clear();
        }
    }
}

fn millis(at: Option<DateTime>) -> u64 {
    at.and_then(|at| u64::try_from(at.unix_millis()).ok()).unwrap_or_default()
}

fn parse(after: &str) -> Option<Rank> {
    let (key, url) = after.split_once('.')?;
    Some((Reverse(key.parse().ok()?), parse_url(url)?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;
    use crate::store::{Engine, Keyring, NewNotification, Store};

    const TOPICS: usize = 120;

    fn url(number: usize) -> TopicUrl {
        // Every second one is written otherwise than it is compared.
        let origin = ["https://source.example", "HTTPS://SOURCE.example:443"][number % 2];
        format!("{origin}/{}/{number:03}", ["odd", "even"][number / 2 % 2]).parse().unwrap()
    }

    /// Of which those in the middle have the newest notifications, and each seventh has subscribers.
    async fn fill(store: &dyn Store) {
        let appends = (0..TOPICS).map(|number| {
            let second = i64::try_from(number * (TOPICS - number)).unwrap();
            let received_at = DateTime::from_unix_millis(1_700_000_000_000 + second * 1_000).unwrap();
            let new = NewNotification { received_at, ..store::posted(&url(number), "x") };
            store.append(new, Duration::ZERO)
        });
        assert!(join_all(appends).await.iter().all(Result::is_ok));
        for number in (0..TOPICS).step_by(7) {
            for callback in 0..=number % 3 {
                let callback = format!("https://destination.example/{callback}").parse().unwrap();
                store::subscribe(store, &url(number), &callback).await;
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_pages_of_each_order_have_every_topic_once_although_few_are_looked_at_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, folder.path(), Keyring::none(), 0).unwrap();
        fill(&*store).await;
        let service = AdminService::where_nothing_is_delivered(store, folder.path());
        let newest = |number: usize| number * (TOPICS - number);
        let subscribers = |number: usize| if number.is_multiple_of(7) { number % 3 + 1 } else { 0 };
        let orders: [(TopicOrder, &dyn Fn(usize) -> usize); 3] = [
            (TopicOrder::Newest, &newest),
            (TopicOrder::Subscribers, &subscribers),
            (TopicOrder::Url, &|_| 0),
        ];
        for ((sort, key), q) in orders.into_iter().flat_map(|order| [(order, None), (order, Some("/EVEN/"))])
        {
            let (mut shown, mut request) =
                (Vec::new(), TopicsRequest { after: None, q: q.map(str::to_owned), sort });
            loop {
                let TopicPage { rows, next, unknown } = service.topic_page(&request).await.unwrap();
                assert!(rows.len() <= ROWS && unknown == 0);
                shown.extend(rows.into_iter().map(|row| row.topic.url));
                request.after = next;
                if request.after.is_none() {
                    break;
                }
            }
            let mut wanted: Vec<_> =
                (0..TOPICS).filter(|number| q.is_none() || number / 2 % 2 == 1).collect();
            wanted.sort_by_key(|number| (Reverse(key(*number)), url(*number)));
            let wanted: Vec<_> = wanted.into_iter().map(|number| url(number).to_string()).collect();
            assert_eq!(shown, wanted, "{sort:?} {q:?}");
        }
    }
}
