//! Subscriptions that wait because their host's name leads to an unconfirmed address. They go on as soon as it is confirmed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Scheduler;
use super::attempt::Attempt;
use super::clock::Now;
use super::host::HostId;
use super::wait_queue::{LastAttempt, Waiter};
use crate::store::FailureClass;

/// Those that wait for that, by host.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed(BTreeMap<HostId, BTreeSet<Waiter>>);

impl Unconfirmed {
    pub(super) fn insert(&mut self, host: HostId, waiter: Waiter) {
        self.0.entry(host).or_default().insert(waiter);
    }

    pub(super) fn remove(&mut self, host: HostId, waiter: Waiter) {
        if let Some(waiters) = self.0.get_mut(&host) {
            waiters.remove(&waiter);
            if waiters.is_empty() {
                self.0.remove(&host);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Scheduler {
    /// Nothing was sent, which says nothing about the host and is no failed attempt. Only retention ends this. `pause` follows from how
    /// many times in a row it happened.
    pub(super) fn await_confirmation(
        &mut self,
        attempt: &Attempt,
        pause: impl FnOnce(u16) -> Duration,
        now: Now,
    ) {
        let (topic, id) = (attempt.topic, attempt.subscription);
        // The host may have confirmed while the attempt was under way, perhaps a moment after it was refused.
        if self.hosts.confirmations(attempt.host) != attempt.confirmations {
            return self.go_on(topic, id, now);
        }
        let Some(active) = self.topics.get_mut(&topic).and_then(|topic| topic.active_mut(id)) else { return };
        active.unconfirmed_times = active.unconfirmed_times.saturating_add(1);
        active.class = FailureClass::Unsent;
        let pause = pause(active.unconfirmed_times);
        self.unconfirmed.insert(attempt.host, (topic, id));
        self.back_off(topic, id, pause, now);
    }

    /// The address to which the name of this origin leads now was confirmed.
    pub(crate) fn origin_confirmed(&mut self, origin: &str) {
        let Some(host) = self.hosts.find(origin) else { return };
        self.hosts.confirmed(host);
        let Some(waiters) = self.unconfirmed.0.remove(&host) else { return };
        for (topic, id) in waiters {
            let Some(state) = self.topics.get_mut(&topic) else { continue };
            if state.end_pause(id) {
                self.hosts.enqueue(host, (topic, id), LastAttempt::Failed);
                self.touched.insert(topic);
            }
        }
        self.hosts.probe_now(host);
    }
}
