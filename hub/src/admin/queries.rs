//! What the operator may see.

use std::collections::{HashMap, HashSet};

use resync_common::space::Space;
use resync_core::datetime::DateTime;
use resync_core::websub::{NotificationId, TopicUrl};

use super::page_request::PageRequest;
use super::responses::{
    Host, Laggard, LogEntry, Lost, Outcome, Overview, Page, Paused, Publisher, Skipped, Status, Subscription,
    SubscriptionDetail, Topic, TopicDetail, topic_id,
};
use super::{AdminService, Failed, PageId, text};
use crate::store::{self, Missed, Offset, Shard, Skip, SubscriptionId, SubscriptionSummary, TopicId};
use crate::topics::Tokens;

/// The newest notifications of a log that are shown.
const LOG_SHOWN: u64 = 20;
/// How many of the newest skips, and of the newest gaps, are searched for one subscription: anybody can request a page, and each takes
/// some milliseconds.
const SEARCHED: usize = 10_000;
/// The newest ones that are shown of each.
const MISSED_SHOWN: usize = 20;
/// Hosts in trouble that are shown at a glance.
const HOSTS_SHOWN: usize = 10;

impl AdminService {
    /// The hub in a few numbers.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn status(&self) -> Result<Status, Failed> {
        Ok(Status {
            version: env!("CARGO_PKG_VERSION"),
            topics: self.store.usage().topics,
            subscriptions: self.operator.in_force().await?.of_this_hub(),
            deliveries: self.counters.totals(),
            cluster: self.cluster().await,
        })
    }

    /// The hub at a glance.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn overview(&self) -> Result<Overview, Failed> {
        let hosts = self.operator.open_hosts().await?.of_this_hub();
        let mut hosts: Vec<_> = hosts.into_iter().map(Host::from).collect();
        hosts.sort_unstable_by_key(|host| std::cmp::Reverse(host.subscriptions_waiting));
        hosts.truncate(HOSTS_SHOWN);
        let hour = self.trends.hour();
        let (now, before) = (self.trends.now(), hour.first().copied().unwrap_or_default());
        let names = self.trends.outcomes();
        let outcomes = names.into_iter().zip(now.outcomes).zip(before.outcomes);
        let disk = Space::of(&self.data_dir).ok();
        Ok(Overview {
            status: self.status().await?,
            running_for: self.trends.running_for().as_secs(),
            trouble: self.obstacle(),
            published: now.published,
            outcomes: outcomes
                .map(|((outcome, total), before)| Outcome { outcome, total, last_hour: total - before })
                .collect(),
            mean_lag_ms: now
                .mean_lag_since(&before)
                .map(|lag| u64::try_from(lag.as_millis()).unwrap_or(u64::MAX)),
            log_bytes: self.store.usage().log_bytes,
            disk_free: disk.map(|disk| disk.free),
            disk_size: disk.map(|disk| disk.size),
            hosts,
        })
    }

    /// Topics in the order of their URLs.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn topics(&self, request: &PageRequest) -> Result<Page<Topic>, Failed> {
        let (after, limit) = (request.place(parse_url)?, request.limit());
        // One more than wanted, to know whether there is another page.
        let mut topics = self.store.topics(after.as_ref(), limit + 1).await?;
        let found = topics.len();
        topics.truncate(limit);
        let next = topics.last().filter(|_| found > limit).map(|last| hex::encode(last.url.as_str()));
        let paused: HashSet<_> = self.store.paused().await?.into_iter().collect();
        let mut items = Vec::with_capacity(topics.len());
        for topic in topics {
            let chain = self.store.chain(topic.id).await?;
            items.push(Topic::new(&topic, chain, paused.contains(&topic.id)));
        }
        Ok(Page { items, next })
    }

    /// All about one topic.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn topic(&self, id: &str) -> Result<TopicDetail, Failed> {
        let topic = self.topic_by_id(parse_topic(id)?).await?;
        let standing = self.operator.topic(topic.id).await?.of_all()?;
        let chain = self.store.chain(topic.id).await?;
        let paused = self.store.paused().await?.contains(&topic.id);
        let tokens = Tokens::open(&*self.registry)?;
        let publishers = tokens.list().filter(|(_, info)| info.covers(&topic.url));
        Ok(TopicDetail {
            subscriptions: standing.subscriptions,
            laggards: standing.laggards,
            publishers: publishers.map(|(name, _)| name.to_owned()).collect(),
            open: self.open,
            log: self.log(&topic).await?,
            topic: Topic::new(&topic, chain, paused),
        })
    }

    async fn log(&self, topic: &store::Topic) -> Result<Vec<LogEntry>, Failed> {
        let mut log = Vec::new();
        let mut offset = Offset(topic.first.0.max((topic.head.0 + 1).saturating_sub(LOG_SHOWN)));
        while let Some(notification) = self.store.notification_from(topic.id, offset).await? {
            if notification.offset > topic.head {
                break;
            }
            log.push(LogEntry::new(&notification));
            offset = notification.offset.next();
        }
        log.reverse();
        Ok(log)
    }

    /// The subscriptions in force, of one topic or of all.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn subscriptions(
        &self,
        of: Option<&str>,
        request: &PageRequest,
    ) -> Result<Page<Subscription>, Failed> {
        let of = match of {
            Some(id) => Some(self.topic_by_id(parse_topic(id)?).await?),
            None => None,
        };
        let (slots, next) = self.walk(of.as_ref().map(|topic| topic.id), request).await?;
        let urls = match of {
            Some(topic) => HashMap::from([(topic.id, topic.url)]),
            None => self.topic_urls(slots.iter().map(|(_, slot)| slot.topic).collect()).await?,
        };
        let url = |slot: &SubscriptionSummary| urls.get(&slot.topic).map_or("", TopicUrl::as_str);
        Ok(Page { items: slots.iter().map(|(_, slot)| Subscription::new(slot, url(slot))).collect(), next })
    }

    /// All about one subscription.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn subscription(&self, id: u64) -> Result<SubscriptionDetail, Failed> {
        let id = SubscriptionId(id);
        let (shard, found) = self.record(id).await?;
        let topic = found.topic;
        let progress = self.operator.progress(shard, topic, id).await?;
        let progress = progress.ok_or(Failed::Unknown("subscription"))?;
        let done = self.store.notification_from(topic, progress.cursor).await?;
        let done = done.filter(|done| done.offset == progress.cursor && done.offset > found.start);
        let Missed { skips, gaps, all } = self.missed(shard, &found).await?;
        let slot = SubscriptionSummary {
            id,
            topic,
            origin: found.callback.origin().into(),
            start: found.start,
            lease_end: found.lease_end,
            address: found.address,
        };
        Ok(SubscriptionDetail {
            subscription: Subscription::new(&slot, found.topic_url.as_str()),
            topic_id: topic_id(topic),
            lease: found.lease.as_secs(),
            created_at: found.created_at.to_string(),
            verified_at: found.verified_at.to_string(),
            signed: found.secret.is_some(),
            done_through: progress.cursor.0,
            done_received_at: done.map(|done| done.received_at.to_string()),
            head: progress.head.0,
            behind: progress.head.distance(progress.cursor),
            failed_attempts: progress.streak_failures,
            failing_since: progress.failing_since.map(|since| since.to_string()),
            waits: text::waits(progress.waits, progress.breaker_open_for, progress.paused),
            paused: progress.paused,
            status_page: self.page_url(&self.hub_url, PageId::new(id, found.created_at)),
            recent_attempts: self.notes.of(id).into_iter().map(Into::into).collect(),
            skipped: skips.into_iter().take(MISSED_SHOWN).map(Skipped::from).collect(),
            lost: gaps.into_iter().take(MISSED_SHOWN).map(Lost::from).collect(),
            search_incomplete: !all,
        })
    }

    /// Subscriptions that are behind.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn laggards(&self, request: &PageRequest) -> Result<Page<Laggard>, Failed> {
        let after = request.place(|after| {
            let NotificationId { topic, offset } = after.parse().ok()?;
            Some((TopicId(topic), SubscriptionId(offset)))
        })?;
        let found = self.operator.laggards(after, request.limit()).await?.of_all()?;
        let next = found.last().filter(|_| found.len() == request.limit());
        let next = next.map(|late| format!("{:016x}.{}", late.topic.0, late.subscription.0));
        Ok(Page { items: found.into_iter().map(Laggard::from).collect(), next })
    }

    /// Notifications that were given up for a subscription.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn skips(&self, request: &PageRequest) -> Result<Page<Skipped>, Failed> {
        let limit = request.limit();
        let (from, mut after) =
            request.place(parse_skip)?.map_or((0, None), |(shard, after)| (shard.0, Some(after)));
        let (mut items, mut next) = (Vec::new(), None);
        for shard in (from..self.store.shards()).map(Shard) {
            for skip in self.store.skips(shard, after.take(), limit - items.len()).await? {
                let Skip { topic, offset, subscription, .. } = skip;
                next = Some(format!("{}.{:016x}.{}.{}", shard.0, topic.0, offset.0, subscription.0));
                items.push(Skipped::from(skip));
            }
            if items.len() == limit {
                break;
            }
        }
        let next = next.filter(|_| items.len() == limit);
        Ok(Page { items, next })
    }

    /// Notifications that were gone before a subscription got them.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn lost(&self, request: &PageRequest) -> Result<Page<Lost>, Failed> {
        let found = self.store.gaps(request.place(parse_gap)?, request.limit()).await?;
        let next = found.last().filter(|_| found.len() == request.limit()).map(|gap| {
            let store::Gap { topic, subscription, from, at, .. } = gap;
            format!("{}.{:016x}.{}.{}", at.unix_millis(), topic.0, from.0, subscription.0)
        });
        Ok(Page { items: found.into_iter().map(Lost::from).collect(), next })
    }

    /// Hosts with an open circuit breaker.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn hosts(&self) -> Result<Vec<Host>, Failed> {
        let found = self.operator.open_hosts().await?.of_all()?;
        Ok(found.into_iter().map(Host::from).collect())
    }

    /// Topics of which nothing is delivered for now.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn paused(&self) -> Result<Vec<Paused>, Failed> {
        let topics = self.store.topics_of(&self.store.paused().await?).await?;
        Ok(topics.iter().map(|topic| Paused(topic.url.as_str().to_owned())).collect())
    }

    /// The publishers' tokens.
    ///
    /// # Errors
    /// [`Failed`]
    pub fn publishers(&self) -> Result<Vec<Publisher>, Failed> {
        let tokens = Tokens::open(&*self.registry)?;
        let mut used = tokens.last_used(&*self.registry);
        let view = |(name, info): (&str, &crate::topics::TokenInfo)| Publisher {
            name: name.to_owned(),
            topic_prefixes: info.topic_prefixes.clone(),
            created_at: info.created_at.clone(),
            last_used: used.remove(name),
        };
        Ok(tokens.list().map(view).collect())
    }

    pub(super) async fn topic_by_url(&self, url: &str) -> Result<store::Topic, Failed> {
        let url = TopicUrl::parse(url).map_err(|_| Failed::asked("the topic is not an http(s) URL"))?;
        self.store.topic(&url).await?.ok_or(Failed::Unknown("topic"))
    }

    pub(super) async fn topic_by_id(&self, id: TopicId) -> Result<store::Topic, Failed> {
        self.store.topics_of(&[id]).await?.pop().ok_or(Failed::Unknown("topic"))
    }

    async fn missed(&self, shard: Shard, of: &store::Subscription) -> Result<Missed, Failed> {
        Ok(self.store.missed(shard, of, SEARCHED).await?)
    }
}

pub(super) fn parse_topic(id: &str) -> Result<TopicId, Failed> {
    let digits = (id.len() == 16).then(|| u64::from_str_radix(id, 16).ok()).flatten();
    digits.map(TopicId).ok_or(Failed::Unknown("topic"))
}

/// A URL in the `next` of a page.
pub(super) fn parse_url(hex: &str) -> Option<TopicUrl> {
    TopicUrl::parse(&String::from_utf8(hex::decode(hex).ok()?).ok()?).ok()
}

pub(super) fn place_of(shard: Shard, slot: &SubscriptionSummary) -> String {
    format!("{}.{:016x}.{}", shard.0, slot.topic.0, slot.id.0)
}

pub(super) fn parse_slot(after: &str) -> Option<(Shard, (TopicId, SubscriptionId))> {
    let (shard, rest) = after.split_once('.')?;
    let NotificationId { topic, offset } = rest.parse().ok()?;
    Some((Shard(shard.parse().ok()?), (TopicId(topic), SubscriptionId(offset))))
}

fn parse_gap(after: &str) -> Option<store::Gap> {
    let (at, rest) = after.split_once('.')?;
    let (first, subscription) = rest.rsplit_once('.')?;
    let NotificationId { topic, offset } = first.parse().ok()?;
    let at = DateTime::from_unix_millis(at.parse().ok()?).ok()?;
    let (subscription, from) = (SubscriptionId(subscription.parse().ok()?), Offset(offset));
    Some(store::Gap { topic: TopicId(topic), subscription, from, to: from, at })
}

fn parse_skip(after: &str) -> Option<(Shard, (TopicId, Offset, SubscriptionId))> {
    let (shard, rest) = after.split_once('.')?;
    let (notification, subscription) = rest.rsplit_once('.')?;
    let NotificationId { topic, offset } = notification.parse().ok()?;
    let subscription = SubscriptionId(subscription.parse().ok()?);
    Some((Shard(shard.parse().ok()?), (TopicId(topic), Offset(offset), subscription)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Checkpoint, Engine, FailureClass, Keyring};

    /// Anybody can subscribe to what very many do not get, and open the page of that again and again.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_page_looks_at_the_newest_ten_thousand_notes_of_what_was_given_up_and_says_that_there_are_more()
    {
        let folder = tempfile::tempdir().unwrap();
        let store = store::open(Engine::Fjall, folder.path(), Keyring::none(), 0).unwrap();
        let topic = "https://source.example/t".parse().unwrap();
        let callback = "https://destination.example/".parse().unwrap();
        let (_, own) = store::subscribe(&*store, &topic, &callback).await;

        let skip = |offset, id| Skip {
            topic: own.topic,
            subscription: SubscriptionId(id),
            offset: Offset(offset),
            at: DateTime::now(),
            class: FailureClass::Trouble,
            status: None,
        };
        let others = (0..10_000).map(|number| skip(2, own.id.0 + 1 + number));
        let skips = others.chain([skip(1, own.id.0), skip(3, own.id.0)]).collect();
        let shard = Shard::of(&callback, store.shards());
        let epoch = store.claim(shard).await.unwrap();
        let checkpoint = Checkpoint { skips, ..Checkpoint::default() };
        store.checkpoint(shard, epoch, checkpoint).await.unwrap();

        let service = AdminService::where_nothing_is_delivered(store, folder.path());
        let Missed { skips, all, .. } = service.missed(shard, &own).await.unwrap();
        assert_eq!(skips.iter().map(|skip| skip.offset).collect::<Vec<_>>(), [Offset(3)]);
        assert!(!all);
    }
}
