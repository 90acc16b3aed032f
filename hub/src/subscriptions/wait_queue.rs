//! A queue of what waits until a callback may be asked: an entry of fixed size each. A task, and texts that are read from the
//! store, exist only while an entry has its permit.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::concurrency::{GrantSender, Permit};

/// The entries that wait, by number, and the tasks of those that have their permits.
#[derive(Debug)]
pub(super) struct WaitQueue<E, N> {
    pub(super) grants: GrantSender,
    granted: mpsc::UnboundedReceiver<(u64, Permit)>,
    pub(super) entries: HashMap<u64, E>,
    pauses: BinaryHeap<Reverse<Pause>>,
    tasks: JoinSet<(u64, Option<N>)>,
}

/// What happens to an entry.
#[derive(Debug)]
pub(super) enum Event<N> {
    /// It got its permit.
    Granted(u64, Permit),
    /// Its task finished, with what follows; `None` after a panic.
    Finished(u64, Option<N>),
    /// Its pause is over, with what was kept of the permit meanwhile.
    PauseOver(u64, Option<Permit>),
}

/// An entry that waits for a moment.
#[derive(Debug)]
struct Pause {
    until: Instant,
    number: u64,
    permit: Option<Permit>,
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

impl<E, N: Send + 'static> WaitQueue<E, N> {
    /// Takes in what comes, and handles what happens, until nothing waits any more and nothing more can come.
    pub(super) async fn serve<T>(
        mut incoming: mpsc::UnboundedReceiver<T>,
        mut take_in: impl FnMut(T, &mut Self),
        mut handle: impl FnMut(Event<N>, &mut Self),
    ) {
        let mut queue = Self::new();
        let mut is_open = true;
        while is_open || !queue.entries.is_empty() {
            tokio::select! {
                received = incoming.recv(), if is_open => match received {
                    Some(one) => take_in(one, &mut queue),
                    None => is_open = false,
                },
                event = queue.next() => handle(event, &mut queue),
            }
        }
    }

    fn new() -> Self {
        let (grants, granted) = mpsc::unbounded_channel();
        Self { grants, granted, entries: HashMap::new(), pauses: BinaryHeap::new(), tasks: JoinSet::new() }
    }

    /// The next event; waits while there is none.
    async fn next(&mut self) -> Event<N> {
        let first = self.pauses.peek().map(|Reverse(pause)| pause.until);
        let pause_over = async {
            match first {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        tokio::pin!(pause_over);
        loop {
            tokio::select! {
                Some((number, permit)) = self.granted.recv() => return Event::Granted(number, permit),
                // Tasks catch their panics, and none is aborted while the queue exists.
                Some(joined) = self.tasks.join_next() => if let Ok((number, next)) = joined {
                    return Event::Finished(number, next);
                },
                () = &mut pause_over => break,
            }
        }
        match self.pauses.pop() {
            Some(Reverse(Pause { number, permit, .. })) => Event::PauseOver(number, permit),
            None => pending().await,
        }
    }

    /// Takes in an entry, unless there is one with this number: then it returns false.
    pub(super) fn insert(&mut self, number: u64, entry: E) -> bool {
        match self.entries.entry(number) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(entry);
                true
            }
        }
    }

    /// Runs the task of an entry.
    pub(super) fn run(&mut self, number: u64, task: impl Future<Output = N> + Send + 'static) {
        self.tasks.spawn(async move { (number, AssertUnwindSafe(task).catch_unwind().await.ok()) });
    }

    /// Has an entry wait for a time, with what is kept of its permit.
    pub(super) fn pause(&mut self, number: u64, pause: Duration, permit: Option<Permit>) {
        self.pauses.push(Reverse(Pause { until: Instant::now() + pause, number, permit }));
    }

    /// Removes an entry.
    pub(super) fn forget(&mut self, number: u64) -> Option<E> {
        let entry = self.entries.remove(&number);
        // After a burst the memory is given back.
        if self.entries.is_empty() {
            self.entries.shrink_to_fit();
        }
        entry
    }
}
