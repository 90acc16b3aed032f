//! `resync-source` on a disk of which one step fails, or that is full: it says which file, the site stays whole, and the next run is right.

use std::{collections::BTreeMap, io};

use fastrand::Rng;
use resync_harness::{
    seed,
    steps::{At, Fate, Kind, Step, Steps, failures},
};

use crate::{
    killing::{EVERYTHING, PUBLISH, Trial, change},
    support::{Run, program},
};

#[test]
fn a_step_that_fails_is_named_and_the_next_publish_is_right() {
    survive_failures("", 4);
}

#[test]
fn so_it_is_with_patches_dumps_and_archives() {
    survive_failures(&EVERYTHING, 1);
}

/// So many steps of each kind fail.
fn survive_failures(rules: &'static str, of_each: usize) {
    let trial = Trial::begin(rules);
    let publish = trial.command(PUBLISH[0]);
    let steps = Steps::under(trial.place.whole());
    let mut rng = Rng::with_seed(seed());
    let mut rounds = 0..;
    let mut run = |at: Option<At<'_>>| {
        change(&trial.place, rounds.next().unwrap());
        let run = Run::from(program(&publish).envs(steps.environment(at, None)).output().unwrap());
        (run, steps.taken())
    };
    let (run_of_all, taken) = run(None);
    run_of_all.succeeded();
    let count = |kinds: &[Kind]| taken.iter().filter(|step| kinds.contains(&step.kind)).count();
    let mut tally: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (kinds, fate) in failures() {
        let mut numbers: Vec<_> = (1..=count(kinds)).collect();
        rng.shuffle(&mut numbers);
        for number in numbers.into_iter().take(of_each) {
            let (failed, taken) = run(Some(At { kinds, number, fate }));
            // Runs differ in how many steps they take.
            if let Some(step) = taken.iter().find(|step| step.failed) {
                let tally = tally.entry(format!("{:?} {fate:?}", step.kind)).or_default();
                tally[usize::from(failed.code != 0)] += 1;
                is_named(&failed, step, fate);
            }
            trial.conforms();
            run(None).0.succeeded();
            trial.conforms();
        }
    }
    println!("borne and told: {tally:#?}");
    let told: usize = tally.values().map(|[_, told]| told).sum();
    assert!(told > 5 * of_each, "{told}");
    trial.ends(PUBLISH);
}

/// A failure says by which code, why, and of which file, document or resource.
fn is_named(run: &Run, step: &Step, fate: Fate) {
    let (Fate::Error(error) | Fate::Lasting(error)) = fate else { unreachable!() };
    let context = format!("{fate:?} at {step:?}\nstdout: {}\nstderr: {}", run.out, run.err);
    if run.code == 0 {
        return;
    }
    assert_eq!(run.code, 1, "{context}");
    let reason = io::Error::from(error).to_string();
    let reason = reason.split(" (").next().unwrap();
    let names_it = |line: &str| line.contains(reason) && line.contains('`');
    assert!(run.err.lines().any(names_it), "{context}");
}
