//! What a build does besides where the [rules](crate::settings::Rules) say that it is time: archives and dumps.
//!
//! Archiving is a run of its own, with a plan. A dump needs none: one that was cut short is not on record, so it is still due.

use std::{
    fmt,
    fs::File,
    io,
    io::BufReader,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use resync_core::{
    build,
    datetime::DateTime,
    xml::{ReadError, Reader},
};

use super::{
    BuildError, BuildMode, Claim, Progress, Written,
    dumps::{Dump, make},
    planning::elapsed,
    run,
};
use crate::{
    lock::{DumpLock, Lock},
    plan::Plan,
    site::{DOCUMENT_FOLDER, Site},
    state::{DocumentRecord, Part, State},
};

/// What a build does besides, by the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maintenance {
    /// What was closed long enough ago moves to the archives.
    Archives,
    /// A dump is made.
    Dump(Dump),
}

/// What was due and failed. The changes are published all the same, and the next build tries again.
#[derive(Clone, Debug)]
pub struct MaintenanceFailure {
    /// What was to be done.
    pub what: Maintenance,
    /// Why it was not.
    pub error: Arc<BuildError>,
}

impl MaintenanceFailure {
    pub(super) fn of(what: Maintenance, error: impl Into<BuildError>) -> Self {
        Self { what, error: Arc::new(error.into()) }
    }
}

impl fmt::Display for MaintenanceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            Maintenance::Archives => "a due archive was not made",
            Maintenance::Dump(Dump::Resources) => "a due Resource Dump was not made",
            Maintenance::Dump(Dump::Changes) => "a due Change Dump was not made",
        };
        write!(f, "{what}: {}", self.error)
    }
}

/// The pauses after failures in a row double from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LAST_PAUSE: Duration = Duration::from_secs(3600);

/// Pauses after dumps that were due and failed, for who builds again and again: each attempt can cost as much as the collection is large. Who starts
/// a program anew has them tried at once.
#[derive(Debug, Default)]
pub(crate) struct DumpBackoff {
    resources: Pause,
    changes: Pause,
}

#[derive(Debug, Default)]
struct Pause {
    length: Duration,
    until: Option<Instant>,
}

impl DumpBackoff {
    fn of(&mut self, what: Dump) -> &mut Pause {
        match what {
            Dump::Resources => &mut self.resources,
            Dump::Changes => &mut self.changes,
        }
    }
}

impl Pause {
    fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// An attempt failed.
    fn failed(&mut self, now: Instant) {
        let length = (self.length * 2).clamp(FIRST_PAUSE, LAST_PAUSE);
        *self = Self { length, until: now.checked_add(length) };
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct MaintenanceReport {
    /// The documents that were written.
    pub written: Vec<Written>,
    /// What was due and failed.
    pub failures: Vec<MaintenanceFailure>,
    /// Whether a dump is due that was left to who makes it beside the builds.
    pub(super) dump_is_due: bool,
    /// When the next one comes due of those that are not due now, or that rest, even should nothing change until then.
    pub(crate) next_dump: Option<Instant>,
}

/// Archives what is of an age for it.
pub(super) fn archives(lock: &Lock, now: DateTime) -> MaintenanceReport {
    let mut maintenance = MaintenanceReport::default();
    match archive(lock, now) {
        Ok(written) => maintenance.written = written,
        Err(error) => maintenance.failures.push(MaintenanceFailure::of(Maintenance::Archives, error)),
    }
    maintenance
}

/// Makes the dumps that are due, for who has not locked the site, or says that there are any.
pub(super) fn dumps(
    (out, claim): (&Path, Option<&Claim>),
    mode: BuildMode,
    backoff: &mut DumpBackoff,
    tell: &dyn Fn(Progress),
) -> MaintenanceReport {
    let mut maintenance = MaintenanceReport::default();
    // A plan that is kept is the next thing that may be carried out here.
    if Plan::is_kept(out) {
        return maintenance;
    }
    let mut loaded = State::load(out);
    for what in [Dump::Resources, Dump::Changes] {
        let Ok(state) = &loaded else { break };
        if !backoff.of(what).is_over(Instant::now()) {
            continue;
        }
        if !is_due(state, what) {
            *backoff.of(what) = Pause::default();
            continue;
        }
        if mode != BuildMode::Full {
            maintenance.dump_is_due = true;
            continue;
        }
        match dump((out, claim), what, tell) {
            Ok(Some(written)) => {
                *backoff.of(what) = Pause::default();
                maintenance.written.extend(written);
            }
            Ok(None) => backoff.of(what).failed(Instant::now()),
            Err(error) => {
                backoff.of(what).failed(Instant::now());
                maintenance.failures.push(MaintenanceFailure::of(Maintenance::Dump(what), error));
            }
        }
        // That took long, and others went on.
        loaded = State::load(out);
    }
    match loaded {
        Ok(state) => maintenance.next_dump = next_dump(&state, backoff),
        Err(error) => {
            maintenance.failures.push(MaintenanceFailure::of(Maintenance::Dump(Dump::Resources), error));
        }
    }
    maintenance
}

fn next_dump(state: &State, backoff: &mut DumpBackoff) -> Option<Instant> {
    let now = Instant::now();
    let next = [Dump::Resources, Dump::Changes].into_iter().filter_map(|what| {
        let due = now.checked_add(due_in(state, what)?)?;
        let at = backoff.of(what).until.map_or(due, |until| due.max(until));
        (at > now).then_some(at)
    });
    next.min()
}

/// Makes a dump if it is still due; gives what was written, and none where the dump waits for the next build.
fn dump(
    place: (&Path, Option<&Claim>),
    what: Dump,
    tell: &dyn Fn(Progress),
) -> Result<Option<Vec<Written>>, BuildError> {
    let is_wanted = |state: &State| is_due(state, what);
    let turn = DumpLock::try_acquire(place.0);
    let Some(turn) = turn.map_err(|source| BuildError::Write { path: place.0.to_owned(), source })? else {
        tracing::info!("another process is making a dump of this site");
        return Ok(Some(Vec::new()));
    };
    match make(&turn, place, what, &is_wanted, tell) {
        Ok(dumped) => Ok(Some(dumped.unwrap_or_default().written)),
        // A file has changed again since it was listed, or the dumps before have; the next build tells that, and then there is a dump.
        Err(
            error @ (BuildError::Lists(build::BuildError::BytesGone { .. }) | BuildError::Overtaken { .. }),
        ) => {
            tracing::warn!(%error, "postponed a dump to a later build");
            Ok(None)
        }
        Err(error) => Err(error),
    }
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
    run::publish(&plan, false, None, lock, &|_| ()).map(|done| done.written).or_else(|error| {
        give_up(lock, plan)?;
        Err(error)
    })
}

/// Ends an archiving that cannot be completed, so that it is in the way of nothing else. What it has done stays: a document may lie in both the
/// archive and its index, and the next archiving goes on from there.
pub(super) fn give_up(lock: &Lock, plan: Plan) -> Result<Vec<Written>, BuildError> {
    let plan = Plan { archive: None, ..plan };
    plan.save(lock)?;
    Ok(run::publish(&plan, true, None, lock, &|_| ())?.written)
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
fn is_due(state: &State, what: Dump) -> bool {
    due_in(state, what) == Some(Duration::ZERO)
}

/// In how long that is so if nothing else changes.
fn due_in(state: &State, what: Dump) -> Option<Duration> {
    let rules = state.settings.rules;
    // It may have been packed for hours, in which changes were told that it does not hold.
    let (every, published) = match what {
        Dump::Resources => (rules.resource_dump_seconds, state.dumped.resources),
        Dump::Changes => (rules.change_dump_seconds, state.dumped.changes),
    };
    let (every, series) = (every.map(Duration::from_secs)?, state.series.as_ref()?);
    // An index is also written when something moves to the archive.
    let is_of_its_kind =
        |record: &&DocumentRecord| record.capability == what.capability() && record.part != Part::Index;
    let of_its_kind = state.documents.iter().filter(is_of_its_kind);
    let last = of_its_kind.map(|record| record.changed).max();
    let is_new = match (last, what) {
        (Some(last), _) => series.until > published.unwrap_or(last),
        (None, Dump::Resources) => state.resources > 0,
        (None, Dump::Changes) => series.position.document > 1 || series.position.entries > 0,
    };
    let rests = last.map_or(Duration::ZERO, |last| every.saturating_sub(elapsed(last, DateTime::now())));
    is_new.then_some(rests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_that_fails_rests_for_a_minute_and_then_twice_as_long_each_time() {
        let (mut pause, mut now) = (Pause::default(), Instant::now());
        assert!(pause.is_over(now));
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            pause.failed(now);
            now += Duration::from_millis(60_000 * minutes - 1);
            assert!(!pause.is_over(now), "{minutes} minutes");
            now += Duration::from_millis(1);
            assert!(pause.is_over(now), "{minutes} minutes");
        }
    }
}
