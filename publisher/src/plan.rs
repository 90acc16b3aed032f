//! What a run is about to publish, on disk before it begins, so that the next run completes what a crash cut short: each change is told
//! once, in its order.
//!
//! The next inventory and the changes lie beside it (see [`crate::inventory`]). It is gone when the state tells of the run.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use resync_core::{build::Position, datetime::DateTime};
use serde::{Deserialize, Serialize};

use crate::{
    files,
    inventory::Changes,
    lock::Lock,
    settings::Settings,
    state::{FOLDER, StateError},
    stored::{text, text_option},
};

/// The version of `plan.json` that this program writes, and the only one that it goes on with.
const FORMAT: u32 = 1;

/// A run that is decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) format: u32,
    /// The number of the build.
    pub(crate) build: u64,
    pub(crate) settings: Settings,
    #[serde(with = "text")]
    pub(crate) started: DateTime,
    #[serde(with = "text")]
    pub(crate) completed: DateTime,
    #[serde(with = "text")]
    pub(crate) until: DateTime,
    pub(crate) resources: u64,
    pub(crate) bytes: u64,
    pub(crate) changes: Changes,
    /// Where the Change Lists go on; `None` starts them anew.
    pub(crate) position: Option<StoredPosition>,
    /// Whether the Resource List is written.
    pub(crate) lists_resources: bool,
    /// What was closed up to this moment goes to the archives.
    #[serde(default, with = "text_option")]
    pub(crate) archive: Option<DateTime>,
}

/// A [`Position`] as it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPosition {
    /// The number of the document, counted from 1.
    pub document: u64,
    /// How many entries it has.
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

impl Plan {
    /// Of a run of `settings`, before anything is decided.
    pub(crate) fn new(build: u64, settings: Settings, started: DateTime) -> Self {
        Self {
            format: FORMAT,
            build,
            settings,
            started,
            completed: started,
            until: started,
            resources: 0,
            bytes: 0,
            changes: Changes::default(),
            position: None,
            lists_resources: false,
            archive: None,
        }
    }

    /// The plan of a run that was cut short.
    pub(crate) fn load(out: &Path) -> Result<Option<Self>, StateError> {
        let path = path(out);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(StateError::Io { action: "read", path, source }),
        };
        match serde_json::from_slice::<Self>(&bytes) {
            Ok(plan) if plan.format == FORMAT => Ok(Some(plan)),
            Ok(plan) => Err(StateError::Newer { path, found: plan.format.into() }),
            Err(error) => Err(StateError::DamagedPlan { path, reason: error.to_string() }),
        }
    }

    /// Whether a run was cut short that has one.
    pub(crate) fn is_kept(out: &Path) -> bool {
        path(out).exists()
    }

    pub(crate) fn save(&self, lock: &Lock) -> Result<(), StateError> {
        let path = path(lock.out());
        let failed = |source| StateError::Io { action: "write", path: path.clone(), source };
        let bytes = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        files::replace(&path, &bytes).map_err(failed)
    }

    /// The run is through. After a crash the plan may be back: the state tells of the run, so that nothing is done again.
    pub(crate) fn remove(lock: &Lock) -> Result<(), StateError> {
        let path = path(lock.out());
        files::remove_for_now(&path).map_err(|source| StateError::Io { action: "remove", path, source })
    }
}

fn path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("plan.json")
}
