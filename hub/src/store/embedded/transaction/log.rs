//! Commands on the log: append, and the pings that lead to an append later.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use resync_core::websub::{NotificationId, TopicUrl};
use sha2::{Digest, Sha256};

use super::{Transaction, after};
use crate::store::embedded::engine::Space;
use crate::store::encoding::key;
use crate::store::encoding::layout::{Body, Expiry, IdempotencyRecord, LogRecord, Part, StoredValidators};
use crate::store::{
    Appended, Chain, ContentKind, NewNotification, Notification, Offset, Payer, Ping, PingClient, PingId,
    Result, StoreEvent, TopicId, Validators,
};
use crate::trace_context::TraceContext;

impl Transaction<'_> {
    pub(in super::super) fn append(&mut self, new: NewNotification, remember: Duration) -> Result<Appended> {
        if let (Some(name), Some(topic)) = (&new.idempotency_key, self.topic_id(&new.topic)) {
            let seen = self.get::<IdempotencyRecord>(&key::idempotency(topic, name))?;
            if let Some(seen) = seen.filter(|seen| after(seen.seen_at, remember) > new.received_at) {
                let id = NotificationId { topic: topic.0, offset: seen.offset.0 };
                let same = seen.body == digest(&new.body);
                return Ok(if same { Appended::Repeated(id) } else { Appended::KeyReused(id) });
            }
        }
        let chain = self.chain_with(&new)?;
        let (topic, offset) = self.advance_head(&new);
        if let Some(chain) = chain {
            self.put(key::topic(topic), &chain);
        }
        if let Some(name) = &new.idempotency_key {
            self.remember(topic, name, offset, &new, remember);
        }
        let body = self.put_body(topic, offset, &new);
        if let Some(validators) = new.validators {
            self.put_validators(topic, offset, validators);
        }
        let record = LogRecord {
            kind: new.kind,
            received_at: new.received_at,
            content_type: new.content_type,
            links: new.links,
            body,
            trace: new.trace,
        };
        self.put(key::log(topic, offset), &record);
        let notification = Notification {
            topic,
            offset,
            content_type: record.content_type,
            links: record.links,
            body: new.body,
            kind: record.kind,
            received_at: record.received_at,
            trace: record.trace,
        };
        let (kind, bytes) = (notification.kind, notification.weight());
        self.staged.events.push(StoreEvent::Appended { topic, offset, kind, bytes });
        let id = notification.id();
        self.staged.notifications.push(Arc::new(notification));
        Ok(Appended::New(id))
    }

    /// The topic's chain as this notification leaves it; `None` when it has no place in one.
    fn chain_with(&self, new: &NewNotification) -> Result<Option<Chain>> {
        let Some(interval) = new.interval else { return Ok(None) };
        let known = self.topic_id(&new.topic).and_then(|id| self.topic_state(id)).map(|state| &state.topic);
        let offset = known.map_or(self.floor().0, |topic| topic.head).next();
        let before = match known {
            Some(topic) => self.get::<Chain>(&key::topic(topic.id))?,
            None => None,
        };
        Ok(Some(match before {
            Some(chain) => chain.followed_by(offset, interval),
            None => Chain::beginning(offset, interval),
        }))
    }

    /// Of a topic that is forgotten meanwhile, or of whose log nothing is left, nothing is kept.
    pub(in super::super) fn put_validators(
        &mut self,
        topic: TopicId,
        version: Offset,
        validators: Validators,
    ) {
        if self.topic_state(topic).is_some_and(|state| state.topic.first <= state.topic.head) {
            self.put(key::topic(topic), &StoredValidators { version, validators });
        }
    }

    pub(in super::super) fn put_ping(
        &mut self,
        topic: TopicUrl,
        trace: Option<TraceContext>,
        client: PingClient,
    ) -> Ping {
        let counters = self.counters();
        counters.ping += 1;
        let ping = Ping { id: PingId(counters.ping), topic, trace, client };
        let (key, mut kept) = (key::ping(&ping.topic), ping.clone());
        // One that is damaged is replaced like any other.
        if let Ok(Some(waiting)) = self.get::<Ping>(&key) {
            kept.trace = trace.or(waiting.trace);
            if waiting.client.is_trusted && !client.is_trusted {
                kept.client = waiting.client;
            }
        }
        self.put(key, &kept);
        ping
    }

    pub(in super::super) fn remove_ping(&mut self, ping: &Ping) -> Result<()> {
        let key = key::ping(&ping.topic);
        if self.get::<Ping>(&key)?.is_some_and(|waiting| waiting.id == ping.id) {
            self.batch.remove(Space::Pings, key);
        }
        Ok(())
    }

    fn advance_head(&mut self, new: &NewNotification) -> (TopicId, Offset) {
        let state = self.topic_mut(&new.topic);
        let offset = state.topic.head.next();
        state.topic.head = offset;
        match new.kind {
            ContentKind::Fetched => state.topic.latest = offset,
            ContentKind::Posted => state.topic.posted = offset,
        }
        // A log that is the publishers' stays so: a stranger's ping must not move it.
        if state.topic.posted > Offset(0) {
            state.payer = Payer::Publishers;
        } else if state.payer != Payer::Publishers {
            state.payer = new.payer;
        }
        state.bytes = state.bytes.saturating_add(new.weight());
        state.oldest.get_or_insert(new.received_at);
        (state.topic.id, offset)
    }

    fn remember(
        &mut self,
        topic: TopicId,
        name: &str,
        offset: Offset,
        new: &NewNotification,
        remember: Duration,
    ) {
        let seen_at = new.received_at;
        let key = key::idempotency(topic, name);
        let expires = after(seen_at, remember);
        self.put(key::expiry(expires, &key), &Expiry);
        self.put(key, &IdempotencyRecord { offset, body: digest(&new.body), seen_at, expires });
    }

    fn put_body(&mut self, topic: TopicId, offset: Offset, new: &NewNotification) -> Body {
        if new.body.len() <= Body::PART {
            return Body::Here(new.body.clone());
        }
        for (number, start) in (0..).zip((0..new.body.len()).step_by(Body::PART)) {
            let end = new.body.len().min(start + Body::PART);
            self.put(key::body(topic, offset, number), &Part(new.body.slice(start..end)));
        }
        Body::Parts { bytes: new.body.len() as u64 }
    }
}

/// What tells the repetition of a post from another post under the same key.
fn digest(body: &Bytes) -> Bytes {
    Bytes::copy_from_slice(&Sha256::digest(body))
}
