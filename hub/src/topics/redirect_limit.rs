//! The rate limit of redirects to other hosts: each counts there like a ping of a topic. So nobody leads the hub to a victim by pings of
//! topics on hosts of their own, nor by requests for such topics at a hub that looks at them first.

use std::time::{Duration, Instant};

use crate::concurrency::Client;
use crate::rate_limiter::SharedRateLimiter;

/// What redirects of topics use up: the same as pings of topics on the hosts they lead to. Clones share it.
#[derive(Clone, Debug)]
pub struct RedirectLimit(SharedRateLimiter);

impl RedirectLimit {
    /// `hosts` is the limit of pings by the host of the topic.
    pub(crate) fn new(hosts: SharedRateLimiter) -> Self {
        Self(hosts)
    }

    /// Counts a redirect to this host for the first of the clients that caused it whose limit is not used up. A trusted client has no
    /// limit, as with pings.
    ///
    /// # Errors
    /// How long to wait.
    pub(crate) fn admit(&self, host: &str, clients: &[Client], now: Instant) -> Result<(), Duration> {
        if clients.iter().any(Client::is_trusted) {
            return Ok(());
        }
        let mut shortest = None;
        for client in clients {
            let Err(wait) = self.0.admit(client.network, host, now) else { return Ok(()) };
            shortest = Some(shortest.map_or(wait, |shortest: Duration| shortest.min(wait)));
        }
        shortest.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::concurrency::ClientClass;

    fn stranger(last: u8) -> Client {
        Client { network: Some([192, 0, 2, last].into()), class: ClientClass::Stranger }
    }

    #[test]
    fn b33_a_redirect_waits_until_one_of_the_clients_that_pinged_may_ping_a_topic_on_its_host() {
        let now = Instant::now();
        let limit = RedirectLimit::new(SharedRateLimiter::new(true, "1/h, burst 1".parse().unwrap()));
        let admit = |host: &str, clients: &[Client]| limit.admit(host, clients, now).is_ok();
        assert!(admit("victim.example", &[stranger(1)]));
        assert!(!admit("victim.example", &[stranger(1)]));
        assert!(admit("other.example", &[stranger(1)]));
        assert!(admit("victim.example", &[stranger(1), stranger(2)]));
        assert!(!admit("victim.example", &[stranger(1), stranger(2)]));
        let with_token = Client { class: ClientClass::Trusted, ..stranger(1) };
        assert!(admit("victim.example", &[stranger(1), with_token]));
    }
}
