//! The files that a run writes until its plan is saved: the next inventory, and the changes since the last one.

use std::{
    io::{self, BufWriter},
    path::Path,
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
    state::FOLDER,
};

/// The changes between the last inventory and the next one.
const CHANGES: &str = "changes.jsonl";

/// The next inventory, or what differs in it from the base file, and the changes.
pub(super) struct Writing {
    sink: FolderSink,
    /// Whether the lines are the whole inventory.
    pub(super) is_whole: bool,
    /// Buffer of a line.
    text: String,
    pub(super) lines: BufWriter<FolderDraft>,
    changes: BufWriter<FolderDraft>,
}

impl Writing {
    pub(super) fn begin(out: &Path, is_whole: bool) -> Result<Self, BuildError> {
        stored::begin(out)?;
        let mut sink = FolderSink::open(out.join(FOLDER))?;
        let name = if is_whole { stored::NEXT } else { stored::NEXT_SINCE };
        let lines = BufWriter::with_capacity(stored::BUFFER, sink.create(name)?);
        let changes = BufWriter::new(sink.create(CHANGES)?);
        Ok(Self { sink, is_whole, text: String::new(), lines, changes })
    }

    pub(super) fn known(&mut self, known: &Known) -> io::Result<()> {
        write_known(&mut self.lines, &mut self.text, known)
    }

    pub(super) fn line(&mut self, line: &Line) -> io::Result<()> {
        write_line(&mut self.lines, line)
    }

    pub(super) fn event(&mut self, event: Event) -> io::Result<()> {
        write_line(&mut self.changes, &EventLine::from(event))
    }

    /// Gives both files their names. One without the other does no harm before there is a plan.
    pub(super) fn publish(self) -> Result<(), BuildError> {
        let Self { mut sink, lines, changes, .. } = self;
        let written =
            |lines: BufWriter<FolderDraft>| lines.into_inner().map_err(io::IntoInnerError::into_error);
        Ok(sink.publish_together([written(lines)?, written(changes)?])?)
    }
}

/// The changes between the last inventory and the next one.
pub(crate) fn changes(
    out: &Path,
) -> Result<impl Iterator<Item = Result<Event, BuildError>> + use<>, BuildError> {
    let lines = JsonLines::<EventLine>::open(&out.join(FOLDER).join(CHANGES))?;
    Ok(lines.map(|line| line.map(Event::from)))
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
}

impl From<Event> for EventLine {
    fn from(Event { change, moment, item }: Event) -> Self {
        Self { change, moment, resource: Line::of(item, None) }
    }
}

impl From<EventLine> for Event {
    fn from(EventLine { change, moment, resource }: EventLine) -> Self {
        let loc = resource.loc.clone();
        Self::new(change, moment, resource.into_known().map_or_else(|| Item::new(loc), |known| known.item))
    }
}
