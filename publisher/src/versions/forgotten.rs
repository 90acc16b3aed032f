//! What was taken out of the versions for good: no run keeps these bytes again, whichever resource has them (MEM-010, MEM-013).
//!
//! First the digests are on the disk as pending, then the bytes go, then the state says what is left, and last the digests are pending no
//! more. After a crash in between, the next build or the same command does what was not done.

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use resync_core::{
    digest::Digest,
    durable::{self, folder_of},
};
use serde::{Deserialize, Serialize};

use super::store::Store;
use crate::{
    error::{Action, Error},
    helpers::{files, serde_text::text_list},
    state::{FOLDER, Lock, parse_format},
};

/// The version of `forgotten.json`.
const FORMAT: u32 = 1;

/// The contents that are never kept again.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Forgotten {
    format: u32,
    /// Those whose bytes may still be there.
    #[serde(with = "text_list")]
    pending: Vec<Digest>,
    /// Those whose bytes are gone.
    #[serde(with = "text_list")]
    gone: Vec<Digest>,
}

impl Forgotten {
    /// Those of the set in `out`. Where they cannot be read, nobody can tell what may be kept.
    pub(crate) fn load(out: &Path) -> Result<Self, Error> {
        let path = path(out);
        let bytes = files::read_if_there(&path).map_err(Error::cannot(Action::Read, &path))?;
        let Some(bytes) = bytes else {
            return Ok(Self { format: FORMAT, pending: Vec::new(), gone: Vec::new() });
        };
        let damaged = |reason: String| {
            let advice = "bring this file back: it says what is never to be kept again";
            let reason = io::Error::new(io::ErrorKind::InvalidData, format!("{reason}; {advice}"));
            Error::cannot(Action::Read, &path)(reason)
        };
        parse_format(&bytes, &path, FORMAT, damaged)
    }

    /// Adds contents whose bytes are to go; from then on no run keeps them.
    pub(crate) fn add(lock: &Lock, digests: impl IntoIterator<Item = Digest>) -> Result<(), Error> {
        let mut forgotten = Self::load(lock.out())?;
        let known: HashSet<Digest> = forgotten.pending.iter().copied().collect();
        let new: BTreeSet<Digest> = digests.into_iter().filter(|digest| !known.contains(digest)).collect();
        if new.is_empty() {
            return Ok(());
        }
        forgotten.pending.extend(new);
        forgotten.save(lock)
    }

    /// Whether bytes may still be there.
    pub(super) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// All of them.
    pub(crate) fn all(&self) -> HashSet<Digest> {
        self.pending.iter().chain(&self.gone).copied().collect()
    }

    /// Removes the bytes that may still be there, durably, also where JSON Patches would begin at them, and what killed runs left without a
    /// name, since nobody knows what that is.
    pub(super) fn remove(&self, store: &Store) -> io::Result<()> {
        if !self.is_pending() {
            return Ok(());
        }
        durable::sweep(store.folder())?;
        let pending: HashSet<Digest> = self.pending.iter().copied().collect();
        for entry in files::if_there(fs::read_dir(store.folder()))?.into_iter().flatten() {
            let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
            let digest = || File::open(&path).and_then(files::digest_of);
            // What cannot be read may have them, and nobody misses it.
            if kind.is_file() && digest().map_or(true, |digest| pending.contains(&digest)) {
                files::remove_unsynced(&path)?;
            }
        }
        let mut folders = BTreeSet::from([store.folder().to_owned()]);
        for path in self.pending.iter().map(|digest| store.path(digest)) {
            files::remove_unsynced(&path)?;
            // Also where nothing was left: a run may have been killed before its sync.
            folders.insert(folder_of(&path).to_owned());
        }
        folders.retain(|folder| folder.is_dir());
        durable::sync_many(&[], &folders, store.folder())
    }

    /// Notes that their bytes are gone.
    pub(super) fn complete(mut self, lock: &Lock) -> Result<(), Error> {
        if !self.is_pending() {
            return Ok(());
        }
        let known: HashSet<Digest> = self.gone.iter().copied().collect();
        let pending = std::mem::take(&mut self.pending);
        self.gone.extend(pending.into_iter().filter(|digest| !known.contains(digest)));
        self.save(lock)
    }

    fn save(&self, lock: &Lock) -> Result<(), Error> {
        let path = path(lock.out());
        files::replace_json(&path, self).map_err(Error::cannot(Action::Write, &path))
    }
}

fn path(out: &Path) -> PathBuf {
    out.join(FOLDER).join("forgotten.json")
}

#[cfg(test)]
mod tests {
    use resync_core::digest::Algorithm;

    use super::*;

    #[test]
    fn what_is_forgotten_again_is_pending_again_and_listed_once() {
        let out = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(out.path()).unwrap();
        let digests = [b"one", b"two"].map(|content| Digest::of(Algorithm::Sha256, content));
        for round in 0..2 {
            Forgotten::add(&lock, digests).unwrap();
            Forgotten::add(&lock, digests).unwrap();
            let forgotten = Forgotten::load(out.path()).unwrap();
            assert_eq!((forgotten.pending.len(), forgotten.gone.len()), (2, 2 * round));
            forgotten.complete(&lock).unwrap();
            let forgotten = Forgotten::load(out.path()).unwrap();
            assert!(!forgotten.is_pending());
            assert_eq!((forgotten.gone.len(), forgotten.all()), (2, digests.into()));
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_or_is_of_a_newer_program_is_an_error_and_not_an_empty_one() {
        let out = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(out.path()).unwrap();
        for (text, words) in [
            ("", "bring this file back"),
            ("{}", "bring this file back"),
            (r#"{"format": 0, "pending": [], "gone": []}"#, "bring this file back"),
            (r#"{"format": 2, "x": 1}"#, "has format 2"),
        ] {
            fs::write(path(out.path()), text).unwrap();
            let error = Forgotten::load(out.path()).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("forgotten.json"), "{error}");
            let digest = Digest::of(Algorithm::Sha256, b"one");
            assert!(Forgotten::add(&lock, [digest]).is_err(), "it is not overwritten");
        }
    }
}
