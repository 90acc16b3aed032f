//! What must survive between two runs: settings and documents of the last build, and what each hub acknowledged.
//!
//! It lies in `OUT/.resync-source/`, a hidden folder that is never served: `state.json`, the last notifications, and lock files.
//!
//! What a hub acknowledged is recorded by *version*, a number that a document gets when a build gives it new content and that never returns. Content may
//! return when a change is undone, and a Destination that saw the content between must be notified of that too.

mod lock;
mod versions;

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
};

use resync_core::{
    build::{Position, Stamp},
    datetime::DateTime,
    digest::Digest,
    document::Capability,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub(crate) use self::lock::{DumpLock, Lock, is_lock, lock_configuration, lock_description, lock_hub};
pub use self::versions::{KeptVersions, Segment};
use crate::{
    error::{Action, Error},
    helpers::{
        files,
        serde_text::{capability_token, text, text_option},
    },
    settings::{HubUrl, Settings},
};

/// The version of `state.json` that this program writes. It reads this one only, and refuses newer ones by name.
pub const FORMAT: u32 = 1;

/// The folder of the state, under OUT.
pub(crate) const FOLDER: &str = ".resync-source";

/// The content of `state.json`, to be read: only builds and notifications write it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    format: u32,
    /// The settings of the last build.
    pub settings: Settings,
    /// What the Resource List contains.
    #[serde(flatten)]
    pub totals: Totals,
    /// Number of builds so far.
    pub builds: u64,
    /// The documents of the site, in the order in which they are written.
    pub documents: Vec<DocumentRecord>,
    /// What each hub acknowledged: those of the settings, and former ones (see [`HubRecord::removed`]).
    pub hubs: BTreeMap<HubUrl, HubRecord>,
    /// The topic of the last Framework Notification that a hub accepted.
    pub notified_on: Option<String>,
    /// The topic of the last Change Notification that a hub accepted.
    pub changes_on: Option<String>,
    /// The number of the last Change Notification; they are counted from 1.
    pub outbox: u64,
    /// Change Notifications up to this number are no longer stored.
    pub swept: u64,
    /// About how many bytes the stored Change Notifications have together.
    pub outbox_bytes: u64,
    /// How far the Change Lists have come; absent in a retired set.
    pub series: Option<Series>,
    /// How far the newest dumps go.
    pub dumped: LastDumps,
    /// The versions of resources that are kept; absent where none are.
    #[serde(default)]
    pub versions: Option<KeptVersions>,
    /// When the configuration ceased to list the set. What is left of it waits until its hubs are notified.
    #[serde(with = "text_option")]
    pub retired: Option<DateTime>,
}

/// How many resources there are, and how long they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Number of resources.
    pub resources: u64,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
}

/// The Change Lists of a site, and the Resource List that they follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// All changes up to this time are listed.
    #[serde(with = "text")]
    pub until: DateTime,
    /// Where the next change goes.
    pub position: StoredPosition,
    /// When the inventory in the Resource List was begun.
    #[serde(with = "text")]
    pub listed: DateTime,
    /// Number of changes since then.
    pub since: u64,
    /// When the first of the Change Lists was begun.
    #[serde(with = "text")]
    pub begun: DateTime,
}

/// A [`Position`] as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPosition {
    /// The number of the document, counted from 1.
    pub document: u64,
    /// Its number of entries.
    pub entries: u64,
}

impl From<Position> for StoredPosition {
    fn from(Position { document, entries }: Position) -> Self {
        Self { document, entries }
    }
}

impl From<StoredPosition> for Position {
    fn from(StoredPosition { document, entries }: StoredPosition) -> Self {
        Self { document, entries }
    }
}

/// Up to when the newest dump of each kind has all changes; absent where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastDumps {
    /// The Resource Dump.
    #[serde(with = "text_option")]
    pub resources: Option<DateTime>,
    /// The Change Dump.
    #[serde(with = "text_option")]
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
    /// Digest of its bytes.
    #[serde(with = "text")]
    pub content: Digest,
    /// Its file as it was written.
    #[serde(with = "text_option")]
    pub stamp: Option<Stamp>,
    /// The number of the build that gave it this content.
    pub version: u64,
    /// When that was.
    #[serde(with = "text")]
    pub changed: DateTime,
}

impl DocumentRecord {
    /// Whether no index of the site lists it.
    pub(crate) fn is_top(&self) -> bool {
        !matches!(self.part, Part::Component { .. })
    }
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

/// What one hub acknowledged of the framework channel's topic, and of the Change Notifications.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubRecord {
    /// The topic URI.
    pub topic: String,
    /// The documents as of the last acknowledged notification, by URL.
    pub acknowledged: BTreeMap<String, NotifiedDocument>,
    /// The documents as of notifications since then that got no answer, by URL. Written before anything is posted.
    pub unconfirmed: BTreeMap<String, NotifiedDocument>,
    /// The last acknowledgement.
    pub last: Option<Acknowledgement>,
    /// The number of the last Change Notification that it accepted, or that was omitted for it.
    pub sent: u64,
    /// Why the last attempt to notify it failed.
    pub trouble: Option<Trouble>,
    /// When this hub was dropped. It stays on record until it accepted a notification of the Capability List that no longer names it (FN-009), without
    /// which its subscribers would wait there for ever.
    #[serde(with = "text_option")]
    pub removed: Option<DateTime>,
}

impl HubRecord {
    /// The record of a hub that was never notified of `topic`.
    pub fn new(topic: impl Into<String>) -> Self {
        let (acknowledged, unconfirmed) = (BTreeMap::new(), BTreeMap::new());
        let (last, sent, trouble, removed) = (None, 0, None, None);
        Self { topic: topic.into(), acknowledged, unconfirmed, last, sent, trouble, removed }
    }

    /// All documents that the hub was notified of, or may have been.
    pub(crate) fn notified(&self) -> impl Iterator<Item = (&String, &NotifiedDocument)> {
        let doubtful = self.unconfirmed.iter().filter(|(url, _)| !self.acknowledged.contains_key(*url));
        self.acknowledged.iter().chain(doubtful)
    }
}

/// A document as of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifiedDocument {
    /// What it was.
    #[serde(with = "capability_token")]
    pub capability: Capability,
    /// Its place among documents that form one snapshot together.
    pub part: Part,
    /// Its version.
    pub version: u64,
}

/// Why a hub could not be notified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// When the first attempt failed.
    #[serde(with = "text")]
    pub since: DateTime,
    /// How the last attempt failed.
    pub reason: String,
    /// The number of the Change Notification that it refused, and will refuse again. Later ones wait.
    pub refused: Option<u64>,
    /// How many Change Notifications were omitted since then, because they had waited for a week, or too many waited.
    pub left_out: u64,
}

impl Trouble {
    /// Another failure after the trouble before.
    pub(crate) fn after(before: Option<&Self>, reason: String) -> Self {
        let since = before.map_or_else(DateTime::now, |before| before.since);
        Self { since, reason, refused: None, left_out: before.map_or(0, |before| before.left_out) }
    }
}

/// A notification that a hub accepted.
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

impl State {
    /// The state after a first build.
    pub fn new(
        settings: Settings,
        totals: Totals,
        documents: Vec<DocumentRecord>,
        hubs: BTreeMap<HubUrl, HubRecord>,
    ) -> Self {
        Self {
            format: FORMAT,
            settings,
            totals,
            builds: 1,
            documents,
            hubs,
            notified_on: None,
            changes_on: None,
            outbox: 0,
            swept: 0,
            outbox_bytes: 0,
            series: None,
            dumped: LastDumps::default(),
            versions: None,
            retired: None,
        }
    }

    /// Reads the state of the site in `out`. Takes no lock: the file is always whole.
    pub fn load(out: &Path) -> Result<Self, Error> {
        Self::load_if_built(out)?.ok_or_else(|| Error::NotBuilt { out: out.to_owned() })
    }

    /// Reads the state of the site in `out`, if one was ever built there.
    pub fn load_if_built(out: &Path) -> Result<Option<Self>, Error> {
        let path = path(out);
        let bytes = files::read_if_there(&path).map_err(Error::cannot(Action::Read, &path))?;
        bytes.map(|bytes| parse(&bytes, &path)).transpose()
    }

    /// Replaces the state.
    pub(crate) fn save(&self, lock: &Lock) -> Result<(), Error> {
        let path = path(lock.out());
        files::replace_json(&path, self).map_err(Error::cannot(Action::Write, &path))
    }

    /// The hubs that may have to be notified: those of the settings in their order, then former ones.
    pub fn hubs_to_notify(&self) -> impl Iterator<Item = &HubUrl> {
        let former = self.hubs.iter().filter(|(_, record)| record.removed.is_some());
        self.settings.hubs.iter().chain(former.map(|(hub, _)| hub))
    }

    /// The hubs that the settings no longer name and that nobody dropped. What waits for them is kept, in case they are named again.
    pub fn hubs_on_hold(&self) -> impl Iterator<Item = (&HubUrl, &HubRecord)> {
        self.hubs.iter().filter(|(hub, record)| record.removed.is_none() && !self.settings.hubs.contains(hub))
    }

    /// The numbers of the Change Notifications that wait for a hub.
    pub(crate) fn waiting_for(&self, record: &HubRecord) -> Range<u64> {
        let end = self.outbox + 1;
        let first = record.sent.max(self.swept) + 1;
        if record.removed.is_some() { end..end } else { first.min(end)..end }
    }

    /// The documents of a kind.
    pub(crate) fn of_kind(&self, capability: &Capability) -> impl Iterator<Item = &DocumentRecord> + Clone {
        self.documents.iter().filter(move |document| document.capability == *capability)
    }

    /// The first document of a kind.
    pub fn document(&self, capability: &Capability) -> Option<&DocumentRecord> {
        self.of_kind(capability).next()
    }
}

/// The folders under which the sets of the site in `out` have their documents and state: `out` itself, or one for each set, in the order of their names.
/// Empty before the first build.
pub fn set_folders(out: &Path) -> Result<Vec<PathBuf>, Error> {
    let folders = files::folders_in(out).map_err(Error::cannot(Action::Read, out))?;
    let all = std::iter::once(out.to_owned()).chain(folders);
    Ok(all.filter(|folder| path(folder).is_file()).collect())
}

/// The file of the state of the site in `out`.
pub fn path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("state.json")
}

/// The file of the last Framework Notification, for readers of the topic URI (FN-032).
pub(crate) fn notification_path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("notification.xml")
}

/// The file of the last Change Notification, for readers of its topic URI.
pub(crate) fn change_notification_path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("change-notification.xml")
}

fn parse(bytes: &[u8], path: &Path) -> Result<State, Error> {
    parse_format(bytes, path, FORMAT, |reason| Error::Damaged { path: path.to_owned(), reason })
}

/// Reads JSON that says its `format`. Of a newer one nothing else is read, since nobody knows what it means.
pub(crate) fn parse_format<T: DeserializeOwned>(
    bytes: &[u8],
    path: &Path,
    supported: u32,
    damaged: impl Fn(String) -> Error,
) -> Result<T, Error> {
    #[derive(Deserialize)]
    struct Version {
        format: u64,
    }
    let unreadable = |error: serde_json::Error| damaged(error.to_string());
    let Version { format: found } = serde_json::from_slice(bytes).map_err(&unreadable)?;
    match found.cmp(&u64::from(supported)) {
        Ordering::Greater => Err(Error::Newer { path: path.to_owned(), found, supported }),
        Ordering::Less => Err(damaged(format!("there is no format {found}"))),
        Ordering::Equal => serde_json::from_slice(bytes).map_err(unreadable),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use resync_core::digest::Algorithm;

    use super::*;
    use crate::settings::BaseUrl;

    fn sample() -> State {
        let hub = HubUrl::parse("http://hub.example.org/websub/").unwrap();
        let document = DocumentRecord {
            path: "resync/resourcelist-1.xml".into(),
            url: "http://example.org/resync/resourcelist-1.xml".into(),
            capability: Capability::ResourceList,
            part: Part::Component { index: "http://example.org/resync/resourcelist.xml".into() },
            content: Digest::of(Algorithm::Sha256, b"content"),
            stamp: None,
            version: 7,
            changed: DateTime::now(),
        };
        let known = NotifiedDocument { capability: Capability::ResourceList, part: Part::Whole, version: 6 };
        let record = HubRecord {
            acknowledged: BTreeMap::from([(document.url.clone(), known.clone())]),
            unconfirmed: BTreeMap::from([(document.url.clone(), NotifiedDocument { version: 7, ..known })]),
            removed: Some(DateTime::now()),
            last: Some(Acknowledgement { at: DateTime::now(), status: 202, key: "k".into() }),
            ..HubRecord::new("http://example.org/resync/framework/")
        };
        let settings =
            Settings::new("/data", BaseUrl::parse("http://example.org/").unwrap()).hub(hub.clone());
        State::new(
            settings,
            Totals { resources: 1, bytes: 2 },
            vec![document],
            BTreeMap::from([(hub, record)]),
        )
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

    /// Each format that was ever released has a file here.
    #[test]
    fn a_state_of_an_archived_format_is_read() {
        let archived = include_str!("format-1.json");
        let state = parse(archived.as_bytes(), Path::new("format-1.json")).unwrap();
        assert_eq!(serde_json::to_string_pretty(&state).unwrap(), archived.trim_end());
    }

    #[test]
    fn a_newer_format_is_refused_by_name_and_left_alone() {
        let out = tempfile::tempdir().unwrap();
        let path = path(out.path());
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, r#"{"format": 2, "sets": []}"#).unwrap();
        let error = State::load(out.path()).unwrap_err();
        assert!(matches!(error, Error::Newer { found: 2, .. }), "{error}");
        assert!(error.to_string().contains("newer resync-source"), "{error}");
    }

    #[test]
    fn damage_and_absence_are_told_apart() {
        let out = tempfile::tempdir().unwrap();
        assert!(matches!(State::load(out.path()), Err(Error::NotBuilt { .. })));
        let path = path(out.path());
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, r#"{"format": 1, "settings"#).unwrap();
        assert!(matches!(State::load(out.path()), Err(Error::Damaged { .. })));
    }
}
