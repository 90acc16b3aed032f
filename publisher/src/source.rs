//! For systems whose resources are no files: they list what they have, tell what changes, and keep the bytes where they are.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use resync_core::{
    build::{Inventory, Item},
    document::{Change, Metadata},
};

use crate::{
    notify::{NotifyError, Token, Told, notify},
    publish::{self, BuildError, Built},
    settings::{BaseUrl, HubUrl, Root, Rules, SetName, SetNameError, Settings},
};

/// A site whose sets of resources a system of its own tells of.
///
/// ```
/// use std::collections::BTreeMap;
/// use resync_core::{build::Item, document::Metadata};
/// use resync_publisher::{BaseUrl, source::Source};
///
/// // Any database that gives its records in the order of their URIs will do.
/// let mut database = BTreeMap::from([("https://example.org/records/1", 5), ("https://example.org/records/2", 7)]);
/// let out = tempfile::tempdir()?;
/// let source = Source::new(out.path(), BaseUrl::parse("https://example.org/")?);
/// let set = source.set("dataset1")?;
/// let item = |(uri, length): (&&str, &u64)| Ok(Item { length: Some(*length), ..Item::new(*uri) });
/// assert_eq!(set.list(database.iter().map(item))?.resources, 2);
///
/// database.insert("https://example.org/records/2", 9);
/// set.updated("https://example.org/records/2", Metadata { length: Some(9), ..Metadata::default() });
/// database.remove("https://example.org/records/1");
/// set.deleted("https://example.org/records/1");
/// let published = set.publish()?.expect("there are changes");
/// assert_eq!((published.changes.updated, published.changes.deleted, published.resources), (1, 1, 1));
///
/// // Should a crash have lost what was not published yet, the next list finds it.
/// assert_eq!(set.list(database.iter().map(item))?.changes.total(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Source {
    out: PathBuf,
    base_url: BaseUrl,
    hubs: Vec<HubUrl>,
    rules: Rules,
}

impl Source {
    /// A site in `out`, published at `base_url`.
    pub fn new(out: impl Into<PathBuf>, base_url: BaseUrl) -> Self {
        Self { out: out.into(), base_url, hubs: Vec::new(), rules: Rules::default() }
    }

    /// When lists of each set are closed, written anew, and archived. Dumps are of files only: there are none here, whatever the rules say.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = Rules { resource_dump_seconds: None, change_dump_seconds: None, ..rules };
        self
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
        let root = Root { base_url: self.base_url.clone(), name };
        let rules = self.rules;
        let settings = Settings { root: Some(root), rules, ..Settings::new("", self.base_url.clone()) };
        let settings = self.hubs.iter().cloned().fold(settings, Settings::hub);
        Ok(Set { out, settings, changes: Mutex::default() })
    }
}

/// A set of resources that a system tells of.
///
/// Changes are collected in memory until [`publish`](Self::publish) tells of all of them at once: call it every second or so.
#[derive(Debug)]
pub struct Set {
    out: PathBuf,
    settings: Settings,
    changes: Mutex<Vec<(Change, Item)>>,
}

impl Set {
    /// The folder of its documents.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// Lists all resources, in ascending order of their URIs. The first time this makes the set; later it tells what nobody has told: changes are found by
    /// digests where both sides have one, else by length and `lastmod`.
    ///
    /// Changes that were collected before and not published are part of the list and forgotten.
    pub fn list(&self, resources: impl Inventory) -> Result<Built, BuildError> {
        self.collected().clear();
        let built = publish::build_from(&self.settings, &self.out, resources)?;
        publish::describe(&self.out)?;
        Ok(built)
    }

    /// A resource is new.
    pub fn created(&self, uri: impl Into<String>, metadata: Metadata) {
        self.change(Change::Created, item(uri.into(), metadata));
    }

    /// A resource has another representation.
    pub fn updated(&self, uri: impl Into<String>, metadata: Metadata) {
        self.change(Change::Updated, item(uri.into(), metadata));
    }

    /// A resource is gone.
    pub fn deleted(&self, uri: impl Into<String>) {
        self.change(Change::Deleted, Item::new(uri));
    }

    /// A change of a resource of which more is known: its time, its links.
    pub fn change(&self, change: Change, item: Item) {
        self.collected().push((change, item));
    }

    /// Tells the changes that were collected, in their order; `None` when there are none. What cannot be told now stays collected.
    pub fn publish(&self) -> Result<Option<Built>, BuildError> {
        let changes = std::mem::take(&mut *self.collected());
        if changes.is_empty() {
            return Ok(None);
        }
        match publish::record(&self.settings, &self.out, &changes) {
            Ok(built) => Ok(Some(built)),
            Err(error) => {
                self.collected().splice(0..0, changes);
                Err(error)
            }
        }
    }

    /// Tells the hubs what was published; see [`notify()`].
    pub async fn notify(&self, tokens: &[Token]) -> Result<Vec<Told>, NotifyError> {
        notify(&self.out, tokens).await
    }

    fn collected(&self) -> std::sync::MutexGuard<'_, Vec<(Change, Item)>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn item(uri: String, metadata: Metadata) -> Item {
    let Metadata { hash, length, media_type, encoding, .. } = metadata;
    Item { hashes: hash, length, media_type, encoding, ..Item::new(uri) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use resync_core::{
        digest::{Algorithm, Digest},
        document::{Link, Relation},
        xml,
    };

    use super::*;

    fn metadata(content: &str) -> Metadata {
        let hash = Digest::of(Algorithm::Sha256, content.as_bytes()).into();
        Metadata { hash, length: Some(content.len() as u64), ..Metadata::default() }
    }

    fn place() -> (tempfile::TempDir, Set) {
        let out = tempfile::tempdir().unwrap();
        let hub = HubUrl::parse("http://hub.example.org/").unwrap();
        let source = Source::new(out.path(), BaseUrl::parse("http://example.org/").unwrap()).hub(hub);
        let set = source.set("one").unwrap();
        (out, set)
    }

    fn told(set: &Set) -> Vec<(Change, String)> {
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
            let items = names.iter().map(|name| item(format!("http://example.org/{name}"), metadata(name)));
            set.list(items.map(Ok)).unwrap()
        };
        listed(&["a", "c"]);
        assert_eq!(set.publish().unwrap().map(|built| built.resources), None);
        set.created("http://example.org/b", metadata("one"));
        set.updated("http://example.org/b", metadata("b"));
        set.deleted("http://example.org/c");
        let built = set.publish().unwrap().unwrap();
        assert_eq!((built.resources, built.changes.total()), (2, 3));
        let expected = [(Change::Created, "b"), (Change::Updated, "b"), (Change::Deleted, "c")];
        assert_eq!(told(&set), expected.map(|(change, name)| (change, name.to_owned())));
        assert_eq!(listed(&["a", "b"]).changes.total(), 0, "the inventory has followed");
        assert_eq!(listed(&["a"]).changes.deleted, 1);
        assert!(set.out().join(".resync-source/outbox").read_dir().unwrap().count() == 2);
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
        set.list(std::iter::empty()).unwrap();
        for name in ["a", "b", "c"] {
            set.created(format!("http://example.org/{name}"), metadata(name));
            set.publish().unwrap();
        }
        let archive = fs::read(set.out().join("resync/changelist-archive.xml")).unwrap();
        let archive = xml::read(&archive).unwrap().into_document().unwrap();
        assert_eq!(archive.entries()[0].loc, "http://example.org/one/resync/changelist-1.xml");
        assert!(!set.out().join("resync/resourcedump.xml").exists());
    }

    #[test]
    fn rs172_links_that_are_told_stand_in_every_list() {
        let (_out, set) = place();
        let link = Link::new(Relation::Alternate, "http://example.org/a.html");
        let listed = Item { links: vec![link.clone()], ..Item::new("http://example.org/a") };
        set.list([Ok(listed.clone())].into_iter()).unwrap();
        set.change(Change::Updated, Item { length: Some(3), ..listed });
        set.publish().unwrap();
        for name in ["resourcelist.xml", "changelist-1.xml"] {
            let bytes = fs::read(set.out().join("resync").join(name)).unwrap();
            let list = xml::read(&bytes).unwrap().into_document().unwrap();
            assert_eq!(list.entries()[0].links, std::slice::from_ref(&link), "{name}");
        }
    }

    #[test]
    fn changes_of_a_set_that_was_never_listed_stay_collected() {
        let (_out, set) = place();
        set.deleted("http://example.org/c");
        assert!(set.publish().is_err());
        set.list([Ok(Item::new("http://example.org/c"))].into_iter()).unwrap();
        set.deleted("http://example.org/c");
        assert_eq!(set.publish().unwrap().unwrap().changes.deleted, 1);
    }
}
