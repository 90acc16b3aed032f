//! The database of a hub that is measured: three servers of PostgreSQL, of which the primary can die.

use std::thread;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::Failure;
use resync_harness::Replicated;

/// The servers.
#[derive(Debug)]
pub(super) struct Servers {
    all: Replicated,
    /// It was killed, and comes back before the next one is.
    dead: Option<usize>,
}

impl Servers {
    /// Starts them; `None` where there is no PostgreSQL.
    pub(super) async fn start() -> Result<Option<Self>, Failure> {
        Ok(spawn_blocking(Replicated::start_on_disk).await?.map(|all| Self { all, dead: None }))
    }

    /// What `[store] url` says.
    pub(super) fn url(&self) -> String {
        Replicated::url(&self.all.addresses())
    }

    /// The primary's machine dies, and after so long a standby takes its place.
    pub(super) async fn fail_over(mut self, lasting: Duration) -> Result<Self, Failure> {
        let failing = spawn_blocking(move || {
            if let Some(dead) = self.dead.take() {
                self.all.rejoin(dead);
            }
            self.all.kill(self.all.primary());
            thread::sleep(lasting);
            self.dead = Some(self.all.promote());
            self
        });
        Ok(failing.await?)
    }
}
