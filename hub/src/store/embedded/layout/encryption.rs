//! Under which keys the secrets of a store are kept.

use std::collections::BTreeSet;

use super::Decoded;
use crate::store::embedded::codec::{Decoder, Encoder, Record};
use crate::store::embedded::engine::Space;
use crate::store::keyring::{KeyId, Keyring};

/// The keys that are needed to read every secret. It is widened before a key is used for the first time and narrowed when
/// all secrets have been rewritten, so at any moment it names at least what is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Encryption {
    pub(in super::super) keys: BTreeSet<KeyId>,
    /// Some secrets may be kept as they are.
    pub(in super::super) plain: bool,
}

impl Encryption {
    /// What a store is like once everything in it was written with these keys.
    pub(in super::super) fn wholly(keys: &Keyring) -> Self {
        Self { keys: keys.writes_with().into_iter().collect(), plain: keys.writes_with().is_none() }
    }

    /// With what these keys will write in addition.
    pub(in super::super) fn widened(&self, keys: &Keyring) -> Self {
        let mut widened = self.clone();
        widened.keys.extend(keys.writes_with());
        widened.plain |= keys.writes_with().is_none();
        widened
    }

    /// The keys that are needed and missing.
    pub(in super::super) fn missing(&self, keys: &Keyring) -> Vec<KeyId> {
        self.keys.iter().copied().filter(|id| !keys.reads(*id)).collect()
    }
}

impl Record for Encryption {
    const SPACE: Space = Space::Meta;

    fn encode(&self, out: &mut Encoder) {
        out.byte(u8::from(self.plain));
        out.number(self.keys.len() as u64);
        self.keys.iter().for_each(|id| out.bytes(id.as_bytes()));
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let plain = match fields.byte()? {
            0 => false,
            1 => true,
            other => return Err(format!("encryption {other} is unknown")),
        };
        let key = |fields: &mut Decoder| {
            KeyId::from_bytes(&fields.bytes()?).ok_or_else(|| "the name of a key has the wrong length".into())
        };
        let keys = (0..fields.number()?).map(|_| key(fields)).collect::<Decoded<_>>()?;
        Ok(Self { keys, plain })
    }
}
