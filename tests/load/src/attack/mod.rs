//! `resync-load attack`: what honest publishers and subscribers notice of all attackers at once.
//!
//! * `round` is one measurement: a hub of its own, quiet and then attacked;
//! * `honest` posts, `subscribers` receive, `joining` come meanwhile, `latency` says how long that took;
//! * `attackers` begins all attacks, each of which has a file of its own, and `siege` counts what they do;
//! * `client` and `server` are what all of them are made of.

mod attackers;
mod bad_requests;
mod client;
mod heavy_links;
mod honest;
mod joining;
mod large_bodies;
mod late_callbacks;
mod latency;
mod pinging;
mod round;
mod server;
mod shared_origin;
mod siege;
mod slow_connections;
mod status_queries;
mod subscribers;
mod superseding;
mod waiting_requests;

use std::path::Path;

use clap::Args;
use serde::Serialize;

use super::Failure;
use super::measure::float;

pub use latency::{Compared, Latency};
pub use round::Growth;
pub use siege::Sieged;

/// Of the slow connections, so many must be open at least: the hub closes each after a while, and it comes again.
const OPEN: f64 = 0.95;
/// The log is trimmed once a minute: seconds of a measurement that meets that for certain.
const TRIMMED_IN: u32 = 30;
const MEBIBYTE: f64 = 1_048_576.0;

/// What is measured. No attacker has more addresses than are named here.
#[derive(Clone, Debug, Args)]
#[group(id = "plan")]
pub struct Attack {
    /// Honest notifications a second, at most 50 (limits.client)
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub rate: u32,
    /// Seconds of each of the two measurements of a round
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub seconds: u32,
    /// Rounds, each with a new hub; of the ratios the middle one counts, of all else the worst
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Honest subscribers with a host of their own; eight more are on one that they share with an attacker
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub subscribers: usize,
    /// Slow connections
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub slow: usize,
    /// Bad requests a second
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub flood: u32,
    /// Topics whose small pages have heavy links, each pinged every two seconds; those of every third are delivered
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub links: usize,
    /// Topics with bodies of 1 MB, each pinged every four seconds
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub bodies: usize,
    /// Hosts with eight callbacks each that answer deliveries after 2.9 s
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub late: usize,
    /// Clients that subscribe paths of the shared origin which answer 503 and ask for an hour, one a second
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub refusing: usize,
    /// Clients whose requests wait for callbacks that never answer, five a second
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub waiting: usize,
    /// Clients that ask in the name of each honest subscriber whose request is pending
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub superseding: usize,
    /// Queries of a notification's status a second
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub queries: u32,
    /// Seconds within which an honest query of a status must be answered
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub answered_within: u64,
    /// What the p99 of honest posts, and that of honest deliveries, may be by what it was before: beyond that the exit code is 1, as
    /// it is where one was lost, or an attack did not take place
    #[arg(long, value_name = "N", default_value_t = 3.0)]
    pub ratio: f64,
    /// By how many MiB the hub's memory may grow: beyond that the exit code is 1
    #[arg(long, value_name = "N", default_value_t = 256.0)]
    pub memory: f64,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct AttackReport {
    /// From the moment at which a notification was due to its 202, in the middle round.
    pub posts: Compared,
    /// From that moment to each honest subscriber, in the middle round.
    pub deliveries: Compared,
    /// Honest notifications of all rounds that were not acknowledged.
    pub failed: usize,
    /// Honest deliveries of all rounds that did not come, of notifications that were acknowledged.
    pub lost: usize,
    /// Honest subscribers of all rounds that came during the attack and got nothing.
    pub kept_out: usize,
    /// Honest queries of a notification's status, of all rounds, that got none in time (`answered_within`).
    pub unanswered: usize,
    /// Notifications of the honest topic that had to leave the log to make room, in all rounds.
    pub forgotten: u64,
    /// Of the hub, in the round in which it grew most.
    pub memory: Growth,
    /// Of its folder, in the round in which that grew most.
    pub disk: Growth,
    /// What took place.
    pub sieged: Sieged,
}

/// Measures hubs with their usual limits whose data are below `folder`.
///
/// # Errors
/// When the hub takes no honest notification at all.
pub async fn attack(plan: &Attack, folder: &Path) -> Result<AttackReport, Failure> {
    let mut report: Option<AttackReport> = None;
    let (mut posts, mut deliveries) = (Vec::new(), Vec::new());
    for number in 0..plan.rounds {
        let round = round::measure(plan, &folder.join(number.to_string())).await?;
        posts.push(round.posts.clone());
        deliveries.push(round.deliveries.clone());
        let one = AttackReport::of(round);
        report = Some(match report {
            Some(before) => before.with(one),
            None => one,
        });
    }
    let middle = Compared::middle(posts).zip(Compared::middle(deliveries));
    let ((posts, deliveries), report) = middle.zip(report).ok_or("there was no round")?;
    Ok(AttackReport { posts, deliveries, ..report })
}

impl AttackReport {
    fn of(round: round::Round) -> Self {
        let round::Round { posts, deliveries, kept_out, unanswered, forgotten, memory, disk, sieged } = round;
        let failed = posts.quiet.failed + posts.attacked.failed;
        let lost = deliveries.quiet.failed + deliveries.attacked.failed;
        Self { posts, deliveries, failed, lost, kept_out, unanswered, forgotten, memory, disk, sieged }
    }

    /// With another round, but for what is compared.
    fn with(self, other: Self) -> Self {
        let more = |one: Growth, other: Growth| if other.grown > one.grown { other } else { one };
        Self {
            failed: self.failed + other.failed,
            lost: self.lost + other.lost,
            kept_out: self.kept_out + other.kept_out,
            unanswered: self.unanswered + other.unanswered,
            forgotten: self.forgotten + other.forgotten,
            memory: more(self.memory, other.memory),
            disk: more(self.disk, other.disk),
            sieged: self.sieged.least(other.sieged),
            ..self
        }
    }

    /// What is not as it must be: whoever refuses honest notifications quickly has a fine p99, and so has a hub that was not attacked.
    pub fn complaints(&self, plan: &Attack) -> Vec<String> {
        let mut complaints = Vec::new();
        for (what, compared) in [("posts", &self.posts), ("deliveries", &self.deliveries)] {
            let ratio = compared.p99_ratio;
            if ratio.is_nan() || ratio > plan.ratio {
                complaints.push(format!(
                    "the p99 of {what} is {ratio:.2} times what it was: at most {}",
                    plan.ratio
                ));
            }
        }
        let grown = float(self.memory.grown) / MEBIBYTE;
        if grown > plan.memory {
            complaints.push(format!("the hub's memory grew by {grown:.0} MiB: at most {}", plan.memory));
        }
        let must_be_none = [
            (self.failed, "honest notifications were not acknowledged"),
            (self.lost, "honest deliveries did not come"),
            (self.kept_out, "honest subscribers were kept out"),
            (self.unanswered, "honest queries of a status got none in time"),
        ];
        for (count, what) in must_be_none {
            if count > 0 {
                complaints.push(format!("{count} {what}"));
            }
        }
        if self.forgotten > 0 {
            complaints.push(format!("{} honest notifications had to leave the log", self.forgotten));
        }
        complaints.extend(self.sieged.complaints(plan));
        complaints
    }
}

impl Sieged {
    /// Attacks that did not take place.
    fn complaints(&self, plan: &Attack) -> Vec<String> {
        let mut complaints = Vec::new();
        if float(self.slow_open as u64) < OPEN * float(plan.slow as u64) {
            complaints.push(format!("only {} of {} slow connections were open", self.slow_open, plan.slow));
        }
        let bad_answers: usize = self.bad_answers.values().sum();
        let must_be_some = [
            (plan.flood > 0, bad_answers, "no bad request was answered"),
            (plan.links > 0, self.links_fetched, "no topic with heavy links was asked for"),
            (plan.links > 0, self.links_delivered, "no heavy links were delivered"),
            (plan.bodies > 0, self.bodies_fetched, "no topic with a large body was asked for"),
            (plan.late > 0, self.late, "no delivery to a late callback was under way"),
            (plan.refusing > 0, self.refused, "the shared origin refused nothing"),
            (plan.waiting > 0, self.waiting, "no request that waits was taken"),
            (plan.waiting > 0, self.unanswered, "no question that is never answered was under way"),
            (plan.superseding > 0, self.superseding, "no request in somebody's name was taken"),
            (plan.queries > 0, self.statuses, "no query of a status was answered"),
        ];
        if plan.bodies > 0 && plan.seconds >= TRIMMED_IN && self.forgotten == 0 {
            complaints.push("large bodies never filled what the hub keeps".to_owned());
        }
        let missing = must_be_some.into_iter().filter(|(is_planned, count, _)| *is_planned && *count == 0);
        complaints.extend(missing.map(|(.., what)| what.to_owned()));
        complaints
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: Attack,
    }

    fn plan() -> Attack {
        Line::parse_from(["attack"]).plan
    }

    fn compared(attacked: u64) -> Compared {
        let latency = |millis| Latency::of(vec![Duration::from_millis(millis)], 0).unwrap();
        Compared::new(latency(1), latency(attacked))
    }

    /// Of a hub that holds under an attack that took place.
    fn report() -> AttackReport {
        let growth = Growth { quiet: 20 << 20, attacked: 276 << 20, grown: 256 << 20 };
        let sieged = Sieged {
            slow_open: 1_900,
            slow_closed: 0,
            links_fetched: 1,
            links_delivered: 1,
            bodies_fetched: 1,
            forgotten: 1,
            late: 1,
            refused: 1,
            waiting: 1,
            unanswered: 1,
            superseding: 1,
            statuses: 1,
            bad_answers: BTreeMap::from([(400, 1)]),
        };
        let (posts, deliveries) = (compared(3), compared(3));
        let (memory, disk) = (growth, growth);
        AttackReport {
            posts,
            deliveries,
            failed: 0,
            lost: 0,
            kept_out: 0,
            unanswered: 0,
            forgotten: 0,
            memory,
            disk,
            sieged,
        }
    }

    #[test]
    fn a_hub_that_holds_under_an_attack_that_took_place_is_not_complained_about() {
        assert_eq!(report().complaints(&plan()), <[&str; 0]>::default());
    }

    #[test]
    fn whatever_honest_ones_notice_is_complained_about() {
        let memory = Growth { quiet: 0, attacked: 257 << 20, grown: 257 << 20 };
        let noticed = AttackReport {
            posts: compared(4),
            deliveries: compared(94_000),
            failed: 2,
            lost: 3,
            kept_out: 4,
            unanswered: 5,
            forgotten: 6,
            memory,
            ..report()
        };
        assert_eq!(
            noticed.complaints(&plan()),
            [
                "the p99 of posts is 4.00 times what it was: at most 3",
                "the p99 of deliveries is 94000.00 times what it was: at most 3",
                "the hub's memory grew by 257 MiB: at most 256",
                "2 honest notifications were not acknowledged",
                "3 honest deliveries did not come",
                "4 honest subscribers were kept out",
                "5 honest queries of a status got none in time",
                "6 honest notifications had to leave the log",
            ]
        );
    }

    #[test]
    fn an_attack_that_was_none_is_complained_about_unless_none_was_meant() {
        let nothing = AttackReport { sieged: Sieged::default(), ..report() };
        assert_eq!(
            nothing.complaints(&plan()),
            [
                "only 0 of 2000 slow connections were open",
                "large bodies never filled what the hub keeps",
                "no bad request was answered",
                "no topic with heavy links was asked for",
                "no heavy links were delivered",
                "no topic with a large body was asked for",
                "no delivery to a late callback was under way",
                "the shared origin refused nothing",
                "no request that waits was taken",
                "no question that is never answered was under way",
                "no request in somebody's name was taken",
                "no query of a status was answered",
            ]
        );
        let none = [
            "attack",
            "--slow=0",
            "--flood=0",
            "--links=0",
            "--bodies=0",
            "--late=0",
            "--refusing=0",
            "--waiting=0",
            "--superseding=0",
            "--queries=0",
        ];
        assert_eq!(nothing.complaints(&Line::parse_from(none).plan), <[&str; 0]>::default());
    }

    #[test]
    fn of_several_rounds_what_was_noticed_adds_up_and_the_least_attack_counts() {
        let small = Growth { quiet: 1, attacked: 2, grown: 1 };
        let sieged = Sieged { late: 0, bad_answers: BTreeMap::from([(400, 2), (429, 1)]), ..report().sieged };
        let first = AttackReport { lost: 1, memory: small, sieged, ..report() };
        let both = first.with(AttackReport { lost: 2, ..report() });
        assert_eq!(
            (both.lost, both.memory.grown, both.sieged.late, both.sieged.waiting),
            (3, 256 << 20, 0, 1)
        );
        assert_eq!(both.sieged.bad_answers, BTreeMap::from([(400, 3), (429, 1)]));
    }
}
