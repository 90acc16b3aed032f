//! How much one network of clients may have the hub remember: subscriptions, topics, callback hosts.
