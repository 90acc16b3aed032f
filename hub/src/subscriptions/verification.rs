//! Verification of intent: asking the callback whether its owner meant the request (WebSub section 5.3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use resync_core::datetime::DateTime;
use resync_core::websub::Challenge;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use super::bounds::{Bounds, Full};
use super::denial::{Denials, Telling};
use super::intent::{ANSWER_READ, NotAsked, Reply, asking, reply};
use super::lease::LeasePolicy;
use super::line::{Event, Line};
use super::meters::{Ending, VerificationMeters};
use super::queues;
use super::requests::{Acquaintance, Waiting};
use super::resting::Resting;
use crate::egress::{Answer, EgressClient, EgressError};
use crate::places::{Lane, Place, Places};
use crate::store::{
    Activation, Confirmation, Denial, Intent, NewDenial, PendingRequest, Refusal, RequestId, Store,
    StoreError, VerifiedSubscription, VerifiedUnsubscription,
};
use crate::topics::{TopicPolicy, Verdict};

/// An unreachable callback is asked once more after this pause; an answer, whatever it says, is final (C-08).
const SECOND_TRY_AFTER: Duration = Duration::from_secs(5);
/// How often a known client's topic is looked at, with that pause between, before what cannot be told counts as not verified.
const POLICY_TRIES: u8 = 3;
/// How long a renewal waits for policy. Its topic was accepted when it began, and what cannot be told refuses nothing.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(30);
/// Renewals that wait for that at once; of those beyond, nothing is told.
const RENEWALS_JUDGED: usize = 1_024;
/// When the store does not take the result, it is offered again.
const STORE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a request that waits takes here; as much again in the books of places ([`crate::places`]) and of the store.
const ENTRY_BYTES: usize = 48;
const _: () = assert!(size_of::<(u64, Entry)>() <= ENTRY_BYTES);

/// Whoever asked for what an earlier life left, until that is read.
const SOMEBODY: Acquaintance = Acquaintance { client: None, in_force: false, confirmed: false };

/// The ways out to callbacks. Each counts its connections by network, and strangers use up nothing of the others (B-33).
#[derive(Clone, Debug)]
pub struct Ways {
    /// For those whom the hub knows.
    pub known: EgressClient,
    /// For anybody.
    pub strangers: EgressClient,
}

impl Ways {
    pub(super) fn of(&self, lane: Lane) -> &EgressClient {
        match lane {
            Lane::Known => &self.known,
            Lane::Stranger => &self.strangers,
        }
    }
}

/// Verifies pending requests, many at once.
#[derive(Clone, Debug)]
pub struct Verification {
    store: Arc<dyn Store>,
    ways: Ways,
    leases: LeasePolicy,
    resting: Resting,
    policy: Arc<dyn TopicPolicy>,
    bounds: Bounds,
    /// Places to ask callbacks, and to ask name servers where topics are.
    queues: Places,
    lookups: Places,
    /// Places to read what waits, and those of what waits in all.
    reading: Places,
    waiting: Places,
    renewals: Arc<Semaphore>,
    meters: VerificationMeters,
    pause: Duration,
}

/// A request that waits: all that is kept of it in memory.
#[derive(Debug)]
struct Entry {
    turn: Turn,
    /// That of what waits in all.
    waiting: Place,
}

/// What a request waits for.
#[derive(Clone, Copy, Debug)]
struct Turn {
    who: Acquaintance,
    step: Step,
    /// How often this step came to nothing.
    tries: u8,
}

/// What is done for a request, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// To read what it is about.
    Read,
    /// To read that, and who asks for it: an earlier life left it undone.
    Recall,
    /// To find where its topic is.
    Find,
    /// To look at its topic.
    Look,
    /// To ask its callback.
    Ask,
}

/// What follows from a turn.
#[derive(Debug)]
enum After {
    /// Nothing: the request no longer waits.
    Done,
    /// The first step at this place on the network, now that it is known who asks; with a place to wait where it had one of nobody in
    /// particular.
    First { who: Acquaintance, step: Step, here: String, waiting: Option<Place> },
    /// The store could not read it: it waits for its turn to be read again.
    Unread,
    /// This step at this place on the network.
    Next(Step, String),
    /// The same once more after a pause, with what is kept of the place; where the hub is to blame, that counts as no try.
    Again { pause: Duration, place: Place, counts: bool },
    /// Its callback has to be told that it was denied.
    Tell(Denial),
}

type Waiters = Line<Entry, After>;

impl Verification {
    /// With `by_client` no client has more than its share of what is asked at once.
    pub fn new(
        store: Arc<dyn Store>,
        ways: Ways,
        leases: LeasePolicy,
        resting: Resting,
        policy: Arc<dyn TopicPolicy>,
        bounds: Bounds,
        by_client: bool,
    ) -> Self {
        let (queues, lookups) = (queues::queues(by_client), queues::queues(by_client));
        let (reading, waiting) = (queues::reading(), queues::waiting(by_client));
        let meters = VerificationMeters::default();
        let renewals = Arc::new(Semaphore::new(RENEWALS_JUDGED));
        let pause = SECOND_TRY_AFTER;
        Self {
            store,
            ways,
            leases,
            resting,
            policy,
            bounds,
            queues,
            lookups,
            reading,
            waiting,
            renewals,
            meters,
            pause,
        }
    }

    /// What verifications come to.
    pub fn meters(&self) -> VerificationMeters {
        self.meters.clone()
    }

    /// What tells callbacks about denials, in the same queues.
    pub fn telling(&self) -> Telling {
        Telling::new(Arc::clone(&self.store), self.ways.clone(), self.queues.clone(), self.waiting.clone())
    }

    /// The places of what may wait.
    pub fn waiting(&self) -> Places {
        self.waiting.clone()
    }

    /// A request that an earlier life left undone. It counts from the start with what waits, so that no number of restarts has more
    /// wait than may.
    pub fn left(&self, id: RequestId) -> Waiting {
        Waiting { id, who: None, place: self.waiting.readmit(SOMEBODY.asker(), "") }
    }

    /// Verifies whatever comes, until `stop` turns true; what policy refuses goes to `denials`. Requests that are under way then stay pending in
    /// the store and are verified at the next start.
    pub async fn run(
        self,
        requests: mpsc::UnboundedReceiver<Waiting>,
        denials: Denials,
        mut stop: watch::Receiver<bool>,
    ) {
        tokio::select! {
            () = self.verify_all(requests, &denials) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Whoever got its 202 is asked however long that takes (W-097), in the share of its client, so that each client has its turn.
    async fn verify_all(&self, mut requests: mpsc::UnboundedReceiver<Waiting>, denials: &Denials) {
        let mut line = Waiters::new();
        let mut is_open = true;
        while is_open || !line.is_empty() {
            tokio::select! {
                come = requests.recv(), if is_open => match come {
                    Some(waiting) => self.take_in(waiting, &mut line),
                    None => is_open = false,
                },
                event = line.next() => self.go_on(event, &mut line, denials),
            }
        }
    }

    /// Nothing is read here: a store that does not answer holds up nobody else.
    fn take_in(&self, Waiting { id, who, place }: Waiting, line: &mut Waiters) {
        let step = if who.is_some() { Step::Read } else { Step::Recall };
        let who = who.unwrap_or(SOMEBODY);
        line.entries.insert(id.0, Entry { turn: Turn { who, step, tries: 0 }, waiting: place });
        self.line_up(id.0, who, (step, ""), line);
    }

    /// What a restart leaves of it.
    async fn acquaintance(&self, request: &PendingRequest) -> Result<Acquaintance, StoreError> {
        let found = self.store.find_subscription(&request.topic, &request.callback).await?;
        Ok(Acquaintance { client: request.client, in_force: found.is_some(), confirmed: false })
    }

    fn line_up(&self, number: u64, who: Acquaintance, (step, here): (Step, &str), line: &Waiters) {
        let places = match (step, self.policy.places()) {
            (Step::Read | Step::Recall, _) => &self.reading,
            (Step::Look, Some(places)) => places,
            (Step::Look, None) | (Step::Find, _) => &self.lookups,
            (Step::Ask, _) => &self.queues,
        };
        places.line_up(who.asker(), places.here(here), &line.turns, number);
    }

    fn go_on(&self, event: Event<After>, line: &mut Waiters, denials: &Denials) {
        match event {
            Event::Turn(number, place) => {
                let Some(Entry { turn, .. }) = line.entries.get(&number) else { return };
                let (verification, denials, turn) = (self.clone(), denials.clone(), *turn);
                let taking =
                    async move { verification.take_turn(RequestId(number), turn, place, &denials).await };
                line.run(number, taking);
            }
            Event::Rested(number, Some(place)) => place.line_up(&line.turns, number),
            Event::Over(number, Some(After::First { who, step, here, waiting })) => {
                let Some(entry) = line.entries.get_mut(&number) else { return };
                entry.turn = Turn { who, step, tries: 0 };
                if let Some(waiting) = waiting {
                    entry.waiting = waiting;
                }
                self.line_up(number, who, (step, &here), line);
            }
            Event::Over(number, Some(After::Unread)) => {
                let Some(Entry { turn: Turn { who, step, .. }, .. }) = line.entries.get(&number) else {
                    return;
                };
                self.line_up(number, *who, (*step, ""), line);
            }
            Event::Over(number, Some(After::Next(step, here))) => {
                let Some(entry) = line.entries.get_mut(&number) else { return };
                entry.turn = Turn { step, tries: 0, ..entry.turn };
                let who = entry.turn.who;
                self.line_up(number, who, (step, &here), line);
            }
            Event::Over(number, Some(After::Again { pause, place, counts })) => {
                if let Some(entry) = line.entries.get_mut(&number) {
                    entry.turn.tries += u8::from(counts);
                }
                line.pause(number, pause, Some(place));
            }
            Event::Over(number, Some(After::Tell(denial))) => {
                // Its place is free once it is told, and not before: what waits to be told counts with what waits to be verified.
                if let Some(Entry { turn, waiting }) = line.forget(number) {
                    denials.tell(denial, turn.who.client, Some(waiting));
                }
            }
            // After a fault it stays in the store for the next start.
            Event::Over(number, Some(After::Done) | None) | Event::Rested(number, None) => {
                line.forget(number);
            }
        }
    }

    /// A request whose turn has come. What was replaced meanwhile, by a newer one of the same client for the same pair, is gone from
    /// the store.
    async fn take_turn(&self, id: RequestId, turn: Turn, mut place: Place, denials: &Denials) -> After {
        if matches!(turn.step, Step::Read | Step::Recall) {
            return self.read(id, turn, place).await;
        }
        let request = match self.until_readable(id).await {
            Ok(Some(request)) => request,
            Ok(None) => {
                debug!(id = id.0, "a newer request for the same pair has come in");
                return After::Done;
            }
            Err(error) => {
                tracing::error!(%error, "a request cannot be read: it is not verified");
                return After::Done;
            }
        };
        if turn.step == Step::Ask {
            return self.ask_in_turn(request, turn, place, denials).await;
        }
        let topic = &request.topic;
        let verdict = match (self.policy.at_once(topic, turn.who.asker()), turn.step) {
            (Some(verdict), _) => verdict,
            (None, Step::Find) if self.policy.places().is_some() => {
                return After::Next(Step::Look, self.policy.whereabouts(topic).await);
            }
            (None, _) => self.policy.look(topic, Some(&mut place)).await,
        };
        self.judged(request, turn, verdict, place, denials).await
    }

    /// Its place is kept over the pause after what could not be read, so that a store that does not answer is asked few times a
    /// second, whatever waits; and it goes to the end of the line then, so that a record that cannot be read holds up no other.
    async fn read(&self, id: RequestId, turn: Turn, _place: Place) -> After {
        match self.first_step(id, turn).await {
            Ok(first) => first,
            Err(error @ StoreError::Damaged { .. }) => {
                tracing::error!(%error, "a request cannot be read: it is not verified");
                After::Done
            }
            Err(error) => {
                self.store_again(&error).await;
                After::Unread
            }
        }
    }

    /// Policy first: whoever is not accepted is not asked but told (W-097, W-098). But everybody may unsubscribe, and where a
    /// subscription is in force its callback comes first: only its subscriber makes the hub look at the topic again, and only
    /// its subscriber can end it by a request (W-062, W-102).
    async fn first_step(&self, id: RequestId, turn: Turn) -> Result<After, StoreError> {
        let Some(request) = self.store.request(id).await? else { return Ok(After::Done) };
        let host = request.callback.url().host_str().unwrap_or_default();
        let (who, waiting) = if turn.step == Step::Recall {
            let who = self.acquaintance(&request).await?;
            (who, Some(self.waiting.readmit(who.asker(), host)))
        } else {
            (turn.who, None)
        };
        let at_once = || self.policy.at_once(&request.topic, who.asker()) == Some(Verdict::Accepted);
        let (step, here) = if who.in_force || request.intent == Intent::Unsubscribe || at_once() {
            (Step::Ask, request.callback.origin())
        } else {
            (Step::Find, request.topic.url().host_str().unwrap_or_default().to_owned())
        };
        Ok(After::First { who, step, here, waiting })
    }

    async fn judged(
        &self,
        request: PendingRequest,
        turn: Turn,
        verdict: Verdict,
        place: Place,
        denials: &Denials,
    ) -> After {
        let reason = match verdict {
            Verdict::Accepted => return After::Next(Step::Ask, request.callback.origin()),
            Verdict::Unknown if turn.who.confirmed && turn.tries + 1 < POLICY_TRIES => {
                place.give_way();
                return After::Again { pause: self.pause, place, counts: true };
            }
            Verdict::Unknown => {
                self.meters.ended(Ending::Topic);
                self.give_up(&request, "the topic cannot be judged").await;
                return After::Done;
            }
            Verdict::Refused(reason) => reason,
        };
        debug!(
            topic = request.topic.as_str(),
            origin = request.callback.origin(),
            reason,
            "request refused by policy"
        );
        self.meters.ended(Ending::Topic);
        let PendingRequest { id, topic, callback, .. } = request;
        let denial = NewDenial { topic, callback: callback.clone(), reason, refusal: Refusal::Request(id) };
        match self.until_stored(|| denials.put(denial.clone())).await {
            Some(denial) => {
                // Nobody there has confirmed anything, and it is asked for nothing more often than a verification would.
                self.resting.failed(turn.who.client, &callback, Instant::now());
                After::Tell(denial)
            }
            None => After::Done,
        }
    }

    /// Asks the callback, and acts upon what it says.
    async fn ask_in_turn(
        &self,
        request: PendingRequest,
        turn: Turn,
        place: Place,
        denials: &Denials,
    ) -> After {
        let who = turn.who;
        let lease = match &request.intent {
            Intent::Subscribe { lease, .. } => Some(self.leases.grant(*lease)),
            Intent::Unsubscribe => None,
        };
        let asked_at = DateTime::now();
        let again = |pause, counts, place: Place| {
            place.give_way();
            After::Again { pause, place, counts }
        };
        let reply = match self.ask(&request, who, lease, &place).await {
            Ok(Reply::Unreachable(_)) if turn.tries == 0 => return again(self.pause, true, place),
            Ok(reply) => reply,
            // The shortage is here, so it does not count as the callback's answer.
            Err(NotAsked::Exhausted) => {
                warn!("verification waits: no file descriptor is left");
                return again(self.pause, false, place);
            }
            Err(NotAsked::Crowded(wait)) => return again(wait.max(self.pause), false, place),
        };
        self.meters.ended(Ending::of(&reply));
        match reply {
            Reply::Confirmed(confirmation) => {
                self.resting.confirmed(who.client, &request.callback);
                let Some((reason, refusal)) = self.denies(&request, who, &place).await else {
                    self.put_in_force(request, lease, asked_at, confirmation).await;
                    return After::Done;
                };
                let PendingRequest { topic, callback, .. } = request;
                let denial = NewDenial { topic, callback, reason, refusal };
                self.until_stored(|| denials.put(denial.clone())).await.map_or(After::Done, After::Tell)
            }
            Reply::Refused(why) | Reply::Unreachable(why) => {
                self.resting.failed(who.client, &request.callback, Instant::now());
                self.give_up(&request, &why).await;
                After::Done
            }
        }
    }

    /// Why what its subscriber has just confirmed is denied all the same, and whether that ends a subscription.
    async fn denies(
        &self,
        request: &PendingRequest,
        who: Acquaintance,
        place: &Place,
    ) -> Option<(String, Refusal)> {
        if let Some(reason) = self.ends_renewal(request, who, place).await {
            return Some((reason, Refusal::Confirmed(request.id)));
        }
        let full = self.is_beyond_bounds(request).await?;
        debug!(topic = request.topic.as_str(), origin = request.callback.origin(), %full, "confirmed, but there is no more room");
        Some((full.to_string(), Refusal::Request(request.id)))
    }

    /// When the request came in there was room for one more subscription. Of those that waited with it many may be in force by now.
    async fn is_beyond_bounds(&self, request: &PendingRequest) -> Option<Full> {
        let PendingRequest { topic, callback, client, .. } = request;
        if request.intent == Intent::Unsubscribe {
            return None;
        }
        match self.store.find_subscription(topic, callback).await {
            Ok(None) => self.bounds.check(self.store.as_ref(), *client, topic, callback).err(),
            // A renewal brings nothing new; where nobody can say whether it is one, nothing can be put in force either.
            Ok(Some(_)) | Err(_) => None,
        }
    }

    /// Why the renewal that its subscriber has just confirmed ends the subscription instead.
    async fn ends_renewal(
        &self,
        request: &PendingRequest,
        who: Acquaintance,
        place: &Place,
    ) -> Option<String> {
        if !who.in_force || request.intent == Intent::Unsubscribe {
            return None;
        }
        let Ok(_judged) = self.renewals.try_acquire() else { return None };
        // A slow topic holds up no other callback.
        place.give_way();
        match timeout(RENEWAL_PATIENCE, self.policy.judge(&request.topic, who.asker())).await {
            Ok(Verdict::Refused(reason)) => Some(reason),
            Ok(Verdict::Accepted | Verdict::Unknown) | Err(_) => None,
        }
    }

    async fn give_up(&self, request: &PendingRequest, why: &str) {
        let (topic, origin) = (request.topic.as_str(), request.callback.origin());
        warn!(topic, origin, why, "request not verified: nothing changes");
        self.until_stored(|| self.store.remove_request(request)).await;
    }

    /// One verification request with a challenge of its own (W-186).
    async fn ask(
        &self,
        request: &PendingRequest,
        who: Acquaintance,
        lease: Option<Duration>,
        place: &Place,
    ) -> Result<Reply, NotAsked> {
        let challenge = Challenge::random();
        let asking = match asking(&request.topic, &request.callback, lease, &challenge) {
            Ok(asking) => asking,
            Err(error) => return Ok(Reply::Refused(format!("the callback cannot be asked: {error}"))),
        };
        let answer = self.ways.of(who.asker().lane).send(asking, ANSWER_READ).await;
        note(&answer, place);
        reply(answer, &challenge)
    }

    async fn put_in_force(
        &self,
        request: PendingRequest,
        lease: Option<Duration>,
        asked_at: DateTime,
        confirmation: Confirmation,
    ) {
        let (topic, origin) = (request.topic.as_str().to_owned(), request.callback.origin());
        let activation = if let Some(lease) = lease {
            let verified = VerifiedSubscription::new(request, lease, asked_at, confirmation);
            self.until_stored(|| self.store.activate(verified.clone())).await
        } else {
            let verified = VerifiedUnsubscription::new(request, confirmation);
            self.until_stored(|| self.store.deactivate(verified.clone())).await
        };
        match (activation, lease) {
            (Activation::Done, Some(lease)) => {
                info!(topic, origin, lease = lease.as_secs(), "subscription in force");
            }
            (Activation::Done, None) => info!(topic, origin, "subscription ended on request"),
            (Activation::Superseded, _) => {
                debug!(topic, origin, "a newer request for the same pair is under way");
            }
        }
    }

    /// The subscriber has confirmed: that must not be lost because the disk is full for a moment.
    async fn until_stored<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        mut operation: impl FnMut() -> F,
    ) -> T {
        loop {
            match operation().await {
                Ok(done) => return done,
                Err(error) => self.store_again(&error).await,
            }
        }
    }

    /// The request, if it still waits. One that is damaged is not read for ever.
    async fn until_readable(&self, id: RequestId) -> Result<Option<PendingRequest>, StoreError> {
        loop {
            match self.store.request(id).await {
                Err(error @ StoreError::Damaged { .. }) => return Err(error),
                Err(error) => self.store_again(&error).await,
                read => return read,
            }
        }
    }

    async fn store_again(&self, error: &StoreError) {
        tracing::error!(%error, "a verification waits for the store, trying again");
        sleep(STORE_AGAIN_AFTER).await;
    }
}

/// Remembers whether the callback had the hub wait in vain. Where nothing was asked, or nobody was there, it did neither.
fn note(answer: &Result<Answer, EgressError>, place: &Place) {
    match answer {
        Ok(_) => place.note_slow(false),
        Err(EgressError::Timeout(_)) => {
            place.note_slow(true);
            place.note_slow_client();
        }
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use futures_util::FutureExt;
    use resync_core::websub::{CallbackUrl, TopicUrl};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::super::queues::{OF_ONE_CLIENT, WAITING, WAITING_AT_ONE_HOST};
    use super::*;
    use crate::config::{self, LeaseConfig, LimitsConfig};
    use crate::delivery::Operator;
    use crate::egress::{Crowds, Guard};
    use crate::places::Asker;
    use crate::store::{self, Engine, Keyring, NewRequest};
    use crate::subscriptions::ToTell;
    use crate::topics::EveryTopic;

    /// Agrees to everything.
    async fn subscriber() -> CallbackUrl {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut asked = vec![0; 4_096];
                let read = stream.read(&mut asked).await.unwrap();
                let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
                let challenge =
                    asked.split("hub.challenge=").nth(1).unwrap().split(['&', ' ']).next().unwrap();
                let length = challenge.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{challenge}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        url.parse().unwrap()
    }

    fn topic() -> TopicUrl {
        "http://source.example/topic".parse().unwrap()
    }

    /// Of a client so many subscriptions.
    fn bounds(most_subscriptions_of_client: u64) -> Bounds {
        let defaults = config::load(None, [], &Vec::new()).unwrap().limits;
        Bounds::new(&LimitsConfig { most_subscriptions_of_client, ..defaults })
    }

    /// A verification room over a store in this folder.
    struct Room {
        verification: Verification,
        store: Arc<dyn Store>,
        denials: Denials,
        to_tell: mpsc::UnboundedReceiver<ToTell>,
    }

    impl Room {
        fn new(folder: &std::path::Path, crowds: Crowds, policy: Arc<dyn TopicPolicy>) -> Self {
            let store = store::open(Engine::default(), folder, Keyring::none(), 0).unwrap();
            let (guard, patience) = (Guard::open_to(&["127.0.0.0/8"]), Duration::from_secs(300));
            let client = EgressClient::new(guard.clone(), patience, patience, 1);
            let ways = Ways { strangers: client.counting(&guard, 1, crowds), known: client };
            let hour = Duration::from_secs(3_600);
            let leases = LeasePolicy::new(&LeaseConfig { min: hour, default: hour, max: hour, spread: 0.0 });
            let resting = Resting::new(true);
            let bounds = bounds(u64::MAX);
            let mut verification =
                Verification::new(Arc::clone(&store), ways, leases, resting, policy, bounds, true);
            verification.pause = Duration::from_millis(1);
            let (telling, to_tell) = mpsc::unbounded_channel();
            let denials = Denials::new(Arc::clone(&store), Arc::new(Operator::of_nobody()), telling);
            Self { verification, store, denials, to_tell }
        }

        async fn ask(&self, callback: &CallbackUrl) -> PendingRequest {
            self.ask_from(None, callback).await
        }

        async fn ask_from(&self, client: Option<IpAddr>, callback: &CallbackUrl) -> PendingRequest {
            let intent = Intent::Subscribe { lease: None, secret: None };
            let (topic, callback, received_at) = (topic(), callback.clone(), DateTime::now());
            let request =
                self.store.put_request(NewRequest { topic, callback, intent, received_at, client }).await;
            request.unwrap()
        }

        async fn judge(&self, request: PendingRequest, client: u8) {
            let client = Some(IpAddr::from([192, 0, 2, client]));
            let in_force = self.is_in_force(&request.callback).await;
            self.judge_as(request, Acquaintance { client, in_force, confirmed: false }).await;
        }

        fn waiting(&self, request: &PendingRequest, who: Acquaintance) -> Waiting {
            let place = self.verification.waiting.readmit(who.asker(), "");
            Waiting { id: request.id, who: Some(who), place }
        }

        /// Until it no longer waits.
        async fn judge_as(&self, request: PendingRequest, who: Acquaintance) {
            let (asking, asked) = mpsc::unbounded_channel();
            asking.send(self.waiting(&request, who)).unwrap();
            drop(asking);
            self.verification.verify_all(asked, &self.denials).await;
        }

        async fn is_in_force(&self, callback: &CallbackUrl) -> bool {
            self.store.find_subscription(&topic(), callback).await.unwrap().is_some()
        }
    }

    #[tokio::test]
    async fn w097_whoever_got_its_202_is_asked_however_crowded_its_network_is() {
        let folder = tempfile::tempdir().unwrap();
        let crowds = Crowds::with("20/s, burst 1".parse().unwrap());
        let room = Arc::new(Room::new(folder.path(), crowds, Arc::new(EveryTopic)));
        let mut callbacks = Vec::new();
        let mut waiting = JoinSet::new();
        // At each moment all of them want the one connection that may be made.
        for client in 0..60 {
            let callback = subscriber().await;
            let (room, request) = (Arc::clone(&room), room.ask(&callback).await);
            waiting.spawn(async move { room.judge(request, client).await });
            callbacks.push(callback);
        }
        waiting.join_all().await;
        for callback in callbacks {
            assert!(room.is_in_force(&callback).await);
        }
    }

    #[tokio::test]
    async fn b33_who_asks_in_a_subscribers_name_with_a_full_share_keeps_it_waiting_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(EveryTopic));
        let (asking, asked) = mpsc::unbounded_channel();
        let mut hanging = Vec::new();
        let of = |last: u8| Acquaintance {
            client: Some(IpAddr::from([192, 0, 2, last])),
            in_force: false,
            confirmed: false,
        };
        let ask = async |callback: &CallbackUrl, last: u8| {
            let request = room.ask_from(of(last).client, callback).await;
            asking.send(room.waiting(&request, of(last))).unwrap();
        };
        for host in 0..OF_ONE_CLIENT.strangers {
            let listener = TcpListener::bind(format!("127.0.6.{}:0", host + 1)).await.unwrap();
            ask(&format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap(), 66).await;
            hanging.push(listener);
        }
        let callback = subscriber().await;
        ask(&callback, 66).await;
        ask(&callback, 1).await;
        let verifying = room.verification.verify_all(asked, &room.denials);
        let in_force = async {
            for listener in &hanging {
                listener.accept().await.unwrap();
            }
            while !room.is_in_force(&callback).await {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = verifying => unreachable!("eight callbacks hang"),
            () = in_force => {}
        }
        let left = room.store.requests().await.unwrap();
        assert!(
            left.iter().any(|request| request.callback == callback),
            "that of the stranger waits in its share"
        );
        assert_eq!(left.len(), OF_ONE_CLIENT.strangers + 1);
    }

    #[tokio::test]
    async fn d17_only_the_newest_request_of_a_pair_is_asked_about_and_nothing_is_remembered_of_what_is_done()
    {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(EveryTopic));
        let callback = subscriber().await;
        let (old, new) = (room.ask(&callback).await, room.ask(&callback).await);
        room.judge(old, 1).await;
        assert!(!room.is_in_force(&callback).await);
        room.judge(new, 1).await;
        assert!(room.is_in_force(&callback).await && room.store.requests().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn b33_of_requests_that_came_in_together_no_more_come_into_force_than_their_client_may_have() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(EveryTopic));
        room.verification.bounds = bounds(2);
        let (mut asked, client) = (Vec::new(), Some(IpAddr::from([192, 0, 2, 1])));
        for _ in 0..3 {
            let callback = subscriber().await;
            asked.push((room.ask_from(client, &callback).await, callback));
        }
        let callbacks: Vec<_> = asked.iter().map(|(_, callback)| callback.clone()).collect();
        for (request, _) in asked {
            room.judge(request, 1).await;
        }
        assert!(room.is_in_force(&callbacks[0]).await && room.is_in_force(&callbacks[1]).await);
        assert!(!room.is_in_force(&callbacks[2]).await);
        let [denial] = &room.store.denials().await.unwrap()[..] else { panic!("the third is denied") };
        assert_eq!(denial.callback, callbacks[2]);
        assert!(denial.reason.contains("2 subscriptions, which is its share"), "{}", denial.reason);
        let renewal = room.ask_from(client, &callbacks[0]).await;
        room.judge(renewal, 1).await;
        assert!(room.is_in_force(&callbacks[0]).await && room.store.requests().await.unwrap().is_empty());
        assert_eq!(room.store.denials().await.unwrap().len(), 1, "a renewal brings nothing new");
    }

    #[tokio::test]
    async fn what_an_earlier_life_left_undone_is_verified_in_the_share_of_its_client() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(EveryTopic));
        let callback = subscriber().await;
        let client = Some(IpAddr::from([192, 0, 2, 1]));
        let request = room.ask_from(client, &callback).await;
        assert_eq!(room.verification.acquaintance(&request).await.unwrap().client, client);
        let (asking, asked) = mpsc::unbounded_channel();
        for id in room.store.request_ids().await.unwrap() {
            asking.send(room.verification.left(id)).unwrap();
        }
        asking.send(room.verification.left(RequestId(u64::MAX))).unwrap();
        drop(asking);
        room.verification.verify_all(asked, &room.denials).await;
        assert!(room.is_in_force(&callback).await);
    }

    #[tokio::test]
    async fn b33_what_an_earlier_life_left_counts_with_what_waits_in_all_and_once_it_is_read_for_its_client()
    {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(EveryTopic));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let callback = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let request = room.ask_from(Some(IpAddr::from([192, 0, 2, 1])), &callback).await;
        let may_wait = |last: u8| {
            let asker = Asker { client: Some(IpAddr::from([192, 0, 2, last])), lane: Lane::Stranger };
            let place = |number: u32| room.verification.waiting.try_place(asker, &number.to_string());
            (0..).map_while(place).collect::<Vec<_>>().len()
        };
        let of_one = may_wait(2);
        let many = (0..WAITING.strangers as u64).map(|id| room.verification.left(RequestId(id)));
        let left: Vec<_> = many.collect();
        assert_eq!(may_wait(2), 0, "before anything is read");
        drop(left);
        let (asking, asked) = mpsc::unbounded_channel();
        asking.send(room.verification.left(request.id)).unwrap();
        let counted = async {
            listener.accept().await.unwrap();
            assert_eq!((may_wait(1), may_wait(2)), (of_one - 1, of_one));
        };
        tokio::select! {
            () = room.verification.verify_all(asked, &room.denials) => unreachable!("its callback hangs"),
            () = counted => {}
        }
    }

    #[tokio::test]
    async fn b33_what_an_earlier_life_left_and_cannot_be_read_holds_up_no_other_turn() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(EveryTopic));
        let callback = subscriber().await;
        let (left, new) =
            (room.ask_from(Some([192, 0, 2, 2].into()), &callback).await, room.ask(&callback).await);
        let mut reading = Vec::new();
        while let Some(place) = room.verification.reading.place(SOMEBODY.asker(), "").now_or_never() {
            reading.push(place);
        }
        let (asking, asked) = mpsc::unbounded_channel();
        asking.send(room.verification.left(left.id)).unwrap();
        asking.send(room.waiting(&new, Acquaintance { confirmed: true, ..SOMEBODY })).unwrap();
        let in_force = async {
            while !room.is_in_force(&callback).await {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = room.verification.verify_all(asked, &room.denials) => unreachable!("one waits to be read"),
            () = in_force => {}
        }
        assert_eq!(room.store.request_ids().await.unwrap(), [left.id]);
    }

    /// Refuses every topic.
    #[derive(Debug)]
    struct NoTopic;

    #[async_trait::async_trait]
    impl TopicPolicy for NoTopic {
        fn at_once(&self, _: &TopicUrl, _: Asker) -> Option<Verdict> {
            Some(Verdict::Refused("not here".to_owned()))
        }

        fn places(&self) -> Option<&Places> {
            None
        }

        async fn whereabouts(&self, _: &TopicUrl) -> String {
            String::new()
        }

        async fn look(&self, _: &TopicUrl, _: Option<&mut Place>) -> Verdict {
            Verdict::Unknown
        }
    }

    #[tokio::test]
    async fn b33_who_is_denied_is_told_by_the_share_of_the_client_that_asked() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(NoTopic));
        let mut hanging = Vec::new();
        for host in 0..OF_ONE_CLIENT.strangers {
            let listener = TcpListener::bind(format!("127.0.7.{}:0", host + 1)).await.unwrap();
            let callback = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
            room.judge(room.ask(&callback).await, 1).await;
            hanging.push(listener);
        }
        let Room { verification, to_tell, .. } = room;
        let (_running, stop) = watch::channel(false);
        let telling = tokio::spawn(verification.telling().run(to_tell, stop));
        let mut told = Vec::new();
        for listener in &hanging {
            told.push(listener.accept().await.unwrap());
        }
        let elsewhere = "http://127.0.8.1";
        let may_ask = |last: u8| {
            let asker = Asker { client: Some(IpAddr::from([192, 0, 2, last])), lane: Lane::Stranger };
            verification.queues.place(asker, elsewhere).now_or_never().is_some()
        };
        assert!(!may_ask(1) && may_ask(2));
        telling.abort();
    }

    #[tokio::test]
    async fn b33_a_denial_of_a_request_that_an_earlier_life_left_untold_counts_with_what_waits() {
        let folder = tempfile::tempdir().unwrap();
        let room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(NoTopic));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let callback = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        room.judge(room.ask(&callback).await, 1).await;
        let Room { verification, store, to_tell, .. } = room;
        drop(to_tell);
        let (deny, to_tell) = mpsc::unbounded_channel();
        for pair in store.denied().await.unwrap() {
            deny.send(ToTell::Left(pair)).unwrap();
        }
        let (_running, stop) = watch::channel(false);
        let telling = tokio::spawn(verification.telling().run(to_tell, stop));
        listener.accept().await.unwrap();
        let place = |_| verification.waiting.try_place(SOMEBODY.asker(), "127.0.0.1");
        let may_wait = (0..).map_while(place).collect::<Vec<_>>().len();
        assert_eq!(may_wait, WAITING_AT_ONE_HOST.strangers - 1);
        telling.abort();
    }

    #[tokio::test]
    async fn b33_what_was_not_asked_and_who_is_not_there_is_neither_slow_nor_quick() {
        let queues = queues::queues(true);
        let asker = Asker { client: Some(IpAddr::from([192, 0, 2, 1])), lane: Lane::Known };
        let (minute, callback) = (Duration::from_secs(60), "http://a.example");
        let nothing =
            || [EgressError::Crowded(minute), EgressError::Exhausted, EgressError::Network("refused".into())];
        let place = queues.place(asker, callback).await;
        for error in nothing() {
            note(&Err(error), &place);
        }
        assert!(!place.is_slow());
        note(&Err(EgressError::Timeout(minute)), &place);
        for error in nothing() {
            note(&Err(error), &place);
        }
        let nobody = Asker { client: None, ..asker };
        assert!(queues.place(nobody, callback).await.is_slow());
        let elsewhere = "http://b.example";
        assert!(queues.place(asker, elsewhere).await.is_slow(), "names cost nothing");
        assert!(!queues.place(nobody, elsewhere).await.is_slow());
    }

    /// Refuses every topic, after another request for the same pair has come in.
    #[derive(Debug)]
    struct Refusing(Arc<dyn Store>, CallbackUrl);

    #[async_trait::async_trait]
    impl TopicPolicy for Refusing {
        fn at_once(&self, _: &TopicUrl, _: Asker) -> Option<Verdict> {
            None
        }

        fn places(&self) -> Option<&Places> {
            None
        }

        async fn whereabouts(&self, _: &TopicUrl) -> String {
            String::new()
        }

        async fn look(&self, topic: &TopicUrl, _: Option<&mut Place>) -> Verdict {
            let (topic, callback, received_at) = (topic.clone(), self.1.clone(), DateTime::now());
            let newer =
                NewRequest { client: None, topic, callback, intent: Intent::Unsubscribe, received_at };
            self.0.put_request(newer).await.unwrap();
            Verdict::Refused("not here".to_owned())
        }
    }

    #[tokio::test]
    async fn w061_d17_a_renewal_that_is_refused_takes_no_newer_request_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(EveryTopic));
        let callback = subscriber().await;
        room.judge(room.ask(&callback).await, 1).await;
        assert!(room.is_in_force(&callback).await);
        room.verification.policy = Arc::new(Refusing(Arc::clone(&room.store), callback.clone()));
        room.judge(room.ask(&callback).await, 1).await;
        assert_eq!(room.store.requests().await.unwrap().len(), 1, "the newer one waits");
        assert!(room.is_in_force(&callback).await, "and decides");
    }

    #[tokio::test]
    async fn w062_where_a_subscription_is_in_force_the_topic_is_looked_at_for_its_subscriber_only() {
        let folder = tempfile::tempdir().unwrap();
        let mut room = Room::new(folder.path(), Crowds::of_strangers(false), Arc::new(EveryTopic));
        let callback = subscriber().await;
        room.judge(room.ask(&callback).await, 1).await;
        let refuses = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let elsewhere: CallbackUrl = format!("http://{}/", refuses.local_addr().unwrap()).parse().unwrap();
        drop(refuses);
        room.verification.policy = Arc::new(Refusing(Arc::clone(&room.store), callback.clone()));
        let request = room.ask(&elsewhere).await;
        room.judge_as(request, Acquaintance { client: None, in_force: true, confirmed: false }).await;
        let waits = room.store.requests().await.unwrap();
        assert!(
            waits.iter().all(|request| request.intent != Intent::Unsubscribe),
            "nobody was asked: {waits:?}"
        );
    }
}
