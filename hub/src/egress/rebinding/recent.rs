//! The re-verifications of the last minutes, by address, and the addresses that confirmed.
//!
//! None of this is on disk. After a restart the hub re-verifies each address that a name now has and that is not the one in the
//! subscription's record. That costs a few small requests per name and address, and none that is confirmed counts for the rate
//! limit. So restarts cost honest networks little, and a victim gets no more than the limit allows. A record on disk with every
//! address of a pool would be written at each rotation of it.
//!
//! A confirmation counts for the name. A refusal counts for its subscription only: under a name that many share, the owner of one
//! path must not refuse for the others. So a few other subscriptions are asked too.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_core::datetime::DateTime;

/// Names that are remembered of each kind. Beyond that, the one unused for longest is forgotten, and re-verified when needed.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(50_000).expect("fifty thousand is not zero");
/// Confirmed addresses of one name. Beyond that, the oldest is forgotten.
const ADDRESSES: usize = 64;
/// Confirmed addresses of all names, some forty bytes each. Beyond that, the names unused for longest are forgotten.
const ADDRESSES_IN_ALL: usize = 200_000;
/// Subscriptions under one name that are asked about at one address within [`REPEAT_AFTER`]: some hundred bytes.
const SUBSCRIPTIONS: usize = 8;
/// How long until an address is asked about the same subscription again.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// The first pauses after an attempt that reached nobody.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];
/// How long other subscriptions wait for the outcome of one under way.
const PATIENCE: Duration = Duration::from_secs(2);

/// Re-verifications by the hashes of a name, of a name and an address, and of a subscription.
#[derive(Debug)]
pub(super) struct Reverifications {
    /// Confirmed addresses by name, each with the end of its lease. A name with many addresses pushes out only its own.
    confirmed_at: LruCache<u64, Vec<(IpAddr, DateTime)>>,
    /// The number of all these addresses.
    addresses: usize,
    /// Recent attempts, by name and address.
    records: LruCache<u64, Vec<Record>>,
}

/// What may be done for a subscription at an unconfirmed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Ask it; from now on a re-verification is pending.
    Reverify,
    /// Send what the rate limit allows.
    Send,
    /// Nothing yet.
    Wait,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    subscription: u64,
    at: Instant,
    state: ReverificationState,
    /// How often in a row nobody was reached.
    unreachable: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReverificationState {
    Pending,
    Refused,
    Unreachable,
}

impl Record {
    /// Whether it is too early for another attempt.
    fn is_recent(&self, now: Instant) -> bool {
        let pause = match self.state {
            ReverificationState::Unreachable => {
                RETRY_AFTER.get(self.unreachable.saturating_sub(1)).copied().unwrap_or(REPEAT_AFTER)
            }
            ReverificationState::Pending | ReverificationState::Refused => REPEAT_AFTER,
        };
        self.since(now) < pause
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

impl Reverifications {
    pub(super) fn new() -> Self {
        Self { confirmed_at: LruCache::unbounded(), addresses: 0, records: LruCache::new(REMEMBERED) }
    }

    /// What may be done now for this subscription at the address with this key.
    pub(super) fn begin(&mut self, key: u64, subscription: u64, now: Instant) -> Allowed {
        let records = self.records.get_or_insert_mut(key, Vec::new);
        records.retain(|record| record.since(now) < REPEAT_AFTER);
        let own = records.iter().position(|record| record.subscription == subscription);
        if let Some(own) = own.map(|index| records[index]).filter(|own| own.is_recent(now)) {
            return if own.state == ReverificationState::Refused { Allowed::Send } else { Allowed::Wait };
        }
        let is_pending =
            |other: &Record| other.state == ReverificationState::Pending && other.since(now) < PATIENCE;
        if records.iter().any(is_pending) {
            return Allowed::Wait;
        }
        if let Some(index) = own {
            records[index] = Record { at: now, state: ReverificationState::Pending, ..records[index] };
            return Allowed::Reverify;
        }
        if records.len() >= SUBSCRIPTIONS {
            return Allowed::Send;
        }
        records.push(Record { subscription, at: now, state: ReverificationState::Pending, unreachable: 0 });
        Allowed::Reverify
    }

    /// The answer was no confirmation.
    pub(super) fn refused(&mut self, key: u64, subscription: u64, now: Instant) {
        self.answered(key, subscription, |record| {
            *record = Record { at: now, state: ReverificationState::Refused, unreachable: 0, ..*record };
        });
    }

    /// Nobody was reached.
    pub(super) fn unreachable(&mut self, key: u64, subscription: u64, now: Instant) {
        self.answered(key, subscription, |record| {
            let unreachable = record.unreachable + 1;
            *record = Record { at: now, state: ReverificationState::Unreachable, unreachable, ..*record };
        });
    }

    /// It was not sent after all.
    pub(super) fn forget(&mut self, key: u64, subscription: u64) {
        if let Some(records) = self.records.peek_mut(&key) {
            records.retain(|record| record.subscription != subscription);
        }
    }

    /// The address confirmed under this name until this moment.
    pub(super) fn confirmed(&mut self, name: u64, address: IpAddr, until: DateTime) {
        let addresses = self.confirmed_at.get_or_insert_mut(name, Vec::new);
        let before = addresses.len();
        addresses.retain(|(other, _)| *other != address);
        if addresses.len() >= ADDRESSES {
            addresses.remove(0);
        }
        addresses.push((address, until));
        self.addresses = self.addresses + addresses.len() - before;
        while self.confirmed_at.len() > REMEMBERED.get() || self.addresses > ADDRESSES_IN_ALL {
            let Some((_, forgotten)) = self.confirmed_at.pop_lru() else { break };
            self.addresses -= forgotten.len();
        }
    }

    /// Whether the address confirmed under this name.
    pub(super) fn has_confirmed(&mut self, name: u64, address: IpAddr, now: DateTime) -> bool {
        let addresses = self.confirmed_at.get(&name);
        addresses.is_some_and(|all| all.iter().any(|(one, until)| *one == address && *until > now))
    }

    fn answered(&mut self, key: u64, subscription: u64, note: impl FnOnce(&mut Record)) {
        let records = self.records.peek_mut(&key);
        if let Some(own) =
            records.and_then(|records| records.iter_mut().find(|record| record.subscription == subscription))
        {
            note(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn b33_an_address_is_asked_about_a_subscription_once_in_ten_minutes_unless_it_was_not_asked_after_all() {
        let (mut records, begin) = (Reverifications::new(), Instant::now());
        assert_eq!(records.begin(1, 1, begin), Allowed::Reverify);
        assert_eq!(records.begin(1, 1, begin + 599 * SECOND), Allowed::Wait, "the answer is awaited");
        records.refused(1, 1, begin);
        assert_eq!(records.begin(1, 1, begin + 599 * SECOND), Allowed::Send);
        assert_eq!(records.begin(1, 1, begin + 600 * SECOND), Allowed::Reverify);
        assert_eq!(records.begin(2, 1, begin), Allowed::Reverify, "that is another one");
        records.forget(1, 1);
        assert_eq!(records.begin(1, 1, begin + 601 * SECOND), Allowed::Reverify);
    }

    #[test]
    fn the_owner_of_one_path_of_a_name_does_not_refuse_for_the_others() {
        let (mut records, mut now) = (Reverifications::new(), Instant::now());
        assert_eq!(records.begin(1, 1, now), Allowed::Reverify);
        assert_eq!(records.begin(1, 2, now), Allowed::Wait, "perhaps it says yes");
        now += PATIENCE;
        assert_eq!(
            records.begin(1, 2, now),
            Allowed::Reverify,
            "it does not keep others waiting by saying nothing"
        );
        records.refused(1, 1, now);
        records.refused(1, 2, now);
        for subscription in 3..20 {
            let allowed = records.begin(1, subscription, now);
            assert_eq!(
                allowed,
                if subscription <= 8 { Allowed::Reverify } else { Allowed::Send },
                "{subscription}"
            );
            records.refused(1, subscription, now);
        }
        assert_eq!(records.begin(1, 20, now + REPEAT_AFTER), Allowed::Reverify);
    }

    #[test]
    fn where_nobody_was_there_it_is_asked_again_soon_and_nothing_else_is_sent() {
        let (mut records, begin) = (Reverifications::new(), Instant::now());
        let mut now = begin;
        for pause in [5, 30, 600, 5] {
            assert_eq!(records.begin(1, 1, now), Allowed::Reverify);
            records.unreachable(1, 1, now);
            assert_eq!(records.begin(1, 1, now + (pause - 1) * SECOND), Allowed::Wait);
            assert_eq!(
                records.begin(1, 2, now + (pause - 1) * SECOND),
                Allowed::Reverify,
                "that is another one"
            );
            records.forget(1, 2);
            now += pause * SECOND;
        }
    }

    #[test]
    fn who_has_confirmed_is_asked_again_only_when_the_lease_is_over() {
        let mut records = Reverifications::new();
        let now = DateTime::now();
        assert!(!records.has_confirmed(1, address(1), now));
        records.confirmed(1, address(1), now);
        let before = DateTime::from_system_time(now.to_system_time() - SECOND);
        assert!(records.has_confirmed(1, address(1), before) && !records.has_confirmed(1, address(1), now));
        assert!(
            !records.has_confirmed(1, address(2), before) && !records.has_confirmed(2, address(1), before)
        );
    }

    #[test]
    fn b33_any_number_of_names_and_addresses_takes_bounded_memory_and_a_name_pushes_out_its_own() {
        let (mut records, now, until) = (Reverifications::new(), Instant::now(), DateTime::now());
        let before = DateTime::from_system_time(until.to_system_time() - SECOND);
        records.confirmed(1, address(1), until);
        for last in 0..=255 {
            records.confirmed(2, address(last), until);
        }
        assert!(
            records.has_confirmed(1, address(1), before) && records.has_confirmed(2, address(255), before)
        );
        assert_eq!(records.confirmed_at.get(&2).unwrap().len(), ADDRESSES);
        for name in 3..3_300 {
            (0..64).for_each(|last| records.confirmed(name, address(last), until));
        }
        let all: usize = records.confirmed_at.iter().map(|(_, addresses)| addresses.len()).sum();
        assert!(records.addresses == all && all <= ADDRESSES_IN_ALL, "{all}");
        records.confirmed(1, address(1), until);
        assert!((0..60_000).all(|key| records.begin(key, 1, now) == Allowed::Reverify));
        assert_eq!(records.records.len(), REMEMBERED.get());
        assert!(records.has_confirmed(1, address(1), before), "questions push out no answer");
    }
}
