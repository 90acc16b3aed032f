//! Sets that the configuration no longer lists. The Source Description leaves them out, their documents are removed, the hubs are notified (RS-070, FN-010), and
//! then the rest is removed.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use resync_core::{datetime::DateTime, document::Capability};

use super::plan::Plan;
use crate::{
    error::{Action, Error},
    helpers::files,
    site::DOCUMENT_FOLDER,
    state::{FOLDER, Lock, State, set_folders},
};

/// A set that the configuration no longer lists and that cannot be retired, since its state cannot be read. It stays as it is.
#[derive(Clone, Debug)]
pub struct RetireFailure {
    /// The folder of its documents.
    pub out: PathBuf,
    /// Why its state cannot be read.
    pub error: Arc<Error>,
}

/// Retires the sets of the site in `out` that are none of `staying`; returns those that could not be retired.
pub(super) fn retire(out: &Path, staying: &[PathBuf]) -> Result<Vec<RetireFailure>, Error> {
    let Unlisted { sets, retire_failures } = unlisted(out, staying)?;
    for set in sets {
        let lock = Lock::acquire(&set)?;
        let state = State::load(&set)?;
        if state.retired.is_none() {
            tracing::info!(out = %set.display(), "the configuration no longer lists this set; removing it");
            retired(state).save(&lock)?;
            // An interrupted run need not be completed.
            Plan::remove(&lock)?;
        }
    }
    Ok(retire_failures)
}

/// The sets that would be retired, and those that cannot be.
#[derive(Debug, Default)]
pub(super) struct Unlisted {
    sets: Vec<PathBuf>,
    retire_failures: Vec<RetireFailure>,
}

impl Unlisted {
    /// Whether no set would be lost.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.retire_failures.is_empty()
    }
}

pub(super) fn unlisted(out: &Path, staying: &[PathBuf]) -> Result<Unlisted, Error> {
    let mut unlisted = Unlisted::default();
    for set in set_folders(out)?.into_iter().filter(|set| !staying.contains(set)) {
        match State::load(&set) {
            Ok(state) if state.retired.is_some() => {}
            Ok(_) => unlisted.sets.push(set),
            Err(error) => unlisted.retire_failures.push(RetireFailure { out: set, error: Arc::new(error) }),
        }
    }
    Ok(unlisted)
}

/// Removes the documents of the retired sets of the site in `out`, and the state of those whose hubs are all notified. Returns the sets that had documents.
pub fn clear(out: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut cleared = Vec::new();
    for set in retired_sets(out)? {
        // The Source Description belongs to the other sets too.
        let documents = set.join(DOCUMENT_FOLDER);
        let had_documents = documents.symlink_metadata().is_ok();
        remove(&documents)?;
        if State::load(&set)?.hubs.is_empty() {
            remove(&set.join(FOLDER))?;
            // A folder with other files stays.
            let _ = fs::remove_dir(&set);
        }
        if had_documents {
            cleared.push(set);
        }
    }
    Ok(cleared)
}

/// The retired sets of the site in `out` of which something is left.
pub(crate) fn retired_sets(out: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_retired = |set: &PathBuf| State::load(set).is_ok_and(|state| state.retired.is_some());
    Ok(set_folders(out)?.into_iter().filter(is_retired).collect())
}

/// Without documents but the Source Description, and with former hubs only.
fn retired(mut state: State) -> State {
    let now = DateTime::now();
    state.retired = Some(now);
    state.builds += 1;
    state.series = None;
    state.settings.hubs.clear();
    state.documents.retain(|record| record.capability == Capability::Description);
    state.hubs.retain(|_, record| {
        record.notified().any(|(_, document)| document.capability == Capability::CapabilityList)
    });
    for record in state.hubs.values_mut() {
        record.removed.get_or_insert(now);
    }
    state
}

fn remove(folder: &Path) -> Result<(), Error> {
    files::remove_folder(folder).map_err(Error::cannot(Action::Write, folder))
}
