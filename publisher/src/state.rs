//! What must survive between two runs: the last build's settings and documents, and what each hub was last told.
//!
//! It lies in `OUT/.resync-source/`, a hidden folder that is never served: `state.json`, the last notification, and a lock file.

use std::{
    collections::BTreeMap,
    fmt::Display,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    str::FromStr,
};

use resync_core::{datetime::DateTime, digest::Digest, document::Capability};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    files,
    settings::{HubUrl, Settings},
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
    /// The documents of the site, in the order in which they are written.
    pub documents: Vec<DocumentRecord>,
    /// What each hub of the settings was last told.
    pub hubs: BTreeMap<HubUrl, HubRecord>,
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
    /// When its meaning last changed.
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

/// What one hub was last told, on one topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubRecord {
    /// The topic URI.
    pub topic: String,
    /// The documents as of the last acknowledged notification, by URL.
    pub told: BTreeMap<String, Told>,
    /// The last acknowledgement.
    pub last: Option<Acknowledgement>,
}

impl HubRecord {
    /// The record of a hub that knows nothing of `topic` yet.
    pub fn new(topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), told: BTreeMap::new(), last: None }
    }
}

/// A document as a hub was last told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// What it was.
    #[serde(with = "capability_token")]
    pub capability: Capability,
    /// Its place among documents that form one snapshot together.
    pub part: Part,
    /// Digest of what it said.
    #[serde(with = "text")]
    pub meaning: Digest,
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
    #[error("`{}` holds no site yet: run `resync-source build DIR --base-url URL --out {}` first", out.display(), out.display())]
    NotBuilt {
        /// The folder.
        out: PathBuf,
    },
    /// Written by a later program.
    #[error("`{}` has format {found}, and this program knows {FORMAT}: use the newer resync-source that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// No state in any format.
    #[error("`{}` is damaged ({reason}): remove it and build again; every hub is then told of every document once more", path.display())]
    Damaged {
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
        Self { format: FORMAT, settings, resources, bytes, documents, hubs }
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

/// The right to change a site: while it lives, other writers of the same OUT wait.
#[derive(Debug)]
pub(crate) struct Lock {
    out: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits until no other writer works on `out`.
    pub(crate) fn acquire(out: &Path) -> Result<Self, StateError> {
        let path = out.join(FOLDER).join("lock");
        let failed = |action, source| StateError::Io { action, path: path.clone(), source };
        files::make_folder(&out.join(FOLDER)).map_err(|source| failed("make the folder of", source))?;
        let file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| failed("open", source))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                tracing::info!(out = %out.display(), "waiting for another resync-source at work on this site");
                file.lock().map_err(|source| failed("lock", source))?;
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", source)),
        }
        Ok(Self { out: out.to_owned(), _file: file })
    }

    /// Replaces the state.
    pub(crate) fn save(&self, state: &State) -> Result<(), StateError> {
        let path = path(&self.out);
        let mut bytes = serde_json::to_vec_pretty(state).map_err(|error| StateError::Io {
            action: "write",
            path: path.clone(),
            source: error.into(),
        })?;
        bytes.push(b'\n');
        files::replace(&path, &bytes).map_err(|source| StateError::Io { action: "write", path, source })
    }
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

/// Values as their text form.
pub(crate) mod text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};
    use serde::de::Error as _;

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        input: D,
    ) -> Result<T, D::Error> {
        String::deserialize(input)?.parse().map_err(D::Error::custom)
    }
}

/// Lists of values in their text form.
pub(crate) mod text_list {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};
    use serde::de::Error as _;

    pub(crate) fn serialize<T: Display, S: Serializer>(values: &[T], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(values.iter().map(T::to_string))
    }

    pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Vec<T>, D::Error> {
        let texts = Vec::<String>::deserialize(input)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}

mod capability_token {
    use super::{Capability, Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Capability, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(value.token())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Capability, D::Error> {
        String::deserialize(input).map(|token| Capability::from(token.as_str()))
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
            changed: DateTime::now(),
        };
        let told = Told { capability: Capability::ResourceList, part: Part::Whole, meaning };
        let record = HubRecord {
            told: BTreeMap::from([(document.url.clone(), told)]),
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
        lock.save(&sample()).unwrap();
        let loaded = State::load(out.path()).unwrap();
        assert_eq!(loaded.documents[0].path, "resync/resourcelist-1.xml");
        lock.save(&loaded).unwrap();
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
