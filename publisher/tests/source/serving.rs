//! `resync-source serve`: documents, files and the topic URI as bytes on a socket.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    time::{Duration, SystemTime},
};

use resync_core::document::Capability;

use crate::{
    configured::{configured, one_set},
    support::{BASE, Hub, Place, Server, run, text},
};

/// The base URL of these tests has the path `/data/`.
const RESOURCE: &str = "/data/sub/b%20c.xml";
const TOPIC: &str = "/data/resync/framework/";

fn served() -> (Place, Hub, Server) {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    let server = Server::start(&place);
    (place, hub, server)
}

/// Makes a file one that was modified an hour ago.
fn age(path: &std::path::Path) {
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    fs::File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
}

#[test]
fn rs052_documents_are_served_as_xml_with_the_bytes_that_were_built() {
    let (place, _hub, server) = served();
    for (path, bytes) in place.documents() {
        age(&place.out().join(&path));
        let answer = server.get(&format!("/data/{path}"));
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/xml"), "{path}");
        assert_eq!(answer.body, bytes);
        assert!(!answer.header("last-modified").is_empty() && !answer.header("etag").is_empty());
        assert_eq!(answer.header("cache-control"), "no-cache");
    }
    assert_eq!(
        server.get("/.well-known/resourcesync").status,
        200,
        "the host's own well-known URI too (RS-071)"
    );
}

#[test]
fn mem006_a_closed_list_keeps_its_uri_and_its_bytes_and_there_is_no_change_set_that_leads_back_to_it() {
    let place = Place::new();
    let config = configured(&place, &one_set(BASE, "[change_list]\nentries = 1\n"));
    let build = || {
        run(&["build", "--config", text(&config)]).succeeded();
    };
    build();
    let server = Server::start(&place);
    let mut closed = BTreeMap::<String, Vec<u8>>::new();
    for number in 1..=4 {
        place.put("a.txt", "x".repeat(number));
        build();
        for (path, bytes) in &closed {
            let answer = server.get(path);
            assert_eq!((answer.status, &answer.body), (200, bytes), "{path}");
        }
        if number > 1 {
            let path = format!("/data/resync/changelist-{}.xml", number - 1);
            let bytes = server.get(&path).body;
            closed.insert(path, bytes);
        }
    }
    // The index leads forwards from each.
    let index = place.document("resync/changelist.xml");
    let spans: Vec<_> = index.entries().iter().map(|entry| entry.metadata.clone().unwrap()).collect();
    assert_eq!((spans.len(), closed.len()), (4, 3));
    for (one, next) in spans.iter().zip(&spans[1..]) {
        assert!(one.until.is_some() && one.until == next.from, "{spans:?}");
    }
    for number in 1..=4 {
        let list = place.document(&format!("resync/changelist-{number}.xml"));
        let relations: Vec<_> = list.header().links.iter().map(|link| link.rel.as_str()).collect();
        assert_eq!(relations, ["up", "index"]);
    }
    for path in ["/data/resync/changeset.xml", "/data/resync/changeset-1.xml", "/data/changeset"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn rs161_rs165_a_resource_links_to_the_capability_list_that_covers_it() {
    let (place, _hub, server) = served();
    let answer = server.get(RESOURCE);
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"<b/>"[..]));
    assert_eq!(answer.header("link"), format!(r#"<{BASE}/resync/capabilitylist.xml>; rel="resourcesync""#));
    assert_eq!(place.document("resync/capabilitylist.xml").capability(), &Capability::CapabilityList);
    assert_eq!(answer.header("content-type"), "text/xml");
    let head = server.ask("HEAD", RESOURCE, "");
    assert_eq!((head.status, head.body.len(), head.header("content-length")), (200, 0, "4"));
}

#[test]
fn w003_w021_to_w023_w032_fn031_fn032_the_topic_answers_with_its_links_and_length_0_then_with_the_last_notification()
 {
    let (place, hub, server) = served();
    let links = format!(r#"<{BASE}/resync/framework/>; rel="self", <{}>; rel="hub""#, hub.url());
    for method in ["GET", "HEAD"] {
        let answer = server.ask(method, TOPIC, "");
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/xml"));
        assert_eq!((answer.header("content-length"), answer.body.len()), ("0", 0));
        assert_eq!(answer.header("link"), links);
    }
    place.notify().succeeded();
    let sent = hub.next().body;
    for wish in ["", "Accept: text/html\r\nAccept-Language: de\r\n"] {
        let answer = server.ask("GET", TOPIC, wish);
        assert_eq!(
            (answer.body.as_slice(), answer.header("link")),
            (sent.as_bytes(), links.as_str()),
            "{wish}"
        );
    }
    let head = server.ask("HEAD", TOPIC, "");
    assert_eq!((head.header("content-length"), head.body.len()), (sent.len().to_string().as_str(), 0));
}

#[test]
fn a_build_beside_a_running_server_is_seen_at_once() {
    let (place, hub, server) = served();
    place.put("new.txt", "new");
    place.build(&["--hub", &hub.url()]).succeeded();
    assert_eq!(server.get("/data/new.txt").body, b"new");
    assert_eq!(
        server.get("/data/resync/resourcelist.xml").body,
        place.documents()["resync/resourcelist.xml"]
    );
    place.build_at("http://source.example/moved/", &["--no-hub"]).succeeded();
    assert_eq!(server.get("/moved/new.txt").body, b"new");
    assert_eq!(server.get("/data/new.txt").status, 404);
    assert_eq!(server.get("/moved/resync/framework/").status, 404, "without a hub there is no channel");
}

#[test]
fn conditional_requests_get_304_until_the_content_changes() {
    let (place, _hub, server) = served();
    age(&place.collection().join("sub/b c.xml"));
    let first = server.get(RESOURCE);
    let tag = format!("If-None-Match: {}\r\n", first.header("etag"));
    let again = server.ask("GET", RESOURCE, &tag);
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, first.header("etag")));
    let since = format!("If-Modified-Since: {}\r\n", first.header("last-modified"));
    assert_eq!(server.ask("GET", RESOURCE, &since).status, 304);
    place.put("sub/b c.xml", "<bb/>");
    assert_eq!(server.ask("GET", RESOURCE, &format!("{tag}{since}")).body, b"<bb/>");
}

#[test]
fn what_was_modified_a_moment_ago_is_known_by_its_tag_alone_since_the_same_second_may_bring_another_version()
{
    let (place, hub, server) = served();
    let list = "/data/resync/changelist-1.xml";
    let an_hour_hence = SystemTime::now() + Duration::from_secs(3600);
    // Two versions of one second, as a watch may write them.
    let is_of = |nanoseconds: u64| {
        let path = place.out().join("resync/changelist-1.xml");
        let time = an_hour_hence + Duration::from_nanos(nanoseconds);
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    };
    is_of(0);
    let first = server.get(list);
    assert_eq!(first.header("last-modified"), "");
    let tag = format!("If-None-Match: {}\r\n", first.header("etag"));
    assert_eq!(server.ask("GET", list, &tag).status, 304);
    place.put("new.txt", "new");
    place.build(&["--hub", &hub.url()]).succeeded();
    is_of(1);
    for since in ["Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"] {
        let answer = server.ask("GET", list, &format!("If-Modified-Since: {since}\r\n"));
        assert!(answer.status == 200 && answer.body != first.body, "{since}");
    }
}

#[test]
fn a_range_is_served_and_one_of_an_older_version_is_not_mixed_in() {
    let (_place, _hub, server) = served();
    let part = server.ask("GET", RESOURCE, "Range: bytes=1-2\r\n");
    assert_eq!((part.status, part.body.as_slice()), (206, &b"b/"[..]));
    let whole = server.ask("GET", RESOURCE, "Range: bytes=1-2\r\nIf-Range: \"older\"\r\n");
    assert_eq!((whole.status, whole.body.as_slice()), (200, &b"<b/>"[..]));
    let other = server.ask("GET", RESOURCE, "Range: bytes=1-2\r\nIf-Match: \"older\"\r\n");
    assert_eq!((other.status, other.body.len()), (412, 0));
    let beyond = server.ask("GET", RESOURCE, "Range: bytes=4-\r\n");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, "bytes */4"));
    let head = server.ask("HEAD", RESOURCE, "Range: bytes=1-2\r\n");
    assert_eq!((head.status, head.header("content-length")), (200, "4"), "only GET has parts");
}

#[test]
fn rs036_rs051_documents_are_compressed_for_who_takes_that_and_resources_stay_as_they_are_listed() {
    let (place, _hub, server) = served();
    let takes = "Accept-Encoding: br, gzip\r\n";
    let list = "/data/resync/resourcelist.xml";
    let answer = server.ask("GET", list, takes);
    assert_eq!((answer.status, answer.header("content-encoding")), (200, "gzip"));
    assert_eq!(answer.header("vary").to_lowercase(), "accept-encoding");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(unchunked(&answer.body).as_slice()).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, place.documents()["resync/resourcelist.xml"]);
    let tag = answer.header("etag");
    assert!(tag.starts_with("W/"), "other bytes than the strong tag is for: {tag}");
    assert_eq!(server.ask("GET", list, &format!("{takes}If-None-Match: {tag}\r\n")).status, 304);
    let part = server.ask("GET", list, &format!("{takes}Range: bytes=0-4\r\n"));
    assert_eq!(
        (part.status, part.body.as_slice(), part.header("content-encoding")),
        (206, &b"<?xml"[..], "")
    );
    assert_eq!(server.get(list).header("content-encoding"), "");
    let refused = server.ask("GET", list, &format!("{takes}If-Match: \"older\"\r\n"));
    assert_eq!((refused.status, refused.header("content-type")), (412, ""), "it is no document");
    let resource = server.ask("GET", RESOURCE, takes);
    assert_eq!((resource.header("content-encoding"), resource.body.as_slice()), ("", &b"<b/>"[..]));
}

/// A body in chunks as one.
fn unchunked(mut backoff: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = backoff.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let size = usize::from_str_radix(std::str::from_utf8(&backoff[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend(&backoff[end + 2..][..size]);
        backoff = &backoff[end + 2 + size + 2..];
    }
}

#[cfg(unix)]
#[test]
fn what_cannot_be_looked_at_is_an_error_and_no_absence() {
    let (place, _hub, server) = served();
    // A link to a name that the operating system refuses to look up at all.
    std::os::unix::fs::symlink("x".repeat(300), place.collection().join("long")).unwrap();
    assert_eq!(server.get("/data/long").status, 500);
    std::os::unix::fs::symlink("loop", place.collection().join("loop")).unwrap();
    assert_eq!(server.get("/data/loop").status, 404, "this is known to lead nowhere");
}

#[test]
fn nothing_outside_hidden_or_of_the_state_is_served() {
    let (place, _hub, server) = served();
    place.put(".env", "secret");
    place.put("draft.txt~", "secret");
    fs::write(place.collection().join("../secret"), "secret").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("../secret", place.collection().join("link")).unwrap();
    for path in [
        "/data/.env",
        "/data/draft.txt~",
        "/data/../secret",
        "/data/%2e%2e/secret",
        "/data/sub/..%2f..%2fsecret",
        "/data/link",
        "/data/.resync-source/state.json",
        "/data//a.txt",
        "/data/sub",
        "/data/sub/",
        "/data/",
        "/a.txt",
        "/",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("secret"), "{path}");
    }
    let hint = String::from_utf8(server.get("/").body).unwrap();
    assert!(hint.contains(&format!("{BASE}/.well-known/resourcesync")), "{hint}");
}

#[cfg(unix)]
#[test]
fn a_link_with_the_name_of_a_document_leads_nowhere_and_a_folder_of_documents_that_is_one_is_served() {
    use std::os::unix::fs::symlink;
    let (place, _hub, server) = served();
    let (documents, elsewhere) = (place.out().join("resync"), place.whole().join("elsewhere"));
    fs::rename(&documents, &elsewhere).unwrap();
    symlink(&elsewhere, &documents).unwrap();
    assert_eq!(server.get("/data/resync/resourcelist.xml").status, 200);

    fs::write(place.whole().join("secret"), "secret").unwrap();
    symlink(place.whole().join("secret"), documents.join("resourcelist-9.xml")).unwrap();
    let answer = server.get("/data/resync/resourcelist-9.xml");
    assert_eq!(answer.status, 500, "it must not look like an absence");
    assert!(!String::from_utf8_lossy(&answer.body).contains("secret"));

    fs::create_dir_all(documents.join("patches")).unwrap();
    for name in ["resourcelist-8.xml", "patches/a.json"] {
        // It leads to nothing that could be looked at.
        symlink("x".repeat(300), documents.join(name)).unwrap();
        assert_eq!(server.get(&format!("/data/resync/{name}")).status, 500, "{name}");
    }
    let long = "x".repeat(300);
    for name in [format!("resourcelist-{long}.xml"), format!("patches/{long}.json")] {
        assert_eq!(server.get(&format!("/data/resync/{name}")).status, 404, "there is no such name");
    }
}

#[test]
fn other_methods_get_405_with_the_allowed_ones() {
    let (_place, _hub, server) = served();
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        let answer = server.ask(method, TOPIC, "Content-Length: 0\r\n");
        assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"));
    }
}

#[test]
fn a_large_file_arrives_whole() {
    let (place, _hub, server) = served();
    let content: Vec<u8> = (0..5_000_000u32).map(|number| (number % 251) as u8).collect();
    place.put("large.bin", &content);
    let answer = server.get("/data/large.bin");
    assert_eq!(answer.header("content-length"), "5000000");
    assert!(answer.body == content);
}

#[cfg(unix)]
#[test]
fn sigterm_ends_the_server_in_good_order() {
    let (_place, _hub, mut server) = served();
    let id = server.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_base_url_below_folders_with_unusual_names_is_served_where_its_urls_lead() {
    for (base, start) in [
        ("http://source.example/a%20b/c%C3%A9/", "/a%20b/c%C3%A9/"),
        ("http://source.example/~me/a+b/", "/%7Eme/a+b/"),
        ("http://source.example", "/"),
    ] {
        let place = Place::new();
        place.build_at(base, &[]).succeeded();
        let server = Server::start(&place);
        for path in ["a.txt", "resync/capabilitylist.xml", ".well-known/resourcesync"] {
            assert_eq!(server.get(&format!("{start}{path}")).status, 200, "{base} {path}");
        }
    }
}

#[test]
fn after_the_hubs_changed_the_topic_still_answers_with_the_last_notification() {
    let (place, hub, server) = served();
    place.notify().succeeded();
    let sent = hub.next().body;
    place.build(&["--hub", "http://127.0.0.1:9/websub/"]).succeeded();
    assert_eq!(server.get(TOPIC).body, sent.as_bytes());
}
