//! What is in a collection, kept in a file from one build to the next: one line of JSON a resource, in the order of their URLs.
//!
//! It is written while the folder is walked and read line by line, so that nobody ever holds the whole of it.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, BufWriter, Lines, Write as _},
    path::{Path, PathBuf},
    sync::mpsc::channel,
};

use resync_core::{
    build::{
        BuildError, FileInventory, Folder, FolderSink, Item, Sink as _, SkipReason, Skipped, Unportable,
    },
    datetime::DateTime,
    digest::{Algorithm, Digest, Hasher, Hashes},
};
use serde::{Deserialize, Serialize};

use crate::{settings::BaseUrl, state::FOLDER, stored::text_option};

const NAME: &str = "inventory.jsonl";

/// A snapshot of a collection. Every state in it is at least as new as `started` (RS-021).
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    /// Before the first file was looked at.
    pub(crate) started: DateTime,
    /// After the last file was read.
    pub(crate) completed: DateTime,
    /// Number of resources.
    pub(crate) resources: u64,
    /// Sum of their lengths in bytes.
    pub(crate) bytes: u64,
    /// Digest of all that is known of them: equal for snapshots of an unchanged collection.
    pub(crate) meaning: Digest,
    /// What lies in the folder and was left out, ordered by path.
    pub(crate) skipped: Vec<Skipped>,
    /// The resources whose names not every Destination can keep, ordered by path.
    pub(crate) unportable: Vec<Unportable>,
}

/// Takes the inventory of `collection` and keeps it in the state of the site in `out`.
pub(crate) fn take(
    collection: Folder,
    base: &BaseUrl,
    algorithms: &[Algorithm],
    out: &Path,
) -> Result<Taken, BuildError> {
    let ((skip, skipped), (wonder, unportable)) = (channel(), channel());
    let files = FileInventory::below(collection, base.as_str())
        .algorithms(algorithms.iter().copied())
        .media_type(|path| mime_guess::from_path(path).first().map(|guess| guess.essence_str().to_owned()))
        .on_skipped(move |one| drop(skip.send(one)))
        .on_unportable(move |one| drop(wonder.send(one)))
        .start()?;
    let started = files.started();
    let mut sink = FolderSink::open(out.join(FOLDER))?;
    let mut lines = BufWriter::new(sink.create(NAME)?);
    let mut hasher = Hasher::new([Algorithm::Sha256]);
    let (mut resources, mut bytes) = (0, 0);
    for item in files {
        let item = item?;
        resources += 1;
        bytes += item.length.unwrap_or(0);
        let mut line = serde_json::to_vec(&Line::from(item)).map_err(io::Error::from)?;
        line.push(b'\n');
        hasher.update(&line);
        lines.write_all(&line)?;
    }
    let staged = sink.stage(lines.into_inner().map_err(io::IntoInnerError::into_error)?)?;
    sink.publish(staged)?;
    // What vanished is no news.
    let mut skipped: Vec<_> = skipped.iter().filter(|one| one.reason != SkipReason::Dangling).collect();
    skipped.sort_by(|one, other| one.path.cmp(&other.path));
    let mut unportable: Vec<_> = unportable.iter().collect();
    unportable.sort_by(|one, other| one.path.cmp(&other.path));
    let hashes = hasher.finish();
    let meaning = *hashes.get(Algorithm::Sha256).expect("it was asked for SHA-256");
    Ok(Taken { started, completed: DateTime::now(), resources, bytes, meaning, skipped, unportable })
}

/// The inventory that was kept last.
pub(crate) fn kept(out: &Path) -> Result<Kept, BuildError> {
    let path = out.join(FOLDER).join(NAME);
    match File::open(&path) {
        Ok(file) => Ok(Kept { lines: BufReader::new(file).lines(), path }),
        Err(source) => Err(BuildError::File { path, source }),
    }
}

/// An inventory that is read from its file.
#[derive(Debug)]
pub(crate) struct Kept {
    lines: Lines<BufReader<File>>,
    path: PathBuf,
}

impl Iterator for Kept {
    type Item = Result<Item, BuildError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.lines.next()?;
        let item = line.and_then(|line| Ok(serde_json::from_str::<Line>(&line)?.into()));
        Some(item.map_err(|source| BuildError::File { path: self.path.clone(), source }))
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    loc: String,
    #[serde(with = "text_option")]
    lastmod: Option<DateTime>,
    length: Option<u64>,
    hashes: String,
    media_type: Option<String>,
}

impl From<Item> for Line {
    fn from(item: Item) -> Self {
        let Item { loc, lastmod, length, hashes, media_type, .. } = item;
        Self { loc, lastmod, length, hashes: hashes.to_string(), media_type }
    }
}

impl From<Line> for Item {
    fn from(line: Line) -> Self {
        let Line { loc, lastmod, length, hashes, media_type } = line;
        Self { lastmod, length, hashes: Hashes::parse(&hashes), media_type, ..Self::new(loc) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::collection;

    fn taken(data: &Path, out: &Path) -> Taken {
        fs::create_dir_all(out).unwrap();
        let base = BaseUrl::parse("http://example.org/c").unwrap();
        take(collection::open(data, out).unwrap(), &base, &[Algorithm::Sha256], out).unwrap()
    }

    #[test]
    fn what_was_taken_is_kept_with_length_digest_and_type_in_the_order_of_urls() {
        let place = tempfile::tempdir().unwrap();
        let (data, out) = (place.path().join("data"), place.path().join("out"));
        fs::create_dir_all(data.join("b")).unwrap();
        for name in ["c.txt", "b/z.xml", "b/a b.pdf", "a", "b.part"] {
            fs::write(data.join(name), name).unwrap();
        }
        let taken = taken(&data, &out);
        assert_eq!((taken.resources, taken.bytes, taken.skipped.len()), (4, 22, 1));
        assert!(taken.started <= taken.completed);
        let items: Vec<_> = kept(&out).unwrap().map(Result::unwrap).collect();
        let locs: Vec<_> =
            items.iter().map(|item| item.loc.strip_prefix("http://example.org/c/").unwrap()).collect();
        assert_eq!(locs, ["a", "b/a%20b.pdf", "b/z.xml", "c.txt"]);
        let text = &items[3];
        assert_eq!(text.length, Some(5));
        assert_eq!(text.hashes.get(Algorithm::Sha256), Some(&Digest::of(Algorithm::Sha256, b"c.txt")));
        assert_eq!(text.media_type.as_deref(), Some("text/plain"));
        assert!(text.lastmod.is_some_and(|lastmod| lastmod <= taken.started));
        assert_eq!(items[0].media_type, None);
    }

    #[test]
    fn the_meaning_ignores_when_the_snapshot_was_taken_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let (data, out) = (place.path().join("data"), place.path().join("out"));
        fs::create_dir(&data).unwrap();
        fs::write(data.join("a"), "one").unwrap();
        let first = taken(&data, &out).meaning;
        assert_eq!(taken(&data, &out).meaning, first);
        fs::write(data.join("a"), "two").unwrap();
        let second = taken(&data, &out).meaning;
        assert_ne!(second, first);
        fs::write(data.join("b"), "").unwrap();
        assert_ne!(taken(&data, &out).meaning, second);
    }
}
