//! What is in a collection now: hashes every resource on all cores, and gives each its URL.

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

use crate::{
    collection::Collection,
    files::Version,
    settings::BaseUrl,
    walk::{Found, walk},
};

pub use crate::walk::{Foreign, Reason, Skipped, Unportable};

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
    /// What lies in the folder and was left out, apart from hidden files.
    pub skipped: Vec<Skipped>,
    /// The resources whose names not every Destination can keep.
    pub unportable: Vec<Unportable>,
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
    let Found { paths, skipped, unportable } = walk(collection, base)?;
    let resources = read_all(collection, base, algorithms, &paths)?;
    Ok(Inventory { started, completed: DateTime::now(), resources, skipped, unportable })
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
