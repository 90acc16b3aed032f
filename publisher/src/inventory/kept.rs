//! The inventory on disk: one line of JSON a resource, in the order of their URLs, and beside that file a small one with what has changed since
//! it was written. A run writes the small one anew, all that has changed since and not only what changed now, until that is a twentieth of the
//! whole, and then the whole.
//!
//! Nobody ever holds the whole of it, and one resource is found without reading the others.

use std::{
    cmp::Ordering,
    fs::{self, File},
    io::{self, BufRead, BufReader, Lines, Seek as _, SeekFrom, Write},
    iter::Peekable,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use resync_core::{
    build::{BuildError, Item, Known, Stamp},
    datetime::DateTime,
    digest::Hashes,
    document::{Link, Relation},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{files, state::FOLDER, stored::text_option};

/// The inventory that the published documents tell of.
const LAST: &str = "inventory.jsonl";
/// What is another way since that was written.
const SINCE: &str = "inventory-since.jsonl";
/// Both, of a run that is not through; it has one or the other.
pub(super) const NEXT: &str = "inventory-next.jsonl";
pub(super) const NEXT_SINCE: &str = "inventory-since-next.jsonl";
/// Both files are made one when the second has this part of the first.
const PART: u64 = 20;
/// How near a search comes in steps before it reads line by line, and what it reads at one go: a few lines.
const NEAR: u64 = 2 * 1024;
const BUFFER: usize = 1024;

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

    /// Whether so much has changed that the next run writes the whole of it.
    pub(super) fn is_due(&self) -> bool {
        let length = |path: &Path| fs::metadata(path).map_or(0, |metadata| metadata.len());
        length(&self.since).saturating_mul(PART) > length(&self.large) || !self.exists()
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

    /// What has changed since the large file was written, and nothing else.
    pub(super) fn only_since(&self) -> Self {
        Self { large: self.large.with_extension("none"), since: self.since.clone() }
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
        Ok(self.from(loc, |found| found == loc)?.pop())
    }

    /// The resources whose URLs begin like this.
    pub(super) fn below(&mut self, beginning: &str) -> Result<Vec<Known>, BuildError> {
        self.from(beginning, |found| found.starts_with(beginning))
    }

    fn from(&mut self, first: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Known>, BuildError> {
        let read = |search: &mut Option<Search>| match search {
            Some(search) => search.from(first, &is_wanted),
            None => Ok(Vec::new()),
        };
        let sides = Sides {
            large: In::lines(read(&mut self.large)?).peekable(),
            since: In::lines(read(&mut self.since)?).peekable(),
        };
        sides.filter_map(|side| side.map(Side::into_now).transpose()).collect()
    }
}

/// Lines of a file, found by their URLs.
struct Search {
    file: File,
    path: PathBuf,
    length: u64,
    /// Where a line begins that is not beyond what was looked for last.
    low: u64,
}

impl Search {
    fn open_if_there(path: &Path) -> Result<Option<Self>, BuildError> {
        let failed = |source| BuildError::File { path: path.to_owned(), source };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed)?,
        };
        let length = file.metadata().map_err(failed)?.len();
        Ok(Some(Self { file, path: path.to_owned(), length, low: 0 }))
    }

    fn from(&mut self, first: &str, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<Line>, BuildError> {
        let path = self.path.clone();
        self.lines_from(first, is_wanted).map_err(|source| BuildError::File { path, source })
    }

    fn lines_from(&mut self, first: &str, is_wanted: impl Fn(&str) -> bool) -> io::Result<Vec<Line>> {
        self.approach(first)?;
        self.file.seek(SeekFrom::Start(self.low))?;
        let mut found = Vec::new();
        for line in BufReader::with_capacity(BUFFER, &self.file).lines() {
            let line: Line = serde_json::from_str(&line?)?;
            if is_wanted(&line.loc) {
                found.push(line);
            } else if line.loc.as_str() > first {
                break;
            }
        }
        Ok(found)
    }

    /// Goes near the first line whose URL is not before `loc`, and not beyond it: in growing steps from where it was, then by halving.
    fn approach(&mut self, loc: &str) -> io::Result<()> {
        let (mut step, mut high) = (NEAR, self.length);
        while self.low + step < self.length {
            match self.line_after(self.low + step, self.length)? {
                Some((begin, found)) if found.as_str() < loc => self.low = begin,
                _ => {
                    high = self.low + step;
                    break;
                }
            }
            step *= 2;
        }
        while high - self.low > NEAR {
            let middle = self.low + (high - self.low) / 2;
            match self.line_after(middle, high)? {
                Some((begin, found)) if found.as_str() < loc => self.low = begin,
                _ => high = middle,
            }
        }
        Ok(())
    }

    /// The first line that begins after a place, and before another one: where, and its URL.
    fn line_after(&mut self, place: u64, end: u64) -> io::Result<Option<(u64, String)>> {
        #[derive(Deserialize)]
        struct Place {
            loc: String,
        }
        self.file.seek(SeekFrom::Start(place))?;
        let mut reader = BufReader::with_capacity(BUFFER, &self.file);
        let mut line = Vec::new();
        let begin = place + u64::try_from(reader.read_until(b'\n', &mut line)?).unwrap_or(u64::MAX);
        if begin >= end {
            return Ok(None);
        }
        line.clear();
        reader.read_until(b'\n', &mut line)?;
        let Place { loc } = serde_json::from_slice(&line)?;
        Ok(Some((begin, loc)))
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
    large: Option<Result<Line, BuildError>>,
    since: Option<Result<Line, BuildError>>,
) -> Result<Side, BuildError> {
    let (large, since) = (large.transpose()?, since.transpose()?);
    let loc = large.as_ref().or(since.as_ref()).map(|line| line.loc.clone()).unwrap_or_default();
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
pub(super) struct In(Option<Stored<Line>>, std::vec::IntoIter<Line>);

impl In {
    fn lines(lines: Vec<Line>) -> Self {
        Self(None, lines.into_iter())
    }
}

impl Iterator for In {
    type Item = Result<Line, BuildError>;

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

impl Stored<Line> {
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

pub(super) fn write_line(lines: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *lines, line)?;
    lines.write_all(b"\n")
}

/// A resource; its URL comes first, by which lines are found.
#[derive(Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) loc: String,
    /// It has been there, and is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gone: bool,
    #[serde(default, with = "text_option")]
    lastmod: Option<DateTime>,
    #[serde(default)]
    length: Option<u64>,
    #[serde(default)]
    hashes: String,
    #[serde(default)]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<LinkLine>,
    #[serde(default, with = "text_option", skip_serializing_if = "Option::is_none")]
    stamp: Option<Stamp>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("loc", &self.loc).field("gone", &self.gone).finish_non_exhaustive()
    }
}

impl Line {
    /// Of a resource that is gone.
    pub(super) fn gone(loc: String) -> Self {
        Self { gone: true, ..Known { item: Item::new(loc), stamp: None }.into() }
    }

    pub(super) fn into_known(self) -> Option<Known> {
        if self.gone {
            return None;
        }
        let Self { loc, gone: _, lastmod, length, hashes, media_type, encoding, links, stamp } = self;
        let hashes = Hashes::parse(&hashes);
        let links = links.into_iter().map(Link::from).collect();
        Some(Known { item: Item { loc, lastmod, length, hashes, media_type, encoding, links }, stamp })
    }
}

impl From<Known> for Line {
    fn from(Known { item, stamp }: Known) -> Self {
        let Item { loc, lastmod, length, hashes, media_type, encoding, links } = item;
        let links = links.into_iter().map(LinkLine::from).collect();
        Self {
            loc,
            gone: false,
            lastmod,
            length,
            hashes: hashes.to_string(),
            media_type,
            encoding,
            links,
            stamp,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct LinkLine {
    #[serde(with = "relation")]
    rel: Relation,
    href: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    hashes: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(default, with = "text_option", skip_serializing_if = "Option::is_none")]
    modified: Option<DateTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pri: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<String>,
}

mod relation {
    use resync_core::document::Relation;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &Relation, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(value.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Relation, D::Error> {
        String::deserialize(input).map(|text| Relation::from(text.as_str()))
    }
}

/// Where it lies in a package, and what other communities say of it, is of no use here.
impl From<Link> for LinkLine {
    fn from(link: Link) -> Self {
        let Link { rel, href, encoding, hash, length, modified, pri, media_type, profile, .. } = link;
        Self { rel, href, encoding, hashes: hash.to_string(), length, modified, pri, media_type, profile }
    }
}

impl From<LinkLine> for Link {
    fn from(line: LinkLine) -> Self {
        let LinkLine { rel, href, encoding, hashes, length, modified, pri, media_type, profile } = line;
        let hash = Hashes::parse(&hashes);
        Self { encoding, hash, length, modified, pri, media_type, profile, ..Self::new(rel, href) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(loc: &str, length: u64) -> Known {
        Known { item: Item { length: Some(length), ..Item::new(loc) }, stamp: None }
    }

    fn write(path: &Path, lines: impl IntoIterator<Item = Line>) {
        let mut bytes = Vec::new();
        for line in lines {
            write_line(&mut bytes, &line).unwrap();
        }
        fs::write(path, bytes).unwrap();
    }

    /// Every third of a thousand resources, of which some have changed since, are gone, or are new.
    fn kept(folder: &Path) -> (Kept, Vec<Known>) {
        let kept = Kept { large: folder.join(LAST), since: folder.join(SINCE) };
        let loc = |number: u64| format!("http://example.org/{}/{number:04}", number / 100);
        write(&kept.large, (0..3000).step_by(3).map(|number| known(&loc(number), 1).into()));
        let since = (0..3000).step_by(5).map(|number| match number % 2 {
            0 => Line::from(known(&loc(number), 2)),
            _ => Line::gone(loc(number)),
        });
        write(&kept.since, {
            let mut since: Vec<_> = since.collect();
            since.sort_by(|one, other| one.loc.cmp(&other.loc));
            since
        });
        let expected = |number: u64| match (number % 3, number % 5, number % 2) {
            (_, 0, 0) => Some(known(&loc(number), 2)),
            (_, 0, _) => None,
            (0, ..) => Some(known(&loc(number), 1)),
            _ => None,
        };
        let mut expected: Vec<_> = (0..3000).filter_map(expected).collect();
        expected.sort_by(|one, other| one.item.loc.cmp(&other.item.loc));
        let mut large: Vec<_> = fs::read_to_string(&kept.large).unwrap().lines().map(str::to_owned).collect();
        large.sort_by_key(|line| serde_json::from_str::<Line>(line).unwrap().loc);
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
        assert!(kept.is_due(), "two fifths have changed");
        let nothing = Kept::last(folder.path());
        assert!(!nothing.exists() && nothing.finder().unwrap().find("a").unwrap().is_none());
    }

    #[test]
    fn a_resource_is_kept_with_all_that_is_known_of_it() {
        let link = Link {
            length: Some(3),
            pri: Some(1),
            media_type: Some("text/html".into()),
            ..Link::new(Relation::Alternate, "http://example.org/a.html")
        };
        let item = Item {
            lastmod: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            length: Some(7),
            hashes: Hashes::parse("md5:900150983cd24fb0d6963f7d28e17f72"),
            media_type: Some("text/plain".into()),
            encoding: Some("gzip".into()),
            links: vec![link],
            ..Item::new("http://example.org/a")
        };
        let stamp = Some("1:2:3:4".parse().unwrap());
        let known = Known { item, stamp };
        let text = serde_json::to_string(&Line::from(known.clone())).unwrap();
        assert!(text.starts_with("{\"loc\":"), "{text}");
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap().into_known(), Some(known));
    }
}
