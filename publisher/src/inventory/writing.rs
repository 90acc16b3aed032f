//! The files that a run writes until its plan is saved: the next inventory, the changes since the last one, and what the journal of
//! versions is to have.

use std::{
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use resync_core::{
    build::{BuildError, Event, FolderDraft, FolderSink, Item, Known, Sink as _},
    datetime::DateTime,
    document::Change,
};
use serde::{Deserialize, Serialize};

use super::stored::{self, JsonLines, Line, write_known, write_line};
use crate::{
    helpers::{files, serde_text::text},
    state::{FOLDER, Segment},
    versions::{Memento, Merge, Merged, VersionLine},
};

/// The changes between the last inventory and the next one.
const CHANGES: &str = "changes.jsonl";

/// The next inventory, or what differs in it from the base file, and the changes.
pub(super) struct Writing {
    out: PathBuf,
    sink: FolderSink,
    /// The file of the lines.
    name: &'static str,
    /// Whether the lines are the whole inventory.
    pub(super) is_whole: bool,
    /// Buffer of a line.
    text: String,
    pub(super) lines: BufWriter<FolderDraft>,
    changes: BufWriter<FolderDraft>,
    /// What the journal of versions is to have.
    versions: Option<Versions>,
}

/// A file of the journal of versions.
struct Versions {
    name: String,
    bytes: u64,
    /// Buffer of a line.
    text: Vec<u8>,
    lines: BufWriter<FolderDraft>,
}

impl Writing {
    pub(super) fn begin(out: &Path, is_whole: bool) -> Result<Self, BuildError> {
        let name = if is_whole { stored::NEXT } else { stored::NEXT_SINCE };
        stored::begin(out).map_err(|source| unwritable(out, name, source))?;
        let mut sink = FolderSink::open(out.join(FOLDER))?;
        let lines = sink.create(name).map_err(|source| unwritable(out, name, source))?;
        let lines = BufWriter::with_capacity(stored::BUFFER, lines);
        let changes = sink.create(CHANGES).map_err(|source| unwritable(out, CHANGES, source))?;
        let changes = BufWriter::with_capacity(stored::BUFFER, changes);
        let out = out.to_owned();
        let (text, versions) = (String::new(), None);
        Ok(Self { out, sink, name, is_whole, text, lines, changes, versions })
    }

    pub(super) fn known(&mut self, known: &Known) -> Result<(), BuildError> {
        write_known(&mut self.lines, &mut self.text, known)
            .map_err(|source| unwritable(&self.out, self.name, source))
    }

    pub(super) fn line(&mut self, line: &Line) -> Result<(), BuildError> {
        write_line(&mut self.lines, line).map_err(|source| unwritable(&self.out, self.name, source))
    }

    pub(super) fn event(&mut self, change: RecordedChange) -> Result<(), BuildError> {
        write_line(&mut self.changes, &EventLine::from(change))
            .map_err(|source| unwritable(&self.out, CHANGES, source))
    }

    /// Versions, in the order of their URIs, for the file `name` of their journal.
    pub(super) fn versions(&mut self, name: Option<&str>, lines: &[VersionLine]) -> Result<(), BuildError> {
        let Some(name) = name.filter(|_| !lines.is_empty()) else { return Ok(()) };
        let failed = |source| unwritable(&self.out, name, source);
        let versions = match &mut self.versions {
            Some(versions) => versions,
            none => {
                let draft = self.sink.create(name).map_err(failed)?;
                let lines = BufWriter::with_capacity(stored::BUFFER, draft);
                none.insert(Versions { name: name.to_owned(), bytes: 0, text: Vec::new(), lines })
            }
        };
        for line in lines {
            versions.text.clear();
            write_line(&mut versions.text, line).map_err(failed)?;
            versions.lines.write_all(&versions.text).map_err(failed)?;
            versions.bytes += versions.text.len() as u64;
        }
        Ok(())
    }

    /// Gives the files their names; returns the one for the journal of versions, and if there is one, the other that takes the place of
    /// older ones. One without the others does no harm before there is a plan; and the removal of the last plan is durable before, since the
    /// folder is synced with the files.
    pub(super) fn publish(
        self,
        merge: Option<Merge>,
    ) -> Result<(Option<Segment>, Option<Merged>), BuildError> {
        let Self { out, mut sink, name, lines, changes, versions, .. } = self;
        let written = |file: BufWriter<FolderDraft>, name: &str| {
            file.into_inner().map_err(|error| unwritable(&out, name, error.into_error()))
        };
        let mut files = vec![written(lines, name)?, written(changes, CHANGES)?];
        let (mut segment, mut merged) = (None, None);
        if let Some(Versions { name, bytes, lines, .. }) = versions {
            files.push(written(lines, &name)?);
            segment = Some(Segment { name, bytes });
            if let Some((file, of)) = merge.and_then(|merge| write_merged(&mut sink, merge)) {
                files.push(file);
                merged = Some(of);
            }
        }
        sink.publish_together(files).map_err(|source| unwritable(&out, name, source))?;
        Ok((segment, merged))
    }
}

/// Writes a file that takes the place of others of the journal. Where that fails, they stay.
fn write_merged(sink: &mut FolderSink, merge: Merge) -> Option<(FolderDraft, Merged)> {
    let written = sink.create(merge.name()).and_then(|draft| {
        let mut lines = BufWriter::with_capacity(stored::BUFFER, draft);
        let merged = merge.write(&mut lines)?;
        let draft = lines.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok((draft, merged))
    });
    if let Err(error) = &written {
        tracing::warn!(%error, "cannot merge files of the journal of versions; they stay as they are");
    }
    written.ok()
}

/// What cannot be written, by its path.
fn unwritable(out: &Path, name: &str, source: io::Error) -> BuildError {
    BuildError::Write { name: out.join(FOLDER).join(name).display().to_string(), source }
}

/// A change between the last inventory and the next one.
pub(crate) struct RecordedChange {
    pub(crate) event: Event,
    /// The version to which it is to link. The link is made when the change is listed: it is longer than the rest.
    pub(crate) memento: Option<Memento>,
}

/// The changes between the last inventory and the next one.
pub(crate) fn changes(
    out: &Path,
) -> Result<impl Iterator<Item = Result<RecordedChange, BuildError>> + use<>, BuildError> {
    let lines = JsonLines::<EventLine>::open(&out.join(FOLDER).join(CHANGES))?;
    Ok(lines.map(|line| line.map(RecordedChange::from)))
}

/// Makes the next inventory the last one, unless that was done before. A crash may bring the changes back: without a plan nobody reads them.
pub(crate) fn advance(out: &Path) -> io::Result<()> {
    stored::advance(out)?;
    files::remove_unsynced(&out.join(FOLDER).join(CHANGES))
}

#[derive(Serialize, Deserialize)]
struct EventLine {
    #[serde(with = "text")]
    change: Change,
    #[serde(with = "text")]
    moment: DateTime,
    resource: Line,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memento: Option<Memento>,
}

impl From<RecordedChange> for EventLine {
    fn from(RecordedChange { event, memento }: RecordedChange) -> Self {
        let Event { change, moment, item } = event;
        Self { change, moment, resource: Line::of(item, None), memento }
    }
}

impl From<EventLine> for RecordedChange {
    fn from(EventLine { change, moment, resource, memento }: EventLine) -> Self {
        let loc = resource.loc.clone();
        let item = resource.into_known().map_or_else(|| Item::new(loc), |known| known.item);
        Self { event: Event::new(change, moment, item), memento }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_failure_names_the_file_that_is_written() {
        for (is_whole, expected) in [(true, stored::NEXT), (false, stored::NEXT_SINCE)] {
            let out = tempfile::tempdir().unwrap();
            let writing = Writing::begin(out.path(), is_whole).unwrap();
            fs::remove_dir_all(out.path().join(FOLDER)).unwrap();
            let error = writing.publish(None).unwrap_err();
            let BuildError::Write { name, .. } = &error else { panic!("{error}") };
            assert_eq!(Path::new(name), out.path().join(FOLDER).join(expected));
        }
    }
}
