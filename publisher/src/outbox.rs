//! Change Notifications that wait to be posted: one file each, numbered in the order in which hubs get them.
//!
//! A run writes them before it saves the state, so a hub is notified of a change only when the documents have it, and a run that completes an interrupted
//! one writes the same bytes again. Each covers the time since the one before (CN-008). Without changes there is none, and the next covers that time too
//! (CN-015). The numbers have no gaps, so nobody has to read the folder.
//!
//! They wait for a week at most, and their number is bounded. The oldest are omitted for a hub; its Destinations find these changes in the Change List.

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
    xml,
};

use crate::{
    error::{Action, Error},
    helpers::files,
    inventory::MOST_BYTES,
    settings::HubUrl,
    state::{FOLDER, HubRecord, State, Trouble},
};

/// How long a notification waits for a hub that cannot be reached.
pub(crate) const WAITING: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How many wait at most, and about how many bytes they have: a hub may be slow for ever.
const BOUNDS: Bounds = Bounds { notifications: 10_000, bytes: 1024 * 1024 * 1024 };

/// Why some were omitted for a hub that has not failed.
pub(crate) const BEHIND: &str =
    "notifications come faster than the hub accepts them; only the newest are kept for it";

/// Why some were omitted for a hub on hold.
const ON_HOLD: &str = "the hub is on hold, and they waited for more than a week";

/// How many are removed before others may change the site.
const STEP: u64 = 1_000;

/// How much may wait.
#[derive(Clone, Copy)]
struct Bounds {
    notifications: u64,
    bytes: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    /// The number of the last notification now.
    pub(crate) last: u64,
    /// The length of all new ones together.
    pub(crate) bytes: u64,
}

/// Writes the notifications of some changes.
pub(crate) struct Outbox<'a> {
    out: &'a Path,
    /// The URL of the Capability List.
    up: &'a str,
    filled: Filled,
    /// The notifications so far have all changes up to this time.
    from: DateTime,
    /// The one that is not yet written.
    pending: Option<Pending>,
    /// Several moments share a notification of at most this length.
    most: usize,
}

struct Pending {
    until: DateTime,
    changes: Vec<ResourceChange>,
    /// About how many bytes it has.
    length: usize,
}

impl<'a> Outbox<'a> {
    /// After the notification of number `last`, which has all changes up to `from`.
    pub(crate) fn after(out: &'a Path, last: u64, from: DateTime, up: &'a str) -> Self {
        Self { out, up, filled: Filled { last, bytes: 0 }, from, pending: None, most: MOST_BYTES }
    }

    /// Writes the notifications of these changes.
    ///
    /// Changes of one moment stay together (CN-014), which is why they are few. Moments share a notification while that is short enough.
    pub(crate) fn fill(
        mut self,
        events: impl Iterator<Item = Result<Event, BuildError>>,
    ) -> Result<Filled, Error> {
        let mut events = events.peekable();
        while let Some(first) = events.next().transpose()? {
            let until = first.moment;
            let mut of_moment = vec![ResourceChange::from(first)];
            let is_of_the_moment = |event: &Result<Event, BuildError>| {
                event.as_ref().map_or(true, |event| event.moment == until)
            };
            while let Some(event) = events.next_if(is_of_the_moment).transpose()? {
                of_moment.push(event.into());
            }
            self.add(until, of_moment)?;
        }
        self.write()?;
        Ok(self.filled)
    }

    fn add(&mut self, until: DateTime, changes: Vec<ResourceChange>) -> Result<(), Error> {
        let length = xml::write(&self.notification(until, changes.clone()).build()?).len();
        if self.pending.as_ref().is_some_and(|pending| pending.length + length > self.most) {
            self.write()?;
        }
        let pending = self.pending.get_or_insert_with(|| Pending { until, changes: Vec::new(), length: 0 });
        pending.until = until;
        pending.changes.extend(changes);
        pending.length += length;
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        let Some(Pending { until, changes, .. }) = self.pending.take() else { return Ok(()) };
        let last = self.filled.last + 1;
        let path = path(self.out, last);
        let bytes = xml::write(&self.notification(until, changes).build()?);
        files::replace(&path, &bytes).map_err(Error::cannot(Action::Write, &path))?;
        self.filled = Filled { last, bytes: self.filled.bytes + bytes.len() as u64 };
        self.from = until;
        Ok(())
    }

    fn notification(&self, until: DateTime, changes: Vec<ResourceChange>) -> ChangeNotification {
        let empty = ChangeNotification::new(self.from, until).up(self.up);
        changes.into_iter().fold(empty, ChangeNotification::change)
    }
}

/// The folder of those of a set.
pub(crate) fn folder(out: &Path) -> PathBuf {
    out.join(FOLDER).join("outbox")
}

/// The file of a notification.
pub(crate) fn path(out: &Path, number: u64) -> PathBuf {
    folder(out).join(format!("{number:020}.xml"))
}

fn length(out: &Path, number: u64) -> u64 {
    fs::metadata(path(out, number)).map_or(0, |metadata| metadata.len())
}

/// Omits the oldest if too many wait, or wait for too long for a hub on hold, and records that for the hubs that have not accepted them. [`sweep`] removes
/// the files.
pub(crate) fn keep_within_bounds(out: &Path, state: &mut State) {
    omit_beyond(out, state, BOUNDS);
    omit_outdated(out, state);
}

/// Omits what has waited too long for hubs on hold. For other hubs that is done when they are notified.
fn omit_outdated(out: &Path, state: &mut State) {
    let on_hold = state.hubs_on_hold().map(|(hub, record)| (hub.clone(), state.waiting_for(record)));
    for (hub, waiting) in on_hold.collect::<Vec<_>>() {
        let kept = first_to_keep(out, waiting.clone());
        let record = state.hubs.get_mut(&hub).filter(|_| kept > waiting.start);
        if let Some(record) = record {
            omit(&hub, record, kept - 1, kept - waiting.start, ON_HOLD);
        }
    }
}

fn omit_beyond(out: &Path, state: &mut State, bounds: Bounds) {
    let up_to = last_beyond(out, state, bounds);
    let swept = state.swept;
    for (hub, record) in state.hubs.iter_mut().filter(|(_, record)| record.removed.is_none()) {
        let omitted = up_to.saturating_sub(record.sent.max(swept));
        if omitted > 0 {
            omit(hub, record, up_to, omitted, BEHIND);
        }
    }
}

fn omit(hub: &HubUrl, record: &mut HubRecord, up_to: u64, omitted: u64, why: &str) {
    record.sent = up_to;
    let before = record.trouble.take();
    if before.as_ref().is_none_or(|before| before.left_out == 0) {
        tracing::warn!(%hub, omitted, why, "dropping the oldest Change Notifications that wait for a hub");
    }
    let reason = before.as_ref().map_or_else(|| why.to_owned(), |before| before.reason.clone());
    let mut trouble = Trouble::after(before.as_ref(), reason);
    trouble.refused = before.and_then(|before| before.refused).filter(|number| *number > up_to);
    trouble.left_out += omitted;
    record.trouble = Some(trouble);
}

/// The number of the last one that the bounds leave no room for.
fn last_beyond(out: &Path, state: &State, bounds: Bounds) -> u64 {
    let mut last = state.swept;
    let mut excess = state.outbox_bytes.saturating_sub(bounds.bytes);
    while excess > 0 && last < state.outbox {
        last += 1;
        excess = excess.saturating_sub(length(out, last));
    }
    last.max(state.outbox.saturating_sub(bounds.notifications))
}

/// What a sweep removed.
pub(crate) struct Swept {
    /// All up to this number are removed.
    up_to: u64,
    /// The length of the removed ones together.
    bytes: u64,
    /// Whether nothing is left that every hub has accepted.
    pub(crate) is_complete: bool,
}

impl Swept {
    /// Records it in the state.
    pub(crate) fn record(&self, state: &mut State) {
        state.swept = self.up_to;
        // A crash may have removed some without subtracting their length.
        state.outbox_bytes =
            if self.up_to == state.outbox { 0 } else { state.outbox_bytes.saturating_sub(self.bytes) };
    }
}

/// Removes a limited number of the notifications that every hub has accepted.
pub(crate) fn sweep(out: &Path, state: &State) -> io::Result<Swept> {
    let hubs = state.hubs.values().filter(|record| record.removed.is_none());
    let accepted = hubs.map(|record| record.sent).min().unwrap_or(u64::MAX).min(state.outbox);
    let up_to = accepted.min(state.swept + STEP);
    if up_to <= state.swept {
        return Ok(Swept { up_to: state.swept, bytes: 0, is_complete: true });
    }
    let mut bytes = 0;
    for number in state.swept + 1..=up_to {
        bytes += length(out, number);
        files::remove_unsynced(&path(out, number))?;
    }
    files::if_there(sync_folder(&folder(out)))?;
    Ok(Swept { up_to, bytes, is_complete: up_to == accepted })
}

/// The first of these that has not waited for too long.
pub(crate) fn first_to_keep(out: &Path, waiting: Range<u64>) -> u64 {
    let now = SystemTime::now();
    let is_outdated = |number| {
        let written = fs::metadata(path(out, number)).and_then(|metadata| metadata.modified());
        written.map_or_else(
            |error| error.kind() == io::ErrorKind::NotFound,
            |written| now.duration_since(written).is_ok_and(|age| age > WAITING),
        )
    };
    // A binary search, since they were written in their order. Mostly it is the very first.
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
        settings::{BaseUrl, Settings},
        state::Totals,
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
            let outbox = Outbox::after(out.path(), 2, moment(1), "http://example.org/cl.xml");
            Outbox { most, ..outbox }.fill(events()).unwrap().last
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
        assert_eq!(bytes(3), first, "a run that is completed writes the same");
        let two = bytes(3).len() + bytes(4).len();
        assert_eq!(fill_at_most(two), 4, "two moments share a notification, and the third has its own");
        assert_eq!(fill_at_most(MOST_BYTES), 3);
    }

    /// A site with `all` notifications, of which its hub has accepted `sent`.
    fn site(sent: u64, all: u64) -> (tempfile::TempDir, State) {
        let out = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder(out.path())).unwrap();
        for number in 1..=all {
            fs::write(path(out.path(), number), [b'x'; 100]).unwrap();
        }
        let hub = HubUrl::parse("http://hub.example.org/websub/").unwrap();
        let record = HubRecord { sent, ..HubRecord::new("http://example.org/resync/framework/") };
        let settings = Settings::new("/x", BaseUrl::parse("http://example.org/").unwrap());
        let mut state = State::new(settings, Totals::default(), Vec::new(), BTreeMap::from([(hub, record)]));
        (state.outbox, state.outbox_bytes) = (all, 100 * all);
        (out, state)
    }

    fn left(out: &Path) -> usize {
        fs::read_dir(folder(out)).unwrap().count()
    }

    #[test]
    fn what_every_hub_has_accepted_is_removed_in_steps_and_what_waits_stays() {
        let (out, mut state) = site(2_300, 2_500);
        let mut steps = Vec::new();
        loop {
            let swept = sweep(out.path(), &state).unwrap();
            swept.record(&mut state);
            steps.push((swept.up_to, left(out.path()), state.outbox_bytes));
            if swept.is_complete {
                break;
            }
        }
        assert_eq!(steps, [(1_000, 1_500, 150_000), (2_000, 500, 50_000), (2_300, 200, 20_000)]);
        // Nobody reads the folder for other files.
        fs::write(path(out.path(), 7), "").unwrap();
        assert!(sweep(out.path(), &state).unwrap().is_complete);
        assert_eq!(left(out.path()), 201);
    }

    #[test]
    fn of_too_many_or_too_long_ones_the_oldest_are_omitted_for_hubs_that_have_not_accepted_them() {
        let left_out = |sent, (notifications, bytes)| {
            let (out, mut state) = site(sent, 10);
            omit_beyond(out.path(), &mut state, Bounds { notifications, bytes });
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
    fn what_is_omitted_is_added_to_what_was_and_its_refusal_is_forgotten() {
        let (out, mut state) = site(3, 10);
        let refused = Trouble { refused: Some(4), ..Trouble::after(None, "413".to_owned()) };
        state.hubs.values_mut().next().unwrap().trouble = Some(refused.clone());
        for (most, expected) in [(7, (Some(4), 0)), (6, (None, 1)), (2, (None, 5))] {
            omit_beyond(out.path(), &mut state, Bounds { notifications: most, bytes: 1_000 });
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
