//! How many subscriptions, topics and callback hosts the hub keeps: for the clients of one network, and for all together.
//!
//! A subscription in force is renewed whatever the counts are. Requests that wait for verification come on top: of them each client has
//! its share of limiter. So the counts are looked at twice: when a request comes in, and once its callback has confirmed it. Only
//! what is confirmed in the same moment can pass them, which is no more than callbacks that are asked at once.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use resync_core::address::customer;
use resync_core::websub::{CallbackUrl, TopicUrl};

use crate::config::LimitsConfig;
use crate::store::{Additions, ClientUsage, StoreError, SubscriptionCounts, Subscriptions};

/// When to come back: leases end, and the shortest that a hub grants by default lasts so long.
const AGAIN_AFTER: Duration = Duration::from_secs(3_600);

/// The bounds of a hub.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// `None`: there are none.
    most: Option<Both>,
}

#[derive(Clone, Copy, Debug)]
struct Both {
    of_client: SubscriptionCounts,
    in_all: SubscriptionCounts,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Subscriptions in force.
    Subscriptions,
    /// Topics: of a client those with subscriptions, in all those that the hub knows.
    Topics,
    /// Origins of callbacks.
    Hosts,
}

/// A bound that one more subscription would pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    counted: Counted,
    most: u64,
}

/// Whose bound it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// That of the clients on one network.
    #[error(
        "this client's network has {}, which is its share of this hub: unsubscribe what is no longer needed or wait for leases to end, and subscribe again; the hub's operator can raise [limits] {}_of_client",
        .0.of_client(), .0.key()
    )]
    Client(Exceeded),
    /// That of all.
    #[error(
        "this hub has {}, which is all that it keeps: try again when leases have ended, or subscribe at another hub of the topic; its operator can raise [limits] {}",
        .0, .0.key()
    )]
    Hub(Exceeded),
}

impl Full {
    /// When to come back.
    pub fn wait(&self) -> Duration {
        AGAIN_AFTER
    }
}

impl Exceeded {
    fn key(&self) -> &'static str {
        match self.counted {
            Counted::Subscriptions => "most_subscriptions",
            Counted::Topics => "most_topics",
            Counted::Hosts => "most_callback_hosts",
        }
    }

    fn of_client(&self) -> String {
        let first = match self.counted {
            Counted::Subscriptions => "",
            Counted::Topics | Counted::Hosts => " that it was the first to name",
        };
        format!("{self}{first}")
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.counted {
            Counted::Subscriptions => "subscriptions",
            Counted::Topics => "topics",
            Counted::Hosts => "callback hosts",
        };
        write!(f, "{} {what}", self.most)
    }
}

impl Bounds {
    /// The bounds of a configuration.
    pub fn new(config: &LimitsConfig) -> Self {
        let of_client = SubscriptionCounts {
            subscriptions: config.most_subscriptions_of_client,
            topics: config.most_topics_of_client,
            hosts: config.most_callback_hosts_of_client,
        };
        let in_all = SubscriptionCounts {
            subscriptions: config.most_subscriptions,
            topics: config.most_topics,
            hosts: config.most_callback_hosts,
        };
        Self { most: config.enabled.then_some(Both { of_client, in_all }) }
    }

    /// Why this client may not have one more subscription, which is not in force yet. For one that is there is nothing to check.
    ///
    /// # Errors
    /// [`StoreError`] when what there is cannot be counted.
    pub(super) async fn check(
        &self,
        store: &dyn Subscriptions,
        client: Option<IpAddr>,
        topic: &TopicUrl,
        callback: &CallbackUrl,
    ) -> Result<Option<Full>, StoreError> {
        let Some(most) = &self.most else { return Ok(None) };
        let ClientUsage { of_client, in_all, new_to_client, new_to_hub } =
            store.accounted(client.map(customer), topic, callback).await?;
        let own = beyond(&of_client, &most.of_client, new_to_client).map(Full::Client);
        Ok(own.or_else(|| beyond(&in_all, &most.in_all, new_to_hub).map(Full::Hub)))
    }
}

fn beyond(now: &SubscriptionCounts, most: &SubscriptionCounts, new_to_client: Additions) -> Option<Exceeded> {
    let counts = [
        (Counted::Subscriptions, true, now.subscriptions, most.subscriptions),
        (Counted::Topics, new_to_client.topic, now.topics, most.topics),
        (Counted::Hosts, new_to_client.host, now.hosts, most.hosts),
    ];
    let full = counts.into_iter().find(|(_, one_more, now, most)| *one_more && now >= most);
    full.map(|(counted, .., most)| Exceeded { counted, most })
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::prelude::*;
    use resync_core::datetime::DateTime;

    use super::*;
    use crate::config;
    use crate::store::{
        self, Ended, Engine, Epoch, Intent, Keyring, NewRequest, Shard, Store, VerifiedSubscription,
    };

    const MOST: SubscriptionCounts = SubscriptionCounts { subscriptions: 3, topics: 2, hosts: 2 };

    #[test]
    fn only_what_a_subscription_brings_is_counted() {
        let now = SubscriptionCounts { subscriptions: 2, topics: 2, hosts: 2 };
        let beyond =
            |topic, host| beyond(&now, &MOST, Additions { topic, host }).map(|beyond| beyond.counted);
        assert_eq!(beyond(false, false), None, "it knows a topic and a host that are there already");
        assert_eq!(beyond(true, false), Some(Counted::Topics));
        assert_eq!(beyond(false, true), Some(Counted::Hosts));
        let full = SubscriptionCounts { subscriptions: 3, ..SubscriptionCounts::default() };
        let counted = super::beyond(&full, &MOST, Additions::default()).map(|beyond| beyond.counted);
        assert_eq!(counted, Some(Counted::Subscriptions));
    }

    #[test]
    fn a_refusal_says_whose_share_is_used_up_and_what_to_do() {
        let client = Full::Client(Exceeded { counted: Counted::Topics, most: 7 }).to_string();
        assert!(client.contains("7 topics that it was the first to name"), "{client}");
        assert!(client.contains("unsubscribe") && client.contains("most_topics_of_client"), "{client}");
        let hub = Full::Hub(Exceeded { counted: Counted::Hosts, most: 9 }).to_string();
        assert!(hub.contains("9 callback hosts") && hub.ends_with("[limits] most_callback_hosts"), "{hub}");
    }

    #[test]
    fn all_networks_of_an_ipv6_site_are_one_client_and_each_ipv4_address_is_its_own() {
        let payer = |text: &str| customer(text.parse().unwrap()).to_string();
        assert_eq!(payer("2001:db8:1:2::7"), payer("2001:db8:1:9::8"));
        assert_ne!(payer("2001:db8:1::"), payer("2001:db8:2::"));
        assert_ne!(payer("192.0.2.1"), payer("192.0.2.2"));
        assert_eq!(payer("::ffff:192.0.2.1"), "192.0.2.1");
    }

    /// A client, a topic and a callback host by their numbers.
    type Permit = (u8, u8, u8);

    #[derive(Clone, Debug)]
    enum Step {
        Subscribe(Permit),
        End(u8),
        Reopen,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..3_u8, 0..5_u8, 0..5_u8).prop_map(Step::Subscribe),
            3 => any::<u8>().prop_map(Step::End),
            1 => Just(Step::Reopen),
        ]
    }

    fn names((client, topic, host): Permit) -> (Option<IpAddr>, TopicUrl, CallbackUrl) {
        let topic = format!("http://source.example/{topic}").parse().unwrap();
        let callback = format!("http://d{host}.example/{client}").parse().unwrap();
        (Some(IpAddr::from([192, 0, 2, client])), topic, callback)
    }

    /// The subscriptions in force by when they began, who brought what has any, and all topics that there were.
    #[derive(Default)]
    struct Model {
        begun: BTreeMap<Permit, u64>,
        topics: BTreeMap<u8, u8>,
        hosts: BTreeMap<u8, u8>,
        known: BTreeSet<u8>,
        count: u64,
    }

    impl Model {
        fn accounted(&self, (client, topic, host): Permit) -> ClientUsage {
            let brought = |by: &BTreeMap<u8, u8>| by.values().filter(|by| **by == client).count() as u64;
            let is_new = !self.hosts.contains_key(&host);
            ClientUsage {
                of_client: SubscriptionCounts {
                    subscriptions: self.begun.keys().filter(|(of, ..)| *of == client).count() as u64,
                    topics: brought(&self.topics),
                    hosts: brought(&self.hosts),
                },
                in_all: SubscriptionCounts {
                    subscriptions: self.begun.len() as u64,
                    topics: self.known.len() as u64,
                    hosts: self.hosts.len() as u64,
                },
                new_to_client: Additions { topic: !self.topics.contains_key(&topic), host: is_new },
                new_to_hub: Additions { topic: !self.known.contains(&topic), host: is_new },
            }
        }

        fn begin(&mut self, (client, topic, host): Permit) {
            self.count += 1;
            self.begun.insert((client, topic, host), self.count);
            self.topics.entry(topic).or_insert(client);
            self.hosts.entry(host).or_insert(client);
            self.known.insert(topic);
        }

        /// What it brought stays its client's until nobody needs it.
        fn end(&mut self, permit: Permit) {
            self.begun.remove(&permit);
            self.topics.retain(|topic, _| self.begun.keys().any(|(_, of, _)| of == topic));
            self.hosts.retain(|host, _| self.begun.keys().any(|(.., at)| at == host));
        }

        /// Of those in force the first has brought it.
        fn reopen(&mut self) {
            let mut by_age: Vec<_> = self.begun.iter().collect();
            by_age.sort_by_key(|(_, age)| **age);
            (self.topics, self.hosts) = <_>::default();
            for ((client, topic, host), _) in by_age {
                self.topics.entry(*topic).or_insert(*client);
                self.hosts.entry(*host).or_insert(*client);
            }
        }

        fn admits(&self, permit: Permit, of_client: &SubscriptionCounts, all: &SubscriptionCounts) -> bool {
            let ClientUsage { of_client: own, in_all, new_to_client, new_to_hub } = self.accounted(permit);
            let fits = |now: &SubscriptionCounts, most: &SubscriptionCounts, new_to_client: Additions| {
                now.subscriptions < most.subscriptions
                    && (!new_to_client.topic || now.topics < most.topics)
                    && (!new_to_client.host || now.hosts < most.hosts)
            };
            fits(&own, of_client, new_to_client) && fits(&in_all, all, new_to_hub)
        }
    }

    async fn subscribe(store: &dyn Store, permit: Permit) {
        let (client, topic, callback) = names(permit);
        let (intent, received_at) = (Intent::Subscribe { lease: None, secret: None }, DateTime::now());
        let new = NewRequest { topic, callback, intent, verify_token: None, received_at, client };
        let request = store.put_request(new).await.unwrap();
        let verified = VerifiedSubscription::assumed(request, AGAIN_AFTER, DateTime::now());
        store.activate(verified).await.unwrap();
    }

    async fn end(store: &dyn Store, permit: Permit) {
        let (_, topic, callback) = names(permit);
        let known = store.find_subscription(&topic, &callback).await.unwrap().unwrap();
        let shard = Shard::of(&callback, store.shards());
        store
            .end(shard, Epoch::default(), known.topic, known.id, Ended::Gone { lease_end: known.lease_end })
            .await
            .unwrap();
    }

    async fn live(steps: Vec<Step>) {
        let folder = tempfile::tempdir().unwrap();
        let open = || store::open(Engine::default(), folder.path(), Keyring::none(), 0).unwrap();
        let limits = LimitsConfig {
            most_subscriptions_of_client: 6,
            most_topics_of_client: 2,
            most_callback_hosts_of_client: 3,
            most_subscriptions: 12,
            most_topics: 4,
            most_callback_hosts: 4,
            ..config::load(None, [], &Vec::new()).unwrap().limits
        };
        let bounds = Bounds::new(&limits);
        let most = bounds.most.unwrap();
        let (mut store, mut model) = (open(), Model::default());
        for step in steps {
            match step {
                Step::Subscribe(permit) if !model.begun.contains_key(&permit) => {
                    let (client, topic, callback) = names(permit);
                    let accounted = store.accounted(client.map(customer), &topic, &callback).await;
                    assert_eq!(accounted.unwrap(), model.accounted(permit));
                    let full = bounds.check(store.as_ref(), client, &topic, &callback).await.unwrap();
                    let admitted = full.is_none();
                    assert_eq!(admitted, model.admits(permit, &most.of_client, &most.in_all));
                    if admitted {
                        subscribe(store.as_ref(), permit).await;
                        model.begin(permit);
                    }
                }
                // A renewal is nothing new.
                Step::Subscribe(permit) => subscribe(store.as_ref(), permit).await,
                Step::End(which) if !model.begun.is_empty() => {
                    let permit = *model.begun.keys().nth(usize::from(which) % model.begun.len()).unwrap();
                    end(store.as_ref(), permit).await;
                    model.end(permit);
                }
                Step::End(_) => {}
                Step::Reopen => {
                    drop(store);
                    store = open();
                    model.reopen();
                }
            }
        }
        for client in 0..3 {
            let permit = (client, 0, 0);
            let (of, topic, callback) = names(permit);
            let accounted = store.accounted(of.map(customer), &topic, &callback).await.unwrap();
            assert_eq!(accounted, model.accounted(permit));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn whatever_begins_and_ends_the_counts_are_those_of_what_is_in_force(steps in vec(step(), 1..60)) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(live(steps));
        }
    }
}
