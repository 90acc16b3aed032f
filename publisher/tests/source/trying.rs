//! `build` and `publish` with `--dry-run`: what they say is what the run then does, and they do nothing.

use std::{collections::BTreeMap, fs, path::PathBuf, time::SystemTime};

use serde_json::{Value, json};

use crate::{
    configured::configured,
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

/// Runs it with and without `--dry-run`, and gives what both say.
fn tried_and_done(place: &Place, command: &[&str]) -> [Run; 2] {
    let before = all(place);
    let tried = run(&[command, &["-n"]].concat()).succeeded();
    assert!(all(place) == before, "a dry run changes nothing");
    [tried, run(command).succeeded()]
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn a_dry_run_says_what_the_run_then_writes_changes_and_notifies_and_does_nothing() {
    let (place, hub) = (Place::new(), Hub::start());
    let rules = format!(
        "out = \"site\"\nbase_url = \"{BASE}\"\ndirectory = \"collection\"\nhubs = \"{}\"\n",
        hub.url()
    );
    let config = configured(&place, &rules);
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
