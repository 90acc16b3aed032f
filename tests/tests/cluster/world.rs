//! What all tasks of a trial share: the judge, the hubs, the hosts of subscribers, and the database while it has a primary.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use resync_harness::{Answer, Primary, Rows, lock};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::endpoint::Endpoint;
use crate::judge::{Ack, Id, Judge, meaning};
use crate::subscribers::Hosts;
use crate::topics::topic;

/// For an answer of the database.
const SQL: Duration = Duration::from_secs(5);
/// Who posts what is needed to see that all is well: no publisher.
const PROBE: &str = "probe";

#[derive(Debug)]
pub(crate) struct World {
    judge: Arc<Mutex<Judge>>,
    pub(crate) hubs: Vec<Endpoint>,
    pub(crate) hosts: Hosts,
    /// `None` while there is none that is known to be it.
    primary: Mutex<Option<Primary>>,
    stop: AtomicBool,
    serial: Mutex<usize>,
}

impl World {
    pub(crate) fn new(judge: Arc<Mutex<Judge>>, hubs: Vec<Endpoint>, hosts: Hosts, primary: Primary) -> Self {
        let (primary, stop) = (Mutex::new(Some(primary)), AtomicBool::new(false));
        Self { judge, hubs, hosts, primary, stop, serial: Mutex::default() }
    }

    /// The judge, whom nobody may keep while it waits for something.
    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        lock(&self.judge)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Who is asked by SQL from now on.
    pub(crate) fn set_primary(&self, primary: Option<Primary>) {
        *lock(&self.primary) = primary;
    }

    /// What the primary says; `None` where there is none, or it does not answer.
    pub(crate) fn sql(&self, query: &str) -> Option<Rows> {
        let primary = lock(&self.primary).clone()?;
        block_in_place(|| primary.sql(query, SQL)).ok()
    }

    /// Posts to this hub, once, and tells the judge what was acknowledged.
    pub(crate) async fn post(&self, hub: usize, number: usize, body: &str, key: Option<&str>) -> Posted {
        let begun = Instant::now();
        let answer = self.hubs[hub].post(&topic(number), body, key).await;
        let (at, mut judge) = (Instant::now(), self.judge());
        match answer.as_ref().map(|answer| answer.status) {
            Some(202) => {
                let Some(id) = answer.as_ref().and_then(named) else {
                    judge.complain(format!("hub {hub} does not say what a post is called"));
                    return Posted::Refused;
                };
                let made = judge.made(body.as_bytes()).unwrap_or(begun);
                let ack = Ack { topic: number, id, made, at };
                judge.acknowledged(ack, meaning(body.as_bytes()));
                Posted::Taken(ack)
            }
            Some(503) => {
                if answer.is_some_and(|answer| answer.header("retry-after").is_none()) {
                    judge.complain(format!("hub {hub} answers 503 and does not say when to come again"));
                }
                Posted::Unknown
            }
            None => Posted::Unknown,
            Some(status) => {
                judge.complain(format!("hub {hub} answers a post with {status}"));
                Posted::Refused
            }
        }
    }

    /// Posts something new with a key until this hub takes it; `None` where it never does so in time.
    pub(crate) async fn probe(&self, hub: usize, number: usize, patience: Duration) -> Option<Ack> {
        let serial = {
            let mut serial = lock(&self.serial);
            *serial += 1;
            *serial
        };
        let body = self.judge().body(number, PROBE, serial, "probe");
        let (key, until) = (format!("{PROBE}-{serial}"), Instant::now() + patience);
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

/// What became of a post.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Posted {
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
