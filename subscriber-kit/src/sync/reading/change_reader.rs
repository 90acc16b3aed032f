//! Reads changes from one list after another, or one package after another, and records where the next run continues (RS-193,
//! RS-194).

use std::io::{BufReader, Seek as _};

use resync_core::datetime::DateTime;
use resync_core::document::Entry;
use resync_core::xml::{MAX_ENTRIES, Reader};
use serde::{Deserialize, Serialize};
use url::Url;

use super::collector::{Collector, ManifestKind};
use super::document::{Document, ListedPackage, unreadable};
use super::gaps::Continuity;
use super::lists::Lists;
use crate::blocking::blocking;
use crate::discover::all_entries;
use crate::fetch::{Fetched, Validators};
use crate::sync::SyncError;
use crate::sync::files::local::Facts;
use crate::text;

/// How many entries and links of a Change Set are kept in memory.
const MAX_IN_ORDER: usize = 4 * MAX_ENTRIES;

/// Up to where the copy has the Source's changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// The copy has every change before this time.
    #[serde(with = "text")]
    pub(crate) since: DateTime,
    /// The open list that was read last; it is requested again at the same URL (RS-193).
    pub(crate) open: Option<OpenList>,
}

impl Point {
    /// The copy is as the Source was at this time, or newer (RS-196).
    pub(crate) fn at(since: DateTime) -> Self {
        Self { since, open: None }
    }

    /// Up to when the lists have all changes, by the Source's clock, which may be ahead of ours.
    pub(crate) fn reached(&self) -> DateTime {
        let last = self.open.as_ref().and_then(|open| open.last.as_ref()).and_then(Mark::moment);
        last.map_or(self.since, |last| last.max(self.since))
    }
}

/// An open Change List, and how far it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenList {
    pub(crate) url: String,
    pub(crate) validators: Validators,
    pub(crate) digest: String,
    pub(crate) last: Option<Mark>,
    /// The version of the root that named no later list, if it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root: Option<Validators>,
}

/// The last entry that was read, after which the next run continues (RS-194).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    loc: String,
    change: String,
    datetime: Option<String>,
    /// For a package, which may be replaced at the same URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    package: Option<PackageMark>,
}

/// What a dump states about a package. If that differs, the package was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PackageMark {
    facts: Facts,
    until: Option<String>,
}

impl Mark {
    fn of(entry: &Entry) -> Self {
        Self {
            loc: entry.loc.clone(),
            change: entry.change().map(|change| change.token().to_owned()).unwrap_or_default(),
            datetime: datetime(entry).map(|at| at.to_string()),
            package: None,
        }
    }

    /// The time of the change by the Source's clock, or the end of the package.
    pub(crate) fn moment(&self) -> Option<DateTime> {
        let of_package = self.package.as_ref().and_then(|package| package.until.as_deref());
        self.datetime.as_deref().or(of_package)?.parse().ok()
    }

    fn of_package(listed: &ListedPackage) -> Self {
        let until = listed.until.map(|until| until.to_string());
        Self {
            loc: listed.url.to_string(),
            change: String::new(),
            datetime: None,
            package: Some(PackageMark { facts: listed.facts.clone(), until }),
        }
    }
}

/// The changes that were read.
pub(crate) struct Reached {
    pub(crate) collector: Collector,
    pub(crate) point: Point,
    pub(crate) continuity: Continuity,
}

impl Reached {
    /// There is nothing new since `point`.
    pub(crate) fn nothing(collector: Collector, point: &Point) -> Self {
        Self { collector, point: point.clone(), continuity: Continuity::default() }
    }
}

fn datetime(entry: &Entry) -> Option<DateTime> {
    entry.metadata.as_ref().and_then(|metadata| metadata.datetime)
}

/// Reads one list after another.
pub(crate) struct ChangeReader {
    pub(crate) collector: Collector,
    since: DateTime,
    open: Option<OpenList>,
    reached: Option<DateTime>,
    pub(crate) continuity: Continuity,
}

impl ChangeReader {
    pub(crate) fn new(collector: Collector, since: DateTime) -> Self {
        Self { collector, since, open: None, reached: None, continuity: Continuity::default() }
    }

    /// Reads the changes of a list, or of the packages of a dump.
    pub(crate) async fn read(
        self,
        lists: &Lists<'_>,
        fetched: Fetched,
        document: Document,
        last: Option<Mark>,
        requested: &Url,
    ) -> Result<Self, SyncError> {
        if document.is_dump() {
            self.dump(lists, fetched, document, last, requested).await
        } else {
            self.list(fetched, last, requested).await
        }
    }

    /// Reads the packages after `last`, and `last` itself if it was replaced. If it is not in the dump, reads those that end after
    /// the point.
    async fn dump(
        mut self,
        lists: &Lists<'_>,
        fetched: Fetched,
        Document { until, packages, .. }: Document,
        mut last: Option<Mark>,
        requested: &Url,
    ) -> Result<Self, SyncError> {
        let place = |mark: &Mark| packages.iter().position(|listed| listed.url.as_str() == mark.loc);
        let at = last.as_ref().and_then(place);
        let is_as_read = at.is_some_and(|at| last == Some(Mark::of_package(&packages[at])));
        let since = self.since;
        for (number, listed) in packages.into_iter().enumerate() {
            let is_known = match at {
                Some(at) => number < at || (number == at && is_as_read),
                None => listed.until.is_some_and(|until| until < since),
            };
            let may_be_read = at.is_none_or(|at| number == at);
            last = Some(Mark::of_package(&listed));
            if is_known {
                continue;
            }
            let (manifest, file) = lists.manifest(&listed).await?;
            let number = self.collector.packages.add(&listed, file);
            let of = ManifestKind::Changes(may_be_read.then_some(since));
            let (collector, end) = blocking(move || self.collector.manifest(manifest, number, of)).await?;
            self.collector = collector;
            self.reached = self.reached.max(end.until.or(listed.until).or(end.latest));
        }
        self.reached = self.reached.max(until);
        let (validators, digest) = (fetched.validators, fetched.digest);
        let open = OpenList { url: requested.to_string(), validators, digest, last, root: None };
        self.open = until.is_none().then_some(open);
        Ok(self)
    }

    /// Reads the changes after `last`. If that is not in the list, reads those that are not older than the point: repeated ones
    /// do no harm (RS-128).
    async fn list(self, fetched: Fetched, last: Option<Mark>, requested: &Url) -> Result<Self, SyncError> {
        let Self { collector, since, reached, continuity, .. } = self;
        let (validators, digest) = (fetched.validators.clone(), fetched.digest.clone());
        let (collector, read) = blocking(move || take(collector, fetched, last, since)).await?;
        let reached = reached.max(read.until.or(read.latest));
        let url = requested.to_string();
        let open = OpenList { url, validators, digest, last: read.last, root: None };
        let open = read.until.is_none().then_some(open);
        Ok(Self { collector, since, open, reached, continuity })
    }

    /// Reads the changes of an alpha Change Set, which come in any order (ALPHA-019), as [`list`](Self::list) reads others.
    pub(crate) async fn change_set(
        self,
        set: Fetched,
        last: Option<Mark>,
        requested: &Url,
    ) -> Result<Self, SyncError> {
        let Self { collector, since, reached, continuity, .. } = self;
        let (validators, digest) = (set.validators.clone(), set.digest.clone());
        let (collector, read) = blocking(move || take_in_order(collector, &set, last, since)).await?;
        let open = OpenList { url: requested.to_string(), validators, digest, last: read.last, root: None };
        Ok(Self { collector, since, open: Some(open), reached: reached.max(read.latest), continuity })
    }

    pub(crate) fn reached(self) -> Reached {
        // A time in the future must not hide changes until then.
        let reached = self.reached.map(|reached| reached.min(DateTime::now()));
        let since = reached.map_or(self.since, |reached| reached.max(self.since));
        let Self { collector, open, continuity, .. } = self;
        Reached { collector, point: Point { since, open }, continuity }
    }
}

struct ReadEntries {
    until: Option<DateTime>,
    /// When the last change of the list happened.
    latest: Option<DateTime>,
    last: Option<Mark>,
}

/// What a Change Set has of what is known, as far as it says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Overlap {
    /// Whether one of its changes is dealt with, or is not later than the point (MEM-004).
    pub(crate) is_there: bool,
    /// When the earliest of its changes happened.
    pub(crate) earliest: Option<DateTime>,
}

impl Overlap {
    /// Reads the whole set.
    pub(crate) fn of(set: &Fetched, last: Option<&Mark>, since: DateTime) -> Result<Self, SyncError> {
        let unreadable = |source| unreadable(&set.url, source);
        let mut overlap = Self::default();
        for entry in Reader::new(BufReader::new(&set.file)).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let at = datetime(&entry);
            overlap.is_there |=
                at.is_some_and(|at| at <= since) || last.is_some_and(|last| *last == Mark::of(&entry));
            overlap.earliest = overlap.earliest.into_iter().chain(at).min();
        }
        Ok(overlap)
    }
}

/// As [`take`], oldest first, whatever the order in the document. All entries are in memory, of which a document has a limited number.
fn take_in_order(
    mut collector: Collector,
    set: &Fetched,
    resume: Option<Mark>,
    since: DateTime,
) -> Result<(Collector, ReadEntries), SyncError> {
    let unreadable = |source| unreadable(&set.url, source);
    let mut reader = Reader::new(BufReader::new(&set.file)).map_err(unreadable)?;
    let entries = in_order(all_entries(&mut reader, MAX_IN_ORDER).map_err(unreadable)?);
    let known = resume.as_ref().and_then(|mark| entries.iter().position(|entry| Mark::of(entry) == *mark));
    let (mut latest, mut last) = (None, resume);
    for (number, entry) in entries.into_iter().enumerate() {
        let at = datetime(&entry);
        latest = latest.max(at);
        let is_known = match known {
            Some(known) => number <= known,
            None => at.is_some_and(|at| at < since),
        };
        last = Some(Mark::of(&entry));
        if !is_known {
            let resolved = set.url.join(entry.loc.trim());
            collector.change(entry, resolved)?;
        }
    }
    collector.has_unplaced_changes |= reader.refused() > 0;
    collector.report_violations(&set.url, reader.refused(), &reader.take_violations());
    Ok((collector, ReadEntries { until: None, latest, last }))
}

/// By time. What has none keeps its place behind the one before it; of changes at one moment, the one that a list with the newest first
/// names last came first.
fn in_order(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut times = entries.iter().filter_map(datetime);
    if times.next().zip(times.next_back()).is_some_and(|(first, last)| last < first) {
        entries.reverse();
    }
    let mut latest = None;
    let mut dated: Vec<_> = entries
        .into_iter()
        .map(|entry| {
            latest = datetime(&entry).or(latest);
            (latest, entry)
        })
        .collect();
    dated.sort_by_key(|(at, _)| *at);
    dated.into_iter().map(|(_, entry)| entry).collect()
}

fn take(
    mut collector: Collector,
    mut fetched: Fetched,
    resume: Option<Mark>,
    since: DateTime,
) -> Result<(Collector, ReadEntries), SyncError> {
    let url = fetched.url.clone();
    let unreadable = |source| unreadable(&url, source);
    let skip = match &resume {
        Some(mark) => {
            let reader = Reader::new(BufReader::new(&fetched.file)).map_err(unreadable)?;
            let at = reader.filter_map(Result::ok).position(|entry| Mark::of(&entry) == *mark);
            fetched.file.rewind()?;
            at.map(|at| at + 1)
        }
        None => None,
    };
    let mut reader = Reader::new(BufReader::new(&fetched.file)).map_err(unreadable)?;
    let until = reader.header().metadata.until;
    let (mut latest, mut last) = (None, resume);
    for (number, entry) in reader.by_ref().enumerate() {
        let entry = entry.map_err(unreadable)?;
        let at = datetime(&entry);
        latest = latest.max(at);
        let is_known = match skip {
            Some(skip) => number < skip,
            None => at.is_some_and(|at| at < since),
        };
        last = Some(Mark::of(&entry));
        if is_known {
            continue;
        }
        let resolved = url.join(entry.loc.trim());
        collector.change(entry, resolved)?;
    }
    collector.has_unplaced_changes |= reader.refused() > 0;
    collector.report_violations(&url, reader.refused(), &reader.take_violations());
    Ok((collector, ReadEntries { until, latest, last }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::{Change, Metadata};

    #[test]
    fn alpha019_changes_of_a_set_are_taken_oldest_first() {
        let entry = |(name, day): &(&str, Option<u8>)| {
            let datetime = day.map(|day| format!("2012-09-{day:02}").parse().unwrap());
            let metadata = Metadata { change: Some(Change::Updated), datetime, ..Metadata::default() };
            Entry::with_metadata(*name, metadata)
        };
        let order = |entries: &[(&str, Option<u8>)]| {
            let entries = in_order(entries.iter().map(entry).collect());
            entries.into_iter().map(|entry| entry.loc).collect::<String>()
        };
        assert_eq!(order(&[("a", Some(1)), ("c", Some(3)), ("?", None), ("b", Some(2))]), "abc?");
        assert_eq!(order(&[("d", Some(4)), ("c", Some(2)), ("b", Some(2)), ("a", Some(1))]), "abcd");
    }
}
