//! What a run prepares for the hubs: a record of each, and the Change Notifications that wait.

use std::{collections::BTreeMap, path::Path};

use resync_core::document::Relation;

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
        let is_for_somebody = !self.plan.settings.hubs.is_empty()
            || self
                .before
                .is_some_and(|state| of_topic(state, self.site).any(|(_, record)| is_kept(state, record)));
        match series.filter(|_| has_changes && is_for_somebody) {
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

/// The records of hubs stay as long as the topic is the same. A hub that is no longer named is on hold: somebody may have mistyped, so what waits for it
/// stays until it is named again or dropped.
pub(super) fn hub_records(
    settings: &Settings,
    site: &Site,
    before: Option<&State>,
    outbox: u64,
) -> BTreeMap<HubUrl, HubRecord> {
    let mut records = BTreeMap::new();
    if let Some(state) = before {
        for (hub, record) in state.hubs.iter().filter(|(_, record)| record.topic != site.topic()) {
            let waiting = state.waiting_for(record).count();
            if waiting > 0 {
                tracing::warn!(%hub, waiting, "the base URL changed; dropping the Change Notifications of the old one");
            }
        }
    }
    for (hub, record) in before.into_iter().flat_map(|state| of_topic(state, site)) {
        if settings.hubs.contains(hub) {
            records.insert(hub.clone(), HubRecord { removed: None, ..record.clone() });
        } else if before.is_some_and(|state| record.removed.is_some() || is_kept(state, record)) {
            records.insert(hub.clone(), record.clone());
        }
    }
    for hub in &settings.hubs {
        if !records.contains_key(hub) {
            let record = take_other_spelling(&mut records, hub, settings);
            let record = record.unwrap_or_else(|| HubRecord { sent: outbox, ..HubRecord::new(site.topic()) });
            records.insert(hub.clone(), record);
        }
    }
    records
}

fn of_topic<'a>(
    state: &'a State,
    site: &Site,
) -> impl Iterator<Item = (&'a HubUrl, &'a HubRecord)> + use<'a> {
    let topic = site.topic();
    state.hubs.iter().filter(move |(_, record)| record.topic == topic)
}

/// Whether a hub that is not named has something to lose: notifications that wait, or subscribers who were never told that it is left.
fn is_kept(state: &State, record: &HubRecord) -> bool {
    record.removed.is_none() && (record.notified().next().is_some() || !state.waiting_for(record).is_empty())
}

/// The record of a hub on hold whose URL differs in nothing but the final slash, which is the same hub.
fn take_other_spelling(
    records: &mut BTreeMap<HubUrl, HubRecord>,
    hub: &HubUrl,
    settings: &Settings,
) -> Option<HubRecord> {
    let is_same = |(known, record): &(&HubUrl, &HubRecord)| {
        let is_on_hold = record.removed.is_none() && !settings.hubs.contains(known);
        is_on_hold && known.is_same(hub)
    };
    let known = records.iter().find(is_same)?.0.clone();
    records.remove(&known)
}
