//! `resync-source publish` killed at any instant: the site always conforms, and no change and no notification is lost or told of too early.

use std::{
    collections::BTreeSet,
    io::Write as _,
    net::TcpListener,
    process::Stdio,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use resync_core::{
    document::{Change, Document},
    xml,
};

use crate::support::{ACCEPTED, BASE, Heard, Place, program, read_request, run, text};

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
    let place = Place::new();
    let witness = Witness::start(&place);
    place.build(&["--hub", &witness.url]).succeeded();
    place.notify().succeeded();
    // More of them, such as for a night, with RESYNC_KILLS=10000.
    let kills = std::env::var("RESYNC_KILLS").map_or(100, |number| number.parse().unwrap());
    for round in 0..kills {
        place.put(&format!("{:02}.txt", round % 7), format!("round {round}"));
        if round % 5 == 4 {
            place.remove(&format!("{:02}.txt", round % 7));
        }
        let mut child = program(&["publish", "--out", text(&place.out())])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // The instant of the kill; the whole of a run takes about as long as the last of them.
        thread::sleep(Duration::from_micros(round % 100 * 700));
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 10 == 9 {
            run(&["check", text(&place.out())]).succeeded();
        }
    }
    run(&["publish", "--out", text(&place.out())]).succeeded();
    run(&["check", text(&place.out())]).succeeded();

    let taken = witness.taken.lock().unwrap();
    let notifications: Vec<_> = taken.iter().filter(|heard| heard.is_of_changes()).map(document).collect();
    let interval = |document: &Document| {
        let metadata = &document.header().metadata;
        (metadata.from.unwrap(), metadata.until.unwrap())
    };
    assert!(notifications.windows(2).all(|pair| interval(&pair[0]).1 == interval(&pair[1]).0), "CN-008");
    let told: Vec<_> = notifications.iter().flat_map(|document| document.entries().to_vec()).collect();
    let list = place.document("resync/changelist-1.xml");
    let says = |entry: &resync_core::document::Entry| (entry.loc.clone(), entry.metadata.clone());
    assert_eq!(
        told.iter().map(says).collect::<Vec<_>>(),
        list.entries().iter().map(says).collect::<Vec<_>>(),
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
}
