//! The hosts whose circuit breakers are open: which they are, for how long, and their probes.

use std::time::{Duration, Instant};

use super::Hosts;
use crate::delivery::scheduler::host::HostId;

/// A host whose circuit breaker is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenHost {
    /// Which one.
    pub origin: String,
    /// Until it lets a probe through.
    pub for_another: Duration,
    /// Subscriptions that wait for it.
    pub waiting: usize,
}

impl Hosts {
    /// The operator does not want to wait for this host any longer.
    pub(in crate::delivery::scheduler) fn probe_now(&mut self, id: HostId) {
        if self.breakers.probe(id) {
            self.mark_ready(id);
        }
    }

    /// Whether the breaker of this host is open.
    pub(in crate::delivery::scheduler) fn is_open(&self, id: HostId) -> bool {
        self.breakers.open_until(id).is_some()
    }

    /// For how much longer the breaker of this host is open.
    pub(in crate::delivery::scheduler) fn open_for(&self, id: HostId, now: Instant) -> Option<Duration> {
        Some(self.breakers.open_until(id)?.saturating_duration_since(now))
    }

    /// When the next pause ends, if there is one.
    pub(in crate::delivery::scheduler) fn next_wake(&self) -> Option<Instant> {
        self.breakers.next_wake()
    }

    /// Breakers that opened since the last call, with their pauses.
    pub(in crate::delivery::scheduler) fn take_opened(&mut self) -> Vec<(String, Duration)> {
        self.breakers.take_opened()
    }

    /// How many breakers are open.
    pub(in crate::delivery::scheduler) fn open_breaker_count(&self) -> usize {
        self.breakers.open_breakers().count()
    }

    /// The hosts whose breakers are open.
    pub(in crate::delivery::scheduler) fn open_breakers(&self, now: Instant) -> Vec<OpenHost> {
        let view = |(id, until): (HostId, Instant)| {
            let host = &self.states[id.index()];
            OpenHost {
                origin: host.origin.to_string(),
                for_another: until.saturating_duration_since(now),
                waiting: host.first.len() + host.retries.len(),
            }
        };
        self.breakers.open_breakers().map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::scheduler::breaker::HostSignal;
    use crate::delivery::scheduler::host::Charge;
    use crate::delivery::scheduler::hosts::testing::{answer, charge, hosts, next, waiter};
    use crate::delivery::scheduler::lanes::{Lane, OpenLanes};
    use crate::delivery::scheduler::wait_queue::LastAttempt;
    use crate::store::{SubscriptionId, TopicId};

    /// A host whose breaker is open after two failures; four more that have failed wait there.
    fn in_trouble(hosts: &mut Hosts) -> HostId {
        let host = hosts.join(&"https://a.example".into(), None);
        (1..=6).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Failed));
        for _ in 0..2 {
            assert!(next(hosts).is_some());
        }
        for _ in 0..2 {
            answer(hosts, host, HostSignal::Trouble, 0);
        }
        host
    }

    /// The pause of the open breaker is over; tells when.
    fn end_pause(hosts: &mut Hosts) -> Instant {
        let until = hosts.next_wake().unwrap();
        hosts.wake(until);
        until
    }

    #[test]
    fn the_breaker_of_a_host_in_trouble_opens_and_lets_one_probe_through() {
        let mut hosts = hosts(4);
        let host = in_trouble(&mut hosts);
        assert_eq!(next(&mut hosts), None, "the breaker is open");
        assert_eq!(hosts.open_breakers(hosts.now).len(), 1);
        assert_eq!(hosts.take_opened()[0].0, "https://a.example");
        end_pause(&mut hosts);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))));
        assert_eq!(next(&mut hosts), None, "one probe");
        answer(&mut hosts, host, HostSignal::Alive, 0);
        assert_eq!(next(&mut hosts), Some((host, waiter(4))));
        assert_eq!(next(&mut hosts), None, "it begins slowly");
    }

    #[test]
    fn a_probe_that_ends_without_showing_how_the_host_is_gives_way_to_another() {
        let mut hosts = hosts(4);
        let host = in_trouble(&mut hosts);
        end_pause(&mut hosts);
        for id in [3, 4] {
            let (_, probe, probing) = hosts.take(OpenLanes::ALL).unwrap();
            assert_eq!(probing, waiter(id));
            assert_eq!(next(&mut hosts), None, "one probe");
            hosts.give_back(host, probe);
        }
    }

    #[test]
    fn a_proven_one_does_not_wait_for_an_untried_one_at_a_host_that_recovers() {
        let mut hosts = hosts(4);
        let host = in_trouble(&mut hosts);
        end_pause(&mut hosts);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))), "the probe");
        answer(&mut hosts, host, HostSignal::Alive, 0);
        hosts.enqueue(host, waiter(11), LastAttempt::Untried);
        let (_, unproven) = next(&mut hosts).unwrap();
        assert!([waiter(4), waiter(11)].contains(&unproven), "{unproven:?}");
        assert_eq!(next(&mut hosts), None, "one request, which may yet hang");
        hosts.enqueue(host, waiter(12), LastAttempt::Proven);
        assert_eq!(next(&mut hosts), Some((host, waiter(12))));
        hosts.enqueue(host, waiter(13), LastAttempt::Proven);
        assert_eq!(next(&mut hosts), None, "it begins slowly");
    }

    #[test]
    fn whatever_hangs_at_an_open_breaker_those_delivered_to_last_are_served_beside_it() {
        let mut hosts = hosts(4);
        let host = hosts.join(&"https://a.example".into(), None);
        let of_topic = |topic, id| (TopicId(topic), SubscriptionId(id));
        (1..=4).for_each(|topic| hosts.delivered(host, of_topic(topic, topic)));
        (11..=16).for_each(|id| hosts.enqueue(host, of_topic(id, id), LastAttempt::Untried));
        for _ in 0..2 {
            assert!(next(&mut hosts).is_some());
            answer(&mut hosts, host, HostSignal::Silent, 0);
        }
        assert!(hosts.is_open(host));
        for id in [13, 14] {
            assert_eq!(next(&mut hosts), Some((host, of_topic(id, id))));
        }
        assert_eq!(next(&mut hosts), None, "half of its permits are for trials");
        hosts.enqueue(host, of_topic(1, 1), LastAttempt::Untried);
        assert_eq!(next(&mut hosts), Some((host, of_topic(1, 1))), "the one that was delivered to first");
    }

    #[test]
    fn while_a_probe_hangs_there_is_no_second_one_and_no_other_request_speaks_for_it() {
        let mut hosts = hosts(4);
        let (host, begun) = (hosts.join(&"https://a.example".into(), None), hosts.now);
        hosts.delivered(host, waiter(9));
        (1..=6).for_each(|id| hosts.enqueue(host, waiter(id), LastAttempt::Failed));
        for _ in 0..2 {
            assert!(next(&mut hosts).is_some());
            answer(&mut hosts, host, HostSignal::Trouble, 0);
        }
        let until = end_pause(&mut hosts);
        assert_eq!(next(&mut hosts), Some((host, waiter(3))), "the probe");
        let later = until + Duration::from_millis(1);
        hosts.wake(later);
        hosts.enqueue(host, waiter(9), LastAttempt::Untried);
        assert_eq!(next(&mut hosts), Some((host, waiter(9))), "one that was delivered to last");
        hosts.answered(host, charge(later), HostSignal::Trouble, later);
        assert!(!hosts.is_open(host), "the probe is under way still");
        assert_eq!(next(&mut hosts), None, "and there is no second one");
        hosts.answered(
            host,
            Charge { lane: Lane::Retry, is_probe: true, ..charge(until) },
            HostSignal::Trouble,
            later,
        );
        assert!(hosts.is_open(host) && begun < later);
    }
}
