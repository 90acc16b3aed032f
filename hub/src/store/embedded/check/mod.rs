//! Checking every record of a store: whether it can be read, and whether records about the same thing agree.

mod logs;
mod readable;
mod subscriptions;

#[cfg(test)]
pub(super) mod tests;

use std::path::Path;

use bytes::Bytes;
use resync_core::websub::TopicUrl;

pub(super) use self::subscriptions::pair;
use super::closed::Closed;
use super::engine::{Engine, Space};
use super::{memory, widen};
use crate::store::encoding::key::{self, Pair};
use crate::store::encoding::layout::{Address, Counters, TopicState};
use crate::store::{
    self, Denial, Findings, Keyring, Offset, PendingRequest, Ping, Result, Subscription, TopicId,
};

/// Checks the store in `directory`, which no hub may be using. No record is changed; opening an engine finishes what a crash has left of
/// its files.
///
/// # Errors
/// As [`open`](super::open), and [`StoreError::Read`](crate::store::StoreError::Read) where there is no store.
pub fn check(engine: store::Engine, directory: &Path, keys: &Keyring) -> Result<Findings> {
    let (_lock, opened) = super::open_stopped(engine, directory)?;
    findings(opened.as_ref(), keys)
}

pub(super) fn findings(engine: &dyn Engine, keys: &Keyring) -> Result<Findings> {
    let (records, faults) = inspect(engine, keys)?;
    Ok(Findings { records, faults: faults.iter().map(ToString::to_string).collect() })
}

/// Something in a store that is not as it should be, with what `repair` needs to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::store) enum Fault {
    /// A record cannot be decoded.
    #[error("a record of {} cannot be read: {reason}", .space.name())]
    Unreadable { space: Space, key: Bytes, reason: String },
    /// The engine cannot read its own files.
    #[error("the engine cannot read {}: {reason}; what comes after it was not checked", .space.name())]
    Engine { space: Space, reason: String },
    /// The record that says how the store was made.
    #[error("the record of the number of shards is missing")]
    NoFoundation,
    /// Nothing leads to this record.
    #[error("a record of {} belongs to nothing: key {}", .space.name(), hex::encode(.key))]
    Stray { space: Space, key: Bytes },
    /// A log lacks notifications, or parts of one.
    #[error("{} of topic {}: missing or damaged", span(*.from, *.to), .url.as_str())]
    Missing { topic: TopicId, url: TopicUrl, from: Offset, to: Offset },
    /// A topic's record, as it should be.
    #[error("the record of topic {} does not match its log", .0.topic.url.as_str())]
    Summary(Box<TopicState>),
    /// A watermark or a laggard is beyond the end of the log, up to here: the next notifications would be passed by.
    #[error("delivery of topic {} is noted to be further than its log", .0.topic.url.as_str())]
    ReadAhead(Box<TopicState>, Offset),
    /// There are subscriptions of a topic, but no record of the topic. The newest of them began here.
    #[error("the record of topic {} is missing, which has subscriptions", .url.as_str())]
    NoTopic { topic: TopicId, url: TopicUrl, start: Offset },
    /// A renewal would not find the subscription.
    #[error("subscription {} cannot be found by its topic and callback", .address.id.0)]
    Unindexed { pair: Pair, address: Address },
    /// The largest numbers in use are not those that were noted.
    #[error("new subscriptions, requests or pings would get numbers that are in use")]
    Numbers(Counters),
}

fn span(from: Offset, to: Offset) -> String {
    if from == to { format!("notification {from}") } else { format!("notifications {from} to {to}") }
}

/// Counts the records, and names what is wrong.
pub(super) fn inspect(engine: &dyn Engine, keys: &Keyring) -> Result<(u64, Vec<Fault>)> {
    // Without the right keys every secret would look damaged.
    widen(&memory::encryption(engine)?, keys)?;
    let mut check = Check { records: Closed::new(engine, keys), faults: Vec::new() };
    let count = check.check_records()?;
    check.check_numbers()?;
    let topics = check.topics();
    check.check_logs(&topics)?;
    check.check_subscriptions(&topics)?;
    Ok((count, check.faults))
}

/// A check under way.
struct Check<'a> {
    records: Closed<'a>,
    faults: Vec<Fault>,
}

impl<'a> Check<'a> {
    /// Every record of a space up to one that the engine cannot read, which is named once.
    fn every(&self, space: Space) -> impl Iterator<Item = (Bytes, Bytes)> + use<'a> {
        self.records.all(space).map_while(Result::ok)
    }

    /// Those of them that can be decoded.
    fn each<R: crate::store::encoding::codec::Record>(
        &self,
    ) -> impl Iterator<Item = (Bytes, R)> + use<'a, R> {
        self.records.each().map_while(Result::ok)
    }

    fn stray(&mut self, space: Space, key: Bytes) {
        self.faults.push(Fault::Stray { space, key });
    }

    /// Whether the numbers that were given out last are at least those in use.
    fn check_numbers(&mut self) -> Result<()> {
        let noted: Counters = self.records.get(key::COUNTERS)?.unwrap_or_default();
        let mut used = noted;
        self.each::<Subscription>().for_each(|(_, one)| used.subscription = used.subscription.max(one.id));
        self.each::<PendingRequest>().for_each(|(_, one)| used.request = used.request.max(one.id.0));
        // Requests and denials are counted together.
        self.each::<Denial>().for_each(|(_, one)| used.request = used.request.max(one.id.0));
        self.each::<Ping>().for_each(|(_, one)| used.ping = used.ping.max(one.id.0));
        if used != noted {
            self.faults.push(Fault::Numbers(used));
        }
        Ok(())
    }
}
