//! From what is there to a plan: whether the lists go on from those of the run before, and which are written anew; and the end of one that was cut short.

use std::{path::Path, time::Duration};

use resync_core::{datetime::DateTime, document::Capability, durable};

use super::{
    BuildError, BuildMode, Built, Claim, DumpBackoff, OWN_FOLDERS, Progress, Written, dump_staging,
    is_in_place,
    listing::{Listing, foretold_archive},
    maintenance,
    new_folders::NewFolders,
    run,
};
use crate::{
    inventory::{self, Before, Changes, Kept, Taken},
    lock::Lock,
    plan::Plan,
    settings::{Rules, Settings},
    site::{DOCUMENT_FOLDER, Site},
    state::{Series, State},
};

/// A run, between the one before and its own plan.
pub(super) struct Run {
    pub(super) lock: Lock,
    pub(super) settings: Settings,
    pub(super) before: Option<State>,
    /// The Change Lists, if they can go on.
    pub(super) series: Option<Series>,
    pub(super) mode: BuildMode,
    pub(super) folders: NewFolders,
    /// What a run that was cut short had still to tell, and what was written to complete it.
    pub(super) changes: Changes,
    pub(super) written: Vec<Written>,
}

impl Run {
    pub(super) fn begin(settings: Settings, lock: Lock) -> Result<Self, BuildError> {
        sweep(lock.out())?;
        let (changes, written) = complete(&lock)?;
        let mut before = State::load_if_built(lock.out())?;
        if let Some(before) = &mut before
            && run::restamp(before, lock.out())
        {
            before.save(&lock)?;
        }
        let series = before.as_ref().and_then(|state| continued(state, &settings, lock.out())).cloned();
        let (mode, folders) = (BuildMode::Full, NewFolders::default());
        Ok(Self { lock, settings, before, series, mode, folders, changes, written })
    }

    /// Without Change Lists that go on, all resources are listed anew, whatever there is. What is published stays as it is before there is a plan.
    pub(super) fn listing(&self) -> Result<Option<Listing>, BuildError> {
        if self.series.is_some() {
            return Ok(None);
        }
        // Whether that comes about is seen when it is written; if not, the list is written anew.
        let archives =
            foretold_archive(&self.settings, self.before.as_ref(), self.lock.out()).unwrap_or_default();
        Ok(Some(Listing::new(&self.settings, &self.lock, archives, self.before.is_none())?))
    }

    pub(super) fn published(&self) -> Before {
        match (&self.series, &self.before) {
            (Some(series), Some(State { resources, bytes, .. })) => Before::Published {
                // What is told comes after the Resource List too.
                until: series.until.max(series.listed),
                resources: *resources,
                bytes: *bytes,
                quickly: self.mode == BuildMode::Quick,
                relinked: self
                    .before
                    .as_ref()
                    .is_some_and(|before| before.settings.links != self.settings.links),
            },
            _ => Before::Nothing,
        }
    }

    pub(super) fn carry_out(
        self,
        taken: Taken,
        listing: Option<Listing>,
        claim: Option<&Claim>,
        backoff: &mut DumpBackoff,
        tell: &dyn Fn(Progress),
        kept: &dyn Fn(),
    ) -> Result<Built, BuildError> {
        let Self { lock, settings, before, series, mode, folders, changes, mut written } = self;
        folders.last().map_err(|source| BuildError::Write { path: lock.out().to_owned(), source })?;
        let plan = decide(settings, before.as_ref(), series.as_ref(), mode, &taken, lock.out());
        let is_outdated = |series| is_outdated_by(series, &plan.settings, &taken);
        let list_is_due = !plan.lists_resources && series.as_ref().is_some_and(is_outdated);
        if plan.lists_resources || plan.changes.total() > 0 || inventory::is_whole(lock.out()) {
            let saved = plan.save(&lock);
            // Even if it is not known to be on the disk, it is there, and the next run goes by it.
            if Plan::is_kept(lock.out()) {
                kept();
            }
            saved?;
        }
        let listed = listing.map(Listing::finish).transpose()?;
        let done = run::publish(&plan, false, listed, &lock, tell)?;
        let unchanged = done.records.len() - done.written.len();
        let mut failures = done.failures;
        let of_archives = maintenance::archives(&lock, plan.started);
        let out = lock.out().to_owned();
        // A dump is made while others build.
        drop(lock);
        let of_dumps = maintenance::dumps((&out, claim), mode, backoff, tell);
        let (dump_is_due, next_dump) = (of_dumps.dump_is_due, of_dumps.next_dump);
        let mut all = done.written;
        for maintenance in [of_archives, of_dumps] {
            failures.extend(maintenance.failures);
            all.extend(maintenance.written);
        }
        for document in all {
            written.retain(|known| *known != document);
            written.push(document);
        }
        Ok(Built {
            resources: taken.resources,
            bytes: taken.bytes,
            reads: taken.reads,
            changes: changes.and(taken.changes),
            written,
            unchanged,
            skipped: taken.skipped,
            unportable: taken.unportable,
            failures,
            list_is_due,
            dump_is_due,
            next_dump,
            source_description: Site::of(&plan.settings).source_description().url,
        })
    }
}

/// Completes a run that was cut short.
pub(super) fn complete(lock: &Lock) -> Result<(Changes, Vec<Written>), BuildError> {
    let Some(plan) = Plan::load(lock.out())? else { return Ok(Default::default()) };
    tracing::info!(build = plan.build, "completing an interrupted run");
    let done = match run::publish(&plan, true, None, lock, &|_| ()) {
        Err(error) if plan.archive.is_some() => {
            tracing::warn!(%error, "cannot archive; the documents stay in place for now");
            return Ok((Changes::default(), maintenance::give_up(lock, plan)?));
        }
        done => done?,
    };
    for failures in &done.failures {
        tracing::warn!("{failures}");
    }
    let changes = if done.records.is_empty() { Changes::default() } else { plan.changes };
    Ok((changes, done.written))
}

/// The Change Lists, if they can go on: of the same base URL, and as they were written.
fn continued<'a>(state: &'a State, settings: &Settings, out: &Path) -> Option<&'a Series> {
    let series = state.series.as_ref()?;
    let is_same_set = match (&state.settings.root, &settings.root) {
        (Some(one), Some(other)) => one.is_same(other),
        (one, other) => one == other,
    };
    if state.settings.base_url != settings.base_url || !is_same_set {
        return None;
    }
    let mut lists = state.documents.iter().filter(|record| record.capability == Capability::ChangeList);
    if lists.all(|record| is_in_place(out, record)) && Kept::last(out).exists() {
        return Some(series);
    }
    tracing::warn!("somebody changed the Change Lists or the inventory; the Change Lists start anew");
    None
}

fn decide(
    settings: Settings,
    before: Option<&State>,
    series: Option<&Series>,
    mode: BuildMode,
    taken: &Taken,
    out: &Path,
) -> Plan {
    let build = before.map_or(0, |state| state.builds) + 1;
    let is_current = |series: &Series| {
        let lists = || {
            let all = before.into_iter().flat_map(|state| &state.documents);
            all.filter(|record| record.capability == Capability::ResourceList)
        };
        before.is_some_and(|state| {
            state.settings.hash == settings.hash && state.settings.links == settings.links
        }) && lists().next().is_some()
            && lists().all(|record| is_in_place(out, record))
            && (mode == BuildMode::Quick || !is_outdated_by(series, &settings, taken))
    };
    let lists_resources = !series.is_some_and(is_current);
    Plan {
        completed: taken.completed,
        until: taken.until,
        resources: taken.resources,
        bytes: taken.bytes,
        changes: taken.changes,
        position: series.map(|series| series.position),
        lists_resources,
        ..Plan::new(build, settings, taken.started)
    }
}

fn is_outdated_by(series: &Series, settings: &Settings, taken: &Taken) -> bool {
    is_outdated(series, settings.rules, (taken.resources, taken.changes.total()), taken.started)
}

/// Whether the rules want a new Resource List of so many resources, after so many changes that are new.
pub(super) fn is_outdated(
    series: &Series,
    rules: Rules,
    (resources, changes): (u64, u64),
    now: DateTime,
) -> bool {
    let since = series.since + changes;
    let is_many = u128::from(since) * 100 >= u128::from(resources) * u128::from(rules.resource_list_percent);
    let is_old = rules.resource_list_age().is_some_and(|age| elapsed(series.listed, now) >= age);
    since > 0 && (resources <= rules.resource_list_small || is_many || is_old)
}

pub(super) fn elapsed(from: DateTime, now: DateTime) -> Duration {
    now.to_system_time().duration_since(from.to_system_time()).unwrap_or_default()
}

fn sweep(out: &Path) -> Result<(), BuildError> {
    for folder in OWN_FOLDERS.map(|folder| out.join(folder)) {
        durable::sweep(&folder).map_err(|source| BuildError::Write { path: folder, source })?;
    }
    dump_staging::sweep(out).map_err(|source| BuildError::Write { path: out.join(DOCUMENT_FOLDER), source })
}
