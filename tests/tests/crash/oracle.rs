//! The judge of a trial: what was acknowledged has come to everybody, in order, and only what a death excuses has come twice.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use resync_harness::{HubProcess, PATIENCE, Receiver, Seen, happens_within};

use crate::clients::{Known, LAST, TOPICS};

/// Progress is checkpointed every 125 ms, as soon as the checkpoint before is durable. This is that, and patience with a busy
/// machine.
const NEXT_CHECKPOINT: Duration = Duration::from_millis(350);
/// No progress is saved while the disk fails, and until the hub has noticed that it is well again.
const TROUBLE: Duration = Duration::from_secs(3);
/// The first checkpoint after so long ends a span. A delivery is in the one that ends the next span after its own, at the latest.
const SPAN_AT_MOST: Duration = Duration::from_millis(500);

/// What a trial came to, when not everything was as promised.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The hub did not start again, or did not go on by itself: it says that it cannot read its store.
    Unreadable(String),
    /// Something that was acknowledged is gone, or came in the wrong order.
    Broken(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(said) => write!(f, "unreadable: {said}"),
            Self::Broken(what) => write!(f, "broken: {what}"),
        }
    }
}

/// A subscription that lasts.
pub(crate) struct Steady {
    /// The number of its host.
    pub(crate) host: usize,
    /// That of its topic.
    pub(crate) topic: usize,
    /// Of its callback.
    pub(crate) path: String,
}

/// What a host answers: the third refuses some notifications for good, the fourth fails at some others once in a while.
pub(crate) fn temper(host: usize, seen: &Seen) -> u16 {
    let is_numbered = seen.method == http::Method::POST && seen.body != LAST;
    match host {
        2 if is_numbered && seen.offset() % 50 == 7 => 404,
        3 if is_numbered && seen.offset() % 20 == 3 && seen.header("webhook-attempt") == "1" => 503,
        _ => 204,
    }
}

/// Everything one subscription got, in the order of arrival.
fn of_subscription<'a>(log: &'a [Seen], path: &str) -> Vec<&'a Seen> {
    log.iter().filter(|seen| seen.method == http::Method::POST && seen.path() == path).collect()
}

/// When the hub has saved what it learned at one moment. It writes in the order in which it is told to, so whatever it was told
/// before a post is durable when that is acknowledged, however long the disk takes.
pub(crate) struct Saves {
    /// Of each post that was acknowledged, both times, in the order of the first.
    durable: Vec<(Instant, Instant)>,
    /// How long the next checkpoint may take to begin.
    pause: Duration,
}

impl Saves {
    /// As the posts of a trial tell it, on a disk that may have failed for a while.
    pub(crate) fn of_posts(known: &Known, disk_failed: bool) -> Self {
        let mut durable = known.durable.lock().unwrap().clone();
        durable.sort_unstable();
        Self { durable, pause: NEXT_CHECKPOINT + if disk_failed { TROUBLE } else { Duration::ZERO } }
    }

    /// The moment from which on what was delivered at this one must not be repeated; `None` when the hub never got so far.
    ///
    /// A checkpoint may begin just before the time of a span is over, and be on its way to the disk for long: only then does the one begin that
    /// ends the span. So the first post shows that no such checkpoint keeps the delivery's own span open any more, the second the same of the
    /// next span, and the third that the end of that is durable. Two would do only where no save takes long.
    fn saved_after(&self, delivered: Instant) -> Option<Instant> {
        [SPAN_AT_MOST, SPAN_AT_MOST, Duration::ZERO]
            .into_iter()
            .try_fold(delivered, |from, wait| self.next_durable(from + wait))
    }

    /// When a checkpoint was durable that was on its way at this moment, or else the next one.
    fn next_durable(&self, from: Instant) -> Option<Instant> {
        let later = &self.durable[self.durable.partition_point(|(posted, _)| *posted < from + self.pause)..];
        later.iter().map(|(_, acknowledged)| *acknowledged).min()
    }
}

/// A death of the hub: what it had sent before may still arrive until its successor is up.
pub(crate) struct Death {
    pub(crate) at: Instant,
    pub(crate) succeeded_at: Instant,
}

/// Order and duplicates of one subscription, some notifications of which were given up; returns how many deliveries were
/// repetitions.
fn check(
    deliveries: &[&Seen],
    given_up: &BTreeSet<u64>,
    deaths: &[Death],
    saves: &Saves,
) -> Result<usize, String> {
    let mut bodies: BTreeMap<u64, String> = BTreeMap::new();
    let mut last_at: BTreeMap<u64, Instant> = BTreeMap::new();
    let mut newest = 0;
    let mut repeated = 0;
    for seen in deliveries {
        let offset = seen.offset();
        let body = bodies.entry(offset).or_insert_with(|| seen.text());
        if *body != seen.text() {
            return Err(format!("offset {offset} does not mean the same notification for ever"));
        }
        if offset > newest {
            if !(newest + 1..offset).all(|missing| given_up.contains(&missing)) {
                return Err(format!("after {newest} came {offset}: something was left out"));
            }
            newest = offset;
        } else {
            let before = last_at[&offset];
            let excuse = deaths.iter().find(|death| before <= death.succeeded_at && death.at <= seen.at);
            let Some(death) = excuse else {
                return Err(format!("offset {offset} came twice without a crash in between"));
            };
            if saves.saved_after(before).is_some_and(|saved| saved < death.at) {
                let age = death.at - before;
                return Err(format!("offset {offset} was {age:?} old at the crash, saved, and came again"));
            }
            repeated += 1;
        }
        last_at.insert(offset, seen.at);
    }
    Ok(repeated)
}

/// The identities of all notifications that were given up for anybody, as the hub has written them down.
async fn recorded_skips(hub: &HubProcess) -> BTreeSet<String> {
    let mut recorded = BTreeSet::new();
    let mut after = String::new();
    loop {
        let path = format!("/api/v1/deliveries/skips?limit=1000{after}");
        let page: serde_json::Value =
            serde_json::from_str(&hub.admin(&path).await.text()).unwrap_or_default();
        let skips = page["items"].as_array().into_iter().flatten();
        recorded.extend(skips.filter_map(|skip| Some(skip["notification"].as_str()?.to_owned())));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return recorded,
        }
    }
}

/// Looks at everything that every subscription got; how many deliveries were repetitions.
pub(crate) async fn verdict(
    hub: &HubProcess,
    known: &Known,
    receivers: &[Receiver],
    steady: &[Steady],
    deaths: &[Death],
    saves: &Saves,
) -> Result<usize, Fault> {
    let acknowledged = known.posts.lock().unwrap().clone();
    let restless = known.restless.lock().unwrap().clone();
    let mut repeated = 0;
    let mut last_ids = BTreeSet::new();
    for Steady { host, topic: number, path } in steady {
        let log = until_last(&receivers[*host], path).await?;
        let attempts = of_subscription(&log, path);
        let (deliveries, failed): (Vec<_>, Vec<_>) =
            attempts.into_iter().partition(|seen| temper(*host, seen) == 204);
        let refused: Vec<_> = failed.into_iter().filter(|seen| temper(*host, seen) == 404).collect();
        let given_up: BTreeSet<_> = refused.iter().map(|seen| seen.offset()).collect();
        let ids: BTreeSet<_> = refused.iter().map(|seen| seen.header("webhook-id").to_owned()).collect();
        let is_known = || async { ids.is_empty() || recorded_skips(hub).await.is_superset(&ids) };
        if !happens_within(PATIENCE / 2, is_known).await {
            return Err(Fault::Broken(format!("not all of {ids:?} are recorded as given up for {path}")));
        }
        let bodies: BTreeSet<_> = deliveries.iter().chain(&refused).map(|seen| seen.text()).collect();
        let owed = acknowledged.iter().filter(|(of, _)| of == number);
        let lost: Vec<_> =
            owed.filter(|(_, body)| !bodies.contains(body)).map(|(_, body)| beginning(body)).collect();
        if !lost.is_empty() {
            return Err(Fault::Broken(format!("{path} never got {lost:?}")));
        }
        repeated += check(&deliveries, &given_up, deaths, saves)
            .map_err(|what| Fault::Broken(format!("{path}: {what}")))?;
        last_ids.insert((*number, deliveries.last().map(|seen| seen.header("webhook-id").to_owned())));
    }
    if last_ids.len() != TOPICS {
        return Err(Fault::Broken(format!("the last notifications are not the same for all: {last_ids:?}")));
    }
    for (which, last) in restless {
        let path = format!("/restless{which}");
        if last == Some(true) {
            until_last(&receivers[1], &path).await?;
        } else if of_subscription(&receivers[1].seen(), &path).iter().any(|seen| seen.body == LAST) {
            return Err(Fault::Broken(format!("{path} was unsubscribed, and got the last notification")));
        }
    }
    Ok(repeated)
}

fn beginning(body: &str) -> &str {
    body.split(' ').next().unwrap_or_default()
}

/// Waits as long as anything newer comes: a slow host needs minutes for what a quick machine has posted.
async fn until_last(receiver: &Receiver, path: &str) -> Result<Vec<Seen>, Fault> {
    let newest = || {
        receiver.look(|log| {
            let own = of_subscription(log, path);
            let newest = own.iter().map(|seen| seen.offset()).max().unwrap_or_default();
            (newest, own.iter().any(|seen| seen.body == LAST))
        })
    };
    loop {
        let (before, has_last) = newest();
        if has_last {
            return Ok(receiver.seen());
        }
        if !happens_within(PATIENCE / 2, || async { newest() > (before, false) }).await {
            return Err(Fault::Broken(format!(
                "{path} never got the last notification: {before} was the newest"
            )));
        }
    }
}

#[test]
fn a_delivery_is_saved_with_a_post_after_each_of_two_spans_and_a_third_however_long_these_take() {
    let begun = Instant::now();
    let at = |millis| begun + Duration::from_millis(millis);
    // Each of these comes a moment too early to show anything.
    let mut durable =
        vec![(at(0), at(1)), (at(599), at(600)), (at(1_499), at(1_499)), (at(1_699), at(1_699))];
    durable.extend([(at(600), at(900)), (at(1_500), at(1_600))]);
    durable.sort_unstable();
    let saves = Saves { durable, pause: Duration::from_millis(100) };
    assert_eq!(saves.saved_after(at(0)), None, "two are not enough");
    let durable = [saves.durable.clone(), vec![(at(1_700), at(5_000))]].concat();
    let saves = Saves { durable, ..saves };
    assert_eq!(saves.saved_after(at(0)), Some(at(5_000)));
    assert_eq!(saves.saved_after(at(1_000)), None);
}
