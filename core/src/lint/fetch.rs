//! Where documents come from.

use std::io::{Read, Seek};

use thiserror::Error;

use crate::websub::LinkHeader;

/// Something that documents can be had from.
pub trait Fetch {
    /// The document at a URL, redirects followed.
    ///
    /// An implementation bounds what it takes: [`MAX_BYTES`](crate::xml::MAX_BYTES) is enough for any document.
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure>;

    /// The package of a dump at a URL, to be unpacked and compared with what is said of it (RS-104, RS-110); `None`, as here, where
    /// packages are not looked into.
    fn package(&mut self, url: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
        let _ = url;
        Ok(None)
    }

    /// Is called before each document with the number of documents that are still to be fetched, this one included. Documents lead to more, so that
    /// can grow.
    fn ahead(&mut self, documents: usize) {
        let _ = documents;
    }

    /// Why the check must end now, asked before each bitstream of a package is uncompressed; `None`, as here, where time does not matter.
    fn end(&mut self) -> Option<FetchFailure> {
        None
    }

    /// What the topic of a channel answers to a request without a body (FN-031); `None`, as here, where nobody answers for topics.
    fn topic(&mut self, url: &str, method: Method) -> Result<Option<TopicAnswer>, FetchFailure> {
        let _ = (url, method);
        Ok(None)
    }

    /// What a TimeGate, a TimeMap or a memento answers, whatever its status, redirects not followed (MEM-022); `None`, as here, where
    /// nobody answers for them.
    fn version(&mut self, url: &str, method: Method) -> Result<Option<VersionAnswer>, FetchFailure> {
        let _ = (url, method);
        Ok(None)
    }
}

/// Bytes with an end: a file, or a `Cursor`.
pub trait PackageBytes: Read + Seek {}

impl<T: Read + Seek> PackageBytes for T {}

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

/// How a topic is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// `GET`; what the body says is nobody's business here (FN-032).
    Get,
    /// `HEAD`
    Head,
}

/// What a topic answered with a status of success.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicAnswer {
    /// The `Content-Type` header.
    pub content_type: Option<String>,
    /// The `Link` headers, relative targets made absolute.
    pub links: LinkHeader,
}

/// What a TimeGate, a TimeMap or a memento answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionAnswer {
    /// The status.
    pub status: u16,
    /// The `Location` header.
    pub location: Option<String>,
    /// The `Vary` headers.
    pub vary: Vec<String>,
    /// The `Memento-Datetime` header.
    pub memento_datetime: Option<String>,
    /// The `Content-Type` header.
    pub content_type: Option<String>,
    /// The `Link` headers, relative targets made absolute.
    pub links: LinkHeader,
    /// The body of a TimeMap, or its beginning.
    pub body: Vec<u8>,
    /// Whether that is all of it.
    pub is_whole: bool,
}

/// Why nothing came back, for a person to read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct FetchFailure {
    reason: String,
    status: Option<u16>,
    is_last: bool,
}

impl FetchFailure {
    /// A failure with its reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), status: None, is_last: false }
    }

    /// The answer of a server that gives nothing: its status, and the reason for a person, such as `404 Not Found`.
    pub fn answered(status: u16, reason: impl Into<String>) -> Self {
        Self { status: Some(status), ..Self::new(reason) }
    }

    /// Nothing more is fetched, whatever is asked for, since time is up for instance: the check ends with what it has
    /// ([`Stopped::Fetch`](super::Stopped::Fetch)).
    pub fn last(reason: impl Into<String>) -> Self {
        Self { is_last: true, ..Self::new(reason) }
    }

    /// The HTTP status, if a server answered.
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }
}
