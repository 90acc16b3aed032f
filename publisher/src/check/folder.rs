//! A folder under its URL: which file has which URL, and which URL the folder has.

use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read as _},
    path::{Path, PathBuf},
};

use resync_core::{
    document::Metadata,
    lint::{Fetch, FetchFailure, Fetched, PackageBytes},
    xml::{ReadError, Reader, SITEMAP_NAMESPACE},
};
use url::Url;
use walkdir::{DirEntry, WalkDir};

use super::file::{open, read, served};
use crate::{
    error::{Action, Error},
    helpers::url_path,
    settings::BaseUrl,
};

/// How many entries of a Source Description are compared with the files of the folder.
const TRIED: usize = 1_000;
/// How much of a file that is not well-formed is searched for the namespace of documents.
const SEARCHED: u64 = 4_096;

/// A folder under its base URL.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
    base_url: BaseUrl,
}

impl Folder {
    pub(super) fn new(root: &Path, base_url: BaseUrl) -> Self {
        Self { root: root.to_owned(), base_url }
    }

    fn path_of(&self, url: &str) -> Result<PathBuf, FetchFailure> {
        let inside = url.strip_prefix(self.base_url.as_str());
        let relative = inside.and_then(|path| url_path::decode(&format!("/{path}")));
        match relative {
            Some((relative, false)) if !url.contains(['?', '#']) => Ok(self.root.join(relative)),
            _ => Err(FetchFailure::new(format!("no file below {} has this URL", self.base_url))),
        }
    }
}

impl Fetch for Folder {
    fn get(&mut self, url: &str) -> Result<Fetched, FetchFailure> {
        let path = self.path_of(url)?;
        read(&path).map_err(|error| cannot_read(&path, &error))?.map(|bytes| served(bytes, url))
    }

    fn package(&mut self, url: &str) -> Result<Option<Box<dyn PackageBytes>>, FetchFailure> {
        let path = self.path_of(url)?;
        let file = open(&path).map_err(|error| cannot_read(&path, &error))??;
        Ok(Some(Box::new(BufReader::new(file))))
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> FetchFailure {
    FetchFailure::new(match error.kind() {
        ErrorKind::NotFound => format!("there is no file `{}`", path.display()),
        _ => format!("cannot read `{}`: {error}", path.display()),
    })
}

/// The URL of a folder, by the first entry of its Source Description whose path ends like that of a file there.
pub(super) fn base_url(root: &Path, source_description: &Path) -> Result<BaseUrl, Error> {
    let file = File::open(source_description).map_err(Error::cannot(Action::Read, source_description))?;
    let entries = Reader::new(BufReader::new(file)).ok().into_iter().flatten().take(TRIED);
    entries
        .map_while(Result::ok)
        .find_map(|entry| base_of(root, &Url::parse(&entry.loc).ok()?))
        .ok_or_else(|| Error::NoBaseUrl { folder: root.to_owned() })
}

/// What stands before the longest end of a URL's path that is a file below the root.
fn base_of(root: &Path, url: &Url) -> Option<BaseUrl> {
    let path = url.path();
    let slashes = path.match_indices('/').map(|(index, _)| index);
    let cut = slashes.into_iter().find(|&index| {
        url_path::decode(&path[index..]).is_some_and(|(relative, _)| root.join(relative).is_file())
    })?;
    let mut base = url.clone();
    base.set_query(None);
    base.set_fragment(None);
    base.set_path(&path[..=cut]);
    BaseUrl::parse(base.as_str()).ok()
}

/// Which files count as documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Also Sitemaps, and what may be a damaged document.
    All,
    /// Documents of ResourceSync only; the folder may hold other XML, such as Sitemaps.
    Own,
}

/// The files of a folder that are documents, by name. Hidden files do not belong to a site.
pub(super) fn documents(root: &Path, wanted: Wanted) -> Result<Vec<PathBuf>, Error> {
    let is_hidden = |entry: &DirEntry| {
        entry.depth() > 0
            && entry.file_name().as_encoded_bytes().starts_with(b".")
            && entry.file_name() != ".well-known"
    };
    let mut found = Vec::new();
    for entry in WalkDir::new(root).sort_by_file_name().into_iter().filter_entry(|entry| !is_hidden(entry)) {
        let entry = entry.map_err(|error| {
            let path = error.path().unwrap_or(root).to_owned();
            Error::File { action: Action::Read, path, source: error.into() }
        })?;
        if entry.path().is_file() && is_document(entry.path(), wanted) {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

/// By its name and its beginning. A file that cannot be opened counts as one, and the check names the reason.
fn is_document(path: &Path, wanted: Wanted) -> bool {
    let ends_in =
        |path: &Path, end: &str| path.extension().is_some_and(|found| found.eq_ignore_ascii_case(end));
    let uncompressed = if ends_in(path, "gz") { path.with_extension("") } else { path.to_owned() };
    if !ends_in(&uncompressed, "xml") {
        return false;
    }
    let Ok(file) = File::open(path) else { return true };
    match Reader::new(BufReader::new(file)) {
        Err(ReadError::UnknownRoot { .. }) => false,
        _ if wanted == Wanted::All => true,
        Ok(reader) => {
            let header = reader.header();
            header.metadata != Metadata::default() || !header.links.is_empty()
        }
        Err(_) => names_namespace(path).unwrap_or(true),
    }
}

fn names_namespace(path: &Path) -> io::Result<bool> {
    let mut beginning = Vec::new();
    File::open(path)?.take(SEARCHED).read_to_end(&mut beginning)?;
    let namespace = SITEMAP_NAMESPACE.as_bytes();
    Ok(beginning.windows(namespace.len()).any(|window| window == namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("lists of/today")).unwrap();
        std::fs::write(root.path().join("lists of/today/1.xml"), "<one/>").unwrap();
        let base_url = BaseUrl::parse("https://example.org/data/").unwrap();
        let folder = Folder::new(root.path(), base_url);
        (root, folder)
    }

    #[test]
    fn a_url_is_answered_by_the_file_below_the_base_url_alone() {
        let (_root, mut folder) = folder();
        let fetched = folder.get("https://example.org/data/lists%20of/today/1.xml").unwrap();
        assert_eq!(
            (fetched.bytes.as_slice(), fetched.content_type.as_deref()),
            (&b"<one/>"[..], Some("application/xml"))
        );
        for url in [
            "https://example.org/data/lists%20of/today/2.xml",
            "https://example.org/data/lists%20of/today/1.xml?x",
            "https://example.org/data/lists%20of/today/",
            "https://example.org/data/lists%20of/today",
            "https://example.org/data/%2e%2e/data/lists%20of/today/1.xml",
            "https://example.org/lists%20of/today/1.xml",
            "http://example.org/data/lists%20of/today/1.xml",
        ] {
            assert!(folder.get(url).is_err(), "{url}");
        }
    }

    #[test]
    fn the_base_url_stands_before_the_longest_end_that_is_a_file() {
        let (root, _folder) = folder();
        let base = |url: &str| base_of(root.path(), &Url::parse(url).unwrap()).map(String::from);
        let expected = Some("https://example.org/data/".to_owned());
        assert_eq!(base("https://example.org/data/lists%20of/today/1.xml?x"), expected);
        assert_eq!(base("https://example.org/today/1.xml"), None);
    }
}
