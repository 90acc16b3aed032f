//! The kinds of records.

macro_rules! spaces {
    ($($(#[$doc:meta])* $space:ident = $tag:literal, $name:literal;)+) => {
        /// A kind of record. The tag is part of the data format: it must never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub(in crate::store) enum Space {
            $($(#[$doc])* $space = $tag,)+
        }

        impl Space {
            /// Every space.
            pub(in crate::store) const ALL: [Self; [$($tag),+].len()] = [$(Self::$space),+];

            /// The name in files and error messages.
            pub(in crate::store) const fn name(self) -> &'static str {
                match self {
                    $(Self::$space => $name,)+
                }
            }
        }
    };
}

spaces! {
    /// Counters, epochs, and what was decided when the store was made.
    Meta = 1, "meta";
    /// Topics with the bounds of their logs.
    Topics = 2, "topics";
    /// Notifications, with their bodies as far as these are small.
    Log = 3, "log";
    /// The parts of large bodies.
    Bodies = 4, "bodies";
    /// Requests that wait for verification of intent.
    Requests = 5, "requests";
    /// Subscriptions in force.
    Subscriptions = 6, "subscriptions";
    /// From topic and callback to the subscription.
    SubscriptionIndex = 7, "subscription_index";
    /// Topics that wait to be fetched.
    Pings = 8, "pings";
    /// How far each shard of a topic is.
    Watermarks = 9, "watermarks";
    /// Subscriptions that are not at the watermark.
    Laggards = 10, "laggards";
    /// Notifications that were given up for a subscription.
    Skips = 11, "skips";
    /// Idempotency keys of publishers.
    Idempotency = 12, "idempotency";
    /// Idempotency keys in the order in which they may be forgotten.
    IdempotencyExpiry = 13, "idempotency_expiry";
    /// How the Change Notifications of topics follow each other.
    Chains = 14, "chains";
    /// What topics said about their content when they were fetched last.
    Validators = 15, "validators";
    /// Denials of which their callbacks are not informed yet.
    Denials = 16, "denials";
    /// Notifications that a subscription has lost.
    Gaps = 17, "gaps";
}

impl Space {
    /// The byte that stands for the space in keys and checksums.
    pub(in crate::store) const fn tag(self) -> u8 {
        self as u8
    }
}
