//! The inbox: each authentic notification is handed over once, and its receipt records that it was handled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use resync_core::websub::identity::NotificationId;
use resync_core::websub::key::TopicUrl;
use resync_core::websub::link_header::LinkHeader;
use resync_core::websub::signature::SignedBody;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self, OwnedPermit};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Notification;
use crate::state::{Arrival, Identity, Stage, StateError, SubscriptionId, Subscriptions, Unfinished, Window};
use crate::timing::at;

/// After how long a dropped notification is handed over again, so that one that cannot be handled yet keeps nobody busy.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// One authentic notification.
///
/// If it is dropped without [`Delivery::done`], it counts as not handled: [`Deliveries::next`] returns it again a second later, or
/// after a restart, and until then it counts as waiting. Without a folder for the state, it comes again only if the hub sends it
/// again.
#[derive(Debug)]
#[non_exhaustive]
pub struct Delivery {
    /// Which notification, if the hub says so; without it, repetitions cannot be recognised.
    pub id: Option<NotificationId>,
    /// The topic of the subscription, known from the callback and not from a header (W-148).
    pub topic: TopicUrl,
    /// How many notifications are missing before this one by the hub's numbers.
    pub skipped: u64,
    /// The `Content-Type` header as it was sent.
    pub content_type: Option<String>,
    /// The `Link` header: unsigned, so a hint only (W-173).
    pub links: LinkHeader,
    /// The body, its signature checked.
    pub body: Arc<SignedBody>,
    /// Records that this notification is handled.
    pub receipt: Receipt,
}

impl Delivery {
    /// Records that the notification is handled. It is not handed over again, also after a restart.
    ///
    /// # Errors
    /// [`StateError`] when this cannot be saved.
    pub async fn done(self) -> Result<(), StateError> {
        self.receipt.done().await
    }

    /// Without what is needed to hand it over again, which only a restart does from now on.
    pub(crate) fn into_notification(self) -> (Receipt, Notification) {
        let Self { id, topic, content_type, body, mut receipt, .. } = self;
        receipt.again = None;
        (receipt, Notification { id, topic, content_type, body: Arc::unwrap_or_clone(body).into_body() })
    }

    /// If the journal has it, it is handed over again by `again`.
    fn new(parts: Parts, mut receipt: Receipt, again: &Again) -> Self {
        receipt.again = receipt.record.map(|_| Box::new((parts.clone(), again.clone())));
        let Parts { id, topic, skipped, content_type, links, body } = parts;
        Self { id, topic, skipped, content_type, links, body, receipt }
    }

    /// Hands over again what an earlier run did not finish; `None` if its subscription is unknown.
    fn resume(unfinished: Unfinished, subscriptions: &Subscriptions, again: &Again) -> Option<Self> {
        let bytes = unfinished.bytes();
        let Unfinished { arrival, body, slot } = unfinished;
        let topic = subscriptions.with(&arrival.token, |record| record.topic.clone())?;
        let receipt = Receipt {
            subscription: SubscriptionId(arrival.token.as_str().into()),
            slot,
            record: Some(arrival.number),
            bytes,
            subscriptions: subscriptions.clone(),
            is_done: false,
            again: None,
        };
        let parts = Parts {
            id: arrival.id,
            topic,
            skipped: arrival.skipped,
            content_type: arrival.content_type,
            links: LinkHeader::parse(arrival.links),
            body: Arc::new(body),
        };
        Some(Self::new(parts, receipt, again))
    }
}

/// A [`Delivery`] without its receipt.
#[derive(Clone, Debug)]
struct Parts {
    id: Option<NotificationId>,
    topic: TopicUrl,
    skipped: u64,
    content_type: Option<String>,
    links: LinkHeader,
    body: Arc<SignedBody>,
}

/// The way back of a dropped notification, and when it is due.
type Again = mpsc::UnboundedSender<(Instant, Delivery)>;

/// Records that a notification is handled. Dropping it is as dropping the [`Delivery`].
#[derive(Debug)]
pub struct Receipt {
    subscription: SubscriptionId,
    /// Its slot in the window; `None` for a notification without an id.
    slot: Option<u64>,
    /// Its number in the journal; `None` without one.
    record: Option<u64>,
    bytes: u64,
    subscriptions: Subscriptions,
    is_done: bool,
    /// `None` if only a restart hands it over again.
    again: Option<Box<(Parts, Again)>>,
}

impl Receipt {
    /// As [`Delivery::done`].
    ///
    /// # Errors
    /// [`StateError`] when this cannot be saved; until the process ends, it counts as handled.
    pub async fn done(self) -> Result<(), StateError> {
        Self::all_done(vec![self]).await
    }

    /// As [`Receipt::done`] for many at once, with one write.
    ///
    /// # Errors
    /// [`StateError`] when this cannot be saved; until the process ends, they count as handled.
    pub async fn all_done(receipts: Vec<Self>) -> Result<(), StateError> {
        let Some(subscriptions) = receipts.first().map(|receipt| receipt.subscriptions.clone()) else {
            return Ok(());
        };
        let mut records = Vec::new();
        for mut receipt in receipts {
            receipt.is_done = true;
            records.extend(receipt.record);
            subscriptions.with_window(&receipt.subscription.0, |window| {
                if let Some(slot) = receipt.slot {
                    window.done(slot);
                }
                window.remove_unhandled();
            });
        }
        subscriptions.journal_done(records).await
    }

    /// Hands the notification over again, with a receipt that takes the place of this one.
    fn hand_over_again(&self, parts: Parts, again: &Again) {
        let receipt = Self {
            subscription: self.subscription.clone(),
            slot: self.slot,
            record: self.record,
            bytes: self.bytes,
            subscriptions: self.subscriptions.clone(),
            is_done: false,
            again: None,
        };
        let delivery = Delivery::new(parts, receipt, again);
        if let Err(refused) = again.send((Instant::now() + AGAIN_AFTER, delivery)) {
            // Nobody takes it before a restart.
            let (_, mut delivery) = refused.0;
            delivery.receipt.again = None;
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        // An open record in the journal still counts, since it is handed over again.
        let is_left = !self.is_done && self.record.is_some();
        if is_left && let Some((parts, again)) = self.again.take().map(|again| *again) {
            self.hand_over_again(parts, &again);
            return;
        }
        if !self.is_done {
            self.subscriptions.with_window(&self.subscription.0, |window| {
                if let Some(slot) = self.slot {
                    window.forget(slot);
                }
                if !is_left {
                    window.remove_unhandled();
                }
            });
        }
        if !is_left {
            self.subscriptions.release(self.bytes);
        }
    }
}

/// A notification from the callback, its signature checked.
pub(super) struct Received {
    pub(super) id: Option<NotificationId>,
    pub(super) topic: TopicUrl,
    pub(super) content_type: Option<String>,
    pub(super) links: LinkHeader,
    pub(super) body: SignedBody,
}

impl Received {
    /// As the journal keeps it, still without its number and what is missing before it.
    fn arrival(&self, token: &str) -> Arrival {
        Arrival {
            number: 0,
            token: token.to_owned(),
            id: self.id,
            content_type: self.content_type.clone(),
            links: (self.links.iter().len() > 0).then(|| self.links.to_string()),
            skipped: 0,
        }
    }
}

/// Why a notification is not accepted for now.
#[derive(Debug)]
pub(super) enum NotAccepted {
    /// Too many wait for the receiver.
    Full,
    /// The receiver is gone.
    Closed,
    /// Another attempt of the same delivery is being written.
    InProgress,
    /// It could not be made durable.
    NotSaved,
    /// The subscription has been over for long, and is being forgotten.
    BeingForgotten,
}

/// Makes a new notification durable and hands it over; ignores a repetition. Both decisions are one step, so that two attempts at
/// the same time count as one.
pub(super) async fn accept(
    subscriptions: &Subscriptions,
    token: &str,
    received: Received,
    queue: &Queue,
    max_waiting: u64,
) -> Result<(), NotAccepted> {
    let identity = received.id.map(|id| Identity::new(id, received.body.body()));
    let admit = |window: &mut Window| -> Result<Option<oneshot::Receiver<bool>>, NotAccepted> {
        if is_repeated(window, identity)? {
            return Ok(None);
        }
        let arrival = received.arrival(token);
        let bytes = arrival.bytes(&received.body);
        let permit = reserve(subscriptions, &queue.new, bytes, max_waiting)?;
        let (parts, receipt) = stage(window, identity, received, subscriptions, token, bytes);
        let delivery = Delivery::new(parts, receipt, &queue.again);
        Ok(hand_over_once_saved(delivery, arrival, permit))
    };
    let saved = subscriptions.with_open_window(token, admit).ok_or(NotAccepted::BeingForgotten)??;
    match saved {
        None => Ok(()),
        Some(saved) => saved.await.unwrap_or(false).then_some(()).ok_or(NotAccepted::NotSaved),
    }
}

/// Whether the window knows it already.
fn is_repeated(window: &Window, identity: Option<Identity>) -> Result<bool, NotAccepted> {
    match identity.and_then(|identity| window.stage(identity)) {
        Some(Stage::Writing) => return Err(NotAccepted::InProgress),
        Some(Stage::Open | Stage::Done) => {
            tracing::debug!(id = ?identity.map(|identity| identity.id), "ignored a repeated notification");
            return Ok(true);
        }
        None => {}
    }
    Ok(false)
}

/// Takes a place in the queue of the receiver, and so many bytes of those that may wait.
fn reserve(
    subscriptions: &Subscriptions,
    sender: &mpsc::Sender<Delivery>,
    bytes: u64,
    max_waiting: u64,
) -> Result<OwnedPermit<Delivery>, NotAccepted> {
    let permit = sender.clone().try_reserve_owned().map_err(|error| match error {
        TrySendError::Full(_) => NotAccepted::Full,
        TrySendError::Closed(_) => NotAccepted::Closed,
    })?;
    if subscriptions.try_reserve(bytes, max_waiting) { Ok(permit) } else { Err(NotAccepted::Full) }
}

/// Puts it into the window, so that another attempt is recognised from now on. `bytes` are reserved for it.
fn stage(
    window: &mut Window,
    identity: Option<Identity>,
    received: Received,
    subscriptions: &Subscriptions,
    token: &str,
    bytes: u64,
) -> (Parts, Receipt) {
    let Received { id, topic, content_type, links, body } = received;
    let skipped = id.map_or(0, |id| window.skipped(id));
    let record = subscriptions.journal_number();
    let stage = if record.is_some() { Stage::Writing } else { Stage::Open };
    let slot = identity.map(|identity| window.push(identity, stage));
    window.add_unhandled();
    let receipt = Receipt {
        subscription: SubscriptionId(token.into()),
        slot,
        record,
        bytes,
        subscriptions: subscriptions.clone(),
        is_done: false,
        again: None,
    };
    (Parts { id, topic, skipped, content_type, links, body: Arc::new(body) }, receipt)
}

/// Writes it to the journal, then hands it over; returns who says whether it was written. Without a journal hands it over at once.
fn hand_over_once_saved(
    delivery: Delivery,
    arrival: Arrival,
    permit: OwnedPermit<Delivery>,
) -> Option<oneshot::Receiver<bool>> {
    let Some(number) = delivery.receipt.record else {
        permit.send(delivery);
        return None;
    };
    let arrival = Arrival { number, skipped: delivery.skipped, ..arrival };
    let (subscriptions, body) = (delivery.receipt.subscriptions.clone(), Arc::clone(&delivery.body));
    let (send, saved) = oneshot::channel();
    let then = move |result: std::io::Result<()>| {
        let is_saved = result.is_ok();
        if is_saved {
            hand_over(delivery, permit);
        } else {
            give_up(delivery);
        }
        // A hub that no longer waits sends it again; then it is a repetition.
        let _ = send.send(is_saved);
    };
    subscriptions.journal_append(arrival, &body, Box::new(then));
    Some(saved)
}

fn hand_over(delivery: Delivery, permit: OwnedPermit<Delivery>) {
    let Receipt { subscription, slot, subscriptions, .. } = &delivery.receipt;
    subscriptions.with_window(&subscription.0, |window| slot.map(|slot| window.written(slot)));
    permit.send(delivery);
}

/// The next attempt is a new notification, and what is reserved for this one is free again.
fn give_up(mut delivery: Delivery) {
    delivery.receipt.record = None;
    drop(delivery);
}

/// The sending end of [`Deliveries`].
#[derive(Debug)]
pub(super) struct Queue {
    new: mpsc::Sender<Delivery>,
    again: Again,
}

/// The receiving end of a [`Callback`](super::Callback).
#[derive(Debug)]
pub struct Deliveries {
    /// What an earlier run did not finish.
    unfinished: VecDeque<Delivery>,
    receiver: mpsc::Receiver<Delivery>,
    /// The first of those that were dropped, and when it is due.
    dropped: Option<(Instant, Delivery)>,
    /// The others. The last field: what the fields before it hold comes here when they are dropped.
    returned: mpsc::UnboundedReceiver<(Instant, Delivery)>,
}

impl Deliveries {
    /// Begins with what an earlier run did not finish. So many others may wait.
    pub(super) fn new(subscriptions: &Subscriptions, capacity: usize) -> (Queue, Self) {
        let (new, receiver) = mpsc::channel(capacity);
        let (again, returned) = mpsc::unbounded_channel();
        let left = subscriptions.take_unfinished().into_iter();
        let unfinished = left.filter_map(|one| Delivery::resume(one, subscriptions, &again)).collect();
        (Queue { new, again }, Self { unfinished, receiver, dropped: None, returned })
    }

    /// The next notification; `None` when no callback is left that could deliver one, and no notification that could come again.
    pub async fn next(&mut self) -> Option<Delivery> {
        if let Some(unfinished) = self.unfinished.pop_front() {
            return Some(unfinished);
        }
        loop {
            let due = self.dropped.as_ref().map(|(due, _)| *due);
            tokio::select! {
                Some(new) = self.receiver.recv() => return Some(new),
                Some(dropped) = self.returned.recv(), if due.is_none() => self.dropped = Some(dropped),
                () = at(due), if due.is_some() => return self.dropped.take().map(|(_, dropped)| dropped),
                else => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::websub::secret::Secret;
    use resync_core::websub::signature::{SignatureMethod, SigningKey};

    const MAX_WAITING: u64 = 1 << 20;

    fn received(id: Option<NotificationId>) -> Received {
        let secret = Secret::random();
        let signature = SigningKey::new(SignatureMethod::Sha256, &secret).sign(b"body").to_string();
        Received {
            id,
            topic: TopicUrl::parse("http://old.example/").unwrap(),
            content_type: None,
            links: LinkHeader::default(),
            body: SignedBody::check(Some(&signature), &[secret], b"body".to_vec()).unwrap(),
        }
    }

    async fn add(subscriptions: &Subscriptions, topic: &str) -> SubscriptionId {
        let hub = "http://hub.example/".parse().unwrap();
        subscriptions.add(&TopicUrl::parse(topic).unwrap(), &hub).await.unwrap()
    }

    /// A subscription whose lease ended long ago.
    async fn add_old(subscriptions: &Subscriptions) -> SubscriptionId {
        let id = add(subscriptions, "http://old.example/").await;
        let end = subscriptions.update(|state_file| {
            for record in &mut state_file.subscriptions {
                record.expires_unix_millis = Some(0);
            }
        });
        end.await.unwrap();
        id
    }

    #[tokio::test]
    async fn a_notification_without_an_id_keeps_its_subscription_until_it_is_handled() {
        let folder = tempfile::tempdir().unwrap();
        let subscriptions = Subscriptions::open(folder.path()).unwrap();
        let (queue, mut deliveries) = Deliveries::new(&subscriptions, 1);
        let id = add_old(&subscriptions).await;
        accept(&subscriptions, &id.0, received(None), &queue, MAX_WAITING).await.unwrap();
        add(&subscriptions, "http://new.example/").await;
        assert!(subscriptions.get(&id).is_some(), "it waits");
        deliveries.next().await.unwrap().done().await.unwrap();
        add(&subscriptions, "http://newer.example/").await;
        assert!(subscriptions.get(&id).is_none(), "it is handled");
        let late = accept(&subscriptions, &id.0, received(None), &queue, MAX_WAITING).await;
        assert!(matches!(late, Err(NotAccepted::BeingForgotten)), "its body may have been on its way");
    }

    #[tokio::test]
    async fn a_notification_that_was_dropped_comes_after_a_restart_though_its_subscription_is_long_over() {
        let folder = tempfile::tempdir().unwrap();
        let subscriptions = Subscriptions::open(folder.path()).unwrap();
        let (queue, mut deliveries) = Deliveries::new(&subscriptions, 1);
        let id = add_old(&subscriptions).await;
        let received = received(Some(NotificationId { topic: 7, offset: 9 }));
        accept(&subscriptions, &id.0, received, &queue, MAX_WAITING).await.unwrap();
        drop(deliveries.next().await.unwrap());
        drop(deliveries);
        add(&subscriptions, "http://new.example/").await;
        drop(subscriptions);
        let subscriptions = Subscriptions::open(folder.path()).unwrap();
        let left = subscriptions.take_unfinished();
        assert_eq!(left.len(), 1);
        // It waits for its receiver, and no longer among what is left.
        add(&subscriptions, "http://newer.example/").await;
        assert!(subscriptions.get(&id).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_dropped_comes_again_until_it_is_done_and_then_takes_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let subscriptions = Subscriptions::open(folder.path()).unwrap();
        let (queue, mut deliveries) = Deliveries::new(&subscriptions, 8);
        let id = add(&subscriptions, "http://topic.example/").await;
        let numbered = |offset| received(Some(NotificationId { topic: 7, offset }));
        // One that waits fills it.
        let take = |received| accept(&subscriptions, &id.0, received, &queue, 1);
        take(numbered(1)).await.unwrap();
        for _ in 0..3 {
            let again = tokio::time::timeout(AGAIN_AFTER * 2, deliveries.next()).await.unwrap().unwrap();
            assert_eq!((again.id.unwrap().offset, again.body.body()), (1, &b"body"[..]));
        }
        assert!(matches!(take(numbered(2)).await, Err(NotAccepted::Full)));
        take(numbered(1)).await.expect("a repetition takes no room");
        deliveries.next().await.unwrap().done().await.unwrap();
        take(numbered(2)).await.unwrap();
        assert_eq!(deliveries.next().await.unwrap().id.unwrap().offset, 2);
    }
}
