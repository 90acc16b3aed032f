//! A subscriber for the tests of delivery, and workers and settings for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use resync_core::websub::{CallbackUrl, SignatureMethod};
use resync_harness::PATIENCE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::config::{Prefixes, SignatureConfig};
use crate::delivery::{BreakerPolicy, Delivery, RetryPolicy, Settings};
use crate::egress::{ConfirmedAddresses, Guard};
use crate::live_hubs::LiveHubs;
use crate::store::{Store, WallClock};
use crate::telemetry::Tracer;

/// Takes whatever it is sent, and echoes the challenge to who asks, while it agrees.
pub(crate) struct Subscriber {
    pub(crate) url: String,
    behaviour: Arc<Behaviour>,
    log: mpsc::UnboundedReceiver<String>,
}

struct Behaviour {
    agrees: AtomicBool,
    /// So many more deliveries are answered.
    answers: Semaphore,
    /// So many were cut before they were answered.
    cuts: Semaphore,
}

impl Subscriber {
    pub(crate) async fn start() -> Self {
        Self::that_answers(Semaphore::MAX_PERMITS).await
    }

    /// One that answers so many deliveries, and lets the others hang.
    pub(crate) async fn that_answers(deliveries: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://localhost:{}/", listener.local_addr().unwrap().port());
        let (answers, cuts) = (Semaphore::new(deliveries), Semaphore::new(0));
        let behaviour = Arc::new(Behaviour { agrees: AtomicBool::new(true), answers, cuts });
        let (seen, log) = mpsc::unbounded_channel();
        let its = Arc::clone(&behaviour);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&its), seen.clone()));
            }
        });
        Self { url, behaviour, log }
    }

    pub(crate) fn callback(&self, path: &str) -> CallbackUrl {
        format!("{}{path}", self.url).parse().unwrap()
    }

    /// Whether it echoes challenges from now on.
    pub(crate) fn agrees(&self, agrees: bool) {
        self.behaviour.agrees.store(agrees, Ordering::Relaxed);
    }

    /// Answers so many more deliveries.
    pub(crate) fn answer(&self, deliveries: usize) {
        self.behaviour.answers.add_permits(deliveries);
    }

    /// Returns when the sender has hung up on a delivery that was not answered yet.
    pub(crate) async fn cut(&self) {
        timeout(PATIENCE, self.behaviour.cuts.acquire()).await.expect("it is cut").unwrap().forget();
    }

    /// The first line of the next request, and behind it the identity of the notification.
    pub(crate) async fn next(&mut self) -> String {
        timeout(PATIENCE, self.log.recv()).await.expect("it comes").unwrap()
    }

    /// The offset of the next notification.
    pub(crate) async fn notified(&mut self) -> u64 {
        loop {
            if let Some((_, offset)) =
                self.next().await.split_once(" id=").and_then(|(_, id)| id.split_once('.'))
            {
                return offset.parse().unwrap();
            }
        }
    }

    /// The next request as [`next`](Self::next) returns it, if it has come already.
    pub(crate) fn seen(&mut self) -> Option<String> {
        self.log.try_recv().ok()
    }
}

async fn serve(mut stream: TcpStream, its: Arc<Behaviour>, seen: mpsc::UnboundedSender<String>) {
    let mut buffer = vec![0; 8_192];
    while let Ok(read) = stream.read(&mut buffer).await
        && read > 0
    {
        let request = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let asked = request.split_once("hub.challenge=").filter(|_| its.agrees.load(Ordering::Relaxed));
        let challenge = asked.map_or("", |(_, rest)| &rest[..64]);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{challenge}", challenge.len());
        let line = request.lines().next().unwrap_or_default();
        let id = request.lines().find_map(|line| line.strip_prefix("webhook-id: "));
        // Before the answer, which leads to the next request. The test may be over.
        let _ = seen.send(id.map_or_else(|| line.to_owned(), |id| format!("{line} id={id}")));
        if request.starts_with("POST") {
            tokio::select! {
                // First, since who has got all answers hangs up, too.
                biased;
                answers = its.answers.acquire() => answers.unwrap().forget(),
                () = hung_up(&mut stream) => return its.cuts.add_permits(1),
            }
        }
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// Returns at the end of the connection: before the answer comes at most the rest of the request.
async fn hung_up(stream: &mut TcpStream) {
    let mut rest = [0; 1_024];
    while stream.read(&mut rest).await.is_ok_and(|read| read > 0) {}
}

/// Returns once this holds.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let waits = async {
        while !holds() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, waits).await.expect("it holds at some time");
}

/// Deliveries over this store to callbacks on this machine, without a shard.
pub(crate) async fn workers(store: &Arc<dyn Store>) -> Delivery {
    workers_with(store, settings()).await
}

pub(crate) async fn workers_with(store: &Arc<dyn Store>, settings: Settings) -> Delivery {
    let guard = Guard::open_to(&["127.0.0.0/8", "::1/128"]);
    Delivery::start(Arc::clone(store), guard, settings).await.unwrap()
}

pub(crate) fn settings() -> Settings {
    let minute = Duration::from_secs(60);
    Settings {
        retry: RetryPolicy { trouble: vec![minute], refused: vec![minute], gone_confirm_after: minute },
        breaker: BreakerPolicy { failures: 5, open: minute, open_max: minute },
        connect_timeout: minute,
        // A test that waits for an answer or for a cut has failed before.
        timeout: 2 * PATIENCE,
        max_in_flight: 16,
        per_host: 1,
        max_connections: 16,
        confirmed: ConfirmedAddresses::new(true, "1/h, burst 3".parse().unwrap(), WallClock::default()),
        signature: Arc::new(SignatureConfig::always(SignatureMethod::Sha256)),
        entry_diff: Prefixes::default(),
        hubs: LiveHubs::default(),
        tracer: Tracer::default(),
    }
}
