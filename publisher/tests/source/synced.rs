//! What `resync-source` writes is on the disk when a run ends: no power cut leaves half of a document under its name.

use std::path::Path;

use resync_harness::{Disk, Kind, Step, unsynced};

use crate::{
    killing::{EVERYTHING, Trial, change},
    support::{Place, Run, program, text},
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

fn leaves_nothing_unsynced(disk: &Disk, command: &[&str]) {
    disk.meet(Step::none(Kind::CHANGES));
    Run::from(program(command).envs(disk.environment()).output().unwrap()).succeeded();
    let taken = disk.taken();
    let mut left = unsynced(&taken);
    left.retain(|path| !may_be_lost(path));
    assert!(left.is_empty(), "{left:#?}");
}

/// The content of locks is for people, a version whose digest is wrong is not used, and what is moved in the folder of the state at the end
/// of a run is moved by the next one again.
fn may_be_lost(path: &Path) -> bool {
    path.ends_with("lock")
        || path.ends_with(".resync-source")
        || path.extension().is_some_and(|extension| extension == "lock")
        || path.parent().is_some_and(|folder| folder.ends_with("versions"))
}
