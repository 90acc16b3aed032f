//! Documents of any length: split at the limits, grouped under one index (RS-043, RS-094, RS-108, AR-011).

use super::generation::{DOCUMENT, Generation, Kept};
use super::ready::Ready;
use super::scratch::Scratch;
use super::settings::{Published, Settings};
use super::spool::Spool;
use super::{BuildError, Sink};
use crate::datetime::DateTime;
use crate::document::{Document, Entry, Header};
use crate::rules::Violations;
use crate::xml::MAX_ENTRIES;

/// What the documents of one kind say besides their entries.
pub(super) trait Kind {
    /// The header of the only document, or of one under the index at this URL.
    fn header(&self, index: Option<String>, completed: Option<DateTime>) -> Header;

    /// The index.
    fn index(&self, parts: Vec<Part>) -> Result<Document, Violations>;

    /// What a document that ends now says of its end.
    fn completed(&self) -> Option<DateTime>;
}

/// One document, as the index lists it.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) url: String,
    pub(super) completed: Option<DateTime>,
}

/// The documents of one run, while entries come in.
///
/// The only document has the name that is known, or the index has; documents under an index have names of their own in every run.
pub(super) struct Parts<'a, K: Kind, S: Sink> {
    kind: K,
    settings: &'a Settings,
    sink: &'a mut S,
    generation: Generation,
    spool: Spool,
    ended: Vec<Part>,
    /// What has new names, and that the last document leads to.
    ready: Ready<S>,
    entries: u64,
}

impl<'a, K: Kind, S: Sink> Parts<'a, K, S> {
    /// `moment` becomes part of the names.
    pub(super) fn new(
        kind: K,
        settings: &'a Settings,
        moment: DateTime,
        sink: &'a mut S,
    ) -> Result<Self, BuildError> {
        let generation = Generation::new(sink, &settings.stem, moment)?;
        let spool = spool(&kind, settings, sink)?;
        Ok(Self {
            kind,
            settings,
            sink,
            generation,
            spool,
            ended: Vec::new(),
            ready: Ready::new(),
            entries: 0,
        })
    }

    pub(super) fn sink(&mut self) -> &mut S {
        self.sink
    }

    pub(super) fn generation(&self) -> &Generation {
        &self.generation
    }

    pub(super) fn entry(&mut self, entry: &Entry) -> Result<(), BuildError> {
        if !self.spool.takes(entry)? {
            self.end_part()?;
        }
        self.spool.add(entry)?;
        self.entries += 1;
        Ok(())
    }

    /// Publishes what the entries lead to before them; it has names of the same [`generation`](Self::generation).
    pub(super) fn lead_to(&mut self, mut targets: Ready<S>) {
        std::mem::swap(&mut self.ready, &mut targets);
        self.ready.append(targets);
    }

    fn end_part(&mut self) -> Result<(), BuildError> {
        if self.ended.len() >= MAX_ENTRIES {
            return Err(BuildError::TooManyDocuments { limit: MAX_ENTRIES });
        }
        let empty = spool(&self.kind, self.settings, self.sink)?;
        let full = std::mem::replace(&mut self.spool, empty);
        let number = u64::try_from(self.ended.len() + 1).unwrap_or(u64::MAX);
        let name = self.generation.name(number, DOCUMENT);
        let completed = self.kind.completed();
        let header = self.kind.header(Some(self.settings.site.url(&self.settings.top())), completed);
        let url = self.settings.site.url(&name);
        self.ready.spool(self.sink, name, full, &header)?;
        self.ended.push(Part { url, completed });
        Ok(())
    }

    /// Writes what is left; nothing is published.
    pub(super) fn stage(mut self) -> Result<Staged<S>, BuildError> {
        let mut last = Ready::new();
        let top = self.settings.top();
        if self.ended.is_empty() {
            let header = self.kind.header(None, self.kind.completed());
            last.spool(self.sink, top.clone(), self.spool, &header)?;
        } else {
            self.end_part()?;
            let index = self.kind.index(self.ended)?;
            last.document(self.sink, top, &index)?;
        }
        let (settings, entries) = (self.settings.clone(), self.entries);
        Ok(Staged { settings, generation: self.generation, ready: self.ready, last, entries })
    }
}

/// The documents of one run that wait to be published.
pub(super) struct Staged<S: Sink> {
    settings: Settings,
    generation: Generation,
    ready: Ready<S>,
    last: Ready<S>,
    entries: u64,
}

impl<S: Sink> Staged<S> {
    /// Publishes what is new, then what leads to it; then what nobody can be reading any more is removed.
    pub(super) fn publish(self, sink: &mut S) -> Result<Published, BuildError> {
        let Self { settings, generation, ready, last, entries } = self;
        let kept = Kept::now(sink, &settings);
        let mut documents = ready.publish_new(sink)?;
        documents.extend(last.publish(sink)?);
        kept.sweep(sink, generation)?;
        Ok(Published { documents, entries, top: Some(settings.top()), ..Published::default() })
    }
}

fn spool<K: Kind, S: Sink>(kind: &K, settings: &Settings, sink: &S) -> Result<Spool, BuildError> {
    let header = kind.header(Some(settings.site.url(&settings.top())), None);
    Spool::new(header, settings.limits, Scratch::of(sink))
}
