//! The inventory on disk: one line of JSON per resource, in the order of their URLs.
//!
//! Beside the base file lies a small one with what has changed since that was written. A run rewrites the small file, with all of these changes, until
//! it has a twentieth of the base file's length; then it rewrites the base file. So nobody needs the whole inventory in memory, and one resource is
//! found without reading the others.

mod line;

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Lines, Write},
    marker::PhantomData,
    path::{Path, PathBuf},
};

use resync_core::build::{BuildError, Known, Pair, joined};
use serde::de::DeserializeOwned;

pub(super) use self::line::{Line, write_known, write_line};
use crate::{
    helpers::{
        files,
        line_search::{Search, loc_of},
    },
    state::FOLDER,
};

/// The inventory that the published documents list.
const BASE: &str = "inventory.jsonl";
/// What has changed since that was written.
const SINCE: &str = "inventory-since.jsonl";
/// The files of a run that is under way; it has one or the other.
pub(super) const NEXT: &str = "inventory-next.jsonl";
pub(super) const NEXT_SINCE: &str = "inventory-since-next.jsonl";
/// The base file is rewritten when the other has this part of its length.
const PART: u64 = 20;
/// Bytes that are read at once where all lines are read.
pub(super) const BUFFER: usize = 64 * 1024;

/// What both files say of one resource.
pub(super) struct Merged {
    pub(super) loc: String,
    /// What the base file says.
    pub(super) in_base: InBase,
    /// What the other file says.
    since: Option<Known>,
}

/// What the base file says of a resource.
pub(super) enum InBase {
    Absent,
    /// Still true.
    Current(Known),
    /// Changed since.
    Outdated(Known),
}

impl Merged {
    fn of(pair: Pair<Line, Line>) -> Self {
        let (in_base, since) = match pair {
            Pair::First(base) => (Some(base), None),
            Pair::Second(since) => (None, Some(since)),
            Pair::Both(base, since) => (Some(base), Some(since)),
        };
        let loc = in_base.as_ref().or(since.as_ref()).map(|line| line.loc.clone()).unwrap_or_default();
        let in_base = match in_base.and_then(Line::into_known) {
            None => InBase::Absent,
            Some(known) if since.is_some() => InBase::Outdated(known),
            Some(known) => InBase::Current(known),
        };
        Self { loc, in_base, since: since.and_then(Line::into_known) }
    }

    /// The resource as it is; `None` if it is gone.
    pub(super) fn into_current(self) -> Option<Known> {
        match self.in_base {
            InBase::Current(known) => Some(known),
            InBase::Absent | InBase::Outdated(_) => self.since,
        }
    }
}

/// Lines of both files as one stream.
fn merged(
    base: impl Iterator<Item = Result<Line, BuildError>>,
    since: impl Iterator<Item = Result<Line, BuildError>>,
) -> impl Iterator<Item = Result<Merged, BuildError>> {
    joined(base, since, |line| &line.loc, |line| &line.loc).map(|pair| pair.map(Merged::of))
}

/// An inventory on disk.
#[derive(Clone, Debug)]
pub(crate) struct StoredInventory {
    base: PathBuf,
    since: PathBuf,
}

impl StoredInventory {
    /// That of the last run, which the published documents list.
    pub(crate) fn last(out: &Path) -> Self {
        let folder = out.join(FOLDER);
        Self { base: folder.join(BASE), since: folder.join(SINCE) }
    }

    /// That of the run that is under way, or else of the last one.
    pub(crate) fn newest(out: &Path) -> Self {
        let (folder, last) = (out.join(FOLDER), Self::last(out));
        let (next, since) = (folder.join(NEXT), folder.join(NEXT_SINCE));
        match (next.exists(), since.exists()) {
            // The other file belongs to the last base file.
            (true, _) => Self { since: next.with_extension("none"), base: next },
            (false, true) => Self { since, ..last },
            (false, false) => last,
        }
    }

    /// Whether there is one.
    pub(crate) fn exists(&self) -> bool {
        self.base.is_file()
    }

    /// Whether the next run rewrites the base file. A quick run waits until as much has changed as that has.
    pub(super) fn is_rewrite_due(&self, is_quick: bool) -> bool {
        let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let part = if is_quick { 1 } else { PART };
        length(&self.since).saturating_mul(part) > length(&self.base) || !self.exists()
    }

    /// The resources, in the order of their URLs; none before there is an inventory.
    pub(crate) fn resources(
        &self,
    ) -> Result<impl Iterator<Item = Result<Known, BuildError>> + Send + use<>, BuildError> {
        Ok(self.merged()?.filter_map(|merged| merged.map(Merged::into_current).transpose()))
    }

    /// What is known of one resource.
    pub(crate) fn find(&self, loc: &str) -> Result<Option<Known>, BuildError> {
        self.finder()?.find(loc)
    }

    /// All that the two files say.
    pub(super) fn merged(
        &self,
    ) -> Result<impl Iterator<Item = Result<Merged, BuildError>> + Send + use<>, BuildError> {
        let lines = |path: &Path| Ok::<_, BuildError>(JsonLines::open_if_there(path)?.into_iter().flatten());
        Ok(merged(lines(&self.base)?, lines(&self.since)?))
    }

    /// Writes the file of later changes with this `outcome`; lines of other resources are copied.
    pub(super) fn write_since(
        &self,
        outcome: BTreeMap<String, Option<Known>>,
        out: &mut impl Write,
    ) -> Result<(), BuildError> {
        let failed = |source| BuildError::File { path: self.since.clone(), source };
        let before = files::if_there(File::open(&self.since)).map_err(failed)?;
        let mut before = before.map(|file| BufReader::with_capacity(BUFFER, file));
        let mut line = Vec::new();
        let mut next = |line: &mut Vec<u8>| {
            line.clear();
            before.as_mut().map_or(Ok(0), |before| before.read_until(b'\n', line)).map_err(failed)
        };
        next(&mut line)?;
        for (loc, now) in outcome {
            while !line.is_empty() {
                let order = (*loc_of(&line).map_err(failed)?).cmp(loc.as_str());
                if order == Ordering::Less {
                    out.write_all(&line)?;
                }
                if order == Ordering::Greater {
                    break;
                }
                next(&mut line)?;
            }
            write_line(out, &now.as_ref().map_or_else(|| Line::gone(&loc), Line::from))?;
        }
        while !line.is_empty() {
            out.write_all(&line)?;
            next(&mut line)?;
        }
        Ok(())
    }

    /// Finds resources, in ascending order of their URLs.
    pub(super) fn finder(&self) -> Result<Finder, BuildError> {
        Ok(Finder { base: Search::open_if_there(&self.base)?, since: Search::open_if_there(&self.since)? })
    }
}

/// Finds resources in ascending order of their URLs, without reading those in between.
pub(super) struct Finder {
    base: Option<Search<Line>>,
    since: Option<Search<Line>>,
}

impl Finder {
    /// What is known of a resource.
    pub(super) fn find(&mut self, loc: &str) -> Result<Option<Known>, BuildError> {
        for search in [&mut self.since, &mut self.base].into_iter().flatten() {
            if let Some(line) = search.find(loc)? {
                return Ok(line.into_known());
            }
        }
        Ok(None)
    }

    /// The resources whose URLs begin with `prefix`.
    pub(super) fn below(&mut self, prefix: &str) -> Result<Vec<Known>, BuildError> {
        let read = |search: &mut Option<Search<Line>>| {
            let lines = search.as_mut().map(|search| search.below(prefix)).transpose()?;
            Ok::<_, BuildError>(lines.unwrap_or_default().into_iter().map(Ok))
        };
        let merged = merged(read(&mut self.base)?, read(&mut self.since)?);
        merged.filter_map(|merged| merged.map(Merged::into_current).transpose()).collect()
    }
}

/// Removes the files of a run that was interrupted before its plan was saved.
pub(super) fn begin(out: &Path) -> io::Result<()> {
    let folder = out.join(FOLDER);
    files::remove(&folder.join(NEXT))?;
    files::remove(&folder.join(NEXT_SINCE))
}

/// Makes the next inventory the last one, unless that was done before.
pub(super) fn advance(out: &Path) -> io::Result<()> {
    let folder = out.join(FOLDER);
    if folder.join(NEXT).exists() {
        // In this order, so that later changes never lie beside another base file than theirs.
        files::remove(&folder.join(SINCE))?;
        files::rename(&folder.join(NEXT), &folder.join(BASE))?;
    }
    files::rename(&folder.join(NEXT_SINCE), &folder.join(SINCE))
}

/// Whether the run that is under way has rewritten the base file: then its plan must be saved, since [`advance`] takes two steps.
pub(crate) fn is_whole(out: &Path) -> bool {
    out.join(FOLDER).join(NEXT).exists()
}

/// Lines of JSON in a file.
#[derive(Debug)]
pub(super) struct JsonLines<T> {
    lines: Lines<BufReader<File>>,
    path: PathBuf,
    of: PhantomData<fn() -> T>,
}

impl<T> JsonLines<T> {
    pub(super) fn open(path: &Path) -> Result<Self, BuildError> {
        let missing = || BuildError::File { path: path.to_owned(), source: io::ErrorKind::NotFound.into() };
        Self::open_if_there(path)?.ok_or_else(missing)
    }

    fn open_if_there(path: &Path) -> Result<Option<Self>, BuildError> {
        let file = files::if_there(File::open(path));
        let file = file.map_err(|source| BuildError::File { path: path.to_owned(), source })?;
        Ok(file.map(|file| Self {
            lines: BufReader::new(file).lines(),
            path: path.to_owned(),
            of: PhantomData,
        }))
    }
}

impl<T: DeserializeOwned> Iterator for JsonLines<T> {
    type Item = Result<T, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.lines.next()?;
        let line = line.and_then(|line| Ok(serde_json::from_str(&line)?));
        Some(line.map_err(|source| BuildError::File { path: self.path.clone(), source }))
    }
}

#[cfg(test)]
mod tests {
    use resync_core::build::Item;

    use super::*;

    fn known(loc: &str, length: u64) -> Known {
        Known { item: Item { length: Some(length), ..Item::new(loc) }, stamp: None }
    }

    fn write(path: &Path, resources: impl IntoIterator<Item = (String, Option<Known>)>) {
        let mut bytes = Vec::new();
        for (loc, known) in resources {
            write_line(&mut bytes, &known.as_ref().map_or_else(|| Line::gone(&loc), Line::from)).unwrap();
        }
        fs::write(path, bytes).unwrap();
    }

    /// Every third of a thousand resources, of which some have changed since, are gone, or are new.
    fn stored(folder: &Path) -> (StoredInventory, Vec<Known>) {
        let stored = StoredInventory { base: folder.join(BASE), since: folder.join(SINCE) };
        let loc = |number: u64| format!("http://example.org/{}/{number:04}", number / 100);
        write(&stored.base, (0..3000).step_by(3).map(|number| (loc(number), Some(known(&loc(number), 1)))));
        let since = (0..3000)
            .step_by(5)
            .map(|number| (loc(number), (number % 2 == 0).then(|| known(&loc(number), 2))));
        // In their order.
        write(&stored.since, since.collect::<BTreeMap<_, _>>());
        let expected = |number: u64| match (number % 3, number % 5, number % 2) {
            (_, 0, 0) => Some(known(&loc(number), 2)),
            (_, 0, _) => None,
            (0, ..) => Some(known(&loc(number), 1)),
            _ => None,
        };
        let mut expected: Vec<_> = (0..3000).filter_map(expected).collect();
        expected.sort_by(|one, other| one.item.loc.cmp(&other.item.loc));
        let mut base: Vec<_> = fs::read_to_string(&stored.base).unwrap().lines().map(str::to_owned).collect();
        base.sort_by_key(|line| loc_of(line.as_bytes()).unwrap().into_owned());
        fs::write(&stored.base, base.join("\n") + "\n").unwrap();
        (stored, expected)
    }

    #[test]
    fn both_files_are_read_as_one_and_each_resource_is_found_without_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let (stored, expected) = stored(folder.path());
        let all: Vec<_> = stored.resources().unwrap().map(Result::unwrap).collect();
        assert_eq!(all, expected);
        let mut locs: Vec<_> =
            (0..3010).map(|number| format!("http://example.org/{}/{number:04}", number / 100)).collect();
        locs.sort();
        for part in [1, 7, 1000] {
            let mut finder = stored.finder().unwrap();
            for loc in locs.iter().step_by(part) {
                let there = expected.iter().find(|known| known.item.loc == *loc);
                assert_eq!(finder.find(loc).unwrap().as_ref(), there, "{loc}");
            }
        }
        for beginning in ["http://example.org/7/", "http://example.org/1", "http://example.org/", "a", "z"] {
            let below = expected.iter().filter(|known| known.item.loc.starts_with(beginning));
            assert!(stored.finder().unwrap().below(beginning).unwrap().iter().eq(below), "{beginning}");
        }
        assert!(stored.is_rewrite_due(false) && !stored.is_rewrite_due(true), "two fifths have changed");
        let nothing = StoredInventory::last(folder.path());
        assert!(!nothing.exists() && nothing.finder().unwrap().find("a").unwrap().is_none());
    }

    #[test]
    fn an_outcome_is_written_among_the_lines_that_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (stored, mut expected) = stored(folder.path());
        let loc = |number: u64| format!("http://example.org/{}/{number:04}", number / 100);
        let before = fs::read_to_string(&stored.since).unwrap();
        // Two that stand there, and two that do not.
        let outcome = [(10, None), (20, Some(9)), (1, Some(9)), (9_999, Some(9))];
        let outcome =
            outcome.map(|(number, length)| (loc(number), length.map(|length| known(&loc(number), length))));
        let mut bytes = Vec::new();
        stored.write_since(BTreeMap::from(outcome.clone()), &mut bytes).unwrap();
        fs::write(&stored.since, &bytes).unwrap();
        for (loc, now) in outcome {
            expected.retain(|known| known.item.loc != loc);
            expected.extend(now);
        }
        expected.sort_by(|one, other| one.item.loc.cmp(&other.item.loc));
        assert!(stored.resources().unwrap().map(Result::unwrap).eq(expected));
        let after = String::from_utf8(bytes).unwrap();
        assert_eq!(after.lines().count(), before.lines().count() + 2);
    }
}
