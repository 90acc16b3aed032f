//! Rate limits for pings without a token: per client, topic and host of the topic.

use std::net::IpAddr;
use std::time::Instant;

use resync_core::websub::TopicUrl;

use crate::config::LimitsConfig;
use crate::live_hubs::LiveHubs;
use crate::rate_limiter::{RateLimiter, Refusal, SharedRateLimiter, network};
use crate::topics::RedirectLimit;

/// The limits of pings; all apply.
#[derive(Clone, Debug)]
pub struct PingLimit {
    clients: RateLimiter,
    topics: SharedRateLimiter,
    hosts: SharedRateLimiter,
}

impl PingLimit {
    /// The limits of a configuration; those that are off never refuse.
    pub fn new(config: &LimitsConfig) -> Self {
        let shared = |rate| SharedRateLimiter::new(config.enabled, rate);
        Self {
            clients: RateLimiter::new(config.enabled, config.ping_client),
            topics: shared(config.ping_topic),
            hosts: shared(config.ping_host),
        }
    }

    /// From now on these hubs have the rates together.
    #[must_use]
    pub fn divided_among(self, hubs: &LiveHubs) -> Self {
        Self {
            clients: self.clients.divided_among(hubs),
            topics: self.topics.divided_among(hubs),
            hosts: self.hosts.divided_among(hubs),
        }
    }

    /// What redirects of topics use up at the other hosts they lead to. It is not divided among hubs: one of them fetches all topics of
    /// an origin.
    pub fn of_redirects(&self) -> RedirectLimit {
        RedirectLimit::new(self.hosts.clone().divided_among(&LiveHubs::default()))
    }

    /// Whether there is any limit.
    pub(super) fn is_on(&self) -> bool {
        self.clients.is_on()
    }

    /// Counts the topics that the hub has to fetch for a ping: all of them, or none. Topics that nobody subscribed to are not fetched, and
    /// cost nothing.
    pub(super) fn admit(&self, client: IpAddr, topics: &[TopicUrl], now: Instant) -> Result<(), Refusal> {
        let client = network(client);
        let keys: Vec<_> = topics.iter().map(TopicUrl::key).collect();
        let hosts: Vec<_> = topics.iter().map(|topic| topic.url().host_str().unwrap_or_default()).collect();
        self.clients.admit_all(topics.iter().map(|_| client), now)?;
        let fetches = self.topics.admit_all(Some(client), &keys, now).and_then(|()| {
            let of_hosts = self.hosts.admit_all(Some(client), &hosts, now);
            of_hosts.inspect_err(|_| self.topics.give_back(Some(client), &keys))
        });
        fetches.inspect_err(|_| topics.iter().for_each(|_| self.clients.undo(client, 1)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::concurrency::{Client, ClientClass};
    use crate::config;

    fn limit(enabled: bool) -> PingLimit {
        let config = config::load(None, [], &Vec::new()).unwrap();
        PingLimit::new(&LimitsConfig { enabled, ..config.limits })
    }

    fn topic(path: &str) -> TopicUrl {
        format!("http://source.example/{path}").parse().unwrap()
    }

    fn on_host(number: usize) -> TopicUrl {
        format!("http://source{number}.example/").parse().unwrap()
    }

    fn client(number: usize) -> IpAddr {
        std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap()).into()
    }

    fn fetched(limit: &PingLimit, mut ping: impl FnMut(usize) -> (IpAddr, TopicUrl)) -> usize {
        let now = Instant::now();
        let pings = (0..1_000).map(&mut ping);
        pings.filter(|(client, topic)| limit.admit(*client, std::slice::from_ref(topic), now).is_ok()).count()
    }

    #[test]
    fn one_topic_one_host_and_one_client_each_have_their_limit() {
        assert_eq!(fetched(&limit(true), |number| (client(1), on_host(number))), 100);
        assert_eq!(fetched(&limit(true), |number| (client(number), on_host(number))), 1_000);
        assert_eq!(fetched(&limit(true), |_| (client(1), topic("same"))), 10);
        assert_eq!(fetched(&limit(true), |number| (client(number), topic("same"))), 50, "all together");
        assert_eq!(fetched(&limit(true), |number| (client(1), topic(&number.to_string()))), 100);
        assert_eq!(fetched(&limit(true), |number| (client(number), topic(&number.to_string()))), 500);
        assert_eq!(fetched(&limit(false), |_| (client(1), topic("same"))), 1_000);
    }

    #[test]
    fn redirects_of_pinged_topics_and_pings_use_up_the_same_at_a_host() {
        let (limit, now) = (limit(true), Instant::now());
        let by = Client { network: Some(client(1)), class: ClientClass::Stranger };
        let redirected = limit.of_redirects();
        let redirect = |by: Client| redirected.admit("source.example", &[by], now).is_ok();
        assert!((0..60).all(|_| redirect(by)));
        let ping = |number: &usize| limit.admit(client(1), &[topic(&number.to_string())], now).is_ok();
        assert_eq!((0..100).filter(ping).count(), 40);
        assert!(!redirect(by));
    }

    #[test]
    fn redirects_tell_the_networks_of_a_site_apart_and_unknown_clients_have_what_all_have() {
        let (limit, now) = (limit(true), Instant::now());
        let redirected = limit.of_redirects();
        let redirects = |client| {
            let by = [Client { network: client, class: ClientClass::Stranger }];
            (0..1_000).filter(|_| redirected.admit("source.example", &by, now).is_ok()).count()
        };
        let address = |of: u16| IpAddr::from([0x2001, 0xdb8, 1, of, 0, 0, 0, 7]);
        assert_eq!([1, 2].map(|of| redirects(Some(network(address(of))))), [100, 100]);
        assert!(limit.admit(address(1), &[topic("its")], now).is_err());
        assert!(limit.admit(address(3), &[topic("its")], now).is_ok());
        assert_eq!(redirects(None), 299, "five times as much as one, and 201 are used up");
    }

    #[test]
    fn a_publisher_has_the_whole_rate_for_redirects_however_many_hubs_there_are() {
        let (hubs, now) = (LiveHubs::default(), Instant::now());
        hubs.set(3);
        let limit = limit(true).divided_among(&hubs);
        let redirected = limit.of_redirects();
        let by = [Client { network: Some(client(1)), class: ClientClass::Stranger }];
        assert!((0..100).all(|_| redirected.admit("source.example", &by, now).is_ok()));
        assert!(redirected.admit("source.example", &by, now).is_err());
        let ping = |number: &usize| limit.admit(client(2), &[topic(&number.to_string())], now).is_ok();
        assert_eq!((0..100).filter(ping).count(), 34, "pings go to all of them");
    }

    #[test]
    fn one_client_uses_up_nothing_of_anothers_pings() {
        let (limit, now) = (limit(true), Instant::now());
        for number in 0..1_000 {
            let _ = limit.admit(client(1), &[topic(&number.to_string())], now);
            let _ = limit.admit(client(1), &[topic("honest")], now);
        }
        assert!(limit.admit(client(2), &[topic("honest")], now).is_ok());
    }

    #[test]
    fn who_waits_as_long_as_told_is_admitted() {
        let (limit, now, same) = (limit(true), Instant::now(), topic("same"));
        let refused =
            (0..100).find_map(|_| limit.admit(client(1), std::slice::from_ref(&same), now).err()).unwrap();
        let Refusal::Later(wait) = refused else { panic!("one more is not too many: {refused:?}") };
        assert!(limit.admit(client(1), std::slice::from_ref(&same), now + wait).is_ok());
    }

    #[test]
    fn a_ping_of_many_topics_is_taken_as_a_whole_or_costs_nothing() {
        let (limit, now) = (limit(true), Instant::now());
        let topics: Vec<_> = (0..100).map(|number| topic(&number.to_string())).collect();
        let too_many: Vec<_> = (0..101).map(on_host).collect();
        assert_eq!(limit.admit(client(1), &too_many, now), Err(Refusal::Never(100)), "and it never will be");
        assert!(limit.admit(client(1), &topics[..60], now).is_ok());
        let refused = limit.admit(client(1), &topics, now);
        let Err(Refusal::Later(wait)) = refused else { panic!("sixty are too many: {refused:?}") };
        assert_eq!(wait, Duration::from_secs(6), "until the client has sixty more");
        assert!(limit.admit(client(1), &topics[60..], now).is_ok(), "the refused one took nothing");
        let later = now + Duration::from_secs(10);
        let refused = limit.admit(client(1), &topics, later);
        assert_eq!(refused, Err(Refusal::Later(Duration::from_secs(10))), "until the host has fifty more");
        assert!(
            limit.admit(client(1), &too_many[..50], later).is_ok(),
            "the refused one gave back the client's"
        );
    }
}
