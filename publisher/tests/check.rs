//! `resync-source check`: the binary on sites that are as they should be, and on sites each broken in one way.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[allow(dead_code, reason = "shared with the other tests of the binary")]
#[path = "source/support.rs"]
mod support;

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use resync_core::xml::MAX_BYTES;
use serde_json::Value;
use support::{BASE, Place, Run, run, text};

const HUB: &str = "http://hub.example/websub/";
const DESCRIPTION: &str = ".well-known/resourcesync";
const CAPABILITIES: &str = "resync/capabilitylist.xml";
const LIST: &str = "resync/resourcelist.xml";
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
    assert!(lines[1].starts_with("  warning RS-061 at line "), "{}", run.out);
    let verdict = lines.last().unwrap();
    assert!(verdict.starts_with("3 documents: conforming, with "), "{verdict}");
    assert_eq!(run.err, "");
}

#[test]
fn the_json_names_every_document_its_kind_and_the_place_of_each_violation() {
    let place = site_with(LIST, |text| text.replace("sha-256:", "sha-256:no"));
    let json = json(text(&place.out()), &[]);
    let kinds: Vec<_> =
        json["documents"].as_array().unwrap().iter().map(|document| &document["kind"]).collect();
    assert_eq!(kinds, ["Source Description", "Capability List", "Resource List"]);
    let list = &json["documents"][2];
    assert_eq!(list["linked_from"], format!("{BASE}/{CAPABILITIES}"));
    assert_eq!((&list["capability"], &list["index"]), (&"resourcelist".into(), &false.into()));
    assert_eq!((&list["errors"], &list["warnings"]), (&0.into(), &2.into()));
    let violation = &list["violations"][0];
    let words = ["severity", "code", "rule", "section"].map(|name| violation[name].as_str().unwrap());
    assert_eq!(words, ["warning", "RS-035", "HashUnknown", "C7"]);
    assert!(violation["line"].as_u64().unwrap() > 1 && violation["column"].as_u64().unwrap() > 1);
    assert_eq!(violation["entry"], 1);
    assert!(!violation["sentence"].as_str().unwrap().is_empty());
    assert!(violation["detail"].as_str().unwrap().contains("sha-256:no"), "{violation}");
}

#[test]
fn in002_a_document_that_is_missing_is_told_with_what_leads_to_it() {
    let place = site();
    fs::remove_file(place.out().join(LIST)).unwrap();
    let run = check(&place.out(), &[]).failed_with(1, "error: rules are broken");
    assert!(
        run.out.contains(&format!("{BASE}/{LIST} (linked from {BASE}/{CAPABILITIES})\n  error IN-002: "))
    );
    assert!(
        run.out.ends_with("warnings\n") && run.out.contains("3 documents: not conforming, 1 error, "),
        "{}",
        run.out
    );
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
    let place = site_with(CAPABILITIES, |text| text.replace("\"resourcelist\"", "\"changelist\""));
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
    let said = said.failed_with(1, "rules are broken");
    assert!(said.out.starts_with(&format!("https://elsewhere.example/{DESCRIPTION} ")), "{}", said.out);

    fs::remove_file(place.out().join(CAPABILITIES)).unwrap();
    check(&place.out(), &[]).failed_with(64, "--base-url");
}

#[test]
fn rs103_the_manifest_in_a_package_is_compared_with_its_copy() {
    let place = site_with(CAPABILITIES, |text| text.replace("\"resourcelist\"", "\"resourcedump\""));
    let up = format!(r#"<rs:ln rel="up" href="{BASE}/{CAPABILITIES}"/>"#);
    let at = r#"at="2026-01-03T09:00:00Z""#;
    let dump = format!(
        r#"{URLSET}<rs:md capability="resourcedump" {at}/>{up}<url><loc>{BASE}/1.zip</loc>
           <rs:md type="application/zip" length="400"/>
           <rs:ln rel="contents" href="{BASE}/1.xml" type="application/xml"/></url></urlset>"#
    );
    let manifest = |path: &str| {
        format!(
            r#"{URLSET}<rs:md capability="resourcedump-manifest" {at}/>{up}<url><loc>{BASE}/a</loc>
               <rs:md path="{path}" type="text/plain"/></url></urlset>"#
        )
    };
    let put = |name: &str, content: &[u8]| fs::write(place.out().join(name), content).unwrap();
    let pack = |name: &str| {
        let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(manifest("/a").as_bytes()).unwrap();
        put("1.zip", zip.finish().unwrap().get_ref());
    };
    put(LIST, dump.as_bytes());
    put("1.xml", manifest("/a").as_bytes());
    pack("manifest.xml");
    assert_eq!(errors(&json(text(&place.out()), &[])), []);

    put("1.xml", manifest("/b").as_bytes());
    let codes = errors(&json(text(&place.out()), &[]));
    assert!(codes.iter().any(|(code, _)| code == "RS-103"), "{codes:?}");

    pack("content.xml");
    let run = check(&place.out(), &[]).failed_with(1, "rules are broken");
    assert!(run.out.contains("1.zip: it has no manifest.xml at its top"), "{}", run.out);
}

// --- files, and folders that are no site ---

#[test]
fn a_file_is_looked_at_alone_compressed_or_not() {
    let place = site();
    let list = place.out().join(LIST);
    let one = check(&list, &[]).succeeded();
    assert!(one.out.ends_with("1 document: conforming\n"), "{}", one.out);

    let broken = place.out().join("broken.xml.gz");
    let document = format!(r#"{URLSET}<rs:md capability="changelist"/></urlset>"#);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(document.as_bytes()).unwrap();
    fs::write(&broken, gzip.finish().unwrap()).unwrap();
    let run = check(&broken, &[]).failed_with(1, "rules are broken");
    assert!(run.out.starts_with(&format!("{} (Change List)\n  error RS-0", text(&broken))), "{}", run.out);
    assert!(run.out.contains("  error RS-060 at line 1, column "), "{}", run.out);
    assert!(run.out.contains("  error RS-053 at line 1, column "), "{}", run.out);
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
    check(&place.collection(), &[]).failed_with(1, "holds no ResourceSync document");
}

#[test]
fn documents_that_no_source_description_leads_to_are_checked_against_each_other_where_their_urls_are_known() {
    let place = site();
    fs::remove_dir_all(place.out().join(".well-known")).unwrap();
    let json = json(text(&place.out()), &[]);
    assert_eq!(errors(&json), [error("IN-002", DESCRIPTION)]);
    assert_eq!(json["documents"].as_array().unwrap().len(), 3);
}

#[test]
fn what_cannot_be_checked_is_refused_by_cause() {
    run(&["check"]).failed_with(2, "Usage");
    run(&["check", "ftp://source.example/"]).failed_with(64, "`ftp`");
    run(&["check", "http://me:hunter2@source.example/"]).failed_with(64, "user name or password");
    run(&["check", "no/such/file.xml"]).failed_with(1, "cannot read `no/such/file.xml`");
    let place = site();
    check(&place.out(), &["--base-url", "elsewhere"]).failed_with(64, "no absolute URL");
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
                answer(&stream.unwrap(), &answers);
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

    /// Serves what was built for this address.
    fn publish(&self, place: &Place, head: &str) {
        place.build_at(&self.url(""), &["--hub", HUB]).succeeded();
        for (path, bytes) in place.documents() {
            self.gives(&path, head, &bytes);
        }
    }
}

fn answer(mut stream: &TcpStream, answers: &Answers) {
    let lines: Vec<_> =
        BufReader::new(stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty()).collect();
    let path = lines[0].split(' ').nth(1).unwrap();
    let nothing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec();
    let answer = answers.lock().unwrap().get(path).cloned().unwrap_or(nothing);
    // A client that has read enough may be gone.
    stream.write_all(&answer).ok();
}

const XML: &str = "200 OK\r\nContent-Type: application/xml";

#[test]
fn a_site_on_the_web_is_followed_from_its_source_description_to_its_lists() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    let json = json(&web.url(DESCRIPTION), &[]);
    assert_eq!(errors(&json), []);
    assert_eq!(json["documents"].as_array().unwrap().len(), 3);
    assert!(found(&json).iter().all(|(_, code, _)| code != "RS-052"));

    web.gives(LIST, "410 Gone", b"");
    let run = run(&["check", &web.url(CAPABILITIES)]).failed_with(1, "rules are broken");
    assert!(run.out.contains(": 410 Gone\n"), "{}", run.out);
}

#[test]
fn rs052_a_missing_or_wrong_content_type_is_told() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, "200 OK");
    web.gives(LIST, "200 OK\r\nContent-Type: text/html; charset=utf-8", &place.documents()[LIST]);
    let json = json(&web.url(DESCRIPTION), &[]);
    let told = found(&json).into_iter().filter(|(_, code, _)| code == "RS-052");
    assert_eq!(told.map(|(severity, ..)| severity).collect::<Vec<_>>(), ["warning"; 3]);
}

#[test]
fn a_redirect_is_followed_but_not_in_circles() {
    let (web, place) = (Web::start(), Place::new());
    web.publish(&place, XML);
    web.gives("moved", &format!("301 Moved Permanently\r\nLocation: {}", web.url(DESCRIPTION)), b"");
    assert_eq!(errors(&json(&web.url("moved"), &[])), []);

    web.gives("circle", "302 Found\r\nLocation: /circle", b"");
    let run = run(&["check", &web.url("circle")]).failed_with(1, "rules are broken");
    assert!(run.out.contains("too many redirects"), "{}", run.out);
}

#[test]
fn rs042_no_more_is_taken_than_a_document_can_have() {
    let web = Web::start();
    web.gives("endless", XML, &vec![b' '; usize::try_from(MAX_BYTES).unwrap() + 1]);
    let run = run(&["check", &web.url("endless")]).failed_with(1, "rules are broken");
    assert!(run.out.contains("it is longer than 52428800 bytes"), "{}", run.out);
}
