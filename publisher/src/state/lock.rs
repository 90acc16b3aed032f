//! Locks between processes: one run at a time changes a site's state, and one run at a time notifies each of its hubs.
//!
//! These are two locks, so that a slow hub does not delay a build. A run that holds both locked the hub first.

use std::{
    fs::{self, File},
    hash::{BuildHasher as _, RandomState},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        LazyLock,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use resync_core::{
    datetime::DateTime,
    digest::{Algorithm, Digest},
    durable::make_folder,
    lock::FileLock,
};

use super::FOLDER;
use crate::{
    error::{Action, Error},
    settings::HubUrl,
};

/// After this time a warning says who holds the lock.
const PATIENCE: Duration = Duration::from_secs(3);

/// The right to change a site: while it lives, other writers of the same OUT wait.
#[derive(Debug)]
pub(crate) struct Lock {
    out: PathBuf,
    _lock: FileLock,
}

impl Lock {
    /// Waits until no other writer works on `out`.
    pub(crate) fn acquire(out: &Path) -> Result<Self, Error> {
        Ok(Self { out: out.to_owned(), _lock: hold(out, "lock", "works on this site")? })
    }

    /// The site.
    pub(crate) fn out(&self) -> &Path {
        &self.out
    }
}

/// The right to record which configuration a site belongs to. Waits for other processes that claim the site in `out`. Locks of sets are taken after this
/// one.
pub(crate) fn lock_configuration(out: &Path) -> Result<FileLock, Error> {
    hold(out, "configuration.lock", "claims this site")
}

/// The right to write the Source Description of a site of several sets. Waits for other processes that write it in `out`. The [`Lock`] of a set is taken
/// before this one.
pub(crate) fn lock_description(out: &Path) -> Result<FileLock, Error> {
    hold(out, "description.lock", "describes this site")
}

/// The right to notify one of a site's hubs: while it is held, no other run can send it something older or newer. Waits for other runs.
pub(crate) fn lock_hub(out: &Path, hub: &HubUrl) -> Result<FileLock, Error> {
    let digest = Digest::of(Algorithm::Md5, hub.as_str().as_bytes()).to_string();
    let name = digest.rsplit(':').next().unwrap_or_default();
    hold(out, &format!("notify-{name}.lock"), "notifies the same hub")
}

/// The right to make a dump of a site, or to remove what a dump may read: while it lives, no other run makes one. [`Lock`] is taken after this one, and by
/// dumps only to begin and to end one.
#[derive(Debug)]
pub(crate) struct DumpLock {
    _lock: FileLock,
}

impl DumpLock {
    const NAME: &str = "dump.lock";

    /// Waits until no other run makes a dump of the site in `out`.
    pub(crate) fn acquire(out: &Path) -> Result<Self, Error> {
        Ok(Self { _lock: hold(out, Self::NAME, "makes a dump of this site")? })
    }

    /// None while another run makes one.
    pub(crate) fn try_acquire(out: &Path) -> io::Result<Option<Self>> {
        let path = out.join(FOLDER).join(Self::NAME);
        let lock = FileLock::try_acquire(&path)?;
        Ok(lock.map(|lock| Self { _lock: signed(lock, &path) }))
    }
}

/// Whether a file of a site is one of these locks.
pub(crate) fn is_lock(path: &Path) -> bool {
    path.extension().or(path.file_name()).is_some_and(|name| name == "lock")
}

fn hold(out: &Path, name: &str, doing: &str) -> Result<FileLock, Error> {
    let path = out.join(FOLDER).join(name);
    make_folder(&out.join(FOLDER)).map_err(Error::cannot(Action::MakeFolder, &path))?;
    let warn = || tracing::warn!(out = %out.display(), "waiting for {}, which {doing}", holder(&path));
    let lock = match FileLock::try_acquire(&path) {
        Ok(None) => wait(&path, PATIENCE, warn),
        Ok(Some(lock)) => Ok(lock),
        Err(error) => Err(error),
    };
    Ok(signed(lock.map_err(Error::cannot(Action::Lock, &path))?, &path))
}

/// Writes into a lock's file who holds it. The lock is held even if that fails.
fn signed(lock: FileLock, path: &Path) -> FileLock {
    if let Err(error) = sign(lock.file()) {
        tracing::debug!(%error, lock = %path.display(), "cannot write who holds the lock");
    }
    lock
}

/// Waits for a lock, and warns when that takes long.
fn wait(path: &Path, patience: Duration, warn: impl FnOnce() + Send) -> io::Result<FileLock> {
    thread::scope(|scope| {
        let (locked, is_locked) = channel::<()>();
        scope.spawn(move || {
            if is_locked.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                warn();
            }
        });
        let done = FileLock::acquire(path);
        drop(locked);
        done
    })
}

fn sign(mut file: &File) -> io::Result<()> {
    file.set_len(0)?;
    let now = DateTime::now().truncate_to_seconds();
    writeln!(file, "{} (since {now})", *OWN)
}

/// This process. Processes of two containers may have the same number.
static OWN: LazyLock<String> = LazyLock::new(|| {
    let mark = RandomState::new().hash_one(std::process::id());
    format!("process {} [{mark:016x}]", std::process::id())
});

/// Who holds a lock, as far as it can be read: on some systems nobody else can.
fn holder(path: &Path) -> String {
    let signed = fs::read_to_string(path).unwrap_or_default();
    let signed = signed.trim_end();
    match signed {
        "" => "another resync-source".to_owned(),
        _ if signed.starts_with(OWN.as_str()) => "another task of this process".to_owned(),
        _ => format!("another resync-source, {signed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_for_a_lock_names_its_holder() {
        let out = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(out.path()).unwrap();
        let path = out.path().join(FOLDER).join("lock");
        let (named, names) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let warn = || named.send(holder(&path)).unwrap();
                wait(&path, Duration::ZERO, warn).unwrap();
            });
            assert_eq!(names.recv().unwrap(), "another task of this process");
            drop(lock);
        });
    }

    #[test]
    fn the_holder_is_the_process_that_signed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holder(file.path()), "another resync-source");
        let other = format!("process {} [other] (since 2026-01-02T03:04:05Z)", std::process::id());
        fs::write(file.path(), format!("{other}\n")).unwrap();
        assert_eq!(holder(file.path()), format!("another resync-source, {other}"), "in another container");
    }
}
