//! Requests and denials that wait in the embedded store.

use async_trait::async_trait;

use super::super::engine::Keys;
use super::super::key;
use super::super::writer::Kind;
use super::super::{Embedded, SMALL};
use crate::store::{
    Denial, NewDenial, NewRequest, PendingRequest, RequestId, Requests, Result, SubscriptionKey,
};

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

    async fn request_ids(&self) -> Result<Vec<RequestId>> {
        let id = |request: Result<PendingRequest>| request.map(|request| request.id);
        self.read(move |shared| shared.list(&Keys::all()).map(id).collect()).await
    }

    async fn requests(&self) -> Result<Vec<PendingRequest>> {
        self.read(|shared| shared.list(&Keys::all()).collect()).await
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

    async fn denied(&self) -> Result<Vec<SubscriptionKey>> {
        let of = |denial: Result<Denial>| {
            denial.map(|denial| (denial.id, SubscriptionKey::of(&denial.topic, &denial.callback)))
        };
        let read = self.read(move |shared| shared.list(&Keys::all()).map(of).collect::<Result<Vec<_>>>());
        let mut waiting = read.await?;
        waiting.sort_by_key(|(id, _)| *id);
        Ok(waiting.into_iter().map(|(_, pair)| pair).collect())
    }

    async fn denials(&self) -> Result<Vec<Denial>> {
        let mut denials: Vec<Denial> = self.read(|shared| shared.list(&Keys::all()).collect()).await?;
        denials.sort_by_key(|denial| denial.id);
        Ok(denials)
    }
}
