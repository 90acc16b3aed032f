//! What can be made ready for a subscription before there is anything to send: where to, and the key of its signatures.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use resync_core::websub::{SignatureMethod, SigningKey};

use crate::egress::{self, Target};
use crate::store::{Subscription, SubscriptionId, TopicId};

/// Subscriptions that are kept ready, about a kilobyte each: those of a sweep over millions do not fit and do not come back
/// soon either.
const READY: NonZeroUsize = NonZeroUsize::new(8_192).expect("8192 is not zero");

/// A subscription made ready.
#[derive(Debug)]
pub(super) struct Addressed {
    /// The record it was made from: another one under the same id has another callback, secret or lease.
    from: Arc<Subscription>,
    pub(super) target: Target,
    /// `None` where no secret was given.
    pub(super) key: Option<SigningKey>,
}

impl Addressed {
    /// Makes a subscription ready.
    ///
    /// # Errors
    /// When its callback is no request target.
    pub(super) fn new(
        subscription: &Arc<Subscription>,
        method: SignatureMethod,
    ) -> Result<Self, Unaddressable> {
        Ok(Self {
            from: Arc::clone(subscription),
            target: Target::of(&egress::target(&subscription.callback)?)?,
            key: subscription.secret.as_ref().map(|secret| SigningKey::new(method, secret)),
        })
    }
}

/// Why nothing can be sent to a callback.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unaddressable {
    #[error(transparent)]
    Syntax(#[from] http::Error),
    #[error(transparent)]
    Forbidden(#[from] egress::Forbidden),
}

/// The subscriptions of one worker that were made ready last.
#[derive(Debug)]
pub(super) struct Addresses {
    method: SignatureMethod,
    ready: Mutex<LruCache<(TopicId, SubscriptionId), Arc<Addressed>>>,
}

impl Addresses {
    pub(super) fn new(method: SignatureMethod) -> Self {
        Self { method, ready: Mutex::new(LruCache::new(READY)) }
    }

    pub(super) fn of(&self, subscription: &Arc<Subscription>) -> Result<Arc<Addressed>, Unaddressable> {
        let key = (subscription.topic, subscription.id);
        // Nothing in here can panic half-way.
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ready.get(&key)
            && Arc::ptr_eq(&known.from, subscription)
        {
            return Ok(Arc::clone(known));
        }
        let addressed = Arc::new(Addressed::new(subscription, self.method)?);
        ready.put(key, Arc::clone(&addressed));
        Ok(addressed)
    }
}
