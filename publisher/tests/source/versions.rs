//! Versions of resources: what is kept of them, what the journal tells, and what the lists link to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use resync_core::{
    datetime::DateTime,
    digest::{Algorithm, Digest},
    document::{Change, Entry, Link, Relation},
};
use resync_publisher::prelude::{BaseUrl, Item, Keep, Source, VersionRules};
use serde_json::Value;

use crate::{
    configured::{configured, one_set},
    dumping::unpacked,
    killing::listed,
    support::{BASE, Heard, Hub, Place, Run, document_in, run, text},
};

/// A place that keeps versions by these keys, and its configuration.
pub(crate) fn keeping(keys: &str) -> (Place, PathBuf) {
    let place = Place::new();
    let config = keeping_in(&place, keys);
    (place, config)
}

pub(crate) fn keeping_in(place: &Place, keys: &str) -> PathBuf {
    configured(place, &one_set(&format!("{BASE}/"), keys))
}

/// Everything is kept.
pub(crate) const ALWAYS: &str = "[versions]\nkeep = \"always\"\n";

pub(crate) fn build(config: &Path) -> Run {
    run(&["build", "--config", text(config)])
}

/// The file of a content.
pub(crate) fn stored(out: &Path, digest: &Digest) -> PathBuf {
    let text = digest.to_string();
    let name = text.strip_prefix("sha-256:").unwrap();
    out.join(".resync-source/versions").join(&name[..2]).join(name)
}

/// All contents that are kept.
pub(crate) fn kept(out: &Path) -> BTreeSet<Vec<u8>> {
    let folders = fs::read_dir(out.join(".resync-source/versions")).into_iter().flatten();
    let folders = folders.map(|folder| folder.unwrap().path()).filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

pub(crate) fn contents(texts: &[&str]) -> BTreeSet<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// What the journal tells: of each resource when it changed how.
fn journal(out: &Path) -> Vec<(String, String, String)> {
    let json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let state = json(&fs::read_to_string(out.join(".resync-source/state.json")).unwrap());
    let segments = state["versions"]["segments"].as_array().unwrap().clone();
    let file = |segment: Value| {
        fs::read_to_string(out.join(".resync-source").join(segment["name"].as_str().unwrap())).unwrap()
    };
    let lines: Vec<_> = segments.into_iter().map(file).collect();
    let line = |line: &str| {
        let line = json(line);
        let text = |key: &str| line[key].as_str().unwrap().to_owned();
        (text("loc"), text("moment"), text("change"))
    };
    lines.iter().flat_map(|lines| lines.lines()).map(line).collect()
}

/// Each version that a Change List links to has the bytes whose digest it tells, or none; says how many have them.
pub(crate) fn judge_versions(out: &Path) -> usize {
    let mut found = 0;
    for entry in listed(out) {
        let Some(link) = entry.link(&Relation::Memento) else { continue };
        let told = entry.metadata.as_ref().unwrap().hash.get(Algorithm::Sha256).unwrap();
        assert_eq!(link.hash.get(Algorithm::Sha256), Some(told), "{}", entry.loc);
        match fs::read(stored(out, told)) {
            Ok(bytes) => {
                assert_eq!(Digest::of(Algorithm::Sha256, &bytes), *told, "{}", entry.loc);
                found += 1;
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
        }
    }
    found
}

/// The journal tells each change that the Change Lists tell, once, and the first version of what was there at the first build.
pub(crate) fn judge_journal(out: &Path, first: &[&str]) {
    let listed = listed(out).into_iter().map(|entry| {
        let metadata = entry.metadata.clone().unwrap();
        (entry.loc, metadata.datetime.unwrap().to_string(), metadata.change.unwrap().to_string())
    });
    let mut told = journal(out);
    for name in first {
        let at = told.iter().position(|(loc, ..)| *loc == format!("{BASE}/{name}")).unwrap();
        assert_eq!(told.remove(at).2, "created");
    }
    let (mut listed, mut told) = (listed.collect::<Vec<_>>(), told);
    listed.sort();
    told.sort();
    assert_eq!(listed, told);
}

fn entry<'a>(entries: &'a [Entry], name: &str) -> &'a Entry {
    entries.iter().rfind(|entry| entry.loc == format!("{BASE}/{name}")).unwrap()
}

#[test]
fn mem010_the_bytes_of_each_version_are_kept_once_and_nobody_changes_them_by_writing_into_the_file() {
    let (place, config) = keeping(ALWAYS);
    place.put("copy.txt", "alpha");
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&["alpha", "<b/>"]));
    // In place, as `rsync --inplace` does.
    let mut file = fs::File::options().write(true).open(place.collection().join("a.txt")).unwrap();
    file.write_all(b"gamma").unwrap();
    drop(file);
    build(&config).succeeded();
    place.put("a.txt", "alpha");
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&["alpha", "gamma", "<b/>"]));
    assert_eq!(judge_versions(&place.out()), 2);
    judge_journal(&place.out(), &["a.txt", "copy.txt", "sub/b%20c.xml"]);
}

#[test]
fn mem010_a_change_back_to_bytes_that_are_kept_leaves_their_file_alone_unless_that_was_cut() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    let file = stored(&place.out(), &Digest::of(Algorithm::Sha256, b"alpha"));
    let identity = || fs::metadata(&file).unwrap().ino();
    let there_and_back = || {
        for text in ["gamma", "alpha"] {
            place.put("a.txt", text);
            build(&config).succeeded();
        }
    };
    let before = identity();
    there_and_back();
    assert_eq!(identity(), before, "nothing was written again");
    fs::write(&file, "alp").unwrap();
    there_and_back();
    assert_eq!(kept(&place.out()), contents(&["alpha", "gamma", "<b/>"]));
    assert_eq!(judge_versions(&place.out()), 4);
    judge_journal(&place.out(), &["a.txt", "sub/b%20c.xml"]);
}

#[test]
fn mem010_a_check_of_the_site_names_the_versions_whose_bytes_have_changed() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    let check = || run(&["check", text(&place.out())]);
    check().succeeded();
    let file = stored(&place.out(), &Digest::of(Algorithm::Sha256, b"alpha"));
    fs::write(&file, "alphb").unwrap();
    let checked = check();
    assert_eq!(checked.code, 1, "{}", checked.err);
    assert!(checked.out.contains(&format!("{}: error MEM-010: ", text(&file))), "{}", checked.out);
    assert!(checked.out.contains("not conforming, 1 error, "), "{}", checked.out);
}

#[test]
fn mem012_a_version_has_the_moment_of_its_change_and_the_first_one_that_of_the_first_build() {
    let (place, config) = keeping(ALWAYS);
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    let age = |name: &str| {
        let file = fs::File::options().write(true).open(place.collection().join(name)).unwrap();
        file.set_modified(long_ago).unwrap();
    };
    age("a.txt");
    build(&config).succeeded();
    let first = place.document("resync/changelist-1.xml").header().metadata.from.unwrap();
    assert!(journal(&place.out()).iter().all(|(_, moment, _)| *moment == first.to_string()));
    place.put("a.txt", "changed");
    age("a.txt");
    build(&config).succeeded();
    let list = place.document("resync/changelist-1.xml");
    let changed = list.entries()[0].metadata.as_ref().unwrap().datetime.unwrap();
    let told = (format!("{BASE}/a.txt"), changed.to_string(), "updated".to_owned());
    assert!(journal(&place.out()).contains(&told), "{told:?}");
    assert_eq!(list.entries()[0].link(&Relation::Memento).unwrap().modified, Some(changed));
}

#[test]
fn mem013_what_was_replaced_goes_after_its_time_and_the_present_version_stays() {
    let (place, config) = keeping("[versions]\nkeep = \"0s\"\n");
    build(&config).succeeded();
    for round in 0..3 {
        place.put("a.txt", format!("round {round}"));
        build(&config).succeeded();
    }
    assert_eq!(kept(&place.out()), contents(&["round 2", "<b/>"]));
    assert_eq!(listed(&place.out()).len(), 3, "the Change List keeps its entries");
    assert_eq!(judge_versions(&place.out()), 1);
    let status = run(&["status", "--config", text(&config), "--json"]).succeeded().out;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["versions"]["versions"], &status["versions"]["bytes"]), (&2.into(), &11.into()));
    let since: DateTime = status["versions"]["since"].as_str().unwrap().parse().unwrap();
    let last = entry(&listed(&place.out()), "a.txt").metadata.as_ref().unwrap().datetime.unwrap();
    assert_eq!(since, last);
    let shown = run(&["status", "--config", text(&config)]).succeeded().out;
    assert!(shown.contains("\n2 versions, 11 B, since "), "{shown}");
}

#[test]
fn mem014_where_versions_cannot_be_kept_the_changes_are_published_and_the_next_build_makes_up_for_it() {
    let (place, config) = keeping(ALWAYS);
    // Nothing can be made below a file.
    fs::create_dir_all(place.out().join(".resync-source")).unwrap();
    let in_the_way = place.out().join(".resync-source/versions");
    fs::write(&in_the_way, "").unwrap();
    let built = build(&config).failed_with(1, "left out 2 versions, the first of `");
    assert!(built.out.contains("Resource List") && built.err.contains("versions could not be kept"));
    place.put("a.txt", "changed");
    build(&config).failed_with(1, "versions could not be kept");
    let changed = place.document("resync/changelist-1.xml");
    assert_eq!(changed.entries()[0].link(&Relation::Memento), None, "nothing is there to link to");
    fs::remove_file(&in_the_way).unwrap();
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&["changed", "<b/>"]));
    assert_eq!(journal(&place.out()).len(), 3, "each version was told when it came about");
    assert_eq!(build(&config).succeeded().err, "");
}

#[test]
fn mem014_without_a_file_of_the_journal_all_is_published_and_it_can_come_back_or_begin_anew() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    let file = place.out().join(".resync-source/versions-1.jsonl");
    let whole = fs::read(&file).unwrap();
    let cut = whole[..whole.len() - 9].to_vec();
    // Another choice has the build compare the journal with what is there.
    let config = keeping_in(&place, &format!("{ALWAYS}only = [\"*\"]\n"));
    for (round, damage) in [None, Some(b"nonsense\n".to_vec()), Some(cut)].into_iter().enumerate() {
        fs::remove_file(&file).unwrap();
        if let Some(damage) = damage {
            fs::write(&file, damage).unwrap();
        }
        place.put("a.txt", format!("round {round}"));
        let built = build(&config).failed_with(1, "versions-1.jsonl`: ");
        assert!(built.err.contains("keep = \"never\"") && built.out.contains("Change List"), "{}", built.err);
        assert_eq!(listed(&place.out()).len(), round + 1, "the change is told");
        fs::write(&file, &whole).unwrap();
    }
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&["alpha", "round 2", "<b/>"]));
    fs::remove_file(&file).unwrap();
    build(&keeping_in(&place, "")).succeeded();
    build(&keeping_in(&place, ALWAYS)).succeeded();
    assert_eq!(kept(&place.out()), contents(&["round 2", "<b/>"]));
    assert_eq!(journal(&place.out()).len(), 2);
}

#[test]
fn mem035_entries_link_to_their_versions_and_resources_to_where_these_are_negotiated() {
    let (place, hub) = (Place::new(), Hub::start());
    let config = keeping_in(&place, &format!("hubs = \"{}\"\n{ALWAYS}", hub.url()));
    let publish = || run(&["publish", "--config", text(&config)]).succeeded();
    publish();
    hub.all_heard();
    place.put("a.txt", "changed");
    place.remove("sub/b c.xml");
    publish();
    let list = place.document("resync/changelist-1.xml");
    let changed = entry(list.entries(), "a.txt");
    let moment = changed.metadata.as_ref().unwrap().datetime.unwrap();
    let digits: String =
        moment.truncate_to_seconds().to_string().chars().filter(char::is_ascii_digit).collect();
    // Of two builds within a second the later has a number, too (MEM-032).
    let second = format!("{digits}-1");
    let shown = &changed.link(&Relation::Memento).unwrap().href;
    let stamp = if shown.contains(&second) { second } else { digits };
    let expected = Link {
        hash: Digest::of(Algorithm::Sha256, b"changed").into(),
        length: Some(7),
        modified: Some(moment),
        media_type: Some("text/plain".to_owned()),
        ..Link::new(Relation::Memento, format!("{BASE}/resync/versions/{stamp}/{BASE}/a.txt"))
    };
    assert_eq!(changed.link(&Relation::Memento), Some(&expected));
    assert_eq!(entry(list.entries(), "sub/b%20c.xml").links, []);
    let resources = place.document("resync/resourcelist.xml");
    let resource = entry(resources.entries(), "a.txt");
    assert_eq!(
        resource.link(&Relation::TimeGate).unwrap().href,
        format!("{BASE}/resync/versions/{BASE}/a.txt")
    );
    let time_map = resource.link(&Relation::TimeMap).unwrap();
    assert_eq!(time_map.href, format!("{BASE}/resync/versions/timemap/link/{BASE}/a.txt"));
    assert_eq!(time_map.media_type.as_deref(), Some("application/link-format"));
    assert_eq!(resource.link(&Relation::Memento), None);
    let of_changes = hub.all_heard().into_iter().find(Heard::is_of_changes).unwrap();
    assert!(of_changes.body.contains(&expected.href), "{}", of_changes.body);
    run(&["dump", "--changes", "--config", text(&config)]).succeeded();
    let dump = place.document("resync/changedump-1.xml");
    let manifest = dump.entries()[0].link(&Relation::Contents).unwrap().href.replace(&format!("{BASE}/"), "");
    assert_eq!(entry(place.document(&manifest).entries(), "a.txt").link(&Relation::Memento), Some(&expected));
    run(&["check", text(&place.out())]).succeeded();
}

#[test]
fn mem035_a_link_of_the_configuration_goes_before_one_of_the_same_relation() {
    let links =
        |rel: &str| format!("[[link]]\nrel = \"{rel}\"\nhref = \"http://archive.example/{rel}/{{path}}\"\n");
    let (place, config) = keeping(&format!("{ALWAYS}{}{}", links("memento"), links("timegate")));
    build(&config).succeeded();
    place.put("a.txt", "changed");
    build(&config).succeeded();
    let hrefs = |entry: &Entry| -> Vec<String> { entry.links.iter().map(|link| link.href.clone()).collect() };
    let list = place.document("resync/changelist-1.xml");
    let archived = |rel: &str| format!("http://archive.example/{rel}/a.txt");
    assert_eq!(hrefs(entry(list.entries(), "a.txt")), [archived("memento"), archived("timegate")]);
    let resources = place.document("resync/resourcelist.xml");
    let expected = [
        archived("memento"),
        archived("timegate"),
        format!("{BASE}/resync/versions/timemap/link/{BASE}/a.txt"),
    ];
    assert_eq!(hrefs(entry(resources.entries(), "a.txt")), expected);
    assert!(kept(&place.out()).contains(b"changed".as_slice()), "it is kept all the same");
}

#[test]
fn mem036_the_first_build_that_keeps_versions_says_what_another_web_server_has_to_pass_on() {
    let (place, config) = keeping("");
    let said = format!("pass {BASE}/resync/versions/ to `resync-source serve`");
    assert!(!build(&config).succeeded().out.contains(&said));
    let config = keeping_in(&place, ALWAYS);
    let built = build(&config).succeeded().out;
    assert!(built.contains(&said) && built.contains("Resource List"), "{built}");
    assert!(built.contains("a host for static files answers 404 there"), "{built}");
    assert_eq!(kept(&place.out()), contents(&["alpha", "<b/>"]), "what was there gets its first version now");
    assert!(!build(&config).succeeded().out.contains(&said));
}

#[test]
fn only_what_matches_is_kept_and_a_wider_choice_begins_with_what_is_there() {
    let xml_only = format!("{ALWAYS}only = [\"*.xml\"]\n");
    let (place, config) = keeping(&xml_only);
    build(&config).succeeded();
    place.put("a.txt", "changed");
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&["<b/>"]));
    let resources = place.document("resync/resourcelist.xml");
    assert_eq!(entry(resources.entries(), "a.txt").links, []);
    assert_eq!(entry(resources.entries(), "sub/b%20c.xml").links.len(), 2);
    let config = keeping_in(&place, ALWAYS);
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&["changed", "<b/>"]));
    assert_eq!(journal(&place.out()).len(), 2);
    // A narrower one ends what it leaves out, since nobody tells any more what that is.
    let config = keeping_in(&place, &xml_only);
    build(&config).succeeded();
    place.put("a.txt", "changed again");
    build(&config).succeeded();
    let of_a = journal(&place.out()).into_iter().filter(|(loc, ..)| loc.ends_with("/a.txt"));
    assert_eq!(of_a.map(|(_, _, change)| change).collect::<Vec<_>>(), ["created", "updated"]);
    assert_eq!(kept(&place.out()), contents(&["changed", "<b/>"]));
}

#[test]
fn a_dry_run_keeps_nothing_and_never_removes_all_that_was_kept() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    place.put("a.txt", "changed");
    let before = (kept(&place.out()), journal(&place.out()));
    run(&["build", "--config", text(&config), "--dry-run"]).succeeded();
    assert_eq!((kept(&place.out()), journal(&place.out())), before);
    build(&config).succeeded();
    let config = keeping_in(&place, "");
    run(&["build", "--config", text(&config), "--dry-run"]).succeeded();
    assert_eq!(kept(&place.out()).len(), 3);
    build(&config).succeeded();
    assert_eq!(kept(&place.out()), contents(&[]));
    let files = fs::read_dir(place.out().join(".resync-source")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("versions-")).count(), 0);
}

#[test]
fn a_journal_goes_on_when_the_change_lists_start_anew() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    let before = journal(&place.out());
    // Somebody removes the lists; meanwhile one file changes, one comes, and one goes.
    fs::remove_file(place.out().join("resync/changelist-1.xml")).unwrap();
    place.put("a.txt", "changed");
    place.put("new.txt", "new");
    place.remove("sub/b c.xml");
    build(&config).succeeded();
    let mut told = journal(&place.out());
    told.retain(|line| !before.contains(line));
    told.sort();
    let told: Vec<_> = told.into_iter().map(|(loc, _, change)| (loc, change)).collect();
    let expected = [("a.txt", "updated"), ("new.txt", "created"), ("sub/b%20c.xml", "deleted")];
    assert_eq!(told, expected.map(|(name, change)| (format!("{BASE}/{name}"), change.to_owned())));
}

#[test]
fn rs143_a_change_dump_holds_what_later_changes_have_replaced_where_versions_are_kept() {
    let (place, config) = keeping(ALWAYS);
    build(&config).succeeded();
    for text in ["one", "two"] {
        place.put("a.txt", text);
        build(&config).succeeded();
    }
    let dumped = run(&["dump", "--changes", "--config", text(&config), "--json"]).succeeded().out;
    let dumped: Value = serde_json::from_str(&dumped).unwrap();
    assert_eq!(dumped["dumps"][0]["gone"], 0);
    assert_eq!(
        unpacked(&place, "resync/changedump-1.xml")["a.txt"],
        (Some(Change::Updated), b"two".to_vec())
    );
}

#[test]
fn what_is_wrong_with_the_keys_is_named() {
    let (_place, config) =
        keeping("[versions]\nkeep = \"soon\"\nsize = \"much\"\nonly = [\"[z-a]\"]\nkept = 1\n");
    let said = run(&["config", "check", "--config", text(&config)]).failed_with(64, "versions.keep must be");
    for words in
        ["versions.size must be a size such as \"50 GiB\"", "versions.only: ", "did you mean versions.keep?"]
    {
        assert!(said.err.contains(words), "`{words}` is not in {}", said.err);
    }
    let (_place, config) = keeping("[versions]\nkeep = \"365d\"\nsize = \"2 TB\"\nonly = [\"*.pdf\"]\n");
    let printed = run(&["config", "print", "--config", text(&config)]).succeeded().out;
    for line in ["keep = \"365d\"", "size = \"2 TB\"", "only = [\"*.pdf\"]"] {
        assert!(printed.lines().any(|printed| printed == line), "`{line}` is not in {printed}");
    }
}

#[test]
fn mem015_a_program_gives_the_bytes_of_its_records() {
    let out = tempfile::tempdir().unwrap();
    let uri = |name: &str| format!("https://example.org/{name}");
    let records = Arc::new(Mutex::new(BTreeMap::from([(uri("1"), "Moss"), (uri("2"), "Fern")])));
    let base: BaseUrl = "https://example.org/".parse().unwrap();
    let (read, rules) =
        (Arc::clone(&records), VersionRules { keep: Keep::Always, ..VersionRules::default() });
    let set = Source::new(out.path(), base).set("plants").unwrap().keep_versions(rules, move |item| {
        let text = read.lock().unwrap().get(&item.loc).copied();
        Ok(text.map(str::as_bytes))
    });
    let item = |name: &str, text: &str| Item::new(uri(name)).content(text.as_bytes());
    set.list_all([item("1", "Moss"), item("2", "Fern")]).unwrap();
    assert_eq!(kept(set.out()), contents(&["Fern", "Moss"]));
    // The record is another one already when the first change is published.
    records.lock().unwrap().insert(uri("2"), "Tree fern");
    set.updated(item("2", "Fern again")).unwrap();
    set.updated(item("2", "Tree fern")).unwrap();
    set.deleted(uri("1")).unwrap();
    let built = set.publish().unwrap().unwrap();
    assert_eq!((built.unkept.changed, built.unkept.failed), (1, 0));
    assert_eq!(kept(set.out()), contents(&["Fern", "Moss", "Tree fern"]));
    let list = document_in(set.out(), "resync/changelist-1.xml");
    let links: Vec<_> = list.entries().iter().map(|entry| entry.link(&Relation::Memento)).collect();
    assert!(matches!(links[..], [None, Some(_), None]), "{links:?}");
    assert!(links[1].unwrap().href.ends_with("/https://example.org/2"));
    let mut told: Vec<_> = journal(set.out()).into_iter().map(|(loc, _, change)| (loc, change)).collect();
    told.sort();
    let expected = [("1", "created"), ("1", "deleted"), ("2", "created"), ("2", "updated"), ("2", "updated")];
    assert_eq!(told, expected.map(|(name, change)| (uri(name), change.to_owned())));
}

#[test]
fn mem032_versions_of_one_second_have_uris_of_their_own() {
    let out = tempfile::tempdir().unwrap();
    let base: BaseUrl = "https://example.org/".parse().unwrap();
    let rules = VersionRules { keep: Keep::Always, ..VersionRules::default() };
    let present = Arc::new(Mutex::new("0".to_owned()));
    let read = Arc::clone(&present);
    let set = Source::new(out.path(), base)
        .set("plants")
        .unwrap()
        .keep_versions(rules, move |_| Ok(Some(io::Cursor::new(read.lock().unwrap().clone()))));
    let item = |text: &str| Item::new("https://example.org/1").content(text.as_bytes());
    set.list_all([item("0")]).unwrap();
    for round in 1..20 {
        *present.lock().unwrap() = round.to_string();
        set.updated(item(&round.to_string())).unwrap();
        set.publish().unwrap();
    }
    let list = document_in(set.out(), "resync/changelist-1.xml");
    let links: Vec<_> = list.entries().iter().map(|entry| entry.link(&Relation::Memento).unwrap()).collect();
    let hrefs: BTreeSet<_> = links.iter().map(|link| &link.href).collect();
    assert_eq!(hrefs.len(), 19);
    // Those of each second are numbered in their order, without a gap but for the first version of all.
    let mut before: Option<(String, u64)> = None;
    for link in links {
        let stamp = link.href.split('/').nth_back(4).unwrap_or_default();
        let (digits, ordinal) = stamp.split_once('-').unwrap_or((stamp, "0"));
        let ordinal: u64 = ordinal.parse().unwrap();
        match &before {
            Some((known, last)) if known == digits => assert_eq!(ordinal, last + 1, "{stamp}"),
            Some(_) => assert_eq!(ordinal, 0, "{stamp}"),
            None => assert!(ordinal <= 1, "{stamp}"),
        }
        before = Some((digits.to_owned(), ordinal));
    }
}
