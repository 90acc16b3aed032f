//! Documents that wait to be published, whole and in order.

use std::io::Write;

use super::spool::Spool;
use super::{BuildError, Sink};
use crate::document::{Document, Header};
use crate::xml;

/// Documents that are staged under their names.
pub(super) struct Ready<S: Sink> {
    staged: Vec<(String, S::Staged)>,
}

impl<S: Sink> Ready<S> {
    pub(super) const fn new() -> Self {
        Self { staged: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.staged.is_empty()
    }

    /// Entries that waited for their header.
    pub(super) fn spool(
        &mut self,
        sink: &mut S,
        name: String,
        spool: Spool,
        header: &Header,
    ) -> Result<(), BuildError> {
        let staged = stage(sink, &name, |draft| spool.write_to(draft, header))?;
        self.staged.push((name, staged));
        Ok(())
    }

    /// A short document.
    pub(super) fn document(
        &mut self,
        sink: &mut S,
        name: String,
        document: &Document,
    ) -> Result<(), BuildError> {
        self.bytes(sink, name, &xml::write(document))
    }

    /// A short document as bytes.
    pub(super) fn bytes(&mut self, sink: &mut S, name: String, bytes: &[u8]) -> Result<(), BuildError> {
        let staged = stage(sink, &name, |draft| Ok(draft.write_all(bytes)?))?;
        self.staged.push((name, staged));
        Ok(())
    }

    /// A document that is staged already.
    pub(super) fn push(&mut self, name: String, staged: S::Staged) {
        self.staged.push((name, staged));
    }

    /// All of another one, after these.
    pub(super) fn append(&mut self, other: Self) {
        self.staged.extend(other.staged);
    }

    /// Publishes all, first come first, and gives their names.
    pub(super) fn publish(self, sink: &mut S) -> Result<Vec<String>, BuildError> {
        let mut names = Vec::with_capacity(self.staged.len());
        for (name, staged) in self.staged {
            publish(sink, &name, staged)?;
            names.push(name);
        }
        Ok(names)
    }

    /// The same for names that are new, and that nothing published points at yet: all appear, or none stays.
    pub(super) fn publish_new(self, sink: &mut S) -> Result<Vec<String>, BuildError> {
        let mut names = Vec::with_capacity(self.staged.len());
        for (name, staged) in self.staged {
            let outcome = publish(sink, &name, staged);
            names.push(name);
            if let Err(error) = outcome {
                for name in names {
                    // What cannot be removed now is swept by a later run; the first failure is the one to report.
                    let _ = sink.remove(&name);
                }
                return Err(error);
            }
        }
        Ok(names)
    }
}

/// Creates a document, has it written, and stages it; what fails names it.
pub(super) fn stage<S: Sink>(
    sink: &mut S,
    name: &str,
    write: impl FnOnce(&mut S::Draft) -> Result<(), BuildError>,
) -> Result<S::Staged, BuildError> {
    let named = |source| BuildError::Write { name: name.to_owned(), source };
    let mut draft = sink.create(name).map_err(named)?;
    write(&mut draft).map_err(|error| match error {
        BuildError::Io(source) => named(source),
        other => other,
    })?;
    draft.flush().map_err(named)?;
    sink.stage(draft).map_err(named)
}

fn publish<S: Sink>(sink: &mut S, name: &str, staged: S::Staged) -> Result<(), BuildError> {
    sink.publish(staged).map_err(|source| BuildError::Write { name: name.to_owned(), source })
}

/// Writes one document and publishes it right away.
pub(super) fn put<S: Sink>(sink: &mut S, name: &str, document: &Document) -> Result<(), BuildError> {
    let mut ready = Ready::new();
    ready.document(sink, name.to_owned(), document)?;
    ready.publish(sink).map(drop)
}
