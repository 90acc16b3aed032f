//! Carries out a plan: publishes components, then their index, the Capability List, the Source Description, and saves the state last.
//!
//! An interrupted run may have done any of the steps. Done again, a step changes nothing, or completes what was begun.

mod hubs;
mod records;
mod versions;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use resync_core::{
    build::{
        self, ChangeDumps, ChangeLists, Completed, Documents, Event, Item, ResourceLists, Rotation, Sink,
        StagedLists,
    },
    datetime::DateTime,
    digest::Digest,
    document::Capability,
    durable::{self, folder_of},
};

use self::{
    hubs::{bound_outbox, hub_records},
    records::is_lasting,
};
use super::{
    Dump, Maintenance, MaintenanceFailure, Progress, Work, Written, documents,
    in_place::is_in_place,
    listing::{Listed, archive_before, current, documents_of},
    plan::Plan,
    sets,
    staging::Staging,
};
use crate::{
    error::{Action, Error},
    helpers::files,
    inventory::{self, Linker, PATCH_FOLDER},
    settings::Settings,
    site::{DOCUMENT_FOLDER, Location, Site},
    state::{DocumentRecord, Lock, Part, Series, State, StoredPosition, lock_description},
};

/// What a run has published.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// All documents, in the order in which they were written or would have been.
    pub(super) records: Vec<DocumentRecord>,
    /// Those that were written.
    pub(super) written: Vec<Written>,
    /// Archives that were due and failed.
    pub(super) failures: Vec<MaintenanceFailure>,
}

/// Publishes what `plan` says, and records it in the state. With `resumed`, some of it may have been done. Resource Lists that are `listed` are written
/// already.
pub(super) fn publish(
    plan: &Plan,
    resumed: bool,
    listed: Option<Listed>,
    lock: &Lock,
    progress: &dyn Fn(Progress),
) -> Result<Done, Error> {
    let out = lock.out();
    let before = State::load_if_built(out)?;
    if before.as_ref().is_some_and(|state| state.builds >= plan.build) {
        discard_plan(lock)?;
        return Ok(Done::default());
    }
    let site = Site::of(&plan.settings);
    let now = DateTime::now();
    let mut execution = Execution::new(lock, plan, &site, before.as_ref(), now);
    execution.resource_lists(listed, progress)?;
    let series = execution.change_lists(resumed)?;
    execution.dumps()?;
    execution.capability_list()?;
    execution.source_description()?;
    let filled = execution.change_notifications()?;
    let Execution { done, .. } = execution;
    let hubs = hub_records(&plan.settings, &site, before.as_ref(), filled.last);
    let mut state = State::new(plan.settings.clone(), plan.totals, done.records.clone(), hubs);
    state.builds = plan.build;
    state.series = Some(series);
    (state.outbox, state.outbox_bytes) = (filled.last, filled.bytes);
    state.versions = versions::after(out, plan, before.as_ref())?;
    let mut known = None;
    if let Some(before) = before {
        (state.notified_on, state.changes_on) = (before.notified_on, before.changes_on);
        (state.dumped, state.swept) = (before.dumped, before.swept);
        state.outbox_bytes += before.outbox_bytes;
        known = before.versions;
    }
    bound_outbox(out, &mut state);
    state.save(lock)?;
    if plan.versions.as_ref().is_some_and(|taken| taken.segment.is_some()) {
        crate::versions::sweep(out, [known.as_ref(), state.versions.as_ref()])?;
    }
    discard_plan(lock)?;
    Ok(done)
}

/// Records the documents of a dump, with their kinds and parts, and lists the dump in the Capability List. It has all changes up to `until`.
pub(super) fn record_dump(
    lock: &Lock,
    before: State,
    what: Dump,
    until: Option<DateTime>,
    documents: Vec<(String, Capability, Part)>,
) -> Result<Vec<Written>, Error> {
    let plan = Plan::new(before.builds + 1, before.settings.clone(), DateTime::now());
    let site = Site::of(&plan.settings);
    let mut run = Execution::new(lock, &plan, &site, Some(&before), plan.started);
    let kinds: Vec<_> = documents.iter().map(|(_, capability, _)| capability.clone()).collect();
    run.done
        .records
        .extend(before.documents.iter().filter(|known| !kinds.contains(&known.capability)).cloned());
    for (name, capability, part) in documents {
        run.record(site.place(&format!("{DOCUMENT_FOLDER}/{name}")), capability, part)?;
    }
    let is_anew = |record: &DocumentRecord| {
        matches!(record.capability, Capability::CapabilityList | Capability::ResourceDumpArchive)
    };
    run.done.records.retain(|record| !is_anew(record));
    run.archive("resourcedump", &Capability::ResourceDumpArchive)?;
    run.capability_list()?;
    let Done { records, written, .. } = run.done;
    let mut state = before;
    (state.documents, state.builds) = (records, plan.build);
    match what {
        Dump::Resources => state.dumped.resources = until,
        Dump::Changes => state.dumped.changes = until,
    }
    state.save(lock)?;
    Ok(written)
}

/// Updates the Source Description to the present sets, on behalf of one of them (FN-004). Its state is `before`, and then the one that is returned.
pub(super) fn describe(lock: &Lock, before: State) -> Result<(State, Vec<Written>), Error> {
    let plan = Plan::new(before.builds + 1, before.settings.clone(), DateTime::now());
    let site = Site::of(&plan.settings);
    let mut run = Execution::new(lock, &plan, &site, Some(&before), plan.started);
    if before.retired.is_some() {
        // The other sets have written it.
        run.record(site.source_description(), Capability::Description, Part::Whole)?;
    } else {
        run.source_description()?;
    }
    let Done { records, written, .. } = run.done;
    let mut state = before;
    if !written.is_empty() {
        state.documents.retain(|known| records.iter().all(|record| record.url != known.url));
        state.documents.extend(records);
        state.builds = plan.build;
        state.save(lock)?;
    }
    Ok((state, written))
}

/// The state has the run: removes what was stored for the case of a crash.
fn discard_plan(lock: &Lock) -> Result<(), Error> {
    let out = lock.out();
    inventory::advance(out).map_err(Error::cannot(Action::Write, out))?;
    Plan::remove(lock)
}

/// The execution of a plan.
struct Execution<'a> {
    out: &'a Path,
    plan: &'a Plan,
    site: &'a Site,
    before: Option<&'a State>,
    now: DateTime,
    /// One for all documents: the record of origins that it may read is as long as the collection.
    linker: Arc<Linker>,
    /// Whether the Resource List is written: the plan says so, and the one before need not stay.
    has_new_resource_list: bool,
    done: Done,
    /// Digests of documents, which then need not be read.
    digests: BTreeMap<PathBuf, Digest>,
}

impl<'a> Execution<'a> {
    fn new(lock: &'a Lock, plan: &'a Plan, site: &'a Site, before: Option<&'a State>, now: DateTime) -> Self {
        let linker = Arc::new(Linker::of(&plan.settings));
        let (has_new_resource_list, done, digests) = (plan.lists_resources, Done::default(), BTreeMap::new());
        Self { out: lock.out(), plan, site, before, now, linker, has_new_resource_list, done, digests }
    }

    /// The resources with their links.
    fn items(&self) -> Result<impl Iterator<Item = Result<Item, build::BuildError>> + use<>, Error> {
        let linker = Arc::clone(&self.linker);
        Ok(inventory::newest(self.out)?.map(move |item| item.map(|item| linker.item(item))))
    }

    /// The changes with their links.
    fn changes(&self) -> Result<impl Iterator<Item = Result<Event, build::BuildError>> + use<>, Error> {
        let linker = Arc::clone(&self.linker);
        Ok(inventory::changes(self.out)?.map(move |change| linker.recorded(change)))
    }

    fn documents(&self) -> build::Site {
        documents_of(&self.plan.settings)
    }

    fn known(&self, url: &str) -> Option<&DocumentRecord> {
        self.before.into_iter().flat_map(|state| &state.documents).find(|record| record.url == url)
    }

    /// Dumps stay, unless the Change Lists start anew; their archive may change. An interrupted dump, or a person, may have left other files than those on
    /// record: a dump is listed as it is now, and not at all once one of its documents is missing.
    fn dumps(&mut self) -> Result<(), Error> {
        let Some(before) =
            self.before.filter(|before| before.settings.base_url == self.plan.settings.base_url)
        else {
            return Ok(());
        };
        self.resource_dump(before)?;
        if self.plan.position.is_some() {
            self.change_dump(before)?;
        }
        self.archive("resourcedump", &Capability::ResourceDumpArchive)
    }

    fn resource_dump(&mut self, before: &State) -> Result<(), Error> {
        let capability = Capability::ResourceDump;
        let of_dump = || before.of_kind(&capability);
        if of_dump().all(|record| is_in_place(self.out, record)) {
            self.done.records.extend(of_dump().cloned());
        } else if let Some(top) = of_dump().find(|record| record.is_top()) {
            let top = Location { path: top.path.clone(), url: top.url.clone() };
            match self.record_as_it_is(top, &capability) {
                Err(error) if is_lasting(&error) => self.leave_out(&capability, &error),
                Ok(()) if self.done.records.iter().all(|record| record.capability != capability) => {
                    tracing::warn!("Resource Dump file missing; removed from the Capability List");
                }
                recorded => recorded?,
            }
        }
        Ok(())
    }

    fn change_dump(&mut self, before: &State) -> Result<(), Error> {
        let of_dump = || before.of_kind(&Capability::ChangeDump);
        // A file that cannot be examined counts as present.
        let is_there = |record: &DocumentRecord| self.out.join(&record.path).try_exists().unwrap_or(true);
        if let Some(gone) = of_dump().find(|record| !is_there(record)) {
            tracing::warn!(gone = gone.path, "Change Dump file missing; removed from the Capability List");
            return Ok(());
        }
        let (tops, parts): (Vec<_>, Vec<_>) =
            of_dump().cloned().partition(|record| record.part == Part::Index);
        for DocumentRecord { path, url, capability, part, .. } in parts {
            self.record(Location { path, url }, capability, part)?;
        }
        for DocumentRecord { path, url, capability, part, .. } in tops {
            if let Some(before) = self.plan.archive {
                let mut sink = Staging::open(self.out.join(DOCUMENT_FOLDER))?;
                ChangeDumps::new(&self.documents()).archive(&mut sink, before, self.plan.started)?;
            }
            self.archive("changedump", &Capability::ChangeDumpArchive)?;
            self.record(Location { path, url }, capability, part)?;
        }
        Ok(())
    }

    /// Lists the lists, and the dumps and archives that are on record.
    fn capability_list(&mut self) -> Result<(), Error> {
        let others = [
            Capability::ResourceListArchive,
            Capability::ResourceDump,
            Capability::ChangeDump,
            Capability::ResourceDumpArchive,
            Capability::ChangeListArchive,
            Capability::ChangeDumpArchive,
        ];
        let top = |capability: Capability| {
            let is_top = |record: &&DocumentRecord| record.capability == capability && record.is_top();
            let url = self.done.records.iter().find(is_top).map(|record| record.url.clone());
            url.map(|url| (capability, url))
        };
        let others: Vec<_> = others.into_iter().filter_map(top).collect();
        let Settings { described_by, hubs, .. } = &self.plan.settings;
        let list = documents::capability_list(self.site, described_by.as_ref(), hubs, others)?;
        self.replace(&list)
    }

    /// Lists all sets of the site. Two sets that are built for the first time at once may miss each other; [describe] after both builds finds both.
    fn source_description(&mut self) -> Result<(), Error> {
        let settings = &self.plan.settings;
        let shared = self.out.parent().filter(|_| settings.root.is_some());
        let _lock = shared.map(lock_description).transpose()?;
        if shared.is_some() {
            let path = self.out.join(self.site.source_description().path);
            // What a killed run left. The sets share the folder, so only this lock keeps others from writing there.
            durable::sweep(folder_of(&path)).map_err(Error::cannot(Action::Write, folder_of(&path)))?;
        }
        let sets = sets::described(settings, self.out)?;
        self.replace(&documents::source_description(self.site, settings.source_described_by(), sets)?)
    }

    /// The lists of one snapshot are kept or replaced together, so that their times agree (RS-095).
    fn resource_lists(&mut self, listed: Option<Listed>, progress: &dyn Fn(Progress)) -> Result<(), Error> {
        if !self.has_new_resource_list {
            return self.keep_resource_lists();
        }
        let documents = self.documents();
        let (mut staging, staged) = match listed {
            Some(Listed { staging, lists, archives }) => (staging, Some((lists, archives))),
            None => (Staging::open(self.out.join(DOCUMENT_FOLDER))?.digesting(), None),
        };
        let archives = match archive_before(&mut staging, &self.plan.settings, self.before, self.out) {
            Ok(archives) => archives,
            Err(error) => {
                let error = Error::from(error);
                // It stays until it can be archived: the Change List has the rest, and the next build tries again.
                let stays = !is_lasting(&error) && self.can_keep_list();
                self.done.failures.push(MaintenanceFailure::of(Maintenance::Archives, error));
                if stays {
                    self.has_new_resource_list = false;
                    return self.keep_resource_lists();
                }
                None
            }
        };
        let lists = match staged {
            Some((lists, expected)) if expected == archives => lists,
            _ => self.list(&mut staging, &documents, archives, progress)?,
        };
        let published = lists.publish(&mut staging)?;
        self.digests = staging.into_digests();
        let index = published.top().filter(|_| published.documents.len() > 1).map(|top| documents.url(top));
        for name in &published.documents {
            let location = self.site.place(&format!("{DOCUMENT_FOLDER}/{name}"));
            let part = match &index {
                None => Part::Whole,
                Some(index) if *index == location.url => Part::Index,
                Some(index) => Part::Component { index: index.clone() },
            };
            self.record(location, Capability::ResourceList, part)?;
        }
        self.archive("resourcelist", &Capability::ResourceListArchive)
    }

    fn keep_resource_lists(&mut self) -> Result<(), Error> {
        let kept = self.before.into_iter().flat_map(|state| state.of_kind(&Capability::ResourceList));
        self.done.records.extend(kept.cloned());
        self.archive("resourcelist", &Capability::ResourceListArchive)
    }

    /// Whether the Resource List before is still right together with the Change Lists since.
    fn can_keep_list(&self) -> bool {
        let Plan { settings, position, .. } = self.plan;
        let is_alike =
            |before: &&State| before.settings.hash == settings.hash && before.settings.has_links_of(settings);
        let before = self.before.filter(is_alike).filter(|_| position.is_some());
        before.is_some_and(|before| current(before, self.out).is_some())
    }

    /// Writes Resource Lists of the inventory on disk.
    fn list(
        &self,
        staging: &mut Staging,
        documents: &build::Site,
        archives: Option<String>,
        progress: &dyn Fn(Progress),
    ) -> Result<StagedLists<Staging>, Error> {
        let items = self.items()?.zip(1..).map(|(item, done)| {
            progress(Progress { work: Work::Listing, done, all: Some(self.plan.totals.resources) });
            item
        });
        let lists =
            ResourceLists::new(documents, self.plan.started).completed(Completed::At(self.plan.completed));
        Ok(archives.into_iter().fold(lists, ResourceLists::archives).stage(items, staging)?)
    }

    /// Lists the changes of the plan, each once, whatever an interrupted run has listed.
    fn change_lists(&mut self, resumed: bool) -> Result<Series, Error> {
        let Plan { started, until, changes, ref settings, .. } = *self.plan;
        let rules = settings.rules;
        let rotation = Rotation { entries: Some(rules.change_list_entries), age: rules.change_list_age() };
        let lists = ChangeLists::new(&self.documents()).rotation(rotation);
        // Of a new site, writing the Capability List makes them durable before anything links to that.
        let mut sink = Staging::open(self.out.join(DOCUMENT_FOLDER))?.unsynced(self.before.is_none());
        let position = match self.plan.position {
            None => {
                remove_series(&mut sink, "changelist")?;
                remove_series(&mut sink, "changedump")?;
                self.remove_patches()?;
                lists.record(&mut sink, started, [], until)?.position()
            }
            Some(position) if changes.total() == 0 => {
                if let Some(before) = self.plan.archive {
                    lists.archive(&mut sink, before, started)?;
                }
                Some(position.into())
            }
            Some(position) if resumed => {
                let changes = self.changes()?;
                lists.clone().resume(position.into()).record(&mut sink, started, changes, until)?.position()
            }
            Some(position) => {
                let lists = match self.open_change_list(position) {
                    Some(record) => lists.known_open(position.into(), record.content),
                    None => lists,
                };
                lists.record(&mut sink, started, self.changes()?, until)?.position()
            }
        };
        drop(sink);
        let position: StoredPosition = position.unwrap_or_default().into();
        self.archive("changelist", &Capability::ChangeListArchive)?;
        let index = self.site.change_list();
        let part = Part::Component { index: index.url.clone() };
        let open = self.site.change_list_component(position.document);
        self.record(open, Capability::ChangeList, part)?;
        self.record(index, Capability::ChangeList, Part::Index)?;
        let earlier = self.before.and_then(|state| state.series.as_ref());
        // Without changes there is no notification, and the next one covers that time too (CN-015).
        let published = earlier.filter(|_| self.plan.position.is_some() && changes.total() == 0);
        let until = published.map_or(until, |earlier| earlier.until);
        let begun = match self.plan.position {
            Some(_) => earlier.map_or(started, |earlier| earlier.begun),
            None => started,
        };
        Ok(match earlier.filter(|_| !self.has_new_resource_list) {
            Some(Series { listed, since, .. }) => {
                Series { until, position, listed: *listed, since: since + changes.total(), begun }
            }
            None => Series { until, position, listed: started, since: 0, begun },
        })
    }

    /// What is known of the Change List that is open at this position.
    fn open_change_list(&self, open: StoredPosition) -> Option<&DocumentRecord> {
        self.known(&self.site.change_list_component(open.document).url)
    }

    /// No list links to a patch any more.
    fn remove_patches(&self) -> Result<(), Error> {
        let folder = self.out.join(PATCH_FOLDER);
        let entries = files::if_there(fs::read_dir(&folder));
        let removed = entries.and_then(|entries| {
            entries.into_iter().flatten().try_for_each(|entry| files::remove(&entry?.path()))
        });
        removed.map_err(Error::cannot(Action::Write, &folder))
    }
}

/// Removes the documents of a series that cannot be continued; first those that link to others.
fn remove_series(sink: &mut Staging, stem: &str) -> Result<(), Error> {
    let names =
        sink.list(stem).map_err(|source| build::BuildError::Names { prefix: stem.to_owned(), source })?;
    let is_component = |name: &str| {
        let rest = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-'));
        let number = rest.and_then(|rest| rest.strip_suffix(".xml"));
        number.is_some_and(|number| {
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            is_number || number.starts_with("archive-")
        })
    };
    let components = names.into_iter().filter(|name| is_component(name));
    let tops = [format!("{stem}.xml"), format!("{stem}-archive.xml")];
    for name in tops.into_iter().chain(components) {
        sink.remove(&name).map_err(|source| build::BuildError::Remove { name, source })?;
    }
    Ok(())
}
