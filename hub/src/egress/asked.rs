//! Which addresses were asked of late whether they want what is sent under a name, and which of them said that they do.
//!
//! None of this is written down. After a restart the hub asks again wherever a name leads to another address than the one that
//! stands in its subscription's record: a few small requests for each name and address, which count for nothing where one is answered
//! with the challenge. So it costs an honest network nothing but that, and a victim no more than its share, also if the hub is
//! restarted again and again. A record that grew with every address of a pool would be written at every turn of it.
//!
//! A yes counts for the name. A no counts for the subscription that was asked about: under a name that many share, whoever has
//! one of its paths must not say no for the others. So some others may ask too.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use lru::LruCache;
use resync_core::datetime::DateTime;

/// Names of each kind; beyond that, those that were of use longest ago are forgotten, and asked again.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(50_000).expect("fifty thousand is not zero");
/// Addresses of one name that have said yes; beyond that, those that did so first are forgotten.
const ADDRESSES: usize = 64;
/// Addresses of all names together, some forty bytes each; beyond that, the names that were of use longest ago are forgotten.
const ADDRESSES_IN_ALL: usize = 200_000;
/// Subscriptions under one name that are asked about at one address within [`AGAIN_AFTER`]: some hundred bytes at most.
const SUBSCRIPTIONS: usize = 8;
/// A subscription is not asked about again for so long.
const AGAIN_AFTER: Duration = Duration::from_secs(600);
/// Where nobody was there, it may be sooner: the first times after so long.
const SOONER: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];
/// So long others wait for the answer that one of them may get.
const PATIENCE: Duration = Duration::from_secs(2);

/// By the hashes of a name, of a name and an address, and of a subscription.
#[derive(Debug)]
pub(super) struct Asked {
    /// Until when, by name. A name with many addresses pushes out only its own.
    yes: LruCache<u64, Vec<(IpAddr, DateTime)>>,
    /// How many addresses that are.
    addresses: usize,
    /// By name and address.
    questions: LruCache<u64, Vec<Question>>,
}

/// What may be done for a subscription at an address that has not confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    /// It may be asked; from now on it is.
    Ask,
    /// It may be sent what the trickle lets pass.
    Send,
    /// Nothing yet.
    Wait,
}

#[derive(Clone, Copy, Debug)]
struct Question {
    about: u64,
    at: Instant,
    answer: Answer,
    /// How often in a row nobody was there.
    missed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Awaited,
    No,
    /// Nobody was there.
    Nothing,
}

impl Question {
    /// Whether it stands in the way of another one.
    fn is_late(&self, now: Instant) -> bool {
        let pause = match self.answer {
            Answer::Nothing => SOONER.get(self.missed.saturating_sub(1)).copied().unwrap_or(AGAIN_AFTER),
            Answer::Awaited | Answer::No => AGAIN_AFTER,
        };
        self.since(now) < pause
    }

    fn since(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }
}

impl Asked {
    pub(super) fn nobody() -> Self {
        Self { yes: LruCache::unbounded(), addresses: 0, questions: LruCache::new(REMEMBERED) }
    }

    /// What may be done for this subscription at the place of this key.
    pub(super) fn begin(&mut self, place: u64, about: u64, now: Instant) -> May {
        let asked = self.questions.get_or_insert_mut(place, Vec::new);
        asked.retain(|question| question.since(now) < AGAIN_AFTER);
        let own = asked.iter().position(|question| question.about == about);
        if let Some(own) = own.map(|index| asked[index]).filter(|own| own.is_late(now)) {
            return if own.answer == Answer::No { May::Send } else { May::Wait };
        }
        let is_awaited = |other: &Question| other.answer == Answer::Awaited && other.since(now) < PATIENCE;
        if asked.iter().any(is_awaited) {
            return May::Wait;
        }
        if let Some(index) = own {
            asked[index] = Question { at: now, answer: Answer::Awaited, ..asked[index] };
            return May::Ask;
        }
        if asked.len() >= SUBSCRIPTIONS {
            return May::Send;
        }
        asked.push(Question { about, at: now, answer: Answer::Awaited, missed: 0 });
        May::Ask
    }

    /// It has said something else than yes.
    pub(super) fn refused(&mut self, place: u64, about: u64, now: Instant) {
        self.answered(place, about, |question| {
            *question = Question { at: now, answer: Answer::No, missed: 0, ..*question };
        });
    }

    /// Nobody was there to answer.
    pub(super) fn missed(&mut self, place: u64, about: u64, now: Instant) {
        self.answered(place, about, |question| {
            let missed = question.missed + 1;
            *question = Question { at: now, answer: Answer::Nothing, missed, ..*question };
        });
    }

    /// It was not asked after all.
    pub(super) fn forget(&mut self, place: u64, about: u64) {
        if let Some(asked) = self.questions.peek_mut(&place) {
            asked.retain(|question| question.about != about);
        }
    }

    /// It has said that it wants what is sent there until this moment.
    pub(super) fn confirmed(&mut self, name: u64, address: IpAddr, until: DateTime) {
        let addresses = self.yes.get_or_insert_mut(name, Vec::new);
        let before = addresses.len();
        addresses.retain(|(other, _)| *other != address);
        if addresses.len() >= ADDRESSES {
            addresses.remove(0);
        }
        addresses.push((address, until));
        self.addresses = self.addresses + addresses.len() - before;
        while self.yes.len() > REMEMBERED.get() || self.addresses > ADDRESSES_IN_ALL {
            let Some((_, forgotten)) = self.yes.pop_lru() else { break };
            self.addresses -= forgotten.len();
        }
    }

    /// Whether it has said so.
    pub(super) fn has_confirmed(&mut self, name: u64, address: IpAddr, now: DateTime) -> bool {
        let addresses = self.yes.get(&name);
        addresses.is_some_and(|all| all.iter().any(|(one, until)| *one == address && *until > now))
    }

    fn answered(&mut self, place: u64, about: u64, note: impl FnOnce(&mut Question)) {
        let asked = self.questions.peek_mut(&place);
        if let Some(own) = asked.and_then(|asked| asked.iter_mut().find(|question| question.about == about)) {
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
        let (mut asked, begin) = (Asked::nobody(), Instant::now());
        assert_eq!(asked.begin(1, 1, begin), May::Ask);
        assert_eq!(asked.begin(1, 1, begin + 599 * SECOND), May::Wait, "the answer is awaited");
        asked.refused(1, 1, begin);
        assert_eq!(asked.begin(1, 1, begin + 599 * SECOND), May::Send);
        assert_eq!(asked.begin(1, 1, begin + 600 * SECOND), May::Ask);
        assert_eq!(asked.begin(2, 1, begin), May::Ask, "that is another one");
        asked.forget(1, 1);
        assert_eq!(asked.begin(1, 1, begin + 601 * SECOND), May::Ask);
    }

    #[test]
    fn whoever_has_one_path_of_a_name_does_not_say_no_for_the_others() {
        let (mut asked, mut now) = (Asked::nobody(), Instant::now());
        assert_eq!(asked.begin(1, 1, now), May::Ask);
        assert_eq!(asked.begin(1, 2, now), May::Wait, "perhaps it says yes");
        now += PATIENCE;
        assert_eq!(asked.begin(1, 2, now), May::Ask, "it does not keep others waiting by saying nothing");
        asked.refused(1, 1, now);
        asked.refused(1, 2, now);
        for about in 3..20 {
            let may = asked.begin(1, about, now);
            assert_eq!(may, if about <= 8 { May::Ask } else { May::Send }, "{about}");
            asked.refused(1, about, now);
        }
        assert_eq!(asked.begin(1, 20, now + AGAIN_AFTER), May::Ask);
    }

    #[test]
    fn where_nobody_was_there_it_is_asked_again_soon_and_nothing_else_is_sent() {
        let (mut asked, begin) = (Asked::nobody(), Instant::now());
        let mut now = begin;
        for pause in [5, 30, 600, 5] {
            assert_eq!(asked.begin(1, 1, now), May::Ask);
            asked.missed(1, 1, now);
            assert_eq!(asked.begin(1, 1, now + (pause - 1) * SECOND), May::Wait);
            assert_eq!(asked.begin(1, 2, now + (pause - 1) * SECOND), May::Ask, "that is another one");
            asked.forget(1, 2);
            now += pause * SECOND;
        }
    }

    #[test]
    fn who_has_confirmed_is_asked_again_only_when_the_lease_is_over() {
        let mut asked = Asked::nobody();
        let now = DateTime::now();
        assert!(!asked.has_confirmed(1, address(1), now));
        asked.confirmed(1, address(1), now);
        let before = DateTime::from_system_time(now.to_system_time() - SECOND);
        assert!(asked.has_confirmed(1, address(1), before) && !asked.has_confirmed(1, address(1), now));
        assert!(!asked.has_confirmed(1, address(2), before) && !asked.has_confirmed(2, address(1), before));
    }

    #[test]
    fn b33_any_number_of_names_and_addresses_takes_bounded_memory_and_a_name_pushes_out_its_own() {
        let (mut asked, now, until) = (Asked::nobody(), Instant::now(), DateTime::now());
        let before = DateTime::from_system_time(until.to_system_time() - SECOND);
        asked.confirmed(1, address(1), until);
        for last in 0..=255 {
            asked.confirmed(2, address(last), until);
        }
        assert!(asked.has_confirmed(1, address(1), before) && asked.has_confirmed(2, address(255), before));
        assert_eq!(asked.yes.get(&2).unwrap().len(), ADDRESSES);
        for name in 3..3_300 {
            (0..64).for_each(|last| asked.confirmed(name, address(last), until));
        }
        let all: usize = asked.yes.iter().map(|(_, addresses)| addresses.len()).sum();
        assert!(asked.addresses == all && all <= ADDRESSES_IN_ALL, "{all}");
        asked.confirmed(1, address(1), until);
        assert!((0..60_000).all(|place| asked.begin(place, 1, now) == May::Ask));
        assert_eq!(asked.questions.len(), REMEMBERED.get());
        assert!(asked.has_confirmed(1, address(1), before), "questions push out no answer");
    }
}
