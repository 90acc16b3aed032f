//! `resync-source` on a disk of which one step fails, or that is full: it says which file, the site stays whole, and the next run is right.

use std::{collections::BTreeMap, io};

use fastrand::Rng;
use resync_harness::{Disk, Event, Kind, Step, Taken, deaths_wanted, drawn, failures, seed};

use crate::{
    killing::{EVERYTHING, PUBLISH, Trial, change},
    support::{Run, program},
    versions::ALWAYS,
};

#[test]
fn a_step_that_fails_is_named_and_the_next_publish_is_right() {
    survive_failures("", 2);
}

#[test]
fn so_it_is_with_patches_dumps_and_archives() {
    survive_failures(&EVERYTHING, 1);
}

#[test]
fn mem014_so_it_is_where_versions_are_kept() {
    survive_failures(ALWAYS, 1);
}

/// So many steps of each kind fail, or as many as `RESYNC_TEST_DEATHS` says.
fn survive_failures(rules: &'static str, of_each: usize) {
    let trial = Trial::begin(rules);
    let publish = trial.command(PUBLISH[0]);
    let mut rng = Rng::with_seed(seed());
    let disk = Disk::under(trial.place.whole(), rng.u64(..));
    disk.sync_at_once();
    let mut rounds = 0..;
    let mut run = |step: Step| {
        change(&trial.place, rounds.next().unwrap());
        disk.meet(step);
        let run = Run::from(program(&publish).envs(disk.environment()).output().unwrap());
        (run, disk.taken())
    };
    let (run_of_all, taken) = run(Step::none(Kind::ALL));
    run_of_all.succeeded();
    let mut tally: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for (kinds, event) in failures() {
        for number in drawn(&taken, kinds, deaths_wanted(of_each), &mut rng) {
            let (failed, taken) = run(Step { number, event, ..Step::none(kinds) });
            // Runs differ in how many steps they take.
            if let Some(step) = taken.iter().find(|step| step.is_met) {
                let tally = tally.entry(format!("{:?} {event:?}", step.kind)).or_default();
                tally[usize::from(failed.code != 0)] += 1;
                is_named(&failed, step, event);
            }
            trial.conforms();
            run(Step::none(Kind::ALL)).0.succeeded();
            trial.conforms();
        }
    }
    println!("borne and told: {tally:#?}");
    let told: usize = tally.values().map(|[_, told]| told).sum();
    assert!(told > 0, "{tally:?}");
    trial.ends(PUBLISH);
}

/// A failure says by which code, why, and of which file, document or resource.
fn is_named(run: &Run, step: &Taken, event: Event) {
    let (Event::Fails(error) | Event::FailsFrom(error)) = event else { unreachable!() };
    let context = format!("{event:?} at {step:?}\nstdout: {}\nstderr: {}", run.out, run.err);
    if run.code == 0 {
        return;
    }
    // Settings that cannot be read are as bad as wrong ones.
    assert_eq!(run.code, if step.path.ends_with("source.toml") { 64 } else { 1 }, "{context}");
    let reason = io::Error::from(error).to_string();
    let reason = reason.split(" (").next().unwrap();
    let names_it = |line: &str| line.contains(reason) && line.contains('`');
    assert!(run.err.lines().any(names_it), "{context}");
}
