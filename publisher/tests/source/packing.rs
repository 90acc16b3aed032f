//! What the documents that `resync-source` wrote tell of packages, of what is in them, and of archives that are full.

use std::fs;

use resync_core::{
    datetime::DateTime,
    document::{Change, Document, Entry, Relation, Root},
    xml,
};

use crate::{
    configured::{configured, one_set},
    support::{BASE, Place, run, text},
};

/// The path of what is at a URL of this place.
fn path_of(url: &str) -> &str {
    url.strip_prefix(&format!("{BASE}/")).unwrap()
}

/// The manifest of a package, beside it (RS-103), once the package is what its entry tells.
fn manifest(place: &Place, entry: &Entry) -> Document {
    let told = entry.metadata.as_ref().unwrap();
    assert_eq!(told.media_type.as_deref(), Some("application/zip"), "{}", entry.loc);
    let package = fs::read(place.out().join(path_of(&entry.loc))).unwrap();
    assert!(package.starts_with(b"PK"), "{}", entry.loc);
    assert_eq!(told.length, Some(package.len() as u64), "{}", entry.loc);
    place.document(path_of(&entry.link(&Relation::Contents).unwrap().href))
}

/// Of each entry its name, change and type.
fn types(manifest: &Document) -> Vec<(&str, Option<Change>, Option<&str>)> {
    let mut types = Vec::new();
    for entry in manifest.entries() {
        let told = entry.metadata.as_ref().unwrap();
        types.push((path_of(&entry.loc), told.change, told.media_type.as_deref()));
    }
    types
}

#[test]
fn rs102_rs107_a_package_tells_its_type_and_length_and_each_file_in_it_its_type() {
    let place = Place::new();
    place.put("nobody.knows-this", "?");
    place.build(&[]).succeeded();
    run(&["dump", "--out", text(&place.out())]).succeeded();
    let dump = place.document("resync/resourcedump.xml");
    assert_eq!(dump.entries().len(), 1);
    assert_eq!(
        types(&manifest(&place, &dump.entries()[0])),
        [
            ("a.txt", None, Some("text/plain")),
            ("nobody.knows-this", None, Some("application/octet-stream")),
            ("sub/b%20c.xml", None, Some("text/xml")),
        ]
    );
}

#[test]
fn rs141_rs107_packages_of_changes_come_oldest_first_with_type_length_and_interval() {
    let place = Place::new();
    place.build(&[]).succeeded();
    let mut expected = Vec::new();
    for round in ["one", "two", "three"] {
        place.put("a.txt", round);
        place.put(&format!("{round}.knows-nobody"), "new");
        run(&["dump", "--changes", "--out", text(&place.out())]).succeeded();
        expected.push(format!("{round}.knows-nobody"));
    }
    place.remove("a.txt");
    run(&["dump", "--changes", "--out", text(&place.out())]).succeeded();
    let dump = place.document("resync/changedump-1.xml");
    let entries = dump.entries();
    assert_eq!(entries.len(), 4);
    let mut last: Option<DateTime> = dump.header().metadata.from;
    for (number, entry) in entries.iter().enumerate() {
        let told = entry.metadata.as_ref().unwrap();
        assert_eq!(told.from, last, "it begins where the one before it ends");
        assert!(told.until > told.from, "{told:?}");
        last = told.until;
        let manifest = manifest(&place, entry);
        let times = &manifest.header().metadata;
        assert_eq!((times.from, times.until), (told.from, told.until), "as the package says itself");
        let found = types(&manifest);
        match expected.get(number) {
            Some(new) => {
                let mut wanted = [
                    ("a.txt", Some(Change::Updated), Some("text/plain")),
                    (new.as_str(), Some(Change::Created), Some("application/octet-stream")),
                ];
                let mut found = found;
                found.sort_by_key(|(path, ..)| *path);
                wanted.sort_by_key(|(path, ..)| *path);
                assert_eq!(found, wanted);
            }
            None => assert_eq!(found, [("a.txt", Some(Change::Deleted), None)], "RS-129"),
        }
    }
}

/// As after many years: an archive of as many documents as it may have, the added ones older than what it has.
fn make_full(place: &Place, archive: &str) {
    let path = place.out().join(archive);
    let text = fs::read_to_string(&path).unwrap();
    let count = 50_000 - i64::try_from(text.matches("<url>").count()).unwrap();
    let at = |second: i64| DateTime::from_unix_millis(second * 1000).unwrap();
    let entry = |number: i64| {
        let (from, until) = (at(number), at(number + 1));
        format!(
            r#"<url><loc>{BASE}/resync/old-{number}.xml</loc><rs:md from="{from}" until="{until}"/></url>"#
        )
    };
    let older: String = (0..count).map(entry).collect();
    let (head, rest) = text.split_once("<url>").unwrap();
    fs::write(path, format!("{head}{older}<url>{rest}")).unwrap();
}

#[test]
fn ar006_ar009_ar011_an_archive_that_is_full_is_continued_by_another_and_each_leads_to_their_index() {
    let place = Place::new();
    let more = "[change_list]\nentries = 1\n[archive]\nafter = \"0s\"\n";
    let config = configured(&place, &one_set(BASE, more));
    let mut round = 0;
    let mut build = || {
        round += 1;
        place.put("a.txt", format!("round {round}"));
        run(&["build", "--config", text(&config)]).succeeded();
    };
    let top = "resync/changelist-archive.xml";
    while !place.out().join(top).exists() {
        build();
    }
    make_full(&place, top);
    build();

    let index = place.document(top);
    assert_eq!(index.root(), Root::SitemapIndex);
    assert!(index.entries().len() > 1);
    let mut archived = Vec::new();
    for part in index.entries() {
        assert!(part.lastmod.is_none() && part.metadata.as_ref().is_none_or(|told| told.from.is_none()));
        let path = place.out().join(path_of(&part.loc));
        let archive = xml::read(&fs::read(&path).unwrap()).unwrap().into_document().unwrap();
        assert_eq!((archive.root(), archive.capability()), (Root::UrlSet, index.capability()));
        let link = |relation| archive.header().link(relation).map(|link| link.href.clone());
        assert_eq!(link(&Relation::Index), Some(format!("{BASE}/{top}")), "AR-006");
        assert_eq!(link(&Relation::Up), Some(format!("{BASE}/resync/capabilitylist.xml")));
        assert!(archive.entries().len() <= 50_000);
        archived.extend(archive.entries().iter().map(|entry| entry.metadata.as_ref().unwrap().from));
    }
    assert!(archived.len() > 50_000 && archived.is_sorted(), "all are there, in order");
}
