//! Who waits because nobody has confirmed where its host's name leads, and that it goes on as soon as somebody does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::attempt::Attempt;
use super::super::hosts::{HostId, Waiter};
use super::super::waiting::LastAttempt;
use super::{Machine, Now};
use crate::store::FailureClass;

/// Subscriptions that were held back and have not been served since, by host.
#[derive(Debug, Default)]
pub(super) struct HeldBack(BTreeMap<HostId, BTreeSet<Waiter>>);

impl HeldBack {
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

impl Machine {
    /// Nothing was sent, which says nothing about the host and uses up no try. Only retention ends this. `pause` is by how many times
    /// in a row.
    pub(super) fn hold_back(&mut self, attempt: &Attempt, pause: impl FnOnce(u16) -> Duration, now: Now) {
        let (topic, id) = (attempt.topic, attempt.subscription);
        // What it would wait for has happened while it was under way, perhaps a moment after it was turned back.
        if self.hosts.confirmations(attempt.host) != attempt.confirmations {
            return self.go_on(topic, id, now);
        }
        let Some(member) = self.topics.get_mut(&topic).and_then(|topic| topic.member(id)) else { return };
        member.held_back = member.held_back.saturating_add(1);
        member.class = FailureClass::Unsent;
        let pause = pause(member.held_back);
        self.held_back.insert(attempt.host, (topic, id));
        self.back_off(topic, id, pause, now);
    }

    /// A subscription with this origin was confirmed, so that something may be sent to where its name leads now.
    pub(super) fn release(&mut self, origin: &str) {
        if let Some(host) = self.hosts.find(origin) {
            self.confirmed(host);
        }
    }

    /// This host has confirmed where its name leads now.
    pub(in super::super) fn confirmed(&mut self, host: HostId) {
        self.hosts.confirmed(host);
        let Some(waiters) = self.held_back.0.remove(&host) else { return };
        for (topic, id) in waiters {
            let Some(state) = self.topics.get_mut(&topic) else { continue };
            if state.hurry_one(id) {
                self.hosts.wait(host, (topic, id), LastAttempt::Failed);
                self.touched.insert(topic);
            }
        }
        self.hosts.probe_now(host);
    }
}
