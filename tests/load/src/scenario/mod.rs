//! Scenarios: what a run of `resync-load run` does, as TOML. Some come with the tool, by name.

mod catalogue;
mod expect;
mod parse;
mod plan;
mod reader;

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::Failure;

pub use catalogue::names;
pub use expect::Expect;
pub(super) use plan::{Act, Motion, Plan, Post};
pub use resync_common::config::Mistake;

/// What is done to a hub.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name of its file, without the ending.
    pub name: String,
    /// One line for people.
    pub about: String,
    /// Everything that is drawn by lot is drawn from it.
    pub seed: u64,
    /// How long is published.
    pub duration: Duration,
    /// What was due before is not in the latencies.
    pub warmup: Duration,
    /// How long nothing may come, once all is published, until what is missing counts as lost.
    pub patience: Duration,
    /// Topics, subscribers and their hosts.
    pub audience: Audience,
    /// What is published.
    pub publish: Publishing,
    /// Receivers that are not well; the others are.
    pub receivers: Vec<Receivers>,
    /// Subscriptions in motion.
    pub churn: Churn,
    /// Keys of our hub's configuration as environment variables without their prefix.
    pub hub: Vec<(String, String)>,
    /// What is done to the hub and to the world meanwhile.
    pub faults: Vec<Fault>,
    /// When the run has passed.
    pub expect: Expect,
}

/// Who listens.
#[derive(Clone, Debug, PartialEq)]
pub struct Audience {
    /// Topics.
    pub topics: u32,
    /// Subscriptions, spread over the topics; the run is repeated for each number.
    pub subscribers: Vec<u32>,
    /// Hosts on 127/8 that they are on.
    pub hosts: u32,
    /// Callbacks have names, and a name server of the tool knows them.
    pub named: bool,
}

/// What is published.
#[derive(Clone, Debug, PartialEq)]
pub struct Publishing {
    /// Content is posted, or the hub is pinged and fetches it.
    pub by: By,
    /// When.
    pub pace: Pace,
    /// Bytes of a notification, from and to.
    pub payload: (u32, u32),
    /// Connections to the hub at once.
    pub connections: usize,
}

/// How a hub gets a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// It is posted to the hub: each one is owed to every subscriber.
    Content,
    /// The hub is told that the topic has changed, and fetches it: the newest one is owed.
    Ping,
}

/// How fast is published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As the scenario says.
    Given(Pattern),
    /// Steadily, so that this share is delivered of what the hub delivers when more is due than it can do. That is measured first.
    Share(f64),
}

/// When notifications are due, over all topics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// At equal distances, so many a second.
    Steady(f64),
    /// At random moments, so many a second on average.
    Poisson(f64),
    /// So many at once, again and again.
    Burst {
        /// How many.
        size: u32,
        /// From one burst to the next.
        every: Duration,
    },
}

/// A share of the hosts that answers in its own way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Receivers {
    /// Of all hosts.
    pub share: f64,
    /// How.
    pub behaviour: Behaviour,
}

/// How a host answers deliveries. Verifications of intent are always answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Behaviour {
    /// At once.
    Well,
    /// After a while.
    Slow(Spell),
    /// One byte at a time, over so long.
    Drip(Duration),
    /// Never.
    Hang,
    /// This status for a share of the requests.
    Status {
        /// 3xx, 4xx or 5xx.
        status: u16,
        /// Which requests, by lot; 1: all.
        fraction: f64,
    },
    /// 429 with this `Retry-After` for a share of the requests.
    Busy {
        /// What it says.
        retry_after: Duration,
        /// Which requests, by lot.
        fraction: f64,
    },
    /// Well for a while, and then away for a while.
    Flapping {
        /// How long it is well.
        up: Duration,
        /// How long each connection ends as soon as something comes.
        down: Duration,
    },
    /// 410.
    Gone,
    /// 307 to an address that must not be asked.
    Redirect,
}

impl Behaviour {
    /// Whether everything can be brought to it in the end.
    pub fn is_owed(self) -> bool {
        match self {
            Self::Well | Self::Slow(_) | Self::Drip(_) | Self::Flapping { .. } => true,
            Self::Status { fraction, .. } | Self::Busy { fraction, .. } => fraction < 1.0,
            Self::Hang | Self::Gone | Self::Redirect => false,
        }
    }
}

/// How long an answer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spell {
    /// As likely each time from the one to the other.
    Uniform(Duration, Duration),
    /// So long on average, sometimes much longer (exponential).
    Mean(Duration),
}

/// Subscriptions in motion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Churn {
    /// The lease that is asked for.
    pub lease: Option<Duration>,
    /// Renewals a second, by lot.
    pub renewals: f64,
    /// Subscribers a second that come beside the audience.
    pub comers: f64,
    /// How long these stay.
    pub stay: Duration,
}

/// What is done to the hub or to the world.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// What.
    pub kind: FaultKind,
    /// When.
    pub when: When,
    /// How long.
    pub lasting: Duration,
}

/// When a fault happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// At these moments.
    At(Vec<Duration>),
    /// So often at moments that the seed chooses.
    Random {
        /// How often.
        times: u32,
        /// Not before.
        from: Duration,
        /// Not after.
        to: Duration,
    },
}

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// `kill -9`, and a new start after a while.
    Kill,
    /// SIGSTOP, and SIGCONT after a while.
    Pause,
    /// Files cannot grow for a while.
    FullDisk,
    /// A share of the writes and syncs fails for a while. Needs a C compiler.
    FailingWrites(f64),
    /// The clock jumps by so many seconds, and back after a while. Needs a C compiler.
    ClockJump(i64),
    /// A share of the hosts is away for a while, and comes back at once.
    Outage(f64),
    /// Every subscriber renews at once.
    MassRenewal,
    /// A notification that every receiver answers with this status.
    Poison(u16),
    /// The name server says that it has failed.
    ResolverFails,
    /// The name server does not answer.
    ResolverSilent,
    /// The primary of the hub's database dies, and a standby takes its place after a while. The hub's store is in PostgreSQL then.
    Failover,
}

impl FaultKind {
    /// As it is called in a scenario.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::FullDisk => "full-disk",
            Self::FailingWrites(_) => "failing-writes",
            Self::ClockJump(_) => "clock-jump",
            Self::Outage(_) => "outage",
            Self::MassRenewal => "mass-renewal",
            Self::Poison(_) => "poison",
            Self::ResolverFails => "resolver-fails",
            Self::ResolverSilent => "resolver-silent",
            Self::Failover => "failover",
        }
    }
}

impl Scenario {
    /// One that comes with the tool, or a file.
    ///
    /// # Errors
    /// When there is none, or with every mistake in it.
    pub fn load(name_or_path: &str) -> Result<Self, Failure> {
        if let Some(text) = catalogue::text(name_or_path) {
            return Ok(Self::parse(name_or_path, text).map_err(|mistakes| listed(name_or_path, &mistakes))?);
        }
        let path = Path::new(name_or_path);
        let text = fs::read_to_string(path).map_err(|error| {
            format!(
                "{name_or_path} is neither a file that can be read ({error}) nor a scenario of this tool \
                 (`resync-load scenarios` lists them)"
            )
        })?;
        let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Self::parse(&name, &text).map_err(|mistakes| listed(name_or_path, &mistakes))?)
    }

    /// A scenario from its text.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn parse(name: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        parse::scenario(name, text)
    }
}

fn listed(name: &str, mistakes: &[Mistake]) -> String {
    let lines: Vec<_> = mistakes.iter().map(|mistake| format!("\n  {mistake}")).collect();
    format!("{name} is no scenario:{}", lines.concat())
}
