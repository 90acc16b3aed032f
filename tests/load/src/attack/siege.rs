//! What all attackers know, and how much of each attack took place.

use std::collections::BTreeMap;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use resync_common::locks::lock;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::interval;

use super::server::Server;
use super::subscribers::Subscribers;

/// Between two looks at how much of the attack is under way.
const LOOK: Duration = Duration::from_millis(500);

/// What the attackers know and what they count.
pub(super) struct Siege {
    pub(super) hub: SocketAddr,
    /// Where the hub says how an honest notification fares: path and query, as somebody has passed it on.
    pub(super) status: String,
    pub(super) counts: Counts,
    answers: Mutex<BTreeMap<u16, usize>>,
}

/// What attackers have done so far.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) slow_open: AtomicUsize,
    pub(super) slow_closed: AtomicUsize,
    pub(super) links_fetched: AtomicUsize,
    pub(super) links_delivered: Arc<AtomicUsize>,
    pub(super) bodies_fetched: AtomicUsize,
    /// Deliveries under way to callbacks that are late.
    pub(super) late: Arc<AtomicUsize>,
    /// Questions under way to callbacks that never answer.
    pub(super) unanswered: Arc<AtomicUsize>,
    pub(super) waiting: AtomicUsize,
    pub(super) superseding: AtomicUsize,
    pub(super) statuses: AtomicUsize,
}

/// How much of each attack took place. Of several rounds, in the one with the least of it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sieged {
    /// Slow connections that were open, half of the time.
    pub slow_open: usize,
    /// Times that a slow connection was closed by the hub, and made anew.
    pub slow_closed: usize,
    /// Times that the hub asked for a topic with heavy links.
    pub links_fetched: usize,
    /// Deliveries of such a topic that came, with links just below what they may take.
    pub links_delivered: usize,
    /// Times that it asked for a topic with a large body.
    pub bodies_fetched: usize,
    /// Notifications of strangers' topics that had to leave the log to make room.
    pub forgotten: u64,
    /// Deliveries that were under way to callbacks which are late, at most.
    pub late: usize,
    /// Deliveries that a path of the shared origin refused for an hour.
    pub refused: usize,
    /// Requests that the hub took whose callbacks never answer.
    pub waiting: usize,
    /// Questions that were under way to such callbacks, at most.
    pub unanswered: usize,
    /// Requests that the hub took in the name of somebody whose own was pending.
    pub superseding: usize,
    /// Queries of a notification's status that were answered.
    pub statuses: usize,
    /// Answers to bad requests, by status.
    pub bad_answers: BTreeMap<u16, usize>,
}

/// What is under way.
pub(super) struct UnderWay {
    /// Half of the time.
    slow_open: usize,
    // At most, since such requests come in waves.
    late: usize,
    unanswered: usize,
}

impl Siege {
    pub(super) fn new(hub: SocketAddr, status: String) -> Arc<Self> {
        Arc::new(Self { hub, status, counts: Counts::default(), answers: Mutex::default() })
    }

    /// With what is under way meanwhile.
    pub(super) async fn watched<T>(&self, work: impl Future<Output = T>) -> (T, UnderWay) {
        let (mut looks, mut open) = (interval(LOOK), Vec::new());
        let (mut late, mut unanswered) = (0, 0);
        let now = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        tokio::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = looks.tick() => {
                    open.push(now(&self.counts.slow_open));
                    late = late.max(now(&self.counts.late));
                    unanswered = unanswered.max(now(&self.counts.unanswered));
                }
            }
        };
        open.sort_unstable();
        let slow_open = open.get(open.len() / 2).copied().unwrap_or_default();
        (done, UnderWay { slow_open, late, unanswered })
    }

    /// What took place until now, as far as the attackers know.
    pub(super) fn sieged(&self, under_way: &UnderWay, honest: &Subscribers) -> Sieged {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let UnderWay { slow_open, late, unanswered } = *under_way;
        Sieged {
            slow_open,
            slow_closed: of(&self.counts.slow_closed),
            links_fetched: of(&self.counts.links_fetched),
            links_delivered: of(&self.counts.links_delivered),
            bodies_fetched: of(&self.counts.bodies_fetched),
            forgotten: 0,
            late,
            refused: honest.refused(),
            waiting: of(&self.counts.waiting),
            unanswered,
            superseding: of(&self.counts.superseding),
            statuses: of(&self.counts.statuses),
            bad_answers: self.answers().clone(),
        }
    }

    /// A bad request was answered so.
    pub(super) fn answered(&self, status: u16) {
        *self.answers().entry(status).or_default() += 1;
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<u16, usize>> {
        lock(&self.answers)
    }
}

impl Sieged {
    /// The least of both, and all answers.
    pub(super) fn least(self, other: Self) -> Self {
        let mut bad_answers = self.bad_answers;
        for (status, count) in other.bad_answers {
            *bad_answers.entry(status).or_default() += count;
        }
        Self {
            slow_open: self.slow_open.min(other.slow_open),
            slow_closed: self.slow_closed.min(other.slow_closed),
            links_fetched: self.links_fetched.min(other.links_fetched),
            links_delivered: self.links_delivered.min(other.links_delivered),
            bodies_fetched: self.bodies_fetched.min(other.bodies_fetched),
            forgotten: self.forgotten.min(other.forgotten),
            late: self.late.min(other.late),
            refused: self.refused.min(other.refused),
            waiting: self.waiting.min(other.waiting),
            unanswered: self.unanswered.min(other.unanswered),
            superseding: self.superseding.min(other.superseding),
            statuses: self.statuses.min(other.statuses),
            bad_answers,
        }
    }
}

/// The server is there as long as the attack.
pub(super) fn keep(server: Server, attackers: &mut JoinSet<()>) {
    attackers.spawn(async move {
        let _server = server;
        pending::<()>().await;
    });
}

/// One more.
pub(super) fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}
