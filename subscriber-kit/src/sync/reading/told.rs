//! The versions of resources that changes tell of, in the order in which they were told, in a file: there may be more than memory holds
//! (MEM-070).

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::path::PathBuf;
use std::sync::Mutex;

use resync_common::locks::lock;
use resync_core::datetime::DateTime;
use resync_core::document::{Change, Entry, Relation};
use serde::{Deserialize, Serialize};
use url::Url;

use super::packages::BitstreamPath;
use crate::memento::VersionLinks;
use crate::sync::files::local::Facts;
use crate::text;

/// One version of a resource, or its deletion, which is one too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToldVersion {
    /// The resource, as the list writes it.
    pub(crate) loc: String,
    pub(crate) url: String,
    /// The moment of the change that made it.
    #[serde(with = "text")]
    pub(crate) at: DateTime,
    pub(crate) facts: Facts,
    /// Where it is (RS-178).
    #[serde(default, skip_serializing_if = "VersionLinks::is_empty")]
    pub(crate) links: VersionLinks,
    /// Its bitstream in a package of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) packed: Option<BitstreamPath>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_deleted: bool,
    /// How often fetching it failed.
    #[serde(default)]
    pub(crate) tries: u32,
    /// When it is fetched again, in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) paused_until_unix_millis: Option<i64>,
}

impl ToldVersion {
    /// `None` if nothing says when it was. Without a time of the change, that of the memento counts, or else of the representation.
    fn of(entry: &Entry, url: &Url, package: Option<u32>) -> Option<Self> {
        let link = entry.link(&Relation::Memento);
        let metadata = entry.metadata.as_ref();
        let is_deleted = entry.change() == Some(Change::Deleted);
        let told = metadata.and_then(|metadata| metadata.datetime);
        let at = told.or(link.and_then(|link| link.modified)).or(entry.lastmod.filter(|_| !is_deleted))?;
        let path = metadata.and_then(|metadata| metadata.path.clone());
        Some(Self {
            loc: entry.loc.clone(),
            url: url.to_string(),
            at,
            facts: Facts::of(entry).or_of_link(link),
            links: VersionLinks::of(entry, url),
            packed: package.zip(path).map(|(package, path)| BitstreamPath { package, path }),
            is_deleted,
            tries: 0,
            paused_until_unix_millis: None,
        })
    }
}

/// Takes versions while changes are read.
#[derive(Debug)]
pub(crate) struct Told {
    draft: Mutex<Draft>,
    /// How many bytes are taken.
    max_bytes: u64,
}

#[derive(Debug)]
struct Draft {
    out: BufWriter<File>,
    bytes: u64,
    left_out: u64,
}

/// All versions that were told.
pub(crate) struct AllTold {
    pub(crate) lines: VersionLines,
    /// How many had no time, or no room.
    pub(crate) left_out: u64,
}

impl Told {
    pub(crate) fn new(scratch: File, max_bytes: u64) -> Self {
        let draft = Draft { out: BufWriter::new(scratch), bytes: 0, left_out: 0 };
        Self { draft: Mutex::new(draft), max_bytes }
    }

    /// Takes the version that a change tells of.
    pub(crate) fn take(&self, entry: &Entry, url: &Url, package: Option<u32>) -> io::Result<()> {
        let version = ToldVersion::of(entry, url, package);
        let mut draft = lock(&self.draft);
        let Some(version) = version.filter(|_| draft.bytes < self.max_bytes) else {
            draft.left_out += 1;
            return Ok(());
        };
        draft.bytes += write_version(&mut draft.out, &version)?;
        Ok(())
    }

    /// All that were taken; nothing may be taken afterwards.
    pub(crate) fn all(&self) -> io::Result<AllTold> {
        let mut draft = lock(&self.draft);
        draft.out.flush()?;
        let mut file = draft.out.get_ref().try_clone()?;
        file.rewind()?;
        Ok(AllTold { lines: VersionLines::of(file), left_out: draft.left_out })
    }
}

/// Versions in files, a line each. A line that cannot be read, such as one that was cut off, is left out.
pub(crate) struct VersionLines {
    current: Option<io::Lines<BufReader<File>>>,
    /// Opened one by one, since there may be more than a process can have open.
    next: std::vec::IntoIter<PathBuf>,
}

impl VersionLines {
    /// Those of one file.
    pub(crate) fn of(file: File) -> Self {
        Self { current: Some(BufReader::new(file).lines()), next: Vec::new().into_iter() }
    }

    /// Those of several files.
    pub(crate) fn of_all(files: Vec<PathBuf>) -> Self {
        Self { current: None, next: files.into_iter() }
    }
}

impl Iterator for VersionLines {
    type Item = io::Result<ToldVersion>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.current.as_mut().and_then(Iterator::next) {
                Some(Ok(line)) => match serde_json::from_str(&line) {
                    Ok(version) => return Some(Ok(version)),
                    Err(error) => tracing::info!(%error, "cannot read a line about a version"),
                },
                // It was cut off within a character.
                Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::info!(%error, "cannot read a line about a version");
                }
                Some(Err(error)) => {
                    // The same again would come without end.
                    self.current = None;
                    return Some(Err(error));
                }
                None => match File::open(self.next.next()?) {
                    Ok(file) => self.current = Some(BufReader::new(file).lines()),
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }
}

/// Writes a line, and returns its length.
pub(crate) fn write_version(out: &mut impl io::Write, version: &ToldVersion) -> io::Result<u64> {
    let mut text = serde_json::to_vec(version)?;
    text.push(b'\n');
    out.write_all(&text)?;
    Ok(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::digest::{Algorithm, Digest, Hashes};
    use resync_core::document::{Link, Metadata};

    fn told(entries: &[Entry]) -> (Vec<ToldVersion>, u64) {
        let told = Told::new(tempfile::tempfile().unwrap(), 4_000);
        for entry in entries {
            told.take(entry, &Url::parse(&entry.loc).unwrap(), None).unwrap();
        }
        let AllTold { lines, left_out } = told.all().unwrap();
        (lines.map(Result::unwrap).collect(), left_out)
    }

    fn entry(change: Change, at: Option<&str>) -> Entry {
        let datetime = at.map(|at| at.parse().unwrap());
        let metadata = Metadata { change: Some(change), datetime, ..Metadata::default() };
        Entry::with_metadata("http://a.example/x", metadata)
    }

    #[test]
    fn mem070_every_change_tells_of_a_version_and_says_what_it_was_and_when() {
        let hashes: Hashes = Digest::of(Algorithm::Sha256, b"two").into();
        let mut updated = entry(Change::Updated, Some("2026-11-20T10:00:01Z"));
        let memento = Link { hash: hashes.clone(), length: Some(3), ..Link::new(Relation::Memento, "/v/2") };
        updated.links.push(memento);
        let gone = entry(Change::Deleted, Some("2026-11-20T10:00:02Z"));
        let (versions, left_out) =
            told(&[entry(Change::Created, Some("2026-11-20T10:00:00Z")), updated, gone]);
        assert_eq!(left_out, 0);
        let [first, second, third] = versions.as_slice() else { panic!("{versions:?}") };
        assert_eq!((first.at.to_string().as_str(), &first.links.memento), ("2026-11-20T10:00:00Z", &None));
        assert_eq!(second.links.memento.as_deref(), Some("http://a.example/v/2"));
        assert_eq!((second.facts.length, &second.facts.hashes), (Some(3), &hashes), "as the link says");
        assert!(third.is_deleted && !second.is_deleted);
    }

    #[test]
    fn rs178_a_version_whose_change_has_no_time_has_that_of_its_memento_or_of_itself() {
        let at: DateTime = "2026-11-20T10:00:00Z".parse().unwrap();
        let mut linked = entry(Change::Updated, None);
        linked.links.push(Link { modified: Some(at), ..Link::new(Relation::Memento, "/v/1") });
        let modified = Entry { lastmod: Some(at), ..entry(Change::Created, None) };
        let gone = Entry { lastmod: Some(at), ..entry(Change::Deleted, None) };
        let (versions, left_out) = told(&[linked, modified, gone, entry(Change::Created, None)]);
        assert_eq!(versions.iter().map(|version| version.at).collect::<Vec<_>>(), [at; 2]);
        assert_eq!(left_out, 2, "nobody knows when");
    }

    #[test]
    fn what_is_told_without_end_is_taken_up_to_so_many_bytes() {
        let all: Vec<_> = (0..500).map(|_| entry(Change::Updated, Some("2026-11-20T10:00:00Z"))).collect();
        let (versions, left_out) = told(&all);
        assert!(versions.len() > 5 && versions.len() < 100, "{}", versions.len());
        assert_eq!(versions.len() as u64 + left_out, 500);
    }
}
