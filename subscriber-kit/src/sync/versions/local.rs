//! Versions whose bytes are here: what the copy has is the newest version, if its digest says so.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use resync_common::locks::lock;
use resync_core::digest::{Agreement, Algorithm, Hashes};
use tempfile::NamedTempFile;
use url::Url;

use super::store::VersionStore;
use crate::sync::ResourceError;
use crate::sync::files::local::hash_file;
use crate::sync::reading::path::relative_path;
use crate::sync::reading::told::ToldVersion;

/// Of how many files the digests are remembered.
const MAX_KNOWN: usize = 4096;

/// What became of a version without asking anybody.
#[derive(Debug)]
pub(super) enum Local {
    /// It is kept; whether it was written now.
    Kept(bool),
    /// Its bytes are not here.
    Elsewhere,
}

/// The copy, as a place of bytes.
#[derive(Debug)]
pub(super) struct LocalVersions {
    directory: PathBuf,
    base: Url,
    /// The digests of files, so that one that changed often is read once.
    known: Mutex<HashMap<(PathBuf, Algorithm), Hashes>>,
}

impl LocalVersions {
    pub(super) fn new(directory: &Path, base: &Url) -> Self {
        Self { directory: directory.to_owned(), base: base.clone(), known: Mutex::default() }
    }

    /// Keeps a version if its bytes are here. Of one that the list proves by no digest, the copy may have another.
    pub(super) fn keep(&self, store: &VersionStore, version: &ToldVersion) -> Result<Local, ResourceError> {
        if store.has(version)? {
            return Ok(Local::Kept(false));
        }
        if version.is_deleted {
            return store.put(version, store.staging().unfinished()?).map(Local::Kept);
        }
        match self.copied(store, version)? {
            Some(file) => store.put(version, file).map(Local::Kept),
            None => Ok(Local::Elsewhere),
        }
    }

    /// The file of the copy, if it is this version.
    fn copied(
        &self,
        store: &VersionStore,
        version: &ToldVersion,
    ) -> Result<Option<NamedTempFile>, ResourceError> {
        let Some(algorithm) = version.facts.algorithm() else { return Ok(None) };
        let Ok(url) = Url::parse(&version.url) else { return Ok(None) };
        let relative = relative_path(&version.loc, &url, &self.base)?;
        let path = self.directory.join(&relative);
        let is_as_long = |data: std::fs::Metadata| {
            data.is_file() && version.facts.length.is_none_or(|length| length == data.len())
        };
        let is_same = |hashes: &Hashes| version.facts.hashes.compare(hashes) == Agreement::Same;
        if !path.symlink_metadata().is_ok_and(is_as_long) || !is_same(&self.digest(&path, algorithm)?) {
            return Ok(None);
        }
        let file = store.staging().unfinished()?;
        // A file system that can share the bytes does so.
        std::fs::copy(&path, file.path())?;
        // Another run may have replaced it meanwhile.
        let hashes = hash_file(file.path(), algorithm).map_err(ResourceError::Read)?;
        Ok(is_same(&hashes).then_some(file))
    }

    fn digest(&self, path: &Path, algorithm: Algorithm) -> Result<Hashes, ResourceError> {
        let key = (path.to_owned(), algorithm);
        let mut known = lock(&self.known);
        if let Some(hashes) = known.get(&key) {
            return Ok(hashes.clone());
        }
        let hashes = hash_file(path, algorithm).map_err(ResourceError::Read)?;
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(key, hashes.clone());
        Ok(hashes)
    }
}
