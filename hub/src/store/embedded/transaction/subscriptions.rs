//! Commands on requests and subscriptions: who is subscribed, since when, and whose word counts.

use std::collections::BTreeMap;
use std::net::IpAddr;

use resync_core::datetime::DateTime;
use resync_core::websub::Secret;

use super::{Pending, Transaction};
use crate::store::embedded::accounts::{Counted, SubscriptionChange};
use crate::store::embedded::engine::Space;
use crate::store::encoding::codec;
use crate::store::encoding::key::{self, Pair, pair};
use crate::store::encoding::layout::Address;
use crate::store::{
    Activation, Denial, DenialId, DenialScope, Ended, Epoch, Intent, NewDenial, NewRequest, PendingRequest,
    RequestId, Result, Shard, StoreError, StoreEvent, Subscription, SubscriptionId, SubscriptionSummary,
    TopicId,
};
use crate::store::{VerifiedSubscription, VerifiedUnsubscription};

impl Transaction<'_> {
    pub(in super::super) fn put_request(&mut self, new: NewRequest) -> PendingRequest {
        let counters = self.counters();
        counters.request += 1;
        let id = RequestId(counters.request);
        let NewRequest { topic, callback, intent, verify_token, received_at, client } = new;
        let pair = pair(&topic, &callback);
        let older = self.pending(pair).into_iter().filter(|(_, of)| *of == client);
        older.for_each(|(older, _)| self.forget_pending(pair, older));
        let request = PendingRequest { id, topic, callback, intent, verify_token, received_at, client };
        self.put(key::request(id), &request);
        self.staged.pending.insert((pair, id), Pending::Of(client));
        request
    }

    pub(in super::super) fn remove_request(&mut self, request: &PendingRequest) {
        let pair = pair(&request.topic, &request.callback);
        if self.is_pending(pair, request.id) {
            self.forget_pending(pair, request.id);
        }
    }

    pub(in super::super) fn activate(&mut self, verified: &VerifiedSubscription) -> Result<Activation> {
        let request = verified.request();
        let pair = pair(&request.topic, &request.callback);
        if !self.is_pending(pair, request.id) {
            return Ok(Activation::Superseded);
        }
        let known = self.addressed(pair)?;
        self.forget_pending(pair, request.id);
        let (shard, subscription) = match known {
            Some((address, known)) => (address.shard, renewed(&known, verified)),
            None => self.begun(pair, verified),
        };
        let place = (shard, subscription.topic, subscription.id);
        self.put(key::subscription(place.0, place.1, place.2), &subscription);
        self.staged.changed_subscriptions.push(place);
        self.announce(shard, &subscription);
        Ok(Activation::Done)
    }

    pub(in super::super) fn deactivate(&mut self, verified: &VerifiedUnsubscription) -> Result<Activation> {
        let request = verified.request();
        let pair = pair(&request.topic, &request.callback);
        if !self.is_pending(pair, request.id) {
            return Ok(Activation::Superseded);
        }
        let address = self.get::<Address>(&pair)?;
        self.forget_pending(pair, request.id);
        if let Some(address) = address {
            let key = key::subscription(address.shard, address.topic, address.id);
            // Of one that cannot be read nobody knows for whom it was counted.
            let known = self.get(&key).ok().flatten();
            self.remove_subscription(Some(pair), address, known.as_ref());
        }
        Ok(Activation::Done)
    }

    pub(in super::super) fn end(
        &mut self,
        shard: Shard,
        epoch: Epoch,
        topic: TopicId,
        id: SubscriptionId,
        why: Ended,
        now: DateTime,
    ) -> Result<()> {
        self.check_owner(shard, epoch)?;
        let Some(subscription) = self.get::<Subscription>(&key::subscription(shard, topic, id))? else {
            return Ok(());
        };
        // It may have been renewed after the caller had seen its end.
        let is_renewed = match why {
            Ended::Expired => subscription.lease_end > now,
            Ended::Gone { lease_end } => subscription.lease_end != lease_end,
        };
        if is_renewed {
            return Ok(());
        }
        let pair = pair(&subscription.topic_url, &subscription.callback);
        self.remove_subscription(Some(pair), Address { shard, topic, id }, Some(&subscription));
        Ok(())
    }

    /// `pair` is where the index was seen to name it.
    pub(in super::super) fn end_unreadable(&mut self, address: Address, pair: Option<Pair>) -> Result<bool> {
        let Address { shard, topic, id } = address;
        match self.get::<Subscription>(&key::subscription(shard, topic, id)) {
            Err(StoreError::Damaged { .. }) => {}
            readable => return readable.map(|_| false),
        }
        let mut entry = None;
        if let Some(pair) = pair
            && self.get::<Address>(&pair)? == Some(address)
        {
            entry = Some(pair);
            self.forget_all_pending(pair);
        }
        self.remove_subscription(entry, address, None);
        Ok(true)
    }

    pub(in super::super) fn deny(&mut self, new: NewDenial) -> Result<Option<Denial>> {
        let NewDenial { topic, callback, reason, scope } = new;
        let pair = pair(&topic, &callback);
        let waiting = match scope {
            DenialScope::Everything => !self.pending(pair).is_empty(),
            DenialScope::Request(id) | DenialScope::Confirmed(id) if self.is_pending(pair, id) => true,
            DenialScope::Request(_) | DenialScope::Confirmed(_) => return Ok(None),
        };
        let known = self.addressed(pair)?;
        if !waiting && known.is_none() {
            return Ok(None);
        }
        match scope {
            DenialScope::Everything => self.forget_all_pending(pair),
            DenialScope::Request(id) | DenialScope::Confirmed(id) => self.forget_pending(pair, id),
        }
        // Anybody can send a request in a subscriber's name, so a refused one must not end what that subscriber has confirmed.
        if matches!(scope, DenialScope::Request(_)) && known.is_some() {
            return Ok(None);
        }
        let counters = self.counters();
        counters.request += 1;
        let id = DenialId(counters.request);
        let denial = match known {
            None => Denial { id, topic, callback, reason, ended: None },
            Some((address, known)) => {
                self.remove_subscription(Some(pair), address, Some(&known));
                let ended = Some((address.shard, address.topic, address.id));
                Denial { id, topic: known.topic_url, callback: known.callback, reason, ended }
            }
        };
        self.put(pair.to_vec(), &denial);
        Ok(Some(denial))
    }

    pub(in super::super) fn remove_denial(&mut self, denial: &Denial) -> Result<()> {
        let pair = pair(&denial.topic, &denial.callback);
        if self.get::<Denial>(&pair)?.is_some_and(|newest| newest.id == denial.id) {
            self.batch.remove(Space::Denials, pair.to_vec());
        }
        Ok(())
    }

    /// The waiting requests of the pair, with the clients that sent them.
    fn pending(&self, pair: Pair) -> BTreeMap<RequestId, Option<IpAddr>> {
        let of_pair = (pair, RequestId(0))..=(pair, RequestId(u64::MAX));
        let kept = self.ledger.pending.range(of_pair.clone()).map(|((_, id), client)| (*id, *client));
        let mut pending: BTreeMap<_, _> = kept.collect();
        for ((_, id), staged) in self.staged.pending.range(of_pair) {
            match staged {
                Pending::Of(client) => pending.insert(*id, *client),
                Pending::No => pending.remove(id),
            };
        }
        pending
    }

    fn is_pending(&self, pair: Pair, id: RequestId) -> bool {
        match self.staged.pending.get(&(pair, id)) {
            Some(staged) => matches!(staged, Pending::Of(_)),
            None => self.ledger.pending.contains_key(&(pair, id)),
        }
    }

    fn forget_pending(&mut self, pair: Pair, id: RequestId) {
        self.batch.remove(Space::Requests, key::request(id));
        self.staged.pending.insert((pair, id), Pending::No);
    }

    fn forget_all_pending(&mut self, pair: Pair) {
        self.pending(pair).into_keys().for_each(|id| self.forget_pending(pair, id));
    }

    fn addressed(&self, pair: Pair) -> Result<Option<(Address, Subscription)>> {
        let Some(address) = self.get::<Address>(&pair)? else { return Ok(None) };
        let key = key::subscription(address.shard, address.topic, address.id);
        let missing = || codec::damaged(Space::Subscriptions, &key, "the index names it, but it is missing");
        let subscription = self.get(&key)?.ok_or_else(missing)?;
        Ok(Some((address, subscription)))
    }

    fn begun(&mut self, pair: Pair, verified: &VerifiedSubscription) -> (Shard, Subscription) {
        let request = verified.request();
        let counters = self.counters();
        counters.subscription.0 += 1;
        let id = counters.subscription;
        let topic = &self.topic_mut(&request.topic).topic;
        let (topic, start) = (topic.id, topic.head);
        let host = self.topics.accounts.host(request.callback.origin().as_bytes());
        self.staged.subscription_changes.push(SubscriptionChange::Began(Counted {
            id,
            topic,
            of: Some((host, request.client)),
        }));
        *self.staged.subscriptions.entry(topic).or_default() += 1;
        let shard = Shard::of(&request.callback, self.shards);
        self.put(pair.to_vec(), &Address { shard, topic, id });
        let subscription = Subscription {
            id,
            topic,
            callback: request.callback.clone(),
            topic_url: request.topic.clone(),
            secret: secret(request),
            lease: verified.lease(),
            lease_end: verified.lease_end(),
            address: verified.address(),
            client: request.client,
            start,
            created_at: verified.asked_at(),
            verified_at: verified.asked_at(),
        };
        (shard, subscription)
    }

    /// Its entry in the index goes with it, if there is one.
    fn remove_subscription(&mut self, entry: Option<Pair>, address: Address, known: Option<&Subscription>) {
        let Address { shard, topic, id } = address;
        let key = key::subscription(shard, topic, id);
        if let Some(pair) = entry {
            self.batch.remove(Space::SubscriptionIndex, pair.to_vec());
        }
        self.batch.remove(Space::Laggards, key.clone());
        self.batch.remove(Space::Subscriptions, key);
        *self.staged.subscriptions.entry(topic).or_default() -= 1;
        let host = |known: &Subscription| self.topics.accounts.host(known.callback.origin().as_bytes());
        let of = known.map(|known| (host(known), known.client));
        self.staged.subscription_changes.push(SubscriptionChange::Ended(Counted { id, topic, of }));
        self.staged.changed_subscriptions.push((shard, topic, id));
        self.staged.events.push(StoreEvent::Unsubscribed { shard, topic, id });
    }

    fn announce(&mut self, shard: Shard, subscription: &Subscription) {
        let Some(topic) = self.topic_state(subscription.topic).map(|state| state.topic.clone()) else {
            return;
        };
        let slot = SubscriptionSummary::of(subscription);
        self.staged.events.push(StoreEvent::Subscribed { shard, slot, topic: Box::new(topic) });
    }
}

/// The subscriber's newest words; identity, place and beginning stay (W-061).
fn renewed(known: &Subscription, verified: &VerifiedSubscription) -> Subscription {
    let request = verified.request();
    Subscription {
        callback: request.callback.clone(),
        topic_url: request.topic.clone(),
        secret: secret(request),
        lease: verified.lease(),
        lease_end: verified.lease_end(),
        address: verified.address(),
        verified_at: verified.asked_at(),
        id: known.id,
        topic: known.topic,
        client: known.client,
        start: known.start,
        created_at: known.created_at,
    }
}

fn secret(request: &PendingRequest) -> Option<Secret> {
    match &request.intent {
        Intent::Subscribe { secret, .. } => secret.clone(),
        Intent::Unsubscribe => None,
    }
}
