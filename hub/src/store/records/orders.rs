//! What operators and other hubs have the owners of shards do.

use super::{DenialId, Offset, PingId, RequestId, Shard, SubscriptionId, TopicId};

/// What the operator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Subscriptions that wait for another attempt get it now, and open circuit breakers let a probe through.
    Retry(Target),
    /// The next notification is given up for this subscription and recorded as skipped. Not while it is on its way.
    Skip(SubscriptionId),
    /// Notifications from this offset on are delivered once more, as far as the log still holds them and they are younger than
    /// the subscription.
    Replay {
        /// The topic.
        topic: TopicId,
        /// One of its subscriptions; `None`: all of them.
        subscription: Option<SubscriptionId>,
        /// The first one.
        from: Offset,
    },
}

/// Whom a retry is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All late subscriptions of a topic.
    Topic(TopicId),
    /// This one.
    Subscription(SubscriptionId),
    /// All late subscriptions with this origin.
    Host(String),
}

/// What the owner of a shard is to do there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Carry this out.
    Execute(Command),
    /// End what is under way to this subscription, the end of which is durable, and begin nothing more.
    Halt(SubscriptionId),
}

/// An order's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OrderId(pub u64);

/// Something that happened to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderEvent {
    /// There is one for the owners of these shards.
    Given(Vec<Shard>),
    /// An owner has answered it.
    Answered(OrderId),
    /// Whatever has happened to orders before this may never be told.
    Resync,
}

/// Something that another hub has accepted, and that the owner of its shard does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// A request that is to be verified.
    Request(RequestId),
    /// A denial of which the callback is to be informed.
    Denial(DenialId),
    /// A topic that is to be fetched.
    Ping(PingId),
}
