//! Where the random choices of a test begin, and how many trials it makes.

use std::env;

/// The variable that repeats a run.
const SEED: &str = "RESYNC_TEST_SEED";

/// Drawn anew in each run, unless `RESYNC_TEST_SEED` has it. It is printed, so that what has failed can be run again.
///
/// # Panics
/// When the variable is no number.
pub fn seed() -> u64 {
    let given = env::var(SEED).ok();
    let seed = given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("it is a number"));
    println!("the choices of this test are drawn from {SEED}={seed}");
    seed
}

/// How many deaths or failures a test tries at least, unless `RESYNC_TEST_DEATHS` says it.
///
/// # Panics
/// When the variable is no number.
pub fn deaths_wanted(usual: usize) -> usize {
    env::var("RESYNC_TEST_DEATHS").map_or(usual, |number| number.parse().expect("it is a number"))
}
