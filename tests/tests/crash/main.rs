//! Deaths of the hub at random moments of publishing, delivery and subscribing, against a model that knows what was
//! acknowledged: nothing of it is lost, order holds for every subscription, and only what was under way or younger than the
//! last checkpoints comes twice. It dies by `kill -9`, by power cuts that take or tear what was not synced, and on disks
//! whose writes and syncs fail before.
//!
//! `RESYNC_TEST_DEATHS` is how many deaths each test is to see at least.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod clients;
mod oracle;
#[cfg(feature = "sled")]
mod sled;
mod trial;

use oracle::Fault;
use trial::{Tally, Trial};

fn deaths_wanted(usual: usize) -> usize {
    std::env::var("RESYNC_TEST_DEATHS").ok().and_then(|number| number.parse().ok()).unwrap_or(usual)
}

/// Trial after trial until there were enough deaths; returns what each came to.
async fn trials(trial: Trial, usual: usize, seed: u64) -> Vec<(u64, Result<Tally, Fault>)> {
    let lives = deaths_wanted(usual).div_ceil(trial.deaths);
    let mut outcomes = Vec::new();
    let mut sum = Tally::default();
    for seed in (seed..).take(lives) {
        let outcome = trial.run(seed).await;
        if let Ok(tally) = &outcome {
            sum += *tally;
        }
        outcomes.push((seed, outcome));
    }
    println!("{trial:?}, {lives} lives from seed {seed}: {sum:?}");
    outcomes
}

/// The same, where every promise must be kept.
async fn survive(trial: Trial, usual: usize, seed: u64) {
    let mut faults = Vec::new();
    for (seed, outcome) in trials(trial, usual, seed).await {
        faults.extend(outcome.err().map(|fault| format!("seed {seed}: {fault}")));
    }
    assert!(faults.is_empty(), "{trial:?}: {faults:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_kill_9_with_fjall() {
    let trial = Trial::of("fjall", 20);
    survive(trial, 20, 20_130_103).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_power_cuts_with_fjall() {
    let trial = Trial { power: true, ..Trial::of("fjall", 4) };
    survive(trial, 4, 51_001).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_power_cuts_while_fjall_writes_tables() {
    let trial = Trial { power: true, heavy: true, ..Trial::of("fjall", 4) };
    survive(trial, 4, 56_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_failing_writes_and_kill_9_with_fjall() {
    let trial = Trial { errors: true, ..Trial::of("fjall", 4) };
    survive(trial, 4, 52_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_failing_syncs_and_power_cuts_with_fjall() {
    let trial = Trial { power: true, errors: true, ..Trial::of("fjall", 3) };
    survive(trial, 3, 54_000).await;
}
