//! Secrets as they stand in a column: as they are, or under a key and bound to their row.
//!
//! ```text
//! 1 | secret                                      as it is
//! 2 | name of the key: 8 bytes | nonce: 12 | sealed   under this key
//! ```
//!
//! A row is named by its pair, and not by its number: that is given by the database after the secret was sealed.

use std::net::IpAddr;

use resync_core::websub::Secret;

use crate::store::encoding::Space;
use crate::store::keyring::{KeyId, Keyring, Locked};
use crate::store::{Result, StoreError};

const PLAIN: u8 = 1;
const LOCKED: u8 = 2;
/// How long the name of a key is.
const KEY_BYTES: usize = 8;

/// What a secret is bound to: moved elsewhere it does not open.
#[derive(Debug)]
pub(super) struct Row {
    space: Space,
    place: Vec<u8>,
}

impl Row {
    /// The subscription of a pair.
    pub(super) fn subscription(pair: &[u8]) -> Self {
        Self { space: Space::Subscriptions, place: [&[Space::Subscriptions.tag()], pair].concat() }
    }

    /// The request of a client for a pair.
    pub(super) fn request(pair: &[u8], client: Option<IpAddr>) -> Self {
        let client = match client {
            None => Vec::new(),
            Some(IpAddr::V4(four)) => four.octets().to_vec(),
            Some(IpAddr::V6(six)) => six.octets().to_vec(),
        };
        Self { space: Space::Requests, place: [&[Space::Requests.tag()], pair, client.as_slice()].concat() }
    }

    /// The document with this number.
    pub(super) fn document(number: i16) -> Self {
        let place = [[Space::Meta.tag()].as_slice(), b"document", &number.to_be_bytes()].concat();
        Self { space: Space::Meta, place }
    }

    /// What is kept of the secret.
    pub(super) fn seal(&self, keys: &Keyring, secret: &Secret) -> Vec<u8> {
        match keys.lock(&self.place, secret) {
            None => [&[PLAIN], secret.as_bytes()].concat(),
            Some(Locked { key, nonce, bytes }) => {
                [&[LOCKED], key.as_bytes(), nonce.as_slice(), bytes.as_slice()].concat()
            }
        }
    }

    /// The secret of which this is kept.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when it does not open.
    pub(super) fn open(&self, keys: &Keyring, kept: &[u8]) -> Result<Secret> {
        let damaged = |reason: String| StoreError::Damaged { space: self.space.name(), reason };
        let bytes = match kept.split_first() {
            Some((&PLAIN, secret)) => secret.to_vec(),
            Some((&LOCKED, rest)) => {
                let locked = locked(rest).ok_or_else(|| damaged("a secret is cut off".to_owned()))?;
                let key = locked.key;
                let opened = keys.unlock(&self.place, locked);
                opened.ok_or_else(|| damaged(format!("a secret does not open with key {key}")))?
            }
            _ => return Err(damaged("a secret is marked with an unknown number".to_owned())),
        };
        Secret::new(bytes).map_err(|error| damaged(format!("a secret is bad: {error}")))
    }
}

/// How everything begins that is written with these keys.
pub(super) fn beginning(keys: &Keyring) -> Vec<u8> {
    match keys.writes_with() {
        None => vec![PLAIN],
        Some(key) => [&[LOCKED], key.as_bytes()].concat(),
    }
}

fn locked(kept: &[u8]) -> Option<Locked> {
    let (key, kept) = kept.split_at_checked(KEY_BYTES)?;
    let (nonce, bytes) = kept.split_first_chunk()?;
    Some(Locked { key: KeyId::from_bytes(key)?, nonce: *nonce, bytes: bytes.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keyring {
        Keyring::parse(&Keyring::generate()).unwrap()
    }

    #[test]
    fn a_secret_opens_in_its_row_only() {
        let (keys, secret, pair, client) = (keys(), Secret::new("s3cr3t").unwrap(), [7; 32], [192, 0, 2, 1]);
        let row = Row::request(&pair, Some(client.into()));
        let kept = row.seal(&keys, &secret);
        assert!(kept.starts_with(&beginning(&keys)));
        assert!(!kept.windows(6).any(|part| part == b"s3cr3t"));
        assert_eq!(row.open(&keys, &kept).unwrap(), secret);
        let others = [
            Row::request(&pair, None),
            Row::request(&[8; 32], Some(client.into())),
            Row::subscription(&pair),
            Row::document(3),
        ];
        assert!(others.iter().all(|other| other.open(&keys, &kept).is_err()));
        assert!(row.open(&self::keys(), &kept).is_err(), "of another hub");
    }

    #[test]
    fn without_keys_a_secret_is_kept_as_it_is() {
        let (none, secret) = (Keyring::none(), Secret::new("s3cr3t").unwrap());
        let row = Row::subscription(&[7; 32]);
        let kept = row.seal(&none, &secret);
        assert_eq!(kept, b"\x01s3cr3t");
        assert!(kept.starts_with(&beginning(&none)));
        assert_eq!(row.open(&keys(), &kept).unwrap(), secret);
    }

    #[test]
    fn whatever_is_cut_off_or_unknown_is_damage() {
        let (keys, row) = (keys(), Row::subscription(&[7; 32]));
        let kept = row.seal(&keys, &Secret::new("s3cr3t").unwrap());
        for end in 0..kept.len() {
            assert!(row.open(&keys, &kept[..end]).is_err(), "{end}");
        }
        assert!(row.open(&keys, b"\x03s3cr3t").is_err());
    }
}
