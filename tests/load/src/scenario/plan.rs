//! What a seed makes of a scenario: every post, every host's manner and every fault with its moment, before anything runs.

use std::time::Duration;

use fastrand::Rng;

use super::{Behaviour, Fault, FaultKind, Pattern, Scenario, When};

/// A notification to be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Post {
    /// Since the beginning of the run.
    pub(crate) due: Duration,
    pub(crate) topic: u32,
    pub(crate) bytes: u32,
    /// What every receiver answers to it.
    pub(crate) poison: Option<u16>,
}

/// A fault at its moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Act {
    pub(crate) at: Duration,
    pub(crate) kind: FaultKind,
    pub(crate) lasting: Duration,
}

/// A subscription moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Motion {
    /// It is asked for, for the first time or again.
    Subscribe,
    /// It is given up.
    Unsubscribe,
}

/// Everything that is drawn by lot.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// By their moments.
    pub(crate) posts: Vec<Post>,
    /// By their moments.
    pub(crate) acts: Vec<Act>,
    /// By their moments: when, who, what.
    pub(crate) motions: Vec<(Duration, u32, Motion)>,
    /// By host.
    pub(crate) hosts: Vec<Behaviour>,
    /// Those there from the beginning; the others come later.
    pub(crate) audience: u32,
    /// All that are ever there.
    pub(crate) subscribers: u32,
}

impl Plan {
    /// For an audience of so many, to whom is published in this pattern.
    pub(crate) fn new(scenario: &Scenario, pattern: Pattern, audience: u32) -> Self {
        // Each kind of thing has lots of its own, so that one more fault does not change the sizes of notifications.
        let rng = |kind: u64| Rng::with_seed(scenario.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ kind);
        let mut posts = posts(scenario, pattern, &mut rng(1));
        let acts = acts(&scenario.faults, &mut rng(2));
        for act in &acts {
            if let FaultKind::Poison(status) = act.kind {
                let at = posts.partition_point(|post| post.due < act.at);
                if let Some(post) = posts.get_mut(at) {
                    post.poison = Some(status);
                }
            }
        }
        let (motions, comers) = motions(scenario, audience, &mut rng(3));
        let hosts = manners(scenario, &mut rng(4));
        Self { posts, acts, motions, hosts, audience, subscribers: audience + comers }
    }

    /// The number of the first post that is due then or later.
    pub(crate) fn first_from(&self, moment: Duration) -> Option<u32> {
        let first = self.posts.partition_point(|post| post.due < moment);
        u32::try_from(first).ok().filter(|_| first < self.posts.len())
    }

    /// The topic and the host of a subscriber: those of one topic are on as many hosts as there are.
    pub(crate) fn place(&self, topics: u32, subscriber: u32) -> (u32, u32) {
        let topic = subscriber % topics;
        let hosts = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        (topic, (subscriber / topics + topic) % hosts)
    }
}

fn posts(scenario: &Scenario, pattern: Pattern, rng: &mut Rng) -> Vec<Post> {
    let (from, to) = scenario.publish.payload;
    let mut dues = Vec::new();
    let mut at = Duration::ZERO;
    match pattern {
        Pattern::Steady(rate) => {
            for number in 0_u32.. {
                at = Duration::from_secs_f64(f64::from(number) / rate);
                if at >= scenario.duration {
                    break;
                }
                dues.push(at);
            }
        }
        Pattern::Poisson(rate) => dues = moments(rate, scenario.duration, rng),
        Pattern::Burst { size, every } => {
            if !scenario.warmup.is_zero() {
                // One for each topic makes the connections.
                dues.extend((0..scenario.audience.topics).map(|_| Duration::ZERO));
                at = scenario.warmup;
            }
            while at < scenario.duration.max(scenario.warmup + Duration::from_nanos(1)) {
                dues.extend((0..size).map(|_| at));
                let Some(next) = at.checked_add(every) else { break };
                at = next;
            }
        }
    }
    let topics = (0..scenario.audience.topics).cycle();
    let post = |(due, topic)| Post { due, topic, bytes: rng.u32(from..=to), poison: None };
    dues.into_iter().zip(topics).map(post).collect()
}

fn acts(faults: &[Fault], rng: &mut Rng) -> Vec<Act> {
    let mut acts = Vec::new();
    for fault in faults {
        let act = |at| Act { at, kind: fault.kind, lasting: fault.lasting };
        match &fault.when {
            When::At(moments) => acts.extend(moments.iter().copied().map(act)),
            When::Random { times, from, to } => {
                acts.extend((0..*times).map(|_| act(*from + to.saturating_sub(*from).mul_f64(rng.f64()))));
            }
        }
    }
    acts.sort_by_key(|act| act.at);
    acts
}

fn motions(scenario: &Scenario, audience: u32, rng: &mut Rng) -> (Vec<(Duration, u32, Motion)>, u32) {
    let mut motions = Vec::new();
    let churn = scenario.churn;
    for at in moments(churn.renewals, scenario.duration, rng) {
        motions.push((at, rng.u32(0..audience.max(1)), Motion::Subscribe));
    }
    let mut comers = 0;
    for at in moments(churn.comers, scenario.duration, rng) {
        let who = audience + comers;
        comers += 1;
        motions.push((at, who, Motion::Subscribe));
        if at + churn.stay < scenario.duration {
            motions.push((at + churn.stay, who, Motion::Unsubscribe));
        }
    }
    motions.sort_by_key(|(at, ..)| *at);
    (motions, comers)
}

/// Random moments, so many a second on average.
fn moments(rate: f64, until: Duration, rng: &mut Rng) -> Vec<Duration> {
    let mut moments = Vec::new();
    let mut at = Duration::ZERO;
    if rate > 0.0 {
        loop {
            at += Duration::from_secs_f64(-(1.0 - rng.f64()).ln() / rate);
            if at >= until {
                break;
            }
            moments.push(at);
        }
    }
    moments
}

/// Each share gets its hosts, rounded, and which ones these are is drawn by lot.
fn manners(scenario: &Scenario, rng: &mut Rng) -> Vec<Behaviour> {
    let hosts = scenario.audience.hosts as usize;
    let mut manners = Vec::with_capacity(hosts);
    let mut shares = 0.0;
    for receivers in &scenario.receivers {
        shares += receivers.share;
        // Shares are from 0 to 1, and hosts are few.
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let until = (shares * hosts as f64).round() as usize;
        manners.resize(until.clamp(manners.len(), hosts), receivers.behaviour);
    }
    manners.resize(hosts, Behaviour::Well);
    rng.shuffle(&mut manners);
    manners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Pace;

    const MIXED: &str = r#"
about = "everything that is drawn by lot"
seed = 7
duration = "10s"
[audience]
topics = 3
subscribers = 50
hosts = 20
[publish]
pattern = "poisson"
rate = 40
payload = ["100 B", "2 KiB"]
[[receivers]]
share = 0.25
behaviour = "slow"
[churn]
renewals = 5
comers = 2
[[fault]]
kind = "kill"
times = 4
between = ["1s", "9s"]
"#;

    fn plan(text: &str) -> Plan {
        let scenario = Scenario::parse("mixed", text).unwrap();
        let Pace::Given(pattern) = scenario.publish.pace else { panic!("{scenario:?} gives no pattern") };
        Plan::new(&scenario, pattern, 50)
    }

    #[test]
    fn a_seed_makes_the_same_of_a_scenario_each_time_and_another_one_something_else() {
        let one = plan(MIXED);
        assert_eq!(one, plan(MIXED));
        let other = plan(&MIXED.replace("seed = 7", "seed = 8"));
        assert_ne!(one.acts, other.acts);
        assert_ne!(one.posts, other.posts);
        assert_ne!(one.hosts, other.hosts);
        assert!(!one.motions.is_empty() && one.acts.len() == 4);
    }

    #[test]
    fn one_more_fault_leaves_what_is_published_as_it_is() {
        let more = format!("{MIXED}\n[[fault]]\nkind = \"pause\"\nat = \"2s\"\n");
        assert_eq!(plan(MIXED).posts, plan(&more).posts);
    }

    #[test]
    fn shares_become_hosts_and_a_topic_is_on_many_of_them() {
        let plan = plan(MIXED);
        assert_eq!(plan.hosts.iter().filter(|one| matches!(one, Behaviour::Slow(_))).count(), 5);
        let hosts: std::collections::BTreeSet<_> = (0..50)
            .map(|one| plan.place(2, one))
            .filter(|(topic, _)| *topic == 0)
            .map(|(_, host)| host)
            .collect();
        assert_eq!(hosts.len(), 20);
    }

    #[test]
    fn bursts_come_after_one_notification_for_each_topic_has_made_the_connections() {
        let text = MIXED
            .replace("pattern = \"poisson\"\nrate = 40", "pattern = \"burst\"\nsize = 6\nevery = \"5s\"");
        let warm = plan(&text.replace("seed = 7", "seed = 7\nwarmup = \"1s\""));
        let dues: Vec<_> = warm.posts.iter().map(|post| post.due.as_secs()).collect();
        assert_eq!(dues, [vec![0; 3], vec![1; 6], vec![6; 6]].concat());
        assert_eq!(plan(&text).posts.len(), 12);
    }
}
