//! A Source that changes, whose documents are made by core's generators.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use resync_core::build::{
    ChangeDumps, ChangeLists, Completed, Event, Item, MemoryInventory, MemorySink, PackageLimits,
    ResourceDumps, ResourceLists, Rotation, Site, Versions,
};
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest};
use resync_core::document::{Change, Link, Relation};
use resync_subscriber_kit::sync::Offer;
use url::Url;

use super::Source;

/// The moment at which everything begins; then each change takes a second.
const BEGIN: i64 = 1_795_000_000_000;

pub(crate) struct ChangingSource {
    pub(crate) source: Source,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    sink: MemorySink,
    lists: ChangeLists,
    /// Packs the changes too, where there are any.
    dumps: Option<ChangeDumps>,
    seconds: i64,
    shown: BTreeMap<String, Vec<u8>>,
    /// What makes the next version of a file of its last one, packed with it.
    pub(crate) patches: BTreeMap<String, String>,
}

/// What is packed of changes: what there is now, and patches.
struct Present<'s> {
    base: String,
    files: &'s BTreeMap<String, Vec<u8>>,
    patches: &'s BTreeMap<String, String>,
}

impl Versions for Present<'_> {
    type Content = Cursor<Vec<u8>>;

    fn open_version(&mut self, event: &Event) -> std::io::Result<Option<Self::Content>> {
        // What is no longer there was told by a later change.
        Ok(self.files.get(&event.item.loc[self.base.len()..]).cloned().map(Cursor::new))
    }

    fn open_patch(&mut self, link: &Link) -> std::io::Result<Option<Self::Content>> {
        let path = link.href[self.base.len()..].trim_end_matches(".patch");
        Ok(self.patches.get(path).map(|patch| Cursor::new(patch.clone().into_bytes())))
    }
}

impl ChangingSource {
    /// With Change Lists of so many entries at most.
    pub(crate) async fn start(entries: usize) -> Self {
        let source = Source::start().await;
        let rotation = Rotation { entries: Some(entries), ..Rotation::default() };
        let lists = ChangeLists::new(&Site::new(&source.url(""))).rotation(rotation);
        let mut site = Self {
            source,
            files: BTreeMap::new(),
            sink: MemorySink::default(),
            lists,
            dumps: None,
            seconds: 0,
            shown: BTreeMap::new(),
            patches: BTreeMap::new(),
        };
        site.tell(&[]);
        site
    }

    /// With Change Dumps of so many packages at most; each telling is a package.
    pub(crate) async fn packing(packages: usize) -> Self {
        let mut site = Self::start(1000).await;
        let rotation = Rotation { entries: Some(packages), ..Rotation::default() };
        site.dumps = Some(ChangeDumps::new(&Site::new(&site.source.url(""))).rotation(rotation));
        site
    }

    pub(crate) fn now(&mut self) -> DateTime {
        self.seconds += 1;
        self.moment()
    }

    /// When something was done last.
    pub(crate) fn moment(&self) -> DateTime {
        DateTime::from_unix_millis(BEGIN + self.seconds * 1000).unwrap()
    }

    fn item(&self, path: &str) -> Item {
        let mut item = Item::new(self.source.url(&format!("/{path}")));
        if let Some(body) = self.files.get(path) {
            item.length = Some(body.len() as u64);
            item.hashes = [Digest::of(Algorithm::Sha256, body)].into_iter().collect();
        }
        item
    }

    /// Changes files, `None` for a deletion, and tells of it in the Change List.
    pub(crate) fn tell(&mut self, changes: &[(&str, Option<&str>)]) {
        let mut events = Vec::new();
        for (path, body) in changes {
            let before = if let Some(body) = body {
                self.source.put(&format!("/{path}"), body.as_bytes());
                self.files.insert((*path).to_owned(), body.as_bytes().to_vec())
            } else {
                self.source.remove(&format!("/{path}"));
                self.files.remove(*path)
            };
            let change = match (before, body) {
                (_, None) => Change::Deleted,
                (None, Some(_)) => Change::Created,
                (Some(_), Some(_)) => Change::Updated,
            };
            let moment = self.now();
            let mut item = self.item(path);
            item.links = self.patches.get(*path).map(|patch| self.patch(path, patch)).into_iter().collect();
            events.push(Event::new(change, moment, item));
        }
        let now = self.now();
        let from = DateTime::from_unix_millis(BEGIN).unwrap();
        self.lists.record(&mut self.sink, from, events.iter().cloned().map(Ok), now).unwrap();
        if let Some(dumps) = self.dumps.as_ref().filter(|_| !events.is_empty()) {
            let base = self.source.url("/");
            let version = Present { base, files: &self.files, patches: &self.patches };
            dumps.record(&mut self.sink, from, events.into_iter().map(Ok), version, now).unwrap();
        }
        self.show();
    }

    fn patch(&self, path: &str, patch: &str) -> Link {
        Link {
            media_type: Some("application/json-patch+json".to_owned()),
            length: Some(patch.len() as u64),
            hash: [Digest::of(Algorithm::Sha256, patch.as_bytes())].into_iter().collect(),
            ..Link::new(Relation::Patch, self.source.url(&format!("/{path}.patch")))
        }
    }

    /// A new Resource List.
    pub(crate) fn list(&mut self) {
        let at = self.now();
        let items: Vec<Item> = self.files.keys().map(|path| self.item(path)).collect();
        let lists = ResourceLists::new(&Site::new(&self.source.url("")), at).completed(Completed::At(at));
        lists.write(MemoryInventory::new(items).into_iter(), &mut self.sink).unwrap();
        self.show();
    }

    /// A new Resource Dump of what is there now.
    pub(crate) fn dump(&mut self) {
        self.dump_in(PackageLimits::default());
    }

    /// The same in packages of this size.
    pub(crate) fn dump_in(&mut self, limits: PackageLimits) {
        let at = self.now();
        let items: Vec<Item> = self.files.keys().map(|path| self.item(path)).collect();
        let begin = self.source.url("/");
        let files = self.files.clone();
        let content = move |item: &Item| Ok(files.get(&item.loc[begin.len()..]).cloned().map(Cursor::new));
        let dumps = ResourceDumps::new(&Site::new(&self.source.url("")), at).package_limits(limits);
        dumps.write(MemoryInventory::new(items).into_iter(), content, &mut self.sink).unwrap();
        self.show();
    }

    /// Only what is new, so that a test may put something else in a place.
    fn show(&mut self) {
        for name in self.sink.names() {
            let bytes = self.sink.get(name).unwrap();
            if self.shown.get(name).is_none_or(|shown| shown != bytes) {
                if Path::new(name).extension().is_some_and(|extension| extension == "xml") {
                    resync_judge::written("destination", [(name, bytes)]);
                }
                self.source.put(&format!("/{name}"), bytes);
                self.shown.insert(name.to_owned(), bytes.to_vec());
            }
        }
    }

    pub(crate) fn offer(&self) -> Offer {
        let url = |name: &str| Some(Url::parse(&self.source.url(name)).unwrap());
        Offer {
            capability_list: None,
            resource_list: url("/resourcelist.xml"),
            change_list: url("/changelist.xml"),
            resource_dump: self.sink.get("resourcedump.xml").and_then(|_| url("/resourcedump.xml")),
            change_dump: self.sink.get("changedump.xml").and_then(|_| url("/changedump.xml")),
        }
    }

    /// What a Source offers that has nothing but packages.
    pub(crate) fn dumps_only(&self) -> Offer {
        Offer { resource_list: None, change_list: None, ..self.offer() }
    }
}
