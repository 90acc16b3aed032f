//! Backups of a running hub.

use std::io::Write;

use super::acts::Outcome;
use super::audit::By;
use super::words::Size;
use super::{Desk, Failed};
use crate::store::Copied;

impl Desk {
    /// Writes a backup of the hub as of one moment after this was called. One is taken at a time.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn back_up(&self, by: By, out: impl Write + Send + 'static) -> Result<Copied, Failed> {
        let Ok(_taking) = self.backing_up.try_lock() else {
            return Err(Failed::Conflict("another backup is being taken: wait for its end".to_owned()));
        };
        let taken = async { Ok(self.store.back_up(self.beside.clone(), Box::new(out)).await?) };
        self.audited(by, "backup", "", taken).await
    }
}

impl Outcome for Copied {
    fn told(&self) -> String {
        format!("{} records, {}", self.records, Size(self.bytes))
    }
}
