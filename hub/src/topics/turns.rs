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
    under_way: Arc<Mutex<HashMap<TopicUrl, PingId>>>,
    /// Tells those who wait before trying again that a ping has come in.
    pinged: Arc<Notify>,
}

impl Turns {
    /// Whether the ping's topic is being worked on, which is then repeated for this ping. Otherwise the caller has to
    /// [`Turns::serve`] it.
    pub(super) fn joins(&self, ping: &Ping) -> bool {
        let joins = self.under_way().insert(ping.topic.clone(), ping.id).is_some();
        self.pinged.notify_waiters();
        joins
    }

    /// Works for this ping, and for those that came meanwhile, until none is left. A panic ends one round and nothing else.
    pub(super) async fn serve<F>(&self, mut ping: Ping, work: impl Fn(Ping) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            // A task of its own, so that a panic ends there.
            if let Err(fault) = tokio::spawn(work(ping.clone())).await {
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
        loop {
            let pinged = self.pinged.notified();
            if self.under_way().get(&ping.topic) != Some(&ping.id) {
                return;
            }
            pinged.await;
        }
    }

    /// The ping that came while this one was served; without one the topic is no longer worked on.
    fn newer(&self, served: &Ping) -> Option<PingId> {
        let mut under_way = self.under_way();
        let newest = under_way.get(&served.topic).copied().filter(|newest| *newest != served.id);
        if newest.is_none() {
            under_way.remove(&served.topic);
        }
        newest
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<TopicUrl, PingId>> {
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
        assert!(!turns.joins(&ping(1)));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.id.0);
                    if round.id.0 == 1 {
                        assert!(turns.joins(&ping(2)) && turns.joins(&ping(3)));
                        turns.until_newer(&round).await;
                    }
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [1, 3]);
        assert!(!turns.joins(&ping(4)), "nothing is left of them");
    }

    #[tokio::test]
    async fn a_panic_swallows_no_later_ping() {
        let (turns, rounds) = (Turns::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!turns.joins(&ping(1)));
        let (inner, seen) = (turns.clone(), Arc::clone(&rounds));
        turns
            .serve(ping(1), move |round| {
                let (turns, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.id.0);
                    if round.id.0 == 1 {
                        turns.joins(&ping(2));
                    }
                    assert_ne!(round.id.0, 1, "a fault, on purpose");
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [1, 2]);
        assert!(!turns.joins(&ping(3)));
    }
}
