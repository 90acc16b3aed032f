//! Dumps that the [rules](crate::settings::Rules) make due, and the pauses after failed ones.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use resync_common::backoff::Backoff;
use resync_core::{build, datetime::DateTime};

use super::{
    BuildMode, Claim, Dump, Maintenance, MaintenanceFailure, MaintenanceReport, Options, Progress, Written,
    dumps::DumpTask, plan::Plan,
};
use crate::{
    error::{Action, Error},
    state::{DumpLock, Part, State},
};

/// The pauses after failures in a row double from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_secs(60);
const LAST_PAUSE: Duration = Duration::from_secs(3600);

/// Pauses after failed dumps, for a caller that builds repeatedly: each attempt can cost as much as the collection is large.
#[derive(Debug, Default)]
pub(crate) struct DumpBackoff {
    resources: Pause,
    changes: Pause,
}

#[derive(Debug)]
struct Pause {
    backoff: Backoff,
    until: Option<Instant>,
}

impl Default for Pause {
    fn default() -> Self {
        Self { backoff: Backoff::new(FIRST_PAUSE, LAST_PAUSE).exact(), until: None }
    }
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
        self.until = now.checked_add(self.backoff.after_failure());
    }
}

/// Makes the dumps that are due in a site, while others build. Skips a dump that another process makes.
#[must_use]
pub struct DueDumps<'a> {
    out: &'a Path,
    options: Options<'a>,
}

impl std::fmt::Debug for DueDumps<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DueDumps").field("out", &self.out).finish_non_exhaustive()
    }
}

impl<'a> DueDumps<'a> {
    /// Of the built set in `out`.
    pub fn new(out: &'a Path) -> Self {
        Self { out, options: Options::default() }
    }

    /// After a run with these options.
    pub(super) fn of(out: &'a Path, options: Options<'a>) -> Self {
        Self { out, options }
    }

    /// Fails if another configuration file took over the claimed site.
    pub fn claim(mut self, claim: Option<&'a Claim>) -> Self {
        self.options.claim = claim;
        self
    }

    /// Reports progress now and then.
    pub fn progress(mut self, progress: &'a dyn Fn(Progress)) -> Self {
        self.options.progress = progress;
        self
    }

    /// Pauses after failed dumps.
    pub(crate) fn backoff(mut self, backoff: &'a mut DumpBackoff) -> Self {
        self.options.backoff = Some(backoff);
        self
    }

    /// Makes them. A mode other than [`BuildMode::Full`] only reports that there are any.
    pub fn make(mut self) -> MaintenanceReport {
        let mut report = MaintenanceReport::default();
        // An interrupted run has to be completed first.
        if Plan::exists(self.out) {
            return report;
        }
        let mut fresh = DumpBackoff::default();
        let backoff = self.options.backoff.take().unwrap_or(&mut fresh);
        let mut loaded = State::load(self.out);
        for what in [Dump::Resources, Dump::Changes] {
            let Ok(state) = &loaded else { break };
            let pause = backoff.of(what);
            if !pause.is_over(Instant::now()) {
                continue;
            }
            if !is_due(state, what) {
                *pause = Pause::default();
                continue;
            }
            if self.options.mode != BuildMode::Full {
                report.dump_is_due = true;
                continue;
            }
            match self.dump(what) {
                Ok(Some(written)) => {
                    *pause = Pause::default();
                    report.written.extend(written);
                }
                Ok(None) => pause.failed(Instant::now()),
                Err(error) => {
                    pause.failed(Instant::now());
                    report.failures.push(MaintenanceFailure::of(Maintenance::Dump(what), error));
                }
            }
            // That took long, and others went on.
            loaded = State::load(self.out);
        }
        match loaded {
            Ok(state) => report.next_dump = next_dump(&state, backoff),
            Err(error) => {
                report.failures.push(MaintenanceFailure::of(Maintenance::Dump(Dump::Resources), error));
            }
        }
        report
    }

    /// Makes a dump if it is still due; returns what was written, or `None` if the dump waits for the next build.
    fn dump(&self, what: Dump) -> Result<Option<Vec<Written>>, Error> {
        let lock = DumpLock::try_acquire(self.out).map_err(Error::cannot(Action::Write, self.out))?;
        let Some(lock) = lock else {
            tracing::info!("another process is making a dump of this site");
            return Ok(Some(Vec::new()));
        };
        let Options { claim, progress, .. } = self.options;
        let task = DumpTask { lock: &lock, out: self.out, claim, what, progress };
        match task.make(&|state| is_due(state, what)) {
            Ok(dumped) => Ok(Some(dumped.unwrap_or_default().written)),
            // A file, or the dumps before, changed again since. The next build lists that, and then there is a dump.
            Err(error @ (Error::Lists(build::BuildError::BytesGone { .. }) | Error::Overtaken { .. })) => {
                tracing::warn!(%error, "postponed a dump to a later build");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
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

/// Whether the last dump is old and something has changed since.
fn is_due(state: &State, what: Dump) -> bool {
    due_in(state, what) == Some(Duration::ZERO)
}

/// How long until a dump is due, if nothing else changes.
fn due_in(state: &State, what: Dump) -> Option<Duration> {
    let rules = state.settings.rules;
    // Packing may take hours, and changes of that time are not in the dump.
    let (every, published) = match what {
        Dump::Resources => (rules.resource_dump_seconds, state.dumped.resources),
        Dump::Changes => (rules.change_dump_seconds, state.dumped.changes),
    };
    let (every, series) = (every.map(Duration::from_secs)?, state.series.as_ref()?);
    // An index is also written when something moves to the archive.
    let capability = what.capability();
    let parts = state.of_kind(&capability).filter(|record| record.part != Part::Index);
    let last = parts.map(|record| record.changed).max();
    let is_new = match (last, what) {
        (Some(last), _) => series.until > published.unwrap_or(last),
        (None, Dump::Resources) => state.totals.resources > 0,
        (None, Dump::Changes) => series.position.document > 1 || series.position.entries > 0,
    };
    let rest = last.map_or(Duration::ZERO, |last| every.saturating_sub(last.duration_until(DateTime::now())));
    is_new.then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failed_dump_the_pause_is_a_minute_and_doubles_each_time() {
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
