//! Reading a Resource List, through its index, to its end before anything is done about it (RS-190).
//!
//! What is to be done must be decided from the whole set: what may be deleted, which files are in the way of
//! others. So the entries go to a file of their own and are read again from there; only their paths are held
//! in memory.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use resync_core::datetime::DateTime;
use resync_core::document::{Capability, Root};
use resync_core::rules::Violations;
use resync_core::xml::Reader;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use url::{Origin, Url};

use super::download::blocking;
use super::local::Facts;
use super::places::Places;
use super::report::Report;
use super::{Authority, PathError, ResourceError, SyncError, SyncOptions};
use crate::fetch::{Client, Fetched, Validators};

/// How many entries are read ahead of the work on them.
const READ_AHEAD: usize = 64;

/// How often an index is read anew whose lists are not of one snapshot.
const SNAPSHOT_TRIES: u32 = 3;

/// A resource that has a place.
#[derive(Debug)]
pub(crate) struct Planned {
    /// As the list writes it.
    pub(crate) loc: String,
    pub(crate) url: Url,
    pub(crate) facts: Facts,
}

/// [`Planned`] as a line of a file: `loc`, absolute URL, facts.
#[derive(Serialize, Deserialize)]
struct Line(String, String, Facts);

impl Planned {
    fn read(line: &str) -> io::Result<Self> {
        let Line(loc, url, facts) = serde_json::from_str(line)?;
        Ok(Self { loc, url: Url::parse(&url).map_err(io::Error::other)?, facts })
    }
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

    async fn once(&self, root: Fetched, scratch: File) -> Result<Snapshot, SyncError> {
        let (validators, digest) = (root.validators.clone(), root.digest.clone());
        let mut read_bytes = root.length;
        let home = root.url.origin();
        let root_url = root.url.clone();
        let collector = Collector {
            base: self.base.clone(),
            authority: self.options.authority,
            max: self.options.max_resources,
            home: home.clone(),
            places: Places::default(),
            report: Report::default(),
            plan: BufWriter::new(scratch),
        };
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
        let Collector { places, report, plan, .. } = collector;
        let plan = blocking(move || Plan::begin(plan)).await?;
        Ok(Snapshot { places: Arc::new(places), plan, report, unity, validators, digest })
    }

    async fn fetch(&self, url: &Url, known: Option<&Validators>) -> Result<Option<Fetched>, SyncError> {
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
struct Collector {
    base: Url,
    authority: Authority,
    max: u64,
    /// The origin of the list, or of its index: whose resources it may name (RS-200).
    home: Origin,
    places: Places,
    report: Report,
    plan: BufWriter<File>,
}

impl Collector {
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
            let facts = Facts::of(&entry);
            self.take(entry.loc, resolved, facts)?;
        }
        self.tell(&url, reader.refused(), &reader.take_violations());
        Ok((self, page))
    }

    /// Tells once what had to be tolerated in a document. What its unreadable entries name is not known, so that
    /// each is a resource without place.
    fn tell(&mut self, list: &Url, unreadable: usize, found: &Violations) {
        let Some(first) = found.errors().next().or_else(|| found.iter().next()) else { return };
        let (errors, warnings) = (found.error_count(), found.warning_count());
        let rule = first.rule.code();
        tracing::warn!(%list, errors, warnings, unreadable, rule, first = first.detail, "a list breaks rules");
        self.report.unreadable(list, unreadable, first);
    }

    fn take(
        &mut self,
        loc: String,
        url: Result<Url, url::ParseError>,
        facts: Facts,
    ) -> Result<(), SyncError> {
        if self.report.resources >= self.max {
            return Err(SyncError::TooManyResources { max: self.max });
        }
        let placed = url.map_err(|error| ResourceError::from(PathError::Uri(error))).and_then(|url| {
            let place = self.places.take(&loc, &url, &self.home, &self.base, self.authority)?;
            Ok(place.map(|_| url))
        });
        match placed {
            Ok(Some(url)) => {
                self.report.resources += 1;
                let line = Line(loc, url.into(), facts);
                serde_json::to_writer(&mut self.plan, &line).map_err(io::Error::from)?;
                self.plan.write_all(b"\n")?;
            }
            Ok(None) => tracing::debug!(%loc, "a resource is listed twice"),
            Err(error) => {
                self.report.resources += 1;
                self.report.count(&loc, Err(error));
            }
        }
        Ok(())
    }
}

/// The resources of a snapshot, one after another.
pub(crate) struct Plan {
    receiver: mpsc::Receiver<Planned>,
    reading: JoinHandle<io::Result<()>>,
}

impl Plan {
    fn begin(written: BufWriter<File>) -> io::Result<Self> {
        let mut file = written.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        let reading = tokio::task::spawn_blocking(move || {
            for line in BufReader::new(file).lines() {
                if sender.blocking_send(Planned::read(&line?)?).is_err() {
                    break;
                }
            }
            Ok(())
        });
        Ok(Self { receiver, reading })
    }

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
        let mut plan = Plan { receiver, reading };
        assert!(plan.next().await.is_err());
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
