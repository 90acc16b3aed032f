//! Whose turn it is: one run at a time changes a site's state, and one run at a time tells each of its hubs.
//!
//! They are two locks, so that a hub that is slow to answer keeps no build waiting. A run that holds both took [`Turn`] first.

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

use resync_core::{
    digest::{Algorithm, Digest},
    durable::make_folder,
};

use crate::{
    settings::HubUrl,
    state::{FOLDER, StateError},
};

/// The right to change a site: while it lives, other writers of the same OUT wait.
#[derive(Debug)]
pub(crate) struct Lock {
    out: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits until no other writer works on `out`.
    pub(crate) fn acquire(out: &Path) -> Result<Self, StateError> {
        Ok(Self { out: out.to_owned(), _file: hold(out, "lock", "works on this site")? })
    }

    /// The site.
    pub(crate) fn out(&self) -> &Path {
        &self.out
    }
}

/// The right to tell one of a site's hubs: while it lives, no other run can tell it something older or newer.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "the lock lasts as long as the file is open")] File);

impl Turn {
    /// Waits until no other run tells this hub of the site in `out`.
    pub(crate) fn acquire(out: &Path, hub: &HubUrl) -> Result<Self, StateError> {
        let digest = Digest::of(Algorithm::Md5, hub.as_str().as_bytes()).to_string();
        let name = digest.rsplit(':').next().unwrap_or_default();
        hold(out, &format!("notify-{name}.lock"), "tells the same hub").map(Self)
    }
}

fn hold(out: &Path, name: &str, doing: &str) -> Result<File, StateError> {
    let path = out.join(FOLDER).join(name);
    let failed = |action, source| StateError::Io { action, path: path.clone(), source };
    make_folder(&out.join(FOLDER)).map_err(|source| failed("make the folder of", source))?;
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(false)
        .open(&path)
        .map_err(|source| failed("open", source))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            tracing::info!(out = %out.display(), "waiting for another resync-source that {doing}");
            file.lock().map_err(|source| failed("lock", source))?;
        }
        Err(TryLockError::Error(source)) => return Err(failed("lock", source)),
    }
    Ok(file)
}
