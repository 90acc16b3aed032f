use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use resync_core::{
    digest::{Algorithm, Digest},
    document::Change,
    xml,
};

use super::*;
use crate::{
    BaseUrl, HubUrl,
    helpers::files::tests::interrupt_after,
    settings::{LinkTemplate, Rules},
    state::{DocumentRecord, Series, StoredPosition},
};

struct Place {
    folder: tempfile::TempDir,
    rules: Rules,
}

impl Place {
    /// Two entries fill a Change List, so that lists are closed all the time.
    fn new() -> Self {
        Self::with(Rules { change_list_entries: 2, ..Rules::default() })
    }

    /// Each run makes dumps, and archives what the one before closed.
    fn with_upkeep() -> Self {
        let now = Some(0);
        Self::with(Rules {
            change_list_entries: 1,
            resource_dump_seconds: now,
            change_dump_seconds: now,
            archive_seconds: now,
            resource_lists_kept: 3,
            ..Rules::default()
        })
    }

    fn with(rules: Rules) -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap(), rules };
        fs::create_dir(place.data()).unwrap();
        place
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("site")
    }

    fn put(&self, name: &str, content: &str) {
        fs::write(self.data().join(name), content).unwrap();
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings::new(self.data(), BaseUrl::parse("http://example.org/").unwrap())
            .hub(HubUrl::parse("http://hub.example.org/").unwrap());
        settings.rules = self.rules;
        settings
    }

    fn build(&self) -> Result<Built, Error> {
        build(&self.settings(), &self.out())
    }

    /// Makes a dump, and does something else when it is about to pack the first of what it holds.
    fn dump_while(&self, what: Dump, meanwhile: impl Fn()) -> Result<Dumped, Error> {
        dump(&self.out(), what, &|step| {
            if step.done == 1 {
                let lock = fs::File::open(self.out().join(".resync-source/lock")).unwrap();
                lock.try_lock().expect("others may change the site");
                drop(lock);
                meanwhile();
            }
        })
    }

    /// What a watch does when these have changed.
    fn build_paths(&self, paths: &[&str], mode: BuildMode) -> Built {
        let (settings, out) = (self.settings(), self.out());
        Build::new(&settings, &out).only(paths.iter().map(PathBuf::from)).mode(mode).run().unwrap()
    }

    fn read(&self, path: &str) -> resync_core::document::Document {
        xml::read(&fs::read(self.out().join(path)).unwrap()).unwrap().into_document().unwrap()
    }

    /// The documents of a series: those in the archive, then those of the index.
    fn series(&self, stem: &str) -> Vec<String> {
        let mut paths = Vec::new();
        for name in [format!("resync/{stem}-archive.xml"), format!("resync/{stem}.xml")] {
            if self.out().join(&name).exists() {
                let document = self.read(&name);
                let found =
                    document.entries().iter().map(|entry| entry.loc.replace("http://example.org/", ""));
                paths.extend(found.filter(|path| !paths.contains(path)).collect::<Vec<_>>());
            }
        }
        paths
    }

    /// All changes in the Change Lists, in their order.
    fn published(&self) -> Vec<(Change, String)> {
        let mut published = Vec::new();
        for path in self.series("changelist") {
            let list = self.read(&path);
            for entry in list.entries() {
                let change = entry.metadata.as_ref().unwrap().change.unwrap();
                published.push((change, entry.loc.replace("http://example.org/", "")));
            }
        }
        published
    }

    /// What a Destination has that starts from the Resource List and then follows the Change Lists.
    fn followed(&self) -> BTreeMap<String, Option<String>> {
        let hash = |entry: &resync_core::document::Entry| {
            entry.metadata.as_ref().map(|metadata| metadata.hash.to_string()).filter(|hash| !hash.is_empty())
        };
        let list = self.read("resync/resourcelist.xml");
        let at = list.header().metadata.at.unwrap();
        let mut copy: BTreeMap<_, _> =
            list.entries().iter().map(|entry| (entry.loc.clone(), hash(entry))).collect();
        for path in self.series("changelist") {
            for entry in self.read(&path).entries() {
                let metadata = entry.metadata.as_ref().unwrap();
                if metadata.datetime.unwrap() < at {
                    continue;
                }
                match metadata.change.unwrap() {
                    Change::Deleted => drop(copy.remove(&entry.loc)),
                    Change::Created | Change::Updated => drop(copy.insert(entry.loc.clone(), hash(entry))),
                }
            }
        }
        copy
    }

    fn expected(&self) -> BTreeMap<String, Option<String>> {
        let files = fs::read_dir(self.data()).unwrap().map(|entry| entry.unwrap());
        files
            .map(|file| {
                let digest = resync_core::digest::Digest::of(
                    resync_core::digest::Algorithm::Sha256,
                    &fs::read(file.path()).unwrap(),
                );
                let loc = format!("http://example.org/{}", file.file_name().to_str().unwrap());
                (loc, Some(digest.to_string()))
            })
            .collect()
    }
}

#[test]
fn rs121_changes_are_told_in_the_order_in_which_they_were_seen_and_lists_are_closed_by_rule() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    assert_eq!(place.published(), []);
    place.put("b", "1");
    place.build().unwrap();
    place.put("a", "22");
    place.put("c", "1");
    fs::remove_file(place.data().join("b")).unwrap();
    let built = place.build().unwrap();
    assert_eq!(built.changes, Changes { created: 1, updated: 1, deleted: 1 });
    let expected =
        [(Change::Created, "b"), (Change::Updated, "a"), (Change::Deleted, "b"), (Change::Created, "c")];
    assert_eq!(place.published(), expected.map(|(change, name)| (change, name.to_owned())));
    let index = place.read("resync/changelist.xml");
    let until = |number: usize| index.entries()[number].metadata.as_ref().unwrap().until;
    assert_eq!((index.entries().len(), until(0).is_some(), until(1)), (2, true, None));
    assert_eq!(place.followed(), place.expected());
}

#[test]
fn a_run_that_is_cut_short_anywhere_is_completed_by_the_next_and_tells_each_change_once() {
    // One run after the other, so that every act of each is once the last.
    let mut acts = 0;
    loop {
        let place = Place::new();
        for name in ["a", "b", "c"] {
            place.put(name, "1");
        }
        place.build().unwrap();
        place.put("a", "22");
        place.put("d", "1");
        place.put("e", "1");
        fs::remove_file(place.data().join("b")).unwrap();
        interrupt_after(Some(acts));
        let cut = place.build();
        interrupt_after(None);
        let changed = (Change::Updated, "a".to_owned());
        if cut.is_ok() {
            assert!(acts > 8, "lists, index, state and more: {acts} acts");
            return;
        }
        // Readers find no list that an index leads to missing, and what they follow is one of the two states.
        let between = place.followed();
        assert!(between.len() == 3 || between == place.expected(), "after {acts} acts: {between:?}");
        place.put("f", "after");
        place.build().unwrap();
        let published = place.published();
        let mut once = published.clone();
        once.sort_by(|one, other| one.1.cmp(&other.1));
        let names: Vec<_> = once.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "d", "e", "f"], "after {acts} acts: {published:?}");
        assert_eq!(published[0], changed);
        assert_eq!(place.followed(), place.expected(), "after {acts} acts");
        assert_eq!(place.build().unwrap().written, [], "after {acts} acts");
        acts += 1;
    }
}

#[test]
fn what_killed_runs_left_that_is_not_in_its_place_is_removed_by_a_full_build() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    let folders = ["resync", "resync/patches", ".well-known", ".resync-source", ".resync-source/outbox"].map(
        |folder| {
            let folder = place.out().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(".resync-left.tmp"), "x").unwrap();
            folder
        },
    );
    place.build().unwrap();
    for folder in folders {
        assert!(!folder.join(".resync-left.tmp").exists(), "{}", folder.display());
    }
}

#[test]
fn what_waits_for_a_hub_is_kept_wherever_a_run_is_cut_short_that_names_another() {
    for acts in 0.. {
        let place = Place::new();
        place.build().unwrap();
        place.put("one", "1");
        place.build().unwrap();
        let mut elsewhere = place.settings();
        elsewhere.hubs = vec![HubUrl::parse("http://wrong.example.org/").unwrap()];
        place.put("two", "1");
        interrupt_after(Some(acts));
        let cut = build(&elsewhere, &place.out());
        interrupt_after(None);
        place.put("three", "1");
        place.build().unwrap();
        let state = State::load(&place.out()).unwrap();
        let waiting = state.waiting_for(&state.hubs[&place.settings().hubs[0]]);
        let names = waiting.flat_map(|number| {
            let bytes = fs::read(crate::outbox::path(&place.out(), number)).unwrap();
            let entries = xml::read(&bytes).unwrap().into_document().unwrap().entries().to_vec();
            entries.into_iter().map(|entry| entry.loc.replace("http://example.org/", ""))
        });
        let mut names: Vec<_> = names.collect();
        // A run that was not begun leaves both changes to the next, which has them in the order of their names.
        names[1..].sort();
        assert_eq!(names, ["one", "three", "two"], "after {acts} acts");
        if cut.is_ok() {
            assert!(acts > 8, "lists, index, notification, state and more: {acts} acts");
            return;
        }
    }
}

#[test]
fn ar003_ar009_archives_and_dumps_that_are_due_are_completed_too_wherever_a_run_is_cut_short() {
    let mut acts = 0;
    let mut failures = Vec::new();
    loop {
        let place = Place::with_upkeep();
        for name in ["a", "b", "c"] {
            place.put(name, "1");
        }
        place.build().unwrap();
        for name in ["a", "b"] {
            place.put(name, "22");
            place.build().unwrap();
        }
        place.put("a", "333");
        place.put("c", "22");
        interrupt_after(Some(acts));
        let cut = place.build();
        interrupt_after(None);
        let between = place.followed();
        assert!(between.len() == 3, "after {acts} acts: {between:?}");
        place.put("d", "after");
        place.build().unwrap();
        place.build().unwrap();
        let published = place.published();
        let names: Vec<_> = published.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "a", "c", "d"], "after {acts} acts");
        assert_eq!(place.followed(), place.expected(), "after {acts} acts");
        let archive = place.read("resync/changelist-archive.xml");
        assert_eq!(archive.entries().len(), 4, "all but the open one, after {acts} acts");
        let lists = place.read("resync/resourcelist-archive.xml");
        let at = |path: &str| place.read(path).header().metadata.at;
        let archived: Vec<_> =
            lists.entries().iter().map(|entry| at(&entry.loc.replace("http://example.org/", ""))).collect();
        assert_eq!(archived.len(), 2, "after {acts} acts");
        assert!(archived.is_sorted() && archived[1] < at("resync/resourcelist.xml"), "after {acts} acts");
        let moments: Vec<_> =
            archive.entries().iter().map(|entry| entry.metadata.clone().unwrap().until).collect();
        assert!(moments.is_sorted() && moments[0].is_some(), "after {acts} acts");
        let capabilities = place.read("resync/capabilitylist.xml");
        let capabilities: Vec<_> = capabilities
            .entries()
            .iter()
            .map(|entry| entry.capability().unwrap().token().to_owned())
            .collect();
        for token in ["resourcedump", "changedump", "resourcelist-archive", "changelist-archive"] {
            assert_eq!(capabilities.iter().filter(|known| *known == token).count(), 1, "after {acts} acts");
        }
        assert_eq!(place.build().unwrap().written, [], "after {acts} acts");
        let Ok(cut) = cut else {
            assert!(failures.is_empty(), "the lists come first, after {acts} acts");
            acts += 1;
            continue;
        };
        let Some(first) = cut.failures.first() else {
            assert!(acts > 20, "lists, archives, dumps, states: {acts} acts");
            failures.dedup();
            let all =
                [Maintenance::Archives, Maintenance::Dump(Dump::Resources), Maintenance::Dump(Dump::Changes)];
            assert_eq!(failures, all, "the lists are published all the same");
            return;
        };
        failures.push(first.what);
        acts += 1;
    }
}

#[test]
fn where_it_is_known_what_changed_only_that_is_looked_at_and_the_outcome_is_the_same() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        place.put(name, "1");
    }
    fs::create_dir(place.data().join("folder")).unwrap();
    place.put("folder/d", "1");
    place.build().unwrap();
    let some = |names: &[&str]| place.build_paths(names, BuildMode::Full);
    place.put("a", "22");
    place.put("b", "22");
    fs::remove_file(place.data().join("c")).unwrap();
    let built = some(&["a", "c", "never"]);
    assert_eq!((built.changes, built.resources), (Changes { updated: 1, deleted: 1, created: 0 }, 3));
    assert_eq!(built.bytes, 4, "of b the length that is known");
    fs::rename(place.data().join("folder"), place.data().join("moved")).unwrap();
    let built = some(&["folder", "moved"]);
    assert_eq!((built.changes, built.resources), (Changes { updated: 0, deleted: 1, created: 1 }, 3));
    assert_eq!(some(&["a", "moved"]).written, []);
    let built = place.build().unwrap();
    assert_eq!((built.changes, built.bytes), (Changes { updated: 1, ..Changes::default() }, 5), "b");
    let published = ["a", "c", "folder/d", "moved/d", "b"];
    assert!(place.published().iter().map(|(_, name)| name.as_str()).eq(published), "{:?}", place.published());
}

#[test]
fn a_first_run_that_is_cut_short_anywhere_is_completed_by_the_next() {
    let mut acts = 0;
    loop {
        let place = Place::new();
        place.put("a", "1");
        interrupt_after(Some(acts));
        let cut = place.build();
        interrupt_after(None);
        if cut.is_ok() {
            return;
        }
        place.build().unwrap();
        assert_eq!(place.followed(), place.expected(), "after {acts} acts");
        assert_eq!(place.build().unwrap().written, [], "after {acts} acts");
        acts += 1;
    }
}

#[test]
fn a_build_that_finds_none_of_the_resources_is_refused_and_changes_nothing() {
    let place = Place::new();
    assert_eq!(place.build().unwrap().resources, 0, "nothing is lost by the first one");
    for name in ["a", "b"] {
        place.put(name, "1");
    }
    place.build().unwrap();
    let (settings, out) = (place.settings(), place.out());
    let site = || {
        let paths = walkdir::WalkDir::new(&out).into_iter().map(|entry| entry.unwrap().into_path());
        // The lock says since when it is held.
        let files = paths.filter(|path| path.is_file() && !path.ends_with("lock"));
        files.map(|path| (fs::read(&path).unwrap(), path)).collect::<BTreeSet<_>>()
    };
    let before = site();
    let is_refused = |build: Build<'_>| {
        let result = build.run();
        assert!(matches!(result, Err(Error::EmptyCollection { before: 2, .. })), "{result:?}");
        assert!(site() == before, "it leaves the site alone");
    };
    is_refused(Build::new(&Settings { ignore: vec!["*".to_owned()], ..settings.clone() }, &out));
    for name in ["a", "b"] {
        fs::remove_file(place.data().join(name)).unwrap();
    }
    is_refused(Build::new(&settings, &out));
    is_refused(Build::new(&settings, &out).mode(BuildMode::Quick).only(["a", "b"].map(PathBuf::from)));
    let base_url = BaseUrl::parse("http://other.example.org/").unwrap();
    is_refused(Build::new(&Settings { base_url, ..settings.clone() }, &out));

    place.put("a", "1");
    let built = place.build_paths(&["b"], BuildMode::Quick);
    assert_eq!((built.changes.deleted, built.resources), (1, 1), "another one is left");
    fs::remove_file(place.data().join("a")).unwrap();
    let built = Build::new(&settings, &out).allow_empty(true).run().unwrap();
    assert_eq!((built.changes.deleted, built.resources), (1, 0));
    assert_eq!(place.build().unwrap().changes.total(), 0, "nothing is left to lose");
}

#[test]
fn another_base_url_starts_another_series() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    place.put("b", "1");
    place.build().unwrap();
    let mut settings = place.settings();
    settings.base_url = BaseUrl::parse("http://example.org/moved/").unwrap();
    build(&settings, &place.out()).unwrap();
    let index = place.read("resync/changelist.xml");
    assert_eq!(index.entries()[0].loc, "http://example.org/moved/resync/changelist-1.xml");
    let list = place.read("resync/changelist-1.xml");
    assert_eq!((list.entries().len(), list.header().metadata.until), (0, None));
    assert_eq!(list.header().metadata.from, place.read("resync/resourcelist.xml").header().metadata.at);
}

#[test]
fn the_entries_of_the_open_change_list_are_taken_over_as_they_were_written() {
    let place = Place::with(Rules::default());
    for content in ["1", "22"] {
        place.put("a", content);
        place.build().unwrap();
    }
    let path = place.out().join("resync/changelist-1.xml");
    let marked = fs::read_to_string(&path).unwrap().replacen("<loc>", "<!-- a --><loc>", 1);
    fs::write(&path, &marked).unwrap();
    // As if a build had written that.
    let lock = Lock::acquire(&place.out()).unwrap();
    let mut state = State::load(&place.out()).unwrap();
    let is_open = |record: &&mut DocumentRecord| record.path == "resync/changelist-1.xml";
    state.documents.iter_mut().find(is_open).unwrap().content =
        Digest::of(Algorithm::Sha256, marked.as_bytes());
    state.save(&lock).unwrap();
    drop(lock);
    place.put("a", "333");
    place.build().unwrap();
    assert_eq!(place.published().len(), 2);
    assert!(fs::read_to_string(&path).unwrap().contains("<!-- a -->"));
}

#[test]
fn change_lists_that_somebody_damaged_start_anew_with_a_resource_list_of_the_same_moment() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    fs::write(place.out().join("resync/changelist-1.xml"), "<oops/>").unwrap();
    place.put("b", "1");
    place.build().unwrap();
    let list = place.read("resync/changelist-1.xml");
    assert_eq!((list.entries().len(), place.published()), (0, vec![]));
    assert_eq!(list.header().metadata.from, place.read("resync/resourcelist.xml").header().metadata.at);
    assert_eq!(place.followed(), place.expected());
}

#[test]
fn a_large_resource_list_is_left_alone_until_the_changes_are_many_or_it_is_old() {
    let noon: DateTime = "2026-01-03T12:00:00Z".parse().unwrap();
    let rules = Rules::default();
    let position = StoredPosition { document: 1, entries: 0 };
    let series = Series { until: noon, position, listed: noon, since: 600, begun: noon };
    let outdated = |resources, changes, now| {
        let series = Series { since: series.since + changes, ..series.clone() };
        is_outdated(&series, rules, resources, now)
    };
    assert!(outdated(50_000, 0, noon), "a small one");
    assert!(!outdated(2_400_000, 1_600, noon));
    assert!(outdated(2_400_000, 240_000, noon));
    let month_later = "2026-02-03T12:00:00Z".parse().unwrap();
    assert!(outdated(2_400_000, 1, month_later));
    let nothing = Series { since: 0, ..series.clone() };
    assert!(!is_outdated(&nothing, rules, 10, month_later));
}

#[test]
fn a_dump_that_fails_is_named_and_the_lists_are_published_and_the_next_build_makes_it() {
    let place = Place::with_upkeep();
    place.put("a", "1");
    // Where the top of the dump is to lie there is a folder.
    let in_the_way = place.out().join("resync/resourcedump.xml");
    fs::create_dir_all(&in_the_way).unwrap();
    let failures = |built: &Built| built.failures.iter().map(|failures| failures.what).collect::<Vec<_>>();
    for content in ["22", "333", "4444"] {
        let built = place.build().unwrap();
        assert_eq!(failures(&built), [Maintenance::Dump(Dump::Resources)]);
        assert!(built.failures[0].to_string().contains("Resource Dump"), "{}", built.failures[0]);
        assert_eq!(place.followed(), place.expected());
        place.put("a", content);
    }
    fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(failures(&place.build().unwrap()), []);
    assert_eq!(place.read("resync/resourcedump.xml").entries().len(), 1);
}

#[test]
fn an_archiving_that_fails_is_named_and_in_the_way_of_neither_lists_nor_hubs_and_the_next_build_does_it() {
    let rules = Rules { change_list_entries: 1, archive_seconds: Some(0), ..Rules::default() };
    let place = Place::with(rules);
    place.put("a", "1");
    place.build().unwrap();
    // Where the archive is to lie there is a folder.
    let in_the_way = place.out().join("resync/changelist-archive.xml");
    fs::create_dir(&in_the_way).unwrap();
    for (content, expected) in [("22", 0), ("333", 1), ("4444", 1)] {
        place.put("a", content);
        let built = place.build().unwrap();
        assert_eq!((built.changes.updated, built.failures.len()), (1, expected));
        assert!(built.failures.iter().all(|failures| failures.what == Maintenance::Archives));
        assert!(!Plan::exists(&place.out()));
        let state = State::load(&place.out()).unwrap();
        assert!(
            state.documents.iter().all(|record| is_in_place(&place.out(), record)),
            "hubs can be notified"
        );
    }
    fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(place.build().unwrap().failures.len(), 0);
    assert_eq!(place.read("resync/changelist-archive.xml").entries().len(), 2);
    assert_eq!(place.published().len(), 3);
    assert_eq!(place.followed(), place.expected());
}

#[cfg(unix)]
#[test]
fn ar004_a_resource_list_that_cannot_be_archived_for_now_stays_and_is_archived_by_the_next_build() {
    let place = Place::with(Rules { resource_lists_kept: 3, ..Rules::default() });
    for content in ["1", "22"] {
        place.put("a", content);
        place.build().unwrap();
    }
    let moment = |path: &str| place.read(path).header().metadata.at.unwrap();
    let waits = moment("resync/resourcelist.xml");
    // For now nobody can look at the archive.
    let archive = place.out().join("resync/resourcelist-archive.xml");
    let aside = place.out().join("aside");
    fs::rename(&archive, &aside).unwrap();
    std::os::unix::fs::symlink(&archive, &archive).unwrap();
    for content in ["333", "4444"] {
        place.put("a", content);
        let built = place.build().unwrap();
        let failures: Vec<_> = built.failures.iter().map(|failures| failures.what).collect();
        assert_eq!((failures, built.changes.updated), (vec![Maintenance::Archives], 1));
        assert_eq!(moment("resync/resourcelist.xml"), waits, "it stays");
        assert_eq!(place.followed(), place.expected());
    }
    fs::rename(&aside, &archive).unwrap();
    assert_eq!(place.build().unwrap().failures.len(), 0);
    let archived = place.read("resync/resourcelist-archive.xml");
    let archived: Vec<_> =
        archived.entries().iter().map(|entry| entry.metadata.as_ref().and_then(|md| md.at)).collect();
    assert_eq!((archived.len(), archived[1]), (2, Some(waits)));
    assert!(moment("resync/resourcelist.xml") > waits);
    assert_eq!(place.followed(), place.expected());
}

#[cfg(unix)]
#[test]
fn a_link_is_told_of_though_what_it_leads_to_has_not_changed() {
    let place = Place::new();
    for name in ["v3", "v4"] {
        place.put(name, name);
    }
    let current = place.data().join("current");
    let lead_to = |name: &str| {
        drop(fs::remove_file(&current));
        std::os::unix::fs::symlink(name, &current).unwrap();
    };
    lead_to("v3");
    place.build().unwrap();
    lead_to("v4");
    place.build_paths(&["current"], BuildMode::Quick);
    assert_eq!(place.published(), [(Change::Updated, "current".to_owned())]);
    assert_eq!(place.build().unwrap().changes.total(), 0);
}

#[test]
fn cn008_cn015_a_resource_list_that_brings_no_news_leaves_the_chain_of_change_notifications_whole() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    let build = |mode| place.build_paths(&["a"], mode);
    for content in ["22", "333"] {
        place.put("a", content);
        assert_eq!(build(BuildMode::Quick).changes.updated, 1);
        assert_eq!(build(BuildMode::Full).changes.total(), 0);
        let listed = place.read("resync/resourcelist.xml").header().metadata.at;
        let published =
            place.read("resync/changelist-1.xml").entries().last().and_then(|entry| entry.metadata.clone());
        assert!(published.unwrap().datetime < listed, "the list is newer than the change");
    }
    let interval = |number| {
        let path = crate::outbox::path(Path::new(""), number);
        let metadata = place.read(path.to_str().unwrap()).header().metadata.clone();
        (metadata.from.unwrap(), metadata.until.unwrap())
    };
    assert_eq!(interval(1).1, interval(2).0);
    assert!(interval(2).1 > interval(2).0);
}

#[test]
fn links_that_no_document_may_have_are_refused_before_anything_is_planned() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    let link = LinkTemplate::new("collection", "http://example.org/").unwrap();
    let with = |media_type: &str| {
        build(
            &Settings { links: vec![link.clone().media_type(media_type)], ..place.settings() },
            &place.out(),
        )
    };
    assert!(with("text/html\u{1}").is_err());
    assert_eq!(with("text/html").unwrap().resources, 1);
    assert_eq!(place.read("resync/resourcelist.xml").entries()[0].links.len(), 1);
}

#[test]
fn documents_that_only_got_another_time_are_read_once_and_not_each_time() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    let list = place.out().join("resync/resourcelist.xml");
    fs::File::options()
        .write(true)
        .open(&list)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let is_known = || {
        let state = State::load(&place.out()).unwrap();
        let stamp = state.document(&Capability::ResourceList).unwrap().stamp;
        stamp == build::Stamp::of(&fs::metadata(&list).unwrap()).ok()
    };
    assert!(!is_known());
    assert!(place.build().unwrap().written.is_empty());
    assert!(is_known());
}

#[test]
fn a_quick_build_publishes_changes_and_leaves_the_resource_list_to_a_full_one() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    place.put("a", "22");
    let is_listed =
        |built: &Built| built.written.iter().any(|document| document.capability == Capability::ResourceList);
    let quick = place.build_paths(&["a"], BuildMode::Quick);
    assert_eq!((quick.changes.updated, is_listed(&quick), quick.list_is_due), (1, false, true));
    assert_eq!(place.followed(), place.expected());
    let full = place.build_paths(&[], BuildMode::Full);
    assert_eq!((full.changes.total(), is_listed(&full), full.list_is_due), (0, true, false));
    assert_eq!((place.followed(), place.published().len()), (place.expected(), 1));
}

#[test]
fn a_quick_build_leaves_due_dumps_to_a_full_one() {
    let place = Place::with_upkeep();
    place.put("a", "1");
    place.build().unwrap();
    place.put("a", "22");
    let dumps = |built: &Built| {
        let of_dumps = built.written.iter().filter(|document| !document.is_index).filter(|document| {
            matches!(document.capability, Capability::ResourceDump | Capability::ChangeDump)
        });
        of_dumps.count()
    };
    let quick = place.build_paths(&["a"], BuildMode::Quick);
    assert_eq!((quick.changes.updated, dumps(&quick), quick.dump_is_due), (1, 0, true));
    let full = place.build_paths(&[], BuildMode::Full);
    assert_eq!((full.changes.total(), dumps(&full), full.dump_is_due), (0, 2, false));
    assert!(!place.build_paths(&[], BuildMode::Quick).dump_is_due);
}

#[test]
fn builds_go_on_while_a_dump_is_packed_and_what_they_tell_makes_the_next_one_due() {
    let place = Place::with(Rules { resource_dump_seconds: Some(0), ..Rules::default() });
    place.put("a", "1");
    place.build_paths(&[], BuildMode::Quick);
    let dumped = place.dump_while(Dump::Resources, || {
        place.put("b", "1");
        assert_eq!(place.build_paths(&["b"], BuildMode::Quick).changes.created, 1);
    });
    assert_eq!(dumped.unwrap().packages, 1);
    assert!(place.build_paths(&[], BuildMode::Quick).dump_is_due, "the dump does not hold what is new");
    place.build().unwrap();
    assert!(!place.build_paths(&[], BuildMode::Quick).dump_is_due);
}

#[test]
fn rs143_a_first_change_dump_does_not_tell_of_change_lists_that_were_begun_anew_meanwhile() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    place.put("a", "22");
    place.build().unwrap();
    let dumped = place.dump_while(Dump::Changes, || {
        fs::write(place.out().join("resync/changelist-1.xml"), "damaged").unwrap();
        place.build().unwrap();
    });
    assert!(matches!(dumped, Err(Error::Overtaken { .. })), "{dumped:?}");
    assert!(!place.out().join("resync/changedump.xml").exists());
}

#[test]
fn a_change_dump_reads_closed_lists_while_it_packs_and_is_made_again_where_they_are_begun_anew() {
    let place = Place::with(Rules { change_list_entries: 1, ..Rules::default() });
    for content in ["1", "22", "333", "4444"] {
        place.put("a", content);
        place.build().unwrap();
    }
    let dumped = place.dump_while(Dump::Changes, || {
        fs::write(place.out().join("resync/changelist.xml"), "damaged").unwrap();
        place.build().unwrap();
        assert!(!place.out().join("resync/changelist-2.xml").exists());
    });
    assert!(matches!(dumped, Err(Error::Overtaken { .. })), "{dumped:?}");
    assert!(!place.out().join("resync/changedump.xml").exists());
    for content in ["1", "22", "333"] {
        place.put("a", content);
        place.build().unwrap();
    }
    let steps = std::cell::RefCell::new(Vec::new());
    let progress = |step: Progress| steps.borrow_mut().push((step.done, step.all));
    assert_eq!(dump(&place.out(), Dump::Changes, &progress).unwrap().packages, 1);
    assert_eq!(steps.into_inner(), [(1, Some(3)), (2, Some(3)), (3, Some(3))]);
}

#[test]
fn ar004_archived_lists_stay_until_it_is_certain_what_is_published_instead() {
    for acts in 0.. {
        let place = Place::with(Rules { resource_lists_kept: 3, ..Rules::default() });
        for content in ["1", "22", "333"] {
            place.put("a", content);
            place.build().unwrap();
        }
        let listed = place.series("resourcelist");
        let archive = place.out().join("resync/resourcelist-archive.xml");
        let base_url = BaseUrl::parse("http://other.example.org/").unwrap();
        let moved = Settings { base_url, ..place.settings() };
        interrupt_after(Some(acts));
        let cut = build(&moved, &place.out());
        interrupt_after(None);
        if Plan::exists(&place.out()) || cut.is_ok() {
            build(&moved, &place.out()).unwrap();
            assert!(!archive.exists(), "it was that of another site");
            return;
        }
        assert_eq!(place.series("resourcelist"), listed, "after {acts} acts");
        for path in listed.iter().filter(|path| path.starts_with("resync/")) {
            assert!(place.out().join(path).exists(), "{path} after {acts} acts");
        }
    }
}

#[test]
fn a_change_dump_that_fails_before_anybody_could_see_it_is_not_under_way() {
    let place = Place::new();
    place.put("a", "1");
    place.build().unwrap();
    place.put("a", "22");
    place.build().unwrap();
    place.put("a", "333");
    let failed = dump(&place.out(), Dump::Changes, &|_| ()).unwrap_err();
    assert!(matches!(failed, Error::Lists(build::BuildError::BytesGone { .. })), "{failed}");
    assert!(!is_under_way(&place.out()));
    place.build().unwrap();
    assert_eq!(dump(&place.out(), Dump::Changes, &|_| ()).unwrap().packages, 1);
    assert!(!is_under_way(&place.out()));
}

#[test]
fn a_change_dump_that_is_cut_short_when_somebody_may_have_seen_it_is_under_way_until_the_next() {
    let mut acts = 0;
    let mut has_been_seen = false;
    loop {
        let place = Place::new();
        place.put("a", "1");
        place.build().unwrap();
        place.put("a", "22");
        place.build().unwrap();
        interrupt_after(Some(acts));
        let cut = dump(&place.out(), Dump::Changes, &|_| ());
        interrupt_after(None);
        let is_there = place.out().join("resync/changedump-1.xml").exists();
        if cut.is_ok() {
            assert!(has_been_seen, "list, index, state: {acts} acts");
            return;
        }
        has_been_seen |= is_there;
        assert!(is_under_way(&place.out()) || !is_there, "after {acts} acts");
        dump(&place.out(), Dump::Changes, &|_| ()).unwrap();
        assert!(!is_under_way(&place.out()), "after {acts} acts");
        acts += 1;
    }
}

#[test]
fn a_build_after_a_dump_that_was_cut_short_anywhere_tells_of_what_is_there_and_hubs_can_be_told() {
    for what in [Dump::Resources, Dump::Changes] {
        let mut has_been_replaced = false;
        for acts in 0.. {
            // The dump has one name, and nobody makes it again.
            let place = Place::with(Rules::default());
            place.put("a", "1");
            place.build().unwrap();
            for content in ["22", "333"] {
                place.put("a", content);
                place.build().unwrap();
                interrupt_after((content == "333").then_some(acts));
                let dumped = dump(&place.out(), what, &|_| ());
                interrupt_after(None);
                assert!(content == "333" || dumped.is_ok());
            }
            let state = || State::load(&place.out()).unwrap();
            let are_in_place =
                |state: &State| state.documents.iter().all(|record| is_in_place(&place.out(), record));
            let was_cut_short = !are_in_place(&state());
            has_been_replaced |= was_cut_short;
            place.build().unwrap();
            assert!(are_in_place(&state()), "{what:?} after {acts} acts");
            assert!(state().document(&what.capability()).is_some(), "{what:?} after {acts} acts");
            if has_been_replaced && !was_cut_short {
                break;
            }
            assert!(acts < 100, "a dump is through some time");
        }
    }
}

#[test]
fn a_dump_that_somebody_removed_is_told_of_no_more_and_in_the_way_of_nothing() {
    for (what, name) in [
        (Dump::Resources, "resourcedump.xml"),
        (Dump::Changes, "changedump.xml"),
        (Dump::Changes, "changedump-1.xml"),
    ] {
        let place = Place::with(Rules::default());
        place.put("a", "1");
        place.build().unwrap();
        place.put("a", "22");
        place.build().unwrap();
        dump(&place.out(), what, &|_| ()).unwrap();
        fs::remove_file(place.out().join("resync").join(name)).unwrap();
        let written = place.build().unwrap().written;
        assert!(written.iter().any(|document| document.capability == Capability::CapabilityList), "{name}");
        let state = State::load(&place.out()).unwrap();
        assert!(state.document(&what.capability()).is_none(), "{name}");
        let list = place.read("resync/capabilitylist.xml");
        assert!(list.entries().iter().all(|entry| entry.capability() != Some(&what.capability())), "{name}");
    }
}

#[test]
fn it_is_known_when_a_dump_comes_due_or_may_be_tried_again_though_nothing_changes() {
    let hour = Duration::from_secs(3600);
    let place = Place::with(Rules { resource_dump_seconds: Some(hour.as_secs()), ..Rules::default() });
    place.put("a", "1");
    let built = place.build().unwrap();
    assert_eq!((built.dump_is_due, built.next_dump), (false, None), "the dump has all changes");
    place.put("a", "22");
    let before = Instant::now();
    let built = place.build_paths(&["a"], BuildMode::Quick);
    let waits = built.next_dump.unwrap().duration_since(before);
    assert!(!built.dump_is_due && waits <= hour && waits > hour / 2, "{waits:?}");

    fs::remove_file(place.out().join("resync/resourcedump.xml")).unwrap();
    // Where the top of the dump is to lie there is a folder.
    fs::create_dir(place.out().join("resync/resourcedump.xml")).unwrap();
    let mut backoff = DumpBackoff::default();
    place.build_paths(&[], BuildMode::Quick);
    let maintenance = DueDumps::new(&place.out()).backoff(&mut backoff).make();
    assert_eq!(maintenance.failures.len(), 1);
    let waits = maintenance.next_dump.unwrap().duration_since(before);
    assert!(waits >= Duration::from_secs(60) && waits < hour / 2, "{waits:?}");
}
