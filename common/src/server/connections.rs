//! Which connections a server serves, so that no client keeps others out. It knows no sockets: the server reports what happens on
//! each connection, and learns which one to close.
//!
//! One client may have all connections while nobody else wants any: a reverse proxy speaks for many. If all are in use, a
//! connection ends to make room for a new one. It is one of a client that has far more than the newcomer, if there is any;
//! then one of the client that has most; and one that waits for a request before one that has a request under way. So each of
//! `n` clients is sure of its part, and nobody keeps a connection without using it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Instant;

use resync_core::address::customer;

/// A client with more than this many times the connections of the newcomer makes room before all others, even with a request
/// under way.
const HOGS: usize = 2;

/// What a connection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Nothing came yet.
    New,
    /// The last request was answered, and no other one has begun.
    Idle,
    /// The header of a request is coming.
    Header,
    /// A request is under way.
    Request,
}

impl Phase {
    /// Connections of the lowest rank end first to make room.
    fn rank(self) -> u8 {
        match self {
            Self::New | Self::Idle => 0,
            Self::Header => 1,
            Self::Request => 2,
        }
    }
}

/// The connections that a server serves now; `H` is what it closes one by.
#[derive(Debug)]
pub(super) struct Connections<H> {
    most: usize,
    /// Never more than `most`.
    served: BTreeMap<u64, Served<H>>,
    next: u64,
}

#[derive(Debug)]
struct Served<H> {
    client: IpAddr,
    phase: Phase,
    since: Instant,
    handle: H,
}

/// A connection that is served.
#[derive(Debug)]
pub(super) struct Taken<H> {
    /// Its number, by which the server speaks of it.
    pub(super) number: u64,
    /// The connection that is served no more, in its place.
    pub(super) ends: Option<H>,
}

impl<H> Connections<H> {
    /// At most `most` at once.
    pub(super) fn new(most: usize) -> Self {
        Self { most, served: BTreeMap::new(), next: 0 }
    }

    /// Takes a new connection; `None` if it is to be closed, since all that are served have more right to it.
    pub(super) fn take(&mut self, peer: IpAddr, now: Instant, handle: H) -> Option<Taken<H>> {
        let client = customer(peer);
        let mut ends = None;
        if self.served.len() >= self.most {
            let number = self.makes_room_for(client)?;
            ends = self.served.remove(&number).map(|served| served.handle);
        }
        let number = self.next;
        self.next += 1;
        self.served.insert(number, Served { client, phase: Phase::New, since: now, handle });
        Some(Taken { number, ends })
    }

    /// Bytes came; whether a header began with them.
    pub(super) fn received(&mut self, number: u64, now: Instant) -> bool {
        let phase = self.phase(number).map(|(phase, _)| phase);
        let begins = matches!(phase, Some(Phase::New | Phase::Idle));
        if begins {
            self.enter(number, Phase::Header, now);
        }
        begins
    }

    /// A request began, or was answered.
    pub(super) fn enter(&mut self, number: u64, phase: Phase, now: Instant) {
        if let Some(served) = self.served.get_mut(&number) {
            (served.phase, served.since) = (phase, now);
        }
    }

    /// What a connection is about and since when; `None` if it is not served any more.
    pub(super) fn phase(&self, number: u64) -> Option<(Phase, Instant)> {
        self.served.get(&number).map(|served| (served.phase, served.since))
    }

    /// A connection has ended.
    pub(super) fn end(&mut self, number: u64) {
        self.served.remove(&number);
    }

    /// Which one ends for a newcomer of this client: nobody who has fewer than the newcomer would have then.
    fn makes_room_for(&self, client: IpAddr) -> Option<u64> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::from([(client, 1)]);
        for served in self.served.values() {
            *counts.entry(served.client).or_default() += 1;
        }
        let count = |client: &IpAddr| counts.get(client).copied().unwrap_or(0);
        let own = count(&client);
        let is_hog = |client: &IpAddr| count(client) > own * HOGS;
        let may_end = |served: &Served<H>| match served.phase {
            Phase::Request => is_hog(&served.client),
            _ => count(&served.client) >= own,
        };
        let candidates = self.served.iter().filter(|(_, served)| may_end(served));
        let first = candidates.min_by_key(|(number, served)| {
            let (is_request, is_hog) = (served.phase == Phase::Request, is_hog(&served.client));
            (!is_hog, is_request, Reverse(count(&served.client)), served.phase.rank(), served.since, **number)
        });
        first.map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn client(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// Who has a connection, with what it is about.
    fn filled(phases: &[(u8, Phase)]) -> (Connections<usize>, Instant) {
        let (mut connections, begin) = (Connections::new(phases.len()), Instant::now());
        for (number, (last, phase)) in phases.iter().enumerate() {
            let now = begin + Duration::from_secs(number as u64);
            let taken = connections.take(client(*last), now, number).unwrap();
            connections.enter(taken.number, *phase, now);
        }
        (connections, begin + Duration::from_secs(phases.len() as u64))
    }

    fn ends_for(last: u8, phases: &[(u8, Phase)]) -> Option<usize> {
        let (mut connections, now) = filled(phases);
        connections.take(client(last), now, usize::MAX).and_then(|taken| taken.ends)
    }

    #[test]
    fn the_client_with_most_connections_makes_room_first_one_that_waits_and_the_oldest_of_them() {
        use Phase::{Header, Idle, New, Request};
        assert_eq!(ends_for(9, &[(1, Idle), (2, Request), (2, Header), (2, New), (2, New)]), Some(3));
        assert_eq!(ends_for(9, &[(1, Idle), (2, Request), (2, Header)]), Some(2), "no other one waits");
        assert_eq!(ends_for(2, &[(1, Idle), (2, Request), (2, New)]), Some(2), "it is the one itself");
        assert_eq!(ends_for(1, &[(1, Header), (1, Idle), (1, New)]), Some(1), "a proxy has them all");
        assert_eq!(ends_for(9, &[(1, Idle), (2, New)]), Some(0), "of equal ones the oldest");
    }

    #[test]
    fn a_request_under_way_makes_room_only_where_a_client_has_far_more_than_the_newcomer() {
        use Phase::Request;
        assert_eq!(ends_for(9, &[(1, Request), (2, Request), (2, Request), (2, Request)]), Some(1));
        assert_eq!(ends_for(9, &[(1, Request), (1, Request), (2, Request), (2, Request)]), None);
        assert_eq!(ends_for(1, &[(1, Request), (1, Request)]), None);
    }

    #[test]
    fn who_has_far_more_than_a_newcomer_makes_room_before_those_who_have_few() {
        use Phase::{Header, Idle, New, Request};
        assert_eq!(ends_for(9, &[(1, New), (2, Request), (2, Request), (2, Request)]), Some(1));
        assert_eq!(ends_for(9, &[(1, Header), (1, Idle), (2, Request), (2, Request), (2, Request)]), Some(2));
        assert_eq!(ends_for(9, &[(1, New), (2, Request), (2, Request)]), Some(0), "nobody has far more");
        assert_eq!(
            ends_for(1, &[(1, New), (2, Request), (2, Request), (2, Request)]),
            Some(0),
            "it has its part"
        );
    }

    #[test]
    fn the_networks_of_one_customer_are_one_client() {
        let (mut connections, now) = (Connections::new(2), Instant::now());
        for (number, address) in ["2001:db8:0:1::1", "2001:db8:1::1"].into_iter().enumerate() {
            connections.take(address.parse().unwrap(), now, number).unwrap();
        }
        let taken = connections.take("2001:db8::2".parse().unwrap(), now, 9).unwrap();
        assert_eq!(taken.ends, Some(0), "with the new one it has two");
    }

    #[test]
    fn what_a_connection_is_about_follows_what_happens_on_it() {
        let (mut connections, begin) = (Connections::new(1), Instant::now());
        let later = begin + Duration::from_secs(1);
        let number = connections.take(client(1), begin, ()).unwrap().number;
        assert_eq!(connections.phase(number), Some((Phase::New, begin)));
        assert!(connections.received(number, begin) && !connections.received(number, later));
        assert_eq!(connections.phase(number), Some((Phase::Header, begin)), "more of the same header");
        connections.enter(number, Phase::Request, later);
        assert!(!connections.received(number, later));
        assert_eq!(connections.phase(number), Some((Phase::Request, later)), "the body");
        connections.end(number);
        assert_eq!(connections.phase(number), None);
    }

    /// Mostly requests, so that there are clients that have nothing else.
    const PHASES: [Phase; 6] =
        [Phase::New, Phase::Idle, Phase::Header, Phase::Request, Phase::Request, Phase::Request];

    proptest! {
        #[test]
        fn nobody_makes_room_for_a_client_that_then_has_more(
            steps in vec((0..6_u8, 0..6_u8, 0..10_usize), 1..300),
        ) {
            let (mut connections, begin) = (Connections::new(10), Instant::now());
            for (step, (last, phase, number)) in steps.into_iter().enumerate() {
                let now = begin + Duration::from_secs(step as u64);
                let had = |connections: &Connections<IpAddr>, client| {
                    connections.served.values().filter(|served| served.client == client).count()
                };
                let phase = PHASES[usize::from(phase)];
                if let Some(number) = connections.served.keys().nth(number).copied() {
                    connections.enter(number, phase, now);
                }
                let before: Vec<usize> = (0..6).map(|last| had(&connections, client(last))).collect();
                let taken = connections.take(client(last), now, client(last));
                if let Some(ended) = taken.and_then(|taken| taken.ends).filter(|ended| *ended != client(last)) {
                    let IpAddr::V4(v4) = ended else { unreachable!("all are of IPv4") };
                    let lost = before[usize::from(v4.octets()[3])];
                    let own = before[usize::from(last)];
                    prop_assert!(lost > own, "{lost} {before:?}");
                    let has_hog = before.iter().any(|count| *count > (own + 1) * HOGS);
                    prop_assert!(!has_hog || lost > (own + 1) * HOGS, "few make room before many: {lost} {before:?}");
                }
                prop_assert!(connections.served.len() <= 10);
            }
        }
    }
}
