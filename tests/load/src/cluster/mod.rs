//! `resync-load cluster`: several hubs over one PostgreSQL, each measurement in turns with its bound.
//!
//! * `hubs` starts hubs over three servers of PostgreSQL, or takes those of others; `database` asks the database itself;
//! * `posts`, `fanout`, `hop`, `scale`, `takeover`, `failover`, `wal` and `million` are the measurements;
//! * `inserts` is the bound of posts, `gaps` finds out for how long something stands still, `cage` caps a process.

mod cage;
mod database;
mod failover;
mod fanout;
mod gaps;
mod hop;
mod hubs;
mod inserts;
mod million;
mod posts;
mod scale;
mod takeover;
mod wal;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use resync_common::output::{note, warn};
use resync_common::values::number;
use serde::Serialize;

use super::Failure;
use hubs::Laboratory;

pub use failover::FailoverReport;
pub use fanout::EnginesReport;
pub use hop::HopReport;
pub use million::MillionReport;
pub use posts::{Posting, PostsReport};
pub use scale::CappedReport;
pub use takeover::TakeoverReport;
pub use wal::WalReport;

/// The measurements, in their order.
const NAMES: [&str; 8] = ["posts", "fanout", "hop", "scale", "takeover", "failover", "wal", "million"];

/// What is measured.
#[derive(Clone, Debug, Args)]
#[group(id = "plan")]
pub struct Cluster {
    /// What is measured; where nothing is named, everything, and of hubs that run already `posts`
    #[arg(value_name = "NAME", value_parser = NAMES)]
    pub names: Vec<String>,
    /// Seconds of each measurement, without what it takes to begin it; one round of it at least is measured
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Subscriptions of the fan-out by which `wal` measures a delivery
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = positive)]
    pub subscribers: usize,
    /// Subscriptions of `million`
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = positive)]
    pub subscriptions: usize,
    /// A hub that runs already, for `posts` and `failover` (which you make meanwhile); once for each hub that posts go to in turn
    #[arg(long, value_name = "URL", requires = "store_url")]
    pub hub: Vec<String>,
    /// The database of these hubs, by TCP and without TLS; a table of this tool is made in it and removed
    #[arg(long, value_name = "URL", requires = "hub")]
    pub store_url: Option<String>,
}

/// What came out; what was not asked for is left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ClusterReport {
    /// Durable notifications a second, against bare INSERTs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub posts: Option<PostsReport>,
    /// Deliveries a second, against the embedded store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fanout: Option<EnginesReport>,
    /// From one hub to the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hop: Option<HopReport>,
    /// More hubs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale: Option<CappedReport>,
    /// The death of a hub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takeover: Option<TakeoverReport>,
    /// The death of the primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverReport>,
    /// What the database writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wal: Option<WalReport>,
    /// Very many subscriptions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub million: Option<MillionReport>,
    /// What this machine cannot measure, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub left_out: BTreeMap<&'static str, String>,
}

fn positive(text: &str) -> Result<usize, String> {
    match number(text)? {
        0 => Err("write a whole number above 0, for example 100".to_owned()),
        count => Ok(count),
    }
}

impl Cluster {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// In their order.
    fn chosen(&self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(move |name| {
            if self.names.is_empty() {
                self.store_url.is_none() || *name == "posts"
            } else {
                self.names.iter().any(|one| one == name)
            }
        })
    }
}

/// Measures; the data of hubs are below `folder`.
///
/// # Errors
/// When there is no PostgreSQL, when something does not come, or whatever the network and the database report.
pub async fn cluster(plan: &Cluster, folder: &Path) -> Result<ClusterReport, Failure> {
    let mut laboratory = match &plan.store_url {
        Some(store) => Laboratory::of_others(&plan.hub, store, folder)?,
        None => Laboratory::start(folder).await?,
    };
    let mut report = ClusterReport::default();
    for name in plan.chosen() {
        note(format_args!("measuring {name} …"));
        let laboratory = &mut laboratory;
        match name {
            "posts" => report.posts = Some(posts::measure(laboratory, plan).await?),
            "fanout" => report.fanout = Some(fanout::measure(laboratory, plan, folder).await?),
            "hop" => report.hop = Some(hop::measure(laboratory, plan).await?),
            "scale" => match scale::measure(laboratory, plan).await? {
                Ok(scale) => report.scale = Some(scale),
                Err(reason) => {
                    warn(format_args!("{name} is left out: {reason}"));
                    report.left_out.insert(name, reason);
                }
            },
            "takeover" => report.takeover = Some(takeover::measure(laboratory, plan).await?),
            "failover" => report.failover = Some(failover::measure(laboratory, plan).await?),
            "wal" => report.wal = Some(wal::measure(laboratory, plan).await?),
            _ => report.million = Some(million::measure(laboratory, plan).await?),
        }
    }
    Ok(report)
}
