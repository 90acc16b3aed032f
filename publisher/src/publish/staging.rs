//! The folder of the documents. A run can be interrupted after each step that readers see: see [`files::step`].

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    thread,
};

use resync_core::{
    build::{BuildError, Documents, FolderDraft, FolderSink, Sink, StagedFile},
    digest::Digest,
    durable::{sync_folder, sync_together},
};

use crate::helpers::files;

/// Documents of at least this length are digested while they are synced, which takes as long.
const LARGE: u64 = 1024 * 1024;
/// Most documents that are synced at once.
const TOGETHER: usize = 16;

#[derive(Debug)]
pub(super) struct Staging {
    sink: FolderSink,
    /// Staged files to be synced before anything is published.
    pending: Vec<File>,
    /// Whether the folder is synced by somebody else after documents are published.
    is_unsynced: bool,
    has_published: bool,
    /// Digests of large documents, if they are wanted.
    digests: Option<BTreeMap<PathBuf, Digest>>,
}

impl Staging {
    pub(super) fn open(folder: impl Into<PathBuf>) -> Result<Self, BuildError> {
        let (sink, pending) = (FolderSink::open(folder)?, Vec::new());
        Ok(Self { sink, pending, is_unsynced: false, has_published: false, digests: None })
    }

    /// For documents of a new site: nothing links to them before the folder is synced for something else.
    pub(super) fn unsynced(self, is_unsynced: bool) -> Self {
        Self { is_unsynced, ..self }
    }

    /// Digests large documents as they are written.
    pub(super) fn digesting(self) -> Self {
        Self { digests: Some(BTreeMap::new()), ..self }
    }

    /// The SHA-256 digests of the large documents, by their paths.
    pub(super) fn into_digests(self) -> BTreeMap<PathBuf, Digest> {
        self.digests.unwrap_or_default()
    }

    /// Moves a document here from elsewhere on the same file system; durable after the next [`sync`](Self::sync).
    pub(super) fn adopt(&mut self, from: &Path, name: &str) -> io::Result<()> {
        files::step()?;
        self.has_published = true;
        fs::rename(from, self.sink.path(name))
    }

    /// Makes the names of the documents durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        sync_folder(&self.sink.path(""))
    }

    fn sync_pending(&mut self) -> io::Result<()> {
        sync_together(&std::mem::take(&mut self.pending))
    }

    /// Whether readers may see something new since this was opened.
    pub(super) fn has_published(&self) -> bool {
        self.has_published
    }
}

impl Documents for Staging {
    type Published = File;

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        self.sink.open(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.sink.list(prefix)
    }
}

impl Sink for Staging {
    type Draft = FolderDraft;
    type Staged = StagedFile;

    fn create(&mut self, name: &str) -> io::Result<FolderDraft> {
        self.sink.create(name)
    }

    fn stage(&mut self, draft: FolderDraft) -> io::Result<StagedFile> {
        let written = draft.written()?;
        let is_large = written.metadata()?.len() >= LARGE;
        let Some(digests) = self.digests.as_mut().filter(|_| is_large) else {
            let (file, staged) = FolderSink::stage_for_now(draft);
            self.pending.push(file);
            if is_large || self.pending.len() >= TOGETHER {
                self.sync_pending()?;
            }
            return Ok(staged);
        };
        let target = draft.target().to_owned();
        let (staged, digest) = thread::scope(|scope| {
            // Without a thread it is digested later.
            let digest = thread::Builder::new().spawn_scoped(scope, || files::digest_of(written)).ok();
            (self.sink.stage(draft), digest.map(thread::ScopedJoinHandle::join))
        });
        if let Some(digest) = digest {
            digests.insert(target, digest.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        staged
    }

    fn publish(&mut self, staged: StagedFile) -> io::Result<()> {
        files::step()?;
        self.sync_pending()?;
        self.has_published = true;
        if self.is_unsynced { self.sink.publish_for_now(staged) } else { self.sink.publish(staged) }
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        files::step()?;
        self.sink.remove(name)
    }

    fn scratch_folder(&self) -> Option<&Path> {
        self.sink.scratch_folder()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use resync_core::digest::Algorithm;

    use super::*;

    fn digests(mut staging: Staging, length: u64) -> BTreeMap<PathBuf, Digest> {
        let mut draft = staging.create("list.xml").unwrap();
        draft.write_all(&vec![b'x'; usize::try_from(length).unwrap()]).unwrap();
        let staged = staging.stage(draft).unwrap();
        staging.publish(staged).unwrap();
        staging.into_digests()
    }

    #[test]
    fn a_large_document_is_digested_where_that_is_wanted_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let staging = || Staging::open(folder.path()).unwrap();
        assert!(digests(staging(), LARGE).is_empty());
        assert!(digests(staging().digesting(), LARGE - 1).is_empty());
        let digests = digests(staging().digesting(), LARGE + 1);
        let path = folder.path().join("list.xml");
        let expected = Digest::of(Algorithm::Sha256, &std::fs::read(&path).unwrap());
        assert_eq!(digests, BTreeMap::from([(path, expected)]));
    }
}
