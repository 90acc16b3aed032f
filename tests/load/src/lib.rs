//! Load: what the machine could do, what the hub does of it, and how the two compare in one run.
//!
//! * `receiver` takes requests as fast as the kernel brings them, at any address of 127/8;
//! * `check` looks at each copy that a receiver gets, when no clock runs;
//! * `bare` is a loop over the HTTP library that the hub's client is made of, with signatures and without anything else;
//! * `limit` measures these bounds, `fanout` a hub in a process of its own against the same receiver;
//! * `isolation`, `recovery` and `scale` are about what else happens to a hub: sick hosts, a host that comes back, and growth,
//!   on the common ground of `stage`;
//! * `pages` times the pages of an operator whose hub has many topics;
//! * `publish` measures what publishers wait for, and how soon a subscriber hears of it;
//! * `copy` compares a first copy with the one that another client makes of the same Source;
//! * `cluster` is about several hubs over one PostgreSQL;
//! * `attack` is about honest publishers and subscribers: what they notice when others try to bring the hub down;
//! * `scenario` says what is done to any hub, `run` does it, `measure` says what came of it, `report` shows it;
//! * `figures` makes one table of whatever is promised.

#![deny(missing_docs)]

mod attack;
mod audience;
mod bare;
mod check;
mod cluster;
mod copy;
mod delays;
mod fanout;
mod figures;
mod isolation;
mod limit;
mod measure;
mod pages;
mod publish;
mod receiver;
mod recovery;
mod report;
mod request;
mod run;
mod scale;
mod scenario;
mod stage;
mod stamp;
mod wire;

use std::error::Error;
use std::time::Duration;

use serde::Serialize;

pub use attack::{Attack, AttackReport, Compared, Growth, Latency, Sieged, attack};
pub use bare::BareClient;
pub use check::Copies;
pub use cluster::{
    CappedReport, Cluster, ClusterReport, EnginesReport, FailoverReport, HopReport, MillionReport, Posting,
    PostsReport, TakeoverReport, WalReport, cluster,
};
pub use copy::{Copy, CopyReport, copy};
pub use fanout::{Fanout, FanoutReport, fanout};
pub use figures::{Figures, Outcome, figures, insert, measurements, outcomes, pointers, table};
pub use isolation::{Health, Isolation, IsolationReport, isolation};
pub use limit::{Limit, LimitReport, limit};
pub use measure::{
    Bound, Delivered, FaultReport, Finding, Judgement, Live, Machine, Overhead, Published, Quantiles,
    Resources, RunResult, Rung, Second, Slopes, Spread, Verdict,
};
pub use pages::{PageTimes, Pages, PagesReport, pages};
pub use publish::{Publish, PublishReport, Publishers, publish};
pub use recovery::{Recovery, RecoveryReport, recovery};
pub use report::report;
pub use run::{Alone, Options, hyper_alone, receiver_alone, run};
pub use scale::{Round, Scale, ScaleReport, Size, scale};
pub use scenario::{
    Audience, Behaviour, By, Churn, Expect, Fault, FaultKind, Mistake, Pace, Pattern, Publishing, Receivers,
    Scenario, Spell, When, names as scenarios,
};

/// What a measurement may fail by.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Of an even number the higher one of the two in the middle; not a number where there are none.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// So many of something in so long a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rate {
    /// How many.
    pub count: u64,
    /// In how many seconds.
    pub seconds: f64,
    /// How many a second.
    pub per_second: f64,
}

impl Rate {
    fn new(count: u64, time: Duration) -> Self {
        let seconds = time.as_secs_f64();
        // Counts of a measurement are far below 2^52.
        #[expect(clippy::cast_precision_loss)]
        let per_second = count as f64 / seconds;
        Self { count, seconds, per_second }
    }
}
