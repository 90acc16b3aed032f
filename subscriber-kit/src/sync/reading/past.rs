//! What a collector makes of entries for a copy of the past: of each resource the state at the moment, as far as the lists tell
//! it (MEM-060).
//!
//! What lists say of a time up to the moment is taken as ever; the last word counts. Of what changed afterwards, the first change
//! shows whether the resource was there: created, no; updated or deleted, yes, but in a state that only an older entry describes.

use resync_core::datetime::DateTime;
use resync_core::document::{Change, Entry, Relation};
use url::{ParseError, Url};

use super::collector::Collector;
use super::file_map::UNWANTED;
use super::later::LaterChange;
use super::path::relative_path;
use super::plan::Line;
use crate::memento::VersionLinks;
use crate::sync::{PathError, SyncError};

impl Collector {
    /// The time of a change after the moment; `None` for any other, and where no past is wanted.
    pub(super) fn time_after_the_moment(&mut self, entry: &Entry) -> Option<DateTime> {
        let later = self.later.as_mut()?;
        let time = entry.metadata.as_ref().and_then(|metadata| metadata.datetime).or(entry.lastmod);
        later.has_undated |= time.is_none();
        time.filter(|time| *time > later.moment())
    }

    /// Takes a change after the moment. If only it shows that its resource was there, plans an unknown older state.
    pub(super) fn later_change(
        &mut self,
        entry: &Entry,
        url: Result<Url, ParseError>,
        at: DateTime,
    ) -> Result<(), SyncError> {
        let change = entry.change();
        let was_there = change != Some(Change::Created);
        let is_wanted = match change {
            Some(Change::Deleted) => self.filter.has_a_wanted_uri(&entry.loc),
            _ => self.filter.admits(entry),
        };
        let number = self.number(is_wanted)?;
        let placed = url.map_err(PathError::Uri).and_then(|url| {
            let path = relative_path(&entry.loc, &url, &self.path_rules.base)?;
            Ok((url, path))
        });
        let (url, path) = match placed {
            Ok(placed) => placed,
            Err(error) => {
                if was_there && is_wanted {
                    self.report.count(&self.progress, &entry.loc, Err(error.into()));
                }
                return Ok(());
            }
        };
        let is_only_trace = was_there && !self.file_map.knows(&path);
        let Some(later) = &mut self.later else { return Ok(()) };
        if later.count() >= self.max {
            return Err(SyncError::TooManyResources { max: self.max });
        }
        if later.note(&path, LaterChange { at, is_only_trace }) && is_only_trace {
            self.plan_older(entry, &url, number)?;
        }
        Ok(())
    }

    /// The first change after the moment of a listed resource.
    pub(super) fn changed_later(&self, entry: &Entry, url: &Result<Url, ParseError>) -> Option<LaterChange> {
        let (later, url) = (self.later.as_ref()?, url.as_ref().ok()?);
        let path = relative_path(&entry.loc, url, &self.path_rules.base).ok()?;
        let change = later.first(&path)?;
        // One that may not be here was reported.
        Some(LaterChange { is_only_trace: change.is_only_trace && self.file_map.knows(&path), ..change })
    }

    /// Takes a listed resource that changed after the moment. Where no change tells the state that it was in, the list does, if it is of
    /// before that change; else it may say who has that state.
    pub(super) fn take_older(
        &mut self,
        entry: Entry,
        url: Result<Url, ParseError>,
        change: LaterChange,
    ) -> Result<(), SyncError> {
        let Ok(url) = url else { return Ok(()) };
        if !change.is_only_trace {
            return Ok(());
        }
        let number = self.number(self.filter.admits(&entry))?;
        if self.list_at.is_none_or(|at| at >= change.at) {
            return self.plan_older(&entry, &url, number);
        }
        if self.has_place(&entry, &url, number) {
            self.write(entry, url, Vec::new(), false)?;
        }
        Ok(())
    }

    /// Plans a state of which nothing is known but that it was there.
    fn plan_older(&mut self, entry: &Entry, url: &Url, number: u32) -> Result<(), SyncError> {
        if !self.has_place(entry, url, number) {
            return Ok(());
        }
        self.push(&Line {
            loc: entry.loc.clone(),
            url: url.to_string(),
            versions: VersionLinks::of(entry, url).of_an_older_version(),
            ..Line::default()
        })
    }

    /// Whether the next line is to be of this resource, which was there at the moment.
    fn has_place(&mut self, entry: &Entry, url: &Url, number: u32) -> bool {
        match self.file_map.change(&entry.loc, url, &self.path_rules, number, Some(Change::Updated)) {
            Ok(()) => number != UNWANTED,
            Err(error) => {
                self.report.count(&self.progress, &entry.loc, Err(error));
                false
            }
        }
    }

    /// Adds where versions of the resource are, and since when it was in this state.
    pub(super) fn with_version(&self, line: Line, entry: &Entry, url: &Url) -> Line {
        let Some(later) = &self.later else { return line };
        let facts = line.facts.or_of_link(entry.link(&Relation::Memento));
        // A file may be older than its place here, so `lastmod` says nothing.
        let of_change = entry.metadata.as_ref().and_then(|metadata| metadata.datetime);
        let since = of_change.or(self.list_at).filter(|time| *time <= later.moment());
        Line { facts, versions: VersionLinks::of(entry, url), since, ..line }
    }
}
