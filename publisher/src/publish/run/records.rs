//! Taking down documents: what each says, since which version, and whether its file still holds that.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::Path,
};

use resync_core::{
    build::{self, Stamp},
    digest::{Algorithm, Digest},
    document::{Capability, Root},
    xml::{ReadError, Reader},
};

use super::Run;
use crate::{
    documents::Composed,
    files,
    publish::{BuildError, Written},
    site::{DOCUMENT_FOLDER, Location},
    state::{DocumentRecord, Part, State},
};

impl Run<'_> {
    /// Takes down what a document file says now; one that says what it said before keeps its version.
    pub(super) fn note(
        &mut self,
        location: Location,
        capability: Capability,
        part: Part,
    ) -> Result<(), BuildError> {
        let Location { path, url } = location;
        let is_known = |known: &&DocumentRecord| known.path == path && known.part == part;
        if let Some(known) = self.known(&url).filter(is_known)
            && is_in_place(self.out, known)
        {
            let known = known.clone();
            self.done.records.push(known);
            return Ok(());
        }
        let full = self.out.join(&path);
        let content = match self.digests.get(&full) {
            Some(digest) => *digest,
            None => digest_of(&full).map_err(|source| BuildError::Read { path: full.clone(), source })?,
        };
        self.wrote(DocumentRecord {
            stamp: stamp_of(&full),
            path,
            url,
            capability,
            part,
            meaning: content,
            content,
            version: self.plan.build,
            changed: self.now,
        });
        Ok(())
    }

    /// Writes a document, unless it says the same and its file is as it was written.
    ///
    /// A file that was not as its record said is a new version too, whatever it is to say now: somebody may have read what stood there.
    pub(super) fn replace(&mut self, document: &Composed) -> Result<(), BuildError> {
        let Composed { location, capability, part, bytes, meaning } = document;
        let says_the_same = |record: &&DocumentRecord| {
            record.path == location.path && record.part == *part && record.meaning == *meaning
        };
        if let Some(record) = self.known(&location.url).filter(says_the_same)
            && is_in_place(self.out, record)
        {
            let record = record.clone();
            self.done.records.push(record);
            return Ok(());
        }
        let path = self.out.join(&location.path);
        files::replace(&path, bytes).map_err(|source| BuildError::Write { path: path.clone(), source })?;
        self.wrote(DocumentRecord {
            path: location.path.clone(),
            url: location.url.clone(),
            capability: capability.clone(),
            part: part.clone(),
            meaning: *meaning,
            content: Digest::of(Algorithm::Sha256, bytes),
            stamp: stamp_of(&path),
            version: self.plan.build,
            changed: self.now,
        });
        Ok(())
    }

    fn wrote(&mut self, record: DocumentRecord) {
        let (capability, url, is_index) =
            (record.capability.clone(), record.url.clone(), record.part == Part::Index);
        self.done.written.push(Written { capability, url, is_index });
        self.done.records.push(record);
    }

    /// Takes down the archive of a series, if there is one. Where nothing is being archived, one that cannot be read is in nobody's way: it is told of
    /// no more.
    pub(super) fn archive(&mut self, stem: &str, capability: &Capability) -> Result<(), BuildError> {
        match self.note_archive(stem, capability) {
            Err(error) if self.plan.archive.is_none() => {
                self.leave_out(capability, &error);
                Ok(())
            }
            noted => noted,
        }
    }

    fn note_archive(&mut self, stem: &str, capability: &Capability) -> Result<(), BuildError> {
        self.note_as_it_is(self.site.place(&format!("{DOCUMENT_FOLDER}/{stem}-archive.xml")), capability)
    }

    /// Tells no more of the documents of a kind.
    pub(super) fn leave_out(&mut self, capability: &Capability, error: &BuildError) {
        tracing::warn!(%error, "{} file missing; removed from the Capability List", capability.name());
        self.done.records.retain(|record| record.capability != *capability);
        self.done.written.retain(|written| written.capability != *capability);
    }

    /// Takes down what a document says now, if it is there, and, where that is an index, those that it leads to.
    pub(super) fn note_as_it_is(&mut self, top: Location, capability: &Capability) -> Result<(), BuildError> {
        let unreadable = |source| build::BuildError::Published { name: top.path.clone(), source };
        let document = match File::open(self.out.join(&top.path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(ReadError::Io(error)).into()),
            Ok(file) => Reader::new(BufReader::new(file)).map_err(unreadable)?,
        };
        if document.header().root == Root::UrlSet {
            return self.note(top, capability.clone(), Part::Whole);
        }
        for entry in document {
            let url = entry.map_err(unreadable)?.loc;
            let Some(path) = url.strip_prefix(self.site.base().as_str()).map(str::to_owned) else { continue };
            let part = Part::Component { index: top.url.clone() };
            self.note(Location { path, url }, capability.clone(), part)?;
        }
        self.note(top, capability.clone(), Part::Index)
    }
}

/// Whether a document that cannot be read is gone, or no such document; what else is in the way may pass.
pub(super) fn is_lasting(error: &BuildError) -> bool {
    let io = match error {
        BuildError::Read { source, .. } => source,
        BuildError::Lists(build::BuildError::Published { source: ReadError::Io(io), .. }) => io,
        BuildError::Lists(build::BuildError::Published { .. }) => return true,
        _ => return false,
    };
    matches!(io.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory)
}

/// Whether a document's file holds the very bytes that were written.
pub(crate) fn is_in_place(out: &Path, record: &DocumentRecord) -> bool {
    let path = out.join(&record.path);
    record.stamp.is_some_and(|stamp| stamp_of(&path) == Some(stamp))
        || digest_of(&path).is_ok_and(|content| content == record.content)
}

/// Takes down the stamps of documents that hold the very bytes that were written and have another owner or time since, so that they are not read each
/// time; says whether there are any.
pub(crate) fn restamp(state: &mut State, out: &Path) -> bool {
    let mut is_any = false;
    for record in &mut state.documents {
        let path = out.join(&record.path);
        // Before it is read, so that what changes meanwhile is read again.
        let stamp = stamp_of(&path);
        if stamp.is_some()
            && stamp != record.stamp
            && digest_of(&path).is_ok_and(|content| content == record.content)
        {
            record.stamp = stamp;
            is_any = true;
        }
    }
    is_any
}

fn stamp_of(path: &Path) -> Option<Stamp> {
    Stamp::of(&fs::metadata(path).ok()?).ok()
}

fn digest_of(path: &Path) -> io::Result<Digest> {
    files::digest_of(File::open(path)?)
}
