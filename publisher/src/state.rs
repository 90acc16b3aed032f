//! What must survive between two runs: the last build's settings and documents, and what each hub was last told.
//!
//! It lies in `OUT/.resync-source/`, a hidden folder that is never served: `state.json`, the last notification, and lock files.
//!
//! What a hub knows is kept by *version*, a number that a document gets when a build gives it new content and that never comes back. Content may
//! come back (a change that is undone), and a Destination that saw what was in between must hear of that too.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use resync_core::{build::Stamp, datetime::DateTime, digest::Digest, document::Capability};
use serde::{Deserialize, Serialize};

use crate::{
    files,
    lock::Lock,
    plan::StoredPosition,
    settings::{HubUrl, Settings},
    stored::{capability_token, text, text_option},
};

/// The version of `state.json` that this program writes. It reads this one only, and refuses newer ones by name.
pub const FORMAT: u32 = 1;

/// The folder of the state, under OUT.
pub(crate) const FOLDER: &str = ".resync-source";

/// The content of `state.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    format: u32,
    /// What the last build was told.
    pub settings: Settings,
    /// Number of resources in the Resource List.
    pub resources: u64,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
    /// Number of builds so far.
    pub builds: u64,
    /// The documents of the site, in the order in which they are written.
    pub documents: Vec<DocumentRecord>,
    /// What each hub knows: those of the settings, and those that are leaving (see [`HubRecord::left`]).
    pub hubs: BTreeMap<HubUrl, HubRecord>,
    /// The topic of the last notification that a hub took.
    pub notified_on: Option<String>,
    /// The topic of the last Change Notification that a hub took.
    #[serde(default)]
    pub changes_on: Option<String>,
    /// The number of the last Change Notification; they are counted from 1.
    #[serde(default)]
    pub outbox: u64,
    /// Up to this number Change Notifications are kept no more; absent before the first were removed and in sites of older programs.
    #[serde(default)]
    pub swept: Option<u64>,
    /// About how long the Change Notifications are together that are kept; nothing is known of those that an older program wrote.
    #[serde(default)]
    pub outbox_bytes: u64,
    /// How far the Change Lists have come; absent before the first and in sites of older programs.
    #[serde(default)]
    pub series: Option<Series>,
    /// Up to when the newest dumps tell.
    #[serde(default)]
    pub dumped: LastDumps,
    /// When the configuration named the set no more. What is left of it waits for its hubs to be told.
    #[serde(default, with = "text_option")]
    pub left: Option<DateTime>,
}

/// The Change Lists of a site, and the Resource List that they follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Up to when all changes are told.
    #[serde(with = "text")]
    pub until: DateTime,
    /// Where the next change goes.
    pub position: StoredPosition,
    /// When the taking of the inventory in the Resource List started.
    #[serde(with = "text")]
    pub listed: DateTime,
    /// Changes since then.
    pub since: u64,
    /// When the first of the Change Lists was begun; absent in sites of older programs.
    #[serde(default, with = "text_option")]
    pub begun: Option<DateTime>,
}

/// Up to when the newest dump of each kind tells; absent where there is none, and where an older program made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastDumps {
    /// That of the resources.
    #[serde(default, with = "text_option")]
    pub resources: Option<DateTime>,
    /// That of the changes.
    #[serde(default, with = "text_option")]
    pub changes: Option<DateTime>,
}

/// One document of the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentRecord {
    /// Path below OUT.
    pub path: String,
    /// Its URL.
    pub url: String,
    /// What it is.
    #[serde(with = "capability_token")]
    pub capability: Capability,
    /// Its place among documents that form one snapshot together.
    pub part: Part,
    /// Digest of what it says, whenever it was said: see [`crate::documents`].
    #[serde(with = "text")]
    pub meaning: Digest,
    /// Digest of its bytes.
    #[serde(with = "text")]
    pub content: Digest,
    /// Its file as it was written.
    #[serde(default, with = "text_option")]
    pub stamp: Option<Stamp>,
    /// The number of the build that made what it says.
    pub version: u64,
    /// When that was.
    #[serde(with = "text")]
    pub changed: DateTime,
}

/// Whether a document stands alone, is an index, or lies under one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Stands alone.
    Whole,
    /// An index, about which nobody is notified (FN-005).
    Index,
    /// Lies under an index (FN-006).
    Component {
        /// URL of the index.
        index: String,
    },
}

/// What one hub knows of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubRecord {
    /// The topic URI.
    pub topic: String,
    /// The documents as of the last acknowledged notification, by URL.
    pub known: BTreeMap<String, KnownDocument>,
    /// The documents as of notifications without an answer since then, by URL: the hub may know them or not. Written before anything is posted.
    pub unconfirmed: BTreeMap<String, KnownDocument>,
    /// The last acknowledgement.
    pub last: Option<Acknowledgement>,
    /// The number of the last Change Notification that it took, or that was before its time.
    #[serde(default)]
    pub sent: u64,
    /// Why it was not told the last time.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// When a build dropped this hub. It stays until it took the news of the Capability List that names it no more (FN-009), without which its
    /// subscribers would wait here for ever.
    #[serde(with = "text_option")]
    pub left: Option<DateTime>,
}

impl HubRecord {
    /// The record of a hub that knows nothing of `topic` yet.
    pub fn new(topic: impl Into<String>) -> Self {
        let (known, unconfirmed) = (BTreeMap::new(), BTreeMap::new());
        Self { topic: topic.into(), known, unconfirmed, last: None, sent: 0, trouble: None, left: None }
    }

    /// Whether the hub has heard of the site, as far as anybody can tell.
    pub fn may_know_something(&self) -> bool {
        !self.known.is_empty() || !self.unconfirmed.is_empty()
    }
}

/// A document as a hub was told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDocument {
    /// What it was.
    #[serde(with = "capability_token")]
    pub capability: Capability,
    /// Its place among documents that form one snapshot together.
    pub part: Part,
    /// Its version.
    pub version: u64,
}

/// Why a hub was not told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// When it was first tried in vain.
    #[serde(with = "text")]
    pub since: DateTime,
    /// What came of it the last time.
    pub reason: String,
    /// The number of the Change Notification that it refused, and will refuse again: those after it wait.
    #[serde(default)]
    pub refused: Option<u64>,
    /// How many Change Notifications were left out since then, because they had waited for too long, or too many waited.
    #[serde(default)]
    pub left_out: u64,
}

impl Trouble {
    /// What came of it now, after the trouble before.
    pub(crate) fn after(before: Option<&Self>, reason: String) -> Self {
        let since = before.map_or_else(DateTime::now, |before| before.since);
        Self { since, reason, refused: None, left_out: before.map_or(0, |before| before.left_out) }
    }
}

/// A notification that a hub took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// When its answer came.
    #[serde(with = "text")]
    pub at: DateTime,
    /// The status of its answer.
    pub status: u16,
    /// The notification's idempotency key.
    pub key: String,
}

/// Why there is no state to work with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// OUT holds no site.
    #[error(
        "there is no site in `{}` yet; run `resync-source build` first, with a source.toml, or with DIR --base-url URL --out {}",
        out.display(),
        out.display()
    )]
    NotBuilt {
        /// The folder.
        out: PathBuf,
    },
    /// Written by a later program.
    #[error("`{}` has format {found}, but this program supports {FORMAT}; use the newer resync-source that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// No state in any format. Nothing of the site is touched while it lies there.
    #[error(
        "`{}` is damaged ({reason}); move it away and build again, with DIR and all flags if there is no source.toml. The Change Lists then start anew, waiting Change Notifications are lost, dumps must be made again, and every hub is notified of every document",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// What a run that was cut short had still to do is in no format.
    #[error(
        "`{}` is damaged ({reason}); move it away and build again. The interrupted run is then repeated. If it had begun a Change List, the Change Lists start anew",
        path.display()
    )]
    DamagedPlan {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl State {
    /// The state after a build.
    pub fn new(
        settings: Settings,
        (resources, bytes): (u64, u64),
        documents: Vec<DocumentRecord>,
        hubs: BTreeMap<HubUrl, HubRecord>,
    ) -> Self {
        let (builds, notified_on, changes_on, outbox, series) = (1, None, None, 0, None);
        Self {
            format: FORMAT,
            settings,
            resources,
            bytes,
            builds,
            documents,
            hubs,
            notified_on,
            changes_on,
            outbox,
            swept: None,
            outbox_bytes: 0,
            series,
            dumped: LastDumps::default(),
            left: None,
        }
    }

    /// Reads the state of the site in `out`. Takes no lock: the file is always whole.
    pub fn load(out: &Path) -> Result<Self, StateError> {
        let path = path(out);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StateError::NotBuilt { out: out.to_owned() });
            }
            Err(source) => return Err(StateError::Io { action: "read", path, source }),
        };
        parse(&bytes, path)
    }

    /// Reads the state of the site in `out`, if one was ever built there.
    pub fn load_if_built(out: &Path) -> Result<Option<Self>, StateError> {
        match Self::load(out) {
            Ok(state) => Ok(Some(state)),
            Err(StateError::NotBuilt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the state.
    pub(crate) fn save(&self, lock: &Lock) -> Result<(), StateError> {
        let path = path(lock.out());
        let failed = |source| StateError::Io { action: "write", path: path.clone(), source };
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        bytes.push(b'\n');
        files::replace(&path, &bytes).map_err(failed)
    }

    /// The hubs that may have something to hear: those of the settings in their order, then those that are leaving.
    pub fn hubs_to_notify(&self) -> impl Iterator<Item = &HubUrl> {
        let leaving = self.hubs.iter().filter(|(_, record)| record.left.is_some());
        self.settings.hubs.iter().chain(leaving.map(|(hub, _)| hub))
    }

    /// The number of the last Change Notification that is not sent to this hub any more: it took it, or nobody has it.
    pub(crate) fn gone_for(&self, record: &HubRecord) -> u64 {
        record.sent.max(self.swept.unwrap_or_default())
    }

    /// The first document of a kind.
    pub fn document(&self, capability: &Capability) -> Option<&DocumentRecord> {
        self.documents.iter().find(|document| &document.capability == capability)
    }
}

/// Where the state of the site in `out` is kept.
pub fn path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("state.json")
}

/// Where the most recent notification is kept, for readers of the topic URI (FN-032).
pub(crate) fn notification_path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("notification.xml")
}

/// Where the most recent Change Notification is kept.
pub(crate) fn change_notification_path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("change-notification.xml")
}

fn parse(bytes: &[u8], path: PathBuf) -> Result<State, StateError> {
    #[derive(Deserialize)]
    struct Version {
        format: u64,
    }
    let damaged = |error: serde_json::Error, path| StateError::Damaged { path, reason: error.to_string() };
    match serde_json::from_slice::<Version>(bytes) {
        Ok(Version { format: found }) if found > u64::from(FORMAT) => Err(StateError::Newer { path, found }),
        Ok(_) => serde_json::from_slice(bytes).map_err(|error| damaged(error, path)),
        Err(error) => Err(damaged(error, path)),
    }
}

#[cfg(test)]
mod tests {
    use resync_core::digest::Algorithm;

    use super::*;
    use crate::settings::BaseUrl;

    fn sample() -> State {
        let hub = HubUrl::parse("http://hub.example.org/websub/").unwrap();
        let meaning = Digest::of(Algorithm::Sha256, b"meaning");
        let document = DocumentRecord {
            path: "resync/resourcelist-1.xml".into(),
            url: "http://example.org/resync/resourcelist-1.xml".into(),
            capability: Capability::ResourceList,
            part: Part::Component { index: "http://example.org/resync/resourcelist.xml".into() },
            meaning,
            content: Digest::of(Algorithm::Sha256, b"content"),
            stamp: None,
            version: 7,
            changed: DateTime::now(),
        };
        let known = KnownDocument { capability: Capability::ResourceList, part: Part::Whole, version: 6 };
        let record = HubRecord {
            known: BTreeMap::from([(document.url.clone(), known.clone())]),
            unconfirmed: BTreeMap::from([(document.url.clone(), KnownDocument { version: 7, ..known })]),
            left: Some(DateTime::now()),
            last: Some(Acknowledgement { at: DateTime::now(), status: 202, key: "k".into() }),
            ..HubRecord::new("http://example.org/resync/framework/")
        };
        let settings =
            Settings::new("/data", BaseUrl::parse("http://example.org/").unwrap()).hub(hub.clone());
        State::new(settings, (1, 2), vec![document], BTreeMap::from([(hub, record)]))
    }

    #[test]
    fn what_is_saved_is_loaded_again() {
        let out = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(out.path()).unwrap();
        sample().save(&lock).unwrap();
        let loaded = State::load(out.path()).unwrap();
        assert_eq!(loaded.documents[0].path, "resync/resourcelist-1.xml");
        loaded.save(&lock).unwrap();
        assert_eq!(State::load(out.path()).unwrap(), loaded);
    }

    #[test]
    fn a_newer_format_is_refused_by_name_and_left_alone() {
        let out = tempfile::tempdir().unwrap();
        let path = path(out.path());
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, r#"{"format": 2, "sets": []}"#).unwrap();
        let error = State::load(out.path()).unwrap_err();
        assert!(matches!(error, StateError::Newer { found: 2, .. }), "{error}");
        assert!(error.to_string().contains("newer resync-source"), "{error}");
    }

    #[test]
    fn damage_and_absence_are_told_apart() {
        let out = tempfile::tempdir().unwrap();
        assert!(matches!(State::load(out.path()), Err(StateError::NotBuilt { .. })));
        let path = path(out.path());
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, r#"{"format": 1, "settings"#).unwrap();
        assert!(matches!(State::load(out.path()), Err(StateError::Damaged { .. })));
    }
}
