//! Denials: a subscription that is not accepted, or no longer, ends at once, and its callback is told (W-098 to W-102).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use resync_core::websub;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::line::{Event, Line};
use super::queues;
use super::verification::Ways;
use crate::egress::{self, EgressError, ReadLimit};
use crate::places::{Asker, Here, Lane, Place, Places};
use crate::store::{Denial, DenialId, NewDenial, Pair, Shard, Store, StoreError, SubscriptionId, TopicId};

/// An answer means nothing, so little of it is read.
const ANSWER_READ: usize = 4 * 1024;
/// Pauses before a callback that could not be reached is told again (D-08).
const AGAIN_AFTER: [Duration; 5] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_secs(120),
    Duration::from_secs(600),
    Duration::from_secs(1_800),
];
/// A callback that never confirmed anything is not asked for more than a verification would (B-33).
const AGAIN_WHERE_NEVER_CONFIRMED: usize = 1;
/// When the store does not answer, it is asked again.
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a denial that waits to be told takes here; as much again in the books of places ([`crate::places`]).
const ENTRY_BYTES: usize = 104;
const _: () = assert!(size_of::<(u64, Entry)>() <= ENTRY_BYTES);

/// Stops what is under way to subscriptions that have ended.
#[async_trait]
pub trait StopDeliveries: std::fmt::Debug + Send + Sync + 'static {
    /// Returns when nothing is under way any more to a subscription whose end is durable, and nothing will be.
    async fn halt(&self, shard: Shard, subscription: SubscriptionId);
}

/// Denies subscriptions.
#[derive(Clone, Debug)]
pub struct Denials {
    store: Arc<dyn Store>,
    halts: Arc<dyn StopDeliveries>,
    telling: mpsc::UnboundedSender<ToTell>,
}

/// A denial on its way to its callback.
#[derive(Debug)]
pub enum ToTell {
    /// One that is new, whose texts are at hand.
    New(NewlyDenied),
    /// The pair of one that an earlier life left untold.
    Left(Pair),
}

/// A denial that is new.
#[derive(Debug)]
pub struct NewlyDenied {
    denial: Denial,
    /// Who asked for what was denied: it is told by that client's share. An operator and a restart have none.
    client: Option<IpAddr>,
    /// That of the request that was denied: what waits to be told counts with what waits to be verified.
    place: Option<Place>,
}

impl Denials {
    /// `telling` gets each denial once it is durable.
    pub fn new(
        store: Arc<dyn Store>,
        halts: Arc<dyn StopDeliveries>,
        telling: mpsc::UnboundedSender<ToTell>,
    ) -> Self {
        Self { store, halts, telling }
    }

    /// Denies a subscription in force, or a request that waits. When this returns true, the subscription gets nothing any more,
    /// a crash does not bring it back, and its callback is going to be told. False: there was nothing to deny.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be made durable; then nothing has changed.
    pub async fn deny(&self, denial: NewDenial) -> Result<bool, StoreError> {
        let Some(denial) = self.put(denial).await? else { return Ok(false) };
        self.tell(denial, None, None);
        Ok(true)
    }

    /// Ends a subscription whose record cannot be read, as far as that goes: it gets nothing any more, and is not in the way of a new one,
    /// but nobody knows any more who has to be told. False: there is no such subscription, or it can be read.
    ///
    /// # Errors
    /// [`StoreError`] when it cannot be made durable; then nothing has changed.
    pub async fn end_unreadable(
        &self,
        shard: Shard,
        topic: TopicId,
        id: SubscriptionId,
    ) -> Result<bool, StoreError> {
        let ended = self.store.end_unreadable(shard, topic, id).await?;
        if ended {
            self.halts.halt(shard, id).await;
            warn!(
                topic = format!("{:016x}", topic.0),
                subscription = id.0,
                "denied, but its record cannot be read: it is removed, and its callback is not told"
            );
        }
        Ok(ended)
    }

    /// Denies, and leaves it to the caller to have that told.
    pub(super) async fn put(&self, denial: NewDenial) -> Result<Option<Denial>, StoreError> {
        let Some(denial) = self.store.deny(denial).await? else { return Ok(None) };
        if let Some((shard, _, subscription)) = denial.ended {
            self.halts.halt(shard, subscription).await;
        }
        info!(
            topic = denial.topic.as_str(),
            origin = denial.callback.origin(),
            reason = denial.reason,
            "denied"
        );
        Ok(Some(denial))
    }

    /// Has the callback told in the share of this client, whose place among what waits is kept until then.
    pub(super) fn tell(&self, denial: Denial, client: Option<IpAddr>, place: Option<Place>) {
        // At shutdown nobody listens any more; the denial is durable and waits for the next start.
        let _ = self.telling.send(ToTell::New(NewlyDenied { denial, client, place }));
    }
}

/// Tells callbacks that they were denied, many at once, but those that never confirmed apart from those that had a subscription:
/// strangers hold up no operator.
#[derive(Clone, Debug)]
pub struct Telling {
    store: Arc<dyn Store>,
    ways: Ways,
    queues: Places,
    /// Places to read what waits, and those of what waits in all.
    reading: Places,
    waiting: Places,
}

/// A denial that waits to be told: all that is kept of it in memory.
#[derive(Debug)]
struct Entry {
    pair: Pair,
    /// `None`: an earlier life left it, and it is to be read first.
    id: Option<DenialId>,
    asker: Asker,
    here: Here,
    /// How often its callback could not be reached.
    failures: u8,
    _waiting: Option<Place>,
}

/// What follows from a turn.
#[derive(Debug)]
enum After {
    /// It was read: this is where and by whom it is told, with a place to wait where it counts with what waits.
    Found { id: DenialId, asker: Asker, here: Here, waiting: Option<Place> },
    /// The store could not read it: it waits for its turn to be read again.
    Unread,
    /// Nothing: it was told, or never will be.
    Done,
    /// The same after a pause, with this of the place, if it is kept; a failure of the callback's leaves it.
    Again(Duration, Option<Place>),
}

type Waiters = Line<Entry, After>;

impl Telling {
    pub(super) fn new(store: Arc<dyn Store>, ways: Ways, queues: Places, waiting: Places) -> Self {
        Self { store, ways, queues, reading: queues::reading(), waiting }
    }

    /// Tells whatever comes, until `stop` turns true. What is not told by then waits in the store for the next start.
    pub async fn run(self, denials: mpsc::UnboundedReceiver<ToTell>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.tell_all(denials) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// The channel closes when the hub stops; what waits then, waits in the store.
    async fn tell_all(&self, mut denials: mpsc::UnboundedReceiver<ToTell>) {
        let mut line = Waiters::new();
        let (mut is_open, mut number) = (true, 0);
        while is_open || !line.is_empty() {
            tokio::select! {
                come = denials.recv(), if is_open => match come {
                    Some(to_tell) => {
                        number += 1;
                        self.take_in(number, to_tell, &mut line);
                    }
                    None => is_open = false,
                },
                event = line.next() => self.go_on(event, &mut line),
            }
        }
    }

    /// Nothing is read here: a store that does not answer holds up nobody else.
    fn take_in(&self, number: u64, to_tell: ToTell, line: &mut Waiters) {
        let entry = match to_tell {
            ToTell::New(NewlyDenied { denial, client, place }) => {
                let (asker, here) = self.whereabouts(&denial, client);
                let pair = Pair::of(&denial.topic, &denial.callback);
                Entry { pair, id: Some(denial.id), asker, here, failures: 0, _waiting: place }
            }
            ToTell::Left(pair) => {
                let (asker, here) = (Asker { client: None, lane: Lane::Stranger }, self.reading.here(""));
                Entry { pair, id: None, asker, here, failures: 0, _waiting: None }
            }
        };
        line.entries.insert(number, entry);
        self.line_up(number, line);
    }

    fn whereabouts(&self, denial: &Denial, client: Option<IpAddr>) -> (Asker, Here) {
        (Asker { client, lane: lane(denial) }, self.queues.here(&denial.callback.origin()))
    }

    fn line_up(&self, number: u64, line: &Waiters) {
        let Some(Entry { id, asker, here, .. }) = line.entries.get(&number) else { return };
        let places = if id.is_some() { &self.queues } else { &self.reading };
        places.line_up(*asker, *here, &line.turns, number);
    }

    fn go_on(&self, event: Event<After>, line: &mut Waiters) {
        match event {
            Event::Turn(number, place) => {
                let Some(Entry { pair, id, failures, .. }) = line.entries.get(&number) else { return };
                let (telling, pair, id, failures) = (self.clone(), *pair, *id, *failures);
                line.run(number, async move {
                    match id {
                        Some(id) => telling.tell(id, pair, failures, place).await,
                        None => telling.find(pair, place).await,
                    }
                });
            }
            Event::Over(number, Some(After::Found { id, asker, here, waiting })) => {
                let Some(entry) = line.entries.get_mut(&number) else { return };
                *entry = Entry { id: Some(id), asker, here, _waiting: waiting, ..*entry };
                self.line_up(number, line);
            }
            Event::Over(number, Some(After::Unread)) | Event::Rested(number, None) => {
                self.line_up(number, line);
            }
            Event::Over(number, Some(After::Again(pause, place))) => {
                if let (Some(entry), None) = (line.entries.get_mut(&number), &place) {
                    entry.failures += 1;
                }
                line.pause(number, pause, place);
            }
            Event::Rested(number, Some(place)) => place.line_up(&line.turns, number),
            // After a fault it stays in the store for the next start.
            Event::Over(number, Some(After::Done) | None) => {
                line.forget(number);
            }
        }
    }

    /// Where the denial is to be told that an earlier life left. Its place is kept over the pause after what could not be read, and it
    /// goes to the end of the line then, as in verification.
    async fn find(&self, pair: Pair, _place: Place) -> After {
        let denial = match self.store.denial(pair).await {
            Ok(Some(denial)) => denial,
            Ok(None) => return After::Done,
            Err(error @ StoreError::Damaged { .. }) => {
                unreadable(&error);
                return After::Done;
            }
            Err(error) => {
                tracing::error!(%error, "a denial waits for the store");
                sleep(STORE_AGAIN_AFTER).await;
                return After::Unread;
            }
        };
        let (asker, here) = self.whereabouts(&denial, None);
        // That of a request counts as in the life that denied it. There are no more of those left than may wait, since they counted there
        // until they were told, and what is new counts beside them as soon as they are read.
        let host = denial.callback.url().host_str().unwrap_or_default();
        let waiting = (asker.lane == Lane::Stranger).then(|| self.waiting.readmit(asker, host));
        After::Found { id: denial.id, asker, here, waiting }
    }

    /// A denial whose turn has come; one that was replaced meanwhile is told by the newer one.
    async fn tell(&self, id: DenialId, pair: Pair, failures: u8, place: Place) -> After {
        let Some(denial) = self.read(pair).await.filter(|denial| denial.id == id) else { return After::Done };
        if self.is_true_still(&denial).await {
            let pauses = if denial.ended.is_some() { AGAIN_AFTER.len() } else { AGAIN_WHERE_NEVER_CONFIRMED };
            match self.tell_once(&denial).await {
                Ok(()) => {}
                Err(Untold::Crowded(pause)) => {
                    place.give_way();
                    return After::Again(pause, Some(place));
                }
                Err(Untold::Failed(why)) => {
                    let (topic, origin) = (denial.topic.as_str(), denial.callback.origin());
                    if let Some(pause) = AGAIN_AFTER[..pauses].get(usize::from(failures)) {
                        debug!(topic, origin, why, "the callback is told again later");
                        return After::Again(*pause, None);
                    }
                    warn!(topic, origin, why, "denied, but the callback could not be told");
                }
            }
        }
        while let Err(error) = self.store.remove_denial(&denial).await {
            tracing::error!(%error, "the store does not take that a denial was told, trying again");
            sleep(STORE_AGAIN_AFTER).await;
        }
        After::Done
    }

    /// The newest denial of the pair. One that is damaged is not read for ever.
    async fn read(&self, pair: Pair) -> Option<Denial> {
        loop {
            match self.store.denial(pair).await {
                Ok(denial) => return denial,
                Err(error @ StoreError::Damaged { .. }) => {
                    unreadable(&error);
                    return None;
                }
                Err(error) => tracing::error!(%error, "a denial waits for the store"),
            }
            sleep(STORE_AGAIN_AFTER).await;
        }
    }

    /// Whoever has subscribed anew since must not be told that it has been denied.
    async fn is_true_still(&self, denial: &Denial) -> bool {
        loop {
            match self.store.find_subscription(&denial.topic, &denial.callback).await {
                Ok(subscription) => return subscription.is_none(),
                Err(error) => tracing::error!(%error, "a denial waits for the store"),
            }
            sleep(STORE_AGAIN_AFTER).await;
        }
    }

    /// Any answer will do (D-08); otherwise why there was none.
    async fn tell_once(&self, denial: &Denial) -> Result<(), Untold> {
        let request = match telling(denial) {
            Ok(request) => request,
            Err(error) => {
                warn!(origin = denial.callback.origin(), %error, "the callback is no target of a request");
                return Ok(());
            }
        };
        match self.ways.of(lane(denial)).send(request, ReadLimit::Discard(ANSWER_READ)).await {
            Ok(_) => Ok(()),
            Err(EgressError::Forbidden(forbidden)) => {
                warn!(origin = denial.callback.origin(), %forbidden, "the callback is not told");
                Ok(())
            }
            Err(EgressError::Crowded(wait)) => Err(Untold::Crowded(wait.max(AGAIN_AFTER[0]))),
            Err(error) => Err(Untold::Failed(error.to_string())),
        }
    }
}

/// Those who had a subscription need not queue behind those who never confirmed.
fn lane(denial: &Denial) -> Lane {
    if denial.ended.is_some() { Lane::Known } else { Lane::Stranger }
}

fn unreadable(error: &StoreError) {
    tracing::error!(%error, "a denial cannot be read: its callback is not told");
}

/// Why a callback was not told.
enum Untold {
    /// Nothing was asked, so it is no failure of the callback's.
    Crowded(Duration),
    Failed(String),
}

fn telling(denial: &Denial) -> Result<Request<Full<Bytes>>, http::Error> {
    let denied = websub::Verification::Denied {
        topic: denial.topic.as_str().to_owned(),
        reason: Some(denial.reason.clone()).filter(|reason| !reason.is_empty()),
    };
    Request::get(denied.to_url(&denial.callback))
        .header(USER_AGENT, egress::USER_AGENT)
        .body(Full::new(Bytes::new()))
}
