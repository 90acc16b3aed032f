//! How each kind of field becomes bytes: whole numbers are LEB128, byte strings have their length in front, options a 0 or a 1.
//!
//! All of this is the data format: changing it means a new version.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use resync_core::datetime::DateTime;
use resync_core::websub::{CallbackUrl, Secret, TopicUrl};

use super::codec::{Decoded, Decoder, Encoder, Fields};
use crate::store::keyring::KeyId;
use crate::store::{
    ContentKind, DenialId, Epoch, FailureClass, Offset, PingId, RequestId, Shard, SubscriptionId, TopicId,
};
use crate::trace_context::TraceContext;

/// The fields of a struct, in the order in which they are written.
macro_rules! fields {
    ($of:ty { $($field:tt),+ }) => {
        impl $crate::store::encoding::codec::Fields for $of {
            fn encode(&self, out: &mut $crate::store::encoding::codec::Encoder) {
                $($crate::store::encoding::codec::Fields::encode(&self.$field, out);)+
            }

            fn decode(
                fields: &mut $crate::store::encoding::codec::Decoder,
            ) -> $crate::store::encoding::codec::Decoded<Self> {
                Ok(Self { $($field: $crate::store::encoding::codec::Fields::decode(fields)?),+ })
            }
        }
    };
}

/// The fields of a struct that is stored in this space.
macro_rules! record {
    ($space:ident: $of:ty { $($field:tt),+ }) => {
        $crate::store::encoding::fields::fields!($of { $($field),+ });

        impl $crate::store::encoding::codec::Record for $of {
            const SPACE: $crate::store::encoding::Space = $crate::store::encoding::Space::$space;
        }
    };
}

pub(in crate::store) use {fields, record};

macro_rules! numbers {
    ($($number:ident),+) => {
        $(impl Fields for $number {
            fn encode(&self, out: &mut Encoder) {
                out.number((*self).into());
            }

            fn decode(fields: &mut Decoder) -> Decoded<Self> {
                fields.small()
            }
        })+
    };
}

numbers!(u16, u32, u64);

fields!(DenialId { 0 });
fields!(Epoch { 0 });
fields!(Offset { 0 });
fields!(PingId { 0 });
fields!(RequestId { 0 });
fields!(Shard { 0 });
fields!(SubscriptionId { 0 });
fields!(TopicId { 0 });

macro_rules! tags {
    ($of:ident: $what:literal { $($variant:ident = $tag:literal),+ }) => {
        impl $of {
            /// The number by which it is stored.
            pub(in crate::store) fn tag(self) -> u8 {
                match self { $(Self::$variant => $tag),+ }
            }

            /// The one that is stored by this number.
            pub(in crate::store) fn of_tag(tag: u8) -> Option<Self> {
                match tag {
                    $($tag => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }

        impl Fields for $of {
            fn encode(&self, out: &mut Encoder) {
                out.byte(self.tag());
            }

            fn decode(fields: &mut Decoder) -> Decoded<Self> {
                let tag = fields.byte()?;
                Self::of_tag(tag).ok_or_else(|| format!("{} {tag} is unknown", $what))
            }
        }
    };
}

tags!(ContentKind: "kind of content" { Posted = 0, Fetched = 1 });
tags!(FailureClass: "class of failure" { NotFailed = 0, Refused = 1, Trouble = 2, Gone = 3, Unsent = 4 });

impl Fields for bool {
    fn encode(&self, out: &mut Encoder) {
        out.byte((*self).into());
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        match fields.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("a boolean or an option is marked with {other}")),
        }
    }
}

impl<T: Fields> Fields for Option<T> {
    fn encode(&self, out: &mut Encoder) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok(if bool::decode(fields)? { Some(T::decode(fields)?) } else { None })
    }
}

impl<T: Fields> Fields for Vec<T> {
    fn encode(&self, out: &mut Encoder) {
        out.number(self.len() as u64);
        for one in self {
            one.encode(out);
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        (0..fields.number()?).map(|_| T::decode(fields)).collect()
    }
}

impl Fields for (Shard, TopicId, SubscriptionId) {
    fn encode(&self, out: &mut Encoder) {
        self.0.encode(out);
        self.1.encode(out);
        self.2.encode(out);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Ok((Fields::decode(fields)?, Fields::decode(fields)?, Fields::decode(fields)?))
    }
}

impl Fields for Bytes {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        fields.bytes()
    }
}

impl Fields for [u8; 32] {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        (*fields.bytes()?).try_into().map_err(|_| "a digest has another length".into())
    }
}

impl Fields for KeyId {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self.as_bytes());
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Self::from_bytes(&fields.bytes()?).ok_or_else(|| "the name of a key has the wrong length".into())
    }
}

impl Fields for String {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self.as_bytes());
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Self::from_utf8(fields.bytes()?.to_vec()).map_err(|_| "a text is not UTF-8".into())
    }
}

impl Fields for Arc<str> {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self.as_bytes());
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        String::decode(fields).map(Self::from)
    }
}

impl Fields for TopicUrl {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self.as_str().as_bytes());
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        fields.topic_url_or(None)
    }
}

impl Fields for CallbackUrl {
    fn encode(&self, out: &mut Encoder) {
        out.bytes(self.as_str().as_bytes());
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        Self::parse(&String::decode(fields)?).map_err(|error| format!("a callback is no URL: {error}"))
    }
}

impl Fields for IpAddr {
    fn encode(&self, out: &mut Encoder) {
        match self {
            Self::V4(four) => out.bytes(&four.octets()),
            Self::V6(six) => out.bytes(&six.octets()),
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let bytes = fields.bytes()?;
        let four = <[u8; 4]>::try_from(bytes.as_ref()).map(Self::from);
        let address = four.or_else(|_| <[u8; 16]>::try_from(bytes.as_ref()).map(Self::from));
        address.map_err(|_| "an address has the wrong length".into())
    }
}

/// Marked by itself: with no key, as it is, or under a key.
impl Fields for Option<Secret> {
    fn encode(&self, out: &mut Encoder) {
        out.secret(self.as_ref());
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        fields.secret()
    }
}

/// The last field of a record, which is not there without a trace. So nothing can follow it: a version in which something does must say
/// explicitly, by an option's 0 or 1, whether there is one.
impl Fields for Option<TraceContext> {
    fn encode(&self, out: &mut Encoder) {
        if let Some(trace) = self {
            out.bytes(&trace.to_bytes());
        }
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        if fields.is_at_end() {
            return Ok(None);
        }
        let trace = TraceContext::from_bytes(&fields.bytes()?);
        trace.map(Some).ok_or_else(|| "its trace context is invalid".into())
    }
}

impl Fields for Duration {
    fn encode(&self, out: &mut Encoder) {
        out.number(self.as_secs());
        self.subsec_nanos().encode(out);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let (seconds, nanos) = (u64::decode(fields)?, u32::decode(fields)?);
        if nanos >= NANOS {
            return Err("a duration is out of range".into());
        }
        Ok(Self::new(seconds, nanos))
    }
}

impl Fields for DateTime {
    fn encode(&self, out: &mut Encoder) {
        let (seconds, nanos) = since_1970(self.to_system_time());
        out.array(&seconds.to_be_bytes());
        nanos.encode(out);
    }

    fn decode(fields: &mut Decoder) -> Decoded<Self> {
        let seconds = i64::from_be_bytes(fields.array()?);
        time(seconds, u32::decode(fields)?).ok_or_else(|| "a moment is out of range".into())
    }
}

/// The seconds since 1970 that a [`DateTime`] can hold: the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_207_200;
const NANOS: u32 = 1_000_000_000;

/// Whole seconds, rounded down, and the rest.
pub(in crate::store) fn since_1970(time: SystemTime) -> (i64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()).unwrap_or(i64::MAX), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let seconds = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => (seconds, 0),
                nanos => (seconds - 1, NANOS - nanos),
            }
        }
    }
}

/// The moment that is so long after 1970.
pub(in crate::store) fn time(seconds: i64, nanos: u32) -> Option<DateTime> {
    if !SECONDS.contains(&seconds) || nanos >= NANOS {
        return None;
    }
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    start?.checked_add(Duration::from_nanos(nanos.into())).map(DateTime::from_system_time)
}
