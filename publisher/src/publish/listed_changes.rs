//! The changes that the Change Lists of a set have since a moment, read one by one while they are packed: there may be more than memory holds.

use std::{
    fs::File,
    io::{self, BufReader, Seek as _},
    path::{Path, PathBuf},
};

use resync_core::{
    build::{BuildError, Event, Item},
    datetime::DateTime,
    document::Entry,
    xml::{ReadError, Reader},
};

use crate::{error::Error, site::Site, state::Series};

/// Changes, oldest first.
pub(super) struct ListedChanges {
    /// All changes are there from this moment,
    pub(super) from: DateTime,
    /// up to this one.
    pub(super) until: DateTime,
    after: Option<DateTime>,
    lists: Vec<ChangeList>,
}

/// A Change List that is read later.
struct ChangeList {
    /// Its path below OUT, for errors.
    name: String,
    path: PathBuf,
    /// The list that was the open one: builds replace it. The others are closed, and opened when they are read.
    open: Option<File>,
}

impl ListedChanges {
    /// The changes after a moment, or all of them. Is called under the lock of the site; reads no entries.
    pub(super) fn after(
        after: Option<DateTime>,
        out: &Path,
        site: &Site,
        series: &Series,
    ) -> Result<Self, Error> {
        let (mut lists, mut from) = (Vec::new(), None);
        // Closed lists that end before the moment add nothing, and neither do earlier ones.
        for number in (1..=series.position.document).rev() {
            let name = site.change_list_component(number).path;
            let mut list = ChangeList { path: out.join(&name), name, open: None };
            let file = File::open(&list.path).map_err(|error| list.unreadable(ReadError::Io(error)))?;
            if number == series.position.document {
                list.open = Some(file.try_clone().map_err(|error| list.unreadable(ReadError::Io(error)))?);
            }
            let reader = Reader::new(BufReader::new(file)).map_err(|error| list.unreadable(error))?;
            let metadata = &reader.header().metadata;
            from = metadata.from.or(from);
            if metadata.until.zip(after).is_some_and(|(until, after)| until <= after) {
                break;
            }
            lists.push(list);
        }
        lists.reverse();
        let from = from.ok_or_else(|| BuildError::from(io::Error::other("a Change List has no from")))?;
        Ok(Self { from, until: series.until, after, lists })
    }

    /// How many there are.
    pub(super) fn count(&self) -> Result<u64, BuildError> {
        self.events().try_fold(0, |count, event| event.map(|_| count + 1))
    }

    /// Reads them.
    pub(super) fn events(&self) -> impl Iterator<Item = Result<Event, BuildError>> {
        self.lists.iter().flat_map(move |list| list.events(self.after))
    }
}

impl ChangeList {
    fn events(&self, after: Option<DateTime>) -> impl Iterator<Item = Result<Event, BuildError>> {
        let (reader, failed) = match self.read() {
            Ok(reader) => (Some(reader), None),
            Err(error) => (None, Some(error)),
        };
        let entries = failed.map(Err).into_iter().chain(reader.into_iter().flatten());
        entries.filter_map(move |entry| match entry {
            Ok(entry) => event(entry, after).map(Ok),
            Err(error) => Some(Err(self.unreadable(error))),
        })
    }

    fn read(&self) -> Result<Reader<BufReader<File>>, ReadError> {
        let file = match &self.open {
            Some(open) => open.try_clone().and_then(|mut file| file.rewind().map(|()| file)),
            None => File::open(&self.path),
        };
        Reader::new(BufReader::new(file.map_err(ReadError::Io)?))
    }

    fn unreadable(&self, source: ReadError) -> BuildError {
        BuildError::Published { name: self.name.clone(), source }
    }
}

/// The change of an entry, if it is one after the moment.
fn event(entry: Entry, after: Option<DateTime>) -> Option<Event> {
    let metadata = entry.metadata.as_ref()?;
    let (change, moment) = metadata.change.zip(metadata.datetime)?;
    let is_later = after.is_none_or(|after| moment > after);
    is_later.then(|| Event::new(change, moment, Item::from_entry(entry)))
}
