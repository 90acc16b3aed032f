//! Decides the plan: whether the lists continue those of the last run, and which are written anew.

use std::path::Path;

use resync_core::{datetime::DateTime, document::Capability, durable, memento::VERSIONS_PATH};

use super::{
    BuildMode, Built, DueDumps, Maintenance, MaintenanceFailure, OWN_FOLDERS, Options, Written, archives,
    completing::complete,
    dump_staging, execution, is_in_place,
    listing::{Listing, expected_archive},
    new_folders::NewFolders,
    plan::Plan,
    restamp,
};
use crate::{
    error::{Action, Error},
    inventory::{self, Before, Changes, PATCH_FOLDER, Snapshot, StoredInventory},
    outbox,
    settings::{Rules, Settings},
    site::{DOCUMENT_FOLDER, Site},
    state::{Lock, Series, State},
    versions::{Taking, retention},
};

/// A run between the last one and its own plan.
pub(super) struct Run {
    lock: Lock,
    pub(super) settings: Settings,
    pub(super) before: Option<State>,
    /// The Change Lists, if they can be continued.
    series: Option<Series>,
    mode: BuildMode,
    allows_empty: bool,
    pub(super) folders: NewFolders,
    /// Whether it only tries: then no versions are kept.
    pub(super) is_dry: bool,
    /// The changes of an interrupted run, and what was written to complete it.
    changes: Changes,
    written: Vec<Written>,
}

impl Run {
    pub(super) fn begin(settings: Settings, lock: Lock, options: &Options<'_>) -> Result<Self, Error> {
        sweep(lock.out(), options.mode)?;
        let (changes, written) = complete(&lock)?;
        let mut before = State::load_if_built(lock.out())?;
        if let Some(before) = &mut before
            && restamp(before, lock.out())
        {
            before.save(&lock)?;
        }
        let series = before.as_ref().and_then(|state| continued(state, &settings, lock.out())).cloned();
        let (mode, allows_empty) = (options.mode, options.allows_empty);
        let (folders, is_dry) = (NewFolders::default(), false);
        Ok(Self { lock, settings, before, series, mode, allows_empty, folders, is_dry, changes, written })
    }

    /// The number of this run.
    fn build(&self) -> u64 {
        self.before.as_ref().map_or(0, |state| state.builds) + 1
    }

    /// What takes the versions of this run.
    pub(super) fn taking(&self) -> Taking {
        let Self { settings, lock, before, series, .. } = self;
        if self.is_dry {
            return Taking::none();
        }
        Taking::of(settings, lock.out(), before.as_ref(), series.is_some(), self.build())
    }

    /// If the Change Lists cannot be continued, all resources are listed anew. What is published stays as it is until there is a plan.
    pub(super) fn listing(&self) -> Result<Option<Listing>, Error> {
        if self.series.is_some() {
            return Ok(None);
        }
        // If the archive turns out otherwise, the list is written again.
        let archives =
            expected_archive(&self.settings, self.before.as_ref(), self.lock.out()).unwrap_or_default();
        Ok(Some(Listing::start(&self.settings, &self.lock, archives, self.before.is_none())?))
    }

    /// How many resources are listed, if not all of them may be gone; else 0.
    pub(super) fn guarded(&self) -> u64 {
        let listed = self.before.as_ref().filter(|before| before.retired.is_none());
        listed.filter(|_| !self.allows_empty).map_or(0, |before| before.totals.resources)
    }

    pub(super) fn published(&self) -> Before {
        match (&self.series, &self.before) {
            (Some(series), Some(before)) => Before::Published {
                // Changes must be later than the Resource List too, and than all versions.
                until: before
                    .versions
                    .iter()
                    .map(|versions| versions.until)
                    .fold(series.until.max(series.listed), DateTime::max),
                totals: before.totals,
                is_quick: self.mode == BuildMode::Quick,
                is_relinked: !before.settings.has_links_of(&self.settings),
            },
            _ => Before::Nothing,
        }
    }

    pub(super) fn carry_out(
        self,
        snapshot: Snapshot,
        listing: Option<Listing>,
        options: Options<'_>,
    ) -> Result<Built, Error> {
        let plan = self.decide(&snapshot);
        let had_versions = self.before.as_ref().is_some_and(|state| state.versions.is_some());
        let Self { lock, series, folders, is_dry, changes, mut written, .. } = self;
        folders.sync_all().map_err(Error::cannot(Action::Write, lock.out()))?;
        let list_is_due = !plan.lists_resources
            && series.as_ref().is_some_and(|series| is_outdated_by(series, &plan.settings, &snapshot));
        if plan.lists_resources || plan.changes.total() > 0 || inventory::is_whole(lock.out()) {
            let saved = plan.save(&lock);
            // Even if syncing failed, the plan exists, and the next run completes it.
            if Plan::exists(lock.out()) {
                (options.on_plan)();
            }
            saved?;
        }
        let listed = listing.map(Listing::finish).transpose()?;
        let done = execution::publish(&plan, false, listed, &lock, options.progress)?;
        let unchanged = done.records.len() - done.written.len();
        let of_archives = archives::make(&lock, plan.started);
        // Also where none are kept now: a killed removal may have left some of what is forgotten.
        let of_versions = if is_dry { None } else { retention::apply(&lock, plan.started).err() };
        let out = lock.out().to_owned();
        // Other builds go on while a dump is made.
        drop(lock);
        let of_dumps = DueDumps::of(&out, options).make();
        let (dump_is_due, next_dump) = (of_dumps.dump_is_due, of_dumps.next_dump);
        let (mut failures, mut all) = (done.failures, done.written);
        failures.extend(of_versions.map(|error| MaintenanceFailure::of(Maintenance::OldVersions, error)));
        for maintenance in [of_archives, of_dumps] {
            failures.extend(maintenance.failures);
            all.extend(maintenance.written);
        }
        for document in all {
            written.retain(|known| *known != document);
            written.push(document);
        }
        let site = Site::of(&plan.settings);
        let begins = plan.versions.is_some() && !had_versions;
        Ok(Built {
            resources: snapshot.totals.resources,
            bytes: snapshot.totals.bytes,
            reads: snapshot.reads,
            changes: changes.and(snapshot.changes),
            written,
            unchanged,
            skipped: snapshot.skipped,
            unportable: snapshot.unportable,
            links: snapshot.links,
            failures,
            unkept: snapshot.unkept,
            versions_begin: begins.then(|| site.place(VERSIONS_PATH).url),
            versions_copied: plan.versions.as_ref().map_or(0, |taken| taken.copied),
            list_is_due,
            dump_is_due,
            next_dump,
            source_description: site.source_description().url,
        })
    }

    fn decide(&self, snapshot: &Snapshot) -> Plan {
        let Self { settings, before, series, mode, lock, .. } = self;
        let is_current = |state: &State| {
            let mut lists = state.of_kind(&Capability::ResourceList).peekable();
            state.settings.hash == settings.hash
                && state.settings.has_links_of(settings)
                && lists.peek().is_some()
                && lists.all(|record| is_in_place(lock.out(), record))
        };
        let lists_resources = !series.as_ref().is_some_and(|series| {
            before.as_ref().is_some_and(is_current)
                && (*mode == BuildMode::Quick || !is_outdated_by(series, settings, snapshot))
        });
        Plan {
            completed: snapshot.completed,
            until: snapshot.until,
            totals: snapshot.totals,
            changes: snapshot.changes,
            position: series.as_ref().map(|series| series.position),
            lists_resources,
            versions: snapshot.versions.clone(),
            ..Plan::new(self.build(), settings.clone(), snapshot.started)
        }
    }
}

/// The Change Lists, if they can be continued: they have the same base URL and are as they were written.
fn continued<'a>(state: &'a State, settings: &Settings, out: &Path) -> Option<&'a Series> {
    let series = state.series.as_ref()?;
    let is_same_set = match (&state.settings.root, &settings.root) {
        (Some(one), Some(other)) => one.is_same(other),
        (one, other) => one == other,
    };
    if state.settings.base_url != settings.base_url || !is_same_set {
        return None;
    }
    let mut lists = state.of_kind(&Capability::ChangeList);
    if lists.all(|record| is_in_place(out, record)) && StoredInventory::last(out).exists() {
        return Some(series);
    }
    tracing::warn!("somebody changed the Change Lists or the inventory; the Change Lists start anew");
    None
}

fn is_outdated_by(series: &Series, settings: &Settings, snapshot: &Snapshot) -> bool {
    let series = Series { since: series.since + snapshot.changes.total(), ..series.clone() };
    is_outdated(&series, settings.rules, snapshot.totals.resources, snapshot.started)
}

/// Whether the rules require a new Resource List of this number of resources.
pub(super) fn is_outdated(series: &Series, rules: Rules, resources: u64, now: DateTime) -> bool {
    let is_many =
        u128::from(series.since) * 100 >= u128::from(resources) * u128::from(rules.resource_list_percent);
    let is_old = rules.resource_list_age().is_some_and(|age| series.listed.duration_until(now) >= age);
    series.since > 0 && (resources <= rules.resource_list_small || is_many || is_old)
}

/// Removes what killed runs left that is not in its place. Folders with many files are left to builds that have time.
fn sweep(out: &Path, mode: BuildMode) -> Result<(), Error> {
    let long = [out.join(PATCH_FOLDER), outbox::folder(out)].into_iter().filter(|_| mode != BuildMode::Quick);
    for folder in OWN_FOLDERS.map(|folder| out.join(folder)).into_iter().chain(long) {
        durable::sweep(&folder).map_err(Error::cannot(Action::Write, &folder))?;
    }
    dump_staging::sweep(out).map_err(Error::cannot(Action::Write, &out.join(DOCUMENT_FOLDER)))
}
