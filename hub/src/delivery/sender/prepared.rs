//! What is prepared for a subscription before there is anything to send: the target of its requests, and the key of its signatures.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Uri;
use resync_common::locks::lock;
use resync_core::websub::{CallbackUrl, SigningKey, UrlError};

use crate::config::SignatureConfig;
use crate::egress::{self, Target};
use crate::store::{CachePolicy, Recipient, SubscriptionId, TopicId};
use crate::weighted_cache::WeightedCache;

/// Bytes of prepared recipients that are kept, of the usual size about 8,000: those of a sweep over millions do not fit and do not
/// come back soon either.
const KEPT: usize = 10 * 1024 * 1024;
/// What one takes beside its record and the texts made of its callback.
const PREPARED: usize = 1_024;

/// A recipient, prepared.
#[derive(Debug)]
pub(super) struct PreparedRecipient {
    /// The record it was made from: another one under the same id has another callback, secret or lease.
    from: Arc<Recipient>,
    pub(super) target: Target,
    /// `None` where no secret was given.
    pub(super) key: Option<SigningKey>,
}

impl PreparedRecipient {
    /// Prepares a recipient.
    ///
    /// # Errors
    /// When its callback is no request target.
    pub(super) fn new(
        recipient: &Arc<Recipient>,
        signature: &SignatureConfig,
    ) -> Result<Self, InvalidCallback> {
        let uri = uri(&recipient.callback)?;
        let method = signature.method_for(uri.host().unwrap_or_default());
        Ok(Self {
            from: Arc::clone(recipient),
            target: Target::of(&uri)?,
            key: recipient.secret.as_ref().map(|secret| SigningKey::new(method, secret)),
        })
    }
}

/// The request target of a callback; nothing is copied where it can stand as it was written (W-190).
fn uri(callback: &Bytes) -> Result<Uri, InvalidCallback> {
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
pub(super) enum InvalidCallback {
    #[error(transparent)]
    Syntax(#[from] http::Error),
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Forbidden(#[from] egress::Forbidden),
}

/// The recipients of one worker that were prepared last.
#[derive(Debug)]
pub(super) struct PreparedRecipients {
    signature: Arc<SignatureConfig>,
    kept: Mutex<WeightedCache<(TopicId, SubscriptionId), Arc<PreparedRecipient>>>,
}

impl PreparedRecipients {
    pub(super) fn new(signature: Arc<SignatureConfig>) -> Self {
        Self { signature, kept: Mutex::new(WeightedCache::new(KEPT)) }
    }

    /// The recipient, prepared for one use or, where it is kept, for the next ones too.
    pub(super) fn of(
        &self,
        recipient: &Arc<Recipient>,
        keep: CachePolicy,
    ) -> Result<Arc<PreparedRecipient>, InvalidCallback> {
        let key = (recipient.topic, recipient.id);
        // Nothing in here can panic half-way.
        let mut kept = lock(&self.kept);
        let known = match keep {
            CachePolicy::Keep => kept.get(&key).cloned(),
            CachePolicy::Drop => kept.pop(&key),
        };
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.from, recipient)) {
            return Ok(known);
        }
        let prepared = Arc::new(PreparedRecipient::new(recipient, &self.signature)?);
        if keep == CachePolicy::Keep {
            let weight = PREPARED + recipient.weight() + recipient.callback.len();
            kept.put(key, Arc::clone(&prepared), weight);
        }
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use resync_core::websub::{Secret, SignatureMethod};

    use super::*;

    fn sha256() -> Arc<SignatureConfig> {
        Arc::new(SignatureConfig::always(SignatureMethod::Sha256))
    }

    fn recipient(secret: Option<&str>) -> Arc<Recipient> {
        Arc::new(Recipient {
            id: SubscriptionId(7),
            topic: TopicId(0xabc),
            callback: Bytes::from_static(b"http://destination.example/cb?id=7&x=a%20b"),
            topic_url: "http://source.example/framework/".parse().unwrap(),
            secret: secret.map(|secret| Secret::new(secret).unwrap()),
        })
    }

    #[test]
    fn a_recipient_of_several_is_prepared_once_and_dropped_with_the_last() {
        let recipients = PreparedRecipients::new(sha256());
        let recipient = recipient(None);
        let first = recipients.of(&recipient, CachePolicy::Keep).unwrap();
        let last = recipients.of(&recipient, CachePolicy::Drop).unwrap();
        assert!(Arc::ptr_eq(&first, &last));
        assert!(recipients.kept.lock().unwrap().is_empty());
    }

    #[test]
    fn w061_a_renewed_subscription_is_prepared_anew() {
        let recipients = PreparedRecipients::new(sha256());
        let (before, renewed) = (recipient(Some("s3cr3t")), recipient(Some("another")));
        for keep in [CachePolicy::Keep, CachePolicy::Drop] {
            let signature = |recipient: &Arc<Recipient>| {
                let key = recipients.of(recipient, keep).unwrap();
                key.key.as_ref().unwrap().sign(b"news").to_string()
            };
            assert_eq!(signature(&before), signature(&before));
            assert_ne!(signature(&before), signature(&renewed));
        }
    }
}
