//! Commands on the state of delivery: who owns a shard, and how far it is.

use super::Transaction;
use crate::store::embedded::codec;
use crate::store::embedded::engine::{Keys, Space};
use crate::store::embedded::key;
use crate::store::embedded::layout::{PausedTopic, TopicWatermark};
use crate::store::{Checkpoint, Epoch, Replayed, Result, Shard, Skip, StoreError, StoreEvent, TopicId};

impl Transaction<'_> {
    pub(in super::super) fn claim(&mut self, shard: Shard) -> Epoch {
        let epoch = Epoch(self.epoch(shard).0 + 1);
        self.staged.epochs.insert(shard, epoch);
        epoch
    }

    pub(in super::super) fn pause(&mut self, topic: TopicId) {
        self.put(key::paused(topic), &PausedTopic(topic));
        self.staged.events.push(StoreEvent::Paused { topic });
    }

    pub(in super::super) fn resume(&mut self, topic: TopicId) {
        self.batch.remove(Space::Meta, key::paused(topic));
        self.staged.events.push(StoreEvent::Resumed { topic });
    }

    pub(in super::super) fn checkpoint(
        &mut self,
        shard: Shard,
        epoch: Epoch,
        progress: &Checkpoint,
    ) -> Result<()> {
        if epoch != self.epoch(shard) {
            return Err(StoreError::Fenced);
        }
        let mut behind = Vec::with_capacity(progress.laggards.len());
        for laggard in &progress.laggards {
            let key = key::subscription(shard, laggard.topic, laggard.subscription);
            if self.exists(Space::Subscriptions, &key)? {
                behind.push((key, laggard));
            }
        }
        let owed_again = self.skips_of(shard, &progress.replayed)?;
        for key in owed_again {
            self.batch.remove(Space::Skips, key);
        }
        for (topic, watermark) in &progress.watermarks {
            self.put(key::shard_topic(shard, *topic), &TopicWatermark(*topic, *watermark));
        }
        // Before the laggards: should a subscription be in both, repeating a delivery is better than losing one.
        for (topic, id) in &progress.caught_up {
            self.batch.remove(Space::Laggards, key::subscription(shard, *topic, *id));
        }
        for (key, laggard) in behind {
            self.put(key, laggard);
        }
        for skip in &progress.skips {
            self.put(key::skip(shard, skip.topic, skip.offset, skip.subscription), skip);
        }
        for gap in &progress.gaps {
            self.put(key::gap(gap), gap);
        }
        Ok(())
    }

    /// Where it is written that what was replayed had been given up.
    fn skips_of(&self, shard: Shard, replayed: &[Replayed]) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        for replayed in replayed {
            let range = Keys {
                from: key::skips_from(shard, replayed.topic, replayed.from),
                to: Keys::prefix(key::shard_topic(shard, replayed.topic)).to,
            };
            for record in self.engine.scan(Space::Skips, &range) {
                let (key, value) = record?;
                let skip = codec::open::<Skip>(self.keys, &key, &value);
                if skip.is_ok_and(|skip| replayed.covers(&skip)) {
                    keys.push(key.to_vec());
                }
            }
        }
        Ok(keys)
    }
}
