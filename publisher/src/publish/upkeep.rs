//! What a build does besides where the [rules](crate::settings::Rules) say that it is time: archives and dumps.
//!
//! Archiving is a run of its own, with a plan. A dump needs none: one that was cut short is not on record, so it is still due.

use std::{fs::File, io, io::BufReader, time::Duration};

use resync_core::{
    build,
    datetime::DateTime,
    xml::{ReadError, Reader},
};

use super::{
    BuildError, Progress, Written,
    dumps::{Dump, pack},
    elapsed, run,
};
use crate::{
    lock::Lock,
    plan::Plan,
    site::{DOCUMENT_FOLDER, Site},
    state::State,
};

/// Does what is due now; gives the documents that were written.
pub(super) fn upkeep(
    lock: &Lock,
    now: DateTime,
    tell: &dyn Fn(Progress),
) -> Result<Vec<Written>, BuildError> {
    let mut written = archive(lock, now)?;
    for what in [Dump::Resources, Dump::Changes] {
        if !is_due(&State::load(lock.out())?, what, now) {
            continue;
        }
        match pack(lock, what, tell) {
            Ok(dumped) => written.extend(dumped.written),
            // A file has changed again since it was listed; the next build tells that, and then there is a dump.
            Err(BuildError::Lists(error @ build::BuildError::BytesGone { .. })) => {
                tracing::warn!(%error, "the Change Dump waits for the next build");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// Moves what was closed long enough ago to the archives.
fn archive(lock: &Lock, now: DateTime) -> Result<Vec<Written>, BuildError> {
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
        resources: state.resources,
        bytes: state.bytes,
        ..Plan::new(state.builds + 1, state.settings.clone(), now)
    };
    plan.save(lock)?;
    Ok(run::publish(&plan, false, lock, &|_| ())?.written)
}

fn before(now: DateTime, age: Duration) -> DateTime {
    let now = now.to_system_time();
    DateTime::from_system_time(now.checked_sub(age).unwrap_or(std::time::UNIX_EPOCH))
}

/// Whether an index lists a document that was closed up to this moment.
fn closed_up_to(lock: &Lock, state: &State, stem: &str, moment: DateTime) -> Result<bool, BuildError> {
    let name = format!("{DOCUMENT_FOLDER}/{stem}.xml");
    let unreadable = |source| build::BuildError::Published { name: name.clone(), source };
    let path = lock.out().join(Site::of(&state.settings).place(&name).path);
    let index = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(unreadable(ReadError::Io(error)).into()),
        Ok(file) => Reader::new(BufReader::new(file)).map_err(unreadable)?,
    };
    // They are listed in their order.
    let first = index.into_iter().next().transpose().map_err(unreadable)?;
    let until = first.and_then(|first| first.metadata?.until);
    Ok(until.is_some_and(|until| until <= moment))
}

/// Whether the last dump is old and there is something that it does not hold.
fn is_due(state: &State, what: Dump, now: DateTime) -> bool {
    let rules = state.settings.rules;
    let every = match what {
        Dump::Resources => rules.resource_dump_seconds,
        Dump::Changes => rules.change_dump_seconds,
    };
    let (Some(every), Some(series)) = (every.map(Duration::from_secs), &state.series) else { return false };
    let of_its_kind = state.documents.iter().filter(|record| record.capability == what.capability());
    match (of_its_kind.map(|record| record.changed).max(), what) {
        (Some(last), _) => series.until > last && elapsed(last, now) >= every,
        (None, Dump::Resources) => state.resources > 0,
        (None, Dump::Changes) => series.position.document > 1 || series.position.entries > 0,
    }
}
