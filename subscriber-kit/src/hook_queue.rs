//! What a hook is to hear of: one notification after another, and each again until the hook has dealt with it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use resync_common::backoff::Backoff;
use tokio::time::Instant;

use crate::hook::{Hook, HookError, Notification};
use crate::pause::{LONGEST_RETRY, at, ended, pauses};

/// A hook that is running. It gives back what it was about.
type Running<T> = Pin<Box<dyn Future<Output = (T, Notification, Result<(), HookError>)> + Send>>;

/// Notifications in their order, each with what it is to its owner.
pub(crate) struct HookQueue<T> {
    hook: Option<Hook>,
    waiting: VecDeque<(T, Notification)>,
    running: Option<Running<T>>,
    /// When a hook that failed is run again.
    again: Option<Instant>,
    pause: Backoff,
}

/// What came of running the hook.
pub(crate) enum HookResult<T> {
    /// It has dealt with this one.
    Done(T, Notification),
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
    pub(crate) fn push(&mut self, whose: T, notification: Notification) {
        self.waiting.push_back((whose, notification));
    }

    /// What comes next of running the hook, which never ends while nothing waits. It goes on where it was when it is dropped
    /// and called again.
    pub(crate) async fn next(&mut self) -> HookResult<T> {
        loop {
            self.start();
            tokio::select! {
                (whose, notification, ended_with) = ended(&mut self.running) => {
                    self.running = None;
                    return self.ended_with(whose, notification, ended_with);
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
        let Some((whose, notification)) = self.waiting.pop_front() else { return };
        self.running = Some(Box::pin(async move {
            let ended_with = hook.run(&notification).await;
            (whose, notification, ended_with)
        }));
    }

    fn ended_with(
        &mut self,
        whose: T,
        notification: Notification,
        ended_with: Result<(), HookError>,
    ) -> HookResult<T> {
        let Err(error) = ended_with else {
            self.pause.reset();
            return HookResult::Done(whose, notification);
        };
        // It stays the first, so that the order is kept.
        self.waiting.push_front((whose, notification));
        let retry_in = self.pause.after_failure();
        self.again = Some(Instant::now() + retry_in);
        HookResult::Failed { error, retry_in }
    }
}
