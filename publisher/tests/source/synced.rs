//! What `resync-source` writes is on the disk when a run ends: no power cut leaves half of a document under its name.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
};

use resync_harness::{Disk, Kind, Step, Taken, unsynced};

use crate::{
    killing::{EVERYTHING, Trial, change},
    support::{BASE, Place, Run, program, text},
};

#[test]
fn whatever_a_publish_writes_to_a_site_that_is_there_is_synced_when_it_ends() {
    for rules in ["", &EVERYTHING] {
        let trial = Trial::begin(rules);
        let disk = Disk::under(&trial.place.out(), 0);
        for round in 0..3 {
            change(&trial.place, round);
            leaves_nothing_unsynced(&disk, &trial.command(&["publish"]));
        }
    }
}

#[test]
fn so_is_a_resource_list_that_is_made_anew_because_the_site_has_moved() {
    let place = Place::new();
    place.build(&[]).succeeded();
    let (collection, out) = (place.collection(), place.out());
    let moved = ["build", text(&collection), "--base-url", "http://moved.example/data", "--out", text(&out)];
    leaves_nothing_unsynced(&Disk::under(&out, 0), &moved);
}

#[test]
fn so_is_what_a_publish_that_was_killed_before_any_sync_leaves_to_the_next_one() {
    // With all rules there are very many: every fifth one.
    for (rules, each) in [("", 1), (EVERYTHING.as_str(), 5)] {
        let trial = Trial::begin(rules);
        let disk = Disk::under(&trial.place.out(), 0);
        let command = trial.command(&["publish"]);
        change(&trial.place, 0);
        let whole = steps_of(&disk, &command);
        let syncs = (1..).zip(&whole).filter(|(_, step)| step.kind == Kind::Sync);
        let (mut runs, mut deaths) = (0, 0);
        for (round, (number, _)) in (1..).zip(syncs.step_by(each)) {
            change(&trial.place, round);
            disk.meet(Step { number, ..Step::none(Kind::CHANGES) });
            let ended = program(&command).envs(disk.environment()).output().unwrap().status;
            runs += 1;
            deaths += u32::from(ended.signal() == Some(9));
            // What it was killed before was not done.
            let mut steps: Vec<_> = disk.taken().into_iter().filter(|step| !step.is_met).collect();
            let unnamed: BTreeSet<_> =
                unsynced(&steps).into_iter().filter(|path| is_draft(path)).map(Path::to_owned).collect();
            steps.extend(steps_of(&disk, &command));
            are_synced_but(&unnamed, &steps);
            // Without its plan, nobody completes a run.
            for (gone, _) in
                steps.iter().enumerate().filter(|(_, step)| is_of(step, Kind::Unlink, "plan.json"))
            {
                are_synced_but(&unnamed, &steps[..gone]);
            }
            a_plan_is_gone_for_good_before_the_next_inventory_gets_its_name(&steps);
        }
        assert!(runs > 10 && deaths * 4 > runs * 3, "{deaths} of {runs} died");
    }
}

#[test]
fn each_folder_of_a_new_site_has_a_durable_name_wherever_its_first_build_was_killed() {
    let place = Place::new();
    let (collection, sites) = (place.collection(), place.whole().join("sites"));
    fs::create_dir(&sites).unwrap();
    let disk = Disk::under(&sites, 0);
    disk.sync_at_once();
    for number in 1..=12 {
        let out = sites.join(format!("{number}/above/site"));
        let command = ["build", text(&collection), "--base-url", BASE, "--out", text(&out)];
        disk.meet(Step { number, ..Step::none(&[Kind::Mkdir, Kind::Sync]) });
        let ended = program(&command).envs(disk.environment()).output().unwrap().status;
        assert_eq!(ended.signal(), Some(9), "at step {number}");
        let mut steps: Vec<_> = disk.taken().into_iter().filter(|step| !step.is_met).collect();
        steps.extend(steps_of(&disk, &command));
        for (made, folder) in steps.iter().enumerate().filter(|(_, step)| step.kind == Kind::Mkdir) {
            let gives_its_name =
                |step: &Taken| step.kind == Kind::Sync && folder.path.parent() == Some(step.path.as_path());
            assert!(
                steps[made..].iter().any(gives_its_name),
                "{folder:?}, killed at step {number}: {steps:#?}"
            );
        }
    }
}

/// If it came back, it would take the next inventory for its own, and what that has would never be told.
fn a_plan_is_gone_for_good_before_the_next_inventory_gets_its_name(steps: &[Taken]) {
    let is_inventory = |step: &Taken| {
        ["inventory-next.jsonl", "inventory-since-next.jsonl"]
            .iter()
            .any(|name| is_of(step, Kind::Rename, name))
    };
    let mut is_gone = true;
    for step in steps {
        if is_of(step, Kind::Unlink, "plan.json") {
            is_gone = false;
        } else if is_of(step, Kind::Sync, ".resync-source") {
            is_gone = true;
        }
        assert!(is_gone || !is_inventory(step), "{steps:#?}");
    }
}

fn is_of(step: &Taken, kind: Kind, name: &str) -> bool {
    step.kind == kind && step.path.ends_with(name)
}

fn leaves_nothing_unsynced(disk: &Disk, command: &[&str]) {
    are_synced(&steps_of(disk, command));
}

/// What a run does that nothing happens to.
fn steps_of(disk: &Disk, command: &[&str]) -> Vec<Taken> {
    disk.meet(Step::none(Kind::CHANGES));
    Run::from(program(command).envs(disk.environment()).output().unwrap()).succeeded();
    disk.taken()
}

fn are_synced(steps: &[Taken]) {
    are_synced_but(&BTreeSet::new(), steps);
}

/// Drafts that a killed run had not given their names yet are nobody's.
fn are_synced_but(unnamed: &BTreeSet<PathBuf>, steps: &[Taken]) {
    let mut left = unsynced(steps);
    left.retain(|path| !may_be_lost(path) && !unnamed.contains(*path));
    assert!(left.is_empty(), "{left:#?} after {steps:#?}");
}

fn is_draft(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "tmp")
}

/// The content of locks is for people, and a version whose digest is wrong is not used.
fn may_be_lost(path: &Path) -> bool {
    path.ends_with("lock")
        || path.extension().is_some_and(|extension| extension == "lock")
        || path.parent().is_some_and(|folder| folder.ends_with("versions"))
}
