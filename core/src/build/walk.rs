//! The files below a folder, in the order of their URLs.
//!
//! A folder's names are sorted as they stand in the URL, folders with their slash, so that going down folder by folder gives URLs
//! in ascending order. No more than the names of the folders on the way down are held.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::vec;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use thiserror::Error;

use super::BuildError;

/// Longest URI that a `loc` holds (RS-047).
pub const MAX_LOC: usize = 2048;

/// What RFC 3986 lets stand in a segment of a path is not encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// What becomes of symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SymbolicLinks {
    /// Links to files in the folder are resources; links out of it, and links to folders, are not followed.
    #[default]
    Inside,
    /// None is followed.
    Never,
    /// All are followed, wherever they lead. Every folder is walked once, under the first of its names.
    Anywhere,
}

/// Something that is no resource, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it lies, below the folder.
    pub path: PathBuf,
    /// Why it is left out.
    pub reason: SkipReason,
}

/// Why something is no resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SkipReason {
    /// A symbolic link that [`SymbolicLinks`] keeps from being followed: out of the folder, or none at all.
    #[error("a symbolic link that is not followed")]
    LinkNotFollowed,
    /// A symbolic link to a folder inside, whose files are listed under its own name.
    #[error("a symbolic link to a folder inside, whose files are listed under its own name")]
    LinkToFolder,
    /// A folder that was walked before under another name.
    #[error("a folder that was walked before under another name")]
    WalkedBefore,
    /// A symbolic link that leads nowhere.
    #[error("a symbolic link that leads nowhere")]
    Dangling,
    /// A socket, pipe or device.
    #[error("neither a file nor a folder")]
    NotAFile,
    /// A URL longer than [`MAX_LOC`].
    #[error("its URL would be longer than 2048 characters")]
    LocTooLong,
}

/// Decides by its path below the folder whether a file, or a folder with all in it, is looked at.
pub(super) type Admit = Box<dyn Fn(&Path) -> bool + Send>;
/// Hears what was left out.
pub(super) type Tell = Box<dyn FnMut(Skipped) + Send>;

/// Which file or folder it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity(u64, u64);

impl Identity {
    #[cfg(unix)]
    #[expect(clippy::unnecessary_wraps, reason = "other systems do not tell")]
    pub(super) fn of(metadata: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        Some(Self(metadata.dev(), metadata.ino()))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &Metadata) -> Option<Self> {
        None
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
    root: PathBuf,
    real_root: PathBuf,
    links: SymbolicLinks,
    admit: Admit,
    tell: Tell,
    walked: HashSet<Identity>,
    stack: Vec<Folder>,
}

struct Folder {
    /// With a slash at the end.
    url: String,
    children: vec::IntoIter<Child>,
}

struct Child {
    /// The name as it stands in the URL; a folder's with its slash.
    segment: String,
    /// Below the root.
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    File(Option<Identity>),
    Folder(Option<Identity>),
}

impl Walker {
    pub(super) fn new(
        root: PathBuf,
        url: String,
        links: SymbolicLinks,
        admit: Admit,
        tell: Tell,
    ) -> Result<Self, BuildError> {
        let looked_at = fs::canonicalize(&root).and_then(|real| Ok((fs::metadata(&real)?, real)));
        let (metadata, real_root) =
            looked_at.map_err(|source| BuildError::File { path: root.clone(), source })?;
        let (walked, stack) = (HashSet::from_iter(Identity::of(&metadata)), Vec::new());
        let mut walker = Self { root, real_root, links, admit, tell, walked, stack };
        match walker.children(Path::new("")) {
            Ok(children) => walker.stack.push(Folder { url, children }),
            Err(source) => return Err(BuildError::File { path: walker.root, source }),
        }
        Ok(walker)
    }

    fn children(&mut self, folder: &Path) -> io::Result<vec::IntoIter<Child>> {
        let mut children = Vec::new();
        for entry in fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name();
            let path = folder.join(&name);
            if !(self.admit)(&path) {
                continue;
            }
            match self.judge(&entry) {
                Ok(kind) => {
                    let mut segment = percent_encode(name.as_encoded_bytes(), ENCODED).to_string();
                    if matches!(kind, Kind::Folder(_)) {
                        segment.push('/');
                    }
                    children.push(Child { segment, path, kind });
                }
                Err(reason) => (self.tell)(Skipped { path, reason }),
            }
        }
        children.sort_unstable_by(|one, other| one.segment.cmp(&other.segment));
        Ok(children.into_iter())
    }

    fn judge(&self, entry: &DirEntry) -> Result<Kind, SkipReason> {
        let Ok(file_type) = entry.file_type() else { return Err(SkipReason::NotAFile) };
        if file_type.is_symlink() {
            return self.judge_link(&entry.path());
        }
        if file_type.is_dir() {
            let identity = match self.links {
                SymbolicLinks::Anywhere => entry.metadata().ok().as_ref().and_then(Identity::of),
                SymbolicLinks::Inside | SymbolicLinks::Never => None,
            };
            return Ok(Kind::Folder(identity));
        }
        if file_type.is_file() { Ok(Kind::File(None)) } else { Err(SkipReason::NotAFile) }
    }

    fn judge_link(&self, path: &Path) -> Result<Kind, SkipReason> {
        if self.links == SymbolicLinks::Never {
            return Err(SkipReason::LinkNotFollowed);
        }
        let real = fs::canonicalize(path).map_err(|_| SkipReason::Dangling)?;
        let metadata = fs::metadata(&real).map_err(|_| SkipReason::Dangling)?;
        let inside = self.links == SymbolicLinks::Inside;
        if inside {
            let below = real.strip_prefix(&self.real_root).map_err(|_| SkipReason::LinkNotFollowed)?;
            if metadata.is_dir() {
                return Err(SkipReason::LinkToFolder);
            }
            // What is not looked at under its own name is not looked at under another.
            if !below.ancestors().filter(|part| !part.as_os_str().is_empty()).all(|part| (self.admit)(part)) {
                return Err(SkipReason::LinkNotFollowed);
            }
        }
        let identity = Identity::of(&metadata);
        if metadata.is_dir() {
            return Ok(Kind::Folder(identity));
        }
        if metadata.is_file() { Ok(Kind::File(identity)) } else { Err(SkipReason::NotAFile) }
    }

    fn enter(&mut self, path: PathBuf, url: String, identity: Option<Identity>) -> Result<(), BuildError> {
        if identity.is_some_and(|identity| !self.walked.insert(identity)) {
            (self.tell)(Skipped { path, reason: SkipReason::WalkedBefore });
            return Ok(());
        }
        match self.children(&path) {
            Ok(children) => self.stack.push(Folder { url, children }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(BuildError::File { path: self.root.join(path), source }),
        }
        Ok(())
    }
}

impl Iterator for Walker {
    type Item = Result<Found, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let folder = self.stack.last_mut()?;
            let Some(Child { segment, path, kind }) = folder.children.next() else {
                self.stack.pop();
                continue;
            };
            let loc = format!("{}{segment}", folder.url);
            match kind {
                Kind::Folder(identity) => {
                    if let Err(error) = self.enter(path, loc, identity) {
                        self.stack.clear();
                        return Some(Err(error));
                    }
                }
                Kind::File(_) if loc.len() > MAX_LOC => {
                    (self.tell)(Skipped { path, reason: SkipReason::LocTooLong });
                }
                Kind::File(target) => return Some(Ok(Found { path, loc, target })),
            }
        }
    }
}

impl fmt::Debug for Walker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walker").field("root", &self.root).field("links", &self.links).finish_non_exhaustive()
    }
}

/// Hidden files and folders are no resources.
pub(super) fn is_visible(relative: &Path) -> bool {
    !relative.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

/// The way back: the path below the root that a URL stands for.
pub(super) fn path_of(loc: &str, url: &str) -> Option<PathBuf> {
    loc.strip_prefix(url)?.split('/').map(name_of).collect()
}

fn name_of(segment: &str) -> Option<OsString> {
    let bytes: Vec<u8> = percent_decode_str(segment).collect();
    let climbs = matches!(bytes.as_slice(), b"" | b"." | b"..");
    let separates =
        |byte: &u8| matches!(byte, b'/' | b'\0') || (cfg!(windows) && matches!(byte, b'\\' | b':'));
    if climbs || bytes.iter().any(separates) { None } else { file_name(bytes) }
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "other systems have names that bytes cannot make")]
fn file_name(bytes: Vec<u8>) -> Option<OsString> {
    Some(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

#[cfg(not(unix))]
fn file_name(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}

/// The base URL with a slash at its end.
pub(super) fn folder_url(base: &str) -> String {
    format!("{}/", base.strip_suffix('/').unwrap_or(base))
}

/// The extension of a file name as far as it is harmless: up to eight letters and digits, in lower case.
pub(super) fn extension(loc: &str) -> Option<String> {
    let path = loc.split(['?', '#']).next()?;
    let extension = Path::new(path.rsplit('/').next()?).extension().and_then(OsStr::to_str)?;
    let harmless = extension.len() <= 8 && extension.bytes().all(|byte| byte.is_ascii_alphanumeric());
    harmless.then(|| extension.to_ascii_lowercase())
}
