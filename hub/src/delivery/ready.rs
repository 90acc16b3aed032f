//! The hosts of one lane that have a waiter and a free place, in the order in which they got them.
//!
//! Names cost nothing: one network may have thousands of hosts here. While it gives way to others they stand aside, so that nobody has to be
//! looked for behind them.

use std::collections::VecDeque;

use super::hosts::HostId;

/// Hosts that are put aside in one look for one that may be served.
const PUT_ASIDE: usize = 256;
/// Hosts that stand aside and are looked at where there is nobody else.
const LOOKED_AT: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Ready {
    hosts: VecDeque<HostId>,
    aside: VecDeque<HostId>,
}

impl Ready {
    pub(super) fn push(&mut self, id: HostId) {
        self.hosts.push_back(id);
    }

    /// Takes the first that may be served. Not all are looked at in one call.
    pub(super) fn take(&mut self, may: impl Fn(HostId) -> bool) -> Option<HostId> {
        self.come_back(&may);
        for _ in 0..PUT_ASIDE {
            let Some(id) = self.hosts.pop_front() else { break };
            if may(id) {
                return Some(id);
            }
            self.aside.push_back(id);
        }
        for _ in 0..LOOKED_AT.min(self.aside.len()) {
            let id = self.aside.pop_front()?;
            if may(id) {
                return Some(id);
            }
            self.aside.push_back(id);
        }
        None
    }

    /// Those who stand aside come behind the others as soon as one of them may be served, of whom each call looks at another.
    pub(super) fn come_back(&mut self, may: impl Fn(HostId) -> bool) {
        match self.aside.front() {
            Some(id) if may(*id) => self.hosts.append(&mut self.aside),
            Some(_) => self.aside.rotate_left(1),
            None => {}
        }
    }

    /// Those who do not stand aside, in their order.
    pub(super) fn hosts(&self) -> &VecDeque<HostId> {
        &self.hosts
    }

    /// Takes the first of these, whether it may be served or not.
    pub(super) fn take_first(&mut self) -> Option<HostId> {
        self.hosts.pop_front()
    }
}
