//! `resync-source publish` and `dump` killed at any instant: the site always conforms, and no change and no notification is lost or told of too early.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, LazyLock, Mutex},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use resync_core::{
    datetime::DateTime,
    digest::{Algorithm, Digest},
    document::{Capability, Change, Document, Entry, Metadata, Relation},
    memento::HttpDate,
    xml,
};
use resync_harness::seed;
use serde_json::{Value, json};

use crate::{
    configured::{configured, one_set},
    dumping::unpacked,
    rich_site::rules,
    support::{ACCEPTED, BASE, Heard, Place, Server, judge_linked, program, read_request, run, text},
    versions::{ALWAYS, judge_journal, judge_versions},
};

/// A hub that takes everything, once for each idempotency key, and looks whether what it is told of is there as it is told; otherwise it is a hub no more.
struct Witness {
    url: String,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    taken: Vec<Heard>,
    /// When the documents changed last, by their paths.
    changed: BTreeMap<String, DateTime>,
}

impl Witness {
    fn start(place: &Place) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/websub/", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (keeps, out) = (Arc::clone(&seen), place.out());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // Who is killed before it has spoken to the end has said nothing.
                let Ok(heard) = std::panic::catch_unwind(|| read_request(&stream)) else { continue };
                if heard.body.is_empty() {
                    continue;
                }
                keeps.lock().unwrap().take(&out, heard);
                stream.write_all(ACCEPTED.as_bytes()).ok();
            }
        });
        Self { url, seen }
    }
}

impl Seen {
    fn take(&mut self, out: &Path, heard: Heard) {
        let notification = document(&heard);
        if heard.is_of_changes() {
            let listed: Vec<_> = listed(out).iter().map(says).collect();
            for entry in notification.entries() {
                let told = says(entry);
                assert!(listed.contains(&told), "told of a change that no Change List holds: {told:?}");
            }
        } else {
            for entry in notification.entries() {
                self.look_at(out, entry);
            }
        }
        let key = |heard: &Heard| heard.headers["idempotency-key"].clone();
        if !self.taken.iter().any(|known| key(known) == key(&heard)) {
            self.taken.push(heard);
        }
    }

    /// A document that is told of is there, and newer than what was told of it before.
    fn look_at(&mut self, out: &Path, told: &Entry) {
        let path = path_of(told);
        assert!(out.join(&path).exists(), "told of {path}, which is not there");
        let document = read(out, &path);
        assert_eq!(Some(document.capability()), told.capability(), "{path}");
        let changed = told.metadata.as_ref().unwrap().datetime.unwrap();
        let before = self.changed.insert(path.clone(), changed).filter(|before| *before < changed);
        if let (Some(before), Some(newest)) = (before, newest_in(&document)) {
            assert!(newest > before, "told of {path} of {changed}, where the one of {before} is");
        }
    }
}

/// Of when the newest is that a list tells.
fn newest_in(document: &Document) -> Option<DateTime> {
    let changes = document.entries().iter().filter_map(|entry| entry.metadata.as_ref()?.datetime);
    match document.capability() {
        Capability::ResourceList => document.header().metadata.at,
        Capability::ChangeList => changes.max(),
        _ => None,
    }
}

fn says(entry: &Entry) -> (String, Option<Metadata>) {
    (entry.loc.clone(), entry.metadata.clone())
}

fn path_of(entry: &Entry) -> String {
    entry.loc.strip_prefix(&format!("{BASE}/")).unwrap().to_owned()
}

fn read(out: &Path, path: &str) -> Document {
    xml::read(&fs::read(out.join(path)).unwrap()).unwrap().into_document().unwrap()
}

fn document(heard: &Heard) -> Document {
    xml::read(heard.body.as_bytes()).unwrap().into_document().unwrap()
}

#[test]
fn a_publish_that_is_killed_100_times_loses_nothing_and_tells_nothing_twice_or_too_early() {
    survive_kills("", PUBLISH);
}

#[test]
fn so_does_one_with_patches_and_lists_that_are_closed_all_the_time() {
    survive_kills("json_patch = true\n[change_list]\nentries = 2\n", PUBLISH);
}

#[test]
fn so_does_one_that_makes_dumps_and_archives_at_every_run() {
    survive_kills(&EVERYTHING, PUBLISH);
}

#[test]
fn mem011_what_a_killed_build_leaves_of_versions_has_the_bytes_that_the_change_lists_tell() {
    let place = survive_kills(ALWAYS, PUBLISH);
    assert_eq!(judge_versions(&place.out()), linked(&place.out()), "each version is there in the end");
    assert_eq!(judge_served(&place, usize::MAX), linked(&place.out()), "and each is served");
    judge_journal(&place.out(), &["a.txt", "sub/b%20c.xml"]);
}

#[test]
fn mem013_nor_do_others_while_what_was_replaced_goes_at_once() {
    let place = survive_kills("[versions]\nkeep = \"0s\"\n", PUBLISH);
    assert!(judge_served(&place, usize::MAX) > 0, "the present versions are served");
    judge_journal(&place.out(), &["a.txt", "sub/b%20c.xml"]);
}

/// How many entries link to their versions.
fn linked(out: &Path) -> usize {
    listed(out).iter().filter(|entry| entry.link(&Relation::Memento).is_some()).count()
}

/// So many of the newest links lead to the version that they tell, or to none, and never to another one (MEM-028); says how many to one.
fn judge_served(place: &Place, most: usize) -> usize {
    let (listed, server) = (listed(&place.out()), Server::start(place));
    let links = listed.iter().rev().filter_map(|entry| entry.link(&Relation::Memento)).take(most);
    let mut served = 0;
    for link in links {
        let answer = server.get(link.href.strip_prefix("http://source.example").unwrap());
        if ![404, 410].contains(&answer.status) {
            assert_eq!(answer.status, 200, "{}", link.href);
            let moment = HttpDate::from(link.modified.unwrap()).to_string();
            assert_eq!(answer.header("memento-datetime"), moment, "{}", link.href);
            let digest = Digest::of(Algorithm::Sha256, &answer.body);
            assert_eq!(link.hash.get(Algorithm::Sha256), Some(&digest), "{}", link.href);
            served += 1;
        }
    }
    served
}

/// Patches, dumps and archives, at every run.
pub(crate) static EVERYTHING: LazyLock<String> =
    LazyLock::new(|| format!("json_patch = true\n{}", rules(3, "0s")));

#[test]
fn dumps_that_are_killed_between_publishes_leave_what_conforms_and_the_next_one_is_whole() {
    let place = survive_kills("", &[&["publish"], &["dump"], &["dump", "--changes"]]);
    let list = place.document("resync/resourcelist.xml");
    let listed = list.entries().iter().map(|entry| entry.loc.replace(&format!("{BASE}/"), ""));
    let read = |name: &String| fs::read(place.collection().join(name.replace("%20", " "))).unwrap();
    let expected: BTreeMap<_, _> = listed.map(|name| (name.clone(), (None, read(&name)))).collect();
    assert_eq!(unpacked(&place, "resync/resourcedump.xml"), expected);
    assert!(place.out().join("resync/changedump.xml").exists());
}

/// One file of text and one of JSON, which come, change and go.
pub(crate) fn change(place: &Place, round: u32) {
    let text = format!("{:02}.txt", round % 7);
    place.put(&text, format!("round {round}"));
    if round % 5 == 4 {
        place.remove(&text);
    }
    let title = format!("{{\"title\": \"round {round}\", \"text\": \"{}\"}}", "long ".repeat(50));
    place.put(&format!("{:02}.json", round % 3), title);
    if round % 11 == 10 {
        place.remove(&format!("{:02}.json", round % 3));
    }
}

pub(crate) const PUBLISH: &[&[&str]] = &[&["publish"]];

/// A Source that does not die of dying: what its Change Lists and its notifications tell, and what that leads to, is compared with the collection.
pub(crate) struct Trial {
    pub(crate) place: Place,
    witness: Witness,
    config: PathBuf,
    rules: &'static str,
    /// The documents that a judge from outside has seen.
    judged: RefCell<BTreeSet<Vec<u8>>>,
}

impl Trial {
    /// A site under these rules that is published for the first time.
    pub(crate) fn begin(rules: &'static str) -> Self {
        let place = Place::new();
        let witness = Witness::start(&place);
        let hub = &witness.url;
        let config = configured(&place, &one_set(BASE, &format!("hubs = \"{hub}\"\n{rules}")));
        let trial = Self { place, witness, config, rules, judged: RefCell::default() };
        run(&trial.command(&["publish"])).succeeded();
        trial
    }

    /// A command under the configuration.
    pub(crate) fn command<'c>(&'c self, command: &[&'c str]) -> Vec<&'c str> {
        [command, &["--config", text(&self.config)]].concat()
    }

    /// The site conforms, whatever happened before, and not only by the product's own word.
    pub(crate) fn conforms(&self) {
        let out = self.place.out();
        run(&["check", text(&out)]).succeeded();
        judge_linked(&out, &mut self.judged.borrow_mut());
        if self.rules.contains("[versions]") {
            judge_versions(&out);
            judge_served(&self.place, 4);
        }
    }

    /// Once it has died for the last time.
    pub(crate) fn ends(self, commands: &[&[&str]]) -> Place {
        for command in commands.iter().copied().chain([&["publish"][..]]) {
            run(&self.command(command)).succeeded();
            self.conforms();
        }
        let Self { place, witness, rules, .. } = self;
        is_told(&place, &witness, rules);
        place
    }
}

/// Kills runs of these commands in turn.
fn survive_kills(rules: &'static str, commands: &[&[&str]]) -> Place {
    let trial = Trial::begin(rules);
    let mut random = Rng::with_seed(seed());
    let mut rounds = 0..;
    // How long each takes that is not killed.
    let mut runs: Vec<_> = commands
        .iter()
        .zip(rounds.by_ref())
        .map(|(command, round)| {
            let command = trial.command(command);
            change(&trial.place, round);
            let begun = Instant::now();
            run(&command).succeeded();
            (command, begun.elapsed())
        })
        .collect();
    // More of them, such as for a night, with RESYNC_KILLS=10000.
    let kills = std::env::var("RESYNC_KILLS").map_or(100, |number| number.parse().unwrap());
    let turns = (0..runs.len()).cycle();
    let mut killed = 0;
    for (round, turn) in rounds.zip(turns).take(2 * kills) {
        change(&trial.place, round);
        let (command, whole) = &mut runs[turn];
        let is_killed = is_killed_at(whole.mul_f64(random.f64()), command);
        // So that most of them are killed, at any instant, whatever else the machine does.
        *whole = whole.mul_f64(if is_killed { 1.05 } else { 0.75 });
        trial.conforms();
        killed += usize::from(is_killed);
        if killed == kills {
            break;
        }
    }
    assert_eq!(killed, kills, "at least each second run is killed");
    drop(runs);
    trial.ends(commands)
}

/// The hub is up to date, each change was told once on each way, and what was told leads to the collection.
fn is_told(place: &Place, witness: &Witness, rules: &str) {
    let status = run(&["status", "--out", text(&place.out()), "--json"]).succeeded().out;
    let status: Value = serde_json::from_str(&status).unwrap();
    let hub = &status["hubs"][0];
    let left = [&hub["waiting"], &hub["pending"], &hub["trouble"]];
    assert_eq!(left, [&json!(0), &json!([]), &Value::Null], "the hub is up to date");
    if rules.contains("dump") {
        assert!(place.out().join("resync/resourcedump-archive.xml").exists());
        assert!(place.out().join("resync/changedump.xml").exists());
    }
    if rules.contains("json_patch") {
        let mut listed = listed(&place.out()).into_iter();
        assert!(listed.any(|entry| entry.link(&Relation::Patch).is_some()), "patches are told of");
    }

    let seen = witness.seen.lock().unwrap();
    resync_judge::written("sent", seen.taken.iter().map(|heard| ("notification", &heard.body)));
    let newest = newest_in(&place.document("resync/resourcelist.xml")).unwrap();
    assert!(newest <= seen.changed["resync/resourcelist.xml"], "the last Resource List was told of");
    let notifications: Vec<_> =
        seen.taken.iter().filter(|heard| heard.is_of_changes()).map(document).collect();
    let interval = |document: &Document| {
        let metadata = &document.header().metadata;
        (metadata.from.unwrap(), metadata.until.unwrap())
    };
    assert!(notifications.windows(2).all(|pair| interval(&pair[0]).1 == interval(&pair[1]).0), "CN-008");
    let told: Vec<_> = notifications.iter().flat_map(|document| document.entries().to_vec()).collect();
    assert_eq!(
        told.iter().map(says).collect::<Vec<_>>(),
        listed(&place.out()).iter().map(says).collect::<Vec<_>>(),
        "each change is told on both ways, in one order"
    );
    let mut copy = BTreeSet::new();
    for entry in &told {
        let (change, loc) = (entry.change().unwrap(), &entry.loc);
        let is_next = match change {
            Change::Deleted => copy.remove(loc),
            Change::Created => copy.insert(loc.clone()),
            Change::Updated => copy.contains(loc),
        };
        let cause = match change {
            Change::Created => "its creation was told before",
            _ => "its creation was never told, or its deletion was told before",
        };
        assert!(is_next, "{loc} is told to be {}: {cause}", change.token());
    }
    // What was told last of a file is what it is now.
    let newest: BTreeMap<_, _> = told.iter().map(|entry| (entry.loc.clone(), entry)).collect();
    for entry in newest.values().filter(|entry| entry.change() != Some(Change::Deleted)) {
        let file = fs::read(place.collection().join(path_of(entry))).unwrap();
        let hash = &entry.metadata.as_ref().unwrap().hash;
        assert_eq!(hash.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, &file)), "{}", entry.loc);
    }
    let resources = place.document("resync/resourcelist.xml");
    let listed = resources
        .entries()
        .iter()
        .filter(|entry| !["a.txt", "c.xml"].iter().any(|first| entry.loc.ends_with(first)));
    assert!(listed.map(|entry| &entry.loc).eq(&copy));
}

/// Kills a run at this instant, unless it has ended before.
pub(crate) fn is_killed_at(instant: Duration, command: &[&str]) -> bool {
    let mut child = program(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    thread::sleep(instant);
    child.kill().unwrap();
    child.wait().unwrap().signal() == Some(9)
}

/// The entries of all Change Lists: those in the archive, then those of the index.
pub(crate) fn listed(out: &Path) -> Vec<Entry> {
    // What moves meanwhile is in the archive before it leaves the index.
    let [current, archived] = ["resync/changelist.xml", "resync/changelist-archive.xml"].map(|name| {
        let is_there = out.join(name).exists();
        if is_there { read(out, name).entries().iter().map(path_of).collect() } else { Vec::new() }
    });
    let current = current.iter().filter(|path| !archived.contains(path));
    archived.iter().chain(current).flat_map(|path| read(out, path).entries().to_vec()).collect()
}
