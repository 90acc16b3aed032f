//! What is kept of versions after a run.

use std::path::Path;

use crate::{
    error::Error,
    publish::plan::Plan,
    state::{KeptVersions, State},
    versions::{advanced, remove_all},
};

/// What is kept after this plan. Where the settings keep nothing, what was kept before is removed.
pub(super) fn after(out: &Path, plan: &Plan, before: Option<&State>) -> Result<Option<KeptVersions>, Error> {
    let before = before.and_then(|state| state.versions.as_ref());
    if !plan.settings.versions.are_kept() {
        return before.map_or(Ok(()), |_| remove_all(out)).map(|()| None);
    }
    let Some(taken) = &plan.versions else { return Ok(before.cloned()) };
    Ok(Some(advanced(before, taken)))
}
