//! Deliveries over HTTP/2, to a subscriber's host that offers it: many at once over one connection.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use resync_harness::{HubProcess, PATIENCE, eventually};
use rustls::ServerConfig;
use tempfile::tempdir;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::tls::Scene;

const TOPIC: &str = "http://example.com/framework/";
/// Subscriptions at the one host.
const SUBSCRIPTIONS: usize = 4;

#[tokio::test]
async fn deliveries_at_once_to_a_host_share_a_connection_where_it_offers_http2() {
    let scene = Scene::new();
    let host = Host::start(&scene).await;
    let folder = tempdir().unwrap();
    let hub = host.subscribed(&scene, folder.path()).await;

    // The first ones at once may have opened several.
    assert_eq!(hub.publish(TOPIC, "first").await.unwrap().status, 202);
    host.until_delivered("first").await;
    until_acknowledged(&hub, SUBSCRIPTIONS).await;

    host.holds.send_replace(true);
    assert_eq!(hub.publish(TOPIC, "second").await.unwrap().status, 202);
    let at_once = host.until_delivered("second").await;
    assert!(at_once.iter().all(|seen| seen.connection == at_once[0].connection), "{at_once:?}");
    host.holds.send_replace(false);
    until_acknowledged(&hub, 2 * SUBSCRIPTIONS).await;

    for seen in host.seen.borrow().iter() {
        assert_eq!(seen.version, Version::HTTP_2);
        assert_eq!(seen.authority, host.address.to_string());
        assert!(!seen.has_host, "the name stands in :authority");
    }
}

#[tokio::test]
async fn a_host_that_drains_its_http2_connections_gets_the_next_delivery_over_another_without_a_failure() {
    let scene = Scene::new();
    let host = Host::start(&scene).await;
    let folder = tempdir().unwrap();
    let hub = host.subscribed(&scene, folder.path()).await;

    let mut delivered = 0;
    for news in ["first", "second", "third"] {
        assert_eq!(hub.publish(TOPIC, news).await.unwrap().status, 202);
        host.until_delivered(news).await;
        delivered += SUBSCRIPTIONS;
        until_acknowledged(&hub, delivered).await;
        host.drains.send_modify(|times| *times += 1);
    }
    let metrics = hub.admin("/metrics").await.text();
    for line in metrics.lines().filter(|line| line.starts_with("websub_deliveries_total{")) {
        let is_success = line.contains("outcome=\"2xx\"");
        assert!(is_success || line.ends_with(" 0"), "{line}");
    }
}

/// Everything that was sent is taken.
async fn until_acknowledged(hub: &HubProcess, deliveries: usize) {
    let line = format!("websub_deliveries_total{{outcome=\"2xx\"}} {deliveries}\n");
    eventually(&line, || async { hub.admin("/metrics").await.text().contains(&line) }).await;
}

/// A subscriber's host that speaks nothing but HTTP/2.
struct Host {
    address: SocketAddr,
    seen: watch::Receiver<Vec<Seen>>,
    /// Whether deliveries wait for their answers.
    holds: watch::Sender<bool>,
    /// How often all connections were told to end when nothing is under way.
    drains: watch::Sender<usize>,
}

/// A request that arrived.
#[derive(Clone, Debug)]
struct Seen {
    connection: usize,
    version: Version,
    method: Method,
    authority: String,
    has_host: bool,
    body: Bytes,
}

impl Host {
    async fn start(scene: &Scene) -> Self {
        let mut config = scene.server_config();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seeing, seen) = watch::channel(Vec::new());
        let (holds, drains) = (watch::Sender::new(false), watch::Sender::new(0));
        tokio::spawn(serve(listener, config, seeing, holds.subscribe(), drains.clone()));
        Self { address, seen, holds, drains }
    }

    /// A hub that delivers here.
    async fn subscribed(&self, scene: &Scene, data: &std::path::Path) -> HubProcess {
        let hub = HubProcess::start_with(data, &[("EGRESS_EXTRA_CA", &scene.ca())]).await;
        for number in 1..=SUBSCRIPTIONS {
            let callback = format!("https://{}/{number}?a=b", self.address);
            hub.subscribe(TOPIC, &callback, &[], number).await;
        }
        hub
    }

    /// Waits until these news have come to all.
    async fn until_delivered(&self, news: &str) -> Vec<Seen> {
        let of = |seen: &[Seen]| -> Vec<Seen> {
            seen.iter().filter(|seen| seen.method == Method::POST && seen.body == news).cloned().collect()
        };
        let mut seen = self.seen.clone();
        let all = timeout(PATIENCE, seen.wait_for(|seen| of(seen).len() >= SUBSCRIPTIONS)).await;
        of(&all.expect("all deliveries come").unwrap())
    }
}

async fn serve(
    listener: TcpListener,
    config: ServerConfig,
    seeing: watch::Sender<Vec<Seen>>,
    holds: watch::Receiver<bool>,
    drains: watch::Sender<usize>,
) {
    let (acceptor, seeing) = (TlsAcceptor::from(Arc::new(config)), Arc::new(seeing));
    for number in 0.. {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (acceptor, seeing, holds) = (acceptor.clone(), Arc::clone(&seeing), holds.clone());
        let drained = drains.subscribe();
        tokio::spawn(async move {
            let stream = acceptor.accept(stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            converse(stream, number, seeing, holds, drained).await;
        });
    }
}

async fn converse(
    stream: tokio_rustls::server::TlsStream<TcpStream>,
    connection: usize,
    seeing: Arc<watch::Sender<Vec<Seen>>>,
    holds: watch::Receiver<bool>,
    mut drained: watch::Receiver<usize>,
) {
    let service = service_fn(move |request| answer(request, connection, Arc::clone(&seeing), holds.clone()));
    let server = http2::Builder::new(TokioExecutor::new());
    let mut serving = std::pin::pin!(server.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // How a peer leaves is its own affair.
        _ = serving.as_mut() => return,
        _ = drained.changed() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    seeing: Arc<watch::Sender<Vec<Seen>>>,
    mut holds: watch::Receiver<bool>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let query = head.uri.query().unwrap_or_default();
    assert!(query.starts_with("a=b"), "the callback's own query stays: {query}");
    let seen = Seen {
        connection,
        version: head.version,
        method: head.method,
        authority: head.uri.authority().map(ToString::to_string).unwrap_or_default(),
        has_host: head.headers.contains_key("host"),
        body: body.collect().await.unwrap().to_bytes(),
    };
    let challenge = url::form_urlencoded::parse(query.as_bytes())
        .find_map(|(name, value)| (name == "hub.challenge").then(|| value.into_owned()));
    seeing.send_modify(|all| all.push(seen));
    if challenge.is_none() {
        holds.wait_for(|holds| !holds).await.unwrap();
    }
    Ok(Response::new(Full::new(Bytes::from(challenge.unwrap_or_default()))))
}
