//! Change documents that go on: one is open and grows in place, full ones are closed, an index lists them (RS-120 to RS-130, RS-147).
//!
//! The documents are their own state: what was published is read, and goes on from there. A run that was killed halfway left one of
//! the steps of RS-130 behind (a list closed, its successor published, the index not yet written), and the next run takes the next step.
//!
//! Every run reads the open document and writes it anew, its entries as bytes where these are known to be [our own](super::taken_over). So
//! [`Rotation`] bounds what a run costs; the index is written when it has something new to say.

use std::io::{BufReader, Read};

use super::course::{KnownOpen, Position, Rotation};
use super::ready::Ready;
use super::scratch::Scratch;
use super::settings::{Published, Settings};
use super::sink::{Sink, open_document};
use super::spool::Spool;
use super::{BuildError, Documents};
use crate::datetime::DateTime;
use crate::document::{Capability, Document, Entry, Header, Metadata, RawDocument, Relation, Root};
use crate::rules::Violations;
use crate::xml::{self, MAX_ENTRIES, Mode, Options, ReadError, Reader};

/// How published documents are read that are written anew: an entry that only a lenient reader would pass over must not be
/// lost (RS-050).
pub(super) const WHOLLY: Options = Options { mode: Mode::Strict, ..Options::PLAIN };

/// Which change document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ChangeList,
    ChangeDump,
}

impl Kind {
    fn capability(self) -> Capability {
        match self {
            Self::ChangeList => Capability::ChangeList,
            Self::ChangeDump => Capability::ChangeDump,
        }
    }

    /// When an entry begins, and up to when a document that ends with it has all changes.
    fn moments(self, entry: &Entry) -> Option<(DateTime, DateTime)> {
        let metadata = entry.metadata.as_ref()?;
        match self {
            Self::ChangeList => metadata.datetime.map(|moment| (moment, moment)),
            Self::ChangeDump => metadata.from.zip(metadata.until),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) number: u64,
    pub(super) from: DateTime,
    pub(super) until: DateTime,
}

/// The document that grows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) number: u64,
    pub(super) from: DateTime,
    /// It was published before; if not, it is the first, or a killed run closed its predecessor.
    pub(super) is_published: bool,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) closed: Vec<Interval>,
    /// None before the first run, and after the series was closed for good.
    pub(super) open: Option<Open>,
    /// The index says all this, too.
    pub(super) is_indexed: bool,
    /// Where the index says that older documents are.
    pub(super) archives: Option<String>,
}

impl State {
    /// When the series was closed for good.
    fn ended(&self) -> Option<DateTime> {
        let last = self.closed.last().filter(|_| self.open.is_none());
        last.map(|last| last.until)
    }
}

/// What a run adds, besides entries.
pub(super) struct Addition<S: Sink> {
    /// Where the first document of all starts.
    pub(super) from: DateTime,
    /// The entries are all those since then: what is there already is not added again.
    pub(super) position: Option<Position>,
    /// What is known of the open document.
    pub(super) known_open: Option<KnownOpen>,
    /// What the entries lead to, and what is published before them.
    pub(super) targets: Ready<S>,
    /// Decides about age.
    pub(super) now: DateTime,
    /// Closes the series for good.
    pub(super) until: Option<DateTime>,
}

impl<S: Sink> Addition<S> {
    pub(super) fn new(from: DateTime, now: DateTime) -> Self {
        Self { from, position: None, known_open: None, targets: Ready::new(), now, until: None }
    }
}

/// One kind of change documents in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'a> {
    pub(super) kind: Kind,
    pub(super) settings: &'a Settings,
    pub(super) rotation: Rotation,
}

impl Series<'_> {
    /// Up to when the published documents have all changes; `None` where none is published.
    pub(super) fn end<D: Documents>(&self, sink: &D) -> Result<Option<DateTime>, BuildError> {
        let state = self.load(sink)?;
        let Some(open) = state.open else { return Ok(state.ended()) };
        let mut end = open.from;
        if open.is_published {
            for entry in self.entries(sink, open.number)? {
                end = self.kind.moments(&entry?).map_or(end, |(_, until)| end.max(until));
            }
        }
        Ok(Some(end))
    }

    /// Where the next entry goes.
    pub(super) fn position<D: Documents>(&self, sink: &D) -> Result<Position, BuildError> {
        let state = self.load(sink)?;
        let last = state.closed.last().map(|last| (last.number, true));
        let open = state.open.map(|open| (open.number, open.is_published));
        let Some((document, is_published)) = open.or(last) else { return Ok(Position::default()) };
        let mut entries = 0;
        if is_published {
            for entry in self.entries(sink, document)? {
                entry?;
                entries += 1;
            }
        }
        Ok(Position { document, entries })
    }

    /// How many entries have been added since `position`; `seen` sees each of them.
    pub(super) fn added_since<D: Documents>(
        &self,
        sink: &D,
        position: Position,
        mut seen: impl FnMut(Entry),
    ) -> Result<u64, BuildError> {
        let first = position.document.max(1);
        let mut entries = 0_u64;
        for number in first.. {
            if header_of(sink, &self.settings.component(number))?.is_none() {
                break;
            }
            for entry in self.entries(sink, number)? {
                let entry = entry?;
                entries += 1;
                if entries > position.entries {
                    seen(entry);
                }
            }
        }
        entries.checked_sub(position.entries).ok_or_else(|| BuildError::NotContinuable {
            name: self.settings.component(first),
            reason: "it has fewer entries than it had",
        })
    }

    /// Adds entries, and closes and opens documents as [`Rotation`] wants it.
    pub(super) fn record<S: Sink>(
        &self,
        sink: &mut S,
        addition: Addition<S>,
        entries: impl IntoIterator<Item = Result<Entry, BuildError>>,
    ) -> Result<Published, BuildError> {
        let Addition { from, position, known_open, targets, now, until } = addition;
        let mut added = position.map_or(Ok(0), |position| self.added_since(sink, position, drop))?;
        let state = self.load(sink)?;
        if let Some(end) = state.ended() {
            let recorded = usize::try_from(added).unwrap_or(usize::MAX);
            return match entries.into_iter().nth(recorded).transpose()? {
                None if until == Some(end) => Ok(Published::default()),
                _ => Err(BuildError::NotContinuable {
                    name: self.settings.top(),
                    reason: "it is closed for good",
                }),
            };
        }
        let next = state.closed.last().map_or(1, |last| last.number + 1);
        let start = state.closed.last().map_or(from, |last| last.until);
        let open = state.open.unwrap_or(Open { number: next, from: start, is_published: false });
        let mut growing = Growing {
            series: *self,
            spool: self.spool(sink, open.from)?,
            open,
            end: open.from,
            closed: state.closed,
            archives: state.archives,
            ready: Ready::new(),
            published: Published::default(),
        };
        if open.is_published && !growing.take_over(sink, known_open)? {
            for entry in self.entries(sink, open.number)? {
                growing.take(&entry?)?;
            }
        }
        let is_old = self.rotation.age.is_some_and(|age| open.from.duration_until(now) >= age);
        if is_old && growing.spool.entries() > 0 {
            growing.rotate(sink)?;
        }
        for entry in entries {
            let entry = entry?;
            if added > 0 {
                added -= 1;
            } else {
                growing.add(sink, &entry)?;
            }
        }
        let has_news = growing.published.entries > 0 || !growing.ready.is_empty() || until.is_some();
        if !has_news && open.is_published && state.is_indexed {
            let position = Some(growing.position());
            return Ok(Published { position, ..growing.published });
        }
        growing.publish(sink, targets, until)
    }

    pub(super) fn load<D: Documents>(&self, sink: &D) -> Result<State, BuildError> {
        let top = self.settings.top();
        let Some(published) = sink.open(&top)? else { return self.load_without_index(sink) };
        let unreadable = |source| BuildError::Published { name: top.clone(), source };
        let unfit = |reason| BuildError::NotContinuable { name: top.clone(), reason };
        let index = Reader::with_options(BufReader::new(published), WHOLLY).map_err(unreadable)?;
        if index.header().root != Root::SitemapIndex
            || index.header().capability() != Some(&self.kind.capability())
        {
            return Err(unfit("it is not an index of such documents"));
        }
        let is_ended = index.header().metadata.until.is_some();
        let archives = index.header().link(&Relation::Archives).map(|link| link.href.clone());
        let mut closed: Vec<Interval> = Vec::new();
        let mut open = None;
        for entry in index {
            let entry = entry.map_err(unreadable)?;
            let times = entry.metadata.unwrap_or_default();
            let number = self
                .settings
                .number(&entry.loc)
                .ok_or_else(|| unfit("it lists a document of another name"))?;
            let from = times.from.ok_or_else(|| unfit("an entry has no from"))?;
            match times.until {
                Some(until) => closed.push(Interval { number, from, until }),
                None => open = Some(Open { number, from, is_published: true }),
            }
        }
        if is_ended != open.is_none() {
            return Err(unfit("it has an until and lists an open document, or neither"));
        }
        self.catch_up(sink, State { closed, open, is_indexed: true, archives })
    }

    /// The first run of all can have been killed before it came to the index.
    fn load_without_index<D: Documents>(&self, sink: &D) -> Result<State, BuildError> {
        let first = header_of(sink, &self.settings.component(1))?.and_then(|header| header.metadata.from);
        let open = first.map(|from| Open { number: 1, from, is_published: true });
        self.catch_up(sink, State { open, ..State::default() })
    }

    /// Goes on where a killed run closed a document and did not come to write the index.
    fn catch_up<D: Documents>(&self, sink: &D, mut state: State) -> Result<State, BuildError> {
        while let Some(open) = state.open {
            let name = self.settings.component(open.number);
            let Some(header) = header_of(sink, &name)? else {
                if state.is_indexed {
                    return Err(BuildError::NotContinuable {
                        name,
                        reason: "it is missing, but the index lists it",
                    });
                }
                state.open = Some(Open { is_published: false, ..open });
                break;
            };
            let Some(until) = header.metadata.until else { break };
            state.closed.push(Interval { number: open.number, from: open.from, until });
            state.open = Some(Open { number: open.number + 1, from: until, is_published: true });
            state.is_indexed = false;
        }
        Ok(state)
    }

    fn entries<D: Documents>(
        &self,
        sink: &D,
        number: u64,
    ) -> Result<impl Iterator<Item = Result<Entry, BuildError>> + use<D>, BuildError> {
        let name = self.settings.component(number);
        let published = sink
            .open(&name)?
            .ok_or_else(|| BuildError::NotContinuable { name: name.clone(), reason: "it is missing" })?;
        let reader = Reader::with_options(BufReader::new(published), WHOLLY)
            .map_err(|source| BuildError::Published { name: name.clone(), source })?;
        Ok(reader
            .map(move |entry| entry.map_err(|source| BuildError::Published { name: name.clone(), source })))
    }

    fn spool<S: Sink>(&self, sink: &S, from: DateTime) -> Result<Spool, BuildError> {
        Spool::new(self.header(from, None), self.settings.limits, Scratch::of(sink))
    }

    fn metadata(&self, from: DateTime, until: Option<DateTime>) -> Metadata {
        let capability = Some(self.kind.capability());
        Metadata { capability, from: Some(from), until, ..Metadata::default() }
    }

    fn header(&self, from: DateTime, until: Option<DateTime>) -> Header {
        let index = self.settings.site.url(&self.settings.top());
        let archives = self.settings.archives.as_ref();
        self.settings.header(Root::UrlSet, self.metadata(from, until), Some(index), archives)
    }

    /// The index, with `archives` where the settings name none.
    pub(super) fn index(
        &self,
        closed: &[Interval],
        open: Option<Open>,
        archives: Option<&String>,
    ) -> Result<Document, Violations> {
        let first = closed.first().map(|first| first.from).or(open.map(|open| open.from));
        let first = first.expect("a series has at least one document");
        let until = closed.last().filter(|_| open.is_none()).map(|last| last.until);
        let archives = self.settings.archives.as_ref().or(archives);
        let header = self.settings.header(Root::SitemapIndex, self.metadata(first, until), None, archives);
        let entry = |number, from, until| {
            let url = self.settings.site.url(&self.settings.component(number));
            Entry::with_metadata(url, Metadata { from: Some(from), until, ..Metadata::default() })
        };
        let closed = closed.iter().map(|one| entry(one.number, one.from, Some(one.until)));
        let entries = closed.chain(open.map(|open| entry(open.number, open.from, None))).collect();
        RawDocument { header, entries }.try_into()
    }
}

fn header_of<D: Documents>(sink: &D, name: &str) -> Result<Option<Header>, BuildError> {
    Ok(open_document(sink, name)?.map(|reader| reader.header().clone()))
}

/// Whether a document has these very bytes.
fn is_published<D: Documents>(sink: &D, name: &str, bytes: &[u8]) -> Result<bool, BuildError> {
    let Some(mut published) = sink.open(name)? else { return Ok(false) };
    let mut present = Vec::with_capacity(bytes.len());
    let unreadable = |source| BuildError::Published { name: name.to_owned(), source: ReadError::Io(source) };
    published.read_to_end(&mut present).map_err(unreadable)?;
    Ok(present == bytes)
}

/// A series while entries come in.
struct Growing<'a, S: Sink> {
    series: Series<'a>,
    spool: Spool,
    open: Open,
    /// Up to when all changes are there.
    end: DateTime,
    closed: Vec<Interval>,
    archives: Option<String>,
    ready: Ready<S>,
    published: Published,
}

impl<S: Sink> Growing<'_, S> {
    /// An entry that was published before.
    fn take(&mut self, entry: &Entry) -> Result<(), BuildError> {
        self.pass(entry);
        self.spool.add(entry)
    }

    /// All entries that were published before, if the document is the one that is known; whether it is.
    fn take_over(&mut self, sink: &S, known: Option<KnownOpen>) -> Result<bool, BuildError> {
        let number = self.open.number;
        let Some(known) = known.filter(|known| known.position.document == number) else { return Ok(false) };
        let Some(published) = sink.open(&self.series.settings.component(number))? else { return Ok(false) };
        let last = self.spool.take_over(published, known)?;
        if let Some(last) = &last {
            self.pass(last);
        }
        Ok(last.is_some())
    }

    fn pass(&mut self, entry: &Entry) {
        self.end = self.series.kind.moments(entry).map_or(self.end, |(_, until)| self.end.max(until));
    }

    fn position(&self) -> Position {
        let entries = u64::try_from(self.spool.entries()).unwrap_or(u64::MAX);
        Position { document: self.open.number, entries }
    }

    fn add(&mut self, sink: &mut S, entry: &Entry) -> Result<(), BuildError> {
        if let Some((moment, _)) = self.series.kind.moments(entry)
            && moment < self.end
        {
            return Err(BuildError::ChangeOrder { moment, after: self.end });
        }
        let is_full = self.series.rotation.entries.is_some_and(|most| self.spool.entries() >= most.max(1));
        if is_full || !self.spool.takes(entry)? {
            self.rotate(sink)?;
        }
        self.take(entry)?;
        self.published.entries += 1;
        Ok(())
    }

    /// Closes the open document; its last change is where the next one goes on (RS-127).
    fn rotate(&mut self, sink: &mut S) -> Result<(), BuildError> {
        if self.closed.len() + 1 >= MAX_ENTRIES {
            return Err(BuildError::TooManyDocuments { limit: MAX_ENTRIES });
        }
        let full = std::mem::replace(&mut self.spool, self.series.spool(sink, self.end)?);
        self.close(sink, full, self.end)?;
        self.open = Open { number: self.open.number + 1, from: self.end, is_published: false };
        Ok(())
    }

    fn close(&mut self, sink: &mut S, full: Spool, until: DateTime) -> Result<(), BuildError> {
        let Open { number, from, .. } = self.open;
        self.stage(sink, full, Some(until))?;
        self.closed.push(Interval { number, from, until });
        Ok(())
    }

    fn stage(&mut self, sink: &mut S, spool: Spool, until: Option<DateTime>) -> Result<(), BuildError> {
        let name = self.series.settings.component(self.open.number);
        let header = self.series.header(self.open.from, until);
        self.ready.spool(sink, name, spool, &header)
    }

    /// A run that was killed has closed the last document for good, and there is no other one.
    fn is_closed_at(&self, until: DateTime) -> bool {
        let last = self.closed.last().is_some_and(|last| last.until == until);
        last && !self.open.is_published && self.spool.entries() == 0
    }

    /// Publishes what was closed, then what is open, then the index (RS-130); before all that what they lead to. All is staged before
    /// the first is published.
    fn publish(
        mut self,
        sink: &mut S,
        targets: Ready<S>,
        until: Option<DateTime>,
    ) -> Result<Published, BuildError> {
        let is_closed = until.is_some_and(|until| self.is_closed_at(until));
        self.published.position = Some(self.position());
        let last = std::mem::replace(&mut self.spool, self.series.spool(sink, self.end)?);
        let open = match until {
            Some(until) if until < self.end => {
                return Err(BuildError::ChangeOrder { moment: until, after: self.end });
            }
            Some(_) if is_closed => None,
            Some(until) => {
                self.close(sink, last, until)?;
                None
            }
            None => {
                self.stage(sink, last, None)?;
                Some(self.open)
            }
        };
        let index = self.series.index(&self.closed, open, self.archives.as_ref())?;
        let bytes = xml::write(&index);
        let top = self.series.settings.top();
        if !is_published(sink, &top, &bytes)? {
            self.ready.bytes(sink, top.clone(), &bytes)?;
            self.published.top = Some(top);
        }
        self.published.documents = targets.publish_new(sink)?;
        self.published.documents.extend(self.ready.publish(sink)?);
        Ok(self.published)
    }
}
