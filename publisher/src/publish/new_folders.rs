//! The folders of a new site, whose names must be durable before anything links to what is in them.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

use resync_core::durable;

use crate::{
    settings::Settings,
    site::{DOCUMENT_FOLDER, Site},
    state,
};

/// The folders of a new site. Their names are synced while the files of the collection are looked at.
#[derive(Debug, Default)]
pub(super) struct NewFolders {
    unsynced: Arc<BTreeSet<PathBuf>>,
    /// `None` if no thread could be started.
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl NewFolders {
    /// If a folder cannot be made, whoever needs it fails.
    pub(super) fn make(settings: &Settings, out: &Path) -> Self {
        if state::path(out).exists() {
            return Self::default();
        }
        let description = out.join(Site::of(settings).source_description().path);
        let folders =
            [out.join(state::FOLDER), out.join(DOCUMENT_FOLDER), durable::folder_of(&description).to_owned()];
        // Those above the site are durable one by one: a later run cannot tell which of them a killed one has made.
        let made = durable::make_folder(out)
            .and_then(|()| durable::make_folders(folders.iter().map(PathBuf::as_path)));
        let Ok(mut unsynced) = made else { return Self::default() };
        // A run that was killed may have made these without syncing.
        unsynced.extend([out, durable::folder_of(out)].map(Path::to_owned));
        let unsynced = Arc::new(unsynced);
        let named = thread::Builder::new().name("new-folders".to_owned());
        let thread = named.spawn({
            let unsynced = Arc::clone(&unsynced);
            move || Self::sync(&unsynced)
        });
        Self { unsynced, thread: thread.ok() }
    }

    fn sync(folders: &BTreeSet<PathBuf>) -> io::Result<()> {
        folders.iter().try_for_each(|folder| durable::sync_folder(folder))
    }

    /// Waits until they are durable.
    pub(super) fn sync_all(self) -> io::Result<()> {
        match self.thread {
            Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            None => Self::sync(&self.unsynced),
        }
    }
}
