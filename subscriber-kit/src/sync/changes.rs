//! Reading what changed since a point: Change Lists, through their index, across rotations, from an archive where
//! that is all that is left (RS-190…RS-198).

use std::io::{BufReader, Seek as _};

use resync_core::datetime::DateTime;
use resync_core::document::{Capability, Change, Entry, Header, Relation, Root};
use resync_core::xml::Reader;
use serde::{Deserialize, Serialize};
use url::Url;

use super::download::blocking;
use super::lists::{Collector, Lists};
use super::{Authority, SyncError};
use crate::fetch::{FetchError, Fetched, Validators};

/// Up to where the Source's changes are in the copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Every change before this moment is in the copy.
    #[serde(with = "moment")]
    pub(crate) since: DateTime,
    /// The open list that was read last: it is asked for again at the same place (RS-193).
    pub(crate) open: Option<OpenList>,
}

/// An open Change List, and how far it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenList {
    url: String,
    validators: Validators,
    digest: String,
    last: Option<Mark>,
}

/// An entry by which reading goes on (RS-194).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    loc: String,
    change: String,
    datetime: Option<String>,
}

impl Mark {
    fn of(entry: &Entry) -> Self {
        Self {
            loc: entry.loc.clone(),
            change: entry.change().map(|change| change.token().to_owned()).unwrap_or_default(),
            datetime: datetime(entry).map(|at| at.to_string()),
        }
    }
}

fn datetime(entry: &Entry) -> Option<DateTime> {
    entry.metadata.as_ref().and_then(|metadata| metadata.datetime)
}

pub(crate) mod moment {
    //! A moment as text.
    use resync_core::datetime::DateTime;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(at: &DateTime, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<DateTime, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Point {
    /// The copy is as the Source was at this moment, or newer (RS-196).
    pub(crate) fn at(since: DateTime) -> Self {
        Self { since, open: None }
    }
}

/// What to do where changes are missing between the point and the oldest list (RS-197).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// Nothing can be built on it.
    Refused,
    /// What is known otherwise has to do.
    Tolerated,
}

/// A Source's changes.
pub(crate) struct Changes<'s> {
    pub(crate) lists: &'s Lists<'s>,
    /// The Change List or its index.
    pub(crate) root: &'s Url,
    pub(crate) gap: Gap,
}

/// What reading them brought.
pub(crate) struct Reached {
    pub(crate) collector: Collector,
    pub(crate) point: Point,
}

impl Changes<'_> {
    /// Hands every change since `point` to the collector, oldest first.
    pub(crate) async fn since(&self, collector: Collector, point: &Point) -> Result<Reached, SyncError> {
        let Some(open) = &point.open else { return self.walk(collector, point.since, self.root).await };
        let Ok(url) = Url::parse(&open.url) else {
            return self.walk(collector, point.since, self.root).await;
        };
        let fetched = match self.lists.fetch(&url, Some(&open.validators)).await {
            Ok(Some(fetched)) if fetched.digest != open.digest => fetched,
            Ok(_) => return Ok(Reached { collector, point: point.clone() }),
            // The list was moved or withdrawn; its index tells.
            Err(SyncError::Fetch(FetchError::Status { status: 403 | 404 | 410, .. })) => {
                return self.walk(collector, point.since, self.root).await;
            }
            Err(error) => return Err(error),
        };
        let (fetched, head) = self.inspect(fetched).await?;
        // At its place stands another list, or one that begins later.
        if head.is_index || head.from.is_none_or(|from| from > point.since) {
            return self.walk(collector, point.since, self.root).await;
        }
        let feed = Feed::new(collector, point.since).list(fetched, open.last.clone(), &url).await?;
        match head.until {
            None => Ok(feed.reached()),
            // RS-192: its index knows what follows, or else the Capability List, from which the root is.
            Some(until) => {
                let root = head.index.as_ref().unwrap_or(self.root);
                self.walk(feed.collector, until.max(point.since), root).await
            }
        }
    }

    /// From an index, or from the only list.
    async fn walk(&self, collector: Collector, since: DateTime, root: &Url) -> Result<Reached, SyncError> {
        let fetched = self.fetch(root).await?;
        let (fetched, head) = self.inspect(fetched).await?;
        let mut feed = Feed::new(collector, since);
        if let Some(from) = head.from.filter(|from| *from > since) {
            let archived = self.archived(&head, since, from).await?;
            if archived.is_empty() && self.gap == Gap::Refused {
                return Err(SyncError::LostChanges {
                    url: Box::new(root.clone()),
                    from: from.to_string(),
                    since: since.to_string(),
                });
            }
            for part in archived {
                let (fetched, _) = self.inspect(self.fetch(&part.url).await?).await?;
                feed = feed.list(fetched, None, &part.url).await?;
            }
        }
        if !head.is_index {
            return Ok(feed.list(fetched, None, root).await?.reached());
        }
        let parts = head.parts.into_iter().filter(|part| part.until.is_none_or(|until| until >= since));
        for part in parts {
            let (fetched, inner) = self.inspect(self.fetch(&part.url).await?).await?;
            if inner.is_index {
                return Err(SyncError::NestedIndex { url: part.url });
            }
            feed = feed.list(fetched, None, &part.url).await?;
        }
        Ok(feed.reached())
    }

    /// The archived lists from `since` to where the living ones begin; none if they do not reach that far.
    async fn archived(&self, head: &Head, since: DateTime, from: DateTime) -> Result<Vec<Part>, SyncError> {
        let Some(archives) = &head.archives else { return Ok(Vec::new()) };
        let mut places = vec![archives.clone()];
        let mut parts = Vec::new();
        // An archive may have an index, and that is all (RS-044).
        for is_top in [true, false] {
            for place in std::mem::take(&mut places) {
                let (_, head) = self.inspect(self.fetch(&place).await?).await?;
                match head.is_index {
                    true if is_top => places.extend(head.parts.into_iter().map(|part| part.url)),
                    true => return Err(SyncError::NestedIndex { url: place }),
                    false => parts.extend(head.parts),
                }
            }
        }
        parts.retain(|part| part.until.is_none_or(|until| until >= since));
        parts.sort_by_key(|part| part.from);
        let begins = parts.first().and_then(|part| part.from).is_some_and(|first| first <= since);
        let mut reached = since;
        for part in &parts {
            if part.from.is_none_or(|next| next > reached) {
                break;
            }
            reached = part.until.map_or(reached, |until| until.max(reached));
        }
        Ok(if begins && reached >= from { parts } else { Vec::new() })
    }

    async fn fetch(&self, url: &Url) -> Result<Fetched, SyncError> {
        let fetched = self.lists.fetch(url, None).await?;
        let fetched = fetched.ok_or_else(|| FetchError::Status { url: url.clone(), status: 304 })?;
        let is_foreign = fetched.url.origin() != self.lists.list.origin();
        if is_foreign && self.lists.options.authority == Authority::SameOrigin {
            return Err(SyncError::ForeignComponent { url: fetched.url });
        }
        Ok(fetched)
    }

    async fn inspect(&self, fetched: Fetched) -> Result<(Fetched, Head), SyncError> {
        blocking(move || inspect(fetched)).await
    }
}

/// What a document says before its entries; of an index or archive also where it leads.
struct Head {
    is_index: bool,
    from: Option<DateTime>,
    until: Option<DateTime>,
    index: Option<Url>,
    archives: Option<Url>,
    parts: Vec<Part>,
}

struct Part {
    url: Url,
    from: Option<DateTime>,
    until: Option<DateTime>,
}

fn inspect(mut fetched: Fetched) -> Result<(Fetched, Head), SyncError> {
    let url = fetched.url.clone();
    let unreadable = |source| SyncError::List { url: url.clone(), source: Box::new(source) };
    let mut reader = Reader::new(BufReader::new(&fetched.file)).map_err(unreadable)?;
    let header = reader.header().clone();
    match header.capability() {
        Some(Capability::ChangeList | Capability::ChangeListArchive) => {}
        other => {
            let found = other.map_or_else(|| "sitemap".to_owned(), ToString::to_string);
            return Err(SyncError::NotAChangeList { url, found });
        }
    }
    let is_index = header.root == Root::SitemapIndex;
    let leads_on = is_index || header.capability() == Some(&Capability::ChangeListArchive);
    let mut parts = Vec::new();
    if leads_on {
        for entry in reader.by_ref() {
            let entry = entry.map_err(unreadable)?;
            let part = url.join(entry.loc.trim());
            let part =
                part.map_err(|_| SyncError::Component { index: url.clone(), loc: entry.loc.clone() })?;
            let metadata = entry.metadata.unwrap_or_default();
            parts.push(Part { url: part, from: metadata.from, until: metadata.until });
        }
    }
    drop(reader);
    fetched.file.rewind()?;
    let link = |relation| header_link(&header, &url, &relation);
    let (index, archives) = (link(Relation::Index), link(Relation::Archives));
    let (from, until) = (header.metadata.from, header.metadata.until);
    Ok((fetched, Head { is_index, from, until, index, archives, parts }))
}

fn header_link(header: &Header, url: &Url, relation: &Relation) -> Option<Url> {
    header.link(relation).and_then(|link| url.join(link.href.trim()).ok())
}

/// Takes list after list, and knows where that leads.
struct Feed {
    collector: Collector,
    since: DateTime,
    open: Option<OpenList>,
    reached: Option<DateTime>,
}

impl Feed {
    fn new(collector: Collector, since: DateTime) -> Self {
        Self { collector, since, open: None, reached: None }
    }

    /// Takes the changes of one list that come after `last`, if that is in it, or else are not older than the point:
    /// what was taken before does no harm (RS-128).
    async fn list(self, fetched: Fetched, last: Option<Mark>, asked: &Url) -> Result<Self, SyncError> {
        let Self { collector, since, reached, .. } = self;
        let (validators, digest) = (fetched.validators.clone(), fetched.digest.clone());
        let (collector, read) = blocking(move || take(collector, fetched, last, since)).await?;
        let reached = reached.max(read.until.or(read.latest));
        let url = asked.to_string();
        let open = OpenList { url, validators, digest, last: read.last };
        let open = read.until.is_none().then_some(open);
        Ok(Self { collector, since, open, reached })
    }

    fn reached(self) -> Reached {
        let since = self.reached.map_or(self.since, |reached| reached.max(self.since));
        Reached { collector: self.collector, point: Point { since, open: self.open } }
    }
}

struct Read {
    until: Option<DateTime>,
    /// When the last change of the list happened.
    latest: Option<DateTime>,
    last: Option<Mark>,
}

fn take(
    mut collector: Collector,
    mut fetched: Fetched,
    resume: Option<Mark>,
    since: DateTime,
) -> Result<(Collector, Read), SyncError> {
    let url = fetched.url.clone();
    let unreadable = |source| SyncError::List { url: url.clone(), source: Box::new(source) };
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
        let is_gone = entry.change() == Some(Change::Deleted);
        let resolved = url.join(entry.loc.trim());
        collector.change(entry, resolved, is_gone)?;
    }
    collector.tell(&url, reader.refused(), &reader.take_violations());
    Ok((collector, Read { until, latest, last }))
}
