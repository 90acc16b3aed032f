//! A build: inventory, documents, and their atomic replacement in the order components → index → Capability List → Source Description.
//!
//! The state is written last. A build that was cut short leaves documents whose digests the state does not know; the next build replaces them.

use std::{
    collections::BTreeMap,
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
    inventory::{self, Inventory, InventoryError, Skipped},
    settings::Settings,
    site::{DOCUMENT_FOLDER, Site},
    state::{self, DocumentRecord, HubRecord, Lock, State, StateError},
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
    let before = match State::load(out) {
        Ok(state) => Some(state),
        Err(StateError::NotBuilt { .. }) => None,
        Err(error) => return Err(error.into()),
    };

    let site = Site::new(settings.base_url.clone());
    let inventory = inventory::take(&collection, &settings.base_url, &settings.hash)?;
    let documents = documents::compose(&site, &settings.hubs, &inventory)?;
    let replacement = Replacement { out, before: before.as_ref(), now: DateTime::now() };
    let outcome = replacement.replace_all(&documents)?;
    let bytes = inventory.resources.iter().filter_map(|item| item.length).sum();
    let counts = (inventory.resources.len() as u64, bytes);
    let settings = Settings { directory, ..settings.clone() };
    let hubs = hub_records(&settings, &site, before.as_ref());
    lock.save(&State::new(settings, counts, outcome.records, hubs))?;
    remove_stale(out, before.as_ref(), &documents)?;
    Ok(built(inventory, bytes, outcome.written, documents))
}

fn built(inventory: Inventory, bytes: u64, written: Vec<Written>, documents: Documents) -> Built {
    Built {
        resources: inventory.resources.len() as u64,
        bytes,
        kept: documents.in_order().count() - written.len(),
        written,
        skipped: inventory.skipped,
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
        let in_place: Option<Vec<_>> = snapshot.iter().map(|document| self.in_place(document)).collect();
        if let Some(records) = in_place {
            outcome.records.extend(records.into_iter().cloned());
            return Ok(());
        }
        for document in snapshot {
            let path = self.out.join(&document.location.path);
            files::replace(&path, &document.bytes).map_err(|source| BuildError::Write { path, source })?;
            outcome.records.push(self.record(document));
            outcome.written.push(Written {
                capability: document.capability.clone(),
                url: document.location.url.clone(),
            });
        }
        Ok(())
    }

    /// The record of a document that says the same and whose file is as it was written.
    fn in_place(&self, document: &Composed) -> Option<&DocumentRecord> {
        let record = self.known(document).filter(|record| record.meaning == document.meaning)?;
        is_in_place(self.out, record).then_some(record)
    }

    fn known(&self, document: &Composed) -> Option<&DocumentRecord> {
        let same = |record: &&DocumentRecord| {
            record.path == document.location.path
                && record.url == document.location.url
                && record.part == document.part
        };
        self.before?.documents.iter().find(same)
    }

    fn record(&self, document: &Composed) -> DocumentRecord {
        let unchanged = self.known(document).filter(|record| record.meaning == document.meaning);
        DocumentRecord {
            path: document.location.path.clone(),
            url: document.location.url.clone(),
            capability: document.capability.clone(),
            part: document.part.clone(),
            meaning: document.meaning,
            content: Digest::of(Algorithm::Sha256, &document.bytes),
            changed: unchanged.map_or(self.now, |record| record.changed),
        }
    }
}

/// Whether a document's file holds the very bytes that were written.
pub(crate) fn is_in_place(out: &Path, record: &DocumentRecord) -> bool {
    std::fs::read(out.join(&record.path))
        .is_ok_and(|bytes| Digest::of(Algorithm::Sha256, &bytes) == record.content)
}

/// Hubs keep what they were told as long as they are named and the topic is the same.
fn hub_records(
    settings: &Settings,
    site: &Site,
    before: Option<&State>,
) -> BTreeMap<crate::HubUrl, HubRecord> {
    let topic = site.topic();
    let known = |hub| before.and_then(|state| state.hubs.get(hub)).filter(|record| record.topic == topic);
    let record = |hub| known(hub).cloned().unwrap_or_else(|| HubRecord::new(topic.clone()));
    settings.hubs.iter().map(|hub| (hub.clone(), record(hub))).collect()
}

/// Removes components that no index names any more, after the index that forgot them is in place.
fn remove_stale(out: &Path, before: Option<&State>, documents: &Documents) -> Result<(), BuildError> {
    let current: Vec<_> = documents.in_order().map(|document| document.location.path.as_str()).collect();
    let known = before.into_iter().flat_map(|state| &state.documents);
    for record in known.filter(|record| !current.contains(&record.path.as_str())) {
        let path = out.join(&record.path);
        files::remove(&path).map_err(|source| BuildError::Write { path, source })?;
    }
    Ok(())
}
