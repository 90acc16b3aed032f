//! `cluster takeover`: how long subscriptions wait when the hub that delivers to them is killed, or stopped in order.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::time::sleep;

use super::Cluster;
use super::hubs::{Hubs, Laboratory, start};
use crate::audience::Audience;
use crate::check::Copies;
use crate::delays::until_due;
use crate::receiver::Receiver;
use crate::stage::Publisher;
use crate::{Failure, median};

const HUBS: usize = 3;
/// The last one dies; posts go to the others.
const DYING: usize = HUBS - 1;
/// Subscriptions of the one topic, each on a host of its own: each hub delivers to many of them.
const SUBSCRIBERS: usize = 192;
const AUDIENCE: Audience = Audience { topics: 1, subscribers: SUBSCRIBERS, hosts: SUBSCRIBERS };
/// Between the moments at which two notifications are due.
const PACE: Duration = Duration::from_millis(50);
/// Notifications before a hub dies, and after it: these take three seconds, in which nobody may take over from a hub that was killed.
const POSTS: u32 = 60;
/// A hub that has been quiet for so long has saved all that it has done: nothing is repeated.
const QUIET: Duration = Duration::from_secs(1);
/// Of delays: all but one in a hundred, and all.
const SHARES: [f64; 2] = [0.99, 1.0];

/// What came out, the medians of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct TakeoverReport {
    /// Seconds from `kill -9` until the last subscription of that hub had the next notification.
    pub killed: f64,
    /// Of the same notifications, what the other hubs delivered: their p99 by that before the kill.
    pub p99_ratio_of_others: f64,
    /// While a hub is stopped in order, the longest time in seconds from the moment that a notification was due to its last delivery.
    pub stopped: f64,
    /// How many rounds there were.
    pub rounds: usize,
    /// Whether each subscriber got each notification once and as it was posted.
    pub copies: Copies,
}

/// What is done to a hub.
#[derive(Clone, Copy)]
enum End {
    Killed,
    Stopped,
}

/// Of one such end.
struct Wait {
    /// In seconds.
    longest: f64,
    p99_ratio_of_others: f64,
}

/// Measures three hubs, of which one ends again and again.
pub(super) async fn measure(laboratory: &Laboratory, plan: &Cluster) -> Result<TakeoverReport, Failure> {
    let receiver = Receiver::start(AUDIENCE).await?;
    receiver.link_to_any();
    let mut hubs = laboratory.hubs(HUBS, &[]).await?;
    AUDIENCE.ask(&hubs.entrances, &receiver).await?;
    hubs.until_subscribed(SUBSCRIBERS).await?;
    let mut publishers = Vec::new();
    for hub in &hubs.entrances[..DYING] {
        publishers.push(Publisher::at(hub).await?);
    }
    // The first ones make the connections.
    post(&mut publishers, &receiver).await?;
    receiver.until(u64::from(POSTS) * SUBSCRIBERS as u64).await?;
    let (mut killed, mut stopped, mut copies) = (Vec::new(), Vec::new(), receiver.check(|_| true));
    let began = Instant::now();
    while killed.is_empty() || began.elapsed() < plan.time() {
        for (end, waits) in [(End::Killed, &mut killed), (End::Stopped, &mut stopped)] {
            waits.push(wait(&mut hubs, &mut publishers, &receiver, end).await?);
            copies = copies.and(receiver.check(|_| true));
            start(&mut hubs.nodes[DYING]).await?;
            hubs.until_shared(&laboratory.database).await?;
            hubs.until_subscribed(SUBSCRIBERS).await?;
        }
    }
    hubs.end().await;
    Ok(TakeoverReport {
        killed: median(killed.iter().map(|wait| wait.longest)),
        p99_ratio_of_others: median(killed.iter().map(|wait| wait.p99_ratio_of_others)),
        stopped: median(stopped.iter().map(|wait| wait.longest)),
        rounds: killed.len(),
        copies,
    })
}

/// Posts before and from that moment on, and waits until all has come.
async fn wait(
    hubs: &mut Hubs,
    publishers: &mut [Publisher],
    receiver: &Receiver,
    end: End,
) -> Result<Wait, Failure> {
    let all = u64::from(POSTS) * SUBSCRIBERS as u64;
    let due = receiver.total() + all;
    receiver.delays().take(SHARES);
    post(publishers, receiver).await?;
    receiver.until(due).await?;
    let [before, _] = receiver.delays().take(SHARES);
    sleep(QUIET).await;

    let due = receiver.total() + all;
    match end {
        End::Killed => hubs.nodes[DYING].kill().await,
        End::Stopped => hubs.nodes[DYING].ask_to_stop(),
    }
    post(publishers, receiver).await?;
    let [meanwhile, longest_meanwhile] = receiver.delays().take(SHARES);
    receiver.until(due).await?;
    let [_, longest] = receiver.delays().take(SHARES);
    if let End::Stopped = end {
        hubs.nodes[DYING].stop().await;
    }
    Ok(Wait { longest: longest.max(longest_meanwhile) / 1e3, p99_ratio_of_others: meanwhile / before })
}

/// Posts to these hubs in turn, each notification at its moment.
async fn post(publishers: &mut [Publisher], receiver: &Receiver) -> Result<(), Failure> {
    let (begin, all) = (Instant::now(), publishers.len());
    for number in 0..POSTS {
        let due = until_due(begin + PACE * number).await;
        publishers[number as usize % all].post(receiver, 0, due).await?;
    }
    Ok(())
}
