//! `resync-source build`: the documents that it writes, and those that it leaves alone.

use std::{collections::BTreeMap, fs};

use resync_core::{
    digest::{Algorithm, Digest},
    document::{Capability, Relation, Root},
    rules, xml,
};

use crate::support::{BASE, Hub, Place, run, text};

#[test]
fn rs053_rs070_rs081_the_links_lead_from_the_source_description_to_every_resource_and_back() {
    let place = Place::new();
    place.build(&[]).succeeded();
    let description = place.document(".well-known/resourcesync");
    assert_eq!(description.capability(), &Capability::Description);
    assert_eq!(description.entries()[0].loc, format!("{BASE}/resync/capabilitylist.xml"));
    let capabilities = place.document("resync/capabilitylist.xml");
    assert_eq!(capabilities.link(&Relation::Up).unwrap().href, format!("{BASE}/.well-known/resourcesync"));
    assert_eq!(capabilities.entries()[0].loc, format!("{BASE}/resync/resourcelist.xml"));
    let list = place.document("resync/resourcelist.xml");
    assert_eq!(list.link(&Relation::Up).unwrap().href, format!("{BASE}/resync/capabilitylist.xml"));
    let urls: Vec<_> = list.entries().iter().map(|entry| entry.loc.as_str()).collect();
    assert_eq!(urls, [format!("{BASE}/a.txt"), format!("{BASE}/sub/b%20c.xml")]);
    for document in [description, capabilities, list] {
        let violations = rules::check(&document.into_raw());
        assert!(violations.is_conforming(), "{violations}");
    }
}

#[test]
fn rs034_rs036_the_list_gives_the_chosen_digests_and_the_length() {
    let place = Place::new();
    let run = place.build(&["--hash", "md5", "--hash", "sha-256"]).succeeded();
    assert!(
        run.out.starts_with(
            "2 resources, 9 B → Resource List, Change List, Capability List, Source Description written"
        ),
        "{}",
        run.out
    );
    let list = place.document("resync/resourcelist.xml");
    let metadata = list.entries()[0].metadata.as_ref().unwrap();
    for algorithm in [Algorithm::Md5, Algorithm::Sha256] {
        assert_eq!(metadata.hash.get(algorithm), Some(&Digest::of(algorithm, b"alpha")));
    }
    assert_eq!(metadata.hash.get(Algorithm::Sha1), None);
    assert_eq!((metadata.length, metadata.media_type.as_deref()), (Some(5), Some("text/plain")));
}

#[test]
fn an_unchanged_collection_leaves_every_document_byte_for_byte_and_second_for_second() {
    let place = Place::new();
    place.build(&[]).succeeded();
    let times = || {
        let time = |path: &String| fs::metadata(place.out().join(path)).unwrap().modified().unwrap();
        place.documents().keys().map(|path| (path.clone(), time(path))).collect::<BTreeMap<_, _>>()
    };
    let (documents, before) = (place.documents(), times());
    let run = place.build(&[]).succeeded();
    assert_eq!(run.out, "2 resources, 9 B → nothing changed\n");
    assert_eq!(place.documents(), documents);
    assert_eq!(times(), before);
}

#[test]
fn created_updated_and_deleted_files_rewrite_the_small_resource_list_and_the_change_list_alone() {
    let place = Place::new();
    place.build(&[]).succeeded();
    let before = place.documents();
    let resources = |place: &Place| {
        let list = place.document("resync/resourcelist.xml");
        list.entries().iter().map(|entry| entry.loc.replace(BASE, "")).collect::<Vec<_>>()
    };
    let steps: [(&dyn Fn(), &[&str]); 3] = [
        (&|| place.put("new.txt", "n"), &["/a.txt", "/new.txt", "/sub/b%20c.xml"]),
        (&|| place.put("new.txt", "other"), &["/a.txt", "/new.txt", "/sub/b%20c.xml"]),
        (&|| place.remove("a.txt"), &["/new.txt", "/sub/b%20c.xml"]),
    ];
    let mut last = before["resync/resourcelist.xml"].clone();
    for (change, expected) in steps {
        change();
        let run = place.build(&[]).succeeded();
        assert!(run.out.ends_with(" → Resource List, Change List written\n"), "{}", run.out);
        assert_eq!(resources(&place), expected);
        let now = place.documents();
        assert_ne!(now["resync/resourcelist.xml"], last);
        assert_eq!(now["resync/capabilitylist.xml"], before["resync/capabilitylist.xml"]);
        last.clone_from(&now["resync/resourcelist.xml"]);
    }
}

#[test]
fn names_with_spaces_and_of_other_scripts_become_valid_urls() {
    let place = Place::new();
    place.put("größe & maß/日本.html", "x");
    place.build(&[]).succeeded();
    let list = place.document("resync/resourcelist.xml");
    assert_eq!(
        list.entries()[1].loc,
        format!("{BASE}/gr%C3%B6%C3%9Fe%20&%20ma%C3%9F/%E6%97%A5%E6%9C%AC.html")
    );
}

#[test]
fn a_site_inside_its_own_collection_does_not_list_itself() {
    let place = Place::new();
    for out in [place.collection().join("public"), place.collection()] {
        for _ in 0..2 {
            run(&["build", text(&place.collection()), "--base-url", BASE, "--out", text(&out)]).succeeded();
        }
        let bytes = fs::read(out.join("resync/resourcelist.xml")).unwrap();
        let list = resync_core::xml::read(&bytes).unwrap().into_document().unwrap();
        assert!(
            list.entries()
                .iter()
                .all(|entry| !entry.loc.contains("resync") && !entry.loc.contains("well-known"))
        );
        fs::remove_dir_all(place.collection().join("public")).ok();
    }
}

#[test]
fn a_collection_among_the_documents_is_refused() {
    let place = Place::new();
    let collection = place.out().join("resync/files");
    fs::create_dir_all(&collection).unwrap();
    run(&["build", text(&collection), "--base-url", BASE, "--out", text(&place.out())])
        .failed_with(64, "choose another --out");
}

#[test]
fn a_document_that_was_damaged_is_written_again() {
    let place = Place::new();
    place.build(&[]).succeeded();
    fs::write(place.out().join("resync/capabilitylist.xml"), "<oops/>").unwrap();
    place.build(&[]).succeeded();
    assert_eq!(place.document("resync/capabilitylist.xml").capability(), &Capability::CapabilityList);
}

#[test]
fn rs043_fn008_a_collection_beyond_one_list_gets_an_index_and_falls_back_without_leaving_components() {
    let (place, hub) = (Place::new(), Hub::start());
    let many = place.collection().join("many");
    fs::create_dir(&many).unwrap();
    for number in 0..50_000 {
        fs::write(many.join(format!("{number:05}")), b"").unwrap();
    }
    place.build(&["--hash", "md5", "--hub", &hub.url()]).succeeded();
    let index = place.document("resync/resourcelist.xml");
    assert_eq!(index.root(), Root::SitemapIndex);
    let component = |number: usize| index.entries()[number].loc.strip_prefix(BASE).unwrap()[1..].to_owned();
    assert_eq!(place.document(&component(0)).entries().len(), 50_000);
    assert_eq!(place.document(&component(1)).entries().len(), 2);
    place.notify().succeeded();
    let heard = xml::read(hub.next().body.as_bytes()).unwrap().into_document().unwrap();
    let told = heard.entries().iter().find(|entry| entry.link(&Relation::Index).is_some()).unwrap();
    assert_eq!(told.link(&Relation::Index).unwrap().href, format!("{BASE}/resync/resourcelist.xml"));
    assert!(index.entries().iter().any(|entry| entry.loc == told.loc), "the index has it by then");
    let run = place.build(&["--hash", "md5"]).succeeded();
    assert!(run.out.contains("nothing changed"), "{}", run.out);

    fs::remove_dir_all(many).unwrap();
    place.build(&["--hash", "md5"]).succeeded();
    assert_eq!(place.document("resync/resourcelist.xml").root(), Root::UrlSet);
    let is_there = || place.out().join(component(0)).exists();
    assert!(is_there(), "who has just read the index still finds its components");
    place.put("one more", "x");
    place.build(&["--hash", "md5"]).succeeded();
    assert!(!is_there());
}

#[test]
fn bad_input_is_named_with_what_to_do_and_the_right_exit_code() {
    let place = Place::new();
    place.build_at("ftp://source.example/", &[]).failed_with(64, "http:// or https://");
    place.build_at("source.example", &[]).failed_with(64, "not an absolute URL");
    place.build_at("http://source.example/a//b/", &[]).failed_with(64, "empty segment");
    place.build_at("http://source.example/a%2Fb/", &[]).failed_with(64, "empty segment");
    place.build(&["--hub", "http://hub.example/", "--no-hub"]).failed_with(2, "--no-hub");
    place.build(&["--hub", "mailto:hub@example.org"]).failed_with(64, "http:// or https://");
    place.build(&["--hash", "crc32"]).failed_with(2, "crc32");
    place.build(&["--colour"]).failed_with(2, "--colour");
    place.put("a file", "x");
    for (name, why) in [("missing", "No such file"), ("a file", "not a directory")] {
        let folder = place.collection().join(name);
        let run = run(&["build", text(&folder), "--base-url", BASE, "--out", text(&place.out())]);
        let run = run.failed_with(64, "cannot open the collection");
        assert!(run.err.contains(why), "{}", run.err);
    }
    assert!(!place.out().exists(), "nothing was written");
    for verb in ["notify", "serve", "status"] {
        run(&[verb, "--out", text(&place.out())]).failed_with(1, "run `resync-source build` first");
    }
}

#[test]
fn a_state_of_a_newer_version_is_refused_and_left_alone() {
    let place = Place::new();
    place.build(&[]).succeeded();
    let state = place.out().join(".resync-source/state.json");
    fs::write(&state, r#"{"format": 99}"#).unwrap();
    place.build(&[]).failed_with(1, "format 99");
    assert_eq!(fs::read_to_string(state).unwrap(), r#"{"format": 99}"#);
}

#[test]
fn every_flag_can_come_from_the_environment() {
    let place = Place::new();
    let output = crate::support::program(&["build"])
        .env("RESYNC_SOURCE_DIR", place.collection())
        .env("RESYNC_SOURCE_BASE_URL", BASE)
        .env("RESYNC_SOURCE_OUT", place.out())
        .env("RESYNC_SOURCE_HASH", "md5,sha-1")
        .output()
        .unwrap();
    crate::support::Run::from(output).succeeded();
    let list = place.document("resync/resourcelist.xml");
    assert_eq!(list.entries()[0].metadata.as_ref().unwrap().hash.iter().count(), 2);
}

#[test]
fn an_empty_environment_variable_counts_as_absent_for_every_flag() {
    let place = Place::new();
    let (collection, out) = (place.collection(), place.out());
    let with_nothing = |arguments: &[&str]| {
        let names = ["DIR", "BASE_URL", "OUT", "HASH", "HUB", "NO_HUB", "TOKEN", "LISTEN", "JSON", "LOG"];
        let variables = names.map(|name| (format!("RESYNC_SOURCE_{name}"), ""));
        crate::support::Run::from(crate::support::program(arguments).envs(variables).output().unwrap())
    };
    let (collection, out) = (text(&collection), text(&out));
    with_nothing(&["build", collection, "--base-url", BASE, "--out", out]).succeeded();
    with_nothing(&["build", "--out", out]).succeeded();
    with_nothing(&["publish", "--out", out]).succeeded();
    assert!(with_nothing(&["status", "--out", out]).succeeded().out.contains("no hub"));
    with_nothing(&["notify", "--out", out]).failed_with(64, "has no hub");
    with_nothing(&["status"]).failed_with(2, "--out");
}

#[test]
fn a_rebuild_keeps_hubs_and_digests_and_says_so_until_it_is_told_otherwise() {
    let place = Place::new();
    let hubs = |place: &Place| {
        let capabilities = place.document("resync/capabilitylist.xml");
        let channels = capabilities.entries().iter();
        let framework =
            channels.filter(|entry| entry.capability() == Some(&Capability::FrameworkNotification));
        let hubs = framework.flat_map(|entry| entry.links_with(&Relation::Hub));
        hubs.map(|link| link.href.clone()).collect::<Vec<_>>()
    };
    let digests = |place: &Place| {
        let list = place.document("resync/resourcelist.xml");
        list.entries()[0].metadata.as_ref().unwrap().hash.to_string()
    };
    place.build(&["--hub", "http://hub.example/websub/", "--hash", "md5"]).succeeded();
    let run = place.build(&[]).succeeded();
    assert_eq!(
        run.out,
        "2 resources, 9 B → nothing changed (as in the last build: --hash md5 --hub http://hub.example/websub/)\n"
    );
    place.build(&["--hash", "sha-1"]).succeeded();
    assert_eq!(hubs(&place), ["http://hub.example/websub/"]);
    assert!(digests(&place).starts_with("sha-1:"), "{}", digests(&place));
    place.build(&["--no-hub"]).succeeded();
    assert_eq!(hubs(&place), [""; 0]);
    assert!(digests(&place).starts_with("sha-1:"), "{}", digests(&place));
}

#[test]
fn an_unfinished_file_is_named_in_the_summary_and_published_under_its_final_name() {
    let place = Place::new();
    place.put("film.part", "x");
    let run = place.build(&[]).succeeded();
    assert!(
        run.err.contains("left out `film.part`: its name ends as those of unfinished files do"),
        "{}",
        run.err
    );
    fs::rename(place.collection().join("film.part"), place.collection().join("film")).unwrap();
    let run = place.build(&[]).succeeded();
    assert!(run.out.starts_with("3 resources") && run.err.is_empty(), "{}", run.err);
}

#[cfg(unix)]
#[test]
fn a_name_with_a_backslash_is_published_percent_encoded_with_a_warning() {
    let place = Place::new();
    place.put("a\\b", "x");
    let run = place.build(&[]).succeeded();
    assert!(run.err.contains("published `a\\b`, but its name contains a backslash"), "{}", run.err);
    let list = place.document("resync/resourcelist.xml");
    assert!(list.entries().iter().any(|entry| entry.loc == format!("{BASE}/a%5Cb")));
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_no_utf_8_is_published_percent_encoded_with_a_warning_and_in_json() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let place = Place::new();
    fs::write(place.collection().join(OsStr::from_bytes(b"a\xff")), "x").unwrap();
    let run = place.build(&["--json"]).succeeded();
    assert!(run.out.contains("bytes that are not UTF-8"), "{}", run.out);
    let list = place.document("resync/resourcelist.xml");
    assert!(list.entries().iter().any(|entry| entry.loc == format!("{BASE}/a%FF")));
}
