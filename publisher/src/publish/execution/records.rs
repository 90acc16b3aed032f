//! Records of documents: content and version of each.

use std::{
    fs::File,
    io::{self, BufReader},
};

use resync_core::{
    build,
    digest::{Algorithm, Digest},
    document::{Capability, Root},
    xml::{ReadError, Reader},
};

use super::Execution;
use crate::{
    error::{Action, Error},
    helpers::files,
    publish::{
        Written,
        documents::Composed,
        in_place::{digest_of, has_stamp, is_in_place, stamp_of},
    },
    site::{DOCUMENT_FOLDER, Location},
    state::{DocumentRecord, Part},
};

impl Execution<'_> {
    /// Records a document file as it is now; unchanged content keeps its version.
    pub(super) fn record(
        &mut self,
        location: Location,
        capability: Capability,
        part: Part,
    ) -> Result<(), Error> {
        let known = self.known_as(&location, &part).cloned();
        if known.as_ref().is_some_and(|known| has_stamp(self.out, known)) {
            self.done.records.extend(known);
            return Ok(());
        }
        let path = self.out.join(&location.path);
        let content = match self.digests.get(&path) {
            Some(digest) => *digest,
            None => digest_of(&path).map_err(Error::cannot(Action::Read, &path))?,
        };
        match known.filter(|known| known.content == content) {
            Some(same) => self.done.records.push(same),
            None => self.add_written(location, capability, part, content),
        }
        Ok(())
    }

    /// Writes a document, unless its file has the same content already.
    ///
    /// A file that was not as its record says gets a new version too, whatever its new content: somebody may have read what was there.
    pub(super) fn replace(&mut self, document: &Composed) -> Result<(), Error> {
        let Composed { location, capability, bytes } = document;
        let content = Digest::of(Algorithm::Sha256, bytes);
        let is_it = |known: &&DocumentRecord| known.content == content && is_in_place(self.out, known);
        if let Some(same) = self.known_as(location, &Part::Whole).filter(is_it).cloned() {
            self.done.records.push(same);
            return Ok(());
        }
        let path = self.out.join(&location.path);
        files::replace(&path, bytes).map_err(Error::cannot(Action::Write, &path))?;
        self.add_written(location.clone(), capability.clone(), Part::Whole, content);
        Ok(())
    }

    /// The last record of the document in this place, if it was the same part then.
    fn known_as(&self, location: &Location, part: &Part) -> Option<&DocumentRecord> {
        self.known(&location.url).filter(|known| known.path == location.path && known.part == *part)
    }

    fn add_written(
        &mut self,
        Location { path, url }: Location,
        capability: Capability,
        part: Part,
        content: Digest,
    ) {
        let is_index = part == Part::Index;
        self.done.written.push(Written { capability: capability.clone(), url: url.clone(), is_index });
        let stamp = stamp_of(&self.out.join(&path));
        let (version, changed) = (self.plan.build, self.now);
        self.done.records.push(DocumentRecord {
            path,
            url,
            capability,
            part,
            content,
            stamp,
            version,
            changed,
        });
    }

    /// Records the archive of a series, if there is one. If it cannot be read and nothing is being archived, it is only left out.
    pub(super) fn archive(&mut self, stem: &str, capability: &Capability) -> Result<(), Error> {
        let location = self.site.place(&format!("{DOCUMENT_FOLDER}/{stem}-archive.xml"));
        match self.record_as_it_is(location, capability) {
            Err(error) if self.plan.archive.is_none() => {
                self.leave_out(capability, &error);
                Ok(())
            }
            recorded => recorded,
        }
    }

    /// Removes the documents of a kind from the records.
    pub(super) fn leave_out(&mut self, capability: &Capability, error: &Error) {
        tracing::warn!(%error, "{} file missing; removed from the Capability List", capability.name());
        self.done.records.retain(|record| record.capability != *capability);
        self.done.written.retain(|written| written.capability != *capability);
    }

    /// Records a document as it is now, if it exists, and the documents that it lists if it is an index.
    pub(super) fn record_as_it_is(&mut self, top: Location, capability: &Capability) -> Result<(), Error> {
        let unreadable = |source| build::BuildError::Published { name: top.path.clone(), source };
        let file = files::if_there(File::open(self.out.join(&top.path)));
        let Some(file) = file.map_err(|error| unreadable(ReadError::Io(error)))? else { return Ok(()) };
        let document = Reader::new(BufReader::new(file)).map_err(unreadable)?;
        if document.header().root == Root::UrlSet {
            return self.record(top, capability.clone(), Part::Whole);
        }
        for entry in document {
            let url = entry.map_err(unreadable)?.loc;
            let Some(path) = url.strip_prefix(self.site.base().as_str()).map(str::to_owned) else { continue };
            let part = Part::Component { index: top.url.clone() };
            self.record(Location { path, url }, capability.clone(), part)?;
        }
        self.record(top, capability.clone(), Part::Index)
    }
}

/// Whether a document that cannot be read is missing, or is not such a document; other errors may pass.
pub(super) fn is_lasting(error: &Error) -> bool {
    let io = match error {
        Error::File { action: Action::Read, source, .. } => source,
        Error::Lists(build::BuildError::Published { source: ReadError::Io(io), .. }) => io,
        Error::Lists(build::BuildError::Published { .. }) => return true,
        _ => return false,
    };
    matches!(io.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
}
