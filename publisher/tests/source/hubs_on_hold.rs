//! Hubs that are no longer named: what waits for them is kept until they are named again or dropped.

use std::{
    fs::{self, File},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use resync_core::{
    document::{Capability, Change, Document},
    xml,
};

use crate::{
    configured::{configured, one_set},
    notifying::told,
    support::{ACCEPTED, BASE, Heard, Hub, Place, Run, program, run, text},
};

const AWAY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull";
/// Nobody listens there.
const WRONG: &str = "http://127.0.0.1:1/websub/";

/// A site of a configuration whose only hub is up to date.
fn known() -> (Place, PathBuf, Hub) {
    let (place, hub) = (Place::new(), Hub::start());
    let config = name(&place, &[&hub.url()]);
    publish(&config, &[]).succeeded();
    hub.next();
    (place, config, hub)
}

/// Writes these hubs into the configuration.
fn name(place: &Place, hubs: &[&str]) -> PathBuf {
    configured(place, &one_set(BASE, &format!("hubs = {hubs:?}\n")))
}

fn publish(config: &std::path::Path, more: &[&str]) -> Run {
    run(&[&["publish", "--config", text(config)], more].concat())
}

fn status(config: &std::path::Path) -> serde_json::Value {
    serde_json::from_str(&run(&["status", "--config", text(config), "--json"]).succeeded().out).unwrap()
}

fn document(heard: &Heard) -> Document {
    xml::read(heard.body.as_bytes()).unwrap().into_document().unwrap()
}

/// The names of the resources in the next Change Notifications, which follow each other without gap.
fn next_names(hub: &Hub, number: usize) -> Vec<String> {
    let of_changes = std::iter::repeat_with(|| hub.next_of_any()).filter(Heard::is_of_changes);
    let documents: Vec<_> = of_changes.take(number).map(|heard| document(&heard)).collect();
    let interval = |document: &Document| {
        let metadata = &document.header().metadata;
        (metadata.from.unwrap(), metadata.until.unwrap())
    };
    assert!(documents.windows(2).all(|pair| interval(&pair[0]).1 == interval(&pair[1]).0), "CN-008");
    let names = documents.iter().flat_map(|document| document.entries().to_vec());
    names.map(|entry| entry.loc.rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn what_waits_for_a_hub_survives_a_mistyped_flag_and_comes_when_the_hub_is_named_again() {
    let (place, config, right) = known();
    right.answers(AWAY);
    place.put("one", "x");
    publish(&config, &[]).failed_with(1, "503");
    right.next();
    place.put("two", "x");
    let run = publish(&config, &["--hub", WRONG]).failed_with(1, "cannot reach the hub");
    let contradiction = format!("({WRONG}) contradict `hubs` of {} ({})", config.display(), right.url());
    assert!(run.err.contains(&contradiction), "{}", run.err);
    let on_hold =
        format!("{}: on hold, since it is no longer named; 2 Change Notifications kept", right.url());
    assert!(run.err.contains(&on_hold), "{}", run.err);
    assert_eq!(
        (&status(&config)["hubs"][1]["on_hold"], &status(&config)["hubs"][1]["waiting"]),
        (&true.into(), &2.into())
    );
    right.heard_nothing_more();

    place.put("three", "x");
    publish(&config, &["--hub", WRONG]).failed_with(1, "cannot reach the hub");
    right.answers(ACCEPTED);
    place.put("four", "x");
    let run = publish(&config, &[]).succeeded();
    assert_eq!(next_names(&right, 4), ["one", "two", "three", "four"]);
    let lists = [Capability::ResourceList, Capability::ChangeList, Capability::CapabilityList];
    assert_eq!(told(&right.next()), lists.map(|list| (Change::Updated, list)));
    // Whether anybody listens at the other one cannot be known.
    let drop = format!("`resync-source notify --config {} --drop-hub {WRONG}`", config.display());
    assert!(run.err.contains(&drop) && !run.err.contains("contradict"), "{}", run.err);
    let run = crate::support::run(&["notify", "--config", text(&config), "--drop-hub", WRONG]).succeeded();
    assert!(run.err.contains(&format!("dropped {WRONG}, and 2 waiting Change Notifications")), "{}", run.err);
    assert_eq!(status(&config)["hubs"].as_array().unwrap().len(), 1);
    assert_eq!(publish(&config, &[]).succeeded().err, "");
    right.heard_nothing_more();
}

#[test]
fn a_hub_that_is_no_longer_named_is_told_so_only_when_it_is_dropped() {
    let (place, config, old) = known();
    let new = Hub::start();
    name(&place, &[&new.url()]);
    for _ in 0..2 {
        let run = publish(&config, &[]).succeeded();
        assert!(run.err.contains("its subscribers were not told that"), "{}", run.err);
    }
    new.next();
    old.heard_nothing_more();
    let drop = |hub: &str| publish(&config, &["--drop-hub", hub]);
    drop(&new.url()).failed_with(64, "still a hub of the site");
    let nothing =
        |hub: &str| format!("warning: {hub} is not a hub of this site, so there is nothing to drop;");
    let run = drop(WRONG).succeeded();
    assert!(run.err.contains(&nothing(WRONG)), "{}", run.err);
    assert!(
        run.err.contains("its subscribers were not told that"),
        "the other is still on hold: {}",
        run.err
    );
    old.heard_nothing_more();
    let run = drop(&old.url()).succeeded();
    assert!(run.err.ends_with(&format!("dropped {}\n", old.url())), "{}", run.err);
    assert!(run.out.contains("no longer a hub of this site: 1 notification"), "{}", run.out);
    assert_eq!(told(&old.next()), [(Change::Updated, Capability::CapabilityList)]);
    let run = drop(&old.url()).succeeded();
    assert!(run.err.contains(&nothing(&old.url())), "{}", run.err);
    old.heard_nothing_more();
}

#[test]
fn a_hub_whose_url_gets_or_loses_its_final_slash_stays_the_same_hub() {
    let (place, config, hub) = known();
    hub.answers(AWAY);
    place.put("one", "x");
    publish(&config, &[]).failed_with(1, "503");
    hub.next();
    hub.answers(ACCEPTED);
    name(&place, &[hub.url().trim_end_matches('/')]);
    place.put("two", "x");
    assert_eq!(publish(&config, &[]).succeeded().err, "");
    assert_eq!(next_names(&hub, 2), ["one", "two"]);
    hub.next();
    name(&place, &[&hub.url()]);
    place.put("three", "x");
    assert_eq!(publish(&config, &[]).succeeded().err, "");
    assert_eq!(next_names(&hub, 1), ["three"]);
}

#[test]
fn without_any_hub_what_changes_is_kept_too() {
    let (place, config, hub) = known();
    place.put("one", "x");
    let run = publish(&config, &["--no-hub"]).succeeded();
    assert!(
        run.err.contains(&format!("(none) contradict `hubs` of {} ({})", config.display(), hub.url())),
        "{}",
        run.err
    );
    assert!(
        run.err.contains("1 Change Notification kept for it") && run.out.contains("no hub to notify"),
        "{}",
        run.err
    );
    run_notify(&config).failed_with(64, "has no hub");
    hub.heard_nothing_more();
    place.put("two", "x");
    publish(&config, &[]).succeeded();
    assert_eq!(next_names(&hub, 2), ["one", "two"]);
}

fn run_notify(config: &std::path::Path) -> Run {
    run(&["notify", "--config", text(config)])
}

#[test]
fn a_hub_that_a_flag_replaces_before_it_was_ever_notified_does_not_go_in_silence() {
    let place = Place::new();
    let build = |hub: &str| place.build(&["--hub", hub]).succeeded().err;
    assert_eq!(build(WRONG), "");
    assert_eq!(build(WRONG.trim_end_matches('/')), "", "it stays the same hub");
    let said = build("http://other.example/");
    assert!(said.contains(&format!("warning: {}: no longer a hub", WRONG.trim_end_matches('/'))), "{said}");
    assert_eq!(build("http://other.example/"), "");
}

#[test]
fn a_hub_that_was_never_notified_is_replaced_and_dropped_at_once() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", WRONG]).succeeded();
    let (collection, out, new) = (place.collection(), place.out(), hub.url());
    run(&["notify", "--out", text(&out), "--drop-hub", WRONG]).failed_with(64, "still a hub of the site");
    let publish = ["publish", text(&collection), "--base-url", BASE, "--out", text(&out)];
    let run = run(&[&publish[..], &["--hub", &new, "--drop-hub", WRONG]].concat()).succeeded();
    assert!(
        run.err.contains(&format!("{WRONG} is not a hub of this site, so there is nothing to drop;")),
        "{}",
        run.err
    );
    assert!(!run.err.contains("name it again"), "{}", run.err);
    hub.next();
}

#[test]
fn each_set_keeps_what_waits_for_its_own_hub() {
    let (place, hubs) = (Place::new(), [Hub::start(), Hub::start()]);
    let folder = place.collection().parent().unwrap().to_owned();
    let sets = ["one", "two"];
    for set in sets {
        fs::create_dir(folder.join(set)).unwrap();
    }
    let named = sets
        .iter()
        .zip(&hubs)
        .map(|(set, hub)| format!("[[set]]\nname = {set:?}\ndirectory = {set:?}\nhubs = {:?}\n", hub.url()));
    let config =
        configured(&place, &format!("out = \"site\"\nbase_url = \"{BASE}\"\n{}", named.collect::<String>()));
    publish(&config, &[]).succeeded();
    for set in sets {
        fs::write(folder.join(set).join(set), "x").unwrap();
    }
    let run = publish(&config, &["--hub", WRONG]).failed_with(1, "cannot reach the hub");
    for (set, hub) in sets.iter().zip(&hubs) {
        let line =
            format!("{set}: {}: on hold, since it is no longer named; 1 Change Notification kept", hub.url());
        assert!(run.err.contains(&line), "{}", run.err);
    }
    // It was never notified of anything, and nothing waits for it.
    assert_eq!(publish(&config, &[]).succeeded().err, "");
    for (set, hub) in sets.iter().zip(&hubs) {
        assert_eq!(next_names(hub, 1), [*set]);
    }
}

#[test]
fn a_token_without_url_is_refused_while_a_flag_names_another_hub_than_the_file() {
    let (_place, config, right) = known();
    let other = Hub::start();
    for command in ["publish", "watch"] {
        let mut run = program(&[command, "--config", text(&config), "--hub", &other.url()]);
        Run::from(run.env("RESYNC_SOURCE_TOKEN", "s3cret").output().unwrap()).failed_with(
            64,
            &format!("--hub names another hub than {}, so say which hub the token is for", config.display()),
        );
    }
    other.heard_nothing_more();
    publish(&config, &["--hub", &right.url(), "--token", "s3cret"]).succeeded();
    publish(&config, &["--hub", &other.url(), "--token", &format!("{}=s3cret", other.url())]).succeeded();
    assert_eq!(other.next().headers["authorization"], "Bearer s3cret");
}

#[test]
fn a_token_without_url_does_not_go_to_a_hub_that_only_the_last_build_was_given() {
    let (place, config, right) = known();
    let other = Hub::start();
    let (hub, out) = (other.url(), place.out());
    run(&["build", "--config", text(&config), "--hub", &hub]).succeeded();
    let why = format!("write HUB_URL=TOKEN: {hub}, which the last build was given, is not in `hubs` of");
    for site in [["--config", text(&config)], ["--out", text(&out)]] {
        run(&[&["notify", "--token", "s3cret"], &site[..]].concat()).failed_with(64, &why);
    }
    other.heard_nothing_more();
    run(&["notify", "--config", text(&config), "--token", &format!("{hub}=other")]).succeeded();
    assert_eq!(other.next().headers["authorization"], "Bearer other");
    run(&["build", "--config", text(&config)]).succeeded();
    run(&["notify", "--config", text(&config), "--token", "s3cret"]).succeeded();
    assert_eq!(right.next().headers["authorization"], "Bearer s3cret");
}

#[test]
fn a_set_that_still_names_a_dropped_hub_is_a_failure_and_the_others_drop_it() {
    let (place, left, new) = (Place::new(), Hub::start(), Hub::start());
    let folder = place.collection().parent().unwrap().to_owned();
    let configure = |hubs: [&Hub; 2]| {
        let named = ["one", "two"].iter().zip(hubs).map(|(set, hub)| {
            fs::create_dir_all(folder.join(set)).unwrap();
            format!("[[set]]\nname = {set:?}\ndirectory = {set:?}\nhubs = {:?}\n", hub.url())
        });
        let named = named.collect::<String>();
        configured(&place, &format!("out = \"site\"\nbase_url = \"{BASE}\"\n{named}"))
    };
    publish(&configure([&left, &left]), &[]).succeeded();
    let config = configure([&new, &left]);
    publish(&config, &[]).succeeded();
    let run = run(&["notify", "--config", text(&config), "--drop-hub", &left.url()])
        .failed_with(64, "1 of 2 sets could not drop a hub");
    assert!(run.err.contains(&format!("dropped {}\n", left.url())), "{}", run.err);
    assert!(run.err.contains(&format!("two: {} is still a hub of the site", left.url())), "{}", run.err);
    assert!(run.out.contains("no longer a hub of this site: 1 notification"), "{}", run.out);
}

#[test]
fn where_the_only_hub_was_dropped_json_has_no_hubs() {
    let place = Place::new();
    for file in ["one", "two"] {
        place.put(file, "x");
        publish(&name(&place, &[WRONG]), &[]).failed_with(1, "cannot reach the hub");
    }
    let config = name(&place, &[]);
    publish(&config, &[]).succeeded();
    let said = run(&["notify", "--config", text(&config), "--drop-hub", WRONG, "--json"]).succeeded().out;
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said, serde_json::json!({ "hubs": [], "notify_failures": [] }));
}

#[test]
fn a_hub_is_not_dropped_by_a_variable() {
    let (_place, config, hub) = known();
    let mut notify = program(&["notify", "--config", text(&config)]);
    Run::from(notify.env("RESYNC_SOURCE_DROP_HUB", hub.url()).output().unwrap()).succeeded();
}

#[test]
fn two_runs_with_different_hubs_in_turn_lose_nothing_for_either() {
    let (place, hubs) = (Place::new(), [Hub::start(), Hub::start()]);
    let publish = |hub: &Hub| {
        run(&[
            "publish",
            text(&place.collection()),
            "--base-url",
            BASE,
            "--out",
            text(&place.out()),
            "--hub",
            &hub.url(),
        ])
        .succeeded()
    };
    publish(&hubs[0]);
    publish(&hubs[1]);
    for name in ["a", "b", "c", "d"] {
        place.put(name, "x");
        publish(&hubs[usize::from(["b", "d"].contains(&name))]);
    }
    assert_eq!(next_names(&hubs[0], 3), ["a", "b", "c"]);
    assert_eq!(next_names(&hubs[1], 4), ["a", "b", "c", "d"]);
    publish(&hubs[0]);
    assert_eq!(next_names(&hubs[0], 1), ["d"]);
}

#[test]
fn what_has_waited_for_more_than_a_week_for_a_hub_on_hold_is_left_out_and_status_says_so() {
    let (place, config, hub) = known();
    place.put("one", "x");
    publish(&config, &["--no-hub"]).succeeded();
    let waiting = place.out().join(".resync-source/outbox/00000000000000000001.xml");
    let eight_days_ago = SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60);
    File::options().write(true).open(&waiting).unwrap().set_modified(eight_days_ago).unwrap();
    place.put("two", "x");
    publish(&config, &["--no-hub"]).succeeded();
    assert!(!waiting.exists());
    let said = run(&["status", "--config", text(&config)]).succeeded().out;
    assert!(said.contains("dropped as too old or too many: 1 notification of changed resources"), "{said}");
    publish(&config, &[]).succeeded();
    assert_eq!(next_names(&hub, 1), ["two"]);
}
