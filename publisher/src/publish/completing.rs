//! Completes an interrupted run.

use std::path::Path;

use resync_core::durable;

use super::{OWN_FOLDERS, Written, archives, execution, plan::Plan};
use crate::{
    error::{Action, Error},
    helpers::files,
    inventory::Changes,
    state::Lock,
};

/// Completes an interrupted run; returns its changes, and what was written.
pub(crate) fn complete(lock: &Lock) -> Result<(Changes, Vec<Written>), Error> {
    let Some(plan) = Plan::load(lock.out())? else { return Ok(Default::default()) };
    tracing::info!(build = plan.build, "completing an interrupted run");
    keep_what_is_done(lock.out())?;
    let done = match execution::publish(&plan, true, None, lock, &|_| ()) {
        Err(error) if plan.archive.is_some() => {
            tracing::warn!(%error, "cannot archive; the documents stay in place for now");
            return Ok((Changes::default(), archives::give_up(lock, plan)?));
        }
        done => done?,
    };
    for failure in &done.failures {
        tracing::warn!("{failure}");
    }
    let changes = if done.records.is_empty() { Changes::default() } else { plan.changes };
    Ok((changes, done.written))
}

/// A run that was killed between a rename and the sync of its folder leaves names that a power cut can take back. To complete it renames
/// nothing again, so these are synced before its plan goes.
fn keep_what_is_done(out: &Path) -> Result<(), Error> {
    for folder in OWN_FOLDERS.map(|folder| out.join(folder)) {
        files::if_there(durable::sync_folder(&folder)).map_err(Error::cannot(Action::Write, &folder))?;
    }
    Ok(())
}
