//! Hosts of subscribers: they agree to everything, fail now and then, and tell the judge what arrives.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use resync_harness::lock;
use resync_judge::is_signature;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::judge::{Arrival, Id, Judge, meaning};

/// Each with an address of its own, so that its subscriptions are in a shard of their own.
pub(crate) const HOSTS: usize = 20;
/// One of so many hosts fails at the first attempt of one of so many notifications.
const WEAK: usize = 4;
const HARD: u64 = 20;
/// So often in a row at most a host fails at one notification: after the fourth time a hub would try the next one first, and this one would come
/// late if the host is up again just then.
const FAILURES: u8 = 2;

/// The secret that every second subscription has, by its path.
pub(crate) fn secret(path: &str) -> Option<String> {
    let hash = meaning(path.as_bytes());
    hash[0].is_multiple_of(2).then(|| hex::encode(&hash[1..]))
}

/// The hosts. They stop when dropped.
#[derive(Debug)]
pub(crate) struct Hosts {
    addresses: Vec<SocketAddr>,
    all: Vec<Arc<Host>>,
    _serving: JoinSet<()>,
}

impl Hosts {
    pub(crate) async fn start(judge: &Arc<Mutex<Judge>>) -> Self {
        let (mut addresses, mut all, mut serving) = (Vec::new(), Vec::new(), JoinSet::new());
        for number in 0..HOSTS {
            let host = Arc::new(Host { number, is_weak: number % WEAK == 3, ..Host::default() });
            let last = u8::try_from(number + 1).expect("there are few");
            let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 2, last), 0)).await.unwrap();
            addresses.push(listener.local_addr().unwrap());
            serving.spawn(serve(listener, Arc::clone(&host), Arc::clone(judge)));
            all.push(host);
        }
        Self { addresses, all, _serving: serving }
    }

    /// A callback at this host.
    pub(crate) fn callback(&self, host: usize, path: &str) -> String {
        format!("http://{}{path}", self.addresses[host])
    }

    /// From now on this host fails at everything that is delivered to it, or no longer.
    pub(crate) fn set_down(&self, host: usize, is_down: bool) {
        self.all[host].is_down.store(is_down, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct Host {
    number: usize,
    is_down: AtomicBool,
    is_weak: bool,
    /// At which notifications of which callbacks it has failed how often.
    failures: Mutex<HashMap<(String, Id), u8>>,
}

impl Host {
    fn fails(&self, path: &str, id: Id, is_first: bool) -> bool {
        let is_hard = self.is_weak && id.offset % HARD == 3 && is_first;
        if !self.is_down.load(Ordering::SeqCst) && !is_hard {
            return false;
        }
        let mut failures = lock(&self.failures);
        let times = failures.entry((path.to_owned(), id)).or_default();
        *times = times.saturating_add(1);
        *times <= FAILURES
    }
}

async fn serve(listener: TcpListener, host: Arc<Host>, judge: Arc<Mutex<Judge>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (host, judge) = (Arc::clone(&host), Arc::clone(&judge));
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&host), Arc::clone(&judge)));
            // Hubs that are killed in the middle of a request are part of the trial.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    request: Request<Incoming>,
    host: Arc<Host>,
    judge: Arc<Mutex<Judge>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Ok(plain(400, "the body broke off")) };
    if head.method != Method::POST {
        return Ok(plain(200, &challenge(head.uri.query().unwrap_or_default())));
    }
    let body = body.to_bytes();
    let header =
        |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let path = head.uri.path();
    let id = Id::parse(header("webhook-id"));
    let signature = header("x-hub-signature");
    let is_signed =
        secret(path).map_or(signature.is_empty(), |secret| is_signature(signature, &secret, &body));
    let fails = id.is_some_and(|id| host.fails(path, id, header("webhook-attempt") == "1"));
    let arrival = Arrival {
        host: host.number,
        path,
        id,
        meaning: meaning(&body),
        head: meaning(format!("{}\n{}", header("content-type"), header("link")).as_bytes()),
        body: &body,
        at: Instant::now(),
        is_signed,
        is_accepted: !fails,
    };
    lock(&judge).arrived(&arrival);
    Ok(if fails { plain(503, "") } else { plain(204, "") })
}

/// What a verification has to be answered with; nothing where somebody was denied.
fn challenge(query: &str) -> String {
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    pairs.find(|(name, _)| name == "hub.challenge").map_or_else(String::new, |(_, value)| value.into_owned())
}

fn plain(status: u16, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    *response.status_mut() = status.try_into().expect("it is a status");
    response
}
