//! What the URLs of a set stand for, as of one version of its state.

use std::{
    collections::HashSet,
    fs,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::Arc,
};

use http::HeaderValue;
use resync_core::{
    build::{Folder, LocateError},
    document::Capability,
    websub::link_header::LinkHeader,
};

use super::{memento::Past, opened::Opened};
use crate::{
    error::Error,
    inventory::{PATCH_FOLDER, collection},
    settings::{BaseUrl, HubUrl},
    site::{CHANGES_PATH, DOCUMENT_FOLDER, SOURCE_DESCRIPTION_PATH, Site, TOPIC_PATH},
    state::{self, State},
};

/// The site as of one version of its state.
pub(super) struct View {
    /// Where the resources are.
    base_url: BaseUrl,
    /// Paths of the URLs that the documents and the Source Description have.
    documents_base: PathBuf,
    described_at: PathBuf,
    description: PathBuf,
    documents: HashSet<PathBuf>,
    /// The files; absent where the resources are the records of a program, which another server has.
    collection: Option<Folder>,
    topics: Vec<Topic>,
    /// What each resource links to.
    resource_links: LinkHeader,
    /// The versions of the resources, where they are kept.
    past: Option<Arc<Past>>,
    /// The URL of the Source Description.
    pub(super) source_description: String,
}

/// A channel, as readers of its topic URI see it.
#[derive(Clone)]
pub(super) struct Topic {
    path: &'static str,
    pub(super) links: HeaderValue,
    /// The most recent notification, if there was one.
    pub(super) notification: Option<PathBuf>,
}

/// What a path stands for.
pub(super) enum Target {
    Topic(Topic),
    Document(Opened),
    /// A document that is not compressed again.
    Package(Opened),
    Patch(Opened),
    Resource(Opened, Option<HeaderValue>),
    /// Something of the past: what stands behind the prefix.
    Version(Arc<Past>, String),
    /// A resource that is no more, or not here, and where its versions are.
    Former(HeaderValue),
    /// Something may be there, but cannot be read.
    Unknown(io::Error),
    Nothing,
}

impl View {
    pub(super) fn of(out: &Path) -> Result<Self, Error> {
        let state = State::load(out)?;
        // Of a set that was removed, nobody is led to its files and versions.
        let is_retired = state.retired.is_some();
        let has_files = !is_retired && state.settings.has_files();
        let collection = has_files.then(|| collection::open(&state.settings, out)).transpose()?;
        let site = Site::of(&state.settings);
        let root = state.settings.root.as_ref().map_or(&state.settings.base_url, |root| &root.base_url);
        let capability_list = state.document(&Capability::CapabilityList);
        let links = LinkHeader::default();
        let resource_links = match capability_list {
            Some(list) => links.push(&list.url, "resourcesync"),
            None => links,
        };
        header(&resource_links)?;
        Ok(Self {
            base_url: state.settings.base_url.clone(),
            documents_base: site.base().folder().to_owned(),
            described_at: root.folder().join(SOURCE_DESCRIPTION_PATH),
            description: out.join(site.source_description().path),
            documents: state.documents.iter().map(|record| PathBuf::from(&record.path)).collect(),
            collection,
            topics: topics(out, &state, &site)?,
            resource_links,
            past: if is_retired { None } else { Past::of(out, &state, &site).map(Arc::new) },
            source_description: site.source_description().url,
        })
    }

    /// What of the past a path and query stand for.
    pub(super) fn version(&self, wanted: &str) -> Option<Target> {
        let past = self.past.as_ref()?;
        past.behind_prefix(wanted).map(|rest| Target::Version(Arc::clone(past), rest.to_owned()))
    }

    /// What a path of a URL stands for, without its query.
    pub(super) fn find(&self, out: &Path, path: &Path, is_folder: bool) -> Target {
        let wanted = path.strip_prefix(&self.documents_base).ok();
        if is_folder {
            let is_topic = |topic: &&Topic| wanted == Some(Path::new(topic.path));
            return self.topics.iter().find(is_topic).cloned().map_or(Target::Nothing, Target::Topic);
        }
        if path == self.described_at || path == Path::new(SOURCE_DESCRIPTION_PATH) {
            return own(&self.description, Target::Document);
        }
        if let Some(found) = wanted.and_then(|wanted| self.find_own(out, wanted)) {
            return found;
        }
        let Ok(path) = path.strip_prefix(self.base_url.folder()) else { return Target::Nothing };
        match self.open_resource(path) {
            Ok(Some(opened)) => Target::Resource(opened, self.links_of(path, self.resource_links.clone())),
            Err(LocateError::Unknown(error)) => Target::Unknown(error),
            _ => self.links_of(path, LinkHeader::default()).map_or(Target::Nothing, Target::Former),
        }
    }

    /// Opens a patch or document; `None` where the path is of none, and may be of a resource.
    fn find_own(&self, out: &Path, wanted: &Path) -> Option<Target> {
        let is_patch = wanted.parent() == Some(Path::new(PATCH_FOLDER));
        let is_listed = self.documents.contains(wanted);
        if !is_patch && !is_listed && !may_be_document(wanted) {
            return None;
        }
        let target: fn(Opened) -> Target = if is_patch {
            Target::Patch
        } else if wanted.extension().is_some_and(|extension| extension == "zip") {
            Target::Package
        } else {
            Target::Document
        };
        let found = own(&out.join(wanted), target);
        (is_listed || !matches!(found, Target::Nothing)).then_some(found)
    }

    /// Opens the file of a resource; `None` where there is none.
    fn open_resource(&self, path: &Path) -> Result<Option<Opened>, LocateError> {
        let Some(collection) = &self.collection else { return Ok(None) };
        let real = collection.locate(path)?;
        // Opening a device could do something, and a socket cannot be opened.
        match fs::metadata(&real) {
            Ok(metadata) if metadata.is_file() => Ok(Opened::of(collection.open_located(&real)?, &real)?),
            Ok(_) => Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// These links, and where the versions of a resource are (MEM-021).
    fn links_of(&self, path: &Path, links: LinkHeader) -> Option<HeaderValue> {
        let links = match &self.past {
            Some(past) => past.offer(&self.base_url.join(path), links),
            None => links,
        };
        if links.is_empty() { None } else { header(&links).ok() }
    }
}

/// The channels of a site with a hub.
fn topics(out: &Path, state: &State, site: &Site) -> Result<Vec<Topic>, Error> {
    if state.settings.hubs.is_empty() {
        return Ok(Vec::new());
    }
    let framework = (TOPIC_PATH, site.topic(), &state.notified_on, state::notification_path(out));
    let changes =
        (CHANGES_PATH, site.change_topic(), &state.changes_on, state::change_notification_path(out));
    let topic = |(path, url, notified_on, file): (&'static str, String, &Option<String>, PathBuf)| {
        let hubs = state.settings.hubs.iter().map(HubUrl::as_str);
        let links = hubs.fold(LinkHeader::default().push(&url, "self"), |links, hub| links.push(hub, "hub"));
        let notification = (notified_on.as_ref() == Some(&url)).then_some(file);
        Ok(Topic { path, links: header(&links)?, notification })
    };
    [framework, changes].into_iter().map(topic).collect()
}

/// Opens a file of the site itself.
fn own(path: &Path, target: impl FnOnce(Opened) -> Target) -> Target {
    match Opened::at(path) {
        Ok(opened) => target(opened),
        // No file that the publisher wrote has a name which is longer than names can be.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidFilename) => {
            Target::Nothing
        }
        Err(error) => Target::Unknown(error),
    }
}

/// Whether it may be a document that an index lists, or listed a moment ago, and that stays for present readers.
fn may_be_document(wanted: &Path) -> bool {
    let name = wanted.file_name().unwrap_or_default().as_encoded_bytes();
    let stems = [&b"resourcelist-"[..], b"changelist-", b"resourcedump-", b"changedump-"];
    let is_list = stems.iter().any(|stem| name.starts_with(stem))
        && [&b".xml"[..], b".zip"].iter().any(|end| name.ends_with(end));
    is_list && wanted.parent() == Some(Path::new(DOCUMENT_FOLDER))
}

fn header(links: &LinkHeader) -> Result<HeaderValue, Error> {
    let text = links.to_string();
    HeaderValue::from_str(&text).map_err(|_| Error::Link(text))
}
