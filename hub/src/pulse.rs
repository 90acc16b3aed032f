//! The hub's pulse: a question that goes through the store's writer and through every worker of delivery, again and again.
//!
//! Whoever watches over the process (`/livez`, the watchdog of systemd) may start it again where one of them has been silent for a
//! minute. A restart has to help, so a disk that is full or refuses writes is no silence: the writer answers that it was refused. And
//! what counts is how often an answer was waited for, not the clock, which goes on where the machine or the process sleeps.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::delivery::Operator;
use crate::store::Store;

/// The pause between two questions, and how long an answer is waited for at once.
const BEAT: Duration = Duration::from_secs(5);
/// So many beats without an answer are silence: a minute.
const SILENCE: u32 = 12;

/// Whether the hub's parts answer.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<Mutex<BTreeMap<&'static str, Part>>>);

#[derive(Debug, Default)]
struct Part {
    /// Grows by one each time that the part answered or was waited for in vain.
    beats: u64,
    is_silent: bool,
}

/// Who looks at the pulse from elsewhere: while nobody asks the parts any more, because nothing runs that could, none is found silent.
#[derive(Debug)]
pub struct Onlooker {
    pulse: Pulse,
    /// The beats of each part when they last moved, and for how long they have not.
    seen: BTreeMap<&'static str, (u64, Duration)>,
}

impl Onlooker {
    /// The part that has not answered, or not been asked, for a minute; `passed` is the time since the last look.
    pub fn silent(&mut self, passed: Duration) -> Option<&'static str> {
        let parts = self.pulse.parts();
        let mut silent = None;
        for (name, part) in parts.iter() {
            let still = match self.seen.get(name) {
                Some((beats, still)) if *beats == part.beats => still.saturating_add(passed),
                _ => Duration::ZERO,
            };
            self.seen.insert(*name, (part.beats, still));
            if part.is_silent || still >= BEAT * SILENCE {
                silent = silent.or(Some(*name));
            }
        }
        silent
    }
}

impl Pulse {
    /// Asks those without whom nothing is taken or delivered.
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        delivery: Operator,
        stopped: &watch::Receiver<bool>,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (pulse, store) = (Self::default(), Arc::clone(store));
        let writer = move || {
            let store = Arc::clone(&store);
            async move { store.answers().await }
        };
        let workers = move || {
            let delivery = delivery.clone();
            async move { delivery.answers().await }
        };
        tasks.spawn(pulse.clone().keep("the store's writer", writer, stopped.clone()));
        tasks.spawn(pulse.clone().keep("delivery", workers, stopped.clone()));
        pulse
    }

    /// The part that has not answered for a minute.
    pub fn silent(&self) -> Option<&'static str> {
        self.parts().iter().find(|(_, part)| part.is_silent).map(|(name, _)| *name)
    }

    /// Begins to look on.
    pub fn onlooker(&self) -> Onlooker {
        Onlooker { pulse: self.clone(), seen: BTreeMap::new() }
    }

    /// Asks a part of the hub how it is until `stopped` turns true. An error says that it has ended and will never answer.
    pub fn keep<A, E>(
        self,
        part: &'static str,
        ask: impl Fn() -> A,
        mut stopped: watch::Receiver<bool>,
    ) -> impl Future<Output = ()>
    where
        A: Future<Output = Result<(), E>>,
    {
        // At once: an onlooker misses also a part that nobody ever began to ask.
        self.beat(part);
        async move {
            tokio::select! {
                () = self.ask_for_ever(part, ask) => {}
                // One that is gone will not turn it true any more.
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
            while timeout(BEAT, answer.as_mut()).await.is_err() {
                missed = missed.saturating_add(1);
                self.beat(part);
                if missed == SILENCE {
                    tracing::error!(
                        part,
                        "a part of the hub has not answered for a minute: a restart is due"
                    );
                    self.set_silent(part, true);
                }
            }
            self.beat(part);
            if self.set_silent(part, false) {
                tracing::warn!(part, "a part of the hub answers again");
            }
            sleep(BEAT).await;
        }
    }

    fn beat(&self, part: &'static str) {
        let mut parts = self.parts();
        let beats = &mut parts.entry(part).or_default().beats;
        *beats = beats.wrapping_add(1);
    }

    /// Tells whether it was silent before.
    fn set_silent(&self, part: &'static str, is_silent: bool) -> bool {
        mem::replace(&mut self.parts().entry(part).or_default().is_silent, is_silent)
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<&'static str, Part>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (pulse, answer) = (Pulse::default(), Arc::new(Notify::new()));
        let (_stop, stopped) = watch::channel(false);
        let part = Arc::clone(&answer);
        let ask = move || {
            let part = Arc::clone(&part);
            async move {
                part.notified().await;
                Ok::<_, Infallible>(())
            }
        };
        tokio::spawn(pulse.clone().keep("the writer", ask, stopped.clone()));
        tokio::spawn(pulse.clone().keep("another", || ready(Ok::<_, Infallible>(())), stopped));
        sleep(11 * BEAT + BEAT / 2).await;
        assert_eq!(pulse.silent(), None, "slow to fail");
        sleep(BEAT).await;
        assert_eq!(pulse.silent(), Some("the writer"));
        answer.notify_one();
        sleep(BEAT).await;
        assert_eq!(pulse.silent(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_has_ended_is_silent_and_a_hub_that_stops_is_not_asked_any_more() {
        let pulse = Pulse::default();
        let (stop, stopped) = watch::channel(false);
        let asking = tokio::spawn(pulse.clone().keep("delivery", || ready(Err(())), stopped));
        sleep(2 * MINUTE).await;
        assert_eq!(pulse.silent(), Some("delivery"));
        stop.send(true).unwrap();
        asking.await.unwrap();
    }
}
