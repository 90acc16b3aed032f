//! How often pings without a token are taken: by client, by topic and by the topic's host.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use resync_core::websub::TopicUrl;

use crate::buckets::{Buckets, network};
use crate::config::LimitsConfig;

/// The limits of pings, all of which must hold.
#[derive(Clone, Debug)]
pub struct PingLimit {
    clients: Buckets,
    topics: Buckets,
    hosts: Buckets,
}

impl PingLimit {
    /// The limits of a configuration; those that are off never refuse.
    pub fn new(config: &LimitsConfig) -> Self {
        let buckets = |rate| Buckets::new(config.enabled, rate);
        Self {
            clients: buckets(config.ping_client),
            topics: buckets(config.ping_topic),
            hosts: buckets(config.ping_host),
        }
    }

    /// Takes a ping of these topics into account; it is taken as a whole or not at all.
    ///
    /// # Errors
    /// How long to wait.
    pub(super) fn admit(&self, client: IpAddr, topics: &[&TopicUrl], now: Instant) -> Result<(), Duration> {
        let client = network(client);
        for topic in topics {
            self.clients.admit(client, now)?;
            self.topics.admit(topic.key(), now)?;
            self.hosts.admit(topic.url().host_str().unwrap_or_default(), now)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn limit(enabled: bool) -> PingLimit {
        let config = config::load(None, |_| None, &Vec::new()).unwrap();
        PingLimit::new(&LimitsConfig { enabled, ..config.limits })
    }

    fn topic(path: &str) -> TopicUrl {
        format!("http://source.example/{path}").parse().unwrap()
    }

    fn admitted(limit: &PingLimit, mut ping: impl FnMut(usize) -> (IpAddr, TopicUrl)) -> usize {
        let now = Instant::now();
        let pings = (0..1_000).map(&mut ping);
        pings.filter(|(client, topic)| limit.admit(*client, &[topic], now).is_ok()).count()
    }

    fn client(number: usize) -> IpAddr {
        std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap()).into()
    }

    #[test]
    fn one_topic_one_host_and_one_client_each_have_their_limit() {
        assert_eq!(admitted(&limit(true), |number| (client(number), topic("same"))), 10);
        assert_eq!(admitted(&limit(true), |number| (client(number), topic(&number.to_string()))), 100);
        let elsewhere = |number| format!("http://host{number}.example/").parse().unwrap();
        assert_eq!(admitted(&limit(true), |number| (client(1), elsewhere(number))), 100);
        assert_eq!(admitted(&limit(false), |_| (client(1), topic("same"))), 1_000);
    }

    #[test]
    fn who_waits_as_long_as_told_is_admitted() {
        let (limit, now, same) = (limit(true), Instant::now(), topic("same"));
        let wait = (0..100).find_map(|_| limit.admit(client(1), &[&same], now).err()).unwrap();
        assert!(limit.admit(client(1), &[&same], now + wait).is_ok());
    }
}
