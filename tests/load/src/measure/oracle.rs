//! The oracle: from every post with its answer and every delivery with its moment, what the hub did wrong, and by which name.
//!
//! Posts to one topic may be under way at once. Their order counts only where one was answered before the other was sent:
//! then every subscriber must get them so. What was refused or never answered is owed to nobody, and may come.

use std::collections::HashMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Examples that a finding names.
const EXAMPLES: usize = 5;
/// Around the beginning and the end of a subscription nobody can say whether a notification is owed. A hub that could not write an end down
/// tries again after a second.
const GRACE: Duration = Duration::from_secs(2);

/// How long before a death what comes again after it may have come first. What was delivered is saved with the third checkpoint after it at the
/// latest, for each of which the test `crash` allows 350 ms, and 3 s more where the disk has failed; the rest is for a busy machine.
const FORGETS: Duration = Duration::from_secs(5);

/// Which notifications are owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Each one.
    Every,
    /// The newest.
    Latest,
}

/// What became of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A 2xx: now the hub owes it.
    Acknowledged,
    /// Another status.
    Refused(u16),
    /// No answer: nobody knows whether the hub has it.
    Unknown,
}

/// A notification that was sent to the hub. Moments are since the beginning of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posted {
    pub(crate) topic: u32,
    pub(crate) sent: Duration,
    pub(crate) answered: Duration,
    pub(crate) outcome: Outcome,
    /// Receivers refuse it, so it is owed to nobody.
    pub(crate) is_poisoned: bool,
}

/// A delivery that was answered by a 2xx.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// The number of the post.
    pub(crate) post: u32,
    /// In tenths of milliseconds since the beginning.
    pub(crate) at: u32,
}

impl Arrival {
    pub(crate) fn new(post: u32, at: Duration) -> Self {
        Self { post, at: u32::try_from(at.as_micros() / 100).unwrap_or(u32::MAX) }
    }

    pub(crate) fn moment(self) -> Duration {
        Duration::from_micros(u64::from(self.at) * 100)
    }
}

/// A subscription and all that came.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) topic: u32,
    /// When it was verified; `None`: never.
    pub(crate) from: Option<Duration>,
    /// When its lease ended or somebody asked for its end: nothing is owed any more.
    pub(crate) until: Option<Duration>,
    /// When its lease ended or the hub had its end confirmed: nothing may come any more.
    pub(crate) ended: Option<Duration>,
    /// Whether its receiver takes deliveries in the end.
    pub(crate) is_owed: bool,
    pub(crate) arrivals: Vec<Arrival>,
}

/// From the one to the other moment the hub was dead or asleep: what came first shortly before, or meanwhile, may be forgotten, and comes again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Excuse {
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// Everything that is known.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) rule: Rule,
    pub(crate) posts: Vec<Posted>,
    pub(crate) subscriptions: Vec<Subscription>,
    pub(crate) excuses: Vec<Excuse>,
    /// Bodies, signatures and topics that were not those of the post.
    pub(crate) altered: u64,
    /// Redirects that were followed.
    pub(crate) followed: u64,
    /// What was examined by hand so far.
    pub(crate) notes: Vec<String>,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// Deliveries that the hub owed.
    pub owed: u64,
    /// Of these, those that came.
    pub delivered: u64,
    /// Of these, those that never came: `dropped` and `forgotten` together.
    pub lost: u64,
    /// Deliveries that never came while other subscribers got the same notification.
    pub dropped: u64,
    /// Notifications that were acknowledged and that none of several subscribers got.
    pub forgotten: u64,
    /// Deliveries that came again although nothing had happened to the hub within seconds after they first came.
    pub duplicated: u64,
    /// Deliveries that came again after the hub had died or slept.
    pub repeated: u64,
    /// Deliveries that came after a notification that was sent after them was acknowledged.
    pub reordered: u64,
    /// Notifications that a subscriber saw missing when a later one came.
    pub gaps: u64,
    /// Deliveries long before a subscription's beginning or after its end.
    pub uninvited: u64,
    /// Deliveries with another body, signature or topic.
    pub altered: u64,
    /// Redirects of receivers that the hub followed.
    pub followed: u64,
    /// Each kind of fault that was found, by name and with examples.
    pub findings: Vec<Finding>,
}

/// A kind of fault that the hub showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// As the fields of [`Judgement`] are called.
    pub name: String,
    /// How often.
    pub count: u64,
    /// What it means.
    pub meaning: String,
    /// Some of them.
    pub examples: Vec<String>,
}

impl Ledger {
    pub(crate) fn judge(&self) -> Judgement {
        let mut judge = Judge {
            ledger: self,
            settled: self.settled(),
            taken: self.taken(),
            judgement: Judgement::default(),
            examples: HashMap::new(),
            missing: HashMap::new(),
        };
        let mut topics: HashMap<u32, Vec<u32>> = HashMap::new();
        for (number, post) in (0..).zip(&self.posts) {
            if post.outcome == Outcome::Acknowledged && !post.is_poisoned {
                topics.entry(post.topic).or_default().push(number);
            }
        }
        for (number, subscription) in self.subscriptions.iter().enumerate() {
            let acknowledged = topics.get(&subscription.topic).map_or(&[][..], Vec::as_slice);
            judge.subscription(number, subscription, acknowledged);
        }
        judge.finish()
    }

    /// By post: when it had been acknowledged and had come to everybody to whom it ever came.
    fn settled(&self) -> Vec<Duration> {
        let mut settled: Vec<_> = self.posts.iter().map(|post| post.answered).collect();
        for arrival in self.subscriptions.iter().flat_map(|one| &one.arrivals) {
            let moment = &mut settled[arrival.post as usize];
            *moment = (*moment).max(arrival.moment());
        }
        settled
    }

    /// When each post was sent, in this order, and when the first of those sent then or later was acknowledged (`MAX`: never).
    fn taken(&self) -> Vec<(Duration, Duration)> {
        let taken = |post: &Posted| match post.outcome {
            Outcome::Acknowledged => (post.sent, post.answered),
            Outcome::Refused(_) | Outcome::Unknown => (post.sent, Duration::MAX),
        };
        let mut all: Vec<_> = self.posts.iter().map(taken).collect();
        all.sort_unstable();
        let mut first = Duration::MAX;
        for (_, acknowledged) in all.iter_mut().rev() {
            first = first.min(*acknowledged);
            *acknowledged = first;
        }
        all
    }
}

/// When a notification came to a subscriber.
#[derive(Clone, Copy, Debug)]
struct Came {
    first: Duration,
    last: Duration,
}

struct Judge<'l> {
    ledger: &'l Ledger,
    settled: Vec<Duration>,
    taken: Vec<(Duration, Duration)>,
    judgement: Judgement,
    examples: HashMap<&'static str, Vec<String>>,
    /// By post: how many it was owed to, and how many did not get it.
    missing: HashMap<u32, (u64, u64)>,
}

impl Judge<'_> {
    fn subscription(&mut self, number: usize, subscription: &Subscription, acknowledged: &[u32]) {
        let posts = &self.ledger.posts;
        let mut came: HashMap<u32, Came> = HashMap::with_capacity(subscription.arrivals.len());
        let owed = self.owed(subscription, acknowledged);
        // What must have come before a later one: by the moment of acknowledgement.
        let mut expected: Vec<u32> = if self.ledger.rule == Rule::Every { owed.clone() } else { Vec::new() };
        expected.sort_by_key(|post| posts[*post as usize].answered);
        let mut next = 0;
        let mut newest: Option<(Duration, u32)> = None;
        for arrival in &subscription.arrivals {
            let (post, at) = (&posts[arrival.post as usize], arrival.moment());
            if self.is_uninvited(subscription, at) {
                self.judgement.uninvited += 1;
                self.example("uninvited", || {
                    format!("#{} to subscriber {number} at {}", arrival.post, seconds(at))
                });
            }
            if let Some(known) = came.get_mut(&arrival.post) {
                let before = *known;
                known.last = at;
                self.again(number, arrival.post, before, at);
                continue;
            }
            came.insert(arrival.post, Came { first: at, last: at });
            if let Some((_, later)) = newest.filter(|(sent, _)| post.answered < *sent) {
                self.judgement.reordered += 1;
                self.example("reordered", || {
                    format!(
                        "#{} came to subscriber {number} after #{later}, at {}",
                        arrival.post,
                        seconds(at)
                    )
                });
            }
            while let Some(hole) = expected.get(next) {
                let is_there = came.contains_key(hole);
                if !is_there && posts[*hole as usize].answered >= post.sent {
                    break;
                }
                if !is_there {
                    self.judgement.gaps += 1;
                    self.example("gaps", || {
                        format!("#{hole} was missing when #{} came to subscriber {number}", arrival.post)
                    });
                }
                next += 1;
            }
            if newest.is_none_or(|(sent, _)| post.sent > sent) {
                newest = Some((post.sent, arrival.post));
            }
        }
        self.losses(number, &owed, &came);
    }

    fn losses(&mut self, number: usize, owed: &[u32], came: &HashMap<u32, Came>) {
        let last = |post: u32| came.keys().any(|one| *one >= post);
        for post in owed {
            let is_there = match self.ledger.rule {
                Rule::Every => came.contains_key(post),
                Rule::Latest => last(*post),
            };
            self.judgement.owed += 1;
            let missing = self.missing.entry(*post).or_default();
            missing.0 += 1;
            if is_there {
                self.judgement.delivered += 1;
            } else {
                missing.1 += 1;
                self.judgement.lost += 1;
                let answered = self.ledger.posts[*post as usize].answered;
                self.example("dropped", || {
                    format!(
                        "#{post}, acknowledged at {}, never came to subscriber {number}",
                        seconds(answered)
                    )
                });
            }
        }
    }

    /// What is owed for certain, in the order of the posts.
    fn owed(&self, subscription: &Subscription, acknowledged: &[u32]) -> Vec<u32> {
        let Some(from) = subscription.from.filter(|_| subscription.is_owed) else { return Vec::new() };
        let is_owed = |number: &u32| {
            let post = &self.ledger.posts[*number as usize];
            // The first subscriptions are known to be in force before the beginning.
            let begun = from.is_zero() || post.sent > from + GRACE;
            // Whoever leaves while others still wait may have been one of them.
            begun && subscription.until.is_none_or(|until| self.settled[*number as usize] + GRACE < until)
        };
        let owed: Vec<u32> = acknowledged.iter().copied().filter(is_owed).collect();
        match self.ledger.rule {
            Rule::Every => owed,
            Rule::Latest => owed.last().copied().into_iter().collect(),
        }
    }

    fn is_uninvited(&self, subscription: &Subscription, at: Duration) -> bool {
        match (subscription.from, subscription.ended) {
            (None, _) => true,
            (Some(from), _) if at + GRACE < from => true,
            (_, Some(ended)) => {
                let written = self.written(ended);
                // A delivery that was under way while the hub slept or was down may come late.
                let excuses = self.ledger.excuses.iter();
                let slept: Duration =
                    excuses.map(|one| one.until.saturating_sub(one.from.max(written))).sum();
                at > written.saturating_add(GRACE + slept)
            }
            _ => false,
        }
    }

    /// By when a hub has written down an end that was confirmed at this moment: by when it acknowledges a post that was sent later. While its
    /// store takes no posts, it takes no end either.
    fn written(&self, ended: Duration) -> Duration {
        let next = self.taken.partition_point(|(sent, _)| *sent < ended);
        self.taken.get(next).map_or(ended, |(_, acknowledged)| *acknowledged)
    }

    fn again(&mut self, number: usize, post: u32, before: Came, at: Duration) {
        let all = &self.ledger.excuses;
        let excuses = |one: &Excuse| {
            // Who is dead saves nothing, so that time does not count.
            let away: Duration = all
                .iter()
                .map(|other| other.until.min(one.from).saturating_sub(other.from.max(before.first)))
                .sum();
            before.last <= one.until && one.from <= at && one.from <= before.first + FORGETS + away
        };
        if all.iter().any(excuses) {
            self.judgement.repeated += 1;
        } else {
            self.judgement.duplicated += 1;
            self.example("duplicated", || {
                format!(
                    "#{post} came to subscriber {number} at {} and again at {}",
                    seconds(before.first),
                    seconds(at)
                )
            });
        }
    }

    fn finish(mut self) -> Judgement {
        let (altered, followed) = (self.ledger.altered, self.ledger.followed);
        let mut nobody: Vec<_> =
            self.missing.iter().filter(|(_, (owed, lost))| owed == lost && *owed > 1).collect();
        nobody.sort();
        let lost_with_them: u64 = nobody.iter().map(|(_, (_, lost))| lost).sum();
        let forgotten: Vec<_> = nobody
            .iter()
            .take(EXAMPLES)
            .map(|(post, (owed, _))| {
                let answered = self.ledger.posts[**post as usize].answered;
                format!("#{post}, acknowledged at {}, came to none of {owed} subscribers", seconds(answered))
            })
            .collect();
        let judgement = &mut self.judgement;
        judgement.forgotten = nobody.len() as u64;
        judgement.dropped = judgement.lost - lost_with_them;
        (judgement.altered, judgement.followed) = (altered, followed);
        self.examples.insert("forgotten", forgotten);
        self.examples.insert("altered", self.ledger.notes.clone());
        let meanings = [
            (
                "forgotten",
                judgement.forgotten,
                "acknowledged, and nobody got it: acknowledged before it was stored?",
            ),
            ("dropped", judgement.dropped, "owed to a subscriber who never got it, while others did"),
            (
                "duplicated",
                judgement.duplicated,
                "came again, and nothing had happened to the hub just after it first came",
            ),
            ("reordered", judgement.reordered, "came after what was published later"),
            ("gaps", judgement.gaps, "was missing when a later one came"),
            ("uninvited", judgement.uninvited, "came outside of its subscription"),
            ("altered", judgement.altered, "body, signature or topic are not those of the post"),
            ("followed", judgement.followed, "a redirect of a callback was followed"),
        ];
        let examples = &mut self.examples;
        let findings =
            meanings.into_iter().filter(|(_, count, _)| *count > 0).map(|(name, count, meaning)| Finding {
                name: name.to_owned(),
                count,
                meaning: meaning.to_owned(),
                examples: examples.remove(name).unwrap_or_default(),
            });
        self.judgement.findings = findings.collect();
        self.judgement
    }

    fn example(&mut self, name: &'static str, example: impl FnOnce() -> String) {
        let examples = self.examples.entry(name).or_default();
        if examples.len() < EXAMPLES {
            examples.push(example());
        }
    }
}

fn seconds(moment: Duration) -> String {
    format!("{:.3} s", moment.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Sent every 10 ms, and answered 1 ms later.
    fn posts(count: u64) -> Vec<Posted> {
        (0..count)
            .map(|number| Posted {
                topic: 0,
                sent: at(10 * number),
                answered: at(10 * number + 1),
                outcome: Outcome::Acknowledged,
                is_poisoned: false,
            })
            .collect()
    }

    /// Each gets these posts, one every 10 ms.
    fn ledger(count: u64, came: &[&[u32]]) -> Ledger {
        let subscription = |came: &&[u32]| Subscription {
            topic: 0,
            from: Some(Duration::ZERO),
            until: None,
            ended: None,
            is_owed: true,
            arrivals: (1..).zip(*came).map(|(turn, post)| Arrival::new(*post, at(10 * turn + 5))).collect(),
        };
        Ledger {
            rule: Rule::Every,
            posts: posts(count),
            subscriptions: came.iter().map(subscription).collect(),
            excuses: Vec::new(),
            altered: 0,
            followed: 0,
            notes: Vec::new(),
        }
    }

    fn names(judgement: &Judgement) -> Vec<(&str, u64)> {
        judgement.findings.iter().map(|finding| (finding.name.as_str(), finding.count)).collect()
    }

    #[test]
    fn a_hub_that_keeps_its_word_has_no_findings() {
        let judgement = ledger(3, &[&[0, 1, 2], &[0, 1, 2]]).judge();
        assert!(judgement.findings.is_empty(), "{judgement:?}");
        assert_eq!((judgement.owed, judgement.delivered, judgement.lost), (6, 6, 0));
    }

    #[test]
    fn what_one_subscriber_misses_is_dropped_and_what_all_miss_is_forgotten() {
        let judgement = ledger(4, &[&[0, 2], &[0, 1, 2]]).judge();
        assert_eq!(names(&judgement), [("forgotten", 1), ("dropped", 1), ("gaps", 1)]);
        assert_eq!(judgement.lost, 3);
    }

    #[test]
    fn what_comes_after_a_later_one_is_reordered_unless_both_were_under_way_at_once() {
        let mut ledger = ledger(3, &[&[0, 2, 1]]);
        assert_eq!(names(&ledger.judge()), [("reordered", 1), ("gaps", 1)]);
        ledger.posts[1].answered = at(25);
        assert!(ledger.judge().findings.is_empty());
    }

    #[test]
    fn a_repetition_is_excused_by_a_death_in_between_only() {
        let mut ledger = ledger(2, &[&[0, 1, 1]]);
        assert_eq!(names(&ledger.judge()), [("duplicated", 1)]);
        ledger.excuses = vec![Excuse { from: at(26), until: at(27) }];
        let judgement = ledger.judge();
        assert_eq!((names(&judgement), judgement.repeated), (vec![], 1));
        ledger.excuses = vec![Excuse { from: at(1), until: at(2) }];
        assert_eq!(names(&ledger.judge()), [("duplicated", 1)]);
    }

    #[test]
    fn a_hub_that_sends_everything_again_after_it_died_is_not_excused_but_for_what_came_just_before() {
        let mut ledger = ledger(2, &[&[0, 1, 0, 1]]);
        let arrivals = &mut ledger.subscriptions[0].arrivals;
        let (early, late) = (at(14_999), at(15_000));
        let death = late + FORGETS;
        for (arrival, moment) in arrivals.iter_mut().zip([early, late, death + at(10), death + at(10)]) {
            *arrival = Arrival::new(arrival.post, moment);
        }
        ledger.excuses = vec![Excuse { from: death, until: death + at(5) }];
        let judgement = ledger.judge();
        assert_eq!((names(&judgement), judgement.repeated), (vec![("duplicated", 1)], 1));
        assert_eq!(
            judgement.findings[0].examples,
            ["#0 came to subscriber 0 at 14.999 s and again at 20.010 s"]
        );
    }

    #[test]
    fn what_was_repeated_once_is_not_young_again_at_the_next_death() {
        let mut ledger = ledger(1, &[&[0, 0, 0]]);
        let deaths = [at(3_000), at(6_000)];
        for (arrival, moment) in
            ledger.subscriptions[0].arrivals.iter_mut().zip([at(100), at(3_500), at(6_500)])
        {
            *arrival = Arrival::new(0, moment);
        }
        ledger.excuses = deaths.map(|from| Excuse { from, until: from + at(100) }).into();
        let judgement = ledger.judge();
        assert_eq!((names(&judgement), judgement.repeated), (vec![("duplicated", 1)], 1));
    }

    #[test]
    fn what_was_refused_or_poisoned_is_owed_to_nobody_and_neither_is_anything_to_a_sick_receiver() {
        let mut ledger = ledger(3, &[&[0], &[]]);
        ledger.posts[1].outcome = Outcome::Refused(503);
        ledger.posts[2].is_poisoned = true;
        ledger.subscriptions[1].is_owed = false;
        let judgement = ledger.judge();
        assert_eq!((judgement.owed, names(&judgement)), (1, vec![]));
    }

    #[test]
    fn a_subscription_owes_from_its_verification_to_its_end() {
        let mut ledger = ledger(1_000, &[&[500]]);
        ledger.subscriptions[0].from = Some(at(2_500));
        ledger.subscriptions[0].until = Some(at(7_500));
        ledger.subscriptions[0].ended = Some(at(7_600));
        let judgement = ledger.judge();
        assert_eq!(judgement.owed, 99, "what was sent from 4.5 s and answered before 5.5 s: {judgement:?}");
        assert_eq!(judgement.uninvited, 1, "it came at 0.015 s");
    }

    /// How many are uninvited of one delivery at this moment to who left at 5 s.
    fn uninvited(mut ledger: Ledger, moment: u64) -> u64 {
        let leaving = &mut ledger.subscriptions[0];
        (leaving.until, leaving.ended) = (Some(at(5_000)), Some(at(5_000)));
        leaving.arrivals = vec![Arrival::new(0, at(moment))];
        ledger.judge().uninvited
    }

    #[test]
    fn whose_end_cannot_be_written_down_is_uninvited_once_the_hub_takes_posts_again() {
        let mut ledger = ledger(4, &[&[]]);
        for (post, sent) in ledger.posts.iter_mut().zip([0, 5_100, 8_000, 9_000]) {
            (post.sent, post.answered) = (at(sent), at(sent + 10));
        }
        let written = |ledger: &Ledger, moments: [u64; 2]| moments.map(|one| uninvited(ledger.clone(), one));
        assert_eq!(written(&ledger, [7_110, 7_111]), [0, 1]);
        ledger.posts[1].outcome = Outcome::Refused(503);
        assert_eq!(written(&ledger, [10_010, 10_011]), [0, 1]);
        ledger.posts.truncate(2);
        assert_eq!(written(&ledger, [7_111, 60_000]), [0, 0], "nobody knows that it was well again");
        ledger.posts.truncate(1);
        assert_eq!(written(&ledger, [7_000, 7_001]), [0, 1], "nobody asked for more");
    }

    #[test]
    fn a_delivery_to_who_has_left_is_excused_by_a_sleep_after_the_end_only() {
        let mut ledger = ledger(1, &[&[]]);
        ledger.excuses = vec![Excuse { from: at(1_000), until: at(4_000) }];
        assert_eq!(uninvited(ledger.clone(), 7_001), 1);
        ledger.excuses = vec![Excuse { from: at(4_000), until: at(6_000) }];
        assert_eq!([8_000, 8_001].map(|moment| uninvited(ledger.clone(), moment)), [0, 1]);
    }

    #[test]
    fn what_had_not_come_to_all_others_is_not_owed_to_those_who_left() {
        let mut ledger = ledger(2, &[&[0, 1], &[]]);
        ledger.subscriptions[1].until = Some(at(5_000));
        assert_eq!(names(&ledger.judge()), [("dropped", 2)]);
        ledger.subscriptions[0].arrivals[1] = Arrival::new(1, at(4_000));
        assert_eq!(names(&ledger.judge()), [("dropped", 1)]);
    }

    #[test]
    fn after_a_ping_the_newest_version_is_owed_and_no_other() {
        let mut ledger = ledger(4, &[&[0, 3], &[0, 1], &[3, 2]]);
        ledger.rule = Rule::Latest;
        let judgement = ledger.judge();
        assert_eq!((judgement.owed, judgement.lost, judgement.reordered, judgement.gaps), (3, 1, 1, 0));
    }
}
