//! `resync-source notify`: what a hub is taken to know, whatever happens between the POST and its answer.

use std::{
    io::Write as _,
    net::TcpListener,
    process::Stdio,
    sync::mpsc::channel,
    thread,
    time::{Duration, SystemTime},
};

use resync_core::document::{Capability, Change};

use crate::{
    notifying::{everything_created, lists_updated, told, until_end_of_document},
    support::{ACCEPTED, Hub, Place, Run, program, run, text},
};

const REFUSED: &str = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
/// The hub takes the notification, and its answer is lost.
const LOST: &str = "";

fn updated(capability: Capability) -> Vec<(Change, Capability)> {
    vec![(Change::Updated, capability)]
}

/// A site whose hub knows everything.
fn known() -> (Place, Hub) {
    let (place, hub) = (Place::new(), Hub::start());
    say(&place, "A");
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    hub.next();
    (place, hub)
}

fn status(place: &Place) -> serde_json::Value {
    serde_json::from_str(&run(&["status", "--out", text(&place.out()), "--json"]).succeeded().out).unwrap()
}

#[test]
fn a_change_that_is_undone_is_told_when_the_hub_may_have_heard_of_it() {
    let (place, hub) = known();
    say(&place, "B");
    place.build(&[]).succeeded();
    hub.answers(LOST);
    place.notify().failed_with(1, "no answer");
    assert_eq!(told(&hub.next()), lists_updated());
    say(&place, "A");
    place.build(&[]).succeeded();
    hub.answers(ACCEPTED);
    place.notify().succeeded();
    assert_eq!(told(&hub.next()), lists_updated());
    assert!(place.notify().succeeded().out.contains("nothing to send"));
}

#[test]
fn a_change_that_is_undone_is_told_although_no_hub_heard_of_it_since_somebody_may_have_read_it() {
    let (place, hub) = known();
    say(&place, "B");
    place.build(&[]).succeeded();
    say(&place, "A");
    place.build(&[]).succeeded();
    place.notify().succeeded();
    assert_eq!(told(&hub.next()), lists_updated());
}

/// Says something in `a.txt`, always at the same time, so that the Resource List says what it said before when the content comes back.
fn say(place: &Place, content: &str) {
    place.put("a.txt", content);
    let file = std::fs::File::options().write(true).open(place.collection().join("a.txt")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
}

#[test]
fn what_is_in_doubt_is_on_disk_before_the_hub_can_hear_it() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    place.build(&["--hub", &format!("http://{}/websub/", listener.local_addr().unwrap())]).succeeded();
    let mut child = program(&["notify", "--out", text(&place.out())]).stdout(Stdio::null()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    until_end_of_document(&mut stream);
    child.kill().unwrap();
    child.wait().unwrap();
    let state = std::fs::read(place.out().join(".resync-source/state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    let hub = state["hubs"].as_object().unwrap().values().next().unwrap();
    assert_eq!(
        (hub["acknowledged"].as_object().unwrap().len(), hub["unconfirmed"].as_object().unwrap().len()),
        (0, 4)
    );
}

#[test]
fn fn009_a_hub_that_is_replaced_hears_once_of_the_new_capability_list_and_is_then_forgotten() {
    let (place, old) = known();
    let new = Hub::start();
    place.build(&["--hub", &new.url()]).succeeded();
    old.answers(REFUSED);
    drop_hub(&place, &old.url()).failed_with(1, "not notified");
    old.next();
    old.answers(ACCEPTED);
    assert_eq!(status(&place)["hubs"][1]["leaving"], true);
    let run = place.notify().succeeded();
    assert!(run.out.contains("no longer a hub of this site: 1 notification"), "{}", run.out);
    let heard = old.next();
    assert_eq!(told(&heard), updated(Capability::CapabilityList));
    assert!(heard.headers["link"].contains(&format!(r#"<{}>; rel="hub""#, old.url())));
    assert_eq!(told(&new.next()), everything_created());
    place.put("new", "x");
    place.build(&[]).succeeded();
    place.notify().succeeded();
    assert_eq!(told(&new.next()), lists_updated());
    old.heard_nothing_more();
    assert_eq!(status(&place)["hubs"].as_array().unwrap().len(), 1);
}

fn drop_hub(place: &Place, hub: &str) -> Run {
    run(&["notify", "--out", text(&place.out()), "--drop-hub", hub])
}

#[test]
fn a_hub_that_is_replaced_and_refuses_is_told_by_a_later_run() {
    let (place, old) = known();
    let new = Hub::start();
    old.answers(REFUSED);
    place.build(&["--hub", &new.url()]).succeeded();
    drop_hub(&place, &old.url()).failed_with(1, "no longer a hub of this site: not notified");
    old.next();
    old.answers(ACCEPTED);
    place.build(&[]).succeeded();
    place.notify().succeeded();
    assert_eq!(told(&old.next()), updated(Capability::CapabilityList));
}

#[test]
fn the_last_hub_hears_that_the_channel_ended() {
    let (place, hub) = known();
    place.build(&["--no-hub"]).succeeded();
    drop_hub(&place, &hub.url()).succeeded();
    assert_eq!(told(&hub.next()), updated(Capability::CapabilityList));
    place.notify().failed_with(64, "has no hub");
    run(&["notify", "--out", text(&place.out()), "--token", "s3cret"]).failed_with(64, "has no hub");
}

#[test]
fn a_hub_that_never_heard_of_the_site_is_dropped_at_once() {
    let (place, misspelt, right) = (Place::new(), Hub::start(), Hub::start());
    misspelt.answers("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    place.build(&["--hub", &misspelt.url()]).succeeded();
    place.notify().failed_with(1, "404");
    misspelt.next();
    place.build(&["--hub", &right.url()]).succeeded();
    place.notify().succeeded();
    misspelt.heard_nothing_more();
}

#[test]
fn a_build_does_not_wait_for_a_hub_and_what_it_made_is_left_for_the_next_run() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    place.build(&["--hub", &format!("http://{}/websub/", listener.local_addr().unwrap())]).succeeded();
    let mut first = program(&["notify", "--out", text(&place.out())]).stdout(Stdio::null()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    until_end_of_document(&mut stream);
    place.put("new", "x");
    place.build(&[]).succeeded();
    stream.write_all(ACCEPTED.as_bytes()).unwrap();
    assert!(first.wait().unwrap().success(), "the build came before the answer");
    let waiting = &status(&place)["hubs"][0]["pending"];
    assert_eq!(waiting.as_array().unwrap().len(), 2, "{waiting}");
    assert_eq!(
        (&waiting[0]["change"], &waiting[0]["capability"]),
        (&"updated".into(), &"resourcelist".into())
    );
}

#[test]
fn a_hub_that_is_slow_keeps_no_other_waiting() {
    let (place, quick) = (Place::new(), Hub::start());
    let slow = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/websub/", slow.local_addr().unwrap());
    place.build(&["--hub", &url, "--hub", &quick.url()]).succeeded();
    let (told_quick, quick_was_told) = channel();
    let answering = thread::spawn(move || {
        let (mut stream, _) = slow.accept().unwrap();
        until_end_of_document(&mut stream);
        quick_was_told.recv_timeout(Duration::from_secs(20)).expect("the other hub is told meanwhile");
        stream.write_all(ACCEPTED.as_bytes()).unwrap();
    });
    let child = program(&["notify", "--out", text(&place.out())]).stdout(Stdio::piped()).spawn().unwrap();
    quick.next();
    told_quick.send(()).unwrap();
    answering.join().unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
}
