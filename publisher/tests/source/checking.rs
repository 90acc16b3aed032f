//! `resync-source check`: the binary on sites that are as they should be, and on sites each broken in one way.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{BufRead, BufReader, Cursor, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    thread,
};

use resync_core::{
    build::{FolderSink, Item, ResourceDumps, Site},
    digest::{Algorithm, Digest},
    xml::MAX_BYTES,
};
use serde_json::Value;

use crate::support::{BASE, Place, Run, run, text};

const HUB: &str = "http://hub.example/websub/";
const DESCRIPTION: &str = ".well-known/resourcesync";
const CAPABILITIES: &str = "resync/capabilitylist.xml";
const LIST: &str = "resync/resourcelist.xml";
const TOPIC: &str = "resync/framework/";
const CHANGES: &str = "resync/changes/";
const SITEMAP: &str = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"/>"#;
const URLSET: &str = r#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:rs="http://www.openarchives.org/rs/terms/">"#;

/// A site as `build` leaves it.
fn site() -> Place {
    let place = Place::new();
    place.build(&["--hub", HUB]).succeeded();
    place
}

/// A site of which one document is otherwise.
fn site_with(path: &str, change: impl FnOnce(String) -> String) -> Place {
    let place = site();
    let file = place.out().join(path);
    let before = fs::read_to_string(&file).unwrap();
    let after = change(before.clone());
    assert_ne!(after, before, "nothing was changed");
    fs::write(file, after).unwrap();
    place
}

fn check(path: &Path, more: &[&str]) -> Run {
    run(&[&["check", text(path)], more].concat())
}

/// The JSON of a check; the verdict and the exit code say the same.
fn json(target: &str, more: &[&str]) -> Value {
    let run = run(&[&["check", target, "--json"], more].concat());
    let json: Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(json["conforming"], run.code == 0, "{}", run.err);
    assert_eq!(json["conforming"], json["errors"] == 0);
    json
}

/// Severity, code and document of everything found.
fn found(json: &Value) -> Vec<(String, String, String)> {
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let documents = json["documents"].as_array().unwrap().iter();
    documents
        .flat_map(|document| {
            let violations = document["violations"].as_array().unwrap().iter();
            violations.map(|violation| {
                (word(&violation["severity"]), word(&violation["code"]), word(&document["url"]))
            })
        })
        .collect()
}

fn errors(json: &Value) -> Vec<(String, String)> {
    let errors = found(json).into_iter().filter(|(severity, ..)| severity == "error");
    errors.map(|(_, code, url)| (code, url.replace(BASE, ""))).collect()
}

fn error(code: &str, path: &str) -> (String, String) {
    (code.to_owned(), format!("/{path}"))
}

// --- sites in folders ---

#[test]
fn a_site_that_was_built_conforms_and_advice_that_it_does_not_follow_is_told() {
    let place = site();
    let run = check(&place.out(), &[]).succeeded();
    let lines: Vec<_> = run.out.lines().collect();
    assert_eq!(lines[0], format!("{BASE}/{DESCRIPTION} (Source Description)"));
    assert!(
        lines[1].starts_with("  3:3: warning RS-061 ShapeAdvised: ") && lines[1].ends_with(" [C8 to C13]"),
        "{}",
        run.out
    );
    let verdict = lines.last().unwrap();
    assert!(verdict.starts_with("5 documents: conforming, with "), "{verdict}");
    assert_eq!(run.err, "");
}

#[test]
fn the_json_names_every_document_its_kind_and_the_place_of_each_violation() {
    let place = site_with(LIST, |text| text.replace("sha-256:", "sha-256:no"));
    let json = json(text(&place.out()), &[]);
    let kinds: Vec<_> =
        json["documents"].as_array().unwrap().iter().map(|document| &document["kind"]).collect();
    assert_eq!(
        kinds,
        ["Source Description", "Capability List", "Resource List", "Change List Index", "Change List"]
    );
    let list = &json["documents"][2];
    assert_eq!(list["linked_from"], format!("{BASE}/{CAPABILITIES}"));
    assert_eq!((&list["capability"], &list["index"]), (&"resourcelist".into(), &false.into()));
    assert_eq!((&list["errors"], &list["warnings"]), (&0.into(), &2.into()));
    let violation = &list["violations"][0];
    let words = ["severity", "code", "rule", "section"].map(|name| violation[name].as_str().unwrap());
    assert_eq!(words, ["warning", "RS-034", "HashUnknown", "C7"]);
    assert!(violation["line"].as_u64().unwrap() > 1 && violation["column"].as_u64().unwrap() > 1);
    assert_eq!(violation["entry"], 1);
    assert!(!violation["sentence"].as_str().unwrap().is_empty());
    assert!(violation["detail"].as_str().unwrap().contains("sha-256:no"), "{violation}");
}

#[test]
fn in002_a_document_that_is_missing_is_told_with_what_leads_to_it() {
    let place = site();
    fs::remove_file(place.out().join(LIST)).unwrap();
    let run = check(&place.out(), &[]).failed_with(1, "resync-source: rules are broken");
    assert!(run.out.contains(&format!(
        "{BASE}/{LIST} (linked from {BASE}/{CAPABILITIES})\n  error IN-002 Unreachable: "
    )));
    assert!(run.out.contains("5 documents: not conforming, 1 error, 3 warnings; "), "{}", run.out);
}

#[test]
fn in001_a_document_that_is_no_xml_is_told_as_such() {
    let place = site_with(LIST, |text| text.replace("</urlset>", ""));
    assert_eq!(errors(&json(text(&place.out()), &[])), [error("IN-001", LIST)]);
}

#[test]
fn rs060_a_resource_list_without_its_moment_breaks_the_matrix() {
    let place = site_with(LIST, |text| text.replace(" at=\"", " x=\""));
    assert_eq!(errors(&json(text(&place.out()), &[])), [error("RS-060", LIST)]);
}

#[test]
fn rs053_an_up_link_to_the_wrong_document_is_found_although_each_document_is_right_alone() {
    let place = site_with(LIST, |text| text.replace(CAPABILITIES, DESCRIPTION));
    let file = place.out().join(LIST);
    check(&file, &[]).succeeded();
    assert_eq!(errors(&json(text(&place.out()), &[])), [error("RS-053", LIST)]);
}

#[test]
fn rs055_an_entry_that_names_another_kind_of_document_is_found() {
    let place = site_with(CAPABILITIES, |text| text.replace("\"resourcelist\"", "\"resourcedump\""));
    assert_eq!(errors(&json(text(&place.out()), &[])), [error("RS-055", CAPABILITIES)]);
}

#[test]
fn the_base_url_is_that_of_the_last_build_or_what_the_documents_tell_or_what_is_said() {
    let place = site();
    fs::remove_dir_all(place.out().join(".resync-source")).unwrap();
    let told_by_documents = check(&place.out(), &[]).succeeded();
    assert!(
        told_by_documents.out.starts_with(&format!("{BASE}/{DESCRIPTION} ")),
        "{}",
        told_by_documents.out
    );

    let said = check(&place.out(), &["--base-url", "https://elsewhere.example/"]);
    let elsewhere = "the site is at https://elsewhere.example/, but its documents name http://source.example/data/, where";
    let said = said.failed_with(1, elsewhere);
    assert!(said.out.starts_with(&format!("https://elsewhere.example/{DESCRIPTION} ")), "{}", said.out);

    fs::remove_file(place.out().join(CAPABILITIES)).unwrap();
    check(&place.out(), &[]).failed_with(64, "--base-url");
}

/// A site with a Resource Dump in the place of its Resource List, and the path of its package.
fn dump_site() -> (Place, PathBuf) {
    let place = site_with(CAPABILITIES, |text| {
        text.replace("\"resourcelist\"", "\"resourcedump\"").replace("resourcelist.xml", "resourcedump.xml")
    });
    fs::remove_file(place.out().join(LIST)).unwrap();
    let items = [b"alpha".as_slice(), b"beta"].into_iter().enumerate().map(|(number, content)| Item {
        length: Some(content.len() as u64),
        hashes: Digest::of(Algorithm::Sha256, content).into(),
        media_type: Some("text/plain".to_owned()),
        ..Item::new(format!("{BASE}/{number}.txt"))
    });
    let open = |item: &Item| {
        let content: &[u8] = if item.loc.ends_with("0.txt") { b"alpha" } else { b"beta" };
        Ok(Some(content))
    };
    let mut sink = FolderSink::open(place.out().join("resync")).unwrap();
    let dumps =
        ResourceDumps::new(&Site::new(&format!("{BASE}/resync")), "2026-01-03T09:00:00Z".parse().unwrap());
    let published = dumps.write(items.map(Ok), open, &mut sink).unwrap();
    let package = published.documents.iter().find(|name| name.contains(".zip")).unwrap();
    (place, sink.path(package))
}

/// What becomes of a member's name and content; `None` leaves it out.
type Change<'a> = dyn Fn(&str, Vec<u8>) -> Option<(String, Vec<u8>)> + 'a;

/// Packs anew, each member as `change` wants it.
fn repack(package: &Path, change: &Change<'_>) {
    let mut old = zip::ZipArchive::new(File::open(package).unwrap()).unwrap();
    let mut new = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for number in 0..old.len() {
        let mut member = old.by_index(number).unwrap();
        let (name, mut content) = (member.name().unwrap().into_owned(), Vec::new());
        member.read_to_end(&mut content).unwrap();
        if let Some((name, content)) = change(&name, content) {
            new.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
            new.write_all(&content).unwrap();
        }
    }
    fs::write(package, new.finish().unwrap().into_inner()).unwrap();
}

#[test]
fn rs101_rs110_packages_are_unpacked_as_destinations_do_it_and_refused_by_cause() {
    let (place, package) = dump_site();
    let whole = json(text(&place.out()), &[]);
    assert_eq!(errors(&whole), []);
    let kinds = whole["documents"].as_array().unwrap().iter().map(|one| one["kind"].as_str().unwrap());
    let kinds: Vec<_> = kinds.filter(|kind| !kind.starts_with("Change List")).collect();
    assert_eq!(
        kinds,
        [
            "Source Description",
            "Capability List",
            "Resource Dump",
            "Resource Dump Manifest",
            "Resource Dump Manifest"
        ]
    );

    let original = fs::read(&package).unwrap();
    let codes = |change: &Change<'_>| {
        fs::write(&package, &original).unwrap();
        repack(&package, change);
        let codes = errors(&json(text(&place.out()), &[])).into_iter().map(|(code, _)| code);
        // What was packed anew has other bytes than the dump says.
        codes.filter(|code| code != "RS-102").collect::<Vec<_>>()
    };
    let is_manifest = |name: &str| name == "manifest.xml";
    assert_eq!(codes(&|name, content| Some((name.to_owned(), content))), Vec::<String>::new());
    assert_eq!(codes(&|name, content| (!is_manifest(name)).then(|| (name.to_owned(), content))), ["RS-104"]);
    assert_eq!(codes(&|name, content| is_manifest(name).then(|| (name.to_owned(), content))), ["RS-111"; 2]);
    let louder = |content: Vec<u8>| content.to_ascii_uppercase();
    assert_eq!(
        codes(&|name, content| Some((
            name.to_owned(),
            if is_manifest(name) { content } else { louder(content) }
        ))),
        ["RS-110"; 2]
    );

    fs::write(&package, "no archive").unwrap();
    let run = check(&place.out(), &[]).failed_with(1, "rules are broken");
    assert!(
        run.out.contains("error RS-101 PackageUnreadable: ")
            && run.out.contains("error RS-102 PackageDiffers: "),
        "{}",
        run.out
    );
}

#[test]
fn rs103_the_manifest_in_a_package_is_compared_with_its_copy() {
    let (place, package) = dump_site();
    let copy = package
        .with_file_name(package.file_name().unwrap().to_str().unwrap().replace(".zip", "-manifest.xml"));
    let text_of_copy = fs::read_to_string(&copy).unwrap();
    fs::write(&copy, text_of_copy.replace("0.txt", "00.txt")).unwrap();
    assert_eq!(errors(&json(text(&place.out()), &[])), [error("RS-103", "resync/resourcedump.xml")]);
}

#[test]
fn documents_that_nothing_leads_to_are_checked_and_noted() {
    let place = site();
    let stray = place.out().join("resync/stray.xml");
    fs::copy(place.out().join(LIST), &stray).unwrap();
    fs::write(place.out().join("sitemap.xml"), SITEMAP).unwrap();
    fs::write(place.out().join("resource.xml"), "<not well-formed").unwrap();
    let run = check(&place.out(), &[]).succeeded();
    let note = format!("{BASE}/resync/stray.xml (Resource List)\n  note: nothing links to this document");
    assert!(run.out.contains(&note), "{}", run.out);
    assert!(run.out.contains("6 documents: conforming, with "), "{}", run.out);
    assert!(run.out.contains("; nothing links to 1 document; "), "{}", run.out);

    fs::write(&stray, fs::read_to_string(&stray).unwrap().replace("</urlset>", "")).unwrap();
    let json = json(text(&place.out()), &[]);
    assert_eq!(errors(&json), [error("IN-001", "resync/stray.xml")]);
    assert_eq!((&json["unreached"], &json["documents"][5]["reached"]), (&1.into(), &false.into()));
}

// --- files, and folders that are no site ---

#[test]
fn a_file_is_looked_at_alone_compressed_or_not() {
    let place = site();
    let list = place.out().join(LIST);
    let one = check(&list, &[]).succeeded();
    assert!(one.out.contains("1 document: conforming; "), "{}", one.out);
    assert!(one.out.ends_with(" rules not judged everywhere (--json names them)\n"), "{}", one.out);

    let broken = place.out().join("broken.xml.gz");
    let document = format!(r#"{URLSET}<rs:md capability="changelist"/></urlset>"#);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(document.as_bytes()).unwrap();
    fs::write(&broken, gzip.finish().unwrap()).unwrap();
    let run = check(&broken, &[]).failed_with(1, "rules are broken");
    assert!(run.out.starts_with(&format!("{} (Change List)\n  1:", text(&broken))), "{}", run.out);
    for code in ["RS-060", "RS-053"] {
        assert!(run.out.contains(&format!(": error {code} ")), "{}", run.out);
    }
}

#[test]
fn the_documents_of_any_folder_are_looked_at_alone_and_other_xml_is_left_out() {
    let place = Place::new();
    place.put("lists/1.xml", format!(r#"{URLSET}<rs:md capability="changelist"/></urlset>"#));
    place.put(".hidden.xml", "<");
    let run = check(&place.collection(), &[]).failed_with(1, "rules are broken");
    assert!(
        run.out.contains("1.xml (Change List)") && run.out.contains("1 document: not conforming, "),
        "{}",
        run.out
    );

    place.remove("lists/1.xml");
    check(&place.collection(), &[]).failed_with(1, "there is no ResourceSync document");
}

#[test]
fn documents_that_no_source_description_leads_to_are_checked_against_each_other_where_their_urls_are_known() {
    let place = site();
    fs::remove_dir_all(place.out().join(".well-known")).unwrap();
    let json = json(text(&place.out()), &[]);
    assert_eq!(errors(&json), [error("IN-002", DESCRIPTION)]);
    assert_eq!(json["documents"].as_array().unwrap().len(), 5);
}

/// A Change Notification without changes.
fn notification(place: &Place, name: &str, from: u32, until: u32) -> PathBuf {
    let time = |hour: u32| format!("2026-01-03T{hour:02}:00:00Z");
    let (from, until) = (time(from), time(until));
    let head = format!(r#"<rs:md capability="change-notification" from="{from}" until="{until}"/>"#);
    place.put(name, format!("{URLSET}{head}</urlset>"));
    place.collection().join(name)
}

#[test]
fn cn008_notifications_follow_each_other_in_the_order_given() {
    let place = Place::new();
    let one = notification(&place, "z.xml", 1, 2);
    let two = notification(&place, "y.xml", 2, 4);
    let three = notification(&place, "x.xml", 4, 5);
    let [one, two, three] = [&one, &two, &three].map(|path| text(path));
    run(&["check", one, two, three]).succeeded();
    let gap = run(&["check", one, three]).failed_with(1, "rules are broken");
    assert!(
        gap.out.contains(&format!("{three} (Change Notification)\n  error CN-008 NotificationChain: ")),
        "{}",
        gap.out
    );
    assert!(gap.out.contains("there is a gap"), "{}", gap.out);
    let swapped = run(&["check", two, one, three]).failed_with(1, "rules are broken");
    assert!(swapped.out.contains("they overlap"), "{}", swapped.out);

    place.remove("y.xml");
    check(&place.collection(), &[]).succeeded();
}

#[test]
fn cn008_cn010_notifications_of_a_site_follow_each_other_where_they_name_their_set() {
    let place = site();
    let put = |name: &str, from: u32, until: u32, up: &str| {
        let document = fs::read_to_string(notification(&place, name, from, until)).unwrap();
        place.remove(name);
        fs::write(place.out().join(name), document.replace("</urlset>", &format!("{up}</urlset>"))).unwrap();
    };
    let up = format!(r#"<rs:ln rel="up" href="{BASE}/{CAPABILITIES}"/>"#);
    put("a.xml", 1, 2, "");
    put("b.xml", 4, 5, "");
    put("c.xml", 1, 2, &up);
    put("d.xml", 2, 4, &up);
    check(&place.out(), &[]).succeeded();
    fs::remove_file(place.out().join("d.xml")).unwrap();
    put("e.xml", 4, 5, &up);
    assert_eq!(errors(&json(text(&place.out()), &[])), [error("CN-008", "e.xml")]);
}

#[test]
fn what_cannot_be_checked_is_refused_by_cause() {
    run(&["check"]).failed_with(2, "no site given");
    run(&["check", "ftp://source.example/"]).failed_with(64, "`ftp`");
    run(&["check", "http://me:hunter2@source.example/"]).failed_with(64, "user name or password");
    run(&["check", "a.xml", "--deadline", "soon"]).failed_with(2, "--deadline");
    run(&["check", "no/such/file.xml"]).failed_with(1, "cannot read `no/such/file.xml`");
    let place = site();
    check(&place.out(), &["--base-url", "elsewhere"]).failed_with(64, "not an absolute URL");
}

// --- the web ---

/// What is sent for a path, head and all.
type Answers = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A web server of fixed answers.
struct Web {
    address: SocketAddr,
    answers: Answers,
}

impl Web {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let web = Self { address: listener.local_addr().unwrap(), answers: Answers::default() };
        let answers = Arc::clone(&web.answers);
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(stream.unwrap(), &answers);
            }
        });
        web
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    fn gives(&self, path: &str, head: &str, body: &[u8]) {
        let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        self.answers.lock().unwrap().insert(format!("/{path}"), [head.as_bytes(), body].concat());
    }

    /// Takes a request for a path, and never answers.
    fn hangs(&self, path: &str) {
        self.answers.lock().unwrap().insert(format!("/{path}"), Vec::new());
    }

    /// Serves what was built for this address.
    fn publish(&self, place: &Place, head: &str) {
        place.build_at(&self.url(""), &["--hub", HUB]).succeeded();
        for (path, bytes) in place.documents() {
            self.gives(&path, head, &bytes);
        }
        self.gives_topic(&format!("<{}>; rel=\"self\", <{HUB}>; rel=\"hub\"", self.url(TOPIC)));
        self.gives("a.txt", "200 OK\r\nContent-Type: text/plain", b"alpha");
        let changes = self.url(CHANGES);
        self.gives(CHANGES, &format!("{XML}\r\nLink: <{changes}>; rel=\"self\", <{HUB}>; rel=\"hub\""), b"");
    }

    fn gives_topic(&self, links: &str) {
        self.gives(TOPIC, &format!("{XML}\r\nLink: {links}"), b"");
    }
}

fn answer(stream: TcpStream, answers: &Answers) {
    let lines: Vec<_> =
        BufReader::new(&stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    let path = lines[0].split(' ').nth(1).unwrap();
    let nothing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec();
    let answer = answers.lock().unwrap().get(path).cloned().unwrap_or(nothing);
    if answer.is_empty() {
        // The connection stays open for as long as the process lives.
        return std::mem::forget(stream);
    }
    // A client that has read enough may be gone.
    (&stream).write_all(&answer).ok();
}

const XML: &str = "200 OK\r\nContent-Type: application/xml";

#[test]
fn a_site_on_the_web_is_followed_from_its_source_description_to_its_lists() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    let json = json(&web.url(DESCRIPTION), &[]);
    assert_eq!(errors(&json), []);
    assert_eq!(json["documents"].as_array().unwrap().len(), 5);
    assert!(found(&json).iter().all(|(_, code, _)| code != "RS-052"));

    web.gives(LIST, "410 Gone", b"");
    let run = run(&["check", &web.url(CAPABILITIES)]).failed_with(1, "rules are broken");
    assert!(run.out.contains(": 410 Gone [C6.2]\n"), "{}", run.out);
}

#[test]
fn a_site_that_is_served_under_another_url_than_it_says_is_one_finding() {
    let (web, place) = (Web::start(), Place::new());
    place.build_at(&web.url("wrong/"), &["--hub", HUB]).succeeded();
    for (path, bytes) in place.documents() {
        web.gives(&path, XML, &bytes);
    }
    let (served, named) = (web.url(""), web.url("wrong/"));
    let cause = format!(
        "the site is at {served}, but its documents name {named}, where {named}{CAPABILITIES} is missing"
    );
    let advice = format!("; build it with the base URL {served}, or serve it at {named}\n");
    for start in [DESCRIPTION, CAPABILITIES, LIST] {
        let run = run(&["check", &web.url(start)]).failed_with(1, "the check could not be completed: ");
        assert!(run.err.contains("the site is at ") && run.err.ends_with(&advice), "{}", run.err);
        assert!(start != DESCRIPTION || run.err.contains(&cause), "{}", run.err);
        assert_eq!(run.out.matches(" Unreachable").count(), 0, "{}", run.out);
    }
    let of_page = run(&["check", &served]).failed_with(1, &cause);
    assert!(of_page.err.contains(&format!("{served} is no ResourceSync document; ")), "{}", of_page.err);
}

#[test]
fn a_base_url_or_a_page_is_checked_by_the_source_description_of_its_site() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    let (base, description) = (web.url(""), web.url(DESCRIPTION));
    let html: (&str, &[u8]) = ("200 OK\r\nContent-Type: text/html", b"<!doctype html><p>A library");
    for (path, head, body) in [
        ("", "404 Not Found", &b""[..]),
        ("", "403 Forbidden", &b""[..]),
        ("", html.0, html.1),
        ("about.html", html.0, html.1),
    ] {
        web.gives(path, head, body);
        let page = web.url(path);
        let run = run(&["check", &page]).succeeded();
        let told = format!("{page} is no ResourceSync document; its site is checked from {description} on\n");
        assert!(run.err.ends_with(&told), "{}", run.err);
        assert!(run.out.contains("5 documents: conforming"), "{}", run.out);
    }
    let json = json(&base, &[]);
    assert_eq!(json["pages"], serde_json::json!([{ "url": base, "source_description": description }]));
    assert_eq!(json["documents"][0]["url"], description);

    web.gives("damaged.xml", XML, SITEMAP.trim_end_matches("/>").as_bytes());
    run(&["check", &web.url("damaged.xml")])
        .failed_with(1, &format!("is no ResourceSync document; the Source Description is {description}"));
}

#[test]
fn a_page_without_a_site_is_said_to_be_html_and_a_server_that_is_away_breaks_no_rule() {
    let web = Web::start();
    web.gives("", "200 OK\r\nContent-Type: text/html", b"<!doctype html><p>A library");
    let page = run(&["check", &web.url("")]).failed_with(1, "rules are broken");
    assert!(page.out.contains("this is an HTML page") && !page.out.contains("DOCTYPE"), "{}", page.out);

    let away = format!("http://{}/", resync_harness::free_address());
    let run = run(&["check", &away]).failed_with(1, "nothing could be read, so no rule was checked");
    assert!(run.out.contains("1 document: nothing could be read, 1 error"), "{}", run.out);
    assert!(!run.out.contains("not conforming") && !run.err.contains("broken"), "{}", run.err);
}

#[test]
fn resources_that_are_not_served_are_one_finding() {
    let (web, place) = (Web::start(), Place::new());
    place.put("c.txt", "x");
    web.publish(&place, XML);
    web.gives("a.txt", "404 Not Found", b"");
    let missing =
        format!("the documents are served and the resources are not ({}: 404 Not Found)", web.url("a.txt"));
    run(&["check", &web.url(DESCRIPTION)]).failed_with(1, &missing);
}

#[test]
fn rs052_a_missing_or_wrong_content_type_is_told() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, "200 OK");
    web.gives(LIST, "200 OK\r\nContent-Type: text/html; charset=utf-8", &place.documents()[LIST]);
    let json = json(&web.url(DESCRIPTION), &[]);
    let told = found(&json).into_iter().filter(|(_, code, _)| code == "RS-052");
    assert_eq!(told.map(|(severity, ..)| severity).collect::<Vec<_>>(), ["warning"; 5]);
}

#[test]
fn a_redirect_is_followed_but_not_in_circles() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    web.gives("moved", &format!("301 Moved Permanently\r\nLocation: {}", web.url(DESCRIPTION)), b"");
    assert_eq!(errors(&json(&web.url("moved"), &[])), []);

    web.gives("circle", "302 Found\r\nLocation: /circle", b"");
    let run = run(&["check", &web.url("circle")]).failed_with(1, "nothing could be read");
    assert!(run.out.contains("too many redirects"), "{}", run.out);
}

#[test]
fn rs042_no_more_is_taken_than_a_document_can_have() {
    let web = Web::start();
    web.gives("endless", XML, &vec![b' '; usize::try_from(MAX_BYTES).unwrap() + 1]);
    let run = run(&["check", &web.url("endless")]).failed_with(1, "nothing could be read");
    assert!(run.out.contains("it is longer than 50.0 MiB"), "{}", run.out);
}

#[test]
fn rs051_what_decompresses_without_an_end_is_refused() {
    let web = Web::start();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(URLSET.as_bytes()).unwrap();
    for _ in 0..64 {
        gzip.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() < 100_000);
    web.gives("bomb.xml.gz", XML, &bomb);
    let run = run(&["check", &web.url("bomb.xml.gz")]).failed_with(1, "rules are broken");
    assert!(
        run.out.contains("error IN-001 Unreadable: ") && run.out.contains("more than 250 "),
        "{}",
        run.out
    );
}

#[test]
fn fn031_the_topic_of_a_channel_is_asked_for_its_links() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    let codes = || errors(&json(&web.url(DESCRIPTION), &[])).into_iter().map(|(code, _)| code);
    let (own, topic) = (web.url(TOPIC), web.url("elsewhere"));
    web.gives_topic(&format!("<{topic}>; rel=\"self\", <{HUB}>; rel=\"hub\""));
    assert_eq!(codes().collect::<Vec<_>>(), ["FN-031"; 2], "by GET and by HEAD");
    web.gives_topic(&format!("<{own}>; rel=\"self\""));
    assert_eq!(codes().collect::<Vec<_>>(), ["FN-031"; 2]);
    web.gives_topic(&format!("<{own}>; rel=\"self\", <http://other.example/>; rel=\"hub\""));
    let told = found(&json(&web.url(DESCRIPTION), &[])).into_iter().filter(|(_, code, _)| code == "FN-062");
    assert_eq!(told.map(|(severity, ..)| severity).collect::<Vec<_>>(), ["warning"; 2]);
    web.gives(TOPIC, "503 Service Unavailable", b"");
    let run = run(&["check", &web.url(CAPABILITIES)]).failed_with(1, "rules are broken");
    assert!(run.out.contains(&format!(": GET {own}: 503 Service Unavailable")), "{}", run.out);
}

#[test]
fn a_check_ends_at_its_deadline_with_what_it_has() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    web.hangs(LIST);
    let arguments = ["check", &web.url(DESCRIPTION), "--deadline", "400ms"];
    let ended = run(&arguments).failed_with(1, "the check could not be completed: it took longer than 400ms");
    assert!(ended.err.contains("--deadline"), "{}", ended.err);
    let verdict = ended.out.lines().last().unwrap();
    assert!(verdict.starts_with("2 documents: not completed, 0 errors, "), "{verdict}");
    assert!(verdict.contains("; ended early; "), "the failure alone says why: {verdict}");
}

#[test]
fn a_check_makes_no_more_requests_than_it_may() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    let arguments = ["check", &web.url(DESCRIPTION), "--json", "--max-requests", "2"];
    let ended = run(&arguments)
        .failed_with(1, "more than 2 requests would be needed; allow more with --max-requests");
    let json: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(json["documents"].as_array().unwrap().len(), 2);
    assert!(json["ended_early"].as_str().unwrap().contains("--max-requests"), "{json}");
    // Five documents, the topics, each twice, and looks at resources that are XML and could make a list an index.
    let enough = ["check", &web.url(DESCRIPTION), "--max-requests", "16"];
    run(&enough).succeeded();
}

#[test]
fn a_check_that_leaves_out_documents_is_not_passed() {
    let place = site();
    let out = place.out();
    let arguments = ["check", text(&out), "--max-documents", "2"];
    let ended = run(&arguments).failed_with(1, "more than 2 documents; allow more with --max-documents");
    let verdict = ended.out.lines().last().unwrap();
    assert!(verdict.starts_with("2 documents: not completed, 0 errors, "), "{verdict}");
    assert!(verdict.contains("; 8 rules not judged everywhere"), "{verdict}");
    let json: Value = serde_json::from_str(&run(&[&arguments[..], &["--json"]].concat()).out).unwrap();
    assert_eq!((&json["conforming"], &json["errors"]), (&false.into(), &0.into()));
    let unjudged = json["rules_not_judged"].as_array().unwrap();
    assert!(
        unjudged.contains(&"RS-055 DocumentUnlisted".into()),
        "what could not be judged is told: {unjudged:?}"
    );
    assert!(json["links_not_followed"].as_u64().unwrap() > 0);
    run(&["check", text(&out), "--max-documents", "5"]).succeeded();
}

#[test]
fn rs104_packages_on_the_web_are_looked_into_as_far_as_they_may_be_fetched() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    let mut sink = FolderSink::open(place.out().join("resync")).unwrap();
    let item = Item { length: Some(1), ..Item::new("http://example.org/0.txt") };
    let dumps = ResourceDumps::new(&Site::new(&web.url("resync")), "2026-01-03T09:00:00Z".parse().unwrap());
    let content = |_: &Item| Ok(Some(&b"0"[..]));
    let published = dumps.write([item].into_iter().map(Ok), content, &mut sink).unwrap();
    for file in fs::read_dir(place.out().join("resync")).unwrap().map(Result::unwrap) {
        if file.path().is_file() {
            let name = file.file_name().into_string().unwrap();
            web.gives(&format!("resync/{name}"), XML, &fs::read(file.path()).unwrap());
        }
    }
    let package = published.documents.iter().find(|name| name.contains(".zip")).unwrap();
    let list = web.url("resync/resourcedump.xml");
    let looked = json(&list, &[]);
    assert_eq!((errors(&looked), &looked["packages_not_examined"]), (vec![], &0.into()));
    let has_manifest = |json: &Value| json.to_string().contains("!/manifest.xml");
    assert!(has_manifest(&looked), "{looked}");

    let none = json(&list, &["--packages", "0"]);
    assert_eq!((&none["conforming"], &none["packages_not_examined"]), (&true.into(), &1.into()));
    assert!(
        !has_manifest(&none) && none["rules_not_judged"].to_string().contains("PackageManifest"),
        "{none}"
    );
    let few = run(&["check", &list, "--packages", "20B"]).failed_with(1, "allow more with --packages");
    assert!(few.out.contains("1 package not examined"), "{}", few.out);

    web.gives(&format!("resync/{package}"), "200 OK\r\nContent-Type: application/zip", b"no archive");
    let codes: Vec<_> = errors(&json(&list, &[])).into_iter().map(|(code, _)| code).collect();
    assert!(codes.contains(&"RS-101".to_owned()) && codes.contains(&"RS-102".to_owned()), "{codes:?}");
}

#[test]
fn the_json_has_the_documented_keys() {
    // Their order is that of the alphabet or of the writing, by a feature that other crates may ask of serde_json.
    let keys = |value: &Value| {
        let keys: std::collections::BTreeSet<_> = value.as_object().unwrap().keys().cloned().collect();
        keys.into_iter().collect::<Vec<_>>().join(" ")
    };
    let json = json(text(&site().out()), &[]);
    assert_eq!(
        keys(&json),
        "conforming documents ended_early errors links_not_followed packages_not_examined pages rules_not_judged unreached versions_damaged warnings"
    );
    let document = &json["documents"][0];
    assert_eq!(
        keys(document),
        "capability errors index kind linked_from reached url violations violations_omitted warnings"
    );
    let violation = &document["violations"][0];
    assert_eq!(keys(violation), "code column detail entry line rule section sentence severity");
    let book =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/source.md")).unwrap();
    for key in [&json, document, violation].map(keys).join(" ").split(' ') {
        assert!(book.contains(&format!("`{key}`")), "{key} is not documented");
    }
}

/// What a person sees: the output on a terminal, made by Python.
fn on_terminal(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let binary = crate::support::program(arguments);
    let mut python = std::process::Command::new("python3");
    python.args(["-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"]);
    python
        .arg(binary.get_program())
        .args(binary.get_args())
        .env_remove("NO_COLOR")
        .envs(variables.iter().copied());
    let output = python.stdin(std::process::Stdio::null()).output();
    let output = output.expect("python3 is the terminal: `tests/run` installs it");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_terminal_gets_progress_and_colour_unless_no_color_says_otherwise() {
    let place = site();
    let out = place.out();
    let arguments = ["check", text(&out)];
    let seen = on_terminal(&arguments, &[]);
    assert!(
        seen.contains("\x1b[33mwarning RS-061 ShapeAdvised\x1b[0m") && seen.contains("checking documents ["),
        "{seen:?}"
    );
    assert!(seen.contains(" documents/s, ") && seen.contains(" left, …"), "rate and time left: {seen:?}");
    let plain = on_terminal(&arguments, &[("NO_COLOR", "1")]);
    assert!(plain.contains(": warning RS-061 ShapeAdvised: ") && !plain.contains("\x1b[33m"), "{plain:?}");
    assert!(!run(&arguments).out.contains('\x1b'));
}
