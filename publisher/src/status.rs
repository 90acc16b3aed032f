//! The status of a site: what was built, and what each hub has not acknowledged.

use std::path::Path;

use serde::Serialize;

use crate::{
    error::Error,
    notify::unacknowledged,
    settings::HubUrl,
    site::Site,
    state::{HubRecord, Part, State, Totals, Trouble},
};

/// The status of a site, as `status --json` prints it. Names are stable, new ones may be added.
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
    /// The resources.
    #[serde(flatten)]
    pub totals: Totals,
    /// The versions of the resources, where they are kept.
    pub versions: Option<VersionsStatus>,
    /// The documents of the site.
    pub documents: Vec<DocumentStatus>,
    /// The hubs, after them former ones that are still to be notified, and then those on hold.
    pub hubs: Vec<HubStatus>,
}

/// The versions of resources that are kept.
#[derive(Clone, Debug, Serialize)]
pub struct VersionsStatus {
    /// How many.
    pub versions: u64,
    /// The length of their bytes, each content counted once.
    pub bytes: u64,
    /// The moment from which on it is known what each resource was.
    pub since: String,
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
    /// When its content last changed.
    pub changed: String,
}

/// One hub of the site.
#[derive(Clone, Debug, Serialize)]
pub struct HubStatus {
    /// The hub.
    pub url: String,
    /// Whether it is a former hub of the site, which is notified for the last time.
    pub leaving: bool,
    /// Whether the settings no longer name it, and nobody dropped it: what waits for it is kept in case it is named again.
    pub on_hold: bool,
    /// When it last accepted a notification.
    pub notified_at: Option<String>,
    /// The status of that answer.
    pub answer: Option<u16>,
    /// The changes of documents that it has not acknowledged.
    pub pending: Vec<PendingChange>,
    /// How many Change Notifications wait for it.
    pub waiting: u64,
    /// Why the last attempt to notify it failed.
    pub trouble: Option<Trouble>,
}

/// A change that a hub has not acknowledged.
#[derive(Clone, Debug, Serialize)]
pub struct PendingChange {
    /// `created`, `updated` or `deleted`.
    pub change: String,
    /// The document's capability token.
    pub capability: String,
    /// The document's URL.
    pub url: String,
}

/// Reads the status of the site in `out`. Takes no lock and sends nothing.
pub fn status(out: &Path) -> Result<Status, Error> {
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
        totals: state.totals,
        versions: state.versions.as_ref().map(|kept| VersionsStatus {
            versions: kept.count,
            bytes: kept.bytes,
            since: kept.since.to_string(),
        }),
        documents: documents.collect(),
        hubs: hubs(&state),
    })
}

fn hubs(state: &State) -> Vec<HubStatus> {
    let unknown = HubRecord::new(Site::of(&state.settings).topic());
    let status = |hub: &HubUrl| {
        let record = state.hubs.get(hub).unwrap_or(&unknown);
        let pending = unacknowledged(&state.documents, record).into_iter().map(|change| PendingChange {
            change: change.change.token().to_owned(),
            capability: change.capability.to_string(),
            url: change.loc,
        });
        HubStatus {
            url: String::from(hub.clone()),
            leaving: record.removed.is_some(),
            on_hold: record.removed.is_none() && !state.settings.hubs.contains(hub),
            notified_at: record.last.as_ref().map(|last| last.at.to_string()),
            answer: record.last.as_ref().map(|last| last.status),
            pending: pending.collect(),
            waiting: state.waiting_for(record).count() as u64,
            trouble: record.trouble.clone(),
        }
    };
    state.hubs_to_notify().chain(state.hubs_on_hold().map(|(hub, _)| hub)).map(status).collect()
}
