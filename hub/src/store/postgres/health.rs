//! Whether the database takes commands, as it is known without asking.

use std::sync::Mutex;

use resync_common::locks::lock;
use tokio::sync::watch;

use crate::store::{Result, StoreError};

#[derive(Debug)]
pub(super) struct Health {
    /// Why nothing is sent.
    trouble: Mutex<Option<StoreError>>,
    /// Whether nothing will ever be written any more.
    broken: watch::Sender<bool>,
}

impl Health {
    /// Nothing has been heard of the database yet.
    pub(super) fn unknown() -> Self {
        Self { trouble: Mutex::default(), broken: watch::Sender::new(false) }
    }

    /// # Errors
    /// Why nothing is sent.
    pub(super) fn get(&self) -> Result<()> {
        lock(&self.trouble).clone().map_or(Ok(()), Err)
    }

    /// Notes how the last look went, and logs where that is another way than the one before.
    pub(super) fn note(&self, look: &Result<()>) {
        // Nothing mends that.
        if *self.broken.borrow() {
            return;
        }
        let mut trouble = lock(&self.trouble);
        match (&*trouble, look) {
            (None, Err(error)) => {
                tracing::error!(%error, "nothing is accepted until the database can be used");
            }
            (Some(_), Ok(())) => tracing::warn!("the database can be used again"),
            (Some(_), Err(error)) => tracing::debug!(%error, "the database still cannot be used"),
            (None, Ok(())) => {}
        }
        *trouble = look.clone().err();
    }

    /// A task without which nothing is written has died.
    pub(super) fn set_broken(&self) {
        *lock(&self.trouble) = Some(StoreError::Closed);
        self.broken.send_replace(true);
    }

    pub(super) async fn broken(&self) {
        // It fails only where this is gone, which it is not.
        let _ = self.broken.subscribe().wait_for(|broken| *broken).await;
    }
}

/// Reports a task that panics, wherever that happens.
#[derive(Debug)]
pub(super) struct PanicReport<'a>(pub(super) &'a Health);

impl Drop for PanicReport<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.set_broken();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_last_look_found_is_known_until_the_next() {
        let health = Health::unknown();
        assert!(health.get().is_ok());
        health.note(&Err(StoreError::Away("gone".to_owned())));
        assert!(matches!(health.get(), Err(StoreError::Away(reason)) if reason == "gone"));
        health.note(&Ok(()));
        assert!(health.get().is_ok());
        health.set_broken();
        health.note(&Ok(()));
        assert!(matches!(health.get(), Err(StoreError::Closed)), "for ever");
    }
}
