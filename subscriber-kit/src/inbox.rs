//! The inbox: what was delivered, handed over once, and how far the handler has come.
//!
//! # What is guaranteed
//! * **Nothing that was acknowledged is lost**: where the state is kept in a folder, a notification is on disk before
//!   its 2xx, and is handed over again at the next start unless [`Delivery::done`] was called for it. One that
//!   cannot be written is answered 503.
//! * **Every authentic notification is handed over**, in the order of delivery; what an earlier run left open comes
//!   first. A notification is held back for one reason only: one with the same [`NotificationId`] *and* the same body
//!   is among those that are being handled or are the last [`REMEMBERED`] that were. The id is not signed, so
//!   nothing is concluded from it alone: a forged one, however large, mutes nothing else, and a hub that was
//!   restored from a backup and counts its offsets again is heard.
//! * **It may be handed over again**: after a crash, when more than [`REMEMBERED`] others came between, when the hub
//!   gives no id, or when a handler let it go without [`Delivery::done`] and the hub sends it again.
//! * **A gap is told**: [`Delivery::skipped`] counts the notifications that the hub's numbers say came before this
//!   one and did not come here.
//! * What is left to a forger who has captured a delivery is to have it handed over again under other ids, and
//!   to announce the id of a coming notification whose body is the same byte for byte; that one he hands over
//!   early. Who must be sure looks now and then without being told, as [`crate::listen`] does.
//! * What waits is bounded, in number and in bytes; beyond that the answer is 503, and the hub tries again.

use std::collections::{HashMap, VecDeque};

use resync_core::digest::{Algorithm, Digest};
use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use resync_core::websub::link_header::LinkHeader;
use resync_core::websub::signature::SignedBody;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use crate::hook::Notification;
use crate::state::{Event, Record, StateError, SubscriptionId, Subscriptions, Taken};

/// How many handled notifications of a subscription are remembered.
pub const REMEMBERED: usize = 256;

/// One authentic notification.
///
/// Dropped without [`Delivery::done`] it counts as not handled: it is handed over again at the next start, or before
/// that if the hub sends it again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// Which notification, if the hub says so; without it a repeated delivery cannot be told.
    pub id: Option<NotificationId>,
    /// The topic of the subscription, known by the callback and not by a header (W-148).
    pub topic: TopicUrl,
    /// How many notifications before it did not come here, as far as the hub numbers them without a gap.
    pub skipped: u64,
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

impl Delivery {
    pub(crate) fn into_notification(self) -> (Receipt, Notification) {
        let Self { id, topic, content_type, body, receipt, .. } = self;
        (receipt, Notification { id, topic, content_type, body: body.into_body() })
    }
}

/// Remembers that a notification is handled, without holding its body.
#[derive(Debug)]
pub struct Receipt {
    subscription: SubscriptionId,
    /// The place in the window; `None` for a notification without an id.
    slot: Option<u64>,
    /// The number in the journal; `None` without one.
    record: Option<u64>,
    bytes: u64,
    subscriptions: Subscriptions,
    is_done: bool,
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
        let mut records = Vec::new();
        for mut receipt in receipts {
            receipt.is_done = true;
            records.extend(receipt.record);
            if let Some(slot) = receipt.slot {
                subscriptions.with_window(&receipt.subscription.0, |window| window.done(slot));
            }
        }
        subscriptions.journal_done(records).await
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.filter(|_| !self.is_done) {
            self.subscriptions.with_window(&self.subscription.0, |window| window.forget(slot));
        }
        // What is open in the journal goes on to count: it is handed over again.
        if self.is_done || self.record.is_none() {
            self.subscriptions.release(self.bytes);
        }
    }
}

/// What came for a subscription, its signature checked.
pub(crate) struct Arrival {
    pub(crate) id: Option<NotificationId>,
    pub(crate) topic: TopicUrl,
    pub(crate) content_type: Option<String>,
    pub(crate) links: LinkHeader,
    pub(crate) body: SignedBody,
}

/// Why an arrival is not taken for now.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// Too much waits for the receiver.
    Full,
    /// The receiver is gone.
    Closed,
    /// Another attempt at the same notification is on its way to the disk.
    Arriving,
    /// It could not be made durable.
    NotKept,
}

/// Takes what is new, durably, and hands it over; what is known is taken by that alone. Whether it is known and that
/// it is taken is one step, so that two attempts at once are one.
pub(crate) async fn accept(
    subscriptions: &Subscriptions,
    token: &str,
    arrival: Arrival,
    sender: &mpsc::Sender<Delivery>,
    max_waiting: u64,
) -> Result<(), NotTaken> {
    let Arrival { id, topic, content_type, links, body } = arrival;
    let identity = id.map(|id| Identity::new(id, body.body()));
    let kept = subscriptions.with_window(token, |window| {
        match identity.and_then(|identity| window.stage(identity)) {
            Some(Stage::Arriving) => return Err(NotTaken::Arriving),
            Some(Stage::Open | Stage::Done) => {
                tracing::debug!(?id, "ignored a repeated notification");
                return Ok(None);
            }
            None => {}
        }
        let permit = sender.clone().try_reserve_owned().map_err(|error| match error {
            TrySendError::Full(_) => NotTaken::Full,
            TrySendError::Closed(_) => NotTaken::Closed,
        })?;
        let taken = Taken {
            number: 0,
            token: token.to_owned(),
            id: id.map(|id| id.to_string()),
            content_type: content_type.clone(),
            links: (links.iter().len() > 0).then(|| links.to_string()),
            skipped: 0,
        };
        let bytes = weight(&taken, &body);
        if !subscriptions.try_reserve(bytes, max_waiting) {
            return Err(NotTaken::Full);
        }
        let skipped = id.map_or(0, |id| window.skipped(id));
        let record = subscriptions.journal_number();
        let stage = if record.is_some() { Stage::Arriving } else { Stage::Open };
        let slot = identity.map(|identity| window.push(identity, stage));
        let receipt = Receipt {
            subscription: SubscriptionId(token.into()),
            slot,
            record,
            bytes,
            subscriptions: subscriptions.clone(),
            is_done: false,
        };
        let mut delivery = Delivery { id, topic, skipped, content_type, links, body, receipt };
        let Some(number) = record else {
            permit.send(delivery);
            return Ok(None);
        };
        let taken = Taken { number, skipped, ..taken };
        let (tell, kept) = oneshot::channel();
        let body = delivery.body.clone();
        let then = move |result: std::io::Result<()>| {
            let is_kept = result.is_ok();
            if is_kept {
                let receipt = &delivery.receipt;
                let (subscriptions, token) = (receipt.subscriptions.clone(), receipt.subscription.clone());
                subscriptions.with_window(&token.0, |window| slot.map(|slot| window.settle(slot)));
                permit.send(delivery);
            } else {
                delivery.receipt.record = None;
                drop(delivery);
            }
            // A hub that no longer waits for the answer sends it again, and it is known.
            let _ = tell.send(is_kept);
        };
        subscriptions.journal_take(taken, &body, Box::new(then));
        Ok(Some(kept))
    })?;
    match kept {
        None => Ok(()),
        Some(kept) => kept.await.unwrap_or(false).then_some(()).ok_or(NotTaken::NotKept),
    }
}

/// How much memory a notification takes while it waits, and room in the journal, in bytes: also one without a body, and what its
/// headers say.
fn weight(taken: &Taken, body: &SignedBody) -> u64 {
    let texts =
        [&taken.id, &taken.content_type, &taken.links].map(|text| text.as_ref().map_or(0, String::len));
    (size_of::<Delivery>() + size_of::<Taken>() + texts.iter().sum::<usize>() + body.body().len()) as u64
}

/// What an earlier run took and did not finish.
#[derive(Debug)]
pub(crate) struct Unfinished {
    taken: Taken,
    body: SignedBody,
    slot: Option<u64>,
}

impl Unfinished {
    pub(crate) fn number(&self) -> u64 {
        self.taken.number
    }

    pub(crate) fn bytes(&self) -> u64 {
        weight(&self.taken, &self.body)
    }

    /// Of its subscription.
    pub(crate) fn token(&self) -> &str {
        &self.taken.token
    }

    /// To hand it over again; `None` when its subscription is unknown.
    pub(crate) fn deliver(self, subscriptions: &Subscriptions) -> Option<Delivery> {
        let bytes = self.bytes();
        let Self { taken, body, slot } = self;
        let topic = subscriptions.with(&taken.token, |record| record.topic.clone())?;
        let receipt = Receipt {
            subscription: SubscriptionId(taken.token.as_str().into()),
            slot,
            record: Some(taken.number),
            bytes,
            subscriptions: subscriptions.clone(),
            is_done: false,
        };
        Some(Delivery {
            id: taken.id.and_then(|id| id.parse().ok()),
            topic,
            skipped: taken.skipped,
            content_type: taken.content_type,
            links: LinkHeader::parse(taken.links),
            body,
            receipt,
        })
    }
}

/// The windows as the records and the journal's events leave them, and what is still open.
pub(crate) fn resume(records: &[Record], events: Vec<Event>) -> (HashMap<String, Window>, Vec<Unfinished>) {
    let windows = records.iter().map(|record| (record.token.clone(), Window::resume(&record.handled)));
    let mut windows: HashMap<String, Window> = windows.collect();
    let mut left: Vec<Unfinished> = Vec::new();
    for event in events {
        match event {
            Event::Taken(taken, body) => {
                let id: Option<NotificationId> = taken.id.as_deref().and_then(|id| id.parse().ok());
                let identity = id.map(|id| Identity::new(id, body.body()));
                let window = windows.entry(taken.token.clone()).or_default();
                if identity.is_some_and(|identity| window.stage(identity) == Some(Stage::Done)) {
                    continue;
                }
                let slot = identity.map(|identity| window.push(identity, Stage::Open));
                window.arrived = id.or(window.arrived);
                left.push(Unfinished { taken, body, slot });
            }
            Event::Done(numbers) => left.retain(|one| {
                let is_done = numbers.contains(&one.number());
                if let (true, Some(slot), Some(window)) =
                    (is_done, one.slot, windows.get_mut(&one.taken.token))
                {
                    window.done(slot);
                }
                !is_done
            }),
        }
    }
    (windows, left)
}

/// The receiving end of a [`crate::callback::Callback`].
#[derive(Debug)]
pub struct Deliveries {
    /// What an earlier run left open.
    pub(crate) left: VecDeque<Delivery>,
    pub(crate) receiver: mpsc::Receiver<Delivery>,
}

impl Deliveries {
    /// The next notification; `None` when no callback is left that could deliver one.
    pub async fn next(&mut self) -> Option<Delivery> {
        if let Some(left) = self.left.pop_front() {
            return Some(left);
        }
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
    /// The one that came last.
    arrived: Option<NotificationId>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u64,
    identity: Identity,
    stage: Stage,
}

/// How far a notification has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// On its way to the disk.
    Arriving,
    /// Taken and not handled.
    Open,
    /// Handled.
    Done,
}

impl Window {
    pub(crate) fn resume(handled: &Handled) -> Self {
        let mut window = Self { last: handled.last(), arrived: handled.last(), ..Self::default() };
        for identity in handled.handled.iter().filter_map(|text| Identity::parse(text)) {
            window.push(identity, Stage::Done);
        }
        window
    }

    pub(crate) fn handled(&self) -> Handled {
        let handled = self.slots.iter().filter(|slot| slot.is_done()).map(|slot| slot.identity.to_string());
        Handled { last: self.last.map(|id| id.to_string()), handled: handled.collect() }
    }

    /// The last one that was handled, with all that came before it.
    pub(crate) fn last(&self) -> Option<NotificationId> {
        self.last
    }

    /// Whether it came, as far as is remembered.
    pub(crate) fn stage(&self, identity: Identity) -> Option<Stage> {
        self.slots.iter().find(|slot| slot.identity == identity).map(|slot| slot.stage)
    }

    /// How many notifications lie between the one that came last and this one, which comes now. One that is late, or
    /// of a topic that is numbered anew, skips nothing.
    fn skipped(&mut self, id: NotificationId) -> u64 {
        let before = self.arrived.replace(id).filter(|before| before.topic == id.topic);
        before.map_or(0, |before| id.offset.saturating_sub(before.offset.saturating_add(1)))
    }

    /// On disk.
    fn settle(&mut self, number: u64) {
        self.set(number, Stage::Open);
    }

    /// Handled. `last` moves over what came and was handled, in the order in which it came, and over nothing
    /// else.
    pub(crate) fn done(&mut self, number: u64) {
        self.set(number, Stage::Done);
        let through = self.slots.iter().take_while(|slot| slot.is_done()).last();
        self.last = through.map(|slot| slot.identity.id).or(self.last);
        let surplus = self.slots.iter().filter(|slot| slot.is_done()).count().saturating_sub(REMEMBERED);
        for _ in 0..surplus {
            if let Some(oldest) = self.slots.iter().position(Slot::is_done) {
                self.slots.remove(oldest);
            }
        }
    }

    /// Let go without being handled.
    pub(crate) fn forget(&mut self, number: u64) {
        self.slots.retain(|slot| slot.number != number || slot.is_done());
    }

    /// A notification that is not known; the number says which it was.
    pub(crate) fn push(&mut self, identity: Identity, stage: Stage) -> u64 {
        let number = self.next;
        self.next += 1;
        self.slots.push_back(Slot { number, identity, stage });
        number
    }

    fn set(&mut self, number: u64, stage: Stage) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.number == number) {
            slot.stage = stage;
        }
    }
}

impl Slot {
    fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(offset: u64, body: &str) -> Identity {
        Identity::new(NotificationId { topic: 1, offset }, body.as_bytes())
    }

    fn take(window: &mut Window, offset: u64) -> u64 {
        window.push(identity(offset, "x"), Stage::Open)
    }

    fn knows(window: &Window, identity: Identity) -> bool {
        window.stage(identity).is_some()
    }

    #[test]
    fn a_jump_of_the_hubs_numbers_is_a_gap_and_a_late_one_or_a_new_hub_is_none() {
        let mut window = Window::default();
        let mut skipped = |topic, offset| window.skipped(NotificationId { topic, offset });
        assert_eq!(skipped(1, 700), 0, "a subscription begins anywhere");
        assert_eq!([skipped(1, 701), skipped(1, 705), skipped(1, 703)], [0, 3, 0]);
        assert_eq!([skipped(2, 9), skipped(2, 10)], [0, 0]);
        assert_eq!(
            [skipped(2, u64::MAX), skipped(2, 11)],
            [u64::MAX - 11, 0],
            "no overflow, no lasting harm"
        );
    }

    fn last(window: &Window) -> Option<u64> {
        window.last().map(|id| id.offset)
    }

    #[test]
    fn a_forged_offset_mutes_nothing_else() {
        let mut window = Window::default();
        let forged = take(&mut window, u64::MAX);
        window.done(forged);
        assert!(!knows(&window, identity(1, "x")) && !knows(&window, identity(u64::MAX - 1, "x")));
        let genuine = take(&mut window, 7);
        window.done(genuine);
        assert_eq!(last(&window), Some(7));
        assert!(!knows(&Window::resume(&window.handled()), identity(8, "x")), "also after a restart");
    }

    #[test]
    fn a_hub_that_counts_its_offsets_again_is_heard() {
        let mut window = Window::default();
        let number = window.push(identity(900, "before the backup"), Stage::Open);
        window.done(number);
        let window = Window::resume(&window.handled());
        assert!(knows(&window, identity(900, "before the backup")));
        assert!(
            !knows(&window, identity(900, "after it")) && !knows(&window, identity(3, "before the backup"))
        );
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
        assert!(!knows(&window, identity(1, "x")) && knows(&window, identity(2, "x")));
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
        assert!(knows(&window, identity(0, "x")) && !knows(&window, identity(1, "x")));
        assert_eq!(window.handled().handled.len(), REMEMBERED);
    }
}
