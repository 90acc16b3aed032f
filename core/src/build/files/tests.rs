use std::fs;
use std::sync::mpsc::channel;

use super::reading::{Reading, read};
use super::*;
use crate::build::status::Identity;
use crate::build::{Foreign, Refusal, SkipReason};
use crate::digest::{Digest, Hashes};

fn locs(inventory: FileInventory) -> Vec<String> {
    inventory.start().unwrap().map(|item| item.unwrap().loc).collect()
}

fn of(folder: &tempfile::TempDir) -> FileInventory {
    FileInventory::of(folder.path(), "http://example.org/c/").unwrap()
}

#[test]
fn files_come_in_the_order_of_their_urls_whatever_the_order_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a/z", "a-b", "a.txt", "ä", "é/1", "A", "a b", "b/c/d", "b/c-d"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let found = locs(of(&folder));
    let mut sorted = found.clone();
    sorted.sort();
    assert_eq!(found, sorted);
    assert_eq!(found.len(), 9);
    assert!(found.contains(&"http://example.org/c/a%20b".to_owned()));
}

#[test]
fn many_files_keep_their_order_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..500 {
        fs::create_dir_all(folder.path().join(format!("{:02}", number % 20))).unwrap();
        let length = if number % 50 == 0 { 300_000 } else { number };
        fs::write(folder.path().join(format!("{:02}/{number:03}", number % 20)), vec![7; length]).unwrap();
    }
    let taken =
        |threads| of(&folder).threads(threads).start().unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    let one = taken(1);
    assert_eq!(one.len(), 500);
    assert!(one.windows(2).all(|pair| pair[0].loc < pair[1].loc));
    assert_eq!(one, taken(4));
    let item = &one[0];
    assert_eq!(item.length, Some(300_000));
    assert_eq!(item.hashes.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, &vec![7; 300_000])));
}

#[test]
fn a_walk_that_nobody_listens_to_any_more_ends() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..2_000 {
        fs::write(folder.path().join(number.to_string()), "x").unwrap();
    }
    let (alive, gone) = channel::<()>();
    let mut files = of(&folder)
        .admit(move |_| {
            let _ = &alive;
            true
        })
        .start()
        .unwrap();
    assert!(files.next().is_some());
    drop(files);
    // The walker holds the sender; it is dropped when its thread ends.
    assert!(gone.recv().is_err());
}

#[test]
fn hidden_files_are_left_out_unless_they_are_admitted() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join(".git")).unwrap();
    fs::write(folder.path().join(".git/HEAD"), "x").unwrap();
    fs::write(folder.path().join("seen"), "x").unwrap();
    assert_eq!(locs(of(&folder)), ["http://example.org/c/seen"]);
    assert_eq!(locs(of(&folder).admit(|_| true)).len(), 2);
}

#[cfg(unix)]
#[test]
fn symbolic_links_are_followed_as_far_as_is_safe() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("sub")).unwrap();
    fs::write(folder.path().join("secret"), "x").unwrap();
    fs::write(data.join("sub/file"), "x").unwrap();
    fs::write(data.join(".hidden"), "x").unwrap();
    symlink("sub/file", data.join("same")).unwrap();
    symlink(".hidden", data.join("shown")).unwrap();
    symlink("../secret", data.join("out")).unwrap();
    symlink(".", data.join("around")).unwrap();
    symlink("sub", data.join("other")).unwrap();
    symlink("gone", data.join("dangling")).unwrap();
    let walked = |links| {
        let (tell, told) = channel();
        let inventory = FileInventory::of(&data, "http://example.org").unwrap().links(links);
        let found: Vec<_> = inventory
            .on_skipped(move |skipped| tell.send(skipped).unwrap())
            .start()
            .unwrap()
            .map(|item| item.unwrap().loc.replace("http://example.org/", ""))
            .collect();
        let mut told: Vec<_> =
            told.iter().map(|skipped| (skipped.path.to_str().unwrap().to_owned(), skipped.reason)).collect();
        told.sort_by(|one, other| one.0.cmp(&other.0));
        (found, told)
    };
    let told = |list: &[(&str, SkipReason)]| -> Vec<_> {
        list.iter().map(|(path, reason)| ((*path).to_owned(), *reason)).collect()
    };
    let (found, skipped) = walked(SymbolicLinks::Inside);
    assert_eq!(found, ["same", "sub/file"]);
    assert_eq!(
        skipped,
        told(&[
            ("around", SkipReason::LinkToFolder),
            ("dangling", SkipReason::Dangling),
            ("other", SkipReason::LinkToFolder),
            ("out", SkipReason::LinkOutside),
            ("shown", SkipReason::LinkToHidden),
        ])
    );
    assert_eq!(walked(SymbolicLinks::Never).0, ["sub/file"]);
    let (found, skipped) = walked(SymbolicLinks::Anywhere);
    assert_eq!(found, ["other/file", "out", "same", "shown"]);
    let again = SkipReason::WalkedBefore;
    assert_eq!(skipped, told(&[("around", again), ("dangling", SkipReason::Dangling), ("sub", again)]));
}

#[cfg(unix)]
#[test]
fn each_resource_that_is_a_link_is_reported_by_its_path() {
    use std::os::unix::fs::symlink;
    let data = tempfile::tempdir().unwrap();
    fs::create_dir(data.path().join("sub")).unwrap();
    fs::write(data.path().join("file"), "x").unwrap();
    symlink("../file", data.path().join("sub/link")).unwrap();
    symlink("gone", data.path().join("dangling")).unwrap();
    let (tell, told) = channel();
    let inventory = FileInventory::of(data.path(), "http://example.org").unwrap();
    let found = inventory.on_link(move |path| tell.send(path.to_owned()).unwrap()).start().unwrap();
    assert_eq!(found.count(), 2);
    assert_eq!(told.iter().collect::<Vec<_>>(), [Path::new("sub/link")]);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_elsewhere_when_it_is_read_is_judged_again() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    fs::create_dir(&data).unwrap();
    let (target, link) = (data.join("target"), data.join("link"));
    fs::write(place.path().join("secret"), "x").unwrap();
    fs::write(&target, "old").unwrap();
    symlink("target", &link).unwrap();
    let folder = Folder::open(&data).unwrap();
    let judged = Identity::of(&fs::metadata(&link).unwrap());
    let reading = || read(&folder, FilePath::at(&link), judged, &[], &mut [0; 16], || ()).unwrap();

    // As `rename` replaces a file: whole, and another one.
    fs::write(data.join("new"), "newer").unwrap();
    fs::rename(data.join("new"), &target).unwrap();
    assert!(matches!(reading(), Reading::Steady { length: 5, .. }));

    fs::remove_file(&link).unwrap();
    symlink("../secret", &link).unwrap();
    assert!(matches!(reading(), Reading::Gone));

    fs::remove_file(&link).unwrap();
    fs::write(&link, "a file by now").unwrap();
    assert!(matches!(reading(), Reading::Steady { length: 13, .. }));
}

#[cfg(unix)]
#[test]
fn a_link_whose_target_is_replaced_each_time_it_is_looked_at_has_neither_length_nor_digest() {
    use std::os::unix::fs::symlink;
    let data = tempfile::tempdir().unwrap();
    let (target, link, next) =
        (data.path().join("target"), data.path().join("link"), data.path().join("next"));
    fs::write(&target, "one").unwrap();
    symlink("target", &link).unwrap();
    let folder = Folder::open(&data).unwrap();
    let mut looks = 0;
    let reading = read(&folder, FilePath::at(&link), Some(Identity::NOBODY), &[], &mut [0; 16], || {
        looks += 1;
        fs::write(&next, "another").unwrap();
        fs::rename(&next, &target).unwrap();
    });
    assert!(matches!(reading.unwrap(), Reading::Restless { .. }));
    assert_eq!(looks, MAX_READS);
}

/// What ends an inventory whose closures panic; they run in other threads for what lies in `sub`.
fn end_of(prepare: impl FnOnce(FileInventory) -> FileInventory) -> Option<BuildError> {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    for name in ["a", "sub/\u{7}", "sub/new.part", "z"] {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    let mut files = prepare(of(&folder)).start().unwrap();
    let error = files.by_ref().find_map(Result::err);
    assert!(files.next().is_none());
    error
}

#[test]
fn an_inventory_whose_closures_panic_ends_with_an_error_and_not_as_if_it_were_complete() {
    assert!(end_of(|inventory| inventory).is_none());
    let in_sub = |path: &Path| assert!(!path.starts_with("sub/new.part"), "panics on purpose");
    let broken = [
        end_of(|inventory| {
            inventory.admit(move |path| {
                in_sub(path);
                true
            })
        }),
        end_of(|inventory| inventory.on_skipped(move |skipped| in_sub(&skipped.path))),
        end_of(|inventory| inventory.on_unportable(|_| panic!("panics on purpose"))),
        end_of(|inventory| inventory.media_type(|_| panic!("panics on purpose"))),
    ];
    assert!(broken.iter().all(|error| matches!(error, Some(BuildError::BrokenOff))), "{broken:?}");
}

#[cfg(unix)]
#[test]
fn what_cannot_be_looked_at_is_an_error_and_not_an_absence() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "x").unwrap();
    // An error that even an administrator gets, and that is none of those that say that nothing is there.
    symlink("x".repeat(300), folder.path().join("link")).unwrap();
    let error = of(&folder).start().map(|mut files| files.find_map(Result::err));
    assert!(matches!(&error, Err(BuildError::File { path, .. }) if path.ends_with("link")), "{error:?}");
    let mut contents = of(&folder).contents();
    assert!(contents.open(&Item::new("http://example.org/c/link")).is_err());
    // A name that no file can have is none.
    assert!(
        contents.open(&Item::new(format!("http://example.org/c/{}", "x".repeat(300)))).unwrap().is_none()
    );
}

#[cfg(unix)]
#[test]
fn links_in_a_circle_and_links_below_files_lead_nowhere() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    symlink("one", folder.path().join("other")).unwrap();
    symlink("other", folder.path().join("one")).unwrap();
    symlink("file/below", folder.path().join("below")).unwrap();
    let Walked { found, skipped, .. } = walked(Folder::open(&folder).unwrap());
    assert_eq!(found, ["file"]);
    assert_eq!(skipped, ["below", "one", "other"].map(|name| (name.to_owned(), SkipReason::Dangling)));
}

#[test]
fn a_file_that_changes_while_it_is_read_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for room in [16, 3] {
        let (here, mut first, mut buffer) = (Folder::open(&folder).unwrap(), true, vec![0; room]);
        fs::write(&path, "old").unwrap();
        let reading = read(&here, FilePath::at(&path), None, &[Algorithm::Sha256], &mut buffer, || {
            if std::mem::take(&mut first) {
                fs::write(&path, "newer").unwrap();
            }
        });
        let Reading::Steady { length: 5, hashes, .. } = reading.unwrap() else { panic!("not steady") };
        assert_eq!(hashes, Digest::of(Algorithm::Sha256, b"newer").into());
    }
}

#[cfg(unix)]
#[test]
fn a_file_is_looked_for_by_its_path_once_the_folder_that_is_held_open_is_another() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::open(&place).unwrap();
    let sub = folder.root().join("sub");
    let path = sub.join("file");
    fs::create_dir(&sub).unwrap();
    fs::write(&path, "old").unwrap();
    let level = File::open(&sub).unwrap();
    let reading =
        || read(&folder, FilePath::within(&path, Some(&level)), None, &[], &mut [0; 16], || ()).unwrap();
    assert!(matches!(reading(), Reading::Steady { length: 3, .. }));
    fs::remove_dir_all(&sub).unwrap();
    fs::create_dir(&sub).unwrap();
    fs::write(&path, "newer").unwrap();
    assert!(matches!(reading(), Reading::Steady { length: 5, .. }));
    fs::remove_file(&path).unwrap();
    assert!(matches!(reading(), Reading::Gone));
}

#[cfg(unix)]
#[test]
fn files_are_read_under_the_names_that_they_have_though_their_folder_is_renamed_meanwhile() {
    let (place, apart) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (sub, other, gone) =
        (place.path().join("sub"), apart.path().join("other"), apart.path().join("gone"));
    for (folder, content) in [(&sub, "old"), (&other, "other")] {
        fs::create_dir(folder).unwrap();
        for name in ["a", "b", "c", "d", "e"] {
            fs::write(folder.join(name), content).unwrap();
        }
    }
    // The first files go to the threads in small groups.
    for name in 0..7 {
        fs::write(place.path().join(name.to_string()), "other").unwrap();
    }
    let inventory = of(&place).threads(1).media_type(move |path| {
        // The folder is open, and two of its files have been read.
        if path.ends_with("c") && !gone.exists() {
            fs::rename(&sub, &gone).unwrap();
            fs::rename(&other, &sub).unwrap();
        }
        None
    });
    let items: Vec<_> = inventory.start().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(items.len(), 12);
    let expected = Digest::of(Algorithm::Sha256, b"other");
    for item in items {
        let digest = item.hashes.get(Algorithm::Sha256);
        assert_eq!((item.length, digest), (Some(5), Some(&expected)), "{}", item.loc);
    }
}

#[test]
fn a_file_that_never_holds_still_has_neither_length_nor_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, "").unwrap();
    let (here, mut content) = (Folder::open(&folder).unwrap(), String::new());
    let reading = read(&here, FilePath::at(&path), None, &[Algorithm::Sha256], &mut [0; 16], || {
        content.push('x');
        fs::write(&path, &content).unwrap();
    });
    assert!(matches!(reading.unwrap(), Reading::Restless { .. }));
    assert_eq!(content.len(), MAX_READS);
}

#[test]
fn a_folder_that_cannot_be_read_ends_the_inventory_with_an_error() {
    let missing = FileInventory::of("/nonexistent/folder", "http://example.org");
    assert!(matches!(missing, Err(BuildError::File { .. })));
}

#[test]
fn contents_are_found_by_url_and_nothing_outside_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("a b")).unwrap();
    fs::write(data.join("a b/é"), "inside").unwrap();
    fs::write(folder.path().join("outside"), "outside").unwrap();
    let inventory = FileInventory::of(&data, "http://example.org").unwrap();
    let mut contents = inventory.contents();
    let item = inventory.start().unwrap().next().unwrap().unwrap();
    let text = contents.open(&item).unwrap().map(|file| io::read_to_string(file).unwrap());
    assert_eq!(text.as_deref(), Some("inside"));
    for loc in ["../outside", "%2e%2e/outside", "a b", "", "a b%2F%C3%A9"] {
        assert!(contents.open(&Item::new(format!("http://example.org/{loc}"))).unwrap().is_none(), "{loc}");
    }
}

/// What a walk lists, leaves out and wonders about.
struct Walked {
    found: Vec<String>,
    skipped: Vec<(String, SkipReason)>,
    unportable: Vec<Foreign>,
}

fn walked(folder: Folder) -> Walked {
    let ((tell, skipped), (wonder, unportable)) = (channel(), channel());
    let inventory = FileInventory::below(folder, "http://example.org")
        .on_skipped(move |one| tell.send((one.path.to_str().unwrap().to_owned(), one.reason)).unwrap())
        .on_unportable(move |one| wonder.send(one.cause).unwrap());
    let found = inventory.start().unwrap().map(|item| item.unwrap().loc.replace("http://example.org/", ""));
    let found = found.collect();
    let mut skipped: Vec<_> = skipped.iter().collect();
    skipped.sort_by(|one, other| one.0.cmp(&other.0));
    Walked { found, skipped, unportable: unportable.iter().collect() }
}

#[test]
fn unfinished_files_and_folders_are_left_out_and_reported_once_each() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("unpacked.tmp")).unwrap();
    for name in ["film.part", "draft~", "unpacked.tmp/a", "unpacked.tmp/b", "done", ".x.swp", "temp", "party"]
    {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    let Walked { found, skipped, .. } = walked(Folder::open(&folder).unwrap());
    assert_eq!(found, ["done", "party", "temp"]);
    assert_eq!(
        skipped,
        ["draft~", "film.part", "unpacked.tmp"].map(|name| (name.into(), SkipReason::Temporary))
    );
}

#[test]
fn the_folder_of_the_documents_is_reported_and_that_of_the_site_is_not() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["resync/mine.txt", "a/resync/b", "site/page.html", "resync.html"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    let folder =
        Folder::open(&folder).unwrap().reserve("resync").leave_out(folder.path().join("site")).unwrap();
    let refusal = |path| folder.locate(Path::new(path)).unwrap_err().refusal();
    assert_eq!(refusal("site/page.html"), Some(Refusal::Hidden));
    assert_eq!(refusal("resync/mine.txt"), Some(Refusal::Skipped(SkipReason::Reserved)));
    assert_eq!(refusal("missing"), Some(Refusal::Missing));
    for name in ["../x", "/etc"] {
        assert_eq!(refusal(name), Some(Refusal::Hidden), "{name}");
    }
    let Walked { found, skipped, .. } = walked(folder);
    assert_eq!(found, ["a/resync/b", "resync.html"]);
    assert_eq!(skipped, [("resync".to_owned(), SkipReason::Reserved)]);
}

#[cfg(unix)]
#[test]
fn links_between_folders_give_every_file_one_name_and_not_one_for_each_way_to_it() {
    use std::os::unix::fs::symlink;
    const FOLDERS: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    for from in 0..FOLDERS {
        let inner = folder.path().join(format!("f{from}"));
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("file"), "x").unwrap();
        for to in (0..FOLDERS).filter(|to| *to != from) {
            symlink(format!("../f{to}"), inner.join(format!("to{to}"))).unwrap();
        }
    }
    let Walked { found, skipped, .. } = walked(Folder::open(&folder).unwrap());
    assert_eq!(found.len(), FOLDERS);
    assert_eq!(skipped.len(), FOLDERS * (FOLDERS - 1));
    assert!(skipped.iter().all(|(_, reason)| *reason == SkipReason::LinkToFolder));
}

#[cfg(unix)]
#[test]
fn what_is_left_out_is_not_reached_through_links_either() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    fs::create_dir_all(data.join("site")).unwrap();
    fs::write(data.join("site/page"), "x").unwrap();
    symlink("site/page", data.join("page")).unwrap();
    symlink(place.path(), data.join("around")).unwrap();
    for links in [SymbolicLinks::Inside, SymbolicLinks::Anywhere] {
        let folder = Folder::open(&data).unwrap().links(links).leave_out(data.join("site")).unwrap();
        assert_eq!(folder.locate(Path::new("page")).unwrap_err().refusal(), Some(Refusal::Hidden));
        assert_eq!(walked(folder).found, [""; 0], "{links:?}");
    }
}

#[cfg(unix)]
#[test]
fn names_that_other_systems_cannot_keep_are_listed_and_reported() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("a\\b")).unwrap();
    for name in [&b"a\\b/c"[..], b"bell\x07", b"caf\xe9", "ordinär".as_bytes()] {
        fs::write(folder.path().join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let Walked { found, skipped, unportable } = walked(Folder::open(&folder).unwrap());
    assert_eq!((found.len(), skipped.len()), (4, 0));
    assert_eq!(unportable, [Foreign::Backslash, Foreign::Control, Foreign::NotUtf8]);
}

#[cfg(unix)]
#[test]
fn contents_are_what_the_inventory_would_list_and_nothing_that_took_its_place() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    fs::create_dir(&data).unwrap();
    fs::write(place.path().join("secret"), "secret").unwrap();
    for name in ["file", ".hidden", "new.part"] {
        fs::write(data.join(name), name).unwrap();
    }
    symlink("file", data.join("same")).unwrap();
    symlink("../secret", data.join("out")).unwrap();
    symlink(".hidden", data.join("shown")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, data.join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    let mut contents = FileInventory::of(&data, "http://example.org").unwrap().contents();
    let mut text = |name: &str| {
        let found = contents.open(&Item::new(format!("http://example.org/{name}"))).unwrap();
        found.map(|file| io::read_to_string(file).unwrap())
    };
    assert_eq!((text("file").as_deref(), text("same").as_deref()), (Some("file"), Some("file")));
    for name in [".hidden", "new.part", "out", "shown", "pipe", "missing"] {
        assert_eq!(text(name), None, "{name}");
    }
    // A file that was judged, and then a link in its place.
    fs::remove_file(data.join("file")).unwrap();
    symlink("../secret", data.join("file")).unwrap();
    let here = Folder::open(&data).unwrap();
    assert!(open_judged(FilePath::at(&data.join("file")), None).unwrap().is_none());
    assert!(matches!(
        read(&here, FilePath::at(&data.join("file")), None, &[], &mut [0; 16], || ()).unwrap(),
        Reading::Gone
    ));
}

#[test]
fn a_file_stands_for_the_version_that_it_holds_and_for_no_other() {
    use crate::document::Change;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), "new").unwrap();
    let inventory = of(&folder);
    let mut contents = inventory.contents();
    let item = inventory.start().unwrap().next().unwrap().unwrap();
    let mut is_found = |item: Item| {
        let event = Event::new(Change::Updated, DateTime::now(), item);
        contents.open_version(&event).unwrap().is_some()
    };
    assert!(is_found(item.clone()));
    assert!(!is_found(Item { length: Some(4), ..item.clone() }));
    let undigested = Item { hashes: Hashes::default(), ..item };
    assert!(is_found(undigested.clone()));
    assert!(!is_found(Item { lastmod: "2001-01-01T00:00:00Z".parse().ok(), ..undigested }));
}

fn known(mut files: Files) -> (Vec<Known>, u64) {
    let known = std::iter::from_fn(|| files.next_known()).collect::<Result<Vec<_>, _>>().unwrap();
    (known, files.reads())
}

/// As a file that came to rest long ago.
fn at_rest(folder: &tempfile::TempDir, known: &mut [Known]) {
    for one in known {
        let path = folder.path().join(one.item.loc.rsplit('/').next().unwrap());
        one.stamp = Some(Stamp::of(&fs::metadata(path).unwrap()).unwrap());
    }
}

#[test]
fn files_that_are_known_and_the_same_are_not_read_again_and_all_others_are() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["b", "d", "f", "h"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let (mut before, reads) = known(of(&folder).start().unwrap());
    assert_eq!(reads, 4);
    at_rest(&folder, &mut before);
    // What nobody could know but by the digest that was kept: that of `b` is not of its bytes.
    before[0].item.hashes = Digest::of(Algorithm::Sha256, b"kept").into();
    fs::remove_file(folder.path().join("d")).unwrap();
    fs::write(folder.path().join("f"), "g").unwrap();
    fs::write(folder.path().join("a"), "new").unwrap();
    fs::write(folder.path().join("z"), "new").unwrap();
    let walk = |known: Vec<Known>| of(&folder).known(known.into_iter().map(Ok));
    let (after, reads) = known(walk(before.clone()).start().unwrap());
    let names: Vec<_> = after.iter().map(|one| one.item.loc.rsplit('/').next().unwrap()).collect();
    assert_eq!((names, reads), (vec!["a", "b", "f", "h", "z"], 3));
    assert_eq!((&after[1], &after[3]), (&before[0], &before[3]));
    assert_eq!(after[2].item.hashes, Digest::of(Algorithm::Sha256, b"g").into());
    let (_, reads) = known(walk(before).algorithms([Algorithm::Md5]).start().unwrap());
    assert_eq!(reads, 5, "other digests are asked for");
}

#[test]
fn a_file_in_the_place_of_another_is_read_although_length_and_time_are_alike() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("a"), folder.path().join(".b"));
    fs::write(&path, "one").unwrap();
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    let (mut before, _) = known(of(&folder).start().unwrap());
    at_rest(&folder, &mut before);
    fs::write(&other, "two").unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
    fs::rename(other, path).unwrap();
    let (after, reads) = known(of(&folder).known(before.into_iter().map(Ok)).start().unwrap());
    assert_eq!((after[0].item.hashes.clone(), reads), (Digest::of(Algorithm::Sha256, b"two").into(), 1));
}
