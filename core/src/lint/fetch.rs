//! Where documents come from.

use thiserror::Error;

/// Something that documents can be had from.
pub trait Fetch {
    /// The document at a URL, redirects followed.
    ///
    /// An implementation bounds what it takes: [`MAX_BYTES`](crate::xml::MAX_BYTES) is enough for any document.
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure>;

    /// The bytes of `manifest.xml` in the package at a URL (RS-104); `None`, as here, where packages are not looked
    /// into.
    fn manifest(&mut self, package: &str) -> Result<Option<Vec<u8>>, FetchFailure> {
        let _ = package;
        Ok(None)
    }
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The body.
    pub bytes: Vec<u8>,
    /// The `Content-Type` header.
    pub content_type: Option<String>,
    /// The URL that answered, after redirects.
    pub last_url: String,
}

/// Why nothing came back, in words for a person.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct FetchFailure(String);

impl FetchFailure {
    /// A failure with its reason, such as `404 Not Found`.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}
