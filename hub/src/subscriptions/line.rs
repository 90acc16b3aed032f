//! Those who wait for the hub to ask a callback something: an entry of a fixed size each. A task and the texts of one, which are read
//! back from the store, exist only while it has its turn.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::places::{Place, Turns};

/// Those who wait, by their numbers, and the tasks of those who have their turn.
#[derive(Debug)]
pub(super) struct Line<E, A> {
    pub(super) turns: Turns,
    come: mpsc::UnboundedReceiver<(u64, Place)>,
    pub(super) entries: HashMap<u64, E>,
    pauses: BinaryHeap<Reverse<Pause>>,
    tasks: JoinSet<(u64, Option<A>)>,
}

/// What happens in a line.
#[derive(Debug)]
pub(super) enum Event<A> {
    /// Somebody's turn has come.
    Turn(u64, Place),
    /// A turn is over, with what comes of it; `None` after a fault of the hub's.
    Over(u64, Option<A>),
    /// A pause is over, during which this was kept of the place.
    Rested(u64, Option<Place>),
}

/// Somebody waits until then before it waits for its turn.
#[derive(Debug)]
struct Pause {
    until: Instant,
    number: u64,
    place: Option<Place>,
}

impl PartialEq for Pause {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pause {}

impl PartialOrd for Pause {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pause {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.until, self.number).cmp(&(other.until, other.number))
    }
}

impl<E, A: Send + 'static> Line<E, A> {
    pub(super) fn new() -> Self {
        let (turns, come) = mpsc::unbounded_channel();
        Self { turns, come, entries: HashMap::new(), pauses: BinaryHeap::new(), tasks: JoinSet::new() }
    }

    /// What happens next; nothing, as long as nobody waits.
    pub(super) async fn next(&mut self) -> Event<A> {
        let first = self.pauses.peek().map(|Reverse(pause)| pause.until);
        let rested = async {
            match first {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        tokio::pin!(rested);
        loop {
            tokio::select! {
                Some((number, place)) = self.come.recv() => return Event::Turn(number, place),
                // Panics are caught within, and nobody aborts a task before the line is gone.
                Some(over) = self.tasks.join_next() => if let Ok((number, after)) = over {
                    return Event::Over(number, after);
                },
                () = &mut rested => break,
            }
        }
        match self.pauses.pop() {
            Some(Reverse(Pause { number, place, .. })) => Event::Rested(number, place),
            None => pending().await,
        }
    }

    /// Does this in somebody's turn.
    pub(super) fn run(&mut self, number: u64, turn: impl Future<Output = A> + Send + 'static) {
        self.tasks.spawn(async move { (number, AssertUnwindSafe(turn).catch_unwind().await.ok()) });
    }

    /// Has somebody wait for so long, with what is kept of its place.
    pub(super) fn pause(&mut self, number: u64, pause: Duration, place: Option<Place>) {
        self.pauses.push(Reverse(Pause { until: Instant::now() + pause, number, place }));
    }

    /// Somebody waits no more.
    pub(super) fn forget(&mut self, number: u64) -> Option<E> {
        let entry = self.entries.remove(&number);
        // A crowd that is gone takes no room any more.
        if self.entries.is_empty() {
            self.entries.shrink_to_fit();
        }
        entry
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
