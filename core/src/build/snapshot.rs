//! Snapshot documents of any length: split at the limits, grouped under one index (RS-043, RS-094, RS-108).

use super::settings::{Published, Settings};
use super::sink::Sink;
use super::spool::Spool;
use super::{BuildError, Completed};
use crate::datetime::DateTime;
use crate::document::{
    Document, Entry, Header, ResourceDump, ResourceDumpIndex, ResourceList, ResourceListIndex,
};
use crate::rules::Violations;
use crate::xml::{self, MAX_ENTRIES};

/// Which snapshot document.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    ResourceList,
    ResourceDump,
}

/// One component, as the index lists it.
#[derive(Debug)]
struct Part {
    name: String,
    completed: Option<DateTime>,
}

/// A snapshot while its entries come in.
#[derive(Debug)]
pub(super) struct Snapshot<'a, S: Sink> {
    kind: Kind,
    settings: &'a Settings,
    at: DateTime,
    completed: Completed,
    sink: &'a mut S,
    spool: Spool,
    parts: Vec<Part>,
    staged: Vec<S::Staged>,
    entries: u64,
}

impl<'a, S: Sink> Snapshot<'a, S> {
    pub(super) fn new(
        kind: Kind,
        settings: &'a Settings,
        at: DateTime,
        completed: Completed,
        sink: &'a mut S,
    ) -> Result<Self, BuildError> {
        let spool = spool(kind, settings, at)?;
        Ok(Self {
            kind,
            settings,
            at,
            completed,
            sink,
            spool,
            parts: Vec::new(),
            staged: Vec::new(),
            entries: 0,
        })
    }

    pub(super) fn sink(&mut self) -> &mut S {
        self.sink
    }

    pub(super) fn entry(&mut self, entry: &Entry) -> Result<(), BuildError> {
        if !self.spool.takes(entry)? {
            self.end_part()?;
        }
        self.spool.add(entry)?;
        self.entries += 1;
        Ok(())
    }

    fn end_part(&mut self) -> Result<(), BuildError> {
        if self.parts.len() >= MAX_ENTRIES {
            return Err(BuildError::TooManyDocuments { limit: MAX_ENTRIES });
        }
        let full = std::mem::replace(&mut self.spool, spool(self.kind, self.settings, self.at)?);
        let name = self.settings.component(number(self.parts.len() + 1));
        let completed = self.completed.after(self.at);
        let index = self.settings.site.url(&self.settings.top());
        let header = header(self.kind, self.settings, self.at, completed, Some(index));
        self.staged.push(full.stage(self.sink, &name, &header)?);
        self.parts.push(Part { name, completed });
        Ok(())
    }

    /// Publishes the components, then the index; or the only document.
    pub(super) fn publish(mut self) -> Result<Published, BuildError> {
        let top = self.settings.top();
        if self.parts.is_empty() {
            let completed = self.completed.after(self.at);
            let header = header(self.kind, self.settings, self.at, completed, None);
            self.staged.push(self.spool.stage(self.sink, &top, &header)?);
        } else {
            self.end_part()?;
            let index = self.index()?;
            let mut draft = self.sink.create(&top)?;
            std::io::Write::write_all(&mut draft, &xml::write_with(&index, self.settings.format))?;
            self.staged.push(self.sink.stage(draft)?);
        }
        for staged in self.staged {
            self.sink.publish(staged)?;
        }
        remove_left_over(self.sink, self.settings, self.parts.len())?;
        let documents = self.parts.into_iter().map(|part| part.name).chain([top.clone()]).collect();
        Ok(Published { documents, entries: self.entries, gone: 0, top: Some(top) })
    }

    fn index(&self) -> Result<Document, Violations> {
        let up = self.settings.site.capability_list();
        let ended = self.parts.last().and_then(|part| part.completed);
        let listed =
            self.parts.iter().map(|part| (self.settings.site.url(&part.name), Some(self.at), part.completed));
        macro_rules! index {
            ($index:ident, $method:ident) => {{
                let mut index = $index::new(self.at, up);
                if let Some(completed) = ended {
                    index = index.completed(completed);
                }
                if let Some(archives) = &self.settings.archives {
                    index = index.archives(archives);
                }
                listed.fold(index, |index, (loc, at, completed)| index.$method(loc, at, completed)).build()
            }};
        }
        match self.kind {
            Kind::ResourceList => index!(ResourceListIndex, list),
            Kind::ResourceDump => index!(ResourceDumpIndex, dump),
        }
    }
}

/// The components of an earlier, longer snapshot that no index names any more.
fn remove_left_over<S: Sink>(sink: &mut S, settings: &Settings, parts: usize) -> Result<(), BuildError> {
    let mut next = number(parts + 1);
    while sink.remove(&settings.component(next))? {
        next += 1;
    }
    Ok(())
}

fn number(place: usize) -> u64 {
    u64::try_from(place).unwrap_or(u64::MAX)
}

fn spool(kind: Kind, settings: &Settings, at: DateTime) -> Result<Spool, BuildError> {
    let index = settings.site.url(&settings.top());
    Spool::new(header(kind, settings, at, None, Some(index)), settings.format, settings.limits)
}

fn header(
    kind: Kind,
    settings: &Settings,
    at: DateTime,
    completed: Option<DateTime>,
    index: Option<String>,
) -> Header {
    macro_rules! header {
        ($document:ident) => {{
            let mut document = $document::new(at, settings.site.capability_list());
            if let Some(completed) = completed {
                document = document.completed(completed);
            }
            if let Some(index) = index {
                document = document.index(index);
            }
            if let Some(archives) = &settings.archives {
                document = document.archives(archives);
            }
            document.header()
        }};
    }
    match kind {
        Kind::ResourceList => header!(ResourceList),
        Kind::ResourceDump => header!(ResourceDump),
    }
}
