//! Files as a web server would send them.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

use resync_common::words::Size;
use resync_core::{
    lint::{Fetch, FetchFailure, Fetched},
    xml::MAX_BYTES,
};

use crate::error::{Action, Error};

/// The media type that a web server is to give a document (RS-052).
const CONTENT_TYPE: &str = "application/xml";

/// Files by their paths.
#[derive(Debug)]
pub(super) struct Paths;

impl Fetch for Paths {
    fn get(&mut self, path: &str) -> Result<Fetched, FetchFailure> {
        match read(Path::new(path)) {
            Ok(bytes) => Ok(served(bytes?, path)),
            Err(error) => Err(FetchFailure::new(error.to_string())),
        }
    }
}

/// Refuses what cannot be a document before anything is checked.
pub(super) fn probe(path: &Path) -> Result<(), Error> {
    let failed = Error::cannot(Action::Read, path);
    if !fs::metadata(path).map_err(&failed)?.is_file() {
        let reason = no_file().to_string();
        return Err(Error::NoDocument { path: path.to_owned(), reason });
    }
    File::open(path).map_err(failed)?;
    if path.to_str().is_none() {
        let reason = "its path is not in UTF-8; rename it".to_owned();
        return Err(Error::NoDocument { path: path.to_owned(), reason });
    }
    Ok(())
}

/// The bytes of a file as if a web server had sent them.
pub(super) fn served(bytes: Vec<u8>, url: &str) -> Fetched {
    Fetched { bytes, content_type: Some(CONTENT_TYPE.to_owned()), last_url: url.to_owned() }
}

/// A file, unless it is longer than a document can be; the outer error is the operating system's.
pub(super) fn read(path: &Path) -> io::Result<Result<Vec<u8>, FetchFailure>> {
    let file = match open(path)? {
        Ok(file) => file,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(if bytes.len() as u64 > MAX_BYTES { Err(too_long()) } else { Ok(bytes) })
}

/// A regular file. Its kind is checked first: opening a pipe would wait for a writer.
pub(super) fn open(path: &Path) -> io::Result<Result<File, FetchFailure>> {
    if path.metadata()?.is_file() { File::open(path).map(Ok) } else { Ok(Err(no_file())) }
}

fn no_file() -> FetchFailure {
    FetchFailure::new("it is not a regular file")
}

pub(super) fn too_long() -> FetchFailure {
    FetchFailure::new(format!("it is longer than {}", Size(MAX_BYTES)))
}
