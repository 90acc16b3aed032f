//! A Resource List that is written beside the taking of its inventory, for a run of which it is certain that it lists all resources anew.
//!
//! Nothing of it is published before the run has its plan; a run that does not come to that leaves nothing of it.

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
    run::is_in_place,
    snapshots::{Archive, Snapshots},
    staging::Staging,
};
use crate::{
    links::Linker,
    lock::Lock,
    settings::Settings,
    site::{DOCUMENT_FOLDER, Site},
    state::{Part, State},
};

/// Resources that change hands at one go, and how often before the one who takes the inventory waits.
const BATCH: usize = 256;
const AHEAD: usize = 8;

/// What a Resource List is written from, while it comes.
pub(super) struct Listing {
    staging: Option<Staging>,
    documents: build::Site,
    /// The URL of the archive, where there is one.
    archives: Option<String>,
    linker: Option<Linker>,
    batch: Vec<Item>,
    writing: Option<Writing>,
}

/// The other thread.
struct Writing {
    items: SyncSender<Batch>,
    /// Hears when every entry is accepted.
    accepted: Receiver<()>,
    thread: JoinHandle<Result<(Staging, StagedLists<Staging>), BuildError>>,
}

/// None after the last one.
type Batch = Option<Vec<Item>>;

/// The list, and where it is published.
pub(super) struct Listed {
    pub(super) staging: Staging,
    pub(super) lists: StagedLists<Staging>,
    /// The URL of the archive that it tells of.
    pub(super) archives: Option<String>,
}

impl Listing {
    /// Of a site that `is_new` nobody sees the list before the run is through.
    pub(super) fn new(
        settings: &Settings,
        lock: &Lock,
        archives: Option<String>,
        is_new: bool,
    ) -> Result<Self, BuildError> {
        let documents = documents_of(settings);
        let staging = Staging::open(lock.out().join(DOCUMENT_FOLDER))?.digesting().for_now(is_new);
        let linker = Some(Linker::of(settings));
        Ok(Self {
            staging: Some(staging),
            documents,
            archives,
            linker,
            batch: Vec::with_capacity(BATCH),
            writing: None,
        })
    }

    /// Hears of the next resource of a snapshot that was begun at this moment, or that it is through.
    pub(super) fn hear(&mut self, started: DateTime, item: Option<Item>) -> Result<(), BuildError> {
        let is_through = item.is_none();
        self.batch.extend(item);
        if is_through || self.batch.len() >= BATCH {
            let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
            self.hand_over(started, Some(batch))?;
        }
        if is_through { self.hand_over(started, None) } else { Ok(()) }
    }

    /// Waits until it is certain that no resource keeps the list from being written. What is left to be done is up to the disk.
    pub(super) fn accepted(&mut self) -> Result<(), BuildError> {
        match self.writing.take() {
            Some(writing) if writing.accepted.recv().is_ok() => {
                self.writing = Some(writing);
                Ok(())
            }
            Some(writing) => Err(listing_error(writing)),
            None => Err(BuildError::BrokenOff),
        }
    }

    /// The whole of it.
    pub(super) fn finish(mut self) -> Result<Listed, BuildError> {
        let Some(Writing { thread, .. }) = self.writing.take() else { return Err(BuildError::BrokenOff) };
        let (staging, lists) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(Listed { staging, lists, archives: self.archives.take() })
    }

    fn hand_over(&mut self, started: DateTime, batch: Batch) -> Result<(), BuildError> {
        if let (Some(staging), Some(linker)) = (self.staging.take(), self.linker.take()) {
            let lists = ResourceLists::new(&self.documents, started).completed(Completed::Now);
            let lists = self.archives.clone().into_iter().fold(lists, ResourceLists::archives);
            let (items, batches) = sync_channel(AHEAD);
            let (accept, accepted) = sync_channel(1);
            let work = move || write(staging, &lists, &linker, &batches, &accept);
            let thread = thread::Builder::new().name("resource-list".to_owned()).spawn(work)?;
            self.writing = Some(Writing { items, accepted, thread });
        }
        let Some(writing) = self.writing.take() else { return Err(BuildError::BrokenOff) };
        if writing.items.send(batch).is_ok() {
            self.writing = Some(writing);
            return Ok(());
        }
        Err(listing_error(writing))
    }
}

/// What the other thread has come to.
fn listing_error(writing: Writing) -> BuildError {
    match writing.thread.join() {
        Ok(failed) => failed.err().unwrap_or(BuildError::BrokenOff),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Where the documents of a set are.
pub(super) fn documents_of(settings: &Settings) -> build::Site {
    build::Site::new(&Site::of(settings).place(DOCUMENT_FOLDER).url)
}

/// The URL of the archive of Resource Lists as [`archive_before`] will leave it, if there will be one.
pub(super) fn foretold_archive(
    settings: &Settings,
    before: Option<&State>,
    out: &Path,
) -> Result<Option<String>, BuildError> {
    let documents = FolderSink::read(out.join(DOCUMENT_FOLDER));
    let archive = next_archive(&documents, settings, before, out)?;
    Ok(archive.and_then(|(archive, _)| archive.url(&documents_of(settings))))
}

/// Archives the Resource List that the state `before` tells of, where the rules say so, since another one is to be written; gives the URL of the archive,
/// where there is one then.
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

/// The archive as it is to be, and the name of the list that may be new in it; none where there is none and none is wanted.
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

/// The name of the Resource List, where all of it is as it was written.
pub(super) fn current<'a>(state: &'a State, out: &Path) -> Option<&'a str> {
    let mut lists = state.documents.iter().filter(|record| record.capability == Capability::ResourceList);
    let top = lists.clone().find(|record| !matches!(record.part, Part::Component { .. }))?;
    lists.all(|record| is_in_place(out, record)).then(|| top.path.rsplit('/').next()).flatten()
}

/// What was begun ends before anybody else opens the folder.
impl Drop for Listing {
    fn drop(&mut self) {
        if let Some(Writing { items, thread, .. }) = self.writing.take() {
            drop(items);
            // Whoever drops it has a failure of their own to tell.
            let _ = thread.join();
        }
    }
}

fn write(
    mut staging: Staging,
    lists: &ResourceLists,
    linker: &Linker,
    batches: &Receiver<Batch>,
    accept: &SyncSender<()>,
) -> Result<(Staging, StagedLists<Staging>), BuildError> {
    let mut is_through = false;
    let mut batch = Vec::new().into_iter();
    let items = std::iter::from_fn(|| {
        while !is_through {
            if let Some(item) = batch.next() {
                return Some(Ok(linker.item(item)));
            }
            match batches.recv() {
                Ok(Some(next)) => batch = next.into_iter(),
                Ok(None) => {
                    // The entries before were accepted before this one was asked for.
                    is_through = true;
                    let _ = accept.send(());
                }
                Err(_) => {
                    is_through = true;
                    return Some(Err(BuildError::BrokenOff));
                }
            }
        }
        None
    });
    let lists = lists.stage(items, &mut staging)?;
    Ok((staging, lists))
}
