//! Logs of earlier versions, whose topics counted bodies only: they are weighed once, when the store is opened.
//!
//! The version of a topic's record says which it is, so that a crash in between leaves some of each, and `check` knows what to
//! compare.

use std::collections::HashSet;

use super::codec;
use super::engine::{Batch, Engine, Keys, Space};
use super::key;
use super::layout::{LogRecord, TopicState};
use crate::store::{Keyring, Result, TopicId};

/// Topics that are written at once.
const AT_ONCE: usize = 1024;

/// Topics that count the bodies of their logs only.
pub(super) fn unweighed(engine: &dyn Engine, keys: &Keyring) -> HashSet<TopicId> {
    states_of_before(engine, keys).filter_map(Result::ok).map(|state| state.topic.id).collect()
}

/// Weighs the logs of all topics that were written by an earlier version. What cannot be read weighs nothing, as in retention.
pub(super) fn weigh(engine: &dyn Engine, keys: &Keyring) -> Result<()> {
    let states: Vec<_> = states_of_before(engine, keys).collect::<Result<_>>()?;
    let (mut batch, weighed) = (Batch::default(), states.len());
    for mut state in states {
        state.bytes = weight(engine, keys, &state)?;
        let key = key::topic(state.topic.id);
        let value = codec::seal(keys, &key, &state);
        batch.put(Space::Topics, key, value);
        if batch.len() >= AT_ONCE {
            engine.commit(&std::mem::take(&mut batch))?;
        }
    }
    if !batch.is_empty() {
        engine.commit(&batch)?;
    }
    if weighed > 0 {
        tracing::info!(topics = weighed, "the logs of an earlier version are weighed");
    }
    Ok(())
}

/// What the log of this topic weighs.
fn weight(engine: &dyn Engine, keys: &Keyring, state: &TopicState) -> Result<u64> {
    let (id, first) = (state.topic.id, state.topic.first);
    let range = Keys { from: key::log(id, first), to: Keys::prefix(key::topic(id)).to };
    let mut weight = 0_u64;
    for record in engine.scan(Space::Log, &range) {
        let (key, value) = record?;
        let read = codec::open::<LogRecord>(keys, &key, &value);
        weight = weight.saturating_add(read.map_or(0, |record| record.weight()));
    }
    Ok(weight)
}

/// The topics that can be read and were written by an earlier version.
fn states_of_before<'a>(
    engine: &'a dyn Engine,
    keys: &'a Keyring,
) -> impl Iterator<Item = Result<TopicState>> + 'a {
    engine.scan(Space::Topics, &Keys::all()).filter_map(move |record| {
        let (key, value) = match record {
            Ok(record) => record,
            Err(error) => return Some(Err(error)),
        };
        let version = codec::version(keys, Space::Topics, &key, &value).ok()?;
        (version < codec::WITH_WEIGHTS).then(|| codec::open(keys, &key, &value).ok()).flatten().map(Ok)
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::look;
    use super::super::check::tests::{filled, over};
    use super::super::testing::Fragile;
    use super::*;
    use crate::store::{Admin, Log, Payer, Shares, Trimmed};

    fn states(engine: &Fragile) -> Vec<TopicState> {
        let records = engine.scan(Space::Topics, &Keys::all()).map(Result::unwrap);
        records.map(|(key, value)| codec::open(&Keyring::none(), &key, &value).unwrap()).collect()
    }

    /// The store as version 3 has left it.
    fn as_of_before(engine: &Fragile) {
        let keys = Keyring::none();
        let mut batch = Batch::default();
        for mut state in states(engine) {
            let log = engine.scan(Space::Log, &Keys::prefix(key::topic(state.topic.id)));
            let bodies = log
                .map(Result::unwrap)
                .map(|(key, value)| codec::open::<LogRecord>(&keys, &key, &value).unwrap().body.len());
            state.bytes = bodies.sum();
            let key = key::topic(state.topic.id);
            // It did not say that a publisher pays, which takes a byte.
            assert_eq!(state.payer, Payer::Publishers);
            let value = codec::seal_as((3, 1), &keys, &key, &state);
            batch.put(Space::Topics, key, value);
        }
        engine.commit(&batch).unwrap();
    }

    #[tokio::test]
    async fn a_store_that_counted_bodies_is_whole_and_is_weighed_once() {
        let (engine, keys) = (filled().await, Keyring::none());
        let weighed = states(&engine);
        as_of_before(&engine);
        assert!(states(&engine)[0].bytes < weighed[0].bytes);
        assert_eq!(look(&engine, &keys).unwrap().faults, [], "each version is judged by its own count");
        weigh(&engine, &keys).unwrap();
        assert_eq!(states(&engine), weighed);
        assert_eq!(look(&engine, &keys).unwrap().faults, []);
        let commits = engine.commits();
        weigh(&engine, &keys).unwrap();
        assert_eq!(engine.commits(), commits, "nothing is left to weigh");
    }

    #[tokio::test]
    async fn what_retention_removes_from_a_log_of_before_leaves_nothing_over() {
        let engine = filled().await;
        as_of_before(&engine);
        let store = over(&engine);
        let before = store.usage().log_bytes;
        let Trimmed { notifications, bytes, .. } =
            store.trim(resync_core::datetime::DateTime::now(), Shares::of(0)).await.unwrap();
        assert!(notifications > 0);
        assert_eq!(store.usage().log_bytes, before - bytes);
        drop(store);
        assert_eq!(look(&engine, &Keyring::none()).unwrap().faults, []);
    }
}
