//! Which files of a folder are resources. The inventory and the server ask the same question here, so they cannot disagree.

use std::{
    io,
    path::{Component, Path, PathBuf},
};

use crate::site::DOCUMENT_FOLDER;

/// A folder of resources.
///
/// Not among them: hidden files (a name with a leading dot), temporary ones (`~`, `.tmp`, `.part`, `.swp`, `.crdownload` at the end),
/// the folder into which the site is written, the documents' own folder, and whatever a symbolic link reaches outside.
#[derive(Clone, Debug)]
pub struct Collection {
    root: PathBuf,
    out: PathBuf,
}

/// Why a path is no resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A hidden name, or part of the site that is written.
    NotPublic,
    /// The name of a file that somebody is still writing.
    Temporary,
    /// A symbolic link that leads out of the folder.
    Outside,
    /// Nothing there.
    Missing,
}

impl Collection {
    /// The collection in `directory`, whose site is written to `out`. Both must exist.
    pub fn open(directory: &Path, out: &Path) -> io::Result<Self> {
        let root = directory.canonicalize()?;
        if !root.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { root, out: out.canonicalize()? })
    }

    /// The folder, without symbolic links in its path.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether the site is written into this very folder, documents beside resources.
    pub fn holds_its_site(&self) -> bool {
        self.out == self.root
    }

    /// Checks that the names of a relative path are those of a resource (or of a folder that may hold some).
    pub fn admit(&self, relative: &Path) -> Result<(), Refusal> {
        for (depth, part) in relative.components().enumerate() {
            let Component::Normal(name) = part else { return Err(Refusal::NotPublic) };
            let bytes = name.as_encoded_bytes();
            if bytes.starts_with(b".") || (depth == 0 && name == DOCUMENT_FOLDER) {
                return Err(Refusal::NotPublic);
            }
            if is_temporary(bytes) {
                return Err(Refusal::Temporary);
            }
        }
        Ok(())
    }

    /// The real path behind a relative one, if it is inside and public both as written and where it leads.
    pub fn locate(&self, relative: &Path) -> Result<PathBuf, Refusal> {
        self.admit(relative)?;
        let real = self.root.join(relative).canonicalize().map_err(|_| Refusal::Missing)?;
        let inside = real.strip_prefix(&self.root).map_err(|_| Refusal::Outside)?;
        let in_the_site =
            !self.holds_its_site() && real.starts_with(&self.out) && self.out.starts_with(&self.root);
        if in_the_site {
            return Err(Refusal::NotPublic);
        }
        self.admit(inside)?;
        Ok(real)
    }
}

fn is_temporary(name: &[u8]) -> bool {
    const ENDS: [&[u8]; 5] = [b"~", b".tmp", b".part", b".swp", b".crdownload"];
    ENDS.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> (tempfile::TempDir, Collection) {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("data/site");
        fs::create_dir_all(&out).unwrap();
        let collection = Collection::open(&folder.path().join("data"), &out).unwrap();
        (folder, collection)
    }

    #[test]
    fn hidden_temporary_and_own_files_are_no_resources() {
        let (_keep, collection) = folder();
        let refusal = |name: &str| collection.admit(Path::new(name)).err();
        for name in [".git/config", "a/.hidden", ".x.tmp", "resync/resourcelist.xml", "../x", "/etc"] {
            assert_eq!(refusal(name), Some(Refusal::NotPublic), "{name}");
        }
        for name in ["draft~", "x.tmp", "film.part", "unpacked.tmp/file"] {
            assert_eq!(refusal(name), Some(Refusal::Temporary), "{name}");
        }
        for name in ["a.txt", "a/resync/b", "temp", "party", "resync.html"] {
            assert_eq!(refusal(name), None, "{name}");
        }
    }

    #[test]
    fn the_site_inside_the_collection_is_left_out() {
        let (_keep, collection) = folder();
        fs::write(collection.root().join("site/page.html"), "x").unwrap();
        assert_eq!(collection.locate(Path::new("site/page.html")), Err(Refusal::NotPublic));
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_judged_by_where_it_leads() {
        use std::os::unix::fs::symlink;
        let (keep, collection) = folder();
        fs::write(keep.path().join("secret"), "x").unwrap();
        fs::write(collection.root().join("real.txt"), "x").unwrap();
        fs::write(collection.root().join(".env"), "x").unwrap();
        symlink(keep.path().join("secret"), collection.root().join("out")).unwrap();
        symlink("real.txt", collection.root().join("in")).unwrap();
        symlink(".env", collection.root().join("env")).unwrap();
        symlink("nowhere", collection.root().join("broken")).unwrap();
        assert_eq!(collection.locate(Path::new("out")), Err(Refusal::Outside));
        assert_eq!(collection.locate(Path::new("env")), Err(Refusal::NotPublic));
        assert_eq!(collection.locate(Path::new("broken")), Err(Refusal::Missing));
        assert_eq!(collection.locate(Path::new("in")), Ok(collection.root().join("real.txt")));
    }
}
