//! A lock in a file: one process at a time has it, and it is given back when the value is dropped or the process ends.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

/// A file that is locked until this is dropped. Others that only read or write it are not kept from that.
///
/// ```
/// use resync_core::lock::FileLock;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("lock");
/// let lock = FileLock::try_acquire(&path)?;
/// assert!(lock.is_some() && FileLock::try_acquire(&path)?.is_none());
/// drop(lock);
/// assert!(FileLock::try_acquire(&path)?.is_some());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks the file at `path`, which is made if there is none; `None` while somebody else has the lock.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        Self::try_lock(open(path)?)
    }

    /// Locks the file at `path`, which is made if there is none. Waits while somebody else has the lock.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        Self::lock(open(path)?)
    }

    /// Locks an open file; `None` while somebody else has the lock.
    pub fn try_lock(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Locks an open file. Waits while somebody else has the lock.
    pub fn lock(file: File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self(file))
    }

    /// The file, for who writes into it who has the lock.
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // To close the file is not enough: a program that another thread starts at this moment has it open for an instant too.
        let _ = self.0.unlock();
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}
