//! What is remembered, as it lies on disk: a book with a record for each subscription.

use std::collections::HashMap;

use resync_core::datetime::DateTime;
use resync_core::websub::key::{CallbackUrl, TopicUrl};
use resync_core::websub::secret::Secret;
use serde::{Deserialize, Serialize};
use url::Url;

use super::LastSync;
use crate::discover::KnownSource;
use crate::inbox::{Handled, Window};

/// The form that this program writes.
pub(super) const FORMAT: u32 = 1;

/// For how long a subscription that is over may be made again as it was, in milliseconds. No lease that a hub still serves
/// is that old.
const FORGOTTEN_AFTER: i64 = 30 * 24 * 3_600_000;

/// Everything that is remembered; also the form on disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StateFile {
    pub(super) format: u32,
    pub(crate) subscriptions: Vec<Record>,
    pub(crate) last_sync: Option<LastSync>,
    /// What the last discovery found, to begin from while the Source is away.
    #[serde(default)]
    pub(crate) known: Option<KnownSource>,
    /// Up to when Change Notifications told without a gap, and were dealt with (milliseconds since 1970).
    #[serde(default)]
    pub(crate) notified_until: Option<i64>,
}

impl Default for StateFile {
    fn default() -> Self {
        Self { format: FORMAT, subscriptions: Vec::new(), last_sync: None, known: None, notified_until: None }
    }
}

/// What was asked of the hub and not yet confirmed by it.
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
    /// A hub whose answer got lost may ask again within the time that is left.
    pub(crate) confirmed: bool,
}

/// A secret and a time that belongs to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeptSecret {
    #[serde(with = "text::secret")]
    pub(crate) secret: Secret,
    pub(crate) unix_millis: i64,
}

/// One subscription as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The unguessable last segment of the callback (W-045).
    pub(crate) token: String,
    #[serde(with = "text::topic")]
    pub(crate) topic: TopicUrl,
    pub(crate) hub: String,
    #[serde(with = "text::secret")]
    pub(crate) secret: Secret,
    /// Since when the secret is in use (milliseconds since 1970).
    #[serde(default)]
    pub(crate) secret_since: i64,
    /// The secret that the renewal under way asks for; `unix_millis` is for how long the old one goes on to count.
    #[serde(default)]
    pub(crate) next_secret: Option<KeptSecret>,
    /// The secret before this one, until `unix_millis`.
    #[serde(default)]
    pub(crate) old_secret: Option<KeptSecret>,
    pub(crate) callback: Option<String>,
    pub(crate) pending: Option<Pending>,
    pub(crate) lease_seconds: Option<u64>,
    pub(crate) expires_unix_millis: Option<i64>,
    pub(crate) ended: bool,
    pub(crate) denied: Option<String>,
    /// Which notifications were handled, as far as that is durable.
    #[serde(flatten)]
    pub(crate) handled: Handled,
}

/// Notes which notifications were handled since the book was written.
pub(super) fn note_handled(windows: &HashMap<String, Window>, state_file: &mut StateFile) {
    for record in &mut state_file.subscriptions {
        if let Some(window) = windows.get(&record.token) {
            record.handled = window.handled();
        }
    }
}

impl StateFile {
    /// Forgets the subscriptions that nobody asked for since long before `now` and that are not needed; how many.
    pub(super) fn forget(&mut self, now: DateTime, is_needed: impl Fn(&str) -> bool) -> usize {
        let before = self.subscriptions.len();
        let is_old =
            |record: &Record| record.last_wanted().saturating_add(FORGOTTEN_AFTER) < now.unix_millis();
        self.subscriptions.retain(|record| !is_old(record) || is_needed(&record.token));
        before - self.subscriptions.len()
    }
}

impl Record {
    /// When its lease or the last request for it ends (milliseconds since 1970).
    fn last_wanted(&self) -> i64 {
        let asked_until = self.pending.map(|pending| pending.until_unix_millis);
        self.expires_unix_millis.max(asked_until).unwrap_or(self.secret_since)
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

    /// The secrets that may sign now: the one in use, the one asked for, and for a while the one before.
    pub(crate) fn secrets(&self, now: i64) -> Vec<Secret> {
        let next = self.next_secret.as_ref();
        let old = self.old_secret.as_ref().filter(|old| old.unix_millis > now);
        let others = next.into_iter().chain(old).map(|kept| kept.secret.clone());
        std::iter::once(self.secret.clone()).chain(others).collect()
    }

    /// The secret that the next request asks for.
    pub(crate) fn secret_to_ask(&self) -> Secret {
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

/// Values of core as JSON strings, checked again when they are read.
mod text {
    macro_rules! as_text {
        ($name:ident, $type:ty, $write:expr, $read:expr) => {
            pub(super) mod $name {
                use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

                pub(crate) fn serialize<S: Serializer>(value: &$type, to: S) -> Result<S::Ok, S::Error> {
                    to.serialize_str(&$write(value))
                }

                pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                    $read(String::deserialize(from)?).map_err(D::Error::custom)
                }
            }
        };
    }
    use resync_core::websub::{key::TopicUrl, secret::Secret};

    as_text!(topic, super::TopicUrl, |value: &super::TopicUrl| value.as_str().to_owned(), |text: String| {
        super::TopicUrl::parse(&text)
    });
    as_text!(
        secret,
        super::Secret,
        |value: &super::Secret| String::from_utf8_lossy(value.as_bytes()).into_owned(),
        super::Secret::new
    );
}
