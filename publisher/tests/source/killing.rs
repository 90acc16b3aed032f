//! `resync-source publish` and `dump` killed at any instant: the site always conforms, and no change and no notification is lost or told of too early.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    net::TcpListener,
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use resync_core::{
    document::{Change, Document, Entry, Relation},
    xml,
};

use crate::{
    configured::configured,
    dumping::unpacked,
    support::{ACCEPTED, BASE, Heard, Place, program, read_request, run, text},
};

/// A hub that takes everything, once for each idempotency key, and looks whether what it is told of is there.
struct Witness {
    url: String,
    taken: Arc<Mutex<Vec<Heard>>>,
}

impl Witness {
    fn start(place: &Place) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/websub/", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::<Heard>::new()));
        let (keeps, out) = (Arc::clone(&taken), place.out());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // Who is killed before it has spoken to the end has said nothing.
                let Ok(heard) = std::panic::catch_unwind(|| read_request(&stream)) else { continue };
                if heard.body.is_empty() {
                    continue;
                }
                for entry in document(&heard).entries() {
                    let path = entry.loc.strip_prefix(&format!("{BASE}/")).unwrap().to_owned();
                    let is_there = out.join(&path).exists();
                    assert!(heard.is_of_changes() || is_there, "told of {path}, which is not there");
                }
                let mut taken = keeps.lock().unwrap();
                let key = |heard: &Heard| heard.headers["idempotency-key"].clone();
                if !taken.iter().any(|known| key(known) == key(&heard)) {
                    taken.push(heard);
                }
                drop(taken);
                stream.write_all(ACCEPTED.as_bytes()).ok();
            }
        });
        Self { url, taken }
    }
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
    survive_kills(
        r#"
        json_patch = true
        [change_list]
        entries = 3
        [resource_list]
        keep = 3
        [resource_dump]
        every = "0s"
        keep = 2
        [change_dump]
        every = "0s"
        [archive]
        after = "0s"
        "#,
        PUBLISH,
    );
}

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
fn change(place: &Place, round: u32) {
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

const PUBLISH: &[&[&str]] = &[&["publish"]];

/// Kills runs of these commands in turn, under these rules, and compares what the Change Lists and the notifications tell, and what that leads to, with
/// the collection.
fn survive_kills(rules: &str, commands: &[&[&str]]) -> Place {
    let place = Place::new();
    let witness = Witness::start(&place);
    let hub = &witness.url;
    let config = configured(
        &place,
        &format!(
            "out = \"site\"\nbase_url = \"{BASE}\"\ndirectory = \"collection\"\nhubs = \"{hub}\"\n{rules}"
        ),
    );
    let of_config = ["--config", text(&config)];
    run(&["publish", of_config[0], of_config[1]]).succeeded();
    let mut rounds = 0..;
    // How long each takes that is not killed.
    let commands: Vec<_> = commands
        .iter()
        .zip(rounds.by_ref())
        .map(|(command, round)| {
            let command = [*command, &of_config[..]].concat();
            change(&place, round);
            let begun = Instant::now();
            run(&command).succeeded();
            (command, begun.elapsed())
        })
        .collect();
    // More of them, such as for a night, with RESYNC_KILLS=10000.
    let kills = std::env::var("RESYNC_KILLS").map_or(100, |number| number.parse().unwrap());
    for ((command, whole), round) in commands.iter().cycle().zip(rounds).take(kills) {
        change(&place, round);
        let mut child = program(command).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The instant of the kill.
        thread::sleep(*whole * (round % 100) / 100);
        child.kill().unwrap();
        child.wait().unwrap();
        run(&["check", text(&place.out())]).succeeded();
    }
    for (command, _) in &commands {
        run(command).succeeded();
        run(&["check", text(&place.out())]).succeeded();
    }
    if rules.contains("dump") {
        assert!(place.out().join("resync/resourcedump-archive.xml").exists());
        assert!(place.out().join("resync/changedump.xml").exists());
    }
    if rules.contains("json_patch") {
        let mut listed = listed(&place).into_iter();
        assert!(listed.any(|entry| entry.link(&Relation::Patch).is_some()), "patches are told of");
    }

    let taken = witness.taken.lock().unwrap();
    let notifications: Vec<_> = taken.iter().filter(|heard| heard.is_of_changes()).map(document).collect();
    let interval = |document: &Document| {
        let metadata = &document.header().metadata;
        (metadata.from.unwrap(), metadata.until.unwrap())
    };
    assert!(notifications.windows(2).all(|pair| interval(&pair[0]).1 == interval(&pair[1]).0), "CN-008");
    let told: Vec<_> = notifications.iter().flat_map(|document| document.entries().to_vec()).collect();
    let says = |entry: &Entry| (entry.loc.clone(), entry.metadata.clone());
    assert_eq!(
        told.iter().map(says).collect::<Vec<_>>(),
        listed(&place).iter().map(says).collect::<Vec<_>>(),
        "each change is told on both ways, in one order"
    );
    let mut copy = BTreeSet::new();
    for entry in &told {
        match entry.change().unwrap() {
            Change::Deleted => assert!(copy.remove(&entry.loc), "{} was told before", entry.loc),
            Change::Created => assert!(copy.insert(entry.loc.clone()), "{} is new", entry.loc),
            Change::Updated => assert!(copy.contains(&entry.loc), "{} was told before", entry.loc),
        }
    }
    let resources = place.document("resync/resourcelist.xml");
    let listed = resources
        .entries()
        .iter()
        .filter(|entry| !["a.txt", "c.xml"].iter().any(|first| entry.loc.ends_with(first)));
    assert!(listed.map(|entry| &entry.loc).eq(&copy));
    place
}

/// The entries of all Change Lists: those in the archive, then those of the index.
fn listed(place: &Place) -> Vec<Entry> {
    let mut paths = Vec::new();
    for name in ["resync/changelist-archive.xml", "resync/changelist.xml"] {
        if place.out().join(name).exists() {
            let entries = place.document(name).entries().to_vec();
            let path = |entry: &Entry| entry.loc.strip_prefix(&format!("{BASE}/")).unwrap().to_owned();
            paths.extend(entries.iter().map(path).filter(|path| !paths.contains(path)).collect::<Vec<_>>());
        }
    }
    paths.iter().flat_map(|path| place.document(path).entries().to_vec()).collect()
}
