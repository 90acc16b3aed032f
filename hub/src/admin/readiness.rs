//! Whether the hub is ready, as everybody may ask who reaches the operator's listener: one rule for `/readyz` and the metric.

use std::borrow::Cow;
use std::time::Duration;

use super::{AdminService, Drain};
use crate::store::{Store, StoreError};

/// So long a database may be away before a hub is not ready: all hubs are without it, and most failovers are over by then.
const PATIENCE: Duration = Duration::from_secs(30);

impl AdminService {
    /// Why the hub is not ready: see [`unready`].
    pub fn unready(&self) -> Option<Cow<'static, str>> {
        unready(&*self.store, &self.drain)
    }
}

/// Why a hub with this store is not ready; `None` when it is. What a database says, and where it is, is in the log alone.
pub fn unready(store: &dyn Store, drain: &Drain) -> Option<Cow<'static, str>> {
    let trouble = store.health().err().and_then(|error| reason(&error, store.away_for()));
    trouble.or_else(|| drain.is_on().then_some(Cow::Borrowed(Drain::REASON)))
}

/// What to say of this trouble; `away_for`: so long a database cannot be used.
fn reason(trouble: &StoreError, away_for: Option<Duration>) -> Option<Cow<'static, str>> {
    match (trouble, away_for) {
        (StoreError::NotDurable(_), _) => {
            Some(Cow::Borrowed("the database does not keep what it acknowledges"))
        }
        (StoreError::EarlierPoint, _) => {
            Some(Cow::Borrowed("the database is at an earlier point than this hub has seen"))
        }
        // It has come back just now.
        (StoreError::Away(_) | StoreError::Unknown(_), None) => None,
        (StoreError::Closed, _) | (_, None) => Some(Cow::Owned(trouble.to_string())),
        (_, Some(away_for)) => (away_for >= PATIENCE).then_some(Cow::Borrowed("the database cannot be used")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_may_be_away_for_a_while_and_nobody_hears_what_it_says() {
        let secret = || "db1.internal: no such role".to_owned();
        let (short, long) = (Some(Duration::from_secs(29)), Some(Duration::from_secs(30)));
        for away in [StoreError::Away(secret()), StoreError::Unknown(secret()), StoreError::Write(secret())] {
            assert_eq!(reason(&away, short), None);
            assert_eq!(reason(&away, long).as_deref(), Some("the database cannot be used"));
        }
        assert_eq!(reason(&StoreError::Away(secret()), None), None, "it is back");
        let lax = StoreError::NotDurable(secret());
        let said = reason(&lax, short).unwrap();
        assert_eq!(said, "the database does not keep what it acknowledges", "at once");
        let said = reason(&StoreError::EarlierPoint, short).unwrap();
        assert_eq!(said, "the database is at an earlier point than this hub has seen", "at once");
    }

    #[test]
    fn an_embedded_store_that_does_not_work_is_not_ready_at_once_and_says_why() {
        let full = StoreError::Write("no space left on device".to_owned());
        assert_eq!(reason(&full, None).unwrap(), full.to_string());
        let closed = reason(&StoreError::Closed, Some(Duration::ZERO)).unwrap();
        assert_eq!(closed, StoreError::Closed.to_string(), "it has to be started again");
    }
}
