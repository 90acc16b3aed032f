//! Change Notifications that wait to be posted: one file each, numbered in the order in which hubs take them.
//!
//! A run writes them before the state tells of it, so a hub hears of a change only when the documents do, and a run that was cut short writes
//! the same ones again. Each covers the time since the one before (CN-008); without changes there is none, and the next covers that time too
//! (CN-015).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use resync_core::{
    build::{BuildError, Event},
    datetime::DateTime,
    document::{ChangeNotification, ResourceChange},
    rules::Violations,
    xml,
};

use crate::{
    files,
    state::{FOLDER, State},
};

/// Why notifications could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutboxError {
    #[error(transparent)]
    Changes(#[from] BuildError),
    #[error(transparent)]
    Notification(#[from] Violations),
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Most bytes of a notification that tells of several moments. A hub takes 1 MiB, and one moment stays below that.
pub(crate) const MOST: usize = 512 * 1024;

/// Writes what `events` are told as, after number `last`, and gives the number of the last one now. The first covers the time from `from` on.
///
/// Changes of one moment stay together (CN-014), which is why they are few; as many moments are told at once as are not too long.
pub(crate) fn fill(
    out: &Path,
    last: u64,
    from: DateTime,
    up: &str,
    events: impl Iterator<Item = Result<Event, BuildError>>,
) -> Result<u64, OutboxError> {
    fill_with(out, last, from, up, events, MOST)
}

fn fill_with(
    out: &Path,
    last: u64,
    from: DateTime,
    up: &str,
    events: impl Iterator<Item = Result<Event, BuildError>>,
    most: usize,
) -> Result<u64, OutboxError> {
    let mut filling = Filling { out, up, last, from, told: None };
    let mut events = events.peekable();
    while let Some(first) = events.next().transpose()? {
        let until = first.moment;
        let mut of_moment = vec![ResourceChange::from(first)];
        let is_of_the_moment =
            |event: &Result<Event, BuildError>| event.as_ref().map_or(true, |event| event.moment == until);
        while let Some(event) = events.next_if(is_of_the_moment).transpose()? {
            of_moment.push(event.into());
        }
        filling.take(until, of_moment, most)?;
    }
    filling.write()?;
    Ok(filling.last)
}

/// Notifications while moments come in.
struct Filling<'a> {
    out: &'a Path,
    up: &'a str,
    last: u64,
    /// Up to when the notifications that are written tell all.
    from: DateTime,
    /// The one that is not: up to when, with what, and about how long it is.
    told: Option<(DateTime, Vec<ResourceChange>, usize)>,
}

impl Filling<'_> {
    fn take(
        &mut self,
        until: DateTime,
        changes: Vec<ResourceChange>,
        most: usize,
    ) -> Result<(), OutboxError> {
        let length = xml::write(&self.notification(until, changes.clone()).build()?).len();
        if self.told.as_ref().is_some_and(|(.., before)| before + length > most) {
            self.write()?;
        }
        let (until_now, all, before) = self.told.get_or_insert_with(|| (until, Vec::new(), 0));
        *until_now = until;
        all.extend(changes);
        *before += length;
        Ok(())
    }

    fn write(&mut self) -> Result<(), OutboxError> {
        let Some((until, changes, _)) = self.told.take() else { return Ok(()) };
        let path = path(self.out, self.last + 1);
        let bytes = xml::write(&self.notification(until, changes).build()?);
        files::replace(&path, &bytes).map_err(|source| OutboxError::Write { path, source })?;
        (self.last, self.from) = (self.last + 1, until);
        Ok(())
    }

    fn notification(&self, until: DateTime, changes: Vec<ResourceChange>) -> ChangeNotification {
        let empty = ChangeNotification::new(self.from, until).up(self.up);
        changes.into_iter().fold(empty, ChangeNotification::change)
    }
}

/// The file of a notification.
pub(crate) fn path(out: &Path, number: u64) -> PathBuf {
    out.join(FOLDER).join("outbox").join(format!("{number:020}.xml"))
}

/// Removes what every hub has taken.
pub(crate) fn sweep(out: &Path, state: &State) -> io::Result<()> {
    let staying = state.hubs.values().filter(|record| record.left.is_none());
    let taken = staying.map(|record| record.sent).min().unwrap_or(u64::MAX).min(state.outbox);
    let entries = match fs::read_dir(out.join(FOLDER).join("outbox")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".xml")?.parse::<u64>().ok());
        if number.is_some_and(|number| number <= taken) {
            files::remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use resync_core::{build::Item, document::Change};

    use super::*;

    fn moment(second: u8) -> DateTime {
        format!("2026-01-03T12:00:{second:02}Z").parse().unwrap()
    }

    fn event(second: u8, name: &str) -> Event {
        Event::new(Change::Updated, moment(second), Item::new(format!("http://example.org/{name}")))
    }

    #[test]
    fn cn008_cn013_cn014_a_burst_is_cut_between_moments_into_intervals_without_gap_or_overlap() {
        let out = tempfile::tempdir().unwrap();
        let events = || [event(5, "a"), event(5, "b"), event(7, "c"), event(9, "a")].into_iter().map(Ok);
        let fill_at_most =
            |most| fill_with(out.path(), 2, moment(1), "http://example.org/cl.xml", events(), most).unwrap();
        let fill = || fill_at_most(1);
        assert_eq!(fill(), 5);
        let bytes = |number| fs::read(path(out.path(), number)).unwrap();
        let read = |number| xml::read(&bytes(number)).unwrap().into_document().unwrap();
        let intervals: Vec<_> = (3..6)
            .map(|number| {
                let document = read(number);
                let metadata = &document.header().metadata;
                (metadata.from.unwrap(), metadata.until.unwrap(), document.entries().len())
            })
            .collect();
        let expected = [(1, 5, 2), (5, 7, 1), (7, 9, 1)];
        assert_eq!(intervals, expected.map(|(from, until, len)| (moment(from), moment(until), len)));
        let first = bytes(3);
        assert_eq!(fill(), 5);
        assert_eq!(bytes(3), first, "a run that is completed says the same");
        let two = bytes(3).len() + bytes(4).len();
        assert_eq!(fill_at_most(two), 4, "two moments are told at once, and the third is not");
        assert_eq!(fill_at_most(MOST), 3);
    }
}
