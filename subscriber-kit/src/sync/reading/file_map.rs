//! Maps files to resources, so that no two resources share a file and no needed file is removed. Also knows which line of the
//! plan is the last about a resource, and what the first change said, which tells whether the resource was there before.
//!
//! Lists may be long, so paths and URIs are held as keyed hashes. Two paths with one hash are extremely unlikely. They are
//! reported as a collision; nothing is removed or mixed up by it.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher as _;
use std::path::{Path, PathBuf};

use resync_core::document::Change;
use url::{Origin, Position, Url};

use super::path::relative_path;
use crate::sync::{Authority, PathError, ResourceError};

/// The line of a listed resource that the filter excludes: its file stays as it is.
pub(crate) const UNWANTED: u32 = u32::MAX;

/// Which resources may have files, and where.
#[derive(Clone, Debug)]
pub(crate) struct PathRules {
    /// The origin of the list or its index, whose resources it may name (RS-200).
    pub(crate) home: Origin,
    /// The URL that corresponds to the directory.
    pub(crate) base: Url,
    pub(crate) authority: Authority,
}

/// The files of all resources of a snapshot, or of those that changed.
#[derive(Debug, Default)]
pub(crate) struct FileMap {
    keys: RandomState,
    /// By relative path.
    owners: HashMap<u64, Mapping>,
    /// The folders that the files need, and how many files need them.
    folders: HashMap<u64, u32>,
    wanted: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    /// A hash of the URI without its scheme, which changes when a Source moves to https.
    owner: u32,
    line: u32,
    is_deleted: bool,
    /// By the first change; `None` for a listed resource, or if the change does not say.
    first: Option<Change>,
}

impl Mapping {
    fn is_wanted(&self) -> bool {
        !self.is_deleted && self.line != UNWANTED
    }
}

impl FileMap {
    /// Adds the file of a listed resource; `false` if it is listed already.
    pub(crate) fn take(
        &mut self,
        loc: &str,
        url: &Url,
        path_rules: &PathRules,
        line: u32,
    ) -> Result<bool, ResourceError> {
        let (relative, owner) = self.locate(loc, url, path_rules)?;
        let is_new = self.known(&relative, owner)?.is_none();
        if is_new {
            self.set(&relative, Mapping { owner, line, is_deleted: false, first: None });
        }
        Ok(is_new)
    }

    /// Adds a change of a resource; the last change counts.
    pub(crate) fn change(
        &mut self,
        loc: &str,
        url: &Url,
        path_rules: &PathRules,
        line: u32,
        change: Option<Change>,
    ) -> Result<(), ResourceError> {
        let (relative, owner) = self.locate(loc, url, path_rules)?;
        let known = self.known(&relative, owner)?;
        let is_deleted = change == Some(Change::Deleted);
        let first = known.map_or(change, |known| known.first);
        // A deletion of an excluded resource is excluded too.
        let line =
            if is_deleted && known.is_some_and(|known| known.line == UNWANTED) { UNWANTED } else { line };
        self.set(&relative, Mapping { owner, line, is_deleted, first });
        Ok(())
    }

    fn locate(&self, loc: &str, url: &Url, path_rules: &PathRules) -> Result<(PathBuf, u32), ResourceError> {
        if !path_rules.authority.allows(url, &path_rules.home) {
            return Err(ResourceError::OtherOrigin { list: path_rules.home.ascii_serialization() });
        }
        let relative = relative_path(loc, url, &path_rules.base)?;
        #[expect(clippy::cast_possible_truncation, reason = "half of a hash is a hash")]
        let owner = self.keys.hash_one(&url[Position::BeforeHost..]) as u32;
        Ok((relative, owner))
    }

    fn known(&self, relative: &Path, owner: u32) -> Result<Option<Mapping>, ResourceError> {
        match self.get(relative) {
            Some(known) if known.owner != owner && !known.is_deleted => {
                Err(PathError::Collision(relative.to_owned()).into())
            }
            known => Ok(known),
        }
    }

    fn set(&mut self, relative: &Path, mapping: Mapping) {
        let before = self.owners.insert(self.key(relative), mapping);
        let was_there = before.is_some_and(|before| !before.is_deleted);
        self.wanted -= u64::from(before.is_some_and(|before| before.is_wanted()));
        self.wanted += u64::from(mapping.is_wanted());
        if was_there == mapping.is_deleted {
            for folder in relative.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
                self.count(folder, !mapping.is_deleted);
            }
        }
    }

    fn count(&mut self, folder: &Path, is_needed: bool) {
        match self.folders.entry(self.keys.hash_one(folder)) {
            Entry::Vacant(vacant) if is_needed => drop(vacant.insert(1)),
            Entry::Vacant(_) => {}
            Entry::Occupied(mut counted) if is_needed => *counted.get_mut() += 1,
            Entry::Occupied(counted) if *counted.get() == 1 => drop(counted.remove()),
            Entry::Occupied(mut counted) => *counted.get_mut() -= 1,
        }
    }

    fn key(&self, relative: &Path) -> u64 {
        self.keys.hash_one(relative)
    }

    fn get(&self, relative: &Path) -> Option<Mapping> {
        self.owners.get(&self.key(relative)).copied()
    }

    /// Whether a resource of this file is listed or changed.
    pub(crate) fn knows(&self, relative: &Path) -> bool {
        self.get(relative).is_some()
    }

    /// How many resources should have a file here.
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted
    }

    /// How many folders these files need; each is held in memory, and made on the disk.
    pub(crate) fn folders(&self) -> u64 {
        self.folders.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.owners.values().all(|mapping| mapping.is_deleted)
    }

    /// Whether this line is the last about the resource of this file.
    pub(crate) fn is_last_word(&self, relative: &Path, line: u32) -> bool {
        self.get(relative).is_some_and(|mapping| mapping.line == line)
    }

    /// What the first change said of the resource of this file, if it said it.
    pub(crate) fn first_change(&self, relative: &Path) -> Option<Change> {
        self.get(relative).and_then(|mapping| mapping.first)
    }

    /// Whether a wanted resource has this file.
    pub(crate) fn wants(&self, relative: &Path) -> bool {
        self.get(relative).is_some_and(|mapping| mapping.is_wanted())
    }

    /// Whether a resource has this file.
    pub(crate) fn lists(&self, relative: &Path) -> bool {
        self.get(relative).is_some_and(|mapping| !mapping.is_deleted)
    }

    /// The file of another resource where this one needs a folder.
    pub(crate) fn listed_above(&self, relative: &Path) -> Option<PathBuf> {
        relative.ancestors().skip(1).find(|folder| self.lists(folder)).map(Path::to_owned)
    }

    /// Whether the file must stay: it is listed, or it is where a listed resource belongs that is not in place yet.
    pub(crate) fn needs(&self, relative: &Path) -> bool {
        self.lists(relative) || self.has_below(relative) || self.listed_above(relative).is_some()
    }

    /// Whether a resource has a file under this folder.
    pub(crate) fn has_below(&self, folder: &Path) -> bool {
        self.folders.contains_key(&self.key(folder))
    }
}

#[cfg(test)]
pub(crate) fn file_map_of(base: &str, listed: &[&str]) -> FileMap {
    let base = Url::parse(base).unwrap();
    let path_rules = PathRules { home: base.origin(), base: base.clone(), authority: Authority::SameOrigin };
    let mut file_map = FileMap::default();
    for (line, path) in (0..).zip(listed) {
        let url = base.join(path).unwrap();
        assert!(file_map.take(url.as_str(), &url, &path_rules, line).unwrap());
    }
    file_map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rs200_a_resource_that_moved_to_https_is_still_the_same() {
        let mut file_map = file_map_of("http://a.example/", &["x"]);
        let base = Url::parse("http://a.example/").unwrap();
        let path_rules = PathRules { home: base.origin(), base, authority: Authority::SameOrigin };
        let moved = Url::parse("https://a.example/x").unwrap();
        assert!(!file_map.take(moved.as_str(), &moved, &path_rules, 1).unwrap(), "it is listed already");
        let other = Url::parse("https://b.example/x").unwrap();
        assert!(matches!(
            file_map.take(other.as_str(), &other, &path_rules, 2),
            Err(ResourceError::OtherOrigin { .. })
        ));
    }

    #[test]
    fn rs198_the_last_word_on_a_resource_counts_and_folders_come_and_go_with_their_files() {
        let mut file_map = file_map_of("http://a.example/", &["a/b", "a/c", "d"]);
        let base = Url::parse("http://a.example/").unwrap();
        let path_rules =
            PathRules { home: base.origin(), base: base.clone(), authority: Authority::SameOrigin };
        let mut change = |path: &str, line, is_deleted| {
            let url = base.join(path).unwrap();
            let change = if is_deleted { Change::Deleted } else { Change::Updated };
            file_map.change(url.as_str(), &url, &path_rules, line, Some(change)).unwrap();
            (file_map.wanted(), file_map.has_below(Path::new("a")))
        };
        assert_eq!(change("a/b", 3, false), (3, true));
        assert_eq!(change("a/b", 4, true), (2, true));
        assert_eq!(change("a/b", 5, true), (2, true), "told twice");
        assert_eq!(change("a/c", 6, true), (1, false));
        assert_eq!(change("a", 7, false), (2, false));
        assert!(file_map.lists(Path::new("a")) && !file_map.lists(Path::new("a/c")));
        assert!(file_map.is_last_word(Path::new("a/b"), 5) && !file_map.is_last_word(Path::new("a/b"), 0));
        assert!(file_map.is_last_word(Path::new("d"), 2));
    }

    #[test]
    fn the_first_change_of_a_file_is_known_whatever_comes_later() {
        let mut file_map = file_map_of("http://a.example/", &["listed"]);
        let base = Url::parse("http://a.example/").unwrap();
        let path_rules =
            PathRules { home: base.origin(), base: base.clone(), authority: Authority::SameOrigin };
        let changes = [
            ("new", Some(Change::Created)),
            ("new", Some(Change::Updated)),
            ("old", Some(Change::Deleted)),
            ("old", Some(Change::Created)),
            ("listed", Some(Change::Created)),
            ("unsaid", None),
        ];
        for (line, (path, change)) in (1..).zip(changes) {
            let url = base.join(path).unwrap();
            file_map.change(url.as_str(), &url, &path_rules, line, change).unwrap();
        }
        let first = |path: &str| file_map.first_change(Path::new(path));
        assert_eq!(
            ["new", "old", "listed", "unsaid", "never"].map(first),
            [Some(Change::Created), Some(Change::Deleted), None, None, None]
        );
    }
}
