//! The lists of one run: how their documents are fetched, counted and bounded.

use std::io::Seek as _;
use std::sync::atomic::{AtomicU64, Ordering};

use resync_core::datetime::DateTime;
use url::Url;

use super::document::{Document, Expected, Part};
use super::notified::NotifiedChanges;
use crate::blocking::blocking;
use crate::fetch::{Client, FetchError, Fetched, Retries, Validators};
use crate::notification::DatedChange;
use crate::sync::files::download::Transfer;
use crate::sync::files::folder::Staging;
use crate::sync::files::local::Facts;
use crate::sync::{Offer, SyncError, SyncOptions, Target};

/// A URL of this many bytes counts as one more part.
const LONG_URL: usize = 512;

/// The lists of one run.
pub(crate) struct Lists<'s> {
    pub(crate) client: &'s Client,
    /// The Resource List, or else the Resource Dump.
    pub(crate) list: &'s Url,
    /// The Change List or Change Dump.
    pub(crate) changes: Option<&'s Url>,
    pub(crate) base: &'s Url,
    pub(crate) options: &'s SyncOptions,
    /// Changes from notifications, also of earlier runs.
    pub(crate) notified: NotifiedChanges,
    /// Those that are new in this run, oldest first.
    pub(crate) new_changes: Vec<DatedChange>,
    /// Of the deletions that notifications tell of, the time of the last: the Change List is to name them.
    awaited: Option<DateTime>,
    /// Where the plan and packages are kept.
    pub(crate) staging: Staging,
    /// How many bytes of resources and packages were received.
    pub(crate) bytes: AtomicU64,
    pub(crate) counted: Counted,
}

/// Totals of the documents so far: lists, indexes, and manifests beside packages.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    bytes: AtomicU64,
    /// The lists and packages that they name, which are kept in memory.
    parts: AtomicU64,
}

impl Counted {
    pub(crate) fn reset(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.parts.store(0, Ordering::Relaxed);
    }
}

impl<'s> Lists<'s> {
    /// Of an offer, for a target, without changes from notifications.
    pub(crate) fn new(
        client: &'s Client,
        offer: &'s Offer,
        target: &'s Target,
        options: &'s SyncOptions,
        staging: Staging,
    ) -> Result<Self, SyncError> {
        Ok(Self {
            client,
            list: offer.base(options.baseline).ok_or(SyncError::NothingOffered)?,
            changes: offer.changes(options.changes),
            base: &target.base,
            options,
            notified: NotifiedChanges::default(),
            new_changes: Vec::new(),
            awaited: None,
            staging,
            bytes: AtomicU64::new(0),
            counted: Counted::default(),
        })
    }

    /// Takes changes from notifications, oldest first. Deletions are left to the lists: a hub can sign any, so that its word alone would
    /// remove files (RS-201).
    pub(crate) fn take_new(&mut self, notified: &[DatedChange]) {
        let deletions = notified.iter().filter(|change| change.is_deletion());
        self.awaited = deletions.map(|change| change.at).max().filter(|_| self.changes.is_some());
        self.new_changes = self.notified.take(notified.iter().filter(|change| !change.is_deletion()));
    }

    /// The time of the last deletion that notifications tell of, if the Change List, complete up to `reached`, cannot name it yet.
    pub(crate) fn awaited_after(&self, reached: DateTime) -> Option<DateTime> {
        self.awaited.filter(|at| *at > reached)
    }

    /// A transfer from this URL only.
    pub(crate) fn transfer<'t>(&'t self, url: &'t Url, facts: &'t Facts) -> Transfer<'t> {
        Transfer {
            client: self.client,
            options: self.options,
            staging: &self.staging,
            url,
            list: self.list,
            mirrors: &[],
            via: None,
            facts,
            accept: None,
            unless: None,
            bytes: &self.bytes,
        }
    }
}

impl Lists<'_> {
    /// Fetches a document, even if it has not changed.
    pub(crate) async fn fetch_anew(&self, url: &Url) -> Result<Fetched, SyncError> {
        let fetched = self.fetch(url, None).await?;
        fetched.ok_or_else(|| FetchError::of_status(url, 304).into())
    }

    /// Fetches a document that lists of this Source lead to, even if it has not changed, and reads what precedes its entries.
    pub(crate) async fn open(&self, url: &Url, expected: Expected) -> Result<(Fetched, Document), SyncError> {
        let fetched = self.fetch_anew(url).await?;
        self.check_origin(&fetched.url)?;
        self.inspect(fetched, expected).await
    }

    /// Reads what precedes the entries of a document, which is rewound. What it names is counted.
    pub(crate) async fn inspect(
        &self,
        fetched: Fetched,
        expected: Expected,
    ) -> Result<(Fetched, Document), SyncError> {
        let (fetched, document) = blocking(move || inspect(fetched, expected)).await?;
        self.count_parts(document.urls())?;
        Ok((fetched, document))
    }

    /// The lists in an archive.
    pub(crate) async fn archived_parts(
        &self,
        place: Url,
        expected: Expected,
    ) -> Result<Vec<Part>, SyncError> {
        let mut places = vec![place];
        let mut parts = Vec::new();
        // An archive may have an index, and that is all (RS-044).
        for is_top in [true, false] {
            for place in std::mem::take(&mut places) {
                let (_, document) = self.open(&place, expected).await?;
                match document.is_index {
                    true if is_top => places.extend(document.parts.into_iter().map(|part| part.url)),
                    true => return Err(SyncError::NestedIndex { url: place }),
                    false => parts.extend(document.parts),
                }
            }
        }
        Ok(parts)
    }

    /// Checks whether lists of this Source may lead there (RS-200).
    pub(crate) fn check_origin(&self, url: &Url) -> Result<(), SyncError> {
        if self.options.authority.allows(url, &self.list.origin()) {
            return Ok(());
        }
        Err(SyncError::ForeignComponent { url: url.clone() })
    }

    /// Counts lists and packages that a document names. They are kept in memory, so one with a long URL counts as several.
    pub(crate) fn count_parts<'u>(&self, urls: impl Iterator<Item = &'u Url>) -> Result<(), SyncError> {
        let max = self.options.max_parts;
        let count = urls.map(|url| 1 + (url.as_str().len() / LONG_URL) as u64).sum::<u64>();
        let all = self.counted.parts.fetch_add(count, Ordering::Relaxed) + count;
        if all > max { Err(SyncError::TooManyParts { url: self.list.clone(), max }) } else { Ok(()) }
    }

    pub(crate) async fn fetch(
        &self,
        url: &Url,
        known: Option<&Validators>,
    ) -> Result<Option<Fetched>, SyncError> {
        let fetched = self.fetch_with_retries(url, known).await?;
        let (count, max) =
            (fetched.as_ref().map_or(0, |fetched| fetched.length), self.options.max_list_bytes);
        let all = self.counted.bytes.fetch_add(count, Ordering::Relaxed) + count;
        if all > max {
            return Err(SyncError::ListsTooLarge { url: self.list.clone(), max });
        }
        Ok(fetched)
    }

    async fn fetch_with_retries(
        &self,
        url: &Url,
        known: Option<&Validators>,
    ) -> Result<Option<Fetched>, SyncError> {
        let folder = self.staging.folder();
        let mut retries = Retries::new(self.options.retries, self.options.retry_pause);
        loop {
            let error = match self.client.document_unless(url, known, &folder).await {
                Err(error) => error,
                Ok(fetched) => return Ok(fetched),
            };
            let Some(pause) = retries.after(&error) else { return Err(error.into()) };
            tracing::debug!(%error, "requesting a list again");
            tokio::time::sleep(pause).await;
        }
    }
}

fn inspect(mut fetched: Fetched, expected: Expected) -> Result<(Fetched, Document), SyncError> {
    let (mut document, entries) = Document::read(&fetched.url, &fetched.file, expected)?;
    drop(entries);
    fetched.file.rewind()?;
    // Oldest first (RS-128), whatever the order in the index.
    if document.parts.iter().all(|part| part.from.is_some()) {
        document.parts.sort_by_key(|part| part.from);
    }
    Ok((fetched, document))
}
