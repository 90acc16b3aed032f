//! The world of a run: every subscriber, each host in its own manner, and the topics that a hub fetches. Whatever comes is written
//! down for the oracle.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_common::locks::lock;

use super::checker::Checker;
use super::manners::{answered, status};
use super::reply::{Delivery, Here, Reply};
use crate::check::{Addressee, Copy, KIND, Links};
use crate::measure::{Arrival, Recorder, Subscription};
use crate::request::Request;
use crate::scenario::{Behaviour, Plan, Post};
use crate::stamp::Stamp;

/// Names of hosts are below it.
pub(super) const DOMAIN: &str = "load.test";
/// Examples of altered deliveries that are kept.
const NOTES: usize = 5;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct World {
    run: u32,
    epoch: Instant,
    /// When the run began, in microseconds after the epoch.
    zero: AtomicU64,
    warmup: Duration,
    posts: Vec<Post>,
    /// By topic: the number of its newest version, and 1; 0: none.
    versions: Vec<AtomicU64>,
    /// The hub that topics name, and the port that they are at.
    hub: OnceLock<(String, u16)>,
    /// What every copy must link to.
    links: OnceLock<Links>,
    checker: Checker,
    /// Callbacks have names.
    named: bool,
    subscribers: Vec<Subscriber>,
    hosts: Vec<Host>,
    seed: u64,
    pub(super) well: Recorder,
    pub(super) sick: Recorder,
    accepted: AtomicU64,
    refused: AtomicU64,
    verified: AtomicU64,
    altered: AtomicU64,
    followed: AtomicU64,
    /// Poisoned posts that somebody was to take.
    tasted: Mutex<BTreeSet<u32>>,
    notes: Mutex<Vec<String>>,
}

#[derive(Debug)]
struct Host {
    behaviour: Behaviour,
    is_away: AtomicBool,
}

/// Moments are microseconds after the epoch; 0: never.
#[derive(Debug)]
struct Subscriber {
    topic: u32,
    host: u32,
    wants: AtomicBool,
    verified: AtomicU64,
    lease_ends: AtomicU64,
    left: AtomicU64,
    /// When the hub asked whether it wants to leave.
    ended: AtomicU64,
    arrivals: Mutex<Vec<Arrival>>,
}

impl World {
    pub(super) fn new(run: u32, seed: u64, warmup: Duration, plan: &Plan, topics: u32, named: bool) -> Self {
        let subscriber = |number| {
            let (topic, host) = plan.place(topics, number);
            Subscriber {
                topic,
                host,
                wants: AtomicBool::new(false),
                verified: AtomicU64::new(0),
                lease_ends: AtomicU64::new(0),
                left: AtomicU64::new(0),
                ended: AtomicU64::new(0),
                arrivals: Mutex::default(),
            }
        };
        Self {
            run,
            epoch: Instant::now(),
            zero: AtomicU64::new(0),
            warmup,
            posts: plan.posts.clone(),
            versions: (0..topics).map(|_| AtomicU64::new(0)).collect(),
            hub: OnceLock::new(),
            links: OnceLock::new(),
            checker: Checker::start(run, &plan.posts),
            named,
            subscribers: (0..plan.subscribers).map(subscriber).collect(),
            hosts: plan
                .hosts
                .iter()
                .map(|behaviour| Host { behaviour: *behaviour, is_away: AtomicBool::new(false) })
                .collect(),
            seed,
            well: Recorder::default(),
            sick: Recorder::default(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            altered: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            tasted: Mutex::default(),
            notes: Mutex::default(),
        }
    }

    /// The run begins now.
    pub(super) fn begin(&self) {
        self.zero.store(self.micros(), Ordering::SeqCst);
    }

    /// Since the beginning of the run.
    pub(super) fn now(&self) -> Duration {
        Duration::from_micros(self.micros().saturating_sub(self.zero.load(Ordering::Relaxed)))
    }

    /// The moment of the beginning.
    pub(super) fn zero(&self) -> Instant {
        self.epoch + Duration::from_micros(self.zero.load(Ordering::SeqCst))
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Verifications of intent to subscribe so far.
    pub(super) fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// Whether the hub has verified it, and has not asked since whether it wants to leave.
    pub(super) fn is_subscribed(&self, subscriber: u32) -> bool {
        let subscriber = &self.subscribers[subscriber as usize];
        let is = |of: &AtomicU64| of.load(Ordering::SeqCst) > 0;
        is(&subscriber.verified) && !is(&subscriber.ended)
    }

    pub(super) fn host_of(&self, subscriber: u32) -> u32 {
        self.subscribers[subscriber as usize].host
    }

    pub(super) fn topic_of(&self, subscriber: u32) -> u32 {
        self.subscribers[subscriber as usize].topic
    }

    /// Whether a subscriber agrees when it is asked. One that does not want to any more has left now.
    pub(super) fn wants(&self, subscriber: u32, wants: bool) {
        let subscriber = &self.subscribers[subscriber as usize];
        subscriber.wants.store(wants, Ordering::SeqCst);
        if !wants {
            subscriber.left.store(self.micros(), Ordering::SeqCst);
        }
    }

    /// Topics, which have these names, link to this hub, and are at this port. Another hub than ours may call itself otherwise.
    pub(super) fn link_to(&self, hub: &str, port: u16, is_ours: bool, topics: impl Iterator<Item = String>) {
        // There is one hub in a run.
        let _ = self.hub.set((hub.to_owned(), port));
        let _ = self.links.set(Links::new(is_ours.then(|| hub.to_owned()), topics));
    }

    /// The callback of a subscriber.
    pub(super) fn callback(&self, subscriber: u32, port: u16) -> String {
        format!("http://{}/{subscriber}", self.authority(self.host_of(subscriber), port))
    }

    /// How callbacks name a host.
    pub(super) fn authority(&self, host: u32, port: u16) -> String {
        if self.named { format!("h{host}.{DOMAIN}:{port}") } else { format!("{}:{port}", address(host)) }
    }

    /// From now on this is the newest version of its topic.
    pub(super) fn publish(&self, post: u32) {
        let topic = self.posts[post as usize].topic;
        self.versions[topic as usize].fetch_max(u64::from(post) + 1, Ordering::SeqCst);
    }

    /// The body of a post.
    pub(super) fn body(&self, post: u32) -> Vec<u8> {
        let Post { due, bytes, .. } = self.posts[post as usize];
        Stamp { run: self.run, post, due }.body(bytes)
    }

    /// From now on these hosts are away, or back.
    pub(super) fn away(&self, hosts: impl Iterator<Item = usize>, is_away: bool) {
        for host in hosts {
            self.hosts[host].is_away.store(is_away, Ordering::Relaxed);
        }
    }

    /// What connections draw lots from.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Everything that came, for the oracle.
    pub(super) fn subscriptions(&self) -> Vec<Subscription> {
        self.subscribers.iter().map(|subscriber| self.subscription(subscriber)).collect()
    }

    fn subscription(&self, subscriber: &Subscriber) -> Subscription {
        let zero = self.zero.load(Ordering::SeqCst);
        let moment = |at: &AtomicU64| {
            let at = at.load(Ordering::SeqCst);
            (at > 0).then(|| Duration::from_micros(at.saturating_sub(zero)))
        };
        Subscription {
            topic: subscriber.topic,
            from: moment(&subscriber.verified),
            until: moment(&subscriber.lease_ends).into_iter().chain(moment(&subscriber.left)).min(),
            ended: moment(&subscriber.lease_ends).into_iter().chain(moment(&subscriber.ended)).min(),
            is_owed: self.hosts[subscriber.host as usize].behaviour.is_owed(),
            arrivals: lock(&subscriber.arrivals).clone(),
        }
    }

    /// Deliveries with another content than that of their post, with examples, and redirects that were followed. Waits until the
    /// signature of each copy that came is checked.
    pub(super) async fn wrongs(&self) -> (u64, Vec<String>, u64) {
        let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
        for (subscriber, post) in self.checker.finish().await {
            self.alter(|| format!("#{post} to subscriber {subscriber}: a wrong signature"));
        }
        (count(&self.altered), lock(&self.notes).clone(), count(&self.followed))
    }

    /// Whether somebody was to take this poisoned post.
    pub(super) fn was_tasted(&self, post: u32) -> bool {
        lock(&self.tasted).contains(&post)
    }

    /// What a request gets here.
    pub(super) fn reply(&self, request: &Request<'_>, here: &Here, rng: &mut Rng) -> Reply {
        let target = request.target();
        let path = target.split('?').next().unwrap_or_default();
        if let Some(topic) = path.strip_prefix("/t/") {
            return self.topic(topic, request.line.starts_with("HEAD"));
        }
        if path.starts_with("/elsewhere/") {
            self.followed.fetch_add(1, Ordering::Relaxed);
            return status(204, "");
        }
        let number = path.get(1..).and_then(|number| number.parse::<usize>().ok());
        let Some(number) = number.filter(|number| *number < self.subscribers.len()) else {
            return status(404, "");
        };
        if request.line.starts_with("GET") {
            self.verify(number, request)
        } else {
            self.deliver(number, request, here, rng)
        }
    }

    fn topic(&self, topic: &str, is_head: bool) -> Reply {
        let Some(version) = topic.parse().ok().and_then(|topic: usize| self.versions.get(topic)) else {
            return status(404, "");
        };
        let body = match version.load(Ordering::SeqCst) {
            0 => b"nothing yet".to_vec(),
            version => self.body(u32::try_from(version - 1).unwrap_or(u32::MAX)),
        };
        let Some((hub, port)) = self.hub.get() else { return status(404, "") };
        let own = topic_url(*port, topic);
        let links = format!("Link: <{hub}>; rel=\"hub\", <{own}>; rel=\"self\"");
        let mut page = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {KIND}\r\n{links}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        if !is_head {
            page.extend_from_slice(&body);
        }
        Reply::Bytes(page)
    }

    fn verify(&self, number: usize, request: &Request<'_>) -> Reply {
        let subscriber = &self.subscribers[number];
        let (mode, now) = (request.parameter("hub.mode").unwrap_or_default(), self.micros());
        let agrees = match mode.as_str() {
            "subscribe" => subscriber.wants.load(Ordering::SeqCst),
            "unsubscribe" => !subscriber.wants.load(Ordering::SeqCst),
            _ => return status(200, ""),
        };
        if !agrees {
            return status(404, "");
        }
        if mode == "subscribe" {
            let _ = subscriber.verified.compare_exchange(0, now, Ordering::SeqCst, Ordering::SeqCst);
            let lease = request.parameter("hub.lease_seconds").and_then(|lease| lease.parse::<u64>().ok());
            if let Some(lease) = lease {
                subscriber
                    .lease_ends
                    .store(now.saturating_add(lease.saturating_mul(1_000_000)), Ordering::SeqCst);
            }
            self.verified.fetch_add(1, Ordering::Relaxed);
        } else {
            subscriber.ended.store(now, Ordering::SeqCst);
        }
        status(200, &request.parameter("hub.challenge").unwrap_or_default())
    }

    fn deliver(&self, subscriber: usize, request: &Request<'_>, here: &Here, rng: &mut Rng) -> Reply {
        let at = self.now();
        let Some(copy) = self.copy(subscriber, request, here) else { return status(503, "") };
        let stamp = copy.stamp.filter(|stamp| stamp.run == self.run);
        let post = stamp.and_then(|stamp| Some((stamp.post, self.posts.get(stamp.post as usize)?)));
        let Some((number, post)) = post else {
            self.alter(|| {
                format!("a body of {} bytes that nobody published, to subscriber {subscriber}", copy.bytes)
            });
            return status(204, "");
        };
        match self.difference(subscriber, post, &copy) {
            Some(what) => self.alter(|| format!("#{number} to subscriber {subscriber}: {what}")),
            None => self.checker.keep(here.connection, copy),
        }
        let delivery = Delivery { subscriber, post: number, at };
        let reply = match post.poison {
            Some(poison) => {
                lock(&self.tasted).insert(number);
                status(poison, "")
            }
            None => self.manner(here.host, delivery, rng),
        };
        if !matches!(reply, Reply::Accept(_) | Reply::Later(..) | Reply::Drip(..)) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        reply
    }

    fn copy(&self, subscriber: usize, request: &Request<'_>, here: &Here) -> Option<Copy> {
        let known = &self.subscribers[subscriber];
        let to = Addressee {
            subscriber: u32::try_from(subscriber).ok()?,
            // The oracle knows the order.
            turn: 0,
            topic: known.topic as usize,
            authority: &here.authority,
            is_at_home: known.host as usize == here.host,
        };
        Some(Copy::of(request, to, self.links.get()?))
    }

    fn manner(&self, number: usize, delivery: Delivery, rng: &mut Rng) -> Reply {
        let host = &self.hosts[number];
        if host.is_away.load(Ordering::Relaxed) {
            return Reply::Reset;
        }
        answered(host.behaviour, number, delivery, rng)
    }

    /// Writes down that a delivery was taken.
    pub(super) fn accept(&self, delivery: Delivery, connection: u64) {
        let Delivery { subscriber, post, at } = delivery;
        lock(&self.subscribers[subscriber].arrivals).push(Arrival::new(post, at));
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let due = self.posts[post as usize].due;
        if due >= self.warmup {
            let host = self.subscribers[subscriber].host as usize;
            let is_well = matches!(self.hosts[host].behaviour, Behaviour::Well);
            let recorder = if is_well { &self.well } else { &self.sick };
            recorder.note(usize::try_from(connection).unwrap_or(0), at.saturating_sub(due));
        }
    }

    /// What is not as it was published, but for its signature.
    fn difference(&self, subscriber: usize, post: &Post, copy: &Copy) -> Option<String> {
        if post.topic != self.subscribers[subscriber].topic {
            return Some(format!("its topic is {}", post.topic));
        }
        if copy.bytes != post.bytes {
            return Some(format!("{} bytes instead of {}", copy.bytes, post.bytes));
        }
        if copy.stamp.is_none_or(|stamp| stamp.due.as_micros() != post.due.as_micros()) {
            return Some("it was due at another moment".to_owned());
        }
        Some(copy.flaw?.words().to_owned())
    }

    fn alter(&self, note: impl FnOnce() -> String) {
        self.altered.fetch_add(1, Ordering::Relaxed);
        let mut notes = lock(&self.notes);
        if notes.len() < NOTES {
            notes.push(note());
        }
    }
}

/// Where a host is.
pub(super) fn address(host: u32) -> Ipv4Addr {
    let [_, _, high, low] = host.to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

/// A topic that is served here.
pub(super) fn topic_url(port: u16, topic: impl Display) -> String {
    format!("http://127.0.0.1:{port}/t/{topic}")
}
