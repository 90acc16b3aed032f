//! A whole document at once: read, held against every rule, and put in order where its form was older.

use super::dialect::{self, Dialect};
use super::{Mode, Options, ReadError, Reader};
use crate::document::{Document, RawDocument};
use crate::rules::Violations;

/// Reads a whole document and checks every rule, so that violations have line and column.
///
/// The bytes may be gzip. A document in an older [`Dialect`] is turned into one of 1.1 as far as that goes; its changes
/// come in the order of time, and violations name entries by their place in the bytes.
///
/// ```
/// let bytes = br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"
///   xmlns:rs="http://www.openarchives.org/rs/terms/">
///   <rs:md capability="framework-notification"/>
///   <url><loc>https://example.org/resourcelist.xml</loc><rs:md change="created"/></url>
/// </urlset>"#;
/// let read = resync_core::xml::read(bytes)?;
/// let problem = read.violations.errors().next().unwrap();
/// assert!(problem.to_string().starts_with("FN-023 FrameworkEntry at line 4, column 3, entry 1"));
/// assert!(read.into_document().is_err());
/// # Ok::<(), resync_core::xml::ReadError>(())
/// ```
pub fn read(bytes: &[u8]) -> Result<Read, ReadError> {
    read_with(bytes, Options::default())
}

/// The same in another mode or within other limits; [`Mode::Lenient`] checks every rule, too.
///
/// ```
/// use resync_core::xml::{self, Mode, Options, ReadError};
///
/// let sitemap = br#"<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
///   <url><loc>https://example.org/</loc></url></urlset>"#;
/// assert_eq!(xml::read(sitemap)?.dialect, xml::Dialect::Sitemap);
/// let strict = Options { mode: Mode::Strict, ..Options::default() };
/// assert!(matches!(xml::read_with(sitemap, strict), Err(ReadError::Rule(_))));
/// # Ok::<(), ReadError>(())
/// ```
pub fn read_with(bytes: &[u8], options: Options) -> Result<Read, ReadError> {
    let mode = if options.mode == Mode::Lenient { Mode::Checking } else { options.mode };
    let mut reader = Reader::with_options(bytes, Options { mode, ..options })?;
    let mut entries = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    let (header, dialect, mut violations) = reader.into_parts();
    violations.in_order();
    dialect::put_in_order(dialect, &header, &mut entries);
    Ok(Read { document: RawDocument { header, entries }, dialect, violations })
}

/// A document as it was read, and the rules it breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What could be understood.
    pub document: RawDocument,
    /// The form it was written in.
    pub dialect: Dialect,
    /// What was wrong with it.
    pub violations: Violations,
}

impl Read {
    /// The document when it conforms; warnings are dropped.
    pub fn into_document(self) -> Result<Document, Violations> {
        Document::from_checked(self.document, self.violations)
    }
}
