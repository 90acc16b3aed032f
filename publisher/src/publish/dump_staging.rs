//! A hidden folder in which a dump is made while builds go on. In the end its documents and packages move among the published ones, in the order in which they
//! were made. What an interrupted dump leaves there is removed.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use resync_core::build::{BuildError, Documents, FolderDocuments, FolderDraft, FolderSink, Sink, StagedFile};

use super::staging::Staging;
use crate::{helpers::files, site::DOCUMENT_FOLDER, state::DumpLock};

/// Its name. It lies in the folder of the documents, on the same file system, so that nothing has to be copied.
const FOLDER: &str = ".dump";

/// The published documents as they will be.
#[derive(Debug)]
pub(super) struct DumpStaging {
    folder: PathBuf,
    made: FolderSink,
    published: FolderDocuments,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Publish(String),
    Remove(String),
}

impl DumpStaging {
    /// An empty one, for a dump of the site in `out`.
    pub(super) fn open(out: &Path, _: &DumpLock) -> Result<Self, BuildError> {
        let documents = out.join(DOCUMENT_FOLDER);
        let folder = documents.join(FOLDER);
        files::remove_folder(&folder)
            .map_err(|source| BuildError::Folder { folder: folder.clone(), source })?;
        let made = FolderSink::open(&folder)?;
        Ok(Self { folder, made, published: FolderSink::read(documents), steps: Vec::new() })
    }

    /// Repeats with the published documents what was done here. New ones, to which nothing links yet, are synced together before the first that replaces another.
    pub(super) fn carry_out(self, staging: &mut Staging) -> Result<(), BuildError> {
        let mut are_durable = true;
        for step in &self.steps {
            match step {
                Step::Publish(name) => {
                    let failed = |source| BuildError::Write { name: name.clone(), source };
                    let replaces = self.published.open(name).map_err(failed)?.is_some();
                    if replaces && !are_durable {
                        staging.sync().map_err(failed)?;
                    }
                    staging.adopt(&self.folder.join(name), name).map_err(failed)?;
                    if replaces {
                        staging.sync().map_err(failed)?;
                    }
                    are_durable = replaces;
                }
                Step::Remove(name) => {
                    staging
                        .remove(name)
                        .map_err(|source| BuildError::Remove { name: name.clone(), source })?;
                }
            }
        }
        if are_durable {
            return Ok(());
        }
        let documents = self.folder.parent().unwrap_or(&self.folder).to_owned();
        staging.sync().map_err(|source| BuildError::Folder { folder: documents, source })
    }
}

impl Drop for DumpStaging {
    fn drop(&mut self) {
        // The next run tries again.
        let _ = files::remove_folder(&self.folder);
    }
}

/// Removes what an interrupted dump left, unless another is being made.
pub(super) fn sweep(out: &Path) -> io::Result<()> {
    let folder = out.join(DOCUMENT_FOLDER).join(FOLDER);
    if !folder.exists() {
        return Ok(());
    }
    match DumpLock::try_acquire(out)? {
        Some(_lock) => files::remove_folder(&folder),
        None => Ok(()),
    }
}

impl Documents for DumpStaging {
    type Published = File;

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        match self.made.open(name)? {
            Some(made) => Ok(Some(made)),
            None => self.published.open(name),
        }
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let mut names = self.published.list(prefix)?;
        names.extend(self.made.list(prefix)?);
        names.sort();
        names.dedup();
        Ok(names)
    }
}

impl Sink for DumpStaging {
    type Draft = FolderDraft;
    type Staged = StagedFile;

    fn create(&mut self, name: &str) -> io::Result<FolderDraft> {
        self.made.create(name)
    }

    fn stage(&mut self, draft: FolderDraft) -> io::Result<StagedFile> {
        self.made.stage(draft)
    }

    fn publish(&mut self, staged: StagedFile) -> io::Result<()> {
        let name = staged.target().strip_prefix(&self.folder).ok().and_then(Path::to_str);
        let name = name.ok_or_else(|| io::Error::other("a document of another folder"))?.to_owned();
        // Names need not be durable before they are those of published documents.
        self.made.publish_for_now(staged)?;
        self.steps.push(Step::Publish(name));
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<bool> {
        let is_made = self.made.remove(name)?;
        self.steps.retain(|step| !matches!(step, Step::Publish(made) if made == name));
        let is_published = self.published.open(name)?.is_some();
        if is_published {
            self.steps.push(Step::Remove(name.to_owned()));
        }
        Ok(is_made || is_published)
    }

    fn scratch_folder(&self) -> Option<&Path> {
        self.made.scratch_folder()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write as _};

    use super::*;

    fn put(sink: &mut impl Sink, name: &str, text: &str) {
        let mut draft = sink.create(name).unwrap();
        draft.write_all(text.as_bytes()).unwrap();
        let staged = sink.stage(draft).unwrap();
        sink.publish(staged).unwrap();
    }

    #[test]
    fn what_is_made_is_seen_by_who_makes_it_and_by_others_when_it_is_carried_out() {
        let out = tempfile::tempdir().unwrap();
        let folder = out.path().join(DOCUMENT_FOLDER);
        let turn = DumpLock::acquire(out.path()).unwrap();
        for name in ["list.xml", "list-old.zip"] {
            put(&mut Staging::open(&folder).unwrap(), name, "before");
        }
        let mut dump_staging = DumpStaging::open(out.path(), &turn).unwrap();
        put(&mut dump_staging, "list-new.zip", "new");
        put(&mut dump_staging, "list.xml", "after");
        assert!(dump_staging.remove("list-old.zip").unwrap() && !dump_staging.remove("none").unwrap());
        assert_eq!(dump_staging.list("list").unwrap(), ["list-new.zip", "list-old.zip", "list.xml"]);
        sweep(out.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        assert_eq!((read("list.xml").as_deref(), read("list-new.zip")), (Some("before"), None));
        dump_staging.carry_out(&mut Staging::open(&folder).unwrap()).unwrap();
        assert_eq!((read("list.xml").as_deref(), read("list-old.zip")), (Some("after"), None));
        assert_eq!(read("list-new.zip").as_deref(), Some("new"));
        assert!(!folder.join(FOLDER).exists());
    }

    #[test]
    fn what_was_left_is_removed_once_no_dump_is_under_way() {
        let out = tempfile::tempdir().unwrap();
        let left = out.path().join(DOCUMENT_FOLDER).join(FOLDER).join("left.zip");
        fs::create_dir_all(left.parent().unwrap()).unwrap();
        fs::write(&left, "x").unwrap();
        let turn = DumpLock::acquire(out.path()).unwrap();
        sweep(out.path()).unwrap();
        assert!(left.exists());
        drop(turn);
        sweep(out.path()).unwrap();
        assert!(!left.exists());
    }
}
