//! A folder without files, where the last build had some: as a rule its disk is not mounted.

use std::{fs, path::Path};

use resync_core::document::Change;

use crate::{
    configured::{configured, one_set, two_sets, with_images},
    support::{BASE, Hub, Place, Run, program, run, text},
};

/// Another folder takes the place of the collection, as where a disk is mounted or not.
fn swap(place: &Place, aside: &Path) {
    let between = place.whole().join("between");
    fs::rename(place.collection(), &between).unwrap();
    fs::rename(aside, place.collection()).unwrap();
    fs::rename(&between, aside).unwrap();
}

#[test]
fn an_unmounted_disk_publishes_no_deletion_and_cron_hears_what_to_do() {
    let (place, hub) = (Place::new(), Hub::start());
    let config = configured(&place, &one_set(BASE, &format!("hubs = \"{}\"\n", hub.url())));
    let publish = |more: &[&str]| run(&[&["publish", "--config", text(&config)], more].concat());
    publish(&[]).succeeded();
    hub.next();
    let (before, aside) = (place.documents(), place.whole().join("aside"));
    fs::create_dir(&aside).unwrap();
    swap(&place, &aside);

    let refused = publish(&["--quiet"]).failed_with(1, "is its disk mounted?");
    assert_eq!((refused.out.as_str(), refused.err.lines().count()), ("", 1), "{}", refused.err);
    let named = "/collection` is a resource, but 2 were at the last build";
    assert!(refused.err.contains(named) && refused.err.contains("--allow-empty"), "{}", refused.err);
    assert_eq!(publish(&["--dry-run"]).failed_with(1, named).err, refused.err);
    run(&["dump", "--config", text(&config)]).failed_with(1, named);
    assert_eq!(place.documents(), before);
    hub.heard_nothing_more();
    swap(&place, &aside);
    assert!(publish(&[]).succeeded().out.contains("nothing changed"));

    swap(&place, &aside);
    let tried = publish(&["--allow-empty", "-n"]).succeeded();
    assert!(tried.out.contains("2 deleted → would write"), "{}", tried.out);
    hub.heard_nothing_more();
    assert!(publish(&["--allow-empty"]).succeeded().out.contains("2 deleted"));
    assert!(hub.next_of_any().is_of_changes());
    let list = place.document("resync/changelist-1.xml");
    assert!(list.entries().iter().all(|entry| entry.change() == Some(Change::Deleted)));
    assert!(
        publish(&[]).succeeded().err.contains("the collection is empty"),
        "from now on this is as it was"
    );
}

#[test]
fn a_set_whose_disk_is_not_mounted_stops_no_other() {
    let place = Place::new();
    with_images(&place);
    let config = configured(&place, &two_sets(""));
    let build = || run(&["build", "--config", text(&config)]);
    build().succeeded();
    let image = place.whole().join("images/one.png");
    fs::remove_file(&image).unwrap();
    place.put("a.txt", "changed");
    let built = build().failed_with(1, "1 of 2 sets could not be built");
    assert!(built.err.contains("resync-source: images: no file in `"), "{}", built.err);
    assert!(built.out.starts_with("articles: 1 resource, 7 B: 1 updated"), "{}", built.out);
    run(&["check", text(&place.out())]).succeeded();
    fs::write(&image, "png").unwrap();
    build().succeeded();
}

#[test]
fn a_set_that_has_left_and_comes_back_empty_is_a_new_one() {
    let place = Place::new();
    with_images(&place);
    let hub = Hub::start();
    let both = two_sets(&format!("\"{}\"", hub.url()));
    let config = configured(&place, &both);
    run(&["publish", "--config", text(&config)]).succeeded();
    configured(&place, &both.split("[[set]]").take(2).collect::<Vec<_>>().join("[[set]]"));
    run(&["build", "--config", text(&config)]).succeeded();
    assert!(place.out().join("images/.resync-source/state.json").exists(), "its hub is still to be notified");
    fs::remove_file(place.whole().join("images/one.png")).unwrap();
    configured(&place, &both);
    let built = run(&["build", "--config", text(&config)]).succeeded();
    assert!(built.out.contains("images: 0 resources"), "{}", built.out);
}

#[test]
fn no_variable_allows_it_for_every_run() {
    let place = Place::new();
    place.build(&[]).succeeded();
    for name in ["a.txt", "sub/b c.xml"] {
        place.remove(name);
    }
    let mut build = program(&["build", "--out", text(&place.out())]);
    let output = build.env("RESYNC_SOURCE_ALLOW_EMPTY", "true").output().unwrap();
    Run::from(output).failed_with(1, "--allow-empty");
}
