//! How much of a document is read (RS-042, RS-051).

pub use crate::model::MAX_ENTRIES;

/// Most bytes of one document, uncompressed.
pub const MAX_BYTES: u64 = 52_428_800;
/// Most links of one header or entry.
pub const MAX_LINKS: usize = 1_000;
/// Deepest nesting of elements; ResourceSync needs three, extensions of other communities a few more.
pub const MAX_DEPTH: usize = 32;
/// Most attributes of one element.
pub const MAX_ATTRIBUTES: usize = 64;
/// Most bytes of one tag, comment or run of text.
pub const MAX_TEXT: usize = 1_048_576;
/// Most bytes of the URI of a namespace. Every attribute in it is kept with a copy.
pub const MAX_NAMESPACE: usize = 1_024;
/// Most declarations of namespaces that are in scope at once. Each name with a prefix is looked for among them.
pub const MAX_BINDINGS: usize = 64;
/// Most bytes that the foreign attributes of one header or entry take in memory, and the links that one `xhtml:link` of an older
/// form becomes for each further relation; those of a document may take as many, and 32 times the length of their tags.
pub const MAX_FOREIGN: usize = 262_144;
/// Most times its compressed length that a gzip document may grow to. Lists without digests come to about 40.
pub const MAX_EXPANSION: u64 = 250;
/// Bytes of a gzip document for which [`MAX_EXPANSION`] does not count, since a short one may be all repetition.
pub const FREE_EXPANSION: u64 = 1_048_576;

/// The two limits that a caller may set for itself, since memory does not depend on them when entries stream by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes, uncompressed.
    pub bytes: u64,
    /// Most entries.
    pub entries: usize,
}

impl Default for Limits {
    /// [`MAX_BYTES`] and [`MAX_ENTRIES`].
    fn default() -> Self {
        Self { bytes: MAX_BYTES, entries: MAX_ENTRIES }
    }
}
