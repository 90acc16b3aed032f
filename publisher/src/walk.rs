//! Which files of a collection are resources: walks the folder, and says why it leaves something out.
//!
//! Every folder is walked once, under its own name. A symbolic link to a folder of the collection is not followed, since links between folders
//! give each file as many names as there are ways to it.

use std::{
    fs::FileType,
    io,
    path::{Component, Path, PathBuf},
};

use walkdir::{DirEntry, WalkDir};

use crate::{
    collection::{Collection, Refusal},
    inventory::{InventoryError, MAX_URL},
    settings::BaseUrl,
    site::DOCUMENT_FOLDER,
};

/// What lies in a collection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// The resources, ordered by path.
    pub(crate) paths: Vec<PathBuf>,
    /// What was left out and is worth a word.
    pub(crate) skipped: Vec<Skipped>,
    /// The resources whose names not every system can keep.
    pub(crate) unportable: Vec<Unportable>,
}

/// Something that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Path below the collection's folder.
    pub path: PathBuf,
    /// The cause.
    pub reason: Reason,
}

/// Why something was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A name as unfinished files have it.
    #[error("its name ends as those of unfinished files do (~, .tmp, .part, .swp, .crdownload)")]
    Temporary,
    /// A symbolic link out of the collection.
    #[error("a symbolic link that leads out of the collection")]
    LeadsOutside,
    /// A symbolic link to a folder of the collection.
    #[error("a symbolic link to a folder of the collection, whose files are listed under its own name")]
    LeadsToFolder,
    /// A symbolic link to a hidden or temporary file.
    #[error("a symbolic link to a file that is not published")]
    LeadsToHidden,
    /// A socket, pipe or device.
    #[error("neither a file nor a folder")]
    NotAFile,
    /// The documents' own folder, below the collection.
    #[error("reserved for the ResourceSync documents")]
    Reserved,
    /// A URL longer than [`MAX_URL`].
    #[error("its URL would be longer than 2048 characters")]
    UrlTooLong,
}

/// A resource that is published, percent-encoded, under a name that a Destination on another system cannot give its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unportable {
    /// Path below the collection's folder.
    pub path: PathBuf,
    /// What is in it.
    pub cause: Foreign,
}

/// What some systems cannot keep in a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Foreign {
    /// Bytes that are no UTF-8.
    #[error("bytes that are no UTF-8")]
    NotUtf8,
    /// A backslash, which separates folders elsewhere.
    #[error("a backslash")]
    Backslash,
    /// A control character.
    #[error("a control character")]
    Control,
}

impl Foreign {
    /// What in the names of a relative path some systems cannot keep.
    fn of(relative: &Path) -> Option<Self> {
        relative.components().find_map(|part| {
            let Component::Normal(name) = part else { return None };
            match name.to_str() {
                None => Some(Self::NotUtf8),
                Some(name) if name.contains('\\') => Some(Self::Backslash),
                Some(name) => name.contains(char::is_control).then_some(Self::Control),
            }
        })
    }
}

/// Walks `collection`.
pub(crate) fn walk(collection: &Collection, base: &BaseUrl) -> Result<Found, InventoryError> {
    let mut found = Found::default();
    let mut walk = WalkDir::new(collection.root()).min_depth(1).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                found.skipped.extend(excuse(collection, error)?);
                continue;
            }
        };
        let Ok(relative) = entry.path().strip_prefix(collection.root()) else { continue };
        match judge(collection, base, relative, &entry) {
            Ok(Kind::Folder) => {}
            Ok(Kind::Resource) => {
                let cause = Foreign::of(relative);
                found.unportable.extend(cause.map(|cause| Unportable { path: relative.to_owned(), cause }));
                found.paths.push(relative.to_owned());
            }
            Err(reason) => {
                found.skipped.extend(reason.map(|reason| Skipped { path: relative.to_owned(), reason }));
                if entry.file_type().is_dir() {
                    walk.skip_current_dir();
                }
            }
        }
    }
    Ok(found)
}

enum Kind {
    Folder,
    Resource,
}

/// What an entry is in the collection; if it is nothing, the reason, unless it is one that nobody needs to hear.
fn judge(
    collection: &Collection,
    base: &BaseUrl,
    relative: &Path,
    entry: &DirEntry,
) -> Result<Kind, Option<Reason>> {
    collection.admit(relative).map_err(|refusal| unadmitted(collection, relative, refusal))?;
    let file_type = if entry.path_is_symlink() {
        behind_link(collection, relative)?
    } else {
        if entry.file_type().is_dir() {
            // The site itself may lie in the collection.
            collection.locate(relative).map_err(|_| None)?;
            return Ok(Kind::Folder);
        }
        entry.file_type()
    };
    if !file_type.is_file() {
        return Err(Some(Reason::NotAFile));
    }
    if base.join(relative).len() > MAX_URL {
        return Err(Some(Reason::UrlTooLong));
    }
    Ok(Kind::Resource)
}

fn unadmitted(collection: &Collection, relative: &Path, refusal: Refusal) -> Option<Reason> {
    let reserved = relative == Path::new(DOCUMENT_FOLDER) && !collection.holds_its_site();
    match refusal {
        Refusal::Temporary => Some(Reason::Temporary),
        _ => reserved.then_some(Reason::Reserved),
    }
}

fn behind_link(collection: &Collection, relative: &Path) -> Result<FileType, Option<Reason>> {
    let real = collection.locate(relative).map_err(|refusal| match refusal {
        Refusal::Outside => Some(Reason::LeadsOutside),
        Refusal::NotPublic | Refusal::Temporary => Some(Reason::LeadsToHidden),
        Refusal::Missing => None,
    })?;
    let file_type = real.metadata().map_err(|_| None)?.file_type();
    if file_type.is_dir() { Err(Some(Reason::LeadsToFolder)) } else { Ok(file_type) }
}

/// What vanished is no news, and neither is a hidden file; anything else that cannot be looked at ends the walk.
fn excuse(collection: &Collection, error: walkdir::Error) -> Result<Option<Skipped>, InventoryError> {
    let path = error.path().unwrap_or(collection.root()).to_owned();
    let relative = path.strip_prefix(collection.root()).unwrap_or(&path).to_owned();
    let source: io::Error = error.into();
    if source.kind() == io::ErrorKind::NotFound {
        return Ok(None);
    }
    match collection.admit(&relative) {
        Ok(()) => Err(InventoryError { path, source }),
        Err(refusal) => {
            let reason = unadmitted(collection, &relative, refusal);
            Ok(reason.map(|reason| Skipped { path: relative, reason }))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        (folder, data)
    }

    fn found(data: &Path, out: &Path) -> Found {
        fs::create_dir_all(out).unwrap();
        let collection = Collection::open(data, out).unwrap();
        walk(&collection, &BaseUrl::parse("http://example.org/c").unwrap()).unwrap()
    }

    fn names(found: &Found) -> Vec<&str> {
        found.paths.iter().map(|path| path.to_str().unwrap()).collect()
    }

    fn reasons(found: &Found) -> Vec<(&str, Reason)> {
        found.skipped.iter().map(|skipped| (skipped.path.to_str().unwrap(), skipped.reason)).collect()
    }

    #[test]
    fn hidden_files_and_the_site_inside_the_folder_are_left_out_silently() {
        let (_keep, data) = folder();
        fs::create_dir_all(data.join(".git")).unwrap();
        fs::write(data.join(".git/HEAD"), "x").unwrap();
        fs::write(data.join("a.txt"), "x").unwrap();
        let out = data.join("site");
        fs::create_dir(&out).unwrap();
        fs::write(out.join("index.html"), "x").unwrap();
        let found = found(&data, &out);
        assert_eq!(names(&found), ["a.txt"]);
        assert_eq!(found.skipped, []);
    }

    #[test]
    fn temporary_files_and_folders_are_left_out_and_reported_once_each() {
        let (keep, data) = folder();
        fs::create_dir(data.join("unpacked.tmp")).unwrap();
        for name in ["film.part", "draft~", "unpacked.tmp/a", "unpacked.tmp/b", "done", ".x.swp"] {
            fs::write(data.join(name), "x").unwrap();
        }
        let found = found(&data, &keep.path().join("out"));
        assert_eq!(names(&found), ["done"]);
        let temporary = Reason::Temporary;
        assert_eq!(
            reasons(&found),
            [("draft~", temporary), ("film.part", temporary), ("unpacked.tmp", temporary)]
        );
    }

    #[test]
    fn a_folder_named_like_the_documents_is_reported() {
        let (keep, data) = folder();
        fs::create_dir(data.join("resync")).unwrap();
        fs::write(data.join("resync/mine.txt"), "x").unwrap();
        let found = found(&data, &keep.path().join("out"));
        assert_eq!(reasons(&found), [("resync", Reason::Reserved)]);
        assert_eq!(names(&found), [""; 0]);
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_collection_are_reported_and_links_to_its_files_are_resources() {
        use std::os::unix::fs::symlink;
        let (keep, data) = folder();
        fs::create_dir(keep.path().join("private")).unwrap();
        fs::write(keep.path().join("private/key"), "x").unwrap();
        fs::write(data.join("file"), "x").unwrap();
        fs::write(data.join("new.part"), "x").unwrap();
        symlink(keep.path().join("private"), data.join("folder-out")).unwrap();
        symlink(keep.path().join("private/key"), data.join("key")).unwrap();
        symlink("itself", data.join("itself")).unwrap();
        symlink("file", data.join("same")).unwrap();
        symlink("new.part", data.join("early")).unwrap();
        symlink("gone", data.join("dangling")).unwrap();
        let found = found(&data, &keep.path().join("out"));
        assert_eq!(names(&found), ["file", "same"]);
        assert_eq!(
            reasons(&found),
            [
                ("early", Reason::LeadsToHidden),
                ("folder-out", Reason::LeadsOutside),
                ("key", Reason::LeadsOutside),
                ("new.part", Reason::Temporary)
            ]
        );
    }

    #[cfg(unix)]
    #[test]
    fn links_between_folders_give_every_file_one_name_and_not_one_for_each_way_to_it() {
        use std::os::unix::fs::symlink;
        const FOLDERS: usize = 12;
        let (keep, data) = folder();
        for from in 0..FOLDERS {
            let folder = data.join(format!("f{from}"));
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("file"), "x").unwrap();
            for to in (0..FOLDERS).filter(|to| *to != from) {
                symlink(format!("../f{to}"), folder.join(format!("to{to}"))).unwrap();
            }
        }
        symlink(".", data.join("around")).unwrap();
        let found = found(&data, &keep.path().join("out"));
        assert_eq!(found.paths.len(), FOLDERS);
        assert_eq!(found.skipped.len(), FOLDERS * (FOLDERS - 1) + 1);
        assert!(found.skipped.iter().all(|skipped| skipped.reason == Reason::LeadsToFolder));
    }

    #[cfg(unix)]
    #[test]
    fn names_that_other_systems_cannot_keep_are_published_and_reported() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        let (keep, data) = folder();
        fs::create_dir(data.join("a\\b")).unwrap();
        for name in [&b"a\\b/c"[..], b"bell\x07", b"caf\xe9", "ordinär".as_bytes()] {
            fs::write(data.join(OsStr::from_bytes(name)), "x").unwrap();
        }
        let found = found(&data, &keep.path().join("out"));
        assert_eq!(found.paths.len(), 4);
        assert_eq!(found.skipped, []);
        let causes: Vec<_> = found.unportable.iter().map(|one| one.cause).collect();
        assert_eq!(causes, [Foreign::Backslash, Foreign::Control, Foreign::NotUtf8]);
    }
}
