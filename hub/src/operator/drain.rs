//! Draining: a hub that takes nothing new while it delivers what it has, before it is stopped or moved.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use resync_core::durable::sync_folder;

use super::views::Draining;
use super::{By, Desk, Failed};

/// The file in the data folder that says it: a socket that systemd holds starts a hub for whoever connects, and that must take nothing
/// that is left behind when the hub moves.
const MARK: &str = "draining";

/// Whether the hub is being drained. Only who began it ends it, not a start.
#[derive(Clone, Debug)]
pub struct Drain {
    on: Arc<AtomicBool>,
    folder: PathBuf,
}

impl Drain {
    /// Why nothing new is taken.
    pub const REASON: &str = "draining";

    /// As the hub of before in this data folder left it.
    pub fn of(folder: &Path) -> Self {
        let on = folder.join(MARK).exists();
        if on {
            tracing::warn!("the hub is drained: it takes nothing new until `resync-hub drain --end`");
        }
        Self { on: Arc::new(AtomicBool::new(on)), folder: folder.to_owned() }
    }

    /// Whether nothing new is taken.
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn set(&self, on: bool) -> io::Result<()> {
        let mark = self.folder.join(MARK);
        if on {
            File::create(mark)?;
        } else if let Err(error) = fs::remove_file(mark)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        sync_folder(&self.folder)?;
        self.on.store(on, Ordering::Relaxed);
        Ok(())
    }
}

impl Desk {
    /// Takes nothing new from now on, or again.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn drain(&self, by: By, on: bool) -> Result<Draining, Failed> {
        let act = if on { "drain" } else { "end drain" };
        let done = async {
            self.drain
                .set(on)
                .map_err(|error| Failed::Conflict(format!("it cannot be noted in the data folder: {error}")))
        };
        self.audited(by, act, "", done).await?;
        Ok(self.draining())
    }

    /// Whether nothing new is taken, and what is still owed.
    pub fn draining(&self) -> Draining {
        Draining { draining: self.drain.is_on(), late: self.counters.totals().laggards }
    }

    /// Why the hub is not ready; `None` when it is.
    pub fn obstacle(&self) -> Option<String> {
        let drained = self.drain.is_on().then(|| Drain::REASON.to_owned());
        self.store.health().err().map(|error| error.to_string()).or(drained)
    }
}
