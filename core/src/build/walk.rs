//! The files below a folder, in the order of their URLs.
//!
//! A folder's names are sorted as they stand in the URL, folders with their slash, so that going down folder by folder gives URLs
//! in ascending order. What is held are the names of the folders on the way down: of each what stands for it in the URL, and 16 bytes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};

use super::BuildError;
use super::folder::{Folder, Identity, Refusal, SkipReason, Skipped, SymbolicLinks};
use super::names::{Foreign, MAX_LOC, Unportable, name_of, segment_of};

/// Hears what a walk comes across.
pub(super) struct Listener {
    pub(super) skipped: Box<dyn FnMut(Skipped) + Send>,
    pub(super) unportable: Box<dyn FnMut(Unportable) + Send>,
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

    fn names(&mut self, level: &Path) -> io::Result<Names> {
        let mut names = Names::default();
        let mut path = level.to_owned();
        for entry in fs::read_dir(self.folder.root().join(level))? {
            let entry = entry?;
            let name = entry.file_name();
            path.push(&name);
            let kind = self.folder.admit_name(&path).and_then(|()| self.judge(&entry));
            match kind {
                Ok(kind) => names.push(&name, kind),
                Err(refusal) => self.listener.refused(&path, refusal),
            }
            path.pop();
        }
        names.sort();
        Ok(names)
    }

    fn judge(&self, entry: &DirEntry) -> Result<Kind, Refusal> {
        let file_type = entry.file_type().map_err(|_| Refusal::Missing)?;
        if file_type.is_symlink() {
            let target = self.folder.judge_link(&entry.path())?.file_type();
            return match (target.is_dir(), target.is_file()) {
                (true, _) => Ok(Kind::Folder),
                (_, true) => Ok(Kind::Link),
                _ => Err(Refusal::Skipped(SkipReason::NotAFile)),
            };
        }
        if file_type.is_dir() {
            if self.folder.is_left_out(&entry.path()) { Err(Refusal::Hidden) } else { Ok(Kind::Folder) }
        } else if file_type.is_file() {
            Ok(Kind::File)
        } else {
            Err(Refusal::Skipped(SkipReason::NotAFile))
        }
    }

    fn enter(&mut self, path: PathBuf, url: String, is_root: bool) -> Result<(), BuildError> {
        let full = self.folder.root().join(&path);
        if self.folder.symbolic_links() == SymbolicLinks::Anywhere && !is_root {
            if full.canonicalize().is_ok_and(|real| self.folder.is_left_out(&real)) {
                return Ok(());
            }
            let identity = fs::metadata(&full).ok().as_ref().and_then(Identity::of);
            if identity.is_some_and(|identity| !self.walked.insert(identity)) {
                self.listener.refused(&path, Refusal::Skipped(SkipReason::WalkedBefore));
                return Ok(());
            }
        }
        match self.names(&path) {
            Ok(names) => self.stack.push(Level { path, url, names }),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_root => {}
            Err(source) => return Err(BuildError::File { path: full, source }),
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, loc: String, kind: Kind) -> Option<Found> {
        let target = match kind {
            Kind::Link => match self.folder.judge_link(&self.folder.root().join(&path)) {
                Ok(metadata) => Identity::of(&metadata),
                Err(refusal) => {
                    self.listener.refused(&path, refusal);
                    return None;
                }
            },
            Kind::File | Kind::Folder => None,
        };
        if loc.len() > MAX_LOC {
            self.listener.refused(&path, Refusal::Skipped(SkipReason::LocTooLong));
            return None;
        }
        if let Some(cause) = Foreign::of(&path) {
            (self.listener.unportable)(Unportable { path: path.clone(), cause });
        }
        Some(Found { path, loc, target })
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
            let loc = format!("{}{segment}", level.url);
            let name = name_of(segment.strip_suffix('/').unwrap_or(segment))
                .expect("a segment that was made of a name leads back to it");
            let path = level.path.join(name);
            if kind == Kind::Folder {
                if let Err(error) = self.enter(path, loc, false) {
                    self.stack.clear();
                    return Some(Err(error));
                }
            } else if let Some(found) = self.file(path, loc, kind) {
                return Some(Ok(found));
            }
        }
    }
}

impl fmt::Debug for Walker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walker").field("folder", &self.folder).finish_non_exhaustive()
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
    /// A name has at most 255 bytes, each three in a URL.
    length: u16,
    kind: Kind,
}

impl Names {
    fn push(&mut self, name: &OsStr, kind: Kind) {
        let start = self.text.len();
        let slash = if kind == Kind::Folder { "/" } else { "" };
        write!(self.text, "{}{slash}", segment_of(name)).expect("a String takes all");
        let length =
            u16::try_from(self.text.len() - start).expect("no file system has names of 20,000 bytes");
        self.order.push(Name { start, length, kind });
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
