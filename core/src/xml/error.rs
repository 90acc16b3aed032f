//! What makes reading or writing impossible.

use std::fmt;
use std::io;
use std::sync::Arc;

use quick_xml::errors::{Error, IllFormedError, SyntaxError};

use super::{
    Limits, MAX_ATTRIBUTES, MAX_BINDINGS, MAX_DEPTH, MAX_EXPANSION, MAX_FOREIGN, MAX_LINKS, MAX_NAMESPACE,
    MAX_TEXT, Position,
};
use crate::rules::{Violation, Violations};

/// Why a document cannot be read at all. What can be read although it breaks a rule is a
/// [`Violation`](crate::rules::Violation) instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes are no XML.
    #[error("not well-formed at {position}: {reason}; correct the XML")]
    NotWellFormed {
        /// Where.
        position: Position,
        /// In what way.
        reason: String,
    },
    /// An element ends under another name than it began with; the prefix counts, too (ALPHA-029).
    #[error(
        "the end tag at {position} is </{found}>, but <{expected}> is open; end the elements in their order"
    )]
    EndTag {
        /// Where the end tag starts.
        position: Position,
        /// The name of the element that is open.
        expected: String,
        /// The name in the end tag.
        found: String,
    },
    /// The document ends before its elements do (ALPHA-029).
    #[error(
        "the document ends at {position} while {open} elements are open; end them, the last with a slash: </urlset>"
    )]
    Unclosed {
        /// Where it ends.
        position: Position,
        /// How many elements are open.
        open: usize,
    },
    /// A document type declaration, which could define entities (RS-051).
    #[error("a document type declaration at {position} is refused; remove <!DOCTYPE ...>")]
    Dtd {
        /// Where it starts.
        position: Position,
    },
    /// A page for browsers.
    #[error("this is an HTML page, as its document type at {position} says; give a ResourceSync document")]
    Html {
        /// Where its document type stands.
        position: Position,
    },
    /// An entity that XML does not define by itself (RS-051).
    #[error("the entity &{name}; at {position} is not defined; write the character itself or as &#...;")]
    Entity {
        /// Where the text or tag with it starts.
        position: Position,
        /// Its name.
        name: String,
    },
    /// A root element other than `urlset` and `sitemapindex` of the sitemap namespace (RS-002).
    #[error(
        "the root element at {position} is {name:?} in namespace {namespace:?}{}; a ResourceSync document is a urlset or \
         sitemapindex in http://www.sitemaps.org/schemas/sitemap/0.9",
        said_of_html(name)
    )]
    UnknownRoot {
        /// Where it starts.
        position: Position,
        /// Its local name.
        name: String,
        /// Its namespace, empty for none.
        namespace: String,
    },
    /// A second `rs:md` before the first entry: nobody knows which one counts (RS-010, RS-050).
    #[error("a second rs:md of the root at {position}; keep one")]
    DuplicateMetadata {
        /// Where the second one starts.
        position: Position,
    },
    /// More than this library reads of one document.
    #[error("more than {max} {limit} at {position}; {}", limit.advice())]
    Limit {
        /// Of what there is too much.
        limit: Limit,
        /// How much is read.
        max: u64,
        /// Where the limit was reached.
        position: Position,
    },
    /// Gzip that is damaged or cut off.
    #[error("the gzip data is damaged: {reason}; fetch or compress the document again")]
    Gzip {
        /// In what way.
        reason: String,
    },
    /// A broken rule of severity [`Error`](crate::rules::Severity::Error), in [`Mode::Strict`](super::Mode::Strict).
    #[error("{0}; correct it, or read in the lenient mode")]
    Rule(Box<Violation>),
    /// An encoding other than UTF-8, or gzip where it is not decompressed: twice, or with
    /// [`Options::PLAIN`](super::Options::PLAIN).
    #[error("the document is in {found}; decode it to UTF-8 first")]
    Encoding {
        /// What was declared or recognised.
        found: String,
    },
    /// The input could not be read.
    #[error("the input could not be read: {0}; try again")]
    Io(#[source] io::Error),
}

impl ReadError {
    /// Whether this is a page for browsers, which servers often send where a document is missing.
    pub fn is_html(&self) -> bool {
        match self {
            Self::Html { .. } => true,
            Self::UnknownRoot { name, .. } => is_html(name),
            _ => false,
        }
    }
}

/// Whether this is the name of HTML, as a document type or as a root element.
pub(super) fn is_html(name: &str) -> bool {
    name.eq_ignore_ascii_case("html")
}

fn said_of_html(name: &str) -> &'static str {
    if is_html(name) { ", so this is an HTML page" } else { "" }
}

/// What is wrong with a token, before its position is known.
#[derive(Debug)]
pub(super) enum Fault {
    Form(&'static str),
    Syntax(String),
    Character(char),
    Reference(String),
    Prefix(String),
    Entity(String),
    EndTag { expected: String, found: String },
    Unclosed(usize),
    UnknownRoot { name: String, namespace: String },
    Dtd,
    Html,
    Encoding(String),
    Limit(Limit),
    Gzip(String),
    Io(io::Error),
}

impl Fault {
    pub(super) const BARE_AMPERSAND: Self = Self::Form("an & begins no reference; write it as &amp;");

    #[cold]
    pub(super) fn at(self, position: Position, limits: Limits) -> ReadError {
        let reason = match self {
            Self::Form(reason) => reason.to_owned(),
            Self::Syntax(reason) => reason,
            Self::Character(character) => format!("U+{:04X} is not a character of XML", u32::from(character)),
            Self::Reference(name) => format!("&{name}; is not a character of XML"),
            Self::Prefix(prefix) => format!("the namespace prefix {prefix:?} is not declared"),
            Self::Entity(name) => return ReadError::Entity { position, name },
            Self::EndTag { expected, found } => return ReadError::EndTag { position, expected, found },
            Self::Unclosed(open) => return ReadError::Unclosed { position, open },
            Self::UnknownRoot { name, namespace } => {
                return ReadError::UnknownRoot { position, name, namespace };
            }
            Self::Dtd => return ReadError::Dtd { position },
            Self::Html => return ReadError::Html { position },
            Self::Encoding(found) => return ReadError::Encoding { found },
            Self::Limit(limit) => return ReadError::Limit { limit, max: limit.max(limits), position },
            Self::Gzip(reason) => return ReadError::Gzip { reason },
            Self::Io(error) => return ReadError::Io(error),
        };
        ReadError::NotWellFormed { position, reason }
    }
}

/// Why no more bytes are given, carried through the XML reader in an [`io::Error`].
#[derive(Debug)]
pub(super) enum Refused {
    Limit(Limit),
    /// Damaged gzip, and in what way.
    Gzip(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => write!(f, "too many {limit}"),
            Self::Gzip(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Refused {}

/// What [`Refused`] says comes through the XML reader as an [`io::Error`].
impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Refused>()) {
            Some(Refused::Limit(limit)) => Self::Limit(*limit),
            Some(Refused::Gzip(reason)) => Self::Gzip(reason.clone()),
            None => Self::Io(error),
        }
    }
}

impl From<quick_xml::Error> for Fault {
    #[cold]
    fn from(error: quick_xml::Error) -> Self {
        match error {
            Error::Io(cause) => {
                Arc::try_unwrap(cause).unwrap_or_else(|shared| io::Error::new(shared.kind(), shared)).into()
            }
            Error::Encoding(_) => Self::Form("what follows is not UTF-8"),
            Error::Syntax(SyntaxError::UnclosedDoctype)
            | Error::IllFormed(IllFormedError::MissingDoctypeName) => Self::Dtd,
            Error::IllFormed(IllFormedError::UnclosedReference) => Self::BARE_AMPERSAND,
            Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }) => {
                Self::EndTag { expected, found }
            }
            other => Self::Syntax(other.to_string()),
        }
    }
}

/// What there is too much of in a [`ReadError::Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// [`MAX_BYTES`](super::MAX_BYTES)
    Bytes,
    /// [`MAX_EXPANSION`](super::MAX_EXPANSION)
    Expansion,
    /// [`MAX_ENTRIES`](super::MAX_ENTRIES)
    Entries,
    /// Entries together with their links, where a reader keeps them all; it says how many it keeps.
    EntriesAndLinks,
    /// [`MAX_LINKS`](super::MAX_LINKS)
    Links,
    /// [`MAX_DEPTH`](super::MAX_DEPTH)
    Depth,
    /// [`MAX_ATTRIBUTES`](super::MAX_ATTRIBUTES)
    Attributes,
    /// [`MAX_TEXT`](super::MAX_TEXT)
    Text,
    /// [`MAX_NAMESPACE`](super::MAX_NAMESPACE)
    Namespace,
    /// [`MAX_BINDINGS`](super::MAX_BINDINGS)
    Bindings,
    /// [`MAX_FOREIGN`](super::MAX_FOREIGN)
    Foreign,
}

impl Limit {
    /// How much of it is read.
    pub(super) fn max(self, limits: Limits) -> u64 {
        let count = match self {
            Self::Bytes => return limits.bytes,
            Self::Expansion => return MAX_EXPANSION,
            Self::Entries | Self::EntriesAndLinks => limits.entries,
            Self::Links => MAX_LINKS,
            Self::Depth => MAX_DEPTH,
            Self::Attributes => MAX_ATTRIBUTES,
            Self::Text => MAX_TEXT,
            Self::Namespace => MAX_NAMESPACE,
            Self::Bindings => MAX_BINDINGS,
            Self::Foreign => MAX_FOREIGN,
        };
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::Bytes | Self::Entries | Self::EntriesAndLinks => {
                "split the document and group the parts under an index"
            }
            Self::Expansion => "this looks like a bomb; serve the document without compression",
            Self::Links => "give fewer rs:ln",
            Self::Depth => "nest elements less deeply",
            Self::Attributes => "give the element fewer attributes",
            Self::Text | Self::Namespace => "shorten it",
            Self::Bindings => "declare fewer namespaces, each once",
            Self::Foreign => {
                "give fewer or shorter attributes of other namespaces, and a link fewer relations"
            }
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Expansion => "times the compressed length",
            Self::Entries => "entries",
            Self::EntriesAndLinks => "entries and links",
            Self::Links => "links in one place",
            Self::Depth => "levels of elements",
            Self::Attributes => "attributes of one element",
            Self::Text => "bytes in one tag, comment or text",
            Self::Namespace => "bytes in the URI of a namespace",
            Self::Bindings => "declarations of namespaces in scope",
            Self::Foreign => "bytes of foreign attributes and further relations",
        })
    }
}

/// Why a document was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// It would break these rules.
    #[error("the document would break rules:\n{0}")]
    Violations(#[source] Violations),
    /// The output could not be written.
    #[error("the output could not be written: {0}")]
    Io(#[from] io::Error),
}
