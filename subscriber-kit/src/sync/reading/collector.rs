//! Collects the entries of all documents into a plan and a map of files.

use std::fs::File;
use std::io;
use std::sync::Arc;

use resync_core::datetime::DateTime;
use resync_core::digest::Agreement;
use resync_core::document::{Change, Entry, Link, Relation};
use resync_core::rules::Violations;
use url::Url;

use super::document::{Document, Expected, unreadable};
use super::file_map::{FileMap, PathRules, UNWANTED};
use super::filter::{Filter, matches_type};
use super::later::LaterChanges;
use super::lists::Lists;
use super::negotiation::accept;
use super::packages::{BitstreamPath, Manifest, Packages};
use super::plan::{Draft, Line, Plan};
use super::provenance::Provenance;
use super::told::Told;
use crate::fetch::{Fetched, MAX_URL, led_to};
use crate::sync::files::local::Facts;
use crate::sync::files::patch::{PatchChains, PatchLink};
use crate::sync::progress::Progress;
use crate::sync::report::Report;
use crate::sync::{PathError, SyncError};

/// How many mirrors of a resource are tried.
const MAX_MIRRORS: usize = 4;

/// The HTTP URLs of an entry's mirrors, in the order of their `pri`.
fn mirrors(entry: &Entry, document: &Url) -> Vec<String> {
    let mut links: Vec<_> = entry.links_with(&Relation::Duplicate).collect();
    links.sort_by_key(|link| link.pri.unwrap_or(u32::MAX));
    let urls = links.into_iter().filter_map(|link| led_to(document, &link.href));
    let urls = urls.filter(|url| matches!(url.scheme(), "http" | "https"));
    urls.take(MAX_MIRRORS).map(String::from).collect()
}

/// Collects entries.
pub(crate) struct Collector {
    pub(super) path_rules: PathRules,
    pub(super) filter: Filter,
    prefer: Vec<String>,
    pub(super) max: u64,
    /// The limit of the plan: compressed documents may be much shorter than their content.
    max_bytes: u64,
    list: Url,
    pub(super) file_map: FileMap,
    pub(super) report: Report,
    pub(super) progress: Progress,
    plan: Draft,
    lines: u32,
    bytes: u64,
    /// Whether every listed entry has a hash or a time.
    names_versions: bool,
    pub(crate) has_unplaced_changes: bool,
    has_excluded_changes: bool,
    pub(crate) packages: Packages,
    /// The package whose manifest is being read.
    package: Option<u32>,
    chains: PatchChains,
    /// Takes the versions that changes tell of, if they are wanted.
    told: Option<Arc<Told>>,
    /// For a copy of the past: what changed after it.
    pub(super) later: Option<LaterChanges>,
    /// When the list that is being read is from, if it says so.
    pub(super) list_at: Option<DateTime>,
}

/// What a manifest lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ManifestKind {
    /// All resources.
    Snapshot,
    /// Changes; those before this time are known.
    Changes(Option<DateTime>),
}

/// The end of a manifest's changes: as stated, and by its last entry.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ManifestEnd {
    pub(crate) until: Option<DateTime>,
    pub(crate) latest: Option<DateTime>,
}

/// The result of all documents.
pub(crate) struct Collected {
    pub(crate) file_map: Arc<FileMap>,
    pub(crate) plan: Plan,
    /// How many resources there are, and those that have no path here.
    pub(crate) report: Report,
    /// The packages of the plan's bitstreams.
    pub(crate) packages: Packages,
    /// The sum of the listed lengths.
    pub(crate) bytes: u64,
    /// Whether every listed entry has a hash or a time.
    pub(crate) names_versions: bool,
    /// Whether there are changes that cannot be read, or have no path here: nothing shows whether their resources were there.
    pub(crate) has_unplaced_changes: bool,
    /// Whether the filter excludes resources by what they became: nothing shows whether it excluded them before.
    pub(crate) has_excluded_changes: bool,
    /// For a copy of the past: what changed after it.
    pub(crate) later: Option<LaterChanges>,
}

impl Collector {
    /// For the documents of one list, whose origin counts even if it redirects.
    pub(crate) fn new(lists: &Lists<'_>, scratch: File) -> Self {
        let Lists { list, base, options, .. } = lists;
        Self {
            path_rules: PathRules {
                home: list.origin(),
                base: (*base).clone(),
                authority: options.authority.clone(),
            },
            filter: options.filter.clone(),
            prefer: options.prefer.clone(),
            // One number is reserved.
            max: options.max_resources.min(u64::from(UNWANTED - 1)),
            max_bytes: options.max_list_bytes,
            list: (*list).clone(),
            file_map: FileMap::default(),
            report: Report::default(),
            progress: options.progress.clone(),
            plan: Draft::new(scratch),
            lines: 0,
            bytes: 0,
            names_versions: true,
            has_unplaced_changes: false,
            has_excluded_changes: false,
            packages: Packages::default(),
            package: None,
            chains: PatchChains::default(),
            told: None,
            later: None,
            list_at: None,
        }
    }

    /// Hands the versions that changes tell of to `told`.
    pub(crate) fn telling(self, told: Option<Arc<Told>>) -> Self {
        Self { told, ..self }
    }

    /// For a copy of the past: the plan becomes that of this moment (MEM-060). Lists that are later are read after the changes.
    pub(crate) fn of_the_past(lists: &Lists<'_>, scratch: File, moment: DateTime) -> Self {
        // What is said of alternate representations is not said of their versions.
        Self { later: Some(LaterChanges::of(moment)), prefer: Vec::new(), ..Self::new(lists, scratch) }
    }

    /// After the last document.
    pub(crate) fn end(self) -> io::Result<Collected> {
        let Self {
            file_map,
            mut report,
            plan,
            packages,
            bytes,
            names_versions,
            has_unplaced_changes,
            has_excluded_changes,
            later,
            ..
        } = self;
        report.resources = report.failed + file_map.wanted();
        Ok(Collected {
            file_map: Arc::new(file_map),
            plan: plan.end()?,
            report,
            packages,
            bytes,
            names_versions,
            has_unplaced_changes,
            has_excluded_changes,
            later,
        })
    }

    /// Takes the entries of a list; returns what else the document says. An index in an index is refused (RS-044).
    pub(crate) fn read(
        mut self,
        fetched: Fetched,
        may_be_index: bool,
    ) -> Result<(Self, Document), SyncError> {
        let Fetched { url, file, .. } = fetched;
        let (document, mut entries) = Document::read(&url, &file, Expected::Resources)?;
        if document.is_index && !may_be_index {
            return Err(SyncError::NestedIndex { url });
        }
        self.list_at = document.at;
        for entry in entries.by_ref() {
            let entry = entry.map_err(|error| unreadable(&url, error))?;
            let resolved = url.join(entry.loc.trim());
            self.take(entry, resolved)?;
        }
        self.report_violations(&url, entries.refused(), &entries.take_violations());
        Ok((self, document))
    }

    /// Takes the entries of a package's manifest.
    pub(crate) fn manifest(
        mut self,
        mut manifest: Manifest,
        number: u32,
        of: ManifestKind,
    ) -> Result<(Self, ManifestEnd), SyncError> {
        let url = manifest.url().clone();
        if manifest.is_of_changes() != matches!(of, ManifestKind::Changes(_)) {
            let found = manifest.metadata().capability.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(SyncError::OtherManifest { url, found });
        }
        let mut end = ManifestEnd { until: manifest.metadata().until, latest: None };
        self.package = Some(number);
        self.list_at = manifest.metadata().at;
        while let Some(entry) = manifest.next_entry()? {
            let resolved = url.join(entry.loc.trim());
            let ManifestKind::Changes(since) = of else {
                self.take(entry, resolved)?;
                continue;
            };
            let at = entry.metadata.as_ref().and_then(|metadata| metadata.datetime);
            end.latest = end.latest.max(at);
            if at.zip(since).is_none_or(|(at, since)| at >= since) {
                self.change(entry, resolved)?;
            }
        }
        self.package = None;
        let (refused, violations) = manifest.end();
        self.has_unplaced_changes |= refused > 0 && matches!(of, ManifestKind::Changes(_));
        self.report_violations(&url, refused, &violations);
        Ok((self, end))
    }

    /// Reports the violations in a document. Each unreadable entry counts as a failed resource.
    pub(crate) fn report_violations(&mut self, list: &Url, unreadable: usize, found: &Violations) {
        let Some(first) = found.errors().next().or_else(|| found.iter().next()) else { return };
        let (errors, warnings) = (found.error_count(), found.warning_count());
        let rule = first.rule.code();
        tracing::warn!(%list, errors, warnings, unreadable, rule, first = first.detail, "a list breaks rules of the specification");
        self.report.unreadable(&self.progress, list, unreadable, first);
    }

    /// A package of a type that cannot be read counts as a failed resource.
    pub(crate) fn cannot_read(&mut self, package: &Url, media_type: &str) {
        tracing::warn!(%package, media_type, "cannot read a package of this type");
        self.report.not_read(&self.progress, package, media_type);
    }

    pub(crate) fn take(&mut self, entry: Entry, url: Result<Url, url::ParseError>) -> Result<(), SyncError> {
        if let Some(change) = self.changed_later(&entry, &url) {
            return self.take_older(entry, url, change);
        }
        let number = self.number(self.filter.admits(&entry))?;
        let facts = Facts::of(&entry);
        self.names_versions &= facts.algorithm().is_some() || facts.modified.is_some();
        let placed = match &url {
            Ok(url) => self.file_map.take(&entry.loc, url, &self.path_rules, number),
            Err(error) => Err(PathError::Uri(*error).into()),
        };
        match (placed, url) {
            (Ok(true), Ok(url)) if number != UNWANTED => self.write(entry, url, Vec::new(), false)?,
            (Ok(true), _) => {}
            (Ok(false), _) => tracing::debug!(loc = entry.loc, "a resource is listed twice"),
            (Err(error), _) => self.report.count(&self.progress, &entry.loc, Err(error)),
        }
        Ok(())
    }

    /// A change of a resource; the last one counts (RS-198).
    pub(crate) fn change(
        &mut self,
        entry: Entry,
        url: Result<Url, url::ParseError>,
    ) -> Result<(), SyncError> {
        if let Some(at) = self.time_after_the_moment(&entry) {
            return self.later_change(&entry, url, at);
        }
        let change = entry.change();
        let is_deleted = change == Some(Change::Deleted);
        let has_wanted_uri = self.filter.has_a_wanted_uri(&entry.loc);
        let number = self.number(if is_deleted { has_wanted_uri } else { self.filter.admits(&entry) })?;
        let placed = match &url {
            Ok(url) => self.file_map.change(&entry.loc, url, &self.path_rules, number, change),
            Err(error) => Err(PathError::Uri(*error).into()),
        };
        match (placed, url) {
            (Ok(()), Ok(url)) if number != UNWANTED => {
                let patches = self.chains.next(&url, &entry, self.package);
                if let Some(told) = &self.told {
                    told.take(&entry, &url, self.package)?;
                }
                if let Some(package) = self.package.filter(|_| !patches.is_empty() || self.told.is_some()) {
                    self.packages.keep(package);
                }
                self.write(entry, url, patches, is_deleted)?;
            }
            (Ok(()), _) => self.has_excluded_changes |= has_wanted_uri && change != Some(Change::Created),
            (Err(error), _) => {
                self.has_unplaced_changes = true;
                // One that is deleted has no file here, as it should be.
                if !is_deleted {
                    self.report.count(&self.progress, &entry.loc, Err(error));
                }
            }
        }
        Ok(())
    }

    /// A resource that an earlier run left undone; returns the number of its line, if it has a path here.
    pub(crate) fn retry(&mut self, line: &Line) -> Result<Option<u32>, SyncError> {
        let Ok(url) = Url::parse(&line.url) else { return Ok(None) };
        let number = self.number(true)?;
        let change = if line.is_deleted { Change::Deleted } else { Change::Updated };
        match self.file_map.change(&line.loc, &url, &self.path_rules, number, Some(change)) {
            Ok(()) => {
                self.push(line)?;
                return Ok(Some(number));
            }
            Err(_) if line.is_deleted => {}
            Err(error) => self.report.count(&self.progress, &line.loc, Err(error)),
        }
        Ok(None)
    }

    pub(super) fn number(&self, is_wanted: bool) -> Result<u32, SyncError> {
        if u64::from(self.lines) + self.report.failed + self.file_map.folders() >= self.max {
            return Err(SyncError::TooManyResources { max: self.max });
        }
        Ok(if is_wanted { self.lines } else { UNWANTED })
    }

    pub(super) fn write(
        &mut self,
        entry: Entry,
        url: Url,
        patches: Vec<PatchLink>,
        is_deleted: bool,
    ) -> Result<(), SyncError> {
        let bare = Line { is_deleted, provenance: Provenance::of(&entry, &url), ..Line::default() };
        let line = if let Some((link, place)) = self.preferred(&entry, &url) {
            Line { facts: Facts::of_link(link), alternate: Some(place.into()), ..bare }
        } else {
            let path = packed_path(&entry);
            let packed = self.package.zip(path).map(|(package, path)| BitstreamPath { package, path });
            let (mirrors, via) = (mirrors(&entry, &url), via(&entry, &url));
            let facts = Facts::of(&entry);
            let accept = accept(&entry, &facts, &self.prefer);
            let line = Line { facts, mirrors, accept, via, packed, patches, ..bare };
            self.with_version(line, &entry, &url)
        };
        self.bytes = self.bytes.saturating_add(line.facts.length.unwrap_or(0));
        self.push(&Line { loc: entry.loc, url: url.into(), ..line })
    }

    /// The preferred alternate representation, if there is one that may be fetched (RS-172).
    fn preferred<'e>(&self, entry: &'e Entry, url: &Url) -> Option<(&'e Link, Url)> {
        self.prefer.iter().find_map(|wanted| {
            let alternates = entry.links_with(&Relation::Alternate);
            alternates.filter(|link| matches_type(wanted, link.media_type.as_deref())).find_map(|link| {
                let place = led_to(url, &link.href)?;
                self.path_rules.authority.allows(&place, &self.path_rules.home).then_some((link, place))
            })
        })
    }

    pub(super) fn push(&mut self, line: &Line) -> Result<(), SyncError> {
        self.plan.push(line)?;
        self.lines += 1;
        if self.plan.bytes() > self.max_bytes {
            return Err(SyncError::ListsTooLarge { url: self.list.clone(), max: self.max_bytes });
        }
        Ok(())
    }
}

/// Where the bitstream is in its package; `None` also if that is longer than a URL may be, so that it is fetched from its URI.
fn packed_path(entry: &Entry) -> Option<String> {
    let path = entry.metadata.as_ref()?.path.as_ref();
    path.filter(|path| path.len() <= MAX_URL).cloned()
}

/// The URL of the original, unless it has other bytes (RS-180).
fn via(entry: &Entry, document: &Url) -> Option<String> {
    let link = entry.link(&Relation::Via)?;
    let end = entry.metadata.as_ref().map(|metadata| &metadata.hash)?;
    let is_same = link.hash.compare(end) != Agreement::Different;
    let place = led_to(document, &link.href)?;
    (is_same && matches!(place.scheme(), "http" | "https")).then(|| place.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::document::Metadata;

    #[test]
    fn a_path_in_a_package_is_as_long_as_a_url_may_be() {
        let taken = |length: usize| {
            let path = Some("p".repeat(length));
            let entry = Entry::with_metadata("http://a.example/x", Metadata { path, ..Metadata::default() });
            packed_path(&entry).map(|path| path.len())
        };
        assert_eq!([MAX_URL, MAX_URL + 1].map(taken), [Some(MAX_URL), None]);
    }
}
