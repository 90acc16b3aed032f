//! The inbox: what was delivered, handed over once, and how far the handler has come.
//!
//! What is guaranteed: the handler gets every authentic notification at least once while the process lives,
//! in the order of delivery, and a repeated delivery of the same notification (same [`NotificationId`] or an
//! earlier offset of its topic) not again. A notification waits in memory between the 2xx and
//! [`Delivery::done`]: after a crash the hub will not send it again. So the last offset is kept only on
//! `done`, and whoever starts again synchronises first, as [`crate::listen`] does; a Framework Notification
//! says no more than "look again", so that look covers whatever was taken and not handled.

use std::collections::{BTreeSet, HashMap};

use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use resync_core::websub::link_header::LinkHeader;
use resync_core::websub::signature::SignedBody;
use tokio::sync::mpsc;

use crate::state::{StateError, SubscriptionId, Subscriptions};

/// One authentic notification.
#[derive(Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// Which notification, if the hub says so; without it a repeated delivery cannot be told.
    pub id: Option<NotificationId>,
    /// The topic of the subscription, known by the callback and not by a header (W-148).
    pub topic: TopicUrl,
    /// The `Content-Type` header as it was sent.
    pub content_type: Option<String>,
    /// The `Link` header: unsigned, so a hint only (W-173).
    pub links: LinkHeader,
    /// The body, its signature checked.
    pub body: SignedBody,
    /// What remembers that this notification is handled.
    pub receipt: Receipt,
}

impl Delivery {
    /// Says that the notification is handled: from now on, also after a restart, it counts as known.
    ///
    /// # Errors
    /// [`StateError`] when this cannot be remembered.
    pub async fn done(self) -> Result<(), StateError> {
        self.receipt.done().await
    }
}

/// Remembers that a notification is handled, without holding its body.
#[derive(Debug)]
pub struct Receipt {
    pub(crate) subscription: SubscriptionId,
    pub(crate) id: Option<NotificationId>,
    pub(crate) subscriptions: Subscriptions,
}

impl Receipt {
    /// As [`Delivery::done`].
    ///
    /// # Errors
    /// [`StateError`] when this cannot be remembered.
    pub async fn done(self) -> Result<(), StateError> {
        Self::all_done(vec![self]).await
    }

    /// As [`Receipt::done`] for many at the price of one.
    ///
    /// # Errors
    /// [`StateError`] when this cannot be remembered.
    pub async fn all_done(receipts: Vec<Self>) -> Result<(), StateError> {
        let Some(subscriptions) = receipts.first().map(|receipt| receipt.subscriptions.clone()) else {
            return Ok(());
        };
        let mut marks = HashMap::new();
        for Receipt { subscription, id, .. } in receipts {
            let done = |id| subscriptions.with(&subscription.0, |record| record.window.done(id)).flatten();
            if let Some(mark) = id.and_then(done) {
                marks.insert(subscription, mark);
            }
        }
        if marks.is_empty() {
            return Ok(());
        }
        subscriptions
            .update(move |book| {
                for (subscription, mark) in marks {
                    if let Some(record) = book.record(&subscription.0) {
                        record.set_last(mark);
                    }
                }
            })
            .await
    }
}

/// The receiving end of a [`crate::callback::Callback`].
#[derive(Debug)]
pub struct Deliveries {
    pub(crate) receiver: mpsc::Receiver<Delivery>,
}

impl Deliveries {
    /// The next notification; `None` when no callback is left that could deliver one.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.receiver.recv().await
    }
}

/// Which notifications of a subscription were taken, and through which one all are handled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    topic: Option<u64>,
    taken: u64,
    open: BTreeSet<u64>,
}

impl Window {
    pub(crate) fn resume(last: Option<NotificationId>) -> Self {
        let last = last.map(|id| (id.topic, id.offset));
        Self { topic: last.map(|id| id.0), taken: last.map_or(0, |id| id.1), open: BTreeSet::new() }
    }

    /// Taken before: the same offset or an earlier one of the same topic.
    pub(crate) fn knows(&self, id: NotificationId) -> bool {
        self.topic == Some(id.topic) && id.offset <= self.taken
    }

    /// Takes a notification that is not known. A hub that begins anew has a new topic number, so its offsets
    /// begin anew too.
    pub(crate) fn take(&mut self, id: NotificationId) {
        if self.topic != Some(id.topic) {
            *self = Self { topic: Some(id.topic), ..Self::default() };
        }
        self.taken = id.offset;
        self.open.insert(id.offset);
    }

    /// Handled: gives the notification through which now all are, if that moved.
    pub(crate) fn done(&mut self, id: NotificationId) -> Option<NotificationId> {
        if self.topic != Some(id.topic) || !self.open.remove(&id.offset) {
            return None;
        }
        let through = match self.open.first() {
            None => self.taken,
            Some(first) => first.checked_sub(1)?,
        };
        (through >= id.offset).then_some(NotificationId { topic: id.topic, offset: through })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(offset: u64) -> NotificationId {
        NotificationId { topic: 1, offset }
    }

    #[test]
    fn a_notification_is_known_once_it_is_taken_and_so_are_all_before_it() {
        let mut window = Window::resume(Some(id(4)));
        assert!(window.knows(id(4)) && !window.knows(id(5)));
        window.take(id(6));
        assert!(window.knows(id(5)) && window.knows(id(6)) && !window.knows(id(7)));
        assert!(!window.knows(NotificationId { topic: 2, offset: 1 }));
    }

    #[test]
    fn the_mark_moves_only_over_what_is_handled() {
        let mut window = Window::default();
        for offset in 1..=3 {
            window.take(id(offset));
        }
        assert_eq!(window.done(id(2)), None, "1 is still open");
        assert_eq!(window.done(id(1)), Some(id(2)));
        assert_eq!(window.done(id(3)), Some(id(3)));
        assert_eq!(window.done(id(3)), None);
    }

    #[test]
    fn an_offset_of_zero_is_an_offset_like_any_other() {
        let mut window = Window::default();
        window.take(id(0));
        window.take(id(1));
        assert!(window.knows(id(0)));
        assert_eq!(window.done(id(1)), None);
        assert_eq!(window.done(id(0)), Some(id(1)));
    }

    #[test]
    fn a_hub_that_begins_anew_is_followed_from_its_first_offset() {
        let mut window = Window::resume(Some(id(900)));
        let fresh = NotificationId { topic: 2, offset: 1 };
        assert!(!window.knows(fresh));
        window.take(fresh);
        assert_eq!(window.done(fresh), Some(fresh));
    }
}
