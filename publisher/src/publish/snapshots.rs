//! Earlier Resource Lists and Resource Dumps, of which the rules keep a number in an archive (AR-004, AR-014).
//!
//! A dump that is to stay has a name of its own from the beginning, after the moment of its snapshot. A list always has the same well-known name, so a copy
//! of it is archived under such a name; lists under an index have names of their own, and stay where they are. The archive is written before the next
//! snapshot, and what nothing links to any more is removed after it. So an interrupted run leaves too much, and the next one removes it.

use std::io;

use resync_core::{
    build::{ArchiveKind, Archives, BuildError, Documents, Sink as _, Site, open_document},
    datetime::DateTime,
    document::{Entry, Header, Metadata, Relation, Root},
};

use super::staging::Staging;

/// Which snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Snapshots {
    Lists,
    Dumps,
}

impl Snapshots {
    /// The beginning of the names of a single snapshot.
    pub(super) const fn stem(self) -> &'static str {
        match self {
            Self::Lists => "resourcelist",
            Self::Dumps => "resourcedump",
        }
    }

    /// The beginning of the names of a snapshot of this moment.
    pub(super) fn stem_at(self, at: DateTime) -> String {
        format!("{}-{}", self.stem(), at.to_string().replace(['-', ':'], ""))
    }

    /// The name of the archive.
    pub(super) fn archive(self) -> String {
        format!("{}-archive.xml", self.stem())
    }

    const fn kind(self) -> ArchiveKind {
        match self {
            Self::Lists => ArchiveKind::ResourceLists,
            Self::Dumps => ArchiveKind::ResourceDumps,
        }
    }

    /// Whether a name is that of a snapshot, and not of one of its parts.
    fn is_top(self, name: &str) -> bool {
        let rest = name.strip_prefix(self.stem()).and_then(|rest| rest.strip_suffix(".xml"));
        rest.is_some_and(|rest| match rest.strip_prefix('-') {
            None => rest.is_empty(),
            Some(moment) => moment.ends_with('Z') && !moment.contains('-'),
        })
    }

    /// The snapshot that a part belongs to, if that has a name of its own: parts of a single snapshot have only one moment in their names.
    fn top_of(self, name: &str) -> Option<String> {
        let mut parts = name.strip_prefix(self.stem())?.strip_prefix('-')?.split('-');
        let (snapshot, generation) = (parts.next()?, parts.next()?);
        let are_moments = snapshot.ends_with('Z') && generation.ends_with('Z');
        (are_moments && parts.next().is_some()).then(|| format!("{}-{snapshot}.xml", self.stem()))
    }
}

/// An archive as it is to be before the next snapshot, determined without changing anything.
pub(super) struct Archive {
    what: Snapshots,
    /// What it lists, oldest first.
    stay: Vec<Archived>,
    /// The names of the present snapshot and the next one.
    present: [Option<String>; 2],
}

/// An entry of the archive.
struct Archived {
    name: String,
    at: Option<DateTime>,
    completed: Option<DateTime>,
}

impl Archive {
    /// With the Resource List that is current under the name `current`, and all but the last `most` gone.
    pub(super) fn of_lists(
        documents: &impl Documents,
        site: &Site,
        current: Option<&str>,
        most: usize,
    ) -> Result<Self, BuildError> {
        let what = Snapshots::Lists;
        let copy = match current.filter(|_| most > 0) {
            Some(current) => archived(documents, current)?
                .and_then(|list| Some(Archived { name: what.stem_at(list.at?) + ".xml", ..list })),
            None => None,
        };
        Self::with(documents, site, what, copy, what.stem(), most)
    }

    /// With the dump `current`, before one whose names begin with `next`, and all but the last `most` gone.
    pub(super) fn of_dumps(
        documents: &impl Documents,
        site: &Site,
        current: Option<&str>,
        next: &str,
        most: usize,
    ) -> Result<Self, BuildError> {
        let before = match current {
            Some(current) => archived(documents, current)?,
            None => None,
        };
        Self::with(documents, site, Snapshots::Dumps, before, next, most)
    }

    fn with(
        documents: &impl Documents,
        site: &Site,
        what: Snapshots,
        before: Option<Archived>,
        next: &str,
        most: usize,
    ) -> Result<Self, BuildError> {
        let next = format!("{next}.xml");
        let present = [before.as_ref().map(|before| before.name.clone()), Some(next.clone())];
        let mut all: Vec<Archived> = Vec::new();
        for name in archived_before(documents, site, what)? {
            all.extend(archived(documents, &name)?);
        }
        let is_new = |before: &Archived| !all.iter().any(|known| known.name == before.name);
        let before = before.filter(is_new);
        all.extend(before);
        all.retain(|one| one.name != next);
        let stay = all.split_off(all.len().saturating_sub(most));
        Ok(Self { what, stay, present })
    }

    /// Its URL, where there will be one.
    pub(super) fn url(&self, site: &Site) -> Option<String> {
        (!self.stay.is_empty()).then(|| site.url(&self.what.archive()))
    }

    /// Copies the current list to its archived name, and writes the archive.
    pub(super) fn write_lists(
        &self,
        sink: &mut Staging,
        site: &Site,
        current: Option<&str>,
        at: DateTime,
    ) -> Result<(), BuildError> {
        if let (Some(current), [Some(name), _]) = (current, &self.present) {
            copy(sink, current, name)?;
        }
        self.write(sink, site, at)
    }

    /// Writes the archive, or removes it if nothing stays, and removes the snapshots that do not stay.
    pub(super) fn write(&self, sink: &mut Staging, site: &Site, at: DateTime) -> Result<(), BuildError> {
        if self.stay.is_empty() {
            let name = self.what.archive();
            sink.remove(&name).map_err(|source| BuildError::Remove { name, source })?;
        } else {
            let entries = self.stay.iter().map(|one| (site.url(&one.name), one.at, one.completed));
            Archives::new(site, self.what.kind(), at).write(entries, sink)?;
        }
        let names = names_of(sink, self.what)?;
        for top in names.iter().filter(|name| self.what.is_top(name) && !self.stays(name)) {
            remove(sink, site, self.what, top)?;
        }
        // A run that was killed may have left packages that nothing links to.
        let is_lost = |name: &&String| self.what.top_of(name).is_some_and(|top| !self.stays(&top));
        for name in names_of(sink, self.what)?.iter().filter(is_lost) {
            sink.remove(name).map_err(|source| BuildError::Remove { name: name.clone(), source })?;
        }
        Ok(())
    }

    /// Whether a snapshot stays. The Capability List links to the present one until the next is published.
    fn stays(&self, name: &str) -> bool {
        self.present.iter().flatten().any(|known| known == name)
            || self.stay.iter().any(|one| one.name == name)
    }
}

/// Copies a list to the name under which it is archived.
fn copy(sink: &mut Staging, current: &str, name: &str) -> Result<(), BuildError> {
    let failed = |source| BuildError::Write { name: name.to_owned(), source };
    if sink.open(name)?.is_none()
        && let Some(mut list) = sink.open(current)?
    {
        let mut draft = sink.create(name).map_err(failed)?;
        io::copy(&mut list, &mut draft).map_err(failed)?;
        let staged = sink.stage(draft).map_err(failed)?;
        sink.publish(staged).map_err(failed)?;
    }
    Ok(())
}

/// The names of the documents of all snapshots that are there.
fn names_of(sink: &impl Documents, what: Snapshots) -> Result<Vec<String>, BuildError> {
    sink.list(what.stem()).map_err(|source| BuildError::Names { prefix: what.stem().to_owned(), source })
}

/// The names of the snapshots in the archive, oldest first; there are at most a thousand, in one document.
fn archived_before(sink: &impl Documents, site: &Site, what: Snapshots) -> Result<Vec<String>, BuildError> {
    let entries = read(sink, &what.archive())?.map_or(Vec::new(), |(_, entries)| entries);
    Ok(entries.iter().filter_map(|entry| name_of(site, &entry.loc)).collect())
}

/// Removes a snapshot, and the parts and packages of a dump, which nothing links to any more. Lists under an index are removed when the next ones are
/// published.
fn remove(sink: &mut Staging, site: &Site, what: Snapshots, top: &str) -> Result<(), BuildError> {
    let mut parts = Vec::new();
    if what == Snapshots::Dumps
        && let Some((header, entries)) = read(sink, top)?
    {
        parts.extend(names_in(site, &entries));
        if header.root == Root::SitemapIndex {
            for part in parts.clone() {
                let inner = read(sink, &part)?.map_or(Vec::new(), |(_, entries)| entries);
                parts.extend(names_in(site, &inner));
            }
        }
    }
    for name in std::iter::once(top.to_owned()).chain(parts) {
        sink.remove(&name).map_err(|source| BuildError::Remove { name, source })?;
    }
    Ok(())
}

/// The documents and packages that entries link to, copies of manifests included.
fn names_in(site: &Site, entries: &[Entry]) -> Vec<String> {
    let copies = entries.iter().filter_map(|entry| entry.link(&Relation::Contents)).map(|link| &link.href);
    let urls = entries.iter().map(|entry| &entry.loc).chain(copies);
    urls.filter_map(|url| name_of(site, url)).collect()
}

fn name_of(site: &Site, url: &str) -> Option<String> {
    let name = url.strip_prefix(&site.url(""))?;
    (!name.contains('/')).then(|| name.to_owned())
}

/// A snapshot as an entry of the archive, if it exists.
fn archived(documents: &impl Documents, name: &str) -> Result<Option<Archived>, BuildError> {
    let header = header_of(documents, name)?;
    Ok(header.map(|Header { metadata: Metadata { at, completed, .. }, .. }| Archived {
        name: name.to_owned(),
        at,
        completed,
    }))
}

fn header_of(sink: &impl Documents, name: &str) -> Result<Option<Header>, BuildError> {
    Ok(open_document(sink, name)?.map(|reader| reader.header().clone()))
}

fn read(sink: &impl Documents, name: &str) -> Result<Option<(Header, Vec<Entry>)>, BuildError> {
    let unreadable = |source| BuildError::Published { name: name.to_owned(), source };
    let Some(reader) = open_document(sink, name)? else { return Ok(None) };
    let header = reader.header().clone();
    let entries = reader.collect::<Result<_, _>>().map_err(unreadable)?;
    Ok(Some((header, entries)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_its_parts_and_its_archive_differ_by_name() {
        for what in [Snapshots::Lists, Snapshots::Dumps] {
            let only = what.stem();
            let stem = what.stem_at("2026-01-03T09:00:00.25Z".parse().unwrap());
            assert!(what.is_top(&format!("{only}.xml")) && what.is_top(&format!("{stem}.xml")));
            let parts = [
                "-20260103T090000.25Z-1.xml",
                "-20260103T090000.25Z-1-manifest.xml",
                "-20260103T090000.25Z-1.zip",
            ];
            for part in parts {
                assert!(
                    !what.is_top(&format!("{stem}{part}")) && !what.is_top(&format!("{only}{part}")),
                    "{part}"
                );
                assert_eq!(what.top_of(&format!("{stem}{part}")), Some(format!("{stem}.xml")));
                assert_eq!(what.top_of(&format!("{only}{part}")), None);
            }
            assert!(!what.is_top(&what.archive()));
        }
    }
}
