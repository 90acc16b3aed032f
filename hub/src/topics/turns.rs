//! One worker for each topic, however many pings come: those that come while it works are one more round.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resync_core::websub::TopicUrl;
use tokio::sync::Notify;
use tracing::error;

use crate::places::{Asker, Lane};
use crate::store::{Ping, PingId};
use crate::telemetry::TraceContext;

/// Strangers whose turn a topic waits for, each its own; those with a token wait besides.
const STRANGERS: usize = 8;

/// The newest ping of each topic that is being worked on.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    under_way: Arc<Mutex<HashMap<TopicUrl, Newest>>>,
}

#[derive(Debug)]
struct Newest {
    id: PingId,
    /// Of those that have pinged since the last round began, the last that is of one.
    trace: Option<TraceContext>,
    /// Who has pinged since the last round began.
    askers: Vec<Asker>,
    /// Tells those who wait that a ping of this topic has come in.
    pinged: Arc<Notify>,
}

impl Newest {
    fn join(&mut self, asker: Asker) {
        let strangers = || self.askers.iter().filter(|asker| asker.lane == Lane::Stranger).count();
        if !self.askers.contains(&asker) && (asker.lane == Lane::Known || strangers() < STRANGERS) {
            self.askers.push(asker);
        }
    }
}

impl Turns {
    /// Whether the ping's topic is being worked on, which is then repeated for this ping. Otherwise the caller has to
    /// [`Turns::serve`] it.
    pub(super) fn joins(&self, ping: &Ping, asker: Asker) -> bool {
        match self.under_way().entry(ping.topic.clone()) {
            Entry::Occupied(mut entry) => {
                let newest = entry.get_mut();
                (newest.id, newest.trace) = (ping.id, ping.trace.or(newest.trace));
                newest.join(asker);
                newest.pinged.notify_waiters();
                true
            }
            Entry::Vacant(entry) => {
                let Ping { id, trace, .. } = *ping;
                entry.insert(Newest { id, trace, askers: vec![asker], pinged: Arc::default() });
                false
            }
        }
    }

    /// Works for this ping, and for those that came meanwhile, until none is left; `work` hears who pinged. A panic ends one
    /// round and nothing else.
    pub(super) async fn serve<F>(&self, mut ping: Ping, work: impl Fn(Ping, Vec<Asker>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            // A task of its own, so that a panic ends there.
            if let Err(fault) = tokio::spawn(work(ping.clone(), self.begin_round(&ping))).await {
                error!(topic = ping.topic.as_str(), %fault, "fetching the topic failed by a fault of the hub's");
            }
            match self.newer(&ping) {
                Some(newer) => (ping.id, ping.trace) = newer,
                None => return,
            }
        }
    }

    /// Whoever this round was for is of the next one too: it gives way to a newer ping before the topic was fetched.
    pub(super) fn put_back(&self, ping: &Ping, askers: &[Asker]) {
        if let Some(newest) = self.under_way().get_mut(&ping.topic) {
            newest.trace = newest.trace.or(ping.trace);
            for asker in askers {
                newest.join(*asker);
            }
        }
    }

    /// Waits for another ping of the same topic.
    pub(super) async fn until_newer(&self, ping: &Ping) {
        self.until(ping, |newest| (newest.id != ping.id).then_some(())).await;
    }

    /// Waits until more than so many have pinged the same topic since the round began, and returns the others.
    pub(super) async fn until_joined(&self, ping: &Ping, than: usize) -> Vec<Asker> {
        let more =
            |newest: &Newest| Some(newest.askers.get(than..)?.to_vec()).filter(|more| !more.is_empty());
        self.until(ping, more).await.unwrap_or_default()
    }

    /// Waits for what this finds; `None` when nobody works on the topic any more.
    async fn until<T>(&self, ping: &Ping, find: impl Fn(&Newest) -> Option<T>) -> Option<T> {
        loop {
            // Made before the books are free for the next ping, so that none is missed.
            let pinged = {
                let under_way = self.under_way();
                let newest = under_way.get(&ping.topic)?;
                if let Some(found) = find(newest) {
                    return Some(found);
                }
                Arc::clone(&newest.pinged).notified_owned()
            };
            pinged.await;
        }
    }

    /// For whom the round that begins is. Its trace is that of the ping.
    fn begin_round(&self, ping: &Ping) -> Vec<Asker> {
        let mut under_way = self.under_way();
        let Some(newest) = under_way.get_mut(&ping.topic) else { return Vec::new() };
        if newest.id == ping.id {
            newest.trace = None;
        }
        std::mem::take(&mut newest.askers)
    }

    /// The ping that came while this one was served; without one the topic is no longer worked on.
    fn newer(&self, served: &Ping) -> Option<(PingId, Option<TraceContext>)> {
        let mut under_way = self.under_way();
        let newest = under_way.get(&served.topic).map(|newest| (newest.id, newest.trace));
        let newest = newest.filter(|(newest, _)| *newest != served.id);
        if newest.is_none() {
            under_way.remove(&served.topic);
        }
        newest
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<TopicUrl, Newest>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;

    /// Whether a task was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    const STRANGER: Asker = Asker { client: None, lane: Lane::Stranger };
    const KNOWN: Asker = Asker { client: None, lane: Lane::Known };

    fn ping(id: u64) -> Ping {
        Ping { id: PingId(id), topic: "http://source.example/feed".parse().unwrap(), trace: None }
    }

    #[tokio::test]
    async fn pings_that_come_meanwhile_are_one_more_round() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!turns.joins(&ping(1), STRANGER));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round, _| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.id.0);
                    if round.id.0 == 1 {
                        assert!(turns.joins(&ping(2), STRANGER) && turns.joins(&ping(3), STRANGER));
                        turns.until_newer(&round).await;
                    }
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [1, 3]);
        assert!(!turns.joins(&ping(4), STRANGER), "nothing is left of them");
    }

    #[tokio::test]
    async fn each_round_is_of_the_newest_trace_of_those_that_ping_for_it() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        let traces = [TraceContext::begin(), TraceContext::begin()].map(Some);
        let first = Ping { trace: traces[0], ..ping(1) };
        assert!(!turns.joins(&first, STRANGER));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(first, move |round, _| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.trace);
                    match round.id.0 {
                        1 => {
                            assert!(turns.joins(&Ping { trace: traces[1], ..ping(2) }, KNOWN));
                            assert!(turns.joins(&ping(3), STRANGER));
                        }
                        // Gives way.
                        3 => {
                            assert!(turns.joins(&ping(4), STRANGER));
                            turns.put_back(&round, &[]);
                        }
                        4 => assert!(turns.joins(&ping(5), STRANGER)),
                        _ => {}
                    }
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [traces[0], traces[1], traces[1], None]);
    }

    #[tokio::test]
    async fn a_panic_swallows_no_later_ping() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!turns.joins(&ping(1), STRANGER));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round, _| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.id.0);
                    if round.id.0 == 1 {
                        turns.joins(&ping(2), STRANGER);
                    }
                    assert_ne!(round.id.0, 1, "a fault, on purpose");
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [1, 2]);
        assert!(!turns.joins(&ping(3), STRANGER));
    }

    #[tokio::test]
    async fn who_pings_while_a_round_waits_joins_it_and_is_of_the_next_one_and_no_later_one() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!turns.joins(&ping(1), STRANGER));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round, askers| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push((round.id.0, askers));
                    if round.id.0 == 1 {
                        assert!(turns.joins(&ping(2), KNOWN));
                        assert_eq!(turns.until_joined(&round, 0).await, [KNOWN]);
                        assert!(turns.joins(&ping(3), STRANGER) && turns.joins(&ping(3), KNOWN));
                        assert_eq!(turns.until_joined(&round, 1).await, [STRANGER], "nobody twice");
                    } else if round.id.0 == 3 {
                        turns.joins(&ping(4), STRANGER);
                    }
                }
            })
            .await;
        let expected = [(1, vec![STRANGER]), (3, vec![KNOWN, STRANGER]), (4, vec![STRANGER])];
        assert_eq!(*rounds.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn who_pinged_before_a_round_gave_way_is_of_the_next_one_too() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!turns.joins(&ping(1), KNOWN));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round, askers| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    if round.id.0 == 1 {
                        turns.joins(&ping(2), STRANGER);
                        turns.put_back(&round, &askers);
                    }
                    seen.lock().unwrap().push((round.id.0, askers));
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [(1, vec![KNOWN]), (2, vec![STRANGER, KNOWN])]);
    }

    #[tokio::test]
    async fn b33_a_ping_wakes_nobody_who_waits_for_another_topic() {
        let turns = Turns::default();
        let other = Ping { id: PingId(9), topic: "http://other.example/".parse().unwrap(), trace: None };
        turns.joins(&ping(1), STRANGER);
        turns.joins(&other, STRANGER);
        let first = ping(1);
        let (woken, mut waiting) = (Arc::new(Woken::default()), pin!(turns.until_newer(&first)));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        turns.joins(&other, STRANGER);
        assert!(!woken.0.load(Ordering::SeqCst));
        turns.joins(&ping(2), STRANGER);
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn b33_any_number_of_clients_that_ping_a_topic_take_bounded_memory() {
        let turns = Turns::default();
        turns.joins(&ping(1), STRANGER);
        for last in 0..=255 {
            turns.joins(&ping(2), Asker { client: Some([192, 0, 2, last].into()), ..STRANGER });
        }
        turns.joins(&ping(3), KNOWN);
        let askers = turns.begin_round(&ping(1));
        assert_eq!((askers.len(), askers.last()), (STRANGERS + 1, Some(&KNOWN)), "the token counts");
    }
}
