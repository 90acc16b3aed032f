//! The seeds of a target, as they are and damaged.

use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

/// The seeds of a target; there are some.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let seeds: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

/// Runs a target over its seeds as they are, and then with pieces cut out, put in, and taken from one another.
pub(crate) fn run_over_seeds(target: &str, run: impl Fn(&[u8])) {
    let seeds = seeds(target);
    for seed in &seeds {
        run(seed);
    }
    let edit = (
        any::<Index>(),
        0..12_usize,
        prop_oneof![vec(any::<u8>(), 0..6), "[ -~]{0,6}".prop_map(String::into_bytes)],
    );
    let splice = (any::<Index>(), any::<Index>(), any::<Index>());
    let strategy = (any::<Index>(), vec(edit, 0..4), proptest::option::of(splice));
    let mut runner = TestRunner::deterministic();
    for _ in 0..2_000 {
        let (seed, edits, splice) = strategy.new_tree(&mut runner).unwrap().current();
        let mut bytes = seed.get(&seeds).clone();
        if let Some((other, from, at)) = splice {
            let other = other.get(&seeds);
            bytes.truncate(at.index(bytes.len() + 1));
            bytes.extend_from_slice(&other[from.index(other.len() + 1)..]);
        }
        for (at, cut, put) in edits {
            let start = at.index(bytes.len() + 1);
            let end = (start + cut).min(bytes.len());
            bytes.splice(start..end, put);
        }
        run(&bytes);
    }
}
