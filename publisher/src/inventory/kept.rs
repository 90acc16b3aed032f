//! The inventory on disk: one line of JSON a resource, in the order of their URLs, and beside that file a small one with what has changed since
//! it was written. A run writes the small one anew, all that has changed since and not only what changed now, until that is a twentieth of the
//! whole, and then the whole.
//!
//! Nobody ever holds the whole of it, and one resource is found without reading the others.

mod line;
mod search;

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Lines, Write},
    iter::Peekable,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use resync_core::build::{BuildError, Known};
use serde::de::DeserializeOwned;

pub(super) use self::line::{Line, write_known, write_line};
use self::{line::loc_of, search::Search};
use crate::{files, state::FOLDER};

/// The inventory that the published documents tell of.
const LAST: &str = "inventory.jsonl";
/// What is another way since that was written.
const SINCE: &str = "inventory-since.jsonl";
/// Both, of a run that is not through; it has one or the other.
pub(super) const NEXT: &str = "inventory-next.jsonl";
pub(super) const NEXT_SINCE: &str = "inventory-since-next.jsonl";
/// Both files are made one when the second has this part of the first.
const PART: u64 = 20;
/// What is read at one go where line follows line.
pub(super) const BUFFER: usize = 64 * 1024;

/// What stands in both files, each line with its place in them.
pub(super) struct Side {
    pub(super) loc: String,
    /// What the large file says of it.
    pub(super) first: First,
    /// What is true of it, where that is not what the large file says.
    pub(super) now: Option<Known>,
}

/// What the large file says of a resource.
pub(super) enum First {
    Nothing,
    /// This, and it is true.
    True(Known),
    /// This, and it is true no more.
    Past(Known),
}

impl Side {
    /// What is true of it; nothing of a resource that is gone.
    pub(super) fn into_now(self) -> Option<Known> {
        match self.first {
            First::True(known) => Some(known),
            First::Nothing | First::Past(_) => self.now,
        }
    }
}

/// The inventory that the published documents tell of.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    large: PathBuf,
    since: PathBuf,
}

impl Kept {
    /// That of the last run.
    pub(crate) fn last(out: &Path) -> Self {
        let folder = out.join(FOLDER);
        Self { large: folder.join(LAST), since: folder.join(SINCE) }
    }

    /// That of the run that is not through, or else of the last one.
    pub(crate) fn newest(out: &Path) -> Self {
        let (folder, last) = (out.join(FOLDER), Self::last(out));
        let (next, since) = (folder.join(NEXT), folder.join(NEXT_SINCE));
        match (next.exists(), since.exists()) {
            // What has changed since belongs to the other large file.
            (true, _) => Self { since: next.with_extension("none"), large: next },
            (false, true) => Self { since, ..last },
            (false, false) => last,
        }
    }

    /// Whether there is one.
    pub(crate) fn exists(&self) -> bool {
        self.large.is_file()
    }

    /// Whether so much has changed that the next run writes the whole of it; a swift one puts that off.
    pub(super) fn is_due(&self, quickly: bool) -> bool {
        let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        let part = if quickly { 1 } else { PART };
        length(&self.since).saturating_mul(part) > length(&self.large) || !self.exists()
    }

    /// The resources, in the order of their URLs; none before there is an inventory.
    pub(crate) fn resources(
        &self,
    ) -> Result<impl Iterator<Item = Result<Known, BuildError>> + Send + use<>, BuildError> {
        Ok(self.sides()?.filter_map(|side| side.map(Side::into_now).transpose()))
    }

    /// All that the two files say.
    pub(super) fn sides(&self) -> Result<Sides, BuildError> {
        Ok(Sides {
            large: Stored::open_if_there(&self.large)?.peekable(),
            since: Stored::open_if_there(&self.since)?.peekable(),
        })
    }

    /// Writes the lines of what has changed since the large file was written, with this `outcome`; those of other resources as they stand there.
    pub(super) fn write_since(
        &self,
        outcome: BTreeMap<String, Option<Known>>,
        out: &mut impl Write,
    ) -> Result<(), BuildError> {
        let failed = |source| BuildError::File { path: self.since.clone(), source };
        let mut before = match File::open(&self.since) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(BufReader::with_capacity(BUFFER, file.map_err(failed)?)),
        };
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

    /// A way to find resources, each after the one before.
    pub(super) fn finder(&self) -> Result<Finder, BuildError> {
        Ok(Finder { large: Search::open_if_there(&self.large)?, since: Search::open_if_there(&self.since)? })
    }
}

/// Finds resources in ascending order of their URLs, without reading those in between.
pub(super) struct Finder {
    large: Option<Search>,
    since: Option<Search>,
}

impl Finder {
    /// What the files say of a resource.
    pub(super) fn find(&mut self, loc: &str) -> Result<Option<Known>, BuildError> {
        for search in [&mut self.since, &mut self.large].into_iter().flatten() {
            if let Some(line) = search.find(loc)? {
                return Ok(line.into_known());
            }
        }
        Ok(None)
    }

    /// The resources whose URLs begin like this.
    pub(super) fn below(&mut self, beginning: &str) -> Result<Vec<Known>, BuildError> {
        let read = |search: &mut Option<Search>| match search {
            Some(search) => search.below(beginning),
            None => Ok(Vec::new()),
        };
        let sides = Sides {
            large: In::lines(read(&mut self.large)?).peekable(),
            since: In::lines(read(&mut self.since)?).peekable(),
        };
        sides.filter_map(|side| side.map(Side::into_now).transpose()).collect()
    }
}

/// Takes away what a run left that did not come to its plan.
pub(super) fn begin(out: &Path) -> io::Result<()> {
    let folder = out.join(FOLDER);
    files::remove(&folder.join(NEXT))?;
    files::remove(&folder.join(NEXT_SINCE))
}

/// Makes the next inventory the last one. Does nothing where that is done.
pub(super) fn advance(out: &Path) -> io::Result<()> {
    let folder = out.join(FOLDER);
    if folder.join(NEXT).exists() {
        // In this order, so that nothing is ever taken for a change since another file than it is.
        files::remove(&folder.join(SINCE))?;
        files::rename(&folder.join(NEXT), &folder.join(LAST))?;
    }
    files::rename(&folder.join(NEXT_SINCE), &folder.join(SINCE))
}

/// Whether the run that is not through has written the whole of it: then its plan must be kept, since [`advance`] takes two steps.
pub(crate) fn is_whole(out: &Path) -> bool {
    out.join(FOLDER).join(NEXT).exists()
}

/// Both files side by side.
pub(super) struct Sides {
    large: Peekable<In>,
    since: Peekable<In>,
}

impl Iterator for Sides {
    type Item = Result<Side, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.large.peek(), self.since.peek()) {
            (None, None) => return None,
            (Some(Err(_)), _) | (Some(_), None) => Ordering::Less,
            (_, Some(Err(_))) | (None, Some(_)) => Ordering::Greater,
            (Some(Ok(large)), Some(Ok(since))) => large.loc.cmp(&since.loc),
        };
        let large = if order == Ordering::Greater { None } else { self.large.next() };
        let since = if order == Ordering::Less { None } else { self.since.next() };
        Some(side(large, since))
    }
}

fn side(
    large: Option<Result<Line<'static>, BuildError>>,
    since: Option<Result<Line<'static>, BuildError>>,
) -> Result<Side, BuildError> {
    let (large, since) = (large.transpose()?, since.transpose()?);
    let loc = large.as_ref().or(since.as_ref()).map(|line| line.loc.to_string()).unwrap_or_default();
    let has_changed = since.is_some();
    let now = since.and_then(Line::into_known);
    let first = match large.and_then(Line::into_known) {
        None => First::Nothing,
        Some(known) if has_changed => First::Past(known),
        Some(known) => First::True(known),
    };
    Ok(Side { loc, first, now })
}

/// Lines of JSON in a file.
#[derive(Debug)]
pub(super) struct Stored<T> {
    lines: Lines<BufReader<File>>,
    path: PathBuf,
    of: PhantomData<fn() -> T>,
}

/// Those of a file, if that is there.
#[derive(Debug)]
pub(super) struct In(Option<Stored<Line<'static>>>, std::vec::IntoIter<Line<'static>>);

impl In {
    fn lines(lines: Vec<Line<'static>>) -> Self {
        Self(None, lines.into_iter())
    }
}

impl Iterator for In {
    type Item = Result<Line<'static>, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Some(stored) => stored.next(),
            None => self.1.next().map(Ok),
        }
    }
}

impl<T> Stored<T> {
    pub(super) fn open(path: PathBuf) -> Result<Self, BuildError> {
        match File::open(&path) {
            Ok(file) => Ok(Self { lines: BufReader::new(file).lines(), path, of: PhantomData }),
            Err(source) => Err(BuildError::File { path, source }),
        }
    }
}

impl Stored<Line<'static>> {
    fn open_if_there(path: &Path) -> Result<In, BuildError> {
        match Self::open(path.to_owned()) {
            Err(BuildError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(In::lines(Vec::new()))
            }
            stored => Ok(In(Some(stored?), Vec::new().into_iter())),
        }
    }
}

impl<T: DeserializeOwned> Iterator for Stored<T> {
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
    fn kept(folder: &Path) -> (Kept, Vec<Known>) {
        let kept = Kept { large: folder.join(LAST), since: folder.join(SINCE) };
        let loc = |number: u64| format!("http://example.org/{}/{number:04}", number / 100);
        write(&kept.large, (0..3000).step_by(3).map(|number| (loc(number), Some(known(&loc(number), 1)))));
        let since = (0..3000)
            .step_by(5)
            .map(|number| (loc(number), (number % 2 == 0).then(|| known(&loc(number), 2))));
        // In their order.
        write(&kept.since, since.collect::<BTreeMap<_, _>>());
        let expected = |number: u64| match (number % 3, number % 5, number % 2) {
            (_, 0, 0) => Some(known(&loc(number), 2)),
            (_, 0, _) => None,
            (0, ..) => Some(known(&loc(number), 1)),
            _ => None,
        };
        let mut expected: Vec<_> = (0..3000).filter_map(expected).collect();
        expected.sort_by(|one, other| one.item.loc.cmp(&other.item.loc));
        let mut large: Vec<_> = fs::read_to_string(&kept.large).unwrap().lines().map(str::to_owned).collect();
        large.sort_by_key(|line| loc_of(line.as_bytes()).unwrap().into_owned());
        fs::write(&kept.large, large.join("\n") + "\n").unwrap();
        (kept, expected)
    }

    #[test]
    fn both_files_are_read_as_one_and_each_resource_is_found_without_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, expected) = kept(folder.path());
        let all: Vec<_> = kept.resources().unwrap().map(Result::unwrap).collect();
        assert_eq!(all, expected);
        let mut locs: Vec<_> =
            (0..3010).map(|number| format!("http://example.org/{}/{number:04}", number / 100)).collect();
        locs.sort();
        for part in [1, 7, 1000] {
            let mut finder = kept.finder().unwrap();
            for loc in locs.iter().step_by(part) {
                let there = expected.iter().find(|known| known.item.loc == *loc);
                assert_eq!(finder.find(loc).unwrap().as_ref(), there, "{loc}");
            }
        }
        for beginning in ["http://example.org/7/", "http://example.org/1", "http://example.org/", "a", "z"] {
            let below = expected.iter().filter(|known| known.item.loc.starts_with(beginning));
            assert!(kept.finder().unwrap().below(beginning).unwrap().iter().eq(below), "{beginning}");
        }
        assert!(kept.is_due(false) && !kept.is_due(true), "two fifths have changed");
        let nothing = Kept::last(folder.path());
        assert!(!nothing.exists() && nothing.finder().unwrap().find("a").unwrap().is_none());
    }

    #[test]
    fn an_outcome_is_written_among_the_lines_that_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (kept, mut expected) = kept(folder.path());
        let loc = |number: u64| format!("http://example.org/{}/{number:04}", number / 100);
        let before = fs::read_to_string(&kept.since).unwrap();
        // Two that stand there, and two that do not.
        let outcome = [(10, None), (20, Some(9)), (1, Some(9)), (9_999, Some(9))];
        let outcome =
            outcome.map(|(number, length)| (loc(number), length.map(|length| known(&loc(number), length))));
        let mut bytes = Vec::new();
        kept.write_since(BTreeMap::from(outcome.clone()), &mut bytes).unwrap();
        fs::write(&kept.since, &bytes).unwrap();
        for (loc, now) in outcome {
            expected.retain(|known| known.item.loc != loc);
            expected.extend(now);
        }
        expected.sort_by(|one, other| one.item.loc.cmp(&other.item.loc));
        assert!(kept.resources().unwrap().map(Result::unwrap).eq(expected));
        let after = String::from_utf8(bytes).unwrap();
        assert_eq!(after.lines().count(), before.lines().count() + 2);
    }
}
