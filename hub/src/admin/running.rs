//! Where a running hub takes commands: a note in its data folder, which counts while the hub has it locked.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use resync_core::lock::FileLock;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

const NOTE: &str = "running.json";
const DRAFT: &str = "running.json.draft";

/// The admin listener of a running hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Where it listens.
    pub admin: SocketAddr,
    /// The certificate by which it speaks TLS.
    pub certificate: Option<PathBuf>,
}

/// The note of this process: it counts until this is dropped, or the process ends.
#[derive(Debug)]
pub struct RunningNote(FileLock);

impl RunningNote {
    /// Lets it count until `stop` turns true.
    pub async fn keep(self, mut stop: watch::Receiver<bool>) {
        // Also when the other end is gone.
        let _ = stop.wait_for(|stop| *stop).await;
        drop(self.0);
    }
}

impl Running {
    /// Writes it down in the data folder.
    ///
    /// # Errors
    /// When the folder cannot be written to.
    pub fn write_down(&self, folder: &Path) -> io::Result<RunningNote> {
        let draft = folder.join(DRAFT);
        let file = File::options().write(true).create(true).truncate(true).open(&draft)?;
        // It is locked before anybody can find it.
        let lock = FileLock::try_lock(file)?.ok_or(io::ErrorKind::ResourceBusy)?;
        lock.file().write_all(&serde_json::to_vec(self)?)?;
        fs::rename(draft, folder.join(NOTE))?;
        Ok(RunningNote(lock))
    }

    /// Where the hub of this data folder takes commands; `None` if none runs there.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn find(folder: &Path) -> io::Result<Option<Self>> {
        let file = match File::open(folder.join(NOTE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // Shared, so that two who ask at the same time do not take each other for the hub.
        match file.try_lock_shared() {
            Ok(()) => return Ok(None),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let Self { mut admin, certificate } = serde_json::from_reader(file)?;
        match admin {
            SocketAddr::V4(all) if all.ip().is_unspecified() => admin.set_ip(Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(all) if all.ip().is_unspecified() => admin.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        Ok(Some(Self { admin, certificate }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(address: &str) -> Running {
        Running { admin: address.parse().unwrap(), certificate: None }
    }

    #[test]
    fn a_note_counts_while_its_hub_runs_and_the_next_one_replaces_it() {
        let folder = tempfile::tempdir().unwrap();
        let found = || Running::find(folder.path()).unwrap();
        assert_eq!(found(), None);
        let first = at("127.0.0.1:1").write_down(folder.path()).unwrap();
        assert_eq!(found(), Some(at("127.0.0.1:1")));
        drop(first);
        assert!(folder.path().join(NOTE).exists());
        assert_eq!((found(), found()), (None, None), "as after a kill");
        let _second = at("[::]:2").write_down(folder.path()).unwrap();
        assert_eq!(found(), Some(at("[::1]:2")), "every address is not where one asks");
    }

    #[test]
    fn who_asks_at_the_same_time_is_not_taken_for_a_hub() {
        let folder = tempfile::tempdir().unwrap();
        drop(at("127.0.0.1:1").write_down(folder.path()).unwrap());
        let asking = File::open(folder.path().join(NOTE)).unwrap();
        asking.try_lock_shared().unwrap();
        assert_eq!(Running::find(folder.path()).unwrap(), None);
    }

    #[test]
    fn a_folder_that_is_not_there_has_no_hub() {
        assert_eq!(Running::find(Path::new("/nowhere/at/all")).unwrap(), None);
    }
}
