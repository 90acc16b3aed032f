//! Single flight: one fetch per topic at a time, however many pings come. Those that come meanwhile share one more round.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use resync_common::locks::lock;
use resync_core::websub::TopicUrl;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::error;

use crate::concurrency::Client;
use crate::store::{Ping, PingId};
use crate::telemetry::TraceContext;

/// Strangers with whose permits a topic may be fetched. Trusted clients come on top.
const STRANGERS: usize = 8;

/// The newest ping of each topic that is being fetched. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct SingleFlight {
    under_way: Arc<Mutex<HashMap<TopicUrl, Flight>>>,
}

#[derive(Debug)]
struct Flight {
    id: PingId,
    /// The trace of the last ping since the round began that has one.
    trace: Option<TraceContext>,
    /// The clients that pinged since the round began.
    clients: Vec<Client>,
    /// Signals a new ping of this topic.
    pinged: Arc<Notify>,
}

impl Flight {
    fn join(&mut self, client: Client) {
        let strangers = || self.clients.iter().filter(|client| !client.is_trusted()).count();
        if !self.clients.contains(&client) && (client.is_trusted() || strangers() < STRANGERS) {
            self.clients.push(client);
        }
    }
}

impl SingleFlight {
    /// Whether the ping's topic is being fetched, and will be again for this ping. Otherwise the caller has to
    /// [`SingleFlight::serve`] it.
    pub(super) fn join(&self, ping: &Ping, client: Client) -> bool {
        match self.under_way().entry(ping.topic.clone()) {
            Entry::Occupied(mut entry) => {
                let flight = entry.get_mut();
                // One that was read in the store may come behind a newer one, which must not count as done with it.
                (flight.id, flight.trace) = (flight.id.max(ping.id), ping.trace.or(flight.trace));
                flight.join(client);
                flight.pinged.notify_waiters();
                true
            }
            Entry::Vacant(entry) => {
                let Ping { id, trace, .. } = *ping;
                entry.insert(Flight { id, trace, clients: vec![client], pinged: Arc::default() });
                false
            }
        }
    }

    /// Works for this ping, then for those that came meanwhile, until none is left. `work` gets the clients that pinged. A panic
    /// ends one round and nothing else.
    pub(super) async fn serve<F>(&self, mut ping: Ping, work: impl Fn(Ping, Vec<Client>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            // A task of its own, so that a panic ends there; it ends with its caller, too.
            let mut round = JoinSet::new();
            round.spawn(work(ping.clone(), self.begin_round(&ping)));
            if let Some(Err(fault)) = round.join_next().await {
                error!(topic = ping.topic.as_str(), %fault, "topic not fetched: the task panicked");
            }
            match self.newer(&ping) {
                Some(newer) => (ping.id, ping.trace) = newer,
                None => return,
            }
        }
    }

    /// Whether the topic is pinged again within this pause. Then the next round is for these clients too.
    pub(super) async fn is_pinged_within(&self, pause: Duration, ping: &Ping, clients: &[Client]) -> bool {
        let is_pinged = timeout(pause, self.until_newer(ping)).await.is_ok();
        if is_pinged {
            self.rejoin(ping, clients);
        }
        is_pinged
    }

    /// Waits until more than so many clients pinged the same topic since the round began, and returns the others.
    pub(super) async fn until_joined(&self, ping: &Ping, than: usize) -> Vec<Client> {
        let more =
            |flight: &Flight| Some(flight.clients.get(than..)?.to_vec()).filter(|more| !more.is_empty());
        self.until(ping, more).await.unwrap_or_default()
    }

    /// Adds the clients of this round to the next: it ends for a newer ping before the topic was fetched.
    fn rejoin(&self, ping: &Ping, clients: &[Client]) {
        if let Some(flight) = self.under_way().get_mut(&ping.topic) {
            flight.trace = flight.trace.or(ping.trace);
            for client in clients {
                flight.join(*client);
            }
        }
    }

    /// Waits for another ping of the same topic.
    async fn until_newer(&self, ping: &Ping) {
        self.until(ping, |flight| (flight.id != ping.id).then_some(())).await;
    }

    /// Waits until `find` finds something; `None` when the topic is no longer fetched.
    async fn until<T>(&self, ping: &Ping, find: impl Fn(&Flight) -> Option<T>) -> Option<T> {
        loop {
            // Made before the lock is free for the next ping, so that none is missed.
            let pinged = {
                let under_way = self.under_way();
                let flight = under_way.get(&ping.topic)?;
                if let Some(found) = find(flight) {
                    return Some(found);
                }
                Arc::clone(&flight.pinged).notified_owned()
            };
            pinged.await;
        }
    }

    /// Begins a round, with the trace of the ping, and returns its clients.
    fn begin_round(&self, ping: &Ping) -> Vec<Client> {
        let mut under_way = self.under_way();
        let Some(flight) = under_way.get_mut(&ping.topic) else { return Vec::new() };
        if flight.id == ping.id {
            flight.trace = None;
        }
        std::mem::take(&mut flight.clients)
    }

    /// The ping that came during this round; without one the flight ends.
    fn newer(&self, served: &Ping) -> Option<(PingId, Option<TraceContext>)> {
        let mut under_way = self.under_way();
        let flight = under_way.get(&served.topic).map(|flight| (flight.id, flight.trace));
        let flight = flight.filter(|(flight, _)| *flight != served.id);
        if flight.is_none() {
            under_way.remove(&served.topic);
        }
        flight
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<TopicUrl, Flight>> {
        lock(&self.under_way)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::concurrency::ClientClass;
    use crate::store::PingClient;

    /// Whether a task was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    const STRANGER: Client = Client { network: None, class: ClientClass::Stranger };
    const KNOWN: Client = Client { network: None, class: ClientClass::Trusted };

    fn ping(id: u64) -> Ping {
        Ping {
            id: PingId(id),
            topic: "http://source.example/feed".parse().unwrap(),
            trace: None,
            client: PingClient::default(),
        }
    }

    #[tokio::test]
    async fn pings_that_come_meanwhile_are_one_more_round() {
        let (flights, rounds) = (SingleFlight::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!flights.join(&ping(1), STRANGER));
        let (inner, seen) = (flights.clone(), Arc::clone(&rounds));
        flights
            .serve(ping(1), move |round, _| {
                let (flights, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.id.0);
                    if round.id.0 == 1 {
                        assert!(flights.join(&ping(2), STRANGER) && flights.join(&ping(3), STRANGER));
                        flights.until_newer(&round).await;
                    }
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [1, 3]);
        assert!(!flights.join(&ping(4), STRANGER), "nothing is left of them");
    }

    #[tokio::test]
    async fn a_ping_that_comes_behind_a_newer_one_is_of_its_round() {
        let (flights, rounds) = (SingleFlight::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!flights.join(&ping(2), STRANGER));
        assert!(flights.join(&ping(1), KNOWN));
        let seen = Arc::clone(&rounds);
        flights
            .serve(ping(2), move |round, clients| {
                let seen = Arc::clone(&seen);
                async move {
                    seen.lock().unwrap().push((round.id.0, clients));
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [(2, vec![STRANGER, KNOWN])]);
        assert!(!flights.join(&ping(3), STRANGER), "nothing is left of them");
    }

    #[tokio::test]
    async fn each_round_is_of_the_newest_trace_of_those_that_ping_for_it() {
        let (flights, rounds) = (SingleFlight::default(), Arc::new(Mutex::new(Vec::new())));
        let traces = [TraceContext::begin(), TraceContext::begin()].map(Some);
        let first = Ping { trace: traces[0], ..ping(1) };
        assert!(!flights.join(&first, STRANGER));
        let (inner, seen) = (flights.clone(), Arc::clone(&rounds));
        flights
            .serve(first, move |round, _| {
                let (flights, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.trace);
                    match round.id.0 {
                        1 => {
                            assert!(flights.join(&Ping { trace: traces[1], ..ping(2) }, KNOWN));
                            assert!(flights.join(&ping(3), STRANGER));
                        }
                        // Gives way.
                        3 => {
                            assert!(flights.join(&ping(4), STRANGER));
                            flights.rejoin(&round, &[]);
                        }
                        4 => assert!(flights.join(&ping(5), STRANGER)),
                        _ => {}
                    }
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [traces[0], traces[1], traces[1], None]);
    }

    #[tokio::test]
    async fn a_panic_swallows_no_later_ping() {
        let (flights, rounds) = (SingleFlight::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!flights.join(&ping(1), STRANGER));
        let (inner, seen) = (flights.clone(), Arc::clone(&rounds));
        flights
            .serve(ping(1), move |round, _| {
                let (flights, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(round.id.0);
                    if round.id.0 == 1 {
                        flights.join(&ping(2), STRANGER);
                    }
                    assert_ne!(round.id.0, 1, "a fault, on purpose");
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [1, 2]);
        assert!(!flights.join(&ping(3), STRANGER));
    }

    #[tokio::test]
    async fn who_pings_while_a_round_waits_joins_it_and_is_of_the_next_one_and_no_later_one() {
        let (flights, rounds) = (SingleFlight::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!flights.join(&ping(1), STRANGER));
        let (inner, seen) = (flights.clone(), Arc::clone(&rounds));
        flights
            .serve(ping(1), move |round, clients| {
                let (flights, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push((round.id.0, clients));
                    if round.id.0 == 1 {
                        assert!(flights.join(&ping(2), KNOWN));
                        assert_eq!(flights.until_joined(&round, 0).await, [KNOWN]);
                        assert!(flights.join(&ping(3), STRANGER) && flights.join(&ping(3), KNOWN));
                        assert_eq!(flights.until_joined(&round, 1).await, [STRANGER], "nobody twice");
                    } else if round.id.0 == 3 {
                        flights.join(&ping(4), STRANGER);
                    }
                }
            })
            .await;
        let expected = [(1, vec![STRANGER]), (3, vec![KNOWN, STRANGER]), (4, vec![STRANGER])];
        assert_eq!(*rounds.lock().unwrap(), expected);
    }

    #[tokio::test]
    async fn who_pinged_before_a_round_gave_way_is_of_the_next_one_too() {
        let (flights, rounds) = (SingleFlight::default(), Arc::new(Mutex::new(Vec::new())));
        assert!(!flights.join(&ping(1), KNOWN));
        let (inner, seen) = (flights.clone(), Arc::clone(&rounds));
        flights
            .serve(ping(1), move |round, clients| {
                let (flights, seen) = (inner.clone(), Arc::clone(&seen));
                async move {
                    if round.id.0 == 1 {
                        flights.join(&ping(2), STRANGER);
                        flights.rejoin(&round, &clients);
                    }
                    seen.lock().unwrap().push((round.id.0, clients));
                }
            })
            .await;
        assert_eq!(*rounds.lock().unwrap(), [(1, vec![KNOWN]), (2, vec![STRANGER, KNOWN])]);
    }

    #[tokio::test]
    async fn b33_a_ping_wakes_nobody_who_waits_for_another_topic() {
        let flights = SingleFlight::default();
        let other = Ping {
            id: PingId(9),
            topic: "http://other.example/".parse().unwrap(),
            trace: None,
            client: PingClient::default(),
        };
        flights.join(&ping(1), STRANGER);
        flights.join(&other, STRANGER);
        let first = ping(1);
        let (woken, mut waiting) = (Arc::new(Woken::default()), pin!(flights.until_newer(&first)));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        flights.join(&other, STRANGER);
        assert!(!woken.0.load(Ordering::SeqCst));
        flights.join(&ping(2), STRANGER);
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }

    #[test]
    fn b33_any_number_of_clients_that_ping_a_topic_take_bounded_memory() {
        let flights = SingleFlight::default();
        flights.join(&ping(1), STRANGER);
        for last in 0..=255 {
            flights.join(&ping(2), Client { network: Some([192, 0, 2, last].into()), ..STRANGER });
        }
        flights.join(&ping(3), KNOWN);
        let clients = flights.begin_round(&ping(1));
        assert_eq!((clients.len(), clients.last()), (STRANGERS + 1, Some(&KNOWN)), "the token counts");
    }
}
