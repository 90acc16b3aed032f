//! Where documents go: created unseen, then put into their place whole.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Cursor};
use std::path::Path;
use std::sync::Arc;

use super::BuildError;
use crate::xml::Reader;

/// Published documents, by name, to be read.
pub trait Documents {
    /// A published document, to be read.
    type Published: io::Read;

    /// A published document; `None` when there is none of this name.
    fn open(&self, name: &str) -> io::Result<Option<Self::Published>>;

    /// The names of the published documents that begin with `prefix` and have no further `/`, in any order.
    fn list(&self, prefix: &str) -> io::Result<Vec<String>>;
}

/// Opens a published document and reads its header; `None` when there is none of this name.
pub fn open_document<D: Documents>(
    documents: &D,
    name: &str,
) -> Result<Option<Reader<BufReader<D::Published>>>, BuildError> {
    let Some(published) = documents.open(name)? else { return Ok(None) };
    let unreadable = |source| BuildError::Published { name: name.to_owned(), source };
    Reader::new(BufReader::new(published)).map(Some).map_err(unreadable)
}

/// A place for documents, by name; `name` is a path with `/` between its parts.
///
/// A document comes in three steps, so that generators can have everything ready before the first reader sees a change: it is
/// created and written, staged (whole and durable, still unseen), and published (seen by everyone from one moment to the next).
/// What is dropped before it is published leaves no trace.
pub trait Sink: Documents {
    /// A document while it is written.
    type Draft: io::Write;
    /// A document that waits to be published; holds no open file.
    type Staged;

    /// Starts a document.
    fn create(&mut self, name: &str) -> io::Result<Self::Draft>;

    /// Ends a document.
    fn stage(&mut self, draft: Self::Draft) -> io::Result<Self::Staged>;

    /// Puts a document into its place; the one that was there is replaced.
    fn publish(&mut self, staged: Self::Staged) -> io::Result<()>;

    /// Removes a published document; whether there was one.
    fn remove(&mut self, name: &str) -> io::Result<bool>;

    /// A folder for temporary files as long as the documents; the system's own where there is none.
    fn scratch_folder(&self) -> Option<&Path> {
        None
    }
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
        io::Write::write(&mut self.bytes, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Documents for MemorySink {
    type Published = Cursor<Arc<[u8]>>;

    fn open(&self, name: &str) -> io::Result<Option<Self::Published>> {
        Ok(self.0.get(name).cloned().map(Cursor::new))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let names = self.0.range(prefix.to_owned()..).map(|(name, _)| name);
        let names = names.take_while(|name| name.starts_with(prefix));
        Ok(names.filter(|name| !name[prefix.len()..].contains('/')).cloned().collect())
    }
}

impl Sink for MemorySink {
    type Draft = MemoryDraft;
    type Staged = MemoryDraft;

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

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        Ok(self.0.remove(name).is_some())
    }
}
