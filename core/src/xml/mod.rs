//! Documents as XML, plain or gzip: a streaming reader that tolerates what can be tolerated, older forms included, and a
//! streaming writer that writes nothing it would have to tolerate.

mod characters;
mod dialect;
mod element;
mod error;
mod input;
mod limits;
mod markup;
mod namespaces;
mod options;
mod pieces;
mod reader;
mod source;
mod step;
mod tokens;
mod whole;
mod writer;

pub use dialect::Dialect;
pub use error::{Limit, ReadError, WriteError};
pub use limits::{
    FREE_EXPANSION, Limits, MAX_ATTRIBUTES, MAX_BYTES, MAX_DEPTH, MAX_ENTRIES, MAX_EXPANSION, MAX_LINKS,
    MAX_TEXT,
};
pub use options::{Compression, Format, Layout, Mode, Options};
pub use reader::Reader;
pub use whole::{Read, read, read_with};
pub use writer::{Writer, write, write_with};

pub(crate) use characters::forbidden_character;

use std::fmt;

/// The namespace of `urlset`, `url`, `loc` and their siblings.
pub const SITEMAP_NAMESPACE: &str = "http://www.sitemaps.org/schemas/sitemap/0.9";
/// The namespace of `rs:md` and `rs:ln` (RS-003).
pub const RS_NAMESPACE: &str = "http://www.openarchives.org/rs/terms/";
/// The namespace of `rs:md` and `rs:ln` in the D-Lib paper (DL-005).
const DLIB_NAMESPACE: &str = "http://www.openarchives.org/rs/";
/// The namespace of links and metadata in the alpha draft (ALPHA-001).
const XHTML_NAMESPACE: &str = "http://www.w3.org/1999/xhtml";
/// The namespace that the prefix `xml` always stands for.
pub(crate) const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";
/// The namespace that the prefix `xmlns` always stands for.
pub(crate) const XMLNS_NAMESPACE: &str = "http://www.w3.org/2000/xmlns/";

/// A place in the bytes of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Counted from 1.
    pub line: u64,
    /// Counted from 1, in bytes.
    pub column: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
