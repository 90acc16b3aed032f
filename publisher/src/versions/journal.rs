//! The journal of versions, as it is read: the versions of one resource in their order, or all of them (MEM-011).
//!
//! It has several files, each in the order of URIs, so that a resource is found without reading the rest, and a run writes no more than
//! what it has seen.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    vec,
};

use resync_core::{
    build::{BuildError, Event},
    datetime::DateTime,
    digest::Digest,
    document::Change,
    memento::{self, Stamp},
    websub::TopicUrl,
};
use serde::{Deserialize, Serialize};

use super::store::Store;
use crate::{
    helpers::{
        line_search::{Search, loc_of},
        serde_text::{text, text_option},
    },
    state::{FOLDER, KeptVersions, Segment, State},
};

/// Bytes that are read at once where all lines are read.
const BUFFER: usize = 64 * 1024;

/// What a resource was from one moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// From when on: the `datetime` of its change, or the first build that saw it (MEM-012).
    pub(crate) moment: DateTime,
    /// What brought it about. A deletion is a version, too (MEM-031).
    pub(crate) change: Change,
    /// How many versions of the resource came before it in the same second (MEM-032).
    pub(crate) ordinal: u64,
    /// The SHA-256 of its bytes; absent for deletions, and where nobody could read the bytes.
    pub(crate) digest: Option<Digest>,
    /// In bytes.
    pub(crate) length: Option<u64>,
    /// Media type.
    pub(crate) media_type: Option<String>,
    /// What `Content-Encoding` said.
    pub(crate) encoding: Option<String>,
}

impl memento::Version for Version {
    fn stamp(&self) -> Stamp {
        Stamp::new(self.moment, self.ordinal)
    }
}

/// A version as a line of the journal. Its URI comes first: lines are found by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionLine {
    pub(super) loc: String,
    #[serde(with = "text")]
    pub(super) moment: DateTime,
    #[serde(with = "text")]
    pub(super) change: Change,
    #[serde(default, with = "text_option", skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
}

impl VersionLine {
    /// What a change led to; `digest` is that of its bytes.
    pub(super) fn of(event: &Event, digest: Option<Digest>) -> Self {
        let Event { change, moment, item } = event;
        let loc = item.loc.clone();
        if *change == Change::Deleted {
            return Self::gone(loc, *moment);
        }
        let (media_type, encoding) = (item.media_type.clone(), item.encoding.clone());
        Self { loc, moment: *moment, change: *change, digest, length: item.length, media_type, encoding }
    }

    /// A resource that is gone from a moment on.
    pub(super) fn gone(loc: String, moment: DateTime) -> Self {
        let (digest, length, media_type, encoding) = (None, None, None, None);
        Self { loc, moment, change: Change::Deleted, digest, length, media_type, encoding }
    }

    /// The URI of the resource.
    pub(crate) fn loc(&self) -> &str {
        &self.loc
    }
}

/// The versions of the resources of a set.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    store: Store,
    /// Oldest first.
    segments: Vec<PathBuf>,
}

impl Journal {
    /// Of the set in `out` with this state; `None` where no versions are kept. Its files stay readable until the state changes twice.
    pub(crate) fn of(out: &Path, state: &State) -> Option<Self> {
        state.versions.as_ref().map(|kept| Self::with(out, Some(kept)))
    }

    /// With these files.
    pub(super) fn with(out: &Path, kept: Option<&KeptVersions>) -> Self {
        let segments = kept.map_or(&[][..], |kept| &kept.segments);
        Self { store: Store::of(out), segments: paths(out, segments) }
    }

    /// The versions of a resource, oldest first; none of a resource that is unknown.
    pub(crate) fn versions(&self, loc: &str) -> VersionsOf {
        let (loc, segments) = (loc.to_owned(), self.segments.clone().into_iter());
        VersionsOf { loc, segments, open: None, second: None, ordinal: 0 }
    }

    /// The file that was written last.
    pub(super) fn newest(&self) -> Option<&Path> {
        self.segments.last().map(PathBuf::as_path)
    }

    /// Counts versions of resources that come in the order of their URIs.
    pub(super) fn finder(&self) -> Finder {
        Finder { segments: self.segments.clone(), open: Vec::new(), last: String::new() }
    }

    /// Where the file with the bytes of a version is; `None` for a deletion, and where nobody could read them. It need not be there: there
    /// was no room, or [retention](super::retention) removed it. A file of another length has other bytes.
    pub(crate) fn content(&self, version: &Version) -> Option<PathBuf> {
        let digest = version.digest.filter(|_| version.change != Change::Deleted)?;
        Some(self.store.path(&digest))
    }

    /// All lines, in the order of their URIs, and those of one resource oldest first.
    pub(super) fn lines(&self) -> io::Result<Lines> {
        Lines::of(&self.segments)
    }
}

/// The paths of files of the journal.
pub(super) fn paths(out: &Path, segments: &[Segment]) -> Vec<PathBuf> {
    segments.iter().map(|segment| out.join(FOLDER).join(&segment.name)).collect()
}

/// The URIs by which the journal may know what somebody names: as it is written, and in its normal form.
pub(crate) fn spellings(uri: &str) -> impl Iterator<Item = String> + use<> {
    let normal = TopicUrl::parse(uri).ok().map(|url| url.key().to_owned());
    [Some(uri.to_owned()), normal].into_iter().flatten()
}

/// The versions of one resource, oldest first. Ends after an error.
pub(crate) struct VersionsOf {
    loc: String,
    segments: vec::IntoIter<PathBuf>,
    open: Option<Search<VersionLine>>,
    /// The second of the last version, and how many came before that in it.
    second: Option<DateTime>,
    ordinal: u64,
}

impl VersionsOf {
    fn next_line(&mut self) -> Result<Option<VersionLine>, BuildError> {
        loop {
            if let Some(search) = &mut self.open
                && let Some(line) = search.next_of(&self.loc)?
            {
                return Ok(Some(line));
            }
            let Some(path) = self.segments.next() else { return Ok(None) };
            self.open = Some(open(&path)?);
        }
    }

    fn numbered(&mut self, line: VersionLine) -> Version {
        let VersionLine { moment, change, digest, length, media_type, encoding, .. } = line;
        let second = Some(moment.truncate_to_seconds());
        self.ordinal = if self.second == second { self.ordinal + 1 } else { 0 };
        self.second = second;
        Version { moment, change, ordinal: self.ordinal, digest, length, media_type, encoding }
    }
}

impl Iterator for VersionsOf {
    type Item = io::Result<Version>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_line().transpose()?;
        Some(next.map(|line| self.numbered(line)).map_err(|error| {
            (self.open, self.segments) = (None, Vec::new().into_iter());
            unread(error)
        }))
    }
}

/// Counts versions of resources. While these come in the order of their URIs, the files stay open, and each search goes on where the one
/// before ended.
pub(super) struct Finder {
    segments: Vec<PathBuf>,
    /// None before the first resource.
    open: Vec<Search<VersionLine>>,
    last: String,
}

impl Finder {
    /// How many versions of a resource are such.
    pub(super) fn count(&mut self, loc: &str, is_counted: impl Fn(&VersionLine) -> bool) -> io::Result<u64> {
        self.go_to(loc).and_then(|()| self.count_here(loc, is_counted)).map_err(unread)
    }

    fn go_to(&mut self, loc: &str) -> Result<(), BuildError> {
        if self.open.is_empty() || loc <= self.last.as_str() {
            self.open = self.segments.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
        }
        loc.clone_into(&mut self.last);
        Ok(())
    }

    fn count_here(
        &mut self,
        loc: &str,
        is_counted: impl Fn(&VersionLine) -> bool,
    ) -> Result<u64, BuildError> {
        let mut count = 0;
        for search in &mut self.open {
            while let Some(line) = search.next_of(loc)? {
                count += u64::from(is_counted(&line));
            }
        }
        Ok(count)
    }
}

/// Opens a file of the journal, which is there.
fn open(path: &Path) -> Result<Search<VersionLine>, BuildError> {
    let missing = || BuildError::File { path: path.to_owned(), source: io::ErrorKind::NotFound.into() };
    Search::open_if_there(path)?.ok_or_else(missing)
}

/// The same error, as who reads the journal tells it.
fn unread(error: BuildError) -> io::Error {
    match error {
        BuildError::File { path, source } => in_file(&path, &source),
        other => io::Error::other(other),
    }
}

/// Lines of several files in the order of their URIs; at one URI those of the first file come first.
pub(super) struct Lines {
    sources: Vec<Source>,
}

/// A file, and the line that comes next in it.
struct Source {
    path: PathBuf,
    lines: BufReader<File>,
    /// Empty at the end.
    line: Vec<u8>,
    loc: String,
}

impl Source {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path).map_err(|error| in_file(path, &error))?;
        let (path, lines) = (path.to_owned(), BufReader::with_capacity(BUFFER, file));
        let mut source = Self { path, lines, line: Vec::new(), loc: String::new() };
        source.advance()?;
        Ok(source)
    }

    fn advance(&mut self) -> io::Result<()> {
        self.read_line().map_err(|error| in_file(&self.path, &error))
    }

    fn read_line(&mut self) -> io::Result<()> {
        self.line.clear();
        self.lines.read_until(b'\n', &mut self.line)?;
        if !self.line.is_empty() {
            self.loc = loc_of(&self.line)?.into_owned();
        }
        Ok(())
    }
}

impl Lines {
    /// Of these files.
    pub(super) fn of(paths: &[PathBuf]) -> io::Result<Self> {
        let sources = paths.iter().map(|path| Source::open(path)).collect::<io::Result<_>>()?;
        Ok(Self { sources })
    }

    /// Copies the next line into `line`, with its end; says whether there was one.
    pub(super) fn next_into(&mut self, line: &mut Vec<u8>) -> io::Result<bool> {
        Ok(self.next_from(line)?.is_some())
    }

    /// The next line, understood.
    pub(super) fn next_line(&mut self, line: &mut Vec<u8>) -> io::Result<Option<VersionLine>> {
        let Some(path) = self.next_from(line)? else { return Ok(None) };
        serde_json::from_slice(line).map(Some).map_err(|error| in_file(path, &error.into()))
    }

    /// The same as [`next_into`](Self::next_into), with the file.
    fn next_from(&mut self, line: &mut Vec<u8>) -> io::Result<Option<&Path>> {
        line.clear();
        let left = self.sources.iter_mut().filter(|source| !source.line.is_empty());
        // Of equal ones the first.
        let Some(source) = left.min_by(|one, other| one.loc.cmp(&other.loc)) else { return Ok(None) };
        line.extend_from_slice(&source.line);
        source.advance()?;
        Ok(Some(source.path.as_path()))
    }
}

/// The same error, with the file of the journal that it is about.
fn in_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use resync_core::{build::Item, digest::Algorithm};

    use super::*;

    fn line(loc: &str, moment: &str) -> VersionLine {
        let event = Event::new(Change::Updated, moment.parse().unwrap(), Item::new(loc).content(b"x"));
        VersionLine::of(&event, Some(Digest::of(Algorithm::Sha256, b"x")))
    }

    fn journal(out: &Path, files: &[&[VersionLine]]) -> Journal {
        fs::create_dir_all(out.join(FOLDER)).unwrap();
        let segments = files.iter().zip(1..).map(|(lines, number)| {
            let path = out.join(FOLDER).join(format!("versions-{number}.jsonl"));
            let lines: Vec<_> =
                lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
            fs::write(&path, lines.concat()).unwrap();
            path
        });
        Journal { store: Store::of(out), segments: segments.collect() }
    }

    #[test]
    fn mem011_mem032_the_versions_of_a_resource_are_found_in_their_order_and_numbered_within_a_second() {
        let out = tempfile::tempdir().unwrap();
        let many: Vec<_> = (0..2000)
            .map(|number| line(&format!("http://e.x/{number:04}"), "2026-01-01T00:00:00Z"))
            .collect();
        let later = [
            line("http://e.x/0007", "2026-01-01T00:00:00.25Z"),
            line("http://e.x/0007", "2026-01-01T00:00:00.5Z"),
            line("http://e.x/0007", "2026-01-01T00:00:01Z"),
        ];
        let journal = journal(out.path(), &[&many, &later]);
        let found = |loc: &str| -> Vec<_> {
            journal
                .versions(loc)
                .map(|version| version.map(|one| (one.moment.to_string(), one.ordinal)).unwrap())
                .collect()
        };
        let expected = [
            ("2026-01-01T00:00:00Z", 0),
            ("2026-01-01T00:00:00.25Z", 1),
            ("2026-01-01T00:00:00.5Z", 2),
            ("2026-01-01T00:00:01Z", 0),
        ];
        assert_eq!(found("http://e.x/0007"), expected.map(|(moment, ordinal)| (moment.to_owned(), ordinal)));
        assert_eq!(found("http://e.x/1999").len(), 1);
        for unknown in ["a", "http://e.x/0007x", "z"] {
            assert_eq!(found(unknown), []);
        }
    }

    #[test]
    fn mem032_versions_are_counted_in_files_that_stay_open_while_their_resources_come_in_order() {
        let out = tempfile::tempdir().unwrap();
        let second = "2026-01-01T00:00:00Z";
        let many: Vec<_> = (0..2000).map(|number| line(&format!("http://e.x/{number:04}"), second)).collect();
        let later = ["2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z"];
        let later = later.map(|moment| line("http://e.x/0007", moment));
        let journal = journal(out.path(), &[&many, &later]);
        let second: DateTime = second.parse().unwrap();
        let mut finder = journal.finder();
        let mut count = |name: &str| {
            finder.count(&format!("http://e.x/{name}"), |line| line.moment.truncate_to_seconds() == second)
        };
        // The same one again, and one before it, begin anew.
        for (name, expected) in
            [("0007", 2), ("0007", 2), ("0003", 1), ("0007", 2), ("0007x", 0), ("1998", 1)]
        {
            assert_eq!(count(name).unwrap(), expected, "{name}");
        }
        for path in &journal.segments {
            fs::remove_file(path).unwrap();
        }
        assert_eq!(count("1999").unwrap(), 1, "the files are open");
        assert_eq!(count("0007").unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn mem011_all_lines_come_in_the_order_of_their_resources_and_the_older_file_first() {
        let out = tempfile::tempdir().unwrap();
        let [first, second] = ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"];
        let files = [[line("a", first), line("c", first)], [line("a", second), line("b", second)]];
        let journal = journal(out.path(), &[&files[0], &files[1]]);
        let (mut lines, mut buffer, mut all) = (journal.lines().unwrap(), Vec::new(), Vec::new());
        while let Some(line) = lines.next_line(&mut buffer).unwrap() {
            all.push(line);
        }
        let [[a, c], [a2, b]] = files;
        assert_eq!(all, [a, a2, b, c]);
    }

    /// What is read of a damaged file of one resource: before the damage it is what was written, and after an error nothing comes.
    #[test]
    fn mem011_whatever_bytes_a_file_of_the_journal_has_reading_them_ends_and_invents_no_version() {
        let out = tempfile::tempdir().unwrap();
        let moments = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "2026-01-02T00:00:00Z"];
        let written = moments.map(|moment| line("http://e.x/a", moment));
        let journal = journal(out.path(), &[&written]);
        let whole: Vec<_> = journal.versions("http://e.x/a").map(Result::unwrap).collect();
        let (path, bytes) = (&journal.segments[0], fs::read(&journal.segments[0]).unwrap());
        let others = [&b""[..], b"\n", b"\"", b"\\", b"{", b"\0", b"\xff", b"\n{\"loc\":\"http://e.x/a\"}\n"];
        for at in 0..bytes.len() {
            let is_before = bytes[..at].split(|byte| *byte == b'\n').count() - 1;
            let cut = bytes[..at].to_vec();
            let damaged = others.iter().map(|other| [&bytes[..at], *other, &bytes[at + 1..]].concat());
            for damaged in std::iter::once(cut).chain(damaged) {
                fs::write(path, &damaged).unwrap();
                let read: Vec<_> = journal.versions("http://e.x/a").collect();
                let good: Vec<_> = read.iter().map_while(|version| version.as_ref().ok()).collect();
                assert!(good.len() + 1 >= read.len(), "at {at}: {read:?}");
                let text = String::from_utf8_lossy(&damaged);
                assert!(good.iter().copied().take(is_before).eq(&whole[..is_before]), "{text}: {read:?}");
                assert!(good.len() <= whole.len(), "{text}: {read:?}");
                // Who reads all lines comes to an end, too.
                let (mut lines, mut buffer, mut count) = (journal.lines().ok(), Vec::new(), 0);
                while let Some(Ok(Some(_))) = lines.as_mut().map(|lines| lines.next_line(&mut buffer)) {
                    count += 1;
                }
                assert!(count <= whole.len(), "{text}");
            }
        }
    }

    #[test]
    fn a_file_of_the_journal_that_is_gone_is_an_error_and_not_the_absence_of_versions() {
        let out = tempfile::tempdir().unwrap();
        let mut journal = journal(out.path(), &[&[line("a", "2026-01-01T00:00:00Z")]]);
        journal.segments.push(out.path().join("missing"));
        let mut versions = journal.versions("a");
        assert!(versions.next().unwrap().is_ok());
        assert_eq!(versions.next().unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(versions.next().is_none());
        let error = journal.lines().err().unwrap();
        assert!(error.to_string().contains("missing`: "), "{error}");
    }
}
