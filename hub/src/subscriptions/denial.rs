//! Denials: a subscription that is not accepted, or no longer, ends at once, and its callback is told (W-098 to W-102).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::Full;
use resync_core::websub;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::line::{Event, Line};
use super::verification::Ways;
use crate::delivery::Halts;
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
const ENTRY_BYTES: usize = 96;
const _: () = assert!(size_of::<(u64, Entry)>() <= ENTRY_BYTES);

/// Denies subscriptions.
#[derive(Clone, Debug)]
pub struct Denials {
    store: Arc<dyn Store>,
    halts: Halts,
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
    pub fn new(store: Arc<dyn Store>, halts: Halts, telling: mpsc::UnboundedSender<ToTell>) -> Self {
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
}

/// A denial that waits to be told: all that is kept of it in memory.
#[derive(Debug)]
struct Entry {
    pair: Pair,
    asker: Asker,
    here: Here,
    /// How often its callback could not be reached.
    failures: u8,
    _waiting: Option<Place>,
}

/// What follows from a turn.
#[derive(Debug)]
enum After {
    /// Nothing: it was told, or never will be.
    Done,
    /// The same after a pause, with this of the place, if it is kept; a failure of the callback's leaves it.
    Again(Duration, Option<Place>),
}

type Waiters = Line<Entry, After>;

impl Telling {
    pub(super) fn new(store: Arc<dyn Store>, ways: Ways, queues: Places) -> Self {
        Self { store, ways, queues }
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
        let mut is_open = true;
        while is_open || !line.is_empty() {
            tokio::select! {
                come = denials.recv(), if is_open => match come {
                    Some(to_tell) => self.take_in(to_tell, &mut line).await,
                    None => is_open = false,
                },
                event = line.next() => self.go_on(event, &mut line),
            }
        }
    }

    async fn take_in(&self, to_tell: ToTell, line: &mut Waiters) {
        let NewlyDenied { denial, client, place } = match to_tell {
            ToTell::New(new) => new,
            ToTell::Left(pair) => {
                let Some(denial) = self.read(pair).await else { return };
                NewlyDenied { denial, client: None, place: None }
            }
        };
        let lane = if denial.ended.is_some() { Lane::Known } else { Lane::Stranger };
        let (asker, here) = (Asker { client, lane }, self.queues.here(&denial.callback.origin()));
        let pair = Pair::of(&denial.topic, &denial.callback);
        line.entries.insert(denial.id.0, Entry { pair, asker, here, failures: 0, _waiting: place });
        self.queues.line_up(asker, here, &line.turns, denial.id.0);
    }

    fn go_on(&self, event: Event<After>, line: &mut Waiters) {
        match event {
            Event::Turn(number, place) => {
                let Some(Entry { pair, failures, .. }) = line.entries.get(&number) else { return };
                let (telling, pair, failures) = (self.clone(), *pair, *failures);
                line.run(number, async move { telling.tell(DenialId(number), pair, failures, place).await });
            }
            Event::Over(number, Some(After::Again(pause, place))) => {
                if let (Some(entry), None) = (line.entries.get_mut(&number), &place) {
                    entry.failures += 1;
                }
                line.pause(number, pause, place);
            }
            Event::Rested(number, Some(place)) => place.line_up(&line.turns, number),
            Event::Rested(number, None) => {
                if let Some(Entry { asker, here, .. }) = line.entries.get(&number) {
                    self.queues.line_up(*asker, *here, &line.turns, number);
                }
            }
            // After a fault it stays in the store for the next start.
            Event::Over(number, Some(After::Done) | None) => {
                line.forget(number);
            }
        }
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
                    tracing::error!(%error, "a denial cannot be read: its callback is not told");
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
        let lane = if denial.ended.is_some() { Lane::Known } else { Lane::Stranger };
        match self.ways.of(lane).send(request, ReadLimit::Discard(ANSWER_READ)).await {
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
