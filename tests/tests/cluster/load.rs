//! What goes on all the time: publishers post to any hub, half of them with idempotency keys, and hosts of subscribers fail for a moment.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use fastrand::Rng;
use resync_harness::{Answer, Primary, Rows};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::endpoint::Endpoint;
use crate::oracle::{Ack, Book, Id, meaning};
use crate::subscribers::{HOSTS, Hosts};

pub(crate) const TOPICS: usize = 12;
/// Of this topic the operator has something delivered again now and then.
pub(crate) const REPLAYED: usize = 0;
/// This one it pauses.
pub(crate) const PAUSED: usize = 1;
pub(crate) const PUBLISHERS: usize = 6;
/// Who posts what is needed to see that all is well: no publisher.
const PROBE: usize = PUBLISHERS;
/// For an answer of the database.
const SQL: Duration = Duration::from_secs(5);

pub(crate) fn topic(number: usize) -> String {
    format!("http://source.example/set{number}/framework/")
}

/// What all tasks of a trial share.
#[derive(Debug)]
pub(crate) struct World {
    book: Arc<Mutex<Book>>,
    pub(crate) hubs: Vec<Endpoint>,
    pub(crate) hosts: Hosts,
    /// `None` while there is none that is known to be it.
    primary: Mutex<Option<Primary>>,
    stop: AtomicBool,
    serial: Mutex<usize>,
}

impl World {
    pub(crate) fn new(book: Arc<Mutex<Book>>, hubs: Vec<Endpoint>, hosts: Hosts, primary: Primary) -> Self {
        let (primary, stop) = (Mutex::new(Some(primary)), AtomicBool::new(false));
        Self { book, hubs, hosts, primary, stop, serial: Mutex::default() }
    }

    /// The judge, whom nobody may keep while it waits for something.
    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Who is asked by SQL from now on.
    pub(crate) fn set_primary(&self, primary: Option<Primary>) {
        *self.primary.lock().unwrap() = primary;
    }

    /// What the primary says; `None` where there is none, or it does not answer.
    pub(crate) fn sql(&self, query: &str) -> Option<Rows> {
        let primary = self.primary.lock().unwrap().clone()?;
        block_in_place(|| primary.sql(query, SQL)).ok()
    }

    /// Posts to this hub, once, and tells the judge what was acknowledged.
    async fn post(&self, hub: usize, number: usize, body: &str, key: Option<&str>) -> Posted {
        let begun = Instant::now();
        let answer = self.hubs[hub].post(&topic(number), body, key).await;
        let (at, mut book) = (Instant::now(), self.book());
        match answer.as_ref().map(|answer| answer.status) {
            Some(202) => {
                let Some(id) = answer.as_ref().and_then(named) else {
                    book.complain(format!("hub {hub} does not say what a post is called"));
                    return Posted::Refused;
                };
                let ack = Ack { topic: number, id, begun, at };
                book.acknowledged(ack, meaning(body.as_bytes()));
                Posted::Taken(ack)
            }
            Some(503) => {
                if answer.is_some_and(|answer| answer.header("retry-after").is_none()) {
                    book.complain(format!("hub {hub} answers 503 and does not say when to come again"));
                }
                Posted::Unknown
            }
            None => Posted::Unknown,
            Some(status) => {
                book.complain(format!("hub {hub} answers a post with {status}"));
                Posted::Refused
            }
        }
    }

    /// Posts something new with a key until this hub takes it; `None` where it never does so in time.
    pub(crate) async fn probe(&self, hub: usize, number: usize, patience: Duration) -> Option<Ack> {
        let serial = {
            let mut serial = self.serial.lock().unwrap();
            *serial += 1;
            *serial
        };
        let body = self.book().body(number, PROBE, serial, "probe");
        let (key, until) = (format!("probe-{serial}"), Instant::now() + patience);
        while Instant::now() < until {
            match self.post(hub, number, &body, Some(&key)).await {
                Posted::Taken(ack) => return Some(ack),
                Posted::Unknown => sleep(Duration::from_millis(100)).await,
                Posted::Refused => return None,
            }
        }
        None
    }
}

#[derive(Clone, Copy, Debug)]
enum Posted {
    Taken(Ack),
    /// It may be taken later, or never.
    Unknown,
    /// It was answered as no post may be.
    Refused,
}

/// What an answer calls the notification: its status page is named after it.
fn named(answer: &Answer) -> Option<Id> {
    let page = answer.header("location")?.split('?').next()?;
    Id::parse(page.rsplit('/').next()?)
}

/// Posts to any topic until told to stop. With keys, what nobody knows about is posted again to another hub until it is acknowledged; without,
/// never again.
pub(crate) async fn publish(world: Arc<World>, publisher: usize, mut rng: Rng) {
    let has_keys = publisher.is_multiple_of(2);
    let mut hub = rng.usize(0..world.hubs.len());
    for serial in 0.. {
        if world.is_stopped() {
            return;
        }
        let number = rng.usize(0..TOPICS);
        let size = if rng.u8(0..20) == 0 { rng.usize(0..20_000) } else { rng.usize(0..200) };
        let rest: String = std::iter::repeat_with(|| rng.alphanumeric()).take(size).collect();
        let body = world.book().body(number, publisher, serial, &rest);
        let key = has_keys.then(|| format!("{publisher}-{serial}"));
        while matches!(world.post(hub, number, &body, key.as_deref()).await, Posted::Unknown) {
            hub = (hub + 1) % world.hubs.len();
            sleep(Duration::from_millis(50)).await;
            if !has_keys {
                break;
            }
        }
        if rng.u8(0..30) == 0 {
            hub = rng.usize(0..world.hubs.len());
        }
        sleep(Duration::from_millis(rng.u64(30..200))).await;
    }
}

/// Hosts fail for a moment, one after the other.
pub(crate) async fn fail_hosts(world: Arc<World>, mut rng: Rng) {
    while !world.is_stopped() {
        let host = rng.usize(0..HOSTS);
        world.hosts.set_down(host, true);
        sleep(Duration::from_millis(rng.u64(200..1_200))).await;
        world.hosts.set_down(host, false);
        sleep(Duration::from_millis(rng.u64(500..2_000))).await;
    }
}
