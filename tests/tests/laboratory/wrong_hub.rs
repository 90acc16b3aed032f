//! A small WebSub hub that does what hubs must not do.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use resync_core::websub::{Secret, SignatureMethod, SigningKey};
use resync_harness::request;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use url::Url;

/// From taking a notification to storing it, where that comes after the answer.
const STORES_EVERY: Duration = Duration::from_millis(100);
/// A hub that died is up again after this.
const DOWN: Duration = Duration::from_millis(200);
/// How long a delivery is held back for the next one.
const HELD: Duration = Duration::from_millis(500);

/// What it does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vice {
    /// Nothing.
    None,
    /// One delivery of so many is never made.
    DropsOneIn(u64),
    /// One of so many is made twice.
    DuplicatesOneIn(u64),
    /// One of so many is made after the next one.
    ReordersOneIn(u64),
    /// One of so many lacks its last byte.
    ShortensOneIn(u64),
    /// One of so many has its last byte changed, and is signed as it is then.
    AltersOneIn(u64),
    /// It signs another body than it sends.
    SignsWrongly,
    /// One delivery of so many is signed with the secret of somebody else.
    SignsOneInWrongly(u64),
    /// It signs nothing.
    NeverSigns,
    /// One of so many names another topic.
    LinksOneInWrongly(u64),
    /// One of so many has another content type.
    TypesOneInWrongly(u64),
    /// One of so many goes to another host, with the path of the callback.
    MisdirectsOneIn(u64),
    /// Each delivery waits so long, and the next one for it.
    IsSlow(Duration),
    /// It answers before it stores, and dies after so many notifications.
    ForgetsWhenItDiesAfter(u64),
}

type Subscriptions = Arc<Mutex<Vec<Subscription>>>;

struct Subscription {
    topic: String,
    callback: String,
    bodies: UnboundedSender<Bytes>,
}

/// The running hub; it stops when dropped.
pub(crate) struct WrongHub {
    address: SocketAddr,
    subscriptions: Subscriptions,
    _running: JoinSet<()>,
}

struct State {
    vice: Vice,
    subscriptions: Subscriptions,
    /// Answered and not stored.
    unstored: Mutex<Vec<(String, Bytes)>>,
    taken: AtomicU64,
    deliveries: AtomicU64,
    dies: tokio::sync::Notify,
}

impl WrongHub {
    pub(crate) async fn start(vice: Vice) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            vice,
            subscriptions: Arc::default(),
            unstored: Mutex::default(),
            taken: AtomicU64::new(0),
            deliveries: AtomicU64::new(0),
            dies: tokio::sync::Notify::new(),
        });
        let mut running = JoinSet::new();
        let subscriptions = Arc::clone(&state.subscriptions);
        running.spawn(lives(listener, address, Arc::clone(&state)));
        running.spawn(stores(state));
        Self { address, subscriptions, _running: running }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hub", self.address)
    }

    pub(crate) fn subscribed(&self) -> usize {
        self.subscriptions.lock().unwrap().len()
    }
}

/// One life after the other; what was not stored does not survive.
async fn lives(mut listener: TcpListener, address: SocketAddr, state: Arc<State>) {
    loop {
        {
            let mut connections = JoinSet::new();
            let serving = async {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let state = Arc::clone(&state);
                    connections.spawn(async move {
                        let service = service_fn(move |request| answer(Arc::clone(&state), request));
                        drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                    });
                }
            };
            tokio::select! {
                () = serving => {}
                () = state.dies.notified() => {}
            }
        }
        state.unstored.lock().unwrap().clear();
        drop(listener);
        sleep(DOWN).await;
        listener = TcpListener::bind(address).await.unwrap();
    }
}

async fn stores(state: Arc<State>) {
    let mut ticks = interval(STORES_EVERY);
    loop {
        ticks.tick().await;
        let stored = std::mem::take(&mut *state.unstored.lock().unwrap());
        for (topic, body) in stored {
            distribute(&state, &topic, &body);
        }
    }
}

fn distribute(state: &State, topic: &str, body: &Bytes) {
    for subscription in state.subscriptions.lock().unwrap().iter().filter(|one| one.topic == topic) {
        let _ = subscription.bodies.send(body.clone());
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let is_form =
        head.headers.get("content-type").is_some_and(|kind| kind == "application/x-www-form-urlencoded");
    if is_form {
        subscribe(&state, &body);
    } else {
        let link = head.headers["link"].to_str().unwrap();
        let topic = link.trim_start_matches('<').split('>').next().unwrap().to_owned();
        publish(&state, topic, body);
    }
    Ok(Response::builder().status(202).body(Empty::new()).unwrap())
}

fn publish(state: &State, topic: String, body: Bytes) {
    let taken = state.taken.fetch_add(1, Ordering::SeqCst) + 1;
    let Vice::ForgetsWhenItDiesAfter(count) = state.vice else {
        return distribute(state, &topic, &body);
    };
    state.unstored.lock().unwrap().push((topic, body));
    if taken == count {
        state.dies.notify_one();
    }
}

fn subscribe(state: &Arc<State>, form: &[u8]) {
    let of = |name: &str| {
        let mut pairs = url::form_urlencoded::parse(form);
        pairs.find(|(found, _)| found == name).map(|(_, value)| value.into_owned()).unwrap()
    };
    let (mode, topic, callback, state) =
        (of("hub.mode"), of("hub.topic"), of("hub.callback"), Arc::clone(state));
    let key = |secret: String| SigningKey::new(SignatureMethod::Sha256, &Secret::new(secret).unwrap());
    let keys = [key(of("hub.secret")), key("of somebody else".to_owned())];
    tokio::spawn(async move {
        let mut url = Url::parse(&callback).unwrap();
        url.query_pairs_mut()
            .append_pair("hub.mode", &mode)
            .append_pair("hub.topic", &topic)
            .append_pair("hub.challenge", "a challenge");
        let answer = send(&url, "GET", "", b"").await.unwrap();
        assert_eq!(answer.body, b"a challenge");
        if mode == "unsubscribe" {
            let is_over = |one: &Subscription| one.topic == topic && one.callback == callback;
            state.subscriptions.lock().unwrap().retain(|one| !is_over(one));
            return;
        }
        let (bodies, receiver) = unbounded_channel();
        let links = format!("<http://wrong.example/>; rel=\"hub\", <{topic}>; rel=\"self\"");
        state.subscriptions.lock().unwrap().push(Subscription { topic, callback, bodies });
        url.set_query(None);
        serve(&state, &Subscriber { callback: url, links, keys, vice: state.vice }, receiver).await;
    });
}

/// Makes the deliveries of one subscription, one at a time.
async fn serve(state: &State, to: &Subscriber, mut bodies: UnboundedReceiver<Bytes>) {
    let mut held: Option<Bytes> = None;
    loop {
        let next = match &held {
            Some(_) => timeout(HELD, bodies.recv()).await,
            None => Ok(bodies.recv().await),
        };
        let Ok(next) = next else {
            to.deliver(&held.take().unwrap()).await;
            continue;
        };
        let Some(body) = next else { return };
        let number = state.deliveries.fetch_add(1, Ordering::SeqCst) + 1;
        match state.vice {
            Vice::DropsOneIn(count) if number.is_multiple_of(count) => continue,
            Vice::ReordersOneIn(count) if number.is_multiple_of(count) && held.is_none() => {
                held = Some(body);
                continue;
            }
            Vice::DuplicatesOneIn(count) if number.is_multiple_of(count) => to.deliver(&body).await,
            Vice::ShortensOneIn(count) if number.is_multiple_of(count) => {
                to.deliver(&body[..body.len() - 1]).await;
                continue;
            }
            Vice::SignsOneInWrongly(count)
            | Vice::LinksOneInWrongly(count)
            | Vice::TypesOneInWrongly(count)
            | Vice::MisdirectsOneIn(count)
                if number.is_multiple_of(count) =>
            {
                to.deliver_wrongly(&body).await;
                continue;
            }
            Vice::AltersOneIn(count) if number.is_multiple_of(count) => {
                to.deliver(&[&body[..body.len() - 1], b"!"].concat()).await;
                continue;
            }
            Vice::IsSlow(time) => sleep(time).await,
            _ => {}
        }
        to.deliver(&body).await;
        if let Some(held) = held.take() {
            to.deliver(&held).await;
        }
    }
}

/// Somebody with a secret.
struct Subscriber {
    callback: Url,
    links: String,
    /// Its own, and that of somebody else.
    keys: [SigningKey; 2],
    vice: Vice,
}

impl Subscriber {
    async fn deliver(&self, body: &[u8]) {
        self.send(&self.callback, "text/plain", &self.links, &self.keys[0], body).await;
    }

    async fn deliver_wrongly(&self, body: &[u8]) {
        let (mut callback, mut kind, mut links, [mut key, other]) =
            (self.callback.clone(), "text/plain", self.links.clone(), self.keys.each_ref());
        match self.vice {
            Vice::MisdirectsOneIn(_) => callback.set_host(Some("127.1.200.200")).unwrap(),
            Vice::TypesOneInWrongly(_) => kind = "text/html",
            Vice::LinksOneInWrongly(_) => links = links.replace("/load/", "/other/"),
            _ => key = other,
        }
        self.send(&callback, kind, &links, key, body).await;
    }

    async fn send(&self, to: &Url, kind: &str, links: &str, key: &SigningKey, body: &[u8]) {
        let field = |signed: &[u8]| format!("X-Hub-Signature: {}\r\n", key.sign(signed));
        let signature = match self.vice {
            Vice::NeverSigns => String::new(),
            Vice::SignsWrongly => field(b"another body"),
            _ => field(body),
        };
        let fields = format!("Content-Type: {kind}\r\nLink: {links}\r\n{signature}");
        let answer = send(to, "POST", &fields, body).await;
        assert_eq!(answer.unwrap().status, 204);
    }
}

/// Each of the header fields has its line end.
async fn send(url: &Url, method: &str, fields: &str, body: &[u8]) -> std::io::Result<resync_harness::Answer> {
    let address = url.socket_addrs(|| None).unwrap()[0];
    let target = &url[url::Position::BeforePath..];
    let mut bytes = format!(
        "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    request(address, &bytes).await
}
