//! The topics of a measurement and who subscribes to each, in numbers.

/// Topics with the same number of subscribers each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Audience {
    pub(super) topics: usize,
    /// Of each.
    pub(super) subscribers: usize,
    /// On 127/8, where all of them are.
    pub(super) hosts: usize,
}

impl Audience {
    pub(super) fn subscriptions(&self) -> usize {
        self.topics * self.subscribers
    }

    /// Subscriptions count through the topics, so that those of one topic are on as many hosts as there are.
    pub(super) fn topic_of(&self, subscriber: usize) -> usize {
        subscriber / self.subscribers
    }

    pub(super) fn host_of(&self, subscriber: usize) -> usize {
        subscriber % self.hosts
    }

    pub(super) fn topic(number: usize) -> String {
        format!("http://source.example/load/{number}/")
    }
}
