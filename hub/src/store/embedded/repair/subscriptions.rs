//! Subscriptions and the index by which they are found.

use std::collections::{BTreeMap, BTreeSet};

use super::Mender;
use crate::store::embedded::check::{address, pair};
use crate::store::embedded::engine::Space;
use crate::store::embedded::layout::Address;
use crate::store::{Result, Subscription};

impl Mender<'_> {
    pub(super) fn subscriptions(&mut self) -> Result<()> {
        let mut in_force = BTreeMap::new();
        for (key, subscription) in self.each::<Subscription>()? {
            let own =
                address(&key).filter(|own| (own.topic, own.id) == (subscription.topic, subscription.id));
            let Some(own) = own else {
                self.lost(format!(
                    "subscription {} of topic {}, which stood in the wrong place",
                    subscription.id.0,
                    subscription.topic_url.as_str()
                ));
                self.remove(Space::Subscriptions, &key)?;
                continue;
            };
            // Of two for the same topic and callback the younger one counts.
            if let Some((older, older_key)) = in_force.insert(pair(&subscription), (own, key)) {
                self.lost(format!(
                    "subscription {}, of which there is a younger one for the same topic and callback",
                    older.id.0
                ));
                self.remove(Space::Subscriptions, &older_key)?;
            }
        }
        let mut indexed = BTreeSet::new();
        let mut strays = 0_u64;
        for (key, entry) in self.each::<Address>()? {
            match in_force.get(&key[..]) {
                Some((own, _)) if *own == entry => drop(indexed.insert(key)),
                Some(_) => {}
                None => {
                    strays += 1;
                    self.remove(Space::SubscriptionIndex, &key)?;
                }
            }
        }
        let mut added = 0_u64;
        for (pair, (own, _)) in &in_force {
            if !indexed.contains(&pair[..]) {
                added += 1;
                self.put(pair.to_vec(), own)?;
            }
        }
        let removed = strays + self.unreadable_entries.saturating_sub(added);
        if removed + added > 0 {
            self.rebuilt(format!("the index of subscriptions: {added} entries made, {removed} removed"));
        }
        self.done()
    }
}
