//! `resync-source serve` where versions are kept: TimeGates, TimeMaps and mementos as bytes on a socket (RFC 7089).
//!
//! Each build lives by a clock of its own, so that there are days between versions.

use std::{
    fmt::Write as _,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

use resync_core::{
    datetime::DateTime,
    digest::{Algorithm, Digest},
    memento::HttpDate,
};
use resync_harness::{Clock, free_address};
use resync_publisher::prelude::{BaseUrl, Item, Keep, Source, VersionRules};
use serde_json::Value;

use crate::{
    configured::{configured, one_set},
    support::{Answer, BASE, Place, Run, Server, judge_site, program, run, text},
    versions::stored,
};

const A: &str = "http://source.example/data/a.txt";
const B: &str = "http://source.example/data/sub/b%20c.xml";
const PREFIX: &str = "/data/resync/versions/";
const DAY: i64 = 86_400;

/// A Source that keeps its versions, and whose builds are days apart.
struct Past {
    place: Place,
    config: PathBuf,
    clock: Clock,
    _clockwork: tempfile::TempDir,
}

impl Past {
    fn at(base: &str) -> Self {
        let (place, clockwork) = (Place::new(), tempfile::tempdir().unwrap());
        let config = configured(&place, &one_set(base, "[versions]\nkeep = \"always\"\n"));
        Self { config, clock: Clock::new(clockwork.path()), place, _clockwork: clockwork }
    }

    /// A build so many days from now.
    fn build_on(&self, day: i64) {
        self.clock.jump(day * DAY);
        let arguments = ["build", "--config", text(&self.config)];
        let run = Run::from(program(&arguments).envs(self.clock.environment()).output().unwrap());
        judge_site(&arguments);
        run.succeeded();
    }
}

/// Four days: `a.txt` is one, two, deleted, and four; the other file is deleted on the last.
fn four_days() -> (Past, Server) {
    let past = Past::at(BASE);
    past.place.put("a.txt", "one");
    past.build_on(0);
    past.place.put("a.txt", "two!");
    past.build_on(1);
    past.place.remove("a.txt");
    past.build_on(2);
    past.place.put("a.txt", "four4");
    past.place.remove("sub/b c.xml");
    past.build_on(3);
    let server = Server::start(&past.place);
    (past, server)
}

/// One line of a TimeMap.
#[derive(Debug)]
struct Listed {
    uri: String,
    date: String,
}

impl Listed {
    /// As a request names it.
    fn path(&self) -> &str {
        self.uri.strip_prefix("http://source.example").unwrap()
    }
}

/// The mementos of a TimeMap, read as its text is written.
fn listed(server: &Server, original: &str) -> Vec<Listed> {
    listed_at(server, PREFIX, original)
}

fn listed_at(server: &Server, prefix: &str, original: &str) -> Vec<Listed> {
    let answer = server.get(&format!("{prefix}timemap/link/{original}"));
    assert_eq!(answer.status, 200);
    let text = String::from_utf8(answer.body).unwrap();
    let memento = |line: &str| {
        let (uri, rest) = line.strip_prefix('<')?.split_once(">; rel=\"memento\"; datetime=\"")?;
        Some(Listed { uri: uri.to_owned(), date: rest.split('"').next()?.to_owned() })
    };
    text.lines().filter_map(memento).collect()
}

/// The TimeGate of an original at a moment.
fn asked(server: &Server, original: &str, date: &str) -> Answer {
    server.ask("GET", &format!("{PREFIX}{original}"), &format!("Accept-Datetime: {date}\r\n"))
}

/// So many days from now, and half a day.
fn noon_of(day: i64) -> String {
    let millis = DateTime::now().unix_millis() + (day * DAY + DAY / 2) * 1000;
    HttpDate::from(DateTime::from_unix_millis(millis).unwrap()).to_string()
}

#[test]
fn mem022_mem023_mem024_mem025_mem026_a_time_gate_leads_to_the_version_of_then_and_names_its_neighbours() {
    let (_past, server) = four_days();
    let versions = listed(&server, A);
    assert_eq!(versions.len(), 4);
    let gate = asked(&server, A, &noon_of(1));
    assert_eq!((gate.status, gate.header("location")), (302, versions[1].uri.as_str()));
    assert_eq!((gate.header("vary"), gate.header("memento-datetime")), ("accept-datetime", ""));
    let base = "http://source.example/data/resync/versions/";
    let [first, second, third, last] = [0, 1, 2, 3].map(|index| &versions[index]);
    let links = format!(
        "<{A}>; rel=\"original\", <{base}{A}>; rel=\"timegate\", \
         <{base}timemap/link/{A}>; rel=\"timemap\"; type=\"application/link-format\", \
         <{}>; rel=\"first prev memento\"; datetime=\"{}\", <{}>; rel=\"memento\"; datetime=\"{}\", \
         <{}>; rel=\"next memento\"; datetime=\"{}\", <{}>; rel=\"last memento\"; datetime=\"{}\"",
        first.uri, first.date, second.uri, second.date, third.uri, third.date, last.uri, last.date
    );
    assert_eq!(gate.header("link"), links);

    let head = server.ask("HEAD", &format!("{PREFIX}{A}"), &format!("Accept-Datetime: {}\r\n", noon_of(1)));
    assert_eq!((head.status, head.body.len()), (302, 0));
    for name in ["location", "vary", "link", "content-length"] {
        assert_eq!(head.header(name), gate.header(name), "{name}");
    }
    let led_to = |date: &str| asked(&server, A, date).header("location").to_owned();
    assert_eq!(led_to(&noon_of(-9)), first.uri, "before the first");
    assert_eq!(led_to(&second.date), second.uri, "at its very second");
    assert_eq!(led_to(&noon_of(99)), last.uri);
    assert_eq!(server.get(&format!("{PREFIX}{A}")).header("location"), last.uri, "without a moment");
}

#[test]
fn mem028_mem029_a_memento_has_the_bytes_of_then_for_good_and_does_not_negotiate() {
    let (_past, server) = four_days();
    let second = &listed(&server, A)[1];
    let memento = server.get(second.path());
    assert_eq!((memento.status, memento.body.as_slice()), (200, &b"two!"[..]));
    assert_eq!(memento.header("memento-datetime"), second.date);
    assert_eq!((memento.header("content-type"), memento.header("vary")), ("text/plain", ""));
    assert!(memento.header("cache-control").contains("immutable"));
    assert!(memento.header("link").starts_with(&format!("<{A}>; rel=\"original\", <")), "{memento:?}");
    for relation in ["timegate", "timemap", "first prev memento", "next memento", "last memento"] {
        assert!(memento.header("link").contains(&format!("; rel=\"{relation}\"")), "{relation}");
    }
    let ask = |headers: &str| server.ask("GET", second.path(), headers);
    assert_eq!(ask(&format!("Accept-Datetime: {}\r\n", noon_of(0))).body, b"two!");
    assert_eq!(ask("Accept-Datetime: nonsense\r\n").status, 200, "it is not looked at");
    let range = ask("Range: bytes=1-2\r\n");
    assert_eq!((range.status, range.body.as_slice()), (206, &b"wo"[..]));
    let known = ask(&format!("If-None-Match: {}\r\n", memento.header("etag")));
    assert_eq!((known.status, known.body.len()), (304, 0));
    let head = server.ask("HEAD", second.path(), "");
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "4", 0));
    assert_eq!(head.header("memento-datetime"), second.date);
}

#[test]
fn mem020_the_layout_is_that_of_web_archives_and_a_merged_slash_makes_no_difference() {
    let (_past, server) = four_days();
    let first = &listed(&server, A)[0];
    let raw = first.path().replacen(&format!("/{A}"), &format!("id_/{A}"), 1);
    let merged = first.path().replacen("http://", "http:/", 1);
    for path in [first.path(), &raw, &merged] {
        assert_eq!(server.get(path).body, b"one", "{path}");
    }
    assert_eq!(server.get(&format!("{PREFIX}http:/source.example/data/a.txt")).status, 302);
    let escaped = asked(&server, "HTTP://Source.Example:80/data/%61.txt", &noon_of(0));
    assert_eq!(escaped.header("location"), first.uri, "it is the same resource");
    assert_eq!(server.get(&format!("{PREFIX}{A}?page=2")).status, 404, "a query belongs to the original");
}

#[test]
fn mem021_a_resource_names_its_time_gate_and_time_map_and_so_does_one_that_is_no_more() {
    let (past, server) = four_days();
    let links = |original: &str| {
        format!(
            "<{BASE}/resync/versions/{original}>; rel=\"timegate\", \
             <{BASE}/resync/versions/timemap/link/{original}>; rel=\"timemap\"; type=\"application/link-format\""
        )
    };
    let there = server.get("/data/a.txt");
    let covered = format!("<{BASE}/resync/capabilitylist.xml>; rel=\"resourcesync\", ");
    assert_eq!((there.status, there.header("link")), (200, (covered + &links(A)).as_str()));
    let former = server.get("/data/sub/b%20c.xml");
    assert_eq!((former.status, former.header("link")), (404, links(B).as_str()));
    assert_eq!(server.get("/data/never.txt").header("link"), "");
    past.place.put("new.txt", "new");
    assert!(!server.get("/data/new.txt").header("link").contains("timegate"), "no build has seen it");
}

#[test]
fn mem027_bad_input_is_refused_in_words_and_nothing_is_fetched_from_anywhere() {
    let (_past, server) = four_days();
    for date in ["yesterday", "2024-02-01T00:00:00Z", "Thursday, 01-Feb-24 00:00:00 GMT", ""] {
        let answer = asked(&server, A, date);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (400, "text/plain; charset=utf-8"),
            "{date}"
        );
    }
    let twice = format!("Accept-Datetime: {0}\r\nAccept-Datetime: {0}\r\n", noon_of(0));
    assert_eq!(server.ask("GET", &format!("{PREFIX}{A}"), &twice).status, 400);

    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let foreign = format!("http://{}/a.txt", stranger.local_addr().unwrap());
    for original in [foreign.as_str(), "http://source.example/data/unknown.txt", "ftp://source.example/a", ""]
    {
        for kind in ["", "timemap/link/", "20240601120000/", "20240601120000id_/"] {
            let answer = server.get(&format!("{PREFIX}{kind}{original}"));
            assert_eq!(answer.status, 404, "{kind}{original}");
            assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8", "{kind}{original}");
        }
    }
    assert!(stranger.accept().is_err(), "nobody came");
    assert_eq!(server.ask("POST", &format!("{PREFIX}{A}"), "").status, 405);
}

#[test]
fn mem030_digits_that_are_no_versions_moment_lead_to_the_version_of_then() {
    let (_past, server) = four_days();
    let versions = listed(&server, A);
    let leads = |stamp: &str| {
        let answer = server.get(&format!("{PREFIX}{stamp}/{A}"));
        assert_eq!((answer.status, answer.header("memento-datetime"), answer.header("vary")), (302, "", ""));
        assert!(answer.header("link").contains("rel=\"original\""));
        answer.header("location").to_owned()
    };
    assert_eq!(leads("19990101000000"), versions[0].uri);
    assert_eq!(leads("99990101000000"), versions[3].uri);
    let own = versions[1].path().strip_prefix(PREFIX).unwrap().split('/').next().unwrap();
    assert_eq!(leads(&format!("{own}-7")), versions[1].uri, "there is no such one in its second");
}

#[test]
fn mem028_mem030_a_version_that_an_interrupted_run_may_add_is_unknown_and_leads_to_no_other_one() {
    let (past, server) = four_days();
    let status = |stamp: &str| server.get(&format!("{PREFIX}{stamp}/{A}")).status;
    assert_eq!(status("99990101000000"), 302);
    fs::write(past.place.out().join(".resync-source/plan.json"), "{}").unwrap();
    assert_eq!((status("99990101000000"), status("19990101000000")), (404, 302));
}

#[test]
fn mem031_a_deletion_is_gone_with_a_date_and_what_retention_removed_is_gone_without() {
    let (past, server) = four_days();
    let versions = listed(&server, A);
    let deleted = server.get(versions[2].path());
    assert_eq!((deleted.status, deleted.header("memento-datetime")), (410, versions[2].date.as_str()));
    assert!(deleted.header("link").contains("rel=\"prev memento\"") && !deleted.body.is_empty());
    assert_eq!(asked(&server, A, &noon_of(2)).header("location"), versions[2].uri);

    fs::remove_dir_all(past.place.out().join(".resync-source/versions")).unwrap();
    let removed = server.get(versions[1].path());
    assert_eq!((removed.status, removed.header("memento-datetime")), (410, ""));
    assert!(removed.header("link").contains("rel=\"timegate\""));
    assert_eq!(removed.header("cache-control"), "", "it is not gone for good in caches");
}

#[test]
fn mem010_a_file_of_another_length_has_not_the_bytes_of_a_version() {
    let (past, server) = four_days();
    let second = &listed(&server, A)[1];
    let file = stored(&past.place.out(), &Digest::of(Algorithm::Sha256, b"two!"));
    let status = || server.get(second.path()).status;
    for (bytes, expected) in [("two!", 200), ("two", 410), ("", 410), ("two!!", 410)] {
        fs::remove_file(&file).unwrap();
        fs::write(&file, bytes).unwrap();
        assert_eq!(status(), expected, "{bytes:?}");
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(status(), 410, "there is none");
    // What cannot be opened may be there.
    std::os::unix::fs::symlink(&file, &file).unwrap();
    assert_eq!(status(), 500, "it must not look as if it were gone for good");
}

#[test]
fn mem031_what_is_forgotten_is_gone_without_a_date_and_all_other_versions_keep_their_uris() {
    let (past, server) = four_days();
    let versions = listed(&server, A);
    let uris = |listed: &[Listed]| listed.iter().map(|one| one.uri.clone()).collect::<Vec<_>>();
    let second = versions[1].date.parse::<HttpDate>().unwrap().datetime().to_string();
    run(&["forget", A, "--at", &second, "--config", text(&past.config)]).succeeded();
    let gone = server.get(versions[1].path());
    assert_eq!((gone.status, gone.header("memento-datetime")), (410, ""));
    assert_eq!(gone.header("cache-control"), "", "it is not gone for good in caches");
    assert!(gone.header("link").contains("rel=\"timegate\""));
    assert_eq!(uris(&listed(&server, A)), uris(&versions));
    assert_eq!(asked(&server, A, &noon_of(1)).header("location"), versions[1].uri, "no other is passed off");
    for (index, bytes) in [(0, "one"), (3, "four4")] {
        assert_eq!(server.get(versions[index].path()).body, bytes.as_bytes());
    }
    let deleted = server.get(versions[2].path());
    assert_eq!((deleted.status, deleted.header("memento-datetime")), (410, versions[2].date.as_str()));
    assert_eq!(server.get("/data/a.txt").body, b"four4", "the file itself is published");
}

#[test]
fn mem015_mem032_of_two_versions_in_one_second_each_has_its_uri_and_the_later_is_led_to() {
    const LEAF: &str = "http://source.example/data/leaf";
    let prefix = "/data/plants/resync/versions/";
    let texts = ["green", "yellow", "red"];
    let item = |text: &str| Item::new(LEAF).content(text.as_bytes());
    let place = Place::new();
    let base: BaseUrl = "http://source.example/data/".parse().unwrap();
    let rules = VersionRules { keep: Keep::Always, ..VersionRules::default() };
    // The records of a program, which keeps what they were.
    let set = Source::new(place.out(), base).set("plants").unwrap().keep_versions(rules, move |wanted| {
        Ok(texts.into_iter().find(|text| item(text).hashes == wanted.hashes).map(str::as_bytes))
    });
    set.list_all([item(texts[0])]).unwrap();
    // What is published together has one moment.
    set.updated(item(texts[1])).unwrap();
    set.updated(item(texts[2])).unwrap();
    set.publish().unwrap();

    let server = Server::start(&place);
    let versions = listed_at(&server, prefix, LEAF);
    assert_eq!(versions.len(), 3);
    for (version, text) in versions.iter().zip(texts) {
        assert_eq!(server.get(version.path()).body, text.as_bytes(), "{version:?}");
    }
    let [earlier, later] = [1, 2].map(|index| &versions[index]);
    assert!(earlier.date == later.date && earlier.uri != later.uri, "{versions:?}");
    let at_it = format!("Accept-Datetime: {}\r\n", later.date);
    assert_eq!(server.ask("GET", &format!("{prefix}{LEAF}"), &at_it).header("location"), later.uri);
    let elsewhere = server.get("/data/leaf");
    assert_eq!(elsewhere.status, 404, "another server has the records");
    assert!(elsewhere.header("link").contains("rel=\"timegate\""), "{elsewhere:?}");
}

#[test]
fn mem033_a_time_map_is_link_format_with_original_time_gate_itself_and_each_memento_ascending() {
    let (_past, server) = four_days();
    let path = format!("{PREFIX}timemap/link/{A}");
    let answer = server.ask("GET", &path, &format!("Accept-Datetime: {}\r\n", noon_of(0)));
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/link-format"));
    assert_eq!(answer.header("vary"), "", "it does not negotiate");
    let versions = listed(&server, A);
    let base = "http://source.example/data/resync/versions/";
    let mut expected = format!(
        "<{A}>; rel=\"original\",\n<{base}{A}>; rel=\"timegate\",\n\
         <{base}timemap/link/{A}>; rel=\"self\"; type=\"application/link-format\"; from=\"{}\"; until=\"{}\"",
        versions[0].date, versions[3].date
    );
    for Listed { uri, date } in &versions {
        write!(expected, ",\n<{uri}>; rel=\"memento\"; datetime=\"{date}\"").unwrap();
    }
    assert_eq!(str::from_utf8(&answer.body).unwrap(), expected + "\n");
    let moments: Vec<HttpDate> = versions.iter().map(|version| version.date.parse().unwrap()).collect();
    assert!(moments.is_sorted());
    let head = server.ask("HEAD", &path, "");
    assert_eq!((head.status, head.header("content-length")), (200, answer.header("content-length")));
}

#[test]
fn mem022_mem028_mem033_a_check_tries_what_the_lists_link_to() {
    let address = free_address();
    let past = Past::at(&format!("http://{address}"));
    past.build_on(0);
    past.place.put("a.txt", "changed");
    past.build_on(1);
    let server = Server::start_at(&past.place, address);
    let checked = || -> Value {
        let run = run(&["check", &format!("http://{address}/"), "--json"]);
        serde_json::from_str(&run.out).unwrap_or_else(|_| panic!("{}", run.err))
    };
    let about_versions = |json: &Value| json.to_string().contains("MEM-0");
    let json = checked();
    assert!(json["conforming"] == true && !about_versions(&json), "{json}");
    drop(server);

    // The same files by a server that knows nothing of versions.
    let state = past.place.out().join(".resync-source");
    hide_versions(&state);
    let _server = Server::start_at(&past.place, address);
    let json = checked();
    for code in ["MEM-022", "MEM-028", "MEM-033"] {
        assert!(json["conforming"] == false && json.to_string().contains(code), "{code}: {json}");
    }
}

/// Takes the versions out of the state.
fn hide_versions(state: &Path) {
    let path = state.join("state.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let kept = json.as_object_mut().unwrap().remove("versions");
    assert!(kept.is_some(), "{json}");
    fs::write(path, json.to_string()).unwrap();
}
