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

/// Writes what `events` are told as, after number `last`, and gives the number of the last one now. The first covers the time from `from` on.
///
/// Changes of one moment stay together (CN-014), which is why they are few.
pub(crate) fn fill(
    out: &Path,
    last: u64,
    from: DateTime,
    up: &str,
    events: impl Iterator<Item = Result<Event, BuildError>>,
) -> Result<u64, OutboxError> {
    let (mut last, mut from) = (last, from);
    let mut events = events.peekable();
    while let Some(first) = events.next().transpose()? {
        let until = first.moment;
        let mut notification =
            ChangeNotification::new(from, until).up(up).change(ResourceChange::from(first));
        let is_of_the_moment =
            |event: &Result<Event, BuildError>| event.as_ref().map_or(true, |event| event.moment == until);
        while let Some(event) = events.next_if(is_of_the_moment).transpose()? {
            notification = notification.change(ResourceChange::from(event));
        }
        let path = path(out, last + 1);
        files::replace(&path, &xml::write(&notification.build()?))
            .map_err(|source| OutboxError::Write { path, source })?;
        (last, from) = (last + 1, until);
    }
    Ok(last)
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
        let fill = || fill(out.path(), 2, moment(1), "http://example.org/cl.xml", events()).unwrap();
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
    }
}
