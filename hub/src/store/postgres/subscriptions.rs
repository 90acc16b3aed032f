//! Subscriptions in force, in a database.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use resync_core::websub::{CallbackUrl, Secret, TopicUrl};

use super::PostgresStore;
use super::group::{Grouped, columns};
use super::rows::{Fields, Param, at_most, big, micros, params, shard_number, the_only, topic_key};
use super::secrets::Row as Secrets;
use crate::store::encoding::key::pair;
use crate::store::{
    Activation, Additions, CachePolicy, ClientUsage, Ended, Epoch, Intent, Keyring, Offset, PendingRequest,
    ReadAhead, Recipient, Result, Search, SearchResult, Shard, StoreError, Subscription, SubscriptionCounts,
    SubscriptionId, SubscriptionKey, SubscriptionSummary, Subscriptions, TopicId, VerifiedSubscription,
    VerifiedUnsubscription,
};

/// Recipients that are read at once: as many as a connection gives in about the time of a round trip.
const AHEAD: i64 = 512;

const DEACTIVATE: &str = "SELECT id FROM hub.deactivate_1($1, $2, $3, $4, $5, $6)";
const END: &str = "SELECT hub.end_1($1, $2, $3, $4, $5, $6, $7, $8) AS is_ended";
const END_UNREADABLE: &str = "SELECT hub.end_unreadable_1($1, $2, $3, $4, $5, $6) AS is_ended";

/// All that is known of subscriptions, in a query that reads from `hub.subscription s`.
macro_rules! subscriptions {
    ($rest:literal) => {
        concat!(
            "SELECT s.shard, s.topic, s.id, s.pair, s.callback, s.topic_url, s.secret, s.start, s.lease_us, s.lease_end, s.address, \
             s.client, s.created_at, s.verified_at FROM hub.subscription s ",
            $rest
        )
    };
}
pub(super) use subscriptions;
const SUBSCRIPTION: &str = subscriptions!("WHERE s.shard = $1 AND s.topic = $2 AND s.id = $3");
const PLACE_OF: &str = "SELECT p.shard, p.topic, p.id FROM hub.pair p WHERE p.pair = $1";

/// What delivery keeps of them.
macro_rules! summaries {
    ($rest:literal) => {
        concat!(
            "SELECT s.topic, s.id, s.origin, s.start, s.lease_end, s.address FROM hub.subscription s WHERE s.shard = $1 AND ",
            $rest
        )
    };
}
const SLOTS: &str = summaries!("(s.topic, s.id) > ($2, $3) ORDER BY s.topic, s.id LIMIT $4");
const SLOTS_OF_TOPIC: &str =
    summaries!("s.topic = $5 AND (s.topic, s.id) > ($2, $3) ORDER BY s.topic, s.id LIMIT $4");

const RECIPIENTS: &str = "SELECT s.topic, s.id, s.pair, s.callback, s.topic_url, s.secret FROM hub.subscription s \
    WHERE s.shard = $1 AND (s.topic, s.id) >= ($2, $3) ORDER BY s.topic, s.id LIMIT $4";
const RECIPIENTS_OF_TOPIC: &str = "SELECT s.topic, s.id, s.pair, s.callback, s.topic_url, s.secret FROM hub.subscription s \
    WHERE s.shard = $1 AND s.topic = $2 AND s.id >= $3 ORDER BY s.id LIMIT $4";

const IDS: &str = "SELECT s.topic, s.id FROM hub.subscription s WHERE s.shard = $1 ORDER BY s.topic, s.id";
const TOPIC_OF: &str = "SELECT s.topic FROM hub.subscription s WHERE s.shard = $1 AND s.id = $2";
const SUBSCRIBERS: &str = "SELECT coalesce(t.subscriptions, 0) AS subscriptions \
    FROM unnest($1::bigint[]) WITH ORDINALITY AS n (id, place) LEFT JOIN hub.topic t ON t.id = n.id ORDER BY n.place";

/// As in the embedded store, upper case is looked past in a topic's URL only where it is ASCII.
const SEARCH: &str = "SELECT l.topic, l.id, l.origin, l.start, l.lease_end, l.address, \
    coalesce(strpos(lower(t.url COLLATE \"C\"), $5) > 0, false) OR strpos(l.origin, $5) > 0 OR l.callback = $6 AS is_sought \
    FROM (SELECT s.topic, s.id, s.origin, s.start, s.lease_end, s.address, s.callback FROM hub.subscription s \
        WHERE s.shard = $1 AND (s.topic, s.id) > ($2, $3) ORDER BY s.topic, s.id LIMIT $4) l \
    LEFT JOIN hub.topic t ON t.id = l.topic ORDER BY l.topic, l.id";

const ACCOUNTED: &str = "SELECT \
    coalesce(c.subscriptions, 0) AS subscriptions, coalesce(c.topics, 0) AS topics, coalesce(c.hosts, 0) AS hosts, \
    a.subscriptions AS all_subscriptions, a.topics AS all_topics, a.hosts AS all_hosts, \
    (SELECT t.subscriptions FROM hub.topic t WHERE t.key = $2) AS of_topic, \
    EXISTS (SELECT FROM hub.host h WHERE h.origin = $3) AS is_host_known \
    FROM (SELECT sum(y.subscriptions)::bigint AS subscriptions, sum(y.topics)::bigint AS topics, sum(y.hosts)::bigint AS hosts \
        FROM hub.tally y) a \
    LEFT JOIN hub.client c ON c.client = $1";

/// A subscription that is to be put in force. The answer is its topic, unless it came too late.
pub(super) struct Activate {
    request: i64,
    pair: Vec<u8>,
    shard: i16,
    key: Vec<u8>,
    sort: String,
    new_topic: i64,
    topic: String,
    callback: String,
    origin: String,
    secret: Option<Vec<u8>>,
    lease: i64,
    lease_end: SystemTime,
    address: Option<IpAddr>,
    client: Option<IpAddr>,
    asked_at: SystemTime,
}

impl Grouped for Activate {
    const STATEMENT: &'static str = "SELECT hub.activate_2($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) AS answers";

    fn pair(&self) -> &[u8] {
        &self.pair
    }

    fn columns(commands: &[Self]) -> Vec<Param> {
        columns!(
            commands;
            request, pair, shard, key, sort, new_topic, topic, callback, origin, secret, lease, lease_end,
            address, client, asked_at,
        )
    }
}

#[async_trait]
impl Subscriptions for PostgresStore {
    async fn accounted(
        &self,
        client: Option<IpAddr>,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<ClientUsage> {
        let rows = self.read(ACCOUNTED, params![client, topic_key(topic), callback.origin()]).await?;
        let fields = Fields::of("tally", the_only(&rows)?);
        let subscribed = fields.maybe_number("of_topic")?;
        let is_new_host = !fields.flag("is_host_known")?;
        Ok(ClientUsage {
            of_client: SubscriptionCounts {
                subscriptions: fields.number("subscriptions")?,
                topics: fields.number("topics")?,
                hosts: fields.number("hosts")?,
            },
            in_all: SubscriptionCounts {
                subscriptions: fields.number("all_subscriptions")?,
                topics: fields.number("all_topics")?,
                hosts: fields.number("all_hosts")?,
            },
            new_to_client: Additions { topic: subscribed.unwrap_or_default() == 0, host: is_new_host },
            new_to_hub: Additions { topic: subscribed.is_none(), host: is_new_host },
        })
    }

    async fn activate(&self, verified: VerifiedSubscription) -> Result<Activation> {
        let request = verified.request();
        let pair = pair(&request.topic, &request.callback);
        let sealing = self.shared.keys.sealing().await;
        let secret = secret_of(request).map(|secret| Secrets::subscription(&pair).seal(&sealing, secret));
        let new_topic = big(TopicId::random().0);
        let command = Activate {
            request: big(request.id.0),
            pair: pair.to_vec(),
            shard: shard_number(Shard::of(&request.callback, self.shards)),
            key: topic_key(&request.topic),
            sort: request.topic.key().to_owned(),
            new_topic,
            topic: request.topic.as_str().to_owned(),
            callback: request.callback.as_str().to_owned(),
            origin: request.callback.origin(),
            secret,
            lease: micros(verified.lease()),
            lease_end: verified.lease_end().to_system_time(),
            address: verified.address(),
            client: request.client,
            asked_at: verified.asked_at().to_system_time(),
        };
        let shared = Arc::clone(&self.shared);
        self.see_through(async move {
            let topic = shared.grouped(&shared.activations, command).await;
            drop(sealing);
            let Some(topic) = topic? else { return Ok(Activation::Superseded) };
            if topic == new_topic {
                shared.change_usage(|usage| usage.topics += 1);
            }
            shared.tell().await;
            Ok(Activation::Done)
        })
        .await
    }

    async fn deactivate(&self, verified: VerifiedUnsubscription) -> Result<Activation> {
        let request = verified.request();
        let parameters = params![
            self.shared.node,
            big(request.id.0),
            pair(&request.topic, &request.callback).to_vec(),
            shard_number(Shard::of(&request.callback, self.shards)),
        ];
        self.told_command(DEACTIVATE, parameters, |rows| {
            Ok(if rows.is_empty() { Activation::Superseded } else { Activation::Done })
        })
        .await
    }

    async fn end(
        &self,
        shard: Shard,
        epoch: Epoch,
        topic: TopicId,
        id: SubscriptionId,
        why: Ended,
    ) -> Result<()> {
        let lease_end: Option<SystemTime> = match why {
            Ended::Expired => None,
            Ended::Gone { lease_end } => Some(lease_end.to_system_time()),
        };
        let parameters =
            params![self.shared.node, shard_number(shard), big(epoch.0), big(topic.0), big(id.0), lease_end];
        self.told_command(END, parameters, |_| Ok(())).await
    }

    async fn end_unreadable(&self, shard: Shard, topic: TopicId, id: SubscriptionId) -> Result<bool> {
        match self.subscription(shard, topic, id).await {
            Err(StoreError::Damaged { .. }) => {}
            readable => return readable.map(|_| false),
        }
        let parameters = params![self.shared.node, shard_number(shard), big(topic.0), big(id.0)];
        self.told_command(END_UNREADABLE, parameters, |rows| {
            Fields::of("subscriptions", the_only(rows)?).flag("is_ended")
        })
        .await
    }

    async fn subscription(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<Option<Subscription>> {
        let rows = self.read(SUBSCRIPTION, params![shard_number(shard), big(topic.0), big(id.0)]).await?;
        let keys = self.shared.keys.now();
        rows.first().map(|row| subscription(&keys, Fields::of("subscriptions", row))).transpose()
    }

    async fn recipient(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
        ahead: ReadAhead,
        keep: CachePolicy,
    ) -> Result<Option<Arc<Recipient>>> {
        let reading = match self.shared.recipients.get(shard, (topic, id), keep) {
            Ok(recipient) => return Ok(Some(recipient)),
            Err(reading) => reading,
        };
        let sql = match ahead {
            ReadAhead::Topic => RECIPIENTS_OF_TOPIC,
            ReadAhead::Shard => RECIPIENTS,
        };
        let rows = self.read(sql, params![shard_number(shard), big(topic.0), big(id.0), AHEAD]).await?;
        let (keys, mut last) = (self.shared.keys.now(), None);
        let mut recipients =
            rows.iter().map(|row| recipient(&keys, Fields::of("subscriptions", row), &mut last));
        let sought = recipients.next().transpose()?.filter(|found| (found.topic, found.id) == (topic, id));
        let Some(sought) = sought.map(Arc::new) else { return Ok(None) };
        // What is wrong with the next ones is told to those who ask for them.
        let next: Vec<_> = recipients.map_while(Result::ok).map(Arc::new).collect();
        self.shared.recipients.put(shard, &sought, next, keep, reading);
        Ok(Some(sought))
    }

    async fn subscription_of(&self, key: SubscriptionKey) -> Result<Option<Subscription>> {
        // By itself: a query of both tables would lock those of all shards.
        let rows = self.read(PLACE_OF, params![key.as_bytes().to_vec()]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let place = Fields::of("pairs", row);
        let (topic, id) = (TopicId(place.number("topic")?), SubscriptionId(place.number("id")?));
        self.subscription(Shard(place.small("shard")?), topic, id).await
    }

    async fn ids(&self, shard: Shard) -> Result<Vec<(TopicId, SubscriptionId)>> {
        let rows = self.read(IDS, params![shard_number(shard)]).await?;
        rows.iter()
            .map(|row| {
                let fields = Fields::of("subscriptions", row);
                Ok((TopicId(fields.number("topic")?), SubscriptionId(fields.number("id")?)))
            })
            .collect()
    }

    async fn topic_of(&self, shard: Shard, id: SubscriptionId) -> Result<Option<TopicId>> {
        let rows = self.read(TOPIC_OF, params![shard_number(shard), big(id.0)]).await?;
        rows.first().map(|row| Fields::of("subscriptions", row).number("topic").map(TopicId)).transpose()
    }

    async fn subscribers(&self, of: &[TopicId]) -> Result<Vec<u64>> {
        let ids: Vec<_> = of.iter().map(|topic| big(topic.0)).collect();
        let rows = self.read(SUBSCRIBERS, params![ids]).await?;
        rows.iter().map(|row| Fields::of("topics", row).number("subscriptions")).collect()
    }

    async fn search(
        &self,
        shard: Shard,
        after: Option<(TopicId, SubscriptionId)>,
        search: Search,
    ) -> Result<SearchResult> {
        let Search { part, callback, most, look_at } = search;
        let (topic, id) = place_after(after);
        let texts = (part.to_string(), callback.to_string());
        let rows = self
            .read(SEARCH, params![shard_number(shard), topic, id, at_most(look_at.max(1)), texts.0, texts.1])
            .await?;
        let mut result = SearchResult::default();
        for row in &rows {
            let fields = Fields::of("subscriptions", row);
            let summary = summary(fields)?;
            let place = (summary.topic, summary.id);
            result.looked_at += 1;
            if fields.flag("is_sought")? {
                result.found.push(summary);
            }
            if result.found.len() >= most || result.looked_at >= look_at {
                result.stopped_at = Some(place);
                break;
            }
        }
        Ok(result)
    }

    async fn slots_after(
        &self,
        shard: Shard,
        of: Option<TopicId>,
        after: Option<(TopicId, SubscriptionId)>,
        limit: usize,
    ) -> Result<Vec<SubscriptionSummary>> {
        let (topic, id) = place_after(after);
        let limit = at_most(limit);
        let rows = match of {
            None => self.read(SLOTS, params![shard_number(shard), topic, id, limit]).await?,
            Some(of) => {
                self.read(SLOTS_OF_TOPIC, params![shard_number(shard), topic, id, limit, big(of.0)]).await?
            }
        };
        rows.iter().map(|row| summary(Fields::of("subscriptions", row))).collect()
    }
}

/// Before the first place, where none is given: no identity is negative.
fn place_after(after: Option<(TopicId, SubscriptionId)>) -> (i64, i64) {
    after.map_or((-1, -1), |(topic, id)| (big(topic.0), big(id.0)))
}

fn secret_of(request: &PendingRequest) -> Option<&Secret> {
    match &request.intent {
        Intent::Subscribe { secret, .. } => secret.as_ref(),
        Intent::Unsubscribe => None,
    }
}

/// What a row of `subscriptions!` holds.
pub(super) fn subscription(keys: &Keyring, fields: Fields<'_>) -> Result<Subscription> {
    Ok(Subscription {
        id: SubscriptionId(fields.number("id")?),
        topic: TopicId(fields.number("topic")?),
        callback: fields.callback("callback")?,
        topic_url: fields.topic_url("topic_url")?,
        secret: secret(keys, fields)?,
        lease: fields.duration("lease_us")?,
        lease_end: fields.moment("lease_end")?,
        address: fields.address("address")?,
        client: fields.address("client")?,
        start: Offset(fields.number("start")?),
        created_at: fields.moment("created_at")?,
        verified_at: fields.moment("verified_at")?,
    })
}

fn secret(keys: &Keyring, fields: Fields<'_>) -> Result<Option<Secret>> {
    let Some(kept) = fields.get("secret")? else { return Ok(None) };
    Secrets::subscription(fields.get("pair")?).open(keys, kept).map(Some)
}

/// What a row of `summaries!` holds.
fn summary(fields: Fields<'_>) -> Result<SubscriptionSummary> {
    Ok(SubscriptionSummary {
        id: SubscriptionId(fields.number("id")?),
        topic: TopicId(fields.number("topic")?),
        origin: fields.text("origin")?.into(),
        start: Offset(fields.number("start")?),
        lease_end: fields.moment("lease_end")?,
        address: fields.address("address")?,
    })
}

/// They stand by topic, and most write its URL in the same way: that is parsed once, and shared.
fn recipient(keys: &Keyring, fields: Fields<'_>, last: &mut Option<TopicUrl>) -> Result<Recipient> {
    let written: &str = fields.get("topic_url")?;
    let topic_url = match last.take().filter(|last| last.as_str() == written) {
        Some(known) => known,
        None => fields.topic_url("topic_url")?,
    };
    *last = Some(topic_url.clone());
    Ok(Recipient {
        id: SubscriptionId(fields.number("id")?),
        topic: TopicId(fields.number("topic")?),
        callback: Bytes::from(fields.text("callback")?),
        topic_url,
        secret: secret(keys, fields)?,
    })
}
