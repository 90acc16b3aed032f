//! How a site stands: what was built, and what each hub does not know yet.

use std::{collections::BTreeMap, path::Path};

use serde::Serialize;

use crate::{
    changes,
    site::Site,
    state::{State, StateError},
};

/// The standing of a site. Its JSON form is what `status --json` prints; names are stable, new ones may be added.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The collection's folder.
    pub directory: String,
    /// Its URL.
    pub base_url: String,
    /// The topic URI of the framework channel.
    pub topic: String,
    /// Number of resources.
    pub resources: u64,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
    /// The documents of the site.
    pub documents: Vec<DocumentStatus>,
    /// The hubs.
    pub hubs: Vec<HubStatus>,
}

/// One document of the site.
#[derive(Clone, Debug, Serialize)]
pub struct DocumentStatus {
    /// Its URL.
    pub url: String,
    /// Its capability token.
    pub capability: String,
    /// When it last said something new.
    pub changed: String,
}

/// One hub of the site.
#[derive(Clone, Debug, Serialize)]
pub struct HubStatus {
    /// The hub.
    pub url: String,
    /// When it last took a notification.
    pub told_at: Option<String>,
    /// The status of that answer.
    pub answer: Option<u16>,
    /// The changes that it does not know yet.
    pub pending: Vec<PendingChange>,
}

/// A change that a hub does not know yet.
#[derive(Clone, Debug, Serialize)]
pub struct PendingChange {
    /// `created`, `updated` or `deleted`.
    pub change: String,
    /// The document's capability token.
    pub capability: String,
    /// The document's URL.
    pub url: String,
}

/// Reads how the site in `out` stands. Takes no lock and sends nothing.
pub fn status(out: &Path) -> Result<Status, StateError> {
    let state = State::load(out)?;
    let documents = state.documents.iter().map(|record| DocumentStatus {
        url: record.url.clone(),
        capability: record.capability.to_string(),
        changed: record.changed.to_string(),
    });
    Ok(Status {
        directory: state.settings.directory.display().to_string(),
        base_url: state.settings.base_url.to_string(),
        topic: Site::new(state.settings.base_url.clone()).topic(),
        resources: state.resources,
        bytes: state.bytes,
        documents: documents.collect(),
        hubs: hubs(&state),
    })
}

fn hubs(state: &State) -> Vec<HubStatus> {
    let nothing = BTreeMap::new();
    let standing = |hub| {
        let record = state.hubs.get(hub);
        let last = record.and_then(|record| record.last.as_ref());
        let told = record.map_or(&nothing, |record| &record.told);
        let pending = changes::since_told(&state.documents, told).into_iter().map(|change| PendingChange {
            change: change.change.token().to_owned(),
            capability: change.capability.to_string(),
            url: change.loc,
        });
        HubStatus {
            url: String::from(hub.clone()),
            told_at: last.map(|last| last.at.to_string()),
            answer: last.map(|last| last.status),
            pending: pending.collect(),
        }
    };
    state.settings.hubs.iter().map(standing).collect()
}
