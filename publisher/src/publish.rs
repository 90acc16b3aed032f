//! A build: inventory, documents, and their atomic replacement in the order components → index → Capability List → Source Description.
//!
//! The state is written last. A build that was cut short leaves documents whose digests the state does not know; the next build replaces them,
//! and removes what is not needed: every file that may have to go is named in the state before it can be forgotten.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use resync_core::{
    datetime::DateTime,
    digest::{Algorithm, Digest},
    document::Capability,
    rules::Violations,
};

use crate::{
    collection::Collection,
    documents::{self, Composed, Documents},
    files,
    inventory::{self, Inventory, InventoryError, Skipped, Unportable},
    lock::Lock,
    settings::{HubUrl, Settings},
    site::{DOCUMENT_FOLDER, Site},
    state::{self, DocumentRecord, HubRecord, State, StateError},
};

/// The folders under OUT in which nothing but the site's own files lies.
const OWN_FOLDERS: [&str; 3] = [DOCUMENT_FOLDER, ".well-known", state::FOLDER];

/// What a build did.
#[derive(Clone, Debug)]
pub struct Built {
    /// Number of resources.
    pub resources: u64,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
    /// The documents that were written, in that order.
    pub written: Vec<Written>,
    /// Number of documents that still say the same and were left untouched.
    pub kept: usize,
    /// What lies in the collection and was left out.
    pub skipped: Vec<Skipped>,
    /// The resources whose names not every Destination can keep.
    pub unportable: Vec<Unportable>,
    /// URL of the Source Description, where Destinations start.
    pub source_description: String,
}

/// A document that a build wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// What it is.
    pub capability: Capability,
    /// Its URL.
    pub url: String,
}

/// What keeps a build from succeeding. The site stays as it was, or as far as it came: the next build completes it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The collection's folder cannot be opened.
    #[error("cannot open the collection `{}`: {source}", path.display())]
    Collection {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The collection lies among the documents that the build would write.
    #[error("the collection `{}` lies among the documents of the site in `{}`: choose another --out", path.display(), out.display())]
    CollectionInSite {
        /// The collection.
        path: PathBuf,
        /// The site.
        out: PathBuf,
    },
    /// A resource cannot be read.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// A document would break a rule of its specification.
    #[error("a document would not conform: {0}")]
    Document(#[from] Violations),
    /// The state cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// A document cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The document.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// Brings the site in `out` in step with the collection of `settings`. Documents whose meaning did not change keep their bytes and time.
///
/// Blocks while another build or notification works on the same `out`. Uses all cores for hashing.
pub fn build(settings: &Settings, out: &Path) -> Result<Built, BuildError> {
    let directory = settings.directory.as_path();
    let unopened = |source| BuildError::Collection { path: directory.to_owned(), source };
    let directory = directory.canonicalize().map_err(unopened)?;
    let lock = Lock::acquire(out)?;
    let collection = Collection::open(&directory, out).map_err(unopened)?;
    refuse_own_documents(&directory, out)?;
    sweep(out)?;
    let mut before = State::load_if_built(out)?;

    let site = Site::new(settings.base_url.clone());
    let inventory = inventory::take(&collection, &settings.base_url, &settings.hash)?;
    let documents = documents::compose(&site, &settings.hubs, &inventory)?;
    let to_remove = plan_removal(&lock, before.as_mut(), &documents)?;
    let now = DateTime::now();
    let replacement = Replacement { out, before: before.as_ref(), now };
    let outcome = replacement.replace_all(&documents)?;
    let bytes = inventory.resources.iter().filter_map(|item| item.length).sum();
    let counts = (inventory.resources.len() as u64, bytes);
    let settings = Settings { directory, ..settings.clone() };
    let hubs = hub_records(&settings, &site, before.as_ref(), now);
    let mut state = State::new(settings, counts, outcome.records, hubs);
    state.builds = replacement.number();
    state.to_remove = to_remove;
    state.notified_on = before.and_then(|before| before.notified_on);
    state.save(&lock)?;
    remove_stale(&lock, &mut state)?;
    Ok(built(inventory, bytes, outcome.written, documents))
}

fn built(inventory: Inventory, bytes: u64, written: Vec<Written>, documents: Documents) -> Built {
    Built {
        resources: inventory.resources.len() as u64,
        bytes,
        kept: documents.in_order().count() - written.len(),
        written,
        skipped: inventory.skipped,
        unportable: inventory.unportable,
        source_description: documents.source_description.location.url,
    }
}

fn sweep(out: &Path) -> Result<(), BuildError> {
    for folder in OWN_FOLDERS.map(|folder| out.join(folder)) {
        files::sweep(&folder).map_err(|source| BuildError::Write { path: folder, source })?;
    }
    Ok(())
}

fn refuse_own_documents(directory: &Path, out: &Path) -> Result<(), BuildError> {
    let unopened = |source| BuildError::Collection { path: out.to_owned(), source };
    let inside = out.canonicalize().map_err(unopened)?;
    let own = OWN_FOLDERS.map(|folder| inside.join(folder));
    if own.iter().any(|folder| directory.starts_with(folder)) {
        return Err(BuildError::CollectionInSite { path: directory.to_owned(), out: out.to_owned() });
    }
    Ok(())
}

impl Documents {
    /// In the order of publication.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Composed> {
        self.resource_lists.iter().chain([&self.capability_list, &self.source_description])
    }
}

struct Replacement<'a> {
    out: &'a Path,
    before: Option<&'a State>,
    now: DateTime,
}

struct Outcome {
    records: Vec<DocumentRecord>,
    written: Vec<Written>,
}

impl Replacement<'_> {
    fn replace_all(&self, documents: &Documents) -> Result<Outcome, BuildError> {
        let mut outcome = Outcome { records: Vec::new(), written: Vec::new() };
        self.replace_together(&documents.resource_lists, &mut outcome)?;
        self.replace_together(std::slice::from_ref(&documents.capability_list), &mut outcome)?;
        self.replace_together(std::slice::from_ref(&documents.source_description), &mut outcome)?;
        Ok(outcome)
    }

    /// Documents of one snapshot: if one says something new, all are written, so that their times agree (RS-095).
    fn replace_together(&self, snapshot: &[Composed], outcome: &mut Outcome) -> Result<(), BuildError> {
        let in_place: Vec<_> = snapshot.iter().map(|document| self.in_place(document)).collect();
        if in_place.iter().all(Option::is_some) {
            outcome.records.extend(in_place.into_iter().flatten().cloned());
            return Ok(());
        }
        for (document, as_it_was) in snapshot.iter().zip(in_place) {
            let path = self.out.join(&document.location.path);
            files::replace(&path, &document.bytes).map_err(|source| BuildError::Write { path, source })?;
            outcome.records.push(self.record(document, as_it_was));
            outcome.written.push(Written {
                capability: document.capability.clone(),
                url: document.location.url.clone(),
            });
        }
        Ok(())
    }

    /// The record of a document that says the same and whose file is as it was written.
    fn in_place(&self, document: &Composed) -> Option<&DocumentRecord> {
        let same = |record: &&DocumentRecord| {
            record.path == document.location.path
                && record.url == document.location.url
                && record.part == document.part
                && record.meaning == document.meaning
        };
        self.before?.documents.iter().find(same).filter(|record| is_in_place(self.out, record))
    }

    /// A file that was not as its record said is a new version too, whatever it is to say now: somebody may have read what stood there.
    fn record(&self, document: &Composed, as_it_was: Option<&DocumentRecord>) -> DocumentRecord {
        DocumentRecord {
            path: document.location.path.clone(),
            url: document.location.url.clone(),
            capability: document.capability.clone(),
            part: document.part.clone(),
            meaning: document.meaning,
            content: Digest::of(Algorithm::Sha256, &document.bytes),
            version: as_it_was.map_or(self.number(), |record| record.version),
            changed: as_it_was.map_or(self.now, |record| record.changed),
        }
    }

    /// The number of this build.
    fn number(&self) -> u64 {
        self.before.map_or(0, |state| state.builds) + 1
    }
}

/// Whether a document's file holds the very bytes that were written.
pub(crate) fn is_in_place(out: &Path, record: &DocumentRecord) -> bool {
    std::fs::read(out.join(&record.path))
        .is_ok_and(|bytes| Digest::of(Algorithm::Sha256, &bytes) == record.content)
}

/// Hubs keep what they know as long as the topic is the same. One that is named no more stays until it has been told so, if it ever heard of the
/// site at all.
fn hub_records(
    settings: &Settings,
    site: &Site,
    before: Option<&State>,
    now: DateTime,
) -> BTreeMap<HubUrl, HubRecord> {
    let topic = site.topic();
    let mut records = BTreeMap::new();
    for (hub, record) in before.into_iter().flat_map(|state| &state.hubs) {
        let stays = settings.hubs.contains(hub);
        if record.topic == topic && (stays || record.may_know_something()) {
            let left = if stays { None } else { record.left.or(Some(now)) };
            records.insert(hub.clone(), HubRecord { left, ..record.clone() });
        }
    }
    for hub in &settings.hubs {
        records.entry(hub.clone()).or_insert_with(|| HubRecord::new(topic.clone()));
    }
    records
}

/// The files that no document names once the build is done. Those that it is going to write for the first time are noted too before it writes
/// them, so that they are found again should it be cut short.
fn plan_removal(
    lock: &Lock,
    before: Option<&mut State>,
    documents: &Documents,
) -> Result<Vec<String>, BuildError> {
    let Some(before) = before else { return Ok(Vec::new()) };
    let current: Vec<_> = documents.in_order().map(|document| document.location.path.as_str()).collect();
    let noted = |state: &State, path: &str| {
        state.documents.iter().any(|record| record.path == path)
            || state.to_remove.iter().any(|noted| noted == path)
    };
    let new: Vec<_> =
        current.iter().filter(|path| !noted(before, path)).map(|&path| path.to_owned()).collect();
    if !new.is_empty() {
        before.to_remove.extend(new);
        before.save(lock)?;
    }
    let old = before.documents.iter().map(|record| &record.path).chain(&before.to_remove);
    let unneeded: BTreeSet<_> = old.filter(|path| !current.contains(&path.as_str())).cloned().collect();
    Ok(unneeded.into_iter().collect())
}

/// Removes what no document names any more, after the index that forgot it is in place.
fn remove_stale(lock: &Lock, state: &mut State) -> Result<(), BuildError> {
    if state.to_remove.is_empty() {
        return Ok(());
    }
    for path in std::mem::take(&mut state.to_remove) {
        let path = lock.out().join(path);
        files::remove(&path).map_err(|source| BuildError::Write { path, source })?;
    }
    Ok(state.save(lock)?)
}

#[cfg(test)]
mod tests {
    use resync_core::{document::Document, xml};

    use super::*;
    use crate::{inventory::Item, settings::BaseUrl};

    const COMPONENTS: [&str; 2] = ["resync/resourcelist-1.xml", "resync/resourcelist-2.xml"];
    const INDEX: &str = "resync/resourcelist.xml";

    fn settings() -> Settings {
        Settings::new("/collection", BaseUrl::parse("http://example.org/").unwrap())
    }

    /// Two components under an index; `last` is the length of the last resource.
    fn two_lists(at: &str, last: u64) -> Documents {
        let at = at.parse().unwrap();
        let item = |number: u64| Item {
            path: number.to_string().into(),
            url: format!("http://example.org/{number}"),
            modified: at,
            length: Some(number),
            hashes: [Digest::of(Algorithm::Md5, b"x")].into_iter().collect(),
            media_type: None,
        };
        let first: DateTime = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut resources: Vec<_> = (0..=50_000).map(item).collect();
        for resource in &mut resources {
            resource.modified = first;
        }
        resources[50_000].length = Some(last);
        let (skipped, unportable) = (Vec::new(), Vec::new());
        let inventory = Inventory { started: at, completed: at, resources, skipped, unportable };
        documents::compose(&Site::new(settings().base_url), &[], &inventory).unwrap()
    }

    fn read(out: &Path, path: &str) -> Document {
        xml::read(&std::fs::read(out.join(path)).unwrap()).unwrap().into_document().unwrap()
    }

    #[test]
    fn rs095_one_changed_component_gives_all_of_its_snapshot_the_new_time_and_only_itself_a_new_version() {
        let out = tempfile::tempdir().unwrap();
        let build = |before: Option<&State>, documents: &Documents| {
            let replacement = Replacement { out: out.path(), before, now: DateTime::now() };
            let records = replacement.replace_all(documents).unwrap().records;
            let mut state = State::new(settings(), (0, 0), records, BTreeMap::new());
            state.builds = replacement.number();
            state
        };
        let first = build(None, &two_lists("2026-02-01T00:00:00Z", 1));
        let second = build(Some(&first), &two_lists("2026-02-02T00:00:00Z", 2));
        for path in COMPONENTS.into_iter().chain([INDEX]) {
            let at = read(out.path(), path).header().metadata.at;
            assert_eq!(at, Some("2026-02-02T00:00:00Z".parse().unwrap()), "{path}");
        }
        let version = |state: &State, path| {
            state.documents.iter().find(|record| record.path == path).map(|record| record.version)
        };
        assert_eq!(COMPONENTS.map(|path| version(&second, path)), [Some(1), Some(2)]);
    }

    #[test]
    fn a_file_that_a_build_is_going_to_write_for_the_first_time_is_noted_in_case_it_is_cut_short() {
        let out = tempfile::tempdir().unwrap();
        let lock = Lock::acquire(out.path()).unwrap();
        let mut before = State::new(settings(), (0, 0), Vec::new(), BTreeMap::new());
        before.to_remove = vec!["resync/resourcelist-9.xml".into()];
        let unneeded = plan_removal(&lock, Some(&mut before), &two_lists("2026-02-01T00:00:00Z", 1)).unwrap();
        assert_eq!(unneeded, ["resync/resourcelist-9.xml"]);
        let noted = State::load(out.path()).unwrap().to_remove;
        assert!(COMPONENTS.iter().all(|path| noted.iter().any(|noted| noted == path)), "{noted:?}");
    }
}
