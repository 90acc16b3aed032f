//! The bound: the HTTP library that the hub's client is made of, in a loop on every core, with signatures, without a store.
//!
//! Nothing holds it back that a hub could avoid: targets, keys and header fields are made beforehand, connections stand before
//! the clock runs, and each sender has subscribers and connections of its own, so that it never has to look for one. It signs with
//! another implementation than the hub: one of the product's that became slower would make the bound slower too.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, LINK, USER_AGENT};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::runtime::{self, Runtime};
use tokio::task::{JoinSet, spawn_blocking};
use url::Url;

use super::audience::Audience;
use super::check::{KIND, Signer};
use super::receiver::{Receiver, secret};
use super::{Failure, Rate};

/// What the loop sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bare {
    pub(super) audience: Audience,
    /// Requests under way at once, over all cores, at most.
    pub(super) at_once: usize,
    pub(super) bytes: u32,
}

/// What the loop did.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BareClient {
    /// Requests under way at once, over all cores.
    pub at_once: usize,
    /// Requests and their time.
    #[serde(flatten)]
    pub rate: Rate,
    /// Microseconds of CPU for a request, without those of the receiver.
    pub cpu: f64,
}

impl BareClient {
    /// The place of the fastest.
    pub(super) fn fastest(tried: &[Self]) -> usize {
        let rate = |place: &usize| tried[*place].rate.per_second;
        (0..tried.len()).max_by(|one, other| rate(one).total_cmp(&rate(other))).unwrap_or(0)
    }
}

/// What its requests name as their hub.
const HUB: &str = "http://127.0.0.1:20000/websub/";
/// The header of a signed delivery.
const SIGNATURE: HeaderName = HeaderName::from_static("x-hub-signature");

/// The loop with several numbers of requests under way at once. More of them cost more each, and a hub chooses how many it makes: so
/// a run is judged by whichever does best, and a fan-out by that and by as many as the hub may have.
pub(super) struct Bounds {
    tried: Vec<(usize, Bound)>,
    receiver: Receiver,
}

impl Bounds {
    /// With a receiver of its own, which is the same as the hub's.
    pub(super) async fn connect(plan: &Bare) -> Result<Self, Failure> {
        let receiver = Receiver::start(plan.audience).await?;
        receiver.link_to(HUB);
        let (_, body) = receiver.notification(0, Instant::now(), plan.bytes);
        let mut bounds = Vec::new();
        for at_once in tried(plan.at_once.min(plan.audience.subscriptions())) {
            let plan = Bare { at_once, ..*plan };
            bounds.push((at_once, Bound::connect(plan, body.clone(), &receiver).await?));
        }
        Ok(Self { tried: bounds, receiver })
    }

    /// Sends so many with each, one after the other. Each copy is checked afterwards as those of a hub are: a loop that left something
    /// out would be no bound.
    pub(super) async fn measure(self, requests: u64) -> Result<(Self, Vec<BareClient>), Failure> {
        let (mut tried, mut measured) = (Vec::new(), Vec::new());
        for (at_once, bound) in self.tried {
            let (bound, rate, cpu) = bound.measure(requests).await?;
            tried.push((at_once, bound));
            // Requests of a measurement are far fewer than 2^52.
            #[expect(clippy::cast_precision_loss)]
            let cpu = cpu.as_secs_f64() * 1e6 / requests as f64;
            measured.push(BareClient { at_once, rate, cpu });
        }
        let copies = self.receiver.check_each();
        if copies.wrong > 0 || copies.checked == 0 {
            return Err(format!("the bare loop does not send what a hub sends: {:?}", copies.examples).into());
        }
        Ok((Self { tried, receiver: self.receiver }, measured))
    }
}

/// Up to so many at once.
fn tried(most: usize) -> impl Iterator<Item = usize> {
    [64, 128].into_iter().filter(move |fewer| *fewer < most).chain([most])
}

/// The loop with every connection made.
struct Bound(Vec<Share>);

impl Bound {
    /// Beside the runtime that the receiver needs.
    async fn connect(plan: Bare, body: Bytes, receiver: &Receiver) -> Result<Self, Failure> {
        let receiver = receiver.clone();
        spawn_blocking(move || Self::connect_here(&plan, &body, &receiver)).await?
    }

    fn connect_here(plan: &Bare, body: &Bytes, receiver: &Receiver) -> Result<Self, Failure> {
        let Audience { hosts, .. } = plan.audience;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // Several senders share a host only where there are fewer hosts than senders.
        let each = (plan.at_once / hosts).max(1);
        let senders = if each > 1 { each * hosts } else { plan.at_once.min(hosts) };
        let mut subscribers: Vec<Vec<usize>> = vec![Vec::new(); senders];
        for one in 0..plan.audience.subscriptions() {
            let (host, turn) = (one % hosts, one / hosts);
            subscribers[(host + hosts * (turn % each)) % senders].push(one);
        }
        let mut shares: Vec<Vec<Sender>> = (0..cores).map(|_| Vec::new()).collect();
        for (number, subscribers) in subscribers.iter().enumerate() {
            shares[number % cores].push(Sender::new(body, subscribers, receiver)?);
        }
        Ok(Self(shares.into_iter().map(Share::connect).collect::<Result<_, _>>()?))
    }

    /// Sends so many; the time is that until the last answer. Beside it, what the senders took of the processor.
    async fn measure(self, requests: u64) -> Result<(Self, Rate, Duration), Failure> {
        spawn_blocking(move || self.measure_here(requests)).await?
    }

    fn measure_here(mut self, requests: u64) -> Result<(Self, Rate, Duration), Failure> {
        let left = Arc::new(AtomicI64::new(i64::try_from(requests)?));
        let began = Instant::now();
        let threads: Vec<_> = std::mem::take(&mut self.0)
            .into_iter()
            .map(|share| {
                let left = Arc::clone(&left);
                thread::spawn(move || {
                    let share = share.each(|sender| sender.run(Arc::clone(&left)))?;
                    // The thread has done nothing else.
                    Ok::<_, Failure>((share, Duration::try_from(clock_gettime(ClockId::ThreadCPUTime))?))
                })
            })
            .collect();
        let (mut shares, mut cpu) = (Vec::new(), Duration::ZERO);
        for thread in threads {
            let (share, took) = thread.join().map_err(|_| "a thread of the bare loop has panicked")??;
            shares.push(share);
            cpu += took;
        }
        Ok((Self(shares), Rate::new(requests, began.elapsed()), cpu))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Dropping a runtime waits, which nothing asynchronous may do.
        for share in std::mem::take(&mut self.0) {
            share.runtime.shutdown_background();
        }
    }
}

/// One core's runtime and senders.
struct Share {
    runtime: Runtime,
    senders: Vec<Sender>,
}

impl Share {
    /// With every connection made.
    fn connect(senders: Vec<Sender>) -> Result<Self, Failure> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        Self { runtime, senders }.each(Sender::connect)
    }

    fn each<F>(mut self, work: impl Fn(Sender) -> F) -> Result<Self, Failure>
    where
        F: Future<Output = Result<Sender, Failure>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for sender in std::mem::take(&mut self.senders) {
            tasks.spawn_on(work(sender), self.runtime.handle());
        }
        for sender in self.runtime.block_on(tasks.join_all()) {
            self.senders.push(sender?);
        }
        Ok(self)
    }
}

/// One request at a time, to these in turn.
struct Sender {
    subscribers: Vec<Prepared>,
    hosts: Vec<SocketAddr>,
    connections: Vec<SendRequest<Full<Bytes>>>,
    head: HeaderMap,
    body: Bytes,
}

struct Prepared {
    /// Its place among the connections.
    connection: usize,
    host: HeaderValue,
    path: Uri,
    signer: Signer,
}

impl Sender {
    fn new(body: &Bytes, subscribers: &[usize], receiver: &Receiver) -> Result<Self, Failure> {
        let (mut hosts, mut prepared) = (Vec::new(), Vec::new());
        for &subscriber in subscribers {
            let url: Url = receiver.url(subscriber).parse()?;
            let host = url.socket_addrs(|| None)?[0];
            let connection = hosts.iter().position(|known| *known == host).unwrap_or_else(|| {
                hosts.push(host);
                hosts.len() - 1
            });
            let signer = Signer::new(&secret(subscriber));
            let host = HeaderValue::try_from(host.to_string())?;
            prepared.push(Prepared { connection, host, path: url.path().parse()?, signer });
        }
        let (head, body) = (head()?, body.clone());
        Ok(Self { subscribers: prepared, hosts, connections: Vec::new(), head, body })
    }

    async fn connect(mut self) -> Result<Self, Failure> {
        for host in &self.hosts {
            let stream = TcpStream::connect(host).await?;
            stream.set_nodelay(true)?;
            let (connection, work) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(work);
            self.connections.push(connection);
        }
        Ok(self)
    }

    /// Takes requests from those that are left until there are none.
    async fn run(mut self, left: Arc<AtomicI64>) -> Result<Self, Failure> {
        for number in (0..self.subscribers.len()).cycle() {
            if left.fetch_sub(1, Ordering::Relaxed) <= 0 {
                break;
            }
            self.send(number).await?;
        }
        Ok(self)
    }

    async fn send(&mut self, number: usize) -> Result<(), Failure> {
        let subscriber = &self.subscribers[number];
        let mut head = self.head.clone();
        let signature = subscriber.signer.field(&self.body);
        head.insert(SIGNATURE, HeaderValue::from_maybe_shared(Bytes::from(signature))?);
        head.insert(HOST, subscriber.host.clone());
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = subscriber.path.clone();
        *request.headers_mut() = head;
        let connection = &mut self.connections[subscriber.connection];
        connection.ready().await?;
        connection.send_request(request).await?.into_body().collect().await?;
        Ok(())
    }
}

/// What a hub sends, and as long.
fn head() -> Result<HeaderMap, Failure> {
    let mut head = HeaderMap::with_capacity(8);
    head.insert(CONTENT_TYPE, HeaderValue::from_static(KIND));
    let links = format!("<{HUB}>; rel=\"hub\", <{}>; rel=\"self\"", Audience::topic(0));
    head.insert(LINK, HeaderValue::try_from(links)?);
    head.insert("webhook-id", HeaderValue::from_static("0123456789abcdef.1000"));
    head.insert("webhook-attempt", HeaderValue::from_static("1"));
    head.insert(USER_AGENT, HeaderValue::from_static("resync-load/0.1.0"));
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_is_tried_with_few_requests_at_once_and_with_as_many_as_are_allowed() {
        let of = |most| tried(most).collect::<Vec<_>>();
        assert_eq!(of(512), [64, 128, 512]);
        assert_eq!(of(200), [64, 128, 200]);
        assert_eq!((of(64), of(8)), (vec![64], vec![8]));
    }
}
