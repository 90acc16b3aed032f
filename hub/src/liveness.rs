//! Liveness: whether the store's writer and every worker of delivery still answer. They are asked again and again.
//!
//! What watches over the process (`/livez`, systemd's watchdog) may restart it after one of them was silent for a minute. A restart
//! has to help, so a full disk is no silence: the writer answers that it was refused. Missed answers are counted, not time, since the
//! clock goes on while the machine or the process sleeps.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use resync_common::locks::lock;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::delivery::Operator;
use crate::store::Store;

/// The pause between two checks, and how long one waits for its answer.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Checks without an answer after which a part is silent: a minute.
const MISSED_CHECKS: u32 = 12;

/// Whether the hub's parts answer.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<Mutex<BTreeMap<&'static str, Part>>>);

#[derive(Debug, Default)]
struct Part {
    /// Grows by one with each answer and each missed one.
    checks: u64,
    is_silent: bool,
}

/// Watches liveness from another thread. It also notices that the checks themselves no longer run.
#[derive(Debug)]
pub struct LivenessMonitor {
    liveness: Liveness,
    /// The checks of each part, and for how long their number has not changed.
    seen: BTreeMap<&'static str, (u64, Duration)>,
}

impl LivenessMonitor {
    /// The part that has not answered, or was not asked, for a minute; `passed` is the time since the last call.
    pub fn silent(&mut self, passed: Duration) -> Option<&'static str> {
        let parts = self.liveness.parts();
        let mut silent = None;
        for (name, part) in parts.iter() {
            let still = match self.seen.get(name) {
                Some((checks, still)) if *checks == part.checks => still.saturating_add(passed),
                _ => Duration::ZERO,
            };
            self.seen.insert(*name, (part.checks, still));
            if part.is_silent || still >= CHECK_EVERY * MISSED_CHECKS {
                silent = silent.or(Some(*name));
            }
        }
        silent
    }
}

impl Liveness {
    /// Starts to check the parts without which nothing is accepted or delivered.
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        delivery: Operator,
        stopped: &watch::Receiver<bool>,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (liveness, store) = (Self::default(), Arc::clone(store));
        let writer = move || {
            let store = Arc::clone(&store);
            async move { store.answers().await }
        };
        let workers = move || {
            let delivery = delivery.clone();
            async move { delivery.answers().await }
        };
        tasks.spawn(liveness.clone().check_until("the store's writer", writer, stopped.clone()));
        tasks.spawn(liveness.clone().check_until("delivery", workers, stopped.clone()));
        liveness
    }

    /// The part that has not answered for a minute.
    pub fn silent(&self) -> Option<&'static str> {
        self.parts().iter().find(|(_, part)| part.is_silent).map(|(name, _)| *name)
    }

    /// Starts to watch.
    pub fn monitor(&self) -> LivenessMonitor {
        LivenessMonitor { liveness: self.clone(), seen: BTreeMap::new() }
    }

    /// Checks a part of the hub until `stopped` turns true. An error means that it has ended and will never answer.
    pub fn check_until<A, E>(
        self,
        part: &'static str,
        ask: impl Fn() -> A,
        mut stopped: watch::Receiver<bool>,
    ) -> impl Future<Output = ()>
    where
        A: Future<Output = Result<(), E>>,
    {
        // At once, so that a monitor also notices a part whose checks never began.
        self.count_check(part);
        async move {
            tokio::select! {
                () = self.ask_for_ever(part, ask) => {}
                // If the sender is gone, the hub has stopped.
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }
    }

    async fn ask_for_ever<A, E>(&self, part: &'static str, ask: impl Fn() -> A)
    where
        A: Future<Output = Result<(), E>>,
    {
        loop {
            let mut answer = pin!(answered(ask()));
            let mut missed = 0_u32;
            while timeout(CHECK_EVERY, answer.as_mut()).await.is_err() {
                missed = missed.saturating_add(1);
                self.count_check(part);
                if missed == MISSED_CHECKS {
                    tracing::error!(part, "a part of the hub has not answered for a minute: restart the hub");
                    self.set_silent(part, true);
                }
            }
            self.count_check(part);
            if self.set_silent(part, false) {
                tracing::warn!(part, "a part of the hub answers again");
            }
            sleep(CHECK_EVERY).await;
        }
    }

    fn count_check(&self, part: &'static str) {
        let mut parts = self.parts();
        let checks = &mut parts.entry(part).or_default().checks;
        *checks = checks.wrapping_add(1);
    }

    /// Returns whether it was silent before.
    fn set_silent(&self, part: &'static str, is_silent: bool) -> bool {
        mem::replace(&mut self.parts().entry(part).or_default().is_silent, is_silent)
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<&'static str, Part>> {
        lock(&self.0)
    }
}

async fn answered<E>(answer: impl Future<Output = Result<(), E>>) {
    if answer.await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::ready;

    use tokio::sync::Notify;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_part_is_silent_when_it_has_not_answered_for_a_minute_until_it_does() {
        let (liveness, answer) = (Liveness::default(), Arc::new(Notify::new()));
        let (_stop, stopped) = watch::channel(false);
        let part = Arc::clone(&answer);
        let ask = move || {
            let part = Arc::clone(&part);
            async move {
                part.notified().await;
                Ok::<_, Infallible>(())
            }
        };
        tokio::spawn(liveness.clone().check_until("the writer", ask, stopped.clone()));
        tokio::spawn(liveness.clone().check_until("another", || ready(Ok::<_, Infallible>(())), stopped));
        sleep(11 * CHECK_EVERY + CHECK_EVERY / 2).await;
        assert_eq!(liveness.silent(), None, "slow to fail");
        sleep(CHECK_EVERY).await;
        assert_eq!(liveness.silent(), Some("the writer"));
        answer.notify_one();
        sleep(CHECK_EVERY).await;
        assert_eq!(liveness.silent(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_has_ended_is_silent_and_a_hub_that_stops_is_not_asked_any_more() {
        let liveness = Liveness::default();
        let (stop, stopped) = watch::channel(false);
        let asking = tokio::spawn(liveness.clone().check_until("delivery", || ready(Err(())), stopped));
        sleep(2 * MINUTE).await;
        assert_eq!(liveness.silent(), Some("delivery"));
        stop.send(true).unwrap();
        asking.await.unwrap();
    }
}
