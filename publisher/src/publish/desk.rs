//! The folder of the documents, where every step that readers see can be the last one of a run: see [`files::act`].

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use resync_core::build::{BuildError, Documents, FolderDraft, FolderSink, Sink, StagedFile};

use crate::files;

#[derive(Debug)]
pub(super) struct Desk(FolderSink);

impl Desk {
    pub(super) fn open(folder: impl Into<PathBuf>) -> Result<Self, BuildError> {
        FolderSink::open(folder).map(Self)
    }
}

impl Documents for Desk {
    type Published = File;

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        self.0.open(name)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.0.list(prefix)
    }
}

impl Sink for Desk {
    type Draft = FolderDraft;
    type Staged = StagedFile;

    fn create(&mut self, name: &str) -> io::Result<FolderDraft> {
        self.0.create(name)
    }

    fn stage(&mut self, draft: FolderDraft) -> io::Result<StagedFile> {
        self.0.stage(draft)
    }

    fn publish(&mut self, staged: StagedFile) -> io::Result<()> {
        files::act()?;
        self.0.publish(staged)
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        files::act()?;
        self.0.remove(name)
    }

    fn scratch_folder(&self) -> Option<&Path> {
        self.0.scratch_folder()
    }
}
