//! The inbox: what was delivered, handed over once, and how far the handler has come.
//!
//! # What is guaranteed
//! * **Every authentic notification is handed over**, in the order of delivery, while the process lives. A
//!   notification is held back for one reason only: one with the same [`NotificationId`] *and* the same body
//!   is among those that are being handled or are the last [`REMEMBERED`] that were. The id is not signed, so
//!   nothing is concluded from it alone: a forged one, however large, mutes nothing else, and a hub that was
//!   restored from a backup and counts its offsets again is heard.
//! * **It may be handed over again**: when more than [`REMEMBERED`] others came between, when the hub gives no
//!   id, or when a handler let it go without [`Delivery::done`] and the hub sends it again.
//! * What is left to a forger who has captured a delivery is to have it handed over again under other ids, and
//!   to announce the id of a coming notification whose body is the same byte for byte; that one he hands over
//!   early. Who must be sure looks now and then without being told, as [`crate::listen`] does.
//! * **Between the 2xx and [`Delivery::done`] a notification is in memory only**: after a crash the hub will
//!   not send it again. So whoever starts again synchronises first, as [`crate::listen`] does; a Framework
//!   Notification says no more than "look again", so that look covers whatever was taken and not handled.

use std::collections::VecDeque;

use resync_core::digest::{Algorithm, Digest};
use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use resync_core::websub::link_header::LinkHeader;
use resync_core::websub::signature::SignedBody;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::state::{StateError, SubscriptionId, Subscriptions};

/// How many handled notifications of a subscription are remembered.
pub const REMEMBERED: usize = 256;

/// One authentic notification.
///
/// Dropped without [`Delivery::done`] it counts as not handled: it is forgotten, so that it is handed over
/// again if the hub sends it again.
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

/// Remembers that a notification is handled, without holding its body. Dropped before that, it forgets it.
#[derive(Debug)]
pub struct Receipt {
    pub(crate) subscription: SubscriptionId,
    /// The place in the window; `None` for a notification without an id.
    pub(crate) number: Option<u64>,
    pub(crate) subscriptions: Subscriptions,
}

impl Receipt {
    /// As [`Delivery::done`].
    ///
    /// # Errors
    /// [`StateError`] when this cannot be remembered beyond the process; within it, it is.
    pub async fn done(self) -> Result<(), StateError> {
        Self::all_done(vec![self]).await
    }

    /// As [`Receipt::done`] for many at the price of one.
    ///
    /// # Errors
    /// [`StateError`] when this cannot be remembered beyond the process; within it, it is.
    pub async fn all_done(receipts: Vec<Self>) -> Result<(), StateError> {
        let Some(subscriptions) = receipts.first().map(|receipt| receipt.subscriptions.clone()) else {
            return Ok(());
        };
        let mut any = false;
        for mut receipt in receipts {
            if let Some(number) = receipt.number.take() {
                any = true;
                subscriptions.with_window(&receipt.subscription.0, |window| window.done(number));
            }
        }
        if any { subscriptions.save().await } else { Ok(()) }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.subscriptions.with_window(&self.subscription.0, |window| window.forget(number));
        }
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

/// Which notification, as exactly as can be told: the id is not signed, the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: NotificationId,
    /// The beginning of the body's SHA-256.
    pub(crate) body: u128,
}

impl Identity {
    pub(crate) fn new(id: NotificationId, body: &[u8]) -> Self {
        let digest = Digest::of(Algorithm::Sha256, body);
        let body = digest.as_bytes().iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte));
        Self { id, body }
    }

    fn parse(text: &str) -> Option<Self> {
        let (id, body) = text.split_once(' ')?;
        Some(Self { id: id.parse().ok()?, body: u128::from_str_radix(body, 16).ok()? })
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:032x}", self.id, self.body)
    }
}

/// The form in which a [`Window`] outlives the process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Handled {
    /// The last notification that was handled, with all that came before it.
    last: Option<String>,
    /// The last ones that were handled, oldest first.
    #[serde(default)]
    handled: Vec<String>,
}

impl Handled {
    pub(crate) fn last(&self) -> Option<NotificationId> {
        self.last.as_deref().and_then(|id| id.parse().ok())
    }
}

/// What came for a subscription, in the order in which it came: what is being handled and a bounded number of
/// what was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    slots: VecDeque<Slot>,
    next: u64,
    last: Option<NotificationId>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    identity: Identity,
    done: bool,
}

impl Window {
    pub(crate) fn resume(handled: &Handled) -> Self {
        let mut window = Self { last: handled.last(), ..Self::default() };
        for identity in handled.handled.iter().filter_map(|text| Identity::parse(text)) {
            let number = window.push(identity);
            window.set_done(number);
        }
        window
    }

    pub(crate) fn handled(&self) -> Handled {
        let handled = self.slots.iter().filter(|slot| slot.done).map(|slot| slot.identity.to_string());
        Handled { last: self.last.map(|id| id.to_string()), handled: handled.collect() }
    }

    /// Being handled or handled a short while ago.
    pub(crate) fn knows(&self, identity: Identity) -> bool {
        self.slots.iter().any(|slot| slot.identity == identity)
    }

    /// Takes a notification that is not known; the number says which it was.
    pub(crate) fn take(&mut self, identity: Identity) -> u64 {
        self.push(identity)
    }

    /// Handled. `last` moves over what came and was handled, in the order in which it came, and over nothing
    /// else.
    pub(crate) fn done(&mut self, number: u64) {
        self.set_done(number);
        let through = self.slots.iter().take_while(|slot| slot.done).last();
        self.last = through.map(|slot| slot.identity.id).or(self.last);
        let surplus = self.slots.iter().filter(|slot| slot.done).count().saturating_sub(REMEMBERED);
        for _ in 0..surplus {
            if let Some(oldest) = self.slots.iter().position(|slot| slot.done) {
                self.slots.remove(oldest);
            }
        }
    }

    /// Let go without being handled.
    pub(crate) fn forget(&mut self, number: u64) {
        self.slots.retain(|slot| slot.number != number || slot.done);
    }

    fn push(&mut self, identity: Identity) -> u64 {
        let number = self.next;
        self.next += 1;
        self.slots.push_back(Slot { number, identity, done: false });
        number
    }

    fn set_done(&mut self, number: u64) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.number == number) {
            slot.done = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(offset: u64, body: &str) -> Identity {
        Identity::new(NotificationId { topic: 1, offset }, body.as_bytes())
    }

    fn take(window: &mut Window, offset: u64) -> u64 {
        window.take(identity(offset, "x"))
    }

    fn last(window: &Window) -> Option<u64> {
        window.last.map(|id| id.offset)
    }

    #[test]
    fn a_forged_offset_mutes_nothing_else() {
        let mut window = Window::default();
        let forged = take(&mut window, u64::MAX);
        window.done(forged);
        assert!(!window.knows(identity(1, "x")) && !window.knows(identity(u64::MAX - 1, "x")));
        let genuine = take(&mut window, 7);
        window.done(genuine);
        assert_eq!(last(&window), Some(7));
        assert!(!Window::resume(&window.handled()).knows(identity(8, "x")), "also after a restart");
    }

    #[test]
    fn a_hub_that_counts_its_offsets_again_is_heard() {
        let mut window = Window::default();
        let number = window.take(identity(900, "before the backup"));
        window.done(number);
        let window = Window::resume(&window.handled());
        assert!(window.knows(identity(900, "before the backup")));
        assert!(!window.knows(identity(900, "after it")) && !window.knows(identity(3, "before the backup")));
    }

    #[test]
    fn last_moves_only_over_what_came_and_is_handled() {
        let mut window = Window::default();
        let [one, two, nine] = [1, 2, 9].map(|offset| take(&mut window, offset));
        window.done(two);
        assert_eq!(last(&window), None, "1 is still open");
        window.done(one);
        assert_eq!(last(&window), Some(2), "and not 8, which nobody has seen");
        window.done(nine);
        window.done(nine);
        assert_eq!(last(&window), Some(9));
    }

    #[test]
    fn what_is_let_go_is_handed_over_again_and_holds_up_nothing() {
        let mut window = Window::default();
        let (one, two) = (take(&mut window, 1), take(&mut window, 2));
        window.forget(one);
        window.done(two);
        assert_eq!(last(&window), Some(2));
        assert!(!window.knows(identity(1, "x")) && window.knows(identity(2, "x")));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_open_ones_are_never_dropped() {
        let mut window = Window::default();
        take(&mut window, 0);
        for offset in 1..=2 * REMEMBERED as u64 {
            let number = take(&mut window, offset);
            window.done(number);
        }
        assert_eq!(window.slots.len(), REMEMBERED + 1);
        assert!(window.knows(identity(0, "x")) && !window.knows(identity(1, "x")));
        assert_eq!(window.handled().handled.len(), REMEMBERED);
    }
}
