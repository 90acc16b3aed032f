//! Files as a web server would give them.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use resync_core::{
    lint::{Fetch, FetchFailure, Fetched},
    xml::MAX_BYTES,
};

use super::CheckError;

/// What a web server is to say of a document (RS-052).
const CONTENT_TYPE: &str = "application/xml";

/// One document and nothing else.
#[derive(Debug)]
pub(super) struct Only {
    bytes: Option<Vec<u8>>,
}

impl Only {
    pub(super) fn read(path: &Path) -> Result<Self, CheckError> {
        match read(path) {
            Ok(Ok(bytes)) => Ok(Self { bytes: Some(bytes) }),
            Ok(Err(failure)) => {
                Err(CheckError::NoDocument { path: path.to_owned(), reason: failure.to_string() })
            }
            Err(source) => Err(CheckError::Io { path: path.to_owned(), source }),
        }
    }
}

impl Fetch for Only {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        let bytes = self.bytes.take().ok_or_else(|| FetchFailure::new("only one document is looked at"))?;
        Ok(served(bytes, url))
    }
}

/// The bytes of a file as if a web server had sent them.
pub(super) fn served(bytes: Vec<u8>, url: &str) -> Fetched {
    Fetched { bytes, content_type: Some(CONTENT_TYPE.to_owned()), last_url: url.to_owned() }
}

/// A file, unless it is longer than a document can be; the outer error is the operating system's.
pub(super) fn read(path: &Path) -> io::Result<Result<Vec<u8>, FetchFailure>> {
    // Asked first: opening a pipe would wait for somebody to write to it.
    if !path.metadata()?.is_file() {
        return Ok(Err(FetchFailure::new("it is no regular file")));
    }
    bounded(File::open(path)?)
}

/// At most as much as a document can have.
pub(super) fn bounded(input: impl io::Read) -> io::Result<Result<Vec<u8>, FetchFailure>> {
    let mut bytes = Vec::new();
    input.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() as u64 > MAX_BYTES { Err(too_long()) } else { Ok(bytes) })
}

pub(super) fn too_long() -> FetchFailure {
    FetchFailure::new(format!("it is longer than {MAX_BYTES} bytes"))
}
