//! Everything that is stored about one subscriber, for that subscriber. The secret is not among it: whether there is one is.

use std::collections::BTreeSet;

use resync_core::websub::{CallbackUrl, NotificationId, TopicUrl};
use serde::Serialize;
use utoipa::ToSchema;

use super::responses::{Lost, Skipped};
use super::{AdminService, By, Failed, text};
use crate::store::{self, Intent, Laggard, Offset, Shard, SubscriptionId, TopicId};

/// Records that are read at once.
const READ_AT_ONCE: usize = 1_000;

/// Everything that is stored about a subscription, or about a callback.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Export {
    /// When this was read.
    pub at: String,
    /// Subscriptions in force.
    pub subscriptions: Vec<ExportedSubscription>,
    /// Requests that wait for verification of intent.
    pub requests: Vec<ExportedRequest>,
    /// Denials of which the callback is not notified yet.
    pub denials: Vec<ExportedDenial>,
}

/// A subscription as it is stored.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ExportedSubscription {
    /// Its number.
    pub id: u64,
    /// The topic as the subscriber wrote it.
    pub topic: String,
    /// The callback as the subscriber wrote it.
    pub callback: String,
    /// There is a secret, which is not shown.
    pub has_secret: bool,
    /// How many seconds the lease is long.
    pub lease: u64,
    /// When it ends.
    pub lease_end: String,
    /// The address that confirmed last, if the callback has a name.
    pub address: Option<String>,
    /// The client, an address or for IPv6 a network, by whose bounds it is counted.
    pub client: Option<String>,
    /// Only notifications after this offset are owed.
    pub start: u64,
    /// When it was first confirmed.
    pub created_at: String,
    /// When it was last confirmed.
    pub verified_at: String,
    /// Whether the operator has given its status page another address.
    pub address_replaced: bool,
    /// Its record while it is a laggard; absent otherwise.
    pub laggard: Option<ExportedLaggard>,
    /// Notifications that were given up for it.
    pub given_up: Vec<Skipped>,
    /// Notifications that it has lost.
    pub lost: Vec<Lost>,
}

/// The record of a laggard.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ExportedLaggard {
    /// It has everything up to this notification.
    pub done_through: String,
    /// How many attempts have failed since something was delivered to it or given up.
    pub failed_attempts: u16,
    /// When the next attempt is.
    pub next_attempt: String,
    /// When the present row of failures began.
    pub failing_since: Option<String>,
    /// Why the last attempt failed.
    pub class: &'static str,
}

/// A request as it is stored.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ExportedRequest {
    /// The topic as it was written.
    pub topic: String,
    /// The callback as it was written.
    pub callback: String,
    /// `subscribe` or `unsubscribe`.
    pub mode: &'static str,
    /// The lease that was asked for, in seconds.
    pub lease: Option<u64>,
    /// There is a secret, which is not shown.
    pub has_secret: bool,
    /// There is a `hub.verify_token`, which is not shown either.
    pub has_verify_token: bool,
    /// When it came in.
    pub received_at: String,
    /// The client, an address or for IPv6 a network, by whose bounds it is counted.
    pub client: Option<String>,
}

/// A denial as it is stored.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ExportedDenial {
    /// The topic.
    pub topic: String,
    /// The callback.
    pub callback: String,
    /// Why.
    pub reason: String,
}

impl AdminService {
    /// Everything that is stored about one subscription.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn export(&self, by: By, id: u64) -> Result<Export, Failed> {
        let id = SubscriptionId(id);
        let (shard, found) = self.record(id).await?;
        let (topic_key, callback) = (found.topic_url.clone(), found.callback.clone());
        let exported = |service: Self| async move {
            let concerns = |topic: &TopicUrl, asked: &CallbackUrl| {
                asked.key() == callback.key() && topic.key() == topic_key.key()
            };
            service.exported(shard, vec![found], concerns).await
        };
        self.audited(by, "export", &format!("subscription {}", id.0), exported).await
    }

    /// Everything that is stored about one callback. It is found at its own origin only, and the audit log names no more of it.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn export_callback(&self, by: By, callback: &str) -> Result<Export, Failed> {
        let callback = CallbackUrl::parse(callback)
            .map_err(|error| Failed::asked(format_args!("the callback is not a callback URL: {error}")))?;
        let origin = callback.origin();
        let shard = Shard::of(&callback, self.store.shards());
        let exported = |service: Self| async move {
            let found = service.records_of(shard, &callback).await?;
            service.exported(shard, found, |_, asked| asked.key() == callback.key()).await
        };
        self.audited(by, "export", &format!("a callback of {origin}"), exported).await
    }

    /// The subscriptions of a callback, which is of this shard.
    async fn records_of(
        &self,
        shard: Shard,
        callback: &CallbackUrl,
    ) -> Result<Vec<store::Subscription>, Failed> {
        let (mut found, mut after, origin) = (Vec::new(), None, callback.origin());
        loop {
            let slots = self.store.slots_after(shard, None, after, READ_AT_ONCE).await?;
            let Some(last) = slots.last() else { return Ok(found) };
            after = Some((last.topic, last.id));
            for slot in slots.iter().filter(|slot| *slot.origin == *origin) {
                let record = self.store.subscription(shard, slot.topic, slot.id).await?;
                found.extend(record.filter(|record| record.callback.key() == callback.key()));
            }
        }
    }

    async fn exported(
        &self,
        shard: Shard,
        found: Vec<store::Subscription>,
        concerns: impl Fn(&TopicUrl, &CallbackUrl) -> bool,
    ) -> Result<Export, Failed> {
        let mut subscriptions = Vec::with_capacity(found.len());
        let gaps = self.gaps_of(&found).await?;
        for record in &found {
            subscriptions.push(self.exported_subscription(shard, record, &gaps).await?);
        }
        // Those of a callback are in its shard.
        let requests = self.store.requests(&[shard]).await?;
        let denials = self.store.denials(&[shard]).await?;
        Ok(Export {
            at: self.store.now().to_string(),
            subscriptions,
            requests: requests
                .into_iter()
                .filter(|request| concerns(&request.topic, &request.callback))
                .map(Into::into)
                .collect(),
            denials: denials
                .into_iter()
                .filter(|denial| concerns(&denial.topic, &denial.callback))
                .map(Into::into)
                .collect(),
        })
    }

    async fn exported_subscription(
        &self,
        shard: Shard,
        record: &store::Subscription,
        gaps: &[store::Gap],
    ) -> Result<ExportedSubscription, Failed> {
        let (topic, id) = (record.topic, record.id);
        let own = |gap: &&store::Gap| (gap.topic, gap.subscription) == (topic, id);
        Ok(ExportedSubscription {
            id: id.0,
            topic: record.topic_url.as_str().to_owned(),
            callback: record.callback.as_str().to_owned(),
            has_secret: record.secret.is_some(),
            lease: record.lease.as_secs(),
            lease_end: record.lease_end.to_string(),
            address: record.address.map(|address| address.to_string()),
            client: record.client.map(|client| client.to_string()),
            start: record.start.0,
            created_at: record.created_at.to_string(),
            verified_at: record.verified_at.to_string(),
            address_replaced: self.has_other_address(record),
            laggard: self.laggard(shard, topic, id).await?.map(Into::into),
            given_up: self.all_skips(shard, topic, id).await?,
            lost: gaps.iter().filter(own).copied().map(Lost::from).collect(),
        })
    }

    /// The record of this subscription while it is a laggard.
    async fn laggard(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<Option<Laggard>, Failed> {
        let before = id.0.checked_sub(1).map(|before| (topic, SubscriptionId(before)));
        let next = self.store.laggards_of(shard, Some(topic), before, 1).await?;
        Ok(next.into_iter().find(|late| late.subscription == id))
    }

    async fn all_skips(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<Vec<Skipped>, Failed> {
        let (mut all, mut after) = (Vec::new(), Some((topic, Offset(0), SubscriptionId(0))));
        loop {
            let skips = self.store.skips(shard, after, READ_AT_ONCE).await?;
            after = skips.last().map(|skip| (skip.topic, skip.offset, skip.subscription));
            let beyond = after.is_none_or(|(of, ..)| of != topic);
            all.extend(skips.into_iter().filter(|skip| (skip.topic, skip.subscription) == (topic, id)));
            if beyond {
                return Ok(all.into_iter().map(Skipped::from).collect());
            }
        }
    }

    /// What any of these has lost, in the order in which that is stored.
    async fn gaps_of(&self, records: &[store::Subscription]) -> Result<Vec<store::Gap>, Failed> {
        let concerned: BTreeSet<_> = records.iter().map(|record| (record.topic, record.id)).collect();
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let gaps = self.store.gaps(after, READ_AT_ONCE).await?;
            let Some(last) = gaps.last().copied() else { return Ok(all) };
            after = Some(last);
            all.extend(gaps.into_iter().filter(|gap| concerned.contains(&(gap.topic, gap.subscription))));
        }
    }
}

impl From<Laggard> for ExportedLaggard {
    fn from(late: Laggard) -> Self {
        Self {
            done_through: NotificationId { topic: late.topic.0, offset: late.cursor.0 }.to_string(),
            failed_attempts: late.streak_failures,
            next_attempt: late.next_attempt.to_string(),
            failing_since: late.failing.map(|failing| failing.since.to_string()),
            class: text::class(late.class),
        }
    }
}

impl From<store::PendingRequest> for ExportedRequest {
    fn from(request: store::PendingRequest) -> Self {
        let (mode, lease, has_secret) = match request.intent {
            Intent::Subscribe { lease, secret } => ("subscribe", lease, secret.is_some()),
            Intent::Unsubscribe => ("unsubscribe", None, false),
        };
        Self {
            topic: request.topic.as_str().to_owned(),
            callback: request.callback.as_str().to_owned(),
            mode,
            lease,
            has_secret,
            has_verify_token: request.verify_token.is_some(),
            received_at: request.received_at.to_string(),
            client: request.client.map(|client| client.to_string()),
        }
    }
}

impl From<store::Denial> for ExportedDenial {
    fn from(denial: store::Denial) -> Self {
        Self {
            topic: denial.topic.as_str().to_owned(),
            callback: denial.callback.as_str().to_owned(),
            reason: denial.reason,
        }
    }
}
