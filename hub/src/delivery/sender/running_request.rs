//! A request under way, which can be cancelled or cut.

use std::future::{Future, ready};
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::owned_shard::Ownership;
use crate::delivery::scheduler::{Attempt, Finished};

/// A request under way.
pub(super) struct RunningRequest {
    /// Under which ownership it was made.
    pub(super) of: Ownership,
    pub(super) attempt: Attempt,
    sending: Pin<Box<dyn Future<Output = (Finished, Option<IpAddr>)>>>,
    waker: Option<Waker>,
}

/// What became of one.
pub(super) struct Completed {
    pub(super) of: Ownership,
    pub(super) attempt: Attempt,
    pub(super) finished: Finished,
    /// Where it was sent to, if it got that far.
    pub(super) reached: Option<IpAddr>,
}

impl RunningRequest {
    pub(super) fn new(
        of: Ownership,
        attempt: Attempt,
        sending: impl Future<Output = (Finished, Option<IpAddr>)> + 'static,
    ) -> Self {
        Self { of, attempt, sending: Box::pin(sending), waker: None }
    }

    /// The subscription has ended: drops the request, which closes its connection, or its stream where it shares one.
    pub(super) fn cancel(&mut self) {
        self.drop_as(Finished::SubscriptionEnded);
    }

    /// Somebody else makes the request again: drops it, as if it had not been made.
    pub(super) fn cut(&mut self) {
        self.drop_as(Finished::Postponed);
    }

    fn drop_as(&mut self, finished: Finished) {
        self.sending = Box::pin(ready((finished, None)));
        // Nothing else would have the new future polled.
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Future for RunningRequest {
    type Output = Completed;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.sending.as_mut().poll(context) {
            Poll::Ready((finished, reached)) => {
                let (of, attempt) = (self.of, self.attempt);
                Poll::Ready(Completed { of, attempt, finished, reached })
            }
            Poll::Pending => {
                // The first is kept: `FuturesUnordered` polls each of its futures with one waker for good.
                self.waker.get_or_insert_with(|| context.waker().clone());
                Poll::Pending
            }
        }
    }
}
