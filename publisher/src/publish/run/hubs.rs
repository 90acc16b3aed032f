//! What a run leaves for the hubs: a record of each, and the Change Notifications that wait.

use std::{collections::BTreeMap, path::Path};

use resync_core::{datetime::DateTime, document::Relation};

use super::Run;
use crate::{
    outbox::{self, Filled},
    publish::BuildError,
    settings::{HubUrl, Settings},
    site::Site,
    state::{HubRecord, State},
};

impl Run<'_> {
    /// Writes the Change Notifications of these changes, for when the state tells of the documents.
    pub(super) fn change_notifications(&self) -> Result<Filled, BuildError> {
        let last = self.before.map_or(0, |state| state.outbox);
        let series = self.before.and_then(|state| state.series.as_ref());
        let has_news = self.plan.position.is_some() && self.plan.changes.total() > 0;
        match series.filter(|_| has_news && !self.plan.settings.hubs.is_empty()) {
            Some(series) => {
                let up = self.site.capability_list().url;
                // A patch is for who has the version before, as the lists tell it (RS-174).
                let changes = self.changes()?.map(|event| {
                    event.map(|mut event| {
                        event.item.links.retain(|link| link.rel != Relation::Patch);
                        event
                    })
                });
                Ok(outbox::fill(self.out, last, series.until, &up, changes)?)
            }
            None => Ok(Filled { last, bytes: 0 }),
        }
    }
}

/// Keeps for hubs what they may still be told. Those who tell them do so too, but it may be long before one is through.
pub(super) fn bound_outbox(out: &Path, state: &mut State) {
    outbox::keep_within_bounds(out, state);
    match outbox::sweep(out, state) {
        Ok(swept) => swept.note(state),
        Err(error) => tracing::warn!(%error, "cannot remove old Change Notifications"),
    }
}

/// Hubs keep what they know as long as the topic is the same. One that is named no more stays until it has been told so, if it ever heard of the
/// site at all.
pub(super) fn hub_records(
    settings: &Settings,
    site: &Site,
    before: Option<&State>,
    outbox: u64,
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
        records
            .entry(hub.clone())
            .or_insert_with(|| HubRecord { sent: outbox, ..HubRecord::new(topic.clone()) });
    }
    records
}
