//! Rate limits for requests: per client, callback host and topic. Refusals have `Retry-After`, and memory is bounded.

use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use resync_core::websub::{CallbackUrl, TopicUrl};

use crate::config::LimitsConfig;
use crate::live_hubs::LiveHubs;
use crate::rate_limiter::{RateLimiter, SharedRateLimiter, network};
use crate::subscriptions::Requester;

/// Topics that a ping names at the cost of one more request: reading and looking up so many takes as long.
const NAMED_FOR_ONE: usize = 50;

/// The rate limits of a hub. Their memory does not depend on what clients send.
#[derive(Clone, Debug)]
pub struct Limits {
    clients: RateLimiter,
    subscribers: RateLimiter,
    hosts: SharedRateLimiter,
    renewers: RateLimiter,
    renewals: SharedRateLimiter,
    topics: SharedRateLimiter,
}

/// A request beyond a rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many requests {whose}: slow down, and try again after the seconds in Retry-After")]
pub struct TooMany {
    /// When the request would be admitted.
    pub wait: Duration,
    whose: &'static str,
}

impl TooMany {
    /// What `Retry-After` says.
    pub fn seconds(&self) -> u64 {
        self.wait.as_secs() + u64::from(self.wait.subsec_nanos() > 0)
    }
}

impl Limits {
    /// The limits of a configuration; those that are off never refuse.
    pub fn new(config: &LimitsConfig) -> Self {
        let buckets = |rate| RateLimiter::new(config.enabled, rate);
        let shared = |rate| SharedRateLimiter::new(config.enabled, rate);
        Self {
            clients: buckets(config.client),
            subscribers: buckets(config.subscriptions_per_client),
            hosts: shared(config.callback_host),
            renewers: buckets(config.subscriptions_per_client),
            renewals: shared(config.callback_host),
            topics: shared(config.topic),
        }
    }

    /// From now on these hubs have the rates together.
    #[must_use]
    pub fn divided_among(self, hubs: &LiveHubs) -> Self {
        Self {
            clients: self.clients.divided_among(hubs),
            subscribers: self.subscribers.divided_among(hubs),
            hosts: self.hosts.divided_among(hubs),
            renewers: self.renewers.divided_among(hubs),
            renewals: self.renewals.divided_among(hubs),
            topics: self.topics.divided_among(hubs),
        }
    }

    /// Counts a request of any kind.
    ///
    /// # Errors
    /// [`TooMany`] from this client.
    pub fn client(&self, client: IpAddr, now: Instant) -> Result<(), TooMany> {
        self.clients.admit(network(client), now).map_err(|wait| TooMany { wait, whose: "from this address" })
    }

    /// Counts what a ping names as further requests of this client, which those to come wait for.
    pub fn named(&self, client: IpAddr, topics: usize, now: Instant) {
        let more = u32::try_from(topics / NAMED_FOR_ONE).unwrap_or(u32::MAX);
        self.clients.charge(network(client), more, now);
    }

    /// Counts a request to subscribe or unsubscribe, which makes the hub ask its callback.
    ///
    /// A request about a subscription in force counts for its client and its callback, not for the host and the topic, so that nobody can
    /// keep others from renewing. The limits of one client and of its IPv6 site come before those of all clients, and only the former apply
    /// to a client that confirmed earlier requests.
    ///
    /// # Errors
    /// [`TooMany`] from this client, for this subscription, for this callback's host or for this topic.
    pub fn subscription(
        &self,
        who: Requester,
        topic: &TopicUrl,
        callback: &CallbackUrl,
        now: Instant,
    ) -> Result<(), TooMany> {
        let too_many = |whose| move |wait| TooMany { wait, whose };
        let whose = "to subscribe or unsubscribe from this address";
        if who.in_force {
            self.renewers.admit(who.client, now).map_err(too_many(whose))?;
            let pair = (topic.key(), callback.key());
            return admit(&self.renewals, who, pair, now).map_err(too_many("for this subscription"));
        }
        self.subscribers.admit(who.client, now).map_err(too_many(whose))?;
        let host = callback.url().host_str().unwrap_or_default();
        admit(&self.hosts, who, host, now).map_err(too_many("for callbacks on this host"))?;
        admit(&self.topics, who, topic.key(), now).map_err(too_many("for subscriptions to this topic"))
    }
}

/// A client that confirmed earlier requests has only its own limit and that of its IPv6 site.
fn admit(
    buckets: &SharedRateLimiter,
    who: Requester,
    key: impl Hash + Copy,
    now: Instant,
) -> Result<(), Duration> {
    if who.confirmed { buckets.admit_own(who.client, key, now) } else { buckets.admit(who.client, key, now) }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn stranger(client: IpAddr) -> Requester {
        Requester { client: Some(client), in_force: false, confirmed: false }
    }

    fn limits(enabled: bool) -> Limits {
        let rate = |text: &str| text.parse().unwrap();
        Limits::new(&LimitsConfig {
            enabled,
            client: rate("50/s, burst 200"),
            subscriptions_per_client: rate("5/s, burst 50"),
            callback_host: rate("1/s, burst 10"),
            topic: rate("20/s, burst 30"),
            ping_client: rate("1/s, burst 1"),
            ping_topic: rate("1/s, burst 1"),
            ping_host: rate("1/s, burst 1"),
            ping_fan_out: 1,
            unconfirmed: rate("1/s, burst 1"),
            most_subscriptions_of_client: 1,
            most_topics_of_client: 1,
            most_callback_hosts_of_client: 1,
            most_subscriptions: 1,
            most_topics: 1,
            most_callback_hosts: 1,
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn topic(name: &str) -> TopicUrl {
        format!("http://source.example/{name}").parse().unwrap()
    }

    fn callback(host: &str, name: u32) -> CallbackUrl {
        format!("http://{host}/{name}").parse().unwrap()
    }

    #[test]
    fn a_burst_passes_then_the_client_is_told_to_wait_then_it_passes_again() {
        let (limits, now) = (limits(true), Instant::now());
        let busy = ip("192.0.2.1");
        assert_eq!((0..1_000).filter(|_| limits.client(busy, now).is_ok()).count(), 200);
        let refused = limits.client(busy, now).unwrap_err();
        assert!(refused.wait <= Duration::from_millis(20));
        assert_eq!(refused.seconds(), 1, "Retry-After is never 0");
        assert!(limits.client(ip("192.0.2.2"), now).is_ok(), "nobody else is held up");
        assert!(limits.client(busy, now + Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn b33_a_ping_of_many_topics_counts_as_several_requests_and_one_of_few_as_one() {
        let (limits, now) = (limits(true), Instant::now());
        let pings = |client: &str, topics: usize| {
            let ping =
                |_: &u32| limits.client(ip(client), now).map(|()| limits.named(ip(client), topics, now));
            (0..1_000).filter(|number| ping(number).is_ok()).count()
        };
        assert_eq!(pings("192.0.2.1", 49), 200);
        assert_eq!(pings("192.0.2.2", 200), 40);
        assert_eq!(pings("192.0.2.3", 500), 19);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let (limits, now) = (limits(true), Instant::now());
        for host in 0..200_u128 {
            let address = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | host);
            assert!(limits.client(IpAddr::V6(address), now).is_ok());
        }
        assert!(limits.client(ip("2001:db8::ffff"), now).is_err());
        assert!(limits.client(ip("2001:db8:0:1::"), now).is_ok());
    }

    #[test]
    fn b33_one_host_is_asked_fifty_times_at_once_however_many_clients_paths_and_ports_there_are() {
        let (limits, now) = (limits(true), Instant::now());
        let asked = (0..100).filter(|number| {
            let client = IpAddr::from([192, 0, 2, u8::try_from(*number).unwrap()]);
            let callback = format!("http://victim.example:{}/{number}", 1_000 + number).parse().unwrap();
            limits.subscription(stranger(client), &topic(&number.to_string()), &callback, now).is_ok()
        });
        assert_eq!(asked.count(), 50);
        let later = now + Duration::from_secs(1);
        let one = |number: u8| {
            let client = IpAddr::from([192, 0, 2, 200 + number]);
            let callback = callback("victim.example", number.into());
            limits.subscription(stranger(client), &topic("t"), &callback, later).is_ok()
        };
        assert_eq!((0..20).filter(|number| one(*number)).count(), 5, "five more a second later");
    }

    #[test]
    fn b33_one_client_cannot_use_up_what_a_callback_host_has_for_all() {
        let (limits, now) = (limits(true), Instant::now());
        let ask = |client: &str, number: u32, confirmed| {
            let who = Requester { confirmed, ..stranger(ip(client)) };
            let topic = topic(&number.to_string());
            limits.subscription(who, &topic, &callback("d.example", number), now).is_ok()
        };
        assert_eq!((0..50).filter(|number| ask("192.0.2.1", *number, false)).count(), 10);
        assert!(ask("192.0.2.2", 50, false), "another asks as if nobody had");
        for last in 3..9 {
            (0..50).for_each(|number| {
                ask(&format!("192.0.2.{last}"), number, false);
            });
        }
        assert!(!ask("192.0.2.9", 51, false), "many use it up");
        assert!(ask("192.0.2.10", 52, true), "but not that of somebody whose requests are confirmed");
        assert!(!ask("192.0.2.1", 53, true), "who has its own bound too");
    }

    #[test]
    fn one_client_cannot_use_up_what_a_topic_has_for_all() {
        let (limits, now) = (limits(true), Instant::now());
        let ask = |client: &str, number: u32, confirmed| {
            let who = Requester { confirmed, ..stranger(ip(client)) };
            let callback = callback(&format!("d{number}.example"), 0);
            limits.subscription(who, &topic("t"), &callback, now).is_ok()
        };
        assert_eq!((0..100).filter(|number| ask("192.0.2.1", *number, false)).count(), 30, "its own burst");
        assert!(ask("192.0.2.3", 100, false), "another asks as if nobody had");
        for last in 4..10 {
            (0..30).for_each(|number| {
                ask(&format!("192.0.2.{last}"), number, false);
            });
        }
        assert!(!ask("192.0.2.10", 101, false), "many use it up");
        assert!(ask("192.0.2.11", 102, true), "but not that of somebody whose requests are confirmed");
        let subscriber = Requester { in_force: true, ..stranger(ip("192.0.2.2")) };
        let renewal = limits.subscription(subscriber, &topic("t"), &callback("d0.example", 0), now);
        assert!(renewal.is_ok(), "renewals do not depend on what strangers do");
    }

    #[test]
    fn b33_strangers_who_renew_in_a_subscribers_name_use_up_nothing_of_its_own() {
        let (limits, now) = (limits(true), Instant::now());
        let renew = |client: &str, confirmed| {
            let who = Requester { in_force: true, confirmed, ..stranger(ip(client)) };
            limits.subscription(who, &topic("t"), &callback("d.example", 0), now).is_ok()
        };
        let of_strangers = (1..20).flat_map(|last| std::iter::repeat_n(format!("192.0.2.{last}"), 20));
        assert_eq!(of_strangers.filter(|client| renew(client, false)).count(), 50, "all together");
        assert_eq!((0..100).filter(|_| renew("192.0.2.99", true)).count(), 10, "the subscriber's own");
    }

    #[test]
    fn b33_one_client_renews_so_often_however_many_subscriptions_it_has() {
        let (limits, now) = (limits(true), Instant::now());
        let renew = |number: &u32| {
            let who = Requester { in_force: true, confirmed: true, ..stranger(ip("::1")) };
            limits.subscription(who, &topic("t"), &callback("d.example", *number), now).is_ok()
        };
        assert_eq!((0..100).filter(renew).count(), 50);
    }

    #[test]
    fn b33_the_networks_of_an_ipv6_site_ask_about_one_pair_like_four_clients_also_if_trusted() {
        let now = Instant::now();
        let asked = |in_force| {
            let limits = limits(true);
            let ask = |network: &u16| {
                let client = IpAddr::from([0x2001, 0xdb8, 1, *network, 0, 0, 0, 0]);
                let who = Requester { in_force, confirmed: true, ..stranger(client) };
                limits.subscription(who, &topic("t"), &callback("d.example", 0), now).is_ok()
            };
            (0..200).filter(ask).count()
        };
        assert_eq!((asked(true), asked(false)), (40, 40));
    }

    #[test]
    fn limits_that_are_off_refuse_nobody() {
        let (limits, now) = (limits(false), Instant::now());
        assert!((0..1_000).all(|_| limits.client(ip("192.0.2.1"), now).is_ok()));
    }
}
