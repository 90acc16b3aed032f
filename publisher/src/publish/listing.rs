//! A Resource List that is written while its inventory is taken, for a run that certainly lists all resources anew.
//!
//! Nothing of it is published before the plan is saved, and a run that fails before that leaves nothing of it.

use std::{
    path::Path,
    sync::mpsc::{Receiver, SyncSender, sync_channel},
    thread::{self, JoinHandle},
};

use resync_core::{
    build::{self, BuildError, Completed, Documents, FolderSink, Item, ResourceLists, StagedLists},
    datetime::DateTime,
    document::Capability,
};

use super::{
    in_place::is_in_place,
    snapshots::{Archive, Snapshots},
    staging::Staging,
};
use crate::{
    inventory::Linker,
    settings::Settings,
    site::{DOCUMENT_FOLDER, Site},
    state::{Lock, State},
};

/// Resources that are handed over at once, and how many such batches may wait.
const BATCH: usize = 256;
const AHEAD: usize = 8;

/// A Resource List that a thread writes while the inventory is taken.
pub(super) struct Listing {
    /// The URL of the archive, if there will be one.
    archives: Option<String>,
    batch: Vec<Item>,
    batches: Option<SyncSender<Batch>>,
    /// Gets a message when every entry is accepted.
    accepted: Receiver<()>,
    thread: Option<JoinHandle<Result<Staged, BuildError>>>,
}

/// A list that is written but not published, and where.
type Staged = (Staging, StagedLists<Staging>);

/// Some resources of a snapshot.
struct Batch {
    started: DateTime,
    items: Vec<Item>,
    is_last: bool,
}

/// The list, and where it is published.
pub(super) struct Listed {
    pub(super) staging: Staging,
    pub(super) lists: StagedLists<Staging>,
    /// The URL of the archive that it links to.
    pub(super) archives: Option<String>,
}

impl Listing {
    /// If the site `is_new`, nobody reads the list before the run is complete.
    pub(super) fn start(
        settings: &Settings,
        lock: &Lock,
        archives: Option<String>,
        is_new: bool,
    ) -> Result<Self, BuildError> {
        let staging = Staging::open(lock.out().join(DOCUMENT_FOLDER))?.digesting().unsynced(is_new);
        let (batches, received) = sync_channel(AHEAD);
        let (accept, accepted) = sync_channel(1);
        let writer = Writer {
            staging,
            documents: documents_of(settings),
            archives: archives.clone(),
            linker: Linker::of(settings),
            batches: received,
            accept,
        };
        let thread = thread::Builder::new().name("resource-list".to_owned()).spawn(|| writer.write())?;
        let (batch, batches, thread) = (Vec::with_capacity(BATCH), Some(batches), Some(thread));
        Ok(Self { archives, batch, batches, accepted, thread })
    }

    /// Adds the next resource of a snapshot that was begun at this moment; `None` after the last one.
    pub(super) fn add(&mut self, started: DateTime, item: Option<Item>) -> Result<(), BuildError> {
        let is_last = item.is_none();
        self.batch.extend(item);
        if !is_last && self.batch.len() < BATCH {
            return Ok(());
        }
        let items = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        let sent =
            self.batches.as_ref().map(|batches| batches.send(Batch { started, items, is_last }).is_ok());
        if sent == Some(true) { Ok(()) } else { Err(self.failure()) }
    }

    /// Waits until the list has accepted every resource. Then only the disk can make it fail.
    pub(super) fn accepted(&mut self) -> Result<(), BuildError> {
        self.accepted.recv().map_err(|_| self.failure())
    }

    /// The complete list.
    pub(super) fn finish(mut self) -> Result<Listed, BuildError> {
        let thread = self.thread.take().ok_or(BuildError::BrokenOff)?;
        let (staging, lists) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Listed { staging, lists, archives: self.archives.take() })
    }

    /// Why the thread ended.
    fn failure(&mut self) -> BuildError {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => error,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            Some(Ok(Ok(_))) | None => BuildError::BrokenOff,
        }
    }
}

/// The thread ends before anybody else opens the folder.
impl Drop for Listing {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // The caller has a failure of its own.
            let _ = thread.join();
        }
    }
}

/// What the thread needs.
struct Writer {
    staging: Staging,
    documents: build::Site,
    archives: Option<String>,
    linker: Linker,
    batches: Receiver<Batch>,
    accept: SyncSender<()>,
}

impl Writer {
    fn write(self) -> Result<Staged, BuildError> {
        let Self { mut staging, documents, archives, linker, batches, accept } = self;
        let Batch { started, items, mut is_last } = batches.recv().map_err(|_| BuildError::BrokenOff)?;
        let mut items = items.into_iter();
        let next = || loop {
            if let Some(item) = items.next() {
                return Some(Ok(linker.item(item)));
            }
            if is_last {
                // The list asks for another resource only after it accepted those before.
                let _ = accept.send(());
                return None;
            }
            match batches.recv() {
                Ok(batch) => (items, is_last) = (batch.items.into_iter(), batch.is_last),
                Err(_) => return Some(Err(BuildError::BrokenOff)),
            }
        };
        let lists = ResourceLists::new(&documents, started).completed(Completed::Now);
        let lists = archives.into_iter().fold(lists, ResourceLists::archives);
        let lists = lists.stage(std::iter::from_fn(next).fuse(), &mut staging)?;
        Ok((staging, lists))
    }
}

/// Where the documents of a set are.
pub(super) fn documents_of(settings: &Settings) -> build::Site {
    build::Site::new(&Site::of(settings).place(DOCUMENT_FOLDER).url)
}

/// The URL of the archive of Resource Lists that [`archive_before`] will write, if any.
pub(super) fn expected_archive(
    settings: &Settings,
    before: Option<&State>,
    out: &Path,
) -> Result<Option<String>, BuildError> {
    let documents = FolderSink::read(out.join(DOCUMENT_FOLDER));
    let archive = next_archive(&documents, settings, before, out)?;
    Ok(archive.and_then(|(archive, _)| archive.url(&documents_of(settings))))
}

/// Archives the Resource List of the state `before`, if the rules say so, since another one is to be written; returns the URL of the archive, if any.
pub(super) fn archive_before(
    staging: &mut Staging,
    settings: &Settings,
    before: Option<&State>,
    out: &Path,
) -> Result<Option<String>, BuildError> {
    let Some((archive, current)) = next_archive(staging, settings, before, out)? else { return Ok(None) };
    let site = documents_of(settings);
    archive.write_lists(staging, &site, current, DateTime::now())?;
    Ok(archive.url(&site))
}

/// The archive as it is to be, and the name of the list that may be new in it; `None` if there is none and none is wanted.
fn next_archive<'a>(
    documents: &impl Documents,
    settings: &Settings,
    before: Option<&'a State>,
    out: &Path,
) -> Result<Option<(Archive, Option<&'a str>)>, BuildError> {
    let most = settings.rules.resource_lists_kept.saturating_sub(1);
    if most == 0 && documents.open(&Snapshots::Lists.archive())?.is_none() {
        return Ok(None);
    }
    let of_the_site = before.filter(|before| before.settings.base_url == settings.base_url);
    let current = of_the_site.and_then(|before| current(before, out));
    Ok(Some((Archive::of_lists(documents, &documents_of(settings), current, most)?, current)))
}

/// The name of the Resource List, if all its files are as they were written.
pub(super) fn current<'a>(state: &'a State, out: &Path) -> Option<&'a str> {
    let mut lists = state.of_kind(&Capability::ResourceList);
    let top = lists.clone().find(|record| record.is_top())?;
    lists.all(|record| is_in_place(out, record)).then(|| top.path.rsplit('/').next()).flatten()
}
