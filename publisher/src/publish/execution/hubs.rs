//! What a run prepares for the hubs: a record of each, and the Change Notifications that wait.

use std::{collections::BTreeMap, path::Path};

use resync_core::{datetime::DateTime, document::Relation};

use super::Execution;
use crate::{
    error::Error,
    outbox::{self, Filled, Outbox},
    settings::{HubUrl, Settings},
    site::Site,
    state::{HubRecord, State},
};

impl Execution<'_> {
    /// Writes the Change Notifications, which count once the state is saved.
    pub(super) fn change_notifications(&self) -> Result<Filled, Error> {
        let last = self.before.map_or(0, |state| state.outbox);
        let series = self.before.and_then(|state| state.series.as_ref());
        let has_changes = self.plan.position.is_some() && self.plan.changes.total() > 0;
        match series.filter(|_| has_changes && !self.plan.settings.hubs.is_empty()) {
            Some(series) => {
                let up = self.site.capability_list().url;
                // A patch needs the version before, which the lists have (RS-174).
                let changes = self.changes()?.map(|event| {
                    event.map(|mut event| {
                        event.item.links.retain(|link| link.rel != Relation::Patch);
                        event
                    })
                });
                Outbox::after(self.out, last, series.until, &up).fill(changes)
            }
            None => Ok(Filled { last, bytes: 0 }),
        }
    }
}

/// Bounds the outbox. Notifying does so too, but that may take long.
pub(super) fn bound_outbox(out: &Path, state: &mut State) {
    outbox::keep_within_bounds(out, state);
    match outbox::sweep(out, state) {
        Ok(swept) => swept.record(state),
        Err(error) => tracing::warn!(%error, "cannot remove old Change Notifications"),
    }
}

/// The records of hubs stay as long as the topic is the same. The record of a removed hub stays until that is notified of it, if it was ever notified
/// at all.
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
        if record.topic == topic && (stays || record.notified().next().is_some()) {
            let removed = if stays { None } else { record.removed.or(Some(now)) };
            records.insert(hub.clone(), HubRecord { removed, ..record.clone() });
        }
    }
    for hub in &settings.hubs {
        records
            .entry(hub.clone())
            .or_insert_with(|| HubRecord { sent: outbox, ..HubRecord::new(topic.clone()) });
    }
    records
}
