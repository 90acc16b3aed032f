//! The entries of an open document as bytes: what is known to be as this crate wrote it need not be understood, checked and written again.

use std::io::Read;

use memchr::memmem;

use crate::digest::Digest;
use crate::document::Entry;
use crate::xml::Reader;

/// How each entry begins. Text has no line like this, since `<` is escaped there.
const START: &[u8] = b"  <url>\n";
/// What follows the last entry.
const END: &[u8] = b"</urlset>\n";

/// A larger document is understood entry by entry, which takes little memory.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// Entries, as they were written.
pub(super) struct TakenOver {
    pub(super) bytes: Vec<u8>,
    pub(super) count: usize,
    pub(super) last: Entry,
}

impl TakenOver {
    /// Those of a document with this digest that begins with `head`. `None` for any other, for one without entries or with too many bytes,
    /// and where it cannot be read: who understands each entry finds out what is wrong.
    pub(super) fn of(published: impl Read, head: &[u8], content: Digest) -> Option<Self> {
        let mut bytes = Vec::new();
        published.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
        if Digest::of(content.algorithm(), &bytes) != content {
            return None;
        }
        let entries = bytes.strip_prefix(head)?.strip_suffix(END)?;
        let count = memmem::find_iter(entries, START).count();
        let last = [head, &entries[memmem::rfind(entries, START)?..], END].concat();
        let last = Reader::new(last.as_slice()).ok()?.next()?.ok()?;
        bytes.truncate(bytes.len() - END.len());
        bytes.drain(..head.len());
        Some(Self { bytes, count, last })
    }
}
