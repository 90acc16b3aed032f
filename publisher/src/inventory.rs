//! What is in a collection now: walks the folder, hashes every file on all cores, and gives each its URL.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::SystemTime,
};

use resync_core::{
    datetime::DateTime,
    digest::{Algorithm, Hasher, Hashes},
};
use walkdir::WalkDir;

use crate::{
    collection::{Collection, Refusal},
    files::Version,
    settings::BaseUrl,
};

/// Longest URL that a `loc` may hold (RS-047).
pub const MAX_URL: usize = 2048;

/// How often a file that changes while it is read is read again.
pub const MAX_READS: usize = 4;

/// A snapshot of a collection. Every state in it is at least as new as `started` (RS-021).
#[derive(Clone, Debug)]
pub struct Inventory {
    /// Before the first file was looked at.
    pub started: DateTime,
    /// After the last file was read.
    pub completed: DateTime,
    /// The resources, ordered by path.
    pub resources: Vec<Item>,
    /// What lies in the folder and is no resource although its name would let it be one.
    pub skipped: Vec<Skipped>,
}

/// One resource as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Path below the collection's folder.
    pub path: PathBuf,
    /// The resource's URL.
    pub url: String,
    /// Time of the last change, in whole seconds as HTTP's `Last-Modified` has it (RS-031).
    pub modified: DateTime,
    /// Length in bytes; absent when the file never held still.
    pub length: Option<u64>,
    /// Digests of the content; empty when the file never held still.
    pub hashes: Hashes,
    /// Media type, guessed from the extension.
    pub media_type: Option<String>,
}

/// A file that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Path below the collection's folder.
    pub path: PathBuf,
    /// The cause.
    pub reason: Reason,
}

/// Why a file was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A symbolic link out of the collection.
    #[error("a symbolic link that leads out of the collection")]
    LeadsOutside,
    /// A symbolic link to a folder that contains it.
    #[error("a symbolic link to a folder around it")]
    Loop,
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

/// What keeps an inventory from being complete. It is never published incomplete: a Destination could take a missing resource for a deleted one.
#[derive(Debug, thiserror::Error)]
#[error("cannot read `{}`: {source}; make it readable, or move it out of the collection", path.display())]
pub struct InventoryError {
    /// The file or folder.
    pub path: PathBuf,
    /// The operating system's reason.
    pub source: io::Error,
}

/// Takes the inventory of `collection`: every resource with URL, length, time and digests.
pub fn take(
    collection: &Collection,
    base: &BaseUrl,
    algorithms: &[Algorithm],
) -> Result<Inventory, InventoryError> {
    let started = DateTime::now();
    let (paths, skipped) = walk(collection, base)?;
    let resources = read_all(collection, base, algorithms, &paths)?;
    Ok(Inventory { started, completed: DateTime::now(), resources, skipped })
}

fn walk(collection: &Collection, base: &BaseUrl) -> Result<(Vec<PathBuf>, Vec<Skipped>), InventoryError> {
    let (mut paths, mut skipped) = (Vec::new(), Vec::new());
    let mut walk =
        WalkDir::new(collection.root()).min_depth(1).follow_links(true).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                skipped.extend(excuse(collection, error)?);
                continue;
            }
        };
        let Ok(relative) = entry.path().strip_prefix(collection.root()) else { continue };
        let is_folder = entry.file_type().is_dir();
        match judge(collection, base, relative, &entry) {
            Ok(()) if is_folder => {}
            Ok(()) => paths.push(relative.to_owned()),
            Err(reason) => {
                skipped.extend(reason.map(|reason| Skipped { path: relative.to_owned(), reason }));
                if is_folder {
                    walk.skip_current_dir();
                }
            }
        }
    }
    Ok((paths, skipped))
}

/// Whether an entry belongs to the collection; if not, the reason, unless it is one that nobody needs to hear.
fn judge(
    collection: &Collection,
    base: &BaseUrl,
    relative: &Path,
    entry: &walkdir::DirEntry,
) -> Result<(), Option<Reason>> {
    if !collection.admits(relative) {
        let reserved = relative == Path::new(crate::site::DOCUMENT_FOLDER) && !collection.holds_its_site();
        return Err(reserved.then_some(Reason::Reserved));
    }
    if entry.path_is_symlink() || entry.file_type().is_dir() {
        collection.locate(relative).map_err(|refusal| match refusal {
            Refusal::Outside => Some(Reason::LeadsOutside),
            Refusal::NotPublic => entry.path_is_symlink().then_some(Reason::LeadsToHidden),
            Refusal::Missing => None,
        })?;
    }
    if !entry.file_type().is_dir() && !entry.file_type().is_file() {
        return Err(Some(Reason::NotAFile));
    }
    if base.join(relative).len() > MAX_URL {
        return Err(Some(Reason::UrlTooLong));
    }
    Ok(())
}

/// A file that vanished is no news, and neither is a hidden one; a loop is left out; anything else ends the inventory.
fn excuse(collection: &Collection, error: walkdir::Error) -> Result<Option<Skipped>, InventoryError> {
    let path = error.path().unwrap_or(collection.root()).to_owned();
    let relative = path.strip_prefix(collection.root()).unwrap_or(&path).to_owned();
    if error.loop_ancestor().is_some() {
        return Ok(Some(Skipped { path: relative, reason: Reason::Loop }));
    }
    let source: io::Error = error.into();
    if source.kind() == io::ErrorKind::NotFound || !collection.admits(&relative) {
        return Ok(None);
    }
    Err(InventoryError { path, source })
}

fn read_all(
    collection: &Collection,
    base: &BaseUrl,
    algorithms: &[Algorithm],
    paths: &[PathBuf],
) -> Result<Vec<Item>, InventoryError> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Item)>, InventoryError> {
        let mut done = Vec::new();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = paths.get(number) else { return Ok(done) };
            done.extend(item(collection, base, algorithms, path, &mut buffer)?.map(|item| (number, item)));
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from).min(paths.len().max(1));
    let mut found = thread::scope(|scope| {
        let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_fold(Vec::with_capacity(paths.len()), |mut all, worker| {
            all.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            Ok(all)
        })
    })?;
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, item)| item).collect())
}

fn item(
    collection: &Collection,
    base: &BaseUrl,
    algorithms: &[Algorithm],
    path: &Path,
    buffer: &mut [u8],
) -> Result<Option<Item>, InventoryError> {
    let full = collection.root().join(path);
    let reading = read(&full, algorithms, buffer, || ());
    let (modified, length, hashes) = match reading.map_err(|source| InventoryError { path: full, source })? {
        Reading::Vanished => return Ok(None),
        Reading::Steady { modified, length, hashes } => (modified, Some(length), hashes),
        Reading::Restless { modified } => (modified, None, Hashes::default()),
    };
    Ok(Some(Item {
        path: path.to_owned(),
        url: base.join(path),
        modified: DateTime::from_system_time(modified).truncate_to_seconds(),
        length,
        hashes,
        media_type: mime_guess::from_path(path).first().map(|guess| guess.essence_str().to_owned()),
    }))
}

enum Reading {
    Steady { modified: SystemTime, length: u64, hashes: Hashes },
    Restless { modified: SystemTime },
    Vanished,
}

/// Reads a file until it is the same before and after, at most [`MAX_READS`] times. `meanwhile` runs between reading and looking again.
fn read(
    path: &Path,
    algorithms: &[Algorithm],
    buffer: &mut [u8],
    mut meanwhile: impl FnMut(),
) -> io::Result<Reading> {
    let mut modified = SystemTime::UNIX_EPOCH;
    for _ in 0..MAX_READS {
        let Some(mut file) = present(File::open(path))? else { return Ok(Reading::Vanished) };
        let before = Version::of(&file.metadata()?)?;
        let (length, hashes) = hash(&mut file, algorithms, buffer)?;
        meanwhile();
        let Some(after) = present(fs::metadata(path))? else { return Ok(Reading::Vanished) };
        let after = Version::of(&after)?;
        modified = after.modified;
        if before == after && length == after.length {
            return Ok(Reading::Steady { modified, length, hashes });
        }
    }
    Ok(Reading::Restless { modified })
}

fn hash(file: &mut File, algorithms: &[Algorithm], buffer: &mut [u8]) -> io::Result<(u64, Hashes)> {
    let mut hasher = Hasher::new(algorithms.iter().copied());
    let mut length = 0;
    loop {
        match file.read(buffer) {
            Ok(0) => return Ok((length, hasher.finish())),
            Ok(count) => {
                hasher.update(&buffer[..count]);
                length += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use resync_core::digest::Digest;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        (folder, data)
    }

    fn taken(data: &Path, out: &Path) -> Inventory {
        fs::create_dir_all(out).unwrap();
        let collection = Collection::open(data, out).unwrap();
        take(&collection, &BaseUrl::parse("http://example.org/c").unwrap(), &[Algorithm::Sha256]).unwrap()
    }

    fn urls(inventory: &Inventory) -> Vec<&str> {
        inventory.resources.iter().map(|item| item.url.as_str()).collect()
    }

    #[test]
    fn resources_come_in_the_order_of_their_paths_with_length_digest_and_type() {
        let (keep, data) = folder();
        fs::create_dir(data.join("b")).unwrap();
        for name in ["c.txt", "b/z.xml", "b/a b.pdf", "a"] {
            fs::write(data.join(name), name).unwrap();
        }
        let inventory = taken(&data, &keep.path().join("out"));
        let base = "http://example.org/c";
        assert_eq!(
            urls(&inventory),
            [
                format!("{base}/a"),
                format!("{base}/b/a%20b.pdf"),
                format!("{base}/b/z.xml"),
                format!("{base}/c.txt")
            ]
        );
        let text = &inventory.resources[3];
        assert_eq!(text.length, Some(5));
        assert_eq!(text.hashes.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, b"c.txt")));
        assert_eq!(text.media_type.as_deref(), Some("text/plain"));
        assert_eq!(inventory.resources[0].media_type, None);
        assert!(text.modified <= inventory.started && inventory.started <= inventory.completed);
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
        let inventory = taken(&data, &out);
        assert_eq!(urls(&inventory), ["http://example.org/c/a.txt"]);
        assert_eq!(inventory.skipped, []);
    }

    #[test]
    fn a_folder_named_like_the_documents_is_reported() {
        let (keep, data) = folder();
        fs::create_dir(data.join("resync")).unwrap();
        fs::write(data.join("resync/mine.txt"), "x").unwrap();
        let inventory = taken(&data, &keep.path().join("out"));
        assert_eq!(inventory.skipped, [Skipped { path: "resync".into(), reason: Reason::Reserved }]);
        assert_eq!(inventory.resources, []);
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_collection_and_loops_are_reported_and_left_out() {
        use std::os::unix::fs::symlink;
        let (keep, data) = folder();
        fs::create_dir(keep.path().join("private")).unwrap();
        fs::write(keep.path().join("private/key"), "x").unwrap();
        fs::write(data.join("file"), "x").unwrap();
        symlink(keep.path().join("private"), data.join("folder-out")).unwrap();
        symlink(keep.path().join("private/key"), data.join("key")).unwrap();
        symlink(".", data.join("loop")).unwrap();
        symlink("file", data.join("same")).unwrap();
        symlink("gone", data.join("dangling")).unwrap();
        let inventory = taken(&data, &keep.path().join("out"));
        assert_eq!(urls(&inventory), ["http://example.org/c/file", "http://example.org/c/same"]);
        let reasons: Vec<_> =
            inventory.skipped.iter().map(|s| (s.path.to_str().unwrap(), s.reason)).collect();
        assert_eq!(
            reasons,
            [("folder-out", Reason::LeadsOutside), ("key", Reason::LeadsOutside), ("loop", Reason::Loop)]
        );
    }

    #[test]
    fn a_file_that_changes_while_it_is_read_is_read_again() {
        let (_keep, data) = folder();
        let path = data.join("log");
        fs::write(&path, "old").unwrap();
        let mut first = true;
        let reading = read(&path, &[Algorithm::Sha256], &mut [0; 16], || {
            if std::mem::take(&mut first) {
                fs::write(&path, "newer").unwrap();
            }
        });
        let Reading::Steady { length, hashes, .. } = reading.unwrap() else { panic!("not steady") };
        assert_eq!(length, 5);
        assert_eq!(hashes.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, b"newer")));
    }

    #[test]
    fn a_file_that_never_holds_still_is_published_without_length_and_digest() {
        let (_keep, data) = folder();
        let path = data.join("log");
        fs::write(&path, "").unwrap();
        let mut content = String::new();
        let reading = read(&path, &[Algorithm::Sha256], &mut [0; 16], || {
            content.push('x');
            fs::write(&path, &content).unwrap();
        });
        assert!(matches!(reading.unwrap(), Reading::Restless { .. }));
        assert_eq!(content.len(), MAX_READS);
    }

    #[test]
    fn a_file_that_vanishes_is_left_out() {
        let (_keep, data) = folder();
        let path = data.join("log");
        fs::write(&path, "x").unwrap();
        let reading = read(&path, &[Algorithm::Sha256], &mut [0; 16], || fs::remove_file(&path).unwrap());
        assert!(matches!(reading.unwrap(), Reading::Vanished));
    }
}
