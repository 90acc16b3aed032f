//! What a set of resources consists of: the one thing that every generator starts from.

use std::{io, iter, vec};

use super::BuildError;
use crate::datetime::DateTime;
use crate::digest::{Agreement, Algorithm, Digest, Hashes};
use crate::document::{Bitstream, Entry, Link, Metadata};

/// The media type of bytes of which nothing is known.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// The resources of a set, one after the other, in ascending order of their URIs (byte by byte), each once.
///
/// Any iterator of that kind is an inventory; generators check the order as they go and never hold the whole of it.
/// [`MemoryInventory`] sorts for you, [`FileInventory`](super::FileInventory) walks a folder.
///
/// ```
/// use resync_core::build::{Inventory, Item};
///
/// fn count(inventory: impl Inventory) -> usize {
///     inventory.count()
/// }
/// assert_eq!(count((0..10).map(|number| Ok(Item::new(format!("https://example.org/{number}"))))), 10);
/// ```
pub trait Inventory: Iterator<Item = Result<Item, BuildError>> {
    /// How many resources there are, where that is known beforehand; good for a progress bar and not more.
    fn len_hint(&self) -> Option<u64> {
        let (least, most) = self.size_hint();
        (Some(least) == most).then(|| u64::try_from(least).ok()).flatten()
    }
}

impl<I: Iterator<Item = Result<Item, BuildError>>> Inventory for I {}

/// One resource as it was found (RS-031 to RS-037).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Its URI.
    pub loc: String,
    /// When its representation was last modified.
    pub lastmod: Option<DateTime>,
    /// Length in bytes; unknown for what never held still.
    pub length: Option<u64>,
    /// Digests; empty for what never held still.
    pub hashes: Hashes,
    /// Media type.
    pub media_type: Option<String>,
    /// What `Content-Encoding` says.
    pub encoding: Option<String>,
    /// Related resources (RS-170 to RS-183).
    pub links: Vec<Link>,
}

impl Item {
    /// A resource of which only the URI is known.
    pub fn new(loc: impl Into<String>) -> Self {
        Self { loc: loc.into(), ..Self::default() }
    }

    /// With the length and the SHA-256 digest of its representation.
    #[must_use]
    pub fn content(mut self, bytes: &[u8]) -> Self {
        self.length = u64::try_from(bytes.len()).ok();
        self.hashes = Digest::of(Algorithm::Sha256, bytes).into();
        self
    }

    /// With its media type.
    #[must_use]
    pub fn media_type(mut self, media_type: impl Into<String>) -> Self {
        self.media_type = Some(media_type.into());
        self
    }

    /// The item that an entry of a Resource List stands for.
    pub fn from_entry(entry: Entry) -> Self {
        let metadata = entry.metadata.unwrap_or_default();
        Self {
            loc: entry.loc,
            lastmod: entry.lastmod,
            length: metadata.length,
            hashes: metadata.hash,
            media_type: metadata.media_type,
            encoding: metadata.encoding,
            links: entry.links,
        }
    }

    /// Whether the representation differs: by digests where both have one in common, else by length and `lastmod`.
    pub fn differs_from(&self, other: &Self) -> bool {
        match self.hashes.compare(&other.hashes) {
            Agreement::Same => self.media_type != other.media_type || self.encoding != other.encoding,
            Agreement::Different => true,
            Agreement::Unknown => (self.length, self.lastmod) != (other.length, other.lastmod),
        }
    }

    /// The entry of a Resource List.
    pub(super) fn into_entry(self) -> Entry {
        let metadata = Metadata {
            hash: self.hashes,
            length: self.length,
            media_type: self.media_type,
            encoding: self.encoding,
            ..Metadata::default()
        };
        let metadata = Some(metadata).filter(|metadata| *metadata != Metadata::default());
        Entry { lastmod: self.lastmod, metadata, links: self.links, ..Entry::new(self.loc) }
    }

    /// The entry of a dump's manifest.
    pub(super) fn into_bitstream(self, path: &str) -> Entry {
        let mut entry = Entry::from(Bitstream::new(self.loc, path).hashes(self.hashes));
        entry.lastmod = self.lastmod;
        entry.links = self.links;
        let metadata = entry.metadata.get_or_insert_default();
        metadata.length = self.length;
        // Nothing else tells the type of a packed file (RS-107), and servers say the same of one that they do not know.
        metadata.media_type = self.media_type.or_else(|| Some(UNKNOWN_TYPE.to_owned()));
        metadata.encoding = self.encoding;
        entry
    }
}

/// An inventory in memory, sorted; of items with the same URI the last one counts.
#[derive(Clone, Debug, Default)]
pub struct MemoryInventory(Vec<Item>);

impl MemoryInventory {
    /// Sorts the items.
    pub fn new(items: impl IntoIterator<Item = Item>) -> Self {
        let mut items: Vec<Item> = items.into_iter().collect();
        items.sort_by(|one, other| one.loc.cmp(&other.loc));
        items.dedup_by(|later, kept| {
            let same = later.loc == kept.loc;
            if same {
                std::mem::swap(later, kept);
            }
            same
        });
        Self(items)
    }

    /// The items, in order.
    pub fn items(&self) -> &[Item] {
        &self.0
    }
}

impl FromIterator<Item> for MemoryInventory {
    fn from_iter<I: IntoIterator<Item = Item>>(items: I) -> Self {
        Self::new(items)
    }
}

impl IntoIterator for MemoryInventory {
    type Item = Result<Item, BuildError>;
    type IntoIter = Items;

    fn into_iter(self) -> Items {
        let found: fn(Item) -> Result<Item, BuildError> = Ok;
        self.0.into_iter().map(found)
    }
}

/// The items of a [`MemoryInventory`], in order.
pub type Items = iter::Map<vec::IntoIter<Item>, fn(Item) -> Result<Item, BuildError>>;

/// Where the bytes of a resource come from, for Resource Dumps. A closure will do.
pub trait Contents {
    /// What the bytes are read from.
    type Content: io::Read;

    /// Opens the representation of a resource; `None` when it is gone.
    fn open(&mut self, item: &Item) -> io::Result<Option<Self::Content>>;
}

impl<R: io::Read, F: FnMut(&Item) -> io::Result<Option<R>>> Contents for F {
    type Content = R;

    fn open(&mut self, item: &Item) -> io::Result<Option<R>> {
        self(item)
    }
}

/// Passes on an inventory and ends it with an error where it is out of order.
#[derive(Debug)]
pub(super) struct Ordered<I> {
    inventory: I,
    last: Option<String>,
}

impl<I: Inventory> Ordered<I> {
    pub(super) fn new(inventory: I) -> Self {
        Self { inventory, last: None }
    }
}

impl<I: Inventory> Iterator for Ordered<I> {
    type Item = Result<Item, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = match self.inventory.next()? {
            Ok(item) => item,
            Err(error) => return Some(Err(error)),
        };
        let last = self.last.get_or_insert_default();
        if !last.is_empty() && *last >= item.loc {
            return Some(Err(BuildError::ResourceOrder { loc: item.loc, after: last.clone() }));
        }
        last.clone_from(&item.loc);
        Some(Ok(item))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.inventory.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_in_memory_is_sorted_and_the_last_of_two_items_counts() {
        let item = |loc: &str, length| Item { length: Some(length), ..Item::new(loc) };
        let inventory = MemoryInventory::new([item("b", 1), item("a", 2), item("b", 3)]);
        assert_eq!(inventory.items(), [item("a", 2), item("b", 3)]);
        assert_eq!(inventory.into_iter().len_hint(), Some(2));
    }

    #[test]
    fn an_inventory_out_of_order_ends_with_an_error() {
        for second in ["a", "b"] {
            let items = ["b", second].map(|loc| Ok(Item::new(loc)));
            let found: Result<Vec<_>, _> = Ordered::new(items.into_iter()).collect();
            assert!(matches!(found, Err(BuildError::ResourceOrder { .. })));
        }
    }
}
