//! The Resource Lists and Resource Dumps before the newest one, of which as many stay as the rules say, in an archive (AR-004, AR-014).
//!
//! A dump that is to stay has a name of its own from the beginning, after the moment of its snapshot. A list always has the same one, by which
//! people know it, so what is archived is a copy of it under such a name; lists under an index have names of their own, and stay where they are. The archive
//! is told before the snapshot that it is for, and what nothing leads to any more goes after that: a run that was cut short leaves too much, and the
//! next one removes it.

use std::{fs::File, io};

use resync_core::{
    build::{ArchiveKind, Archives, BuildError, Documents, Sink as _, Site},
    datetime::DateTime,
    document::{Entry, Header, Relation, Root},
    xml::Reader,
};

use super::desk::Desk;

/// Which snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Snapshots {
    Lists,
    Dumps,
}

impl Snapshots {
    /// The beginning of the names of the only one there is.
    pub(super) const fn stem(self) -> &'static str {
        match self {
            Self::Lists => "resourcelist",
            Self::Dumps => "resourcedump",
        }
    }

    /// The beginning of the names of one of this moment.
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
}

/// Archives the Resource List that is current under the name `current`, and removes all but the last `most`. Gives whether there is an archive.
pub(super) fn archive_list(
    sink: &mut Desk,
    site: &Site,
    current: Option<&str>,
    most: usize,
    at: DateTime,
) -> Result<bool, BuildError> {
    let copied = match current.filter(|_| most > 0) {
        Some(current) => copy(sink, current)?,
        None => None,
    };
    let top = format!("{}.xml", Snapshots::Lists.stem());
    update(sink, site, Snapshots::Lists, (copied.as_deref(), &top), most, at)
}

/// Archives the dump `current`, before one whose names begin with `next`, and removes all but the last `most`. Gives whether there is an archive.
pub(super) fn archive_dump(
    sink: &mut Desk,
    site: &Site,
    current: Option<&str>,
    next: &str,
    most: usize,
    at: DateTime,
) -> Result<bool, BuildError> {
    update(sink, site, Snapshots::Dumps, (current, &format!("{next}.xml")), most, at)
}

/// Whether [`archive_dump`] will leave an archive.
pub(super) fn will_archive_dump(
    documents: &impl Documents,
    current: Option<&str>,
    next: &str,
    most: usize,
) -> Result<bool, BuildError> {
    let archive = documents.open(&Snapshots::Dumps.archive())?;
    Ok(most > 0 && (archive.is_some() || current.is_some_and(|current| current != format!("{next}.xml"))))
}

/// Copies a list to the name under which it is archived.
fn copy(sink: &mut Desk, current: &str) -> Result<Option<String>, BuildError> {
    let Some(at) = header_of(sink, current)?.and_then(|header| header.metadata.at) else { return Ok(None) };
    let name = format!("{}.xml", Snapshots::Lists.stem_at(at));
    let failed = |source| BuildError::Write { name: name.clone(), source };
    if sink.open(&name)?.is_none() {
        let mut draft = sink.create(&name).map_err(failed)?;
        if let Some(mut list) = sink.open(current)? {
            io::copy(&mut list, &mut draft).map_err(failed)?;
        }
        let staged = sink.stage(draft).map_err(failed)?;
        sink.publish(staged).map_err(failed)?;
    }
    Ok(Some(name))
}

/// Adds a snapshot to the archive, before another, and removes all but the last `most`.
fn update(
    sink: &mut Desk,
    site: &Site,
    what: Snapshots,
    (before, next): (Option<&str>, &str),
    most: usize,
    at: DateTime,
) -> Result<bool, BuildError> {
    let mut archived = Vec::new();
    for name in archived_before(sink, site, what)?.into_iter().chain(before.map(str::to_owned)) {
        let is_known = |(known, ..): &(String, _, _)| *known == name;
        if name != next
            && !archived.iter().any(is_known)
            && let Some(header) = header_of(sink, &name)?
        {
            archived.push((name, header.metadata.at, header.metadata.completed));
        }
    }
    let stay = archived.split_off(archived.len().saturating_sub(most));
    if stay.is_empty() {
        let name = what.archive();
        sink.remove(&name).map_err(|source| BuildError::Remove { name, source })?;
    } else {
        let entries = stay.iter().map(|(name, at, completed)| (site.url(name), *at, *completed));
        Archives::new(site, what.kind(), at).write(entries, sink)?;
    }
    // The Capability List leads to the one before until the next is there.
    let present = [before, Some(next)];
    let is_left = |name: &String| {
        let stays = present.contains(&Some(name)) || stay.iter().any(|(known, ..)| known == name);
        what.is_top(name) && !stays
    };
    for top in sink.list(what.stem())?.into_iter().filter(is_left) {
        remove(sink, site, what, &top)?;
    }
    Ok(!stay.is_empty())
}

/// The names of the snapshots in the archive, oldest first; there are at most a thousand, in one document.
fn archived_before(sink: &Desk, site: &Site, what: Snapshots) -> Result<Vec<String>, BuildError> {
    let entries = read(sink, &what.archive())?.map_or(Vec::new(), |(_, entries)| entries);
    Ok(entries.iter().filter_map(|entry| name_of(site, &entry.loc)).collect())
}

/// Removes a snapshot, then, of a dump, its parts and packages, to which nothing leads any more. Lists under an index go when the next ones are
/// published.
fn remove(sink: &mut Desk, site: &Site, what: Snapshots, top: &str) -> Result<(), BuildError> {
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

/// The documents and packages that entries lead to, copies of manifests included.
fn names_in(site: &Site, entries: &[Entry]) -> Vec<String> {
    let copies = entries.iter().filter_map(|entry| entry.link(&Relation::Contents)).map(|link| &link.href);
    let urls = entries.iter().map(|entry| &entry.loc).chain(copies);
    urls.filter_map(|url| name_of(site, url)).collect()
}

fn name_of(site: &Site, url: &str) -> Option<String> {
    let name = url.strip_prefix(&site.url(""))?;
    (!name.contains('/')).then(|| name.to_owned())
}

fn header_of(sink: &Desk, name: &str) -> Result<Option<Header>, BuildError> {
    Ok(open(sink, name)?.map(|reader| reader.header().clone()))
}

fn read(sink: &Desk, name: &str) -> Result<Option<(Header, Vec<Entry>)>, BuildError> {
    let unreadable = |source| BuildError::Published { name: name.to_owned(), source };
    let Some(reader) = open(sink, name)? else { return Ok(None) };
    let header = reader.header().clone();
    let entries = reader.collect::<Result<_, _>>().map_err(unreadable)?;
    Ok(Some((header, entries)))
}

fn open(sink: &Desk, name: &str) -> Result<Option<Reader<io::BufReader<File>>>, BuildError> {
    let unreadable = |source| BuildError::Published { name: name.to_owned(), source };
    let Some(file) = sink.open(name)? else { return Ok(None) };
    Reader::new(io::BufReader::new(file)).map(Some).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_told_from_its_parts_and_from_its_archive_by_its_name() {
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
            }
            assert!(!what.is_top(&what.archive()));
        }
    }
}
