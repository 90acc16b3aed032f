//! Where documents go: created unseen, then put into their place whole.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::{Builder, NamedTempFile, TempPath};

/// A place for documents, by name.
///
/// A document comes in three steps, so that generators can have everything ready before the first reader sees a change: it is
/// created and written, staged (whole and durable, still unseen), and published (seen by everyone from one moment to the next).
/// What is dropped before it is published leaves no trace.
pub trait Sink {
    /// A document while it is written.
    type Draft: io::Write;
    /// A document that waits to be published; holds no open file.
    type Staged;
    /// A published document, to be read.
    type Published: io::Read;

    /// Starts a document; `name` is a path with `/` between its parts.
    fn create(&mut self, name: &str) -> io::Result<Self::Draft>;

    /// Ends a document.
    fn stage(&mut self, draft: Self::Draft) -> io::Result<Self::Staged>;

    /// Puts a document into its place; the one that was there is replaced.
    fn publish(&mut self, staged: Self::Staged) -> io::Result<()>;

    /// A published document; `None` when there is none of this name.
    fn open(&self, name: &str) -> io::Result<Option<Self::Published>>;

    /// Removes a published document; whether there was one.
    fn remove(&mut self, name: &str) -> io::Result<bool>;
}

/// Documents in memory, for tests and small sites.
///
/// ```
/// use std::io::Write;
/// use resync_core::build::{MemorySink, Sink};
///
/// let mut sink = MemorySink::default();
/// let mut draft = sink.create("a.xml")?;
/// draft.write_all(b"<urlset/>")?;
/// let staged = sink.stage(draft)?;
/// assert_eq!(sink.get("a.xml"), None);
/// sink.publish(staged)?;
/// assert_eq!(sink.get("a.xml"), Some(&b"<urlset/>"[..]));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemorySink(BTreeMap<String, Arc<[u8]>>);

impl MemorySink {
    /// The bytes of a document.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(AsRef::as_ref)
    }

    /// The names of all documents, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// A document of a [`MemorySink`] while it is written.
#[derive(Clone, Debug)]
pub struct MemoryDraft {
    name: String,
    bytes: Vec<u8>,
}

impl io::Write for MemoryDraft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for MemorySink {
    type Draft = MemoryDraft;
    type Staged = MemoryDraft;
    type Published = Cursor<Arc<[u8]>>;

    fn create(&mut self, name: &str) -> io::Result<MemoryDraft> {
        Ok(MemoryDraft { name: name.to_owned(), bytes: Vec::new() })
    }

    fn stage(&mut self, draft: MemoryDraft) -> io::Result<MemoryDraft> {
        Ok(draft)
    }

    fn publish(&mut self, staged: MemoryDraft) -> io::Result<()> {
        self.0.insert(staged.name, staged.bytes.into());
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<Option<Self::Published>> {
        Ok(self.0.get(name).cloned().map(Cursor::new))
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        Ok(self.0.remove(name).is_some())
    }
}

/// Documents in a folder, as a web server serves them: a temporary file beside the target, fsync, rename, fsync of the folder.
/// Every reader, and every crash, sees the old document or the new one whole.
#[derive(Clone, Debug)]
pub struct FolderSink {
    folder: PathBuf,
}

impl FolderSink {
    /// Documents below `folder`, which is made when the first one is created.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The path of a document.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A document of a [`FolderSink`] while it is written.
#[derive(Debug)]
pub struct FolderDraft {
    target: PathBuf,
    file: NamedTempFile,
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

impl Sink for FolderSink {
    type Draft = FolderDraft;
    type Staged = StagedFile;
    type Published = File;

    fn create(&mut self, name: &str) -> io::Result<FolderDraft> {
        let target = self.path(name);
        let folder = folder_of(&target);
        make_folder(folder)?;
        let mut builder = Builder::new();
        builder.prefix(".resync-").suffix(".tmp");
        share(&mut builder);
        let file = builder.tempfile_in(folder)?;
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

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        match File::open(self.path(name)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Ok(()) => sync_folder(folder_of(&path)).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a folder and those above it, each name durable.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    make_folder(folder_of(folder))?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !folder.is_dir() => Err(error),
        _ => sync_folder(folder_of(folder)),
    }
}

/// Temporary files are private by default, but a web server under another user must read what replaces a document.
#[cfg(unix)]
fn share(builder: &mut Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt as _;
    builder.permissions(fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn share(_: &mut Builder<'_, '_>) {}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Writes one document and publishes it right away.
pub(super) fn put<S: Sink>(sink: &mut S, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut draft = sink.create(name)?;
    draft.write_all(bytes)?;
    draft.flush()?;
    let staged = sink.stage(draft)?;
    sink.publish(staged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_in_a_folder_is_replaced_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = FolderSink::new(folder.path().join("a"));
        assert!(sink.open("b/c.xml").unwrap().is_none());
        put(&mut sink, "b/c.xml", b"one").unwrap();
        put(&mut sink, "b/c.xml", b"two").unwrap();
        let mut abandoned = sink.create("b/c.xml").unwrap();
        abandoned.write_all(b"thr").unwrap();
        drop(sink.stage(abandoned).unwrap());
        assert_eq!(io::read_to_string(sink.open("b/c.xml").unwrap().unwrap()).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.path().join("a/b")).unwrap().count(), 1);
        assert!(sink.remove("b/c.xml").unwrap());
        assert!(!sink.remove("b/c.xml").unwrap());
    }
}
