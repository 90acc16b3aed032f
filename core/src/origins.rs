//! From where the files of a copy came: the record that a Destination keeps beside them, and by which a Source that publishes the copy on
//! names the originals (RS-180 to RS-183).
//!
//! The record lies in the folder [`FOLDER`] of the copy: [`FILE`], and what later runs have added to it, [`ADDED_FILE`]. Both are lines of
//! JSON, one for each file; of several lines for one file the last counts, that of the second file before that of the first. A line that
//! cannot be read, such as one that was cut off, counts for nothing.
//!
//! ```json
//! {"path":"a/b%25.txt","uri":"https://example.org/a/b%25.txt","modified":"2026-01-03T09:00:00Z","length":12,"hash":"sha-256:…","type":"text/plain","links":[["canonical","https://example.org/b"]]}
//! ```
//!
//! `path` has the names below the copy, `/` between them, with `%` and all but printable ASCII percent-encoded. `uri` is the original's, by
//! the name that the first Source gave it (RS-181). `modified`, `length`, `hash` and `type` are the original's, and may be missing. `links`
//! are relations of the original that hold for any copy of it (RS-183).
//!
//! Whether a file is still the one that came from there, only its digest says: see [`Origin::is_of`].

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher as _;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};
use serde::{Deserialize, Serialize};

use crate::datetime::DateTime;
use crate::digest::{Agreement, Hashes};

/// The folder of the record, in that of the copy.
pub const FOLDER: &str = ".resync-destination";

/// The record of a whole copy.
pub const FILE: &str = "origins.jsonl";

/// What came later.
pub const ADDED_FILE: &str = "origins-added.jsonl";

/// What is escaped in a name; bytes that are no ASCII are anyway.
const IN_NAMES: &AsciiSet = &CONTROLS.add(b'%').add(b'/');

/// From where one file came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The file, as [`name`] writes it.
    pub path: String,
    /// The URI of the original.
    pub uri: String,
    /// When the original was last modified.
    pub modified: Option<DateTime>,
    /// Its length in bytes.
    pub length: Option<u64>,
    /// Its digests.
    pub hashes: Hashes,
    /// Its media type.
    pub media_type: Option<String>,
    /// Links of the original that hold for its copies too: relation and target.
    pub links: Vec<(String, String)>,
}

impl Origin {
    /// Whether a file with this length and these digests is the one that came from there. Without a digest in common nobody knows.
    pub fn is_of(&self, length: Option<u64>, hashes: &Hashes) -> bool {
        let is_as_long = self.length.zip(length).is_none_or(|(one, other)| one == other);
        is_as_long && self.hashes.compare(hashes) == Agreement::Same
    }
}

/// A line of the record.
#[derive(Serialize, Deserialize)]
struct Line {
    path: String,
    uri: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    hash: String,
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    links: Vec<(String, String)>,
}

/// What of a line says which file it is about.
#[derive(Deserialize)]
struct About {
    path: String,
}

/// A file of a copy, relative to that, as the record has it.
///
/// ```
/// use resync_core::origins::name;
///
/// assert_eq!(name("a/50 %".as_ref()), "a/50 %25");
/// ```
pub fn name(relative: &Path) -> String {
    let names = relative.iter().map(|name| percent_encode(name.as_encoded_bytes(), IN_NAMES).to_string());
    names.collect::<Vec<_>>().join("/")
}

/// Adds a line to a record.
pub fn write(out: &mut impl Write, origin: &Origin) -> io::Result<()> {
    let Origin { path, uri, modified, length, hashes, media_type, links } = origin.clone();
    let (modified, hash) = (modified.map(|modified| modified.to_string()), hashes.to_string());
    serde_json::to_writer(&mut *out, &Line { path, uri, modified, length, hash, media_type, links })?;
    out.write_all(b"\n")
}

/// The record of a copy, of which only the places of the lines are in memory.
#[derive(Debug)]
pub struct Origins {
    keys: RandomState,
    /// By a hash of the path: in which file, and where.
    lines: HashMap<u64, (usize, u64)>,
    files: Mutex<Vec<File>>,
}

impl Origins {
    /// The record of the copy in this folder; `None` where there is none.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(copy: &Path) -> io::Result<Option<Self>> {
        let folder = copy.join(FOLDER);
        let (mut files, mut lines, keys) = (Vec::new(), HashMap::new(), RandomState::new());
        for name in [FILE, ADDED_FILE] {
            let file = match File::open(folder.join(name)) {
                Err(error) if is_missing(&error) => continue,
                opened => opened?,
            };
            let mut reader = BufReader::new(&file);
            let (mut at, mut line) = (0, Vec::new());
            loop {
                line.clear();
                let length = reader.read_until(b'\n', &mut line)?;
                if length == 0 {
                    break;
                }
                if let Ok(About { path }) = serde_json::from_slice(&line) {
                    lines.insert(keys.hash_one(path.as_str()), (files.len(), at));
                }
                at += u64::try_from(length).unwrap_or(u64::MAX);
            }
            files.push(file);
        }
        Ok((!files.is_empty()).then(|| Self { keys, lines, files: Mutex::new(files) }))
    }

    /// From where this file came, which is named relative to the copy; `None` if the record does not say.
    ///
    /// # Errors
    /// What the file system says.
    pub fn find(&self, relative: &Path) -> io::Result<Option<Origin>> {
        let wanted = name(relative);
        let Some((file, at)) = self.lines.get(&self.keys.hash_one(wanted.as_str())) else { return Ok(None) };
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(mut file) = files.get(*file) else { return Ok(None) };
        file.seek(SeekFrom::Start(*at))?;
        let mut line = Vec::new();
        BufReader::new(file).read_until(b'\n', &mut line)?;
        // Another path may have the same hash.
        let line = serde_json::from_slice::<Line>(&line).ok().filter(|line| line.path == wanted);
        Ok(line.map(|Line { path, uri, modified, length, hash, media_type, links }| Origin {
            path,
            uri,
            modified: modified.and_then(|modified| modified.parse().ok()),
            length,
            hashes: Hashes::parse(&hash),
            media_type,
            links,
        }))
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Algorithm, Digest};

    fn origin(path: &str, content: &[u8]) -> Origin {
        Origin {
            path: name(path.as_ref()),
            uri: format!("http://example.org/{path}"),
            modified: "2026-01-03T09:00:00Z".parse().ok(),
            length: u64::try_from(content.len()).ok(),
            hashes: Digest::of(Algorithm::Sha256, content).into(),
            media_type: Some("text/plain".to_owned()),
            links: vec![("canonical".to_owned(), "http://example.org/c".to_owned())],
        }
    }

    #[test]
    fn rs180_what_is_recorded_of_a_file_is_found_and_its_last_line_counts() {
        let copy = tempfile::tempdir().unwrap();
        assert!(Origins::open(copy.path()).unwrap().is_none());
        let folder = copy.path().join(FOLDER);
        std::fs::create_dir(&folder).unwrap();
        let paths = ["a", "b\n%/ü", "c d"];
        let mut record = Vec::new();
        for path in paths {
            write(&mut record, &origin(path, b"old")).unwrap();
        }
        let mut added = Vec::new();
        write(&mut added, &origin("a", b"new")).unwrap();
        added.extend_from_slice(b"{\"path\":\"c d\",\"uri\":\"http://exa");
        std::fs::write(folder.join(FILE), &record).unwrap();
        std::fs::write(folder.join(ADDED_FILE), &added).unwrap();
        let origins = Origins::open(copy.path()).unwrap().unwrap();
        for (path, content) in [(paths[0], &b"new"[..]), (paths[1], b"old"), (paths[2], b"old")] {
            let found = origins.find(path.as_ref()).unwrap();
            assert_eq!(found, Some(origin(path, content)), "{path}");
        }
        assert_eq!(origins.find("b".as_ref()).unwrap(), None);
        // The form is a promise to other programs.
        let text = String::from_utf8(record).unwrap();
        let line = text.lines().nth(2).unwrap();
        let hash = Digest::of(Algorithm::Sha256, b"old");
        assert_eq!(
            line,
            format!(
                r#"{{"path":"c d","uri":"http://example.org/c d","modified":"2026-01-03T09:00:00Z","length":3,"hash":"{hash}","type":"text/plain","links":[["canonical","http://example.org/c"]]}}"#
            )
        );
    }

    #[test]
    fn rs180_a_file_that_is_no_longer_as_it_came_has_no_original() {
        let known = origin("a", b"old");
        let hashes = |content: &[u8]| Hashes::from(Digest::of(Algorithm::Sha256, content));
        assert!(known.is_of(Some(3), &hashes(b"old")) && known.is_of(None, &hashes(b"old")));
        assert!(!known.is_of(Some(3), &hashes(b"new")) && !known.is_of(Some(4), &hashes(b"old")));
        assert!(!known.is_of(Some(3), &Hashes::from(Digest::of(Algorithm::Md5, b"old"))), "nobody knows");
    }
}
