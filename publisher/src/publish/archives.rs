//! Archives that are due: documents that were closed long enough ago move there.
//!
//! Archiving is a run of its own, with a plan. A dump needs none: an interrupted one is not on record, so it is still due.

use std::{fs::File, io::BufReader, time::Duration};

use resync_core::{
    build,
    datetime::DateTime,
    xml::{ReadError, Reader},
};

use super::{
    Written, execution,
    maintenance::{Maintenance, MaintenanceFailure, MaintenanceReport},
    plan::Plan,
};
use crate::{
    error::Error,
    helpers::files,
    site::{DOCUMENT_FOLDER, Site},
    state::{Lock, State},
};

/// Archives what is old enough.
pub(super) fn make(lock: &Lock, now: DateTime) -> MaintenanceReport {
    let mut report = MaintenanceReport::default();
    match archive(lock, now) {
        Ok(written) => report.written = written,
        Err(error) => report.failures.push(MaintenanceFailure::of(Maintenance::Archives, error)),
    }
    report
}

/// Moves what was closed long enough ago to the archives.
fn archive(lock: &Lock, now: DateTime) -> Result<Vec<Written>, Error> {
    let state = State::load(lock.out())?;
    let (Some(age), Some(series)) = (state.settings.rules.archive_age(), &state.series) else {
        return Ok(Vec::new());
    };
    let before = before(now, age);
    if !(closed_up_to(lock, &state, "changelist", before)?
        || closed_up_to(lock, &state, "changedump", before)?)
    {
        return Ok(Vec::new());
    }
    let plan = Plan {
        archive: Some(before),
        position: Some(series.position),
        until: series.until,
        totals: state.totals,
        ..Plan::new(state.builds + 1, state.settings.clone(), now)
    };
    plan.save(lock)?;
    execution::publish(&plan, false, None, lock, &|_| ()).map(|done| done.written).or_else(|error| {
        give_up(lock, plan)?;
        Err(error)
    })
}

/// Ends an archiving run that cannot be completed, so that it does not block other runs. What it has done stays: a document may be in both the archive and
/// its index, and the next archiving run continues from there.
pub(super) fn give_up(lock: &Lock, plan: Plan) -> Result<Vec<Written>, Error> {
    let plan = Plan { archive: None, ..plan };
    plan.save(lock)?;
    Ok(execution::publish(&plan, true, None, lock, &|_| ())?.written)
}

fn before(now: DateTime, age: Duration) -> DateTime {
    let now = now.to_system_time();
    DateTime::from_system_time(now.checked_sub(age).unwrap_or(std::time::UNIX_EPOCH))
}

/// Whether an index lists a document that was closed up to this moment.
fn closed_up_to(lock: &Lock, state: &State, stem: &str, moment: DateTime) -> Result<bool, Error> {
    let name = format!("{DOCUMENT_FOLDER}/{stem}.xml");
    let unreadable = |source| build::BuildError::Published { name: name.clone(), source };
    let path = lock.out().join(Site::of(&state.settings).place(&name).path);
    let file = files::if_there(File::open(path)).map_err(|error| unreadable(ReadError::Io(error)))?;
    let Some(file) = file else { return Ok(false) };
    let index = Reader::new(BufReader::new(file)).map_err(unreadable)?;
    // They are listed in their order.
    let first = index.into_iter().next().transpose().map_err(unreadable)?;
    let until = first.and_then(|first| first.metadata?.until);
    Ok(until.is_some_and(|until| until <= moment))
}
