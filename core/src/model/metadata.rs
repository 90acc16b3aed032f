//! `rs:md`: what is said about a document or about an entry (RS-017, RS-018).

use std::sync::LazyLock;

use super::{Capability, Change};
use crate::datetime::DateTime;
use crate::digest::Hashes;

/// The attributes of one `rs:md`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Metadata {
    /// What the document, or the document that the entry points at, is.
    pub capability: Option<Capability>,
    /// How the entry's resource changed.
    pub change: Option<Change>,
    /// When it changed; within the document's interval (RS-030).
    pub datetime: Option<DateTime>,
    /// When the taking of a snapshot started (RS-021).
    pub at: Option<DateTime>,
    /// When the taking of a snapshot ended.
    pub completed: Option<DateTime>,
    /// All changes since this moment are included (RS-022).
    pub from: Option<DateTime>,
    /// All changes up to this moment are included, and the document is closed (RS-023).
    pub until: Option<DateTime>,
    /// What `Content-Encoding` says of the representation (RS-037).
    pub encoding: Option<String>,
    /// Digests of the representation (RS-034).
    pub hash: Hashes,
    /// Length of the representation in bytes (RS-036).
    pub length: Option<u64>,
    /// Where a bitstream lies in its package, from the top with a leading slash (RS-040).
    pub path: Option<String>,
    /// The media type of the representation; the attribute is called `type`.
    pub media_type: Option<String>,
    /// Attributes of other communities (RS-016), kept for a round trip.
    pub foreign: Vec<ForeignAttribute>,
}

/// What an element without attributes says.
pub(crate) static NO_METADATA: LazyLock<Metadata> = LazyLock::new(Metadata::default);

/// An attribute in a namespace of another community (RS-016).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForeignAttribute {
    /// The namespace name.
    pub namespace: String,
    /// The prefix it was written with.
    pub prefix: String,
    /// The local name.
    pub name: String,
    /// The value, unescaped.
    pub value: String,
}
