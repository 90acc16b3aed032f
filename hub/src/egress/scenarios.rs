//! What is sent over real connections under a name that has not confirmed, by what is answered there.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use resync_core::datetime::DateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{
    Answer, ConfirmedAddresses, EgressClient, EgressError, Guard, ReadLimit, Reverification, Route, Target,
};
use crate::store::WallClock;

const TAKEN: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// What is done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Answers(&'static str),
    Breaks,
    Hangs,
}

/// A name that leads to somebody who has not confirmed anything.
struct Scene {
    client: EgressClient,
    url: String,
    /// A connection came in.
    connected: mpsc::UnboundedReceiver<()>,
    /// How many requests came in.
    asked: watch::Sender<usize>,
}

impl Scene {
    /// 40 requests may be sent there.
    async fn start(peer: Peer, patience: Duration) -> Self {
        let guard = Guard::open_to(&["127.0.0.0/8", "::1/128"]);
        let confirmed = ConfirmedAddresses::new(true, "1/h, burst 40".parse().unwrap(), WallClock::default());
        let client = EgressClient::new(guard.clone(), patience, patience, 1).limiting_unconfirmed(confirmed);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let (connecting, connected) = mpsc::unbounded_channel();
        let asked = watch::Sender::new(0);
        let asking = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                connecting.send(()).unwrap();
                let asking = asking.clone();
                tokio::spawn(async move {
                    while stream.read(&mut [0; 1_024]).await.is_ok_and(|read| read > 0) {
                        asking.send_modify(|asked| *asked += 1);
                        match peer {
                            Peer::Answers(answer) => drop(stream.write_all(answer.as_bytes()).await),
                            Peer::Breaks => return,
                            Peer::Hangs => {}
                        }
                    }
                });
            }
        });
        Self { client, url, connected, asked }
    }

    async fn send(&self, route: Route) -> Result<Answer, EgressError> {
        let request = self.request();
        let target = Target::of(request.uri()).unwrap();
        self.client.send_to(&target, request, ReadLimit::Discard(0), route, &mut None).await
    }

    fn request(&self) -> Request<Full<Bytes>> {
        Request::get(&self.url).body(Full::default()).unwrap()
    }

    /// Sends so many requests; how many connections came in, and how it ended.
    async fn send_many(&mut self, requests: usize) -> (usize, EgressError) {
        let mut last = None;
        for _ in 0..requests {
            last = self.send(Route::Any).await.err();
        }
        let connections = std::iter::from_fn(|| self.connected.try_recv().ok()).count();
        (connections, last.unwrap())
    }

    /// The question for the address where the peer is; the name may have another one, where nobody listens.
    async fn reverification(&self) -> Reverification {
        loop {
            let Err(EgressError::ReverifyFirst(reverification)) = self.send(Route::Reverify(1)).await else {
                panic!("asked")
            };
            if reverification.address().is_ipv4() {
                return reverification;
            }
            reverification.unreachable();
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn b33_who_breaks_the_connection_of_what_it_never_asked_for_gets_less_like_who_refuses() {
    let mut scene = Scene::start(Peer::Breaks, SECOND).await;
    let (connections, last) = scene.send_many(30).await;
    assert_eq!(connections, 10);
    assert!(matches!(last, EgressError::Unconfirmed(_)), "{last:?}");
}

#[tokio::test]
async fn b33_who_says_nothing_to_what_it_never_asked_for_gets_less_too() {
    let mut scene = Scene::start(Peer::Hangs, Duration::from_millis(50)).await;
    let (connections, last) = scene.send_many(30).await;
    assert_eq!(connections, 10);
    assert!(matches!(last, EgressError::Unconfirmed(_)), "{last:?}");
}

#[tokio::test]
async fn what_the_hub_cuts_off_itself_is_no_refusal() {
    let mut scene = Scene::start(Peer::Hangs, 60 * SECOND).await;
    let mut asked = scene.asked.subscribe();
    for number in 1..=40 {
        tokio::select! {
            answer = scene.send(Route::Any) => panic!("{answer:?}"),
            came = asked.wait_for(|asked| *asked == number) => drop(came.unwrap()),
        }
    }
    // What is left are those that are refused at the name's other address.
    let (_, last) = timeout(SECOND, scene.send_many(20)).await.unwrap();
    assert!(matches!(last, EgressError::Unconfirmed(_)), "{last:?}");
}

#[tokio::test]
async fn a_connection_that_stands_stays_while_nothing_may_be_sent_over_it() {
    let mut scene = Scene::start(Peer::Answers(TAKEN), SECOND).await;
    let (connections, last) = scene.send_many(45).await;
    assert_eq!(connections, 1);
    assert!(matches!(last, EgressError::Unconfirmed(_)), "{last:?}");
}

#[tokio::test]
async fn who_confirms_while_it_is_connected_is_held_up_no_longer() {
    let mut scene = Scene::start(Peer::Answers(TAKEN), SECOND).await;
    let mut reverification = scene.reverification().await;
    scene.send_many(45).await;
    assert_eq!(
        scene
            .client
            .send_reverification(&mut reverification, scene.request(), ReadLimit::Keep(0))
            .await
            .unwrap()
            .status,
        204
    );
    reverification.confirmed(DateTime::from_system_time(std::time::SystemTime::now() + 60 * SECOND));
    for _ in 0..100 {
        scene.send(Route::Reverify(1)).await.unwrap();
    }
    let connections = std::iter::from_fn(|| scene.connected.try_recv().ok()).count();
    assert_eq!(connections, 1, "only the question had one of its own");
}
