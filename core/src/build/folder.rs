//! Which files of a folder are resources, and where each of them really lies. Inventories, dumps and servers ask here, so that they
//! cannot disagree.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use super::BuildError;
use super::beneath::open_beneath;
use super::file_path::{is_gone, is_loop};
use super::names::is_temporary;
use super::status::Identity;

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
    /// A name as unfinished files have it.
    #[error("its name ends as those of unfinished files do (~, .tmp, .part, .swp, .crdownload)")]
    Temporary,
    /// A folder that [`Folder::reserve`] keeps for the documents.
    #[error("reserved for the ResourceSync documents")]
    Reserved,
    /// A symbolic link, where [`SymbolicLinks::Never`] is followed.
    #[error("a symbolic link that is not followed")]
    LinkNotFollowed,
    /// A symbolic link out of the folder.
    #[error("a symbolic link to something outside the collection")]
    LinkOutside,
    /// A symbolic link to a folder inside, whose files are listed under its own name.
    #[error("a symbolic link to a folder of the collection, whose files are listed under its own name")]
    LinkToFolder,
    /// A symbolic link to something that is not looked at under its own name.
    #[error("a symbolic link to a file that is not published")]
    LinkToHidden,
    /// A symbolic link whose target is missing.
    #[error("a symbolic link whose target is missing")]
    Dangling,
    /// A folder that was walked before under another name.
    #[error("a folder that was walked before under another name")]
    WalkedBefore,
    /// A socket, pipe or device.
    #[error("neither a file nor a folder")]
    NotAFile,
    /// A URL longer than [`MAX_LOC`](super::MAX_LOC).
    #[error("its URL would be longer than 2048 characters")]
    LocTooLong,
    /// A name that is not Unicode, where names of files have to be: no URL leads back to it.
    #[error("its name is not Unicode, so it has no URL")]
    NotUnicode,
}

/// Why a path stands for no resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not worth a report: a hidden name, or what was left out on purpose.
    #[error("it is not published")]
    Hidden,
    /// Nothing is there.
    #[error("nothing is there")]
    Missing,
    /// A reason worth a word.
    #[error("{0}")]
    Skipped(SkipReason),
}

/// Why it is not known where a path leads.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LocateError {
    /// It stands for no resource.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// It could stand for one: the operating system does not say. That is no absence.
    #[error("cannot look at it: {0}; make it readable")]
    Unknown(#[from] io::Error),
}

impl LocateError {
    /// Why the path stands for no resource, if that is known.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(*refusal),
            Self::Unknown(_) => None,
        }
    }
}

type Admit = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// A folder of resources.
///
/// Not among them: hidden files (a name with a leading dot), unfinished ones (`~`, `.tmp`, `.part`, `.swp`, `.crdownload` at the end),
/// what was reserved or left out, and what a symbolic link reaches that [`SymbolicLinks`] keeps from being followed.
///
/// ```
/// use std::path::Path;
/// use resync_core::build::{Folder, Refusal, SkipReason};
///
/// let place = tempfile::tempdir()?;
/// std::fs::create_dir(place.path().join("resync"))?;
/// std::fs::write(place.path().join("film.part"), "half of it")?;
/// std::fs::write(place.path().join("film"), "all of it")?;
/// let folder = Folder::open(place.path())?.reserve("resync");
///
/// assert!(folder.locate(Path::new("film")).is_ok());
/// let refusal = |path| folder.locate(Path::new(path)).unwrap_err().refusal();
/// assert_eq!(refusal("film.part"), Some(Refusal::Skipped(SkipReason::Temporary)));
/// assert_eq!(refusal("resync"), Some(Refusal::Skipped(SkipReason::Reserved)));
/// assert_eq!(refusal(".git"), Some(Refusal::Hidden));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Folder {
    root: PathBuf,
    links: SymbolicLinks,
    admit: Option<Admit>,
    ignored: Option<Admit>,
    within: Option<Admit>,
    reserved: Vec<OsString>,
    left_out: Vec<PathBuf>,
}

impl Folder {
    /// The folder at `root`, which must exist. Links are followed [inside](SymbolicLinks::Inside).
    pub fn open(root: impl AsRef<Path>) -> Result<Self, BuildError> {
        let named = root.as_ref();
        let opened = named
            .canonicalize()
            .and_then(|real| if real.is_dir() { Ok(real) } else { Err(io::ErrorKind::NotADirectory.into()) });
        let root = opened.map_err(|source| BuildError::File { path: named.to_owned(), source })?;
        let (links, reserved, left_out) = (SymbolicLinks::default(), Vec::new(), Vec::new());
        Ok(Self { root, links, admit: None, ignored: None, within: None, reserved, left_out })
    }

    /// What becomes of symbolic links.
    #[must_use]
    pub fn links(mut self, links: SymbolicLinks) -> Self {
        self.links = links;
        self
    }

    /// Which files, and which folders with all in them, are looked at, by their path below the folder; in place of leaving out hidden
    /// and unfinished ones.
    #[must_use]
    pub fn admit(mut self, admit: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.admit = Some(Arc::new(admit));
        self
    }

    /// Which files, and which folders with all in them, are no resources besides those that never are, by their path below the folder.
    #[must_use]
    pub fn ignore(mut self, ignored: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.ignored = Some(Arc::new(ignored));
        self
    }

    /// Which files and folders a walk looks at, by their path below the folder. The others remain what they are: a symbolic link that is
    /// looked at may lead to them.
    #[must_use]
    pub fn within(mut self, within: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.within = Some(Arc::new(within));
        self
    }

    /// Keeps a name at the top for the documents: what lies there is no resource, and that is worth a word.
    #[must_use]
    pub fn reserve(mut self, name: impl Into<OsString>) -> Self {
        self.reserved.push(name.into());
        self
    }

    /// Leaves out a folder, wherever it lies, and all in it, without a word: that of the site, say. It must exist.
    pub fn leave_out(mut self, folder: impl AsRef<Path>) -> Result<Self, BuildError> {
        let path = folder.as_ref();
        let real =
            path.canonicalize().map_err(|source| BuildError::File { path: path.to_owned(), source })?;
        self.left_out.push(real);
        Ok(self)
    }

    /// The folder, without symbolic links in its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The real path of what a relative one stands for, a file or a folder, if it is public both as written and where it leads.
    pub fn locate(&self, relative: &Path) -> Result<PathBuf, LocateError> {
        self.admit_all(relative)?;
        let named = self.root.join(relative);
        let real =
            named.canonicalize().map_err(|error| absent(error, Refusal::Missing).or_nameless(&named))?;
        if self.is_left_out(&real) {
            return Err(Refusal::Hidden.into());
        }
        if real != named {
            self.judge_target(&real)?;
        }
        Ok(real)
    }

    /// Opens what [`locate`](Self::locate) found, and nothing to which a symbolic link leads that has taken its place since: such a link is
    /// an error, and no absence. Judge what was opened by the metadata of the open file.
    pub fn open_located(&self, real: &Path) -> Result<File, LocateError> {
        let opened = match real.strip_prefix(&self.root) {
            Ok(below) => open_beneath(&self.root, below),
            // Where a link may lead anywhere, one has led out.
            Err(_) => match (real.parent(), real.file_name()) {
                (Some(folder), Some(name)) => open_beneath(folder, Path::new(name)),
                _ => return Err(Refusal::Missing.into()),
            },
        };
        opened.map_err(|error| if is_loop(&error) { error.into() } else { absent(error, Refusal::Missing) })
    }

    pub(super) fn symbolic_links(&self) -> SymbolicLinks {
        self.links
    }

    /// Whether a walk looks at a relative path.
    pub(super) fn is_within(&self, relative: &Path) -> bool {
        self.within.as_ref().is_none_or(|within| within(relative))
    }

    /// Judges the last name of a relative path.
    pub(super) fn admit_name(&self, relative: &Path) -> Result<(), Refusal> {
        if self.reserved.iter().any(|name| relative.as_os_str() == name) {
            return Err(Refusal::Skipped(SkipReason::Reserved));
        }
        if self.ignored.as_ref().is_some_and(|ignored| ignored(relative)) {
            return Err(Refusal::Hidden);
        }
        match &self.admit {
            Some(admit) => admit(relative).then_some(()).ok_or(Refusal::Hidden),
            None => admit_by_default(relative.file_name().unwrap_or_default()),
        }
    }

    /// Judges every name of a relative path.
    fn admit_all(&self, relative: &Path) -> Result<(), Refusal> {
        let mut part = PathBuf::new();
        for component in relative.components() {
            let Component::Normal(name) = component else { return Err(Refusal::Hidden) };
            part.push(name);
            self.admit_name(&part)?;
        }
        Ok(())
    }

    /// Judges a symbolic link by where it leads; gives what is there.
    pub(super) fn judge_link(&self, path: &Path) -> Result<Metadata, LocateError> {
        if self.links == SymbolicLinks::Never {
            return Err(Refusal::Skipped(SkipReason::LinkNotFollowed).into());
        }
        let dangling = |error| absent(error, Refusal::Skipped(SkipReason::Dangling));
        let real = fs::canonicalize(path).map_err(dangling)?;
        let metadata = fs::metadata(&real).map_err(dangling)?;
        self.judge_target(&real)?;
        if self.links == SymbolicLinks::Inside && metadata.is_dir() {
            return Err(Refusal::Skipped(SkipReason::LinkToFolder).into());
        }
        Ok(metadata)
    }

    /// Judges a file, or a link to one, that is no longer what it was when its name was judged.
    pub(super) fn judge_again(&self, path: &Path) -> Result<Judged, LocateError> {
        let metadata = fs::symlink_metadata(path).map_err(|error| absent(error, Refusal::Missing))?;
        let (metadata, target) = if metadata.is_symlink() {
            let metadata = self.judge_link(path)?;
            let target = Identity::of(&metadata);
            (metadata, target)
        } else {
            (metadata, None)
        };
        if metadata.is_file() {
            Ok(Judged { metadata, target })
        } else {
            Err(Refusal::Skipped(SkipReason::NotAFile).into())
        }
    }

    /// What is not looked at under its own name is not looked at under another.
    fn judge_target(&self, real: &Path) -> Result<(), Refusal> {
        if self.is_left_out(real) {
            return Err(Refusal::Hidden);
        }
        match self.links {
            SymbolicLinks::Never => Err(Refusal::Skipped(SkipReason::LinkNotFollowed)),
            SymbolicLinks::Anywhere => Ok(()),
            SymbolicLinks::Inside => {
                let below =
                    real.strip_prefix(&self.root).map_err(|_| Refusal::Skipped(SkipReason::LinkOutside))?;
                self.admit_all(below).map_err(|_| Refusal::Skipped(SkipReason::LinkToHidden))
            }
        }
    }

    /// Whether a real path lies in what was left out.
    pub(super) fn is_left_out(&self, real: &Path) -> bool {
        self.left_out.iter().any(|folder| real.starts_with(folder))
    }
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder")
            .field("root", &self.root)
            .field("links", &self.links)
            .field("reserved", &self.reserved)
            .field("left_out", &self.left_out)
            .finish_non_exhaustive()
    }
}

/// Hidden files and folders are no resources, and neither are unfinished ones.
fn admit_by_default(name: &OsStr) -> Result<(), Refusal> {
    let bytes = name.as_encoded_bytes();
    if bytes.starts_with(b".") {
        return Err(Refusal::Hidden);
    }
    if is_temporary(bytes) { Err(Refusal::Skipped(SkipReason::Temporary)) } else { Ok(()) }
}

/// What is there now.
pub(super) struct Judged {
    pub(super) metadata: Metadata,
    /// What a symbolic link leads to.
    pub(super) target: Option<Identity>,
}

/// What an error says of something that was looked for: that it is not there, or nothing at all.
fn absent(error: io::Error, refusal: Refusal) -> LocateError {
    if is_gone(&error) { refusal.into() } else { error.into() }
}

impl LocateError {
    /// Nothing can be there where the name itself, and not what a link says, is longer than names can be.
    fn or_nameless(self, named: &Path) -> Self {
        let is_too_long = |error: &io::Error| error.kind() == io::ErrorKind::InvalidFilename;
        match self {
            Self::Unknown(error)
                if is_too_long(&error)
                    && fs::symlink_metadata(named).is_err_and(|error| is_too_long(&error)) =>
            {
                Refusal::Missing.into()
            }
            other => other,
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A collection with `a/b`, and beside it a folder with a secret of the same name.
    fn place() -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        for folder in ["collection", "private"] {
            fs::create_dir_all(place.path().join(folder).join("a")).unwrap();
            fs::write(place.path().join(folder).join("a/b"), folder).unwrap();
        }
        let folder = Folder::open(place.path().join("collection")).unwrap();
        (place, folder)
    }

    #[test]
    fn what_was_located_is_opened() {
        let (_place, folder) = place();
        symlink("a/b", folder.root().join("link")).unwrap();
        for name in ["a/b", "link"] {
            let real = folder.locate(Path::new(name)).unwrap();
            assert_eq!(io::read_to_string(folder.open_located(&real).unwrap()).unwrap(), "collection");
        }
    }

    #[test]
    fn a_link_that_took_the_place_of_a_file_or_folder_since_it_was_located_is_not_followed() {
        for replaced in ["a/b", "a"] {
            let (place, folder) = place();
            let real = folder.locate(Path::new("a/b")).unwrap();
            fs::rename(folder.root().join(replaced), place.path().join("old")).unwrap();
            symlink(place.path().join("private").join(replaced), folder.root().join(replaced)).unwrap();
            assert_eq!(fs::read_to_string(&real).unwrap(), "private", "by its path it would be followed");
            let refused = folder.open_located(&real).unwrap_err();
            assert!(refused.refusal().is_none(), "this must not look like an absence: {refused}");
        }
    }

    #[test]
    fn what_has_gone_since_it_was_located_is_missing() {
        let (_place, folder) = place();
        let real = folder.locate(Path::new("a/b")).unwrap();
        fs::remove_file(&real).unwrap();
        assert_eq!(folder.open_located(&real).unwrap_err().refusal(), Some(Refusal::Missing));
    }

    #[test]
    fn where_links_may_lead_anywhere_what_they_lead_to_is_opened() {
        let (place, folder) = place();
        let folder = folder.links(SymbolicLinks::Anywhere);
        symlink(place.path().join("private/a/b"), folder.root().join("out")).unwrap();
        let real = folder.locate(Path::new("out")).unwrap();
        assert_eq!(io::read_to_string(folder.open_located(&real).unwrap()).unwrap(), "private");
    }
}
