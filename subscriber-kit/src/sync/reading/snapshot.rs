//! Reads a Resource List, or the manifests of a Resource Dump, through their index and to the end before anything is changed
//! (RS-190).
//!
//! What may be deleted, and which files are in the way of others, depends on the whole set. So the entries are written to a plan
//! and read again from there; only hashes of their paths are in memory. The changes since the list follow in the same plan
//! (RS-195, RS-196), so that the copy becomes what the Source is now.

use resync_core::datetime::DateTime;
use url::Url;

use super::change_reader::{Point, Reached};
use super::changes::Changes;
use super::collector::{Collected, Collector, ManifestKind};
use super::document::{Document, ListedPackage};
use super::gaps::{Continuity, GapPolicy};
use super::lists::Lists;
use crate::blocking::blocking;
use crate::fetch::{FetchError, Fetched, Validators};
use crate::notification::DatedChange;
use crate::sync::SyncError;

/// How often an index is read whose lists are not of one snapshot.
const SNAPSHOT_TRIES: u32 = 3;

/// Everything a Source lists.
pub(crate) struct Snapshot {
    pub(crate) collected: Collected,
    /// Up to where changes are in the plan; `None` if the lists have no times, or the changes cannot be read.
    pub(crate) point: Option<Point>,
    /// Whether all of it is of one time.
    pub(crate) consistency: Consistency,
    pub(crate) continuity: Continuity,
    pub(crate) validators: Validators,
    pub(crate) digest: String,
}

/// Whether the lists under an index belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    Consistent,
    /// The Source was making a new snapshot while the lists were read.
    Mixed(String),
    /// The documents do not say when they are from.
    Undated(String),
    /// Changes between the lists and the oldest listed change are missing (RS-197).
    Gap(String),
}

impl Consistency {
    /// Why it may not be consistent.
    pub(crate) fn reason(self) -> Option<String> {
        match self {
            Self::Consistent => None,
            Self::Mixed(why) | Self::Undated(why) | Self::Gap(why) => Some(why),
        }
    }
}

/// The document of the last run, to recognise an unchanged one.
pub(crate) struct LastSeen<'s> {
    pub(crate) validators: &'s Validators,
    pub(crate) digest: &'s str,
}

impl Lists<'_> {
    /// Reads the whole list; `None` if it has not changed. If its parts are not of one snapshot, reads it again, a limited number of times.
    pub(crate) async fn read(&self, last_seen: Option<LastSeen<'_>>) -> Result<Option<Snapshot>, SyncError> {
        let mut pause = self.options.retry_pause;
        let mut tries = SNAPSHOT_TRIES;
        loop {
            self.counted.reset();
            let conditions = last_seen.as_ref().map(|last_seen| last_seen.validators);
            let Some(root) = self.fetch(self.list, conditions).await? else { return Ok(None) };
            if last_seen.as_ref().is_some_and(|last_seen| last_seen.digest == root.digest) {
                return Ok(None);
            }
            let snapshot = Box::pin(self.read_once(root)).await?;
            tries -= 1;
            match &snapshot.consistency {
                Consistency::Mixed(why) if tries > 0 => {
                    tracing::info!(why, "the Source is making a new snapshot; reading its list again");
                }
                _ => return Ok(Some(snapshot)),
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }

    /// Reads the whole list, even if it has not changed.
    pub(crate) async fn read_anew(&self) -> Result<Snapshot, SyncError> {
        // Without conditions it cannot be unchanged.
        self.read(None).await?.ok_or_else(|| FetchError::of_status(self.list, 304).into())
    }

    async fn read_once(&self, root: Fetched) -> Result<Snapshot, SyncError> {
        let mut listing = self.listing(self.collector()?, root).await?;
        let begin = listing.at.filter(|_| listing.consistency == Consistency::Consistent).map(Point::at);
        let Some(begin) = &begin else { return listing.end(None).await };
        let Some(root) = self.changes else {
            listing.collector = Self::take_notified(listing.collector, self.notified.in_order(), begin)?;
            return listing.end(Some(begin.clone())).await;
        };
        let changes = Changes { lists: self, root, policy: GapPolicy::Tolerated };
        let why = match Box::pin(changes.since(listing.collector, begin)).await {
            Ok(Reached { collector, point, mut continuity }) => {
                listing.collector = Self::take_notified(collector, self.notified.in_order(), &point)?;
                let unproven = continuity.unproven.take();
                listing.continuity = continuity;
                if let Some(why) = unproven {
                    listing.lacks_changes(why);
                }
                return listing.end(Some(point)).await;
            }
            Err(error) if error.is_about_a_document() => {
                // Some of the changes may be in the plan, so the list is read again without them.
                self.counted.reset();
                listing = self.listing(self.collector()?, self.fetch_anew(self.list).await?).await?;
                format!("the changes since the list are unknown: {error}")
            }
            Err(error) => return Err(error),
        };
        listing.lacks_changes(why);
        listing.end(None).await
    }

    fn collector(&self) -> Result<Collector, SyncError> {
        Ok(Collector::new(self, self.staging.scratch()?))
    }

    /// Reads what is listed, without the changes since.
    pub(crate) async fn listing(&self, collector: Collector, root: Fetched) -> Result<Listing, SyncError> {
        let (validators, digest) = (root.validators.clone(), root.digest.clone());
        let (mut collector, mut index) = blocking(move || collector.read(root, true)).await?;
        self.count_parts(index.urls())?;
        let mut packages = std::mem::take(&mut index.packages);
        let mut consistency = Consistency::Consistent;
        for part in &index.parts {
            let list = self.fetch_anew(&part.url).await?;
            self.check_origin(&list.url)?;
            let (next, list) = blocking(move || collector.read(list, false)).await?;
            collector = next;
            list.is_like(&index)?;
            self.count_parts(list.urls())?;
            packages.extend(list.packages);
            if consistency == Consistency::Consistent {
                consistency = index.consistency_with(&part.url, part.at, list.at);
            }
        }
        for listed in packages {
            let (next, at) = self.unpack(collector, &listed).await?;
            collector = next;
            if consistency == Consistency::Consistent {
                consistency = index.consistency_with(&listed.url, listed.at, at);
            }
        }
        let continuity = Continuity::default();
        Ok(Listing { collector, consistency, at: index.at, continuity, validators, digest })
    }

    /// Adds those changes from notifications that are later than the lists.
    pub(crate) fn take_notified<'t>(
        mut collector: Collector,
        notified: impl IntoIterator<Item = &'t DatedChange>,
        point: &Point,
    ) -> Result<Collector, SyncError> {
        let reached = point.reached();
        for DatedChange { entry, .. } in notified.into_iter().filter(|change| change.at > reached) {
            collector.change(entry.clone(), Url::parse(entry.loc.trim()))?;
        }
        Ok(collector)
    }

    /// Reads the manifest of a package, and its time.
    async fn unpack(
        &self,
        mut collector: Collector,
        listed: &ListedPackage,
    ) -> Result<(Collector, Option<DateTime>), SyncError> {
        let (manifest, file) = match self.manifest(listed).await {
            Ok(read) => read,
            Err(SyncError::PackageFormat { media_type, .. }) => {
                collector.cannot_read(&listed.url, &media_type);
                return Ok((collector, listed.at));
            }
            Err(error) => return Err(error),
        };
        let at = manifest.metadata().at;
        let number = collector.packages.add(listed, file);
        let (collector, _) =
            blocking(move || collector.manifest(manifest, number, ManifestKind::Snapshot)).await?;
        Ok((collector, at))
    }
}

/// The lists, without the changes since then.
pub(crate) struct Listing {
    pub(crate) collector: Collector,
    pub(crate) consistency: Consistency,
    at: Option<DateTime>,
    continuity: Continuity,
    validators: Validators,
    digest: String,
}

impl Listing {
    fn lacks_changes(&mut self, why: String) {
        tracing::warn!(why, "changes may be missing until a newer Resource List");
        if self.consistency == Consistency::Consistent {
            self.consistency = Consistency::Gap(why);
        }
    }

    async fn end(self, point: Option<Point>) -> Result<Snapshot, SyncError> {
        let Self { collector, consistency, continuity, validators, digest, .. } = self;
        let collected = blocking(move || collector.end()).await?;
        Ok(Snapshot { collected, point, consistency, continuity, validators, digest })
    }
}

impl Document {
    /// Whether it is of the same kind as its index.
    fn is_like(&self, index: &Self) -> Result<(), SyncError> {
        let (found, expected) = match (self.is_dump(), index.is_dump()) {
            (true, false) => ("resourcedump", "Resource List"),
            (false, true) => ("resourcelist", "Resource Dump"),
            _ => return Ok(()),
        };
        Err(SyncError::WrongKind { url: Box::new(self.url.clone()), found: found.to_owned(), expected })
    }

    /// Whether a list that says `at` belongs to this index.
    ///
    /// An index is from the earliest beginning of its lists to their latest end (RS-095). So a list must be of
    /// the time that the index says for it, or of the index's own, or lie within the index's span. A later one
    /// belongs to a snapshot that this index does not know yet.
    fn consistency_with(&self, url: &Url, stated: Option<DateTime>, at: Option<DateTime>) -> Consistency {
        let (Some(begin), Some(at)) = (self.at, at) else {
            return Consistency::Undated(format!("the index or its list {url} has no `at`"));
        };
        let fits = match stated {
            Some(stated) => at == stated,
            None => at == begin || self.completed.is_some_and(|end| begin <= at && at <= end),
        };
        if fits {
            return Consistency::Consistent;
        }
        Consistency::Mixed(format!(
            "the list {url} is from {at}, but the snapshot of its index is from {begin}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(hour: u8) -> DateTime {
        format!("2026-11-20T{hour:02}:00:00Z").parse().unwrap()
    }

    #[test]
    fn rs095_a_list_belongs_to_its_index_by_the_times_that_both_say() {
        let [nine, ten, eleven] = [9, 10, 11].map(|hour| Some(time(hour)));
        let verdict = |completed, stated, at| {
            let url = Url::parse("http://a.example/part1.xml").unwrap();
            let index = Document {
                url: url.clone(),
                capability: None,
                is_index: true,
                at: nine,
                completed,
                from: None,
                until: None,
                index: None,
                archives: None,
                current: None,
                prev: None,
                parts: Vec::new(),
                packages: Vec::new(),
            };
            match index.consistency_with(&url, stated, at) {
                Consistency::Consistent => "consistent",
                Consistency::Mixed(_) => "mixed",
                Consistency::Undated(_) => "undated",
                Consistency::Gap(_) => "gap",
            }
        };
        assert_eq!(verdict(None, None, nine), "consistent");
        assert_eq!(verdict(None, None, ten), "mixed");
        assert_eq!(verdict(ten, None, ten), "consistent", "the index took until then");
        assert_eq!(verdict(ten, None, eleven), "mixed");
        assert_eq!(verdict(None, ten, ten), "consistent", "the index says so");
        assert_eq!(verdict(eleven, nine, ten), "mixed", "the index says otherwise");
        assert_eq!(verdict(ten, None, None), "undated");
    }
}
