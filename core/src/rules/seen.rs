//! What may come only once in a document, and whether it has come.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};

/// The texts that were seen, as keyed 64-bit hashes: two different texts out of 50,000 are taken for one in less than a billionth of all
/// documents, and memory stays below a megabyte.
#[derive(Debug)]
pub(super) struct Seen {
    most: usize,
    key: RandomState,
    /// The last text, as long as each came after all before it, so that none can have come twice.
    highest: String,
    /// The hashes of those, for the case that another follows.
    ascending: Vec<u64>,
    /// All hashes, once one did not come after those before it.
    hashes: HashSet<u64, BuildHasherDefault<Hashed>>,
}

/// What is known of a text that comes next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trace {
    hash: u64,
    ascends: bool,
}

impl Seen {
    /// Beyond as many texts, nothing more is remembered.
    pub(super) fn at_most(most: usize) -> Self {
        let key = RandomState::new();
        Self { most, key, highest: String::new(), ascending: Vec::new(), hashes: HashSet::default() }
    }

    /// It is made once, to be looked for and to be remembered.
    pub(super) fn trace(&self, text: &str) -> Trace {
        let ascends = self.hashes.is_empty() && (self.ascending.is_empty() || self.highest.as_str() < text);
        Trace { hash: self.key.hash_one(text), ascends }
    }

    pub(super) fn contains(&self, Trace { hash, ascends }: Trace) -> bool {
        !ascends && (self.hashes.contains(&hash) || self.ascending.contains(&hash))
    }

    pub(super) fn remember(&mut self, text: &str, Trace { hash, ascends }: Trace) {
        let is_full = self.ascending.len() + self.hashes.len() >= self.most;
        if is_full {
            // From here on everything is looked for, and that must not mean looking through all.
            self.hashes.extend(std::mem::take(&mut self.ascending));
        } else if ascends {
            self.ascending.push(hash);
            self.highest.clear();
            self.highest.push_str(text);
        } else {
            self.hashes.extend(std::mem::take(&mut self.ascending));
            self.hashes.insert(hash);
        }
    }
}

/// A hash of a hash: itself.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::Seen;

    proptest! {
        #[test]
        fn in_whatever_order_they_come_what_was_seen_is_known_and_nothing_else(
            mut texts in proptest::collection::vec("[a-d]{0,2}", 0..40),
            sorted in 0_usize..40,
            most in 0_usize..40,
        ) {
            let sorted = sorted.min(texts.len());
            texts[..sorted].sort();
            let (mut seen, mut model) = (Seen::at_most(most), HashSet::new());
            for text in &texts {
                let trace = seen.trace(text);
                prop_assert_eq!(seen.contains(trace), model.contains(text));
                seen.remember(text, trace);
                if model.len() < most {
                    model.insert(text);
                }
            }
        }
    }
}
