//! Concurrency limits for requests that clients cause: in all, per peer that is asked, and per client.
//!
//! Part of each limit is reserved for trusted clients, so that strangers hold up no subscription in force and no publisher
//! with a token. One confirmation makes a client trusted, so both classes get few permits at peers that timed out recently (B-33).
//!
//! A waiting client is an entry of fixed size in `queues`. It needs no task and keeps no text.

mod queues;

use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use resync_common::locks::lock;
use tokio::sync::{mpsc, oneshot};

use self::queues::{EntryId, Grant, NONE, Notify, Queues};
pub(crate) use self::queues::{FEW, KEPT_ONE_IN, Peer};

/// How many requests may be under way at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConcurrencyLimits {
    /// In all.
    pub(crate) total: Limit,
    /// Among them, those to peers that timed out recently.
    pub(crate) slow: SlowLimit,
    /// To one peer: an origin, a host or a network.
    pub(crate) peer: Limit,
    /// For one client; `None` where limits are off.
    pub(crate) client: Option<Limit>,
}

/// A number of permits; what strangers may not use is reserved for trusted clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// For all clients together.
    pub(crate) total: usize,
    /// For strangers among them.
    pub(crate) strangers: usize,
}

/// A number of permits for each class; neither class uses those of the other. If `trusted` is less than what strangers leave
/// of the total, trusted clients can always reach quick peers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowLimit {
    /// For trusted clients.
    pub(crate) trusted: usize,
    /// For strangers.
    pub(crate) strangers: usize,
}

/// The client that causes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its network: an IPv4 address, or a block of IPv6 addresses that one customer has; `None` if it is unknown, as after a restart.
    pub network: Option<IpAddr>,
    /// Whether it is trusted.
    pub class: ClientClass,
}

impl Client {
    /// Whether it is trusted.
    pub fn is_trusted(&self) -> bool {
        self.class == ClientClass::Trusted
    }
}

/// Whether a client may use what is reserved for trusted clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// It has a token, confirmed earlier requests, or asks about a subscription in force.
    Trusted,
    /// Any other client.
    Stranger,
}

impl Limit {
    fn times(self, factor: usize) -> Self {
        Self { total: self.total * factor, strangers: self.strangers * factor }
    }
}

/// Hands out permits within the limits. Clones share them.
#[derive(Clone, Debug)]
pub struct Limiter(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Hashes the names of peers without taking the lock.
    hasher: RandomState,
    queues: Mutex<Queues>,
}

/// Receives the permits of entries that wait without a task, each with the number that [`Limiter::enqueue`] was given.
pub(crate) type GrantSender = mpsc::UnboundedSender<(u64, Permit)>;

/// The right to send a request now; dropping it gives it back.
#[derive(Debug)]
pub struct Permit {
    limiter: Limiter,
    id: EntryId,
}

impl Limiter {
    pub(crate) fn new(bounds: ConcurrencyLimits) -> Self {
        Self(Arc::new(Shared { hasher: RandomState::new(), queues: Mutex::new(Queues::new(bounds)) }))
    }

    /// Waits for a permit for a request to `peer`. While it waits for the limit of its client or of a slow peer, it uses up
    /// no permit that others could have.
    pub(crate) async fn acquire(&self, client: Client, peer: &str) -> Permit {
        let (notify, granted_now) = oneshot::channel();
        let peer = self.peer(peer);
        let (id, granted) = {
            let mut queues = self.queues();
            let id = queues.insert(client, peer);
            (id, queues.enqueue(id, Notify::Task(notify)))
        };
        let permit = Permit { limiter: self.clone(), id };
        self.hand_over(granted);
        // The queues keep the sender until the grant, and the grant comes as long as the entry exists.
        let _ = granted_now.await;
        permit
    }

    /// Queues for a permit, which is sent to `grants` with this number. If nobody receives there any more, the next entry
    /// gets the permit.
    pub(crate) fn enqueue(&self, client: Client, peer: Peer, grants: &GrantSender, number: u64) {
        let granted = {
            let mut queues = self.queues();
            let id = queues.insert(client, peer);
            queues.enqueue(id, Notify::Channel(grants.clone(), number))
        };
        self.hand_over(granted);
    }

    /// The name of a peer as a hash, so that waiting entries keep no text.
    pub(crate) fn peer(&self, peer: &str) -> Peer {
        Peer::of(&self.0.hasher, peer)
    }

    /// A permit, if one is free now.
    pub(crate) fn try_acquire(&self, client: Client, peer: &str) -> Option<Permit> {
        let peer = self.peer(peer);
        let id = self.queues().try_insert(client, peer)?;
        Some(Permit { limiter: self.clone(), id })
    }

    /// The limits themselves.
    pub(crate) fn limits(&self) -> ConcurrencyLimits {
        self.queues().bounds()
    }

    /// A permit for what was admitted before a restart. It counts even beyond the limits: nothing new is admitted until enough
    /// permits are back.
    pub(crate) fn force_acquire(&self, client: Client, peer: &str) -> Permit {
        let peer = self.peer(peer);
        let id = self.queues().force_insert(client, peer);
        Permit { limiter: self.clone(), id }
    }

    /// Notifies the entries that got their permits. A permit that nobody takes goes to the next entry.
    fn hand_over(&self, mut granted: Vec<Grant>) {
        while let Some(Grant { id, notify }) = granted.pop() {
            match notify {
                // A task that stopped waiting drops its permit, which removes the entry.
                Notify::Task(task) => drop(task.send(())),
                Notify::Channel(grants, _) if grants.is_closed() => granted.extend(self.queues().remove(id)),
                Notify::Channel(grants, number) => {
                    let _ = grants.send((number, Permit { limiter: self.clone(), id }));
                }
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        lock(&self.0.queues)
    }
}

impl Permit {
    /// Exchanges this permit for one for `peer`, waiting for it if it is another one.
    pub(crate) async fn move_to(&mut self, peer: &str) {
        let (notify, granted_now) = oneshot::channel();
        let peer = self.limiter.peer(peer);
        let granted = {
            let mut queues = self.limiter.queues();
            if queues.has_permit_at(self.id, peer) {
                return;
            }
            queues.move_to(self.id, peer, Notify::Task(notify))
        };
        self.limiter.hand_over(granted);
        let _ = granted_now.await;
    }

    /// Gives back the shares that all clients compete for, as during a pause. The shares of client and peer are kept, so that
    /// nobody gains by asking for more.
    pub(crate) fn release_shared(&self) {
        let granted = self.limiter.queues().release_shared(self.id);
        self.limiter.hand_over(granted);
    }

    /// Queues again, as in [`Limiter::enqueue`], for what [`Permit::release_shared`] gave back.
    pub(crate) fn requeue(mut self, grants: &GrantSender, number: u64) {
        // From here on the queues own the entry.
        let id = std::mem::replace(&mut self.id, NONE);
        let granted = self.limiter.queues().enqueue(id, Notify::Channel(grants.clone(), number));
        self.limiter.hand_over(granted);
    }

    /// Remembers whether this peer timed out.
    pub(crate) fn set_slow(&self, slow: bool) {
        self.limiter.queues().set_slow(self.id, slow);
    }

    /// Remembers that a request of this client timed out, whatever the peer: a host has any number of names. Only time ends this,
    /// since a client that causes timeouts can also cause answers.
    pub(crate) fn set_client_slow(&self) {
        self.limiter.queues().set_client_slow(self.id);
    }

    /// Whether this peer, or a request of this client, timed out recently.
    #[cfg(test)]
    pub(crate) fn is_slow(&self) -> bool {
        self.limiter.queues().is_slow(self.id)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.id != NONE {
            let granted = self.limiter.queues().remove(self.id);
            self.limiter.hand_over(granted);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::queues::FEW;
    use super::*;
    use crate::rate_limiter::CLIENTS_OF_ONE_SITE;

    const STRANGER: Client = Client { network: None, class: ClientClass::Stranger };
    const KNOWN: Client = Client { network: None, class: ClientClass::Trusted };

    fn bounds() -> ConcurrencyLimits {
        let limit = |total, strangers| Limit { total, strangers };
        let slow = SlowLimit { trusted: 1, strangers: 1 };
        ConcurrencyLimits { total: limit(5, 4), slow, peer: limit(3, 2), client: Some(limit(2, 1)) }
    }

    fn limiter() -> Limiter {
        Limiter::new(bounds())
    }

    fn of(last: u8, class: ClientClass) -> Client {
        Client { network: Some(IpAddr::from([192, 0, 2, last])), class }
    }

    /// A permit that is free.
    fn now(limiter: &Limiter, peer: &str, client: Client) -> Option<Permit> {
        limiter.acquire(client, peer).now_or_never()
    }

    #[tokio::test]
    async fn b33_a_slow_host_holds_up_nobody_else() {
        let limiter = limiter();
        let mut slow: Vec<_> = (0..2).filter_map(|_| now(&limiter, "slow", STRANGER)).collect();
        let mut third = Box::pin(limiter.acquire(STRANGER, "slow"));
        assert!(third.as_mut().now_or_never().is_none());
        assert!(now(&limiter, "quick", STRANGER).is_some());
        slow.pop();
        third.await;
    }

    #[test]
    fn b33_strangers_leave_permits_for_trusted_clients_in_all_and_at_each_host() {
        for take in [now, |limiter: &Limiter, peer: &str, client| limiter.try_acquire(client, peer)] {
            let limiter = limiter();
            let _strangers: Vec<_> = ["a", "a", "b", "b"]
                .into_iter()
                .map(|peer| take(&limiter, peer, STRANGER).unwrap())
                .collect();
            assert!(take(&limiter, "c", STRANGER).is_none() && take(&limiter, "a", STRANGER).is_none());
            let known = take(&limiter, "a", KNOWN).unwrap();
            assert!(take(&limiter, "d", KNOWN).is_none(), "that was the last");
            drop(known);
            assert!(take(&limiter, "d", KNOWN).is_some());
        }
    }

    #[test]
    fn b33_who_was_let_in_before_counts_even_beyond_the_bounds_until_it_leaves() {
        let limiter = limiter();
        let let_in = |number: u8| limiter.force_acquire(of(1, ClientClass::Stranger), &number.to_string());
        let mut before: Vec<_> = (0..6).map(let_in).collect();
        assert!(
            limiter.try_acquire(of(2, ClientClass::Trusted), "elsewhere").is_none(),
            "six have what five may have"
        );
        before.truncate(3);
        assert!(limiter.try_acquire(of(2, ClientClass::Stranger), "elsewhere").is_some());
        assert!(
            limiter.try_acquire(of(1, ClientClass::Stranger), "elsewhere").is_none(),
            "its client has three"
        );
        before.clear();
        assert!(limiter.queues().are_empty());
    }

    #[test]
    fn b33_one_client_takes_its_share_and_leaves_the_others_theirs() {
        for take in [now, |limiter: &Limiter, peer: &str, client| limiter.try_acquire(client, peer)] {
            let limiter = limiter();
            let _own = take(&limiter, "a", of(1, ClientClass::Stranger)).unwrap();
            assert!(take(&limiter, "b", of(1, ClientClass::Stranger)).is_none());
            assert!(take(&limiter, "b", of(2, ClientClass::Stranger)).is_some());
            let _renewal = take(&limiter, "b", of(1, ClientClass::Trusted)).unwrap();
            assert!(
                take(&limiter, "b", of(1, ClientClass::Trusted)).is_none(),
                "known clients have a share too"
            );
        }
    }

    #[test]
    fn b33_the_networks_of_one_site_share_what_a_few_clients_have() {
        for take in [now, |limiter: &Limiter, peer: &str, client| limiter.try_acquire(client, peer)] {
            let limiter = Limiter::new(ConcurrencyLimits {
                total: Limit { total: 99, strangers: 99 },
                peer: Limit { total: 99, strangers: 99 },
                ..bounds()
            });
            let at = |site: u16, network: u16| Client {
                network: Some(IpAddr::from([0x2001, 0xdb8, site, network, 0, 0, 0, 0])),
                class: ClientClass::Stranger,
            };
            let networks = 0..u16::try_from(CLIENTS_OF_ONE_SITE).unwrap();
            let taken: Vec<_> =
                networks.map(|network| take(&limiter, "a", at(1, network)).unwrap()).collect();
            assert!(take(&limiter, "a", at(1, 99)).is_none());
            assert!(
                take(&limiter, "a", at(2, 99)).is_some()
                    && take(&limiter, "a", of(1, ClientClass::Stranger)).is_some()
            );
            drop(taken);
            assert!(take(&limiter, "a", at(1, 99)).is_some());
        }
    }

    /// Room for 5,000 to wait, in all and at one host, and for 1,000 of one client.
    fn waiting_room() -> Limiter {
        let limit = |total, strangers| Limit { total, strangers };
        let (total, slow) = (limit(5_000, 4_000), SlowLimit { trusted: 5_000, strangers: 4_000 });
        Limiter::new(ConcurrencyLimits { total, slow, peer: total, client: Some(limit(1_000, 1_000)) })
    }

    /// As many permits as this client gets.
    fn all(limiter: &Limiter, peer: &str, client: Client) -> Vec<Permit> {
        (0..).map_while(|_| limiter.try_acquire(client, peer)).collect()
    }

    #[test]
    fn b33_whoever_has_nothing_waiting_gets_in_after_twenty_who_took_all_they_could() {
        let limiter = waiting_room();
        let greedy: Vec<_> =
            (1..=20).map(|last| all(&limiter, "a", of(last, ClientClass::Trusted))).collect();
        assert_eq!(greedy[0].len(), 1_000, "whoever is alone has its whole share");
        let took: usize = greedy.iter().map(Vec::len).sum();
        assert!((4_500..5_000).contains(&took), "{took}");
        assert_eq!(all(&limiter, "a", of(99, ClientClass::Trusted)).len(), FEW);
        assert_eq!(all(&limiter, "a", of(1, ClientClass::Trusted)).len(), 0);
    }

    #[test]
    fn b33_the_networks_of_a_site_have_of_the_last_places_to_wait_what_four_clients_have() {
        let limiter = waiting_room();
        let _greedy: Vec<_> =
            (1..=5).map(|last| all(&limiter, "a", of(last, ClientClass::Trusted))).collect();
        let of_site = (0..10).map(|network: u16| {
            let network = Some(IpAddr::from([0x2001, 0xdb8, 1, network, 0, 0, 0, 0]));
            all(&limiter, "a", Client { network, class: ClientClass::Trusted })
        });
        let of_site: Vec<_> = of_site.collect();
        assert_eq!(of_site.iter().map(Vec::len).sum::<usize>(), CLIENTS_OF_ONE_SITE * FEW);
    }

    #[test]
    fn b33_strangers_use_no_places_to_wait_that_are_kept_for_trusted_clients_with_few() {
        let limiter = waiting_room();
        let _greedy: Vec<_> =
            (1..=5).map(|last| all(&limiter, "a", of(last, ClientClass::Trusted))).collect();
        let of_strangers = all(&limiter, "b", of(50, ClientClass::Stranger));
        assert_eq!(of_strangers.len(), 0);
        assert_eq!(all(&limiter, "b", of(51, ClientClass::Trusted)).len(), FEW);
    }

    #[test]
    fn b33_trusted_clients_share_few_permits_at_a_slow_host_and_leave_those_of_strangers() {
        let limiter = limiter();
        now(&limiter, "tarpit", KNOWN).unwrap().set_slow(true);
        let _first = now(&limiter, "tarpit", KNOWN).unwrap();
        assert!(now(&limiter, "tarpit", KNOWN).is_none());
        assert!(now(&limiter, "quick", KNOWN).is_some() && now(&limiter, "tarpit", STRANGER).is_some());
    }

    #[test]
    fn b33_a_client_of_slow_hosts_has_few_permits_under_any_new_name() {
        let limiter = limiter();
        now(&limiter, "one", of(1, ClientClass::Trusted)).unwrap().set_client_slow();
        now(&limiter, "quick", of(1, ClientClass::Trusted)).unwrap().set_slow(false);
        let _two = now(&limiter, "two", of(1, ClientClass::Trusted)).unwrap();
        assert!(now(&limiter, "three", of(1, ClientClass::Trusted)).is_none());
        assert!(now(&limiter, "one", of(2, ClientClass::Trusted)).is_some(), "it was the client's doing");
    }

    #[test]
    fn b33_strangers_share_few_permits_at_a_slow_host_until_it_is_quick_again() {
        let limiter = limiter();
        for peer in ["tarpit", "swamp"] {
            let permit = now(&limiter, peer, STRANGER).unwrap();
            permit.set_slow(true);
            assert!(permit.is_slow());
        }
        let first = now(&limiter, "tarpit", STRANGER).unwrap();
        assert!(now(&limiter, "swamp", STRANGER).is_none(), "whatever it is called");
        assert!(now(&limiter, "swamp", KNOWN).is_some() && now(&limiter, "quick", STRANGER).is_some());
        drop(first);
        let second = now(&limiter, "swamp", STRANGER).unwrap();
        second.set_slow(false);
        assert!(now(&limiter, "tarpit", STRANGER).is_none());
        assert!(now(&limiter, "swamp", STRANGER).is_some(), "it was quick");
    }

    #[tokio::test]
    async fn b33_a_redirected_request_needs_a_permit_there_and_gives_back_its_own() {
        let limiter = limiter();
        let _others: Vec<_> = (0..2).map(|_| now(&limiter, "victim", STRANGER).unwrap()).collect();
        let mut sent = now(&limiter, "start", STRANGER).unwrap();
        let _beside = now(&limiter, "start", STRANGER).unwrap();
        assert!(sent.move_to("victim").now_or_never().is_none());
        assert!(now(&limiter, "start", STRANGER).is_some(), "it has left");
    }

    #[test]
    fn who_gives_way_keeps_only_what_is_its_own_and_waits_for_its_turn() {
        let limiter = limiter();
        let (turns, mut come) = mpsc::unbounded_channel();
        let crowded = now(&limiter, "a", of(1, ClientClass::Stranger)).unwrap();
        let _others: Vec<_> =
            ["b", "b", "c"].into_iter().map(|peer| now(&limiter, peer, STRANGER).unwrap()).collect();
        assert!(now(&limiter, "d", STRANGER).is_none());
        crowded.release_shared();
        let other = now(&limiter, "d", STRANGER);
        assert!(other.is_some() && now(&limiter, "e", of(1, ClientClass::Stranger)).is_none());
        crowded.requeue(&turns, 7);
        assert!(come.try_recv().is_err(), "it waits for its turn");
        drop(other);
        assert_eq!(come.try_recv().unwrap().0, 7);
    }

    #[test]
    fn who_waits_without_a_task_is_told_in_its_turn_and_who_is_gone_is_passed_over() {
        let limiter = limiter();
        let ((turns, mut come), (gone, _)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let taken: Vec<_> = (0..2).map(|_| now(&limiter, "a", STRANGER).unwrap()).collect();
        let peer = limiter.peer("a");
        limiter.enqueue(STRANGER, peer, &gone, 1);
        limiter.enqueue(STRANGER, peer, &turns, 2);
        limiter.enqueue(KNOWN, peer, &turns, 3);
        assert_eq!(come.try_recv().unwrap().0, 3, "a permit is kept for the known");
        assert!(come.try_recv().is_err());
        drop(taken);
        assert_eq!(come.try_recv().unwrap().0, 2);
        assert!(limiter.queues().are_empty(), "nobody kept its permit");
    }

    #[test]
    fn many_who_wait_for_somebody_gone_are_passed_over_one_after_the_other() {
        let limiter = limiter();
        let (gone, _) = mpsc::unbounded_channel();
        let taken: Vec<_> = (0..2).map(|_| now(&limiter, "a", STRANGER).unwrap()).collect();
        let peer = limiter.peer("a");
        (0..100_000).for_each(|number| limiter.enqueue(STRANGER, peer, &gone, number));
        drop(taken);
        assert!(limiter.queues().are_empty());
    }

    #[test]
    fn b33_nothing_is_remembered_of_those_who_are_gone() {
        let limiter = limiter();
        let taken: Vec<_> = (0..4)
            .map(|number| now(&limiter, &number.to_string(), of(number, ClientClass::Stranger)).unwrap())
            .collect();
        assert!(now(&limiter, "in vain", of(9, ClientClass::Stranger)).is_none());
        assert!(limiter.try_acquire(of(9, ClientClass::Stranger), "in vain").is_none());
        drop(taken);
        assert!(limiter.queues().are_empty());
    }
}
