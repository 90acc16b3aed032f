//! What the opening of a store reads of every subscription, once: to count it, and for whoever delivers to it.

use std::collections::{HashMap, HashSet};
use std::hash::RandomState;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use resync_common::locks::lock;

use super::accounts::{self, Accounts, Counted, SubscriptionChange};
use super::engine::{Batch, Engine, Keys, Space};
use crate::store::encoding::codec;
use crate::store::encoding::key;
use crate::store::encoding::layout::with_client;
use crate::store::keyring::Keyring;
use crate::store::{Result, Shard, SubscriptionSummary};

/// Subscriptions that are handed over to be counted at once.
const COUNTED_AT_ONCE: usize = 1_024;

/// The summaries of each shard, until it is loaded for the first time or one of its subscriptions changes.
#[derive(Debug, Default)]
pub(super) struct Summaries(Mutex<HashMap<Shard, Vec<SubscriptionSummary>>>);

impl Summaries {
    /// Reads every subscription, on all cores: of a million of them this is most of a start.
    pub(super) fn read(engine: &dyn Engine, shards: u16, accounts: &mut Accounts) -> Result<Self> {
        let readers = thread::available_parallelism().map_or(1, usize::from).min(usize::from(shards));
        let (hasher, summaries) = (accounts.hasher(), Self::default());
        thread::scope(|scope| {
            let (sender, counted) = sync_channel(2 * readers);
            for first in 0..readers {
                let (sender, hasher, summaries) = (sender.clone(), &hasher, &summaries);
                scope.spawn(move || {
                    for shard in (0..shards).skip(first).step_by(readers).map(Shard) {
                        let mut reader = Reader { hasher, sender: &sender, counted: Vec::new() };
                        match reader.read(engine, shard) {
                            Ok(Some(all)) => drop(summaries.lock().insert(shard, all)),
                            Ok(None) => {}
                            Err(NobodyCounts) => return,
                        }
                    }
                });
            }
            drop(sender);
            for some in counted {
                some?.into_iter().for_each(|one| accounts.follow(SubscriptionChange::Began(one)));
            }
            Ok(())
        })?;
        Ok(summaries)
    }

    /// Those of this shard, if they are still as they were read.
    pub(super) fn take(&self, shard: Shard) -> Option<Vec<SubscriptionSummary>> {
        self.lock().remove(&shard)
    }

    /// To be called with whatever is committed, also where that fails: what is in force then is read again.
    pub(super) fn follow(&self, batch: &Batch) {
        let mut all = self.lock();
        if all.is_empty() {
            return;
        }
        let changed = batch.iter().filter(|(space, ..)| *space == Space::Subscriptions);
        for (shard, ..) in changed.filter_map(|(_, key, _)| key::place_of_subscription(key)) {
            all.remove(&shard);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Shard, Vec<SubscriptionSummary>>> {
        // What it guards is complete between any two statements.
        lock(&self.0)
    }
}

/// An error has ended the counting.
struct NobodyCounts;

/// Reads shards, and hands over what is counted.
struct Reader<'a> {
    hasher: &'a RandomState,
    sender: &'a SyncSender<Result<Vec<Counted>>>,
    counted: Vec<Counted>,
}

impl Reader<'_> {
    /// The summaries of a shard, unless one of them cannot be read: whoever loads the shard is told which.
    fn read(
        &mut self,
        engine: &dyn Engine,
        shard: Shard,
    ) -> std::result::Result<Option<Vec<SubscriptionSummary>>, NobodyCounts> {
        let (mut all, mut origins, none) = (Some(Vec::new()), Origins::default(), Keyring::none());
        for record in engine.scan(Space::Subscriptions, &Keys::prefix(key::shard(shard))) {
            let (key, value) = match record {
                Ok(record) => record,
                Err(error) => {
                    // Nobody is told twice.
                    let _ = self.sender.send(Err(error));
                    return Err(NobodyCounts);
                }
            };
            let Some((_, topic, id)) = key::place_of_subscription(&key) else {
                all = None;
                continue;
            };
            let read = codec::open_beginning(&none, Space::Subscriptions, &key, &value, with_client);
            let of = if let Ok((mut summary, client)) = read {
                let host = accounts::host(self.hasher, summary.origin.as_bytes());
                origins.share(&mut summary);
                if let Some(all) = &mut all {
                    all.push(summary);
                }
                Some((host, client))
            } else {
                // It is a subscription, too.
                all = None;
                None
            };
            self.counted.push(Counted { id, topic, of });
            if self.counted.len() == COUNTED_AT_ONCE {
                self.hand_over()?;
            }
        }
        self.hand_over()?;
        Ok(all)
    }

    fn hand_over(&mut self) -> std::result::Result<(), NobodyCounts> {
        self.sender.send(Ok(std::mem::take(&mut self.counted))).map_err(|_| NobodyCounts)
    }
}

/// The origins of many subscriptions: a copy for each would take more than all the rest.
#[derive(Default)]
pub(super) struct Origins(HashSet<Arc<str>>);

impl Origins {
    /// From now on it has the copy that the others have.
    pub(super) fn share(&mut self, summary: &mut SubscriptionSummary) {
        match self.0.get(&summary.origin) {
            Some(known) => summary.origin = Arc::clone(known),
            None => drop(self.0.insert(Arc::clone(&summary.origin))),
        }
    }
}
