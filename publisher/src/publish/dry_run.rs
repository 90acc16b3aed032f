//! A dry run: builds go to another site of own folders, whose files are links to those of this one. A build replaces files and writes into none, so this
//! site stays as it is.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use walkdir::WalkDir;

use super::OWN_FOLDERS;
use crate::{
    error::{Action, Error},
    helpers::files,
    state,
};

/// The versions of JSON files, into which a build writes, are not linked: no patches are made.
const NOT_LINKED: &str = "versions";

/// A site to try builds in. It is removed when this is dropped.
#[derive(Debug)]
pub struct DryRun {
    /// The site, as it was named.
    named: PathBuf,
    original: PathBuf,
    folder: TempDir,
}

impl DryRun {
    /// A site like the one in `out`, if there is one.
    pub fn of(out: &Path) -> Result<Self, Error> {
        let cannot = Error::cannot(Action::PrepareDryRun, out);
        let original = std::path::absolute(out).map_err(&cannot)?;
        let folder = tempfile::tempdir().map_err(&cannot)?;
        let dry_run = Self { named: out.to_owned(), original, folder };
        let mut folders = files::folders_in(out).map_err(&cannot)?;
        folders.retain(|set| state::path(set).exists());
        folders.push(out.to_owned());
        let own = folders.iter().flat_map(|folder| OWN_FOLDERS.map(|name| folder.join(name)));
        own.filter(|own| own.is_dir()).try_for_each(|own| dry_run.link(&own))?;
        Ok(dry_run)
    }

    /// The folder here for one of the site.
    #[must_use]
    pub fn inside(&self, folder: &Path) -> PathBuf {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        match folder.strip_prefix(&self.original) {
            Ok(below) if below != Path::new("") => self.folder.path().join(below),
            _ => self.folder.path().to_owned(),
        }
    }

    /// Text with the paths of the site in place of those here.
    #[must_use]
    pub fn with_original_paths(&self, text: &str) -> String {
        let shown = |path: &Path| path.display().to_string();
        text.replace(&shown(self.folder.path()), &shown(&self.named))
    }

    /// The folder of the site for one here.
    #[must_use]
    pub fn original(&self, folder: &Path) -> PathBuf {
        self.original.join(folder.strip_prefix(self.folder.path()).unwrap_or(Path::new("")))
    }

    /// Makes this folder and those in it, also where they are links in the site, since a build writes into folders. Links the files.
    fn link(&self, folder: &Path) -> Result<(), Error> {
        let is_wanted = |entry: &walkdir::DirEntry| entry.file_name() != NOT_LINKED;
        for entry in WalkDir::new(folder).follow_links(true).into_iter().filter_entry(is_wanted) {
            let (path, is_folder) = match entry {
                Ok(entry) => (entry.path().to_owned(), entry.file_type().is_dir()),
                Err(error) => (broken_link(folder, error)?, false),
            };
            let there = self.inside(&path);
            let done = if is_folder {
                fs::create_dir_all(there)
            } else if state::is_lock(&path) {
                Ok(())
            } else {
                std::path::absolute(&path).and_then(|path| link(&path, &there))
            };
            done.map_err(Error::cannot(Action::PrepareDryRun, &path))?;
        }
        Ok(())
    }
}

/// The link that leads nowhere, if that is why nothing can be read there.
fn broken_link(folder: &Path, error: walkdir::Error) -> Result<PathBuf, Error> {
    let path = error.path().unwrap_or(folder).to_owned();
    let error = io::Error::from(error);
    if error.kind() == io::ErrorKind::NotFound && path.is_symlink() {
        return Ok(path);
    }
    Err(Error::cannot(Action::PrepareDryRun, &path)(error))
}

#[cfg(unix)]
fn link(from: &Path, to: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(from, to)
}

/// Where links need rights.
#[cfg(not(unix))]
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to).map(drop)
}
