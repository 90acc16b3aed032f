//! What `resync-source` wrote and sent keeps the duties of the specification. Where one of them is broken in it, this sees it, too; that
//! `check` then names the rule is told by `mutations`.

use std::{fs, path::PathBuf};

use resync_core::{
    datetime::DateTime,
    document::{Capability, Change, Entry, RawDocument, Relation, Root},
    xml,
};

use crate::support::{Heard, Hub, Place, run, text};

/// A duty on one kind of document.
struct Duty {
    number: &'static str,
    capability: Capability,
    is_kept: fn(&str, &RawDocument) -> bool,
    /// Breaks it.
    breach: fn(&str) -> String,
}

fn duty(
    number: &'static str,
    capability: Capability,
    is_kept: fn(&str, &RawDocument) -> bool,
    breach: fn(&str) -> String,
) -> Duty {
    Duty { number, capability, is_kept, breach }
}

fn of_documents() -> [Duty; 8] {
    [
        duty(
            "RS-010",
            Capability::ResourceList,
            |text, _| {
                beginning(text).matches("<rs:md ").count() == 1
                    && beginning(text).contains("capability=\"resourcelist\"")
            },
            |text| without(text, " capability=\"", "\""),
        ),
        duty(
            "RS-030",
            Capability::ChangeList,
            |_, list| is_in_its_interval(list),
            |text| with(text, "datetime", "2001-01-01T00:00:00Z"),
        ),
        duty(
            "RS-030",
            Capability::ChangeDumpManifest,
            |_, manifest| manifest.header.metadata.until.is_some() && is_in_its_interval(manifest),
            |text| with(text, "datetime", "2999-01-01T00:00:00Z"),
        ),
        duty(
            "RS-033",
            Capability::ChangeList,
            |_, list| {
                list.entries
                    .iter()
                    .map(Entry::change)
                    .eq([Change::Updated, Change::Created, Change::Deleted].map(Some))
            },
            |text| with(text, "change", "changed"),
        ),
        duty(
            "RS-037",
            Capability::ResourceList,
            |_, list| {
                let types = list.entries.iter().map(|entry| entry.metadata.as_ref()?.media_type.as_deref());
                types.eq([Some("text/plain"), Some("application/json")])
            },
            |text| with(text, "type", "text"),
        ),
        duty(
            "RS-049",
            Capability::CapabilityList,
            |_, list| list.entries.iter().all(|entry| entry.lastmod.is_none()),
            |text| text.replacen("</loc>", "</loc><lastmod>2026-01-01T00:00:00Z</lastmod>", 1),
        ),
        duty(
            "RS-144",
            Capability::ChangeDumpManifest,
            |_, manifest| {
                let is_packed =
                    |entry: &Entry| entry.metadata.as_ref().is_some_and(|metadata| metadata.path.is_some());
                let entries = manifest.entries.iter();
                entries.map(|entry| (entry.change(), is_packed(entry))).eq([
                    (Some(Change::Updated), true),
                    (Some(Change::Created), true),
                    (Some(Change::Deleted), false),
                ])
            },
            |text| without(text, " path=\"", "\""),
        ),
        duty(
            "FN-060",
            Capability::CapabilityList,
            |_, list| {
                let of_framework =
                    |entry: &&Entry| entry.capability() == Some(&Capability::FrameworkNotification);
                let channel = list.entries.iter().find(of_framework).unwrap();
                channel.link(&Relation::Hub).is_some_and(|hub| hub.href.ends_with("/websub/"))
            },
            |text| {
                let (before, after) = text.rsplit_once("<rs:ln rel=\"hub\"").unwrap();
                format!("{before}{}", after.split_once("/>").unwrap().1)
            },
        ),
    ]
}

fn of_notifications() -> [Duty; 4] {
    [
        duty(
            "RS-030",
            Capability::ChangeNotification,
            |_, notification| {
                notification.header.metadata.until.is_some() && is_in_its_interval(notification)
            },
            |text| with(text, "datetime", "2999-01-01T00:00:00Z"),
        ),
        duty(
            "CN-006",
            Capability::ChangeNotification,
            |_, notification| notification.header.root == Root::UrlSet,
            as_index,
        ),
        duty(
            "CN-012",
            Capability::ChangeNotification,
            |_, notification| times(notification).is_sorted() && notification.entries.len() == 3,
            |text| {
                let from = text.split_once(" from=\"").unwrap().1.split_once('"').unwrap().0;
                let (before, last) = text.rsplit_once(" datetime=\"").unwrap();
                format!("{before} datetime=\"{from}\"{}", last.split_once('"').unwrap().1)
            },
        ),
        duty(
            "FN-020",
            Capability::FrameworkNotification,
            |_, notification| notification.header.root == Root::UrlSet,
            as_index,
        ),
    ]
}

#[test]
fn rs010_rs030_rs033_rs037_rs049_rs144_cn006_cn012_fn020_fn060_what_the_source_wrote_keeps_each_and_a_breach_is_seen()
 {
    let place = Place::new();
    let written = written(&place);
    for Duty { number, capability, is_kept, breach } in of_documents().into_iter().chain(of_notifications()) {
        let of_kind = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap();
            let document = read(&text);
            let is_single = document.header.root == Root::UrlSet && !document.entries.is_empty();
            (is_single && document.header.capability() == Some(&capability)).then_some((text, document))
        };
        let (text, document) = written
            .iter()
            .rev()
            .find_map(of_kind)
            .unwrap_or_else(|| panic!("{number}: no {capability} was written"));
        assert!(is_kept(&text, &document), "{number}: {text}");
        let broken = breach(&text);
        assert!(!is_kept(&broken, &read(&broken)), "{number}: {broken}");
    }
}

/// Whatever can be made of it.
fn read(text: &str) -> RawDocument {
    xml::read(text.as_bytes()).unwrap().document
}

/// Everything that a Source writes and sends when a file is created, another updated and a third deleted.
fn written(place: &Place) -> Vec<PathBuf> {
    let hub = Hub::start();
    place.remove("sub/b c.xml");
    place.put("z.txt", "goes");
    place.build(&["--hub", &hub.url()]).succeeded();
    run(&["dump", "--changes", "--out", text(&place.out())]).succeeded();
    place.put("a.txt", "changed");
    place.put("b.json", "{}");
    place.remove("z.txt");
    run(&["dump", "--changes", "--out", text(&place.out())]).succeeded();
    place.notify().succeeded();
    let sent: Vec<_> = [hub.next_of_any(), hub.next_of_any()]
        .into_iter()
        .enumerate()
        .map(|(number, Heard { body, .. })| {
            let path = place.out().join(format!("sent-{number}.xml"));
            fs::write(&path, body).unwrap();
            path
        })
        .collect();
    let documents = fs::read_dir(place.out().join("resync")).unwrap().map(|entry| entry.unwrap().path());
    documents.filter(|path| path.extension().is_some_and(|end| end == "xml")).chain(sent).collect()
}

/// What stands before the first entry.
fn beginning(text: &str) -> &str {
    text.split_once("<url>").unwrap().0
}

fn times(document: &RawDocument) -> impl Iterator<Item = DateTime> {
    document.entries.iter().map(|entry| entry.metadata.as_ref().unwrap().datetime.unwrap())
}

/// Both ends are within; a list that is open has no last one.
fn is_in_its_interval(document: &RawDocument) -> bool {
    let interval = &document.header.metadata;
    times(document)
        .all(|time| Some(time) >= interval.from && interval.until.is_none_or(|until| time <= until))
}

/// With another value of the first attribute of this name.
fn with(text: &str, attribute: &str, value: &str) -> String {
    let (before, after) = text.split_once(&format!(" {attribute}=\"")).unwrap();
    format!("{before} {attribute}=\"{value}\"{}", after.split_once('"').unwrap().1)
}

/// Without the first piece that begins and ends so.
fn without(text: &str, begin: &str, end: &str) -> String {
    let (before, after) = text.split_once(begin).unwrap();
    format!("{before}{}", after.split_once(end).unwrap().1)
}

fn as_index(text: &str) -> String {
    [("urlset", "sitemapindex"), ("<url>", "<sitemap>"), ("</url>", "</sitemap>")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}
