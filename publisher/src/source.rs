//! For systems whose resources are not files: they list what they have, report what changes, and keep the content themselves. The example `sqlite.rs` of
//! this crate does so with a database.

use std::{
    cell::Cell,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use resync_common::locks::lock;
use resync_core::{
    build::{self, BuildError, Item},
    datetime::DateTime,
    document::Change,
    rules::Violations,
};

use crate::{
    error::Error,
    helpers::debounce::Debounce,
    inventory,
    notify::{HubReport, Token, notify},
    publish::{self, Build, BuildMode, Built, DumpBackoff},
    settings::{BaseUrl, HubUrl, PageUrl, Root, Rules, SetName, SetNameError, Settings, VersionRules},
    versions::Records,
};

/// A site whose resources a system reports itself.
///
/// ```
/// use std::collections::BTreeMap;
/// use resync_publisher::prelude::*;
///
/// // Any database that gives its records in the order of their URIs will do.
/// let mut database = BTreeMap::from([("https://example.org/records/1", "Moss"), ("https://example.org/records/2", "Fern")]);
/// let item = |(uri, text): (&&str, &&str)| Item::new(*uri).content(text.as_bytes());
///
/// let site = tempfile::tempdir()?;
/// let set = Source::new(site.path(), "https://example.org/".parse()?).set("plants")?;
/// assert_eq!(set.list_all(database.iter().map(item))?.resources, 2);
///
/// database.insert("https://example.org/records/2", "Tree fern");
/// set.updated(Item::new("https://example.org/records/2").content(b"Tree fern"))?;
/// database.remove("https://example.org/records/1");
/// set.deleted("https://example.org/records/1")?;
/// let published = set.publish()?.expect("there are changes");
/// assert_eq!((published.changes.updated, published.changes.deleted, published.resources), (1, 1, 1));
///
/// // If a crash lost unpublished changes, the next list finds them.
/// assert_eq!(set.list_all(database.iter().map(item))?.changes.total(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Source {
    out: PathBuf,
    base_url: BaseUrl,
    hubs: Vec<HubUrl>,
    rules: Rules,
    described_by: Option<PageUrl>,
    allows_empty: bool,
}

impl Source {
    /// A site in `out`, published at `base_url`.
    pub fn new(out: impl Into<PathBuf>, base_url: BaseUrl) -> Self {
        let (out, hubs, rules) = (out.into(), Vec::new(), Rules::default());
        Self { out, base_url, hubs, rules, described_by: None, allows_empty: false }
    }

    /// When lists of each set are closed, written anew, and archived. There are no dumps here, whatever the rules say: these contain files only.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = Rules { resource_dump_seconds: None, change_dump_seconds: None, ..rules };
        self
    }

    /// A page that describes the Source and its sets (RS-056).
    pub fn described_by(mut self, page: PageUrl) -> Self {
        self.described_by = Some(page);
        self
    }

    /// Whether [`Set::list`] may list nothing for a set that had resources. Otherwise it is refused, since the wrong database looks the same. Deletions that
    /// are reported are published in any case.
    pub fn allow_empty(self, allow_empty: bool) -> Self {
        Self { allows_empty: allow_empty, ..self }
    }

    /// Adds a hub to the channels of every set.
    pub fn hub(mut self, hub: HubUrl) -> Self {
        self.hubs.push(hub);
        self
    }

    /// A set of resources, with documents and channels of its own in the folder of its name.
    pub fn set(&self, name: &str) -> Result<Set, SetNameError> {
        let name = SetName::parse(name)?;
        let out = self.out.join(name.as_str());
        let (rules, described_by) = (self.rules, self.described_by.clone());
        let root = Root { base_url: self.base_url.clone(), name, described_by: described_by.clone() };
        let settings =
            Settings { root: Some(root), rules, described_by, ..Settings::new("", self.base_url.clone()) };
        let settings = self.hubs.iter().cloned().fold(settings, Settings::hub);
        let (records, changes, publishing, backoff, lists) = Default::default();
        let allows_empty = self.allows_empty;
        Ok(Set { out, settings, allows_empty, records, changes, publishing, backoff, lists })
    }
}

/// A set of resources that a system reports.
///
/// Changes are collected in memory until [`publish`](Self::publish) publishes all of them at once: call it every second or so.
#[derive(Debug)]
pub struct Set {
    out: PathBuf,
    settings: Settings,
    allows_empty: bool,
    records: Contents,
    changes: Mutex<Vec<(Change, Item)>>,
    /// Locked while a list or changes are published, so that changes stay in their order.
    publishing: Mutex<()>,
    backoff: Mutex<DumpBackoff>,
    lists: Mutex<Lists>,
}

/// What gives the bytes of the resources, if anything does.
#[derive(Clone, Default)]
struct Contents(Option<Records>);

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Contents").field(&self.0.is_some()).finish()
    }
}

/// When a Resource List is written that changes made due.
#[derive(Debug, Default)]
struct Lists {
    debounce: Option<Debounce>,
    /// When the last full build was.
    last_full: Option<Instant>,
    /// Whether it is known if an earlier process left a Resource List due.
    is_known: bool,
}

impl Lists {
    /// Whether a list is due that need not wait any longer.
    fn is_due(&self, now: Instant) -> bool {
        self.debounce.is_some_and(|debounce| debounce.due() <= now)
    }

    /// The mode of the next build. If builds are rare, none of them postpones anything.
    fn mode(&self, now: Instant) -> BuildMode {
        let is_soon = self.last_full.is_some_and(|last| now < last + Debounce::LATEST);
        let waits = if self.debounce.is_some() { !self.is_due(now) } else { is_soon };
        if waits { BuildMode::Quick } else { BuildMode::Full }
    }

    fn note_build(&mut self, mode: BuildMode, built: &Built, now: Instant) {
        self.is_known = true;
        if mode == BuildMode::Full {
            self.last_full = Some(now);
        }
        self.debounce = built.list_is_due.then(|| Debounce::after(self.debounce, now));
    }
}

impl Set {
    /// The folder of its documents.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Keeps versions of the resources (MEM-015). `contents` opens the present bytes of one; it is called while changes are published, and
    /// for each resource the first time that all of them are listed. Bytes with other digests than the item are left out: a change that
    /// another one follows at once has no version. Call this in each process: a set without it removes what was kept.
    #[must_use]
    pub fn keep_versions<R: io::Read + 'static>(
        mut self,
        rules: VersionRules,
        contents: impl Fn(&Item) -> io::Result<Option<R>> + Send + Sync + 'static,
    ) -> Self {
        self.settings.versions = rules;
        self.records =
            Contents(Some(Arc::new(move |item: &Item| -> io::Result<Option<Box<dyn io::Read>>> {
                let content = contents(item)?;
                Ok(content.map(|content| Box::new(content) as Box<dyn io::Read>))
            })));
        self
    }

    /// Lists all resources, in ascending order of their URIs. The first time this makes the set. Later it finds changes that were not reported: by digests if
    /// both sides have one, else by length and `lastmod`.
    ///
    /// `open` begins the listing: the transaction, the cursor, the query. From its call until the end of the list nothing else is published. So report a
    /// change after it is committed, and open no snapshot of the records before `open` is called. Then:
    ///
    /// * changes that were collected before the call are part of the list, which publishes them. They are forgotten when the plan is on disk; if the list
    ///   fails before that, they stay collected;
    /// * later ones stay collected for [`publish`](Self::publish), which may publish once more what the list has published already.
    ///
    /// Both `open` and the resources may fail with an error of the database; then nothing is published. The same holds if nothing is listed and something was
    /// before ([`Error::EmptyList`]), unless [`Source::allow_empty`] is set.
    pub fn list<I, E>(&self, open: impl FnOnce() -> Result<I, E>) -> Result<Built, Error>
    where
        I: IntoIterator<Item = Result<Item, E>>,
        E: Into<BoxError>,
    {
        let open = || {
            let items = open().map_err(unreadable)?;
            Ok(items.into_iter().map(|item| item.map_err(unreadable)))
        };
        let aside = self.set_aside();
        let built = Build::new(&self.settings, &self.out)
            .allow_empty(self.allows_empty)
            .records(self.records.0.clone())
            .backoff(&mut self.backoff())
            .on_plan(&|| aside.forget())
            .list(open)?;
        aside.forget();
        let mut lists = self.lists();
        (lists.debounce, lists.is_known) = (None, true);
        drop(lists);
        publish::describe(&self.out)?;
        Ok(built)
    }

    /// Lists all resources as [`list`](Self::list) does, from memory.
    pub fn list_all(&self, items: impl IntoIterator<Item = Item>) -> Result<Built, Error> {
        self.list(|| Ok::<_, BuildError>(items.into_iter().map(Ok)))
    }

    /// A resource is new. Refuses what no document may list, such as a URI that is not absolute (RS-047).
    pub fn created(&self, item: Item) -> Result<(), Violations> {
        self.change(Change::Created, item)
    }

    /// A resource has another representation. Refuses the same as [`created`](Self::created).
    pub fn updated(&self, item: Item) -> Result<(), Violations> {
        self.change(Change::Updated, item)
    }

    /// A resource was deleted. Refuses the same as [`created`](Self::created).
    pub fn deleted(&self, uri: impl Into<String>) -> Result<(), Violations> {
        self.change(Change::Deleted, Item::new(uri))
    }

    /// A change of a resource. Refuses the same as [`created`](Self::created).
    pub fn change(&self, change: Change, item: Item) -> Result<(), Violations> {
        inventory::length(build::Event::new(change, DateTime::now(), item.clone()))?;
        self.collected().push((change, item));
        Ok(())
    }

    /// Publishes the collected changes, in their order; `None` if there is nothing to do. If it fails, they stay collected, or are in a plan on disk: the next
    /// call, with or without new changes, publishes each of them once.
    ///
    /// A Resource List that the changes make due is written at once if the last one is older than 30 s. Else a later call writes it, with or without new
    /// changes: when none came for 2 s, or 30 s after the first of them. The first call writes one that an earlier process left due.
    pub fn publish(&self) -> Result<Option<Built>, Error> {
        let aside = self.set_aside();
        let was_interrupted = publish::is_interrupted(&self.out);
        let (mut lists, now) = (self.lists(), Instant::now());
        let has_changes = !aside.changes.is_empty() || was_interrupted;
        if !has_changes && !lists.is_due(now) && !self.was_left_due(&mut lists)? {
            return Ok(None);
        }
        let mode = lists.mode(now);
        let built = Build::new(&self.settings, &self.out)
            .mode(mode)
            .records(self.records.0.clone())
            .backoff(&mut self.backoff())
            .on_plan(&|| aside.forget())
            .record(&aside.changes)?;
        lists.note_build(mode, &built, now);
        if was_interrupted {
            // It may have been the first list.
            publish::describe(&self.out)?;
        }
        Ok(Some(built))
    }

    /// Notifies the hubs of what was published; see [`notify()`].
    pub async fn notify(&self, tokens: &[Token]) -> Result<Vec<HubReport>, Error> {
        notify(&self.out, tokens).await
    }

    /// Whether an earlier process left a Resource List due.
    fn was_left_due(&self, lists: &mut Lists) -> Result<bool, Error> {
        if lists.is_known {
            return Ok(false);
        }
        let is_due = publish::is_list_due(&self.settings, &self.out)?;
        lists.is_known = !is_due;
        Ok(is_due)
    }

    fn backoff(&self) -> MutexGuard<'_, DumpBackoff> {
        lock(&self.backoff)
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        lock(&self.lists)
    }

    fn collected(&self) -> MutexGuard<'_, Vec<(Change, Item)>> {
        lock(&self.changes)
    }

    fn set_aside(&self) -> Aside<'_> {
        let publishing = lock(&self.publishing);
        let changes = std::mem::take(&mut *self.collected());
        Aside { set: self, changes, is_published: Cell::new(false), _publishing: publishing }
    }
}

/// The changes that a run is to publish. Unless its plan has them, they are collected again, before all others.
struct Aside<'a> {
    set: &'a Set,
    changes: Vec<(Change, Item)>,
    is_published: Cell<bool>,
    _publishing: MutexGuard<'a, ()>,
}

impl Aside<'_> {
    fn forget(&self) {
        self.is_published.set(true);
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        if !self.is_published.get() {
            self.set.collected().splice(0..0, self.changes.drain(..));
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why resources cannot be listed.
fn unreadable(error: impl Into<BoxError>) -> BuildError {
    error.into().downcast().map_or_else(|error| io::Error::other(error).into(), |error| *error)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use resync_core::{
        document::{Capability, Link, Relation},
        xml,
    };

    use super::*;
    use crate::check;
    use crate::helpers::files::tests::interrupt_after;

    fn item(uri: impl Into<String>, content: &str) -> Item {
        Item::new(uri).content(content.as_bytes())
    }

    fn place() -> (tempfile::TempDir, Set) {
        let out = tempfile::tempdir().unwrap();
        let set = set_in(out.path());
        (out, set)
    }

    /// As a process has it that begins.
    fn set_in(out: &Path) -> Set {
        let hub = HubUrl::parse("http://hub.example.org/").unwrap();
        Source::new(out, BaseUrl::parse("http://example.org/").unwrap()).hub(hub).set("one").unwrap()
    }

    fn published(set: &Set) -> Vec<(Change, String)> {
        let bytes = fs::read(set.out().join("resync/changelist-1.xml")).unwrap();
        let list = xml::read(&bytes).unwrap().into_document().unwrap();
        list.entries()
            .iter()
            .map(|entry| (entry.change().unwrap(), entry.loc.replace("http://example.org/", "")))
            .collect()
    }

    #[test]
    fn rs121_every_change_is_told_in_its_order_and_the_list_knows_the_outcome() {
        let (_out, set) = place();
        let listed = |names: &[&str]| {
            let items = names.iter().map(|name| item(format!("http://example.org/{name}"), name));
            set.list_all(items).unwrap()
        };
        listed(&["a", "c"]);
        assert_eq!(set.publish().unwrap().map(|built| built.resources), None);
        set.created(item("http://example.org/b", "one")).unwrap();
        set.updated(item("http://example.org/b", "b")).unwrap();
        set.deleted("http://example.org/c").unwrap();
        let built = set.publish().unwrap().unwrap();
        assert_eq!((built.resources, built.changes.total()), (2, 3));
        let expected = [(Change::Created, "b"), (Change::Updated, "b"), (Change::Deleted, "c")];
        assert_eq!(published(&set), expected.map(|(change, name)| (change, name.to_owned())));
        assert_eq!(listed(&["a", "b"]).changes.total(), 0, "the inventory has followed");
        assert_eq!(listed(&["a"]).changes.deleted, 1);
        assert!(set.out().join(".resync-source/outbox").read_dir().unwrap().count() == 2);
    }

    #[test]
    fn changes_that_come_often_are_told_each_time_and_the_resource_list_is_written_when_they_pause() {
        let (_out, set) = place();
        set.list(|| Ok(listed(&["a"]).into_iter())).unwrap();
        let publish = |name: &str| {
            set.created(item(format!("http://example.org/{name}"), name)).unwrap();
            set.publish().unwrap().unwrap()
        };
        let is_listed = |built: &Built| {
            built.written.iter().any(|document| document.capability == Capability::ResourceList)
        };
        assert!(is_listed(&publish("b")), "who publishes seldom has the list at once");
        for name in ["c", "d"] {
            let built = publish(name);
            assert_eq!((built.changes.created, is_listed(&built), built.list_is_due), (1, false, true));
        }
        assert!(set.publish().unwrap().is_none(), "the changes have not paused yet");
        // They have.
        let long_ago = Instant::now().checked_sub(2 * Debounce::LATEST).unwrap();
        set.lists().debounce = Some(Debounce::after(None, long_ago));
        let built = set.publish().unwrap().unwrap();
        assert_eq!((built.changes.total(), is_listed(&built), built.resources), (0, true, 4));
        assert!(set.publish().unwrap().is_none());
    }

    #[test]
    fn a_resource_list_that_was_put_off_is_written_after_a_restart_though_nothing_changes() {
        let (out, set) = place();
        set.list(|| Ok(listed(&["a"]).into_iter())).unwrap();
        for name in ["b", "c"] {
            set.created(item(format!("http://example.org/{name}"), name)).unwrap();
            set.publish().unwrap();
        }
        drop(set);
        let set = set_in(out.path());
        let built = set.publish().unwrap().expect("the list is behind");
        let is_list = |document: &publish::Written| document.capability == Capability::ResourceList;
        assert!(built.written.iter().any(is_list) && built.resources == 3, "{built:?}");
        assert!(set.publish().unwrap().is_none());
        assert!(set_in(out.path()).publish().unwrap().is_none(), "nothing is due any more");
    }

    #[test]
    fn rs047_what_no_document_may_tell_of_is_refused_and_is_in_the_way_of_nothing() {
        let (_out, set) = place();
        let list = |uris: &[&str]| set.list_all(uris.iter().map(|uri| Item::new(*uri)));
        list(&["http://example.org/a"]).unwrap();
        for uri in ["records/1", "http://example.org/a b", "http://a/b"] {
            assert!(set.updated(item(uri, "x")).is_err(), "{uri}");
            assert!(list(&["http://example.org/a", uri]).is_err(), "{uri}");
        }
        set.created(item("http://example.org/b", "b")).unwrap();
        assert_eq!(set.publish().unwrap().unwrap().changes.created, 1);
        assert_eq!(list(&["http://example.org/a", "http://example.org/b"]).unwrap().resources, 2);
    }

    #[tokio::test]
    async fn fn004_a_source_description_that_another_set_wrote_keeps_nobody_from_telling() {
        let out = tempfile::tempdir().unwrap();
        // Nobody listens there.
        let hub = HubUrl::parse("http://127.0.0.1:1/").unwrap();
        let source = Source::new(out.path(), BaseUrl::parse("http://example.org/").unwrap()).hub(hub);
        let sets = ["one", "two"].map(|name| source.set(name).unwrap());
        for set in &sets {
            set.list_all([]).unwrap();
        }
        for set in &sets {
            let told = set.notify(&[]).await.unwrap();
            assert!(told[0].changes.iter().any(|change| change.capability == Capability::Description));
        }
    }

    #[test]
    fn ar003_lists_that_were_closed_move_to_the_archive_by_rule() {
        let out = tempfile::tempdir().unwrap();
        let now = Some(0);
        let rules = Rules {
            change_list_entries: 1,
            archive_seconds: now,
            resource_dump_seconds: now,
            ..Rules::default()
        };
        let source = Source::new(out.path(), BaseUrl::parse("http://example.org/").unwrap()).rules(rules);
        let set = source.set("one").unwrap();
        set.list_all([]).unwrap();
        for name in ["a", "b", "c"] {
            set.created(item(format!("http://example.org/{name}"), name)).unwrap();
            set.publish().unwrap();
        }
        let archive = fs::read(set.out().join("resync/changelist-archive.xml")).unwrap();
        let archive = xml::read(&archive).unwrap().into_document().unwrap();
        assert_eq!(archive.entries()[0].loc, "http://example.org/one/resync/changelist-1.xml");
        assert!(!set.out().join("resync/resourcedump.xml").exists());
    }

    #[tokio::test]
    async fn ar007_a_resource_list_under_an_index_is_archived_with_its_parts_for_as_long_as_it_stays() {
        let out = tempfile::tempdir().unwrap();
        let rules = Rules { resource_list_small: u64::MAX, resource_lists_kept: 2, ..Rules::default() };
        let source = Source::new(out.path(), BaseUrl::parse("http://example.org/").unwrap()).rules(rules);
        let set = source.set("one").unwrap();
        let folder = set.out().join("resync");
        let names_in = |name: &str| {
            let bytes = fs::read(folder.join(name)).unwrap();
            let document = xml::read(&bytes).unwrap().into_document().unwrap();
            let name = |url: &str| url.rsplit('/').next().unwrap().to_owned();
            document.entries().iter().map(|entry| name(&entry.loc)).collect::<Vec<_>>()
        };
        let mut parts = Vec::new();
        for round in 0..3 {
            let items = (0..50_001).map(|number| {
                let length = Some(if number == 0 { round } else { 1 });
                Item { length, ..Item::new(format!("http://example.org/{number:05}")) }
            });
            set.list_all(items).unwrap();
            parts.push(names_in("resourcelist.xml"));
        }
        let archived = names_in("resourcelist-archive.xml");
        assert_eq!(archived.len(), 1);
        assert_eq!(names_in(&archived[0]), parts[1]);
        let are_there = |parts: &[String]| parts.iter().filter(|part| folder.join(part).exists()).count();
        let there: Vec<_> = parts.iter().map(|parts| are_there(parts)).collect();
        assert_eq!(there, [0, 2, 2]);
        // Its parts go on pointing at what was their index, which is a plain list now.
        set.list_all([Item::new("http://example.org/alone")]).unwrap();
        assert_eq!(names_in(&names_in("resourcelist-archive.xml")[0]), parts[2]);
        let site = check::Target::parse(out.path().as_os_str()).unwrap();
        let findings = check::check(&[site], &check::Options::default(), |_| ()).await.unwrap();
        assert!(findings.conforming, "{findings:?}");
    }

    #[test]
    fn a_list_that_breaks_off_leaves_nothing_and_the_next_one_is_whole() {
        let (_out, set) = place();
        let items = |count: usize| {
            let item = |number| Ok(Item::new(format!("http://example.org/{number:05}")));
            (0..count).map(item).collect::<Vec<Result<Item, BuildError>>>()
        };
        for count in [0, 10, 5_000] {
            let broken = items(count).into_iter().chain([Err(BuildError::BrokenOff)]);
            assert!(set.list(|| Ok(broken)).is_err());
            let left =
                fs::read_dir(set.out().join("resync")).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(left.into_iter().all(|name| name == ".resync.lock"), "after {count}");
        }
        let built = set.list(|| Ok(items(5_000).into_iter())).unwrap();
        assert_eq!(built.resources, 5_000);
        let bytes = fs::read(set.out().join("resync/resourcelist.xml")).unwrap();
        let list = xml::read(&bytes).unwrap().into_document().unwrap();
        assert_eq!(list.entries().len(), 5_000);
        let metadata = &list.header().metadata;
        assert!(metadata.at.unwrap() <= metadata.completed.unwrap());
    }

    #[test]
    fn records_are_neither_built_nor_dumped_as_if_they_were_files() {
        let (_out, set) = place();
        set.list_all([Item::new("http://example.org/a")]).unwrap();
        let built = Build::new(&set.settings, set.out()).run();
        assert!(matches!(built, Err(Error::NotOfFiles { .. })), "{built:?}");
        for what in [publish::Dump::Resources, publish::Dump::Changes] {
            let dumped = publish::dump(set.out(), what, &|_| ());
            assert!(matches!(dumped, Err(Error::NotOfFiles { .. })), "{dumped:?}");
        }
    }

    #[test]
    fn rs172_links_that_are_told_stand_in_every_list() {
        let (_out, set) = place();
        let link = Link::new(Relation::Alternate, "http://example.org/a.html");
        let listed = Item { links: vec![link.clone()], ..Item::new("http://example.org/a") };
        set.list_all([listed.clone()]).unwrap();
        set.change(Change::Updated, Item { length: Some(3), ..listed }).unwrap();
        set.publish().unwrap();
        for name in ["resourcelist.xml", "changelist-1.xml"] {
            let bytes = fs::read(set.out().join("resync").join(name)).unwrap();
            let list = xml::read(&bytes).unwrap().into_document().unwrap();
            assert_eq!(list.entries()[0].links, std::slice::from_ref(&link), "{name}");
        }
    }

    #[test]
    fn an_empty_list_after_one_with_resources_is_refused_and_reported_deletions_are_not() {
        let (out, set) = place();
        assert_eq!(set.list_all([]).unwrap().resources, 0, "nothing is lost by the first one");
        set.list(|| Ok(listed(&["a", "b"]).into_iter())).unwrap();
        let before = published(&set);
        let refused = || {
            set.updated(item("http://example.org/a", "more")).unwrap();
            let error = set.list_all([]).unwrap_err();
            assert!(matches!(error, Error::EmptyList { before: 2, .. }), "{error}");
            assert_eq!(published(&set), before);
        };
        refused();
        // The lists can no longer be continued.
        fs::remove_file(set.out().join("resync/changelist.xml")).unwrap();
        refused();
        assert_eq!(set.list(|| Ok(listed(&["a", "b"]).into_iter())).unwrap().resources, 2);
        for uri in ["http://example.org/a", "http://example.org/b"] {
            set.deleted(uri).unwrap();
        }
        assert_eq!(set.publish().unwrap().unwrap().resources, 0, "each was reported");
        assert_eq!(set.list_all([]).unwrap().changes.total(), 0);

        set.list(|| Ok(listed(&["a"]).into_iter())).unwrap();
        let base_url = BaseUrl::parse("http://example.org/").unwrap();
        let allowing = Source::new(out.path(), base_url).allow_empty(true).set("one").unwrap();
        assert_eq!(allowing.list_all([]).unwrap().changes.deleted, 1);
    }

    #[test]
    fn changes_of_a_set_that_was_never_listed_stay_collected() {
        let (_out, set) = place();
        set.deleted("http://example.org/c").unwrap();
        assert!(set.publish().is_err());
        set.list_all([Item::new("http://example.org/c")]).unwrap();
        set.deleted("http://example.org/c").unwrap();
        assert_eq!(set.publish().unwrap().unwrap().changes.deleted, 1);
    }

    #[test]
    fn changes_that_cannot_follow_what_was_told_ask_for_a_list_of_all() {
        let (_out, set) = place();
        set.list(|| Ok(listed(&["a"]).into_iter())).unwrap();
        fs::write(set.out().join("resync/changelist-1.xml"), "<oops/>").unwrap();
        set.deleted("http://example.org/a").unwrap();
        let error = set.publish().unwrap_err();
        assert!(matches!(error, Error::NotListed { .. }), "{error}");
        assert_eq!(set.list(|| Ok(listed(&["a"]).into_iter())).unwrap().resources, 1);
    }

    /// The changes in the Change Notifications, in their order.
    fn notified(set: &Set) -> Vec<(Change, String)> {
        let folder = set.out().join(".resync-source/outbox").read_dir().unwrap();
        let mut paths: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        let entries = |path: &PathBuf| {
            xml::read(&fs::read(path).unwrap()).unwrap().into_document().unwrap().entries().to_vec()
        };
        let entries = paths.iter().flat_map(entries);
        entries.map(|entry| (entry.change().unwrap(), entry.loc.replace("http://example.org/", ""))).collect()
    }

    fn listed(names: &[&str]) -> Vec<Result<Item, BuildError>> {
        names.iter().map(|name| Ok(item(format!("http://example.org/{name}"), name))).collect()
    }

    fn changes<const N: usize>(changes: [(Change, &str); N]) -> Vec<(Change, String)> {
        changes.map(|(change, name)| (change, name.to_owned())).into()
    }

    /// Interrupts `run` after each step in turn, and then runs to the end. Exactly these changes must be published.
    fn tells_each_once_wherever_it_fails<T>(
        run: impl Fn(&Set) -> Result<T, Error>,
        expected: &[(Change, String)],
    ) {
        for acts in 0.. {
            let (_out, set) = place();
            set.list(|| Ok(listed(&["a", "c"]).into_iter())).unwrap();
            set.created(item("http://example.org/b", "b")).unwrap();
            set.deleted("http://example.org/c").unwrap();
            interrupt_after(Some(acts));
            let cut = run(&set);
            interrupt_after(None);
            set.publish().unwrap();
            assert_eq!(
                (published(&set), notified(&set)),
                (expected.to_vec(), expected.to_vec()),
                "after {acts} acts"
            );
            assert!(set.publish().unwrap().is_none(), "after {acts} acts");
            assert_eq!(set.list(|| Ok(listed(&["a", "b"]).into_iter())).unwrap().changes.total(), 0);
            if cut.is_ok() {
                assert!(acts > 8, "plan, lists, notification, state and more: {acts} acts");
                return;
            }
        }
    }

    #[test]
    fn changes_are_told_once_wherever_a_publish_fails_and_the_next_one_needs_no_others() {
        let expected = changes([(Change::Created, "b"), (Change::Deleted, "c")]);
        tells_each_once_wherever_it_fails(Set::publish, &expected);
    }

    #[test]
    fn changes_are_told_once_wherever_a_list_fails_that_holds_them() {
        let expected = changes([(Change::Created, "b"), (Change::Deleted, "c")]);
        tells_each_once_wherever_it_fails(|set| set.list(|| Ok(listed(&["a", "b"]).into_iter())), &expected);
    }

    #[test]
    fn changes_stay_collected_when_a_list_cannot_be_opened_or_ends_with_an_error() {
        let (_out, set) = place();
        set.list(|| Ok(listed(&["a"]).into_iter())).unwrap();
        set.created(item("http://example.org/b", "b")).unwrap();
        let broken = || BuildError::from(std::io::Error::other("the database is gone"));
        let ends = [Ok(Item::new("http://example.org/a")), Err(broken())];
        assert!(set.list(|| Ok(ends.into_iter())).is_err());
        assert!(set.list(|| Err::<std::vec::IntoIter<_>, _>(broken())).is_err());
        set.deleted("http://example.org/a").unwrap();
        set.publish().unwrap();
        assert_eq!(published(&set), changes([(Change::Created, "b"), (Change::Deleted, "a")]));
    }

    #[test]
    fn changes_that_are_told_once_a_list_is_open_are_not_part_of_it_and_stay_collected() {
        let (_out, set) = place();
        set.list(|| Ok(listed(&["a"]).into_iter())).unwrap();
        set.created(item("http://example.org/b", "b")).unwrap();
        let open = || {
            let snapshot = listed(&["a", "b"]);
            set.created(item("http://example.org/c", "c")).unwrap();
            Ok(snapshot.into_iter())
        };
        assert_eq!(set.list(open).unwrap().changes.created, 1);
        assert_eq!(published(&set), changes([(Change::Created, "b")]));
        set.publish().unwrap();
        assert_eq!(published(&set), changes([(Change::Created, "b"), (Change::Created, "c")]));
    }

    #[test]
    fn nothing_is_published_between_the_opening_of_a_list_and_its_end() {
        let (_out, set) = place();
        set.list(|| Ok(listed(&["a"]).into_iter())).unwrap();
        std::thread::scope(|scope| {
            let open = || {
                let snapshot = listed(&["a"]);
                set.created(item("http://example.org/b", "b")).unwrap();
                scope.spawn(|| set.publish().unwrap());
                Ok(snapshot.into_iter())
            };
            set.list(open).unwrap();
        });
        assert_eq!(published(&set), changes([(Change::Created, "b")]), "and not that it is deleted");
    }
}
