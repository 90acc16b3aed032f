//! A folder as an inventory: walked in the order of its URLs, read and hashed on all cores.
//!
//! One thread walks, as many as there are cores read and hash, and the one that asks for items gets them in order. Files travel in
//! batches; how many are on the way is bounded, so memory does not depend on how many there are.

mod reading;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use std::{fmt, thread, vec};

use self::reading::Task;
use super::file_path::{FilePath, open_judged};
use super::folder::LocateError;
use super::names::folder_url;
use super::walk::{Found, Listener, Walker};
use super::{
    BuildError, Contents, Event, Folder, Item, Known, Refusal, Skipped, Stamp, SymbolicLinks, Unportable,
    Versions, path_of,
};
use crate::datetime::DateTime;
use crate::digest::Algorithm;

pub use self::reading::MAX_READS;

/// Files of one batch, once many have been seen.
const BATCH: usize = 128;
/// Batches on the way for each thread that reads.
const AHEAD: usize = 8;

type MediaType = Arc<dyn Fn(&Path) -> Option<String> + Send + Sync>;
type Outcome = Result<Option<Known>, BuildError>;
type Earlier = Box<dyn Iterator<Item = Result<Known, BuildError>> + Send>;

/// How a folder becomes an inventory.
///
/// ```
/// use resync_core::build::{FileInventory, Inventory};
/// use resync_core::digest::Algorithm;
///
/// let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("b c.txt"), "two")?;
/// std::fs::write(folder.path().join("a.txt"), "one")?;
/// let inventory = FileInventory::of(folder.path(), "https://example.org/data")?
///     .algorithms([Algorithm::Sha256])
///     .media_type(|_| Some("text/plain".to_owned()))
///     .start()?;
/// let locs = inventory.map(|item| Ok(item?.loc)).collect::<Result<Vec<_>, resync_core::build::BuildError>>()?;
/// assert_eq!(locs, ["https://example.org/data/a.txt", "https://example.org/data/b%20c.txt"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct FileInventory {
    folder: Folder,
    url: String,
    algorithms: Vec<Algorithm>,
    threads: usize,
    listener: Listener,
    media_type: MediaType,
    known: Earlier,
}

impl FileInventory {
    /// The files below `root`, each at `base_url` and its path, as [`Folder::open`] and [`below`](Self::below) have it.
    pub fn of(root: impl AsRef<Path>, base_url: &str) -> Result<Self, BuildError> {
        Folder::open(root).map(|folder| Self::below(folder, base_url))
    }

    /// The resources of a folder, each at `base_url` and its path. Digests are sha-256, and all cores read.
    pub fn below(folder: Folder, base_url: &str) -> Self {
        Self {
            folder,
            url: folder_url(base_url),
            algorithms: vec![Algorithm::Sha256],
            threads: thread::available_parallelism().map_or(1, usize::from),
            listener: Listener {
                skipped: Box::new(|_| ()),
                unportable: Box::new(|_| ()),
                link: Box::new(|_| ()),
            },
            media_type: Arc::new(|_| None),
            known: Box::new(std::iter::empty()),
        }
    }

    /// Which digests are computed, in one pass over each file.
    pub fn algorithms(mut self, algorithms: impl IntoIterator<Item = Algorithm>) -> Self {
        self.algorithms = algorithms.into_iter().collect();
        self
    }

    /// What becomes of symbolic links.
    pub fn links(mut self, links: SymbolicLinks) -> Self {
        self.folder = self.folder.links(links);
        self
    }

    /// How many threads read and hash, at least one.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Which files, and which folders with all in them, are looked at ([`Folder::admit`]).
    pub fn admit(mut self, admit: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.folder = self.folder.admit(admit);
        self
    }

    /// Calls `report` for each file or folder that is left out, where the reason matters.
    pub fn on_skipped(mut self, report: impl FnMut(Skipped) + Send + 'static) -> Self {
        self.listener.skipped = Box::new(report);
        self
    }

    /// Calls `report` for each resource whose name not every Destination can keep.
    pub fn on_unportable(mut self, report: impl FnMut(Unportable) + Send + 'static) -> Self {
        self.listener.unportable = Box::new(report);
        self
    }

    /// Calls `report` with the path below the folder of each resource that is a symbolic link to a file.
    pub fn on_link(mut self, report: impl FnMut(&Path) + Send + 'static) -> Self {
        self.listener.link = Box::new(report);
        self
    }

    /// The media type of a file, by its path below the folder.
    pub fn media_type(mut self, of: impl Fn(&Path) -> Option<String> + Send + Sync + 'static) -> Self {
        self.media_type = Arc::new(of);
        self
    }

    /// What an earlier walk of the same folder found, in its order. A file whose [`Stamp`] is the same still has the digests that it
    /// had, and is not read again.
    ///
    /// ```
    /// use resync_core::build::FileInventory;
    ///
    /// let folder = tempfile::tempdir()?;
    /// std::fs::write(folder.path().join("a.txt"), "one")?;
    /// let walk = |known: Vec<_>| {
    ///     let files = FileInventory::of(folder.path(), "https://example.org/data")?;
    ///     files.known(known.into_iter().map(Ok)).start()
    /// };
    /// let mut files = walk(Vec::new())?;
    /// let known: Vec<_> = std::iter::from_fn(|| files.next_known()).collect::<Result<_, _>>()?;
    /// assert_eq!(files.reads(), 1);
    /// // Files that have only just been written are read once more.
    /// let again = walk(known.clone())?.next().transpose()?;
    /// assert_eq!(again, Some(known[0].item.clone()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn known(mut self, known: impl Iterator<Item = Result<Known, BuildError>> + Send + 'static) -> Self {
        self.known = Box::new(known);
        self
    }

    /// Where a dump takes the bytes of these files from.
    pub fn contents(&self) -> FileContents {
        FileContents { folder: self.folder.clone(), url: self.url.clone() }
    }

    /// Starts to walk.
    pub fn start(self) -> Result<Files, BuildError> {
        let started = DateTime::now();
        let task = Arc::new(Task {
            folder: self.folder.clone(),
            algorithms: self.algorithms,
            media_type: self.media_type,
            reads: AtomicU64::new(0),
        });
        let known = self.known;
        let walker = Walker::new(self.folder, self.url, self.listener)?;
        let (jobs, next_job) = sync_channel(self.threads * AHEAD);
        let (answers, order) = sync_channel(self.threads * AHEAD);
        let next_job = Arc::new(Mutex::new(next_job));
        for _ in 0..self.threads {
            let (task, next_job) = (Arc::clone(&task), Arc::clone(&next_job));
            spawn("inventory-read", move || task.work(&next_job))?;
        }
        spawn("inventory-walk", move || hand_out(walker, known, &jobs, &answers))?;
        Ok(Files { started, order, batch: Vec::new().into_iter(), ended: false, task })
    }
}

impl fmt::Debug for FileInventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileInventory")
            .field("folder", &self.folder)
            .field("url", &self.url)
            .field("algorithms", &self.algorithms)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), BuildError> {
    thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(())
}

/// Files that one thread reads at one go, and where to it answers.
struct Job {
    files: Vec<(Found, Option<Known>)>,
    answer: SyncSender<Vec<Outcome>>,
}

/// What comes next, in order.
#[derive(Debug)]
enum Next {
    Batch(Receiver<Vec<Outcome>>),
    /// The walk came to grief.
    Failed(BuildError),
    /// The walk is through. A walk that breaks off does not come to say so, and must not look complete.
    End,
}

/// What an earlier walk knew of each file of this one; both are in the order of URLs.
fn recall(
    walker: Walker,
    known: Earlier,
) -> impl Iterator<Item = Result<(Found, Option<Known>), BuildError>> {
    let mut known = known.peekable();
    walker.map(move |found| {
        let found = found?;
        let is_before =
            |one: &Result<Known, BuildError>| one.as_ref().is_ok_and(|one| one.item.loc < found.loc);
        while known.next_if(is_before).is_some() {}
        let is_it =
            |one: &Result<Known, BuildError>| one.as_ref().map_or(true, |one| one.item.loc == found.loc);
        let known = known.next_if(is_it).transpose()?;
        Ok((found, known))
    })
}

/// Walks, and ends when nobody listens any more.
fn hand_out(walker: Walker, known: Earlier, jobs: &SyncSender<Job>, order: &SyncSender<Next>) {
    let mut files = Vec::new();
    // Small at first, so that few files are spread over all threads, too.
    let mut size = 1;
    let hand_over = |files: &mut Vec<(Found, Option<Known>)>| {
        let (answer, receiver) = sync_channel(1);
        jobs.send(Job { files: std::mem::take(files), answer }).is_ok()
            && order.send(Next::Batch(receiver)).is_ok()
    };
    let mut end = Next::End;
    for found in recall(walker, known) {
        match found {
            Ok(found) => files.push(found),
            Err(error) => {
                end = Next::Failed(error);
                break;
            }
        }
        if files.len() >= size {
            if !hand_over(&mut files) {
                return;
            }
            size = (size * 2).min(BATCH);
        }
    }
    if hand_over(&mut files) {
        // Nobody may be listening any more.
        let _ = order.send(end);
    }
}

/// A walk under way: an [`Inventory`](super::Inventory). Dropping it ends the walk.
pub struct Files {
    started: DateTime,
    order: Receiver<Next>,
    batch: vec::IntoIter<Outcome>,
    ended: bool,
    task: Arc<Task>,
}

impl Files {
    /// Before the first file was looked at: the `at` of a list of these (RS-021).
    pub fn started(&self) -> DateTime {
        self.started
    }

    /// `None` at the end that was announced; a thread that is gone without a word has panicked.
    fn next_batch(&self) -> Result<Option<Vec<Outcome>>, BuildError> {
        match self.order.recv() {
            Ok(Next::Batch(answer)) => answer.recv().map(Some).map_err(|_| BuildError::BrokenOff),
            Ok(Next::Failed(error)) => Err(error),
            Ok(Next::End) => Ok(None),
            Err(_) => Err(BuildError::BrokenOff),
        }
    }

    /// How many files have been read so far; those that were [known](FileInventory::known) and are the same are not among them.
    pub fn reads(&self) -> u64 {
        self.task.reads.load(Ordering::Relaxed)
    }

    /// The next item, and how a later walk can see that its file is the same.
    pub fn next_known(&mut self) -> Option<Result<Known, BuildError>> {
        while !self.ended {
            match self.batch.next() {
                Some(Ok(Some(known))) => return Some(Ok(known)),
                Some(Ok(None)) => {}
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                None => match self.next_batch() {
                    Ok(Some(batch)) => self.batch = batch.into_iter(),
                    Ok(None) => self.ended = true,
                    Err(error) => {
                        self.ended = true;
                        return Some(Err(error));
                    }
                },
            }
        }
        None
    }
}

impl Iterator for Files {
    type Item = Result<Item, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_known().map(|known| known.map(|known| known.item))
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("started", &self.started)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

/// The bytes of the files of a folder, found by their URLs: of those that the inventory would list, and no others.
#[derive(Clone, Debug)]
pub struct FileContents {
    folder: Folder,
    url: String,
}

impl FileContents {
    fn find(&self, item: &Item) -> io::Result<Option<(File, Stamp)>> {
        let Some(path) = item.loc.strip_prefix(&self.url).and_then(path_of) else { return Ok(None) };
        for _ in 0..MAX_READS {
            let real = match self.folder.locate(&path) {
                Ok(real) => real,
                Err(LocateError::Refused(_)) => return Ok(None),
                Err(LocateError::Unknown(error)) => return Err(error),
            };
            if let Some((file, status)) = open_judged(FilePath::at(&real), None)? {
                return Ok(Some((file, status.stamp)));
            }
            match self.folder.judge_again(&real) {
                Ok(_) | Err(LocateError::Refused(Refusal::Missing)) => {}
                Err(LocateError::Refused(_)) => return Ok(None),
                Err(LocateError::Unknown(error)) => return Err(error),
            }
        }
        Err(io::Error::other("it is another file each time that it is looked at"))
    }
}

impl Contents for FileContents {
    type Content = File;

    fn open(&mut self, item: &Item) -> io::Result<Option<File>> {
        Ok(self.find(item)?.map(|(file, _)| file))
    }
}

/// A file has its present version and no other: it is the one that a change led to where length and digests agree, or, for an item
/// without digests, length and time.
impl Versions for FileContents {
    type Content = File;

    fn open_version(&mut self, event: &Event) -> io::Result<Option<File>> {
        let item = &event.item;
        let Some((file, stamp)) = self.find(item)? else { return Ok(None) };
        let is_length = item.length.is_none_or(|length| length == stamp.length());
        let is_time = item.hashes.iter().next().is_some()
            || item.lastmod.is_none_or(|time| time == lastmod_of(stamp.modified()));
        Ok((is_length && is_time).then_some(file))
    }
}

fn lastmod_of(modified: SystemTime) -> DateTime {
    DateTime::from_system_time(modified).truncate_to_seconds()
}

#[cfg(test)]
mod tests;
