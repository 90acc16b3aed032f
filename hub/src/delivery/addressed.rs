//! What can be made ready for a subscription before there is anything to send: where to, and the key of its signatures.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::Uri;
use resync_core::websub::{CallbackUrl, SignatureMethod, SigningKey, UrlError};

use crate::egress::{self, Target};
use crate::store::{Keep, Recipient, SubscriptionId, TopicId};
use crate::weighted_cache::WeightedCache;

/// Bytes of subscriptions that are kept ready, of the usual size about 8,000: those of a sweep over millions do not fit and do not
/// come back soon either.
const READY: usize = 10 * 1024 * 1024;
/// What one takes beside its record and the texts made of its callback.
const ADDRESSED: usize = 1_024;

/// A subscription made ready.
#[derive(Debug)]
pub(super) struct Addressed {
    /// The record it was made from: another one under the same id has another callback, secret or lease.
    from: Arc<Recipient>,
    pub(super) target: Target,
    /// `None` where no secret was given.
    pub(super) key: Option<SigningKey>,
}

impl Addressed {
    /// Makes a subscription ready.
    ///
    /// # Errors
    /// When its callback is no request target.
    pub(super) fn new(recipient: &Arc<Recipient>, method: SignatureMethod) -> Result<Self, Unaddressable> {
        Ok(Self {
            from: Arc::clone(recipient),
            target: Target::of(&uri(&recipient.callback)?)?,
            key: recipient.secret.as_ref().map(|secret| SigningKey::new(method, secret)),
        })
    }
}

/// The request target of a callback; nothing is copied where it can stand as it was written (W-190).
fn uri(callback: &Bytes) -> Result<Uri, Unaddressable> {
    match Uri::from_maybe_shared(callback.clone()) {
        Ok(uri) => Ok(uri),
        Err(_) => Ok(egress::target(&read(callback)?)?),
    }
}

/// The callback as a URL.
///
/// # Errors
/// When it is none: the record was written by something else than a hub.
pub(super) fn read(callback: &[u8]) -> Result<CallbackUrl, UrlError> {
    CallbackUrl::parse(&String::from_utf8_lossy(callback))
}

/// Why nothing can be sent to a callback.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unaddressable {
    #[error(transparent)]
    Syntax(#[from] http::Error),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Forbidden(#[from] egress::Forbidden),
}

/// The subscriptions of one worker that were made ready last.
#[derive(Debug)]
pub(super) struct Addresses {
    method: SignatureMethod,
    ready: Mutex<WeightedCache<(TopicId, SubscriptionId), Arc<Addressed>>>,
}

impl Addresses {
    pub(super) fn new(method: SignatureMethod) -> Self {
        Self { method, ready: Mutex::new(WeightedCache::new(READY)) }
    }

    /// The recipient made ready, for one use or, where it is kept, for the next ones too.
    pub(super) fn of(&self, recipient: &Arc<Recipient>, keep: Keep) -> Result<Arc<Addressed>, Unaddressable> {
        let key = (recipient.topic, recipient.id);
        // Nothing in here can panic half-way.
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match keep {
            Keep::Ready => ready.get(&key).cloned(),
            Keep::Nothing => ready.pop(&key),
        };
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.from, recipient)) {
            return Ok(known);
        }
        let addressed = Arc::new(Addressed::new(recipient, self.method)?);
        if keep == Keep::Ready {
            let weight = ADDRESSED + recipient.weight() + recipient.callback.len();
            ready.put(key, Arc::clone(&addressed), weight);
        }
        Ok(addressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_owed_several_is_made_ready_once_and_leaves_its_room_with_the_last() {
        let addresses = Addresses::new(SignatureMethod::Sha256);
        let recipient = Arc::new(Recipient {
            id: SubscriptionId(7),
            topic: TopicId(1),
            callback: Bytes::from_static(b"http://destination.example/cb"),
            topic_url: "http://source.example/framework/".parse().unwrap(),
            secret: None,
        });
        let first = addresses.of(&recipient, Keep::Ready).unwrap();
        let last = addresses.of(&recipient, Keep::Nothing).unwrap();
        assert!(Arc::ptr_eq(&first, &last));
        assert!(addresses.ready.lock().unwrap().is_empty());
    }
}
