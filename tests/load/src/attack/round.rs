//! One round: a hub of its own, quiet at first, then with all attackers at once.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::honest::{self, Honest, TOPIC};
use super::joining::Joining;
use super::latency::Compared;
use super::siege::{Siege, Sieged};
use super::subscribers::Subscribers;
use super::{Attack, attackers};
use crate::Failure;
use crate::measure::bytes_below;
use resync_harness::HubProcess;

/// Tokens are what posts need unless somebody says otherwise. The log may take so little that the newest bodies of twelve strangers'
/// topics fill nearly all of it.
const KEYS: [(&str, &str); 2] = [("PUBLISH_POLICY", "token"), ("RETENTION_SIZE", "12 MiB")];
/// Seconds in which the first posts make the connections and wake up the disk.
const WARM_UP: u32 = 2;
/// Until the attack is at its height.
const RISE: Duration = Duration::from_secs(5);

/// What came out.
pub(super) struct Round {
    pub(super) posts: Compared,
    pub(super) deliveries: Compared,
    pub(super) kept_out: usize,
    pub(super) unanswered: usize,
    pub(super) forgotten: u64,
    pub(super) memory: Growth,
    pub(super) disk: Growth,
    pub(super) sieged: Sieged,
}

/// Bytes before and after an attack.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Growth {
    /// Before: of memory the most that was resident until then.
    pub quiet: u64,
    /// After: of memory the most that was resident at any moment.
    pub attacked: u64,
    /// The difference.
    pub grown: u64,
}

impl Growth {
    fn new(quiet: u64, attacked: u64) -> Self {
        Self { quiet, attacked, grown: attacked.saturating_sub(quiet) }
    }
}

/// Measures a hub with its usual limits whose data is in `folder`.
pub(super) async fn measure(plan: &Attack, folder: &Path) -> Result<Round, Failure> {
    let mut hub = HubProcess::start_public(folder, &KEYS).await;
    let token = hub.add_token("honest", TOPIC).await;
    let (warm, counted) = numbers(plan);
    let subscribers = Subscribers::start(plan.subscribers, warm + 2 * counted).await?;
    subscribers.subscribe(&hub).await;
    let status = honest::post_one(&hub, &token).await?;
    let honest = Honest::new(&hub, &token);
    subscribers.deliveries(&honest.post_all(0..warm, plan.rate).await).await?;

    let posts = honest.post_all(warm..warm + counted, plan.rate).await;
    let quiet = (honest::latency(&posts)?, subscribers.deliveries(&posts).await?);
    let before = (most_resident(&mut hub)?, bytes_below(folder));

    let siege = Siege::new(hub.address, status);
    let (told, pending) = mpsc::unbounded_channel();
    let joining = Joining::start(joining_in(plan), told).await?;
    let mut attackers = attackers::begin(&siege, plan, &subscribers, pending).await?;
    let (mut joined, unanswered) = (joining.begin(hub.address), Arc::default());
    let within = Duration::from_secs(plan.answered_within);
    let mut asking = honest::ask(hub.address, &siege.status, within, &unanswered);
    sleep(RISE).await;
    let posting = honest.post_all(warm + counted..warm + 2 * counted, plan.rate);
    let (posts, under_way) = siege.watched(posting).await;
    // The attack goes on while what is owed is waited for.
    let attacked = (honest::latency(&posts)?, subscribers.deliveries(&posts).await?);
    // Who is in force only after the last post that counts gets one of these.
    let mut going_on = honest.go_on(warm + 2 * counted..);
    let kept_out = joining.kept_out().await;
    let (forgotten, strange_forgotten) = forgotten(&hub).await?;
    let after = (most_resident(&mut hub)?, bytes_below(folder));
    let sieged = Sieged { forgotten: strange_forgotten, ..siege.sieged(&under_way, &subscribers) };
    for tasks in [&mut going_on, &mut asking, &mut joined, &mut attackers] {
        tasks.shutdown().await;
    }
    // What is still owed to attackers need not be waited for.
    hub.kill().await;
    Ok(Round {
        posts: Compared::new(quiet.0, attacked.0),
        deliveries: Compared::new(quiet.1, attacked.1),
        kept_out,
        unanswered: unanswered.load(Ordering::Relaxed),
        forgotten,
        memory: Growth::new(before.0, after.0),
        disk: Growth::new(before.1, after.1),
        sieged,
    })
}

/// How many notifications are posted at first, and how many in each of the two measurements.
fn numbers(plan: &Attack) -> (usize, usize) {
    let of = |seconds: u32| (0..plan.rate * seconds).len();
    (of(WARM_UP), of(plan.seconds))
}

/// One a second, all of whom are there before the last post.
fn joining_in(plan: &Attack) -> usize {
    (0..plan.seconds).len()
}

/// Bytes.
fn most_resident(hub: &mut HubProcess) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{}/status", hub.process().pid()))?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    Ok(most.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// How many notifications had to leave the log: of the honest topic, and of all others.
async fn forgotten(hub: &HubProcess) -> Result<(u64, u64), Failure> {
    let topics: Value = serde_json::from_slice(&hub.admin("/api/v1/topics?limit=1000").await.body)?;
    let left = |topic: &Value| topic["first"].as_u64().unwrap_or_default().saturating_sub(1);
    let all = topics["items"].as_array().ok_or("the hub does not tell of its topics")?;
    let (honest, others): (Vec<_>, Vec<_>) = all.iter().partition(|topic| topic["url"] == TOPIC);
    if honest.is_empty() {
        return Err("the hub does not tell of the honest topic".into());
    }
    Ok((honest.into_iter().map(left).sum(), others.into_iter().map(left).sum()))
}
