//! Lives of hubs over sled, which promises less than fjall.

use std::ops::AddAssign;

use resync_harness::seed;

use super::oracle::Fault;
use super::trial::{Errors, Power, Trial};
use super::{survive, trials};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_kill_9_with_sled() {
    survive(Trial::of("sled", 20), 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_failing_writes_and_kill_9_with_sled() {
    let trial = Trial { errors: Errors::ForAWhile, ..Trial::of("sled", 4) };
    // Three things were seen now and then, and their causes are not known: the lock of sled's file was not released, a commit did
    // not end ("behind with its writes"), and after the death the store was read as corrupt. In each the hub took nothing more,
    // and said so. Such a life does not tell whether something was lost; at least half of them must.
    let mut sum = Count::default();
    let first = seed();
    for number in 0..10 {
        sum += counted(trial, 4, first.wrapping_add(1_000 * number)).await;
        assert_eq!(sum.broken, 0, "whatever it can read is whole");
        if sum.most_are_whole() {
            let Count { whole, unreadable, .. } = sum;
            println!("failing writes with sled: {whole} lives go on, {unreadable} lives do not");
            return;
        }
    }
    panic!("fewer than half of the lives could be judged: {sum:?}");
}

#[test]
fn half_of_the_lives_of_a_store_that_fails_now_and_then_must_be_whole() {
    let count = |whole, unreadable, broken| Count { whole, unreadable, broken };
    assert!(count(25, 25, 0).most_are_whole() && count(44, 6, 0).most_are_whole());
    assert!(!count(24, 26, 0).most_are_whole() && !count(1, 0, 2).most_are_whole());
    assert!(!Count::default().most_are_whole(), "of none nothing is known");
}

/// sled promises less: what it loses is counted, and a store that it cannot read any more stops the hub instead of
/// beginning anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cuts_with_sled_are_counted() {
    let trial = Trial { power: Power::Always, ..Trial::of("sled", 2) };
    let Count { whole, unreadable, broken } = counted(trial, 4, seed()).await;
    println!(
        "power cuts with sled: {whole} lives whole, {unreadable} lives unreadable, {broken} lives with losses"
    );
}

/// How lives ended.
#[derive(Debug, Default)]
struct Count {
    /// With everything that was acknowledged.
    whole: usize,
    /// With a store that could not be read any more, or not written.
    unreadable: usize,
    /// With losses.
    broken: usize,
}

impl Count {
    fn most_are_whole(&self) -> bool {
        self.whole > 0 && self.whole >= self.unreadable + self.broken
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.whole += more.whole;
        self.unreadable += more.unreadable;
        self.broken += more.broken;
    }
}

/// Whatever is not whole is told.
async fn counted(trial: Trial, usual: usize, seed: u64) -> Count {
    let mut count = Count::default();
    for (seed, outcome) in trials(trial, usual, seed).await {
        match outcome {
            Ok(_) => count.whole += 1,
            Err(Fault::Unreadable(said)) => {
                let why = said.lines().last().unwrap_or_default();
                assert!(!why.is_empty(), "seed {seed}: it says why");
                println!("seed {seed}: unreadable: {why}");
                count.unreadable += 1;
            }
            Err(Fault::Broken(what)) => {
                println!("seed {seed}: {what}");
                count.broken += 1;
            }
        }
    }
    println!("{trial:?}: {count:?}");
    count
}
