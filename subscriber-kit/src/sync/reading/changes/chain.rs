//! Chains of alpha Change Sets: back along `prev` from the current set, until one has a change that is known; then all oldest first
//! (MEM-004). A chain that ends before that leaves it open whether changes are missing (MEM-005).

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use resync_core::datetime::DateTime;
use resync_core::websub::LinkHeader;
use url::Url;

use super::Changes;
use crate::blocking::blocking;
use crate::fetch::{Fetched, Validators};
use crate::sync::SyncError;
use crate::sync::error::ChainEnd;
use crate::sync::reading::change_reader::{ChangeReader, Mark, Overlap, Point, Reached};
use crate::sync::reading::collector::Collector;
use crate::sync::reading::document::Document;
use crate::sync::reading::gaps::{Gap, GapPolicy};

/// How many sets of a chain are read.
const MAX_SETS: usize = 1000;

/// The sets of a chain, newest first, in one file: there may be more than a process can have open.
struct Spool {
    file: File,
    sets: Vec<Spooled>,
}

struct Spooled {
    /// As it was asked for.
    requested: Url,
    /// Where it came from.
    url: Url,
    validators: Validators,
    digest: String,
    begin: u64,
    length: u64,
}

impl Changes<'_> {
    /// Hands the changes of a chain since `point` to the collector, oldest first. `opened` is any set of it, which was asked for at
    /// `requested`.
    pub(super) async fn chain(
        &self,
        collector: Collector,
        point: &Point,
        requested: &Url,
        opened: (Fetched, Document),
    ) -> Result<Reached, SyncError> {
        let last = point.open.as_ref().and_then(|open| open.last.clone());
        let ((fetched, document), requested) = self.current(opened, requested).await?;
        let (mut spool, end, earliest) =
            self.back((fetched, document), requested, last.as_ref(), point.since).await?;
        let mut reader = ChangeReader::new(collector, point.since);
        if let Some(end) = end {
            self.uncertain(&mut reader, &spool.sets[0].requested, end, point.since, earliest)?;
        }
        while let Some(set) = spool.sets.pop() {
            let scratch = self.lists.staging.scratch()?;
            let (kept, fetched, requested) = blocking(move || spool.take(set, scratch)).await?;
            spool = kept;
            reader = reader.change_set(fetched, last.clone(), &requested).await?;
        }
        Ok(reader.reached())
    }

    /// The current set of a chain, by any of its sets.
    async fn current(
        &self,
        opened: (Fetched, Document),
        requested: &Url,
    ) -> Result<((Fetched, Document), Url), SyncError> {
        let known = [requested, &opened.0.url];
        match opened.1.current.clone().filter(|current| !known.contains(&current)) {
            Some(current) => Ok((self.open(&current).await?, current)),
            None => Ok((opened, requested.clone())),
        }
    }

    /// Goes back until a set has a known change. Returns how the chain ended before that, and when the earliest change was that it has.
    async fn back(
        &self,
        (mut fetched, mut document): (Fetched, Document),
        mut requested: Url,
        last: Option<&Mark>,
        since: DateTime,
    ) -> Result<(Spool, Option<ChainEnd>, Option<DateTime>), SyncError> {
        let mut spool = Spool { file: self.lists.staging.scratch()?, sets: Vec::new() };
        let mut seen = HashSet::from([requested.clone(), fetched.url.clone()]);
        let mut earliest = None;
        loop {
            let (mark, place) = (last.cloned(), requested.clone());
            let (kept, overlap) = blocking(move || spool.keep(fetched, place, mark.as_ref(), since)).await?;
            spool = kept;
            earliest = overlap.earliest.into_iter().chain(earliest).min();
            if overlap.is_there {
                return Ok((spool, None, earliest));
            }
            let end = match document.prev {
                None => ChainEnd::Begin,
                Some(prev) if !seen.insert(prev.clone()) => {
                    tracing::warn!(%prev, "a chain of Change Sets leads in a circle");
                    ChainEnd::Circle
                }
                Some(_) if spool.sets.len() >= MAX_SETS => ChainEnd::TooLong,
                Some(prev) => match self.open(&prev).await {
                    Ok((next, inner)) if inner.is_index || inner.is_dump() => {
                        tracing::warn!(url = %next.url, "a chain of Change Sets leads to something else");
                        ChainEnd::Hole
                    }
                    // Where another one led too.
                    Ok((next, _)) if next.url != prev && !seen.insert(next.url.clone()) => ChainEnd::Circle,
                    Ok((next, inner)) => {
                        (fetched, document, requested) = (next, inner, prev);
                        continue;
                    }
                    Err(error) if error.is_about_a_document() => {
                        tracing::warn!(%error, "cannot read a Change Set of a chain");
                        ChainEnd::Hole
                    }
                    Err(error) => return Err(error),
                },
            };
            return Ok((spool, Some(end), earliest));
        }
    }

    /// Records that changes may be missing, if that is tolerated.
    fn uncertain(
        &self,
        reader: &mut ChangeReader,
        url: &Url,
        end: ChainEnd,
        since: DateTime,
        earliest: Option<DateTime>,
    ) -> Result<(), SyncError> {
        if self.policy == GapPolicy::Refused {
            return Err(SyncError::BrokenChain { url: Box::new(url.clone()), end, since: since.to_string() });
        }
        let from = earliest.filter(|earliest| *earliest > since);
        reader.continuity.gaps.extend(from.map(|from| Gap { known_until: since, from }));
        reader.continuity.unproven = Some(format!(
            "the chain of Change Sets from {url} {end}, so changes since {since} may be missing"
        ));
        Ok(())
    }
}

impl Spool {
    /// Adds a set; returns what it has of what is known.
    fn keep(
        mut self,
        mut set: Fetched,
        requested: Url,
        last: Option<&Mark>,
        since: DateTime,
    ) -> Result<(Self, Overlap), SyncError> {
        let overlap = Overlap::of(&set, last, since)?;
        set.file.rewind()?;
        let begin = self.file.seek(SeekFrom::End(0))?;
        let length = io::copy(&mut set.file, &mut self.file)?;
        let Fetched { url, validators, digest, .. } = set;
        self.sets.push(Spooled { requested, url, validators, digest, begin, length });
        Ok((self, overlap))
    }

    /// A set as it was fetched, in a file of its own.
    fn take(mut self, set: Spooled, mut scratch: File) -> Result<(Self, Fetched, Url), SyncError> {
        let Spooled { requested, url, validators, digest, begin, length } = set;
        self.file.seek(SeekFrom::Start(begin))?;
        io::copy(&mut (&self.file).take(length), &mut scratch)?;
        scratch.rewind()?;
        let (links, content_type) = (LinkHeader::default(), None);
        let fetched = Fetched { url, links, content_type, validators, length, digest, file: scratch };
        Ok((self, fetched, requested))
    }
}
