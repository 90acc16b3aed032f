//! Commands on the state of delivery: who owns a shard, and how far it is.

use super::Transaction;
use crate::store::embedded::engine::{Keys, Space};
use crate::store::encoding::codec;
use crate::store::encoding::key;
use crate::store::encoding::layout::{PausedTopic, TopicWatermark};
use crate::store::{Checkpoint, Epoch, Replayed, Result, Shard, Skip, StoreEvent, TopicId};

/// Skips that are owed again.
struct ReplayedSkips {
    keys: Vec<Vec<u8>>,
    /// The first record that was not looked at.
    next: Option<Vec<u8>>,
}

impl Transaction<'_> {
    pub(in super::super) fn claim(&mut self, shard: Shard) -> Epoch {
        let epoch = Epoch(self.epoch(shard).0 + 1);
        self.staged.epochs.insert(shard, epoch);
        epoch
    }

    /// The newest epoch is nobody's from now on.
    pub(in super::super) fn release(&mut self, shard: Shard, epoch: Epoch) -> Result<()> {
        self.check_owner(shard, epoch)?;
        self.claim(shard);
        Ok(())
    }

    pub(in super::super) fn pause(&mut self, topic: TopicId) -> bool {
        let exists = self.topic_state(topic).is_some();
        if exists {
            self.put(key::paused(topic), &PausedTopic(topic));
            self.staged.events.push(StoreEvent::Paused { topic });
        }
        exists
    }

    pub(in super::super) fn resume(&mut self, topic: TopicId) {
        self.batch.remove(Space::Meta, key::paused(topic));
        self.staged.events.push(StoreEvent::Resumed { topic });
    }

    /// Saves how far delivery is, but nothing of topics that are forgotten. Of the skips that are owed again, at most `limit` for
    /// each replay are forgotten with it; returns where to go on with the others.
    pub(in super::super) fn checkpoint(
        &mut self,
        shard: Shard,
        epoch: Epoch,
        progress: &Checkpoint,
        limit: usize,
    ) -> Result<Vec<(Replayed, Vec<u8>)>> {
        self.check_owner(shard, epoch)?;
        let mut behind = Vec::with_capacity(progress.laggards.len());
        for laggard in &progress.laggards {
            let key = key::subscription(shard, laggard.topic, laggard.subscription);
            if self.exists(Space::Subscriptions, &key)? {
                behind.push((key, laggard));
            }
        }
        let (mut owed_again, mut left) = (Vec::new(), Vec::new());
        for replayed in &progress.replayed {
            let begin = key::skips_from(shard, replayed.topic, replayed.from);
            let ReplayedSkips { keys, next } = self.skips_of(shard, replayed, begin, progress, limit)?;
            owed_again.extend(keys);
            left.extend(next.map(|next| (*replayed, next)));
        }
        for key in owed_again {
            self.batch.remove(Space::Skips, key);
        }
        for (topic, watermark) in &progress.watermarks {
            if self.topic_state(*topic).is_some() {
                self.put(key::shard_topic(shard, *topic), &TopicWatermark(*topic, *watermark));
            }
        }
        // Before the laggards: should a subscription be in both, repeating a delivery is better than losing one.
        for (topic, id) in &progress.caught_up {
            self.batch.remove(Space::Laggards, key::subscription(shard, *topic, *id));
        }
        for (key, laggard) in behind {
            self.put(key, laggard);
        }
        let skips = progress.skips.iter().filter(|skip| self.topic_state(skip.topic).is_some());
        for skip in skips.collect::<Vec<_>>() {
            self.put(key::skip(shard, skip.topic, skip.offset, skip.subscription), skip);
        }
        for gap in &progress.gaps {
            self.put(key::gap(gap), gap);
        }
        Ok(left)
    }

    /// Forgets more of the skips that are owed again since this checkpoint, having looked at `limit` of them from this key on;
    /// returns where to go on.
    pub(in super::super) fn forget_replayed(
        &mut self,
        (shard, epoch): (Shard, Epoch),
        progress: &Checkpoint,
        replayed: &Replayed,
        from: Vec<u8>,
        limit: usize,
    ) -> Result<Option<Vec<u8>>> {
        self.check_owner(shard, epoch)?;
        let ReplayedSkips { keys, next } = self.skips_of(shard, replayed, from, progress, limit)?;
        for key in keys {
            self.batch.remove(Space::Skips, key);
        }
        Ok(next)
    }

    /// Where it is written that what was replayed had been given up, but for what was given up again since; looks at `limit`
    /// records.
    fn skips_of(
        &self,
        shard: Shard,
        replayed: &Replayed,
        from: Vec<u8>,
        progress: &Checkpoint,
        limit: usize,
    ) -> Result<ReplayedSkips> {
        let range = Keys { from, to: Keys::prefix(key::shard_topic(shard, replayed.topic)).to };
        let mut keys = Vec::new();
        for (number, record) in self.engine.scan(Space::Skips, &range).enumerate() {
            let (key, value) = record?;
            if number == limit {
                return Ok(ReplayedSkips { keys, next: Some(key.to_vec()) });
            }
            let skip = codec::open::<Skip>(self.keys, &key, &value);
            if skip.is_ok_and(|skip| replayed.covers(&skip) && !progress.skips.contains(&skip)) {
                keys.push(key.to_vec());
            }
        }
        Ok(ReplayedSkips { keys, next: None })
    }
}
