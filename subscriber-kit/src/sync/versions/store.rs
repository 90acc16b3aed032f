//! The directory of versions: `PATH/20240601120000` for each, `PATH/20240601120000.deleted` for a deletion. What is there is never changed
//! or removed (MEM-070).

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use resync_common::locks::lock;
use resync_core::digest::Agreement;
use resync_core::durable::{folder_of, make_folder, sync_folder};
use resync_core::memento::Stamp;
use tempfile::NamedTempFile;
use url::Url;

use crate::state_folder::{self, STATE_FOLDER, make_private_folder};
use crate::sync::files::content::Space;
use crate::sync::files::download::Received;
use crate::sync::files::folder::Staging;
use crate::sync::files::local::hash_file;
use crate::sync::reading::path::{CheckedFolders, obstacle, relative_path};
use crate::sync::reading::told::ToldVersion;
use crate::sync::{PathError, ResourceError};

/// The end of the name of a deletion.
const DELETED: &str = ".deleted";

/// How many versions of a resource one second may have.
const MAX_OF_A_SECOND: u64 = 1000;

/// Files of this age were left by a process that was killed.
pub(super) const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Where versions are prepared.
const WORK_NAME: &str = "work";

/// A directory of versions.
#[derive(Debug)]
pub(super) struct VersionStore {
    directory: PathBuf,
    /// The URL that corresponds to it, as to the directory of the copy.
    base: Url,
    work: Arc<Path>,
    /// Folders whose names are not durable yet.
    unsynced: Mutex<HashSet<PathBuf>>,
}

/// Where a version belongs.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// It is there.
    Kept,
    Free(PathBuf),
}

impl VersionStore {
    /// Opens the directory, which is made if it is missing.
    pub(super) fn open(directory: &Path, base: &Url) -> io::Result<Self> {
        make_folder(&std::path::absolute(directory)?)?;
        let directory = directory.canonicalize()?;
        let state = directory.join(STATE_FOLDER);
        state_folder::make(&state)?;
        let work = state.join(WORK_NAME);
        make_private_folder(&work)?;
        state_folder::sweep(&work, LEFT_AFTER, |_| true);
        Ok(Self { directory, base: base.clone(), work: work.into(), unsynced: Mutex::default() })
    }

    /// Where versions are prepared, on the same file system.
    pub(super) fn staging(&self) -> Staging {
        Staging::Folder(Arc::clone(&self.work))
    }

    /// Whether the version is there already.
    pub(super) fn has(&self, version: &ToldVersion) -> Result<bool, ResourceError> {
        Ok(self.find(version)? == Place::Kept)
    }

    /// Writes a version; `false` if it is there already.
    pub(super) fn put(&self, version: &ToldVersion, mut file: NamedTempFile) -> Result<bool, ResourceError> {
        loop {
            let Place::Free(path) = self.find(version)? else { return Ok(false) };
            file.as_file().set_modified(modified(version))?;
            file.as_file().sync_all()?;
            let folder = folder_of(&path);
            std::fs::create_dir_all(folder)?;
            file = match file.persist_noclobber(&path) {
                Ok(_) => {
                    self.will_sync_names_above(&path);
                    return Ok(true);
                }
                // Another version of the same second came first.
                Err(failed) if failed.error.kind() == ErrorKind::AlreadyExists => failed.file,
                // It was prepared in the copy.
                Err(failed) if failed.error.kind() == ErrorKind::CrossesDevices => {
                    let here = self.staging().unfinished()?;
                    std::fs::copy(failed.file.path(), here.path())?;
                    here
                }
                Err(failed) => return Err(failed.error.into()),
            };
        }
    }

    /// Writes what was received; `false` if it is there already.
    pub(super) fn put_received(
        &self,
        version: &ToldVersion,
        received: Received,
    ) -> Result<bool, ResourceError> {
        let staging = self.staging();
        let file = received.content.into_file(&mut Space::of(&staging))?;
        self.put(version, file)
    }

    /// Makes the names of what was written or found durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        let folders = std::mem::take(&mut *self.unsynced());
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }

    fn will_sync_names_above(&self, path: &Path) {
        let folders = path.ancestors().skip(1).take_while(|folder| folder.starts_with(&self.directory));
        self.unsynced().extend(folders.map(Path::to_owned));
    }

    fn unsynced(&self) -> std::sync::MutexGuard<'_, HashSet<PathBuf>> {
        lock(&self.unsynced)
    }

    /// Of several versions in one second, the first one has the bare digits (MEM-032).
    fn find(&self, version: &ToldVersion) -> Result<Place, ResourceError> {
        let url = Url::parse(&version.url).map_err(PathError::Uri)?;
        let folder = relative_path(&version.loc, &url, &self.base)?;
        let end = if version.is_deleted { DELETED } else { "" };
        for ordinal in 0..MAX_OF_A_SECOND {
            let relative = folder.join(format!("{}{end}", Stamp::new(version.at, ordinal)));
            let found = obstacle(&self.directory, &relative, &mut CheckedFolders::default());
            if let Some(obstacle) = found.map_err(ResourceError::Read)? {
                return Err(PathError::from(obstacle).into());
            }
            let path = self.directory.join(relative);
            match path.symlink_metadata() {
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    return Ok(Place::Free(path));
                }
                Err(error) => return Err(ResourceError::Read(error)),
                Ok(_) if version.is_deleted || is_as_told(&path, version).map_err(ResourceError::Read)? => {
                    // A process that was killed may have put it there just before.
                    self.will_sync_names_above(&path);
                    return Ok(Place::Kept);
                }
                Ok(_) => {}
            }
        }
        Err(io::Error::other("it has too many versions in one second").into())
    }
}

/// The time of the file of a version.
fn modified(version: &ToldVersion) -> SystemTime {
    version.facts.modified.unwrap_or(version.at).to_system_time()
}

/// Whether a file is as a change tells. Without a hash, its time tells it from others of the same second.
fn is_as_told(path: &Path, version: &ToldVersion) -> io::Result<bool> {
    let (facts, data) = (&version.facts, path.symlink_metadata()?);
    if !data.is_file() || facts.length.is_some_and(|length| length != data.len()) {
        return Ok(false);
    }
    let Some(algorithm) = facts.algorithm() else { return Ok(is_at(data.modified()?, modified(version))) };
    Ok(facts.hashes.compare(&hash_file(path, algorithm)?) == Agreement::Same)
}

/// Whether two times are the same, to the millisecond.
fn is_at(one: SystemTime, other: SystemTime) -> bool {
    let between = one.duration_since(other).unwrap_or_else(|later| later.duration());
    between < Duration::from_millis(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memento::VersionLinks;
    use crate::sync::files::local::Facts;
    use resync_core::digest::{Algorithm, Digest};
    use std::io::Write as _;

    fn version(at: &str, content: &str) -> ToldVersion {
        let url = "http://a.example/x/y".to_owned();
        let hashes = Digest::of(Algorithm::Sha256, content.as_bytes()).into();
        ToldVersion {
            loc: url.clone(),
            url,
            at: at.parse().unwrap(),
            facts: Facts { hashes, length: Some(content.len() as u64), modified: None },
            links: VersionLinks::default(),
            packed: None,
            is_deleted: false,
            tries: 0,
            paused_until_unix_millis: None,
        }
    }

    fn store(folder: &tempfile::TempDir) -> VersionStore {
        VersionStore::open(&folder.path().join("v"), &Url::parse("http://a.example/").unwrap()).unwrap()
    }

    fn put(store: &VersionStore, version: &ToldVersion, content: &str) -> bool {
        let mut file = store.staging().unfinished().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        store.put(version, file).unwrap()
    }

    #[test]
    fn mem070_a_version_is_written_once_and_a_deletion_is_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let first = version("2024-06-01T12:00:00.25Z", "one");
        assert!(!store.has(&first).unwrap());
        assert!(put(&store, &first, "one") && store.has(&first).unwrap());
        assert!(!put(&store, &first, "two"), "what is there stays as it is");
        let gone = ToldVersion { is_deleted: true, ..version("2024-06-02T12:00:00Z", "") };
        assert!(put(&store, &gone, "") && !put(&store, &gone, ""));
        store.sync().unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join("v/x/y").join(name)).unwrap();
        assert_eq!((read("20240601120000").as_str(), read("20240602120000.deleted").as_str()), ("one", ""));
    }

    #[test]
    fn mem032_of_several_versions_in_one_second_the_first_has_the_bare_digits() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        for (millisecond, content) in ["one", "two", "three"].into_iter().enumerate() {
            put(&store, &version(&format!("2024-06-01T12:00:00.{millisecond}Z"), content), content);
        }
        let again = version("2024-06-01T12:00:00.1Z", "two");
        assert!(store.has(&again).unwrap(), "it is found by its digest");
        let read = |name: &str| std::fs::read_to_string(folder.path().join("v/x/y").join(name)).unwrap();
        let names = ["20240601120000", "20240601120000-1", "20240601120000-2"];
        assert_eq!(names.map(read), ["one", "two", "three"]);
    }

    #[test]
    fn mem032_without_a_hash_the_times_of_several_versions_in_one_second_tell_them_apart() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let told = ["25", "5", "75"].map(|fraction| ToldVersion {
            facts: Facts::default(),
            ..version(&format!("2024-06-01T12:00:00.{fraction}Z"), "")
        });
        assert!(told.iter().all(|version| put(&store, version, "as long")));
        assert!(told.iter().all(|version| !put(&store, version, "as long")), "each is there once");
        let count = std::fs::read_dir(folder.path().join("v/x/y")).unwrap().count();
        assert_eq!(count, 3);
    }

    #[test]
    fn what_a_killed_process_has_put_there_is_made_durable_before_it_counts_as_kept() {
        let folder = tempfile::tempdir().unwrap();
        let version = version("2024-06-01T12:00:00Z", "one");
        put(&store(&folder), &version, "one");
        let next = store(&folder);
        assert!(next.has(&version).unwrap());
        let names = [next.directory.clone(), next.directory.join("x"), next.directory.join("x/y")];
        assert_eq!(*next.unsynced(), HashSet::from(names));
    }

    #[cfg(unix)]
    #[test]
    fn nothing_is_written_through_a_symbolic_link() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = store(&folder);
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("v/x")).unwrap();
        let told = version("2024-06-01T12:00:00Z", "one");
        assert!(matches!(store.has(&told), Err(ResourceError::Path(PathError::Symlink(_)))));
    }
}
