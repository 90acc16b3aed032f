//! `resync-source notify`: the bytes of its POST, what it tells, and that nothing gets lost on the way.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::Stdio,
    time::Duration,
};

use resync_core::{
    document::{Capability, Change, FrameworkChange, FrameworkNotification, Relation},
    xml,
};

use resync_harness::free_address;

use crate::support::{ACCEPTED, BASE, Heard, Hub, Place, Run, program, run, text};

fn changes(heard: &Heard) -> Vec<FrameworkChange> {
    let document = xml::read(heard.body.as_bytes()).unwrap().into_document().unwrap();
    FrameworkNotification::changes(&document).unwrap()
}

pub(crate) fn told(heard: &Heard) -> Vec<(Change, Capability)> {
    changes(heard).into_iter().map(|change| (change.change, change.capability)).collect()
}

fn up(heard: &Heard) -> Option<String> {
    let document = xml::read(heard.body.as_bytes()).unwrap().into_document().unwrap();
    document.link(&Relation::Up).map(|link| link.href.clone())
}

pub(crate) fn lists_updated() -> Vec<(Change, Capability)> {
    vec![(Change::Updated, Capability::ResourceList), (Change::Updated, Capability::ChangeList)]
}

pub(crate) fn everything_created() -> Vec<(Change, Capability)> {
    [Capability::ResourceList, Capability::ChangeList, Capability::CapabilityList, Capability::Description]
        .map(|capability| (Change::Created, capability))
        .into()
}

#[test]
fn w130_fn033_fn034_the_post_is_xml_with_self_hub_and_resourcesync_in_one_link_header() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    let run = run(&["notify", "--out", text(&place.out()), "--token", "s3cret"]).succeeded();
    assert_eq!(
        run.out,
        "1 notification (Resource List created, Change List created, Capability List created, Source Description created), hub accepted (202)\n"
    );
    let heard = hub.next();
    assert_eq!(heard.line, "POST /websub/ HTTP/1.1");
    assert_eq!(heard.headers["host"], hub.address.to_string());
    assert_eq!(heard.headers["content-type"], "application/xml");
    assert_eq!(heard.headers["content-length"], heard.body.len().to_string());
    assert_eq!(
        heard.headers["link"],
        format!(
            r#"<{BASE}/resync/framework/>; rel="self", <{}>; rel="hub", <{BASE}/resync/capabilitylist.xml>; rel="resourcesync""#,
            hub.url()
        )
    );
    assert_eq!(heard.headers["authorization"], "Bearer s3cret");
    assert!(heard.headers["user-agent"].starts_with("resync-source/"));
    assert_eq!(told(&heard), everything_created());
    assert_eq!(changes(&heard)[0].loc, format!("{BASE}/resync/resourcelist.xml"));
    assert!(changes(&heard).iter().all(|change| change.datetime.is_some()));
    assert!(!fs::read_to_string(place.out().join(".resync-source/state.json")).unwrap().contains("s3cret"));
}

#[test]
fn nothing_changed_means_nothing_is_posted() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    hub.next();
    place.build(&["--hub", &hub.url()]).succeeded();
    let run = place.notify().succeeded();
    assert!(run.out.contains("nothing to send"), "{}", run.out);
    hub.heard_nothing_more();
}

#[test]
fn fn003_fn010_fn022_a_changed_collection_is_two_updated_lists_with_up_to_its_capability_list() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    assert_eq!(up(&hub.next()), None, "mixed news have no one document above them (FN-026)");
    place.put("a.txt", "changed");
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    let heard = hub.next();
    assert_eq!(told(&heard), lists_updated());
    assert_eq!(up(&heard), Some(format!("{BASE}/resync/capabilitylist.xml")));
}

#[test]
fn fn003_fn009_fn022_a_new_hub_is_an_updated_capability_list_with_up_to_the_source_description() {
    let (place, first, second) = (Place::new(), Hub::start(), Hub::start());
    place.build(&["--hub", &first.url()]).succeeded();
    place.notify().succeeded();
    first.next();
    place.build(&["--hub", &first.url(), "--hub", &second.url()]).succeeded();
    let run = place.notify().succeeded();
    assert_eq!(run.out.lines().count(), 2, "{}", run.out);
    let heard = first.next();
    assert_eq!(told(&heard), [(Change::Updated, Capability::CapabilityList)]);
    assert_eq!(up(&heard), Some(format!("{BASE}/.well-known/resourcesync")));
    assert_eq!(told(&second.next()), everything_created());
}

#[test]
fn a_hub_that_is_down_loses_nothing() {
    let place = Place::new();
    let address = free_address();
    place.build(&["--hub", &format!("http://{address}/websub/")]).succeeded();
    let run = place.notify().failed_with(1, "cannot reach the hub");
    assert!(run.err.contains("nothing is lost"), "{}", run.err);

    let hub = Hub::on(TcpListener::bind(address).unwrap());
    place.put("later.txt", "x");
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    assert_eq!(told(&hub.next()), everything_created());
}

#[test]
fn a_refusal_shows_status_and_words_and_the_next_run_sends_the_same_again() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    hub.answers(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 13\r\nConnection: close\r\n\r\nlog is full.\n",
    );
    let run = place.notify().failed_with(1, "503 Service Unavailable: log is full.");
    assert!(run.err.contains("1 of 1 hub could not be notified"), "{}", run.err);
    hub.answers("HTTP/1.1 403 Forbidden\r\nContent-Length: 7\r\nConnection: close\r\n\r\nnot you");
    place.notify().failed_with(1, "--token");
    hub.answers(ACCEPTED);
    place.notify().succeeded();
    let (first, second, third) = (hub.next(), hub.next(), hub.next());
    assert_eq!(first, second);
    assert_eq!(second, third);
    assert_eq!(first.headers["idempotency-key"].len(), 64);
}

#[test]
fn a_redirect_is_no_success_and_is_not_followed() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    hub.answers("HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    place.notify().failed_with(1, "307");
    hub.next();
    hub.heard_nothing_more();
}

#[test]
fn fn036_every_2xx_is_an_acknowledgement() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    ] {
        let (place, hub) = (Place::new(), Hub::start());
        hub.answers(answer);
        place.build(&["--hub", &hub.url()]).succeeded();
        place.notify().succeeded();
        hub.next();
        place.notify().succeeded();
        hub.heard_nothing_more();
    }
}

#[test]
fn w027_one_hub_that_fails_keeps_no_other_from_being_told_and_is_told_later_alone() {
    let (place, well, ill) = (Place::new(), Hub::start(), Hub::start());
    ill.answers("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    place.build(&["--hub", &ill.url(), "--hub", &well.url()]).succeeded();
    place.notify().failed_with(1, "1 of 2 hubs");
    well.next();
    let failed = ill.next();
    ill.answers(ACCEPTED);
    place.notify().succeeded();
    well.heard_nothing_more();
    assert_eq!(ill.next(), failed);
}

#[test]
fn a_crash_between_acknowledgement_and_state_repeats_the_same_bytes_and_key() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    let state = place.out().join(".resync-source/state.json");
    let before = fs::read(&state).unwrap();
    place.notify().succeeded();
    fs::write(&state, before).unwrap();
    place.notify().succeeded();
    assert_eq!(hub.next(), hub.next());
}

#[test]
fn a_kill_while_the_hub_answers_repeats_the_same_bytes_and_key() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/websub/", listener.local_addr().unwrap());
    place.build(&["--hub", &url]).succeeded();
    let mut child = program(&["notify", "--out", text(&place.out())]).stdout(Stdio::null()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let first = until_end_of_document(&mut stream);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut child = program(&["notify", "--out", text(&place.out())]).stdout(Stdio::null()).spawn().unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let second = until_end_of_document(&mut stream);
    stream.write_all(ACCEPTED.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(first, second);
}

pub(crate) fn until_end_of_document(stream: &mut TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut bytes, mut some) = (Vec::new(), [0; 4096]);
    while !bytes.windows(9).any(|end| end == b"</urlset>") {
        let count = stream.read(&mut some).unwrap();
        assert!(count > 0, "the connection ended early");
        bytes.extend_from_slice(&some[..count]);
    }
    String::from_utf8(bytes).unwrap().trim_end().to_owned()
}

#[test]
fn a_change_notification_that_a_hub_refuses_for_good_is_named_and_can_be_left_out() {
    let (place, hub) = (Place::new(), Hub::start());
    let out = place.out();
    let build = |name: &str| {
        place.put(name, "x");
        place.build(&["--hub", &hub.url()]).succeeded();
    };
    build("first");
    place.notify().succeeded();
    hub.next();
    build("refused");
    hub.answers("HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    place.notify().failed_with(1, "must allow 1 MiB");
    build("later");
    place.notify().failed_with(1, "413");
    for _ in 0..4 {
        hub.next_of_any();
    }
    let status = run(&["status", "--out", text(&out)]).succeeded();
    let advice = format!("`resync-source notify --out {} --skip 1`", text(&out));
    assert!(status.out.contains(&advice), "{}", status.out);
    hub.answers(ACCEPTED);
    let skip = |number: &str| run(&["notify", "--out", text(&out), "--skip", number]);
    skip("2").failed_with(1, "no hub has refused Change Notification 2");
    hub.heard_nothing_more();
    skip("1").succeeded();
    let heard = hub.next_of_any();
    assert!(heard.is_of_changes() && heard.body.contains("/later") && !heard.body.contains("/refused"));
}

#[test]
fn a_change_notification_that_cannot_be_read_is_named_by_status_until_it_is_gone() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    hub.next();
    place.put("a.txt", "changed");
    place.build(&["--hub", &hub.url()]).succeeded();
    let waiting = place.out().join(".resync-source/outbox/00000000000000000001.xml");
    fs::remove_file(&waiting).unwrap();
    fs::create_dir(&waiting).unwrap();
    let status = || run(&["status", "--out", text(&place.out())]).succeeded().out;
    for _ in 0..2 {
        place.notify().failed_with(1, "00000000000000000001.xml");
        let said = status();
        assert!(said.contains("since ") && said.contains("cannot read `"), "{said}");
    }
    assert_eq!(told(&hub.next()), lists_updated(), "what can be told is");
    fs::remove_dir(&waiting).unwrap();
    place.notify().succeeded();
    assert!(!status().contains("cannot read `"));
}

#[test]
fn a_second_notify_waits_for_the_first_and_then_has_nothing_to_send() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    place.build(&["--hub", &format!("http://{}/websub/", listener.local_addr().unwrap())]).succeeded();
    let out = place.out();
    let start = || {
        let mut command = program(&["notify", "--out", text(&out)]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut first = start();
    let (mut stream, _) = listener.accept().unwrap();
    until_end_of_document(&mut stream);
    let mut second = start();
    let mut line = String::new();
    BufReader::new(second.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let holder = format!("waiting for another resync-source, process {} [", first.id());
    assert!(line.contains(&holder) && line.contains("which notifies the same hub"), "{line}");
    stream.write_all(ACCEPTED.as_bytes()).unwrap();
    assert!(first.wait().unwrap().success());
    let second = Run::from(second.wait_with_output().unwrap()).succeeded();
    assert!(second.out.contains("nothing to send"), "{}", second.out);
}

#[test]
fn nobody_is_told_of_a_document_that_is_not_there() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    fs::remove_file(place.out().join("resync/resourcelist.xml")).unwrap();
    place.notify().failed_with(1, "run `resync-source build` again");
    hub.heard_nothing_more();
}

#[test]
fn a_build_cut_short_before_its_state_tells_nobody_and_the_next_build_completes_it() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    hub.next();
    let state = place.out().join(".resync-source/state.json");
    let before = fs::read(&state).unwrap();
    place.put("a.txt", "changed");
    place.build(&["--hub", &hub.url()]).succeeded();
    fs::write(&state, before).unwrap();
    place.notify().failed_with(1, "run `resync-source build` again");
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    assert_eq!(told(&hub.next()), lists_updated());
    hub.heard_nothing_more();
}

#[test]
fn a_site_without_hub_cannot_notify_and_publish_says_so() {
    let place = Place::new();
    place.build(&[]).succeeded();
    place.notify().failed_with(64, "--hub URL");
    let (collection, out) = (place.collection(), place.out());
    let run = run(&["publish", text(&collection), "--base-url", BASE, "--out", text(&out)]).succeeded();
    assert!(run.out.contains("no hub to notify"), "{}", run.out);
}

#[test]
fn publish_builds_and_notifies_and_status_tells_before_and_after() {
    let (place, hub) = (Place::new(), Hub::start());
    let (collection, out) = (place.collection(), place.out());
    let arguments =
        ["publish", text(&collection), "--base-url", BASE, "--out", text(&out), "--hub", &hub.url()];
    let published = run(&arguments).succeeded();
    let summary = "2 resources, 9 B → Resource List, Change List, Capability List, Source Description written · 1 notification";
    assert!(published.out.starts_with(summary), "{}", published.out);
    hub.next();
    let standing = || run(&["status", "--out", text(&place.out()), "--json"]).succeeded().out;
    let pending = |json: String| {
        let status: serde_json::Value = serde_json::from_str(&json).unwrap();
        status["hubs"][0]["pending"].as_array().unwrap().len()
    };
    assert_eq!(pending(standing()), 0);
    place.put("new", "x");
    place.build(&["--hub", &hub.url()]).succeeded();
    assert_eq!(pending(standing()), 2);
    let human = run(&["status", "--out", text(&place.out())]).succeeded();
    assert!(human.out.contains("waits: Resource List updated"), "{}", human.out);
}

#[test]
fn publish_needs_nothing_but_the_site_once_it_was_built() {
    let (place, hub) = (Place::new(), Hub::start());
    run(&["publish", "--out", text(&place.out())]).failed_with(1, "run `resync-source build` first");
    run(&["publish", text(&place.collection()), "--out", text(&place.out())]).failed_with(2, "--base-url");
    place.build(&["--hub", &hub.url(), "--hash", "md5"]).succeeded();
    place.put("new", "x");
    run(&["publish", "--out", text(&place.out())]).succeeded();
    assert_eq!(told(&hub.next()), everything_created());
    let list = place.document("resync/resourcelist.xml");
    assert_eq!(list.entries().len(), 3);
    assert!(list.entries()[0].metadata.as_ref().unwrap().hash.to_string().starts_with("md5:"));
}

#[test]
fn another_base_url_is_another_topic_on_which_nothing_was_told() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    hub.next();
    place.build_at("http://elsewhere.example/", &["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    let heard = hub.next();
    assert!(heard.headers["link"].starts_with("<http://elsewhere.example/resync/framework/>; rel=\"self\""));
    assert_eq!(told(&heard), everything_created());
}
