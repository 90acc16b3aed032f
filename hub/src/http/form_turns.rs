//! Turns to handle forms: anybody may send them by the hundred in one moment, and notifications come in between.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

/// Forms that are handled at once.
const AT_ONCE: usize = 4;
/// A turn ends after this time although the form is not stored yet, so that forms do not wait for each other at a slow disk.
const TURN: Duration = Duration::from_millis(3);

/// Turns to handle forms, in the order of the requests.
#[derive(Debug)]
pub struct FormTurns(Semaphore);

impl FormTurns {
    /// Handles one form in its turn.
    pub(super) async fn during<T>(&self, handled: impl Future<Output = T>) -> T {
        let turn = self.take().await;
        let mut handled = pin!(handled);
        if let Ok(answer) = timeout(TURN, &mut handled).await {
            return answer;
        }
        drop(turn);
        handled.await
    }

    /// The right to handle one form, until it is dropped.
    async fn take(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.0.acquire().await.ok()
    }
}

impl Default for FormTurns {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn of_a_flood_of_forms_few_are_handled_at_once_and_in_their_order() {
        let turns = FormTurns::default();
        let mut handled: Vec<_> = (0..AT_ONCE).map(|_| turns.take().now_or_never().flatten()).collect();
        assert!(handled.iter().all(Option::is_some));
        let (mut next, mut last) = (Box::pin(turns.take()), Box::pin(turns.take()));
        assert!((&mut next).now_or_never().is_none() && (&mut last).now_or_never().is_none());
        handled.pop();
        assert!((&mut last).now_or_never().is_none(), "it comes after the one before");
        assert!((&mut next).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn forms_that_wait_for_a_slow_disk_do_not_hold_up_the_next() {
        let turns = FormTurns::default();
        let stuck = (0..AT_ONCE).map(|_| turns.during(pending::<()>()));
        let mut stuck = Box::pin(join_all(stuck));
        assert!((&mut stuck).now_or_never().is_none());
        assert!(turns.take().now_or_never().is_none());
        tokio::time::advance(TURN).await;
        assert!((&mut stuck).now_or_never().is_none());
        assert!(turns.take().now_or_never().is_some());
    }
}
