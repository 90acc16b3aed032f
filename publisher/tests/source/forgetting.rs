//! `resync-source forget`: which versions go, what stays as it is, and what no later build keeps again.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use resync_core::{
    digest::{Algorithm, Digest},
    document::Relation,
};
use resync_harness::{Machine, seed};
use serde_json::{Value, json};

use crate::{
    configured::{configured, two_sets, with_images},
    killing::{is_killed_at, listed},
    support::{BASE, Place, Run, Server, program, run, text},
    versions::{ALWAYS, build, contents, keeping, keeping_in, kept},
};

/// What was kept of `a.txt`, which was "alpha" and is "beta!"; `copy.txt` is "alpha".
fn changed() -> (Place, PathBuf) {
    let (place, config) = keeping(ALWAYS);
    place.put("copy.txt", "alpha");
    build(&config).succeeded();
    place.put("a.txt", "beta!");
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&["alpha", "beta!", "<b/>"]));
    (place, config)
}

fn forget(config: &Path, more: &[&str]) -> Run {
    run(&[&["forget", "--config", text(config)][..], more].concat())
}

fn in_json(config: &Path, more: &[&str]) -> Value {
    let run = forget(config, &[more, &["--json"]].concat()).succeeded();
    serde_json::from_str(&run.out).unwrap()
}

/// When the versions of `a.txt` began whose bytes are kept.
fn moments(config: &Path) -> Vec<String> {
    let json = in_json(config, &["a.txt"]);
    let versions = json["kept"][0]["versions"].as_array().unwrap().clone();
    versions.iter().map(|version| version["moment"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn without_a_choice_the_versions_of_a_file_are_listed_with_whoever_has_the_same_bytes_and_nothing_changes() {
    let (place, config) = changed();
    let (uri, copy) = (format!("{BASE}/a.txt"), format!("{BASE}/copy.txt"));
    let moments = moments(&config);
    let shown = forget(&config, &["a.txt"]).succeeded().out;
    let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), 2, "{shown}");
    for (row, (moment, sharer)) in rows.iter().zip(moments.iter().zip([copy.as_str(), ""])) {
        assert_eq!([row[0], row[1], row[2], row[4]], [moment.as_str(), "5 B", &uri, sharer], "{shown}");
        assert!(row[3].starts_with("sha-256:"), "{shown}");
    }
    let json = in_json(&config, &["a.txt"]);
    assert_eq!((&json["kept"][0]["uri"], &json["kept"][0]["published"]), (&json!(uri), &json!(true)));
    let first = &json["kept"][0]["versions"][0];
    assert_eq!((&first["others"], &first["shared_with"][0]["uri"]), (&json!(1), &json!(copy)));
    let path = place.collection().join("a.txt");
    for named in [text(&path), &uri, "HTTP://Source.Example:80/data/%61.txt"] {
        assert_eq!(forget(&config, &[named]).succeeded().out, shown, "{named}");
    }
    assert_eq!(in_json(&config, &["sub/b c.xml"])["kept"][0]["uri"], format!("{BASE}/sub/b%20c.xml"));
    assert_eq!(kept(&place.out()), contents(&["alpha", "beta!", "<b/>"]));
}

#[test]
fn what_was_never_kept_and_what_is_no_moment_is_said_to_be_so() {
    let (place, config) = changed();
    forget(&config, &["never.txt"]).failed_with(1, "no version of `never.txt` was ever kept");
    forget(&config, &["never.txt", "--all"]).failed_with(1, "no version of `never.txt` was ever kept");
    let at = ["a.txt", "--at", "1999-01-01T00:00:00Z"];
    forget(&config, &at).failed_with(1, "`a.txt` has no version that began at 1999-01-01T00:00:00Z; list");
    forget(&config, &["a.txt", "--at", "2026-03-01T09:30"]).failed_with(2, "the time has no zone");
    forget(&config, &["a.txt", "--at", "2026-03-01", "--all"]).failed_with(2, "cannot be used with");
    forget(&config, &["a.txt", "--with-others"]).failed_with(2, "--at");
    assert_eq!(kept(&place.out()), contents(&["alpha", "beta!", "<b/>"]));
}

#[test]
fn where_two_sets_have_a_file_of_one_name_it_is_to_be_named_by_its_uri() {
    let place = Place::new();
    with_images(&place);
    place.put("one.png", "article");
    let config = configured(&place, &format!("{}\n{ALWAYS}", two_sets("")));
    build(&config).succeeded();
    let of_both = in_json(&config, &["one.png"])["kept"].as_array().unwrap().len();
    assert_eq!(of_both, 2);
    let refused = forget(&config, &["one.png", "--all"]).failed_with(2, "name one by its URI");
    assert!(
        refused.err.contains("`http://images.example/one.png` or `http://source.example/articles/one.png`")
    );
    assert!(kept(&place.out().join("images")).contains(&b"png"[..]));
    let forgotten = in_json(&config, &["http://images.example/one.png", "--all"]);
    assert_eq!(forgotten["forgotten"].as_array().unwrap().len(), 1);
    assert_eq!(kept(&place.out().join("images")), contents(&[]));
    assert!(kept(&place.out().join("articles")).contains(&b"article"[..]));
}

#[test]
fn mem010_versions_with_the_same_bytes_go_together_and_only_if_that_is_wanted() {
    let (place, config) = changed();
    let moments = moments(&config);
    for choice in [&["--all"][..], &["--at", moments[0].as_str()]] {
        let refused = forget(&config, &[&["a.txt"][..], choice].concat()).failed_with(2, "--with-others");
        let named = format!("1 other version has the same bytes, the first of `{BASE}/copy.txt`");
        assert!(refused.err.contains(&named), "{}", refused.err);
        assert_eq!(kept(&place.out()), contents(&["alpha", "beta!", "<b/>"]), "{choice:?}");
    }
    let second = forget(&config, &["a.txt", "--at", &moments[1]]).succeeded().out;
    let first = format!("removes the version of `{BASE}/a.txt` that began at {} (5 B, sha-256:", moments[1]);
    assert!(second.starts_with(&first), "{second}");
    let still = |name: &str| format!("\nstill published with these bytes: `{BASE}/{name}`\n");
    assert!(second.contains("\n1 version of ") && second.contains(&still("a.txt")), "{second}");
    assert_eq!(kept(&place.out()), contents(&["alpha", "<b/>"]));

    let all = forget(&config, &["a.txt", "--all", "--with-others"]).succeeded().out;
    assert!(
        all.contains(&format!("its bytes are equal: the version of `{BASE}/copy.txt` that began")),
        "{all}"
    );
    assert!(all.contains("and 1 other with the same bytes forgotten"), "{all}");
    assert!(all.contains(&still("a.txt")) && all.contains(&still("copy.txt")), "{all}");
    assert_eq!(kept(&place.out()), contents(&["<b/>"]));
    assert_eq!(in_json(&config, &["copy.txt"])["kept"][0]["versions"], json!([]));
}

#[test]
fn mem010_a_version_of_the_same_file_with_the_same_bytes_is_another_one_too() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    for text in ["beta!", "alpha"] {
        place.put("a.txt", text);
        build(&config).succeeded();
    }
    let moments = moments(&config);
    let refused = forget(&config, &["a.txt", "--at", &moments[2]]).failed_with(2, "--with-others");
    assert!(refused.err.contains(&format!("`{BASE}/a.txt` from {} on", moments[0])), "{}", refused.err);
    forget(&config, &["a.txt", "--at", &moments[2], "--with-others"]).succeeded();
    assert_eq!(kept(&place.out()), contents(&["beta!", "<b/>"]));
}

#[test]
fn who_forgets_again_is_told_that_nothing_is_kept_and_a_check_finds_nothing_wrong() {
    let (place, config) = changed();
    let second = moments(&config)[1].clone();
    let forgotten = in_json(&config, &["a.txt", "--at", &second]);
    let forgotten = &forgotten["forgotten"][0];
    let same = json!([format!("{BASE}/a.txt")]);
    assert_eq!((&forgotten["bytes"], &forgotten["published_with_same_bytes"]), (&json!(5), &same));
    assert_eq!(forgotten["versions"][0]["moment"], second);
    let again = forget(&config, &["a.txt", "--at", &second]).succeeded().out;
    assert!(again.starts_with(&format!("no bytes of these versions of `{BASE}/a.txt` are kept")), "{again}");
    assert!(again.contains(&format!("\nstill published with these bytes: `{BASE}/a.txt`\n")), "{again}");
    assert_eq!(in_json(&config, &["a.txt", "--at", &second])["forgotten"][0]["versions"], json!([]));
    run(&["check", text(&place.out())]).succeeded();
    let status = run(&["status", "--config", text(&config), "--json"]).succeeded().out;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["versions"]["versions"], &status["versions"]["bytes"]), (&json!(3), &json!(9)));
}

#[test]
fn mem013_no_later_build_keeps_what_was_forgotten_and_the_file_stays_published() {
    for hash in ["sha-256", "md5"] {
        let keys = format!("hash = [\"{hash}\"]\n{ALWAYS}");
        let (place, config) = keeping(&keys);
        build(&config).succeeded();
        forget(&config, &["a.txt", "--all"]).succeeded();
        assert_eq!(fs::read(place.collection().join("a.txt")).unwrap(), b"alpha");
        assert_eq!(build(&config).succeeded().err, "");
        assert_eq!(kept(&place.out()), contents(&["<b/>"]), "{hash}");
        for text in ["beta!", "alpha"] {
            place.put("a.txt", text);
            assert_eq!(build(&config).succeeded().err, "", "{hash}: {text}");
        }
        assert_eq!(kept(&place.out()), contents(&["beta!", "<b/>"]), "{hash}");
        let told = listed(&place.out());
        let links: Vec<_> = told.iter().map(|entry| entry.link(&Relation::Memento).is_some()).collect();
        assert_eq!(links, [true, false], "{hash}: nothing is there to link to");
        // Another choice has the build compare all files with what is kept.
        let config = keeping_in(&place, &format!("{keys}only = [\"*\"]\n"));
        assert_eq!(build(&config).succeeded().err, "");
        assert_eq!(kept(&place.out()), contents(&["beta!", "<b/>"]), "{hash}");
        // So has one that begins anew.
        build(&keeping_in(&place, &format!("hash = [\"{hash}\"]\n"))).succeeded();
        build(&keeping_in(&place, &keys)).succeeded();
        assert_eq!(kept(&place.out()), contents(&["<b/>"]), "{hash}");
        let resources = place.document("resync/resourcelist.xml");
        assert!(resources.entries().iter().any(|entry| entry.loc == format!("{BASE}/a.txt")));
    }
}

#[test]
fn where_it_cannot_be_read_what_is_forgotten_all_is_published_and_nothing_kept_until_it_can() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    forget(&config, &["a.txt", "--all"]).succeeded();
    let file = place.out().join(".resync-source/forgotten.json");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, "nonsense").unwrap();
    place.put("new.txt", "new");
    let built = build(&config).failed_with(1, "bring this file back");
    assert!(built.err.contains("forgotten.json") && built.out.contains("Change List"), "{}", built.err);
    assert_eq!(kept(&place.out()), contents(&["<b/>"]));
    forget(&config, &["sub/b c.xml", "--all"]).failed_with(1, "bring this file back");
    fs::write(&file, whole).unwrap();
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&["new", "<b/>"]));
}

#[test]
fn mem013_a_removal_that_loses_power_at_any_sync_can_be_repeated_and_one_that_ended_stays_done() {
    let seed = seed();
    for number in 1.. {
        let (place, config) = keeping(ALWAYS);
        build(&config).succeeded();
        let mut machine = Machine::under(&place.out(), seed);
        let all = ["forget", "a.txt", "--all", "--config", text(&config)];
        let ended = program(&all).envs(machine.environment(Some(number))).output().unwrap().status;
        machine.lose_power();
        assert!(ended.success() || ended.signal() == Some(9), "{ended} at {number}");
        if ended.success() {
            assert_eq!(kept(&place.out()), contents(&["<b/>"]));
        }
        build(&config).succeeded();
        run(&all).succeeded();
        assert_eq!(kept(&place.out()), contents(&["<b/>"]), "at {number}");
        build(&config).succeeded();
        run(&["check", text(&place.out())]).succeeded();
        if ended.success() {
            assert!(number > 4, "{number}");
            return;
        }
    }
}

#[test]
fn a_dry_run_says_what_would_go_and_changes_nothing() {
    let (place, config) = changed();
    forget(&config, &["a.txt", "--all", "-n"]).failed_with(2, "--with-others");
    let all = ["a.txt", "--all", "--with-others", "--dry-run"];
    let shown = forget(&config, &all).succeeded().out;
    assert_eq!(shown.matches("removes the version of `").count(), 2, "{shown}");
    assert!(shown.contains(&format!("its bytes are equal: the version of `{BASE}/copy.txt`")), "{shown}");
    for name in ["a.txt", "copy.txt"] {
        let still = format!("\nstill published with these bytes: `{BASE}/{name}`\n");
        assert!(shown.contains(&still), "{shown}");
    }
    let json = in_json(&config, &all);
    assert_eq!(json["would_forget"][0]["versions"].as_array().unwrap().len(), 2);
    assert_eq!(kept(&place.out()), contents(&["alpha", "beta!", "<b/>"]));
    assert!(!place.out().join(".resync-source/forgotten.json").exists());
    forget(&config, &["a.txt", "--dry-run"]).failed_with(2, "--at");
}

#[test]
fn of_an_empty_file_it_is_said_that_its_versions_stay() {
    let (place, config) = keeping(ALWAYS);
    place.put("empty.txt", "");
    build(&config).succeeded();
    let uri = format!("{BASE}/empty.txt");
    let stays = format!("1 empty version of `{uri}` stays: empty bytes are never removed");
    for more in [&["empty.txt", "--all"][..], &["empty.txt", "--all", "--dry-run"]] {
        let said = forget(&config, more).succeeded().out;
        assert_eq!(said, format!("{stays}\nthe file itself is still published: `{uri}`\n"));
    }
    assert_eq!(kept(&place.out()), contents(&["", "alpha", "<b/>"]));
}

#[test]
fn a_version_of_the_same_file_with_the_same_bytes_is_listed_as_another_one() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    for text in ["beta!", "alpha"] {
        place.put("a.txt", text);
        build(&config).succeeded();
    }
    let (moments, listed) = (moments(&config), in_json(&config, &["a.txt"]));
    let versions = &listed["kept"][0]["versions"];
    assert_eq!(versions[2]["shared_with"], json!([{ "uri": format!("{BASE}/a.txt"), "moment": moments[0] }]));
    assert_eq!((&versions[0]["others"], &versions[1]["others"]), (&json!(1), &json!(0)));
}

#[test]
fn all_files_that_are_published_with_the_same_bytes_are_named_as_far_as_lists_or_journal_tell_them() {
    let told: [(&str, &[&str]); 2] =
        [("sha-256", &["a.txt", "b.md", "copy.txt"]), ("md5", &["a.txt", "copy.txt"])];
    for (hash, expected) in told {
        let (place, config) = keeping(&format!("hash = [\"{hash}\"]\n{ALWAYS}only = [\"*.txt\"]\n"));
        place.put("copy.txt", "alpha");
        place.put("b.md", "alpha");
        build(&config).succeeded();
        let forgotten = in_json(&config, &["a.txt", "--all", "--with-others"]);
        let expected: Vec<_> = expected.iter().map(|name| format!("{BASE}/{name}")).collect();
        assert_eq!(forgotten["forgotten"][0]["published_with_same_bytes"], json!(expected), "{hash}");
    }
}

#[test]
fn a_file_that_is_gone_since_its_versions_are_kept_no_longer_is_not_called_published() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    keeping_in(&place, &format!("{ALWAYS}only = [\"*.xml\"]\n"));
    build(&config).succeeded();
    assert_eq!(in_json(&config, &["a.txt"])["kept"][0]["published"], json!(true));
    place.remove("a.txt");
    build(&config).succeeded();
    assert_eq!(in_json(&config, &["a.txt"])["kept"][0]["published"], json!(false));
}

#[test]
fn who_stands_in_the_collection_names_files_from_there_and_what_may_be_several_is_refused() {
    let (place, config) = keeping(ALWAYS);
    place.put("sub/z.txt", "zeta");
    place.put("collection/a.txt", "inner");
    build(&config).succeeded();
    let out = place.out();
    let forget_in = |folder: &Path, name: &str| -> Run {
        let arguments = ["forget", name, "--all", "--out", text(&out)];
        program(&arguments).current_dir(folder).output().unwrap().into()
    };
    let sub = place.collection().join("sub");
    forget_in(&sub, "a.txt").failed_with(1, "no version of `a.txt` was ever kept");
    let refused = forget_in(place.whole(), "collection/a.txt").failed_with(2, "name one by its URI");
    let both = format!("`{BASE}/a.txt` or `{BASE}/collection/a.txt`");
    assert!(refused.err.contains(&both), "{}", refused.err);
    assert_eq!(kept(&out), contents(&["alpha", "inner", "zeta", "<b/>"]));
    forget_in(&sub, "z.txt").succeeded();
    forget_in(place.whole(), &format!("{BASE}/collection/a.txt")).succeeded();
    assert_eq!(kept(&out), contents(&["alpha", "<b/>"]));
}

#[test]
fn the_same_bytes_in_another_set_are_named_and_a_set_that_cannot_be_read_may_have_the_file() {
    let place = Place::new();
    with_images(&place);
    place.put("logo.png", "png");
    let config = configured(&place, &format!("{}\n{ALWAYS}", two_sets("")));
    build(&config).succeeded();
    let images = place.out().join("images");
    let forgotten = forget(&config, &["logo.png", "--all"]).succeeded().out;
    assert!(forgotten.contains("another set has the same bytes"), "{forgotten}");
    assert!(forgotten.contains("`http://images.example/one.png`"), "{forgotten}");
    assert_eq!(kept(&images), contents(&["png"]));
    let again = in_json(&config, &["logo.png", "--all"]);
    assert_eq!(again["other_sets"], json!(["http://images.example/one.png"]));
    let listed = in_json(&config, &["a.txt"]);
    let uri = listed["kept"][0]["uri"].as_str().unwrap();

    fs::write(images.join(".resync-source/state.json"), "nonsense").unwrap();
    forget(&config, &["a.txt", "--all"]).failed_with(1, "so nothing is removed; name the file by its URI");
    assert_eq!(kept(&place.out().join("articles")), contents(&["alpha"]));
    forget(&config, &[uri, "--all"]).failed_with(1, "1 of 2 sets");
    assert_eq!(kept(&place.out().join("articles")), contents(&[]));
}

#[test]
fn no_json_patch_begins_at_what_is_forgotten_or_leads_to_it_and_its_text_is_gone() {
    let (place, config) = keeping(&format!("json_patch = true\n{ALWAYS}"));
    let version = |title: &str| format!("{{\"title\": \"{title}\", \"text\": \"{}\"}}", "long ".repeat(100));
    let has_patch = |title: &str| {
        place.put("data.json", version(title));
        build(&config).succeeded();
        let listed = listed(&place.out());
        let last = listed.iter().rfind(|entry| entry.loc.ends_with("data.json"));
        last.is_some_and(|entry| entry.link(&Relation::Patch).is_some())
    };
    let digest = Digest::of(Algorithm::Sha256, format!("{BASE}/data.json").as_bytes()).to_string();
    let stored = place.out().join(".resync-source/versions").join(digest.strip_prefix("sha-256:").unwrap());
    let stored = || fs::read_to_string(&stored).ok();
    assert!(!has_patch("open") && has_patch("secret"));
    assert_eq!(stored(), Some(version("secret")));
    forget(&config, &["data.json", "--all"]).succeeded();
    assert_eq!(stored(), None);
    assert!(!has_patch("open, too"));
    assert_eq!(stored(), Some(version("open, too")));
    assert!(!has_patch("secret"));
    assert_eq!(stored(), None, "nor does a build store it again");
    assert!(!has_patch("last but one") && has_patch("last"));
}

#[test]
fn after_a_killed_removal_and_the_next_build_no_request_gets_what_was_to_go() {
    for instant in (0..).map(|step| Duration::from_micros(1500 * step)) {
        let (place, config) = keeping(ALWAYS);
        for text in ["one", "two", "three", "four", "five"] {
            place.put("a.txt", text);
            build(&config).succeeded();
        }
        let server = Server::start(&place);
        let told = listed(&place.out());
        let links = told.iter().filter_map(|entry| entry.link(&Relation::Memento));
        let paths: Vec<_> =
            links.map(|link| link.href.strip_prefix("http://source.example").unwrap()).collect();
        let statuses = || paths.iter().map(|path| server.get(path).status).collect::<Vec<_>>();
        assert_eq!(statuses(), [200_u16; 4]);
        let is_killed = is_killed_at(instant, &["forget", "a.txt", "--all", "--config", text(&config)]);
        build(&config).succeeded();
        let is_begun = place.out().join(".resync-source/forgotten.json").exists();
        assert_eq!(statuses(), [if is_begun { 410_u16 } else { 200 }; 4], "killed at {instant:?}");
        if !is_killed {
            assert!(is_begun);
            return;
        }
    }
}
