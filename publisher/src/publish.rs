//! A build: inventory, documents, and their atomic replacement in the order components → index → Capability List → Source Description.
//!
//! The state is written last. A build that was cut short leaves documents whose digests the state does not know; the next build replaces them.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use resync_core::{
    build::{self, Completed, FolderSink, ResourceLists, Skipped, Unportable},
    datetime::DateTime,
    digest::{Algorithm, Digest, Hasher},
    document::Capability,
    rules::Violations,
};

use crate::{
    collection,
    documents::{self, Composed},
    files,
    inventory::{self, Taken},
    lock::Lock,
    settings::{HubUrl, Settings},
    site::{DOCUMENT_FOLDER, Site},
    state::{self, DocumentRecord, HubRecord, Part, State, StateError},
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
    /// A resource cannot be read, or a list cannot be written.
    #[error(transparent)]
    Lists(#[from] build::BuildError),
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
    refuse_own_documents(&directory, out)?;
    let collection = collection::open(&directory, out)?;
    sweep(out)?;
    let before = State::load_if_built(out)?;
    let site = Site::new(settings.base_url.clone());
    let taken = inventory::take(collection, &settings.base_url, &settings.hash, out)?;
    let capability_list = documents::capability_list(&site, &settings.hubs)?;
    let source_description = documents::source_description(&site)?;

    let mut run =
        Run { out, site: &site, before: before.as_ref(), now: DateTime::now(), done: Done::default() };
    run.resource_lists(&taken)?;
    run.replace(&capability_list)?;
    run.replace(&source_description)?;
    let Run { now, done, .. } = run;

    let settings = Settings { directory, ..settings.clone() };
    let hubs = hub_records(&settings, &site, before.as_ref(), now);
    let kept = done.records.len() - done.written.len();
    let mut state = State::new(settings, (taken.resources, taken.bytes), done.records, hubs);
    state.builds = number(before.as_ref());
    state.notified_on = before.and_then(|before| before.notified_on);
    state.save(&lock)?;
    Ok(Built {
        resources: taken.resources,
        bytes: taken.bytes,
        kept,
        written: done.written,
        skipped: taken.skipped,
        unportable: taken.unportable,
        source_description: source_description.location.url,
    })
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

/// A build under way.
struct Run<'a> {
    out: &'a Path,
    site: &'a Site,
    before: Option<&'a State>,
    now: DateTime,
    done: Done,
}

/// What is published, in the order in which it was written or would have been.
#[derive(Default)]
struct Done {
    records: Vec<DocumentRecord>,
    written: Vec<Written>,
}

impl Run<'_> {
    /// The lists of one snapshot are kept or replaced together, so that their times agree (RS-095).
    fn resource_lists(&mut self, taken: &Taken) -> Result<(), BuildError> {
        let known = self.known(&Capability::ResourceList);
        let says_the_same = |record: &&DocumentRecord| {
            record.meaning == taken.meaning && record.url == self.site.place(&record.path).url
        };
        if !known.is_empty() && known.iter().all(says_the_same) && self.are_in_place(&known) {
            let kept: Vec<_> = known.into_iter().cloned().collect();
            self.done.records.extend(kept);
            return Ok(());
        }
        let documents = build::Site::new(&self.site.place(DOCUMENT_FOLDER).url);
        let mut sink = FolderSink::open(self.out.join(DOCUMENT_FOLDER))?;
        let published = ResourceLists::new(&documents, taken.started)
            .completed(Completed::At(taken.completed))
            .write(inventory::kept(self.out)?, &mut sink)?;
        let index = published.top().filter(|_| published.documents.len() > 1).map(|top| documents.url(top));
        for name in &published.documents {
            let url = documents.url(name);
            let part = match &index {
                None => Part::Whole,
                Some(index) if *index == url => Part::Index,
                Some(index) => Part::Component { index: index.clone() },
            };
            let path = format!("{DOCUMENT_FOLDER}/{name}");
            let full = self.out.join(&path);
            let content = digest_of(&full).map_err(|source| BuildError::Write { path: full, source })?;
            let (version, changed) = (number(self.before), self.now);
            let (capability, meaning) = (Capability::ResourceList, taken.meaning);
            self.wrote(DocumentRecord { path, url, capability, part, meaning, content, version, changed });
        }
        Ok(())
    }

    fn known(&self, capability: &Capability) -> Vec<&DocumentRecord> {
        let all = self.before.into_iter().flat_map(|state| &state.documents);
        all.filter(|record| record.capability == *capability).collect()
    }

    fn are_in_place(&self, records: &[&DocumentRecord]) -> bool {
        records.iter().all(|record| is_in_place(self.out, record))
    }

    /// Writes a document, unless it says the same and its file is as it was written.
    ///
    /// A file that was not as its record said is a new version too, whatever it is to say now: somebody may have read what stood there.
    fn replace(&mut self, document: &Composed) -> Result<(), BuildError> {
        let Composed { location, capability, part, bytes, meaning } = document;
        let says_the_same = |record: &&&DocumentRecord| {
            record.path == location.path
                && record.url == location.url
                && record.part == *part
                && record.meaning == *meaning
        };
        let known = self.known(capability);
        if let Some(&record) = known.iter().find(says_the_same)
            && is_in_place(self.out, record)
        {
            self.done.records.push(record.clone());
            return Ok(());
        }
        let path = self.out.join(&location.path);
        files::replace(&path, bytes).map_err(|source| BuildError::Write { path, source })?;
        self.wrote(DocumentRecord {
            path: location.path.clone(),
            url: location.url.clone(),
            capability: capability.clone(),
            part: part.clone(),
            meaning: *meaning,
            content: Digest::of(Algorithm::Sha256, bytes),
            version: number(self.before),
            changed: self.now,
        });
        Ok(())
    }

    fn wrote(&mut self, record: DocumentRecord) {
        self.done.written.push(Written { capability: record.capability.clone(), url: record.url.clone() });
        self.done.records.push(record);
    }
}

/// The number of the build that follows on `before`.
fn number(before: Option<&State>) -> u64 {
    before.map_or(0, |state| state.builds) + 1
}

/// Whether a document's file holds the very bytes that were written.
pub(crate) fn is_in_place(out: &Path, record: &DocumentRecord) -> bool {
    digest_of(&out.join(&record.path)).is_ok_and(|content| content == record.content)
}

fn digest_of(path: &Path) -> io::Result<Digest> {
    let mut hasher = Hasher::new([Algorithm::Sha256]);
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(*hasher.finish().get(Algorithm::Sha256).expect("it was asked for SHA-256"))
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
