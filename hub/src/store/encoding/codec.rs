//! How a record becomes bytes and comes back checked.
//!
//! ```text
//! version: u8 | fields … | CRC-32 of (space tag, key, version, fields): u32 big-endian
//! ```
//!
//! The key is part of the checksum, so that a record which turns up in the wrong place is as damaged as one with a wrong
//! bit. Whatever does not decode is [`StoreError::Damaged`] with the place and the reason; nothing here panics.

use std::fmt;

use bytes::{Buf, Bytes};
use resync_core::websub::{Secret, TopicUrl};

use super::space::Space;
use crate::store::keyring::{KeyId, Keyring, Locked};
use crate::store::{Result, StoreError};

/// The version that is written and read. When a field is added, [`Decoder`] has to know by which version a record was written.
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

/// How a secret is marked. The first two are those of an option.
const NO_SECRET: u8 = 0;
const PLAIN_SECRET: u8 = 1;
const LOCKED_SECRET: u8 = 2;

/// What a record, or a part of one, is made of.
pub(in crate::store) trait Fields: Sized {
    fn encode(&self, out: &mut Encoder);

    /// Reads what was written; nothing may be left over in the end.
    fn decode(fields: &mut Decoder) -> Decoded<Self>;
}

/// Something that is stored in one space.
pub(in crate::store) trait Record: Fields {
    /// Where it is stored.
    const SPACE: Space;
}

/// What is wrong with a record's fields.
pub(in crate::store) type Fault = String;
pub(in crate::store) type Decoded<T> = std::result::Result<T, Fault>;

/// The bytes to keep under `key`.
pub(in crate::store) fn seal<R: Record>(keys: &Keyring, key: &[u8], record: &R) -> Vec<u8> {
    let mut out = Encoder { written: vec![VERSION], keys, place: Place { space: R::SPACE, key } };
    record.encode(&mut out);
    let mut stored = out.written;
    let checksum = checksum(R::SPACE, key, &stored);
    stored.extend_from_slice(&checksum.to_be_bytes());
    stored
}

/// The record that is stored under `key`.
pub(in crate::store) fn open<R: Record>(keys: &Keyring, key: &[u8], value: &Bytes) -> Result<R> {
    open_beginning(keys, R::SPACE, key, value, |fields| {
        let record = R::decode(fields)?;
        fields.finish()?;
        Ok(record)
    })
}

/// The same record with its secret under the first key; `None` when it is stored so already, or holds none.
pub(in crate::store) fn reseal<R: Record>(
    keys: &Keyring,
    key: &[u8],
    value: &Bytes,
) -> Result<Option<Vec<u8>>> {
    let (record, outdated) = open_beginning(keys, R::SPACE, key, value, |fields| {
        let record = R::decode(fields)?;
        fields.finish()?;
        Ok((record, fields.outdated))
    })?;
    Ok(outdated.then(|| seal(keys, key, &record)))
}

/// What a secret is bound to.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    space: Space,
    key: &'a [u8],
}

impl Place<'_> {
    fn bytes(self) -> Vec<u8> {
        [&[self.space.tag()], self.key].concat()
    }
}

/// The first fields of the record that is stored under `key`. The checksum of the whole is checked all the same.
pub(in crate::store) fn open_beginning<T>(
    keys: &Keyring,
    space: Space,
    key: &[u8],
    value: &Bytes,
    read: impl FnOnce(&mut Decoder) -> Decoded<T>,
) -> Result<T> {
    let read = unframe(keys, space, key, value).and_then(|mut fields| read(&mut fields));
    read.map_err(|reason| damaged(space, key, reason))
}

/// This record is not what it should be.
pub(in crate::store) fn damaged(space: Space, key: &[u8], reason: impl fmt::Display) -> StoreError {
    StoreError::Damaged { space: space.name(), reason: format!("key {}: {reason}", hex::encode(key)) }
}

fn unframe<'a>(keys: &'a Keyring, space: Space, key: &'a [u8], value: &Bytes) -> Decoded<Decoder<'a>> {
    let end = value.len().checked_sub(CHECKSUM_BYTES).filter(|end| *end > 0).ok_or("it is too short")?;
    let (content, stored) = value.split_at(end);
    if stored != checksum(space, key, content).to_be_bytes() {
        return Err("its checksum does not match".into());
    }
    let version = content[0];
    if version != VERSION {
        return Err(format!("its version is {version}, and this hub reads version {VERSION}"));
    }
    let left = value.slice(1..end);
    Ok(Decoder { left, keys, place: Place { space, key }, outdated: false })
}

fn checksum(space: Space, key: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[space.tag()]);
    hasher.update(key);
    hasher.update(content);
    hasher.finalize()
}

/// Writes fields.
#[derive(Debug)]
pub(in crate::store) struct Encoder<'a> {
    written: Vec<u8>,
    keys: &'a Keyring,
    place: Place<'a>,
}

impl Encoder<'_> {
    /// Bytes as they are.
    pub(in crate::store) fn array(&mut self, value: &[u8]) {
        self.written.extend_from_slice(value);
    }

    pub(in crate::store) fn byte(&mut self, value: u8) {
        self.written.push(value);
    }

    pub(in crate::store) fn number(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                return self.written.push(low);
            }
            self.written.push(low | 0x80);
        }
    }

    pub(in crate::store) fn bytes(&mut self, value: &[u8]) {
        self.number(value.len() as u64);
        self.written.extend_from_slice(value);
    }

    /// Every secret goes to disk through here: under the first key, or as it is when there are no keys.
    pub(in crate::store) fn secret(&mut self, secret: Option<&Secret>) {
        let Some(secret) = secret else { return self.byte(NO_SECRET) };
        let Some(locked) = self.keys.lock(&self.place.bytes(), secret) else {
            self.byte(PLAIN_SECRET);
            return self.bytes(secret.as_bytes());
        };
        self.byte(LOCKED_SECRET);
        self.bytes(locked.key.as_bytes());
        self.bytes(&locked.nonce);
        self.bytes(&locked.bytes);
    }
}

/// Reads fields in the order in which they were written.
#[derive(Debug)]
pub(in crate::store) struct Decoder<'a> {
    left: Bytes,
    keys: &'a Keyring,
    place: Place<'a>,
    /// A secret was read that would be written otherwise today.
    outdated: bool,
}

impl Decoder<'_> {
    /// Whether nothing is left.
    pub(in crate::store) fn is_at_end(&self) -> bool {
        self.left.is_empty()
    }

    /// So many bytes as they are.
    pub(in crate::store) fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let mut array = [0; N];
        self.left.try_copy_to_slice(&mut array).map_err(|_| Fault::from("it ends too early"))?;
        Ok(array)
    }

    pub(in crate::store) fn byte(&mut self) -> Decoded<u8> {
        self.left.try_get_u8().map_err(|_| "it ends too early".into())
    }

    pub(in crate::store) fn number(&mut self) -> Decoded<u64> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if (bits << shift) >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too large".into())
    }

    /// A number that has to fit a smaller type.
    pub(in crate::store) fn small<T: TryFrom<u64>>(&mut self) -> Decoded<T> {
        T::try_from(self.number()?).map_err(|_| "a number is too large".into())
    }

    /// A part of the record itself: nothing is copied.
    pub(in crate::store) fn bytes(&mut self) -> Decoded<Bytes> {
        let length: usize = self.small()?;
        if length > self.left.len() {
            return Err("a field is longer than the record".into());
        }
        Ok(self.left.split_to(length))
    }

    /// A topic's URL. Where the topic is known and its URL was written in the same way, that is shared, and not parsed again and again.
    pub(in crate::store) fn topic_url_or(&mut self, known: Option<&TopicUrl>) -> Decoded<TopicUrl> {
        let written = self.bytes()?;
        if let Some(known) = known.filter(|known| known.as_str().as_bytes() == written) {
            return Ok(known.clone());
        }
        let text = std::str::from_utf8(&written).map_err(|_| "a topic is not UTF-8")?;
        TopicUrl::parse(text).map_err(|error| format!("a topic is no URL: {error}"))
    }

    /// Every secret comes from disk through here.
    pub(in crate::store) fn secret(&mut self) -> Decoded<Option<Secret>> {
        let (bytes, written_with) = match self.byte()? {
            NO_SECRET => return Ok(None),
            PLAIN_SECRET => (self.bytes()?.to_vec(), None),
            LOCKED_SECRET => {
                let locked = self.locked()?;
                let key = locked.key;
                let unlocked = self.keys.unlock(&self.place.bytes(), locked);
                (unlocked.ok_or_else(|| format!("its secret does not open with key {key}"))?, Some(key))
            }
            other => return Err(format!("a secret is marked with {other}")),
        };
        self.outdated |= written_with != self.keys.writes_with();
        Secret::new(bytes).map(Some).map_err(|error| format!("a secret is bad: {error}"))
    }

    fn locked(&mut self) -> Decoded<Locked> {
        let key = KeyId::from_bytes(&self.bytes()?).ok_or("the name of a key has the wrong length")?;
        let nonce = self.bytes()?.as_ref().try_into().map_err(|_| "a nonce has the wrong length")?;
        Ok(Locked { key, nonce, bytes: self.bytes()?.to_vec() })
    }

    /// Fields without their frame.
    #[cfg(test)]
    pub(in crate::store) fn over(bytes: Vec<u8>, keys: &Keyring) -> Decoder<'_> {
        let place = Place { space: Space::Meta, key: &[] };
        Decoder { left: bytes.into(), keys, place, outdated: false }
    }

    /// Whether all has been read.
    pub(in crate::store) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    fn finish(&self) -> Decoded<()> {
        if self.is_empty() { Ok(()) } else { Err(format!("{} bytes are left over", self.left.len())) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use proptest::prelude::*;
    use resync_core::datetime::DateTime;

    use super::super::fields::{record, time};
    use super::*;

    /// One field of every kind.
    #[derive(Clone, Debug, PartialEq)]
    struct Sample {
        byte: bool,
        number: u64,
        bytes: Bytes,
        text: String,
        option: Option<u64>,
        time: DateTime,
        duration: Duration,
        address: IpAddr,
    }

    record!(Pings: Sample { byte, number, bytes, text, option, time, duration, address });

    prop_compose! {
        fn sample()(
            byte in any::<bool>(), number in any::<u64>(), bytes in any::<Vec<u8>>(), text in any::<String>(),
            option in any::<Option<u64>>(), seconds in -62_135_596_800_i64..253_402_000_000, nanos in 0..1_000_000_000_u32,
            duration in (any::<u64>(), 0..1_000_000_000_u32), address in any::<IpAddr>(),
        ) -> Sample {
            let time = time(seconds, nanos).unwrap();
            Sample { byte, number, bytes: bytes.into(), text, option, time, duration: Duration::new(duration.0, duration.1), address }
        }
    }

    #[test]
    fn a_record_that_is_nothing_but_its_checksum_is_damage() {
        let stored = Bytes::copy_from_slice(&checksum(Sample::SPACE, b"key", b"").to_be_bytes());
        let outcome = open::<Sample>(&Keyring::none(), b"key", &stored);
        assert!(matches!(outcome, Err(StoreError::Damaged { space: "pings", .. })), "{outcome:?}");
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(sample in sample(), key in any::<Vec<u8>>()) {
            let stored = Bytes::from(seal(&Keyring::none(), &key, &sample));
            prop_assert_eq!(open::<Sample>(&Keyring::none(), &key, &stored).unwrap(), sample);
        }

        #[test]
        fn a_changed_bit_is_damage(sample in sample(), key in any::<[u8; 8]>(), place in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut stored = seal(&Keyring::none(), &key, &sample);
            let place = place.index(stored.len());
            stored[place] ^= 1 << bit;
            let outcome = open::<Sample>(&Keyring::none(), &key, &stored.into());
            prop_assert!(matches!(outcome, Err(StoreError::Damaged { space: "pings", .. })), "{:?}", outcome);
        }

        #[test]
        fn a_record_in_the_wrong_place_is_damage(sample in sample(), key in any::<[u8; 8]>(), other in any::<[u8; 8]>()) {
            prop_assume!(key != other);
            let stored = Bytes::from(seal(&Keyring::none(), &key, &sample));
            prop_assert!(open::<Sample>(&Keyring::none(), &other, &stored).is_err());
        }

        #[test]
        fn arbitrary_bytes_are_an_error(value in any::<Vec<u8>>()) {
            prop_assert!(open::<Sample>(&Keyring::none(), b"key", &value.into()).is_err());
        }

        #[test]
        fn arbitrary_fields_under_a_right_checksum_never_panic(fields in any::<Vec<u8>>()) {
            let keys = Keyring::none();
            let mut decoder = Decoder::over(fields, &keys);
            let _ = Sample::decode(&mut decoder);
        }
    }

    #[test]
    fn a_newer_record_is_refused_by_its_version() {
        let mut stored = vec![2, 0];
        let checksum = checksum(Space::Pings, b"key", &stored);
        stored.extend_from_slice(&checksum.to_be_bytes());
        let error = open::<Sample>(&Keyring::none(), b"key", &stored.into()).unwrap_err();
        assert!(error.to_string().contains("its version is 2, and this hub reads version 1"), "{error}");
    }
}
