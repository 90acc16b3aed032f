//! What a hook is to hear of: one notification after another, and each again until the hook has dealt with it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use resync_common::backoff::Backoff;
use tokio::time::Instant;

use crate::hook::{Heard, Hook, HookError};
use crate::pause::{LONGEST_RETRY, at, ended, pauses};

/// A hook that is running. It gives back what it was about.
type Running<T> = Pin<Box<dyn Future<Output = (T, Heard, Result<(), HookError>)> + Send>>;

/// Notifications in their order, each with what it is to its owner.
pub(crate) struct HookQueue<T> {
    hook: Option<Hook>,
    waiting: VecDeque<(T, Heard)>,
    running: Option<Running<T>>,
    /// When a hook that failed is run again.
    again: Option<Instant>,
    pause: Backoff,
}

/// What came of running the hook.
pub(crate) enum Told<T> {
    /// It has dealt with this one.
    Done(T, Heard),
    /// It failed, and is run for the same one again.
    Failed {
        /// Why.
        error: HookError,
        /// After how long it is run again.
        retry_in: Duration,
    },
}

impl<T: Send + 'static> HookQueue<T> {
    /// Nothing waits; without a hook nothing ever may.
    pub(crate) fn new(hook: Option<Hook>) -> Self {
        Self { hook, waiting: VecDeque::new(), running: None, again: None, pause: pauses(LONGEST_RETRY) }
    }

    /// Whether there is a hook.
    pub(crate) fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// How many wait, less the one that the hook is running for.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The hook hears of this after all that wait already.
    pub(crate) fn push(&mut self, whose: T, heard: Heard) {
        self.waiting.push_back((whose, heard));
    }

    /// What comes next of running the hook, which never ends while nothing waits. It goes on where it was when it is dropped
    /// and called again.
    pub(crate) async fn next(&mut self) -> Told<T> {
        loop {
            self.start();
            tokio::select! {
                (whose, heard, told) = ended(&mut self.running) => {
                    self.running = None;
                    return self.told(whose, heard, told);
                }
                () = at(self.again) => self.again = None,
            }
        }
    }

    fn start(&mut self) {
        if self.running.is_some() || self.again.is_some() {
            return;
        }
        let Some(hook) = self.hook.clone() else { return };
        let Some((whose, heard)) = self.waiting.pop_front() else { return };
        self.running = Some(Box::pin(async move {
            let told = hook.run(&heard).await;
            (whose, heard, told)
        }));
    }

    fn told(&mut self, whose: T, heard: Heard, told: Result<(), HookError>) -> Told<T> {
        let Err(error) = told else {
            self.pause.reset();
            return Told::Done(whose, heard);
        };
        // It stays the first, so that the order is kept.
        self.waiting.push_front((whose, heard));
        let retry_in = self.pause.after_failure();
        self.again = Some(Instant::now() + retry_in);
        Told::Failed { error, retry_in }
    }
}
