//! Requests and denials that wait in the embedded store.

use async_trait::async_trait;
use resync_core::websub::CallbackUrl;

use super::super::engine::Keys;
use super::super::key;
use super::super::shared::Shared;
use super::super::writer::Kind;
use super::super::{Embedded, SMALL};
use crate::store::{
    Denial, NewDenial, NewRequest, PendingRequest, RequestId, Requests, Result, Shard, SubscriptionKey,
};

/// Some of the shards. One process wants all nearly always, so what waits has no index by them: all of it is read, and what is of
/// others left out.
struct Wanted {
    of: Vec<Shard>,
    shards: u16,
}

impl Wanted {
    fn has(&self, callback: &CallbackUrl) -> bool {
        self.of.contains(&Shard::of(callback, self.shards))
    }

    /// The requests that wait there, the oldest first.
    fn requests(&self, shared: &Shared) -> impl Iterator<Item = Result<PendingRequest>> {
        let all = shared.list::<PendingRequest>(&Keys::all());
        all.filter(|request| request.as_ref().map_or(true, |request| self.has(&request.callback)))
    }

    /// The denials of which callbacks there have to be informed, in no order.
    fn denials(&self, shared: &Shared) -> impl Iterator<Item = Result<Denial>> {
        let all = shared.list::<Denial>(&Keys::all());
        all.filter(|denial| denial.as_ref().map_or(true, |denial| self.has(&denial.callback)))
    }
}

impl Embedded {
    fn wanted(&self, of: &[Shard]) -> Wanted {
        Wanted { of: of.to_vec(), shards: self.shards }
    }
}

#[async_trait]
impl Requests for Embedded {
    async fn put_request(&self, request: NewRequest) -> Result<PendingRequest> {
        let bytes = SMALL + request.topic.as_str().len() + request.callback.as_str().len();
        self.writer.run(Kind::Growing, bytes, move |transaction| Ok(transaction.put_request(request))).await
    }

    async fn request(&self, id: RequestId) -> Result<Option<PendingRequest>> {
        self.shared.get(&key::request(id))
    }

    async fn remove_request(&self, request: &PendingRequest) -> Result<()> {
        let request = request.clone();
        self.change(move |t| t.remove_request(&request)).await
    }

    async fn request_ids(&self, of: &[Shard]) -> Result<Vec<RequestId>> {
        let id = |request: Result<PendingRequest>| request.map(|request| request.id);
        let wanted = self.wanted(of);
        self.read(move |shared| wanted.requests(shared).map(id).collect()).await
    }

    async fn requests(&self, of: &[Shard]) -> Result<Vec<PendingRequest>> {
        let wanted = self.wanted(of);
        self.read(move |shared| wanted.requests(shared).collect()).await
    }

    async fn deny(&self, denial: NewDenial) -> Result<Option<Denial>> {
        self.try_change(move |t| t.deny(denial)).await
    }

    async fn remove_denial(&self, denial: &Denial) -> Result<()> {
        let denial = denial.clone();
        self.try_change(move |t| t.remove_denial(&denial)).await
    }

    async fn denial(&self, key: SubscriptionKey) -> Result<Option<Denial>> {
        self.shared.get(key.as_bytes())
    }

    async fn denied(&self, of: &[Shard]) -> Result<Vec<SubscriptionKey>> {
        let pair = |denial: Result<Denial>| {
            denial.map(|denial| (denial.id, SubscriptionKey::of(&denial.topic, &denial.callback)))
        };
        let wanted = self.wanted(of);
        let read = self.read(move |shared| wanted.denials(shared).map(pair).collect::<Result<Vec<_>>>());
        let mut waiting = read.await?;
        waiting.sort_by_key(|(id, _)| *id);
        Ok(waiting.into_iter().map(|(_, pair)| pair).collect())
    }

    async fn denials(&self, of: &[Shard]) -> Result<Vec<Denial>> {
        let wanted = self.wanted(of);
        let read = self.read(move |shared| wanted.denials(shared).collect::<Result<Vec<_>>>());
        let mut denials = read.await?;
        denials.sort_by_key(|denial| denial.id);
        Ok(denials)
    }
}
