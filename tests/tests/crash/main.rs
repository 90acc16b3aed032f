//! Deaths of the hub at random moments of publishing, delivery and subscribing, against a model that knows what was
//! acknowledged: nothing of it is lost, order holds for every subscription, and only what was under way or younger than the
//! last checkpoints comes twice. It dies by `kill -9`, at any step of its work and of its recovery, by power cuts that take or tear what was
//! not synced, on disks that fail before, for a while or at a single step, and while the clock jumps.
//!
//! `RESYNC_TEST_DEATHS` is how many deaths each test is to see at least. `RESYNC_TEST_SEED` repeats the random choices of a run; what else the
//! machine does is not repeated.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod clients;
mod moves;
mod oracle;
#[cfg(feature = "sled")]
mod sled;
mod steps;
mod trial;

use oracle::Fault;
use resync_harness::{Kind, deaths_wanted, seed};
use trial::{Errors, Power, Tally, Trial};

/// Trial after trial until there were enough deaths; returns what each came to.
async fn trials(trial: Trial, usual: usize, seed: u64) -> Vec<(u64, Result<Tally, Fault>)> {
    let lives = deaths_wanted(usual).div_ceil(trial.deaths);
    let mut outcomes = Vec::new();
    let mut sum = Tally::default();
    for seed in (0..lives as u64).map(|number| seed.wrapping_add(number)) {
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
async fn survive(trial: Trial, usual: usize) {
    let mut faults = Vec::new();
    for (seed, outcome) in trials(trial, usual, seed()).await {
        faults.extend(outcome.err().map(|fault| format!("RESYNC_TEST_SEED={seed}: {fault}")));
    }
    assert!(faults.is_empty(), "{trial:?}: {faults:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_kill_9_with_fjall() {
    survive(Trial::of("fjall", 20), 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_power_cuts_with_fjall() {
    let trial = Trial { power: Power::Always, ..Trial::of("fjall", 4) };
    survive(trial, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_power_cuts_while_fjall_writes_tables() {
    let trial = Trial { power: Power::Always, heavy: true, ..Trial::of("fjall", 4) };
    survive(trial, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_failing_writes_and_kill_9_with_fjall() {
    let trial = Trial { errors: Errors::ForAWhile, ..Trial::of("fjall", 4) };
    survive(trial, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_failing_syncs_and_power_cuts_with_fjall() {
    let trial = Trial { power: Power::Always, errors: Errors::ForAWhile, ..Trial::of("fjall", 3) };
    survive(trial, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_deaths_at_any_step_of_work_and_of_recovery_with_fjall() {
    let trial = Trial { power: Power::Sometimes, steps: true, ..Trial::of("fjall", 4) };
    survive(trial, 4).await;
}

/// A sync fails, and none after it: what it was about never comes to the disk, whatever reads it meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_one_failing_sync_kill_9_and_a_later_power_cut_with_fjall() {
    let errors = Errors::Once(&[Kind::Sync], "");
    let trial = Trial { power: Power::Sometimes, errors, ..Trial::of("fjall", 4) };
    survive(trial, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_any_single_step_that_fails_with_fjall() {
    let errors = Errors::Once(Kind::ALL, "");
    let trial = Trial { power: Power::Sometimes, errors, ..Trial::of("fjall", 4) };
    survive(trial, 4).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_a_disk_that_fails_while_fjall_writes_and_merges_tables() {
    let errors = Errors::Once(Kind::ALL, "/keyspaces/");
    let trial = Trial { power: Power::Sometimes, errors, heavy: true, ..Trial::of("fjall", 3) };
    survive(trial, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_jumps_of_the_clock_and_deaths_with_fjall() {
    let trial = Trial { jumps: true, ..Trial::of("fjall", 4) };
    survive(trial, 4).await;
}
