//! The state file: a record for each subscription, and what was found and done last.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use resync_core::datetime::DateTime;
use resync_core::websub::key::{CallbackUrl, TopicUrl};
use resync_core::websub::secret::Secret;
use serde::{Deserialize, Serialize};
use url::Url;

use super::window::{Handled, Window};
use super::{LastSync, SubscriptionId};
use crate::discover::SavedSource;
use crate::text;

/// The format that this program reads and writes.
pub(super) const FORMAT: u32 = 1;

/// How long a subscription that is over keeps its callback and secret for a new one, in milliseconds. No hub still serves a lease
/// that ended so long ago.
const FORGOTTEN_AFTER: i64 = 30 * 24 * 3_600_000;

/// Everything that is saved.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateFile {
    pub(super) format: u32,
    pub(crate) subscriptions: Vec<Record>,
    pub(crate) last_sync: Option<LastSync>,
    /// What the last discovery found, to start from while the Source is away.
    pub(super) source: Option<SavedSource>,
    /// Up to when all changes are known from Change Notifications, and were handled.
    #[serde(with = "text::option")]
    pub(super) notified_until: Option<DateTime>,
    /// Topics of a forwarder, as they were given, that are not subscribed to, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) not_subscribed: BTreeMap<String, String>,
}

impl Default for StateFile {
    fn default() -> Self {
        Self {
            format: FORMAT,
            subscriptions: Vec::new(),
            last_sync: None,
            source: None,
            notified_until: None,
            not_subscribed: BTreeMap::new(),
        }
    }
}

/// What a request to a hub is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Subscribe,
    Unsubscribe,
}

/// A request to the hub that may be verified until `until`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) mode: Mode,
    pub(crate) until_unix_millis: i64,
    /// A hub that did not get the answer may verify again until then.
    pub(crate) confirmed: bool,
}

/// A secret and a time that belongs to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TimedSecret {
    #[serde(with = "secret")]
    pub(crate) secret: Secret,
    pub(crate) unix_millis: i64,
}

/// One subscription.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The unguessable last segment of the callback (W-045).
    pub(crate) token: String,
    #[serde(with = "text")]
    pub(crate) topic: TopicUrl,
    pub(crate) hub: String,
    #[serde(with = "secret")]
    pub(crate) secret: Secret,
    /// Since when the secret is in use (milliseconds since 1970).
    pub(crate) secret_since: i64,
    /// The secret that the current renewal asks for; `unix_millis` says how long the old one will stay valid.
    pub(crate) next_secret: Option<TimedSecret>,
    /// The previous secret, valid until `unix_millis`.
    pub(crate) old_secret: Option<TimedSecret>,
    pub(crate) callback: Option<String>,
    pub(crate) pending: Option<Pending>,
    pub(crate) lease_seconds: Option<u64>,
    pub(crate) expires_unix_millis: Option<i64>,
    pub(crate) ended: bool,
    pub(crate) denied: Option<String>,
    /// Which notifications were handled, when this was saved.
    #[serde(flatten)]
    pub(crate) handled: Handled,
}

impl StateFile {
    pub(super) fn record(&mut self, token: &str) -> Option<&mut Record> {
        self.subscriptions.iter_mut().find(|record| record.token == token)
    }

    /// Updates which notifications were handled.
    pub(super) fn set_handled(&mut self, windows: &HashMap<String, Window>) {
        for record in &mut self.subscriptions {
            if let Some(window) = windows.get(&record.token) {
                record.handled = window.handled();
            }
        }
    }

    /// The tokens of those that are not wanted, but for the last `kept`: those that no hub ever confirmed come first, then those that
    /// are over for longest.
    pub(super) fn unwanted(&self, kept: usize, is_wanted: impl Fn(&Record) -> bool) -> HashSet<String> {
        let mut unwanted: Vec<_> = self.subscriptions.iter().filter(|record| !is_wanted(record)).collect();
        unwanted.sort_by_key(|record| (record.expires_unix_millis.is_some(), record.last_used()));
        let count = unwanted.len().saturating_sub(kept);
        unwanted.into_iter().take(count).map(|record| record.token.clone()).collect()
    }

    /// Forgets subscriptions that have been over for long and are not needed; returns how many.
    pub(super) fn forget(&mut self, now: DateTime, is_needed: impl Fn(&str) -> bool) -> usize {
        let before = self.subscriptions.len();
        let is_old = |record: &Record| record.last_used().saturating_add(FORGOTTEN_AFTER) < now.unix_millis();
        self.subscriptions.retain(|record| !is_old(record) || is_needed(&record.token));
        before - self.subscriptions.len()
    }
}

impl Record {
    /// When its lease or the last request for it ends (milliseconds since 1970).
    fn last_used(&self) -> i64 {
        let requested_until = self.pending.map(|pending| pending.until_unix_millis);
        self.expires_unix_millis.max(requested_until).unwrap_or(self.secret_since)
    }

    pub(super) fn new(topic: TopicUrl, hub: String) -> Self {
        let token = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        Self {
            token,
            topic,
            hub,
            secret: Secret::random(),
            secret_since: DateTime::now().unix_millis(),
            next_secret: None,
            old_secret: None,
            callback: None,
            pending: None,
            lease_seconds: None,
            expires_unix_millis: None,
            ended: false,
            denied: None,
            handled: Handled::default(),
        }
    }

    pub(crate) fn id(&self) -> SubscriptionId {
        SubscriptionId(Arc::from(self.token.as_str()))
    }

    /// The secrets that are valid now: the one in use, the requested one, and for a while the previous one.
    pub(crate) fn secrets(&self, now: i64) -> Vec<Secret> {
        let next = self.next_secret.as_ref();
        let old = self.old_secret.as_ref().filter(|old| old.unix_millis > now);
        let others = next.into_iter().chain(old).map(|one| one.secret.clone());
        std::iter::once(self.secret.clone()).chain(others).collect()
    }

    /// The secret for the next request.
    pub(crate) fn secret_to_request(&self) -> Secret {
        self.next_secret.as_ref().map_or(&self.secret, |next| &next.secret).clone()
    }

    /// The callback under the public `prefix`.
    pub(crate) fn callback_under(&self, prefix: &Url) -> String {
        format!("{}/{}", prefix.as_str().trim_end_matches('/'), self.token)
    }

    pub(crate) fn callback(&self) -> Option<CallbackUrl> {
        self.callback.as_deref().and_then(|url| CallbackUrl::parse(url).ok())
    }
}

/// A secret as a JSON string, checked again when it is read.
mod secret {
    use resync_core::websub::secret::Secret;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&String::from_utf8_lossy(secret.as_bytes()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        Secret::new(String::deserialize(from)?).map_err(D::Error::custom)
    }
}
