//! A receiver that is not what limits a measurement: one listener for all of 127/8, a parser of a few lines, answers from memory.
//! It keeps of each copy what it is checked by when the clock has stopped. Its hosts can fall ill and recover.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use resync_common::locks::lock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::Failure;
use super::audience::Audience;
use super::check::{Addressee, Copies, Copy, Known, Links, judge};
use super::delays::{Delays, since_the_beginning};
use super::request::Request;
use super::stamp::Stamp;

const DONE: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
/// How long nothing may come before a measurement is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether all has come.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// Connections that keep copies at once hardly ever meet.
const SHELVES: usize = 16;

/// The running receiver.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    port: u16,
    tally: Arc<Tally>,
}

/// How many hosts there can be.
const HOSTS: usize = 1 << 16;
/// How long a host takes for an answer that takes its time.
const CAREFUL: Duration = Duration::from_millis(2);

/// How a host answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Temper {
    /// At once.
    Well,
    /// After a moment, so that it can be seen how many requests it gets at once.
    Careful,
    /// Never.
    Hanging,
    /// It ends each connection as soon as something comes.
    Refusing,
}

/// Deliveries by subscriber, which is the number at the end of the path.
#[derive(Debug)]
struct Tally {
    total: AtomicU64,
    verified: AtomicU64,
    audience: Audience,
    /// What bodies of this one name.
    run: u32,
    /// By subscriber.
    turns: Vec<AtomicU32>,
    posts: Mutex<Posts>,
    links: Mutex<Arc<Links>>,
    copies: [Mutex<Vec<Copy>>; SHELVES],
    delays: Delays,
    hosts: Vec<HostTally>,
    /// Rings for whoever waits for the next one.
    bell: Notify,
}

/// Those since the last check.
#[derive(Debug, Default)]
struct Posts {
    next: u32,
    known: HashMap<u32, Known>,
}

#[derive(Debug, Default)]
struct HostTally {
    temper: AtomicU8,
    under_way: AtomicU32,
    most: AtomicU32,
}

impl HostTally {
    fn temper(&self) -> Temper {
        let temper = self.temper.load(Ordering::Relaxed);
        let tempers = [Temper::Well, Temper::Careful, Temper::Hanging, Temper::Refusing];
        tempers.into_iter().find(|one| *one as u8 == temper).unwrap_or(Temper::Well)
    }
}

impl Receiver {
    pub(super) async fn start(audience: Audience) -> Result<Self, Failure> {
        Self::start_at(audience, 0).await
    }

    /// The same at a port; 0: at any.
    pub(super) async fn start_at(audience: Audience, port: u16) -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?;
        let port = listener.local_addr()?.port();
        let tally = Arc::new(Tally {
            total: AtomicU64::new(0),
            verified: AtomicU64::new(0),
            audience,
            run: fastrand::u32(..),
            turns: (0..audience.subscriptions()).map(|_| AtomicU32::new(0)).collect(),
            posts: Mutex::default(),
            links: Mutex::default(),
            copies: Default::default(),
            delays: Delays::default(),
            hosts: (0..HOSTS).map(|_| HostTally::default()).collect(),
            bell: Notify::new(),
        });
        let receiver = Self { port, tally: Arc::clone(&tally) };
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else { break };
                let tally = Arc::clone(&tally);
                // A peer that goes away ends its connection, nothing else.
                tokio::spawn(async move { drop(serve(stream, &tally, number % SHELVES).await) });
            }
        });
        Ok(receiver)
    }

    /// Connections from now on are those of this hub.
    pub(super) fn link_to(&self, hub: &str) {
        self.expect(Some(hub.to_owned()));
    }

    /// Connections from now on are those of several hubs, each of which names itself.
    pub(super) fn link_to_any(&self) {
        self.expect(None);
    }

    fn expect(&self, hub: Option<String>) {
        let topics = (0..self.tally.audience.topics).map(Audience::topic);
        *lock(&self.tally.links) = Arc::new(Links::new(hub, topics));
    }

    /// A notification of so many bytes that is sent now, with its number.
    pub(super) fn notification(&self, topic: usize, due: Instant, bytes: u32) -> (u32, Bytes) {
        let mut posts = lock(&self.tally.posts);
        let post = posts.next;
        posts.next += 1;
        let stamp = Stamp { run: self.tally.run, post, due: whole_micros(since_the_beginning(due)) };
        let known = Known { topic, stamp, bytes, sent: Instant::now(), acknowledged: None };
        posts.known.insert(post, known);
        (post, stamp.body(bytes).into())
    }

    /// The hub has said that it has this one.
    pub(super) fn acknowledged(&self, post: u32) {
        if let Some(known) = lock(&self.tally.posts).known.get_mut(&post) {
            known.acknowledged = Some(Instant::now());
        }
    }

    /// Judges all that came since this was asked last against all that was posted; `owed`: whether a subscriber was to get it. Takes its
    /// time.
    pub(super) fn check(&self, owed: impl Fn(u32) -> bool) -> Copies {
        let posts = std::mem::take(&mut lock(&self.tally.posts).known);
        let all = u32::try_from(self.tally.turns.len()).unwrap_or(u32::MAX);
        self.judge(&posts, Some((all, &owed)))
    }

    /// The same of each copy by itself, where one notification is sent again and again.
    pub(super) fn check_each(&self) -> Copies {
        self.judge(&lock(&self.tally.posts).known.clone(), None)
    }

    fn judge(&self, posts: &HashMap<u32, Known>, owed: Option<(u32, &dyn Fn(u32) -> bool)>) -> Copies {
        let tally = &self.tally;
        let copies = tally.copies.iter().flat_map(|shelf| std::mem::take(&mut *lock(shelf))).collect();
        let topic = |subscriber: u32| tally.audience.topic_of(subscriber as usize);
        judge(copies, posts, topic, |subscriber| secret(subscriber as usize), owed)
    }

    /// The callback of a subscriber.
    pub(super) fn url(&self, subscriber: usize) -> String {
        let [_, _, high, low] =
            u32::try_from(self.tally.audience.host_of(subscriber)).unwrap_or(u32::MAX).to_be_bytes();
        let host = SocketAddr::from((Ipv4Addr::new(127, 1, high, low), self.port));
        format!("http://{host}/{subscriber}")
    }

    /// Deliveries so far.
    pub(super) fn total(&self) -> u64 {
        self.tally.total.load(Ordering::Relaxed)
    }

    /// Verifications of intent so far.
    pub(super) fn verified(&self) -> u64 {
        self.tally.verified.load(Ordering::Relaxed)
    }

    /// Where callbacks are.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// From now on the host with this number answers so.
    pub(super) fn behave(&self, host: usize, temper: Temper) {
        self.tally.hosts[host].temper.store(temper as u8, Ordering::Relaxed);
    }

    /// The most requests that a careful host had to answer at once.
    pub(super) fn most_at_once(&self, host: usize) -> u32 {
        self.tally.hosts[host].most.load(Ordering::Relaxed)
    }

    /// How long deliveries took, from the moment that their bodies begin with.
    pub(super) fn delays(&self) -> &Delays {
        &self.tally.delays
    }

    /// Waits until so many have come in all.
    pub(super) async fn until(&self, total: u64) -> Result<(), Failure> {
        until("deliveries", total, || self.total()).await
    }

    /// Waits until so many callbacks have been asked.
    pub(super) async fn until_verified(&self, total: u64) -> Result<(), Failure> {
        until("verifications", total, || self.verified()).await
    }

    /// Waits for the next delivery after so many, and wakes up with it.
    pub(super) async fn next_after(&self, total: u64) -> Result<(), Failure> {
        let rung = self.tally.bell.notified();
        if self.total() <= total {
            timeout(PATIENCE, rung).await.map_err(|_| format!("no delivery came for {PATIENCE:?}"))?;
        }
        Ok(())
    }
}

/// What a subscriber and the hub share.
pub(super) fn secret(subscriber: usize) -> String {
    format!("secret of subscriber {subscriber}")
}

/// Bodies do not name a shorter time.
fn whole_micros(time: Duration) -> Duration {
    Duration::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

async fn until(what: &str, total: u64, count: impl Fn() -> u64) -> Result<(), Failure> {
    let mut seen = count();
    while seen < total {
        let progress = timeout(PATIENCE, async {
            while count() == seen {
                sleep(LOOK_EVERY).await;
            }
        });
        progress
            .await
            .map_err(|_| format!("{seen} of {total} {what} came, then nothing for {PATIENCE:?}"))?;
        seen = count();
    }
    Ok(())
}

/// The number of the host that a connection leads to.
fn host_of(stream: &TcpStream) -> std::io::Result<usize> {
    Ok(match stream.local_addr()?.ip() {
        IpAddr::V4(address) => usize::from(u16::from_be_bytes([address.octets()[2], address.octets()[3]])),
        IpAddr::V6(_) => 0,
    })
}

async fn serve(mut stream: TcpStream, tally: &Tally, shelf: usize) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let number = host_of(&stream)?;
    let here = Here {
        host: number,
        authority: stream.local_addr()?.to_string(),
        shelf,
        links: lock(&tally.links).clone(),
    };
    let host = &tally.hosts[number];
    let mut buffer = vec![0; 64 * 1024];
    let mut filled = 0;
    loop {
        while let Some(request) = Request::find(&buffer[..filled]) {
            match host.temper() {
                Temper::Well => {}
                Temper::Careful => {
                    let now = host.under_way.fetch_add(1, Ordering::Relaxed) + 1;
                    host.most.fetch_max(now, Ordering::Relaxed);
                    sleep(CAREFUL).await;
                    host.under_way.fetch_sub(1, Ordering::Relaxed);
                }
                Temper::Hanging => return hang(&mut stream).await,
                Temper::Refusing => return stream.set_zero_linger(),
            }
            let (length, answer) = (request.length, answer(&request, tally, &here));
            match answer {
                Some(challenge) => stream.write_all(challenge.as_bytes()).await?,
                None => stream.write_all(DONE).await?,
            }
            buffer.copy_within(length..filled, 0);
            filled -= length;
        }
        match stream.read(&mut buffer[filled..]).await? {
            0 => return Ok(()),
            read => filled += read,
        }
    }
}

/// Reads until the peer has had enough.
async fn hang(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut rest = [0; 4_096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// What a connection leads to.
struct Here {
    host: usize,
    authority: String,
    shelf: usize,
    links: Arc<Links>,
}

/// A delivery is counted and kept; a verification of intent is answered with its challenge.
fn answer(request: &Request<'_>, tally: &Tally, here: &Here) -> Option<String> {
    let target = request.target();
    if request.line.starts_with("GET") {
        let challenge = request.parameter("hub.challenge").unwrap_or_default();
        tally.verified.fetch_add(1, Ordering::Relaxed);
        return Some(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{challenge}", challenge.len()));
    }
    let subscriber = target[1..].parse::<u32>().ok();
    let known = subscriber.and_then(|one| Some((one, tally.turns.get(one as usize)?)));
    if let Some((subscriber, turn)) = known {
        let to = Addressee {
            subscriber,
            turn: turn.fetch_add(1, Ordering::Relaxed),
            topic: tally.audience.topic_of(subscriber as usize),
            authority: &here.authority,
            is_at_home: tally.audience.host_of(subscriber as usize) == here.host,
        };
        let copy = Copy::of(request, to, &here.links);
        if let Some(stamp) = copy.stamp {
            tally.delays.note(stamp.due);
        }
        lock(&tally.copies[here.shelf]).push(copy);
    }
    tally.total.fetch_add(1, Ordering::Relaxed);
    tally.bell.notify_waiters();
    None
}
