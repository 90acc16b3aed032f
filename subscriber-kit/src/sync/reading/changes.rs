//! Reads the changes since a point from Change Lists or Change Dumps: through their index, across rotations, and from an archive
//! if necessary (RS-190…RS-198).

mod chain;

use resync_core::datetime::DateTime;
use url::Url;

use super::change_reader::{ChangeReader, OpenList, Point, Reached};
use super::collector::Collector;
use super::document::{Document, Expected, Part};
use super::gaps::{Gap, GapPolicy};
use super::lists::Lists;
use crate::fetch::{FetchError, Fetched};
use crate::sync::SyncError;

/// A time whose changes are all listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) from: DateTime,
    /// `None` if it lasts until now.
    pub(crate) until: Option<DateTime>,
}

impl Span {
    /// Whether a later span continues this one without a gap.
    pub(crate) fn is_continued_by(self, next: Self) -> bool {
        self.until.is_none_or(|until| gap_between((until, next.from)).is_none())
    }
}

/// A Source's changes.
pub(crate) struct Changes<'s> {
    pub(crate) lists: &'s Lists<'s>,
    /// The Change List or Change Dump, or an index.
    pub(crate) root: &'s Url,
    pub(crate) policy: GapPolicy,
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
            Ok(_) => return Box::pin(self.later_than(open, collector, point)).await,
            // The list was moved or removed; its index knows the next one.
            Err(SyncError::Fetch(FetchError::Status { status: 403 | 404 | 410, .. })) => {
                return self.walk(collector, point.since, self.root).await;
            }
            Err(error) => return Err(error),
        };
        self.lists.check_origin(&fetched.url)?;
        let (fetched, document) = self.lists.inspect(fetched, Expected::Changes).await?;
        if document.is_chained() {
            return Box::pin(self.chain(collector, point, &url, (fetched, document))).await;
        }
        // There is another list now, or one that begins later.
        if document.is_index || document.from.is_none_or(|from| from > point.since) {
            return self.walk(collector, point.since, self.root).await;
        }
        let (until, index) = (document.until, document.index.clone());
        let reader = ChangeReader::new(collector, point.since);
        let reader = reader.read(self.lists, fetched, document, open.last.clone(), &url).await?;
        match until {
            None => Ok(reader.reached()),
            // Its index knows the next list, or else the root does (RS-192).
            Some(until) => {
                let (root, opened) = self.next(index.as_ref()).await?;
                let since = until.min(DateTime::now()).max(point.since);
                Box::pin(self.walk_from(reader.collector, since, root, opened)).await
            }
        }
    }

    /// The changes after the open list, which says nothing new: a Source may begin another without closing it, against RS-127.
    async fn later_than(
        &self,
        open: &OpenList,
        collector: Collector,
        point: &Point,
    ) -> Result<Reached, SyncError> {
        if open.url == self.root.as_str() {
            return Ok(Reached::nothing(collector, point));
        }
        let fetched = match self.lists.fetch(self.root, open.root.as_ref()).await {
            Ok(Some(fetched)) => fetched,
            Ok(None) => return Ok(Reached::nothing(collector, point)),
            // Where no list is missing, the open one is enough; where one is, the next run finds it.
            Err(error) if error.is_about_a_document() => {
                tracing::warn!(%error, root = %self.root, "cannot look for a later Change List");
                return Ok(Reached::nothing(collector, point));
            }
            Err(error) => return Err(error),
        };
        self.lists.check_origin(&fetched.url)?;
        let validators = fetched.validators.clone();
        let (fetched, document) = self.lists.inspect(fetched, Expected::Changes).await?;
        if document.has_later_than(open, point.since) {
            if document.is_chained() {
                return Box::pin(self.chain(collector, point, self.root, (fetched, document))).await;
            }
            return Box::pin(self.walk_from(collector, point.since, self.root, (fetched, document))).await;
        }
        let open = Some(OpenList { root: Some(validators), ..open.clone() });
        Ok(Reached::nothing(collector, &Point { since: point.since, open }))
    }

    /// The spans of time whose changes are listed, also in the archive, oldest first.
    pub(crate) async fn spans(&self) -> Result<Vec<Span>, SyncError> {
        let (_, document) = self.open(self.root).await?;
        let mut archive = Archive { place: document.archives.clone(), parts: None };
        let of_part = |part: &Part| Some(Span { from: part.from?, until: part.until });
        let mut spans: Vec<Span> = self.archived(&mut archive).await?.iter().filter_map(of_part).collect();
        if !document.is_index {
            spans.extend(document.span());
        }
        for part in &document.parts {
            match of_part(part) {
                Some(span) => spans.push(span),
                None => spans.extend(self.open(&part.url).await?.1.span()),
            }
        }
        spans.sort_by_key(|span| span.from);
        Ok(spans)
    }

    /// The index of a closed list, or the root if that cannot be read.
    async fn next<'u>(&'u self, index: Option<&'u Url>) -> Result<(&'u Url, (Fetched, Document)), SyncError> {
        if let Some(index) = index {
            match self.open(index).await {
                Ok(opened) => return Ok((index, opened)),
                Err(error) if error.is_about_a_document() => {
                    tracing::warn!(%error, root = %self.root, "cannot use the index of a Change List");
                }
                Err(error) => return Err(error),
            }
        }
        Ok((self.root, self.open(self.root).await?))
    }

    async fn open(&self, url: &Url) -> Result<(Fetched, Document), SyncError> {
        self.lists.open(url, Expected::Changes).await
    }

    /// From an index, or from the only list.
    async fn walk(&self, collector: Collector, since: DateTime, root: &Url) -> Result<Reached, SyncError> {
        let opened = self.open(root).await?;
        if opened.1.is_chained() {
            return Box::pin(self.chain(collector, &Point::at(since), root, opened)).await;
        }
        Box::pin(self.walk_from(collector, since, root, opened)).await
    }

    async fn walk_from(
        &self,
        collector: Collector,
        since: DateTime,
        root: &Url,
        (fetched, document): (Fetched, Document),
    ) -> Result<Reached, SyncError> {
        let mut reader = ChangeReader::new(collector, since);
        let mut archive = Archive { place: document.archives.clone(), parts: None };
        if let (GapPolicy::Refused, None, Some(gap)) =
            (self.policy, &document.archives, document.gap_after(since))
        {
            self.lost(&mut reader, root, gap)?;
        }
        let mut known_until = Some(since);
        if let Some(from) = document.from.filter(|from| *from > since) {
            let gap = Gap { known_until: since, from };
            reader = Box::pin(self.bridge(reader, root, &mut archive, gap)).await?;
            known_until = None;
        }
        if !document.is_index {
            return Ok(reader.read(self.lists, fetched, document, None, root).await?.reached());
        }
        for part in document.parts.into_iter().filter(|part| part.until.is_none_or(|until| until >= since)) {
            let (fetched, inner) = self.open(&part.url).await?;
            if inner.is_index {
                return Err(SyncError::NestedIndex { url: part.url });
            }
            if let Some((until, from)) = known_until.zip(part.from.or(inner.from)) {
                match gap_between((until, from)) {
                    Some(gap) => reader = Box::pin(self.bridge(reader, &part.url, &mut archive, gap)).await?,
                    // Not the list that contains the point.
                    None if until > since => reader.continuity.contiguous_at.push(from),
                    None => {}
                }
            }
            known_until = part.until.or(inner.until);
            reader = reader.read(self.lists, fetched, inner, None, &part.url).await?;
        }
        Ok(reader.reached())
    }

    /// Reads the changes in a gap from the archive, and records what is still missing.
    async fn bridge(
        &self,
        mut reader: ChangeReader,
        url: &Url,
        archive: &mut Archive,
        gap: Gap,
    ) -> Result<ChangeReader, SyncError> {
        let Gap { mut known_until, from } = gap;
        for part in self.archived(archive).await?.iter().filter(|part| part.overlaps(gap)) {
            let (fetched, document) = match self.open(&part.url).await {
                Err(error) if self.policy == GapPolicy::Tolerated && error.is_about_a_document() => {
                    tracing::warn!(%error, "cannot read an archived Change List");
                    continue;
                }
                opened => opened?,
            };
            if let Some(gap) = part.from.and_then(|from| gap_between((known_until, from))) {
                self.lost(&mut reader, url, gap)?;
            }
            known_until = part.until.or(document.until).map_or(known_until, |until| until.max(known_until));
            reader = reader.read(self.lists, fetched, document, None, &part.url).await?;
        }
        let is_closed = known_until > gap.known_until && gap_between((known_until, from)).is_none();
        if !is_closed {
            self.lost(&mut reader, url, Gap { known_until, from })?;
        }
        Ok(reader)
    }

    /// Records a gap, if that is tolerated.
    fn lost(&self, reader: &mut ChangeReader, url: &Url, gap: Gap) -> Result<(), SyncError> {
        let Gap { known_until, from } = gap;
        match self.policy {
            GapPolicy::Refused => Err(SyncError::LostChanges {
                url: Box::new(url.clone()),
                from: from.to_string(),
                since: known_until.to_string(),
            }),
            GapPolicy::Tolerated => {
                reader.continuity.gaps.push(gap);
                reader.continuity.unproven = Some(format!(
                    "{url} lists changes since {from}, but the ones before end at {known_until}; the changes between are unknown"
                ));
                Ok(())
            }
        }
    }

    /// The archived lists, oldest first. If gaps are tolerated, none if the archive cannot be read.
    async fn archived<'a>(&self, archive: &'a mut Archive) -> Result<&'a [Part], SyncError> {
        let parts = match (archive.parts.take(), archive.place.clone()) {
            (Some(parts), _) => parts,
            (None, None) => Vec::new(),
            (None, Some(place)) => match self.lists.archived_parts(place, Expected::Changes).await {
                Err(error) if self.policy == GapPolicy::Tolerated && error.is_about_a_document() => {
                    tracing::warn!(%error, "cannot read the archive of Change Lists");
                    Vec::new()
                }
                parts => {
                    let mut parts = parts?;
                    parts.retain(|part| part.from.is_some());
                    parts.sort_by_key(|part| part.from);
                    parts
                }
            },
        };
        Ok(archive.parts.insert(parts))
    }
}

impl Document {
    /// The span of its changes.
    fn span(&self) -> Option<Span> {
        Some(Span { from: self.from?, until: self.until })
    }

    /// Whether this root leads to another list than the open one, with changes after `since`.
    fn has_later_than(&self, open: &OpenList, since: DateTime) -> bool {
        let is_other = |url: &Url| url.as_str() != open.url;
        match (&self.current, self.parts.last()) {
            (Some(current), _) if self.is_chained() => is_other(current),
            // An index may also be older than the list.
            (_, Some(last)) => is_other(&last.url) && last.until.is_none_or(|until| until > since),
            (_, None) => !self.is_index,
        }
    }

    /// The first gap after `since`.
    fn gap_after(&self, since: DateTime) -> Option<Gap> {
        if let Some(from) = self.from.filter(|from| *from > since) {
            return Some(Gap { known_until: since, from });
        }
        let mut known_until = Some(since);
        let is_needed = |part: &&Part| part.until.is_none_or(|until| until >= since);
        self.parts.iter().filter(is_needed).find_map(|part| {
            let gap = known_until.zip(part.from).and_then(gap_between);
            known_until = part.until;
            gap
        })
    }
}

/// The gap between two lists, if there is one; times may be rounded to seconds.
fn gap_between((known_until, from): (DateTime, DateTime)) -> Option<Gap> {
    (from.unix_millis() > known_until.unix_millis() + 1000).then_some(Gap { known_until, from })
}

impl Part {
    /// Whether it may have changes in this gap.
    fn overlaps(&self, gap: Gap) -> bool {
        self.until.is_none_or(|until| until > gap.known_until) && self.from.is_none_or(|from| from < gap.from)
    }
}

/// The archive of older lists.
struct Archive {
    place: Option<Url>,
    /// Once it was read.
    parts: Option<Vec<Part>>,
}
