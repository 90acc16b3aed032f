//! The files below a folder, in the order of their URLs.
//!
//! A folder's names are sorted as they stand in the URL, folders with their slash, so that going down folder by folder gives URLs
//! in ascending order. What is held are the names of the folders on the way down: of each what stands for it in the URL, and 16 bytes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use super::BuildError;
use super::file_path::is_gone;
use super::folder::{Folder, LocateError, Refusal, SkipReason, Skipped, SymbolicLinks};
use super::names::{Foreign, MAX_LOC, Unportable, name_of, segment_of};
use super::status::Identity;

/// Is called for what a walk leaves out, for what is hard to copy, and for links.
pub(super) struct Listener {
    pub(super) skipped: Box<dyn FnMut(Skipped) + Send>,
    pub(super) unportable: Box<dyn FnMut(Unportable) + Send>,
    pub(super) link: Box<dyn FnMut(&Path) + Send>,
}

impl Listener {
    fn refused(&mut self, path: &Path, refusal: Refusal) {
        if let Refusal::Skipped(reason) = refusal {
            (self.skipped)(Skipped { path: path.to_owned(), reason });
        }
    }
}

/// A file that is a resource.
#[derive(Debug)]
pub(super) struct Found {
    /// Below the root.
    pub(super) path: PathBuf,
    pub(super) loc: String,
    /// What a symbolic link led to when it was judged; what is read must be the same.
    pub(super) target: Option<Identity>,
}

/// Goes down folder by folder.
pub(super) struct Walker {
    folder: Folder,
    listener: Listener,
    walked: HashSet<Identity>,
    stack: Vec<Level>,
}

/// A folder on the way down.
struct Level {
    /// Below the root.
    path: PathBuf,
    /// With a slash at the end.
    url: String,
    names: Names,
}

impl Walker {
    pub(super) fn new(folder: Folder, url: String, listener: Listener) -> Result<Self, BuildError> {
        let unread = |source| BuildError::File { path: folder.root().to_owned(), source };
        let identity = Identity::of(&fs::metadata(folder.root()).map_err(unread)?);
        let (walked, stack) = (HashSet::from_iter(identity), Vec::new());
        let mut walker = Self { folder, listener, walked, stack };
        walker.enter(PathBuf::new(), url, true)?;
        Ok(walker)
    }

    /// The names in a folder; none where it is gone by now.
    fn names(&mut self, level: &Path, is_root: bool) -> Result<Option<Names>, BuildError> {
        let full = self.folder.root().join(level);
        let unread = |source| BuildError::File { path: full.clone(), source };
        let entries = match fs::read_dir(&full) {
            Ok(entries) => entries,
            Err(error) if is_gone(&error) && !is_root => return Ok(None),
            Err(error) => return Err(unread(error)),
        };
        let mut names = Names::default();
        let mut path = level.to_owned();
        for entry in entries {
            let entry = entry.map_err(unread)?;
            let name = entry.file_name();
            path.push(&name);
            if self.folder.is_within(&path) {
                let kind = self.folder.admit_name(&path).map_err(LocateError::from);
                if let Some(kind) = self.accepted(&path, kind.and_then(|()| self.judge(&entry)))?
                    && let Err(refusal) = names.push(&name, kind)
                {
                    self.listener.refused(&path, refusal);
                }
            }
            path.pop();
        }
        names.sort();
        Ok(Some(names))
    }

    /// Reports what is no resource; what cannot be looked at ends the walk.
    fn accepted<T>(&mut self, path: &Path, judged: Result<T, LocateError>) -> Result<Option<T>, BuildError> {
        match judged {
            Ok(judged) => Ok(Some(judged)),
            Err(LocateError::Refused(refusal)) => {
                self.listener.refused(path, refusal);
                Ok(None)
            }
            Err(LocateError::Unknown(source)) => {
                Err(BuildError::File { path: self.folder.root().join(path), source })
            }
        }
    }

    fn judge(&self, entry: &DirEntry) -> Result<Kind, LocateError> {
        let file_type = match entry.file_type() {
            Ok(file_type) => file_type,
            Err(error) if is_gone(&error) => return Err(Refusal::Missing.into()),
            Err(error) => return Err(error.into()),
        };
        if file_type.is_symlink() {
            let target = self.folder.judge_link(&entry.path())?.file_type();
            return match (target.is_dir(), target.is_file()) {
                (true, _) => Ok(Kind::Folder),
                (_, true) => Ok(Kind::Link),
                _ => Err(Refusal::Skipped(SkipReason::NotAFile).into()),
            };
        }
        if file_type.is_dir() {
            if self.folder.is_left_out(&entry.path()) {
                Err(Refusal::Hidden.into())
            } else {
                Ok(Kind::Folder)
            }
        } else if file_type.is_file() {
            Ok(Kind::File)
        } else {
            Err(Refusal::Skipped(SkipReason::NotAFile).into())
        }
    }

    fn enter(&mut self, path: PathBuf, url: String, is_root: bool) -> Result<(), BuildError> {
        if self.folder.symbolic_links() == SymbolicLinks::Anywhere && !is_root {
            let full = self.folder.root().join(&path);
            let looked = full.canonicalize().and_then(|real| Ok((fs::metadata(&real)?, real)));
            let (metadata, real) = match looked {
                Ok(found) => found,
                Err(error) if is_gone(&error) => return Ok(()),
                Err(source) => return Err(BuildError::File { path: full, source }),
            };
            if self.folder.is_left_out(&real) {
                return Ok(());
            }
            if Identity::of(&metadata).is_some_and(|identity| !self.walked.insert(identity)) {
                self.listener.refused(&path, Refusal::Skipped(SkipReason::WalkedBefore));
                return Ok(());
            }
        }
        if let Some(names) = self.names(&path, is_root)? {
            self.stack.push(Level { path, url, names });
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, loc: String, kind: Kind) -> Result<Option<Found>, BuildError> {
        let target = match kind {
            Kind::Link => {
                let judged = self.folder.judge_link(&self.folder.root().join(&path));
                let Some(metadata) = self.accepted(&path, judged)? else { return Ok(None) };
                Identity::of(&metadata)
            }
            Kind::File | Kind::Folder => None,
        };
        if loc.len() > MAX_LOC {
            self.listener.refused(&path, Refusal::Skipped(SkipReason::LocTooLong));
            return Ok(None);
        }
        if kind == Kind::Link {
            (self.listener.link)(&path);
        }
        if let Some(cause) = Foreign::of(&path) {
            (self.listener.unportable)(Unportable { path: path.clone(), cause });
        }
        Ok(Some(Found { path, loc, target }))
    }
}

impl Iterator for Walker {
    type Item = Result<Found, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let level = self.stack.last_mut()?;
            let Some((segment, kind)) = level.names.next() else {
                self.stack.pop();
                continue;
            };
            let loc = [level.url.as_str(), segment].concat();
            let segment = segment.strip_suffix('/').unwrap_or(segment);
            let Some(name) = name_of(segment) else {
                // On some systems a name can be what no text stands for.
                let path = level.path.join(segment);
                self.listener.refused(&path, Refusal::Skipped(SkipReason::NotUnicode));
                continue;
            };
            let path = level.path.join(name);
            let found = if kind == Kind::Folder {
                self.enter(path, loc, false).map(|()| None)
            } else {
                self.file(path, loc, kind)
            };
            match found {
                Ok(Some(found)) => return Some(Ok(found)),
                Ok(None) => {}
                Err(error) => {
                    self.stack.clear();
                    return Some(Err(error));
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    /// A symbolic link to a file.
    Link,
    Folder,
}

/// The names of one folder, in the order of their URLs: one text for all, since there can be millions.
#[derive(Default)]
struct Names {
    text: String,
    order: Vec<Name>,
    next: usize,
}

struct Name {
    start: usize,
    length: u16,
    kind: Kind,
}

impl Names {
    /// A name too long for a URL is refused.
    fn push(&mut self, name: &OsStr, kind: Kind) -> Result<(), Refusal> {
        let start = self.text.len();
        self.text.extend(segment_of(name));
        if kind == Kind::Folder {
            self.text.push('/');
        }
        let Ok(length) = u16::try_from(self.text.len() - start) else {
            self.text.truncate(start);
            return Err(Refusal::Skipped(SkipReason::LocTooLong));
        };
        self.order.push(Name { start, length, kind });
        Ok(())
    }

    fn sort(&mut self) {
        let Self { text, order, .. } = self;
        text.shrink_to_fit();
        order.shrink_to_fit();
        order.sort_unstable_by(|one, other| one.of(text).cmp(other.of(text)));
    }

    fn next(&mut self) -> Option<(&str, Kind)> {
        let name = self.order.get(self.next)?;
        self.next += 1;
        Some((name.of(&self.text), name.kind))
    }
}

impl Name {
    fn of<'a>(&self, text: &'a str) -> &'a str {
        &text[self.start..self.start + usize::from(self.length)]
    }
}
