//! Notifications for a hook: one after another, and each again until the hook succeeds.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use resync_common::backoff::Backoff;
use tokio::time::Instant;

use super::{Hook, HookError, Notification};
use crate::timing::{LONGEST_RETRY, at, ended, pauses};

/// A running hook, with its notification.
type Running<T> = Pin<Box<dyn Future<Output = (T, Notification, Result<(), HookError>)> + Send>>;

/// Notifications in their order, each with a value of the caller.
pub(crate) struct HookQueue<T> {
    hook: Option<Hook>,
    waiting: VecDeque<(T, Notification)>,
    running: Option<Running<T>>,
    /// When a failed hook is run again.
    retry_at: Option<Instant>,
    pause: Backoff,
}

/// The result of running the hook.
pub(crate) enum HookResult<T> {
    /// It succeeded.
    Done(T, Notification),
    /// It failed, and will be run for the same notification again.
    Failed {
        /// Why.
        error: HookError,
        /// After how long it is run again.
        retry_in: Duration,
    },
}

impl<T: Send + 'static> HookQueue<T> {
    /// An empty queue. Without a hook it stays empty.
    pub(crate) fn new(hook: Option<Hook>) -> Self {
        Self { hook, waiting: VecDeque::new(), running: None, retry_at: None, pause: pauses(LONGEST_RETRY) }
    }

    /// Whether there is a hook.
    pub(crate) fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// How many wait, without the one that the hook is running for.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds a notification to the end.
    pub(crate) fn push(&mut self, value: T, notification: Notification) {
        self.waiting.push_back((value, notification));
    }

    /// Runs the hook; never ends while nothing waits. If the future is dropped, the next call continues.
    pub(crate) async fn next(&mut self) -> HookResult<T> {
        loop {
            self.start();
            tokio::select! {
                (value, notification, result) = ended(&mut self.running) => {
                    self.running = None;
                    return self.finished(value, notification, result);
                }
                () = at(self.retry_at) => self.retry_at = None,
            }
        }
    }

    fn start(&mut self) {
        if self.running.is_some() || self.retry_at.is_some() {
            return;
        }
        let Some(hook) = self.hook.clone() else { return };
        let Some((value, notification)) = self.waiting.pop_front() else { return };
        self.running = Some(Box::pin(async move {
            let result = hook.run(&notification).await;
            (value, notification, result)
        }));
    }

    fn finished(
        &mut self,
        value: T,
        notification: Notification,
        result: Result<(), HookError>,
    ) -> HookResult<T> {
        let Err(error) = result else {
            self.pause.reset();
            return HookResult::Done(value, notification);
        };
        // First again, to keep the order.
        self.waiting.push_front((value, notification));
        let retry_in = self.pause.after_failure();
        self.retry_at = Some(Instant::now() + retry_in);
        HookResult::Failed { error, retry_in }
    }
}
