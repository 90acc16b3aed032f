//! One worker for each topic, however many pings come: those that come while it works are one more round.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use resync_core::websub::TopicUrl;
use tokio::sync::Notify;
use tracing::error;

use crate::store::{Ping, PingId};

/// The newest ping of each topic that is being worked on.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    under_way: Arc<Mutex<HashMap<TopicUrl, Newest>>>,
    /// Tells those who wait before trying again that a ping has come in.
    pinged: Arc<Notify>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    id: PingId,
    /// Somebody with a token has pinged since the last round began.
    known: bool,
}

impl Turns {
    /// Whether the ping's topic is being worked on, which is then repeated for this ping. Otherwise the caller has to
    /// [`Turns::serve`] it.
    pub(super) fn joins(&self, ping: &Ping, known: bool) -> bool {
        let mut under_way = self.under_way();
        let before = under_way.get(&ping.topic).copied();
        let known = known || before.is_some_and(|before| before.known);
        under_way.insert(ping.topic.clone(), Newest { id: ping.id, known });
        drop(under_way);
        self.pinged.notify_waiters();
        before.is_some()
    }

    /// Works for this ping, and for those that came meanwhile, until none is left; `work` hears whether somebody known was among
    /// them. A panic ends one round and nothing else.
    pub(super) async fn serve<F>(&self, mut ping: Ping, work: impl Fn(Ping, bool) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            // A task of its own, so that a panic ends there.
            if let Err(fault) = tokio::spawn(work(ping.clone(), self.take_known(&ping))).await {
                error!(topic = ping.topic.as_str(), %fault, "fetching the topic failed by a fault of the hub's");
            }
            match self.newer(&ping) {
                Some(newer) => ping.id = newer,
                None => return,
            }
        }
    }

    /// Waits for another ping of the same topic.
    pub(super) async fn until_newer(&self, ping: &Ping) {
        self.until(ping, |newest| newest.id != ping.id).await;
    }

    /// Waits for a ping of the same topic by somebody known.
    pub(super) async fn until_known(&self, ping: &Ping) {
        self.until(ping, |newest| newest.known).await;
    }

    async fn until(&self, ping: &Ping, condition: impl Fn(Newest) -> bool) {
        loop {
            let pinged = self.pinged.notified();
            if self.under_way().get(&ping.topic).copied().is_none_or(&condition) {
                return;
            }
            pinged.await;
        }
    }

    /// Whether the round that begins is for somebody known too.
    fn take_known(&self, ping: &Ping) -> bool {
        self.under_way().get_mut(&ping.topic).is_some_and(|newest| std::mem::take(&mut newest.known))
    }

    /// The ping that came while this one was served; without one the topic is no longer worked on.
    fn newer(&self, served: &Ping) -> Option<PingId> {
        let mut under_way = self.under_way();
        let newest =
            under_way.get(&served.topic).map(|newest| newest.id).filter(|newest| *newest != served.id);
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
    use super::*;

    fn ping(id: u64) -> Ping {
        Ping { id: PingId(id), topic: "http://source.example/feed".parse().unwrap() }
    }

    #[tokio::test]
    async fn pings_that_come_meanwhile_are_one_more_round() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!turns.joins(&ping(1), false));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round, _| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.id.0);
                    if round.id.0 == 1 {
                        assert!(turns.joins(&ping(2), false) && turns.joins(&ping(3), false));
                        turns.until_newer(&round).await;
                    }
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [1, 3]);
        assert!(!turns.joins(&ping(4), false), "nothing is left of them");
    }

    #[tokio::test]
    async fn a_panic_swallows_no_later_ping() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!turns.joins(&ping(1), false));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round, _| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.id.0);
                    if round.id.0 == 1 {
                        turns.joins(&ping(2), false);
                    }
                    assert_ne!(round.id.0, 1, "a fault, on purpose");
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [1, 2]);
        assert!(!turns.joins(&ping(3), false));
    }

    #[tokio::test]
    async fn who_is_known_is_known_for_the_round_that_waits_and_for_the_next_one_only() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!turns.joins(&ping(1), false));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round, known| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push((round.id.0, known));
                    if round.id.0 == 1 {
                        assert!(turns.joins(&ping(2), true) && turns.joins(&ping(3), false));
                        turns.until_known(&round).await;
                    } else if round.id.0 == 3 {
                        turns.joins(&ping(4), false);
                    }
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [(1, false), (3, true), (4, false)]);
    }
}
