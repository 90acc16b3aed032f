//! Reading a Resource List, through its index, to its end before anything is done about it (RS-190).
//!
//! What is to be done must be decided from the whole set: what may be deleted, which files are in the way of
//! others. So the entries go to a file of their own and are read again from there; only hashes of their paths are
//! held in memory. The changes since the list follow in the same file (RS-195, RS-196), so that the copy is brought
//! to what the Source is now and not to what it was.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::document::{Capability, Entry, Relation, Root};
use resync_core::rules::Violations;
use resync_core::xml::Reader;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::{Origin, Url};

use super::changes::{Changes, Gap, Point};
use super::download::blocking;
use super::filter::Filter;
use super::local::Facts;
use super::places::{Ground, Places, UNWANTED};
use super::report::Report;
use super::{Authority, PathError, SyncError, SyncOptions};
use crate::fetch::{Client, FetchError, Fetched, Validators};

/// How many entries are read ahead of the work on them.
const READ_AHEAD: usize = 64;

/// How often an index is read anew whose lists are not of one snapshot.
const SNAPSHOT_TRIES: u32 = 3;

/// A resource that has a place.
#[derive(Debug)]
pub(crate) struct Planned {
    /// Which line of the plan this is.
    pub(crate) number: u32,
    pub(crate) url: Url,
    pub(crate) line: Line,
}

/// What is to be done about a resource, as a line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// As the list writes it.
    pub(crate) loc: String,
    url: String,
    pub(crate) facts: Facts,
    /// Where else it is (RS-171), the preferred place first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mirrors: Vec<String>,
    /// Whether it was deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_gone: bool,
}

impl Planned {
    fn read(number: u32, text: &str) -> io::Result<Self> {
        let line: Line = serde_json::from_str(text)?;
        Ok(Self { number, url: Url::parse(&line.url).map_err(io::Error::other)?, line })
    }
}

/// How many mirrors of one resource are tried.
const MAX_MIRRORS: usize = 4;

/// The places of an entry's mirrors by their `pri`, where bytes can be had by HTTP and be proven.
fn mirrors(entry: &Entry, document: &Url) -> Vec<String> {
    let mut links: Vec<_> = entry.links_with(&Relation::Duplicate).collect();
    links.sort_by_key(|link| link.pri.unwrap_or(u32::MAX));
    let places = links.into_iter().filter_map(|link| document.join(link.href.trim()).ok());
    let places = places.filter(|place| matches!(place.scheme(), "http" | "https"));
    places.take(MAX_MIRRORS).map(String::from).collect()
}

/// Everything a Source lists, or nothing new.
pub(crate) enum Reading {
    /// The list is the one that was known.
    Known,
    New(Box<Snapshot>),
}

/// Everything a Source lists.
pub(crate) struct Snapshot {
    pub(crate) places: Arc<Places>,
    pub(crate) plan: Plan,
    /// How many resources there are, and those that have no place.
    pub(crate) report: Report,
    /// How many bytes they have together, as far as the lists say.
    pub(crate) bytes: u64,
    /// Up to where changes are in the plan; none where the lists do not say when they are from.
    pub(crate) point: Option<Point>,
    /// Whether all of it was true at one time.
    pub(crate) unity: Unity,
    pub(crate) validators: Validators,
    pub(crate) digest: String,
}

/// Whether the lists under an index belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unity {
    One,
    /// The Source was making a new snapshot while the lists were read.
    Mixed(String),
    /// The documents do not say when they are from.
    Untold(String),
}

/// The document to compare with: another answer than this is news.
pub(crate) struct LastSeen<'s> {
    pub(crate) validators: &'s Validators,
    pub(crate) digest: &'s str,
}

/// How a snapshot is read.
pub(crate) struct Lists<'s> {
    pub(crate) client: &'s Client,
    pub(crate) list: &'s Url,
    /// Where changes since the list are told.
    pub(crate) changes: Option<&'s Url>,
    pub(crate) base: &'s Url,
    pub(crate) options: &'s SyncOptions,
}

impl Lists<'_> {
    /// Reads the whole list. Where its lists are not of one snapshot it is read again, a bounded number of
    /// times; `scratch` gives the file for the entries.
    pub(crate) async fn read(
        &self,
        seen: Option<LastSeen<'_>>,
        scratch: impl Fn() -> io::Result<File>,
    ) -> Result<Reading, SyncError> {
        let mut pause = self.options.retry_pause;
        let mut tries = SNAPSHOT_TRIES;
        loop {
            let conditions = seen.as_ref().map(|seen| seen.validators);
            let Some(root) = self.fetch(self.list, conditions).await? else { return Ok(Reading::Known) };
            if seen.as_ref().is_some_and(|seen| seen.digest == root.digest) {
                return Ok(Reading::Known);
            }
            let snapshot = self.once(root, scratch()?).await?;
            tries -= 1;
            match &snapshot.unity {
                Unity::Mixed(why) if tries > 0 => {
                    tracing::info!(why, "the Source is making a new snapshot: its list is read again");
                }
                _ => return Ok(Reading::New(Box::new(snapshot))),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Reads the whole list, whatever is known of it.
    pub(crate) async fn read_anew(
        &self,
        scratch: impl Fn() -> io::Result<File>,
    ) -> Result<Snapshot, SyncError> {
        match self.read(None, scratch).await? {
            Reading::New(snapshot) => Ok(*snapshot),
            // Nothing was known.
            Reading::Known => Err(FetchError::Status { url: self.list.clone(), status: 304 }.into()),
        }
    }

    async fn once(&self, root: Fetched, scratch: File) -> Result<Snapshot, SyncError> {
        let (validators, digest) = (root.validators.clone(), root.digest.clone());
        let mut read_bytes = root.length;
        let home = root.url.origin();
        let root_url = root.url.clone();
        let collector = Collector::new(self, home.clone(), scratch);
        let (mut collector, index) = blocking(move || collector.read(root, true)).await?;
        let mut unity = Unity::One;
        for component in &index.components {
            let list = self.fetch(&component.url, None).await?;
            // Without conditions there is always a document.
            let Some(list) = list else { continue };
            if self.options.authority == Authority::SameOrigin && list.url.origin() != home {
                return Err(SyncError::ForeignComponent { url: list.url });
            }
            read_bytes += list.length;
            if read_bytes > self.options.max_list_bytes {
                return Err(SyncError::ListsTooLarge { url: root_url, max: self.options.max_list_bytes });
            }
            let (next, page) = blocking(move || collector.read(list, false)).await?;
            collector = next;
            if unity == Unity::One {
                unity = index.holds(component, page.at);
            }
        }
        let mut point = index.at.filter(|_| unity == Unity::One).map(Point::at);
        if let (Some(root), Some(begin)) = (self.changes, &point) {
            let changes = Changes { lists: self, root, gap: Gap::Tolerated };
            let reached = changes.since(collector, begin).await?;
            (collector, point) = (reached.collector, Some(reached.point));
        }
        let Collected { places, plan, report, bytes } = blocking(move || collector.end()).await?;
        Ok(Snapshot { places: Arc::new(places), plan, report, bytes, unity, validators, digest, point })
    }

    pub(super) async fn fetch(
        &self,
        url: &Url,
        known: Option<&Validators>,
    ) -> Result<Option<Fetched>, SyncError> {
        let mut pause = self.options.retry_pause;
        for _ in 0..self.options.retries {
            match self.client.document_unless(url, known).await {
                Err(error) if error.is_transient() => tracing::debug!(%error, "a list is asked for again"),
                result => return Ok(result?),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(30));
        }
        Ok(self.client.document_unless(url, known).await?)
    }
}

/// A list named by an index.
struct Component {
    url: Url,
    at: Option<DateTime>,
}

/// What a document says besides its resources.
struct Page {
    at: Option<DateTime>,
    completed: Option<DateTime>,
    components: Vec<Component>,
}

impl Page {
    /// Whether a list that says `at` belongs to this index.
    ///
    /// An index is from the earliest beginning of its lists to their latest end (RS-095). So a list must be of
    /// the time that the index says for it, or of the index's own, or lie within the index's span. A later one
    /// belongs to a snapshot that this index does not know yet.
    fn holds(&self, component: &Component, at: Option<DateTime>) -> Unity {
        let url = &component.url;
        let (Some(begin), Some(at)) = (self.at, at) else {
            return Unity::Untold(format!(
                "the index or its list {url} does not say at what time it is true"
            ));
        };
        let fits = match component.at {
            Some(stated) => at == stated,
            None => at == begin || self.completed.is_some_and(|end| begin <= at && at <= end),
        };
        if fits {
            return Unity::One;
        }
        Unity::Mixed(format!("the list {url} is of {at} and so not of the snapshot of its index, {begin}"))
    }
}

/// Takes the entries of document after document.
pub(crate) struct Collector {
    ground: Ground,
    filter: Filter,
    max: u64,
    places: Places,
    report: Report,
    plan: BufWriter<File>,
    lines: u32,
    bytes: u64,
}

/// What came of all documents.
pub(crate) struct Collected {
    pub(crate) places: Places,
    pub(crate) plan: Plan,
    pub(crate) report: Report,
    pub(crate) bytes: u64,
}

impl Collector {
    /// For documents of the origin `home`.
    pub(crate) fn new(lists: &Lists<'_>, home: Origin, scratch: File) -> Self {
        let Lists { base, options, .. } = lists;
        Self {
            ground: Ground { home, base: (*base).clone(), authority: options.authority },
            filter: options.filter.clone(),
            // One number means that there is no line.
            max: options.max_resources.min(u64::from(UNWANTED - 1)),
            places: Places::default(),
            report: Report::default(),
            plan: BufWriter::new(scratch),
            lines: 0,
            bytes: 0,
        }
    }

    /// When nothing follows any more.
    pub(crate) fn end(self) -> io::Result<Collected> {
        let Self { places, mut report, plan, bytes, .. } = self;
        report.resources = report.failed + places.wanted();
        let plan = plan.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Collected { places, plan: Plan(plan), report, bytes })
    }

    /// Takes the entries of a list, or gives the components of an index, which an index cannot have again
    /// (RS-044).
    fn read(mut self, fetched: Fetched, may_be_index: bool) -> Result<(Self, Page), SyncError> {
        let Fetched { url, file, .. } = fetched;
        let unreadable = |source| SyncError::List { url: url.clone(), source: Box::new(source) };
        let mut reader = Reader::new(BufReader::new(file)).map_err(unreadable)?;
        let header = reader.header();
        match header.capability() {
            // RS-050: a plain Sitemap may be used as a Resource List.
            None | Some(Capability::ResourceList) => {}
            Some(other) => {
                return Err(SyncError::NotAResourceList { url: url.clone(), found: other.to_string() });
            }
        }
        let is_index = header.root == Root::SitemapIndex;
        if is_index && !may_be_index {
            return Err(SyncError::NestedIndex { url });
        }
        let (at, completed) = (header.metadata.at, header.metadata.completed);
        let mut page = Page { at, completed, components: Vec::new() };
        for entry in reader.by_ref() {
            let entry = entry.map_err(unreadable)?;
            let resolved = url.join(entry.loc.trim());
            if is_index {
                let at = entry.metadata.as_ref().and_then(|metadata| metadata.at);
                let Ok(component) = resolved else {
                    return Err(SyncError::Component { index: url.clone(), loc: entry.loc });
                };
                page.components.push(Component { url: component, at });
                continue;
            }
            self.take(entry, resolved)?;
        }
        self.tell(&url, reader.refused(), &reader.take_violations());
        Ok((self, page))
    }

    /// Tells once what had to be tolerated in a document. What its unreadable entries name is not known, so that
    /// each is a resource without place.
    pub(crate) fn tell(&mut self, list: &Url, unreadable: usize, found: &Violations) {
        let Some(first) = found.errors().next().or_else(|| found.iter().next()) else { return };
        let (errors, warnings) = (found.error_count(), found.warning_count());
        let rule = first.rule.code();
        tracing::warn!(%list, errors, warnings, unreadable, rule, first = first.detail, "a list breaks rules");
        self.report.unreadable(list, unreadable, first);
    }

    pub(crate) fn take(&mut self, entry: Entry, url: Result<Url, url::ParseError>) -> Result<(), SyncError> {
        let number = self.number(self.filter.admits(&entry))?;
        let placed = match &url {
            Ok(url) => self.places.take(&entry.loc, url, &self.ground, number),
            Err(error) => Err(PathError::Uri(*error).into()),
        };
        match (placed, url) {
            (Ok(true), Ok(url)) if number != UNWANTED => self.write(entry, url, false)?,
            (Ok(true), _) => {}
            (Ok(false), _) => tracing::debug!(loc = entry.loc, "a resource is listed twice"),
            (Err(error), _) => self.report.count(&entry.loc, Err(error)),
        }
        Ok(())
    }

    /// What became of a resource: the last word counts (RS-198).
    pub(crate) fn change(
        &mut self,
        entry: Entry,
        url: Result<Url, url::ParseError>,
        is_gone: bool,
    ) -> Result<(), SyncError> {
        let number = self.number(is_gone || self.filter.admits(&entry))?;
        let placed = match &url {
            Ok(url) => self.places.change(&entry.loc, url, &self.ground, number, is_gone),
            Err(error) => Err(PathError::Uri(*error).into()),
        };
        match (placed, url) {
            (Ok(()), Ok(url)) if number != UNWANTED => self.write(entry, url, is_gone)?,
            (Ok(()), _) => {}
            // What has no place here cannot be missed here.
            (Err(_), _) if is_gone => {}
            (Err(error), _) => self.report.count(&entry.loc, Err(error)),
        }
        Ok(())
    }

    /// What an earlier run left undone.
    pub(crate) fn again(&mut self, line: &Line) -> Result<(), SyncError> {
        let Ok(url) = Url::parse(&line.url) else { return Ok(()) };
        let number = self.number(true)?;
        match self.places.change(&line.loc, &url, &self.ground, number, false) {
            Ok(()) => self.push(line)?,
            Err(error) => self.report.count(&line.loc, Err(error)),
        }
        Ok(())
    }

    fn number(&self, is_wanted: bool) -> Result<u32, SyncError> {
        if u64::from(self.lines) + self.report.failed >= self.max {
            return Err(SyncError::TooManyResources { max: self.max });
        }
        Ok(if is_wanted { self.lines } else { UNWANTED })
    }

    fn write(&mut self, entry: Entry, url: Url, is_gone: bool) -> Result<(), SyncError> {
        let (facts, mirrors) = (Facts::of(&entry), mirrors(&entry, &url));
        self.bytes = self.bytes.saturating_add(facts.length.unwrap_or(0));
        self.push(&Line { loc: entry.loc, url: url.into(), facts, mirrors, is_gone })
    }

    fn push(&mut self, line: &Line) -> Result<(), SyncError> {
        serde_json::to_writer(&mut self.plan, line).map_err(io::Error::from)?;
        self.plan.write_all(b"\n")?;
        self.lines += 1;
        Ok(())
    }
}

/// The resources of a snapshot in a file.
#[derive(Debug)]
pub(crate) struct Plan(File);

impl Plan {
    /// Those that are to be here, or those that were deleted, one after another, each as often as it was told.
    pub(crate) fn begin(&self, gone: bool) -> io::Result<Steps> {
        let mut file = self.0.try_clone()?;
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        let reading = tokio::task::spawn_blocking(move || {
            file.rewind()?;
            for (number, text) in (0..).zip(BufReader::new(file).lines()) {
                let planned = Planned::read(number, &text?)?;
                if planned.line.is_gone == gone && sender.blocking_send(planned).is_err() {
                    break;
                }
            }
            Ok(())
        });
        Ok(Steps { receiver, reading })
    }
}

/// The resources of a plan, one after another.
pub(crate) struct Steps {
    receiver: mpsc::Receiver<Planned>,
    reading: JoinHandle<io::Result<()>>,
}

impl Steps {
    /// The next resource; `None` only after all of them, since what follows may be deletion. Safe to cancel,
    /// but not to be asked again after `None` or an error.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Planned>> {
        if let Some(planned) = self.receiver.recv().await {
            return Ok(Some(planned));
        }
        match (&mut self.reading).await {
            Ok(read) => read.map(|()| None),
            Err(broken) => Err(io::Error::other(broken)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rs201_a_reading_that_breaks_off_is_not_the_end_of_the_list() {
        let (sender, receiver) = mpsc::channel(1);
        let reading = tokio::spawn(async move {
            let _held = sender;
            std::future::pending().await
        });
        reading.abort();
        let mut steps = Steps { receiver, reading };
        assert!(steps.next().await.is_err());
    }

    fn time(hour: u8) -> DateTime {
        format!("2026-11-20T{hour:02}:00:00Z").parse().unwrap()
    }

    #[test]
    fn rs095_a_list_belongs_to_its_index_by_the_times_that_both_say() {
        let [nine, ten, eleven] = [9, 10, 11].map(|hour| Some(time(hour)));
        let verdict = |completed, stated, at| {
            let url = Url::parse("http://a.example/part1.xml").unwrap();
            let index = Page { at: nine, completed, components: Vec::new() };
            match index.holds(&Component { url, at: stated }, at) {
                Unity::One => "one",
                Unity::Mixed(_) => "mixed",
                Unity::Untold(_) => "untold",
            }
        };
        assert_eq!(verdict(None, None, nine), "one");
        assert_eq!(verdict(None, None, ten), "mixed");
        assert_eq!(verdict(ten, None, ten), "one", "the index took until then");
        assert_eq!(verdict(ten, None, eleven), "mixed");
        assert_eq!(verdict(None, ten, ten), "one", "the index says so");
        assert_eq!(verdict(eleven, nine, ten), "mixed", "the index says otherwise");
        assert_eq!(verdict(ten, None, None), "untold");
    }
}
