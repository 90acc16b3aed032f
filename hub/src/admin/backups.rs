//! Backups of a running hub.

use std::io::Write;
use std::sync::Arc;

use super::audit::By;
use super::commands::Outcome;
use super::text::{Size, counted};
use super::{AdminService, Failed};
use crate::store::Copied;

impl AdminService {
    /// Writes a backup of the hub's state at one moment after this call. One backup runs at a time.
    ///
    /// # Errors
    /// [`Failed`]
    pub async fn back_up(&self, by: By, out: impl Write + Send + 'static) -> Result<Copied, Failed> {
        let Ok(turn) = Arc::clone(&self.backing_up).try_lock_owned() else {
            return Err(Failed::Conflict("another backup is under way: wait for its end".to_owned()));
        };
        let taken = |service: Self| async move {
            let taken = service.store.back_up(service.beside, Box::new(out)).await;
            drop(turn);
            Ok(taken?)
        };
        self.audited(by, "backup", "", taken).await
    }
}

impl Outcome for Copied {
    fn summary(&self) -> String {
        format!("{}, {}", counted(self.records, "record", "records"), Size(self.bytes))
    }
}
