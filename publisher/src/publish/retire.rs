//! Sets that the configuration names no more: the Source Description leads to them no longer, their documents go, the hubs are told so (RS-070, FN-010),
//! and then nothing of them is left.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use resync_core::{datetime::DateTime, document::Capability};

use super::BuildError;
use crate::{
    lock::Lock,
    plan::Plan,
    site::{self, DOCUMENT_FOLDER},
    state::{FOLDER, HubRecord, State, StateError},
};

/// A set that the configuration names no more, and of which leave cannot be taken, since its state cannot be read. It stays as it is.
#[derive(Clone, Debug)]
pub struct RetireFailure {
    /// The folder of its documents.
    pub out: PathBuf,
    /// Why it cannot.
    pub error: Arc<StateError>,
}

/// Takes leave of the sets that have documents in the site in `out` and are none of `staying`; gives those that stay all the same.
pub(super) fn retire(out: &Path, staying: &[PathBuf]) -> Result<Vec<RetireFailure>, BuildError> {
    let Leaving { sets, retire_failures } = leaving(out, staying)?;
    for set in sets {
        let lock = Lock::acquire(&set)?;
        let state = State::load(&set)?;
        if state.left.is_none() {
            tracing::info!(out = %set.display(), "the configuration no longer lists this set; removing it");
            leave(state).save(&lock)?;
            // What a run had still to do is of no use now.
            Plan::remove(&lock)?;
        }
    }
    Ok(retire_failures)
}

/// The sets of which leave would be taken, and those of which it cannot be.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    sets: Vec<PathBuf>,
    retire_failures: Vec<RetireFailure>,
}

impl Leaving {
    /// Whether no set would be lost.
    pub(super) fn is_empty(&self) -> bool {
        self.sets.is_empty() && self.retire_failures.is_empty()
    }
}

pub(super) fn leaving(out: &Path, staying: &[PathBuf]) -> Result<Leaving, BuildError> {
    let mut leaving = Leaving::default();
    for set in sets(out)?.into_iter().filter(|set| !staying.contains(set)) {
        match State::load(&set) {
            Ok(state) if state.left.is_some() => {}
            Ok(_) => leaving.sets.push(set),
            Err(error) => leaving.retire_failures.push(RetireFailure { out: set, error: Arc::new(error) }),
        }
    }
    Ok(leaving)
}

/// Removes the documents of sets that were taken leave of in the site in `out`, and what is remembered of those whose hubs all know it.
pub fn clear(out: &Path) -> Result<(), BuildError> {
    for set in left(out)? {
        // The Source Description is that of the others too.
        remove(&set.join(DOCUMENT_FOLDER))?;
        if State::load(&set)?.hubs.is_empty() {
            remove(&set.join(FOLDER))?;
            // A folder in which something else lies stays.
            let _ = fs::remove_dir(&set);
        }
    }
    Ok(())
}

/// The sets of the site in `out` that were taken leave of and of which something is left.
pub(crate) fn left(out: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let is_left = |set: &PathBuf| State::load(set).is_ok_and(|state| state.left.is_some());
    Ok(sets(out)?.into_iter().filter(is_left).collect())
}

fn sets(out: &Path) -> Result<Vec<PathBuf>, BuildError> {
    site::outs(out).map_err(|source| BuildError::Read { path: out.to_owned(), source })
}

/// Without documents but the Source Description, and with hubs that are leaving.
fn leave(mut state: State) -> State {
    let now = DateTime::now();
    state.left = Some(now);
    state.builds += 1;
    state.series = None;
    state.settings.hubs.clear();
    state.documents.retain(|record| record.capability == Capability::Description);
    let knows_it = |record: &HubRecord| {
        record
            .known
            .values()
            .chain(record.unconfirmed.values())
            .any(|published| published.capability == Capability::CapabilityList)
    };
    state.hubs.retain(|_, record| knows_it(record));
    for record in state.hubs.values_mut() {
        record.left.get_or_insert(now);
    }
    state
}

fn remove(folder: &Path) -> Result<(), BuildError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(BuildError::Write { path: folder.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}
