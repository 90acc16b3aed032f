//! Whether the database takes commands, as it is known without asking.

use std::mem;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use resync_common::locks::lock;
use tokio::sync::watch;

use crate::store::{Result, StoreError};

#[derive(Debug)]
pub(super) struct Health {
    /// Why nothing is sent, and since when, for whatever reasons.
    trouble: Mutex<Option<(StoreError, Instant)>>,
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
        lock(&self.trouble).clone().map_or(Ok(()), |(error, _)| Err(error))
    }

    /// How long nothing has been sent.
    pub(super) fn away_for(&self) -> Option<Duration> {
        lock(&self.trouble).as_ref().map(|(_, since)| since.elapsed())
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
            (Some((known, _)), Err(error)) if is_another(known, error) => {
                tracing::error!(%error, "the database still cannot be used, for another reason");
            }
            (Some(_), Err(error)) => tracing::debug!(%error, "the database still cannot be used"),
            (None, Ok(())) => {}
        }
        let since = trouble.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        *trouble = look.as_ref().err().map(|error| (error.clone(), since));
    }

    /// A task without which nothing is written has died.
    pub(super) fn set_broken(&self) {
        *lock(&self.trouble) = Some((StoreError::Closed, Instant::now()));
        self.broken.send_replace(true);
    }

    pub(super) async fn broken(&self) {
        // It fails only where this is gone, which it is not.
        let _ = self.broken.subscribe().wait_for(|broken| *broken).await;
    }
}

/// Whether somebody has to hear of it who knows the other one. What a database lacks says its text; others name what happened to be met first.
fn is_another(known: &StoreError, error: &StoreError) -> bool {
    match (known, error) {
        (StoreError::NotDurable(known), StoreError::NotDurable(reason)) => known != reason,
        _ => mem::discriminant(known) != mem::discriminant(error),
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

    #[test]
    fn a_reason_is_another_if_it_is_of_another_kind_or_something_else_is_lacking() {
        let (away, lacking) =
            (|text: &str| StoreError::Away(text.into()), |text: &str| StoreError::NotDurable(text.into()));
        assert!(!is_another(&away("gone"), &away("no answer")));
        assert!(is_another(&away("gone"), &lacking("fsync")));
        assert!(is_another(&lacking("fsync"), &lacking("no standby")));
        assert!(!is_another(&lacking("fsync"), &lacking("fsync")));
        assert!(is_another(&lacking("fsync"), &StoreError::EarlierPoint));
    }

    #[test]
    fn a_database_is_away_since_the_first_look_that_failed_for_whatever_reason() {
        let health = Health::unknown();
        let since = || lock(&health.trouble).as_ref().map(|(_, since)| *since);
        assert!(health.away_for().is_none());
        health.note(&Err(StoreError::Away("gone".to_owned())));
        let first = since();
        assert!(first.is_some() && health.away_for().is_some());
        health.note(&Err(StoreError::NotDurable("it has no standby".to_owned())));
        assert!(matches!(health.get(), Err(StoreError::NotDurable(_))));
        assert_eq!(since(), first);
        health.note(&Ok(()));
        assert!(health.away_for().is_none());
    }
}
