//! `build` and `publish` with `--dry-run`: what they say is what the run then does, and they do nothing.

use std::{collections::BTreeMap, fs, path::PathBuf, time::SystemTime};

use serde_json::{Value, json};

use crate::{
    configured::{configured, one_set},
    support::{BASE, Hub, Place, Run, run, text},
};

/// Everything of a place, with the times of its files.
fn all(place: &Place) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let entries = walkdir::WalkDir::new(place.whole()).into_iter().map(Result::unwrap);
    let of = |path: PathBuf| {
        let bytes = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        let modified = path.symlink_metadata().unwrap().modified().unwrap();
        (path, (bytes, modified))
    };
    entries.map(|entry| of(entry.into_path())).collect()
}

/// The configuration of a site of one set with this hub.
fn with_hub(place: &Place, hub: &Hub) -> PathBuf {
    configured(place, &one_set(BASE, &format!("hubs = \"{}\"\n", hub.url())))
}

/// Runs it with and without `--dry-run`, and gives what both say.
fn tried_and_done(place: &Place, command: &[&str]) -> [Run; 2] {
    let before = all(place);
    let tried = run(&[command, &["-n"]].concat()).succeeded();
    assert!(all(place) == before, "a dry run changes nothing");
    [tried, run(command).succeeded()]
}

/// Runs it with and without `--dry-run`; both fail with this code, and say the same.
fn fails_the_same(place: &Place, command: &[&str], code: i32, words: &str) {
    let before = all(place);
    let tried = run(&[command, &["-n"]].concat()).failed_with(code, words);
    assert!(all(place) == before, "a dry run changes nothing");
    let failed = run(command).failed_with(code, words);
    assert_eq!(tried.err, failed.err);
    if command.contains(&"--json") {
        let errors = |run: &Run| {
            json(run)["sets"].as_array().unwrap().iter().map(|set| set["error"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(errors(&tried), errors(&failed));
    }
}

/// What a dry run would send, as the run then says what it sent.
fn would_send(tried: &Value) -> Vec<Value> {
    let as_sent = |would: &Value| json!([would["set"], would["hub"], would["pending"]]);
    tried["would_notify"].as_array().unwrap().iter().map(as_sent).collect()
}

fn sent(done: &Value) -> Vec<Value> {
    let hubs = done["hubs"].as_array().unwrap().iter();
    let hubs = hubs.filter(|hub| hub["outcome"] == "accepted");
    hubs.map(|hub| json!([hub["set"], hub["hub"], hub["changes"]])).collect()
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn a_dry_run_says_what_the_run_then_writes_changes_and_notifies_and_does_nothing() {
    let (place, hub) = (Place::new(), Hub::start());
    let config = with_hub(&place, &hub);
    let publish = ["publish", "--config", text(&config)];
    let [tried, done] = tried_and_done(&place, &publish);
    assert!(tried.out.contains("→ would write Resource List, "), "{}", tried.out);
    let documents = format!("would notify {} of 4 documents", hub.url());
    assert!(tried.out.contains(&documents), "{}", tried.out);
    let written =
        |run: &Run| run.out.split("write").nth(1).map(|text| text.trim_start_matches("n ").to_owned());
    assert!(written(&tried).is_some() && done.out.contains("written"), "{} {}", tried.out, done.out);
    assert!(!hub.next().is_of_changes());
    hub.heard_nothing_more();

    place.put("new.txt", "new");
    place.put("a.txt", "another");
    place.remove("sub/b c.xml");
    let [tried, done] = tried_and_done(&place, &[&publish[..], &["--json"]].concat()).map(|run| json(&run));
    for key in ["created", "updated", "deleted", "written", "resources", "unchanged"] {
        assert_eq!(tried["sets"][0][key], done["sets"][0][key], "{key}");
    }
    let one = json!([1, 1, 1]);
    assert_eq!(json!(["created", "updated", "deleted"].map(|key| &tried["sets"][0][key])), one);
    let would = &tried["would_notify"][0];
    assert_eq!((&would["hub"], &would["waiting"]), (&json!(hub.url()), &json!(1)));
    assert_eq!(would["pending"], done["hubs"][0]["changes"]);
    hub.next();
    let nothing = run(&[&publish[..], &["--dry-run"]].concat()).succeeded();
    assert!(nothing.out.contains("nothing changed") && !nothing.out.contains("would"), "{}", nothing.out);
    hub.heard_nothing_more();
    assert_eq!(run(&[&publish[..], &["-n", "-q"]].concat()).succeeded().out, "");
}

#[test]
fn a_site_that_is_the_collection_and_one_of_two_sets_are_tried_as_they_are_built() {
    let place = Place::new();
    let collection = place.collection();
    let build = ["build", text(&collection), "--base-url", BASE, "--out", text(&collection), "--json"];
    for _ in 0..2 {
        place.put("a.txt", "more");
        let [tried, done] = tried_and_done(&place, &build).map(|run| json(&run));
        assert_eq!(done["sets"][0]["resources"], 2);
        assert_eq!(tried["sets"], done["sets"]);
    }
    let place = Place::new();
    fs::create_dir(place.whole().join("images")).unwrap();
    let sets =
        ["collection", "images"].map(|name| format!("[[set]]\nname = {name:?}\ndirectory = {name:?}\n"));
    let config = configured(&place, &format!("out = \"site\"\nbase_url = \"{BASE}\"\n{}", sets.concat()));
    for round in 0..2 {
        place.put("a.txt", format!("round {round}"));
        let [tried, done] =
            tried_and_done(&place, &["build", "--config", text(&config), "--json"]).map(|run| json(&run));
        assert_eq!(tried["sets"].as_array().unwrap().len(), 2);
        assert_eq!(tried["sets"], done["sets"], "round {round}");
    }
    run(&["check", text(&place.out())]).succeeded();
}

#[cfg(unix)]
#[test]
fn folders_of_the_site_that_are_links_are_tried_as_well_and_nothing_is_written_through_them() {
    use std::os::unix::fs::symlink;
    let (place, hub) = (Place::new(), Hub::start());
    let config = with_hub(&place, &hub);
    let publish = ["publish", "--config", text(&config), "--json"];
    for content in ["another", "yet another"] {
        place.put("a.txt", content);
        run(&publish).succeeded();
    }
    let own = place.out().join(".resync-source");
    symlink("nowhere", own.join("broken")).unwrap();
    for (number, folder) in [own.join("outbox"), own.clone(), place.out().join("resync")].iter().enumerate() {
        let elsewhere = place.whole().join(format!("elsewhere-{number}"));
        fs::rename(folder, &elsewhere).unwrap();
        symlink(&elsewhere, folder).unwrap();
        place.put("a.txt", format!("content {number}"));
        let [tried, done] = tried_and_done(&place, &publish).map(|run| json(&run));
        assert_eq!(tried["sets"][0]["updated"], 1);
        assert_eq!(tried["sets"], done["sets"], "{}", folder.display());
        assert_eq!(would_send(&tried), sent(&done));
    }
    symlink(".", own.join("loop")).unwrap();
    let failed = run(&[&publish[..], &["-n"]].concat());
    failed.failed_with(1, &format!("cannot prepare a dry run of `{}`", own.join("loop").display()));
}

#[test]
fn a_set_that_leaves_the_configuration_is_said_to_be_removed_before_and_when_it_is() {
    let (place, hub) = (Place::new(), Hub::start());
    let names = ["collection", "images", "maps"];
    names[1..].iter().for_each(|name| fs::create_dir(place.whole().join(name)).unwrap());
    let with = |names: &[&str]| {
        let sets = names.iter().map(|name| format!("[[set]]\nname = {name:?}\ndirectory = {name:?}\n"));
        let rules = format!("out = \"site\"\nbase_url = \"{BASE}\"\nhubs = \"{}\"\n", hub.url());
        configured(&place, &(rules + &sets.collect::<String>()))
    };
    let config = with(&names);
    let publish = ["publish", "--config", text(&config)];
    let first = json(&run(&[&publish[..], &["--json"]].concat()).succeeded());
    assert_eq!((&first["retired"], &first["dry_run"]), (&json!([]), &Value::Null));

    with(&names[..2]);
    let [tried, done] = tried_and_done(&place, &publish);
    let line = "maps: no longer in the configuration → ";
    assert!(tried.out.starts_with(&format!("{line}would be removed\n")), "{}", tried.out);
    assert!(done.out.starts_with(&format!("{line}removed\n")), "{}", done.out);
    assert!(!place.out().join("maps/resync").exists());

    with(&names[..1]);
    let [tried, done] = tried_and_done(&place, &[&publish[..], &["--json"]].concat()).map(|run| json(&run));
    assert_eq!([&tried["retired"], &done["retired"]], [&json!(["images"]); 2]);
    assert_eq!([&tried["dry_run"], &done["dry_run"]], [&json!(true), &Value::Null]);
    assert_eq!(would_send(&tried), sent(&done));
    assert!(sent(&done).iter().any(|one| one[0] == "images"), "its hub is notified");
    assert_eq!(json(&run(&[&publish[..], &["--json"]].concat()).succeeded())["retired"], json!([]));
}

#[test]
fn a_hub_to_drop_is_judged_as_by_the_run() {
    let (place, hub, left) = (Place::new(), Hub::start(), Hub::start());
    let config = with_hub(&place, &left);
    let publish = ["publish", "--config", text(&config)];
    run(&publish).succeeded();
    with_hub(&place, &hub);
    run(&publish).succeeded();
    let (named, url) = (hub.url(), left.url());
    let dropping = |url| [&publish[..], &["--drop-hub", url]].concat();
    for run in tried_and_done(&place, &dropping("http://nobody.example/")) {
        assert!(run.err.contains("is not a hub of this site, so there is nothing to drop"), "{}", run.err);
    }
    fails_the_same(&place, &dropping(&named), 64, "is still a hub of the site");
    let [tried, done] = tried_and_done(&place, &[&dropping(&url)[..], &["--json"]].concat());
    assert!(tried.err.contains(&format!("would drop {url}")), "{}", tried.err);
    assert!(done.err.contains(&format!("dropped {url}")), "{}", done.err);
    let [tried, done] = [tried, done].map(|run| json(&run));
    assert_eq!(would_send(&tried), sent(&done));
    assert!(sent(&done).iter().any(|one| one[1] == url), "it is notified once more");
}

#[test]
fn a_dry_run_fails_by_the_same_words_as_the_run() {
    let place = Place::new();
    fs::create_dir(place.whole().join("images")).unwrap();
    let set = |name: &str| format!("[[set]]\nname = {name:?}\ndirectory = {name:?}\n");
    let top = format!("out = \"site\"\nbase_url = \"{BASE}\"\n");
    let config = configured(&place, &(top.clone() + &set("collection") + &set("images")));
    run(&["build", "--config", text(&config)]).succeeded();
    let other = place.whole().join("other.toml");
    fs::write(&other, top.clone() + &set("images")).unwrap();
    fails_the_same(&place, &["build", "--config", text(&other)], 64, "/site` belongs to `");

    fs::write(place.out().join("images/.resync-source/state.json"), "?").unwrap();
    let build = ["build", "--config", text(&config), "--json"];
    fails_the_same(&place, &build, 1, "/site/images/.resync-source/state.json` is damaged");
    configured(&place, &(top + &set("collection")));
    fails_the_same(&place, &build, 1, "/site/images/.resync-source/state.json` is damaged");
}

#[test]
fn a_due_dump_is_told_of_in_json() {
    let place = Place::new();
    let config = configured(&place, &one_set(BASE, "[resource_dump]\nevery = \"0s\"\n"));
    for command in ["publish", "build"] {
        place.put("a.txt", command);
        let command = [command, "--config", text(&config), "--json"];
        let [tried, done] = tried_and_done(&place, &command).map(|run| json(&run));
        assert_eq!([&tried, &done].map(|one| &one["sets"][0]["dump_is_due"]), [&json!(true), &json!(false)]);
        assert_eq!(tried["would_notify"].is_array(), command[0] == "publish");
    }
}
