//! Documents as XML: a streaming reader, of plain or gzip, that tolerates what can be tolerated, older forms included, and a
//! streaming writer that writes nothing it would have to tolerate.

mod attribute;
mod characters;
mod dialect;
mod error;
mod field;
mod input;
mod limits;
mod md_ln;
mod namespaces;
mod options;
mod reader;
mod serializer;
mod source;
mod step;
mod tokens;
mod whole;
mod writer;

pub use dialect::Dialect;
pub use error::{Limit, ReadError, WriteError};
pub use limits::{
    FREE_EXPANSION, Limits, MAX_ATTRIBUTES, MAX_BINDINGS, MAX_BYTES, MAX_DEPTH, MAX_ENTRIES, MAX_EXPANSION,
    MAX_FOREIGN, MAX_LINKS, MAX_NAMESPACE, MAX_TEXT,
};
pub use options::{Mode, Options};
pub use reader::Reader;
pub use whole::{Read, read, read_with};
pub use writer::{Writer, write};

pub use crate::model::{Position, RS_NAMESPACE, SITEMAP_NAMESPACE};

use crate::model::{XML_NAMESPACE, XMLNS_NAMESPACE};

/// The namespace of `rs:md` and `rs:ln` in the D-Lib paper (DL-005).
const DLIB_NAMESPACE: &str = "http://www.openarchives.org/rs/";
/// The namespace of links and metadata in the alpha draft (ALPHA-001).
const XHTML_NAMESPACE: &str = "http://www.w3.org/1999/xhtml";
