//! Documents in a folder: nobody ever sees half of one, and nobody else writes there at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

use super::{BuildError, Documents, Sink};
use crate::durable::{self, folder_of, is_unfinished, sync_folder};
use crate::lock::FileLock;

/// The file that is locked; it is empty, and stays.
const LOCK: &str = ".resync.lock";

/// Documents in a folder, as a web server serves them: a temporary file beside the target, fsync, rename, fsync of the folder.
/// Every reader, and every crash, sees the old document or the new one whole.
///
/// ```
/// use resync_core::build::{BuildError, FolderSink};
///
/// let folder = tempfile::tempdir()?;
/// let sink = FolderSink::open(folder.path())?;
/// assert!(matches!(FolderSink::open(folder.path()), Err(BuildError::FolderInUse { .. })));
/// drop(sink);
/// assert!(FolderSink::open(folder.path()).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FolderSink {
    documents: FolderDocuments,
    /// Every folder that documents go to, with the file that is locked for it.
    locks: BTreeMap<PathBuf, FileLock>,
}

impl FolderSink {
    /// Documents below `folder`, which is made if need be. Nobody else can open it for as long as this lives; when a process ends,
    /// however it ends, its folders are free, and what it left unfinished is removed by the next one that opens them.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, BuildError> {
        let folder = folder.into();
        let mut sink = Self { documents: Self::read(folder.clone()), locks: BTreeMap::new() };
        match sink.take(&folder) {
            Ok(()) => Ok(sink),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                Err(BuildError::FolderInUse { folder })
            }
            Err(source) => Err(BuildError::Folder { folder, source }),
        }
    }

    /// The documents in `folder`, to be read while somebody else may be writing them.
    ///
    /// ```
    /// use resync_core::build::{ChangeLists, FolderSink, Site};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let lists = ChangeLists::new(&Site::new("https://example.org/resync"));
    /// let noon = "2026-01-03T12:00:00Z".parse()?;
    /// let mut sink = FolderSink::open(folder.path())?;
    /// lists.record(&mut sink, noon, [], noon)?;
    /// assert_eq!(lists.end(&FolderSink::read(folder.path()))?, Some(noon));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(folder: impl Into<PathBuf>) -> FolderDocuments {
        FolderDocuments { folder: folder.into() }
    }

    /// The path of a document.
    pub fn path(&self, name: &str) -> PathBuf {
        self.documents.folder.join(name)
    }

    /// Stages and publishes documents that nobody reads before all of them are there: they are brought to the disk together, and their folders are synced
    /// before they get their names and in the end. A crash before that may leave any of them; what was removed from these folders
    /// earlier stays removed.
    pub fn publish_together(&mut self, drafts: impl IntoIterator<Item = FolderDraft>) -> io::Result<()> {
        let (mut files, staged): (Vec<_>, Vec<_>) = drafts.into_iter().map(Self::stage_for_now).unzip();
        let folders: BTreeSet<_> = staged.iter().map(|staged| folder_of(&staged.target).to_owned()).collect();
        files.extend(durable::open_folders(&folders)?);
        durable::sync_together(&files)?;
        for StagedFile { target, temporary } in staged {
            temporary.persist(&target).map_err(|error| error.error)?;
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }

    /// Ends a document that is not brought to the disk yet: who publishes it does so before, with this file.
    pub fn stage_for_now(draft: FolderDraft) -> (File, StagedFile) {
        let (file, temporary) = draft.file.into_parts();
        (file, StagedFile { target: draft.target, temporary })
    }

    /// The same for a document that nobody needs after a crash: its name may be gone then.
    pub fn publish_for_now(&mut self, staged: StagedFile) -> io::Result<()> {
        staged.temporary.persist(&staged.target).map_err(|error| error.error).map(drop)
    }

    /// Makes a folder ours before the first document goes there.
    fn take(&mut self, folder: &Path) -> io::Result<()> {
        if !self.locks.contains_key(folder) {
            durable::make_folder_durable(folder)?;
            let lock = lock(folder)?;
            durable::sweep(folder)?;
            self.locks.insert(folder.to_owned(), lock);
        }
        Ok(())
    }
}

/// A document of a [`FolderSink`] while it is written.
#[derive(Debug)]
pub struct FolderDraft {
    target: PathBuf,
    file: NamedTempFile,
}

impl FolderDraft {
    /// Where it will be published.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// What has been written so far, to be read.
    pub fn written(&self) -> io::Result<File> {
        self.file.reopen()
    }
}

impl io::Write for FolderDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A document of a [`FolderSink`] that waits to be published.
#[derive(Debug)]
pub struct StagedFile {
    target: PathBuf,
    temporary: TempPath,
}

impl StagedFile {
    /// Where it will be published.
    pub fn target(&self) -> &Path {
        &self.target
    }
}

/// Published documents in a folder that somebody else may be writing into; nothing is locked, and nothing is made.
#[derive(Clone, Debug)]
pub struct FolderDocuments {
    folder: PathBuf,
}

impl Documents for FolderDocuments {
    type Published = File;

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        let path = self.folder.join(name);
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // Not every caller knows its name.
            Err(error) => Err(io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let (parents, beginning) =
            prefix.rsplit_once('/').map_or(("", prefix), |(parents, rest)| (parents, rest));
        let names = names_in(&self.folder.join(parents), |name| {
            name.starts_with(beginning) && name != LOCK && !is_unfinished(name)
        })?;
        Ok(names
            .into_iter()
            .map(|name| format!("{}{name}", &prefix[..prefix.len() - beginning.len()]))
            .collect())
    }
}

impl Documents for FolderSink {
    type Published = File;

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        self.documents.open(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.documents.list(prefix)
    }
}

impl Sink for FolderSink {
    type Draft = FolderDraft;
    type Staged = StagedFile;

    fn create(&mut self, name: &str) -> io::Result<FolderDraft> {
        let target = self.path(name);
        let folder = folder_of(&target);
        self.take(folder)?;
        let file = durable::temporary(folder)?;
        Ok(FolderDraft { target, file })
    }

    fn stage(&mut self, draft: FolderDraft) -> io::Result<StagedFile> {
        draft.file.as_file().sync_all()?;
        Ok(StagedFile { target: draft.target, temporary: draft.file.into_temp_path() })
    }

    fn publish(&mut self, staged: StagedFile) -> io::Result<()> {
        staged.temporary.persist(&staged.target).map_err(|error| error.error)?;
        sync_folder(folder_of(&staged.target))
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(folder_of(&path)).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn scratch_folder(&self) -> Option<&Path> {
        Some(&self.documents.folder)
    }
}

/// The names of the files in a folder; those that are no Unicode are not ours.
fn names_in(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && is_wanted(&name)
            && entry.file_type()?.is_file()
        {
            names.push(name);
        }
    }
    Ok(names)
}

fn lock(folder: &Path) -> io::Result<FileLock> {
    FileLock::try_acquire(&folder.join(LOCK))?.ok_or_else(|| {
        let reason = format!("another process writes into `{}`; wait until it has ended", folder.display());
        io::Error::new(io::ErrorKind::ResourceBusy, reason)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::build::MemorySink;

    fn put(sink: &mut FolderSink, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut draft = sink.create(name)?;
        draft.write_all(bytes)?;
        let staged = sink.stage(draft)?;
        sink.publish(staged)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names = names_in(folder, |_| true).unwrap();
        names.sort();
        names
    }

    #[test]
    fn a_document_in_a_folder_is_replaced_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = FolderSink::open(folder.path().join("a")).unwrap();
        assert!(sink.open("b/c.xml").unwrap().is_none());
        put(&mut sink, "b/c.xml", b"one").unwrap();
        put(&mut sink, "b/c.xml", b"two").unwrap();
        let mut abandoned = sink.create("b/c.xml").unwrap();
        abandoned.write_all(b"thr").unwrap();
        drop(sink.stage(abandoned).unwrap());
        assert_eq!(io::read_to_string(sink.open("b/c.xml").unwrap().unwrap()).unwrap(), "two");
        assert_eq!(names(&folder.path().join("a/b")), [LOCK, "c.xml"]);
        assert!(sink.remove("b/c.xml").unwrap());
        assert!(!sink.remove("b/c.xml").unwrap());
    }

    #[test]
    fn a_folder_is_free_at_once_although_a_program_that_is_being_started_has_its_lock_open() {
        let folder = tempfile::tempdir().unwrap();
        let sink = FolderSink::open(folder.path()).unwrap();
        let inherited = sink.locks[folder.path()].file().try_clone().unwrap();
        drop(sink);
        assert!(FolderSink::open(folder.path()).is_ok());
        drop(inherited);
    }

    #[test]
    fn a_folder_that_somebody_writes_into_is_refused_by_its_name_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        let mut inner = FolderSink::open(folder.path().join("a")).unwrap();
        let error = FolderSink::open(folder.path().join("a")).unwrap_err();
        assert!(error.to_string().contains(&folder.path().join("a").display().to_string()), "{error}");
        let mut outer = FolderSink::open(folder.path()).unwrap();
        assert_eq!(put(&mut outer, "a/b.xml", b"").unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        put(&mut inner, "b.xml", b"").unwrap();
        drop(inner);
        put(&mut outer, "a/b.xml", b"").unwrap();
    }

    #[test]
    fn what_a_killed_run_left_is_removed_when_its_folder_is_taken_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let left = [".resync-Ab12.tmp", "b/.resync-Cd34.tmp"];
        let foreign = [".resync-notes.txt", "b/list.tmp", "b/.resync-x.tmp.d/kept"];
        for name in left.iter().chain(&foreign) {
            let path = folder.path().join(name);
            fs::create_dir_all(folder_of(&path)).unwrap();
            fs::write(path, "half").unwrap();
        }
        let mut sink = FolderSink::open(folder.path()).unwrap();
        put(&mut sink, "b/list.xml", b"").unwrap();
        assert!(left.iter().all(|name| !folder.path().join(name).exists()));
        assert!(foreign.iter().all(|name| folder.path().join(name).exists()));
    }

    #[test]
    fn names_are_listed_by_their_beginning_as_a_sink_in_memory_lists_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = FolderSink::open(folder.path()).unwrap();
        let mut memory = MemorySink::default();
        for name in ["list.xml", "list-1.xml", "list-2/a.xml", "sets/list-1.xml", "sets/other.xml"] {
            put(&mut sink, name, b"").unwrap();
            let draft = memory.create(name).unwrap();
            memory.publish(draft).unwrap();
        }
        for (prefix, wanted) in [
            ("list", &["list-1.xml", "list.xml"][..]),
            ("list-", &["list-1.xml"]),
            ("sets/list", &["sets/list-1.xml"]),
            ("sets/", &["sets/list-1.xml", "sets/other.xml"]),
            ("none/", &[]),
        ] {
            let mut found = sink.list(prefix).unwrap();
            found.sort();
            assert_eq!(found, wanted);
            assert_eq!(memory.list(prefix).unwrap(), wanted);
        }
    }
}
