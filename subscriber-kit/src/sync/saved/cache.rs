//! The cache of a copy: the digests of its files, and the last snapshot that was handled, so that nothing is read twice.
//!
//! All of it can be computed again: a missing, old or torn cache file only costs time.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, BufRead as _, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use resync_core::digest::Hashes;
use serde::{Deserialize, Serialize};

use super::state_file;
use crate::fetch::Validators;
use crate::sync::Target;
use crate::sync::files::folder::CopyFolder;
use crate::sync::reading::path::from_bytes;
use crate::sync::report::Report;

pub(crate) const FILE_NAME: &str = "files.jsonl";
/// What incremental runs have added since that file was written.
const ADDED_NAME: &str = "files-added.jsonl";
/// How much longer the second file may become than the first. Then it is emptied, since incremental runs do not read the cache.
const MAX_ADDED: u64 = 64 << 20;
const FORMAT: u32 = 1;
const IN_PATHS: AsciiSet = CONTROLS.add(b'%');

/// The resolution of file system times: two changes within it cannot be told apart.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// The settings of a run. Saved data is used only by runs with the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scope {
    pub(crate) list: String,
    pub(crate) base: String,
    pub(crate) delete: bool,
    pub(crate) any_origin: bool,
    /// Which resources are wanted; empty for all.
    pub(crate) filter: String,
    /// Whether changes are read from a Change Dump although there is a Change List.
    pub(crate) by_dump: bool,
}

/// A snapshot that was handled completely, as far as possible: only a new one needs work (RS-096).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HandledSnapshot {
    pub(crate) scope: Scope,
    pub(crate) validators: Validators,
    /// Of the list or index.
    pub(crate) digest: String,
    pub(crate) report: Report,
    /// Whether the list has no time from which its changes continue.
    pub(crate) is_without_point: bool,
    /// Whether each entry has a hash or a time, so that reading the same list again cannot show later changes.
    pub(crate) names_versions: bool,
}

/// By what an unchanged file is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    length: u64,
    modified: u128,
    changed: i128,
    inode: u64,
}

impl Stamp {
    pub(crate) fn of(data: &Metadata) -> io::Result<Self> {
        #[cfg(unix)]
        let (changed, inode) = {
            use std::os::unix::fs::MetadataExt as _;
            (i128::from(data.ctime()) * 1_000_000_000 + i128::from(data.ctime_nsec()), data.ino())
        };
        #[cfg(not(unix))]
        let (changed, inode) = (0, 0);
        Ok(Self { length: data.len(), modified: nanos(data.modified()?), changed, inode })
    }

    /// Whether a change after `moment` would change the stamp.
    pub(crate) fn is_settled_at(&self, moment: SystemTime) -> bool {
        let last = self.modified.max(u128::try_from(self.changed).unwrap_or(0));
        last + CLOCK_STEP.as_nanos() < nanos(moment)
    }
}

fn nanos(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos()
}

/// A file and its digests.
#[derive(Clone, Debug)]
pub(crate) struct CachedFile {
    pub(crate) stamp: Stamp,
    pub(crate) hashes: Hashes,
    /// If the list has neither a hash nor a time.
    pub(crate) sent: Option<Box<SentVersion>>,
}

/// The version that a server sent, to ask later whether it has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentVersion {
    pub(crate) url: String,
    pub(crate) validators: Validators,
}

#[derive(Debug, Default)]
pub(crate) struct FileCache {
    pub(crate) handled: Option<HandledSnapshot>,
    pub(crate) files: HashMap<Box<Path>, CachedFile>,
}

/// Takes what is now known about files.
pub(crate) trait CacheUpdates: Send {
    /// Adds a file; `is_new` if it has changed.
    fn add(&mut self, path: &Path, known: CachedFile, is_new: bool);
}

impl CacheUpdates for FileCache {
    fn add(&mut self, path: &Path, known: CachedFile, _: bool) {
        self.files.insert(path.into(), known);
    }
}

/// Adds to the cache without reading it.
#[derive(Debug)]
pub(crate) struct AddedFiles {
    path: PathBuf,
    /// Once something was added.
    out: Option<BufWriter<File>>,
}

impl AddedFiles {
    pub(crate) fn new(folder: &CopyFolder) -> Self {
        Self { path: folder.file(ADDED_NAME), out: None }
    }

    fn write(&mut self, path: &Path, known: &CachedFile) -> io::Result<()> {
        let out = match &mut self.out {
            Some(out) => out,
            None => self.out.insert(BufWriter::new(self.open()?)),
        };
        write_file(out, path, known)
    }

    fn open(&self) -> io::Result<File> {
        let length = |path: &Path| path.metadata().map_or(0, |found| found.len());
        let is_too_long = length(&self.path) > length(&self.path.with_file_name(FILE_NAME)) + MAX_ADDED;
        let mut how = File::options();
        if is_too_long { how.write(true).truncate(true) } else { how.append(true) }
            .create(true)
            .open(&self.path)
    }
}

impl CacheUpdates for AddedFiles {
    fn add(&mut self, path: &Path, known: CachedFile, is_new: bool) {
        if is_new && let Err(error) = self.write(path, &known) {
            tracing::info!(%error, "cannot save the digest of a file; it is read again by the next run");
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: u32,
    handled: Option<HandledSnapshot>,
}

/// One line: path, stamp, hashes, and the version that the server sent.
#[derive(Serialize, Deserialize)]
struct Line(
    String,
    Stamp,
    String,
    #[serde(default, skip_serializing_if = "Option::is_none")] Option<Box<SentVersion>>,
);

impl FileCache {
    /// The saved cache; an empty one if that cannot be read.
    pub(crate) fn load(folder: &CopyFolder) -> Self {
        Self::load_from(&folder.file(FILE_NAME))
    }

    /// The cache of a copy that another process may be using.
    pub(crate) fn load_unlocked(target: &Target) -> Self {
        Self::load_from(&state_file(&target.directory, FILE_NAME))
    }

    fn load_from(path: &Path) -> Self {
        let mut cache = read(path).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::info!(%error, "cannot use the saved digests; reading all files again");
            }
            Self::default()
        });
        if let Ok(more) = File::open(path.with_file_name(ADDED_NAME)) {
            // A run that was killed may have left half a line.
            let lines = BufReader::new(more).split(b'\n').map_while(Result::ok);
            cache.files.extend(lines.filter_map(|line| read_file(&line).ok()));
        }
        cache
    }

    pub(crate) fn save(&self, folder: &CopyFolder) -> io::Result<()> {
        let file = folder.unfinished()?;
        let mut out = BufWriter::new(file);
        write_line(&mut out, &Head { format: FORMAT, handled: self.handled.clone() })?;
        for (path, known) in &self.files {
            write_file(&mut out, path, known)?;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        // First, since it would count as newer.
        match std::fs::remove_file(folder.file(ADDED_NAME)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        file.persist(folder.file(FILE_NAME)).map_err(|error| error.error)?;
        Ok(())
    }

    /// The last handled snapshot, if the settings were the same.
    pub(crate) fn snapshot_of(&self, scope: &Scope) -> Option<&HandledSnapshot> {
        self.handled.as_ref().filter(|handled| handled.scope == *scope)
    }
}

fn read(path: &Path) -> io::Result<FileCache> {
    let mut lines = BufReader::new(File::open(path)?).lines();
    let head: Head = serde_json::from_str(&lines.next().unwrap_or_else(|| Ok(String::new()))?)?;
    if head.format != FORMAT {
        return Err(io::Error::other("it has another format"));
    }
    let mut files = HashMap::new();
    for line in lines {
        files.extend([read_file(line?.as_bytes())?]);
    }
    Ok(FileCache { handled: head.handled, files })
}

fn read_file(line: &[u8]) -> io::Result<(Box<Path>, CachedFile)> {
    let Line(path, stamp, hashes, sent) = serde_json::from_slice(line)?;
    Ok((path_of(&path)?.into(), CachedFile { stamp, hashes: Hashes::parse(&hashes), sent }))
}

/// A path that [`text_of`] wrote.
pub(super) fn path_of(text: &str) -> io::Result<PathBuf> {
    from_bytes(percent_decode_str(text).collect()).map(PathBuf::from).map_err(io::Error::other)
}

/// A path, whatever its bytes, as text.
pub(super) fn text_of(path: &Path) -> String {
    percent_encode(path.as_os_str().as_encoded_bytes(), &IN_PATHS).to_string()
}

fn write_file(out: &mut impl io::Write, path: &Path, known: &CachedFile) -> io::Result<()> {
    write_line(out, &Line(text_of(path), known.stamp, known.hashes.to_string(), known.sent.clone()))
}

pub(super) fn write_line(out: &mut impl io::Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::digest::{Algorithm, Digest};
    use url::Url;

    #[test]
    fn what_is_saved_is_loaded_and_a_torn_file_is_as_none() {
        let copy = tempfile::tempdir().unwrap();
        let target = Target::open(copy.path(), Url::parse("http://a.example/").unwrap()).unwrap();
        let folder = CopyFolder::open(&target).unwrap();
        let file = copy.path().join("x");
        std::fs::write(&file, "x").unwrap();
        let stamp = Stamp::of(&std::fs::metadata(&file).unwrap()).unwrap();
        let hashes: Hashes = [Digest::of(Algorithm::Sha256, b"x")].into_iter().collect();
        let mut cache = FileCache::default();
        let validators = serde_json::from_str(r#"{"etag":"\"one\"","last_modified":null}"#).unwrap();
        let sent = Some(Box::new(SentVersion { url: "http://a.example/".to_owned(), validators }));
        cache.files.insert(Path::new("a\n%/ü").into(), CachedFile { stamp, hashes, sent: sent.clone() });
        cache.save(&folder).unwrap();
        let loaded = FileCache::load(&folder);
        let known = &loaded.files[Path::new("a\n%/ü")];
        assert_eq!((known.stamp, &known.sent), (stamp, &sent));

        let newer: Hashes = [Digest::of(Algorithm::Sha256, b"y")].into_iter().collect();
        let mut more = AddedFiles::new(&folder);
        let known = CachedFile { stamp, hashes: newer.clone(), sent: None };
        more.add(Path::new("more"), known.clone(), true);
        more.add(Path::new("a\n%/ü"), known, false);
        drop(more);
        let torn = std::fs::read(folder.file(ADDED_NAME)).unwrap();
        std::fs::write(folder.file(ADDED_NAME), [&torn[..], &torn[..10]].concat()).unwrap();
        let loaded = FileCache::load(&folder);
        assert_eq!((loaded.files.len(), &loaded.files[Path::new("more")].hashes), (2, &newer));
        assert_ne!(loaded.files[Path::new("a\n%/ü")].hashes, newer, "that is no news");
        cache.save(&folder).unwrap();
        assert_eq!(FileCache::load(&folder).files.len(), 1, "what is newer than the rest goes with it");

        let whole = std::fs::read(folder.file(FILE_NAME)).unwrap();
        std::fs::write(folder.file(FILE_NAME), &whole[..whole.len() - 5]).unwrap();
        assert!(FileCache::load(&folder).files.is_empty());
    }

    #[test]
    fn a_cache_of_format_1_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/archive/state-1");
        let cache = FileCache::load_from(&folder.join(FILE_NAME));
        assert!(cache.handled.unwrap().names_versions);
        let known = &cache.files[Path::new("a")];
        assert_eq!(known.sent.as_ref().unwrap().url, "http://source.example/a");
        assert!(cache.files.contains_key(Path::new("b")), "what was added later");
    }
}
