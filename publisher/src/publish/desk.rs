//! The folder of the documents, where every step that readers see can be the last one of a run: see [`files::act`].

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use resync_core::build::{BuildError, Documents, FolderDraft, FolderSink, Sink, StagedFile};

use crate::files;

#[derive(Debug)]
pub(super) struct Desk {
    sink: FolderSink,
    has_published: bool,
}

impl Desk {
    pub(super) fn open(folder: impl Into<PathBuf>) -> Result<Self, BuildError> {
        Ok(Self { sink: FolderSink::open(folder)?, has_published: false })
    }

    /// Whether readers may see something new since it was opened.
    pub(super) fn has_published(&self) -> bool {
        self.has_published
    }
}

impl Documents for Desk {
    type Published = File;

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        self.sink.open(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.sink.list(prefix)
    }
}

impl Sink for Desk {
    type Draft = FolderDraft;
    type Staged = StagedFile;

    fn create(&mut self, name: &str) -> io::Result<FolderDraft> {
        self.sink.create(name)
    }

    fn stage(&mut self, draft: FolderDraft) -> io::Result<StagedFile> {
        self.sink.stage(draft)
    }

    fn publish(&mut self, staged: StagedFile) -> io::Result<()> {
        files::act()?;
        self.has_published = true;
        self.sink.publish(staged)
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        files::act()?;
        self.sink.remove(name)
    }

    fn scratch_folder(&self) -> Option<&Path> {
        self.sink.scratch_folder()
    }
}
