//! `resync-source dump`: Resource Dumps and Change Dumps, and where they are told of.

use std::{collections::BTreeMap, fs::File, io::BufReader, path::Path};

use resync_core::{
    document::{Capability, Change, Entry, Metadata, Relation},
    package::Package,
};

use crate::{
    configured::{configured, one_set},
    notifying::told,
    support::{BASE, Hub, Place, Server, run, text},
};

/// What the packages of a dump hold: change, and bytes.
pub(crate) fn unpacked(place: &Place, list: &str) -> BTreeMap<String, (Option<Change>, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in place.document(list).entries() {
        let path = place.out().join(entry.loc.strip_prefix(&format!("{BASE}/")).unwrap());
        let mut package = Package::open(BufReader::new(File::open(path).unwrap())).unwrap();
        while let Some(entry) = package.next_entry().unwrap() {
            let mut bytes = Vec::new();
            if entry.change() != Some(Change::Deleted) {
                package.copy(&entry, &mut bytes).unwrap();
            }
            all.insert(entry.loc.replace(&format!("{BASE}/"), ""), (entry.change(), bytes));
        }
    }
    all
}

#[test]
fn rs100_rs007_a_resource_dump_holds_what_the_resource_list_names_and_is_told_of() {
    let (place, hub) = (Place::new(), Hub::start());
    place.build(&["--hub", &hub.url()]).succeeded();
    place.notify().succeeded();
    hub.next();
    let dumped = run(&["dump", "--out", text(&place.out())]).succeeded();
    assert!(dumped.out.ends_with("1 package → Resource Dump, Capability List written\n"), "{}", dumped.out);
    let held = unpacked(&place, "resync/resourcedump.xml");
    let expected = [("a.txt", "alpha"), ("sub/b%20c.xml", "<b/>")];
    let expected = expected.map(|(name, bytes)| (name.to_owned(), (None, bytes.as_bytes().to_vec())));
    assert_eq!(held, expected.into());
    place.notify().succeeded();
    let mut heard = told(&hub.next());
    heard.sort_by_key(|(_, capability)| capability.token().to_owned());
    assert_eq!(
        heard,
        [(Change::Updated, Capability::CapabilityList), (Change::Created, Capability::ResourceDump)]
    );
    run(&["check", text(&place.out())]).succeeded();
    place.put("a.txt", "changed");
    let built = place.build(&[]).succeeded();
    assert!(
        built.out.contains("→ Resource List, Change List written"),
        "the dump is left alone: {}",
        built.out
    );
    let server = Server::start(&place);
    let package =
        place.document("resync/resourcedump.xml").entries()[0].loc.replace("http://source.example", "");
    let answer = server.get(&package);
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/zip"));
}

#[test]
fn rs140_rs143_change_dumps_go_on_from_each_other_and_hold_the_changes_with_their_bytes() {
    let place = Place::new();
    place.build(&[]).succeeded();
    place.put("a.txt", "one");
    place.put("new.txt", "new");
    let dump = || run(&["dump", "--changes", "--out", text(&place.out())]).succeeded();
    dump();
    let held = unpacked(&place, "resync/changedump-1.xml");
    let entry =
        |name: &str, change, bytes: &str| (name.to_owned(), (Some(change), bytes.as_bytes().to_vec()));
    let expected = [entry("a.txt", Change::Updated, "one"), entry("new.txt", Change::Created, "new")];
    assert_eq!(held, expected.into());
    place.remove("new.txt");
    dump();
    assert_eq!(unpacked(&place, "resync/changedump-1.xml")["new.txt"], (Some(Change::Deleted), vec![]));
    assert_eq!(place.document("resync/changedump-1.xml").entries().len(), 2);
    let idle = dump().out;
    assert!(idle.ends_with("no new changes since the last dump; nothing packed\n"), "{idle}");
    run(&["check", text(&place.out())]).succeeded();
}

#[test]
fn ar003_ar004_a_source_that_is_told_to_makes_dumps_and_archives_by_itself_and_they_conform() {
    let (place, hub) = (Place::new(), Hub::start());
    let config = configured(
        &place,
        &format!(
            r#"
            out = "site"
            base_url = "{BASE}"
            directory = "collection"
            hubs = "{}"
            [change_list]
            entries = 2
            [resource_dump]
            every = "0s"
            [change_dump]
            every = "0s"
            [archive]
            after = "0s"
            "#,
            hub.url()
        ),
    );
    let publish = || run(&["publish", "--config", text(&config)]).succeeded();
    let first = publish();
    let is_of_the_dump = |(_, capability): &(Change, Capability)| *capability == Capability::ResourceDump;
    let heard = [told(&hub.next()), told(&hub.next())];
    let of_the_dump = heard.each_ref().map(|told| told.iter().any(is_of_the_dump));
    assert_eq!(of_the_dump, [false, true], "the hub hears of the lists before the dump is packed");
    assert!(first.out.contains("Resource Dump, Capability List"), "{}", first.out);
    for round in 0..5 {
        place.put("a.txt", format!("round {round}"));
        place.put(&format!("{round}.txt"), "new");
        publish();
        run(&["check", text(&place.out())]).succeeded();
    }
    assert_eq!(unpacked(&place, "resync/resourcedump.xml").len(), 7);
    let archive = place.document("resync/changelist-archive.xml");
    assert_eq!(archive.capability(), &Capability::ChangeListArchive);
    assert_eq!(archive.entries()[0].loc, format!("{BASE}/resync/changelist-1.xml"));
    let index = place.document("resync/changelist.xml");
    let link = index.header().link(&Relation::Archives).unwrap();
    assert_eq!(link.href, format!("{BASE}/resync/changelist-archive.xml"));
    let archive = place.document("resync/changedump-archive.xml");
    assert_eq!(archive.capability(), &Capability::ChangeDumpArchive);

    let status = run(&["status", "--config", text(&config)]).succeeded();
    assert!(status.out.contains("Change List Archive") && status.out.contains("Change Dump Archive"));
    let server = Server::start(&place);
    assert_eq!(server.get("/data/resync/changelist-archive.xml").status, 200);
    assert_eq!(server.get("/data/resync/changelist-1.xml").status, 200, "it keeps its URI");
}

#[test]
fn ar004_ar014_as_many_resource_dumps_as_are_to_stay_are_in_an_archive_and_older_ones_are_gone() {
    let place = Place::new();
    let content = |keep: u32| one_set(BASE, &format!("[resource_dump]\nevery = \"0s\"\nkeep = {keep}\n"));
    let config = configured(&place, &content(1));
    let build = || run(&["build", "--config", text(&config)]).succeeded();
    build();
    configured(&place, &content(3));
    // One that was killed when it had not yet published what leads to it.
    let lost = place.out().join("resync/resourcedump-20200101T000000Z-20200101T000001Z-1.zip");
    std::fs::write(&lost, "lost").unwrap();
    for round in 0..5 {
        place.put("a.txt", format!("round {round}"));
        build();
        run(&["check", text(&place.out())]).succeeded();
    }
    let entry = |capability: &Capability| {
        let list = place.document("resync/capabilitylist.xml");
        let entry = list.entries().iter().find(|entry| entry.capability() == Some(capability)).cloned();
        entry.unwrap().loc.replace(&format!("{BASE}/"), "")
    };
    let newest = entry(&Capability::ResourceDump);
    assert_eq!(unpacked(&place, &newest)["a.txt"].1, b"round 4");
    let archive = place.document(&entry(&Capability::ResourceDumpArchive));
    assert_eq!(archive.capability(), &Capability::ResourceDumpArchive);
    let archived: Vec<_> =
        archive.entries().iter().map(|entry| entry.loc.replace(&format!("{BASE}/"), "")).collect();
    let held = |path: &String| unpacked(&place, path)["a.txt"].1.clone();
    assert_eq!(archived.iter().map(held).collect::<Vec<_>>(), [b"round 2", b"round 3"]);
    let names =
        std::fs::read_dir(place.out().join("resync")).unwrap().map(|entry| entry.unwrap().file_name());
    let packages = names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "zip")).count();
    assert_eq!(packages, 3, "one for each dump that stays");

    configured(&place, &content(1));
    for round in 0..2 {
        place.put("a.txt", format!("alone, round {round}"));
        build();
        run(&["check", text(&place.out())]).succeeded();
    }
    assert_eq!(entry(&Capability::ResourceDump), "resync/resourcedump.xml");
    assert!(!place.out().join("resync/resourcedump-archive.xml").exists());
}

#[test]
fn ar004_ar014_as_many_resource_lists_as_are_to_stay_are_in_an_archive_and_older_ones_are_gone() {
    let place = Place::new();
    let content = |keep: u32| one_set(BASE, &format!("[resource_list]\nkeep = {keep}\n"));
    let config = configured(&place, &content(3));
    let build = || run(&["build", "--config", text(&config)]).succeeded();
    let path_of = |entry: &Entry| entry.loc.replace(&format!("{BASE}/"), "");
    for round in 0..5 {
        place.put("a.txt", "x".repeat(round));
        build();
        run(&["check", text(&place.out())]).succeeded();
    }
    let capabilities = place.document("resync/capabilitylist.xml");
    let is_archive = |entry: &&Entry| entry.capability() == Some(&Capability::ResourceListArchive);
    let archive = place.document(&path_of(capabilities.entries().iter().find(is_archive).unwrap()));
    assert_eq!(archive.capability(), &Capability::ResourceListArchive);
    let length = |path: &str| place.document(path).entries()[0].metadata.as_ref().unwrap().length;
    let archived: Vec<_> = archive.entries().iter().map(path_of).collect();
    let lengths: Vec<_> = archived.iter().map(|path| length(path)).collect();
    assert_eq!((lengths, length("resync/resourcelist.xml")), (vec![Some(2), Some(3)], Some(4)));
    let [at, completed] = ["at", "completed"].map(|name| {
        let metadata = |metadata: &Metadata| if name == "at" { metadata.at } else { metadata.completed };
        let said = archive.entries()[1].metadata.as_ref().and_then(metadata);
        assert_eq!(said, metadata(&place.document(&archived[1]).header().metadata), "{name}");
        said
    });
    assert!(at.is_some() && completed.is_some());
    let current = place.document("resync/resourcelist.xml");
    let link = current.header().link(&Relation::Archives).unwrap();
    assert_eq!(link.href, format!("{BASE}/resync/resourcelist-archive.xml"));

    configured(&place, &content(1));
    place.put("a.txt", "alone");
    build();
    run(&["check", text(&place.out())]).succeeded();
    let mut names =
        std::fs::read_dir(place.out().join("resync")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.any(|name| name.to_string_lossy().starts_with("resourcelist-")));
}

#[test]
fn a_dump_that_fails_keeps_no_set_from_being_published_and_no_hub_from_being_told() {
    let (place, hub) = (Place::new(), Hub::start());
    let config = configured(
        &place,
        &format!(
            r#"
            out = "site"
            base_url = "http://source.example/"
            hubs = "{}"
            [resource_dump]
            every = "0s"
            [[set]]
            name = "one"
            directory = "collection"
            [[set]]
            name = "two"
            directory = "collection"
            "#,
            hub.url()
        ),
    );
    // Where the top of the dump is to lie there is a folder.
    let in_the_way = place.out().join("one/resync/resourcedump.xml");
    std::fs::create_dir_all(&in_the_way).unwrap();
    let publish = |more: &[&str]| run(&[&["publish", "--config", text(&config)], more].concat());
    let first = publish(&[]).failed_with(1, "a due Resource Dump was not made");
    assert!(first.out.contains("two: 2 resources") && first.out.contains("hub accepted"), "{}", first.out);
    assert!(place.out().join(".well-known/resourcesync").exists(), "the site is described");
    assert!(told(&hub.next()).contains(&(Change::Created, Capability::ResourceList)));
    hub.next();
    assert_eq!(told(&hub.next())[0].1, Capability::ResourceDump, "that of the other set");
    place.put("a.txt", "changed");
    let second = publish(&["--json"]).failed_with(1, "failed; see the warnings");
    assert!(hub.next_of_any().is_of_changes(), "the change is told, too");
    let said: serde_json::Value = serde_json::from_str(&second.out).unwrap();
    assert!(
        said["sets"][0]["maintenance_failures"][0].as_str().unwrap().starts_with("a due Resource Dump"),
        "{said}"
    );
    assert_eq!(said["hubs"][0]["outcome"], "accepted");

    std::fs::remove_dir(&in_the_way).unwrap();
    let third = publish(&[]).succeeded();
    assert!(third.out.contains("Resource Dump"), "{}", third.out);
}

#[test]
fn hubs_go_on_being_told_after_a_dump_that_was_killed_before_it_was_on_record() {
    let (place, hub) = (Place::new(), Hub::start());
    let more = format!("hubs = \"{}\"\n[resource_dump]\nkeep = 1\n", hub.url());
    let config = configured(&place, &one_set(BASE, &more));
    let command = |verb: &str| run(&[verb, "--config", text(&config)]);
    command("dump").succeeded();
    command("publish").succeeded();
    hub.next();
    place.put("a.txt", "changed");
    command("publish").succeeded();
    hub.next();
    let state = place.out().join(".resync-source/state.json");
    let before = std::fs::read(&state).unwrap();
    command("dump").succeeded();
    std::fs::write(&state, before).unwrap();
    command("notify").failed_with(1, "run `resync-source build` again");
    let status = command("status").succeeded();
    assert!(status.out.contains("resourcedump.xml` changed since the last build"), "{}", status.out);
    place.put("a.txt", "changed again");
    command("publish").succeeded();
    assert!(hub.next_of_any().is_of_changes(), "nothing was told in vain before");
    let is_of_the_dump = |(_, capability): &(Change, Capability)| *capability == Capability::ResourceDump;
    assert!(told(&hub.next()).iter().any(is_of_the_dump));
    assert!(!command("status").succeeded().out.contains("since "));
    run(&["check", text(&place.out())]).succeeded();
}
