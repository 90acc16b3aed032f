//! Records about the whole store.

use std::collections::BTreeSet;

use crate::store::encoding::Space;
use crate::store::encoding::codec::{Decoded, Decoder, Encoder, Fields, Record};
use crate::store::encoding::fields::{fields, record};
use crate::store::keyring::{KeyId, Keyring};
use crate::store::{ClockJump, Epoch, Offset, Result, StoreError, SubscriptionId, TopicId, Uptime};

/// What was decided when the store was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Foundation {
    pub(in crate::store) shards: u16,
}

impl Record for Foundation {
    const SPACE: Space = Space::Meta;
}

impl Fields for Foundation {
    fn encode(&self, out: &mut Encoder) {
        self.shards.encode(out);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let shards = u16::decode(fields)?;
        if shards == 0 { Err("the number of shards is 0".into()) } else { Ok(Self { shards }) }
    }
}

/// A topic of which nothing is delivered for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct PausedTopic(pub(in crate::store) TopicId);

record!(Meta: PausedTopic { 0 });

/// The identities that were given out last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Counters {
    pub(in crate::store) subscription: SubscriptionId,
    pub(in crate::store) request: u64,
    pub(in crate::store) ping: u64,
}

record!(Meta: Counters { subscription, request, ping });

/// The last offset of all topics that were forgotten. The log of a new topic begins behind it, so that whoever has read the log of
/// one with the same URL before is never told too little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Floor(pub(in crate::store) Offset);

record!(Meta: Floor { 0 });

impl Record for Epoch {
    const SPACE: Space = Space::Meta;
}

record!(Meta: Uptime { seen, clock_jumps });
fields!(ClockJump { length, up_since });

/// The keys that are needed to read every secret. It is widened before a key is used for the first time and narrowed when
/// all secrets have been rewritten, so at any moment it names at least what is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Encryption {
    pub(in crate::store) keys: BTreeSet<KeyId>,
    /// Some secrets may be stored as they are.
    pub(in crate::store) plain: bool,
}

impl Record for Encryption {
    const SPACE: Space = Space::Meta;
}

impl Fields for Encryption {
    fn encode(&self, out: &mut Encoder) {
        self.plain.encode(out);
        self.keys.iter().copied().collect::<Vec<_>>().encode(out);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let (plain, keys) = (bool::decode(fields)?, Vec::<KeyId>::decode(fields)?);
        Ok(Self { plain, keys: keys.into_iter().collect() })
    }
}

impl Encryption {
    /// What a store is like once everything in it was written with these keys.
    pub(in crate::store) fn wholly(keys: &Keyring) -> Self {
        Self { keys: keys.writes_with().into_iter().collect(), plain: keys.writes_with().is_none() }
    }

    /// With what these keys will write in addition.
    pub(in crate::store) fn widened(&self, keys: &Keyring) -> Self {
        let mut widened = self.clone();
        widened.keys.extend(keys.writes_with());
        widened.plain |= keys.writes_with().is_none();
        widened
    }

    /// Makes sure that every secret can be read with these keys.
    ///
    /// # Errors
    /// [`StoreError::SecretsKey`], which names those that are needed and missing.
    pub(in crate::store) fn require(&self, keys: &Keyring) -> Result<()> {
        let missing: Vec<_> = self.keys.iter().copied().filter(|id| !keys.reads(*id)).collect();
        if missing.is_empty() { Ok(()) } else { Err(StoreError::SecretsKey { missing }) }
    }
}
