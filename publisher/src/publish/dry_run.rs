//! A dry run: builds go to another site whose files are links to those of this one. A build replaces files and writes into none, so this site stays as it is.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use tempfile::TempDir;
use walkdir::WalkDir;

use super::OWN_FOLDERS;
use crate::{error::Error, helpers::files, state};

/// The versions of JSON files, into which a build writes, are not linked: no patches are made.
const NOT_LINKED: &str = "versions";

/// A site to try builds in. It is removed when this is dropped.
#[derive(Debug)]
pub struct DryRun {
    original: PathBuf,
    folder: TempDir,
}

impl DryRun {
    /// A site like the one in `out`, if there is one.
    pub fn of(out: &Path) -> Result<Self, Error> {
        let cannot = Error::cannot("prepare a dry run of", out);
        let original = std::path::absolute(out).map_err(&cannot)?;
        let dry_run = Self { original, folder: tempfile::tempdir().map_err(&cannot)? };
        let mut folders = files::folders_in(out).map_err(&cannot)?;
        folders.retain(|set| state::path(set).exists());
        folders.push(out.to_owned());
        let own = folders.iter().flat_map(|folder| OWN_FOLDERS.map(|name| folder.join(name)));
        own.filter(|own| own.is_dir()).try_for_each(|own| dry_run.link(&own)).map_err(&cannot)?;
        Ok(dry_run)
    }

    /// The folder here for one of the site.
    #[must_use]
    pub fn inside(&self, folder: &Path) -> PathBuf {
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        self.folder.path().join(folder.strip_prefix(&self.original).unwrap_or(Path::new("")))
    }

    /// The folder of the site for one here.
    pub(super) fn original(&self, folder: &Path) -> PathBuf {
        self.original.join(folder.strip_prefix(self.folder.path()).unwrap_or(Path::new("")))
    }

    fn link(&self, folder: &Path) -> io::Result<()> {
        let is_wanted = |entry: &walkdir::DirEntry| entry.file_name() != NOT_LINKED;
        for entry in WalkDir::new(folder).into_iter().filter_entry(is_wanted) {
            let entry = entry?;
            let there = self.inside(entry.path());
            if entry.file_type().is_dir() {
                fs::create_dir_all(there)?;
            } else if !state::is_lock(entry.path()) {
                link(&std::path::absolute(entry.path())?, &there)?;
            }
        }
        Ok(())
    }
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
