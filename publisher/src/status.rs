//! How a site stands: what was built, and what each hub does not know yet.

use std::path::Path;

use serde::Serialize;

use crate::{
    changes,
    site::Site,
    state::{HubRecord, Part, State, StateError},
};

/// The standing of a site. Its JSON form is what `status --json` prints; names are stable, new ones may be added.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The name of the set, in a site of several.
    pub set: Option<String>,
    /// The collection's folder.
    pub directory: String,
    /// Its URL.
    pub base_url: String,
    /// The topic URI of the framework channel.
    pub topic: String,
    /// The topic URI of the Change Notifications.
    pub change_topic: String,
    /// Number of resources.
    pub resources: u64,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
    /// The documents of the site.
    pub documents: Vec<DocumentStatus>,
    /// The hubs, and after them those that the site has left and that have not been told so yet.
    pub hubs: Vec<HubStatus>,
}

/// One document of the site.
#[derive(Clone, Debug, Serialize)]
pub struct DocumentStatus {
    /// Its URL.
    pub url: String,
    /// Its capability token.
    pub capability: String,
    /// Whether it is an index of others.
    pub index: bool,
    /// When it last said something new.
    pub changed: String,
}

/// One hub of the site.
#[derive(Clone, Debug, Serialize)]
pub struct HubStatus {
    /// The hub.
    pub url: String,
    /// Whether the site has left it, and it is told for the last time.
    pub leaving: bool,
    /// When it last took a notification.
    pub notified_at: Option<String>,
    /// The status of that answer.
    pub answer: Option<u16>,
    /// The changes of documents that it does not know yet.
    pub pending: Vec<PendingChange>,
    /// How many Change Notifications wait for it.
    pub waiting: u64,
    /// Why it was not told the last time.
    pub trouble: Option<HubTrouble>,
}

/// Why a hub was not told.
#[derive(Clone, Debug, Serialize)]
pub struct HubTrouble {
    /// Since when it has been tried in vain.
    pub since: String,
    /// What came of it the last time.
    pub reason: String,
    /// The number of the Change Notification that it refused, and will refuse again: those after it wait.
    pub refused: Option<u64>,
    /// How many Change Notifications were left out since then, because they had waited for a week, or too many waited.
    pub left_out: u64,
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
    let site = Site::of(&state.settings);
    let documents = state.documents.iter().map(|record| DocumentStatus {
        url: record.url.clone(),
        index: record.part == Part::Index,
        capability: record.capability.to_string(),
        changed: record.changed.to_string(),
    });
    Ok(Status {
        set: state.settings.root.as_ref().map(|root| root.name.to_string()),
        directory: state.settings.directory.display().to_string(),
        base_url: state.settings.base_url.to_string(),
        topic: site.topic(),
        change_topic: site.change_topic(),
        resources: state.resources,
        bytes: state.bytes,
        documents: documents.collect(),
        hubs: hubs(&state),
    })
}

fn hubs(state: &State) -> Vec<HubStatus> {
    let unknown = HubRecord::new(Site::of(&state.settings).topic());
    let standing = |hub| {
        let record = state.hubs.get(hub).unwrap_or(&unknown);
        let pending =
            changes::since_known(&state.documents, record).into_iter().map(|change| PendingChange {
                change: change.change.token().to_owned(),
                capability: change.capability.to_string(),
                url: change.loc,
            });
        HubStatus {
            url: String::from(hub.clone()),
            leaving: record.left.is_some(),
            notified_at: record.last.as_ref().map(|last| last.at.to_string()),
            answer: record.last.as_ref().map(|last| last.status),
            pending: pending.collect(),
            waiting: if record.left.is_some() {
                0
            } else {
                state.outbox.saturating_sub(state.gone_for(record))
            },
            trouble: record.trouble.as_ref().map(|trouble| HubTrouble {
                since: trouble.since.to_string(),
                reason: trouble.reason.clone(),
                refused: trouble.refused,
                left_out: trouble.left_out,
            }),
        }
    };
    state.hubs_to_notify().map(standing).collect()
}
