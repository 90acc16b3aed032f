//! The Resource Dumps before the newest one, of which as many stay as the rules say, in an archive (AR-004, AR-014).
//!
//! Then each dump has a name of its own, after the moment of its snapshot. The archive is told before the dump that it is for, and what nothing
//! leads to any more goes after that: a run that was cut short leaves too much, and the next one removes it.

use std::collections::BTreeSet;

use resync_core::{
    build::{ArchiveKind, Archives, BuildError, Documents as _, Sink as _, Site},
    datetime::DateTime,
    document::{Entry, Header, Relation, Root},
    xml::Reader,
};

use super::desk::Desk;

/// The beginning of the names of the only dump there is.
pub(super) const STEM: &str = "resourcedump";

/// The beginning of the names of a dump of this moment.
pub(super) fn stem(at: DateTime) -> String {
    format!("{STEM}-{}", at.to_string().replace(['-', ':'], ""))
}

/// Archives the dump `current`, before one whose names begin with `next`, and removes all but the last `most`. Gives whether there is an archive.
pub(super) fn archive(
    sink: &mut Desk,
    site: &Site,
    current: Option<&str>,
    next: &str,
    most: usize,
    at: DateTime,
) -> Result<bool, BuildError> {
    let next = format!("{next}.xml");
    let mut archived = Vec::new();
    for name in archived_before(sink, site)?.into_iter().chain(current.map(str::to_owned)) {
        let is_known = |(known, ..): &(String, _, _)| *known == name;
        if name != next
            && !archived.iter().any(is_known)
            && let Some((header, _)) = read(sink, &name)?
        {
            archived.push((name, header.metadata.at, header.metadata.completed));
        }
    }
    let stay = archived.split_off(archived.len().saturating_sub(most));
    if stay.is_empty() {
        let name = format!("{STEM}-archive.xml");
        sink.remove(&name).map_err(|source| BuildError::Remove { name, source })?;
    } else {
        let entries = stay.iter().map(|(name, at, completed)| (site.url(name), *at, *completed));
        Archives::new(site, ArchiveKind::ResourceDumps, at).write(entries, sink)?;
    }
    // The Capability List leads to the present one until the next is there.
    let present = current.map(str::to_owned).into_iter().chain([next]);
    let listed: BTreeSet<_> = stay.iter().map(|(name, ..)| name.clone()).chain(present).collect();
    let tops = sink.list(STEM)?;
    for top in tops.into_iter().filter(|name| is_top(name) && !listed.contains(name)) {
        remove(sink, site, &top)?;
    }
    Ok(!stay.is_empty())
}

/// The names of the dumps in the archive, oldest first; a few dozen of whole collections are in one document.
fn archived_before(sink: &Desk, site: &Site) -> Result<Vec<String>, BuildError> {
    let entries = read(sink, &format!("{STEM}-archive.xml"))?.map_or(Vec::new(), |(_, entries)| entries);
    Ok(entries.iter().filter_map(|entry| name_of(site, &entry.loc)).collect())
}

/// Whether a name is that of a dump, and not of one of its parts.
fn is_top(name: &str) -> bool {
    let rest = name.strip_prefix(STEM).and_then(|rest| rest.strip_suffix(".xml"));
    rest.is_some_and(|rest| match rest.strip_prefix('-') {
        None => rest.is_empty(),
        Some(moment) => moment.ends_with('Z') && !moment.contains('-'),
    })
}

/// Removes a dump, then its parts and packages, to which nothing leads any more.
fn remove(sink: &mut Desk, site: &Site, top: &str) -> Result<(), BuildError> {
    let mut parts = Vec::new();
    if let Some((header, entries)) = read(sink, top)? {
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

fn read(sink: &Desk, name: &str) -> Result<Option<(Header, Vec<Entry>)>, BuildError> {
    let unreadable = |source| BuildError::Published { name: name.to_owned(), source };
    let Some(file) = sink.open(name)? else { return Ok(None) };
    let reader = Reader::new(std::io::BufReader::new(file)).map_err(unreadable)?;
    let header = reader.header().clone();
    let entries = reader.collect::<Result<_, _>>().map_err(unreadable)?;
    Ok(Some((header, entries)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_told_from_its_parts_by_its_name() {
        let stem = stem("2026-01-03T09:00:00.25Z".parse().unwrap());
        assert!(is_top("resourcedump.xml") && is_top(&format!("{stem}.xml")));
        let parts = [
            "-20260103T090000.25Z-1.xml",
            "-20260103T090000.25Z-1-manifest.xml",
            "-20260103T090000.25Z-1.zip",
        ];
        for part in parts {
            assert!(!is_top(&format!("{stem}{part}")) && !is_top(&format!("resourcedump{part}")), "{part}");
        }
        assert!(!is_top("resourcedump-archive.xml"));
    }
}
