//! What a run is about to publish, saved before it begins, so that the next run can complete it after a crash: each change is published once, in its order.
//!
//! The next inventory and the changes lie beside it (see [`crate::inventory`]). The plan is removed once the state has the run.

use std::path::{Path, PathBuf};

use resync_core::datetime::DateTime;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Action, Error},
    helpers::{
        files,
        serde_text::{text, text_option},
    },
    inventory::Changes,
    settings::Settings,
    state::{FOLDER, Lock, StoredPosition, Totals, parse_format},
    versions::Taken,
};

/// The version of `plan.json`.
const FORMAT: u32 = 1;

/// A run that is decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) format: u32,
    /// The number of the build.
    pub(super) build: u64,
    pub(super) settings: Settings,
    #[serde(with = "text")]
    pub(super) started: DateTime,
    #[serde(with = "text")]
    pub(super) completed: DateTime,
    #[serde(with = "text")]
    pub(super) until: DateTime,
    #[serde(flatten)]
    pub(super) totals: Totals,
    pub(super) changes: Changes,
    /// Where the Change Lists continue; `None` starts them anew.
    pub(super) position: Option<StoredPosition>,
    /// Whether the Resource List is written.
    pub(super) lists_resources: bool,
    /// What was closed up to this moment goes to the archives.
    #[serde(with = "text_option")]
    pub(super) archive: Option<DateTime>,
    /// The versions that the run saw for the first time.
    #[serde(default)]
    pub(super) versions: Option<Taken>,
}

impl Plan {
    /// Of a run with these settings, before anything is decided.
    pub(super) fn new(build: u64, settings: Settings, started: DateTime) -> Self {
        Self {
            format: FORMAT,
            build,
            settings,
            started,
            completed: started,
            until: started,
            totals: Totals::default(),
            changes: Changes::default(),
            position: None,
            lists_resources: false,
            archive: None,
            versions: None,
        }
    }

    /// The plan of an interrupted run.
    pub(super) fn load(out: &Path) -> Result<Option<Self>, Error> {
        let path = path(out);
        let Some(bytes) = files::read_if_there(&path).map_err(Error::cannot(Action::Read, &path))? else {
            return Ok(None);
        };
        let damaged = |reason| Error::DamagedPlan { path: path.clone(), reason };
        parse_format(&bytes, &path, FORMAT, damaged).map(Some)
    }

    /// Whether there is an interrupted run.
    pub(super) fn exists(out: &Path) -> bool {
        path(out).exists()
    }

    pub(super) fn save(&self, lock: &Lock) -> Result<(), Error> {
        let path = path(lock.out());
        files::replace_json(&path, self).map_err(Error::cannot(Action::Write, &path))
    }

    /// The run is complete. A crash may bring the plan back: the state has the run, so nothing is done again. It cannot once the next
    /// inventory has its name, which such a plan would take for its own (`inventory::Writing::publish`).
    pub(super) fn remove(lock: &Lock) -> Result<(), Error> {
        let path = path(lock.out());
        files::remove_unsynced(&path).map_err(Error::cannot(Action::Remove, &path))
    }
}

fn path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("plan.json")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_newer_plan_is_refused_by_name_whatever_is_in_it_and_is_not_called_damaged() {
        let out = tempfile::tempdir().unwrap();
        let path = path(out.path());
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, r#"{"format": 2, "steps": []}"#).unwrap();
        let error = Plan::load(out.path()).unwrap_err();
        assert!(matches!(error, Error::Newer { found: 2, supported: 1, .. }), "{error}");
        fs::write(&path, r#"{"format": 1, "steps": []}"#).unwrap();
        let error = Plan::load(out.path()).unwrap_err();
        assert!(matches!(error, Error::DamagedPlan { .. }), "{error}");
    }
}
