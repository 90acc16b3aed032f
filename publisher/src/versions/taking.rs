//! What a run sees for the first time: takes the bytes, says which are to be linked to, and what the journal is to have (MEM-010, MEM-012,
//! MEM-014).

use std::{
    collections::{HashMap, HashSet},
    io,
    iter::Peekable,
    path::Path,
    sync::Arc,
};

use resync_core::{
    build::{Event, Item},
    datetime::DateTime,
    digest::{Algorithm, Digest},
    document::{Change, Relation},
};

use super::{
    forgotten::Forgotten,
    journal::{Finder, Journal, Lines, VersionLine},
    links::{Memento, VersionLinks},
    segments::{self, Merge},
    store::{Content, Incoming, Store},
    taken::{Taken, Unkept},
};
use crate::{
    settings::Settings,
    state::{FOLDER, KeptVersions, State},
};

/// Opens the bytes that a change led to, or others of the same resource; `None` where they are gone.
type Contents = Box<dyn FnMut(&Event) -> io::Result<Option<Content>>>;

/// What a program gives the bytes of its records with (MEM-015).
pub(crate) type Records = Arc<dyn Fn(&Item) -> io::Result<Option<Box<dyn io::Read>>> + Send + Sync>;

/// Takes the versions of a run; does nothing where none are kept.
pub(crate) struct Taking(Option<Work>);

#[expect(clippy::struct_excessive_bools, reason = "four facts that do not depend on each other")]
struct Work {
    links: VersionLinks,
    incoming: Incoming,
    contents: Contents,
    journal: Journal,
    /// Finds what the journal has of the resources that change.
    finder: Finder,
    /// The name of the file that the run adds to the journal.
    name: String,
    /// What the run merges of the journal if it adds to it.
    merge: Option<Merge>,
    /// Whether the journal may lack resources, or know more than there are.
    is_due: bool,
    /// Whether one resource can have several changes in this run.
    repeats: bool,
    /// Of each resource the last version, while the journal is compared with the collection.
    standing: Option<Standing>,
    /// The moment of the last version before this run.
    until: Option<DateTime>,
    /// How many versions this run has seen of a resource in this second.
    second: Option<DateTime>,
    seen: HashMap<String, u64>,
    /// Whether there is no room.
    is_full: bool,
    /// Whether the journal, or what is forgotten, cannot be read: then nobody can tell which versions there are or may be, and the run goes on
    /// without them.
    is_unreadable: bool,
    taken: Taken,
    unkept: Unkept,
}

impl Taking {
    /// Keeps nothing.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Of the run `build`, which continues the state `before` unless the lists start anew.
    pub(crate) fn of(
        settings: &Settings,
        out: &Path,
        before: Option<&State>,
        is_continued: bool,
        build: u64,
    ) -> Self {
        let Some(links) = VersionLinks::of(settings) else { return Self::none() };
        let kept = before.and_then(|state| state.versions.as_ref());
        let is_as_before = before.is_some_and(|state| state.settings.versions.only == settings.versions.only);
        let is_due = !is_continued || !is_as_before || kept.is_none_or(|kept| !kept.is_whole);
        let now = DateTime::now();
        let journal = Journal::with(out, kept);
        let taken = Taken {
            segment: None,
            merged: None,
            count: 0,
            bytes: 0,
            copied: 0,
            first: now,
            last: kept.map_or(now, |kept| kept.until),
            replaced: None,
            is_whole: !is_due,
        };
        let (forgotten, error) = match Forgotten::load(out) {
            Ok(forgotten) => (forgotten.all(), None),
            Err(error) => (HashSet::new(), Some(error)),
        };
        let mut work = Work {
            links,
            incoming: Incoming::new(Store::of(out), journal.newest(), forgotten),
            contents: Box::new(|_| Ok(None)),
            finder: journal.finder(),
            journal,
            name: segments::name(build),
            merge: kept.and_then(|kept| Merge::due(out, &kept.segments, build)),
            is_due,
            repeats: false,
            standing: None,
            until: kept.map(|kept: &KeptVersions| kept.until),
            second: None,
            seen: HashMap::new(),
            is_full: false,
            is_unreadable: error.is_some(),
            taken,
            unkept: Unkept::default(),
        };
        if let Some(error) = error {
            work.failed(FOLDER, io::Error::other(error));
        }
        Self(Some(work))
    }

    /// Where the bytes come from.
    pub(crate) fn contents(&mut self, contents: impl FnMut(&Event) -> io::Result<Option<Content>> + 'static) {
        if let Some(work) = &mut self.0 {
            work.contents = Box::new(contents);
        }
    }

    /// The same for the records of a program.
    pub(crate) fn contents_of(&mut self, records: Option<Records>) {
        if let Some(records) = records {
            self.contents(move |event| Ok(records(&event.item)?.map(Content::Other)));
        }
    }

    /// Begins to see all resources, in the order of their URIs, at `moment`: what the journal lacks is made up for.
    pub(crate) fn see_all(&mut self, moment: DateTime) {
        self.work(|work| {
            work.taken.first = moment;
            if work.is_due {
                work.standing = Some(Standing::of(&work.journal)?);
                work.taken.is_whole = true;
            }
            Ok(())
        });
    }

    /// Begins to see some changes only. Where there is no journal yet, that waits until all resources are seen.
    pub(crate) fn see_some(&mut self, repeats: bool) {
        let has_none = |work: &Work| work.until.is_none();
        if self.0.as_ref().is_some_and(has_none) {
            self.0 = None;
        }
        if let Some(work) = &mut self.0 {
            work.repeats = repeats;
        }
    }

    /// Takes what a change led to; returns what the journal is to have, and the version that is to be linked to.
    pub(crate) fn take(&mut self, event: &Event) -> (Vec<VersionLine>, Option<Memento>) {
        self.work(|work| work.take(event))
    }

    /// A resource without a change, seen at `moment`.
    pub(crate) fn unchanged(&mut self, item: &Item, moment: DateTime) -> Vec<VersionLine> {
        self.work(|work| if work.standing.is_some() { work.unchanged(item, moment) } else { Ok(Vec::new()) })
    }

    /// All resources were seen.
    pub(crate) fn seen_all(&mut self, moment: DateTime) -> Vec<VersionLine> {
        self.work(|work| Ok(work.pass(None, moment)?.0))
    }

    /// Does a part of the work, as long as the journal can be read.
    fn work<T: Default>(&mut self, part: impl FnOnce(&mut Work) -> io::Result<T>) -> T {
        let Some(work) = self.0.as_mut().filter(|work| !work.is_unreadable) else { return T::default() };
        match part(work) {
            Ok(done) => done,
            Err(error) => {
                work.is_unreadable = true;
                work.failed(FOLDER, unreadable(&error));
                T::default()
            }
        }
    }

    /// The name of the file for what the journal is to have.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.as_ref().map(|work| work.name.as_str())
    }

    /// What is to be merged if the run adds to the journal. Of one that cannot be read nothing is.
    pub(crate) fn merge(&mut self) -> Option<Merge> {
        self.0.as_mut().filter(|work| !work.is_unreadable)?.merge.take()
    }

    /// Brings the bytes to the disk.
    pub(crate) fn finish(self) -> (Option<Taken>, Unkept) {
        let Some(mut work) = self.0 else { return (None, Unkept::default()) };
        work.flush();
        if let Err(error) = work.incoming.finish() {
            work.failed(FOLDER, error);
        }
        (work.taken.bytes, work.taken.copied) = (work.incoming.bytes, work.incoming.copied);
        work.taken.is_whole &= work.unkept.failed == 0;
        (Some(work.taken), work.unkept)
    }
}

impl Work {
    fn take(&mut self, event: &Event) -> io::Result<(Vec<VersionLine>, Option<Memento>)> {
        let (mut lines, before) = self.pass(Some(&event.item.loc), event.moment)?;
        if !self.links.applies(&event.item.loc) {
            lines.extend(self.no_longer_kept(before, event.moment));
            return Ok((lines, None));
        }
        let ordinal = self.ordinal(event)?;
        let (mut digest, mut memento) = (None, None);
        if event.change != Change::Deleted {
            let (told, is_kept) = self.keep(event);
            digest = told;
            let is_linked = event.item.links.iter().any(|link| link.rel == Relation::Memento);
            memento = told.filter(|_| is_kept && !is_linked).map(|digest| Memento { ordinal, digest });
        }
        lines.push(self.line(event, digest));
        Ok((lines, memento))
    }

    fn unchanged(&mut self, item: &Item, moment: DateTime) -> io::Result<Vec<VersionLine>> {
        let moment = self.after_journal(moment);
        let (mut lines, before) = self.pass(Some(&item.loc), moment)?;
        if !self.links.applies(&item.loc) {
            lines.extend(self.no_longer_kept(before, moment));
            return Ok(lines);
        }
        let before = before.filter(|before| before.change != Change::Deleted);
        let change = if before.is_some() { Change::Updated } else { Change::Created };
        let event = Event::new(change, moment, item.clone());
        let bytes = self.incoming.bytes;
        let (digest, is_kept) = self.keep(&event);
        // What was left out has no other digest for that.
        let is_known = before.is_some_and(|before| before.digest.is_some() && before.digest == digest);
        if is_known {
            // Bytes that were left out count from now on.
            self.taken.count -= u64::from(is_kept && self.incoming.bytes == bytes);
        } else {
            lines.push(self.line(&event, digest));
        }
        Ok(lines)
    }

    /// Of a resource whose versions are kept no longer: what it was before is not what it is from this moment on, and what that is nobody
    /// tells.
    fn no_longer_kept(&mut self, before: Option<VersionLine>, moment: DateTime) -> Option<VersionLine> {
        let before = before.filter(|before| before.digest.is_some())?;
        let event = Event::new(Change::Updated, self.after_journal(moment), Item::new(before.loc));
        Some(self.line(&event, None))
    }

    /// Goes on in the journal to a resource, or to its end: those before it that have a version are gone. Returns the last version of the
    /// resource, too.
    fn pass(
        &mut self,
        loc: Option<&str>,
        moment: DateTime,
    ) -> io::Result<(Vec<VersionLine>, Option<VersionLine>)> {
        let Some(mut standing) = self.standing.take() else { return Ok((Vec::new(), None)) };
        let moment = self.after_journal(moment);
        let mut lines = Vec::new();
        let is_before = |line: &VersionLine| loc.is_none_or(|loc| line.loc() < loc);
        while let Some(gone) = standing.next_if(is_before)? {
            if gone.change != Change::Deleted {
                let event = Event::new(Change::Deleted, moment, Item::new(gone.loc()));
                lines.push(self.line(&event, None));
            }
        }
        let found = standing.next_if(|line| loc == Some(line.loc()))?;
        self.standing = Some(standing);
        Ok((lines, found))
    }

    /// A moment that is not before the last version.
    fn after_journal(&self, moment: DateTime) -> DateTime {
        self.until.map_or(moment, |until| moment.max(until))
    }

    fn line(&mut self, event: &Event, digest: Option<Digest>) -> VersionLine {
        if event.change != Change::Created {
            self.taken.replaced.get_or_insert(event.moment);
        }
        self.taken.last = self.taken.last.max(event.moment);
        VersionLine::of(event, digest)
    }

    /// How many versions of the resource came before in the same second.
    fn ordinal(&mut self, event: &Event) -> io::Result<u64> {
        let second = event.moment.truncate_to_seconds();
        let mut ordinal = 0;
        if self.until.is_some_and(|until| until.truncate_to_seconds() == second) {
            let is_in_second = |line: &VersionLine| line.moment.truncate_to_seconds() == second;
            ordinal += self.finder.count(&event.item.loc, is_in_second)?;
        }
        if self.repeats {
            if self.second != Some(second) {
                self.seen.clear();
                self.second = Some(second);
            }
            let seen = self.seen.entry(event.item.loc.clone()).or_default();
            ordinal += *seen;
            *seen += 1;
        }
        Ok(ordinal)
    }

    /// Keeps what a change led to, unless it is forgotten; returns the SHA-256 as far as it is known, and whether the bytes are kept.
    fn keep(&mut self, event: &Event) -> (Option<Digest>, bool) {
        let item = &event.item;
        let told = item.hashes.get(Algorithm::Sha256).copied();
        if told.is_some_and(|told| self.incoming.forgotten.contains(&told)) {
            return (told, false);
        }
        if told.is_some_and(|told| self.incoming.has(&told, item.length)) {
            self.taken.count += 1;
            return (told, true);
        }
        if self.is_full {
            self.unkept.failed += 1;
            return (told, false);
        }
        let content = (self.contents)(event);
        let kept = content.and_then(|content| match content {
            Some(content) => self.incoming.take(content, item),
            None => Ok(None),
        });
        let kept = match kept {
            Ok(Some(digest)) => {
                let is_kept = !self.incoming.forgotten.contains(&digest);
                self.taken.count += u64::from(is_kept);
                (Some(digest), is_kept)
            }
            Ok(None) => {
                self.unkept.changed += 1;
                self.unkept.cause.get_or_insert_with(|| {
                    let reason = io::Error::other("it changed again before it was copied");
                    (item.loc.clone(), Arc::new(reason))
                });
                (told, false)
            }
            Err(error) => {
                self.failed(&item.loc, error);
                (told, false)
            }
        };
        if self.incoming.is_crowded() {
            self.flush();
        }
        kept
    }

    fn flush(&mut self) {
        if let Err((lost, error)) = self.incoming.flush() {
            self.taken.count = self.taken.count.saturating_sub(lost);
            self.unkept.failed += lost.saturating_sub(1);
            self.failed(FOLDER, error);
        }
    }

    fn failed(&mut self, loc: &str, error: io::Error) {
        self.is_full |= matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        self.unkept.failed(loc, error);
    }
}

/// What is wrong with the journal, and what to do.
fn unreadable(error: &io::Error) -> io::Error {
    let advice =
        "bring this file back, or build with `keep = \"never\"` once and then again as now: that begins anew";
    io::Error::new(error.kind(), format!("{error}; {advice}"))
}

/// The last version of each resource that the journal has, in the order of their URIs.
struct Standing(Peekable<LastOfEach>);

impl Standing {
    fn of(journal: &Journal) -> io::Result<Self> {
        Ok(Self(LastOfEach { lines: journal.lines()?, buffer: Vec::new(), next: None }.peekable()))
    }

    /// The next one, if it is wanted.
    fn next_if(&mut self, is_wanted: impl Fn(&VersionLine) -> bool) -> io::Result<Option<VersionLine>> {
        let is_wanted = |next: &io::Result<VersionLine>| next.as_ref().map_or(true, &is_wanted);
        self.0.next_if(is_wanted).transpose()
    }
}

struct LastOfEach {
    lines: Lines,
    buffer: Vec<u8>,
    /// The first line of the next resource.
    next: Option<VersionLine>,
}

impl LastOfEach {
    fn last(&mut self) -> io::Result<Option<VersionLine>> {
        let first = match self.next.take() {
            None => self.lines.next_line(&mut self.buffer)?,
            next => next,
        };
        let Some(mut last) = first else { return Ok(None) };
        while let Some(line) = self.lines.next_line(&mut self.buffer)? {
            if line.loc != last.loc {
                self.next = Some(line);
                break;
            }
            last = line;
        }
        Ok(Some(last))
    }
}

impl Iterator for LastOfEach {
    type Item = io::Result<VersionLine>;

    fn next(&mut self) -> Option<Self::Item> {
        self.last().transpose()
    }
}
