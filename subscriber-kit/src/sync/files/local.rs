//! Compares a local file with what a list says: by length first, then by hash, then by time.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use resync_core::datetime::DateTime;
use resync_core::digest::{Agreement, Algorithm, Hasher, Hashes};
use resync_core::document::{Entry, Link};
use serde::{Deserialize, Serialize};

use crate::sync::saved::cache::{CachedFile, Stamp};
use crate::text;

/// What a list says about a resource's representation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) length: Option<u64>,
    #[serde(with = "hashes")]
    pub(crate) hashes: Hashes,
    #[serde(with = "text::option")]
    pub(crate) modified: Option<DateTime>,
}

impl Facts {
    pub(crate) fn of(entry: &Entry) -> Self {
        let metadata = entry.metadata.as_ref();
        Self {
            length: metadata.and_then(|metadata| metadata.length),
            hashes: metadata.map(|metadata| metadata.hash.clone()).unwrap_or_default(),
            modified: entry.lastmod,
        }
    }

    /// What a link says about its target.
    pub(crate) fn of_link(link: &Link) -> Self {
        Self { length: link.length, hashes: link.hash.clone(), modified: link.modified }
    }

    /// With what a link to the same bytes says where these say nothing. Their time stays as it is.
    pub(crate) fn or_of_link(mut self, link: Option<&Link>) -> Self {
        if let Some(link) = link {
            self.length = self.length.or(link.length);
            if self.algorithm().is_none() {
                self.hashes = link.hash.clone();
            }
        }
        self
    }

    /// Whether there is neither a hash nor a time.
    pub(crate) fn name_no_version(&self) -> bool {
        self.algorithm().is_none() && self.modified.is_none()
    }

    /// The strongest algorithm among the listed hashes.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        [Algorithm::Sha256, Algorithm::Sha1, Algorithm::Md5]
            .into_iter()
            .find(|one| self.hashes.get(*one).is_some())
    }
}

/// Hashes as a JSON string.
mod hashes {
    use resync_core::digest::Hashes;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(hashes: &Hashes, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(hashes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Hashes, D::Error> {
        String::deserialize(from).map(|text| Hashes::parse(&text))
    }
}

/// How a local file compares with the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileState {
    Missing,
    Same,
    Different,
    /// The list says too little.
    Unverifiable,
}

/// The result of a comparison.
#[derive(Debug)]
pub(crate) struct Comparison {
    pub(crate) local: FileState,
    /// Its digests, for the cache.
    pub(crate) known: Option<CachedFile>,
    /// How many bytes were read.
    pub(crate) hashed: u64,
}

impl Comparison {
    pub(crate) fn of(local: FileState) -> Self {
        Self { local, known: None, hashed: 0 }
    }
}

/// Compares a file with the facts. A symbolic link or a folder is `Different`. A file whose digests are `known` is not read.
pub(crate) fn compare(path: &Path, facts: &Facts, known: Option<&CachedFile>) -> io::Result<Comparison> {
    let data = match std::fs::symlink_metadata(path) {
        Ok(data) => data,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Comparison::of(FileState::Missing));
        }
        Err(error) => return Err(error),
    };
    if !data.is_file() || facts.length.is_some_and(|length| length != data.len()) {
        return Ok(Comparison::of(FileState::Different));
    }
    if let Some(algorithm) = facts.algorithm() {
        return compare_digest(path, &data, facts, algorithm, known);
    }
    let Some(modified) = facts.modified else {
        let known = known.filter(|known| Stamp::of(&data).is_ok_and(|stamp| stamp == known.stamp));
        return Ok(Comparison { known: known.cloned(), ..Comparison::of(FileState::Unverifiable) });
    };
    Ok(Comparison::of(if same_second(modified, data.modified()?) {
        FileState::Same
    } else {
        FileState::Different
    }))
}

fn compare_digest(
    path: &Path,
    data: &std::fs::Metadata,
    facts: &Facts,
    algorithm: Algorithm,
    known: Option<&CachedFile>,
) -> io::Result<Comparison> {
    let stamp = Stamp::of(data)?;
    let known = known.filter(|known| known.stamp == stamp && known.hashes.get(algorithm).is_some());
    let (known, hashes, hashed) = if let Some(known) = known {
        (Some(known.clone()), known.hashes.clone(), 0)
    } else {
        let begun = SystemTime::now();
        let hashes = hash_file(path, algorithm)?;
        let known =
            stamp.is_settled_at(begun).then(|| CachedFile { stamp, hashes: hashes.clone(), sent: None });
        (known, hashes, data.len())
    };
    let same = facts.hashes.compare(&hashes) == Agreement::Same;
    Ok(Comparison { local: if same { FileState::Same } else { FileState::Different }, known, hashed })
}

/// The digest of a whole file.
pub(crate) fn hash_file(path: &Path, algorithm: Algorithm) -> io::Result<Hashes> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::new([algorithm]);
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.write_all(&buffer[..read])?,
        }
    }
}

/// `Last-Modified` has only seconds, so smaller differences mean nothing.
pub(crate) fn same_second(one: DateTime, other: SystemTime) -> bool {
    let one = one.to_system_time();
    let apart = one.duration_since(other).or_else(|_| other.duration_since(one)).unwrap_or_default();
    apart < Duration::from_secs(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use resync_core::digest::Digest;

    fn facts(length: Option<u64>, content: Option<&[u8]>) -> Facts {
        let hashes = content.map(|content| [Digest::of(Algorithm::Sha256, content)].into_iter().collect());
        Facts { length, hashes: hashes.unwrap_or_default(), modified: None }
    }

    fn file(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn rs195_length_and_hash_decide_without_a_download() {
        let file = file(b"hello");
        let ask = |facts: &Facts| compare(file.path(), facts, None).unwrap().local;
        assert_eq!(ask(&facts(Some(5), Some(b"hello"))), FileState::Same);
        assert_eq!(ask(&facts(Some(5), Some(b"jello"))), FileState::Different);
        assert_eq!(ask(&facts(Some(6), Some(b"hello"))), FileState::Different);
        assert_eq!(ask(&facts(Some(5), None)), FileState::Unverifiable);
        assert_eq!(
            compare(Path::new("/nonexistent/x"), &facts(None, None), None).unwrap().local,
            FileState::Missing
        );
    }

    #[test]
    fn rs035_a_digest_that_cannot_be_read_is_no_mismatch() {
        let file = file(b"hello");
        let facts = Facts { hashes: Hashes::parse("sha-256:???"), ..Facts::default() };
        assert_eq!(compare(file.path(), &facts, None).unwrap().local, FileState::Unverifiable);
    }

    #[test]
    fn without_hashes_the_time_decides_to_the_second() {
        let file = file(b"hello");
        let at = std::fs::metadata(file.path()).unwrap().modified().unwrap();
        let facts = |at| Facts { modified: Some(DateTime::from_system_time(at)), ..Facts::default() };
        let ask = |at| compare(file.path(), &facts(at), None).unwrap().local;
        assert_eq!(ask(at), FileState::Same);
        assert_eq!(ask(at + Duration::from_secs(60)), FileState::Different);
    }
}
