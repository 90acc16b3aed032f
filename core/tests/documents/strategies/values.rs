//! Any value that an attribute or element may hold.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;
use resync_core::datetime::DateTime;
use resync_core::digest::{Algorithm, Digest, Hashes};

pub(super) fn uri() -> impl Strategy<Value = String> {
    "(https?|ftp)://[a-z]{1,8}\\.example/[!#-;=?-~\u{a1}-\u{fffc}\u{10000}-\u{10ffff}]{0,30}"
}

/// Anything that XML can carry, line ends and markup included.
pub(super) fn text() -> impl Strategy<Value = String> {
    "[\t\n\r -\u{d7ff}\u{e000}-\u{fffd}\u{10000}-\u{10ffff}]{0,12}|[ \t\n\r&<>\"']{0,6}"
}

pub(super) fn hashes() -> impl Strategy<Value = Hashes> {
    prop_oneof![
        vec((select(Algorithm::ALL.to_vec()), any::<u8>()), 0..4).prop_map(|digests| digests
            .into_iter()
            .map(|(algorithm, seed)| Digest::of(algorithm, &[seed]))
            .collect()),
        text().prop_map(|text| Hashes::parse(&text)),
    ]
}

/// Any instant from 1900 to 9999, often with a fraction.
pub(crate) fn datetime() -> impl Strategy<Value = DateTime> {
    let nanos = prop_oneof![Just(0), Just(500_000_000), 0..1_000_000_000_u32];
    (0..253_000_000_000_u64, nanos, 0..2_208_988_800_u64).prop_map(|(seconds, nanos, before)| {
        let epoch = SystemTime::UNIX_EPOCH - Duration::from_secs(before);
        DateTime::from_system_time(epoch + Duration::new(seconds, nanos))
    })
}

/// Two instants, the earlier first.
pub(super) fn interval() -> impl Strategy<Value = (DateTime, DateTime)> {
    (datetime(), datetime()).prop_map(|(one, other)| (one.min(other), one.max(other)))
}

pub(super) fn ends(times: &BTreeSet<DateTime>) -> (DateTime, DateTime) {
    (*times.first().unwrap(), *times.last().unwrap())
}

/// Some instants in order.
pub(super) fn times() -> impl Strategy<Value = BTreeSet<DateTime>> {
    btree_set(datetime(), 2..8)
}

/// A path in a package; those of one manifest differ by number.
pub(super) fn path() -> impl Strategy<Value = String> {
    "/[a-zA-Z0-9 é_-]{1,8}(/[a-z.]{0,4}[a-z0-9&\"']{1,4}){0,2}"
}
