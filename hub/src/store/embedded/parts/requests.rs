//! Requests and denials that wait in the embedded store.

use async_trait::async_trait;
use resync_core::websub::CallbackUrl;

use super::super::engine::Keys;
use super::super::shared::Shared;
use super::super::writer::Kind;
use super::super::{Embedded, SMALL};
use crate::store::encoding::codec::Record;
use crate::store::encoding::key;
use crate::store::{
    Denial, NewDenial, NewRequest, PendingRequest, RequestId, Requests, Result, Shard, SubscriptionKey,
    WaitingDenial,
};

/// Some of the shards. One process wants all nearly always, so what waits has no index by them: all of it is read, and what is of
/// others left out.
struct Wanted {
    of: Vec<Shard>,
    shards: u16,
}

impl Wanted {
    /// The shard of this callback, if it is one of them.
    fn shard(&self, callback: &CallbackUrl) -> Option<Shard> {
        let shard = Shard::of(callback, self.shards);
        self.of.contains(&shard).then_some(shard)
    }

    /// The requests that wait there, the oldest first.
    fn requests(&self, shared: &Shared) -> impl Iterator<Item = Result<(Shard, PendingRequest)>> {
        self.waiting::<PendingRequest>(shared, |request| &request.callback)
    }

    /// The denials of which callbacks there have to be informed, in no order.
    fn denials(&self, shared: &Shared) -> impl Iterator<Item = Result<(Shard, Denial)>> {
        self.waiting::<Denial>(shared, |denial| &denial.callback)
    }

    fn waiting<R: Record>(
        &self,
        shared: &Shared,
        callback: fn(&R) -> &CallbackUrl,
    ) -> impl Iterator<Item = Result<(Shard, R)>> {
        let found = move |record: R| Some((self.shard(callback(&record))?, record));
        shared.list::<R>(&Keys::all()).filter_map(move |record| record.map(found).transpose())
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

    async fn request_ids(&self, of: &[Shard]) -> Result<Vec<(Shard, RequestId)>> {
        let wanted = self.wanted(of);
        self.read(move |shared| {
            wanted.requests(shared).map(|found| found.map(|(shard, request)| (shard, request.id))).collect()
        })
        .await
    }

    async fn requests(&self, of: &[Shard]) -> Result<Vec<PendingRequest>> {
        let wanted = self.wanted(of);
        self.read(move |shared| {
            wanted.requests(shared).map(|found| found.map(|(_, request)| request)).collect()
        })
        .await
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

    async fn denied(&self, of: &[Shard]) -> Result<Vec<WaitingDenial>> {
        let waiting = |(shard, denial): (Shard, Denial)| WaitingDenial {
            shard,
            id: denial.id,
            key: SubscriptionKey::of(&denial.topic, &denial.callback),
        };
        let wanted = self.wanted(of);
        let read = self.read(move |shared| {
            wanted.denials(shared).map(|found| found.map(waiting)).collect::<Result<Vec<_>>>()
        });
        let mut denied = read.await?;
        denied.sort_by_key(|denial| denial.id);
        Ok(denied)
    }

    async fn denials(&self, of: &[Shard]) -> Result<Vec<Denial>> {
        let wanted = self.wanted(of);
        let read = self.read(move |shared| {
            wanted.denials(shared).map(|found| found.map(|(_, denial)| denial)).collect::<Result<Vec<_>>>()
        });
        let mut denials = read.await?;
        denials.sort_by_key(|denial| denial.id);
        Ok(denials)
    }
}
