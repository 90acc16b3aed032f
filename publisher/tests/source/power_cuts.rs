//! `resync-source` on a machine that loses power before any of its syncs, and with it whatever was not synced: names, and parts of files.

use std::{collections::BTreeSet, fs, os::unix::process::ExitStatusExt as _, process::Stdio};

use resync_harness::{Machine, deaths_wanted, seed};

use crate::{
    killing::{EVERYTHING, PUBLISH, Trial, change},
    support::{BASE, Hub, Place, Run, document_in, judge_linked, program, run, text},
    versions::ALWAYS,
};

/// How often a trial loses power; `RESYNC_TEST_DEATHS` asks for more.
const CUTS: usize = 20;

/// A command on a machine, which is killed before this sync if there are so many; says whether there were.
fn is_killed(machine: &mut Machine, number: u32, command: &[&str]) -> bool {
    let mut program = program(command);
    program.envs(machine.environment(Some(number))).stdout(Stdio::null()).stderr(Stdio::null());
    let ended = program.status().unwrap();
    let is_killed = ended.signal() == Some(9);
    assert!(is_killed || ended.success(), "{ended} at {number} of {command:?}");
    is_killed
}

/// The same command that nothing happens to; how often it syncs.
fn syncs(machine: &mut Machine, command: &[&str]) -> u32 {
    Run::from(program(command).envs(machine.environment(None)).output().unwrap()).succeeded();
    machine.syncs()
}

#[test]
fn a_publish_that_loses_power_at_any_sync_loses_no_change_and_tells_nothing_too_early() {
    survive_cuts("", PUBLISH);
}

#[test]
fn so_does_one_that_makes_patches_dumps_and_archives_at_every_run() {
    survive_cuts(&EVERYTHING, PUBLISH);
}

#[test]
fn mem011_so_does_one_that_keeps_versions_whose_bytes_are_those_that_are_told() {
    survive_cuts(ALWAYS, PUBLISH);
}

#[test]
fn so_do_dumps_between_publishes() {
    survive_cuts("", &[&["publish"], &["dump"], &["dump", "--changes"]]);
}

/// Cuts the power at each sync of these commands, or so many of them.
fn survive_cuts(rules: &'static str, commands: &[&[&str]]) {
    let trial = Trial::begin(rules);
    let mut machine = Machine::under(&trial.place.out(), seed());
    let mut rounds = 0..;
    let (mut cuts, mut deaths) = (0, 0);
    for command in commands {
        let command = trial.command(command);
        change(&trial.place, rounds.next().unwrap());
        let syncs_of_all = syncs(&mut machine, &command);
        // Once also when it has ended.
        for number in machine.numbers(syncs_of_all + 1, deaths_wanted(CUTS).div_ceil(commands.len())) {
            // What a run that ended leaves unsynced may come back.
            if machine.rng.u8(0..3) == 0 {
                change(&trial.place, rounds.next().unwrap());
                syncs(&mut machine, &command);
            }
            change(&trial.place, rounds.next().unwrap());
            deaths += usize::from(is_killed(&mut machine, number, &command));
            // What a run finds that was only killed may still not be durable.
            if machine.rng.u8(0..3) == 0 {
                trial.conforms();
                syncs(&mut machine, &command);
            }
            machine.lose_power();
            cuts += 1;
            trial.conforms();
        }
    }
    // Nothing that was cut short hinders what comes after it: each file changes twice.
    for round in rounds.take(6) {
        change(&trial.place, round);
        syncs(&mut machine, &trial.command(commands[0]));
    }
    println!("{cuts} cuts, {deaths} of them before the end, took {:?}", machine.loss);
    assert!(
        deaths * 2 > cuts && machine.loss.names + machine.loss.pages > 0,
        "{deaths} of {cuts}, {:?}",
        machine.loss
    );
    trial.ends(commands);
}

#[test]
fn a_site_that_loses_power_while_it_is_made_is_there_whole_or_not_yet_and_the_next_build_makes_it() {
    let place = Place::new();
    let sites = place.whole().join("sites");
    fs::create_dir(&sites).unwrap();
    let hub = Hub::start();
    let mut machine = Machine::under(&sites, seed());
    let out = sites.join("site");
    let (collection, hub) = (place.collection(), hub.url());
    let build = &["build", text(&collection), "--base-url", BASE, "--out", text(&out), "--hub", &hub][..];
    let check = || {
        run(&["check", text(&out)]).succeeded();
        judge_linked(&out, &mut BTreeSet::new());
    };
    let syncs_of_all = syncs(&mut machine, build);
    for number in machine.numbers(syncs_of_all + 1, deaths_wanted(CUTS)) {
        fs::remove_dir_all(&out).unwrap();
        machine.settle();
        is_killed(&mut machine, number, build);
        if machine.rng.bool() {
            syncs(&mut machine, build);
        }
        machine.lose_power();
        // Where Destinations start, everything is there.
        if out.join(".well-known/resourcesync").exists() {
            check();
        }
        run(build).succeeded();
        check();
        let lists = document_in(&out, "resync/resourcelist.xml");
        assert_eq!(lists.entries().len(), 2);
    }
}
