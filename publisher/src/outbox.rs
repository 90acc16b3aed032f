//! Change Notifications that wait to be posted: one file each, numbered in the order in which hubs take them.
//!
//! A run writes them before the state tells of it, so a hub hears of a change only when the documents do, and a run that was cut short writes
//! the same ones again. Each covers the time since the one before (CN-008); without changes there is none, and the next covers that time too
//! (CN-015). The numbers have no gaps, so nobody has to look through the folder.
//!
//! They wait for a week at most, and only so many: those that are left out for a hub are the oldest, and its Destinations find them in the Change List.

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use resync_core::{
    build::{BuildError, Event},
    datetime::DateTime,
    document::{ChangeNotification, ResourceChange},
    durable::sync_folder,
    rules::Violations,
    xml,
};

use crate::{
    files,
    state::{FOLDER, State, Trouble},
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

/// How long a notification waits for a hub that cannot be told.
pub(crate) const WAITING: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How many wait at most, and of about how many bytes: a hub may take them more slowly than they come, or never be told.
const MOST_WAITING: u64 = 10_000;
const MOST_BYTES: u64 = 1024 * 1024 * 1024;

/// Why some were left out for a hub that has not failed.
pub(crate) const BEHIND: &str =
    "notifications come faster than the hub accepts them; only the newest are kept for it";

/// How many are removed at one go, before others may change the site.
const STEP: u64 = 1_000;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    /// The number of the last one now.
    pub(crate) last: u64,
    /// How long those that are new are together.
    pub(crate) bytes: u64,
}

/// Writes what `events` are told as, after number `last`. The first covers the time from `from` on.
///
/// Changes of one moment stay together (CN-014), which is why they are few; as many moments are told at once as are not too long.
pub(crate) fn fill(
    out: &Path,
    last: u64,
    from: DateTime,
    up: &str,
    events: impl Iterator<Item = Result<Event, BuildError>>,
) -> Result<Filled, OutboxError> {
    fill_with(out, last, from, up, events, MOST)
}

fn fill_with(
    out: &Path,
    last: u64,
    from: DateTime,
    up: &str,
    events: impl Iterator<Item = Result<Event, BuildError>>,
    most: usize,
) -> Result<Filled, OutboxError> {
    let mut filling = Filling { out, up, filled: Filled { last, bytes: 0 }, from, pending: None };
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
    Ok(filling.filled)
}

/// Notifications while moments come in.
struct Filling<'a> {
    out: &'a Path,
    up: &'a str,
    filled: Filled,
    /// Up to when the notifications that are written tell all.
    from: DateTime,
    /// The one that is not: up to when, with what, and about how long it is.
    pending: Option<(DateTime, Vec<ResourceChange>, usize)>,
}

impl Filling<'_> {
    fn take(
        &mut self,
        until: DateTime,
        changes: Vec<ResourceChange>,
        most: usize,
    ) -> Result<(), OutboxError> {
        let length = xml::write(&self.notification(until, changes.clone()).build()?).len();
        if self.pending.as_ref().is_some_and(|(.., before)| before + length > most) {
            self.write()?;
        }
        let (until_now, all, before) = self.pending.get_or_insert_with(|| (until, Vec::new(), 0));
        *until_now = until;
        all.extend(changes);
        *before += length;
        Ok(())
    }

    fn write(&mut self) -> Result<(), OutboxError> {
        let Some((until, changes, _)) = self.pending.take() else { return Ok(()) };
        let last = self.filled.last + 1;
        let path = path(self.out, last);
        let bytes = xml::write(&self.notification(until, changes).build()?);
        files::replace(&path, &bytes).map_err(|source| OutboxError::Write { path, source })?;
        self.filled = Filled { last, bytes: self.filled.bytes + bytes.len() as u64 };
        self.from = until;
        Ok(())
    }

    fn notification(&self, until: DateTime, changes: Vec<ResourceChange>) -> ChangeNotification {
        let empty = ChangeNotification::new(self.from, until).up(self.up);
        changes.into_iter().fold(empty, ChangeNotification::change)
    }
}

fn folder(out: &Path) -> PathBuf {
    out.join(FOLDER).join("outbox")
}

/// The file of a notification.
pub(crate) fn path(out: &Path, number: u64) -> PathBuf {
    folder(out).join(format!("{number:020}.xml"))
}

fn length(out: &Path, number: u64) -> u64 {
    fs::metadata(path(out, number)).map_or(0, |metadata| metadata.len())
}

/// Leaves out the oldest where too many wait, and notes it for the hubs that have not taken them. They are removed by a [`sweep`].
pub(crate) fn keep_within_bounds(out: &Path, state: &mut State) {
    leave_out_beyond(out, state, (MOST_WAITING, MOST_BYTES));
}

fn leave_out_beyond(out: &Path, state: &mut State, most: (u64, u64)) {
    let up_to = last_beyond(out, state, most);
    let swept = state.swept.unwrap_or_default();
    for (hub, record) in state.hubs.iter_mut().filter(|(_, record)| record.left.is_none()) {
        let left_out = up_to.saturating_sub(record.sent.max(swept));
        if left_out == 0 {
            continue;
        }
        record.sent = up_to;
        let before = record.trouble.take();
        if before.as_ref().is_none_or(|before| before.left_out == 0) {
            tracing::warn!(%hub, left_out, "too many Change Notifications wait for a hub; dropping the oldest");
        }
        let reason = before.as_ref().map_or_else(|| BEHIND.to_owned(), |before| before.reason.clone());
        let mut trouble = Trouble::after(before.as_ref(), reason);
        trouble.refused = before.and_then(|before| before.refused).filter(|number| *number > up_to);
        trouble.left_out += left_out;
        record.trouble = Some(trouble);
    }
}

/// Up to this number they are more than so many, or than so many bytes.
fn last_beyond(out: &Path, state: &State, (most, most_bytes): (u64, u64)) -> u64 {
    let mut last = state.swept.unwrap_or_default();
    let mut excess = state.outbox_bytes.saturating_sub(most_bytes);
    while excess > 0 && last < state.outbox {
        last += 1;
        excess = excess.saturating_sub(length(out, last));
    }
    last.max(state.outbox.saturating_sub(most))
}

/// What a sweep has come to.
pub(crate) struct Swept {
    /// Up to this number all are gone.
    up_to: u64,
    /// How long those that were removed were together.
    bytes: u64,
    /// Whether nothing is left that every hub has taken.
    pub(crate) is_through: bool,
}

impl Swept {
    /// Has the state keep it.
    pub(crate) fn note(&self, state: &mut State) {
        state.swept = Some(self.up_to);
        // After a crash some are gone of which nobody knows how long they were.
        state.outbox_bytes =
            if self.up_to == state.outbox { 0 } else { state.outbox_bytes.saturating_sub(self.bytes) };
    }
}

/// Removes what every hub has taken, as much of it as is done soon.
pub(crate) fn sweep(out: &Path, state: &State) -> io::Result<Swept> {
    let staying = state.hubs.values().filter(|record| record.left.is_none());
    let taken = staying.map(|record| record.sent).min().unwrap_or(u64::MAX).min(state.outbox);
    let gone = match state.swept {
        Some(swept) => swept,
        None => before_the_first(out)?.min(taken),
    };
    let up_to = taken.min(gone + STEP);
    if up_to <= gone {
        return Ok(Swept { up_to: gone, bytes: 0, is_through: true });
    }
    let mut bytes = 0;
    for number in gone + 1..=up_to {
        bytes += length(out, number);
        files::remove_for_now(&path(out, number))?;
    }
    match sync_folder(&folder(out)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(Swept { up_to, bytes, is_through: up_to == taken }),
    }
}

/// The number before the first one of which there is a file, found by looking through the folder: of a site of an older program nothing else is known.
fn before_the_first(out: &Path) -> io::Result<u64> {
    let mut before = u64::MAX;
    let entries = match fs::read_dir(folder(out)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(before),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".xml")?.parse::<u64>().ok());
        before = number.map_or(before, |number| before.min(number.saturating_sub(1)));
    }
    Ok(before)
}

/// The first of these that has not waited for too long.
pub(crate) fn first_to_keep(out: &Path, waiting: Range<u64>) -> u64 {
    let now = SystemTime::now();
    let is_outdated = |number| {
        let written = fs::metadata(path(out, number)).and_then(|metadata| metadata.modified());
        // One that is not there waits for nothing.
        written.map_or_else(
            |error| error.kind() == io::ErrorKind::NotFound,
            |written| now.duration_since(written).is_ok_and(|age| age > WAITING),
        )
    };
    // They were written in their order. Mostly it is the very first.
    let Range { start: mut first, mut end } = waiting;
    let mut middle = first;
    while first < end {
        if is_outdated(middle) {
            first = middle + 1;
        } else {
            end = middle;
        }
        middle = first + (end - first) / 2;
    }
    first
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use resync_core::{build::Item, document::Change};

    use super::*;
    use crate::{
        settings::{BaseUrl, HubUrl, Settings},
        state::HubRecord,
    };

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
        let fill_at_most = |most| {
            fill_with(out.path(), 2, moment(1), "http://example.org/cl.xml", events(), most).unwrap().last
        };
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

    /// A site of which one hub has taken so many of so many.
    fn site(sent: u64, all: u64) -> (tempfile::TempDir, State) {
        let out = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder(out.path())).unwrap();
        for number in 1..=all {
            fs::write(path(out.path(), number), [b'x'; 100]).unwrap();
        }
        let hub = HubUrl::parse("http://hub.example.org/websub/").unwrap();
        let record = HubRecord { sent, ..HubRecord::new("http://example.org/resync/framework/") };
        let settings = Settings::new("/x", BaseUrl::parse("http://example.org/").unwrap());
        let mut state = State::new(settings, (0, 0), Vec::new(), BTreeMap::from([(hub, record)]));
        (state.outbox, state.outbox_bytes) = (all, 100 * all);
        (out, state)
    }

    fn left(out: &Path) -> usize {
        fs::read_dir(folder(out)).unwrap().count()
    }

    #[test]
    fn what_every_hub_has_taken_is_removed_in_steps_and_what_waits_stays() {
        let (out, mut state) = site(2_300, 2_500);
        let mut steps = Vec::new();
        loop {
            let swept = sweep(out.path(), &state).unwrap();
            swept.note(&mut state);
            steps.push((swept.up_to, left(out.path()), state.outbox_bytes));
            if swept.is_through {
                break;
            }
        }
        assert_eq!(steps, [(1_000, 1_500, 150_000), (2_000, 500, 50_000), (2_300, 200, 20_000)]);
        // Nobody looks at what lies there besides.
        fs::write(path(out.path(), 7), "").unwrap();
        assert!(sweep(out.path(), &state).unwrap().is_through);
        assert_eq!(left(out.path()), 201);
    }

    #[test]
    fn in_a_site_of_an_older_program_the_first_that_is_there_is_looked_for() {
        let (out, state) = site(2_300, 2_500);
        for number in 1..2_200 {
            fs::remove_file(path(out.path(), number)).unwrap();
        }
        let swept = sweep(out.path(), &state).unwrap();
        assert_eq!((swept.up_to, swept.is_through, left(out.path())), (2_300, true, 200));
        let (out, state) = site(0, 0);
        assert!(sweep(out.path(), &state).unwrap().is_through);
    }

    #[test]
    fn of_too_many_or_too_long_ones_the_oldest_are_left_out_for_who_has_not_taken_them() {
        let left_out = |sent, most| {
            let (out, mut state) = site(sent, 10);
            leave_out_beyond(out.path(), &mut state, most);
            let record = state.hubs.values().next().unwrap();
            (record.sent, record.trouble.as_ref().map_or(0, |trouble| trouble.left_out))
        };
        assert_eq!(left_out(3, (7, 1_000)), (3, 0), "so many may wait");
        assert_eq!(left_out(3, (5, 1_000)), (5, 2));
        assert_eq!(left_out(3, (7, 450)), (6, 3), "the last four have 400 bytes");
        assert_eq!(left_out(8, (5, 450)), (8, 0), "what was taken is not counted");
        assert_eq!(left_out(0, (0, 0)), (10, 10));
    }

    #[test]
    fn what_is_left_out_is_added_to_what_was_and_a_refusal_of_it_is_no_trouble_any_more() {
        let (out, mut state) = site(3, 10);
        let refused = Trouble { refused: Some(4), ..Trouble::after(None, "413".to_owned()) };
        state.hubs.values_mut().next().unwrap().trouble = Some(refused.clone());
        for (most, expected) in [(7, (Some(4), 0)), (6, (None, 1)), (2, (None, 5))] {
            leave_out_beyond(out.path(), &mut state, (most, 1_000));
            let trouble = state.hubs.values().next().unwrap().trouble.clone().unwrap();
            assert_eq!((trouble.refused, trouble.left_out), expected);
            assert_eq!((trouble.since, trouble.reason), (refused.since, refused.reason.clone()));
        }
    }

    #[test]
    fn what_has_waited_for_more_than_a_week_is_not_kept() {
        let (out, _state) = site(0, 100);
        let keep = |waiting| first_to_keep(out.path(), waiting);
        assert_eq!((keep(1..101), keep(40..101), keep(101..101)), (1, 40, 101));
        let eight_days_ago = SystemTime::now() - WAITING - Duration::from_secs(24 * 60 * 60);
        for number in 1..=37 {
            let file = fs::File::options().write(true).open(path(out.path(), number)).unwrap();
            file.set_modified(eight_days_ago).unwrap();
        }
        assert_eq!((keep(1..101), keep(40..101), keep(20..30)), (38, 40, 30));
    }
}
