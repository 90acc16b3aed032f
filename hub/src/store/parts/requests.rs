//! Requests and denials that wait.

use async_trait::async_trait;

use crate::store::{
    Denial, NewDenial, NewRequest, PendingRequest, RequestId, Result, Shard, SubscriptionKey, WaitingDenial,
    WaitingLimits,
};

/// What was acknowledged and is not finished: requests to be verified, and denials whose callbacks are to be informed. Each belongs to the
/// shard of its callback ([`Shard::of`]), whose owner takes it up.
#[async_trait]
pub trait Requests: std::fmt::Debug + Send + Sync + 'static {
    /// Remembers a request before it is acknowledged. It replaces an older one of the same client for the same topic and callback
    /// (D-17), and none of others: they may not mean what its subscriber means.
    async fn put_request(&self, request: NewRequest) -> Result<PendingRequest>;

    /// The same, unless as many wait already as these limits allow: then nothing is changed, and the answer is `None`. One that replaces another
    /// makes it no more. A store that is one hub's own leaves this to that hub, which knows all that wait.
    async fn put_request_within(
        &self,
        request: NewRequest,
        _limits: WaitingLimits,
    ) -> Result<Option<PendingRequest>> {
        self.put_request(request).await.map(Some)
    }

    /// One that waits, as long as it does.
    async fn request(&self, id: RequestId) -> Result<Option<PendingRequest>>;

    /// Removes a request that failed verification. One that was replaced meanwhile stays.
    async fn remove_request(&self, request: &PendingRequest) -> Result<()>;

    /// The identities of all that wait in these shards, with their shards, oldest first; read by who has just become their owner.
    async fn request_ids(&self, of: &[Shard]) -> Result<Vec<(Shard, RequestId)>>;

    /// All that wait in these shards, oldest first.
    async fn requests(&self, of: &[Shard]) -> Result<Vec<PendingRequest>>;

    /// Ends the subscription of the pair, removes its waiting requests, and stores that the callback has to be informed. `None` when
    /// there is neither, or when the denied request no longer waits: nothing was changed. Denying a request leaves a subscription in
    /// force as it is (W-062): the request is removed, and `None` says that nobody has to be informed.
    async fn deny(&self, denial: NewDenial) -> Result<Option<Denial>>;

    /// Removes a denial of which the callback was informed. One that was replaced meanwhile stays.
    async fn remove_denial(&self, denial: &Denial) -> Result<()>;

    /// The denial of the pair of which the callback has to be informed.
    async fn denial(&self, key: SubscriptionKey) -> Result<Option<Denial>>;

    /// All such denials of these shards without their texts, the oldest first; read by who has just become their owner.
    async fn denied(&self, of: &[Shard]) -> Result<Vec<WaitingDenial>>;

    /// All such denials of these shards, the oldest first.
    async fn denials(&self, of: &[Shard]) -> Result<Vec<Denial>>;
}
