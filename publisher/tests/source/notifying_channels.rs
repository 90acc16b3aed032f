//! `resync-source publish`: Change Notifications, their intervals, their order, and what waits while a hub is away.

use std::{net::TcpListener, path::PathBuf};

use resync_core::{
    datetime::DateTime,
    document::{Capability, Change, Document, Relation},
    xml,
};

use resync_harness::free_address;

use crate::support::{ACCEPTED, BASE, BUSY, Heard, Hub, Place, run, text};

const AWAY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nfull";

fn document(heard: &Heard) -> Document {
    assert!(heard.is_of_changes(), "{heard:?}");
    xml::read(heard.body.as_bytes()).unwrap().into_document().unwrap()
}

fn interval(heard: &Heard) -> (DateTime, DateTime) {
    let document = document(heard);
    let metadata = &document.header().metadata;
    (metadata.from.unwrap(), metadata.until.unwrap())
}

fn changes(heard: &Heard) -> Vec<(Change, String)> {
    let document = document(heard);
    let entries = document.entries().iter();
    entries.map(|entry| (entry.change().unwrap(), entry.loc.replace(&format!("{BASE}/"), ""))).collect()
}

fn publish(place: &Place) -> crate::support::Run {
    run(&["publish", "--out", text(&place.out())])
}

/// A site whose hub knows everything.
fn known() -> (Place, Hub) {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    hub.next();
    (place, hub)
}

#[test]
fn cn004_cn010_cn011_changes_of_resources_have_a_channel_of_their_own() {
    let (place, hub) = known();
    place.put("a.txt", "changed");
    place.put("new.txt", "new");
    place.remove("sub/b c.xml");
    let run = publish(&place).succeeded();
    assert_eq!(
        run.out,
        "2 resources, 10 B: 1 created, 1 updated, 1 deleted → Resource List, Change List written (as in the last build: --hub "
            .to_owned()
            + &hub.url()
            + ") · 2 notifications (changes of resources, Resource List updated, Change List updated), hub accepted (202)\n"
    );
    let heard = hub.next_of_any();
    let expected =
        [(Change::Updated, "a.txt"), (Change::Created, "new.txt"), (Change::Deleted, "sub/b%20c.xml")];
    assert_eq!(changes(&heard), expected.map(|(change, name)| (change, name.to_owned())));
    let document = document(&heard);
    assert_eq!(document.capability(), &Capability::ChangeNotification);
    assert_eq!(document.link(&Relation::Up).unwrap().href, format!("{BASE}/resync/capabilitylist.xml"));
    let metadata = document.entries()[0].metadata.as_ref().unwrap();
    assert_eq!((metadata.length, metadata.hash.is_empty()), (Some(7), false));
    assert_eq!(metadata.datetime, Some(interval(&heard).1));
    let deleted = document.entries()[2].metadata.as_ref().unwrap();
    assert!(deleted.hash.is_empty() && deleted.length.is_none());
    let links = [("changes/", "self")].map(|(topic, rel)| format!("<{BASE}/resync/{topic}>; rel=\"{rel}\""));
    assert!(heard.headers["link"].starts_with(&links[0]), "{}", heard.headers["link"]);
    assert!(!hub.next_of_any().is_of_changes());
    hub.heard_nothing_more();
}

#[test]
fn cn008_cn015_intervals_are_consecutive_over_runs_with_and_without_changes() {
    let (place, hub) = known();
    let from = place.document("resync/changelist-1.xml").header().metadata.from;
    let mut last = None;
    for content in ["one", "one", "three"] {
        place.put("a.txt", content);
        publish(&place).succeeded();
    }
    for _ in 0..2 {
        let heard = loop {
            let heard = hub.next_of_any();
            if heard.is_of_changes() {
                break heard;
            }
        };
        let (start, end) = interval(&heard);
        assert_eq!(Some(start), last.or(from));
        assert!(start < end);
        last = Some(end);
    }
    assert_eq!(place.document("resync/changelist-1.xml").entries().len(), 2);
}

#[test]
fn cn013_a_burst_is_split_and_all_of_it_arrives_in_order() {
    let (place, hub) = known();
    for number in 0..3_000 {
        place.put(&format!("many/{number:04}"), "x");
    }
    let run = publish(&place).succeeded();
    assert!(run.out.contains("3 notifications (changes of resources (2 notifications), "), "{}", run.out);
    let heard: Vec<_> = (0..2).map(|_| hub.next_of_any()).collect();
    assert!(heard.iter().all(|heard| heard.body.len() <= 512 * 1024), "a hub takes 1 MiB");
    assert!(heard.windows(2).all(|pair| interval(&pair[0]).1 == interval(&pair[1]).0));
    let told: Vec<_> = heard.iter().flat_map(changes).collect();
    assert!(told.is_sorted() && told.len() == 3_000);
}

#[test]
fn what_waits_while_the_hub_is_away_is_told_in_order_each_once_and_status_says_why() {
    let (place, hub) = known();
    hub.answers(AWAY);
    for content in ["one", "two", "three"] {
        place.put("a.txt", content);
        publish(&place).failed_with(1, "503");
        // The first that waits, and the Framework Notification.
        hub.next_of_any();
        hub.next_of_any();
    }
    let status = run(&["status", "--out", text(&place.out())]).succeeded();
    assert!(
        status.out.contains("waiting: 3 notifications of changed resources, 2 changed documents\n  since "),
        "{}",
        status.out
    );
    assert!(status.out.contains("503 Service Unavailable: full"), "{}", status.out);
    hub.answers(ACCEPTED);
    place.notify().succeeded();
    let heard: Vec<_> = (0..3).map(|_| hub.next_of_any()).collect();
    assert!(heard.windows(2).all(|pair| interval(&pair[0]).1 == interval(&pair[1]).0));
    assert_eq!(heard[2].headers["idempotency-key"].len(), 64);
    hub.next();
    hub.heard_nothing_more();
    let outbox = place.out().join(".resync-source/outbox");
    assert_eq!(std::fs::read_dir(outbox).unwrap().count(), 0, "what was taken is not kept");
    assert!(!run(&["status", "--out", text(&place.out())]).succeeded().out.contains("waiting"));
}

/// A new version of a resource while the hub is away.
fn publish_in_vain(place: &Place, hub: &Hub, content: &str) {
    place.put("a.txt", content);
    publish(place).failed_with(1, "503");
    hub.next();
}

/// The file of the only notification that waits.
fn first_that_waits(place: &Place) -> PathBuf {
    std::fs::read_dir(place.out().join(".resync-source/outbox")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn what_has_waited_for_more_than_a_week_is_left_out_and_status_says_so() {
    let (place, hub) = known();
    hub.answers(AWAY);
    publish_in_vain(&place, &hub, "one");
    let first = first_that_waits(&place);
    let eight_days_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 24 * 60 * 60);
    std::fs::File::options().write(true).open(&first).unwrap().set_modified(eight_days_ago).unwrap();
    publish_in_vain(&place, &hub, "second");
    let status = run(&["status", "--out", text(&place.out())]).succeeded();
    let words = "dropped as too old or too many: 1 notification of changed resources";
    assert!(status.out.contains("waiting: 1 notification") && status.out.contains(words), "{}", status.out);
    assert!(!first.exists());
    hub.answers(ACCEPTED);
    place.notify().succeeded();
    let heard = hub.next_of_any();
    assert!(heard.is_of_changes());
    let length = document(&heard).entries()[0].metadata.as_ref().unwrap().length;
    assert_eq!(length, Some(6), "it is the second");
    hub.next();
    hub.heard_nothing_more();
}

#[test]
fn of_more_than_10_000_that_wait_the_oldest_are_left_out_and_status_says_so() {
    let (place, hub) = known();
    hub.answers(AWAY);
    publish_in_vain(&place, &hub, "one");
    let first = first_that_waits(&place);
    // As if thousands had come after it, of which there is nothing to be seen.
    let state = place.out().join(".resync-source/state.json");
    let mut said: serde_json::Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    said["outbox"] = 10_000.into();
    std::fs::write(&state, said.to_string()).unwrap();
    place.put("a.txt", "second");
    place.build(&[]).succeeded();
    let status = || run(&["status", "--out", text(&place.out())]).succeeded().out;
    let words = "dropped as too old or too many: 1 notification of changed resources";
    assert!(status().contains("waiting: 10000 notifications") && status().contains(words), "{}", status());
    assert!(!first.exists());
    hub.answers(ACCEPTED);
    place.notify().succeeded();
    let heard = hub.next_of_any();
    assert!(heard.is_of_changes());
    let length = document(&heard).entries()[0].metadata.as_ref().unwrap().length;
    assert_eq!(length, Some(6), "it is the second");
    assert!(!status().contains("dropped"), "it has caught up: {}", status());
}

#[test]
fn a_change_notification_whose_answer_was_lost_is_repeated_with_the_same_bytes_and_key() {
    let (place, hub) = known();
    place.put("a.txt", "one");
    hub.answers("");
    publish(&place).failed_with(1, "no answer");
    let first = hub.next_of_any();
    hub.answers(ACCEPTED);
    place.put("a.txt", "another");
    publish(&place).succeeded();
    let mut later = hub.next_of_any();
    while !later.is_of_changes() {
        later = hub.next_of_any();
    }
    assert_eq!(later, first);
    assert_eq!(interval(&hub.next_of_any()).0, interval(&first).1);
}

#[test]
fn one_hub_that_is_away_holds_up_no_other_and_catches_up_later() {
    let (place, well) = (Place::new(), Hub::start());
    let address = free_address();
    place.build(&["--hub", &well.url(), "--hub", &format!("http://{address}/websub/")]).succeeded();
    place.put("a.txt", "one");
    publish(&place).failed_with(1, "1 of 2 hubs");
    assert_eq!(changes(&well.next_of_any()), [(Change::Updated, "a.txt".to_owned())]);
    let late = Hub::on(TcpListener::bind(address).unwrap());
    place.notify().succeeded();
    assert_eq!(changes(&late.next_of_any()), [(Change::Updated, "a.txt".to_owned())]);
    well.next();
    well.heard_nothing_more();
}

#[test]
fn the_command_tries_again_for_as_long_as_it_is_told() {
    let (place, hub) = known();
    hub.answers(AWAY);
    place.put("a.txt", "one");
    place.build(&[]).succeeded();
    let child = crate::support::program(&["notify", "--out", text(&place.out()), "--retry", "60s"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    hub.next_of_any();
    hub.answers(ACCEPTED);
    let run = crate::support::Run::from(child.wait_with_output().unwrap()).succeeded();
    assert!(run.err.contains("trying again in 1 s"), "{}", run.err);
}

#[test]
fn the_command_gives_up_where_a_hub_asks_for_a_longer_pause_than_it_may_try() {
    let (place, hub) = known();
    hub.answers(BUSY);
    place.put("a.txt", "one");
    place.build(&[]).succeeded();
    let run = run(&["notify", "--out", text(&place.out()), "--retry", "30m"]).failed_with(1, "503");
    assert!(!run.err.contains("trying again"), "{}", run.err);
}

#[test]
fn what_a_script_asks_for_is_one_object_whose_keys_are_documented() {
    let (place, hub) = (Place::new(), Hub::start());
    let site = place.out();
    let json = |arguments: &[&str]| {
        let said = run(&[arguments, &["--json", "--out", text(&site)]].concat()).succeeded().out;
        serde_json::from_str::<serde_json::Value>(&said).unwrap()
    };
    let collection = place.collection();
    let built = json(&["build", text(&collection), "--base-url", BASE, "--hub", &hub.url()]);
    assert_eq!((&built["sets"][0]["resources"], &built["sets"][0]["bytes"]), (&2.into(), &9.into()));
    assert_eq!(built["sets"][0]["written"][0]["capability"], "resourcelist");
    place.put("a.txt", "changed");
    let published = json(&["publish"]);
    assert_eq!((&published["sets"][0]["updated"], &published["sets"][0]["created"]), (&1.into(), &0.into()));
    assert_eq!(
        (&published["hubs"][0]["outcome"], &published["hubs"][0]["sent"]),
        (&"accepted".into(), &1.into())
    );
    assert_eq!(json(&["notify"])["hubs"][0]["outcome"], "nothing changed");
    let dumped = json(&["dump"]);
    assert_eq!(dumped["dumps"][0]["packages"], 1);

    let book =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/source.md")).unwrap();
    let objects = [&published, &dumped, &published["sets"][0], &published["hubs"][0], &dumped["dumps"][0]];
    let inner = [&built["sets"][0]["written"][0], &published["hubs"][0]["changes"][0]];
    for key in objects.into_iter().chain(inner).flat_map(|object| object.as_object().unwrap().keys()) {
        assert!(book.contains(&format!("`{key}`")), "{key} is not documented");
    }
}

/// What a person sees: the output on a terminal, made by Python.
#[cfg(unix)]
#[test]
fn a_terminal_gets_a_bar_with_rate_and_time_left_and_a_file_does_not() {
    let place = Place::new();
    for number in 0..300 {
        place.put(&format!("{number}.txt"), "x");
    }
    place.build(&[]).succeeded();
    let (site, binary) = (place.out(), crate::support::program(&[]));
    let mut python = std::process::Command::new("python3");
    python.args(["-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"]);
    python.arg(binary.get_program()).args(["dump", "--out", text(&site)]);
    let output = python.stdin(std::process::Stdio::null()).output().expect("python3 is the terminal");
    let seen = String::from_utf8(output.stdout).unwrap();
    for words in ["looking at files [", "/302, ", "/s, ", " left", "packing resources ["] {
        assert!(seen.contains(words), "`{words}` is not in {seen:?}");
    }
    assert_eq!(place.build(&[]).succeeded().err, "");
}
