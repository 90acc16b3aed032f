//! Verification with real callbacks and a real store.

use std::net::IpAddr;

use futures_util::FutureExt;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, TopicUrl};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::callback::note_slowness;
use super::*;
use crate::concurrency::{Client, ClientClass};
use crate::config::{self, LeaseConfig, LimitsConfig};
use crate::delivery::Operator;
use crate::egress::{EgressClient, EgressError, Guard, NetworkLimit};
use crate::store::{self, DenialScope, Engine, Intent, Keyring, NewDenial, NewRequest, WaitingDenial};
use crate::subscriptions::PendingDenial;
use crate::subscriptions::limits::{OF_ONE_CLIENT, WAITING, WAITING_AT_ONE_HOST};
use crate::topics::{EveryTopic, Verdict};

/// Agrees to everything.
async fn subscriber() -> CallbackUrl {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            agree(stream).await;
        }
    });
    url.parse().unwrap()
}

async fn agree(mut stream: TcpStream) {
    let mut asked = vec![0; 4_096];
    let read = stream.read(&mut asked).await.unwrap();
    let asked = String::from_utf8_lossy(&asked[..read]).into_owned();
    let challenge = asked.split("hub.challenge=").nth(1).unwrap().split(['&', ' ']).next().unwrap();
    let length = challenge.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{challenge}");
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Takes what it is told.
async fn hear(mut stream: TcpStream) {
    let mut told = vec![0; 4_096];
    assert!(stream.read(&mut told).await.unwrap() > 0);
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
}

/// Where a callback is, and its URL.
async fn callback() -> (TcpListener, CallbackUrl) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    (listener, url.parse().unwrap())
}

fn topic() -> TopicUrl {
    "http://source.example/topic".parse().unwrap()
}

/// Of a client so many subscriptions.
fn bounds(most_subscriptions_of_client: u64) -> Bounds {
    let defaults = config::load(None, [], &Vec::new()).unwrap().limits;
    Bounds::new(&LimitsConfig { most_subscriptions_of_client, ..defaults })
}

/// Verification over a store, with what it gives on.
struct Setup {
    verification: Verification,
    store: Arc<dyn Store>,
    denials: Denials,
    denied: JobQueues<PendingDenial>,
    pending: mpsc::UnboundedReceiver<PendingDenial>,
}

impl Setup {
    fn new(folder: &std::path::Path, network_limit: NetworkLimit, policy: Arc<dyn TopicPolicy>) -> Self {
        let store = store::open(Engine::default(), folder, Keyring::none(), 0).unwrap();
        Self::over(store, network_limit, policy)
    }

    fn over(store: Arc<dyn Store>, network_limit: NetworkLimit, policy: Arc<dyn TopicPolicy>) -> Self {
        let (guard, patience) = (Guard::open_to(&["127.0.0.0/8"]), Duration::from_secs(300));
        let client = EgressClient::new(guard.clone(), patience, patience, 1);
        let clients = CallbackClients { strangers: client.limiting_networks(network_limit), trusted: client };
        let hour = Duration::from_secs(3_600);
        let leases = LeasePolicy::new(&LeaseConfig { min: hour, default: hour, max: hour, spread: 0.0 });
        let breaker = VerificationBreaker::new(true);
        let bounds = bounds(u64::MAX);
        let mut verification =
            Verification::new(Arc::clone(&store), clients, leases, breaker, policy, bounds, true);
        verification.pause = Duration::from_millis(1);
        let (denied, pending) = JobQueues::for_test(store.all_shards());
        let denials = Denials::new(Arc::clone(&store), Arc::new(Operator::of_nobody()), denied.clone());
        Self { verification, store, denials, denied, pending }
    }

    async fn ask(&self, callback: &CallbackUrl) -> PendingRequest {
        self.ask_from(None, callback).await
    }

    async fn ask_from(&self, client: Option<IpAddr>, callback: &CallbackUrl) -> PendingRequest {
        let intent = Intent::Subscribe { lease: None, secret: None };
        let (topic, callback, received_at) = (topic(), callback.clone(), DateTime::now());
        let request = self
            .store
            .put_request(NewRequest { topic, callback, intent, verify_token: None, received_at, client })
            .await;
        request.unwrap()
    }

    async fn judge(&self, request: PendingRequest, client: u8) {
        let client = Some(IpAddr::from([192, 0, 2, client]));
        let in_force = self.is_in_force(&request.callback).await;
        self.judge_as(request, Requester { client, in_force, confirmed: false }).await;
    }

    fn waiting(&self, request: &PendingRequest, who: Requester) -> ToVerify {
        let permit = self.verification.waiting.force_acquire(who.client(), "");
        ToVerify { id: request.id, who: Some(who), permit }
    }

    /// Until it no longer waits.
    async fn judge_as(&self, request: PendingRequest, who: Requester) {
        let (asking, asked) = mpsc::unbounded_channel();
        asking.send(self.waiting(&request, who)).unwrap();
        drop(asking);
        self.verification.verify_all(asked, &self.denials).await;
    }

    /// The requests that wait in the store.
    async fn left(&self) -> Vec<PendingRequest> {
        self.store.requests(&self.store.all_shards()).await.unwrap()
    }

    /// The denials of which callbacks are to be informed.
    async fn denied(&self) -> Vec<Denial> {
        self.store.denials(&self.store.all_shards()).await.unwrap()
    }

    async fn is_in_force(&self, callback: &CallbackUrl) -> bool {
        self.store.find_subscription(&topic(), callback).await.unwrap().is_some()
    }
}

#[tokio::test]
async fn w097_a_request_that_got_its_202_is_verified_whatever_the_limit_of_its_network() {
    let folder = tempfile::tempdir().unwrap();
    let network_limit = NetworkLimit::with("20/s, burst 1".parse().unwrap());
    let setup = Arc::new(Setup::new(folder.path(), network_limit, Arc::new(EveryTopic)));
    let mut callbacks = Vec::new();
    let mut waiting = JoinSet::new();
    // At each moment all of them want the one connection that may be made.
    for client in 0..60 {
        let callback = subscriber().await;
        let (setup, request) = (Arc::clone(&setup), setup.ask(&callback).await);
        waiting.spawn(async move { setup.judge(request, client).await });
        callbacks.push(callback);
    }
    waiting.join_all().await;
    for callback in callbacks {
        assert!(setup.is_in_force(&callback).await);
    }
}

#[tokio::test]
async fn b33_who_asks_in_a_subscribers_name_with_a_full_share_keeps_it_waiting_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let (asking, asked) = mpsc::unbounded_channel();
    let mut hanging = Vec::new();
    let of = |last: u8| Requester {
        client: Some(IpAddr::from([192, 0, 2, last])),
        in_force: false,
        confirmed: false,
    };
    let ask = async |callback: &CallbackUrl, last: u8| {
        let request = setup.ask_from(of(last).client, callback).await;
        asking.send(setup.waiting(&request, of(last))).unwrap();
    };
    for host in 0..OF_ONE_CLIENT.strangers {
        let listener = TcpListener::bind(format!("127.0.6.{}:0", host + 1)).await.unwrap();
        ask(&format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap(), 66).await;
        hanging.push(listener);
    }
    let callback = subscriber().await;
    ask(&callback, 66).await;
    ask(&callback, 1).await;
    let verifying = setup.verification.verify_all(asked, &setup.denials);
    let in_force = async {
        for listener in &hanging {
            listener.accept().await.unwrap();
        }
        while !setup.is_in_force(&callback).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = verifying => unreachable!("eight callbacks hang"),
        () = in_force => {}
    }
    let left = setup.left().await;
    assert!(
        left.iter().any(|request| request.callback == callback),
        "that of the stranger waits in its share"
    );
    assert_eq!(left.len(), OF_ONE_CLIENT.strangers + 1);
}

/// Its hub does not know what the callback has confirmed here.
#[tokio::test]
async fn a_request_that_another_hub_has_accepted_is_its_clients_and_trusted_as_far_as_that_is_here() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let callback = subscriber().await;
    let [client, other] = [1, 2].map(|last| Some(IpAddr::from([192, 0, 2, last])));
    let first = setup.ask_from(client, &callback).await;
    let who = async |request: &PendingRequest| setup.verification.requester(request).await.unwrap();
    assert_eq!(who(&first).await, Requester { client, in_force: false, confirmed: false });
    setup.judge(first, 1).await;
    let again = setup.ask_from(client, &callback).await;
    assert_eq!(who(&again).await, Requester { client, in_force: true, confirmed: true });
    let of_other = setup.ask_from(other, &callback).await;
    assert_eq!(who(&of_other).await, Requester { client: other, in_force: true, confirmed: false });
}

#[tokio::test]
async fn d17_only_the_newest_request_of_a_pair_is_asked_about_and_nothing_is_remembered_of_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let callback = subscriber().await;
    let (old, new) = (setup.ask(&callback).await, setup.ask(&callback).await);
    setup.judge(old, 1).await;
    assert!(!setup.is_in_force(&callback).await);
    setup.judge(new, 1).await;
    assert!(setup.is_in_force(&callback).await && setup.left().await.is_empty());
}

#[tokio::test]
async fn b33_of_requests_that_came_in_together_no_more_come_into_force_than_their_client_may_have() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    setup.verification.bounds = bounds(2);
    let (mut asked, client) = (Vec::new(), Some(IpAddr::from([192, 0, 2, 1])));
    for _ in 0..3 {
        let callback = subscriber().await;
        asked.push((setup.ask_from(client, &callback).await, callback));
    }
    let callbacks: Vec<_> = asked.iter().map(|(_, callback)| callback.clone()).collect();
    for (request, _) in asked {
        setup.judge(request, 1).await;
    }
    assert!(setup.is_in_force(&callbacks[0]).await && setup.is_in_force(&callbacks[1]).await);
    assert!(!setup.is_in_force(&callbacks[2]).await);
    let [denial] = &setup.denied().await[..] else { panic!("the third is denied") };
    assert_eq!(denial.callback, callbacks[2]);
    assert!(denial.reason.contains("2 subscriptions, which is its share"), "{}", denial.reason);
    let renewal = setup.ask_from(client, &callbacks[0]).await;
    setup.judge(renewal, 1).await;
    assert!(setup.is_in_force(&callbacks[0]).await && setup.left().await.is_empty());
    assert_eq!(setup.denied().await.len(), 1, "a renewal brings nothing new");
}

#[tokio::test]
async fn what_an_earlier_life_left_undone_is_verified_in_the_share_of_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let callback = subscriber().await;
    let client = Some(IpAddr::from([192, 0, 2, 1]));
    let request = setup.ask_from(client, &callback).await;
    assert_eq!(setup.verification.requester(&request).await.unwrap().client, client);
    let (asking, asked) = mpsc::unbounded_channel();
    for (_, id) in setup.store.request_ids(&setup.store.all_shards()).await.unwrap() {
        asking.send(setup.verification.recovered(id)).unwrap();
    }
    asking.send(setup.verification.recovered(RequestId(u64::MAX))).unwrap();
    drop(asking);
    setup.verification.verify_all(asked, &setup.denials).await;
    assert!(setup.is_in_force(&callback).await);
}

#[tokio::test]
async fn b33_what_an_earlier_life_left_counts_with_what_waits_in_all_and_once_it_is_read_for_its_client() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let callback = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let request = setup.ask_from(Some(IpAddr::from([192, 0, 2, 1])), &callback).await;
    let may_wait = |last: u8| {
        let client = Client { network: Some(IpAddr::from([192, 0, 2, last])), class: ClientClass::Stranger };
        let permit = |number: u32| setup.verification.waiting.try_acquire(client, &number.to_string());
        (0..).map_while(permit).collect::<Vec<_>>().len()
    };
    let of_one = may_wait(2);
    let many = (0..WAITING.strangers as u64).map(|id| setup.verification.recovered(RequestId(id)));
    let left: Vec<_> = many.collect();
    assert_eq!(may_wait(2), 0, "before anything is read");
    drop(left);
    let (asking, asked) = mpsc::unbounded_channel();
    asking.send(setup.verification.recovered(request.id)).unwrap();
    let counted = async {
        listener.accept().await.unwrap();
        assert_eq!((may_wait(1), may_wait(2)), (of_one - 1, of_one));
    };
    tokio::select! {
        () = setup.verification.verify_all(asked, &setup.denials) => unreachable!("its callback hangs"),
        () = counted => {}
    }
}

#[tokio::test]
async fn b33_what_an_earlier_life_left_and_cannot_be_read_holds_up_no_other_turn() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let callback = subscriber().await;
    let (left, new) =
        (setup.ask_from(Some([192, 0, 2, 2].into()), &callback).await, setup.ask(&callback).await);
    let mut reading = Vec::new();
    while let Some(permit) = setup.verification.reading.acquire(UNKNOWN.client(), "").now_or_never() {
        reading.push(permit);
    }
    let (asking, asked) = mpsc::unbounded_channel();
    asking.send(setup.verification.recovered(left.id)).unwrap();
    asking.send(setup.waiting(&new, Requester { confirmed: true, ..UNKNOWN })).unwrap();
    let in_force = async {
        while !setup.is_in_force(&callback).await {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = setup.verification.verify_all(asked, &setup.denials) => unreachable!("one waits to be read"),
        () = in_force => {}
    }
    let waiting = setup.left().await;
    assert_eq!(waiting.iter().map(|request| request.id).collect::<Vec<_>>(), [left.id]);
}

/// Refuses every topic.
#[derive(Debug)]
struct NoTopic;

#[async_trait::async_trait]
impl TopicPolicy for NoTopic {
    fn known_verdict(&self, _: &TopicUrl, _: Client) -> Option<Verdict> {
        Some(Verdict::Refused("not peer".to_owned()))
    }

    fn limiter(&self) -> Option<&Limiter> {
        None
    }

    async fn peer(&self, _: &TopicUrl) -> String {
        String::new()
    }

    async fn look(&self, _: &TopicUrl, _: Client, _: Option<&mut Permit>) -> Verdict {
        Verdict::Unknown
    }
}

#[tokio::test]
async fn b33_who_is_denied_is_told_by_the_share_of_the_client_that_asked() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(NoTopic));
    let mut hanging = Vec::new();
    for host in 0..OF_ONE_CLIENT.strangers {
        let listener = TcpListener::bind(format!("127.0.7.{}:0", host + 1)).await.unwrap();
        let callback = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        setup.judge(setup.ask(&callback).await, 1).await;
        hanging.push(listener);
    }
    let Setup { verification, pending, .. } = setup;
    let telling = tokio::spawn(verification.denial_notifier().run(pending));
    let mut told = Vec::new();
    for listener in &hanging {
        told.push(listener.accept().await.unwrap());
    }
    let elsewhere = "http://127.0.8.1";
    let may_ask = |last: u8| {
        let client = Client { network: Some(IpAddr::from([192, 0, 2, last])), class: ClientClass::Stranger };
        verification.callbacks.acquire(client, elsewhere).now_or_never().is_some()
    };
    assert!(!may_ask(1) && may_ask(2));
    telling.abort();
}

#[tokio::test]
async fn b33_a_denial_of_a_request_that_an_earlier_life_left_untold_counts_with_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(NoTopic));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let callback = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    setup.judge(setup.ask(&callback).await, 1).await;
    let Setup { verification, store, pending, .. } = setup;
    drop(pending);
    let (deny, pending) = mpsc::unbounded_channel();
    for WaitingDenial { id, key, .. } in store.denied(&store.all_shards()).await.unwrap() {
        deny.send(PendingDenial::Recovered(id, key)).unwrap();
    }
    let telling = tokio::spawn(verification.denial_notifier().run(pending));
    listener.accept().await.unwrap();
    let permit = |_| verification.waiting.try_acquire(UNKNOWN.client(), "127.0.0.1");
    let may_wait = (0..).map_while(permit).collect::<Vec<_>>().len();
    assert_eq!(may_wait, WAITING_AT_ONE_HOST.strangers - 1);
    telling.abort();
}

#[tokio::test]
async fn b33_what_was_not_asked_and_who_is_not_there_is_neither_slow_nor_quick() {
    let callbacks = limits::callbacks(true);
    let client = Client { network: Some(IpAddr::from([192, 0, 2, 1])), class: ClientClass::Trusted };
    let (minute, callback) = (Duration::from_secs(60), "http://a.example");
    let nothing = || {
        [
            EgressError::RateLimited(minute),
            EgressError::NoFileDescriptors,
            EgressError::Network("refused".into()),
        ]
    };
    let permit = callbacks.acquire(client, callback).await;
    for error in nothing() {
        note_slowness(&Err(error), &permit);
    }
    assert!(!permit.is_slow());
    note_slowness(&Err(EgressError::Timeout(minute)), &permit);
    for error in nothing() {
        note_slowness(&Err(error), &permit);
    }
    let nobody = Client { network: None, ..client };
    assert!(callbacks.acquire(nobody, callback).await.is_slow());
    let elsewhere = "http://b.example";
    assert!(callbacks.acquire(client, elsewhere).await.is_slow(), "names cost nothing");
    assert!(!callbacks.acquire(nobody, elsewhere).await.is_slow());
}

/// Refuses every topic, after another request for the same pair has come in.
#[derive(Debug)]
struct Refusing(Arc<dyn Store>, CallbackUrl);

#[async_trait::async_trait]
impl TopicPolicy for Refusing {
    fn known_verdict(&self, _: &TopicUrl, _: Client) -> Option<Verdict> {
        None
    }

    fn limiter(&self) -> Option<&Limiter> {
        None
    }

    async fn peer(&self, _: &TopicUrl) -> String {
        String::new()
    }

    async fn look(&self, topic: &TopicUrl, _: Client, _: Option<&mut Permit>) -> Verdict {
        let (topic, callback, received_at) = (topic.clone(), self.1.clone(), DateTime::now());
        let intent = Intent::Unsubscribe;
        let newer = NewRequest { client: None, topic, callback, intent, verify_token: None, received_at };
        self.0.put_request(newer).await.unwrap();
        Verdict::Refused("not peer".to_owned())
    }
}

#[tokio::test]
async fn w061_d17_a_renewal_that_is_refused_takes_no_newer_request_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let callback = subscriber().await;
    setup.judge(setup.ask(&callback).await, 1).await;
    assert!(setup.is_in_force(&callback).await);
    setup.verification.policy = Arc::new(Refusing(Arc::clone(&setup.store), callback.clone()));
    setup.judge(setup.ask(&callback).await, 1).await;
    assert_eq!(setup.left().await.len(), 1, "the newer one waits");
    assert!(setup.is_in_force(&callback).await, "and decides");
}

#[tokio::test]
async fn w062_where_a_subscription_is_in_force_the_topic_is_looked_at_for_its_subscriber_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let callback = subscriber().await;
    setup.judge(setup.ask(&callback).await, 1).await;
    let refuses = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere: CallbackUrl = format!("http://{}/", refuses.local_addr().unwrap()).parse().unwrap();
    drop(refuses);
    setup.verification.policy = Arc::new(Refusing(Arc::clone(&setup.store), callback.clone()));
    let request = setup.ask(&elsewhere).await;
    setup.judge_as(request, Requester { client: None, in_force: true, confirmed: false }).await;
    let waits = setup.left().await;
    assert!(waits.iter().all(|request| request.intent != Intent::Unsubscribe), "nobody was asked: {waits:?}");
}

/// Each of these setups as the verification of a hub of its own, until what is returned with them is dropped.
fn hubs<const N: usize>(setups: [&Setup; N]) -> ([Arc<dyn WaitingWork>; N], watch::Sender<bool>) {
    let (running, stop) = watch::channel(false);
    let hubs = setups.map(|setup| {
        let (queues, work) = JobQueues::new_pair();
        tokio::spawn(work.run(stop.clone()));
        setup.verification.clone().in_shards(setup.denials.clone(), queues)
    });
    (hubs, running)
}

#[tokio::test]
async fn a_request_that_waits_is_verified_by_who_takes_its_shard_over_and_no_longer_by_who_lets_it_go() {
    let folder = tempfile::tempdir().unwrap();
    let first = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let store = Arc::clone(&first.store);
    let second = Setup::over(store, NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let (listener, callback) = callback().await;
    let shard = Shard::of(&callback, first.store.shards());
    first.ask(&callback).await;
    let (hubs, _running) = hubs([&first, &second]);
    let mut asked = Vec::new();
    for hub in [&hubs[0], &hubs[1], &hubs[0]] {
        hub.take(&[shard]).await.unwrap();
        asked.push(listener.accept().await.unwrap().0);
        hub.let_go(shard);
    }
    hubs[1].take(&[shard]).await.unwrap();
    agree(listener.accept().await.unwrap().0).await;
    while !first.is_in_force(&callback).await {
        tokio::task::yield_now().await;
    }
    assert!(first.left().await.is_empty());
    assert!(listener.accept().now_or_never().is_none(), "nobody else asked");
}

#[tokio::test]
async fn a_request_that_comes_in_while_its_shard_is_taken_over_is_asked_about_once() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let (listener, callback) = callback().await;
    let request = setup.ask(&callback).await;
    let (asking, asked) = mpsc::unbounded_channel();
    asking.send(setup.verification.recovered(request.id)).unwrap();
    asking.send(setup.waiting(&request, UNKNOWN)).unwrap();
    drop(asking);
    let agrees = async { agree(listener.accept().await.unwrap().0).await };
    tokio::join!(setup.verification.verify_all(asked, &setup.denials), agrees);
    assert!(setup.is_in_force(&callback).await);
    assert!(listener.accept().now_or_never().is_none());
}

#[tokio::test]
async fn a_denial_that_waits_is_told_by_who_takes_its_shard_over() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let (listener, callback) = callback().await;
    setup.ask(&callback).await;
    setup.store.deny(denial(&callback)).await.unwrap().unwrap();
    let (queues, work) = JobQueues::new_pair();
    let (_running, stop) = watch::channel(false);
    tokio::spawn(work.run(stop));
    let notifying = setup.verification.denial_notifier().in_shards(queues);
    let shard = Shard::of(&callback, setup.store.shards());
    notifying.take(&[shard]).await.unwrap();
    let cut = listener.accept().await.unwrap();
    notifying.let_go(shard);
    notifying.take(&[shard]).await.unwrap();
    hear(listener.accept().await.unwrap().0).await;
    while !setup.denied().await.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(cut);
}

#[tokio::test]
async fn a_denial_that_comes_in_while_its_shard_is_taken_over_is_told_once() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path(), NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let (listener, callback) = callback().await;
    setup.ask(&callback).await;
    assert!(setup.denials.deny(denial(&callback)).await.unwrap());
    let Setup { verification, store, denials, denied, pending } = setup;
    for WaitingDenial { shard, id, key } in store.denied(&store.all_shards()).await.unwrap() {
        denied.send(shard, PendingDenial::Recovered(id, key));
    }
    drop((denials, denied));
    let hears = async { hear(listener.accept().await.unwrap().0).await };
    tokio::join!(verification.denial_notifier().run(pending), hears);
    assert!(store.denials(&store.all_shards()).await.unwrap().is_empty());
    assert!(listener.accept().now_or_never().is_none());
}

/// A hub with one subscription in force, and its callback.
async fn subscribed(folder: &std::path::Path) -> (Setup, CallbackUrl) {
    let setup = Setup::new(folder, NetworkLimit::for_strangers(false), Arc::new(EveryTopic));
    let callback = subscriber().await;
    setup.judge(setup.ask(&callback).await, 1).await;
    (setup, callback)
}

/// The next start of the hub, before which the only subscription in its store was damaged.
fn restarted_with_damage(setup: Setup, folder: &std::path::Path) -> Setup {
    drop(setup);
    store::damage_subscription(folder);
    Setup::new(folder, NetworkLimit::for_strangers(false), Arc::new(EveryTopic))
}

#[tokio::test]
async fn a_renewal_of_a_subscription_that_cannot_be_read_waits_for_the_next_start_and_is_not_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let (setup, callback) = subscribed(folder.path()).await;
    let renewal = setup.ask(&callback).await;
    let setup = restarted_with_damage(setup, folder.path());
    setup.judge_as(renewal.clone(), Requester { in_force: true, ..UNKNOWN }).await;
    assert_eq!(setup.left().await, [renewal]);
}

#[tokio::test]
async fn a_denial_waits_for_the_next_start_where_what_was_subscribed_since_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (setup, callback) = subscribed(folder.path()).await;
    setup.store.deny(denial(&callback)).await.unwrap().unwrap();
    setup.judge(setup.ask(&callback).await, 1).await;
    let setup = restarted_with_damage(setup, folder.path());
    let (deny, pending) = mpsc::unbounded_channel();
    for WaitingDenial { id, key, .. } in setup.store.denied(&setup.store.all_shards()).await.unwrap() {
        deny.send(PendingDenial::Recovered(id, key)).unwrap();
    }
    drop(deny);
    setup.verification.denial_notifier().run(pending).await;
    assert_eq!(setup.denied().await.len(), 1);
}

/// Of whatever there is of this callback.
fn denial(callback: &CallbackUrl) -> NewDenial {
    let (topic, callback) = (topic(), callback.clone());
    NewDenial { topic, callback, reason: "moved".to_owned(), scope: DenialScope::Everything }
}
