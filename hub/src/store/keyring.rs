//! The keys under which subscribers' secrets are stored on disk: AES-256-GCM, one random nonce for each secret.
//!
//! A stored secret names its key and is bound to the record that holds it: moved elsewhere it does not open.

use std::fmt;
use std::fs;
use std::sync::Arc;

use resync_core::websub::Secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};

use crate::config::SecretsConfig;

const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 8;
/// In front of the key when its name is derived, so that the name says nothing else about it.
const NAMING: &[u8] = b"resync-hub key of secrets";

/// The name of a key, by which a stored secret says how it is to be opened. It is no secret itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; ID_BYTES]);

impl KeyId {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// Why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// Something that is no key.
    #[error(
        "key {position} in [secrets] is no key: it must be 64 hexadecimal digits; make one with `resync-hub secrets new-key`"
    )]
    NoKey {
        /// Which one, from 1.
        position: usize,
    },
    /// None is configured.
    #[error(
        "this hub has no key for secrets: make one with `resync-hub secrets new-key` and name its file in [secrets] key_file"
    )]
    None,
    /// A source of keys that has none.
    #[error("there is no key in {0}: make one with `resync-hub secrets new-key`")]
    Empty(String),
    /// The file cannot be read.
    #[error("the keys of the secrets in {path} cannot be read: {reason}")]
    File {
        /// Which file.
        path: String,
        /// Why not.
        reason: String,
    },
    /// Two places name keys.
    #[error("give the keys of the secrets either in [secrets] key or in [secrets] key_file, not in both")]
    Twice,
}

/// One key.
struct Key {
    id: KeyId,
    cipher: LessSafeKey,
}

/// Keys: the first one is used for writing, all for reading. Without keys secrets are stored as they are.
#[derive(Clone, Default)]
pub struct Keyring(Arc<[Key]>);

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| key.id)).finish()
    }
}

impl Keyring {
    /// The keys of a configuration; their file is read anew each time.
    ///
    /// # Errors
    /// [`KeyringError`]
    pub fn of(secrets: &SecretsConfig) -> Result<Self, KeyringError> {
        match (secrets.key(), secrets.key_file()) {
            (None, None) => Ok(Self::none()),
            (Some(_), Some(_)) => Err(KeyringError::Twice),
            (Some(key), None) => some(key, "[secrets] key"),
            (None, Some(file)) => {
                let path = file.display().to_string();
                let unread = |error: std::io::Error| match secrets.credential() {
                    Some(_) => "systemd hands it to the service only (LoadCredential)".to_owned(),
                    None => error.to_string(),
                };
                let text = fs::read_to_string(file)
                    .map_err(|error| KeyringError::File { path: path.clone(), reason: unread(error) })?;
                some(&text, &path)
            }
        }
    }

    /// No keys.
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads keys of 64 hexadecimal digits, divided by white space or commas. What follows a `#` on a line is a remark.
    ///
    /// # Errors
    /// [`KeyringError::NoKey`], which does not repeat what was written.
    ///
    /// ```
    /// use resync_hub::store::Keyring;
    ///
    /// let (new, old) = (Keyring::generate(), Keyring::generate());
    /// let keys = Keyring::parse(&format!("{new} # since today\n{old}"))?;
    /// assert!(keys.writes_with().is_some());
    /// # Ok::<(), resync_hub::store::KeyringError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let words = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default())
            .flat_map(|line| line.split(|c: char| c.is_whitespace() || c == ','))
            .filter(|word| !word.is_empty());
        let key = |(index, word)| Key::parse(word).ok_or(KeyringError::NoKey { position: index + 1 });
        words.enumerate().map(key).collect::<Result<Vec<_>, _>>().map(|keys| Self(keys.into()))
    }

    /// A new key as text.
    pub fn generate() -> String {
        hex::encode(random::<KEY_BYTES>())
    }

    /// The key with which secrets are written; `None` when they are stored as they are.
    pub fn writes_with(&self) -> Option<KeyId> {
        self.0.first().map(|key| key.id)
    }

    /// Whether it can read what was written with this key.
    pub fn reads(&self, id: KeyId) -> bool {
        self.key(id).is_some()
    }

    /// The names of all keys.
    #[cfg(feature = "postgres")]
    pub(super) fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.0.iter().map(|key| key.id)
    }

    fn key(&self, id: KeyId) -> Option<&Key> {
        self.0.iter().find(|key| key.id == id)
    }

    /// The secret under the first key, bound to `place`; `None` when there are no keys.
    pub(super) fn lock(&self, place: &[u8], secret: &Secret) -> Option<Locked> {
        let key = self.0.first()?;
        let nonce = random::<NONCE_LEN>();
        let mut bytes = secret.as_bytes().to_vec();
        key.cipher
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(place), &mut bytes)
            .expect("a secret of 199 bytes is far below what the cipher takes");
        Some(Locked { key: key.id, nonce, bytes })
    }

    /// The secret that was locked for this place; `None` when it is not that, or the key is missing.
    pub(super) fn unlock(&self, place: &[u8], locked: Locked) -> Option<Vec<u8>> {
        let Locked { key, nonce, mut bytes } = locked;
        let cipher = &self.key(key)?.cipher;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let length = cipher.open_in_place(nonce, Aad::from(place), &mut bytes).ok()?.len();
        bytes.truncate(length);
        Some(bytes)
    }
}

/// A secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Locked {
    pub(super) key: KeyId,
    pub(super) nonce: [u8; NONCE_LEN],
    pub(super) bytes: Vec<u8>,
}

impl Key {
    fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; KEY_BYTES] = hex::decode(text).ok()?.try_into().ok()?;
        let digest = Sha256::new().chain_update(NAMING).chain_update(bytes).finalize();
        let id = KeyId::from_bytes(&digest[..ID_BYTES])?;
        Some(Self { id, cipher: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &bytes).ok()?) })
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("a system without random bytes runs no hub: challenges need them as well");
    bytes
}

/// A place that should hold keys and holds none is a mistake: nobody means it to switch encryption off.
fn some(text: &str, place: &str) -> Result<Keyring, KeyringError> {
    let keys = Keyring::parse(text)?;
    if keys.writes_with().is_some() { Ok(keys) } else { Err(KeyringError::Empty(place.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret::new("s3cr3t").unwrap()
    }

    #[test]
    fn a_locked_secret_opens_with_its_key_in_its_place_only() {
        let (one, two) =
            (Keyring::parse(&Keyring::generate()).unwrap(), Keyring::parse(&Keyring::generate()).unwrap());
        let locked = one.lock(b"place", &secret()).unwrap();
        assert_eq!(one.unlock(b"place", locked.clone()).unwrap(), b"s3cr3t");
        assert_eq!(one.unlock(b"elsewhere", locked.clone()), None);
        assert_eq!(two.unlock(b"place", locked.clone()), None);
        let mut bent = locked;
        bent.bytes[0] ^= 1;
        assert_eq!(one.unlock(b"place", bent), None);
    }

    #[test]
    fn the_same_secret_is_never_kept_twice_with_the_same_bytes() {
        let keys = Keyring::parse(&Keyring::generate()).unwrap();
        let (one, other) = (keys.lock(b"place", &secret()).unwrap(), keys.lock(b"place", &secret()).unwrap());
        assert_ne!(one.nonce, other.nonce);
        assert_ne!(one.bytes, other.bytes);
    }

    #[test]
    fn the_first_key_writes_and_all_keys_read() {
        let (new, old) = (Keyring::generate(), Keyring::generate());
        let before = Keyring::parse(&old).unwrap();
        let after = Keyring::parse(&format!("{new} # new\n\n{old},")).unwrap();
        let locked = before.lock(b"place", &secret()).unwrap();
        assert!(after.unlock(b"place", locked).is_some());
        assert!(before.unlock(b"place", after.lock(b"place", &secret()).unwrap()).is_none());
        assert_ne!(after.writes_with(), before.writes_with());
        assert!(before.writes_with().is_some_and(|id| after.reads(id)));
    }

    #[test]
    fn keys_are_divided_by_white_space_or_commas_and_none_is_left_out() {
        let texts = [Keyring::generate(), Keyring::generate(), Keyring::generate()];
        let ids = texts.each_ref().map(|text| Keyring::parse(text).unwrap().writes_with().unwrap());
        for between in [" ", "\t", "\n", ",", ", ", " ,\n\n", " # a remark, and more\n"] {
            let keys = Keyring::parse(&texts.join(between)).unwrap();
            assert_eq!(keys.0.iter().map(|key| key.id).collect::<Vec<_>>(), ids, "{between:?}");
        }
    }

    #[test]
    fn a_place_for_keys_that_has_none_does_not_switch_encryption_off() {
        for empty in ["", " \n", ",", "# a remark"] {
            let refused = some(empty, "keys.txt").unwrap_err();
            assert_eq!(refused, KeyringError::Empty("keys.txt".to_owned()), "{empty:?}");
        }
    }

    #[test]
    fn without_keys_nothing_is_locked() {
        assert_eq!(Keyring::none().writes_with(), None);
        assert_eq!(Keyring::none().lock(b"place", &secret()), None);
    }

    #[test]
    fn what_is_no_key_is_named_by_its_place_and_never_repeated() {
        let bad = format!("{} not-a-key", Keyring::generate());
        let error = Keyring::parse(&bad).unwrap_err();
        assert_eq!(error, KeyringError::NoKey { position: 2 });
        assert!(!format!("{error} {error:?}").contains("not-a-key"));
        assert!(Keyring::parse(&Keyring::generate()[1..]).is_err());
    }

    #[test]
    fn keys_are_never_printed() {
        let text = Keyring::generate();
        let keys = Keyring::parse(&text).unwrap();
        assert!(!format!("{keys:?}").contains(&text[..16]), "{keys:?}");
    }
}
