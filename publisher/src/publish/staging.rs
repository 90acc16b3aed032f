//! The folder of the documents, where every step that readers see can be the last one of a run: see [`files::act`].

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

use crate::files;

/// Documents of at least so many bytes are digested while they are brought to the disk, which takes as long.
const LARGE: u64 = 1024 * 1024;
/// At most so many documents are brought to the disk at once.
const TOGETHER: usize = 16;

#[derive(Debug)]
pub(super) struct Staging {
    sink: FolderSink,
    /// What is staged and has to be brought to the disk before anything is published.
    pending: Vec<File>,
    /// Whether what is published lasts only from the next time on that the folder is synced.
    is_for_now: bool,
    has_published: bool,
    /// Of large documents, where they are wanted.
    digests: Option<BTreeMap<PathBuf, Digest>>,
}

impl Staging {
    pub(super) fn open(folder: impl Into<PathBuf>) -> Result<Self, BuildError> {
        let (sink, pending) = (FolderSink::open(folder)?, Vec::new());
        Ok(Self { sink, pending, is_for_now: false, has_published: false, digests: None })
    }

    /// The same for documents to which nothing leads before the folder is synced for something else: those of a site that is not yet there.
    pub(super) fn for_now(self, is_for_now: bool) -> Self {
        Self { is_for_now, ..self }
    }

    /// Digests large documents as they are written.
    pub(super) fn digesting(self) -> Self {
        Self { digests: Some(BTreeMap::new()), ..self }
    }

    /// The SHA-256 digests of the large documents that were written since that was wanted, by their paths.
    pub(super) fn into_digests(self) -> BTreeMap<PathBuf, Digest> {
        self.digests.unwrap_or_default()
    }

    /// Puts a document into its place that lies elsewhere on the same file system; it lasts from the next [`sync`](Self::sync) on.
    pub(super) fn adopt(&mut self, from: &Path, name: &str) -> io::Result<()> {
        files::act()?;
        self.has_published = true;
        fs::rename(from, self.sink.path(name))
    }

    /// Makes durable which documents there are.
    pub(super) fn sync(&self) -> io::Result<()> {
        sync_folder(&self.sink.path(""))
    }

    fn sync_pending(&mut self) -> io::Result<()> {
        sync_together(&std::mem::take(&mut self.pending))
    }

    /// Whether readers may see something new since it was opened.
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
            // Where no thread can be had, it is read when it is wanted.
            let digest = thread::Builder::new().spawn_scoped(scope, || files::digest_of(written)).ok();
            (self.sink.stage(draft), digest.map(thread::ScopedJoinHandle::join))
        });
        if let Some(digest) = digest {
            digests.insert(target, digest.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        staged
    }

    fn publish(&mut self, staged: StagedFile) -> io::Result<()> {
        files::act()?;
        self.sync_pending()?;
        self.has_published = true;
        if self.is_for_now { self.sink.publish_for_now(staged) } else { self.sink.publish(staged) }
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        files::act()?;
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
