//! How a record becomes bytes and comes back checked.
//!
//! ```text
//! version: u8 | fields … | CRC-32 of (space tag, key, version, fields): u32 big-endian
//! ```
//!
//! The key is part of the checksum, so that a record which turns up in the wrong place is as damaged as one with a wrong
//! bit. Whole numbers are LEB128, byte strings carry their length in front, options a 0 or a 1. Whatever does not decode is
//! [`StoreError::Damaged`] with the place and the reason; nothing here panics.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes};
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Secret, TopicUrl};

use super::engine::Space;
use crate::store::keyring::{KeyId, Keyring, Locked};
use crate::store::{Result, StoreError};
use crate::trace_context::TraceContext;

/// The version that is written and read. When a field is added, [`Decoder`] has to know by which version a record was written.
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

/// How a secret is marked. The first two are those of an option.
const NO_SECRET: u8 = 0;
const PLAIN_SECRET: u8 = 1;
const LOCKED_SECRET: u8 = 2;

/// The seconds since 1970 that a [`DateTime`] can hold: the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_207_200;

/// Something that is kept in one space.
pub(super) trait Record: Sized {
    /// Where it is kept.
    const SPACE: Space;

    fn encode(&self, out: &mut Encoder);

    /// Reads the fields; [`open`] has checked the frame and refuses what is left over.
    fn decode(fields: &mut Decoder) -> std::result::Result<Self, Fault>;
}

/// What is wrong with a record's fields.
pub(super) type Fault = String;

/// The bytes to keep under `key`.
pub(super) fn seal<R: Record>(keys: &Keyring, key: &[u8], record: &R) -> Vec<u8> {
    let mut out = Encoder { written: vec![VERSION], keys, place: Place { space: R::SPACE, key } };
    record.encode(&mut out);
    let mut kept = out.written;
    let checksum = checksum(R::SPACE, key, &kept);
    kept.extend_from_slice(&checksum.to_be_bytes());
    kept
}

/// The record that is kept under `key`.
pub(super) fn open<R: Record>(keys: &Keyring, key: &[u8], value: &Bytes) -> Result<R> {
    open_beginning(keys, R::SPACE, key, value, |fields| {
        let record = R::decode(fields)?;
        fields.finish()?;
        Ok(record)
    })
}

/// The same record with its secret under the first key; `None` when it is kept so already, or holds none.
pub(super) fn reseal<R: Record>(keys: &Keyring, key: &[u8], value: &Bytes) -> Result<Option<Vec<u8>>> {
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

/// The first fields of the record that is kept under `key`. The checksum of the whole is checked all the same.
pub(super) fn open_beginning<T>(
    keys: &Keyring,
    space: Space,
    key: &[u8],
    value: &Bytes,
    read: impl FnOnce(&mut Decoder) -> std::result::Result<T, Fault>,
) -> Result<T> {
    unframe(keys, space, key, value).and_then(|mut fields| read(&mut fields)).map_err(|reason| {
        StoreError::Damaged { space: space.name(), reason: format!("key {}: {reason}", hex::encode(key)) }
    })
}

fn unframe<'a>(
    keys: &'a Keyring,
    space: Space,
    key: &'a [u8],
    value: &Bytes,
) -> std::result::Result<Decoder<'a>, Fault> {
    let end = value.len().checked_sub(CHECKSUM_BYTES).filter(|end| *end > 0).ok_or("it is too short")?;
    let (content, kept) = value.split_at(end);
    if kept != checksum(space, key, content).to_be_bytes() {
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
pub(super) struct Encoder<'a> {
    written: Vec<u8>,
    keys: &'a Keyring,
    place: Place<'a>,
}

impl Encoder<'_> {
    pub(super) fn byte(&mut self, value: u8) {
        self.written.push(value);
    }

    pub(super) fn number(&mut self, mut value: u64) {
        loop {
            let [low, ..] = value.to_le_bytes();
            value >>= 7;
            if value == 0 {
                return self.written.push(low);
            }
            self.written.push(low | 0x80);
        }
    }

    pub(super) fn bytes(&mut self, value: &[u8]) {
        self.number(value.len() as u64);
        self.written.extend_from_slice(value);
    }

    pub(super) fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    pub(super) fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.byte(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub(super) fn time(&mut self, value: DateTime) {
        let (seconds, nanos) = split(value.to_system_time());
        self.written.extend_from_slice(&seconds.to_be_bytes());
        self.number(u64::from(nanos));
    }

    pub(super) fn duration(&mut self, value: Duration) {
        self.number(value.as_secs());
        self.number(u64::from(value.subsec_nanos()));
    }

    pub(super) fn address(&mut self, value: IpAddr) {
        match value {
            IpAddr::V4(four) => self.bytes(&four.octets()),
            IpAddr::V6(six) => self.bytes(&six.octets()),
        }
    }

    /// The last field of a record, which is not there without a trace. So nothing can follow it: a version in which
    /// something does must say explicitly, by an option's 0 or 1, whether there is one.
    pub(super) fn last_trace(&mut self, trace: Option<TraceContext>) {
        if let Some(trace) = trace {
            self.bytes(&trace.to_bytes());
        }
    }

    /// Every secret goes to disk through here: under the first key, or as it is when there are no keys.
    pub(super) fn secret(&mut self, secret: Option<&Secret>) {
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
pub(super) struct Decoder<'a> {
    left: Bytes,
    keys: &'a Keyring,
    place: Place<'a>,
    /// A secret was read that would be written otherwise today.
    outdated: bool,
}

impl Decoder<'_> {
    pub(super) fn byte(&mut self) -> std::result::Result<u8, Fault> {
        self.left.try_get_u8().map_err(|_| "it ends too early".into())
    }

    pub(super) fn number(&mut self) -> std::result::Result<u64, Fault> {
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
    pub(super) fn small<T: TryFrom<u64>>(&mut self) -> std::result::Result<T, Fault> {
        T::try_from(self.number()?).map_err(|_| "a number is too large".into())
    }

    /// A part of the record itself: nothing is copied.
    pub(super) fn bytes(&mut self) -> std::result::Result<Bytes, Fault> {
        let length: usize = self.small()?;
        if length > self.left.len() {
            return Err("a field is longer than the record".into());
        }
        Ok(self.left.split_to(length))
    }

    pub(super) fn text(&mut self) -> std::result::Result<String, Fault> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| "a text is not UTF-8".into())
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> std::result::Result<T, Fault>,
    ) -> std::result::Result<Option<T>, Fault> {
        match self.byte()? {
            0 => Ok(None),
            1 => read(self).map(Some),
            other => Err(format!("an option is marked with {other}")),
        }
    }

    pub(super) fn time(&mut self) -> std::result::Result<DateTime, Fault> {
        let seconds = self.left.try_get_i64().map_err(|_| Fault::from("it ends too early"))?;
        let nanos: u32 = self.small()?;
        join(seconds, nanos).map(DateTime::from_system_time).ok_or_else(|| "a moment is out of range".into())
    }

    pub(super) fn duration(&mut self) -> std::result::Result<Duration, Fault> {
        let seconds = self.number()?;
        let nanos: u32 = self.small()?;
        if nanos >= 1_000_000_000 {
            return Err("a duration is out of range".into());
        }
        Ok(Duration::new(seconds, nanos))
    }

    pub(super) fn topic_url(&mut self) -> std::result::Result<TopicUrl, Fault> {
        self.topic_url_or(None)
    }

    /// The same where the topic is known: its URL is shared where it was written in the same way, and not read again and again.
    pub(super) fn topic_url_or(&mut self, known: Option<&TopicUrl>) -> std::result::Result<TopicUrl, Fault> {
        let written = self.bytes()?;
        if let Some(known) = known.filter(|known| known.as_str().as_bytes() == written) {
            return Ok(known.clone());
        }
        let text = std::str::from_utf8(&written).map_err(|_| "a topic is not UTF-8")?;
        TopicUrl::parse(text).map_err(|error| format!("a topic is no URL: {error}"))
    }

    pub(super) fn address(&mut self) -> std::result::Result<IpAddr, Fault> {
        let bytes = self.bytes()?;
        let four = <[u8; 4]>::try_from(bytes.as_ref()).map(IpAddr::from);
        let address = four.or_else(|_| <[u8; 16]>::try_from(bytes.as_ref()).map(IpAddr::from));
        address.map_err(|_| "an address has the wrong length".into())
    }

    pub(super) fn callback_url(&mut self) -> std::result::Result<CallbackUrl, Fault> {
        CallbackUrl::parse(&self.text()?).map_err(|error| format!("a callback is no URL: {error}"))
    }

    pub(super) fn last_trace(&mut self) -> std::result::Result<Option<TraceContext>, Fault> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let trace = TraceContext::from_bytes(&self.bytes()?);
        trace.map(Some).ok_or_else(|| "its place in a trace is none".into())
    }

    /// Every secret comes from disk through here.
    pub(super) fn secret(&mut self) -> std::result::Result<Option<Secret>, Fault> {
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

    fn locked(&mut self) -> std::result::Result<Locked, Fault> {
        let key = KeyId::from_bytes(&self.bytes()?).ok_or("the name of a key has the wrong length")?;
        let nonce = self.bytes()?.as_ref().try_into().map_err(|_| "a nonce has the wrong length")?;
        Ok(Locked { key, nonce, bytes: self.bytes()?.to_vec() })
    }

    /// Fields without their frame.
    #[cfg(test)]
    pub(super) fn over(bytes: Vec<u8>, keys: &Keyring) -> Decoder<'_> {
        let place = Place { space: Space::Meta, key: &[] };
        Decoder { left: bytes.into(), keys, place, outdated: false }
    }

    fn finish(&self) -> std::result::Result<(), Fault> {
        if self.left.is_empty() { Ok(()) } else { Err(format!("{} bytes are left over", self.left.len())) }
    }
}

/// Whole seconds since 1970, rounded down, and the rest.
fn split(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let seconds = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanos => (seconds - 1, 1_000_000_000 - nanos),
            }
        }
    }
}

fn join(seconds: i64, nanos: u32) -> Option<SystemTime> {
    if !SECONDS.contains(&seconds) || nanos >= 1_000_000_000 {
        return None;
    }
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    start?.checked_add(Duration::from_nanos(u64::from(nanos)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// One field of every kind.
    #[derive(Clone, Debug, PartialEq)]
    struct Sample {
        byte: u8,
        number: u64,
        bytes: Vec<u8>,
        text: String,
        option: Option<u64>,
        time: DateTime,
        duration: Duration,
        address: IpAddr,
    }

    impl Record for Sample {
        const SPACE: Space = Space::Pings;

        fn encode(&self, out: &mut Encoder) {
            out.byte(self.byte);
            out.number(self.number);
            out.bytes(&self.bytes);
            out.text(&self.text);
            out.option(self.option, Encoder::number);
            out.time(self.time);
            out.duration(self.duration);
            out.address(self.address);
        }

        fn decode(fields: &mut Decoder) -> std::result::Result<Self, Fault> {
            Ok(Self {
                byte: fields.byte()?,
                number: fields.number()?,
                bytes: fields.bytes()?.to_vec(),
                text: fields.text()?,
                option: fields.option(Decoder::number)?,
                time: fields.time()?,
                duration: fields.duration()?,
                address: fields.address()?,
            })
        }
    }

    prop_compose! {
        fn sample()(
            byte in any::<u8>(), number in any::<u64>(), bytes in any::<Vec<u8>>(), text in any::<String>(),
            option in any::<Option<u64>>(), seconds in -62_135_596_800_i64..253_402_000_000, nanos in 0..1_000_000_000_u32,
            duration in (any::<u64>(), 0..1_000_000_000_u32), address in any::<IpAddr>(),
        ) -> Sample {
            let time = DateTime::from_system_time(join(seconds, nanos).unwrap());
            Sample { byte, number, bytes, text, option, time, duration: Duration::new(duration.0, duration.1), address }
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(sample in sample(), key in any::<Vec<u8>>()) {
            let kept = Bytes::from(seal(&Keyring::none(), &key, &sample));
            prop_assert_eq!(open::<Sample>(&Keyring::none(), &key, &kept).unwrap(), sample);
        }

        #[test]
        fn a_changed_bit_is_damage(sample in sample(), key in any::<[u8; 8]>(), place in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut kept = seal(&Keyring::none(), &key, &sample);
            let place = place.index(kept.len());
            kept[place] ^= 1 << bit;
            let outcome = open::<Sample>(&Keyring::none(), &key, &kept.into());
            prop_assert!(matches!(outcome, Err(StoreError::Damaged { space: "pings", .. })), "{:?}", outcome);
        }

        #[test]
        fn a_record_in_the_wrong_place_is_damage(sample in sample(), key in any::<[u8; 8]>(), other in any::<[u8; 8]>()) {
            prop_assume!(key != other);
            let kept = Bytes::from(seal(&Keyring::none(), &key, &sample));
            prop_assert!(open::<Sample>(&Keyring::none(), &other, &kept).is_err());
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
        let mut kept = vec![2, 0];
        let checksum = checksum(Space::Pings, b"key", &kept);
        kept.extend_from_slice(&checksum.to_be_bytes());
        let error = open::<Sample>(&Keyring::none(), b"key", &kept.into()).unwrap_err();
        assert!(error.to_string().contains("its version is 2, and this hub reads version 1"), "{error}");
    }
}
